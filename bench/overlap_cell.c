/* SPDX-License-Identifier: MIT */
/* Runs one cell of bench_overlap on a CPU: its lanes (queues that execute pieces of work in order),
 * the threads that issue pieces to the lanes, and the measurements. overlap.h explains all terms.
 */
#define _DEFAULT_SOURCE /* RUSAGE_SELF's context switches */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "merge/group.h"
#include "overlap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* maximum number of steps that are issued and not done */
enum { STEPS_AHEAD = 2 };

const char *const host_names[HOST_MODES] = {"threads", "streams", "one-stream"};

/* Work for a lane: the pieces `first` … `end` − 1 of one worker's step. */
typedef struct item {
    worker *worker;
    uint64_t step;
    int first, end;
} item;

/* ---- on a lane ------------------------------------------------------------------------------ */

/* Stores the status of a worker that failed, and releases the threads that wait for the worker. */
void give_up(worker *w, int status)
{
    cell *c = w->of;
    w->status = status;
    if (c->group)
        c->group->type->abort(c->group);
    ls_barrier_abort(&c->barrier);
}

static void run_piece(worker *w, const piece *p, uint64_t step)
{
    const uint64_t begin = p->computes ? ls_now_ns() : 0;
    const int status = w->status ? LS_OK : p->run(w, step, p->shard, p->index, &w->error);
    if (status)
        give_up(w, status);
    if (p->computes && w->spans < SPANS_MOST)
        w->busy[w->spans++] = (span){begin, ls_now_ns()};
}

static int run_item(const ls_worker *lane, void *arg, ls_error *err)
{
    const item *it = arg;
    worker *w = it->worker;
    cell *c = w->of;
    (void)lane;
    (void)err;
    for (int i = it->first; i < it->end; i++)
        run_piece(w, &c->piece[w->index][i], it->step);
    if (it->end == c->pieces[w->index]) {
        atomic_fetch_add_explicit(&c->finished[w->index], 1, memory_order_release);
        ls_park_wake(&c->parking);
    }
    return LS_OK;
}

int lane_of(const cell *c, int rank)
{
    const int one_thread = c->device != NULL && c->desc.host == HOST_STREAMS;
    return c->desc.host == HOST_ONE_STREAM || one_thread ? 0 : rank;
}

typedef struct opening {
    cell *c;
    int (*job)(cell *c, worker *w, ls_error *err);
    int backwards;
} opening;

static int for_my_workers(const ls_worker *lane, void *arg, ls_error *err)
{
    const opening *o = arg;
    const int workers = o->c->desc.workers;
    int status = LS_OK;
    for (int i = 0; status == LS_OK && i < workers; i++) {
        worker *w = &o->c->worker[o->backwards ? workers - 1 - i : i];
        if (lane_of(o->c, w->index) == lane->index)
            status = o->job(o->c, w, err);
    }
    return status;
}

int on_lanes(cell *c, int (*job)(cell *, worker *, ls_error *), ls_error *err)
{
    opening o = {c, job, 0};
    return ls_pool_run(c->lanes, for_my_workers, &o, LS_FOREVER, err);
}

static int open_worker(cell *c, worker *w, ls_error *err)
{
    (void)c;
    return worker_open(w, err);
}

static int join(cell *c, worker *w, ls_error *err)
{
    if (c->group) {
        int status = c->group->type->join(&w->comm, c->group, w->index, w->device, err);
        if (status)
            return status;
    }
    worker_list_pieces(w);
    return LS_OK;
}

/* Runs the communicator's self-test, which some communicators require before the first merge. */
static int prove(cell *c, worker *w, ls_error *err)
{
    const ls_merge_check check = {.comm = w->comm,
                                  .device = w->device,
                                  .shards = c->desc.work->shards,
                                  .floats = w->floats,
                                  .scratch = w->leaf,
                                  .total = w->total};
    return c->group ? ls_merge_check_group(&check, err) : LS_OK;
}

static int leave(cell *c, worker *w, ls_error *err)
{
    (void)err;
    if (w->comm)
        c->group->type->leave(w->comm);
    worker_close(w);
    return LS_OK;
}

static int take_checksum(cell *c, worker *w, ls_error *err)
{
    (void)err;
    c->checksum[w->index] = worker_checksum(w);
    return LS_OK;
}

/* ---- on the host ---------------------------------------------------------------------------- */

typedef struct goal {
    cell *c;
    uint64_t steps;
} goal;

/* Returns whether every worker has done the steps. Without merging and without a barrier, one
 * worker can be several steps ahead of another. */
static bool is_reached(void *arg)
{
    const goal *g = arg;
    for (int i = 0; i < g->c->desc.workers; i++)
        if (atomic_load_explicit(&g->c->finished[i], memory_order_acquire) < g->steps)
            return false;
    return true;
}

/* Waits until all workers have done `steps` steps. */
static void wait_for(cell *c, uint64_t steps)
{
    goal g = {c, steps};
    ls_park_until(&c->parking, is_reached, &g, UINT64_MAX);
}

static void issue(cell *c, item *it, ls_error *err)
{
    const uint64_t begin = ls_now_ns();
    const int status = ls_pool_submit(c->lanes, lane_of(c, it->worker->index), run_item, it, err);
    const uint64_t took = ls_now_ns() - begin;
    if (c->launches < LAUNCHES_MOST)
        c->launch_ns[c->launches++] = took < UINT32_MAX ? (uint32_t)took : UINT32_MAX;
    if (status) {
        give_up(it->worker, status);
        run_item(NULL, it, err); /* counts the item as done */
    }
}

static void issue_step(cell *c, ls_error *err)
{
    item *items = c->items + c->step % STEPS_AHEAD * WORKERS_MOST * PIECES_MOST;
    const int whole = c->desc.host == HOST_THREADS;
    int most = 0;
    if (c->step >= STEPS_AHEAD)
        wait_for(c, c->step - STEPS_AHEAD + 1);
    for (int i = 0; i < c->desc.workers; i++)
        most = c->pieces[i] > most ? c->pieces[i] : most;
    for (int p = 0; p < (whole ? 1 : most); p++) {
        for (int i = 0; i < c->desc.workers; i++) {
            item *it = &items[i * PIECES_MOST + p];
            if (p >= c->pieces[i])
                continue;
            *it = (item){&c->worker[i], c->step, p, whole ? c->pieces[i] : p + 1};
            issue(c, it, err);
        }
    }
    c->step++;
}

int first_failure(const cell *c, ls_error *err)
{
    for (int i = 0; i < c->desc.workers; i++)
        if (c->worker[i].status && c->worker[i].status != LS_EABORTED)
            return ls_fail(err, c->worker[i].status, "worker %d: %.400s", i,
                           c->worker[i].error.text);
    return LS_OK;
}

/* Waits until all issued steps are done. Returns the status of the first worker that failed, or
 * LS_OK. */
static int settle(cell *c, ls_error *err)
{
    wait_for(c, c->step);
    return first_failure(c, err);
}

int compare(cell *c, const outcome *wanted, ls_error *err)
{
    int status = on_lanes(c, take_checksum, err);
    for (int i = 0; status == LS_OK && i < c->desc.workers; i++)
        if (c->checksum[i] != wanted->weights)
            return ls_fail(err, LS_EDIVERGED, "worker %d: other weights than one worker's", i);
    for (int s = 0; status == LS_OK && s < c->desc.work->shards; s++)
        if (c->worker[s / shards_each(c)].leaf_crc[s] != wanted->leaf[s])
            return ls_fail(err, LS_EDIVERGED, "shard %d: another gradient than one worker's", s);
    return status;
}

static int cell_check(cell *c, const outcome *wanted, ls_error *err)
{
    c->checking = 1;
    for (int i = 0; i < CHECK_STEPS; i++)
        issue_step(c, err);
    int status = settle(c, err);
    c->checking = 0;
    return status ? status : compare(c, wanted, err);
}

/* ---- figures of a round --------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int by_ns(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

double overlap_of(const cell *c)
{
    size_t count = 0, next = 0;
    double sum = 0, any = 0;
    uint64_t end = 0;
    for (int i = 0; i < c->desc.workers; i++)
        count += (size_t)c->worker[i].spans;
    span *all = ls_alloc_array(NULL, count, sizeof *all);
    if (!all)
        return 0;
    for (int i = 0; i < c->desc.workers; i++) {
        memcpy(all + next, c->worker[i].busy, (size_t)c->worker[i].spans * sizeof *all);
        next += (size_t)c->worker[i].spans;
    }
    qsort(all, count, sizeof *all, by_begin);
    for (size_t i = 0; i < count; i++) {
        sum += (double)(all[i].end - all[i].begin);
        if (all[i].end > end) {
            any += (double)(all[i].end - (all[i].begin > end ? all[i].begin : end));
            end = all[i].end;
        }
    }
    ls_free(NULL, all);
    return any > 0 ? sum / any : 0;
}

double context_switches(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_nvcsw + (double)u.ru_nivcsw;
}

void begin_round(cell *c)
{
    c->launches = 0;
    for (int i = 0; i < c->desc.workers; i++) {
        c->worker[i].spans = c->worker[i].launches = 0;
        c->worker[i].times = (ls_comm_times){0};
        c->worker[i].barrier_s = 0;
    }
}

void end_round(cell *c, double seconds, double steps, double switched)
{
    figures f = {.steps_per_s = steps / seconds,
                 .launches = c->launches / steps,
                 .overlap = overlap_of(c),
                 .switches = switched / steps};
    qsort(c->launch_ns, (size_t)c->launches, sizeof *c->launch_ns, by_ns);
    if (c->launches > 0) {
        f.launch_p50 = c->launch_ns[c->launches / 2] * 1e-9;
        f.launch_p99 = c->launch_ns[(size_t)c->launches * 99 / 100] * 1e-9;
    }
    for (int i = 0; i < c->desc.workers; i++) {
        const double each = steps * c->desc.workers;
        f.exposed += c->worker[i].times.exposed / each;
        f.merge_wait += c->worker[i].times.wait / each;
        f.barrier_wait += c->worker[i].barrier_s / each;
    }
    if (c->rounds < ROUNDS_MOST)
        c->round[c->rounds++] = f;
}

static int cell_measure(cell *c, double seconds, ls_error *err)
{
    const uint64_t need = (uint64_t)(seconds * 1e9), from = c->step;
    begin_round(c);
    const double switched = context_switches();
    const uint64_t begin = ls_now_ns();
    while (ls_now_ns() - begin < need)
        issue_step(c, err);
    int status = settle(c, err);
    const double took = (double)(ls_now_ns() - begin) * 1e-9;
    if (status == LS_OK)
        end_round(c, took, (double)(c->step - from), context_switches() - switched);
    return status;
}

/* ---- life ----------------------------------------------------------------------------------- */

int open_group_of(cell *c, const ls_comm_type *type, ls_error *err)
{
    const size_t floats = c->worker[0].floats;
    int params = 1;
    size_t whole[2] = {0, floats};
    const size_t *param_offsets =
        c->worker[0].replica ? ls_replica_param_offsets(c->worker[0].replica, &params) : whole;
    const ls_buckets *buckets =
        c->worker[0].replica ? ls_replica_buckets(c->worker[0].replica) : NULL;
    const ls_comm_group_desc desc = {
        .type = type,
        .ranks = c->desc.workers,
        .shards = c->desc.work->shards,
        .floats = floats,
        .param_offsets = param_offsets,
        .param_count = params,
        .buckets = buckets ? buckets->end : NULL,
        .bucket_count = buckets ? buckets->count : 0,
        .timeout_ns = DEADLINE_NS,
        .spins = ls_spins_for(c->desc.workers, ls_allowed_cpus()),
    };
    int status = LS_OK;
    if (type)
        status = desc.type->group_create(&c->group, &desc, err);
    if (status == LS_OK)
        status = on_lanes(c, join, err);
    return status ? status : on_lanes(c, prove, err);
}

int open_lanes_of(cell *c, int inbox, int pinned, ls_error *err)
{
    const unsigned spins = ls_spins_for(c->desc.workers + 1, ls_allowed_cpus());
    for (int i = 0; i < c->desc.workers; i++) {
        c->worker[i].of = c;
        c->worker[i].index = i;
    }
    ls_park_init(&c->parking, spins);
    c->items = ls_alloc_array(NULL, STEPS_AHEAD * WORKERS_MOST * PIECES_MOST, sizeof *c->items);
    c->launch_ns = ls_alloc_array(NULL, LAUNCHES_MOST, sizeof *c->launch_ns);
    if (!c->items || !c->launch_ns)
        return ls_fail(err, LS_ENOMEM, "out of memory for a cell");
    int status = ls_barrier_init(&c->barrier, NULL, c->desc.workers,
                                 ls_spins_for(c->desc.workers, ls_allowed_cpus()), err);
    const ls_pool_options o = {
        .size = sizeof o,
        .workers = lane_of(c, c->desc.workers - 1) + 1,
        .inbox = inbox,
        .cpus_per_worker = pinned,
        .pinning = pinned ? LS_PINNING_ON : LS_PINNING_OFF,
        .name = "lane",
    };
    if (status == LS_OK)
        status = ls_pool_create(&c->lanes, &o, err);
    return status ? status : on_lanes(c, open_worker, err);
}

static int cell_open(cell *c, ls_error *err)
{
    const int one = c->desc.host == HOST_ONE_STREAM, whole = c->desc.host == HOST_THREADS;
    int status = open_lanes_of(
        c, whole ? 2 * STEPS_AHEAD : (one ? c->desc.workers : 1) * STEPS_AHEAD * PIECES_MOST, 1,
        err);
    return status ? status : open_group_of(c, c->desc.merge && !one ? &ls_comm_ordered : NULL, err);
}

void cell_close(cell *c)
{
    ls_error err;
    opening backwards = {c, leave, 1}; /* the device of the first worker is closed last */
    if (c->lanes)
        ls_pool_run(c->lanes, for_my_workers, &backwards, LS_FOREVER, &err);
    if (c->group)
        c->group->type->group_destroy(c->group);
    ls_pool_destroy(c->lanes, LS_FOREVER, NULL);
    ls_barrier_fini(&c->barrier);
    ls_free(NULL, c->launch_ns);
    ls_free(NULL, c->items);
}

const engine cpu_engine = {.open = cell_open,
                           .close = cell_close,
                           .check = cell_check,
                           .measure = cell_measure,
                           .spin = &cpu_spin};
