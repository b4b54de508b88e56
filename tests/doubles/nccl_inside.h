/* SPDX-License-Identifier: MIT */
/* Common parts of the files of the NCCL double. */
#ifndef TESTS_DOUBLES_NCCL_INSIDE_H
#define TESTS_DOUBLES_NCCL_INSIDE_H

#include "doubles/inside.h"

#include <nccl.h>

/* nccl.h declares these without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

enum { DBL_RANKS = 32, DBL_GROUP = 256 };

/* Messages from one rank to another, in order. */
typedef struct dbl_channel {
    dbl_fifo messages;
    uint64_t sent; /* used by the sender */
    _Atomic uint64_t taken;
} dbl_channel;

/* The ranks of one unique id. */
typedef struct dbl_clique dbl_clique;
struct dbl_clique {
    dbl_clique *next;
    uint32_t id;
    int ranks; /* 0: no rank has joined yet */
    pthread_mutex_t lock;
    int present[DBL_RANKS];
    int device[DBL_RANKS];
    _Atomic int arrived;
    _Atomic int leaving;  /* number of ranks that have aborted */
    _Atomic int flagged;  /* number of ranks whose abort has begun */
    dbl_channel *channel; /* [from][to] */
    const void **limbo;   /* buffers of aborted operations, until every rank has aborted */
    size_t limbo_count, limbo_room;
};

struct ncclComm {
    _Atomic int magic;
    dbl_clique *clique;
    int rank, device;
    pthread_mutex_t lock;
    int initialising;
    int polls;             /* until the current operation is ready */
    ncclResult_t state;    /* guarded by the lock */
    dbl_work *deferred[8]; /* not enqueued yet; deferred_to: their streams */
    cudaStream_t deferred_to[8];
    int deferred_count;
    _Atomic int aborted;
    _Atomic int running; /* number of operations that have begun */
    _Atomic int error;   /* error of an operation */
    _Atomic(cudaStream_t) stream;
};

typedef enum dbl_op_kind { DBL_ALL_REDUCE = 1, DBL_SEND, DBL_RECV } dbl_op_kind;

typedef struct dbl_op {
    dbl_op_kind kind;
    const void *send;
    void *recv;
    size_t count, item; /* number of items, and size of one in bytes */
    int peer;           /* peer of a send or receive */
} dbl_op;

/* nccl_comm.c */
void dbl_comms_begin(void);
/* Ends an abort: waits for the communicator's operations and destroys it. */
void dbl_comm_abort_end(ncclComm_t comm);
/* Checks that the communicator may be given work: alive, ready, not aborted. */
ncclResult_t dbl_comm_check(ncclComm_t comm, const char *caller);
/* Releases the hold on the buffer as soon as every rank has left. */
void dbl_limbo(dbl_clique *clique, const void *memory);

/* nccl_group.c */
/* Returns non-zero if the calling thread is in a group; the abort then ends with the group. */
int dbl_group_abort(ncclComm_t comm);

/* nccl_run.c */
dbl_work *dbl_nccl_work(ncclComm_t comm, const dbl_op *ops, int count);

#endif
