/* SPDX-License-Identifier: MIT */
/* Resuming a run after an interrupt, a crash, or a loss of power. */
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "checkpoint/run_dir.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RUNS "runs"

/* ---- choice of the run ---------------------------------------------------------------------- */

/* Time and name of a run, from its first record, the first line of metrics.jsonl. If another
 * program has moved or cut that file, they come from config.json and the time at which it was
 * written. */
typedef struct beginning {
    ls_json *doc;
    char time[32];
    const char *name;
} beginning;

/* Reads the first line of the run's metrics.jsonl, which the caller frees. */
static int read_first_line(void **text, size_t *length, const char *path, const ls_host *host,
                           ls_error *err)
{
    const char *newline = NULL;
    int status = LS_OK;
    *text = NULL;
    for (size_t most = (size_t)1 << 16; !newline && most <= LS_JSON_BYTES; most <<= 8) {
        ls_free(host, *text);
        status =
            ls_read_file_start(text, length, path, "a metrics file", LS_EDATA, most, host, err);
        if (status)
            return status;
        newline = memchr(*text, '\n', *length);
    }
    *length = newline ? (size_t)(newline - (const char *)*text) : *length;
    return LS_OK;
}

int ls_run_first_record(ls_json **out, const char *run, const ls_host *host, ls_error *err)
{
    void *text = NULL;
    size_t length;
    char path[LS_PATH_BYTES];
    int status =
        read_first_line(&text, &length, ls_path_join(path, run, "metrics.jsonl"), host, err);
    if (status == LS_OK)
        status = ls_json_parse(out, path, text, length, host, err);
    ls_free(host, text);
    return status;
}

static int take_beginning(beginning *out, ls_json *doc, ls_error *err)
{
    const cJSON *root = ls_json_root(doc),
                *config = cJSON_GetObjectItemCaseSensitive(root, "config");
    const char *time = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "time"));
    out->doc = doc;
    out->name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "name"));
    snprintf(out->time, sizeof out->time, "%s", time ? time : "");
    return time && out->name
               ? LS_OK
               : ls_json_fail(err, doc, root, LS_EDATA,
                              "expected the beginning of a run, with \"time\" and \"config\"");
}

/* Returns the time at which the run's config was written, which is the start of the run. Returns
 * zero if the run has no config. */
static struct timespec config_time(const char *run)
{
    char path[LS_PATH_BYTES];
    struct stat s;
    if (stat(ls_path_join(path, run, "config.json"), &s) != 0)
        return (struct timespec){0};
    return s.st_mtim;
}

/* Reads the beginning of a run without its records. Returns whether config.json has a name. */
static bool read_config_name(beginning *out, const char *run, const ls_host *host)
{
    char path[LS_PATH_BYTES];
    struct tm utc;
    const struct timespec written = config_time(run);
    *out = (beginning){0};
    if (ls_json_read_file(&out->doc, ls_path_join(path, run, "config.json"), host, NULL) != LS_OK)
        return false;
    out->name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(ls_json_root(out->doc), "name"));
    gmtime_r(&written.tv_sec, &utc);
    strftime(out->time, sizeof out->time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return out->name;
}

/* Errors: those of the first record, if neither it nor config.json can be read. */
static int read_beginning(beginning *out, const char *run, const ls_host *host, ls_error *err)
{
    *out = (beginning){0};
    int status = ls_run_first_record(&out->doc, run, host, err);
    if (status == LS_OK)
        status = take_beginning(out, out->doc, err);
    if (status == LS_OK)
        return LS_OK;
    ls_json_destroy(out->doc);
    return read_config_name(out, run, host) ? LS_OK : status;
}

/* Returns whether the run in the directory `run` has the files that are needed. */
static bool has_needed(const char *run, ls_run_needs needs)
{
    char path[LS_PATH_BYTES];
    struct stat s;
    if (needs == LS_RUN_RECORDS || ls_checkpoints_exist(ls_path_join(path, run, "checkpoints")))
        return true;
    return needs == LS_RUN_WEIGHTS && stat(ls_path_join(path, run, "weights.safetensors"), &s) == 0;
}

/* Returns whether run a began later than run b; b_run NULL: there is no run b, and the result is
 * true. The times are those of the runs' first records, in seconds. Of equal times the later run is
 * the one whose config was written later, then the one with the longer name (names are NAME, NAME-2
 * … NAME-10). */
static bool is_later(const beginning *a, const char *a_run, const beginning *b, const char *b_run)
{
    if (!b_run)
        return true;
    const int order = strcmp(a->time, b->time);
    if (order != 0)
        return order > 0;
    const struct timespec at = config_time(a_run), bt = config_time(b_run);
    if (at.tv_sec != bt.tv_sec)
        return at.tv_sec > bt.tv_sec;
    if (at.tv_nsec != bt.tv_nsec)
        return at.tv_nsec > bt.tv_nsec;
    const size_t n = strlen(a_run), m = strlen(b_run); /* the names are NAME, NAME-2, … NAME-10 */
    return n != m ? n > m : strcmp(a_run, b_run) > 0;
}

/* A search for the latest run. */
typedef struct search {
    const char *what;   /* the words of the user for messages: "latest" or "--resume latest" */
    const char *name;   /* only runs whose config has this name are considered; NULL: all runs */
    ls_run_needs needs; /* only runs with these files are considered */
    bool quiet;         /* give no warning about a run whose first record cannot be read */
    /* a warning has already been given about runs that have these files; NULL: about none */
    const ls_run_needs *warned;
    const ls_host *host;
} search;

/* Compares the run in the directory `run` with *latest, the latest run found so far. Replaces
 * *latest if `run` began later, and if its config has the name that is searched for. A run whose
 * first record cannot be read is skipped, and a warning says so. */
static void consider(char **latest, beginning *begun, const char *run, const search *s)
{
    ls_error why;
    beginning b;
    int status = read_beginning(&b, run, s->host, &why);
    if (status && !s->quiet && !(s->warned && has_needed(run, *s->warned)))
        ls_log(s->host, LS_LOG_WARNING, "%s passes over %.200s: %.300s", s->what, run, why.text);
    const bool later = status == LS_OK && (!s->name || strcmp(b.name, s->name) == 0) &&
                       is_later(&b, run, begun, *latest);
    char *copy = later ? ls_strdup(s->host, run) : NULL;
    if (!copy) {
        ls_json_destroy(b.doc);
        return;
    }
    ls_json_destroy(begun->doc);
    ls_free(s->host, *latest);
    *begun = b;
    *latest = copy;
}

/* Sets *out to the latest run that the search considers; NULL: there is none. */
static void find_latest(char **out, const search *s)
{
    beginning begun = {0};
    char run[LS_PATH_BYTES];
    DIR *runs = opendir(RUNS);
    *out = NULL;
    for (struct dirent *e; runs && (e = readdir(runs)) != NULL;)
        if (e->d_name[0] != '.' && has_needed(ls_path_join(run, RUNS, e->d_name), s->needs))
            consider(out, &begun, run, s);
    if (runs)
        closedir(runs);
    ls_json_destroy(begun.doc);
}

/* Works like find_latest. Also warns if a later run lacks the files that are needed. */
static void find_needed(char **out, const search *s)
{
    char *any = NULL;
    search all = *s;
    all.needs = LS_RUN_RECORDS;
    all.quiet = true;
    find_latest(out, s);
    if (*out && s->needs != LS_RUN_RECORDS)
        find_latest(&any, &all);
    if (any && strcmp(any, *out) != 0)
        ls_log(s->host, LS_LOG_WARNING, "%s passes over %.200s: it has %s", s->what, any,
               s->needs == LS_RUN_WEIGHTS ? "neither weights nor a checkpoint" : "no checkpoint");
    ls_free(s->host, any);
}

/* The message, like that of ls_resume_latest, asks for the directory of a run because the user's
 * run can be outside runs/. */
int ls_run_latest(char **out, ls_run_needs needs, const ls_host *host, ls_error *err)
{
    search s = {.what = "latest", .needs = needs, .host = host};
    find_needed(out, &s);
    s.needs = LS_RUN_RECORDS;
    s.warned = &needs;
    if (!*out && needs != LS_RUN_RECORDS)
        find_latest(out, &s);
    return *out ? LS_OK
                : ls_fail(err, LS_ENOENT,
                          "latest: there is no run in " RUNS "/; name its directory");
}

int ls_resume_latest(char **out, const char *name, const ls_host *host, ls_error *err)
{
    const search s = {
        .what = "--resume latest", .name = name, .needs = LS_RUN_CHECKPOINT, .host = host};
    find_needed(out, &s);
    if (*out)
        return LS_OK;
    return ls_fail(err, LS_ENOENT,
                   "--resume latest: no run%s%.200s in " RUNS "/ has a checkpoint; name its "
                   "directory: --resume DIR",
                   name ? " of " : "", name ? name : "");
}

static int find_directory(char **out, const char *wanted, const ls_config *config,
                          const ls_host *host, ls_error *err)
{
    if (strcmp(wanted, "latest") == 0) {
        if (!config || !config->run_dir || !config->run_dir[0])
            return ls_resume_latest(out, config ? config->name : NULL, host, err);
        wanted = config->run_dir;
    }
    return ls_path_copy(out, wanted, host, err);
}

/* ---- the run's newest checkpoint ------------------------------------------------------------ */

static int read_state(ls_resumed *r, const char *text, const ls_host *host, ls_error *err)
{
    int status = ls_json_parse(&r->doc, r->path, text, strlen(text), host, err);
    return status ? status : ls_state_read(&r->state, r->doc, err);
}

static int open_checkpoint(ls_run_files *files, uint64_t at, const ls_host *host, ls_error *err)
{
    ls_resumed *r = files->resumed;
    char *state, path[LS_PATH_BYTES];
    ls_path_join(path, files->path, "checkpoints");
    int status = at > 0 ? ls_checkpoint_at(&r->path, &state, &r->doubtful, path, at, host, err)
                        : ls_checkpoints_latest(&r->path, &state, path, true, host, err);
    if (r->doubtful)
        ls_log(host, LS_LOG_WARNING,
               "the checkpoint after step %llu is doubtful: the run's copies of the model were no "
               "longer equal when it was saved, or it is not known that they were",
               (unsigned long long)at);
    if (status == LS_ENOENT && at == 0)
        return ls_fail(err, status, "%.300s: has no checkpoint; nothing to resume", files->path);
    if (status == LS_OK)
        status = read_state(r, state, host, err);
    ls_free(host, state);
    return status;
}

/* Fails if the directory is not a run's directory. Called before anything is written into the
 * directory. */
static int check_is_run(const char *path, ls_error *err)
{
    static const char *const traces[] = {"config.json", "metrics.jsonl", "checkpoints"};
    char file[LS_PATH_BYTES];
    struct stat st;
    if (stat(path, &st) != 0)
        return ls_fail(
            err, LS_ENOENT,
            "--resume %.300s: there is no such directory; expected the directory of a run, "
            "such as runs/NAME, or latest",
            path);
    if (!S_ISDIR(st.st_mode))
        return ls_fail(
            err, LS_ENOENT,
            "--resume %.300s: is a file; expected the directory of a run, the one that has "
            "config.json in it, or latest",
            path);
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++)
        if (stat(ls_path_join(file, path, traces[i]), &st) == 0)
            return LS_OK;
    return ls_fail(
        err, LS_ENOENT,
        "--resume %.300s: is not the directory of a run, in which there would be "
        "config.json, metrics.jsonl and checkpoints; expected one, such as runs/NAME, or "
        "latest",
        path);
}

int ls_resume_find(ls_run_files *files, char **config_path, const char *wanted,
                   const ls_config *config, uint64_t at, const ls_host *host, ls_error *err)
{
    char path[LS_PATH_BYTES];
    *config_path = NULL;
    int status = find_directory(&files->path, wanted, config, host, err);
    if (status)
        return status;
    files->resumed = ls_alloc(host, sizeof *files->resumed);
    if (!config)
        *config_path = ls_strdup(host, ls_path_join(path, files->path, "config.json"));
    if (!files->resumed || (!config && !*config_path))
        return ls_fail(err, LS_ENOMEM, "out of memory for a path");
    status = check_is_run(files->path, err);
    if (status == LS_OK)
        status = ls_dir_lock_take(&files->lock, files->path, host, err);
    return status ? status : open_checkpoint(files, at, host, err);
}

int ls_resume_check_place(const char *run, const ls_config *config,
                          const ls_trainer_options *options, ls_error *err)
{
    struct stat own, set;
    bool given = false;
    for (int i = 0; i < options->set_count; i++)
        given |= strncmp(options->set[i], "run_dir=", strlen("run_dir=")) == 0;
    if (!given || (config->run_dir && stat(config->run_dir, &set) == 0 && stat(run, &own) == 0 &&
                   own.st_dev == set.st_dev && own.st_ino == set.st_ino))
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "--resume %.140s: a run goes on in its own directory, and run_dir is set to "
                   "another one; to go on elsewhere, copy the directory, and resume the copy: cp "
                   "-a %.140s COPY",
                   run, run);
}

int ls_resumed_read(ls_resumed *out, const char *path, const char *state, const ls_host *host,
                    ls_error *err)
{
    *out = (ls_resumed){0};
    int status = ls_path_copy(&out->path, path, host, err);
    return status ? status : read_state(out, state, host, err);
}

void ls_resumed_fini(ls_resumed *r, const ls_host *host)
{
    ls_json_destroy(r->doc);
    ls_free(host, r->path);
}

/* ---- checks of recipe, data and position ---------------------------------------------------- */

/* Checks that the recipe of `run`, which is to continue from the checkpoint, equals the
 * checkpoint's recipe. If the checkpoint's recipe cannot be read, another version of Lockstep has
 * possibly written it, and the message asks for a checkpoint of this version. */
static int check_recipe(const ls_resumed *r, const ls_successor *run, ls_error *err)
{
    ls_config recipe;
    ls_error cause;
    int status = ls_config_read_recipe(&recipe, r->doc, r->state.recipe, run->host, &cause);
    if (status)
        return ls_fail(err, LS_EDATA, "%.400s; use another checkpoint, or this version's",
                       cause.text);
    status = ls_config_same_recipe(run->config, run->shards, &recipe, &cause);
    return status ? ls_fail(err, status, "%.400s; a resumed run keeps its recipe", cause.text)
                  : LS_OK;
}

static int check_data(const ls_state *s, const ls_successor *run, ls_error *err)
{
    if (s->train_rows == ls_dataset_rows(run->data[LS_TRAIN]) &&
        s->test_rows == ls_dataset_rows(run->data[LS_TEST]) &&
        s->data_crc32 == ls_data_crc32(run->data))
        return LS_OK;
    return ls_fail(err, LS_EDATA,
                   "%.200s: the data is not what the run was trained on (%llu training and %llu "
                   "test images, checksum %08x); put it back, or begin a new run",
                   ls_dataset_describe(run->data[LS_TRAIN])->source,
                   (unsigned long long)s->train_rows, (unsigned long long)s->test_rows,
                   (unsigned)s->data_crc32);
}

/* Checks that the checkpoint's position exists in `run`. `epoch` is the index of the current epoch,
 * `step` the number of steps done in it, and `steps` the number of steps done in all epochs. The
 * message calls `step` the position, and counts epochs from 1. */
static int check_position(const ls_resumed *r, const ls_successor *run, ls_error *err)
{
    const ls_position *at = &r->state.standing.position;
    const uint64_t steps =
        ls_steps_per_epoch(ls_dataset_rows(run->data[LS_TRAIN]), (uint32_t)run->config->batch_size);
    if (at->step > steps || at->steps != at->epoch * steps + at->step ||
        (at->recorded && at->step != steps))
        return ls_fail(err, LS_EDATA, "%.300s: position %llu of epoch %u does not exist",
                       ls_json_name(r->doc), (unsigned long long)at->step, (unsigned)at->epoch + 1);
    return LS_OK;
}

int ls_resume_load(const ls_checkpoint_values *values, const ls_resumed *r,
                   const ls_tensor_file *file, const ls_successor *run, ls_error *err)
{
    int status = check_recipe(r, run, err);
    if (status == LS_OK)
        status = check_data(&r->state, run, err);
    if (status == LS_OK)
        status =
            ls_checkpoint_read(values, file, run->model, &run->config->optimizer, run->host, err);
    return status ? status : check_position(r, run, err);
}

/* Which mathematical library and which instruction set the devices use is known only when the
 * devices are open. Therefore ls_resume_load does not make this check. */
void ls_resume_compare_libraries(const ls_resumed *r, const char *isa, const char *library,
                                 const ls_host *host)
{
    const ls_state *s = &r->state;
    if (strcmp(s->isa, isa) != 0 || strcmp(s->library, library) != 0)
        ls_log(host, LS_LOG_WARNING,
               "the run was begun with %s%s%s and goes on with %s%s%s: its weights can differ from "
               "those of an uninterrupted run",
               s->library, s->isa[0] ? ", " : "", s->isa, library, isa[0] ? ", " : "", isa);
}
