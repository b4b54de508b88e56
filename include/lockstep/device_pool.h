/* SPDX-License-Identifier: MIT */
/* A pool of worker threads (pool.h), each of which has a device of its own: a GPU, or a share of
 * the CPU cores.
 *
 *     static int job(const ls_worker *w, void *arg, ls_error *err)
 *     {
 *         ls_device *device = ls_worker_device(w);    // belongs to this worker alone
 *         ...
 *     }
 *
 *     ls_registry *registry;
 *     ls_registry_create(&registry, NULL, &err);      // all back ends of this library
 *     ls_device_pool_options o = {.size = sizeof o, .registry = registry, .devices = "auto"};
 *     ls_pool *pool;
 *     ls_device_pool_create(&pool, &o, &err);         // use it with the functions of pool.h
 *     ls_pool_run(pool, job, NULL, LS_FOREVER, &err);
 *     ls_pool_destroy(pool, LS_FOREVER, &err);        // closes the devices
 *     ls_registry_destroy(registry);
 *
 * A *back end* is the code for one kind of device, such as "cpu" or "cuda". A *registry* lists the
 * back ends from which the pool may take devices.
 *
 * A worker whose job does not return can be abandoned (see pool.h). If that job returns before the
 * pool is destroyed, the worker's device is closed with the pool. If the job is still running when
 * the pool is destroyed, the stop hook of that worker does not run. Its device is not closed, and
 * the device's memory is leaked. In this case options.host must exist until the job returns.
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

/* A list of back ends, preferred ones first. Any thread may call the functions of a registry. While
 * ls_registry_add or ls_registry_destroy runs, no other thread may use the same registry. */
typedef struct ls_registry ls_registry;

/* Creates a registry of the back ends that this library was built with. `host` has the allocator
 * and the log of the program that uses this library (host.h). `host` may be NULL; otherwise it must
 * outlive the registry. Any thread. Errors: LS_ENOMEM. */
int ls_registry_create(ls_registry **out, const ls_host *host, ls_error *err);

/* Appends a back end, which must outlive the registry. Any thread, while no other thread uses this
 * registry. Errors: LS_EINVAL (the back end was built for another version of its table, it has no
 * name, its name is taken, or the registry is full). */
int ls_registry_add(ls_registry *registry, const ls_backend *backend, ls_error *err);

/* Returns back end number `index` of the list, counted from 0, or NULL if the list has no such
 * entry. Any thread. */
const ls_backend *ls_registry_at(const ls_registry *registry, int index);

/* Frees the registry. NULL is allowed. Any thread, while no other thread uses this registry. */
void ls_registry_destroy(ls_registry *registry);

/* ---- the pool ------------------------------------------------------------------------------- */

/* Value of ls_device_pool_options.threads by which CPU workers also use the cores that have no
 * worker. The threads with which one CPU worker computes are its *team*. If options.max_devices has
 * reduced the number of CPU workers, the teams share all cores that the process may use
 * (ls_allowed_cores): each team gets an equal number of threads, one per core. If max_devices has
 * not reduced that number, each team has one thread. Results do not depend on the size of the
 * teams. */
#define LS_TEAMS_OF_THE_REST (-1)

/* Options of ls_device_pool_create. */
typedef struct ls_device_pool_options {
    size_t size;                 /* sizeof(ls_device_pool_options) */
    const ls_registry *registry; /* the back ends to choose from; needed during the call only */
    /* List of devices, one worker each: "auto" (all GPUs; if there is no GPU, one CPU device for
     * each core of ls_allowed_cores), "cpu" or "cuda" (all devices of that kind), "cpu:4" (four CPU
     * devices), "cuda:0,1" (GPUs number 0 and 1; a number given twice makes two workers that share
     * the GPU). NULL: "auto". */
    const char *devices;
    int max_devices;        /* largest number of devices that "auto", "cpu" or "cuda" selects; 0:
                             * no limit */
    int threads;            /* number of threads of each CPU worker's team; 0 means 1; or
                             * LS_TEAMS_OF_THE_REST */
    ls_precision precision; /* precision of matrix products (device.h); a device that has only fp32
                             * uses fp32 */
    const char *cache_dir;  /* directory in which devices keep their choices of kernels (device
                             * functions) for later runs; NULL: none */
    int inbox;              /* capacity of each worker's queue of jobs; 0: 64, as in pool.h */
    /* Hook that runs on each worker's thread after the worker's device was opened. It takes the
     * place of the start hook of pool.h: it also receives the device, and may store a pointer in
     * *local, which ls_worker_local returns later. A negative status makes ls_device_pool_create
     * fail with that error; for a borrowed worker it makes ls_pool_serve fail. NULL: none. */
    int (*start)(const ls_worker *worker, ls_device *device, void **local, void *user,
                 ls_error *err);
    /* Hook that runs on each worker's thread before the worker's device is closed. NULL: none. */
    void (*stop)(const ls_worker *worker, ls_device *device, void *local, void *user);
    void *user;          /* passed to both hooks; what it points to outlives the pool */
    const ls_host *host; /* allocator and log (host.h); outlives the pool; NULL: malloc, no log */
    const char *name;    /* prefix of the threads' names, as in pool.h; NULL: the back end's name */
    ls_pinning pinning;  /* whether each worker of CPUs has CPUs of its own, as in pool.h; default:
                          * on; workers of GPUs never have */
    int caller_works;    /* non-zero: the owner's thread runs worker 0's jobs, as in pool.h */
    /* Number of *borrowed* workers: they run on threads of the program, which lends each thread by
     * calling ls_pool_serve (pool.h). The workers with the highest indices are the borrowed ones.
     * Each lent thread opens its worker's device inside ls_pool_serve. −1: all workers are
     * borrowed, except worker 0 if caller_works is set. (ls_pool_size returns the number of
     * workers.) */
    int borrowed;
    int time_jobs; /* non-zero: the pool measures how long jobs take, as in pool.h */
} ls_device_pool_options;

/* Creates a pool with one worker per device. Each worker opens its device on its own thread. The
 * function returns when all devices are open, except the devices of borrowed workers. The calling
 * thread becomes the pool's owner (pool.h).
 * Errors: LS_EINVAL (the device list cannot be parsed; the message says what is allowed),
 * LS_EDEVICE (a device is absent or broken; the message says whether it is absent or broken), and
 * those of ls_pool_create and of the start hook. */
int ls_device_pool_create(ls_pool **out, const ls_device_pool_options *options, ls_error *err);

/* Returns the worker's device; NULL if `worker` is NULL. May be called only in a job of a device
 * pool, on the worker's thread. */
ls_device *ls_worker_device(const ls_worker *worker);
/* Returns the pointer that the start hook stored in *local. May be called only in a job of a device
 * pool, on the worker's thread. */
void *ls_worker_local(const ls_worker *worker);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
