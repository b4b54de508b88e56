#include "base/error.h"
#include "base/host.h"
#include "device/device_list.h"

/* What a worker of a device pool carries as its pool's `local`. It copies what the stop hook
 * needs, so that nothing of the options has to outlive ls_device_pool_create. */
typedef struct device_worker {
    ls_device *device;
    void *local;
    void (*stop)(const ls_worker *worker, ls_device *device, void *local, void *user);
    void *user;
    const ls_host *host;
} device_worker;

/* What the start hooks read while ls_device_pool_create runs. */
typedef struct opening {
    const ls_device_pool_options *options;
    const ls_device_list *list;
} opening;

ls_device *ls_worker_device(const ls_worker *worker)
{
    return ((const device_worker *)worker->local)->device;
}

void *ls_worker_local(const ls_worker *worker)
{
    return ((const device_worker *)worker->local)->local;
}

static int open_device(device_worker *w, const opening *o, int worker, ls_error *err)
{
    ls_device_request request = {
        .size = sizeof request,
        .index = o->list->index[worker],
        .threads = o->options->threads > 0 ? o->options->threads : 1,
        .host = o->options->host,
        .precision = o->options->precision,
        .cache_dir = o->options->cache_dir,
    };
    int status = o->list->backend->open(&w->device, &request, err);
    return status ? status : w->device->ops->bind(w->device, err);
}

static void close_worker(device_worker *w)
{
    if (w->device)
        w->device->ops->close(w->device);
    ls_free(w->host, w);
}

/* The pool's stop hook gets the pool's `user`, which is gone by then: everything is in local. */
static void stop_worker(ls_worker *worker, void *unused)
{
    (void)unused;
    device_worker *w = worker->local;
    if (w->stop)
        w->stop(worker, w->device, w->local, w->user);
    close_worker(w);
}

static int start_worker(ls_worker *worker, void *user, ls_error *err)
{
    const opening *o = user;
    device_worker *w = ls_alloc(o->options->host, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for worker %d", worker->index);
    w->host = o->options->host;
    w->stop = o->options->stop;
    w->user = o->options->user;
    worker->local = w;
    int status = open_device(w, o, worker->index, err);
    if (status == LS_OK && o->options->start)
        status = o->options->start(worker, w->device, &w->local, w->user, err);
    if (status) {
        worker->local = NULL;
        close_worker(w);
    }
    return status;
}

int ls_device_pool_create(ls_pool **out, const ls_device_pool_options *options, ls_error *err)
{
    if (!out || !options || options->size != sizeof *options || !options->registry)
        return ls_fail(err, LS_EINVAL,
                       "ls_device_pool_create: options.size must be sizeof(ls_device_pool_options) "
                       "and options.registry must be set");
    ls_device_list list;
    int status =
        ls_device_list_parse(&list, options->registry, options->devices, options->max_devices, err);
    if (status)
        return status;
    opening o = {options, &list};
    ls_pool_options pool = {
        .size = sizeof pool,
        .workers = list.count,
        .inbox = options->inbox,
        .cpus_per_worker = list.backend->counted ? options->threads : 0,
        .no_pinning = !list.backend->counted,
        .name = list.backend->name,
        .start = start_worker,
        .stop = stop_worker,
        .user = &o,
        .host = options->host,
    };
    return ls_pool_create(out, &pool, err);
}
