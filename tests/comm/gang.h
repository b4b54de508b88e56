/* SPDX-License-Identifier: MIT */
/* A *gang*: a group of ranks for the tests of src/comm. Each rank, here called a gang member, has a
 * thread and a reference device of its own. comm/comm.h explains ranks, folds and merges. */
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
    /* the shards that were dealt to the rank (sync/deal.h); hand.deal NULL: shards are not dealt */
    ls_hand hand;
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

/* Opens a group. `floats`: length of an arena, a multiple of 16. Each gang member has the shards
 * that ls_split assigns to it. */
void gang_begin(gang *g, const ls_comm_type *type, int ranks, int shards, size_t floats,
                uint64_t timeout_ns);
/* Opens the group of one process in a run of several processes. `span`: the shards of this process.
 * `members`: the cluster of the processes, for which ls_cluster_prepare must have been called. */
void gang_begin_member(gang *g, const ls_comm_type *type, int ranks, int shards, size_t floats,
                       uint64_t timeout_ns, struct ls_cluster *members, ls_span span);
/* From this call on, shards are dealt to the gang members while they compute. Each gang member gets
 * at least one shard. */
void gang_deal(gang *g);
void gang_end(gang *g);

/* Runs `body` once for every gang member, each on a thread of its own, and waits for the
 * threads. */
void gang_run(gang *g, void (*body)(gang_member *member));

/* Pushes the gradients of this gang member's shards to its fold. fill(leaf, shard, floats, user)
 * writes the values of each shard. */
int gang_fold(gang_member *member, void (*fill)(float *leaf, int shard, size_t floats, void *user),
              void *user);
/* A `fill` for gang_fold: each value is 1. */
void gang_ones(float *leaf, int shard, size_t floats, void *user);
/* Works like gang_fold, and then merges. */
int gang_reduce(gang_member *member,
                void (*fill)(float *leaf, int shard, size_t floats, void *user), void *user);

#endif
