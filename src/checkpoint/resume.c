/* Going on where a run was left: after an interrupt, a crash, or a loss of power. */
#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "train/run_dir.h"
#include "train/trainer.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define RUNS "runs"

/* ---- which run ------------------------------------------------------------------------------ */

/* What a run says about itself in its first record. */
typedef struct beginning {
    ls_json *doc;
    const char *time, *name;
} beginning;

/* The first line of the run's metrics.jsonl; the caller frees it. */
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

static int take_beginning(beginning *out, ls_json *doc, ls_error *err)
{
    const cJSON *root = ls_json_root(doc),
                *config = cJSON_GetObjectItemCaseSensitive(root, "config");
    out->doc = doc;
    out->time = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "time"));
    out->name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "name"));
    return out->time && out->name
               ? LS_OK
               : ls_json_fail(err, doc, root, LS_EDATA,
                              "expected the beginning of a run, with \"time\" and \"config\"");
}

static int read_beginning(beginning *out, const char *run, const ls_host *host, ls_error *err)
{
    void *text = NULL;
    size_t length;
    char path[LS_PATH_BYTES];
    *out = (beginning){NULL, NULL, NULL};
    int status =
        read_first_line(&text, &length, ls_path_join(path, run, "metrics.jsonl"), host, err);
    if (status == LS_OK)
        status = ls_json_parse(&out->doc, path, text, length, host, err);
    if (status == LS_OK)
        status = take_beginning(out, out->doc, err);
    ls_free(host, text);
    return status;
}

static bool has_checkpoints(const char *run)
{
    char path[LS_PATH_BYTES];
    return ls_checkpoints_exist(ls_path_join(path, run, "checkpoints"));
}

/* Begun later; of two in the same second the one with the longer name. */
static bool is_later(const beginning *a, const char *a_run, const beginning *b, const char *b_run)
{
    if (!b_run)
        return true;
    const int order = strcmp(a->time, b->time);
    if (order != 0)
        return order > 0;
    const size_t n = strlen(a_run), m = strlen(b_run); /* NAME, NAME-2, … NAME-10 */
    return n != m ? n > m : strcmp(a_run, b_run) > 0;
}

/* Takes the run in the place of the latest one so far if it is later. */
static void consider(char **latest, beginning *begun, const char *run, const char *name,
                     bool resumable, const ls_host *host)
{
    ls_error why;
    beginning b;
    int status = read_beginning(&b, run, host, &why);
    if (status)
        ls_log(host, LS_LOG_WARNING, "%slatest passes over %.200s: %.300s",
               resumable ? "--resume " : "", run, why.text);
    const bool later = status == LS_OK && (!name || strcmp(b.name, name) == 0) &&
                       is_later(&b, run, begun, *latest);
    char *copy = later ? ls_strdup(host, run) : NULL;
    if (!copy) {
        ls_json_destroy(b.doc);
        return;
    }
    ls_json_destroy(begun->doc);
    ls_free(host, *latest);
    *begun = b;
    *latest = copy;
}

static void find_latest(char **out, const char *name, bool resumable, const ls_host *host)
{
    beginning begun = {NULL, NULL, NULL};
    char run[LS_PATH_BYTES];
    DIR *runs = opendir(RUNS);
    *out = NULL;
    for (struct dirent *e; runs && (e = readdir(runs)) != NULL;)
        if (e->d_name[0] != '.' && ls_path_join(run, RUNS, e->d_name) &&
            (!resumable || has_checkpoints(run)))
            consider(out, &begun, run, name, resumable, host);
    if (runs)
        closedir(runs);
    ls_json_destroy(begun.doc);
}

int ls_run_latest(char **out, const ls_host *host, ls_error *err)
{
    find_latest(out, NULL, false, host);
    return *out ? LS_OK
                : ls_fail(err, LS_ENOENT,
                          "latest: there is no run in " RUNS "/; name its directory");
}

int ls_resume_latest(char **out, const char *name, const ls_host *host, ls_error *err)
{
    find_latest(out, name, true, host);
    if (*out)
        return LS_OK;
    return ls_fail(err, LS_ENOENT,
                   "--resume latest: no run%s%.200s in " RUNS "/ has a checkpoint; name its "
                   "directory: --resume DIR",
                   name ? " of " : "", name ? name : "");
}

static int find_directory(char **out, const struct ls_trainer *t, bool has_config, ls_error *err)
{
    const char *wanted = t->options.resume;
    const ls_config *c = &t->config;
    if (strcmp(wanted, "latest") == 0) {
        if (!has_config || !c->run_dir || !c->run_dir[0])
            return ls_resume_latest(out, has_config ? c->name : NULL, t->host, err);
        wanted = c->run_dir;
    }
    return ls_path_copy(out, wanted, t->host, err);
}

/* ---- its newest checkpoint ------------------------------------------------------------------ */

static int read_state(struct ls_resumed *r, const char *text, const ls_host *host, ls_error *err)
{
    int status = ls_json_parse(&r->doc, r->path, text, strlen(text), host, err);
    return status ? status : ls_state_read(&r->state, r->doc, err);
}

static int open_checkpoint(struct ls_trainer *t, ls_error *err)
{
    struct ls_resumed *r = t->dir.resumed;
    char *state, path[LS_PATH_BYTES];
    int status = ls_checkpoints_latest(
        &r->path, &state, ls_path_join(path, t->dir.path, "checkpoints"), true, t->host, err);
    if (status == LS_ENOENT)
        return ls_fail(err, status, "%.300s: has no checkpoint; nothing to resume", t->dir.path);
    if (status == LS_OK)
        status = read_state(r, state, t->host, err);
    ls_free(t->host, state);
    return status;
}

int ls_resume_find(struct ls_trainer *t, char **config_path, ls_error *err)
{
    const bool has_config = t->options.config_path || t->options.config_text;
    char path[LS_PATH_BYTES];
    *config_path = NULL;
    int status = find_directory(&t->dir.path, t, has_config, err);
    if (status)
        return status;
    t->dir.resumed = ls_alloc(t->host, sizeof *t->dir.resumed);
    if (!has_config)
        *config_path = ls_strdup(t->host, ls_path_join(path, t->dir.path, "config.json"));
    if (!t->dir.resumed || (!has_config && !*config_path))
        return ls_fail(err, LS_ENOMEM, "out of memory for a path");
    status = ls_dir_lock_take(&t->dir.lock, t->dir.path, err);
    return status ? status : open_checkpoint(t, err);
}

/* ---- the same recipe, the same data --------------------------------------------------------- */

static int check_recipe(const struct ls_trainer *t, ls_error *err)
{
    ls_config recipe;
    ls_error cause;
    int status = ls_config_read_recipe(&recipe, t->dir.resumed->doc, t->dir.resumed->state.recipe,
                                       t->host, &cause);
    if (status)
        return ls_fail(err, LS_EDATA, "%.400s; use another checkpoint, or this version's",
                       cause.text);
    return ls_config_same_recipe(&t->config, t->shards, &recipe, err);
}

static int check_data(const struct ls_trainer *t, ls_error *err)
{
    const ls_state *s = &t->dir.resumed->state;
    if (s->train_rows == ls_dataset_rows(t->data[LS_TRAIN]) &&
        s->test_rows == ls_dataset_rows(t->data[LS_TEST]) && s->data_crc32 == ls_data_crc32(t))
        return LS_OK;
    return ls_fail(err, LS_EDATA,
                   "%.200s: the data is not what the run was trained on (%llu training and %llu "
                   "test images, checksum %08x); put it back, or begin a new run",
                   ls_dataset_describe(t->data[LS_TRAIN])->source,
                   (unsigned long long)s->train_rows, (unsigned long long)s->test_rows,
                   (unsigned)s->data_crc32);
}

/* ---- loading -------------------------------------------------------------------------------- */

static int load_tensors(struct ls_trainer *t, ls_error *err)
{
    const ls_checkpoint_values values = {t->exchange->canonical, t->exchange->slot};
    return ls_checkpoint_read(&values, t->dir.resumed->path, t->model, &t->config.optimizer,
                              t->host, err);
}

static int take_position(struct ls_trainer *t, ls_error *err)
{
    const ls_state *s = &t->dir.resumed->state;
    const ls_position *at = &s->position;
    const uint64_t steps =
        ls_steps_per_epoch(ls_dataset_rows(t->data[LS_TRAIN]), (uint32_t)t->config.batch_size);
    if (at->step > steps || at->steps != at->epoch * steps + at->step ||
        (at->recorded && at->step != steps))
        return ls_fail(err, LS_EDATA, "%.300s: position %llu of epoch %u does not exist",
                       ls_json_name(t->dir.resumed->doc), (unsigned long long)at->step,
                       (unsigned)at->epoch + 1);
    t->position = *at;
    if (at->best.epoch > 0 && at->best.metric != t->config.monitor) {
        t->position.best = (ls_best){0};
        ls_log(t->host, LS_LOG_INFO,
               "monitor: %s, no longer %s: which evaluation is the best is decided anew",
               ls_metric_names[t->config.monitor], ls_metric_names[at->best.metric]);
    }
    t->result.steps = at->steps;
    t->result.epochs = s->epochs;
    t->result.test_loss = s->test_loss;
    t->result.test_accuracy = s->test_accuracy;
    if (s->told != LS_METRIC_CONFUSION) {
        t->result.metric = ls_metric_names[s->told];
        t->result.test_metric = s->test_metric;
    }
    if (s->epochs > 0)
        t->result.seconds_per_epoch = at->trained_s / s->epochs;
    snprintf(t->text.resumed, sizeof t->text.resumed, "%.500s", t->dir.resumed->path);
    return LS_OK;
}

int ls_resume_load(struct ls_trainer *t, ls_error *err)
{
    int status = check_recipe(t, err);
    if (status == LS_OK)
        status = check_data(t, err);
    if (status == LS_OK)
        status = load_tensors(t, err);
    return status ? status : take_position(t, err);
}

int ls_resume_from(struct ls_trainer *t, const char *path, const char *state, ls_error *err)
{
    struct ls_resumed other = {0}, *own = t->dir.resumed;
    t->dir.resumed = &other;
    int status = ls_path_copy(&other.path, path, t->host, err);
    if (status == LS_OK)
        status = read_state(&other, state, t->host, err);
    if (status == LS_OK)
        status = ls_resume_load(t, err);
    ls_json_destroy(other.doc);
    ls_free(t->host, other.path);
    t->dir.resumed = own;
    return status;
}

/* The devices are open: bits depend on the library, and of some on the instruction set. */
void ls_resume_compare_libraries(const struct ls_trainer *t)
{
    const ls_state *s = &t->dir.resumed->state;
    if (strcmp(s->isa, t->summary.isa) != 0 || strcmp(s->library, t->summary.library) != 0)
        ls_log(t->host, LS_LOG_WARNING,
               "the run was begun with %s%s%s and goes on with %s%s%s: its bits will differ from "
               "those of an undisturbed run",
               s->library, s->isa[0] ? ", " : "", s->isa, t->summary.library,
               t->summary.isa[0] ? ", " : "", t->summary.isa);
}

void ls_resume_destroy(struct ls_trainer *t)
{
    if (t->dir.resumed) {
        ls_json_destroy(t->dir.resumed->doc);
        ls_free(t->host, t->dir.resumed->path);
    }
    ls_free(t->host, t->dir.resumed);
}
