/* SPDX-License-Identifier: MIT */
/* Writes and reads the card of a model (card.h). */
#include "config/card.h"

#include "base/error.h"
#include "base/host.h"
#include "nn/safetensors.h"
#include "json/fields.h"

#include <stdio.h>
#include <string.h>

enum {
    SCHEMA = 1,
    /* Limits of the card. They are below the limits of a file's header
     * (formats/safetensors_format.h, json/json.h), because the header also contains the list of
     * tensors and a checkpoint's state. */
    MOST_VALUES = 900000,
    MOST_BYTES = 12 << 20
};

/* ---- writing -------------------------------------------------------------------------------- */

static void write_text(ls_json_writer *w, const ls_network *model, const ls_config *config,
                       const char *const *class_name, const cJSON *features, const ls_prep *prep)
{
    const int sides[] = {model->input.c, model->input.h, model->input.w};
    ls_json_open_object(w, NULL);
    ls_json_put_int(w, "schema", SCHEMA);
    ls_json_open_array(w, "input");
    for (int i = 0; i < 3; i++)
        ls_json_put_int(w, NULL, sides[i]);
    ls_json_close(w);
    ls_json_put_bool(w, "floats", config->preprocessing.floats);
    ls_json_put_int(w, "classes", model->classes);
    ls_json_put_bool(w, "targets", config->preprocessing.targets > 0);
    if (class_name) {
        ls_json_open_array(w, "class_names");
        for (int i = 0; i < model->classes; i++)
            ls_json_put_string(w, NULL, class_name[i]);
        ls_json_close(w);
    }
    if (features)
        ls_json_put_node(w, "features", features);
    if (prep)
        ls_prep_write(w, "preparation", prep);
    ls_config_write_of_model(w, "recipe", config);
    ls_json_close(w);
}

/* Returns the size of a text after it is escaped as a JSON string, as it is in a file's header. */
static size_t escaped_bytes(const char *text, size_t length)
{
    size_t n = length;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '"' || text[i] == '\\')
            n++;
    return n;
}

static int fail_length(const ls_config *config, const ls_network *model,
                       const char *const *class_name, const ls_prep *prep, ls_error *err)
{
    const bool table = prep && prep->kind == LS_PREP_TABLE;
    const char *cure = "shorten the names of classes";
    if (table)
        cure = "name columns of many texts or long names in data.drop, or shorten names";
    else if (prep && prep->fills > 1)
        cure = "set data.missing to \"zero\", or add the missing values to the file";
    return ls_fail(err, LS_EDATA,
                   "%.100s: the preparation of rows and the names of classes are stored with the "
                   "weights, and are too long for their file: %d columns of %d numbers, %d means, "
                   "names of %d classes; expected at most %d values and %d bytes; %s",
                   config->data_name ? config->data_name : "data", prep ? prep->columns : 0,
                   table ? prep->features : 0, prep ? prep->fills : 0,
                   class_name ? model->classes : 0, MOST_VALUES, MOST_BYTES, cure);
}

int ls_card_write(ls_network *model, const ls_config *config, const char *const *class_name,
                  const char *features, const ls_prep *prep, const ls_host *host, ls_error *err)
{
    const size_t values =
        (class_name ? (size_t)model->classes : 0) + (prep ? ls_prep_values(prep) : 0);
    if (values > MOST_VALUES)
        return fail_length(config, model, class_name, prep, err);
    if (class_name) {
        int clear = ls_prep_check_names(class_name, model->classes, "class", host, err);
        if (clear)
            return clear;
    }
    ls_json_writer w;
    ls_json *doc = NULL;
    int status = features ? ls_json_parse(&doc, "", features, strlen(features), host, err) : LS_OK;
    if (status)
        return status;
    ls_json_writer_init(&w, 0, host);
    write_text(&w, model, config, class_name, doc ? ls_json_root(doc) : NULL, prep);
    ls_json_destroy(doc);
    size_t length = 0;
    const char *text = ls_json_writer_text(&w, &length, err);
    if (text && escaped_bytes(text, length) > MOST_BYTES) {
        ls_json_writer_fini(&w);
        return fail_length(config, model, class_name, prep, err);
    }
    model->card = text ? ls_strdup(host, text) : NULL;
    ls_json_writer_fini(&w);
    return model->card ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the model's card");
}

char *ls_card_with_threshold(const char *card, double threshold, const ls_host *host)
{
    ls_json *doc;
    ls_json_writer w;
    size_t length;
    if (ls_json_parse(&doc, "the card", card, strlen(card), host, NULL))
        return NULL;
    ls_json_writer_init(&w, 0, host);
    ls_json_open_object(&w, NULL);
    for (const cJSON *node = ls_json_root(doc)->child; node; node = node->next)
        if (strcmp(node->string, "threshold") != 0)
            ls_json_put_node(&w, node->string, node);
    ls_json_put_double(&w, "threshold", threshold);
    ls_json_close(&w);
    const char *text = ls_json_writer_text(&w, &length, NULL);
    char *out = text ? ls_strdup(host, text) : NULL;
    ls_json_writer_fini(&w);
    ls_json_destroy(doc);
    return out;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void read_input(ls_card *c, ls_fields *f)
{
    const cJSON *node = ls_field_any(f, "input"), *side = node ? node->child : NULL;
    int *const sides[] = {&c->input.c, &c->input.h, &c->input.w};
    if (!cJSON_IsArray(node) || cJSON_GetArraySize(node) != 3)
        ls_fields_fail(f, node, "expected \"input\": [channels, height, width]");
    for (int i = 0; i < 3 && f->status == LS_OK; i++, side = side->next) {
        if (ls_field_is_int(f, "input", side, 1, 1 << 20))
            *sides[i] = (int)side->valuedouble;
    }
}

static void read_names(ls_card *c, ls_fields *f)
{
    const cJSON *name;
    c->names = ls_field_any(f, "class_names");
    if (!c->names || f->status)
        return;
    if (!cJSON_IsArray(c->names) || cJSON_GetArraySize(c->names) != c->classes)
        ls_fields_fail(f, c->names, "expected \"class_names\", one for each of %d classes",
                       c->classes);
    cJSON_ArrayForEach(name, c->names)
    {
        if (f->status == LS_OK && !cJSON_IsString(name))
            ls_fields_fail(f, name, "expected a class's name, found %s", ls_json_kind(name));
    }
}

/* Infers the preparation of rows from a card that has none (ls_card.prep). */
static int infer_preparation(ls_card *c, const ls_json *doc, size_t input, bool floats,
                             ls_error *err)
{
    const bool images =
        !floats && (c->input.c == 1 || c->input.c == 3) && c->input.h > 1 && c->input.w > 1;
    if (c->features && floats)
        return ls_prep_read_features(&c->prep, doc, c->features, input, c->config.host, err);
    int status =
        ls_prep_create(&c->prep, images ? LS_PREP_IMAGES : LS_PREP_ARRAY, c->config.host, err);
    if (status == LS_OK)
        c->prep->divisor = floats ? 1 : 255;
    return status;
}

static int read_preparation(ls_card *c, const ls_json *doc, const cJSON *node, bool floats,
                            ls_error *err)
{
    const size_t input = (size_t)c->input.c * (size_t)c->input.h * (size_t)c->input.w;
    c->has_preparation = node;
    if (!node)
        return infer_preparation(c, doc, input, floats, err);
    int status = ls_prep_read(&c->prep, doc, node, input, floats, c->config.host, err);
    const ls_prep_resize *resize = status ? NULL : &c->prep->resize;
    if (!resize || !resize->height || ls_prep_covers(resize, c->input.h, c->input.w))
        return status;
    return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                              "preparation: expected \"resize\" to at least the %d×%d pixels of "
                              "the model's input",
                              c->input.w, c->input.h);
}

static int read_fields(ls_card *c, ls_json *doc, ls_error *err)
{
    long schema, classes;
    int floats, targets;
    ls_fields f;
    ls_fields_begin(&f, doc, ls_json_root(doc), "the model's card", err);
    ls_field_version(&f, "schema", SCHEMA, SCHEMA, &schema);
    ls_field_int(&f, "classes", 1, 1 << 20, NULL, &classes);
    c->classes = (int)classes;
    ls_field_bool(&f, "floats", NULL, &floats);
    ls_field_bool(&f, "targets", NULL, &targets);
    read_input(c, &f);
    read_names(c, &f);
    c->features = ls_field_any(&f, "features");
    if (c->features && !cJSON_IsArray(c->features))
        ls_fields_fail(&f, c->features, "expected \"features\", an array");
    const double none = 0;
    ls_field_double(&f, "threshold", 0, 1, &none, &c->threshold);
    const cJSON *preparation = ls_field_any(&f, "preparation");
    const cJSON *recipe = ls_field_any(&f, "recipe");
    if (!cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(recipe, "model")))
        ls_fields_fail(&f, recipe, "expected \"recipe\": an object with a \"model\"");
    int status = ls_fields_end(&f);
    if (status == LS_OK)
        status = ls_config_read_of_model(&c->config, doc, recipe, c->config.host, err);
    c->config.doc = doc;
    if (status == LS_OK)
        status = read_preparation(c, doc, preparation, floats != 0, err);
    const int parts = status || !targets ? 1 : ls_config_parts(&c->config);
    const ls_dataset_info data = {.row_type = floats ? LS_ROW_F32 : LS_ROW_U8,
                                  .classes = targets ? 0 : c->classes,
                                  .targets = targets ? c->classes / parts : 0};
    if (status == LS_OK && c->classes % parts != 0)
        return ls_fail(err, LS_EDATA, "the model's card: %d outputs for %d quantiles", c->classes,
                       parts);
    return status ? status : ls_config_fit_data(&c->config, &data, 0, err);
}

int ls_card_parse(ls_card *out, const char *name, const char *text, const ls_host *host,
                  ls_error *err)
{
    ls_json *doc;
    memset(out, 0, sizeof *out);
    out->config.host = host;
    int status = ls_json_parse(&doc, name, text, strlen(text), host, err);
    if (status == LS_OK && (status = read_fields(out, doc, err)) != LS_OK)
        ls_card_fini(out);
    /* An error in the file is reported as LS_EDATA, because LS_ECONFIG means an error in the
     * caller's config. */
    if (status != LS_ECONFIG)
        return status;
    if (err)
        err->status = LS_EDATA;
    return LS_EDATA;
}

/* Warns if the number `text` is a level that an older version may have made of several numbers. */
static bool warn_if_rounded(const ls_card *c, const char *path, const char *column,
                            const char *text)
{
    if (!ls_level_was_rounded(text))
        return false;
    ls_log(
        c->config.host, LS_LOG_WARNING,
        "%.300s: column \"%.60s\": \"%.40s\" may stand for several texts of the training table, "
        "because the older version that trained this model rounded numbers of 16 and more digits "
        "or beyond 1e308; train again",
        path, column, text);
    return true;
}

/* Warns of each column, and of the classes, if an older version may have merged some of their
 * levels. Newer versions write a rule (ls_level_rule) beside such levels. */
static void warn_of_rounded_levels(const ls_card *c, const char *path)
{
    const ls_prep *p = c->prep;
    bool warned = false;
    for (int i = 0; i < p->columns; i++) {
        const ls_prep_column *at = &p->column[i];
        for (int k = 0; at->rule == LS_LEVELS_NUMBERS && k < at->levels; k++)
            if (warn_if_rounded(c, path, at->name, at->level[k]))
                break;
    }
    const cJSON *name = c->names && p->kind == LS_PREP_TABLE ? c->names->child : NULL;
    for (; name && p->target_rule == LS_LEVELS_NUMBERS && !warned; name = name->next)
        warned = warn_if_rounded(c, path, p->target ? p->target : "target", name->valuestring);
}

int ls_card_read(ls_card *out, const ls_tensor_file *file, const ls_host *host, ls_error *err)
{
    char name[300];
    const char *path = ls_tensor_file_path(file), *text = ls_tensor_file_card(file);
    if (!text)
        return ls_fail(
            err, LS_EDATA,
            "%.300s: the file does not describe its model; expected a file that a run has "
            "written, with \"lockstep_model\" in its metadata",
            path);
    snprintf(name, sizeof name, "%.240s: lockstep_model", path);
    int status = ls_card_parse(out, name, text, host, err);
    if (status == LS_OK)
        warn_of_rounded_levels(out, path);
    return status;
}

void ls_card_fini(ls_card *c)
{
    ls_prep_free(c->prep);
    ls_config_fini(&c->config);
    memset(c, 0, sizeof *c);
}

int ls_card_keep(ls_network *model, const ls_tensor_file *file, const ls_host *host, ls_error *err)
{
    const char *text = ls_tensor_file_card(file);
    model->card = text ? ls_strdup(host, text) : NULL;
    return !text || model->card ? LS_OK
                                : ls_fail(err, LS_ENOMEM, "out of memory for the model's card");
}

int ls_card_load(ls_network **model, float **weights, const ls_card *c, const ls_tensor_file *file,
                 ls_error *err)
{
    const char *path = ls_tensor_file_path(file);
    const ls_host *host = c->config.host;
    ls_error why;
    *weights = NULL;
    int status =
        ls_network_parse(model, c->config.doc, c->config.model, c->input, c->classes, host, &why);
    if (status) /* adds the path to messages about sizes; messages about layers have it already */
        return ls_fail(err, status == LS_ENOMEM ? status : LS_EDATA, "%.200s%s%s",
                       status == LS_EINVAL ? path : "", status == LS_EINVAL ? ": " : "", why.text);
    status = ls_card_keep(*model, file, host, err);
    if (status == LS_OK)
        *weights = ls_alloc_array(host, (*model)->floats, sizeof **weights);
    if (status == LS_OK)
        status = *weights ? ls_safetensors_read(*weights, file, *model, "", host, err)
                          : ls_fail(err, LS_ENOMEM, "out of memory for %zu parameters",
                                    (*model)->floats);
    if (status == LS_OK)
        return LS_OK;
    ls_free(host, *weights);
    *weights = NULL;
    ls_network_destroy(*model, host);
    *model = NULL;
    return status;
}

const char *ls_card_class_name(const ls_card *c, int label)
{
    const cJSON *name = c->names ? cJSON_GetArrayItem(c->names, label) : NULL;
    return name ? name->valuestring : NULL;
}
