/* The coordinator's receiving end: reports of a step, watched over while they are awaited. */
#include "base/clock.h"
#include "base/error.h"
#include "train/coordination.h"

#include <math.h>

void ls_tell_progress(const ls_coordination *c, int epoch_done, int evaluated)
{
    const struct ls_trainer *t = c->t;
    const ls_position *at = &t->position;
    if (!t->options.progress)
        return;
    const double epoch_s =
        epoch_done ? at->totals.seconds : (double)(ls_run_ns(t) - c->start_ns) * 1e-9;
    const double done = (double)at->epoch + (double)at->step / c->steps;
    const double left = (double)t->config.epochs - done;
    ls_progress p = {
        .epoch = (int)at->epoch + 1,
        .epochs = (int)t->config.epochs,
        .step = at->step,
        .steps = c->steps,
        .loss = at->totals.loss / at->totals.rows,
        .accuracy = at->totals.correct / at->totals.rows,
        .images_per_s = at->totals.rows / epoch_s,
        .remaining_s = left * (at->trained_s + (epoch_done ? 0 : epoch_s)) / done,
        .epoch_done = epoch_done,
        .evaluated = evaluated,
        .test_loss = t->result.test_loss,
        .test_accuracy = t->result.test_accuracy,
    };
    t->options.progress(t->options.user, &p);
}

/* ---- waiting for reports -------------------------------------------------------------------- */

/* The reports of one step that are still out. */
typedef struct awaited {
    int worker[LS_DEVICES_MAX];
    ls_ring *ring[LS_DEVICES_MAX];
    int count;
} awaited;

static void await_everybody(awaited *a, struct ls_trainer *t)
{
    a->count = 0;
    for (int w = 0; w < t->workers; w++) {
        if (t->worker[w].presence != LS_LIVE)
            continue;
        a->worker[a->count] = w;
        a->ring[a->count++] = &t->worker[w].reports;
    }
}

static void strike(awaited *a, int index)
{
    a->count--;
    a->worker[index] = a->worker[a->count];
    a->ring[index] = a->ring[a->count];
}

static void take_in(awaited *a, struct ls_trainer *t, const ls_report *report, int index)
{
    const int w = a->worker[index];
    t->reports[w] = *report;
    t->worker[w].status = report->status;
    if (report->status && report->status != LS_EABORTED)
        t->worker[w].fault_step = report->step + 1;
    strike(a, index);
}

/* Gives up those awaited who show no sign of life. */
static void look_after(awaited *a, struct ls_trainer *t, uint64_t step, ls_watch *watch)
{
    bool out[LS_DEVICES_MAX] = {false};
    for (int i = 0; i < a->count; i++)
        out[a->worker[i]] = true;
    ls_watch_look(watch, t, out, step);
    for (int i = a->count - 1; i >= 0; i--)
        if (t->worker[a->worker[i]].presence == LS_STALLED)
            strike(a, i);
}

/* The number, from 1, of the step whose reports are next. */
static uint64_t next_step(const ls_coordination *c)
{
    const ls_position *at = &c->t->position;
    return at->steps - at->step + c->taken + 1;
}

/* Everybody's report of the next step, or a verdict on who has none. */
static void await_reports(ls_coordination *c)
{
    struct ls_trainer *t = c->t;
    awaited a;
    ls_report report;
    await_everybody(&a, t);
    while (a.count > 0) {
        const uint64_t begin = ls_now_ns();
        int which = -1;
        int status = ls_ring_pop_any(&report, &which, a.ring, a.count, begin + LS_NAP_NS, NULL);
        ls_note_pause(t, begin);
        if (status == LS_OK)
            take_in(&a, t, &report, which);
        else
            look_after(&a, t, next_step(c), &c->watch);
    }
}

/* ---- what a step came to -------------------------------------------------------------------- */

/* A worker that says the step is done: then it is, for all. −1: it is not. */
static int find_done(const struct ls_trainer *t)
{
    for (int w = 0; w < t->workers; w++)
        if (t->worker[w].presence == LS_LIVE && t->worker[w].status == LS_OK)
            return w;
    return -1;
}

static int anybody_failed(const struct ls_trainer *t)
{
    for (int w = 0; w < t->workers; w++) {
        const ls_train_worker *worker = &t->worker[w];
        if (worker->presence == LS_LIVE ? worker->status != LS_OK : !worker->mourned)
            return 1;
    }
    return 0;
}

static int account_skipped(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    int worker = -1, shard = -1;
    for (int w = 0; w < t->workers && shard < 0; w++) {
        if (t->worker[w].presence == LS_LIVE && t->worker[w].status == LS_OK &&
            t->reports[w].bad_shard >= 0) {
            worker = w;
            shard = t->reports[w].bad_shard;
        }
    }
    const unsigned long long number = t->position.steps + 1;
    int status = ls_record_nonfinite(t, number, worker, shard, err);
    if (status || t->config.skip_nonfinite)
        return status;
    if (shard < 0)
        return ls_fail(
            err, LS_ENONFINITE,
            "step %llu: the loss was not finite, but computed again it is: some device is "
            "faulty; the step was not applied",
            number);
    return ls_fail(
        err, LS_ENONFINITE,
        "step %llu: the loss of shard %d, on worker %d, is not finite any more; the step "
        "was not applied; try a smaller optimizer.lr",
        number, shard, worker);
}

static void move_on(struct ls_trainer *t, const ls_report *r)
{
    t->position.steps++;
    t->position.step++;
    if (!r->skipped) {
        t->position.totals.loss += (double)r->loss;
        t->position.totals.correct += (double)r->correct;
        t->position.totals.rows += (double)r->rows;
    }
    t->result.steps = t->position.steps;
}

static int account_done(ls_coordination *c, const ls_report *r, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const uint64_t now = ls_run_ns(t);
    const uint64_t share = (now - c->last_ns) / (uint64_t)r->rest;
    const double seconds = (double)share * 1e-9;
    int status = LS_OK;
    c->last_ns += share;
    if (seconds > c->longest_s) {
        c->longest_s = seconds;
        ls_set_deadline(t, seconds);
    }
    if (r->skipped)
        status = account_skipped(c, err);
    if (status)
        return status;
    move_on(t, r);
    c->last = *r;
    status = ls_record_step(t, t->position.epoch + 1, (double)r->rows / seconds, r, err);
    ls_tell_progress(c, 0, 0);
    return status;
}

int ls_collect_step(ls_coordination *c, int *failed, ls_error *err)
{
    struct ls_trainer *t = c->t;
    await_reports(c);
    ls_trace_drain(t->trace, t);
    c->taken++;
    const int done = find_done(t);
    *failed = anybody_failed(t);
    return done < 0 ? LS_OK : account_done(c, &t->reports[done], err);
}

void ls_collect_rest(ls_coordination *c)
{
    struct ls_trainer *t = c->t;
    int first[LS_DEVICES_MAX];
    for (int w = 0; w < t->workers; w++)
        first[w] = t->worker[w].status;
    for (; c->taken < c->sent; c->taken++) {
        await_reports(c);
        const int done = find_done(t);
        if (done >= 0)
            move_on(t, &t->reports[done]);
        for (int w = 0; w < t->workers; w++)
            if (first[w] != LS_OK)
                t->worker[w].status = first[w];
    }
}
