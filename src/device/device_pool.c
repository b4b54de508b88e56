/* SPDX-License-Identifier: MIT */
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "base/thread_state.h"
#include "device/registry.h"
#include "pool/pool.h"

#include <string.h>

enum { TEAM_MOST = 1024 }; /* largest team (threads of one device) that a back end accepts */

/* Data of one worker of a device pool. The worker's pointer `local` in the underlying pool
 * (ls_worker.local) points to it. The data include copies of everything that the stop hook
 * needs. */
typedef struct device_worker {
    ls_device *device;
    void *local; /* pointer that the caller's start hook has stored */
    void (*stop)(const ls_worker *worker, ls_device *device, void *local, void *user);
    void *user;
    const ls_host *host;
    bool owner;        /* the worker runs on the owner's thread, whose floating-point environment
                        * stays as it is */
    fenv_t arithmetic; /* the thread's previous floating-point environment, unless `owner` */
} device_worker;

/* Data that the start hooks read. The hooks run during ls_device_pool_create or, on threads that
 * the host program lends, later. The pool owns and frees the data (ls_pool_adopt). */
typedef struct opening {
    ls_device_pool_options options; /* a copy; options.cache_dir points to the field below */
    ls_device_list list;
    char cache_dir[]; /* the text of options.cache_dir */
} opening;

ls_device *ls_worker_device(const ls_worker *worker)
{
    return worker && worker->local ? ((const device_worker *)worker->local)->device : NULL;
}

void *ls_worker_local(const ls_worker *worker)
{
    return worker && worker->local ? ((const device_worker *)worker->local)->local : NULL;
}

static int open_device(device_worker *w, const opening *o, int worker, ls_error *err)
{
    ls_device_request request = {
        .size = sizeof request,
        .index = o->list.index[worker],
        .threads = o->options.threads,
        .host = o->options.host,
        .precision = o->options.precision,
        .cache_dir = o->options.cache_dir,
    };
    int status = o->list.backend->open(&w->device, &request, err);
    return status ? status : w->device->ops->bind(w->device, err);
}

static void close_worker(device_worker *w)
{
    if (w->device)
        w->device->ops->close(w->device);
    if (!w->owner)
        fesetenv(&w->arithmetic);
    ls_free(w->host, w);
}

/* The stop hook of the underlying pool: runs the caller's stop hook and closes the device. The hook
 * needs only the worker's `local`. */
static void stop_worker(ls_worker *worker, void *unused)
{
    (void)unused;
    device_worker *w = worker->local;
    if (w->stop)
        w->stop(worker, w->device, w->local, w->user);
    close_worker(w);
}

/* The start hook of the underlying pool: opens the worker's device and runs the caller's start
 * hook. */
static int start_worker(ls_worker *worker, void *user, ls_error *err)
{
    const opening *o = user;
    device_worker *w = ls_alloc(o->options.host, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for worker %d", worker->index);
    w->host = o->options.host;
    w->stop = o->options.stop;
    w->user = o->options.user;
    w->owner = o->options.caller_works && worker->index == 0;
    if (!w->owner)
        w->arithmetic = ls_arithmetic_enter();
    worker->local = w;
    int status = open_device(w, o, worker->index, err);
    if (status == LS_OK && o->options.start)
        status = o->options.start(worker, w->device, &w->local, w->user, err);
    if (status) {
        worker->local = NULL;
        close_worker(w);
    }
    return status;
}

int ls_device_pool_check(const ls_pool *pool, ls_error *err)
{
    int status = ls_pool_check_owner(pool, err);
    if (status)
        return status;
    if (pool->options.start != start_worker)
        return ls_fail(err, LS_EINVAL,
                       "options.pool: its workers have no devices; expected a pool that "
                       "ls_device_pool_create has made");
    if (pool->options.caller_works)
        return ls_fail(
            err, LS_EINVAL,
            "options.pool: it was made with caller_works, but a trainer's owner waits for "
            "the workers and cannot be one of them; make the pool without caller_works");
    return ls_pool_check_canceled(pool, err);
}

static int take_options(ls_device_pool_options *out, const ls_device_pool_options *o, ls_error *err)
{
    int status = ls_sized_take(out, sizeof *out, o, "ls_device_pool_options", err);
    if (status == LS_OK)
        status = ls_host_check(out->host, err);
    if (status == LS_OK && !out->registry)
        return ls_fail(err, LS_EINVAL, "ls_device_pool_create: options.registry must be set");
    return status;
}

/* Returns the number of threads of each device's team for the option value LS_TEAMS_OF_THE_REST. If
 * max_devices has shortened a list of CPU devices, the teams share all usable CPUs equally.
 * Otherwise the result is 1. */
static int team_size(const ls_device_list *list)
{
    const int team = list->backend->counted && list->capped ? list->allowed / list->count : 1;
    return team < TEAM_MOST ? team : TEAM_MOST;
}

static int create(ls_pool **out, opening *o, ls_error *err)
{
    ls_device_pool_options *options = &o->options;
    int status = ls_device_list_parse(&o->list, options->registry, options->devices,
                                      options->max_devices, err);
    if (status)
        return status;
    if (options->threads < 1)
        options->threads = options->threads == LS_TEAMS_OF_THE_REST ? team_size(&o->list) : 1;
    ls_pool_options pool = {
        .size = sizeof pool,
        .workers = o->list.count,
        .inbox = options->inbox,
        /* Each worker is pinned to an equal share of all CPUs rather than to one CPU, so that the
         * workers of several programs do not all run on the first CPUs. */
        .pinning = options->pinning != LS_PINNING_OFF && o->list.backend->counted ? LS_PINNING_ON
                                                                                  : LS_PINNING_OFF,
        .name = options->name ? options->name : o->list.backend->name,
        .start = start_worker,
        .stop = stop_worker,
        .user = o,
        .host = options->host,
        .caller_works = options->caller_works,
        .borrowed = options->borrowed < 0 ? o->list.count - (options->caller_works != 0)
                                          : options->borrowed,
        .time_jobs = options->time_jobs,
    };
    return ls_pool_create(out, &pool, err);
}

int ls_device_pool_create(ls_pool **out, const ls_device_pool_options *options, ls_error *err)
{
    ls_device_pool_options o;
    if (!out)
        return ls_fail(err, LS_EINVAL, "ls_device_pool_create: nowhere to put the pool");
    *out = NULL;
    int status = take_options(&o, options, err);
    if (status)
        return status;
    /* Devices read cache_dir as long as they exist. Lent threads open theirs after this call. */
    const size_t bytes = o.cache_dir ? strlen(o.cache_dir) + 1 : 0;
    opening *kept = ls_alloc(o.host, sizeof *kept + bytes);
    if (!kept)
        return ls_fail(err, LS_ENOMEM, "out of memory for a device pool");
    kept->options = o;
    if (o.cache_dir)
        kept->options.cache_dir = memcpy(kept->cache_dir, o.cache_dir, bytes);
    status = create(out, kept, err);
    if (status)
        ls_free(o.host, kept);
    else
        ls_pool_adopt(*out, kept);
    return status;
}
