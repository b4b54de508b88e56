/* SPDX-License-Identifier: MIT */
#include "train/faulty_backend.h"

#include "base/error.h"
#include "nn/replica.h"
#include "ref/ref.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

faults fault;

/* The functions of the reference back end's devices. All devices share one table of functions. The
 * first opening of a device sets this pointer. */
static const ls_device_ops *real;

void fault_reset(void)
{
    memset(&fault, 0, sizeof fault);
}

static int is_faulty(const ls_device *device)
{
    ls_device_info info;
    real->describe(device, &info);
    return info.name[4] - '0' == fault.device; /* the number in a name such as "ref(1)" */
}

static int due(const ls_device *device, atomic_int *calls, int at)
{
    return at > 0 && is_faulty(device) && atomic_fetch_add(calls, 1) + 1 >= at;
}

static int gone(ls_error *err, const char *what)
{
    return ls_fail(err, LS_EDEVICE, "the device fell off the bus in %s", what);
}

/* Counts the shards of the other devices. On the slow device, the first shard waits until the other
 * devices have computed `wait_for` shards. The wait ends after half a minute; others_in_time then
 * stays 0, and the test fails. */
static void be_slow(const ls_device *device)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    if (!is_faulty(device))
        atomic_fetch_add(&fault.others, 1);
    if (!is_faulty(device) || atomic_fetch_add(&fault.tails, 1) > 0)
        return;
    for (int i = 0; i < 30000 && fault.others < fault.wait_for; i++)
        nanosleep(&pause, NULL);
    fault.others_in_time = fault.others >= fault.wait_for;
}

static int faulty_upload(ls_device *device, ls_stream *stream, void *dst, const void *src,
                         size_t bytes, ls_error *err)
{
    const bool tail = bytes == (LS_TAIL - LS_TAIL_ROWS) * sizeof(float);
    if (tail && fault.wait_for > 0)
        be_slow(device);
    else if (tail && due(device, &fault.tails, fault.tail_at))
        return gone(err, "upload");
    return real->upload(device, stream, dst, src, bytes, err);
}

static int faulty_download(ls_device *device, ls_stream *stream, void *dst, const void *src,
                           size_t bytes, ls_error *err)
{
    if (due(device, &fault.downloads, fault.download_at))
        return gone(err, "download");
    return real->download(device, stream, dst, src, bytes, err);
}

static int faulty_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    if (due(device, &fault.allocs, fault.alloc_at))
        return gone(err, "alloc");
    return real->alloc(out, device, bytes, err);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static ls_device_ops ops;

static void make_table(void)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_device *device;
    if (ls_ref_backend()->open(&device, &request, NULL) != LS_OK)
        return;
    real = device->ops;
    device->ops->close(device);
    ops = *real;
    ops.upload = faulty_upload;
    ops.download = faulty_download;
    ops.alloc = faulty_alloc;
}

static int open_device(ls_device **out, const ls_device_request *request, ls_error *err)
{
    pthread_once(&once, make_table);
    int status = ls_ref_backend()->open(out, request, err);
    if (status == LS_OK)
        (*out)->ops = &ops;
    return status;
}

static void probe(ls_backend_info *out)
{
    ls_ref_backend()->probe(out);
}

const ls_backend *faulty_backend(void)
{
    static const ls_backend backend = {
        .abi = LS_PLUGIN_ABI,
        .size = sizeof backend,
        .name = "faulty",
        .counted = 1,
        .probe = probe,
        .open = open_device,
    };
    return &backend;
}
