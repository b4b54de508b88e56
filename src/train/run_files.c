/* SPDX-License-Identifier: MIT */
/* Opens the run's directory, the sinks (receivers of records) and the saver (writer of
 * checkpoints). *Apart* means on this host's own disk, after other hosts were lost. */
#include "train/run_files.h"

#include "base/error.h"
#include "base/host.h"
#include "checkpoint/saver.h"
#include "engine/view.h"
#include "train/chaining.h"
#include "train/learnt_scales.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <stdio.h>

/* ---- at the start --------------------------------------------------------------------------- */

/* A run that is resumed can have been killed before the names of its files were on the disk, so the
 * directory is synced again. */
int ls_open_run_dir(struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    if (!ls_members_first(t))
        return LS_OK;
    if (t->dir.resumed)
        return ls_sync_path(t->dir.path, err);
    if (c->run_dir && c->run_dir[0] == '\0')
        return LS_OK;
    return ls_run_dir_make(&t->dir, c->run_dir, c, t->host, err);
}

static int open_metrics(struct ls_trainer *t, ls_error *err)
{
    const ls_sink_mark *keep = t->dir.resumed ? &t->dir.resumed->state.metrics : NULL;
    return ls_sinks_open_metrics(&t->records.sinks, t->dir.path, keep, t->host, err);
}

static int open_wanted(struct ls_trainer *t, ls_error *err)
{
    return ls_sinks_open_wanted(&t->records.sinks, t->dir.path, &t->config, t->host, err);
}

/* Opens a sink that calls the caller's callback. */
static int open_callback(struct ls_trainer *t, ls_error *err)
{
    const ls_trainer_callbacks *callbacks = &t->callbacks;
    ls_sink *sink;
    if (!callbacks->record || !ls_members_first(t))
        return LS_OK;
    int status = ls_sink_callback(&sink, callbacks->record, callbacks->user, t->host, err);
    return status ? status : ls_sinks_add(&t->records.sinks, sink, err);
}

int ls_open_sinks(struct ls_trainer *t, ls_error *err)
{
    int status = t->dir.path ? open_metrics(t, err) : LS_OK;
    if (status == LS_OK && t->dir.path)
        status = open_wanted(t, err);
    return status ? status : open_callback(t, err);
}

int ls_open_saver(struct ls_trainer *t, ls_error *err)
{
    if (!t->dir.path)
        return LS_OK;
    const ls_saver_desc run = ls_saved_run(t);
    int status = ls_saver_create(&t->dir.saver, t->dir.path, &run, err);
    if (status == LS_OK)
        t->reported.result.checkpoint = ls_saver_path(t->dir.saver);
    ls_begin_saving(t);
    return status;
}

/* ---- after a loss --------------------------------------------------------------------------- */

static int open_apart(struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    if (t->dir.path || (c->run_dir && !c->run_dir[0]))
        return LS_OK;
    int status = ls_run_dir_make_apart(&t->dir, t->members.origin, c, t->host, err);
    if (status == LS_OK)
        status = ls_open_saver(t, err);
    if (status == LS_OK)
        status = open_metrics(t, err);
    t->reported.summary.run_dir = t->dir.path ? t->dir.path : "";
    return status;
}

int ls_open_apart(struct ls_trainer *t, ls_error *err)
{
    if (t->dir.path)
        return LS_OK;
    int status = open_apart(t, err);
    return status || !t->dir.path ? status : ls_record_start(t, LS_RECORD_RESUME, err);
}

int ls_take_over(struct ls_trainer *t, ls_error *err)
{
    int status = open_apart(t, err);
    if (status == LS_OK && t->dir.path)
        status = open_wanted(t, err);
    if (status == LS_OK)
        status = open_callback(t, err);
    if (status == LS_OK && t->dir.path)
        ls_log(t->host, LS_LOG_WARNING,
               "the first host is lost: records and checkpoints are in %.300s from now on",
               t->dir.path);
    return status ? status : ls_record_start(t, LS_RECORD_RESUME, err);
}

/* ---- from a checkpoint ---------------------------------------------------------------------- */

/* Removes the best evaluation from the position if it was the best by another metric than the one
 * that the config's `monitor` now names. */
static void compare_monitor(struct ls_trainer *t)
{
    const ls_metric before = t->position.best.metric;
    if (t->position.best.epoch == 0 || before == t->config.monitor)
        return;
    t->position.best = (ls_best){0};
    ls_log(t->host, LS_LOG_INFO,
           "monitor: %s, no longer %s: earlier evaluations do not count for the best one",
           ls_metric_names[t->config.monitor], ls_metric_names[before]);
}

/* The records will end at the checkpoint from which the run continues, so a later checkpoint must
 * not be taken for a newer state of the run. */
static int set_later_aside(struct ls_trainer *t, ls_error *err)
{
    char directory[LS_PATH_BYTES];
    int count;
    ls_path_join(directory, t->dir.path, "checkpoints");
    return ls_checkpoints_set_aside(&count, directory, t->position.steps, t->host, err);
}

int ls_go_on_from(struct ls_trainer *t, const ls_resumed *resumed, const ls_tensor_file *file,
                  ls_error *err)
{
    const ls_checkpoint_values values = ls_values(t);
    const ls_successor run = {&t->config, ls_engine_shards(t->engine), t->data, t->model, t->host};
    int status = ls_resume_load(&values, resumed, file, &run, err);
    if (status == LS_OK)
        status = ls_chain_go_on(t, resumed, err);
    if (status)
        return status;
    ls_engine_weights(t->engine)->has_slots = true;
    ls_take_standing(t, &resumed->state.standing);
    status = ls_adopt_scales(t, file, err);
    if (status)
        return status;
    if (resumed == t->dir.resumed && t->options.resume_at > 0)
        status = set_later_aside(t, err);
    if (status)
        return status;
    compare_monitor(t);
    snprintf(t->reported.text.resumed, sizeof t->reported.text.resumed, "%.500s", resumed->path);
    return LS_OK;
}
