/* SPDX-License-Identifier: MIT */
/* A trainer that its caller drives one step at a time: the function that trains one step, and the
 * functions that may be called between steps.
 *
 * An error that leaves the trainer unchanged (is_harmless) is only returned. Any other error ends
 * the training. It is stored in trainer->broken, and later calls that train, evaluate or load
 * return the same error. */
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "base/thread_state.h"
#include "data/own_rows.h"
#include "engine/feed.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "train/calls.h"
#include "train/coordinator.h"
#include "train/learnt_scales.h"
#include "train/run_files.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <math.h>
#include <string.h>

/* ---- checks --------------------------------------------------------------------------------- */

/* Returns whether an error with this status leaves the trainer unchanged. */
static bool is_harmless(int status)
{
    return status == LS_OK || status == LS_EINVAL || status == LS_ENOENT || status == LS_EDATA ||
           status == LS_ECONFIG || status == LS_EIO || status == LS_EINTERRUPTED;
}

/* If the error ends the training, stores it for later calls. Copies the error to `err`, and returns
 * its status. */
static int remember_error(ls_trainer *t, int status, const ls_error *why, ls_error *err)
{
    ls_error first = *why;
    if (status == LS_EDIVERGED && t->broken.status == LS_OK)
        ls_agreement_lost(t, &first);
    if (!is_harmless(status) && t->broken.status == LS_OK)
        t->broken = first;
    return status ? ls_fail(err, status, "%s", first.text) : LS_OK;
}

static int check_usable(const ls_trainer *t, const char *function, ls_error *err)
{
    if (t->broken.status)
        return ls_fail(err, t->broken.status, "%s", t->broken.text);
    if (ls_engine_live(t->engine) == 0)
        return ls_fail(err, LS_EDEVICE, "%s: no device is left", function);
    return LS_OK;
}

static int check_training(const ls_trainer *t, const char *function, ls_error *err)
{
    if (t->ran)
        return ls_fail(err, LS_EINVAL, "%s: the run has ended; open another trainer", function);
    return check_usable(t, function, err);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Returns whether the trainer has prepared its devices for steps of n rows. */
static bool rows_are_prepared(const ls_trainer *t, uint32_t n)
{
    bool prepared = n == (uint32_t)t->config.batch_size;
    for (int i = 0; i < t->options.step_row_count; i++)
        prepared |= t->options.step_rows[i] == n;
    return prepared && n > 0;
}

/* Checks numbers of the caller, floats or doubles. */
static int check_numbers(const void *numbers, ls_row_type type, size_t n, size_t each,
                         const char *what, ls_error *err)
{
    const bool wide = type == LS_ROW_F64;
    for (size_t i = 0; i < n * each; i++) {
        const double v = wide ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
        if (!isfinite((float)v))
            return ls_fail(err, LS_EINVAL,
                           "ls_trainer_step: row %zu: %s %zu is %g; expected finite numbers%s",
                           i / each, what, i % each, v, isfinite(v) ? " that a float holds" : "");
    }
    return LS_OK;
}

static int check_labels(const ls_trainer *t, const int32_t *labels, uint32_t n, ls_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (labels[i] < 0 || labels[i] >= t->model->classes)
            return ls_fail(err, LS_EINVAL,
                           "ls_trainer_step: row %u has label %d; the labels of %d classes are "
                           "0 … %d",
                           (unsigned)i, labels[i], t->model->classes, t->model->classes - 1);
    return LS_OK;
}

/* Checks the type of the caller's rows, which must be that of the data source. */
static int check_type(const ls_trainer *t, const ls_step_rows *r, ls_error *err)
{
    const ls_row_type type = ls_own_rows_type(t->data[LS_TRAIN]);
    const char *found = ls_row_type_name(r->row_type);
    if (r->row_type == type)
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "ls_trainer_step: ls_step_rows.row_type is %s%s; the rows of this data source "
                   "are %s: pass such rows, and set row_type to it",
                   found ? found : "not set to a type", r->row_type == 0 ? " (it is 0)" : "",
                   ls_row_type_name(type));
}

static int check_rows(const ls_trainer *t, const ls_step_rows *r, ls_error *err)
{
    const ls_gather *g = &t->config.preprocessing;
    const size_t values = ls_engine_feed(t->engine)->image_bytes / sizeof(float);
    int status = check_type(t, r, err);
    if (status == LS_OK && g->floats)
        status = check_numbers(r->rows, r->row_type, r->n, values, "value", err);
    if (status)
        return status;
    return g->targets ? check_numbers(r->targets, ls_own_rows_target_type(t->data[LS_TRAIN]), r->n,
                                      (size_t)g->targets, "target", err)
                      : check_labels(t, r->targets, r->n, err);
}

static int check_weights(const ls_trainer *t, const ls_step_rows *r, ls_error *err)
{
    if (r->weights && !ls_engine_feed(t->engine)->weights)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_step: the rows have weights; set `weighted` in the data source");
    for (uint32_t i = 0; r->weights && i < r->n; i++)
        if (!ls_is_row_weight((double)r->weights[i]))
            return ls_fail(err, LS_EINVAL,
                           "ls_trainer_step: row %u has the weight %g; expected " LS_ROW_WEIGHT,
                           (unsigned)i, (double)r->weights[i]);
    return LS_OK;
}

static int check_step(const ls_trainer *t, const ls_step_rows *r, ls_error *err)
{
    int status = check_training(t, "ls_trainer_step", err);
    if (status)
        return status;
    if (!ls_engine_feed(t->engine))
        return ls_fail(
            err, LS_EINVAL,
            "ls_trainer_step: the training data is resident; rows of the caller's need a "
            "data source with `streamed` set");
    if (!rows_are_prepared(t, r->n))
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_step: %u rows; expected batch_size (%d) rows, or a number in "
                       "options.step_rows",
                       (unsigned)r->n, t->config.batch_size);
    if (!r->rows || !r->targets)
        return ls_fail(
            err, LS_EINVAL, "ls_trainer_step: ls_step_rows.%s is NULL; expected the %s of %u rows",
            r->rows ? "targets" : "rows", r->rows ? "targets" : "values", (unsigned)r->n);
    status = check_rows(t, r, err);
    if (status == LS_OK)
        status = check_weights(t, r, err);
    if (status)
        return status;
    return ls_stopping(t) ? ls_fail(err, LS_EINTERRUPTED, "interrupted") : LS_OK;
}

static int train_one(ls_coordination *c, ls_error *err)
{
    const ls_position *at = &c->t->position;
    int status = ls_train_steps(c, at->step + 1, err);
    if (status == LS_OK && at->step < c->limit)
        status = ls_fail(err, LS_EINTERRUPTED, "interrupted; the rows were not trained on");
    if (status == LS_OK && at->step == c->steps)
        status = ls_end_epoch(c, false, err);
    return status;
}

/* Trains a step with the caller's rows, after the scales have been learnt from these. */
static int learn_from(ls_coordination *c, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const uint64_t before = t->position.steps;
    const bool moved = ls_own_rows_observe(t->data[LS_TRAIN], c->images, c->labels, c->given);
    t->card_is_old |= moved;
    int status = train_one(c, err);
    if (moved && t->position.steps == before)
        ls_own_rows_undo(t->data[LS_TRAIN]);
    return status;
}

static int describe_step(ls_step_result *out, const ls_trainer *t, const ls_report *r,
                         ls_error *err)
{
    const ls_step_result step = {
        .number = r->number,
        .loss = ls_loss_of_run(t, ls_loss_mean((double)r->loss, (double)r->weight)),
        .accuracy = ls_loss_accuracy(t->config.loss, (double)r->correct, (double)r->rows),
        .lr = ls_rate(t, r->number - 1),
        .skipped = r->skipped};
    return ls_sized_give(out, &step, sizeof step, "ls_step_result", err);
}

int ls_trainer_step(ls_trainer *t, const ls_step_rows *rows, ls_step_result *out, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_step", err);
    ls_error why = {0};
    /* checks `size` before anything is trained */
    const ls_step_result none = {0};
    ls_step_rows given;
    int status = out ? ls_sized_give(out, &none, sizeof none, "ls_step_result", err) : LS_OK;
    if (status == LS_OK)
        status = ls_sized_take(&given, sizeof given, rows, "ls_step_rows", err);
    if (status == LS_OK)
        status = check_step(t, &given, err);
    if (status)
        return status;
    ls_coordination *c = t->coordination;
    t->driven = true;
    c->images = given.rows;
    c->labels = given.targets;
    c->weights = given.weights;
    c->given = given.n;
    ls_forget_hash(t);
    status = ls_begin(t, &why);
    if (status == LS_OK)
        status = learn_from(c, &why);
    c->images = c->labels = NULL;
    c->weights = NULL;
    if (status == LS_OK && out)
        status = describe_step(out, t, &c->last, err);
    return remember_error(t, status, &why, err);
}

int ls_trainer_set_lr(ls_trainer *t, double lr, ls_error *err)
{
    LS_TRAINER_CALL(t, "ls_trainer_set_lr", err);
    if (!((float)lr > 0 && lr <= 1e6))
        return ls_fail(
            err, LS_EINVAL,
            "ls_trainer_set_lr: expected a learning rate above 0 and up to 1e6, found %g%s", lr,
            lr > 0 && lr < 1 ? ", which is 0 as a float" : "");
    if (t->ran)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_set_lr: the run has ended; open another trainer");
    t->position.lr = lr;
    return LS_OK;
}

/* ---- evaluation ----------------------------------------------------------------------------- */

static int describe_evaluation(ls_evaluation *out, const ls_trainer *t, ls_error *err)
{
    const ls_result *r = &t->reported.result;
    ls_evaluation found = {.rows = ls_dataset_rows(t->data[LS_TEST]),
                           .loss = r->test_loss,
                           .metric = r->metric,
                           .metric_value = r->metric_value};
    ls_measured_tell(&found, t->config.metrics, &t->reported.measured);
    return out ? ls_sized_give(out, &found, sizeof found, "ls_evaluation", err) : LS_OK;
}

int ls_trainer_evaluate(ls_trainer *t, ls_evaluation *out, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_evaluate", err);
    ls_error why = {0};
    bool evaluated = false;
    /* checks `size` before anything is computed */
    const ls_evaluation none = {0};
    int status = out ? ls_sized_give(out, &none, sizeof none, "ls_evaluation", err) : LS_OK;
    if (status == LS_OK)
        status = check_usable(t, "ls_trainer_evaluate", err);
    if (status)
        return status;
    if (ls_dataset_rows(t->data[LS_TEST]) == 0)
        return ls_fail(err, LS_EINVAL, "ls_trainer_evaluate: the data has no test rows");
    if (t->life == LS_OPENED)
        status = ls_begin(t, &why);
    if (status == LS_OK)
        status = ls_evaluate(t, &evaluated, &why);
    if (status == LS_OK && !evaluated)
        status = ls_fail(&why, LS_EINTERRUPTED, "interrupted");
    if (status == LS_OK)
        status = describe_evaluation(out, t, &why);
    return remember_error(t, status, &why, err);
}

/* ---- models --------------------------------------------------------------------------------- */

int ls_take_weights(ls_trainer *t, const char *function, ls_error *err)
{
    ls_error why = {0};
    int status = ls_engine_live(t->engine) > 0 ? LS_OK : check_usable(t, function, err);
    if (status)
        return status;
    status = ls_read_back(t, true, false, &why);
    return remember_error(t, status, &why, err);
}

static int take_model(ls_trainer *t, ls_model **out, ls_error *err)
{
    int status = ls_take_weights(t, "ls_trainer_model", err);
    return status ? status
                  : ls_model_create(out, t->inference, ls_engine_weights(t->engine)->canonical,
                                    t->position.steps, err);
}

int ls_trainer_model(ls_model **out, ls_trainer *t, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    if (out)
        *out = NULL;
    LS_TRAINER_CALL(t, "ls_trainer_model", err);
    return out ? take_model(t, out, err)
               : ls_fail(err, LS_EINVAL, "ls_trainer_model: nowhere to put the model");
}

/* ---- saving and loading --------------------------------------------------------------------- */

int ls_trainer_save(ls_trainer *t, const char *path, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_save", err);
    if (!path && !t->dir.saver)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_save: the run has no directory (run_dir is null); name a file");
    int status = ls_take_weights(t, "ls_trainer_save", err);
    if (status)
        return status;
    if (path)
        return ls_save_at(t, path, err);
    status = ls_save(t, ls_checkpoint_due(t, &(ls_moment){.occasion = LS_ASKED}), err);
    t->reported.result.saved |= status == LS_OK;
    return status;
}

/* Reads a file of weights into the arrays of ls_engine_weights, and sets the optimizer's states to
 * their initial values. */
static int read_weights(ls_trainer *t, const ls_tensor_file *file, ls_error *err)
{
    ls_engine_state *e = ls_engine_weights(t->engine);
    t->driven = true;
    int status = ls_safetensors_read(e->canonical, file, t->model, "", t->host, err);
    if (status == LS_OK)
        status = ls_adopt_scales(t, file, err);
    for (int i = 0; status == LS_OK && i < LS_STATES; i++)
        if (e->slot[i])
            memset(e->slot[i], 0, t->model->floats * sizeof *e->slot[i]);
    const int average = ls_optimizer_average(&t->config.optimizer);
    if (status == LS_OK && average >= 0)
        memcpy(e->slot[average], e->canonical, t->model->floats * sizeof *e->canonical);
    return status;
}

static int read_checkpoint(ls_trainer *t, const ls_tensor_file *file, ls_error *err)
{
    ls_resumed other;
    int status = ls_resumed_read(&other, ls_tensor_file_path(file), ls_tensor_file_state(file),
                                 t->host, err);
    if (status == LS_OK)
        status = ls_go_on_from(t, &other, file, err);
    if (status == LS_OK)
        ls_resume_compare_libraries(&other, t->reported.summary.isa, t->reported.summary.library,
                                    t->host);
    ls_resumed_fini(&other, t->host);
    return status;
}

/* Reads a checkpoint or a file of weights. A file with a state (how far a run is, and the part of
 * its config on which the weights depend) is a checkpoint. */
static int read_from(ls_trainer *t, const ls_tensor_file *file, ls_error *err)
{
    return ls_tensor_file_state(file) ? read_checkpoint(t, file, err) : read_weights(t, file, err);
}

/* Reads the weights and the optimizer's state of a checkpoint. */
static int take_state(ls_trainer *t, const ls_checkpoint_values *values, const ls_tensor_file *file,
                      ls_error *err)
{
    ls_error why = {0};
    const int status =
        ls_checkpoint_read(values, file, t->model, &t->config.optimizer, t->host, &why);
    return status ? ls_fail(
                        err, status, "%.600s%s", why.text,
                        status == LS_EDATA
                            ? "; LS_STATE_TAKE needs a checkpoint with the same model and optimizer"
                            : "")
                  : LS_OK;
}

/* Reads the weights of a file, with the optimizer's state that `state` says. */
static int read_part(ls_trainer *t, const ls_tensor_file *file, ls_load_state state, ls_error *err)
{
    ls_engine_state *e = ls_engine_weights(t->engine);
    const int average = ls_optimizer_average(&t->config.optimizer);
    t->driven = true;
    if (state == LS_STATE_RESET)
        return read_weights(t, file, err);
    const ls_checkpoint_values values = {.weights = e->canonical, .slot = e->slot};
    int status = LS_OK;
    if (state == LS_STATE_TAKE)
        status = take_state(t, &values, file, err);
    else
        status = ls_take_weights(t, "ls_trainer_load_weights", err);
    if (status == LS_OK && state == LS_STATE_KEEP)
        status = ls_safetensors_read(e->canonical, file, t->model, "", t->host, err);
    if (status == LS_OK)
        status = ls_adopt_scales(t, file, err);
    if (status == LS_OK && state == LS_STATE_KEEP && average >= 0)
        memcpy(e->slot[average], e->canonical, t->model->floats * sizeof *e->canonical);
    return status;
}

/* Loads a file. `state` NULL: the whole checkpoint, or weights. */
static int load(ls_trainer *t, const char *function, const char *path, const ls_load_state *state,
                ls_error *err)
{
    ls_error why = {0};
    ls_coordination *c = t->coordination;
    ls_tensor_file *file = NULL;
    int status =
        path ? check_training(t, function, err) : ls_fail(err, LS_EINVAL, "%s: no path", function);
    /* Waits, because a save in progress reads the arrays of ls_engine_weights. */
    if (status == LS_OK)
        status = ls_saver_settle(t->dir.saver, err);
    if (status == LS_OK)
        status = ls_tensor_file_open(&file, path, t->host, err);
    if (status == LS_OK)
        status = state ? read_part(t, file, *state, err) : read_from(t, file, err);
    ls_tensor_file_close(file);
    if (status)
        return status;
    ls_forget_hash(t);
    ls_saver_forget(t->dir.saver);
    c->due_work_done_at = t->position.steps;
    ls_agreement_begin(t);
    status = ls_engine_load(t->engine, t->position.steps, &why);
    if (status == LS_OK && t->life == LS_BEGUN)
        status = ls_record_start(t, LS_RECORD_RESUME, &why);
    return remember_error(t, status, &why, err);
}

int ls_trainer_load(ls_trainer *t, const char *path, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_load", err);
    return load(t, "ls_trainer_load", path, NULL, err);
}

int ls_trainer_load_weights(ls_trainer *t, const char *path, ls_load_state state, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_load_weights", err);
    if (state != LS_STATE_RESET && state != LS_STATE_KEEP && state != LS_STATE_TAKE)
        return ls_fail(
            err, LS_EINVAL,
            "ls_trainer_load_weights: state %d; expected LS_STATE_RESET, LS_STATE_KEEP or "
            "LS_STATE_TAKE",
            (int)state);
    return load(t, "ls_trainer_load_weights", path, &state, err);
}
