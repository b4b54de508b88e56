/* SPDX-License-Identifier: MIT */
/* Reads, writes and compares configs, and opens the data that a config names. Each key of a config
 * has a row in the table of config_rows.c. */
#include "config/config.h"

#include "base/error.h"
#include "base/host.h"
#include "base/portable_math.h"
#include "base/sized.h"
#include "onnx/import.h"

#include <lockstep/sys/trainer.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------- */

static bool same_group(const ls_config_key *a, const ls_config_key *b)
{
    return a->key && b->key && strcmp(a->object, b->object) == 0;
}

/* Reads the key of a row. If the text has the key under its former name, the key is read if
 * Lockstep wrote the text, and refused if the user did. If the text has both names, the former one
 * is ignored. */
static void read_row(ls_config *c, ls_fields *f, const ls_config_key *row)
{
    ls_config_key as = *row;
    int line, column;
    const cJSON *former =
        row->former ? cJSON_GetObjectItemCaseSensitive(f->object, row->former) : NULL;
    if (former && c->written && ls_json_where(f->doc, former, false, &line, &column) == LS_OK) {
        ls_field_any(f, row->former);
        if (!cJSON_GetObjectItemCaseSensitive(f->object, row->key))
            as.key = row->former;
    } else if (former) {
        ls_fields_fail_key(f, former, "the key \"%s\" is called \"%s\" now: rename it", row->former,
                           row->key);
    }
    ls_config_read_key(c, f, &as);
}

/* Reads the keys of one object, whose first row is `row`. The object may be absent from the
 * config. Returns the first row of the next object. */
static const ls_config_key *read_object(ls_config *c, ls_fields *top, const ls_config_key *row)
{
    static const cJSON nothing = {.type = cJSON_Object};
    const ls_config_key *const first = row;
    const cJSON *node = ls_field_any(top, first->object);
    ls_fields f;
    ls_fields_begin(&f, top->doc, node ? node : &nothing, first->object, top->err);
    for (; same_group(row, first); row++)
        read_row(c, &f, row);
    if (top->status == LS_OK)
        top->status = ls_fields_end(&f);
    return row;
}

static int read_rows(ls_config *c, const ls_json *doc, const cJSON *root, ls_error *err)
{
    ls_fields top;
    ls_fields_begin(&top, doc, root, "the config", err);
    for (const ls_config_key *row = ls_config_keys; row->key;) {
        if (*row->object)
            row = read_object(c, &top, row);
        else
            read_row(c, &top, row++);
    }
    return ls_fields_end(&top);
}

static int check_required(const ls_config *c, const ls_json *doc, ls_error *err)
{
    if (!c->model)
        return ls_json_fail(err, doc, NULL, LS_ECONFIG,
                            "expected a member \"model\": an object with \"layers\", or the path "
                            "of a file that holds one");
    if (!c->optimizer.type)
        return ls_json_fail(err, doc, NULL, LS_ECONFIG,
                            "expected a member \"optimizer\", such as "
                            "{\"name\": \"sgd\", \"lr\": 0.2}");
    return LS_OK;
}

static int check_array(const void *array, int count, const char *name, ls_error *err)
{
    if (count >= 0 && (count == 0 || array))
        return LS_OK;
    return ls_fail(
        err, LS_EINVAL,
        "options.%s has the count %d and %s; expected a count of 0 or more, and an array", name,
        count, array ? "an array" : "no array (NULL)");
}

static int check_entries(const void *const *entry, int count, const char *name, ls_error *err)
{
    int status = check_array(entry, count, name, err);
    for (int i = 0; status == LS_OK && i < count; i++)
        if (!entry[i])
            status = ls_fail(err, LS_EINVAL, "options.%s[%d] is NULL", name, i);
    return status;
}

int ls_config_check_texts(const char *const *text, int count, const char *name, ls_error *err)
{
    return check_entries((const void *const *)text, count, name, err);
}

int ls_config_check_options(const ls_trainer_options *o, ls_error *err)
{
    int status = ls_config_check_texts(o->set, o->set_count, "set", err);
    if (status == LS_OK)
        status = ls_config_check_texts(o->data_dirs, o->data_dir_count, "data_dirs", err);
    if (status == LS_OK)
        status = check_entries((const void *const *)o->sources, o->source_count, "sources", err);
    return status ? status : check_array(o->step_rows, o->step_row_count, "step_rows", err);
}

/* Writes the path of a model's file, which is relative to the config file, to `path`. */
static int find_model_file(char path[LS_PATH_BYTES], ls_config *c, const char *name,
                           const char *config_path, ls_error *err)
{
    c->model_path = name;
    const char *slash = config_path ? strrchr(config_path, '/') : NULL;
    int directory = slash && name[0] != '/' ? (int)(slash + 1 - config_path) : 0;
    int n =
        snprintf(path, LS_PATH_BYTES, "%.*s%s", directory, config_path ? config_path : "", name);
    if (n < 0 || (size_t)n >= LS_PATH_BYTES)
        return ls_config_fail(err, c, "model", LS_ECONFIG, "the model's path is too long");
    return LS_OK;
}

/* Reads "input": [channels, height, width]. */
static void read_shape(ls_shape *out, ls_fields *f, const cJSON *node)
{
    int *const side[3] = {&out->c, &out->h, &out->w};
    int n = 0;
    if (node && (!cJSON_IsArray(node) || cJSON_GetArraySize(node) != 3))
        ls_fields_fail(f, node, "\"input\" must be [channels, height, width], found %s",
                       ls_json_kind(node));
    for (const cJSON *item = node && f->status == LS_OK ? node->child : NULL;
         item && ls_field_is_int(f, "input", item, 1, 1 << 20); item = item->next)
        *side[n++] = (int)item->valuedouble;
}

void ls_config_read_part(ls_onnx_source *out, ls_fields *f)
{
    static const char *const none = NULL;
    const char *head;
    const cJSON *output = ls_field_any(f, "output");
    if (cJSON_IsNumber(output))
        ls_fields_fail(f, output,
                       "\"output\" must be the name of a tensor in quotes, \"%.15g\" (on the "
                       "command line --set 'model.output=\"%.15g\"'), found a number",
                       output->valuedouble, output->valuedouble);
    else
        ls_field_text(f, "output", &none, &out->output);
    ls_field_text(f, "head", &none, &head);
    out->new_head = head && strcmp(head, "new") == 0;
    if (head && !out->new_head)
        ls_fields_fail(f, ls_field_any(f, "head"), "\"head\" must be \"new\", found \"%.60s\"",
                       head);
    read_shape(&out->input, f, ls_field_any(f, "input"));
}

/* Returns the status with which a config is refused whose file cannot be read. LS_EUNSUPPORTED is
 * left to devices and hosts: something that is not read, such as an operator, makes the file one of
 * another kind, and the user has to change the file. */
static int status_of_file(int status)
{
    return status == LS_EUNSUPPORTED ? LS_EDATA : status;
}

/* Reads the model {"onnx": FILE, "input": …, "output": …, "head": "new"}. The config's model
 * becomes the layers of the file. It has the file's SHA-256, but not its path. */
static int read_onnx(ls_config *c, const char *config_path, ls_error *err)
{
    char path[LS_PATH_BYTES];
    const char *name;
    ls_onnx_source source = {.path = path};
    ls_error cause;
    ls_fields f;
    ls_fields_begin(&f, c->doc, c->model, "model", err);
    ls_field_text(&f, "onnx", NULL, &name);
    ls_config_read_part(&source, &f);
    int status = ls_fields_end(&f);
    if (status == LS_OK)
        status = find_model_file(path, c, name, config_path, err);
    if (status)
        return status;
    status = ls_onnx_import(&c->onnx, &source, c->host, &cause);
    if (status)
        return ls_config_fail(err, c, "model", status_of_file(status), "%s", cause.text);
    status = ls_onnx_net_parse(&c->model_doc, c->onnx, err);
    if (status == LS_OK)
        c->model = ls_json_root(c->model_doc);
    return status;
}

/* Reads the model from the file that the key `model` names. */
static int read_model_file(ls_config *c, const char *config_path, ls_error *err)
{
    char path[LS_PATH_BYTES];
    ls_error cause;
    int found = find_model_file(path, c, c->model->valuestring, config_path, err);
    if (found)
        return found;
    int status = ls_json_read_file(&c->model_doc, path, c->host, &cause);
    if (status == LS_ENOENT)
        return ls_config_fail(err, c, "model", status, "%s", cause.text);
    if (status) {
        if (err)
            *err = cause;
        return status;
    }
    c->model = ls_json_root(c->model_doc);
    return LS_OK;
}

/* Reads the caller's config, without `set`. */
static int open_document(ls_json **doc, const ls_trainer_options *o, ls_error *err)
{
    if (o->config_path)
        return ls_json_read_file(doc, o->config_path, o->host, err);
    if (o->config_text)
        return ls_json_parse(doc, "config", o->config_text, strlen(o->config_text), o->host, err);
    return ls_fail(err, LS_EINVAL, "neither config_path nor config_text is set");
}

bool ls_config_trains_alone(const ls_trainer_options *o)
{
    ls_json *doc = NULL;
    int status = open_document(&doc, o, NULL);
    if (status)
        status = ls_json_parse(&doc, "config", "{}", 2, o->host, NULL);
    if (status)
        return false;
    for (int i = 0; i < o->set_count; i++)
        (void)ls_json_set(doc, o->set[i], NULL);
    const cJSON *cluster = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "cluster");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(cluster, "transport"));
    const bool alone = name && strcmp(name, "none") == 0;
    ls_json_destroy(doc);
    return alone;
}

static int read_document(ls_config *c, const ls_trainer_options *o, ls_error *err)
{
    int status = open_document(&c->doc, o, err);
    for (int i = 0; status == LS_OK && i < o->set_count; i++)
        status = ls_json_set(c->doc, o->set[i], err);
    return status;
}

static int read_whole(ls_config *out, const ls_trainer_options *options, bool written,
                      ls_error *err)
{
    *out = (ls_config){.host = options->host, .written = written};
    int status = read_document(out, options, err);
    if (status == LS_OK)
        status = read_rows(out, out->doc, ls_json_root(out->doc), err);
    if (status == LS_OK)
        status = check_required(out, out->doc, err);
    if (status == LS_OK && cJSON_IsString(out->model))
        status = read_model_file(out, options->config_path, err);
    else if (status == LS_OK && cJSON_GetObjectItemCaseSensitive(out->model, "onnx"))
        status = read_onnx(out, options->config_path, err);
    if (status)
        ls_config_fini(out);
    return status;
}

int ls_config_read(ls_config *out, const ls_trainer_options *options, ls_error *err)
{
    return read_whole(out, options, false, err);
}

int ls_config_choose_run_dir(ls_config *config, const ls_trainer_options *options, ls_error *err)
{
    ls_trainer_sys sys = {.size = sizeof sys};
    int status =
        options->sys ? ls_sized_take(&sys, sizeof sys, options->sys, "ls_trainer_sys", err) : LS_OK;
    if (status == LS_OK && !config->run_dir && !sys.program)
        config->run_dir = "";
    return status;
}

int ls_config_read_of_run(ls_config *out, const char *path, const ls_trainer_options *options,
                          ls_error *err)
{
    ls_trainer_options own = *options;
    own.config_path = path;
    return read_whole(out, &own, true, err);
}

int ls_config_set_rates(ls_network *model, const ls_config *c, bool held, ls_error *err)
{
    if (c->freeze_epochs > 0 && !c->freeze)
        return ls_config_fail(err, c, "freeze_epochs", LS_ECONFIG,
                              "freeze_epochs is the time for which the parameters of \"freeze\" "
                              "are frozen; name them there");
    return ls_network_set_rates(model, c->doc, held || c->freeze_epochs == 0 ? c->freeze : NULL,
                                c->lr_factors, c->host, err);
}

void ls_config_fini(ls_config *config)
{
    ls_onnx_net_destroy(config->onnx);
    ls_json_destroy(config->model_doc);
    ls_json_destroy(config->doc);
    for (int i = 0; i < LS_FOUND_PATHS; i++)
        ls_free(config->host, config->found[i]);
    memset(config, 0, sizeof *config);
}

double ls_config_lr(const ls_config *config)
{
    double lr = config->optimizer.lr;
    return config->linear_scaling ? lr * (double)config->batch_size / 256 : lr;
}

double ls_config_rate(const ls_config *c, double full, uint64_t step, uint32_t steps_per_epoch)
{
    return ls_schedule_rate(&c->schedule, full, step, steps_per_epoch, (uint64_t)c->epochs);
}

const ls_json *ls_config_model_doc(const ls_config *config)
{
    return config->model_doc ? config->model_doc : config->doc;
}

int ls_config_fail(ls_error *err, const ls_config *config, const char *key, int status,
                   const char *format, ...)
{
    const cJSON *node = config->node ? config->node : ls_json_root(config->doc);
    char part[64], text[LS_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    while (node && *key) {
        size_t length = strcspn(key, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, key);
        node = cJSON_GetObjectItemCaseSensitive(node, part);
        key += length;
        if (*key == '.')
            key++;
    }
    return ls_json_fail_value(err, config->doc, node, status, "%s", text);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Returns the parts of a config that belong to the recipe, as a bit mask of 1 << part. */
static unsigned parts_of_recipe(const ls_config *c)
{
    const ls_schedule_rule rule = c->schedule.rule;
    const bool end = rule == LS_SCHEDULE_COSINE || rule == LS_SCHEDULE_ONE_CYCLE;
    return 1u << LS_RECIPE | 1u << LS_RECIPE_OF_MODEL | (unsigned)end << LS_RECIPE_OF_LENGTH;
}

/* The bit of `parts` for the keys that decide about evaluations (ls_config_key.judges). */
#define JUDGES (1u << 30)

static bool is_among(unsigned parts, const ls_config_key *row)
{
    return (parts & 1u << row->part) || (parts & JUDGES && row->judges);
}

/* Writes the keys whose `part` is in the bit mask `parts`. An object is opened when its first
 * key is written, so that objects without such keys do not appear. */
static void write_rows(ls_json_writer *w, const char *key, const ls_config *c, unsigned parts)
{
    const ls_config_key *open = NULL;
    ls_json_open_object(w, key);
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        if (!is_among(parts, row))
            continue;
        if (open && !same_group(open, row)) {
            ls_json_close(w);
            open = NULL;
        }
        if (*row->object && !open) {
            ls_json_open_object(w, row->object);
            open = row;
        }
        ls_config_write_key(w, c, row);
    }
    if (open)
        ls_json_close(w);
    ls_json_close(w);
}

void ls_config_write_recipe(ls_json_writer *w, const char *key, const ls_config *c, int shards)
{
    ls_config resolved = *c;
    resolved.shards = shards;
    write_rows(w, key, &resolved, parts_of_recipe(c));
}

bool ls_config_key_is_of_recipe(const ls_config *c, const ls_config_key *row)
{
    return is_among(parts_of_recipe(c), row);
}

void ls_config_write_of_evaluations(ls_json_writer *w, const char *key, const ls_config *c)
{
    write_rows(w, key, c, JUDGES);
}

void ls_config_write(ls_json_writer *w, const char *key, const ls_config *c)
{
    write_rows(w, key, c, ~0u);
}

int ls_config_text(char **out, const ls_config *config, const ls_host *host, ls_error *err)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 2, host);
    ls_config_write(&w, NULL, config);
    ls_buffer_put(&w.out, "\n");
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    *out = text ? ls_strdup(host, text) : NULL;
    ls_json_writer_fini(&w);
    return *out ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the resolved config");
}

/* ---- comparing ------------------------------------------------------------------------------ */

int ls_config_read_recipe(ls_config *out, const ls_json *doc, const cJSON *node,
                          const ls_host *host, ls_error *err)
{
    int status = ls_config_read_of_model(out, doc, node, host, err);
    return status ? status : check_required(out, doc, err);
}

void ls_config_write_of_model(ls_json_writer *w, const char *key, const ls_config *c)
{
    write_rows(w, key, c, 1u << LS_RECIPE_OF_MODEL);
}

int ls_config_read_of_model(ls_config *out, const ls_json *doc, const cJSON *node,
                            const ls_host *host, ls_error *err)
{
    *out = (ls_config){.host = host, .node = node, .written = true};
    return read_rows(out, doc, node, err);
}

/* Copies VALUE from {"KEY": VALUE}, the result of ls_config_key_text. Truncates it if it is long.
 */
static void shorten(char out[128], const char *text, const ls_config_key *row)
{
    const size_t skip = strlen(row->key) + strlen("{\"\":"), length = strlen(text);
    if (length <= skip)
        snprintf(out, 128, "nothing");
    else
        snprintf(out, 128, "%.*s%s", length - skip > 110 ? 110 : (int)(length - skip - 1),
                 text + skip, length - skip > 110 ? "…" : "");
}

static int fail_other(ls_error *err, const ls_config *c, const ls_config_key *row, const char *mine,
                      const char *theirs)
{
    char key[64], here[128], there[128];
    snprintf(key, sizeof key, "%s%s%s", row->object, *row->object ? "." : "", row->key);
    shorten(here, mine, row);
    shorten(there, theirs, row);
    return ls_config_fail(err, c, key, LS_ECONFIG, "%s: this run was made with %s, not with %s",
                          key, there, here);
}

int ls_config_same_recipe(const ls_config *config, int shards, const ls_config *recipe,
                          ls_error *err)
{
    ls_config mine = *config;
    ls_json_writer a, b;
    int status = LS_OK;
    mine.shards = shards;
    ls_json_writer_init(&a, 0, config->host);
    ls_json_writer_init(&b, 0, config->host);
    for (const ls_config_key *row = ls_config_keys; row->key && status == LS_OK; row++) {
        if (!ls_config_key_is_of_recipe(&mine, row))
            continue;
        const char *here = ls_config_key_text(&a, &mine, row),
                   *there = ls_config_key_text(&b, recipe, row);
        if (!here || !there)
            status = ls_fail(err, LS_ENOMEM, "out of memory for comparing two recipes");
        else if (strcmp(here, there) != 0)
            status = fail_other(err, config, row, here, there);
    }
    ls_json_writer_fini(&a);
    ls_json_writer_fini(&b);
    return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Returns whether the loss allows standardised targets if targets are values. "auto" counts as mse,
 * because that is the loss for such targets; the function is called before the data is known. */
static bool learns_values(const ls_config *c)
{
    const ls_loss *loss = c->loss_name ? ls_loss_find(c->loss_name, true) : NULL;
    return loss && loss->scales;
}

bool ls_config_loss_is_of_vectors(const ls_config *c)
{
    const bool any = !c->loss_name || strcmp(c->loss_name, "auto") == 0;
    return !any && ls_loss_find(c->loss_name, true) && !ls_loss_find(c->loss_name, false);
}

static ls_dataset_spec data_spec(const ls_config *c)
{
    ls_dataset_spec spec = {.name = c->data_name,
                            .path = c->data_path,
                            .limit = (uint32_t)c->data_limit,
                            .seed = c->seed,
                            .keys = c->data_keys};
    ls_data_keys *k = &spec.keys;
    k->standardize = ls_config_standardizes(c, "standardize", k->standardize);
    k->standardize_target =
        learns_values(c) && ls_config_standardizes(c, "standardize_target", k->standardize_target);
    k->vectors = ls_config_loss_is_of_vectors(c);
    if (k->vectors && k->labels == LS_LABELS_AUTO &&
        ls_dataset_form_of(c->data_name) == LS_DATA_TABLE)
        k->labels = LS_LABELS_VALUES;
    return spec;
}

/* Refuses keys below `data` that the dataset data.name does not have. The message begins with line
 * and column of the key. */
static int check_keys(const ls_config *c, const ls_dataset_spec *spec, ls_error *err)
{
    ls_error cause;
    char key[64];
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        if (strcmp(row->object, "data") != 0 || !ls_config_is_set(c, row))
            continue;
        int status = ls_dataset_check_key(spec, row->key, &cause);
        if (status) {
            snprintf(key, sizeof key, "data.%s", row->key);
            return ls_config_fail(err, c, key, status, "%s", cause.text);
        }
    }
    return LS_OK;
}

int ls_config_open_data(ls_dataset **train, ls_dataset **test, const ls_config *c, bool labels_only,
                        const ls_trainer_options *o, ls_error *err)
{
    const char *key = "data";
    ls_error cause;
    ls_dataset_spec spec = data_spec(c);
    spec.search = o->data_dirs;
    spec.search_count = (size_t)o->data_dir_count;
    spec.sources = o->sources;
    spec.source_count = o->source_count;
    spec.wrong = &key;
    spec.labels_only = labels_only;
    int status = check_keys(c, &spec, err);
    if (status)
        return status;
    status = ls_dataset_open(train, test, &spec, o->host, &cause);
    if (status == LS_ECONFIG)
        return ls_config_fail(err, c, key, status, "%s", cause.text);
    if (ls_dataset_form_of(c->data_name) != LS_DATA_OF_CALLER)
        status = status_of_file(status);
    if (status && err) {
        *err = cause;
        err->status = status;
    }
    return status;
}

int ls_config_find_data(const ls_dataset_about **out, const ls_config *c, ls_error *err)
{
    ls_error cause;
    const ls_dataset_spec spec = data_spec(c);
    int status = ls_dataset_find(out, &spec, &cause);
    return status ? ls_config_fail(err, c, "data.name", status, "%s", cause.text) : LS_OK;
}
