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
 * A worker that stalls can be abandoned as pool.h describes. If its job returns before the pool has
 * been destroyed, the destruction closes its device. Otherwise its stop hook does not run, its
 * device is not closed, and the device's memory is leaked; options.host must then exist until the
 * job returns.
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

/* An ordered list of back ends, preferred ones first. Any thread may call its functions, but no
 * other call may run during ls_registry_add and ls_registry_destroy. */
typedef struct ls_registry ls_registry;

/* Creates a registry of the back ends that this library was built with. `host` is the allocator and
 * log of the embedding program (host.h); it may be NULL and must outlive the registry. Any thread.
 * Errors: LS_ENOMEM. */
int ls_registry_create(ls_registry **out, const ls_host *host, ls_error *err);

/* Appends a back end, which must outlive the registry. Any thread, while no other thread uses this
 * registry. Errors: LS_EINVAL (the back end has another ABI, no name or a name that is taken, or
 * the registry is full). */
int ls_registry_add(ls_registry *registry, const ls_backend *backend, ls_error *err);

/* Returns back end number `index`, from 0 in order, or NULL if there are no more. Any thread. */
const ls_backend *ls_registry_at(const ls_registry *registry, int index);

/* Frees the registry. NULL is allowed. Any thread, while no other thread uses this registry. */
void ls_registry_destroy(ls_registry *registry);

/* ---- the pool ------------------------------------------------------------------------------- */

/* Value of ls_device_pool_options.threads that also uses the cores for which there is no worker. A
 * CPU worker computes with a team of threads. If options.max_devices has reduced the number of CPU
 * workers, the cores that the process may use (ls_allowed_cores) are divided equally among the
 * workers' teams, one thread per core. If max_devices has reduced nothing, each team has one
 * thread. Results do not depend on the size of the teams. */
#define LS_TEAMS_OF_THE_REST (-1)

/* Options of ls_device_pool_create. */
typedef struct ls_device_pool_options {
    size_t size;                 /* sizeof(ls_device_pool_options) */
    const ls_registry *registry; /* the back ends to choose from */
    /* List of devices, one worker each: "auto" (all GPUs; if there is no GPU, one CPU device for
     * each core of ls_allowed_cores), "cpu" or "cuda" (all devices of that kind), "cpu:4" (four CPU
     * devices), "cuda:0,1" (these two GPUs; a number given twice makes two workers that share the
     * GPU). NULL: "auto". */
    const char *devices;
    int max_devices;        /* largest number of devices that "auto", "cpu" or "cuda" selects; 0:
                             * no limit */
    int threads;            /* threads of each CPU worker's team; 0: 1; or LS_TEAMS_OF_THE_REST */
    ls_precision precision; /* precision of products, on devices that offer more than fp32 */
    const char *cache_dir;  /* directory in which devices cache their choices of kernels between
                             * runs; NULL: no cache. Outlives the pool */
    int inbox;              /* capacity of a worker's inbox in jobs; 0: the default of pool.h */
    /* Optional hooks on the worker's thread: start runs after its device is bound, stop before the
     * device is closed. ls_worker_local returns what start has stored in *local. A negative status
     * of start makes ls_device_pool_create fail with that error. */
    int (*start)(const ls_worker *worker, ls_device *device, void **local, void *user,
                 ls_error *err);
    void (*stop)(const ls_worker *worker, ls_device *device, void *local, void *user);
    void *user;          /* passed to both hooks */
    const ls_host *host; /* allocator and log; NULL: the defaults */
    const char *name;    /* prefix of thread names, as in pool.h; NULL: the back end's name */
    int no_pinning;      /* non-zero: CPU workers are not pinned; workers of GPUs never are */
    int caller_works;    /* non-zero: the owner is worker 0, as in pool.h */
    /* Number of workers that run on threads of the host program, which calls ls_pool_serve on them,
     * as in pool.h. The workers with the highest indices are the borrowed ones. A lent thread opens
     * its worker's device in ls_pool_serve. −1: all workers are borrowed, except worker 0 if
     * caller_works is set; ls_pool_size returns the number of workers. */
    int borrowed;
    int time_jobs; /* non-zero: measure how long jobs take, as in pool.h */
} ls_device_pool_options;

/* Creates a pool with one worker per device. Each worker opens its device on its own thread; the
 * function returns when all devices are bound, except those of borrowed workers. The calling thread
 * is the pool's owner (pool.h).
 * Errors: LS_EINVAL (the device list cannot be parsed; the message says what is allowed),
 * LS_EDEVICE (a device is absent or broken; the message says which of the two), those of
 * ls_pool_create and of the start hook. */
int ls_device_pool_create(ls_pool **out, const ls_device_pool_options *options, ls_error *err);

/* Returns the device of the worker. Only within a job of a device pool, on the worker's thread. */
ls_device *ls_worker_device(const ls_worker *worker);
/* Returns the `local` pointer that the start hook stored. Only within a job of a device pool, on
 * the worker's thread. */
void *ls_worker_local(const ls_worker *worker);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
