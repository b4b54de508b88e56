/* SPDX-License-Identifier: MIT */
/* Runs cells of bench_overlap on a GPU (overlap.h explains the terms). Each worker has a device of
 * the back end, and each device has its own CUDA stream. The three ways to drive the workers:
 *
 *     threads     each worker has a thread, which enqueues the worker's pieces and waits for its
 *                 stream
 *     streams     one thread does this for all workers, round robin
 *     one-stream  one thread does this, and all workers use the first worker's device and stream
 *
 * A thread waits for a worker's stream in every second step, so that at most two steps are
 * enqueued. With a barrier, the thread waits in every step, and then all workers wait for each
 * other. If each worker has a thread, the library's communicator for devices that share a GPU
 * merges the gradients. If there is a single thread, kernels of this benchmark merge the gradients;
 * CUDA events make these kernels run after the workers' kernels. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "cuda/cuda_device.h"
#include "overlap.h"
#include "overlap_spin.h"
#include <lockstep/sys/plugin.h>

#include <string.h>

enum {
    WARM_UP = 2,
    LOOKED_AT_MOST = 16,
    LOOKED_AT_NS = 50000000,
    CALIBRATION = 1 << 20,
    TAKEN = 4096
};

ls_plugin_entry_fn ls_plugin_backend;

/* ---- spin kernels --------------------------------------------------------------------------- */

static cudaStream_t stream_of(const worker *w)
{
    return ls_cuda_stream(ls_cuda_device_of(w->device), NULL);
}

static int launched(cudaError_t error, ls_error *err)
{
    return error == cudaSuccess ? LS_OK
                                : ls_fail(err, LS_EDEVICE, "a launch: %s", cudaGetErrorName(error));
}

static int run(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    const work *job = w->of->desc.work;
    (void)step;
    return launched(bench_spin_run(w->gpu_spin, SHARDS, (uint64_t)shard, index == 0,
                                   spin_times(job), stream_of(w)),
                    err);
}

static int enqueue_shard(worker *w, int shard, ls_error *err)
{
    const int last = shard == (w->index + 1) * shards_each(w->of) - 1;
    int status = LS_OK;
    for (int i = 0; status == LS_OK && i < w->of->desc.work->pieces; i++)
        status = run(w, 0, shard, i, err);
    return status
               ? status
               : launched(bench_spin_gradient(w->leaf, w->floats, w->gpu_spin, last, stream_of(w)),
                          err);
}

static int record(worker *w, ls_error *err)
{
    const ls_device_ops *ops = w->device->ops;
    const int each = shards_each(w->of);
    int status = LS_OK;
    for (int s = w->index * each; status == LS_OK && s < (w->index + 1) * each; s++) {
        status = ops->record_begin(w->device, NULL, err);
        if (status)
            break;
        status = enqueue_shard(w, s, err);
        int ended = ops->record_end(&w->recording[s], w->device, NULL, status ? NULL : err);
        status = status ? status : ended;
    }
    return status;
}

static int open_spin(worker *w, ls_error *err)
{
    void *memory = NULL;
    int status = w->device->ops->alloc(&memory, w->device, sizeof *w->gpu_spin, err);
    w->gpu_spin = memory;
    return status == LS_OK && w->of->desc.graph ? record(w, err) : status;
}

static void close_spin(worker *w)
{
    for (int s = 0; s < SHARDS; s++)
        w->device->ops->recording_destroy(w->device, w->recording[s]);
    w->device->ops->free(w->device, w->gpu_spin);
}

static int replay(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    static const ls_step_args none;
    (void)step;
    (void)index;
    return w->device->ops->launch(w->device, NULL, w->recording[shard], &none, err);
}

static int finish(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    const int last = shard == (w->index + 1) * shards_each(w->of) - 1;
    int status = LS_OK;
    (void)step;
    (void)index;
    if (!w->of->desc.graph)
        status =
            launched(bench_spin_gradient(w->leaf, w->floats, w->gpu_spin, last, stream_of(w)), err);
    if (status == LS_OK && w->of->checking)
        w->leaf_crc[shard] = device_crc(w->device, w->leaf, w->floats);
    return status ? status : ls_fold_push(&w->fold, err);
}

static int apply(worker *w, uint64_t step, int shard, int index, ls_error *err)
{
    (void)step;
    (void)shard;
    (void)index;
    return w->of->desc.merge ? w->device->ops->add(w->device, NULL, w->weights, w->weights,
                                                   w->total, w->floats, err)
                             : LS_OK;
}

const spin_kind gpu_spin = {.open = open_spin,
                            .close = close_spin,
                            .run = run,
                            .replay = replay,
                            .finish = finish,
                            .apply = apply};

/* Measures the spin kernel's rate. Runs both kernels once, so that CUDA loads neither of them while
 * a graph is recorded. */
int overlap_gpu_calibrate(const ls_backend *backend, int index, ls_error *err)
{
    const ls_device_request request = {.size = sizeof request, .index = index};
    worker w = {.device = NULL};
    void *memory = NULL;
    double best = 0;
    int status = backend->open(&w.device, &request, err);
    if (status)
        return status;
    status = w.device->ops->bind(w.device, err);
    if (status == LS_OK)
        status = w.device->ops->alloc(&memory, w.device, sizeof *w.gpu_spin, err);
    for (int i = 0; status == LS_OK && i < 4; i++) {
        const uint64_t begin = ls_now_ns();
        status = launched(bench_spin_run(memory, SHARDS, 0, 0, CALIBRATION, stream_of(&w)), err);
        if (status == LS_OK)
            status = w.device->ops->sync(w.device, NULL, err);
        const double rate = CALIBRATION / ((double)(ls_now_ns() - begin) * 1e-3);
        best = rate > best ? rate : best;
    }
    spin_set_rate(best);
    if (status == LS_OK) /* 0 floats: only the state is checked */
        status = launched(bench_spin_gradient(memory, 0, memory, 0, stream_of(&w)), err);
    if (status == LS_OK)
        status = w.device->ops->sync(w.device, NULL, err);
    w.device->ops->free(w.device, memory);
    w.device->ops->close(w.device);
    return status;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void run_piece(worker *w, const piece *p, uint64_t step)
{
    const uint64_t begin = ls_now_ns();
    const int status = w->status ? LS_OK : p->run(w, step, p->shard, p->index, &w->error);
    const uint64_t took = ls_now_ns() - begin;
    if (status)
        give_up(w, status);
    if (p->computes && w->launches < LAUNCHES_MOST)
        w->launch_ns[w->launches++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
}

static void wait_for_stream(worker *w)
{
    const int status = w->status ? LS_OK : w->device->ops->sync(w->device, NULL, &w->error);
    if (status)
        give_up(w, status);
}

static void meet_others(worker *w)
{
    const int status = w->status ? LS_OK : meet(w, &w->error);
    if (status)
        give_up(w, status);
}

typedef struct stretch {
    cell *c;
    uint64_t from, steps;
} stretch;

/* Enqueues one step of the workers `first` … `end` − 1: one piece of each worker, then the next
 * piece of each, and so on. */
static void one_step(cell *c, int first, int end, uint64_t step)
{
    for (int p = 0; p < PIECES_MOST; p++) {
        int any = 0;
        for (int i = first; i < end; i++)
            if (p < c->pieces[i]) {
                any = 1;
                run_piece(&c->worker[i], &c->piece[i][p], step);
            }
        if (!any)
            break;
    }
    for (int i = first; i < end && (c->desc.barrier || step % 2 == 1); i++)
        wait_for_stream(&c->worker[i]);
    if (c->desc.barrier && c->desc.host == HOST_THREADS)
        meet_others(&c->worker[first]);
}

static int drive(const ls_worker *lane, void *arg, ls_error *err)
{
    const stretch *s = arg;
    cell *c = s->c;
    const int alone = c->desc.host == HOST_THREADS;
    const int first = alone ? lane->index : 0, end = alone ? first + 1 : c->desc.workers;
    (void)err;
    for (uint64_t k = 0; k < s->steps; k++)
        one_step(c, first, end, s->from + k);
    for (int i = first; i < end; i++)
        wait_for_stream(&c->worker[i]);
    return LS_OK;
}

static int drive_all(cell *c, uint64_t steps, ls_error *err)
{
    stretch s = {c, c->step, steps};
    int status = ls_pool_run(c->lanes, drive, &s, LS_FOREVER, err);
    c->step += steps;
    return status ? status : first_failure(c, err);
}

/* ---- the cell ------------------------------------------------------------------------------- */

static int open_cell(cell *c, ls_error *err)
{
    int status = open_lanes_of(c, 0, 0, err);
    for (int i = 0; status == LS_OK && i < c->desc.workers; i++) {
        c->worker[i].launch_ns = ls_alloc_array(NULL, LAUNCHES_MOST, sizeof(uint32_t));
        if (!c->worker[i].launch_ns)
            status = ls_fail(err, LS_ENOMEM, "out of memory for measurements");
    }
    if (status)
        return status;
    const int group = c->desc.merge && c->desc.host == HOST_THREADS;
    return open_group_of(c, group ? merging_of(c->worker[0].device) : NULL, err);
}

static void close_cell(cell *c)
{
    cell_close(c);
    for (int i = 0; i < c->desc.workers; i++)
        ls_free(NULL, c->worker[i].launch_ns);
}

static int check_cell(cell *c, const outcome *wanted, ls_error *err)
{
    c->checking = 1;
    int status = drive_all(c, CHECK_STEPS, err);
    c->checking = 0;
    if (status == LS_OK)
        status = compare(c, wanted, err);
    const uint64_t begin = ls_now_ns();
    if (status == LS_OK)
        status = drive_all(c, WARM_UP, err);
    c->step_s = (double)(ls_now_ns() - begin) * 1e-9 / WARM_UP;
    return status;
}

static void gather_launches(cell *c)
{
    for (int i = 0; i < c->desc.workers; i++) {
        const worker *w = &c->worker[i];
        for (int k = 0; k < w->launches && c->launches < LAUNCHES_MOST; k++)
            c->launch_ns[c->launches++] = w->launch_ns[k];
    }
}

static int measure(cell *c, double seconds, ls_error *err)
{
    const double wanted = seconds / c->step_s;
    const uint64_t steps = wanted < 2 ? 2 : wanted > 1e6 ? 1000000 : (uint64_t)wanted;
    begin_round(c);
    const double switched = context_switches();
    const uint64_t begin = ls_now_ns();
    int status = drive_all(c, steps, err);
    const double took = (double)(ls_now_ns() - begin) * 1e-9;
    if (status)
        return status;
    gather_launches(c);
    end_round(c, took, (double)steps, context_switches() - switched);
    c->step_s = took / (double)steps;
    return LS_OK;
}

/* ---- looking at the GPU --------------------------------------------------------------------- */

static int begin_looking(cell *c, worker *w, ls_error *err)
{
    (void)c;
    return w->borrows ? LS_OK : w->device->ops->spans_begin(w->device, err);
}

static int stop_looking(cell *c, worker *w, ls_error *err)
{
    (void)c;
    (void)err;
    if (!w->borrows)
        w->device->ops->spans_end(w->device);
    return LS_OK;
}

static void take_spans(worker *w)
{
    ls_device_span some[TAKEN / 64];
    uint64_t lost;
    int count = 1;
    w->spans = 0;
    while (!w->borrows && count > 0) {
        count = w->device->ops->spans_take(w->device, some, TAKEN / 64, &lost);
        for (int i = 0; i < count && w->spans < SPANS_MOST; i++)
            w->busy[w->spans++] = (span){some[i].begin_ns, some[i].end_ns};
    }
}

static int look(cell *c, ls_error *err)
{
    const double most = LOOKED_AT_NS * 1e-9 / c->step_s;
    int status = on_lanes(c, begin_looking, err);
    if (status == LS_OK)
        status = drive_all(c,
                           most < 2                ? 2
                           : most > LOOKED_AT_MOST ? LOOKED_AT_MOST
                                                   : (uint64_t)most,
                           err);
    ls_error later;
    on_lanes(c, stop_looking, &later);
    for (int i = 0; i < c->desc.workers; i++)
        take_spans(&c->worker[i]);
    for (int r = 0; status == LS_OK && r < c->rounds; r++)
        c->round[r].overlap = overlap_of(c);
    return status;
}

const engine gpu_engine = {.open = open_cell,
                           .close = close_cell,
                           .check = check_cell,
                           .measure = measure,
                           .look = look,
                           .spin = &gpu_spin,
                           .meets_itself = 1};

/* ---- for the program ------------------------------------------------------------------------ */

const ls_backend *overlap_gpu_backend(void)
{
    return ls_plugin_backend();
}

const char *overlap_gpu_why_not(const cell_desc *d, const int *device, int devices)
{
    int gpus = 1;
    for (int i = 1; i < d->workers; i++)
        gpus += device[i % devices] != device[0];
    if (d->merge == 2)
        return gpus < d->workers ? "overlapped buckets need NCCL, and a GPU for each worker"
                                 : "overlapped buckets: not driven by this program";
    if (gpus > 1 && d->host != HOST_THREADS)
        return "one thread keeps to one GPU";
    return gpus > 1 && d->merge ? "merging between GPUs: not driven by this program" : NULL;
}
