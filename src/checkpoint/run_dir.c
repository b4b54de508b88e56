#include "train/run_dir.h"

#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"
#include "train/run_records.h"
#include "train/saver.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define FIX "choose another run_dir, or --set run_dir=null for none"

void ls_run_dir_name(char *path, size_t size, time_t begun, const char *name, int n)
{
    char stamp[32], behind[16] = "";
    struct tm utc;
    gmtime_r(&begun, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
    if (n > 1)
        snprintf(behind, sizeof behind, "-%d", n);
    snprintf(path, size, "runs/%s-%.200s%s", stamp, name, behind);
}

static int make_fresh(char *path, size_t size, const char *name, ls_error *err)
{
    const time_t now = time(NULL);
    int made = 0, status = LS_OK;
    for (int n = 1; n < 1000 && status == LS_OK && !made; n++) {
        ls_run_dir_name(path, size, now, name, n);
        status = ls_make_directory(path, &made, err);
    }
    return made || status
               ? status
               : ls_fail(err, LS_EIO, "%.300s: is taken, and so are all before it", path);
}

/* The file that says that a run was here, or NULL. */
static const char *trace_of_a_run(const char *path)
{
    static const char *const traces[] = {"metrics.jsonl", "weights.safetensors", "config.json"};
    char file[LS_PATH_BYTES];
    struct stat st;
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (stat(ls_path_join(file, path, traces[i]), &st) == 0)
            return traces[i];
    return NULL;
}

static int check_unused(const char *dir, ls_error *err)
{
    const char *trace = trace_of_a_run(dir);
    return trace
               ? ls_fail(err, LS_EIO, "%.300s: already holds a run (%s), which would be lost; " FIX,
                         dir, trace)
               : LS_OK;
}

/* ---- a run's own ---------------------------------------------------------------------------- */

static int write_config(const struct ls_trainer *t, ls_error *err)
{
    char *text, path[LS_PATH_BYTES];
    int status = ls_config_text(&text, &t->config, t->host, err);
    if (status)
        return status;
    status = ls_replace_file(ls_path_join(path, t->dir.path, "config.json"), text, strlen(text),
                             t->host, err);
    ls_free(t->host, text);
    return status;
}

/* The trainer's directory, locked, with its config: `wanted` NULL: a new runs/<UTC time>-<name>; else that very one,
 * which may exist. */
static int make(struct ls_trainer *t, const char *wanted, ls_error *err)
{
    char path[PATH_BYTES];
    ls_error why;
    int made, status;
    if (wanted && strlen(wanted) >= sizeof path)
        return ls_fail(err, LS_EIO, "run_dir: the path is longer than %d bytes", PATH_BYTES - 1);
    if (wanted) {
        snprintf(path, sizeof path, "%s", wanted);
        status = ls_make_directory(path, &made, &why);
    } else {
        status = make_fresh(path, sizeof path, t->config.name, &why);
    }
    if (status)
        return ls_fail(err, status, "%.400s; " FIX, why.text);
    status = ls_path_copy(&t->dir.path, path, t->host, err);
    if (status == LS_OK)
        status = check_unused(path, err);
    if (status == LS_OK)
        status = ls_dir_lock_take(&t->dir.lock, path, err);
    if (status == LS_OK) /* another one may have come and gone meanwhile */
        status = check_unused(path, err);
    return status ? status : write_config(t, err);
}

/* A run that goes on may have been killed before its names were made to last. */
int ls_run_dir_open(struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    if (!ls_members_first(t))
        return LS_OK;
    if (t->dir.resumed)
        return ls_sync_path(t->dir.path, err);
    if (c->run_dir && c->run_dir[0] == '\0')
        return LS_OK;
    return make(t, c->run_dir, err);
}

/* The sinks of sinks.def that the config asks for. */
static int open_by_rows(struct ls_trainer *t, ls_error *err)
{
    const ls_config *config = &t->config;
#define LS_SINK(name, wanted) {ls_sink_##name, wanted},
    const struct {
        ls_sink_opener *open;
        bool wanted;
    } rows[] = {
#include "records/sinks.def"
    };
#undef LS_SINK
    int status = LS_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == LS_OK; i++) {
        ls_sink *sink;
        if (!rows[i].wanted)
            continue;
        status = rows[i].open(&sink, t->dir.path, t->host, err);
        if (status == LS_OK)
            status = ls_sinks_add(&t->records.sinks, sink, err);
    }
    return status;
}

static int open_metrics(struct ls_trainer *t, ls_error *err)
{
    ls_sink *sink;
    char path[LS_PATH_BYTES];
    const ls_sink_mark *keep = t->dir.resumed ? &t->dir.resumed->state.metrics : NULL;
    int status =
        ls_sink_jsonl(&sink, ls_path_join(path, t->dir.path, "metrics.jsonl"), keep, t->host, err);
    if (status == LS_OK)
        status = ls_sinks_add(&t->records.sinks, sink, err);
    if (status == LS_OK)
        t->dir.metrics = sink;
    return status;
}

/* The caller's own. */
static int open_callback(struct ls_trainer *t, ls_error *err)
{
    const ls_trainer_options *o = &t->options;
    ls_sink *sink;
    if (!o->record || !ls_members_first(t))
        return LS_OK;
    int status = ls_sink_callback(&sink, o->record, o->user, t->host, err);
    return status ? status : ls_sinks_add(&t->records.sinks, sink, err);
}

int ls_run_dir_open_sinks(struct ls_trainer *t, ls_error *err)
{
    int status = t->dir.path ? open_metrics(t, err) : LS_OK;
    if (status == LS_OK && t->dir.path)
        status = open_by_rows(t, err);
    return status ? status : open_callback(t, err);
}

enum { MOST_APART = 1000 };

static int open_apart(struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    char wanted[PATH_BYTES];
    if (t->dir.path || (c->run_dir && !c->run_dir[0]))
        return LS_OK;
    int n =
        snprintf(wanted, sizeof wanted, "%.2000s%s%.200s.member-%d", c->run_dir ? c->run_dir : "",
                 c->run_dir ? "" : "runs/", c->run_dir ? "" : c->name, t->members.origin);
    /* What an earlier loss has left there stays. */
    for (int i = 2; trace_of_a_run(wanted) && i < MOST_APART; i++)
        snprintf(wanted + n, sizeof wanted - (size_t)n, "-%d", i);
    int status = make(t, wanted, err);
    if (status == LS_OK)
        status = ls_saver_create(t, err);
    if (status == LS_OK)
        status = open_metrics(t, err);
    t->summary.run_dir = t->dir.path ? t->dir.path : "";
    return status;
}

int ls_run_dir_open_apart(struct ls_trainer *t, ls_error *err)
{
    if (t->dir.path)
        return LS_OK;
    int status = open_apart(t, err);
    return status || !t->dir.path ? status : ls_record_start(t, LS_RECORD_RESUME, err);
}

int ls_run_dir_take_over(struct ls_trainer *t, ls_error *err)
{
    int status = open_apart(t, err);
    if (status == LS_OK && t->dir.path)
        status = open_by_rows(t, err);
    if (status == LS_OK)
        status = open_callback(t, err);
    if (status == LS_OK && t->dir.path)
        ls_log(t->host, LS_LOG_WARNING,
               "the first host is lost: records and checkpoints are in %.300s from now on",
               t->dir.path);
    return status ? status : ls_record_start(t, LS_RECORD_RESUME, err);
}
