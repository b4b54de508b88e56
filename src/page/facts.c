/* SPDX-License-Identifier: MIT */
/* Finds the facts of a run that a table of runs shows. They are in the run's records, the JSON
 * lines of metrics.jsonl, and in its file of weights (facts.h). */
#include "page/facts.h"

#include "base/error.h"
#include "base/host.h"
#include "base/utf8.h"
#include "config/card.h"
#include "data/dataset.h"
#include "nn/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

const char *const ls_run_states[] = {"running", "finished", "interrupted", "failed", "killed"};

const char *ls_metric_title(ls_metric metric)
{
    switch (metric) {
    case LS_METRIC_ACCURACY: return "accuracy";
    case LS_METRIC_TOP5: return "top 5";
    case LS_METRIC_R2: return "R²";
    case LS_METRIC_AUC: return "AUC";
    case LS_METRIC_MAE: return "mean abs. error";
    case LS_METRIC_HUBER: return "Huber loss";
    case LS_METRIC_PINBALL: return "pinball loss";
    case LS_METRIC_COVERAGE: return "coverage";
    case LS_METRIC_DEVIANCE: return "deviance";
    case LS_METRIC_AVERAGE_PRECISION: return "average precision";
    case LS_METRIC_F1: return "F1";
    case LS_METRIC_R2_MEAN: return "mean R²";
    default: return "";
    }
}

const char *ls_metric_key(char out[LS_METRIC_KEY], ls_metric metric)
{
    out[0] = '\0';
    if (metric != LS_METRICS)
        snprintf(out, LS_METRIC_KEY, "test_%s", ls_metric_names[metric]);
    return out;
}

void ls_metric_put(char out[LS_METRIC_TEXT], double value, double scale)
{
    out[0] = '\0';
    if (!isnan(value))
        snprintf(out, LS_METRIC_TEXT, scale != 0 && fabs(scale) < 1e-3 ? "%.3g" : "%.4f", value);
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

ls_metric ls_run_metric(const cJSON *start)
{
    const cJSON *name = member(member(start, "config"), "loss"),
                *targets = member(member(start, "data"), "targets");
    if (!cJSON_IsNumber(targets) || !(targets->valuedouble > 0))
        return LS_METRIC_ACCURACY;
    const ls_loss *loss = ls_loss_find(cJSON_IsString(name) ? name->valuestring : NULL, true);
    return loss ? ls_metric_to_report(loss, ~0u, NULL) : LS_METRIC_R2;
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *node = member(object, key);
    return cJSON_IsNumber(node) ? node->valuedouble : NAN;
}

ls_metric ls_run_metric_of(ls_metric metric, const cJSON *eval)
{
    const ls_metric candidates[] = {LS_METRIC_ACCURACY, metric, LS_METRIC_R2, LS_METRIC_AUC};
    char key[LS_METRIC_KEY];
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (!isnan(number(eval, ls_metric_key(key, candidates[i]))))
            return candidates[i];
    return metric;
}

#define COPY(out, object, key) ls_json_copy_text(out, sizeof(out), object, key)

/* Returns whether a process holds the lock of the directory. The function tries to take a shared
 * lock, and releases it, because the system offers no other test. */
static bool is_held(const char *run_dir)
{
    char path[LS_PATH_BYTES];
    const int fd =
        open(ls_path_join(path, run_dir, "lock"), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return false;
    const bool held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

/* ---- one record ----------------------------------------------------------------------------- */

static void take_devices(ls_run_facts *f, const cJSON *devices)
{
    size_t used = 0;
    f->devices[0] = '\0';
    for (const cJSON *d = devices ? devices->child : NULL; d && used < sizeof f->devices;
         d = d->next)
        used += (size_t)snprintf(f->devices + used, sizeof f->devices - used, "%s%s",
                                 used ? ", " : "", cJSON_IsString(d) ? d->valuestring : "");
    ls_utf8_tidy(f->devices);
}

const char *ls_run_judged(const cJSON *config)
{
    return number(member(config, "data"), "validation") > 0 ? "validation" : "test";
}

/* Adds a device or host that was lost or admitted. A run that repeats a step keeps all devices. */
static void take_change(ls_run_facts *f, const cJSON *r, bool lost)
{
    char name[100] = "", action[16] = "";
    const size_t used = strlen(f->changes);
    const double step = number(r, "step");
    COPY(name, r, lost ? "device" : "host");
    COPY(action, r, "action");
    if (strcmp(action, "repeat") == 0 || isnan(step))
        return;
    snprintf(f->changes + used, sizeof f->changes - used, "%s%s %s step %.0f", used ? ", " : "",
             name, lost ? "lost at" : "admitted after", step);
    ls_utf8_tidy(f->changes);
}

/* Finds the name of the user's own file or folder in the config. */
static void take_own_data(ls_run_facts *f, const cJSON *given)
{
    char path[LS_PATH_BYTES] = "";
    const ls_dataset_form form = ls_dataset_form_of(f->data);
    if (form == LS_DATA_OF_CALLER || form == LS_DATA_PUBLIC || form == LS_DATA_GENERATED)
        return;
    COPY(path, given, "path");
    COPY(path, given, "x");
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--)
        path[end - 1] = '\0';
    const char *slash = strrchr(path, '/');
    snprintf(f->own_data, sizeof f->own_data, "%s", slash && slash[1] ? slash + 1 : path);
    ls_utf8_tidy(f->own_data);
}

static void take_start(ls_run_facts *f, const cJSON *r)
{
    const cJSON *config = member(r, "config"), *data = member(r, "data");
    COPY(f->name, config, "name");
    COPY(f->data, data, "name");
    COPY(f->begun, r, "time");
    take_devices(f, member(r, "devices"));
    const double epochs = number(config, "epochs"), parameters = number(r, "parameters");
    f->of_epochs = epochs >= 0 && epochs < 1e9 ? (int)epochs : 0;
    f->parameters = parameters >= 0 && parameters < 1e15 ? (uint64_t)parameters : 0;
    f->synthetic = cJSON_IsTrue(member(data, "synthetic"));
    f->named_synthetic = ls_dataset_form_of(f->data) == LS_DATA_GENERATED;
    take_own_data(f, member(config, "data"));
    snprintf(f->judged, sizeof f->judged, "%s", ls_run_judged(config));
    f->metric = ls_run_metric(r);
}

static void take_resume(ls_run_facts *f, const cJSON *r)
{
    const double epochs = number(r, "epochs"), missing = number(r, "missing_records");
    f->resumed++;
    f->lacks_records |= missing > 0;
    f->state = LS_RUN_KILLED; /* the state unless a record of the run's end follows */
    f->hash[0] = '\0';
    f->weights_epoch = 0;
    if (epochs >= 0 && epochs < 1e9)
        f->of_epochs = (int)epochs;
    take_devices(f, member(r, "devices"));
}

static void take_epoch(ls_run_facts *f, const cJSON *r, double *rows)
{
    const double seconds = number(r, "seconds"), rate = number(r, "images_per_s");
    const double epoch = number(r, "epoch");
    f->train_loss = number(r, "train_loss");
    if (epoch >= 0 && epoch < 1e9)
        f->epochs = (int)epoch;
    if (seconds > 0 && rate > 0) {
        *rows += seconds * rate;
        f->rate += seconds; /* `rate` is the divisor until all records are read */
        f->seconds += seconds;
    }
}

static void take_eval(ls_run_facts *f, const cJSON *r)
{
    const double seconds = number(r, "seconds"), epoch = number(r, "epoch");
    char key[LS_METRIC_KEY];
    f->judged_epoch = epoch >= 0 && epoch < 1e9 ? (int)epoch : 0;
    f->seconds += seconds > 0 ? seconds : 0;
    for (int m = 0; m < LS_METRICS; m++)
        f->measured[m] = number(r, ls_metric_key(key, (ls_metric)m));
    f->metric = ls_run_metric_of(f->metric, r);
    const double value = f->metric == LS_METRICS ? NAN : f->measured[f->metric];
    if (isnan(value))
        return;
    f->value = value;
    f->best = ls_metric_rises(f->metric) ? fmax(f->best, value) : fmin(f->best, value);
}

static void take_end(ls_run_facts *f, const cJSON *r)
{
    char status[24] = "";
    const double epochs = number(r, "epochs"), steps = number(r, "steps"),
                 weights_epoch = number(r, "weights_epoch");
    COPY(status, r, "status");
    for (int s = LS_RUN_FINISHED; s <= LS_RUN_FAILED; s++)
        if (strcmp(status, ls_run_states[s]) == 0)
            f->state = (ls_run_state)s;
    COPY(f->hash, r, "weights_sha256");
    f->weights_epoch = weights_epoch > 0 && weights_epoch < 1e9 ? (int)weights_epoch : 0;
    if (epochs >= 0 && epochs < 1e9)
        f->epochs = (int)epochs;
    if (steps >= 0 && steps < 9e15)
        f->steps = (uint64_t)steps;
}

/* ---- all records ----------------------------------------------------------------------------- */

/* Finds the number of the last step, which is in the newest record of a step. */
static void find_step(ls_run_facts *f, const ls_run_log *log)
{
    ls_json *doc;
    if (log->newest.length == 0 ||
        ls_json_parse(&doc, "", log->newest.text, log->newest.length, log->host, NULL) != LS_OK)
        return;
    const double step = number(ls_json_root(doc), "step");
    if (step > (double)f->steps && step < 9e15)
        f->steps = (uint64_t)step;
    ls_json_destroy(doc);
}

void ls_run_facts_find(ls_run_facts *out, const ls_run_log *log, const char *run_dir)
{
    double rows = 0;
    *out = (ls_run_facts){
        .state = LS_RUN_KILLED, .metric = LS_METRICS, .value = NAN, .best = NAN, .train_loss = NAN};
    for (int m = 0; m < LS_METRICS; m++)
        out->measured[m] = NAN;
    for (size_t i = 0; i < log->others; i++) {
        ls_json *doc;
        char type[24] = "";
        if (ls_json_parse(&doc, "", log->other[i].json, log->other[i].length, log->host, NULL) !=
            LS_OK)
            continue;
        const cJSON *r = ls_json_root(doc);
        COPY(type, r, "type");
        if (strcmp(type, "run_start") == 0)
            take_start(out, r);
        else if (strcmp(type, "resume") == 0)
            take_resume(out, r);
        else if (strcmp(type, "fault") == 0 || strcmp(type, "arrival") == 0)
            take_change(out, r, type[0] == 'f');
        else if (strcmp(type, "epoch") == 0)
            take_epoch(out, r, &rows);
        else if (strcmp(type, "eval") == 0)
            take_eval(out, r);
        else if (strcmp(type, "run_end") == 0)
            take_end(out, r);
        else if (strcmp(type, "verified") == 0 && cJSON_IsFalse(member(r, "holds")))
            COPY(out->refuted, r, "result");
        ls_json_destroy(doc);
    }
    out->rate = rows > 0 ? rows / out->rate : NAN;
    find_step(out, log);
    if (out->state == LS_RUN_KILLED && is_held(run_dir))
        out->state = LS_RUN_RUNNING;
}

/* ---- the file of weights --------------------------------------------------------------------- */

/* Computes the SHA-256 of the weights in a file, as the records have it. Errors: those of
 * ls_card_load. */
static int hash_weights(char out[65], const char *path, const ls_host *host, ls_error *err)
{
    ls_card card = {.classes = 0};
    ls_tensor_file *file;
    ls_network *model = NULL;
    float *weights = NULL;
    int status = ls_tensor_file_open(&file, path, host, err);
    if (status == LS_OK)
        status = ls_card_read(&card, file, host, err);
    if (status == LS_OK)
        status = ls_card_load(&model, &weights, &card, file, err);
    if (status == LS_OK)
        ls_weights_sha256(out, model, weights);
    ls_free(host, weights);
    ls_network_destroy(model, host);
    ls_card_fini(&card);
    ls_tensor_file_close(file);
    return status;
}

int ls_run_weights_read(ls_run_facts *f, const char *run_dir, const ls_host *host, ls_error *err)
{
    char path[LS_PATH_BYTES], recorded[sizeof f->hash];
    ls_error why;
    if (!f->hash[0])
        return LS_OK;
    memcpy(recorded, f->hash, sizeof recorded);
    f->hash[0] = '\0';
    int status =
        hash_weights(f->hash, ls_path_join(path, run_dir, "weights.safetensors"), host, &why);
    if (status == LS_ENOMEM)
        return ls_fail(err, status, "%s", why.text);
    if (status)
        snprintf(f->doubt, sizeof f->doubt, "cannot be read: %s", why.text);
    else if (!f->weights_epoch && strcmp(f->hash, recorded) != 0)
        snprintf(f->doubt, sizeof f->doubt,
                 "has other weights than its records say: their SHA-256 is %.16s…, not %.16s…",
                 f->hash, recorded);
    ls_utf8_tidy(f->doubt);
    return LS_OK;
}
