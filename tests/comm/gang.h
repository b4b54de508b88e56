/* A group of ranks for the tests of src/comm: one thread and one reference device each. */
#ifndef TESTS_COMM_GANG_H
#define TESTS_COMM_GANG_H

#include "comm/comm.h"
#include "sync/deal.h"

#include <pthread.h>

#define GANG_MOST 64

typedef struct gang gang;

typedef struct gang_member {
    gang *gang;
    int rank;
    pthread_t thread;
    ls_device *device;
    ls_comm *comm;
    ls_fold fold;
    ls_hand hand; /* hand.deal NULL: its shards are fixed */
    float *leaf, *total;
    ls_comm_times times;
    int status;
    ls_error err;
} gang_member;

struct gang {
    ls_comm_group_desc desc;
    ls_comm_group *group;
    ls_deal *deal;
    gang_member member[GANG_MOST];
    size_t segments[4];
    void *user;
};

/* Opens a group. `floats` is a multiple of 16. Members have the shards that ls_split assigns
 * them. */
void gang_begin(gang *g, const ls_comm_type *type, int ranks, int shards, size_t floats,
                uint64_t timeout_ns);
/* The same for one process of a run, which has the leaves `span`. `members` must have been
 * prepared. */
void gang_begin_member(gang *g, const ls_comm_type *type, int ranks, int shards, size_t floats,
                       uint64_t timeout_ns, struct ls_cluster *members, ls_span span);
/* From now on shards are dealt to the members as they come. Every member has one at least. */
void gang_deal(gang *g);
void gang_end(gang *g);

/* Runs `body` once in every member, each on a thread of its own, and joins the threads. */
void gang_run(gang *g, void (*body)(gang_member *member));

/* Pushes this member's shards, each filled by fill(leaf, shard, floats, user). */
int gang_fold(gang_member *member, void (*fill)(float *leaf, int shard, size_t floats, void *user),
              void *user);
/* Does the same, and merges. */
int gang_reduce(gang_member *member,
                void (*fill)(float *leaf, int shard, size_t floats, void *user), void *user);

#endif
