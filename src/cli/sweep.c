/* SPDX-License-Identifier: MIT */
/* Parses the arguments of --vary, the *axes* of a sweep, and numbers the combinations of their
 * values. A *setting* is one element of an axis: a value for each key of the axis. */
#include "cli/sweep.h"

#include "base/error.h"
#include "base/host.h"
#include "device/registry.h"
#include "json/json.h"

#include <lockstep/version.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHAPE                                                                                      \
    "expected KEY=VALUE,VALUE…, such as --vary lr=0.05,0.1, or KEY,KEY=V:V,V:V… for keys "     \
    "that change together"

/* A value of a key in a setting. */
typedef struct value {
    const char *text; /* the value as the user wrote it */
    char *assignment; /* assignment to a key of the config */
} value;

/* Keys that change together. */
typedef struct sweep_axis {
    char *text; /* copy of the argument, which is cut into keys and values in place */
    int first_key, keys;
    int count;     /* number of settings; a setting is a value for each of its keys */
    value *values; /* [count][keys] */
} sweep_axis;

struct cli_sweep {
    const ls_host *host;
    int keys, axes, count; /* numbers of keys, of axes, and of combinations */
    const char *key[CLI_SWEEP_KEYS];
    sweep_axis axis[CLI_SWEEP_KEYS];
};

/* ---- texts ---------------------------------------------------------------------------------- */

/* Returns the number of bytes before the next `separator` that is outside quotes and brackets, or
 * before the end of the text. */
static size_t part_length(const char *text, char separator)
{
    int depth = 0, quoted = 0;
    size_t i = 0;
    for (; text[i]; i++) {
        char c = text[i];
        if (quoted && c == '\\' && text[i + 1])
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            depth++;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
        else if (!quoted && depth <= 0 && c == separator)
            break;
    }
    return i;
}

static int count_parts(const char *text, char separator)
{
    int count = 1;
    for (text += part_length(text, separator); *text; text += part_length(text, separator)) {
        text++; /* skip the separator */
        count++;
    }
    return count;
}

/* Cuts the first part off *rest and returns it. *rest becomes the text after the part, NULL after
 * the last part. */
static char *take_part(char **rest, char separator)
{
    char *part = *rest, *end = part + part_length(part, separator);
    *rest = *end ? end + 1 : NULL;
    *end = '\0';
    return part;
}

static int no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "out of memory for a sweep");
}

/* ---- keys and values ------------------------------------------------------------------------ */

static const char *full_key(const char *key)
{
    static const char *const longer[][2] = {{"lr", "optimizer.lr"},
                                            {"momentum", "optimizer.momentum"},
                                            {"weight_decay", "optimizer.weight_decay"}};
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        if (strcmp(key, longer[i][0]) == 0)
            return longer[i][1];
    return key;
}

/* Returns the number if the text is a whole number, else −1. */
static int whole_number(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > LS_DEVICES_MAX)
            return -1;
        n = n * 10 + (*text - '0');
    }
    return n;
}

/* Writes an assignment such as devices="cpu:3", or devices="cuda:0,1,2" for a back end whose
 * devices are listed. */
static int name_devices(char **out, int count, const ls_registry *registry, const ls_host *host,
                        ls_error *err)
{
    ls_device_list list;
    if (count < 1 || count > LS_DEVICES_MAX)
        return ls_fail(err, LS_EINVAL, "--vary devices: expected 1 to %d of them, found %d",
                       LS_DEVICES_MAX, count);
    int status = ls_device_list_parse(&list, registry, "auto", 0, err);
    if (status)
        return status;
    char spec[64 + LS_DEVICES_MAX * 5];
    ls_device_list_first(spec, sizeof spec, list.backend, count);
    const size_t size = strlen(spec) + sizeof "devices=\"\"";
    char *text = ls_alloc(host, size);
    if (!text)
        return no_memory(err);
    snprintf(text, size, "devices=\"%s\"", spec);
    *out = text;
    return LS_OK;
}

static int read_value(value *out, const char *key, const char *text, const ls_registry *registry,
                      const ls_host *host, ls_error *err)
{
    int devices = strcmp(key, "devices") == 0 ? whole_number(text) : -1;
    out->text = text;
    if (devices >= 0)
        return name_devices(&out->assignment, devices, registry, host, err);
    const char *name = full_key(key);
    size_t size = strlen(name) + strlen(text) + 2;
    out->assignment = ls_alloc(host, size);
    if (!out->assignment)
        return no_memory(err);
    snprintf(out->assignment, size, "%s=%s", name, text);
    return LS_OK;
}

/* ---- axes ----------------------------------------------------------------------------------- */

static int read_keys(cli_sweep *s, sweep_axis *axis, const char *vary, char *keys, ls_error *err)
{
    axis->first_key = s->keys;
    while (keys) {
        const char *key = take_part(&keys, ',');
        if (!*key)
            return ls_fail(err, LS_EINVAL, "--vary %.200s: an empty key; " SHAPE, vary);
        if (s->keys == CLI_SWEEP_KEYS)
            return ls_fail(err, LS_EINVAL, "--vary %.200s: more than %d keys", vary,
                           CLI_SWEEP_KEYS);
        for (int i = 0; i < s->keys; i++)
            if (strcmp(full_key(s->key[i]), full_key(key)) == 0)
                return ls_fail(err, LS_EINVAL, "--vary %.200s: %.100s is varied twice", vary, key);
        s->key[s->keys++] = key;
        axis->keys++;
    }
    return LS_OK;
}

/* Reads one setting of an axis: a value for each of its keys. */
static int read_setting(cli_sweep *s, sweep_axis *axis, const char *vary, char *setting,
                        const ls_registry *registry, ls_error *err)
{
    /* no text contains a NUL, so a single value is not cut */
    const char separator = axis->keys > 1 ? ':' : '\0';
    const int found = count_parts(setting, separator);
    int status = LS_OK;
    if (found != axis->keys)
        return ls_fail(err, LS_EINVAL,
                       "--vary %.200s: expected %d values with ':' between them, found %d in "
                       "%.100s; a value that holds ':' needs \"quotes\"",
                       vary, axis->keys, found, setting);
    value *values = &axis->values[axis->count * axis->keys];
    /* the setting is counted before its values are read, so that they are freed if reading one
     * fails */
    axis->count++;
    for (int k = 0; status == LS_OK && k < axis->keys; k++) {
        const char *text = take_part(&setting, separator);
        if (!*text)
            return ls_fail(err, LS_EINVAL, "--vary %.200s: an empty value; " SHAPE, vary);
        status = read_value(&values[k], s->key[axis->first_key + k], text, registry, s->host, err);
    }
    return status;
}

static int read_axis(cli_sweep *s, const char *vary, const ls_registry *registry, ls_error *err)
{
    const char *equals = strchr(vary, '=');
    if (!equals)
        return ls_fail(err, LS_EINVAL, "--vary %.200s: no '='; " SHAPE, vary);
    if (s->axes == CLI_SWEEP_KEYS)
        return ls_fail(err, LS_EINVAL, "more than %d --vary", CLI_SWEEP_KEYS);
    sweep_axis *axis = &s->axis[s->axes++];
    axis->text = ls_strdup(s->host, vary);
    if (!axis->text)
        return no_memory(err);
    char *settings = axis->text + (equals - vary);
    *settings++ = '\0';
    int status = read_keys(s, axis, vary, axis->text, err);
    if (status)
        return status;
    const int count = count_parts(settings, ',');
    if (count > CLI_SWEEP_MOST / s->count)
        return ls_fail(err, LS_EINVAL, "--vary %.200s: more than %d combinations", vary,
                       CLI_SWEEP_MOST);
    s->count *= count;
    axis->values = ls_alloc_array(s->host, (size_t)count * (size_t)axis->keys, sizeof(value));
    if (!axis->values)
        return no_memory(err);
    while (status == LS_OK && settings)
        status = read_setting(s, axis, vary, take_part(&settings, ','), registry, err);
    return status;
}

/* ---- entry points ---------------------------------------------------------------------------- */

int cli_sweep_create(cli_sweep **out, const char *const *vary, int vary_count,
                     const ls_registry *registry, const ls_host *host, ls_error *err)
{
    *out = NULL;
    cli_sweep *s = ls_alloc(host, sizeof *s);
    int status = s ? LS_OK : no_memory(err);
    if (status)
        return status;
    s->host = host;
    s->count = 1;
    for (int i = 0; status == LS_OK && i < vary_count; i++)
        status = read_axis(s, vary[i], registry, err);
    if (status == LS_OK)
        *out = s;
    else
        cli_sweep_destroy(s);
    return status;
}

void cli_sweep_destroy(cli_sweep *s)
{
    if (!s)
        return;
    for (int a = 0; a < s->axes; a++) {
        sweep_axis *axis = &s->axis[a];
        for (int i = 0; i < axis->count * axis->keys; i++)
            ls_free(s->host, axis->values[i].assignment);
        ls_free(s->host, axis->values);
        ls_free(s->host, axis->text);
    }
    ls_free(s->host, s);
}

int cli_sweep_count(const cli_sweep *sweep)
{
    return sweep->count;
}

int cli_sweep_keys(const cli_sweep *sweep)
{
    return sweep->keys;
}

const char *cli_sweep_key(const cli_sweep *sweep, int key)
{
    return sweep->key[key];
}

/* Returns the value of a key in a combination. The settings of the axes are the digits of the
 * combination's number; the first axis is the most significant digit. */
static const value *find_value(const cli_sweep *s, int combination, int key)
{
    int a = s->axes - 1;
    while (s->axis[a].first_key > key)
        combination /= s->axis[a--].count;
    const sweep_axis *axis = &s->axis[a];
    return &axis->values[combination % axis->count * axis->keys + key - axis->first_key];
}

const char *cli_sweep_value(const cli_sweep *sweep, int combination, int key)
{
    return find_value(sweep, combination, key)->text;
}

const char *cli_sweep_assignment(const cli_sweep *sweep, int combination, int key)
{
    return find_value(sweep, combination, key)->assignment;
}

/* ---- results --------------------------------------------------------------------------------- */

void cli_sweep_row_init(cli_sweep_row *row)
{
    memset(row, 0, sizeof *row);
    ls_result *r = &row->result;
    r->metric_value = r->test_loss = r->seconds_per_epoch = NAN;
    row->train_loss = row->images_per_s = NAN;
}

void cli_sweep_row_progress(cli_sweep_row *row, const ls_progress *p)
{
    if (!p->epoch_done)
        return;
    row->train_loss = p->loss;
    row->result.epochs++;
    /* Every epoch has the same number of images, so the mean rate of the run is the harmonic mean
     * of the epochs' rates. */
    row->inverse_rates += 1 / p->rows_per_s;
    row->images_per_s = row->result.epochs / row->inverse_rates;
}

void cli_sweep_row_end(cli_sweep_row *row, ls_trainer *trainer, int status, const char *error)
{
    row->ran = true;
    row->status = status;
    if (status)
        snprintf(row->error, sizeof row->error, "%s", error);
    if (!trainer)
        return;
    const ls_summary *s = ls_trainer_summary(trainer);
    snprintf(row->devices, sizeof row->devices, "%s", s->devices);
    snprintf(row->run_dir, sizeof row->run_dir, "%s", s->run_dir);
    row->synthetic = s->synthetic;
    row->rows = s->row_type == LS_ROW_U8 ? "images" : "rows";
    row->judged_by = s->judged_by;
    row->result = *ls_trainer_result(trainer);
    row->result.devices = row->result.checkpoint = NULL; /* they belong to the trainer */
}

double cli_sweep_speedup(const cli_sweep_row *rows, int count, int row)
{
    for (int i = 0; i < count; i++)
        if (isfinite(rows[i].images_per_s))
            return rows[row].images_per_s / rows[i].images_per_s;
    return NAN;
}

/* Writes a value as the config reads it: as JSON if the text is JSON, else as a string. */
static void put_value(ls_json_writer *w, const char *key, const char *text)
{
    ls_json *doc;
    if (ls_json_parse(&doc, "", text, strlen(text), w->out.host, NULL) == LS_OK) {
        ls_json_put_node(w, key, ls_json_root(doc));
        ls_json_destroy(doc);
    } else {
        ls_json_put_string(w, key, text);
    }
}

static void put_row(ls_json_writer *w, const cli_sweep *sweep, const cli_sweep_row *rows, int i)
{
    const cli_sweep_row *r = &rows[i];
    const ls_result *out = &r->result;
    const char *status = "failed";
    if (!r->ran)
        status = "not run";
    else if (r->status == LS_OK)
        status = "finished";
    else if (r->status == LS_EINTERRUPTED)
        status = "interrupted";
    ls_json_open_object(w, NULL);
    ls_json_open_object(w, "set");
    for (int k = 0; k < cli_sweep_keys(sweep); k++)
        put_value(w, full_key(cli_sweep_key(sweep, k)), cli_sweep_value(sweep, i, k));
    ls_json_close(w);
    ls_json_put_string(w, "status", status);
    ls_json_put_string(w, "error", r->status && r->status != LS_EINTERRUPTED ? r->error : NULL);
    ls_json_put_string(w, "devices", r->devices[0] ? r->devices : NULL);
    ls_json_put_bool(w, "synthetic", r->synthetic);
    ls_json_put_int(w, "epochs", out->epochs);
    ls_json_put_double(w, "test_accuracy",
                       out->metric && strcmp(out->metric, "accuracy") == 0 ? out->metric_value
                                                                           : NAN);
    ls_json_put_double(w, "test_loss", out->test_loss);
    ls_json_put_string(w, "metric", out->metric);
    ls_json_put_double(w, "test_metric", out->metric_value);
    ls_json_put_double(w, "train_loss", r->train_loss);
    ls_json_put_double(w, "seconds_per_epoch", out->seconds_per_epoch);
    ls_json_put_double(w, "images_per_s", r->images_per_s);
    ls_json_put_double(w, "speed_up", cli_sweep_speedup(rows, cli_sweep_count(sweep), i));
    ls_json_put_string(w, "weights_sha256", out->weights_sha256[0] ? out->weights_sha256 : NULL);
    ls_json_put_string(w, "run_dir", r->run_dir[0] ? r->run_dir : NULL);
    ls_json_close(w);
}

void cli_sweep_json(ls_json_writer *w, const cli_sweep *sweep, const cli_sweep_row *rows,
                    const char *config)
{
    ls_json_open_object(w, NULL);
    ls_json_put_string(w, "lockstep", LS_VERSION);
    ls_json_put_string(w, "config", config);
    ls_json_open_array(w, "keys");
    for (int k = 0; k < sweep->keys; k++)
        ls_json_put_string(w, NULL, sweep->key[k]);
    ls_json_close(w);
    ls_json_open_array(w, "runs");
    for (int i = 0; i < sweep->count; i++)
        put_row(w, sweep, rows, i);
    ls_json_close(w);
    ls_json_close(w);
}
