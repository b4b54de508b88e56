#include "config/config.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MOST_ROWS (1L << 20)
#define AT(member) offsetof(ls_config, member)
#define FORM(name) .read = read_##name, .write = write_##name

static void read_scaling(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node);

/* ---- reading and writing by rows ------------------------------------------------------------- */

static void *value_of(ls_config *c, const ls_config_key *row)
{
    return (char *)c + row->at;
}

static const void *value_in(const ls_config *c, const ls_config_key *row)
{
    return (const char *)c + row->at;
}

static void write_text(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const char *text = *(const char *const *)value_in(c, row);
    if (text)
        ls_json_put_string(w, row->key, text);
}

void ls_config_read_key(ls_config *c, ls_fields *f, const ls_config_key *row)
{
    void *value = value_of(c, row);
    const long integer = (long)row->fallback;
    const int flag = (int)row->fallback;
    const cJSON *node;
    long n;
    switch (row->kind) {
    case LS_KEY_INT:
        ls_field_int(f, row->key, (long)row->min, (long)row->max, &integer, &n);
        *(int *)value = (int)n;
        break;
    case LS_KEY_NUMBER:
        ls_field_double(f, row->key, row->min, row->max, &row->fallback, value);
        break;
    case LS_KEY_BOOL: ls_field_bool(f, row->key, &flag, value); break;
    case LS_KEY_TEXT: ls_field_text(f, row->key, &row->text, value); break;
    case LS_KEY_CHOICE: ls_field_choice(f, row->key, row->choices, &flag, value); break;
    case LS_KEY_FORM:
        node = ls_field_any(f, row->key);
        if (f->status == LS_OK)
            row->read(c, f, row, node);
        break;
    }
}

void ls_config_write_key(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const void *value = value_in(c, row);
    switch (row->kind) {
    case LS_KEY_INT: ls_json_put_int(w, row->key, *(const int *)value); break;
    case LS_KEY_NUMBER: ls_json_put_double(w, row->key, *(const double *)value); break;
    case LS_KEY_BOOL: ls_json_put_bool(w, row->key, *(const int *)value); break;
    case LS_KEY_TEXT: write_text(w, c, row); break;
    case LS_KEY_CHOICE: ls_json_put_string(w, row->key, row->choices[*(const int *)value]); break;
    case LS_KEY_FORM: row->write(w, c, row); break;
    }
}

const char *ls_config_default(char out[32], const ls_config_key *row)
{
    switch (row->kind) {
    case LS_KEY_INT:
    case LS_KEY_NUMBER: snprintf(out, 32, "%d", (int)row->fallback); break;
    case LS_KEY_BOOL: return row->fallback != 0 ? "true" : "false";
    case LS_KEY_TEXT:
        if (!row->text)
            return "";
        snprintf(out, 32, "\"%s\"", row->text);
        break;
    case LS_KEY_CHOICE: snprintf(out, 32, "\"%s\"", row->choices[(int)row->fallback]); break;
    case LS_KEY_FORM: return row->text ? row->text : "";
    }
    return out;
}

/* ---- forms ---------------------------------------------------------------------------------- */

static void read_name(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    const char *fallback = "run";
    ls_field_text(f, row->key, &fallback, &c->name);
    if (f->status == LS_OK && (c->name[0] == '\0' || strchr(c->name, '/')))
        ls_fields_fail(f, node,
                       "name: expected a word without '/', which becomes part of a file name");
}

/* Reads a number for all channels, or an array of one number per channel, of which the last serves
 * the remaining channels. */
static void read_channels(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    float *out = value_of(c, row);
    const int count = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : 1;
    for (int i = 0; i < 4; i++)
        out[i] = (float)row->fallback;
    if (node && (count < 1 || count > 4))
        ls_fields_fail(f, node, "%s: expected 1 to 4 numbers, found %d", row->key, count);
    for (int i = 0; i < 4 && node && f->status == LS_OK; i++) {
        const cJSON *value =
            cJSON_IsArray(node) ? cJSON_GetArrayItem(node, i < count ? i : count - 1) : node;
        if (!cJSON_IsNumber(value) || value->valuedouble < row->min ||
            value->valuedouble > row->max)
            ls_fields_fail(f, value,
                           "%s: expected numbers from %g to 1e6, in units of the full "
                           "pixel range",
                           row->key, row->min);
        else
            out[i] = (float)value->valuedouble;
    }
}

static void write_channels(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const float *values = value_in(c, row);
    ls_json_open_array(w, row->key);
    for (int i = 0; i < 4; i++)
        ls_json_put_float(w, NULL, values[i]);
    ls_json_close(w);
}

static void read_capacity(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    const cJSON *item;
    (void)row;
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

static void write_capacity(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    if (c->capacities == 0)
        return;
    ls_json_open_array(w, row->key);
    for (int i = 0; i < c->capacities; i++)
        ls_json_put_double(w, NULL, c->capacity[i]);
    ls_json_close(w);
}

enum { MOST_SHARDS = 8 };

/* Returns whether the work of a shard is worth the sum of its gradient. Two shards also pay if each
 * has much work, because a second worker would otherwise have none. */
static bool pays(int rows, double uses, double weights, int shards)
{
    if (rows / shards < LS_SHARD_ROWS)
        return false;
    const double used = rows * uses / shards;
    if (shards > 2)
        return used >= 2 * LS_SHARD_USES;
    return used >= LS_SHARD_USES || used * weights >= LS_SHARD_PRODUCTS;
}

/* Returns the number of groups of sixteen rows of the largest shard, the last of which may be
 * partly empty. */
static int groups_of(int rows, int shards)
{
    return ((rows + shards - 1) / shards + LS_SHARD_ROWS - 1) / LS_SHARD_ROWS;
}

/* Returns whether `a` shards have fewer groups in total than `b` shards, and at most as many on
 * each worker if there are two workers, or eight. */
static bool wastes_less(int rows, int a, int b)
{
    const int in_a = groups_of(rows, a), in_b = groups_of(rows, b);
    return a * in_a < b * in_b && in_a <= in_b && (a + 1) / 2 * in_a <= (b + 1) / 2 * in_b;
}

int ls_shards_for(int rows, double uses, double weights)
{
    int shards = 1;
    while (shards < MOST_SHARDS && pays(rows, uses, weights, 2 * shards))
        shards *= 2;
    int best = shards;
    for (int n = shards / 2 + 1; n <= MOST_SHARDS; n++)
        if (pays(rows, uses, weights, n) && wastes_less(rows, n, shards) &&
            n * groups_of(rows, n) <= best * groups_of(rows, best))
            best = n;
    return best;
}

double ls_uses_of_weights(const ls_model *model)
{
    double uses = 0;
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *layer = &model->layer[i];
        for (int k = 0; k < layer->params; k++)
            uses += (double)layer->param[k].count * layer->out.h * layer->out.w;
    }
    return uses / (double)model->parameters;
}

int ls_shards_of(int rows, const ls_model *model)
{
    return ls_shards_for(rows, ls_uses_of_weights(model), (double)model->parameters);
}

int ls_config_shards(const ls_config *c, const ls_model *model)
{
    return c->shards < 0 ? ls_shards_of(c->batch_size, model) : c->shards;
}

/* Reads an integer, or "devices" for one shard per device. */
static void read_shards(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    long shards;
    if (!node) {
        c->shards = -1;
        return;
    }
    if (cJSON_IsString(node)) {
        if (strcmp(node->valuestring, "devices") != 0)
            ls_fields_fail(f, node, "shards: expected an integer or \"devices\", found \"%s\"",
                           node->valuestring);
        c->shards = 0;
        return;
    }
    ls_field_int(f, row->key, 1, LS_SHARDS_MAX, NULL, &shards);
    c->shards = (int)shards;
}

static void write_shards(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    if (c->shards > 0)
        ls_json_put_int(w, row->key, c->shards);
    else if (c->shards == 0)
        ls_json_put_string(w, row->key, "devices");
}

static void read_seed(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    double seed = 0;
    if (ls_field_double(f, row->key, row->min, row->max, &row->fallback, &seed) &&
        seed != (double)(uint64_t)seed)
        ls_fields_fail(f, node, "seed: expected an integer, found %g", seed);
    c->seed = (uint64_t)seed;
}

static void write_seed(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_json_put_uint(w, row->key, c->seed);
}

/* Reads run_dir. If it is absent the run gets a directory of its own; null or "" means none. */
static void read_run_dir(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    const char *none = NULL;
    if (cJSON_IsNull(node))
        c->run_dir = "";
    else
        ls_field_text(f, row->key, &none, &c->run_dir);
}

/* Returns whether a value is the name of a column: a text, or a number or truth value whose text is
 * the name. Keys that take several columns also accept a list of names. */
static bool is_name(const cJSON *node)
{
    return cJSON_IsString(node) || cJSON_IsNumber(node) || cJSON_IsBool(node);
}

static void read_names(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    ls_names *names = value_of(c, row);
    const cJSON *item;
    const bool several = row->min > 0;
    if (cJSON_IsString(node))
        names->text = node->valuestring;
    else
        names->list = node;
    if (!node || is_name(node))
        return;
    if (!several || !cJSON_IsArray(node)) {
        ls_fields_fail(f, node, "%s: expected the name of a column%s, found %s", row->key,
                       several ? ", or a list of names" : "", ls_json_kind(node));
        return;
    }
    cJSON_ArrayForEach(item, node)
    {
        if (!is_name(item))
            ls_fields_fail(f, item, "%s: expected names of columns, found %s", row->key,
                           ls_json_kind(item));
    }
}

static void write_names(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const ls_names *names = value_in(c, row);
    if (names->text)
        ls_json_put_string(w, row->key, names->text);
    else if (names->list)
        ls_json_put_node(w, row->key, names->list);
}

/* Reads a value that is interpreted later, when the model is known. */
static void read_node(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    (void)f;
    *(const cJSON **)value_of(c, row) = node;
}

static void write_node(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const cJSON *node = *(const cJSON *const *)value_in(c, row);
    if (node)
        ls_json_put_node(w, row->key, node);
}

static void read_optimizer(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    (void)row;
    if (node)
        f->status = ls_optimizer_parse(&c->optimizer, f->doc, node, f->err);
}

static void write_optimizer(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_optimizer_write(w, row->key, &c->optimizer);
}

/* Reads init, a rule or {"weights": FILE, "partial": true}. A rule may also be beside the file,
 * because --set added the file, or for the parameters that a partial file does not have. */
static void read_init(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    static const int whole = 0;
    ls_fields init;
    if (!cJSON_IsObject(node) || !cJSON_GetObjectItemCaseSensitive(node, "weights")) {
        f->status = ls_init_parse(&c->init, f->doc, node, f->err);
        return;
    }
    ls_fields_begin(&init, f->doc, node, row->key, f->err);
    ls_field_text(&init, "weights", NULL, &c->init_weights);
    ls_field_bool(&init, "partial", &whole, &c->init_partial);
    if (c->init_partial)
        ls_init_read(&c->init, &init, true);
    ls_field_any(&init, "name");
    ls_field_any(&init, "std");
    f->status = ls_fields_end(&init);
}

static void write_init(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const bool drawn = !c->init_weights || c->init_partial;
    ls_json_open_object(w, row->key);
    if (c->init_weights)
        ls_json_put_string(w, "weights", c->init_weights);
    if (c->init_partial)
        ls_json_put_bool(w, "partial", true);
    if (drawn)
        ls_json_put_string(w, "name", ls_init_name(c->init.rule));
    if (drawn && c->init.rule == LS_INIT_NORMAL)
        ls_json_put_float(w, "std", c->init.std);
    ls_json_close(w);
}

/* Reads whether rows are scaled. The value is −1 if the config does not say it; scaling is then on
 * if the data has the key. Configs written by runs of older versions do not always say it; nothing
 * was scaled then, so they are read as false. */
static void read_scaling(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    const int unsaid = c->written ? 0 : -1;
    (void)node;
    ls_field_bool(f, row->key, &unsaid, value_of(c, row));
}

bool ls_config_scales(const ls_config *c, const char *key, int said)
{
    ls_error unused;
    const ls_dataset_about *about;
    const ls_dataset_spec spec = {.name = c->data_name};
    return said > 0 || (said < 0 && ls_dataset_find(&about, &spec, &unused) == LS_OK &&
                        ls_dataset_check_key(&spec, key, &unused) == LS_OK);
}

static void write_scaling(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_json_put_bool(w, row->key, ls_config_scales(c, row->key, *(const int *)value_in(c, row)));
}

static void read_schedule(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    (void)row;
    f->status = ls_schedule_parse(&c->schedule, f->doc, node, f->err);
}

static void write_schedule(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_schedule_write(w, row->key, &c->schedule);
}

bool ls_config_is_set(const ls_config *c, const ls_config_key *row)
{
    const void *value = value_in(c, row);
    switch (row->kind) {
    case LS_KEY_TEXT: return *(const char *const *)value != NULL;
    case LS_KEY_NUMBER: return *(const double *)value != row->fallback;
    case LS_KEY_FORM:
        if (row->read == read_scaling)
            return !c->written && *(const int *)value > 0;
        return row->read == read_names &&
               (((const ls_names *)value)->text || ((const ls_names *)value)->list);
    default: return *(const int *)value != (int)row->fallback;
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

/* in the order of ls_precision */
static const char *const precisions[] = {"fp32", "tf32", "bf16", NULL};
static const char *const scalings[] = {"none", "linear", NULL};
static const char *const divisors[] = {"batch", "nominal", NULL};
static const char *const at_loss[] = {"continue", "stop", NULL};
/* in the order of ls_label_form */
static const char *const label_forms[] = {"auto", "classes", "values", NULL};
/* in the order of ls_missing */
static const char *const at_missing[] = {"refuse", "zero", "mean", NULL};
static const char *const decimals[] = {"auto", ".", ",", NULL}; /* in the order of ls_decimal */
static const char *const encodings[] = {"utf-8", "latin-1", NULL};
/* in the order of ls_row_layout */
static const char *const layouts[] = {"channels_first", "channels_last", NULL};
/* in the order of ls_cluster_engine */
static const char *const engines[] = {"auto", "none", "mpi", NULL};
static const char *const at_host_loss[] = {"stop", "continue", NULL};
static const char *const at_arrival[] = {"refuse", "admit", NULL};
static const char *const at_nonfinite[] = {"stop", "skip", NULL};

const ls_config_key ls_config_keys[] = {
    {"", "name", LS_KEY_FORM, LS_PLACEMENT, AT(name), .text = "\"run\"", .read = read_name,
     .write = write_text, .help = "part of the run directory's name"},
    {"data", "name", LS_KEY_TEXT, LS_RECIPE_OF_MODEL, AT(data_name), .text = "fashion_mnist",
     .help = "`fashion_mnist`, `mnist`, `emnist` (by class), `cifar10` and `cifar100` "
             "(binary form), `synthetic`; of your own: `npy`, "
             "`safetensors`, `csv`, `folder` ([data.md](data.md))"},
    {"data", "path", LS_KEY_TEXT, LS_PLACEMENT, AT(data_path),
     .help =
         "the directory with the files; without it: `$LOCKSTEP_DATA`, "
         "`$XDG_DATA_HOME/datasets`, `/usr/share/datasets`; of `csv` and `safetensors`: the file"},
    {"data", "limit", LS_KEY_INT, LS_RECIPE, AT(data_limit), 0, 0, INT_MAX,
     .help = "keep the first so many training rows; 0: all"},
    {"data", "x", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.x),
     .help = "`npy`: the file of the training rows; `safetensors`: their tensor (`x`)"},
    {"data", "y", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.y), .help = "their targets (`y`)"},
    {"data", "test_x", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.test_x),
     .help = "the test rows (`test_x`)"},
    {"data", "test_y", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.test_y),
     .help = "their targets (`test_y`)"},
    {"data", "test_path", LS_KEY_TEXT, LS_PLACEMENT, AT(data_keys.test_path),
     .help = "`csv`, `folder`: the test rows' file or directory"},
    {"data", "target", LS_KEY_FORM, LS_RECIPE, AT(data_keys.target), FORM(names),
     .help = "`csv`: the column that is learned"},
    {"data", "categorical", LS_KEY_FORM, LS_RECIPE, AT(data_keys.categorical), 0, 1, FORM(names),
     .help =
         "`csv`: columns that are one-hot though their first value is a number: a list, or a text with commas"},
    {"data", "drop", LS_KEY_FORM, LS_RECIPE, AT(data_keys.drop), 0, 1, FORM(names),
     .help = "`csv`: columns that are left out: a list, or a text with commas"},
    {"data", "separator", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.separator),
     .help =
         "`csv`: what stands between fields: `,`, `;`, `tab`, `bar` or `space`; without it the header tells"},
    {"data", "decimal", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.decimal), .choices = decimals,
     .help =
         "`csv`: the decimal mark; `\"auto\"`: as each column's numbers tell, and one that can be read both ways is refused"},
    {"data", "encoding", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.latin1), .choices = encodings,
     .help =
         "`csv`: `\"latin-1\"` (Windows-1252) of a table that is not UTF-8; UTF-16 is known by its mark"},
    {"data", "standardize", LS_KEY_FORM, LS_RECIPE, AT(data_keys.standardize), .text = "true",
     FORM(scaling),
     .help = "`csv`: numbers become (value − mean) / deviation of their column's training rows"},
    {"data", "clip", LS_KEY_NUMBER, LS_RECIPE, AT(data_keys.clip), 0, 0, 1e6,
     .help =
         "`csv`: standardised numbers are limited to −`clip` … `clip`, so that a wild value does not "
         "decide a prediction; 0: they are not; `trainer init` writes 10"},
    {"data", "standardize_target", LS_KEY_FORM, LS_RECIPE, AT(data_keys.standardize_target),
     .text = "true", FORM(scaling),
     .help =
         "`csv`, `npy`, `safetensors`: with `mse` and one target for each row, the network learns "
         "(target − mean) / deviation of the training rows; loss, metrics and predictions are in "
         "the target's own unit"},
    {"data", "labels", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.labels), .choices = label_forms,
     .help =
         "what targets are; `\"auto\"`: classes where they are whole numbers, one for each row, "
         "and in a `csv`; else values"},
    {"data", "classes", LS_KEY_INT, LS_RECIPE, AT(data_keys.classes), 0, 0, INT_MAX,
     .help = "how many there are; 0: as many as the training rows have"},
    {"data", "missing", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.missing), .choices = at_missing,
     .former = "on_nan",
     .help =
         "a value that is missing, an empty field or NaN: `\"refuse\"`, or it becomes 0 (`\"zero\"`) or "
         "the mean of its column's training rows (`\"mean\"`)"},
    {"data", "packed", LS_KEY_TEXT, LS_PLACEMENT, AT(data_keys.packed),
     .help = "`folder`: the file it is packed in; the program sets it"},
    {"data", "image_size", LS_KEY_INT, LS_RECIPE, AT(data_keys.image_size), 32, 1, 4096,
     .former = "size",
     .help = "`folder`: height and width that its images are resized and cropped to"},
    {"data", "channels", LS_KEY_INT, LS_RECIPE, AT(data_keys.channels), 3, 1, 3,
     .help = "`folder`: 3 for colours, 1 for grey"},
    {"data", "skip_broken", LS_KEY_BOOL, LS_RECIPE, AT(data_keys.skip_broken),
     .help =
         "`folder`: images that cannot be read are left out, counted and named, in place of ending the "
         "run"},
    {"data", "layout", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.layout), .choices = layouts,
     .help = "`npy`, `safetensors`: where rows of three dimensions have their channels"},
    {"data", "validation", LS_KEY_NUMBER, LS_RECIPE, AT(data_keys.validation), 0, 0, 1,
     .help =
         "the share of each class's training rows that is held out and evaluated on, drawn from the "
         "seed; test rows are then for `trainer eval` alone"},
    {"data", "mean", LS_KEY_FORM, LS_RECIPE_OF_MODEL, AT(preprocessing.mean), 0, -1e6, 1e6,
     .text = "0", FORM(channels),
     .help = "pixels become (pixel / 255 − mean) / std, floats (value − mean) / std; a number, or "
             "one per channel"},
    {"data", "std", LS_KEY_FORM, LS_RECIPE_OF_MODEL, AT(preprocessing.std), 1, 1e-6, 1e6,
     .text = "1", FORM(channels), .help = "see `data.mean`"},
    {"", "model", LS_KEY_FORM, LS_RECIPE_OF_MODEL, AT(model), .text = "required", FORM(node),
     .help =
         "`{\"name\": …, \"layers\": […]}`, or the path of such a file, relative to the config"},
    {"", "batch_size", LS_KEY_INT, LS_RECIPE, AT(batch_size), 256, 1, MOST_ROWS,
     .help = "global: rows of a minibatch over all devices"},
    {"", "seed", LS_KEY_FORM, LS_RECIPE, AT(seed), 0, 0, 9007199254740992.0 /* 2⁵³ */, .text = "0",
     FORM(seed), .help = "every random draw is a function of it"},
    {"", "init", LS_KEY_FORM, LS_RECIPE, .text = "\"kaiming\"", FORM(init),
     .help =
         "`\"kaiming\"`, also `\"he\"`: normal, variance 2 / fan_in; `\"xavier\"`, also "
         "`\"glorot\"`: uniform within ±√(6 / (fan_in + fan_out)); "
         "`{\"name\": \"normal\", \"std\": 0.01}`; "
         "biases start at 0; "
         "or `{\"weights\": \"FILE.safetensors\"}`, with PyTorch's names (fp32, fp16 or bf16); with "
         "`\"partial\": true` what fits by name and shape is taken, the rest listed and begun as "
         "`\"name\"` says"},
    {"", "optimizer", LS_KEY_FORM, LS_RECIPE, .text = "required", FORM(optimizer),
     .help = "`{\"name\": \"sgd\", \"lr\": …, \"momentum\": 0, \"weight_decay\": 0, \"nesterov\": "
             "false}`, or `{\"name\": \"adamw\", \"lr\": …, \"beta1\": 0.9, \"beta2\": 0.999, "
             "\"epsilon\": 1e-8, \"weight_decay\": 0.01}`; "
             "each takes `\"clip_norm\"`, the most of the merged gradient's norm (0: any)"},
    {"", "freeze", LS_KEY_FORM, LS_RECIPE, AT(freeze), FORM(node),
     .help =
         "patterns of parameters' names that stay as they are, such as `[\"conv1.*\", \"bn*\"]`; "
         "a frozen beginning is not computed backward, and its batch norms keep their "
         "statistics"},
    {"", "lr_factors", LS_KEY_FORM, LS_RECIPE, AT(lr_factors), FORM(node),
     .help = "what the learning rate is multiplied with, by patterns of names: `{\"fc.*\": 10}`"},
    {"", "ema", LS_KEY_NUMBER, LS_RECIPE, AT(optimizer.ema), 0, 0, 0.9999999,
     .help =
         "0.999, say: a moving average of the weights, of which a step leaves so much, is what is "
         "evaluated, saved and predicts; it begins with the first weights; 0: none"},
    {"", "schedule", LS_KEY_FORM, LS_RECIPE, .text = "\"constant\"", FORM(schedule),
     .help =
         "`{\"name\": \"step\", \"every_epochs\": 30, \"gamma\": 0.1}`, `{\"name\": \"cosine\", "
         "\"minimum\": 0}`, these and `\"constant\"` with `\"warmup_epochs\"`; `{\"name\": "
         "\"one_cycle\", \"peak\": 0.3, \"start\": 0.04, \"minimum\": 4e-6}`, `{\"name\": "
         "\"triangular\", \"every_epochs\": 10, \"minimum\": 0}`, as PyTorch's OneCycleLR and "
         "CyclicLR; `{\"name\": \"exponential\", \"minimum\": 1e-7, \"steps\": 300}`, up in equal "
         "factors, as `trainer find-lr` trains"},
    {"", "lr_scaling", LS_KEY_CHOICE, LS_RECIPE, AT(linear_scaling), .choices = scalings,
     .help = "`\"linear\"`: `optimizer.lr` is meant for 256 rows and grows with `batch_size`"},
    {"", "loss", LS_KEY_TEXT, LS_RECIPE_OF_MODEL, AT(loss_name), .text = "auto",
     .help = "`cross_entropy` of data with classes; of data with vectors `mse`, or `bce` for bits "
             "(targets from 0 to 1); `auto`: the first that fits"},
    {"", "label_smoothing", LS_KEY_NUMBER, LS_RECIPE_OF_MODEL, AT(label_smoothing), 0, 0, 1,
     .help = "the share of the target that all classes have in equal parts"},
    {"", "class_weights", LS_KEY_FORM, LS_RECIPE_OF_MODEL, AT(class_weights), FORM(node),
     .help =
         "of `cross_entropy`: what a row's loss, smoothing included, is multiplied with by its "
         "class, a list of numbers; or `\"balanced\"`: rows / (classes · rows of the class), of "
         "the training rows. The mean is over rows, whatever they weigh. `eval --data` does not read the "
         "training rows: its loss is without balanced weights, and it says so"},
    {"augment", "crop", LS_KEY_INT, LS_RECIPE, AT(preprocessing.crop), 0, 0, 64,
     .help = "training images are shifted by up to so many pixels"},
    {"augment", "flip", LS_KEY_BOOL, LS_RECIPE, AT(preprocessing.flip),
     .help = "half of the training images are mirrored"},
    {"augment", "rotate", LS_KEY_INT, LS_RECIPE, AT(preprocessing.rotate), 0, 0, 45,
     .help = "training images are turned about their middle by up to so many degrees"},
    {"augment", "erase", LS_KEY_INT, LS_RECIPE, AT(preprocessing.erase), 0, 0, 4096,
     .help = "a square of so many pixels a side, anywhere in a training image, becomes 0"},
    {"augment", "brightness", LS_KEY_NUMBER, LS_RECIPE, AT(brightness), 0, 0, 1,
     .help =
         "pixels of a training image become up to so much brighter or darker: 0.2 is 0.8 to 1.2"},
    {"augment", "mixup", LS_KEY_NUMBER, LS_RECIPE, AT(mixup), 0, 0, 0.5,
     .help =
         "training rows have up to such a share, drawn for each, of the row after them in the minibatch's "
         "shard; vectors of targets are mixed alike, and a class is the other's as often as that"},
    {"", "gradient_scale", LS_KEY_CHOICE, LS_RECIPE, AT(nominal), .choices = divisors,
     .former = "normalize",
     .help = "gradients are divided by the rows of the minibatch, or always by `batch_size` "
             "(`\"nominal\"`: another step only for a ragged last minibatch)"},
    {"", "precision", LS_KEY_CHOICE, LS_RECIPE, AT(precision), .choices = precisions,
     .help =
         "of products on GPUs: `\"tf32\"`, `\"bf16\"` (weights stay fp32; what is rounded, and how "
         "far a gradient errs: `ls_precision` in `<lockstep/device.h>`); the CPU has fp32 for any"},
    {"", "allreduce", LS_KEY_TEXT, LS_RECIPE, AT(allreduce), .text = "ordered",
     .help =
         "`ordered`: the shard tree, every worker sums a chunk; `naive`: the textbook's, device "
         "0 sums, parameter by parameter; on GPUs `ordered` takes any mix of workers "
         "(`cuda:0,0,1,1`: two on each of two), and there are also `nccl` (fastest: merges while "
         "backward still runs; a GPU for each worker; gives the same bits up) and `local` (all "
         "workers share one GPU)"},
    {"", "on_nonfinite", LS_KEY_CHOICE, LS_RECIPE, AT(skip_nonfinite), .choices = at_nonfinite,
     .help = "at a loss that is not finite; `\"skip\"`: leave that step out"},
    {"", "shards", LS_KEY_FORM, LS_RECIPE, AT(shards), .text = "1 to 8", FORM(shards),
     .help =
         "logical shards of a minibatch, part of the recipe; absent: the largest power of two "
         "that leaves each 16 rows, and uses of each weight 64 (or a million products), or 128 "
         "where there are more than two, at most 8 (a perceptron of 256 rows has 2), or another "
         "number up to 8 that leaves fewer vectors of 16 rows partly empty (48 rows have 3 shards); workers beyond "
         "them only merge and stand by; `\"devices\"`: one per device, fastest on GPUs, but results then "
         "depend on their number"},
    {"", "epochs", LS_KEY_INT, LS_RECIPE_OF_END, AT(epochs), 10, 1, 1000000,
     .help = "how often the training rows are gone through"},
    {"", "devices", LS_KEY_TEXT, LS_PLACEMENT, AT(devices), .text = "auto",
     .help = "as `--devices`"},
    {"", "threads", LS_KEY_INT, LS_PLACEMENT, AT(threads), 0, 0, 1024,
     .help = "each CPU worker's team, which divides outputs: any size gives the same bits; 0: one "
             "thread, or, where `auto` finds more cores than shards, an equal part of them"},
    {"", "capacity", LS_KEY_FORM, LS_PLACEMENT, FORM(capacity),
     .help = "one number per device: shards are dealt out in proportion (unequal devices; the bits "
             "stay the same)"},
    {"", "eval_every", LS_KEY_INT, LS_PLACEMENT, AT(eval_every), 1, 0, 1000000,
     .help = "epochs between evaluations; 0: only after the last"},
    {"checkpoint", "every_steps", LS_KEY_INT, LS_PLACEMENT, AT(checkpoint.every_steps), 0, 0,
     INT_MAX, .help = "steps between checkpoints; 0: never because of steps"},
    {"checkpoint", "every_epochs", LS_KEY_INT, LS_PLACEMENT, AT(checkpoint.every_epochs), 1, 0,
     1000000, .help = "epochs between them; one more is saved at the end and on Ctrl-C"},
    {"checkpoint", "keep", LS_KEY_INT, LS_PLACEMENT, AT(checkpoint.keep), 2, 1, 1000000,
     .help = "how many are kept, the newest"},
    {"checkpoint", "async", LS_KEY_BOOL, LS_PLACEMENT, AT(checkpoint.async), 1,
     .help = "training goes on while one is written"},
    {"checkpoint", "best", LS_KEY_BOOL, LS_PLACEMENT, AT(checkpoint.best),
     .help = "the checkpoint of the best evaluation is also kept, for `trainer eval RUN --best`"},
    {"", "monitor", LS_KEY_TEXT, LS_PLACEMENT, AT(monitor_name), .text = "auto",
     .help = "what decides which evaluation is the best: `loss`, or a metric that is measured and "
             "has a number; `auto`: `accuracy` where the loss knows it, else `loss`"},
    {"", "patience", LS_KEY_INT, LS_PLACEMENT, AT(patience), 0, 0, 1000000,
     .help =
         "so many evaluations in a row that are not better than the best one end the run; 0: none "
         "do"},
    {"metrics", "tensorboard", LS_KEY_BOOL, LS_PLACEMENT, AT(tensorboard),
     .help = "event files in the run directory, for `tensorboard --logdir runs`"},
    {"metrics", "names", LS_KEY_FORM, LS_PLACEMENT, AT(metric_names), .text = "\"auto\"",
     FORM(node),
     .help =
         "what evaluations measure besides the loss: `[\"accuracy\", \"top5\", \"confusion\"]` "
         "(with each class's precision and recall) of classes, `mae` and `r2` of values, `auc` "
         "of bits; `\"auto\"`: all that fit the loss, the matrix up to 100 classes, `top5` from 6 "
         "on, and none that needs more than 256 MB of scores"},
    {"", "deadline_s", LS_KEY_NUMBER, LS_PLACEMENT, AT(deadline_s), 0, 0, 86400,
     .help =
         "how long a worker may show no sign of life; 0: 20 times the longest step so far, at least "
         "10 s. Time in which the process or the worker's thread is stopped, or its thread has no "
         "CPU, does not count"},
    {"", "verify_every_steps", LS_KEY_INT, LS_PLACEMENT, AT(verify_every_steps), 0, 0, INT_MAX,
     .help = "how often replicas are compared; 0: at checkpoints and ends of epochs"},
    {"", "on_device_loss", LS_KEY_CHOICE, LS_PLACEMENT, AT(stop_on_device_loss), .choices = at_loss,
     .help = "the survivors take over and repeat the step; `\"stop\"`: save a checkpoint and stop"},
    {"cluster", "engine", LS_KEY_CHOICE, LS_PLACEMENT, AT(cluster.engine), .choices = engines,
     .help =
         "what processes on several hosts talk by; `\"auto\"`: MPI where a launcher has started "
         "more than one, `\"none\"`: each trains for itself"},
    {"cluster", "deadline_s", LS_KEY_NUMBER, LS_PLACEMENT, AT(cluster.deadline_s), 0, 0, 86400,
     .help = "how long another host may be silent before it counts as lost; 0: 30 s"},
    {"cluster", "on_host_loss", LS_KEY_CHOICE, LS_PLACEMENT, AT(cluster.survives_loss),
     .choices = at_host_loss, .former = "on_member_loss",
     .help =
         "when a host is lost the others save and stop; `\"continue\"`: those that are left, if "
         "they are more than half, or half with the first, take over its shards and repeat the step ([hosts](hosts.md))"},
    {"cluster", "on_arrival", LS_KEY_CHOICE, LS_PLACEMENT, AT(cluster.admits),
     .choices = at_arrival,
     .help =
         "a host that comes after the run has begun is refused; `\"admit\"`, with `on_host_loss` "
         "`\"continue\"`: it takes part from the end of the epoch on "
         "([hosts](hosts.md#adding-a-host))"},
    {"", "run_dir", LS_KEY_FORM, LS_PLACEMENT, AT(run_dir), .read = read_run_dir,
     .write = write_text,
     .help = "a directory that holds no run yet; `null`: none; absent: `runs/<time>-<name>`"},
    {.key = NULL},
};
