/* SPDX-License-Identifier: MIT */
/* The public functions that open, run and close a trainer. */
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "engine/view.h"
#include "nn/safetensors.h"
#include "train/calls.h"
#include "train/coordinator.h"
#include "train/receipt.h"
#include "train/run_files.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int close_trainer(ls_trainer *t, ls_error *err);

/* Opens a trainer. *again becomes true if another host was lost while this one was being admitted.
 * The caller then calls the function once more. After such a loss this host leaves only when it has
 * voted with the others on the next host group (ls_cluster_regroup), because without it and the
 * lost host the others can be no majority. */
static int open_once(ls_trainer **out, const ls_trainer_options *o, bool *again, ls_error *err)
{
    ls_error why = {0};
    ls_trainer *t = ls_alloc(o->host, sizeof *t);
    *again = false;
    if (!t)
        return ls_fail(err, LS_ENOMEM, "out of memory for a trainer");
    t->options = *o;
    t->host = o->host;
    ls_sinks_init(&t->records.sinks, t->host);
    int status = ls_open_run(t, &why);
    if (status == LS_OK) {
        *out = t;
        return LS_OK;
    }
    if (t->members.arrived && ls_members_lost(t))
        *again = ls_cluster_regroup(t->members.cluster, NULL) == LS_OK;
    if (*again)
        ls_log(t->host, LS_LOG_WARNING, "%.400s; asking to be admitted once more", why.text);
    ls_members_join_to_leave(t);
    if (t->members.cluster)
        ls_cluster_leave(t->members.cluster, why.text);
    if (close_trainer(t, NULL))
        *again = false;
    if (err)
        *err = why;
    return status;
}

int ls_trainer_open(ls_trainer **out, const ls_trainer_options *options, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_trainer_options o;
    if (!out)
        return ls_fail(err, LS_EINVAL, "ls_trainer_open: no room for the trainer");
    *out = NULL;
    int status = ls_sized_take(&o, sizeof o, options, "ls_trainer_options", err);
    if (status == LS_OK)
        status = ls_host_check(o.host, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_OPEN_STACK_BYTES, "ls_trainer_open", err);
    for (bool again = status == LS_OK; again;)
        status = open_once(out, &o, &again, err);
    return status;
}

/* Ends the records. If the caller has trained with ls_trainer_step, the run ends here. The status
 * of the run is then the error that ended the training or, if there is none, the status of the last
 * checkpoint. Sets *unsaved to the error of the last checkpoint. Returns LS_ESTALLED if a save
 * hangs; the records are then not ended. */
static int close_records(ls_trainer *t, ls_error *unsaved)
{
    ls_error err;
    int status = ls_saver_stop(t->dir.saver);
    if (status)
        return status;
    const ls_error *save = ls_saver_unsaved(t->dir.saver);
    const ls_error *end = save && t->broken.status == LS_OK ? save : &t->broken;
    *unsaved = save ? *save : (ls_error){0};
    if (t->life == LS_BEGUN)
        ls_record_run_end(t, end->status, end->text, NULL);
    ls_sinks_close(&t->records.sinks, NULL);
    ls_drain_trace(t);
    if (t->life == LS_BEGUN && ls_trace_finish(t->records.trace, &err))
        ls_log(t->host, LS_LOG_WARNING, "%s", err.text);
    ls_trace_leave_devices(t->records.trace);
    /* destroyed only now, because the last record contains the saver's path */
    ls_saver_destroy(t->dir.saver);
    t->dir.saver = NULL;
    return LS_OK;
}

/* Frees the trainer, and fails with the error of the last checkpoint. If a worker has stalled, or a
 * save hangs, returns LS_ESTALLED and leaves the trainer's memory allocated, because the thread
 * that hangs can still use the memory. */
static int close_trainer(ls_trainer *t, ls_error *err)
{
    const ls_host *host = t->host;
    ls_error unsaved = {0};
    int status = close_records(t, &unsaved);
    /* A group of workers can have pinned (locked in RAM, for a device) memory of the cluster. So
     * the engine is stopped before that memory is freed. */
    if (ls_engine_stop(t->engine))
        status = LS_ESTALLED;
    if (ls_members_close(t, status != LS_OK))
        status = LS_ESTALLED;
    ls_dir_lock_release(&t->dir.lock);
    if (status)
        return ls_fail(err, LS_ESTALLED,
                       "ls_trainer_close: a worker or a save has not returned; its thread is left "
                       "running, with the memory that it uses");
    ls_trace_destroy(t->records.trace);
    ls_free(host, t->coordination);
    ls_engine_destroy(t->engine);
    ls_free(host, t->records.times);
    ls_free(host, t->records.device);
    if (t->dir.resumed)
        ls_resumed_fini(t->dir.resumed, host);
    ls_free(host, t->dir.resumed);
    ls_free(host, t->dir.path);
    ls_inference_release(t->inference);
    ls_network_destroy(t->held, host);
    ls_measured_fini(&t->reported.measured, t->host);
    ls_dataset_close(t->data[LS_TEST]);
    ls_dataset_close(t->data[LS_TRAIN]);
    ls_config_fini(&t->config);
    for (int i = 0; t->source && i < t->options.source_count; i++)
        ls_free(host, (void *)(uintptr_t)t->source[i].name); /* a copy, see take_sources */
    ls_free(t->host, t->source);
    ls_free(t->host, t->sources);
    ls_free(host, t);
    if (unsaved.status == LS_OK)
        return LS_OK;
    ls_fail(err, unsaved.status, "the last checkpoint was not saved: %.400s", unsaved.text);
    return unsaved.status;
}

int ls_trainer_close(ls_trainer *t, ls_error *err)
{
    if (!t)
        return LS_OK;
    const ls_call call = ls_call_begin(t, "ls_trainer_close", err);
    /* The call is never ended, so no other call of this trainer can begin. */
    return call.status ? call.status : close_trainer(t, err);
}

const ls_summary *ls_trainer_summary(const ls_trainer *t)
{
    return t ? &t->reported.summary : NULL;
}

/* Returns whether the weights are valid: all replicas have applied the same steps, and a device is
 * left from which they can be read. */
static bool weights_are_sound(const ls_trainer *t, int status)
{
    return ls_engine_live(t->engine) > 0 && status != LS_EDIVERGED && status != LS_EINTERNAL;
}

/* Computes result.weights_sha256, if it is unknown, of a trainer that has not begun ls_trainer_run.
 * Does nothing in the cases in which every function of a trainer is refused, for example in a
 * callback. */
static int hash_weights(ls_trainer *t)
{
    char *hash = t->reported.result.weights_sha256;
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_result", NULL);
    if (t->ran || hash[0] || !weights_are_sound(t, t->broken.status))
        return LS_OK;
    int status = ls_take_weights(t, "ls_trainer_result", NULL);
    if (status == LS_OK)
        ls_weights_sha256(hash, t->model, ls_engine_weights(t->engine)->canonical);
    return status;
}

const ls_result *ls_trainer_result(ls_trainer *t)
{
    if (!t)
        return NULL;
    (void)hash_weights(t);
    return &t->reported.result;
}

void ls_trainer_interrupt(ls_trainer *t)
{
    if (t)
        atomic_store_explicit(&t->stop, 1, memory_order_relaxed);
}

/* ---- running -------------------------------------------------------------------------------- */

/* Writes the weights that the run had after `steps` steps to weights.safetensors. */
static int write_file(const ls_trainer *t, const float *weights, uint64_t steps, ls_error *err)
{
    char path[LS_PATH_BYTES];
    return ls_safetensors_save(ls_path_join(path, t->dir.path, "weights.safetensors"), t->model,
                               weights, steps, t->host, err);
}

/* Writes the weights of the best evaluation, which are those of the checkpoint `from`. */
static int write_best(ls_trainer *t, const char *from, ls_error *err)
{
    const ls_best *best = &t->position.best;
    float *weights = ls_alloc_array(t->host, t->model->floats, sizeof *weights);
    int status = weights ? ls_safetensors_load(weights, from, t->model, "", t->host, err)
                         : ls_fail(err, LS_ENOMEM, "out of memory for the weights of %.300s", from);
    if (status == LS_OK)
        status = write_file(t, weights, best->steps, err);
    ls_free(t->host, weights);
    if (status)
        return status;
    t->reported.weights_epoch = (int)best->epoch;
    ls_log(t->host, LS_LOG_INFO,
           "weights.safetensors has the weights after epoch %u, the best by %s (checkpoint.final)",
           (unsigned)best->epoch, ls_metric_names[best->metric]);
    return LS_OK;
}

/* Warns that weights.safetensors gets the last weights although the config asks for the best. */
static void warn_of_last(const ls_trainer *t)
{
    const ls_best *best = &t->position.best;
    if (best->epoch == 0)
        ls_log(t->host, LS_LOG_WARNING,
               "checkpoint.final: nothing was evaluated, so weights.safetensors has the last "
               "weights");
    else
        ls_log(t->host, LS_LOG_WARNING,
               "checkpoint.final: the checkpoint of the best evaluation, after epoch %u, is not in "
               "%.300s/checkpoints, so weights.safetensors has the last weights",
               (unsigned)best->epoch, t->dir.path);
}

/* Hashes the last weights, and writes weights.safetensors: the last weights, or, with
 * checkpoint.final "best", those of the best evaluation. */
static int write_weights(ls_trainer *t, ls_error *err)
{
    const float *last = ls_engine_weights(t->engine)->canonical;
    const bool wanted = t->config.checkpoint.final == LS_FINAL_BEST && t->dir.path;
    const char *best = wanted ? ls_best_checkpoint(t) : NULL;
    ls_weights_sha256(t->reported.result.weights_sha256, t->model, last);
    int status = ls_check_finite(t->model, last, err);
    t->reported.weights_epoch = 0;
    if (best)
        return write_best(t, best, err);
    if (status || !t->dir.path)
        return status;
    if (wanted)
        warn_of_last(t);
    return write_file(t, last, t->position.steps, err);
}

/* Returns whether all members end the run after the same step, if it ends with `status`. */
static bool ends_together(int status)
{
    return status == LS_OK || status == LS_EINTERRUPTED || status == LS_ENONFINITE;
}

/* Compares the state that is about to be saved at the end of a run with the other members. If a
 * member is lost meanwhile, the others recover, which compares their states. The weights are then
 * read back again. */
static int compare_before_end(ls_trainer *t, int status, ls_error *err)
{
    int part_status = ends_together(status) ? ls_agreement_compare(t, err) : LS_OK;
    while (part_status && ls_members_lost(t)) {
        part_status = ls_recover(t, "the end of the run", err);
        if (part_status == LS_OK)
            part_status = ls_copy_replicas(t, true, err);
    }
    return part_status;
}

/* Reads the weights back from a worker, saves a checkpoint if one is due, and writes the file of
 * weights. `status`: how the run ended. After the loss of another member, a member without a run
 * directory creates one, but only if the run has done a step: otherwise there is nothing to
 * save. */
static int save_all(ls_trainer *t, int status, ls_error *err)
{
    if (!weights_are_sound(t, status))
        return LS_OK;
    const bool apart = status == LS_ESTALLED && t->position.steps > 0;
    int save_status = apart ? ls_open_apart(t, err) : LS_OK;
    if (save_status == LS_OK && status == LS_ESTALLED) /* the checkpoint's records have the loss */
        save_status = ls_members_end_by_loss(t, err);
    if (save_status == LS_OK)
        save_status = ls_copy_replicas(t, true, err);
    if (save_status == LS_OK)
        save_status = compare_before_end(t, status, err);
    if (save_status)
        return save_status;
    const ls_moment end = {.occasion = LS_RUN_ENDED, .status = status};
    const ls_due due = ls_checkpoint_due(t, &end);
    save_status = ls_save(t, due, err);
    t->reported.result.saved = due != LS_DUE_NOTHING && save_status == LS_OK;
    if (save_status == LS_ESTALLED) /* the disk hangs, and another write could wait forever */
        return save_status;
    int weights_status = write_weights(t, save_status ? NULL : err);
    return save_status ? save_status : weights_status;
}

/* Keeps the first of two errors: if *status is not an error yet, or only an interrupt, copies the
 * later error to *status and *first. Replicas that differ (LS_EDIVERGED) are also the cause of a
 * loss that is not finite. The caller must compute `later_status` in a statement before
 * the call, because that computation writes `later` and reads *status. */
static void keep_first_error(int *status, ls_error *first, int later_status, const ls_error *later)
{
    const bool explains = *status == LS_ENONFINITE && later_status == LS_EDIVERGED;
    if (later_status && (*status == LS_OK || *status == LS_EINTERRUPTED || explains)) {
        *status = later_status;
        *first = *later;
    }
}

int ls_begin(ls_trainer *t, ls_error *err)
{
    if (t->life != LS_OPENED)
        return LS_OK;
    int status = ls_members_begin(t, err);
    if (status == LS_OK && t->dir.resumed && t->records.sinks.lacks_start)
        status = ls_record_start(t, LS_RECORD_RUN_START, err);
    if (status == LS_OK)
        status = ls_record_start(t, t->dir.resumed ? LS_RECORD_RESUME : LS_RECORD_RUN_START, err);
    t->life = LS_BEGUN;
    return status;
}

/* Compares the final weights with the other members. If a member is lost meanwhile, the others
 * recover, save again and compare again. They save again because only the first member saves the
 * run, and after the loss another member can be the first. */
static int compare_ends(ls_trainer *t, int status, ls_error *err)
{
    int part_status = ls_members_end(t, status, err);
    while (part_status && ls_members_lost(t)) {
        part_status = ls_recover(t, "the end of the run", err);
        if (part_status == LS_OK)
            part_status = save_all(t, status, err);
        if (part_status == LS_OK)
            part_status = ls_members_end(t, status, err);
    }
    /* The member with the run directory is lost; this loss is the error of the run. This member
     * tries to save the run on its own disk. If it fails, the error of the run stays the same. */
    if (part_status == LS_ESTALLED && !t->dir.saver)
        save_all(t, part_status, NULL);
    return part_status;
}

/* Warns if steps were skipped (on_nonfinite "skip"). */
static void warn_of_skipped_steps(const ls_trainer *t)
{
    const ls_position *at = &t->position;
    if (at->skipped > 0 && ls_members_first(t))
        ls_log(t->host, LS_LOG_WARNING,
               "%llu of %llu %s skipped, because the loss was not finite; try a smaller "
               "optimizer.lr",
               (unsigned long long)at->skipped, (unsigned long long)at->steps,
               ls_plural(at->steps, "step was", "steps were"));
}

/* Warns of faults that --inject planned and that did not happen. */
static void warn_of_unfired(const ls_trainer *t)
{
    const ls_injections *all = ls_engine_injections(t->engine);
    const int workers = ls_engine_workers(t->engine);
    for (int i = 0; i < all->count; i++) {
        const ls_injection *one = &all->item[i];
        char why[80] = "the worker had no work of that kind in this step";
        if (ls_inject_has_fired(one))
            continue;
        if (one->worker >= workers)
            snprintf(why, sizeof why, "there is no worker after worker %d", workers - 1);
        else if (one->step > t->position.steps)
            snprintf(why, sizeof why, "the run ended after step %llu",
                     (unsigned long long)t->position.steps);
        ls_log(t->host, LS_LOG_WARNING,
               "the fault that --inject planned for worker %d in step %llu did not happen: %s",
               one->worker, (unsigned long long)one->step, why);
    }
}

/* Ends a run, also after an error: saves, compares the weights with the other members, writes the
 * last record, and closes the sinks. */
static void end_run(ls_trainer *t, int *status, ls_error *first)
{
    ls_error later = {0};
    /* The receipt of a run that is resumed after its last evaluation has all metrics as well. */
    int measured = *status == LS_OK && t->config.receipt ? ls_measure_again(t, &later) : LS_OK;
    keep_first_error(status, first, measured, &later);
    /* A run that has not completed may be resumed, perhaps from the checkpoint before the last. */
    int later_status = *status ? ls_saver_settle(t->dir.saver, &later) : LS_OK;
    keep_first_error(status, first, later_status, &later);
    later_status = save_all(t, *status, &later);
    /* Another member was lost, and nobody is left with whom to compare the state: each remaining
     * member saves its own, as after a loss during the run. */
    if (later_status == LS_ESTALLED && *status != LS_ESTALLED && t->members.cluster)
        save_all(t, LS_ESTALLED, NULL);
    keep_first_error(status, first, later_status, &later);
    later = *first;
    later_status = compare_ends(t, *status, &later);
    keep_first_error(status, first, later_status, &later);
    later_status = *status == LS_OK ? ls_write_receipt(t, &later) : LS_OK;
    keep_first_error(status, first, later_status, &later);
    if (*status == LS_EDIVERGED)
        ls_agreement_lost(t, first);
    /* if the end could not be saved, the last checkpoint that was due still can be */
    later_status = ls_saver_settle(t->dir.saver, &later);
    keep_first_error(status, first, later_status, &later);
    ls_report_devices(t);
    warn_of_skipped_steps(t);
    if (*status == LS_OK)
        warn_of_unfired(t);
    later_status = *status == LS_ESTALLED ? ls_members_end_by_loss(t, &later) : LS_OK;
    keep_first_error(status, first, later_status, &later);
    later_status = ls_record_run_end(t, *status, first->text, &later);
    keep_first_error(status, first, later_status, &later);
    t->life = LS_ENDED;
    /* Waits, because a save in progress syncs the metrics file. If the save hangs, timeline and
     * records are not synced, because their syncs could hang as well, without a limit. */
    later_status = ls_saver_wait(t->dir.saver, &later);
    keep_first_error(status, first, later_status, &later);
    if (later_status)
        return;
    later_status = ls_trace_finish(t->records.trace, &later);
    keep_first_error(status, first, later_status, &later);
    later_status = ls_sinks_close(&t->records.sinks, &later);
    keep_first_error(status, first, later_status, &later);
}

static int check_run(const ls_trainer *t, ls_error *err)
{
    if (t->ran)
        return ls_fail(err, LS_EINVAL, "ls_trainer_run: a trainer runs once; open another one");
    if (ls_dataset_rows(t->data[LS_TRAIN]) == 0)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_run: the data has no training rows; drive the trainer with "
                       "ls_trainer_step");
    return LS_OK;
}

int ls_trainer_run(ls_trainer *t, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_run", err);
    ls_error first = t->broken;
    int status = check_run(t, err);
    if (status)
        return status;
    t->ran = true;
    ls_forget_hash(t);
    status = first.status;
    if (status == LS_OK)
        status = ls_begin(t, &first);
    if (status == LS_OK)
        status = ls_coordinate(t, &first);
    end_run(t, &status, &first);
    return status ? ls_fail(err, status, "%s", first.text) : LS_OK;
}

int ls_trainer_weights(ls_trainer *t, float *out, size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    LS_TRAINER_CALL(t, "ls_trainer_weights", err);
    if (!out || capacity < t->model->parameters)
        return ls_fail(err, LS_EINVAL, "ls_trainer_weights: room for %zu floats, %zu are needed",
                       out ? capacity : 0, t->model->parameters);
    int status = ls_take_weights(t, "ls_trainer_weights", err);
    for (int i = 0; status == LS_OK && i < t->model->params; i++) {
        const ls_param *p = t->model->param[i];
        memcpy(out, ls_engine_weights(t->engine)->canonical + p->offset, p->count * sizeof(float));
        out += p->count;
    }
    return status;
}

/* A text that a public function returns. The caller frees it without naming a host, so `host`,
 * which allocated it, is stored before the text. */
typedef struct text_block {
    const ls_host *host;
    char text[];
} text_block;

static int hand_out(char **out, const char *text, const ls_host *host, ls_error *err)
{
    const size_t bytes = strlen(text) + 1;
    text_block *block = ls_alloc(host, sizeof *block + bytes);
    if (!block)
        return ls_fail(err, LS_ENOMEM, "out of memory for a text of %zu bytes", bytes);
    block->host = host;
    memcpy(block->text, text, bytes);
    *out = block->text;
    return LS_OK;
}

LS_AFTER_STACK_CHECK static int resolve(char **out, const ls_trainer_options *o, ls_error *err)
{
    ls_config config;
    char *text;
    int status = ls_config_read(&config, o, err);
    if (status)
        return status;
    status = ls_config_choose_run_dir(&config, o, err);
    if (status == LS_OK)
        status = ls_network_check(ls_config_model_doc(&config), config.model, o->host, err);
    if (status == LS_OK)
        status = ls_config_text(&text, &config, o->host, err);
    ls_config_fini(&config);
    if (status)
        return status;
    status = hand_out(out, text, o->host, err);
    ls_free(o->host, text);
    return status;
}

int ls_config_resolve(char **out, const ls_trainer_options *options, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_trainer_options o;
    if (!out)
        return ls_fail(err, LS_EINVAL, "ls_config_resolve: nowhere to put the text");
    *out = NULL;
    int status = ls_sized_take(&o, sizeof o, options, "ls_trainer_options", err);
    if (status == LS_OK)
        status = ls_host_check(o.host, err);
    if (status == LS_OK)
        status = ls_config_check_options(&o, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_OPEN_STACK_BYTES, "ls_config_resolve", err);
    return status ? status : resolve(out, &o, err);
}

void ls_text_free(char *text)
{
    if (text) {
        text_block *block = (text_block *)(void *)(text - offsetof(text_block, text));
        ls_free(block->host, block);
    }
}
