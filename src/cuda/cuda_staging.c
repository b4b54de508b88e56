/* SPDX-License-Identifier: MIT */
/* Copies between host and GPU by way of pinned memory, because CUDA makes the host's thread wait
 * for copies from and to other host memory. Uploads use equal parts of the pinned memory (slots) in
 * turn. The data of a download stay in pinned memory until the download's stream is synchronised.
 */
#include "cuda/cuda_device.h"

#include <stdint.h>
#include <string.h>

int ls_cuda_staging_init(ls_cuda_device *d, ls_error *err)
{
    ls_cuda_staging *s = &d->staging;
    const size_t bytes = (size_t)LS_CUDA_SLOTS * LS_CUDA_SLOT_BYTES + LS_CUDA_BACK_BYTES;
    void *memory = NULL;
    /* This memory is not zeroed, unlike the memory of ls_cuda_pinned_alloc, so that pages that are
     * never used take no physical memory. */
    int status = cuda_check(err, cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
                            "%s: allocating %zu bytes of pinned memory", d->name, bytes);
    s->memory = memory;
    for (int i = 0; i < LS_CUDA_SLOTS && status == LS_OK; i++)
        status = cuda_check(err, cudaEventCreateWithFlags(&s->free[i], cudaEventDisableTiming),
                            "%s: creating an event", d->name);
    return status;
}

void ls_cuda_staging_fini(ls_cuda_device *d)
{
    ls_cuda_staging *s = &d->staging;
    for (int i = 0; i < LS_CUDA_SLOTS; i++)
        if (s->free[i])
            cudaEventDestroy(s->free[i]);
    if (s->memory)
        cudaFreeHost(s->memory);
    memset(s, 0, sizeof *s);
}

/* ---- uploads -------------------------------------------------------------------------------- */

/* Uploads at most LS_CUDA_SLOT_BYTES bytes through the next slot. */
static int upload_piece(ls_cuda_device *d, cudaStream_t stream, void *dst, const void *src,
                        size_t bytes, ls_error *err)
{
    ls_cuda_staging *s = &d->staging;
    int slot = s->next;
    unsigned char *pinned = s->memory + (size_t)slot * LS_CUDA_SLOT_BYTES;
    /* cudaEventSynchronize returns at once if the event has never been recorded. */
    cudaError_t e = cudaEventSynchronize(s->free[slot]);
    if (e == cudaSuccess) {
        memcpy(pinned, src, bytes);
        e = cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, stream);
    }
    if (e == cudaSuccess)
        e = cudaEventRecord(s->free[slot], stream);
    s->next = (slot + 1) % LS_CUDA_SLOTS;
    return cuda_check(err, e, "%s: uploading %zu bytes", d->name, bytes);
}

int ls_cuda_upload(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                   ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    cudaStream_t on = ls_cuda_stream(d, stream);
    int status = ls_cuda_not_recording(d, ls_cuda_stream_of(d, stream), "an upload", err);
    for (size_t done = 0; done < bytes && status == LS_OK; done += LS_CUDA_SLOT_BYTES) {
        size_t piece = bytes - done < LS_CUDA_SLOT_BYTES ? bytes - done : LS_CUDA_SLOT_BYTES;
        status = upload_piece(d, on, (unsigned char *)dst + done, (const unsigned char *)src + done,
                              piece, err);
    }
    return status;
}

/* ---- downloads ------------------------------------------------------------------------------ */

static unsigned char *download_memory(const ls_cuda_staging *s)
{
    return s->memory + (size_t)LS_CUDA_SLOTS * LS_CUDA_SLOT_BYTES;
}

void ls_cuda_finish_downloads(ls_cuda_device *d, const ls_stream *stream)
{
    ls_cuda_staging *s = &d->staging;
    int kept = 0;
    for (int i = 0; i < s->pieces; i++) {
        const ls_cuda_piece *piece = &s->piece[i];
        if (piece->stream == stream)
            memcpy(piece->to, download_memory(s) + piece->from, piece->bytes);
        else
            s->piece[kept++] = *piece;
    }
    s->pieces = kept;
    if (kept == 0)
        s->taken = 0;
}

/* Waits for all downloads in progress and copies them to the callers' memory, so that the pinned
 * memory for downloads is free again. */
static int make_room(ls_cuda_device *d, ls_error *err)
{
    while (d->staging.pieces > 0) {
        const ls_stream *stream = d->staging.piece[0].stream;
        int status =
            cuda_check(err, cudaStreamSynchronize(stream->cuda), "%s: downloading", d->name);
        if (status)
            return status;
        ls_cuda_finish_downloads(d, stream);
    }
    return LS_OK;
}

static int copy_down(const ls_cuda_device *d, const ls_stream *stream, void *pinned,
                     const void *src, size_t bytes, ls_error *err)
{
    return cuda_check(err,
                      cudaMemcpyAsync(pinned, src, bytes, cudaMemcpyDeviceToHost, stream->cuda),
                      "%s: downloading %zu bytes", d->name, bytes);
}

static int download_piece(ls_cuda_device *d, const ls_stream *stream, void *dst, const void *src,
                          size_t bytes, ls_error *err)
{
    ls_cuda_staging *s = &d->staging;
    unsigned char *pinned = download_memory(s) + s->taken;
    int status = copy_down(d, stream, pinned, src, bytes, err);
    if (status)
        return status;
    s->piece[s->pieces++] = (ls_cuda_piece){stream, dst, s->taken, bytes};
    s->taken += (bytes + 63) / 64 * 64;
    return LS_OK;
}

/* Returns true if `bytes` bytes of host memory at `memory` are part of memory from
 * ls_cuda_pinned_alloc. */
static bool is_pinned(const ls_cuda_device *d, const void *memory, size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory;
    for (const ls_cuda_pinned *p = d->pinned; p; p = p->next) {
        const uintptr_t begin = (uintptr_t)p->memory;
        if (at >= begin && at - begin <= p->bytes && p->bytes - (at - begin) >= bytes)
            return true;
    }
    return false;
}

int ls_cuda_download(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                     ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    ls_cuda_staging *s = &d->staging;
    const ls_stream *on = ls_cuda_stream_of(d, stream);
    if (is_pinned(d, dst, bytes))
        return copy_down(d, on, dst, src, bytes, err);
    int status = ls_cuda_not_recording(d, on, "a download", err);
    for (size_t done = 0, piece; done < bytes && status == LS_OK; done += piece) {
        piece = bytes - done < LS_CUDA_BACK_BYTES ? bytes - done : LS_CUDA_BACK_BYTES;
        if (s->pieces == LS_CUDA_BACK_PIECES || LS_CUDA_BACK_BYTES - s->taken < piece)
            status = make_room(d, err);
        if (status == LS_OK)
            status = download_piece(d, on, (unsigned char *)dst + done,
                                    (const unsigned char *)src + done, piece, err);
    }
    return status;
}

/* ---- pinned memory of the device's user ------------------------------------------------------ */

/* Allocates pinned memory. The GPU writes to this memory directly, so a download into it needs no
 * copy by the host. Such a download is complete when the stream has executed it, and can be part of
 * a recording. */
int ls_cuda_pinned_alloc(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    void *memory = NULL;
    *out = NULL;
    ls_cuda_pinned *p = ls_alloc(d->host, sizeof *p);
    if (!p)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for the record of a pinned allocation",
                       d->name);
    int status = cuda_check(err, cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
                            "%s: allocating %zu bytes of pinned memory", d->name, bytes);
    if (status) {
        ls_free(d->host, p);
        return status;
    }
    memset(memory, 0, bytes);
    *p = (ls_cuda_pinned){memory, bytes, d->pinned};
    d->pinned = p;
    *out = memory;
    return LS_OK;
}

void ls_cuda_pinned_free(ls_device *device, void *memory)
{
    ls_cuda_device *d = ls_cuda_device_of(device);
    for (ls_cuda_pinned **at = &d->pinned; memory && *at; at = &(*at)->next)
        if ((*at)->memory == memory) {
            ls_cuda_pinned *p = *at;
            *at = p->next;
            cudaFreeHost(p->memory);
            ls_free(d->host, p);
            return;
        }
}

void ls_cuda_pinned_fini(ls_cuda_device *d)
{
    while (d->pinned)
        ls_cuda_pinned_free(&d->device, d->pinned->memory);
}
