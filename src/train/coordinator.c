/* The coordinator: draws the rows of each epoch, scatters work items into the workers' inboxes,
 * collects a report of every worker for every step, and turns them into records. */
#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/run.h"

#include <math.h>

/* Where a run stands. */
typedef struct coordination {
    struct ls_trainer *t;
    uint32_t rows, steps; /* of an epoch */
    uint32_t epoch;       /* the one under way, from 0 */
    uint32_t sent, done;  /* steps of this epoch */
    uint64_t items;       /* work items sent since the start: the next one's slot */
    uint64_t first_step;  /* of this epoch */
    uint64_t last_ns;     /* when the last step was complete */
    uint64_t start_ns;    /* of this epoch */
    double trained_s;     /* in finished epochs */
    int complete;         /* nothing is left to do: an interrupt comes too late */
    ls_epoch_totals totals;
} coordination;

uint32_t ls_subset_rows(const struct ls_trainer *trainer, ls_subset subset)
{
    return ls_dataset_describe(trainer->data[subset])->rows;
}

uint32_t ls_minibatch_rows(uint32_t total, uint32_t batch_size, uint32_t index)
{
    uint64_t first = (uint64_t)index * batch_size;
    return total - first < batch_size ? (uint32_t)(total - first) : batch_size;
}

static int stopping(const struct ls_trainer *t)
{
    return atomic_load_explicit(&t->stop, memory_order_relaxed);
}

static double seconds_since(uint64_t ns)
{
    return (double)(ls_now_ns() - ns) * 1e-9;
}

/* ---- scattering ----------------------------------------------------------------------------- */

/* Steps per work item. One: the CPU gains nothing from more, and an interrupt waits for one step
 * only. A device that replays several steps at once would ask for more here. */
static uint32_t range_length(const coordination *c)
{
    (void)c;
    return 1;
}

static void fill_range(ls_range *range, const coordination *c, uint32_t steps)
{
    struct ls_trainer *t = c->t;
    uint32_t batch = (uint32_t)t->config.batch_size;
    uint32_t first_row = c->sent * batch;
    range->trainer = t;
    range->epoch = c->epoch;
    range->first_step = c->first_step + c->sent;
    range->steps = steps;
    range->rows = t->permutation[c->epoch % 2] + first_row;
    range->row_count = c->rows - first_row < steps * batch ? c->rows - first_row : steps * batch;
    for (uint32_t i = 0; i < steps; i++)
        range->lr[i] =
            (float)ls_schedule_rate(&t->config.schedule, ls_config_lr(&t->config),
                                    range->first_step + i, c->steps, (uint64_t)t->config.epochs);
}

/* The slot is free: its previous item's reports have been read, or more items would be in flight
 * than LS_IN_FLIGHT. The inbox has room for as many. */
static int scatter(coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    ls_range *range = &t->item[c->items++ % LS_IN_FLIGHT];
    uint32_t left = c->steps - c->sent, steps = range_length(c);
    fill_range(range, c, steps < left ? steps : left);
    for (int w = 0; w < t->workers; w++) {
        int status = ls_pool_submit(t->pool, w, ls_worker_train, range, err);
        if (status) { /* those who did get the item wait for the others */
            t->group->type->abort(t->group);
            return status;
        }
    }
    c->sent += range->steps;
    return LS_OK;
}

/* ---- collecting ----------------------------------------------------------------------------- */

/* The first error of a step: those who were released by an abort are not its cause. */
static int step_error(const struct ls_trainer *t, ls_error *err)
{
    int cause = -1;
    for (int w = 0; w < t->workers; w++) {
        int status = t->reports[w].status;
        if (status && (cause < 0 || t->reports[cause].status == LS_EABORTED))
            cause = w;
    }
    if (cause < 0)
        return LS_OK;
    return ls_fail(err, t->reports[cause].status, "worker %d, step %llu: %.400s", cause,
                   (unsigned long long)t->reports[cause].step + 1, t->worker[cause].error.text);
}

static void report_progress(const coordination *c, int epoch_done, int evaluated)
{
    const struct ls_trainer *t = c->t;
    if (!t->options.progress)
        return;
    double epoch_s = epoch_done ? c->totals.seconds : seconds_since(c->start_ns);
    double done = (double)c->epoch + (double)c->done / c->steps;
    double left = (double)t->config.epochs - done;
    ls_progress p = {
        .epoch = (int)c->epoch + 1,
        .epochs = (int)t->config.epochs,
        .step = c->done,
        .steps = c->steps,
        .loss = c->totals.loss / c->totals.rows,
        .accuracy = c->totals.correct / c->totals.rows,
        .images_per_s = c->totals.rows / epoch_s,
        .remaining_s = left * (c->trained_s + (epoch_done ? 0 : epoch_s)) / done,
        .epoch_done = epoch_done,
        .evaluated = evaluated,
        .test_loss = t->result.test_loss,
        .test_accuracy = t->result.test_accuracy,
    };
    t->options.progress(t->options.user, &p);
}

static int collect_step(coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    for (int w = 0; w < t->workers; w++) {
        int status = ls_ring_pop(&t->worker[w].reports, &t->reports[w], UINT64_MAX, err);
        if (status)
            return status;
    }
    int status = step_error(t, err);
    c->done++;
    if (status)
        return status;
    const ls_report *r = &t->reports[0];
    if (!isfinite(r->loss))
        return ls_fail(err, LS_ENONFINITE,
                       "step %llu: the loss is not finite any more; try a smaller optimizer.lr",
                       (unsigned long long)r->step + 1);
    uint64_t now = ls_now_ns();
    double rate = r->rows / ((double)(now - c->last_ns) * 1e-9);
    c->last_ns = now;
    c->totals.loss += r->loss;
    c->totals.correct += r->correct;
    c->totals.rows += r->rows;
    t->result.steps++;
    status = ls_record_step(t, c->epoch + 1, rate, t->reports, err);
    report_progress(c, 0, 0);
    return status;
}

/* Reads the reports of everything in flight, after an error too: nobody may still be running when
 * the caller goes on. The first error counts. */
static int drain(coordination *c, int status, ls_error *err)
{
    while (c->done < c->sent) {
        int next = collect_step(c, status ? NULL : err);
        if (status == LS_OK)
            status = next;
    }
    return status;
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* At most LS_IN_FLIGHT items are out: their steps are those between done and sent. */
static int train_epoch(coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    int status = LS_OK;
    c->sent = c->done = 0;
    c->totals = (ls_epoch_totals){0};
    c->start_ns = c->last_ns = ls_now_ns();
    while (status == LS_OK && c->sent < c->steps && !stopping(t)) {
        status = scatter(c, err);
        if (status == LS_OK && c->sent - c->done >= LS_IN_FLIGHT * range_length(c))
            status = collect_step(c, err);
    }
    status = drain(c, status, err);
    c->first_step += c->done;
    c->totals.seconds = seconds_since(c->start_ns);
    return status;
}

static int evaluation_error(const coordination *c, ls_error *err)
{
    int worker;
    ls_error cause;
    int status = ls_pool_first_error(c->t->pool, &worker, &cause);
    return ls_fail(err, status, "worker %d, evaluation of epoch %u: %.400s", worker,
                   (unsigned)c->epoch + 1, cause.text);
}

/* *evaluated stays 0 when an interrupt came first: the workers then left early. */
static int evaluate(coordination *c, int *evaluated, ls_error *err)
{
    struct ls_trainer *t = c->t;
    uint32_t rows = ls_subset_rows(t, LS_TEST), batch = (uint32_t)t->config.batch_size;
    size_t tallies = ((size_t)rows + batch - 1) / batch * (size_t)t->shards;
    uint64_t start = ls_now_ns();
    int status = ls_pool_run(t->pool, ls_worker_evaluate, t, LS_FOREVER, NULL);
    if (status)
        return evaluation_error(c, err);
    if (stopping(t))
        return LS_OK;
    ls_tally sum = {0, 0};
    for (size_t i = 0; i < tallies; i++) { /* in row order: the same on any number of workers */
        sum.loss += t->tally[i].loss;
        sum.correct += t->tally[i].correct;
    }
    t->result.test_loss = sum.loss / rows;
    t->result.test_accuracy = sum.correct / rows;
    *evaluated = 1;
    status = ls_record_eval(t, c->epoch + 1, seconds_since(start), err);
    if (status == LS_OK && !isfinite(sum.loss))
        status = ls_fail(err, LS_ENONFINITE,
                         "epoch %u: the test loss is not finite any more; try a smaller "
                         "optimizer.lr",
                         (unsigned)c->epoch + 1);
    return status;
}

static int evaluation_is_due(const struct ls_trainer *t, uint32_t epoch)
{
    long every = t->config.eval_every;
    return epoch + 1 == (uint32_t)t->config.epochs || (every > 0 && (epoch + 1) % every == 0);
}

/* The permutation is drawn before the clock starts, while no worker runs. */
static int run_epoch(coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    ls_rng_permutation(t->permutation[c->epoch % 2], c->rows, t->config.seed, c->epoch);
    int status = train_epoch(c, err);
    if (status || c->done < c->steps)
        return status;
    c->trained_s += c->totals.seconds;
    t->result.epochs++;
    t->result.seconds_per_epoch = c->trained_s / t->result.epochs;
    status = ls_record_epoch(t, c->epoch + 1, &c->totals, err);
    int evaluated = 0;
    if (status == LS_OK && evaluation_is_due(t, c->epoch) && !stopping(t))
        status = evaluate(c, &evaluated, err);
    c->complete = evaluated && c->epoch + 1 == (uint32_t)t->config.epochs;
    if (status == LS_OK)
        report_progress(c, 1, evaluated);
    return status;
}

int ls_coordinate(struct ls_trainer *t, ls_error *err)
{
    uint32_t rows = ls_subset_rows(t, LS_TRAIN), batch = (uint32_t)t->config.batch_size;
    coordination c = {
        .t = t, .rows = rows, .steps = (uint32_t)(((uint64_t)rows + batch - 1) / batch)};
    int status = LS_OK;
    for (; status == LS_OK && c.epoch < (uint32_t)t->config.epochs && !stopping(t); c.epoch++)
        status = run_epoch(&c, err);
    if (status == LS_OK && !c.complete) {
        t->result.interrupted = 1;
        status = ls_fail(err, LS_EINTERRUPTED, "interrupted after %llu steps",
                         (unsigned long long)t->result.steps);
    }
    return status;
}
