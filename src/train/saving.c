/* SPDX-License-Identifier: MIT */
/* Decides when a checkpoint is due and saves it. */
#include "train/saving.h"
#include "base/clock.h"
#include "engine/view.h"
#include "train/chaining.h"

/* ---- deciding ------------------------------------------------------------------------------- */

/* Returns whether the last evaluation, after the steps done so far, is the best. */
static bool is_best(const struct ls_trainer *t)
{
    const ls_best *best = &t->position.best;
    return best->epoch > 0 && best->steps == t->position.steps;
}

/* Returns the number of steps between two checkpoints; 0: checkpoints are saved after epochs only.
 * In a run of several processes the config of the first one decides, because all of them compare
 * their states before each checkpoint. */
static int64_t steps_between(const struct ls_trainer *t)
{
    return t->members.cluster ? t->agreement.save_every : t->config.checkpoint.every_steps;
}

/* Returns the time in seconds that must have passed since the last save before the next one. In a
 * run of several processes the config of the first one decides. */
static double seconds_between(const struct ls_trainer *t)
{
    return t->members.cluster ? t->agreement.save_seconds : t->config.checkpoint.every_seconds;
}

static uint64_t clock_ns(const struct ls_trainer *t)
{
    return t->clock ? t->clock(t->clock_user) : ls_now_ns();
}

/* Returns whether a checkpoint that is due has to wait. A clock that has jumped back makes none
 * wait, because the difference is then a large number. */
static bool waits(const struct ls_trainer *t)
{
    const double seconds = seconds_between(t);
    return seconds > 0 && (double)(clock_ns(t) - t->dir.saved_ns) < seconds * 1e9;
}

void ls_begin_saving(struct ls_trainer *t)
{
    t->dir.saved_ns = clock_ns(t);
}

ls_due ls_checkpoint_due(const struct ls_trainer *t, const ls_moment *m)
{
    const ls_config *c = &t->config;
    bool due = false;
    if (!t->dir.saver)
        return LS_DUE_NOTHING;
    switch (m->occasion) {
    case LS_STEP_DONE:
        if (ls_chain_is_due(t, m->steps)) /* a verifier replays from here, so it must be kept */
            return LS_DUE_MEANWHILE;
        due = ls_is_multiple(m->steps, steps_between(t));
        break;
    case LS_EPOCH_DONE:
        due = ls_is_multiple(t->position.epoch, c->checkpoint.every_epochs) ||
              (c->checkpoint.best && m->evaluated && is_best(t));
        break;
    case LS_TAKEN_OVER: return LS_DUE_MEANWHILE;
    case LS_RUN_ENDED: return m->status == LS_ENONFINITE ? LS_DUE_NOTHING : LS_DUE_NOW;
    case LS_ASKED: return LS_DUE_NOW;
    }
    if (!due)
        return LS_DUE_NOTHING;
    return waits(t) ? LS_DUE_LATER : LS_DUE_MEANWHILE;
}

/* ---- saving --------------------------------------------------------------------------------- */

int ls_copy_replicas(struct ls_trainer *t, bool exports, ls_error *err)
{
    int status = exports ? ls_saver_wait(t->dir.saver, err) : LS_OK;
    if (status == LS_OK)
        status = ls_engine_read_back(t->engine, exports, t->position.steps, err);
    if (status == LS_OK && !t->members.cluster)
        t->agreement.steps = t->position.steps;
    return status;
}

ls_saver_desc ls_saved_run(struct ls_trainer *t)
{
    return (ls_saver_desc){.config = &t->config,
                           .model = t->model,
                           .data = t->data,
                           .sinks = &t->records.sinks,
                           .trace = t->records.trace,
                           .keeps = seconds_between(t) > 0,
                           .host = t->host};
}

ls_checkpoint_values ls_values(const struct ls_trainer *t)
{
    const ls_engine_state *state = ls_engine_weights(t->engine);
    return (ls_checkpoint_values){state->canonical, state->slot};
}

void ls_standing_of(ls_standing *out, const struct ls_trainer *t)
{
    const ls_result *r = &t->reported.result;
    out->position = t->position;
    out->epochs = r->epochs;
    out->test_loss = r->test_loss;
    out->test_accuracy = t->reported.accuracy;
    out->metric = t->reported.metric;
    out->test_metric = r->metric_value;
}

void ls_take_standing(struct ls_trainer *t, const ls_standing *s)
{
    ls_result *r = &t->reported.result;
    t->position = s->position;
    r->steps = s->position.steps;
    r->epochs = s->epochs;
    r->test_loss = s->test_loss;
    t->reported.accuracy = s->test_accuracy;
    if (s->metric != LS_METRIC_CONFUSION) {
        t->reported.metric = s->metric;
        r->metric = ls_metric_names[s->metric];
        r->metric_value = s->test_metric;
    }
    if (s->epochs > 0)
        r->seconds_per_epoch = s->position.trained_s / s->epochs;
}

/* Returns the state of the run, except the members that the saver sets. */
static ls_state describe(const struct ls_trainer *t)
{
    ls_state state = {.shards = ls_engine_shards(t->engine),
                      .isa = t->reported.summary.isa,
                      .library = t->reported.summary.library,
                      .train_rows = ls_dataset_rows(t->data[LS_TRAIN]),
                      .test_rows = ls_dataset_rows(t->data[LS_TEST]),
                      .chain = t->agreement.chained ? &t->chain : NULL,
                      .chained = t->chain.count};
    ls_standing_of(&state.standing, t);
    return state;
}

int ls_save(struct ls_trainer *t, ls_due due, ls_error *err)
{
    const ls_state state = describe(t);
    const ls_checkpoint_values values = ls_values(t);
    switch (due) {
    case LS_DUE_NOTHING: return LS_OK;
    case LS_DUE_LATER: return ls_saver_keep(t->dir.saver, &state, &values, err);
    case LS_DUE_MEANWHILE:
    case LS_DUE_NOW: break;
    }
    t->dir.saved_ns = clock_ns(t);
    return ls_saver_save(t->dir.saver, &state, &values, due == LS_DUE_NOW, err);
}

int ls_save_kept(struct ls_trainer *t, ls_error *err)
{
    if (!ls_saver_keeps(t->dir.saver) || waits(t))
        return LS_OK;
    t->dir.saved_ns = clock_ns(t);
    return ls_saver_write_kept(t->dir.saver, err);
}

int ls_save_at(struct ls_trainer *t, const char *path, ls_error *err)
{
    const ls_saver_desc run = ls_saved_run(t);
    const ls_state state = describe(t);
    const ls_checkpoint_values values = ls_values(t);
    return ls_save_to_file(path, &run, &state, &values, err);
}

/* ---- the best ------------------------------------------------------------------------------- */

const char *ls_best_checkpoint(struct ls_trainer *t)
{
    char *path = t->reported.text.best;
    return t->dir.saver && t->config.checkpoint.best &&
                   ls_checkpoint_of_best(path, sizeof t->reported.text.best, t->dir.path,
                                         &t->position.best)
               ? path
               : NULL;
}

int ls_displace_best(struct ls_trainer *t, ls_error *err)
{
    ls_best *best = &t->position.best;
    if (!t->config.checkpoint.best)
        return LS_OK;
    int status = ls_saver_wait(t->dir.saver, err);
    if (status == LS_OK && (ls_best_checkpoint(t) || ls_saver_holds(t->dir.saver, best->steps)))
        best->kept = best->steps;
    return status;
}
