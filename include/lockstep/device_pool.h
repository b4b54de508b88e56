/* The worker pool with a device bound to each worker.
 *
 *     static int job(const ls_worker *w, void *arg, ls_error *err)
 *     {
 *         ls_device *device = ls_worker_device(w);    // this worker's own, current on this thread
 *         ...
 *     }
 *
 *     ls_registry *registry;
 *     ls_registry_create(&registry, NULL, &err);      // every back end that was built in
 *     ls_device_pool_options o = {.size = sizeof o, .registry = registry, .devices = "auto"};
 *     ls_pool *pool;
 *     ls_device_pool_create(&pool, &o, &err);         // use it with the functions of pool.h
 *     ls_pool_run(pool, job, NULL, LS_FOREVER, &err);
 *     ls_pool_destroy(pool);                          // closes the devices
 *     ls_registry_destroy(registry);
 *
 * A worker that stalls is given up as pool.h says. Its device is closed when it comes back before
 * the pool has been destroyed; else neither the stop hook runs nor is the device closed, and the
 * device's memory stays. `host` has to outlive such a worker's job.
 */
#ifndef LOCKSTEP_DEVICE_POOL_H
#define LOCKSTEP_DEVICE_POOL_H

#include <lockstep/device.h>
#include <lockstep/pool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- back ends ------------------------------------------------------------------------------ */

/* The back ends a program knows, in order of preference. Any thread; no other call may be inside while
 * ls_registry_add or ls_registry_destroy runs. */
typedef struct ls_registry ls_registry;

/* A registry of the back ends this library was built with. `host` may be NULL; it outlives the
 * registry. Errors: LS_ENOMEM. */
int ls_registry_create(ls_registry **out, const ls_host *host, ls_error *err);

/* Adds a back end, which outlives the registry. Errors: LS_EINVAL (another ABI, no name or one that is
 * taken, too many). */
int ls_registry_add(ls_registry *registry, const ls_backend *backend, ls_error *err);

/* The back ends in order; NULL when `index` is past the last. */
const ls_backend *ls_registry_at(const ls_registry *registry, int index);

void ls_registry_destroy(ls_registry *registry); /* NULL is allowed */

/* ---- the pool ------------------------------------------------------------------------------- */

/* Where max_devices cuts the list of a CPU's devices, each worker's team gets an equal part of all the cores
 * that may be used; else it is of one thread. Results do not depend on it. */
#define LS_TEAMS_OF_THE_REST (-1)

typedef struct ls_device_pool_options {
    size_t size; /* sizeof(ls_device_pool_options) */
    const ls_registry *registry;
    /* One worker per device: "auto" (every GPU, else one CPU device per allowed CPU), "cpu" or
     * "cuda" (all of that kind), "cpu:4" (four), "cuda:0,1" (these; the same one twice gives two
     * workers that share it). NULL: "auto". */
    const char *devices;
    int max_devices;        /* "auto" and a bare kind take at most so many; 0: no limit */
    int threads;            /* each CPU worker's team; 0: 1; LS_TEAMS_OF_THE_REST */
    ls_precision precision; /* of products, where a device offers more than fp32 */
    const char *cache_dir;  /* where devices keep choices of kernels from run to run; NULL: nowhere.
                             * Outlives the pool */
    int inbox;              /* jobs an inbox holds; 0: the default of pool.h */
    /* Run on the worker's thread after its device is bound, and before it is closed; `local`
     * is then what ls_worker_local returns. Optional. */
    int (*start)(const ls_worker *worker, ls_device *device, void **local, void *user,
                 ls_error *err);
    void (*stop)(const ls_worker *worker, ls_device *device, void *local, void *user);
    void *user;
    const ls_host *host;
    /* As in pool.h: what the threads are called (NULL: by the back end's name), whether they are
     * *not* pinned (the workers of a CPU are, unless this is set; those of GPUs never), whether the owner
     * is worker 0, how many of the last workers run on lent threads, and whether jobs are timed. −1 for
     * `borrowed` means all workers but the owner: how many those are, the pool's size says. A lent thread opens
     * its device in ls_pool_serve. */
    const char *name;
    int no_pinning;
    int caller_works;
    int borrowed;
    int time_jobs;
} ls_device_pool_options;

/* Opens the devices, each on a worker of its own, and returns the pool when all are bound but those
 * of borrowed workers. The calling thread is the pool's owner (pool.h).
 * Errors: LS_EINVAL (a device list that cannot be read, with the fix), LS_EDEVICE (a device that
 * is absent or broken, and which of the two), those of ls_pool_create and of the start hook. */
int ls_device_pool_create(ls_pool **out, const ls_device_pool_options *options, ls_error *err);

/* Within a job of a device pool: the worker's device, and its start hook's `local`. */
ls_device *ls_worker_device(const ls_worker *worker);
void *ls_worker_local(const ls_worker *worker);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
