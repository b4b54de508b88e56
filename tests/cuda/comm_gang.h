/* SPDX-License-Identifier: MIT */
/* A gang: a group of ranks on simulated GPUs (tests/doubles), with a thread and a device for each
 * rank, as in a trainer.
 *
 *     comm_gang g = {.type = &ls_cuda_comm_ordered, .ranks = 3, .shards = 8, .floats = 1040};
 *     comm_gang_run(&g);                    opens, merges g.steps times, closes
 *     g.member[r].status, g.member[r].err   its result
 *
 * Every rank that fails aborts the group, as a trainer's worker does. The merged arenas are in
 * member[r].result[step], to be compared with comm_gang_expected. */
#ifndef TESTS_CUDA_COMM_GANG_H
#define TESTS_CUDA_COMM_GANG_H

#include "comm/comm.h"
#include "cuda/comm/group.h"

#include <pthread.h>
#include <stdatomic.h>

enum { GANG_RANKS = 8, GANG_STEPS = 4, GANG_SEGMENTS = 8 };

typedef struct comm_gang comm_gang;

typedef struct comm_member {
    comm_gang *gang;
    int rank;
    pthread_t thread;
    ls_device *device;
    ls_fold fold;
    int has_fold;
    ls_comm *comm;
    float *leaf, *total, *host;
    float *result[GANG_STEPS];
    int merged;     /* number of times that all_reduce returned LS_OK */
    int steps_done; /* number of steps whose result was copied to the host */
    ls_comm_times times;
    int status;
    ls_error err;
} comm_member;

struct comm_gang {
    const ls_comm_type *type;
    int ranks, shards, steps;
    size_t floats;
    int share;       /* non-zero: all ranks use device 0; else rank r uses device r */
    const int *gpus; /* [rank]: number of the rank's device; NULL: `share` decides */
    /* non-zero: each rank calls merge_ready at each segment; each rank must have one shard */
    int ahead;
    int check;           /* non-zero: the group first runs the start-up check */
    uint64_t timeout_ns; /* 0: 5 s */
    /* The members of the run, of which this group is one process with the leaves `span`. NULL:
     * there is only this process. */
    struct ls_cluster *members;
    ls_span span;
    int first_step; /* the group makes steps first_step … steps − 1 */
    int absent;     /* rank + 1 of a rank that never merges; 0: none */
    /* begins of the segments in floats, at most GANG_SEGMENTS; each segment is a bucket */
    const size_t *segments;
    int segment_count;
    void (*plant)(void); /* called once, when all ranks have joined; may be NULL */
    /* Called by each rank in each step, after it has computed its shards and before all_reduce.
     * all_reduce is called only if it returns LS_OK. May be NULL. */
    int (*between)(comm_member *member, int step);
    /* Called by each rank after its last merge, before it leaves; may be NULL. */
    void (*last)(comm_member *member);

    ls_comm_group *group;
    int group_status;
    ls_error group_err;
    comm_member member[GANG_RANKS];
    _Atomic int opened, planted, returned;
};

/* Runs the group. dbl_begin must have been called. */
void comm_gang_run(comm_gang *g);
void comm_gang_free(comm_gang *g); /* frees the results */

/* Returns LS_OK if all ranks have succeeded. Otherwise returns the first failure that is not
 * LS_EABORTED, or LS_EABORTED if there is no other. */
int comm_gang_status(const comm_gang *g);
const char *comm_gang_text(const comm_gang *g);

/* Fills the contribution of shard `shard` in step `step`: numbers of very different sizes, so that
 * another order of summation gives other bits. */
void comm_gang_fill(float *leaf, int shard, int step, size_t floats);

/* Computes the result of the library's communicator `ordered` on reference devices for the same
 * leaves (comm_expected.c). */
void comm_gang_expected(float *out, int ranks, int shards, int step, size_t floats);

/* The following functions fail the running cmocka test (comm_expected.c). */
void comm_gang_must_be_clean(void);              /* fails if dbl_end has found a violation */
void comm_gang_must_succeed(const comm_gang *g); /* fails if a rank has failed */
/* fails if a result has other bits than expected */
void comm_gang_must_match(const comm_gang *g);

#endif
