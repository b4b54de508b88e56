/* SPDX-License-Identifier: MIT */
/* All-reduce: the element-wise sum of one array per *rank* (participant, such as a worker of a
 * pool), with the result on every rank.
 *
 *     ls_collective_options o = {.size = sizeof o, .ranks = ls_pool_size(pool), .floats = n};
 *     ls_collective *group;
 *     ls_collective_create(&group, &o, &err);
 *
 *     static int job(const ls_worker *w, void *arg, ls_error *err)       // on every worker
 *     {
 *         ...
 *         return ls_all_reduce(group, w->index, ls_worker_device(w), mine, sum, err);
 *     }
 *
 *     ls_pool_run(pool, job, &state, LS_FOREVER, &err);
 *     ls_collective_destroy(group);
 *
 * The trainer sums gradients with the same implementation. A *round* is one all-reduce, in which
 * every rank makes one call. Each round has one moment that decides for all ranks: either every
 * rank returns LS_OK with the complete sum in its own memory, or none does.
 */
#ifndef LOCKSTEP_COLLECTIVE_H
#define LOCKSTEP_COLLECTIVE_H

#include <lockstep/device_pool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A group of ranks that sum arrays of one length. */
typedef struct ls_collective ls_collective;

/* Options of ls_collective_create. */
typedef struct ls_collective_options {
    size_t size;   /* sizeof(ls_collective_options) */
    int ranks;     /* number of ranks that take part in each round, 1 … 65535 */
    size_t floats; /* length of every array in floats, ≥ 1 */
    /* "ordered": the arrays are cut into one chunk per rank. Each rank computes the sum of its
     * chunk, with the additions in the order of a binary tree over the ranks, and copies the sums
     * of the other chunks from the ranks that have computed them. "naive": rank 0 computes the
     * whole sum, in the order of the ranks, and the other ranks copy it. With both algorithms, the
     * bits of the result depend only on the input values and on which rank passed which array.
     * NULL: "ordered". */
    const char *algorithm;
    ls_timeout timeout;  /* longest wait for other ranks in one call; 0: the default, which is
                          * LS_FOREVER */
    const ls_host *host; /* allocator and log (host.h); outlives the group; NULL: malloc, no log */
} ls_collective_options;

/* Creates a group. Any thread. Errors: LS_EINVAL (unknown algorithm, or a number of ranks or floats
 * that is out of range), LS_ENOMEM. */
int ls_collective_create(ls_collective **out, const ls_collective_options *options, ls_error *err);

/* Sums `in` over all ranks and writes the result to `out`. Collective: each rank 0 … ranks − 1
 * calls it once per round.
 *
 * - rank, device: the calling rank and its device; a rank has the same device in every call
 * - in, out: `floats` floats each (ls_collective_options), in that device's memory, owned by the
 *   caller. `in` and `out` may be the same array. The rank first copies `in` to a buffer of its own
 *   if they are the same array, or if `floats` is not a multiple of 16.
 *
 * A rank allocates memory at most twice: in its first call, and when it copies `in` for the first
 * time. After success no rank reads `in` any more. After an error another rank can still read `in`
 * until that rank has returned too.
 * Errors: LS_EABORTED (another rank failed or called ls_collective_abort), LS_ETIMEDOUT (the
 * message names the missing ranks), LS_EUNSUPPORTED (the device does not share the host's memory),
 * LS_ENOMEM, LS_EINVAL. Any error aborts the group permanently, so that no rank waits for one that
 * failed. The contents of `out` are undefined then. To continue, create a new group of the
 * remaining ranks.
 * Threads: the worker's thread, on which the device was opened. */
int ls_all_reduce(ls_collective *c, int rank, ls_device *device, const float *in, float *out,
                  ls_error *err);

/* Aborts the group: every rank that waits in ls_all_reduce, and every later call, returns
 * LS_EABORTED. A worker that fails before it reaches its all-reduce calls this function. Any
 * thread, any number of times. */
void ls_collective_abort(ls_collective *c);

/* Frees the group. No rank may be inside a call: a group with a rank that never returned from
 * ls_all_reduce must not be destroyed. The ranks' devices may be closed before the group is
 * destroyed. NULL is allowed. Any thread. */
void ls_collective_destroy(ls_collective *c);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
