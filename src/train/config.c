#include "train/config.h"

#include "base/error.h"
#include "base/host.h"
#include "json/fields.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MOST_ROWS (1L << 20)

/* ---- reading -------------------------------------------------------------------------------- */

/* A number for all channels, or an array of one number per channel (the last one serves the rest). */
static void read_channels(ls_fields *f, const char *key, double min, float out[4])
{
    const cJSON *node = ls_field_any(f, key);
    int count = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : 1;
    if (!node)
        return;
    if (count < 1 || count > 4)
        ls_fields_fail(f, node, "%s: expected 1 to 4 numbers, found %d", key, count);
    for (int i = 0; i < 4 && f->status == LS_OK; i++) {
        const cJSON *value =
            cJSON_IsArray(node) ? cJSON_GetArrayItem(node, i < count ? i : count - 1) : node;
        if (!cJSON_IsNumber(value) || value->valuedouble < min || value->valuedouble > 1e6)
            ls_fields_fail(f, value,
                           "%s: expected numbers from %g to 1e6, in units of the full "
                           "pixel range",
                           key, min);
        else
            out[i] = (float)value->valuedouble;
    }
}

static void read_augment(ls_config *c, ls_fields *top, ls_error *err)
{
    const long none = 0;
    const int no = 0;
    long crop;
    const cJSON *node = ls_field_any(top, "augment");
    if (!node)
        return;
    ls_fields f;
    ls_fields_begin(&f, c->doc, node, "augment", err);
    ls_field_int(&f, "crop", 0, 64, &none, &crop);
    ls_field_bool(&f, "flip", &no, &c->preprocessing.flip);
    c->preprocessing.crop = (int)crop;
    if (top->status == LS_OK)
        top->status = ls_fields_end(&f);
}

static void read_capacity(ls_config *c, ls_fields *f)
{
    const cJSON *node = ls_field_any(f, "capacity"), *item;
    if (!node)
        return;
    if (!cJSON_IsArray(node) || cJSON_GetArraySize(node) > LS_DEVICES_MAX)
        ls_fields_fail(f, node,
                       "capacity: expected an array with one number per device, such as "
                       "[1, 2], found %s",
                       ls_json_kind(node));
    cJSON_ArrayForEach(item, node)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 0) || item->valuedouble > 1e6)
            ls_fields_fail(f, item, "capacity: expected positive numbers, such as [1, 2]");
        if (f->status)
            return;
        c->capacity[c->capacities++] = item->valuedouble;
    }
}

static void read_checkpoint(ls_config *c, ls_fields *top, ls_error *err)
{
    const long never = 0, one = 1, two = 2;
    const int yes = 1;
    c->checkpoint.every_epochs = one;
    c->checkpoint.keep = two;
    c->checkpoint.async = yes;
    const cJSON *node = ls_field_any(top, "checkpoint");
    if (!node)
        return;
    ls_fields f;
    ls_fields_begin(&f, c->doc, node, "checkpoint", err);
    ls_field_int(&f, "every_steps", 0, INT_MAX, &never, &c->checkpoint.every_steps);
    ls_field_int(&f, "every_epochs", 0, 1000000, &one, &c->checkpoint.every_epochs);
    ls_field_int(&f, "keep", 1, 1000000, &two, &c->checkpoint.keep);
    ls_field_bool(&f, "async", &yes, &c->checkpoint.async);
    if (top->status == LS_OK)
        top->status = ls_fields_end(&f);
}

static void read_metrics(ls_config *c, ls_fields *top, ls_error *err)
{
    const int no = 0;
    const cJSON *node = ls_field_any(top, "metrics");
    if (!node)
        return;
    ls_fields f;
    ls_fields_begin(&f, c->doc, node, "metrics", err);
    ls_field_bool(&f, "tensorboard", &no, &c->tensorboard);
    if (top->status == LS_OK)
        top->status = ls_fields_end(&f);
}

/* {"weights": FILE}; a rule that stands beside it, because --set added the file, is not used. */
static int read_init(ls_config *c, const cJSON *node, ls_error *err)
{
    if (!cJSON_IsObject(node) || !cJSON_GetObjectItemCaseSensitive(node, "weights"))
        return ls_init_parse(&c->init, c->doc, node, err);
    ls_fields f;
    ls_fields_begin(&f, c->doc, node, "init", err);
    ls_field_text(&f, "weights", NULL, &c->init_weights);
    ls_field_any(&f, "name");
    ls_field_any(&f, "std");
    return ls_fields_end(&f);
}

static void read_faults(ls_config *c, ls_fields *f)
{
    static const char *const loss[] = {"continue", "stop", NULL};
    static const char *const nonfinite[] = {"stop", "skip", NULL};
    const double automatic = 0;
    const long never = 0;
    const int first = 0;
    ls_field_double(f, "deadline_s", 0, 86400, &automatic, &c->deadline_s);
    ls_field_int(f, "verify_every_steps", 0, INT_MAX, &never, &c->verify_every_steps);
    ls_field_choice(f, "on_device_loss", loss, &first, &c->stop_on_device_loss);
    ls_field_choice(f, "on_nonfinite", nonfinite, &first, &c->skip_nonfinite);
}

static void read_data(ls_config *c, ls_fields *top, ls_error *err)
{
    const char *name = "fashion_mnist", *none = NULL;
    const long all = 0;
    c->data_name = name;
    const cJSON *node = ls_field_any(top, "data");
    if (!node)
        return;
    ls_fields f;
    ls_fields_begin(&f, c->doc, node, "data", err);
    ls_field_text(&f, "name", &name, &c->data_name);
    ls_field_text(&f, "path", &none, &c->data_path);
    ls_field_int(&f, "limit", 0, INT_MAX, &all, &c->data_limit);
    read_channels(&f, "mean", -1e6, c->preprocessing.mean);
    read_channels(&f, "std", 1e-6, c->preprocessing.std);
    if (top->status == LS_OK)
        top->status = ls_fields_end(&f);
}

/* An integer, or "devices" for one shard per device. */
static void read_shards(ls_config *c, ls_fields *f)
{
    const long fallback = 8;
    const cJSON *node = ls_field_any(f, "shards");
    if (cJSON_IsString(node)) {
        if (strcmp(node->valuestring, "devices") != 0)
            ls_fields_fail(f, node, "shards: expected an integer or \"devices\", found \"%s\"",
                           node->valuestring);
        c->shards = 0;
        return;
    }
    ls_field_int(f, "shards", 1, LS_SHARDS_MAX, &fallback, &c->shards);
}

static void read_seed(ls_config *c, ls_fields *f)
{
    const double zero = 0, largest = 9007199254740992.0; /* 2⁵³: what a double counts exactly */
    double seed = 0;
    if (ls_field_double(f, "seed", 0, largest, &zero, &seed) && seed != (double)(uint64_t)seed)
        ls_fields_fail(f, ls_field_any(f, "seed"), "seed: expected an integer, found %g", seed);
    c->seed = (uint64_t)seed;
}

/* Those of all back ends; which of them the devices have is seen when they are open. */
static void read_allreduce(ls_config *c, ls_fields *f)
{
    static const char *const names[] = {"ordered", "naive", "nccl", "local", NULL};
    const int ordered = 0;
    int choice = 0;
    ls_field_choice(f, "allreduce", names, &ordered, &choice);
    c->allreduce = names[choice];
}

/* Absent: a directory of the run's own; null or "": none. */
static void read_run_dir(ls_config *c, ls_fields *f)
{
    const char *none = NULL;
    const cJSON *node = ls_field_any(f, "run_dir");
    if (cJSON_IsNull(node))
        c->run_dir = "";
    else
        ls_field_text(f, "run_dir", &none, &c->run_dir);
}

static void read_scalars(ls_config *c, ls_fields *f)
{
    static const char *const normalize[] = {"batch", "nominal", NULL};
    static const char *const scaling[] = {"none", "linear", NULL};
    static const char *const precisions[] = {"fp32", "tf32", "bf16", NULL};
    const double zero = 0;
    const char *name = "run", *automatic = "auto";
    const long one = 1, ten = 10, batch = 256;
    const int by_batch = 0;
    int precision = 0;
    ls_field_choice(f, "precision", precisions, &by_batch, &precision);
    c->precision = (ls_precision)precision;
    ls_field_text(f, "name", &name, &c->name);
    ls_field_text(f, "devices", &automatic, &c->devices);
    ls_field_int(f, "batch_size", 1, MOST_ROWS, &batch, &c->batch_size);
    ls_field_int(f, "epochs", 1, 1000000, &ten, &c->epochs);
    ls_field_int(f, "eval_every", 0, 1000000, &one, &c->eval_every);
    ls_field_int(f, "threads", 1, 1024, &one, &c->threads);
    ls_field_choice(f, "normalize", normalize, &by_batch, &c->nominal);
    if (f->status == LS_OK && (c->name[0] == '\0' || strchr(c->name, '/')))
        ls_fields_fail(f, ls_field_any(f, "name"),
                       "name: expected a word without '/', which becomes part of a file name");
    ls_field_choice(f, "lr_scaling", scaling, &by_batch, &c->linear_scaling);
    ls_field_double(f, "label_smoothing", 0, 1, &zero, &c->label_smoothing);
    read_capacity(c, f);
    read_shards(c, f);
    read_seed(c, f);
    read_allreduce(c, f);
    read_run_dir(c, f);
}

static int read_top(ls_config *c, ls_error *err)
{
    ls_fields f;
    ls_fields_begin(&f, c->doc, ls_json_root(c->doc), "the config", err);
    read_scalars(c, &f);
    read_data(c, &f, err);
    read_augment(c, &f, err);
    read_checkpoint(c, &f, err);
    read_metrics(c, &f, err);
    read_faults(c, &f);
    c->model = ls_field_any(&f, "model");
    const cJSON *optimizer = ls_field_any(&f, "optimizer");
    const cJSON *init = ls_field_any(&f, "init");
    const cJSON *schedule = ls_field_any(&f, "schedule");
    int status = ls_fields_end(&f);
    if (status)
        return status;
    if (!c->model)
        return ls_json_fail(err, c->doc, NULL, LS_ECONFIG,
                            "expected a member \"model\": an object with \"layers\", or the path "
                            "of a file that holds one");
    if (!optimizer)
        return ls_json_fail(err, c->doc, NULL, LS_ECONFIG,
                            "expected a member \"optimizer\", such as "
                            "{\"name\": \"sgd\", \"lr\": 0.2}");
    status = ls_optimizer_parse(&c->optimizer, c->doc, optimizer, err);
    if (status == LS_OK)
        status = read_init(c, init, err);
    return status ? status : ls_schedule_parse(&c->schedule, c->doc, schedule, err);
}

/* A model given as a path is looked for beside the config file. */
static int read_model_file(ls_config *c, const char *config_path, ls_error *err)
{
    char path[4096];
    c->model_path = c->model->valuestring;
    const char *slash = config_path ? strrchr(config_path, '/') : NULL;
    int directory = slash && c->model_path[0] != '/' ? (int)(slash + 1 - config_path) : 0;
    int n = snprintf(path, sizeof path, "%.*s%s", directory, config_path ? config_path : "",
                     c->model_path);
    if (n < 0 || (size_t)n >= sizeof path)
        return ls_config_fail(err, c, "model", LS_ECONFIG, "the model's path is too long");
    ls_error cause;
    int status = ls_json_read_file(&c->model_doc, path, c->host, &cause);
    if (status == LS_ENOENT)
        return ls_config_fail(err, c, "model", status, cause.text);
    if (status) {
        if (err)
            *err = cause;
        return status;
    }
    c->model = ls_json_root(c->model_doc);
    return LS_OK;
}

static int read_document(ls_config *c, const ls_trainer_options *o, ls_error *err)
{
    int status;
    if (o->config_path)
        status = ls_json_read_file(&c->doc, o->config_path, o->host, err);
    else if (o->config_text)
        status =
            ls_json_parse(&c->doc, "config", o->config_text, strlen(o->config_text), o->host, err);
    else
        status = ls_fail(err, LS_EINVAL, "neither config_path nor config_text is set");
    for (int i = 0; status == LS_OK && i < o->set_count; i++)
        status = ls_json_set(c->doc, o->set[i], err);
    return status;
}

int ls_config_read(ls_config *out, const ls_trainer_options *options, ls_error *err)
{
    memset(out, 0, sizeof *out);
    out->host = options->host;
    out->preprocessing = (ls_gather){.std = {1, 1, 1, 1}};
    int status = read_document(out, options, err);
    if (status == LS_OK)
        status = read_top(out, err);
    if (status == LS_OK && cJSON_IsString(out->model))
        status = read_model_file(out, options->config_path, err);
    if (status)
        ls_config_fini(out);
    return status;
}

void ls_config_fini(ls_config *config)
{
    ls_json_destroy(config->model_doc);
    ls_json_destroy(config->doc);
    memset(config, 0, sizeof *config);
}

double ls_config_lr(const ls_config *config)
{
    double lr = config->optimizer.lr;
    return config->linear_scaling ? lr * (double)config->batch_size / 256 : lr;
}

const ls_json *ls_config_model_doc(const ls_config *config)
{
    return config->model_doc ? config->model_doc : config->doc;
}

int ls_config_fail(ls_error *err, const ls_config *config, const char *key, int status,
                   const char *text)
{
    const cJSON *node = ls_json_root(config->doc);
    char part[64];
    while (node && *key) {
        size_t length = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, key);
        node = cJSON_GetObjectItemCaseSensitive(node, part);
        key += length + (key[length] == '.');
    }
    return ls_json_fail_value(err, config->doc, node, status, "%s", text);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void write_floats(ls_json_writer *w, const char *key, const float values[4])
{
    ls_json_open_array(w, key);
    for (int i = 0; i < 4; i++)
        ls_json_put_float(w, NULL, values[i]);
    ls_json_close(w);
}

/* Where the data lies is no part of the recipe. */
static void write_data(ls_json_writer *w, const ls_config *c, int recipe)
{
    ls_json_open_object(w, "data");
    ls_json_put_string(w, "name", c->data_name);
    if (c->data_path && !recipe)
        ls_json_put_string(w, "path", c->data_path);
    ls_json_put_int(w, "limit", c->data_limit);
    write_floats(w, "mean", c->preprocessing.mean);
    write_floats(w, "std", c->preprocessing.std);
    ls_json_close(w);
}

static void write_augment(ls_json_writer *w, const ls_config *c)
{
    ls_json_open_object(w, "augment");
    ls_json_put_int(w, "crop", c->preprocessing.crop);
    ls_json_put_bool(w, "flip", c->preprocessing.flip);
    ls_json_close(w);
}

static void write_capacity(ls_json_writer *w, const ls_config *c)
{
    if (c->capacities == 0)
        return;
    ls_json_open_array(w, "capacity");
    for (int i = 0; i < c->capacities; i++)
        ls_json_put_double(w, NULL, c->capacity[i]);
    ls_json_close(w);
}

static void write_init(ls_json_writer *w, const ls_config *c)
{
    ls_json_open_object(w, "init");
    if (c->init_weights)
        ls_json_put_string(w, "weights", c->init_weights);
    else
        ls_json_put_string(w, "name", ls_init_name(c->init.rule));
    if (!c->init_weights && c->init.rule == LS_INIT_NORMAL)
        ls_json_put_float(w, "std", c->init.std);
    ls_json_close(w);
}

static void write_checkpoint(ls_json_writer *w, const ls_config *c)
{
    ls_json_open_object(w, "checkpoint");
    ls_json_put_int(w, "every_steps", c->checkpoint.every_steps);
    ls_json_put_int(w, "every_epochs", c->checkpoint.every_epochs);
    ls_json_put_int(w, "keep", c->checkpoint.keep);
    ls_json_put_bool(w, "async", c->checkpoint.async);
    ls_json_close(w);
}

static void write_metrics(ls_json_writer *w, const ls_config *c)
{
    ls_json_open_object(w, "metrics");
    ls_json_put_bool(w, "tensorboard", c->tensorboard);
    ls_json_close(w);
}

static void write_faults(ls_json_writer *w, const ls_config *c)
{
    ls_json_put_double(w, "deadline_s", c->deadline_s);
    ls_json_put_int(w, "verify_every_steps", c->verify_every_steps);
    ls_json_put_string(w, "on_device_loss", c->stop_on_device_loss ? "stop" : "continue");
}

/* What the weights that come out depend on: nothing of where and how it is computed. */
static void write_recipe(ls_json_writer *w, const ls_config *c)
{
    ls_json_put_node(w, "model", c->model);
    ls_json_put_int(w, "batch_size", c->batch_size);
    ls_json_put_uint(w, "seed", c->seed);
    write_init(w, c);
    ls_optimizer_write(w, "optimizer", &c->optimizer);
    ls_schedule_write(w, "schedule", &c->schedule);
    ls_json_put_string(w, "lr_scaling", c->linear_scaling ? "linear" : "none");
    ls_json_put_double(w, "label_smoothing", c->label_smoothing);
    write_augment(w, c);
    ls_json_put_string(w, "normalize", c->nominal ? "nominal" : "batch");
    ls_json_put_string(w, "precision",
                       c->precision == LS_PRECISION_BF16   ? "bf16"
                       : c->precision == LS_PRECISION_TF32 ? "tf32"
                                                           : "fp32");
    ls_json_put_string(w, "allreduce", c->allreduce);
    ls_json_put_string(w, "on_nonfinite", c->skip_nonfinite ? "skip" : "stop");
}

void ls_config_write_recipe(ls_json_writer *w, const char *key, const ls_config *c, int shards)
{
    ls_json_open_object(w, key);
    write_data(w, c, 1);
    write_recipe(w, c);
    ls_json_put_int(w, "shards", shards);
    if (ls_schedule_needs_end(&c->schedule))
        ls_json_put_int(w, "epochs", c->epochs);
    ls_json_close(w);
}

void ls_config_write(ls_json_writer *w, const char *key, const ls_config *c)
{
    ls_json_open_object(w, key);
    ls_json_put_string(w, "name", c->name);
    write_data(w, c, 0);
    write_recipe(w, c);
    ls_json_put_string(w, "devices", c->devices);
    ls_json_put_int(w, "threads", c->threads);
    if (c->shards)
        ls_json_put_int(w, "shards", c->shards);
    else
        ls_json_put_string(w, "shards", "devices");
    ls_json_put_int(w, "epochs", c->epochs);
    ls_json_put_int(w, "eval_every", c->eval_every);
    write_capacity(w, c);
    write_checkpoint(w, c);
    write_metrics(w, c);
    write_faults(w, c);
    if (c->run_dir)
        ls_json_put_string(w, "run_dir", c->run_dir);
    ls_json_close(w);
}

int ls_config_text(char **out, const ls_config *config, const ls_host *host, ls_error *err)
{
    int status = LS_OK;
    size_t length = 0;
    ls_json_writer w;
    ls_json_writer_init(&w, 2, host);
    ls_config_write(&w, NULL, config);
    const char *text = ls_json_writer_text(&w, &length, err);
    *out = text ? ls_alloc(host, length + 2) : NULL;
    if (*out) {
        memcpy(*out, text, length);
        (*out)[length] = '\n';
    } else {
        status = ls_fail(err, LS_ENOMEM, "out of memory for the resolved config");
    }
    ls_json_writer_fini(&w);
    return status;
}
