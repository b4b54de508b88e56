/* The coordinator: draws the rows of each epoch, scatters work items into the workers' inboxes, and
 * leads the run from epoch to epoch. collect.c is its receiving end, recover.c its answer to
 * faults. */
#include "train/coordinator.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "train/doubts.h"
#include "train/run_records.h"
#include "train/saving.h"
#include "train/worker.h"

#include <math.h>
#include <stdio.h>

static double seconds_since(const struct ls_trainer *t, uint64_t run_ns)
{
    return (double)(ls_run_ns(t) - run_ns) * 1e-9;
}

/* ---- work items ----------------------------------------------------------------------------- */

/* The rows of the dataset that the next `steps` steps consist of. */
static void choose_rows(ls_range *range, const ls_coordination *c, uint32_t steps)
{
    const struct ls_trainer *t = c->t;
    const uint32_t batch = (uint32_t)t->config.batch_size, first_row = c->sent * batch;
    range->rows = t->exchange->permutation[t->position.epoch % 2] + first_row;
    range->row_count = c->rows - first_row < steps * batch ? c->rows - first_row : steps * batch;
}

/* Streamed rows, the dataset's or the caller's, are put where workers find them; the work item has one
 * step. What is random about a row depends on its place there, so the slot depends on the step: a
 * step that is repeated finds its rows in the same places. */
static int feed_rows(ls_range *range, const ls_coordination *c, ls_error *err)
{
    const struct ls_trainer *t = c->t;
    const uint32_t slot = (uint32_t)(range->first_step % LS_IN_FLIGHT);
    int status = LS_OK;
    if (c->images) {
        ls_feed_copy(t->feed, slot, c->images, c->labels, c->given);
        range->row_count = c->given;
    } else {
        const uint64_t start = ls_now_ns();
        status = ls_feed_read(t->feed, slot, t->data[LS_TRAIN], range->rows, range->row_count, err);
        ls_trace_span(t->trace, LS_TRACK_COORDINATOR, "read rows", start, ls_now_ns(),
                      range->first_step + 1);
    }
    range->rows = ls_feed_rows(t->feed, slot);
    if (status || !t->config.loss->bits)
        return status;
    return ls_check_bits(t->config.loss, ls_feed_targets(t->feed, slot), range->row_count,
                         t->config.preprocessing.targets, "the rows of a step", err);
}

static int fill_range(ls_range *range, const ls_coordination *c, uint32_t steps, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const ls_position *at = &t->position;
    range->trainer = t;
    range->epoch = at->epoch;
    range->first_step = ls_steps_when(c, c->sent);
    range->steps = steps;
    for (uint32_t i = 0; i < steps; i++)
        range->lr[i] =
            (float)ls_schedule_rate(&t->config.schedule, ls_config_lr(&t->config),
                                    range->first_step + i, c->steps, (uint64_t)t->config.epochs);
    if (!c->images)
        choose_rows(range, c, steps);
    return t->feed ? feed_rows(range, c, err) : LS_OK;
}

/* ---- what is due between steps -------------------------------------------------------------- */

static bool snapshot_is_due(const struct ls_trainer *t, uint64_t steps)
{
    return t->options.snapshot && steps > 0 &&
           ls_is_multiple(steps, t->options.snapshot_every_steps);
}

static ls_due save_due(const struct ls_trainer *t, uint64_t steps)
{
    return ls_checkpoint_due(t, &(ls_moment){.occasion = LS_STEP_DONE, .steps = steps});
}

/* After `steps` steps: no worker may be at work, so that replicas can be read. */
static bool is_due(const ls_coordination *c, uint64_t steps)
{
    const struct ls_trainer *t = c->t;
    return steps != c->settled &&
           (save_due(t, steps) != LS_DUE_NOTHING ||
            ls_is_multiple(steps, t->config.verify_every_steps) || snapshot_is_due(t, steps));
}

static void say_when(char *out, size_t size, const char *what, uint64_t number)
{
    snprintf(out, size, "%s %llu", what, (unsigned long long)number);
}

int ls_read_back(struct ls_trainer *t, bool exports, ls_error *err)
{
    char when[64];
    int status;
    const uint64_t start = ls_now_ns();
    say_when(when, sizeof when, "reading weights back after step", t->position.steps);
    while ((status = ls_snapshot_replicas(t, exports, err)) != LS_OK) {
        if (status == LS_EDIVERGED)
            return status;
        status = ls_recover(t, when, err);
        if (status)
            return status;
    }
    ls_trace_span(t->trace, LS_TRACK_COORDINATOR, exports ? "read back" : "compare replicas", start,
                  ls_now_ns(), t->position.steps);
    return LS_OK;
}

/* The weights are in the exchange. */
static int show_snapshot(struct ls_trainer *t, ls_error *err)
{
    ls_snapshot *snapshot;
    int status =
        ls_snapshot_create(&snapshot, t->inference, t->exchange->canonical, t->position.steps, err);
    if (status)
        return status;
    t->options.snapshot(t->options.user, snapshot);
    ls_snapshot_release(snapshot);
    return LS_OK;
}

/* Compares the replicas, saves what is due, and shows a snapshot where one is. */
static int settle(ls_coordination *c, ls_due due, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const bool show = snapshot_is_due(t, t->position.steps) && c->settled != t->position.steps;
    c->settled = t->position.steps;
    int status = ls_read_back(t, due != LS_DUE_NOTHING || show, err);
    if (status == LS_OK && show)
        status = show_snapshot(t, err);
    return status ? status : ls_save(t, due, err);
}

/* ---- scattering ----------------------------------------------------------------------------- */

/* How many steps the next work item has: one, unless a worker alone wants several in one launch, and
 * nothing is due behind the first ones. */
static uint32_t range_length(const ls_coordination *c)
{
    const struct ls_trainer *t = c->t;
    const uint64_t sent = ls_steps_when(c, c->sent);
    uint32_t length = 1, most = 1;
    for (int w = 0; w < t->workers && t->live == 1 && !t->feed; w++)
        if (t->worker[w].presence == LS_LIVE)
            most = t->worker[w].length;
    while (length < most && c->sent + length < c->limit && !is_due(c, sent + length))
        length++;
    return length;
}

/* The slot is free. The inboxes have room for as many items as there are slots. */
static int scatter(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const uint64_t slot = c->items % LS_IN_FLIGHT;
    ls_range range;
    int status = fill_range(&range, c, range_length(c), err);
    if (status)
        return status;
    c->items++;
    if (c->taken == c->sent || t->feed) /* reading rows may have taken long: no worker's silence */
        ls_watch_begin(&c->watch);
    for (int w = 0; w < t->workers; w++) {
        if (t->worker[w].presence != LS_LIVE)
            continue;
        t->worker[w].item[slot] = range;
        status = ls_pool_submit(t->pool, w, ls_worker_train, &t->worker[w].item[slot], err);
        if (status) { /* the workers that did get the item wait for their peers */
            t->group->type->abort(t->group);
            return status;
        }
    }
    c->sent += range.steps;
    c->ends[slot] = c->sent;
    return LS_OK;
}

/* ---- training ------------------------------------------------------------------------------- */

static bool can_scatter(const ls_coordination *c)
{
    const struct ls_trainer *t = c->t;
    const uint64_t sent = ls_steps_when(c, c->sent);
    const bool stops = t->members.cluster ? sent >= t->members.stop_behind : ls_stopping(t);
    return c->sent < c->limit && !stops && c->ends[c->items % LS_IN_FLIGHT] <= c->taken &&
           !is_due(c, sent);
}

/* At most LS_IN_FLIGHT items are out: their steps are those between taken and sent. */
static int train_to_limit(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    int status = LS_OK;
    while (status == LS_OK) {
        if (can_scatter(c))
            status = scatter(c, err);
        else if (c->taken < c->sent)
            status = ls_collect_step(c, err);
        else if (is_due(c, t->position.steps) && !ls_stopping(t))
            status = settle(c, save_due(t, t->position.steps), err);
        else
            return LS_OK;
    }
    ls_collect_rest(c); /* no worker may be at work when the caller goes on */
    return status;
}

int ls_train_steps(ls_coordination *c, uint32_t limit, ls_error *err)
{
    ls_epoch_totals *totals = &c->t->position.totals;
    ls_send_from_here(c);
    c->limit = limit;
    c->start_ns = c->last_ns - (uint64_t)(totals->seconds * 1e9);
    int status = train_to_limit(c, err);
    totals->seconds = seconds_since(c->t, c->start_ns);
    return status;
}

/* ---- evaluation ----------------------------------------------------------------------------- */

/* Loss and accuracy out of the tallies, and metrics of the scores. */
static int measure(struct ls_trainer *t, ls_error *err)
{
    const ls_sharded_rows *r = &t->exchange->test;
    const ls_tally sum = ls_sharded_rows_sum(r);
    const ls_judged judged = {.scores = r->scores,
                              .labels = ls_dataset_resident(t->data[LS_TEST]).labels,
                              .row = r->row,
                              .rows = r->rows,
                              .outputs = r->classes};
    t->result.test_loss = ls_loss_of_run(t, sum.loss / r->rows);
    t->result.test_accuracy = ls_loss_accuracy(t->config.loss, sum.correct, r->rows);
    ls_measured_clear(&t->measured);
    t->measured.value[LS_METRIC_LOSS] = t->result.test_loss;
    t->measured.value[LS_METRIC_ACCURACY] = t->result.test_accuracy;
    int status =
        r->scores ? ls_measure(&t->measured, t->config.metrics, &judged, t->host, err) : LS_OK;
    double *mae = &t->measured.value[LS_METRIC_MAE];
    *mae = ls_prep_absolute_error(ls_dataset_describe(t->data[LS_TRAIN])->prep, *mae);
    return status;
}

/* A metric without a value on the test rows will never have one. A loss that is not finite has a message of its own. */
static int check_monitored(const struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    const bool needed = c->patience > 0 || c->checkpoint.best;
    if (!needed || t->position.best.epoch > 0 || !isfinite(t->result.test_loss) ||
        !isnan(t->measured.value[c->monitor]))
        return LS_OK;
    return ls_fail(
        err, LS_ECONFIG,
        "monitor: %s has no value on the test rows (where targets are all alike there is "
        "no auc, and no r2), so none is the best, for patience or checkpoint.best; "
        "expected a metric that has one, such as loss",
        ls_metric_names[c->monitor]);
}

/* The first of equal ones is the best; none waits before there is one. */
static int compare_with_best(struct ls_trainer *t, ls_error *err)
{
    ls_best *best = &t->position.best;
    const ls_metric metric = t->config.monitor;
    const double value = t->measured.value[metric];
    const bool better =
        best->epoch == 0 || (ls_metric_rises(metric) ? value > best->value : value < best->value);
    if (!isfinite(value) || !better) {
        best->waited += best->epoch > 0;
        return LS_OK;
    }
    int status = ls_displace_best(t, err);
    if (status == LS_OK)
        *best = (ls_best){metric, value, t->position.epoch + 1, 0, t->position.steps, best->kept};
    return status;
}

static int take_evaluation(struct ls_trainer *t, double seconds, ls_error *err)
{
    const ls_best before = t->position.best;
    int status = t->members.evaluated ? LS_OK : measure(t, err);
    t->members.evaluated = false;
    ls_tell_metric(t, &t->measured);
    if (status == LS_OK)
        status = check_monitored(t, err);
    if (status == LS_OK)
        status = compare_with_best(t, err);
    if (status == LS_OK)
        status = ls_record_eval(t, seconds, err);
    if (status == LS_OK && t->position.epoch + 1 == (uint64_t)t->config.epochs &&
        !t->config.loss->vectors && ls_members_first(t))
        ls_say_of_accuracy(t->data[LS_TEST], t->result.test_accuracy, t->host);
    if (status) /* the evaluation is made again behind a resume: it does not count twice */
        t->position.best = before;
    if (status == LS_OK && !isfinite(t->result.test_loss))
        status = ls_fail(err, LS_ENONFINITE,
                         "epoch %u: the test loss is not finite any more; try a smaller "
                         "optimizer.lr",
                         (unsigned)t->position.epoch + 1);
    return status;
}

/* This process's shards, and then those of all: again when a worker, or another process, is lost meanwhile. */
static int evaluate_shards(struct ls_trainer *t, ls_error *err)
{
    char when[64];
    say_when(when, sizeof when, "evaluation of epoch", t->position.epoch + 1);
    for (int status = LS_OK; !t->members.evaluated;) {
        t->exchange->steps = t->position.steps;
        const int gang_status = ls_gang(t, ls_worker_evaluate, err);
        if (gang_status == LS_OK && ls_stopping(t))
            return LS_OK;
        if (gang_status == LS_OK)
            status = ls_members_gather_evaluation(t, err);
        if (gang_status == LS_OK && (status == LS_OK || !ls_members_lost(t)))
            return status;
        status = ls_recover(t, when, err);
        if (status)
            return status;
    }
    return LS_OK;
}

int ls_evaluate(struct ls_trainer *t, bool *evaluated, ls_error *err)
{
    const uint64_t start = ls_now_ns(), run_start = ls_run_ns(t);
    int status = evaluate_shards(t, err);
    ls_trace_span(t->trace, LS_TRACK_COORDINATOR, "evaluate", start, ls_now_ns(),
                  t->position.steps);
    *evaluated = status == LS_OK && (t->members.evaluated || !ls_stopping(t));
    if (!*evaluated)
        return status;
    return take_evaluation(t, seconds_since(t, run_start), err);
}

static bool evaluation_is_due(const struct ls_trainer *t)
{
    const uint32_t next = t->position.epoch + 1;
    return ls_dataset_rows(t->data[LS_TEST]) > 0 &&
           (next == (uint32_t)t->config.epochs || ls_is_multiple(next, t->config.eval_every));
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* The epoch's steps, from where they were left. */
static int train_epoch(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const ls_position *at = &t->position;
    /* Drawn before the clock starts, while no worker runs. */
    uint32_t *order = t->exchange->permutation[at->epoch % 2];
    ls_rng_permutation(order, c->rows, t->config.seed, at->epoch);
    if (!t->feed)
        ls_dataset_places(t->data[LS_TRAIN], order, c->rows);
    const uint64_t start = ls_now_ns();
    int status = ls_train_steps(c, c->steps, err);
    char name[32];
    say_when(name, sizeof name, "epoch", at->epoch + 1);
    ls_trace_span(t->trace, LS_TRACK_COORDINATOR, name, start, ls_now_ns(), 0);
    return status;
}

static int record_epoch(struct ls_trainer *t, ls_error *err)
{
    ls_position *at = &t->position;
    at->trained_s += at->totals.seconds;
    at->recorded = true;
    t->result.epochs++;
    t->result.seconds_per_epoch = at->trained_s / t->result.epochs;
    return ls_record_epoch(t, err);
}

static void begin_next_epoch(struct ls_trainer *t)
{
    t->position.epoch++;
    t->position.step = 0;
    t->position.recorded = false;
    t->position.totals = (ls_epoch_totals){0};
}

/* Patience is used up. The best evaluation so far is part of a checkpoint, so a resumed run knows it. */
static bool has_waited_long(const struct ls_trainer *t)
{
    return t->config.patience > 0 && t->position.best.waited >= (uint32_t)t->config.patience;
}

int ls_end_epoch(ls_coordination *c, bool may_evaluate, ls_error *err)
{
    struct ls_trainer *t = c->t;
    bool evaluated = false;
    int status = t->position.recorded ? LS_OK : record_epoch(t, err);
    const bool due = may_evaluate && evaluation_is_due(t);
    if (status == LS_OK && due && !ls_stopping(t))
        status = ls_evaluate(t, &evaluated, err);
    if (status || (due && !evaluated))
        return status;
    ls_tell_progress(c, true, evaluated);
    begin_next_epoch(t);
    /* The last one's is the final checkpoint of a run; a trainer that is driven may go on, or has none. */
    if (may_evaluate && (t->position.epoch == (uint32_t)t->config.epochs || has_waited_long(t)))
        return LS_OK;
    const ls_moment done = {.occasion = LS_EPOCH_DONE, .evaluated = evaluated};
    return settle(c, ls_checkpoint_due(t, &done), err);
}

static int run_epoch(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    int status = t->position.recorded ? LS_OK : train_epoch(c, err);
    if (status || t->position.step < c->steps)
        return status;
    return ls_end_epoch(c, true, err);
}

int ls_coordination_create(struct ls_trainer *t, ls_error *err)
{
    ls_coordination *c = ls_alloc(t->host, sizeof *c);
    if (!c)
        return ls_fail(err, LS_ENOMEM, "out of memory for the coordinator");
    c->t = t;
    c->rows = ls_dataset_rows(t->data[LS_TRAIN]);
    c->steps = ls_steps_per_epoch(c->rows, (uint32_t)t->config.batch_size);
    c->settled = t->position.steps;
    ls_set_deadline(t, 0);
    t->coordination = c;
    return LS_OK;
}

static void say_early(struct ls_trainer *t)
{
    const ls_best *best = &t->position.best;
    snprintf(
        t->text.early, sizeof t->text.early,
        "%u evaluations in a row were not better than that after epoch %u, with a%s %s of %.6g",
        (unsigned)best->waited, (unsigned)best->epoch,
        best->metric == LS_METRIC_ACCURACY || best->metric == LS_METRIC_AUC ? "n" : "",
        ls_metric_names[best->metric], best->value);
    ls_log(t->host, LS_LOG_INFO, "stopped early: %s", t->text.early);
}

int ls_coordinate(struct ls_trainer *t, ls_error *err)
{
    const uint32_t epochs = (uint32_t)t->config.epochs;
    int status = LS_OK;
    while (status == LS_OK && t->position.epoch < epochs && !ls_stopping(t) && !has_waited_long(t))
        status = run_epoch(t->coordination, err);
    if (status || t->position.epoch == epochs)
        return status;
    if (has_waited_long(t)) {
        say_early(t);
        return LS_OK;
    }
    t->result.interrupted = 1;
    return ls_fail(err, LS_EINTERRUPTED, "interrupted after %llu steps",
                   (unsigned long long)t->result.steps);
}
