/* All-reduce: the sum of everybody's numbers, in everybody's memory.
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
 * It is what the trainer merges gradients with. A call has one commit point: either every rank
 * returns LS_OK with the whole sum in memory of its own, or none does.
 */
#ifndef LOCKSTEP_COLLECTIVE_H
#define LOCKSTEP_COLLECTIVE_H

#include <lockstep/device_pool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A group of ranks that add up arrays of one length. */
typedef struct ls_collective ls_collective;

typedef struct ls_collective_options {
    size_t size;   /* sizeof(ls_collective_options) */
    int ranks;     /* 1 … 65535: how many take part in each call */
    size_t floats; /* of every array, ≥ 1 */
    /* "ordered": every rank adds up one chunk and gathers the others, in the order of a binary tree
     * over the ranks. "naive": rank 0 adds up everything, in the order of the ranks, and the others
     * copy it. The bits of both depend on nothing but the numbers and the ranks. NULL:
     * "ordered". */
    const char *algorithm;
    ls_timeout
        timeout; /* longest wait for the other ranks in one call, as in pool.h; 0: LS_FOREVER */
    const ls_host *host; /* outlives the group; NULL: the defaults */
} ls_collective_options;

/* Makes a group. Any thread. Errors: LS_EINVAL (an algorithm that does not exist, no ranks, nothing
 * to add up), LS_ENOMEM. */
int ls_collective_create(ls_collective **out, const ls_collective_options *options, ls_error *err);

/* Collective: each rank 0 … ranks − 1 calls it, once per round, on the thread that its device is
 * bound to, always with the same device. `in` and `out` hold `floats` floats of that device's
 * memory and stay the caller's; `out` receives the sum of every rank's `in`. Both may be the same
 * array. A length that is a multiple of 16, with two different arrays, saves a copy. Nothing is
 * allocated after a rank's first call of either kind. On success nobody reads `in` any more; after
 * an error another rank may, until it has returned too.
 * Errors: LS_EABORTED (another rank failed or called ls_collective_abort), LS_ETIMEDOUT (naming who
 * is missing), LS_EUNSUPPORTED (a device that does not share the host's memory), LS_ENOMEM,
 * LS_EINVAL. Any of them aborts the group for good, so that nobody waits for a rank that has
 * failed; what `out` holds is undefined then. To go on, make a new group of the ranks that are
 * left. */
int ls_all_reduce(ls_collective *c, int rank, ls_device *device, const float *in, float *out,
                  ls_error *err);

/* Any thread, any number of times: every rank that waits, and every later call, returns
 * LS_EABORTED. For a worker that fails before it comes to its all-reduce. */
void ls_collective_abort(ls_collective *c);

/* Frees the group; nobody may be inside a call, so with a rank that stalled in one the group stays.
 * It may outlive the devices. NULL is allowed. */
void ls_collective_destroy(ls_collective *c);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
