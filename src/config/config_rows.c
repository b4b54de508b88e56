/* SPDX-License-Identifier: MIT */
/* The table of the config's keys, with a row for each key, and the functions that read and write
 * the keys that are not plain numbers or texts. */
#include "config/config.h"
#include "config/picture_rule.h"
#include "nn/loss.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MOST_ROWS (1L << 20)
#define AT(member) offsetof(ls_config, member)
#define FORM(name) .read = read_##name, .write = write_##name

static void read_standardize(ls_config *c, ls_fields *f, const ls_config_key *row,
                             const cJSON *node);

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
    case LS_KEY_TEXT:
        if (ls_field_text(f, row->key, &row->text, value) && row->check)
            row->check(f, row, cJSON_GetObjectItemCaseSensitive(f->object, row->key));
        break;
    case LS_KEY_CHOICE: ls_field_choice(f, row->key, row->choices, &flag, value); break;
    case LS_KEY_CUSTOM:
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
    case LS_KEY_CUSTOM: row->write(w, c, row); break;
    }
}

const char *ls_config_key_text(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_json_writer_reset(w);
    ls_json_open_object(w, NULL);
    ls_config_write_key(w, c, row);
    ls_json_close(w);
    return ls_json_writer_text(w, NULL, NULL);
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
    case LS_KEY_CUSTOM: return row->text ? row->text : "";
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

/* Returns where a list of more than four numbers of data.mean or data.std is stored. */
static const cJSON **list_of(ls_config *c, const ls_config_key *row)
{
    return strcmp(row->key, "mean") == 0 ? &c->data_keys.mean : &c->data_keys.std;
}

/* Fails if a text with commas stands where a key takes a list, as after --set without brackets. */
static void check_brackets(ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    char list[200];
    size_t used = 0;
    const char *at = cJSON_GetStringValue(node);
    if (!at || !strchr(at, ','))
        return;
    while (*at && used < sizeof list - 50) {
        const int length = (int)strcspn(at, ","), shown = length < 40 ? length : 40;
        const bool number = length > 0 && (int)strspn(at, "+-.0123456789eE") >= length;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s%.*s%s", used ? "," : "",
                                 number ? "" : "\"", shown, at, number ? "" : "\"");
        at += length + (at[length] == ',');
    }
    ls_fields_fail(f, node, "%s: a list has brackets: --set '%s%s%s=[%s]'", row->key, row->object,
                   row->object[0] ? "." : "", row->key, list);
}

/* Fails unless `node` is a number, or an array of numbers, in the range of the key. `unit` ends the
 * message. */
static void check_numbers(ls_fields *f, const ls_config_key *row, const cJSON *node,
                          const char *unit)
{
    const cJSON *item = cJSON_IsArray(node) ? node->child : node;
    check_brackets(f, row, node);
    if (cJSON_IsArray(node) && !item)
        ls_fields_fail(f, node, "%s: expected numbers, found none", row->key);
    for (; item; item = cJSON_IsArray(node) ? item->next : NULL)
        if (!cJSON_IsNumber(item) || item->valuedouble < row->min || item->valuedouble > row->max)
            ls_fields_fail(f, item, "%s: expected numbers from %g to %g%s", row->key, row->min,
                           row->max, unit);
}

/* Returns whether the config sets the key, and not only a file that Lockstep wrote, which has all
 * keys. Only a key of such a file has a place in the text; an assignment of the caller's has none.
 */
static bool is_chosen(const ls_config *c, const ls_fields *f, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(f->object, key);
    int line, column;
    return node && !(c->written && ls_json_where(f->doc, node, false, &line, &column) == LS_OK);
}

/* Returns the rule that data.pictures names; NULL: none. */
static const ls_picture_rule *rule_of(const ls_config *c)
{
    return ls_picture_rule_named(c->data_keys.pictures);
}

/* Fails because the key has another value than data.pictures gives it. */
static void fail_rule(const ls_config *c, ls_fields *f, const cJSON *node, const char *key)
{
    ls_fields_fail(f, node,
                   "%s: contradicts data.pictures \"%s\", which has a value for it; remove one of "
                   "the two",
                   key, c->data_keys.pictures);
}

static void read_pictures(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    const char *none = NULL;
    ls_field_text(f, row->key, &none, &c->data_keys.pictures);
    if (c->data_keys.pictures && !rule_of(c))
        ls_fields_fail(f, node, "pictures: expected \"%s\", found \"%.40s\"", ls_imagenet_rule.name,
                       c->data_keys.pictures);
}

/* Reads data.resize or data.crop: one size in pixels, or [height, width]. */
static void read_sides(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    int *side = value_of(c, row);
    const ls_picture_rule *rule = rule_of(c);
    const int fallback = !rule ? 0 : side == c->data_keys.crop ? rule->crop : rule->resize.height;
    side[0] = fallback;
    side[1] = 0;
    if (node)
        ls_prep_read_sides(f, row->key, node, side);
    if (rule && (side[0] != fallback || side[1]))
        fail_rule(c, f, node, row->key);
}

static void write_sides(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const int *side = value_in(c, row);
    if (side[0])
        ls_prep_write_sides(w, row->key, side[0], side[1]);
}

/* Default of data.image_size. It is not refused beside another rule for the size, because every
 * config and receipt that Lockstep writes has it. */
enum { IMAGE_SIZE = 32 };

/* Reads data.interpolation, and checks that the keys about pictures, of which it is the last, go
 * together. */
static void read_interpolation(ls_config *c, ls_fields *f, const ls_config_key *row,
                               const cJSON *node)
{
    static const int bilinear = LS_PREP_BILINEAR;
    const ls_picture_rule *rule = rule_of(c);
    ls_data_keys *k = &c->data_keys;
    const cJSON *resize = cJSON_GetObjectItemCaseSensitive(f->object, "resize"),
                *crop = cJSON_GetObjectItemCaseSensitive(f->object, "crop");
    ls_field_choice(f, row->key, ls_interpolation_names,
                    rule ? &rule->resize.interpolation : &bilinear, &k->resize.interpolation);
    if (rule && k->resize.interpolation != rule->resize.interpolation)
        fail_rule(c, f, node, row->key);
    if (rule && k->channels != rule->channels)
        fail_rule(c, f, cJSON_GetObjectItemCaseSensitive(f->object, "channels"), "channels");
    if (k->crop[0] && !k->resize.height)
        ls_fields_fail(f, crop, "crop: cuts out the centre of resized pictures; set data.resize");
    else if (node && !k->resize.height)
        ls_fields_fail(f, node, "interpolation: is how pictures are resized; set data.resize");
    else if (k->resize.height && k->image_size != IMAGE_SIZE && is_chosen(c, f, "image_size"))
        ls_fields_fail(f, cJSON_GetObjectItemCaseSensitive(f->object, "image_size"),
                       "image_size: another rule than %s for the size of pictures; remove one of "
                       "the two",
                       resize ? "data.resize" : "data.pictures");
    else if (k->resize.height && !k->resize.width && !k->crop[0])
        ls_fields_fail(f, resize,
                       "resize: %d is the size of the shorter side, so the longer sides differ; "
                       "set data.crop as well, or [height, width] here",
                       k->resize.height);
    else if (!ls_prep_covers(&k->resize, k->crop[0], k->crop[1] ? k->crop[1] : k->crop[0]))
        ls_fields_fail(f, crop,
                       "crop: larger than the resized pictures; expected at most %d×%d "
                       "(height × width), the size of data.resize",
                       k->resize.height, k->resize.width ? k->resize.width : k->resize.height);
}

static void write_interpolation(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const ls_prep_resize *r = &c->data_keys.resize;
    if (r->height)
        ls_json_put_string(w, row->key, ls_interpolation_names[r->interpolation]);
}

/* Reads one number for all channels, or an array with a number for each channel. If the array is
 * shorter than the number of channels, its last number is used for the remaining ones. An array of
 * more than four numbers is stored as it is; the rows must then have as many channels. */
static void read_channels(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    float *out = value_of(c, row);
    const int count = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : 1;
    const ls_picture_rule *rule = rule_of(c);
    const float *ruled = !rule ? NULL : strcmp(row->key, "mean") == 0 ? rule->mean : rule->std;
    for (int i = 0; i < 4; i++)
        out[i] = ruled ? ruled[i] : (float)row->fallback;
    if (node)
        check_numbers(f, row, node, ", in units of the full pixel range");
    *list_of(c, row) = count > 4 ? node : NULL;
    for (int i = 0; i < 4 && node && count <= 4 && f->status == LS_OK; i++) {
        const cJSON *value =
            cJSON_IsArray(node) ? cJSON_GetArrayItem(node, i < count ? i : count - 1) : node;
        out[i] = (float)value->valuedouble;
    }
    for (int i = 0; i < 4 && ruled; i++)
        if (count > 4 || out[i] != ruled[i])
            fail_rule(c, f, node, row->key);
}

/* Reads the fixed scale of targets: a number, or a list of numbers. */
static void read_scale(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    if (node)
        check_numbers(f, row, node, "");
    *(const cJSON **)value_of(c, row) = node;
}

static void write_scale(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const cJSON *node = *(const cJSON *const *)value_in(c, row);
    if (node)
        ls_json_put_node(w, row->key, node);
}

static void write_channels(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    const float *values = value_in(c, row);
    const cJSON *list = strcmp(row->key, "mean") == 0 ? c->data_keys.mean : c->data_keys.std;
    if (list) {
        ls_json_put_node(w, row->key, list);
        return;
    }
    ls_json_open_array(w, row->key);
    for (int i = 0; i < 4; i++)
        ls_json_put_float(w, NULL, values[i]);
    ls_json_close(w);
}

/* Reads checkpoint.every_seconds. Who chooses after how many steps or epochs checkpoints are saved,
 * but no time, gets them at once. */
static void read_every_seconds(ls_config *c, ls_fields *f, const ls_config_key *row,
                               const cJSON *node)
{
    const bool chosen = is_chosen(c, f, "every_steps") || is_chosen(c, f, "every_epochs");
    const double fallback = chosen || (c->written && !node) ? 0 : row->fallback;
    double *out = value_of(c, row);
    ls_field_double(f, row->key, row->min, row->max, &fallback, out);
    if (chosen && !is_chosen(c, f, row->key))
        *out = 0;
}

static void write_number(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_json_put_double(w, row->key, *(const double *)value_in(c, row));
}

/* in the order of ls_final_weights */
static const char *const finals[] = {"last", "best", NULL};

/* Reads checkpoint.final, after checkpoint.best, which it sets. */
static void read_final(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    static const int last = LS_FINAL_LAST;
    ls_field_choice(f, row->key, finals, &last, &c->checkpoint.final);
    if (f->status || c->checkpoint.final == LS_FINAL_LAST)
        return;
    if (!c->checkpoint.best && is_chosen(c, f, "best"))
        ls_fields_fail(f, node,
                       "expected \"last\", because checkpoint.best is false: the weights of the "
                       "best evaluation are those of its checkpoint; remove checkpoint.best");
    c->checkpoint.best = 1;
}

static void write_final(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_json_put_string(w, row->key, finals[c->checkpoint.final]);
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

/* Returns whether the number of shards is worth while (see ls_shards_for). For two shards the
 * condition is weaker, because with a single shard a second worker has nothing to compute. */
static bool pays(int rows, double uses, double weights, int shards)
{
    if (rows / shards < LS_SHARD_ROWS)
        return false;
    const double used = rows * uses / shards;
    if (shards > 2)
        return used >= 2 * LS_SHARD_USES;
    return used >= LS_SHARD_USES || used * weights >= LS_SHARD_PRODUCTS;
}

/* Returns the number of packets of sixteen rows in the largest shard. Its last packet may have
 * fewer rows. */
static int packets_of(int rows, int shards)
{
    return ((rows + shards - 1) / shards + LS_SHARD_ROWS - 1) / LS_SHARD_ROWS;
}

/* Returns whether a minibatch of `rows` rows has fewer packets in total if it is divided into `a`
 * shards than into `b`, and the busiest worker has no more packets, in a run with two workers and
 * in a run with eight. */
static bool wastes_less(int rows, int a, int b)
{
    const int in_a = packets_of(rows, a), in_b = packets_of(rows, b);
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
            n * packets_of(rows, n) <= best * packets_of(rows, best))
            best = n;
    return best;
}

double ls_uses_of_weights(const ls_network *model)
{
    double uses = 0;
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *layer = &model->layer[i];
        for (int k = 0; k < layer->params; k++)
            uses += (double)layer->param[k].count * layer->out.h * layer->out.w;
    }
    return uses / (double)model->parameters;
}

int ls_shards_of(int rows, const ls_network *model)
{
    return ls_shards_for(rows, ls_uses_of_weights(model), (double)model->parameters);
}

int ls_config_shards(const ls_config *c, const ls_network *model)
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

/* Reads run_dir. The value is NULL if the key is absent; the run then creates a directory below
 * runs/. It is "" if the key is null or ""; the run then has no directory. */
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
    *names = (ls_names){0};
    if (cJSON_IsString(node))
        names->text = node->valuestring;
    else
        names->list = node;
    if (!node || is_name(node))
        return;
    if (!several || !cJSON_IsArray(node)) {
        ls_fields_fail(f, node, "%s: expected the name of a column%s, found %s%s", row->key,
                       several ? ", or a list of names" : "", ls_json_kind(node),
                       cJSON_IsArray(node) ? "; " LS_ONE_TARGET : "");
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

/* Stores the JSON value of the key. It is interpreted later, when the model is known. */
static void read_node(ls_config *c, ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    if (strcmp(row->key, "model") != 0 && strcmp(row->key, "lr_factors") != 0)
        check_brackets(f, row, node);
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
    c->optimizer = (ls_optimizer){0};
    if (node)
        f->status = ls_optimizer_parse(&c->optimizer, f->doc, node, f->err);
}

static void write_optimizer(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    if (c->optimizer.type)
        ls_optimizer_write(w, row->key, &c->optimizer);
}

/* Reads init: a rule, or {"weights": FILE, "partial": true}. An object with "weights" may also have
 * the keys of a rule. With "partial", the rule computes the parameters that the file does not have.
 * Without "partial" the rule is ignored: it was in the config before --set init.weights=FILE was
 * applied. */
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

/* Reads data.standardize or data.standardize_target. The value is −1 if the user's config does not
 * have the key; ls_config_standardizes then computes the default. If Lockstep wrote the config and
 * the key is absent, the value is 0, because the version that wrote it did not standardise. */
static void read_standardize(ls_config *c, ls_fields *f, const ls_config_key *row,
                             const cJSON *node)
{
    const int unset = c->written ? 0 : -1;
    (void)node;
    ls_field_bool(f, row->key, &unset, value_of(c, row));
}

bool ls_config_standardizes(const ls_config *c, const char *key, int set)
{
    ls_error unused;
    const ls_dataset_spec spec = {.name = c->data_name};
    const ls_dataset_form form = ls_dataset_form_of(c->data_name);
    if (set >= 0)
        return set > 0;
    if (strcmp(key, "standardize") == 0)
        return form == LS_DATA_TABLE;
    /* `loss` is known when the data is */
    return form == LS_DATA_OF_CALLER ? !c->loss || c->loss->vectors
                                     : ls_dataset_check_key(&spec, key, &unused) == LS_OK;
}

static void write_standardize(ls_json_writer *w, const ls_config *c, const ls_config_key *row)
{
    ls_json_put_bool(w, row->key,
                     ls_config_standardizes(c, row->key, *(const int *)value_in(c, row)));
}

/* Refuses a text that is the name of no loss. Whether a loss fits the data is decided when the data
 * is known (ls_config_fit_data). */
static void check_loss(ls_fields *f, const ls_config_key *row, const cJSON *node)
{
    enum { MOST = 16 };
    const char *name[MOST + 1] = {"auto"};
    int ignored;
    for (int i = 0; ls_losses[i].name && i + 1 < MOST; i++)
        name[i + 1] = ls_losses[i].name;
    ls_field_is_choice(f, row->key, node, name, &ignored);
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
    case LS_KEY_CUSTOM:
        if (row->read == read_standardize)
            return !c->written && *(const int *)value > 0;
        if (row->read == read_sides)
            return *(const int *)value != 0;
        if (row->read == read_pictures)
            return *(const char *const *)value != NULL;
        if (row->read == read_interpolation)
            return *(const int *)value != LS_PREP_BILINEAR;
        if (row->read == read_scale)
            return *(const cJSON *const *)value != NULL;
        return row->read == read_names &&
               (((const ls_names *)value)->text || ((const ls_names *)value)->list);
    default: return *(const int *)value != (int)row->fallback;
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static const char *const precisions[] = {"fp32", "tf32", "bf16", NULL}; /* order of ls_precision */
static const char *const scalings[] = {"none", "linear", NULL};
static const char *const divisors[] = {"batch", "nominal", NULL};
static const char *const at_loss[] = {"continue", "stop", NULL};
/* in the order of ls_label_form */
static const char *const label_forms[] = {"auto", "classes", "values", NULL};
static const char *const at_missing[] = {"refuse", "zero", "mean", NULL}; /* order of ls_missing */
static const char *const decimals[] = {"auto", ".", ",", NULL};           /* order of ls_decimal */
static const char *const encodings[] = {"utf-8", "latin-1", NULL};
/* in the order of ls_row_layout */
static const char *const layouts[] = {"channels_first", "channels_last", NULL};
static const char *const transports[] = {"auto", "none", "mpi",
                                         NULL}; /* order of ls_process_transport */
static const char *const at_host_loss[] = {"stop", "continue", NULL};
static const char *const at_arrival[] = {"refuse", "admit", NULL};
static const char *const at_nonfinite[] = {"stop", "skip", NULL};

const ls_config_key ls_config_keys[] = {
    {"", "name", LS_KEY_CUSTOM, LS_NOT_RECIPE, AT(name), .text = "\"run\"", .read = read_name,
     .write = write_text, .help = "part of the run directory's name"},
    {"data", "name", LS_KEY_TEXT, LS_RECIPE_OF_MODEL, AT(data_name), .text = "fashion_mnist",
     .help = "which data: built in are `fashion_mnist`, `mnist`, `emnist` (ByClass), `cifar10` "
             "and `cifar100` (binary files) and `synthetic`; data of your own are `npy`, "
             "`safetensors`, `csv` or `folder` ([data.md](data.md))"},
    {"data", "path", LS_KEY_TEXT, LS_NOT_RECIPE, AT(data_path),
     .help = "directory that contains the files; for `csv` and `safetensors`, the file itself; "
             "absent: the files are searched for in `$LOCKSTEP_DATA`, `$XDG_DATA_HOME/datasets` "
             "and `/usr/share/datasets`"},
    {"data", "limit", LS_KEY_INT, LS_RECIPE, AT(data_limit), 0, 0, INT_MAX,
     .help = "number of training rows that are used, from the first on; 0: all. Of a `csv` only "
             "these rows are parsed: classes and texts that occur only in later rows are unknown, "
             "and damage in them is not found"},
    {"data", "x", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.x), .begins = true,
     .help = "`npy`: file of the training rows; `safetensors`: name of their tensor (default `x`)"},
    {"data", "y", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.y), .begins = true,
     .help = "file or tensor of the training rows' targets (default `y`)"},
    {"data", "test_x", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.test_x), .begins = true,
     .help = "file or tensor of the test rows (default `test_x`)"},
    {"data", "test_y", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.test_y), .begins = true,
     .help = "file or tensor of the test rows' targets (default `test_y`)"},
    {"data", "test_path", LS_KEY_TEXT, LS_NOT_RECIPE, AT(data_keys.test_path),
     .help = "`csv`, `folder`: file or directory of the test rows"},
    {"data", "target", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.target), FORM(names),
     .help = "`csv`: name of the column that is predicted"},
    {"data", "weight", LS_KEY_TEXT, LS_RECIPE_OF_MODEL, AT(data_keys.weight),
     .help = "`csv`: name of the column with the weights of the rows; it is no input. Absent: all "
             "weights are 1 ([weights](data.md#weights-of-rows))"},
    {"data", "categorical", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.categorical), 0, 1, FORM(names),
     .help = "`csv`: names of columns that are one-hot encoded although their first value is a "
             "number; a list, or a text with commas"},
    {"data", "drop", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.drop), 0, 1, FORM(names),
     .help = "`csv`: names of columns that are ignored; a list, or a text with commas"},
    {"data", "separator", LS_KEY_TEXT, LS_RECIPE, AT(data_keys.separator),
     .help = "`csv`: separator of the fields: `,`, `;`, `tab`, `bar` or `space`; absent: detected "
             "in the header"},
    {"data", "decimal", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.decimal), .choices = decimals,
     .help = "`csv`: decimal separator; `\"auto\"`: detected for each column, and a column whose "
             "numbers can be read in both ways is refused"},
    {"data", "encoding", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.latin1), .choices = encodings,
     .help = "`csv`: `\"latin-1\"` (Windows-1252) for a table that is not UTF-8; UTF-16 is "
             "detected by its byte order mark"},
    {"data", "standardize", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.standardize), .text = "true",
     FORM(standardize),
     .help = "numbers become (value − mean) / deviation, each column or channel by its own "
             "over the training rows; the default is `true` for a `csv` and `false` for "
             "others ([scaling](data.md#scaling))"},
    {"data", "clip", LS_KEY_NUMBER, LS_RECIPE, AT(data_keys.clip), 0, 0, 1e6,
     .help = "tables, and rows without height and width of arrays and of a program: standardised "
             "numbers are limited to −`clip` … `clip`, so that a single extreme value does not "
             "dominate a prediction; 0: no limit; the verb `init` writes 10"},
    {"data", "standardize_target", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.standardize_target),
     .text = "true", FORM(standardize),
     .help = "targets become (target − mean) / deviation, with the losses `mse`, `mae`, "
             "`huber` and `quantile`; predictions are in the unit of the target "
             "([scaling](data.md#scaling))"},
    {"data", "target_mean", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.target_mean), 0, -1e300, 1e300,
     FORM(scale),
     .help = "fixed mean for `data.standardize_target`: one number, or one for each target of a "
             "row; absent: computed from the training rows, or 0 beside `data.target_std`"},
    {"data", "target_std", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.target_std), 1, 1e-300, 1e300,
     FORM(scale),
     .help = "fixed deviation, as `data.target_mean`; absent: computed, or 1 beside "
             "`data.target_mean`"},
    {"data", "scale_rows", LS_KEY_INT, LS_RECIPE, AT(data_keys.scale_rows), 1000, 1, INT_MAX,
     .help = "a program's own streamed rows: number of rows, from the first on, from which means "
             "and deviations are computed; they then stay as they are"},
    {"data", "labels", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.labels), .choices = label_forms,
     .help = "how targets are used: as `\"classes\"` or as `\"values\"`; `\"auto\"`: as classes "
             "in a `csv`, and elsewhere if there is one whole number for each row; otherwise, and "
             "with a `loss` of vectors, as values"},
    {"data", "classes", LS_KEY_INT, LS_RECIPE, AT(data_keys.classes), 0, 0, INT_MAX,
     .help = "number of classes; 0: as many as the training rows have"},
    {"data", "missing", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.missing), .choices = at_missing,
     .former = "on_nan",
     .help = "what happens to a missing value (an empty field or NaN): `\"refuse\"`: it is an "
             "error; `\"zero\"`: it becomes 0; `\"mean\"`: it becomes the mean of its column over "
             "the training rows"},
    {"data", "unknown", LS_KEY_CHOICE, LS_NOT_RECIPE, AT(data_keys.unknown), .judges = true,
     .choices = ls_prep_unknown_names,
     .help = "`csv`: what becomes of a row with a text that no training row has: `\"empty\"`: "
             "it has no prediction; `\"zeros\"`: the text becomes zeros; `\"error\"`: it is "
             "an error ([unknown values](data.md#unknown-values))"},
    {"data", "packed", LS_KEY_TEXT, LS_NOT_RECIPE, AT(data_keys.packed),
     .help = "`folder`: file that contains the packed images; the program sets it"},
    {"data", "image_size", LS_KEY_INT, LS_RECIPE, AT(data_keys.image_size), IMAGE_SIZE, 1, 4096,
     .former = "size",
     .help = "`folder`: height and width in pixels to which images are resized and cropped"},
    {"data", "channels", LS_KEY_INT, LS_RECIPE, AT(data_keys.channels), 3, 1, 3,
     .help = "`folder`: 3 for colour, 1 for grey"},
    {"data", "pictures", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.pictures), .read = read_pictures,
     .write = write_text,
     .help = "`folder`: `\"imagenet\"` sets `resize`, `crop`, `interpolation`, `channels`, "
             "`mean` and `std` as most networks that were trained on ImageNet want them "
             "([values](pictures.md#pictures-as-a-network-wants-them))"},
    {"data", "resize", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.resize.height), FORM(sides),
     .help = "`folder`, instead of `data.image_size`: size in pixels to which images are resized, "
             "with the bytes of Pillow: one number for the shorter side, or [height, width]"},
    {"data", "crop", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.crop), FORM(sides),
     .help = "`folder`, with `data.resize`: height and width of the centre that is cut out of a "
             "resized image: one number, or [height, width]; absent: the whole image"},
    {"data", "interpolation", LS_KEY_CUSTOM, LS_RECIPE, AT(data_keys.resize.interpolation),
     .text = "\"bilinear\"", FORM(interpolation),
     .help = "`folder`, with `data.resize`: filter of the resizing, `\"bilinear\"` or "
             "`\"bicubic\"`"},
    {"data", "skip_broken", LS_KEY_BOOL, LS_RECIPE, AT(data_keys.skip_broken),
     .help = "`folder`: images that cannot be read are skipped, counted and named; otherwise they "
             "end the run"},
    {"data", "layout", LS_KEY_CHOICE, LS_RECIPE, AT(data_keys.layout), .choices = layouts,
     .help = "`npy`, `safetensors`: position of the channels in rows of three dimensions"},
    {"data", "validation", LS_KEY_NUMBER, LS_RECIPE, AT(data_keys.validation), 0, 0, 1,
     .help = "share of each class's training rows that is held out: the run does not train on "
             "these rows, but is evaluated on them. They are drawn with `seed`. Only the verb "
             "`eval` uses the test rows then"},
    {"data", "fold", LS_KEY_INT, LS_RECIPE, AT(data_keys.fold), 0, 0, 10000,
     .help = "with `data.validation` 1 / k: which of k parts of the training rows is held "
             "out, 1 to k; `--folds k` trains once for each part; 0: the rows are drawn"},
    {"data", "mean", LS_KEY_CUSTOM, LS_RECIPE_OF_MODEL, AT(preprocessing.mean), 0, -1e6, 1e6,
     .text = "0", FORM(channels),
     .help = "normalisation: bytes become (byte / 255 − mean) / std, floats (value − mean) / std; "
             "one number, or one for each channel; floats may have any number of channels (the "
             "features of rows without height and width)"},
    {"data", "std", LS_KEY_CUSTOM, LS_RECIPE_OF_MODEL, AT(preprocessing.std), 1, 1e-6, 1e6,
     .text = "1", FORM(channels), .help = "see `data.mean`"},
    {"", "model", LS_KEY_CUSTOM, LS_RECIPE_OF_MODEL, AT(model), .text = "required", FORM(node),
     .help = "the model: `{\"name\": …, \"layers\": […]}`, or the path of a file with such an "
             "object, relative to the config ([layers.md](layers.md)); or `{\"onnx\": "
             "\"FILE.onnx\"}`: layers and first weights of an ONNX file "
             "([layers.md](layers.md#models-from-onnx-files))"},
    {"", "batch_size", LS_KEY_INT, LS_RECIPE, AT(batch_size), 256, 1, MOST_ROWS,
     .help = "number of rows of a minibatch, that is of a step over all devices"},
    {"", "seed", LS_KEY_CUSTOM, LS_RECIPE, AT(seed), 0, 0, 9007199254740992.0 /* 2⁵³ */,
     .text = "0", FORM(seed), .help = "seed of all random numbers"},
    {"", "init", LS_KEY_CUSTOM, LS_RECIPE, .text = "\"kaiming\"", FORM(init), .begins = true,
     .help = "first weights: `\"kaiming\"` or `\"he\"`; `\"xavier\"` or `\"glorot\"`; "
             "`{\"name\": \"normal\", \"std\": 0.01}`; or those of a file, `{\"weights\": "
             "\"FILE.safetensors\"}` ([first weights](config.md#model-and-first-weights))"},
    {"", "optimizer", LS_KEY_CUSTOM, LS_RECIPE, .text = "required", FORM(optimizer),
     .help = "`{\"name\": \"sgd\", \"lr\": …, \"momentum\": 0, \"weight_decay\": 0, \"nesterov\": "
             "false}`, or `{\"name\": \"adamw\", \"lr\": …, \"beta1\": 0.9, \"beta2\": 0.999, "
             "\"epsilon\": 1e-8, \"weight_decay\": 0.01}`; both take `\"clip_norm\"`, the largest "
             "norm of the gradient (0: no limit)"},
    {"", "freeze", LS_KEY_CUSTOM, LS_RECIPE, AT(freeze), FORM(node),
     .help = "patterns of the names of parameters that are not trained, such as "
             "`[\"conv1.*\", \"bn*\"]`; a pattern with `!` takes parameters out again ([first "
             "weights](config.md#model-and-first-weights))"},
    {"", "freeze_epochs", LS_KEY_INT, LS_RECIPE, AT(freeze_epochs), 0, 0, 1000000,
     .help = "number of epochs after which the parameters that `freeze` names are trained too. The "
             "optimizer then begins anew, with the weights as they are and momentum 0. 0: they are "
             "frozen in the whole run"},
    {"", "lr_factors", LS_KEY_CUSTOM, LS_RECIPE, AT(lr_factors), FORM(node),
     .help = "factors of the learning rate for parameters whose names match a pattern: "
             "`{\"fc.*\": 10}`. If several patterns match a name, the last one counts; the factors "
             "are not multiplied"},
    {"", "ema", LS_KEY_NUMBER, LS_RECIPE, AT(optimizer.ema), 0, 0, 0.9999999,
     .help = "decay of an exponential moving average of the weights, such as 0.999: each step "
             "keeps this share of the average. The average starts at the first weights, and is "
             "what is evaluated, saved and used to predict; 0: none"},
    {"", "schedule", LS_KEY_CUSTOM, LS_RECIPE, .text = "\"constant\"", FORM(schedule),
     .help = "the learning rate over the run: `\"constant\"`, or such as `{\"name\": "
             "\"cosine\", \"warmup_epochs\": 1}` ([schedules](config.md#schedules))"},
    {"", "lr_scaling", LS_KEY_CHOICE, LS_RECIPE, AT(linear_scaling), .choices = scalings,
     .help = "`\"linear\"`: `optimizer.lr` is the rate for 256 rows, and is multiplied by "
             "`batch_size` / 256"},
    {"", "loss", LS_KEY_TEXT, LS_RECIPE_OF_MODEL, AT(loss_name), .text = "auto",
     .check = check_loss,
     .help = "`cross_entropy` for classes; `mse` for vectors of values, or `bce` for vectors "
             "of yes-or-no targets (1 and 0, or values between); `auto`: the first of these "
             "that fits the data. For values also `mae`, `huber`, `quantile` and `poisson` "
             "([losses](config.md#losses-of-values))"},
    {"", "huber_delta", LS_KEY_NUMBER, LS_RECIPE_OF_MODEL, AT(huber_delta), 1, 1e-9, 1e9,
     .help = "`huber` only: the distance between output and target from which the loss grows "
             "linearly; in standard deviations of the target if it is standardised "
             "(`data.standardize_target`)"},
    {"", "quantiles", LS_KEY_CUSTOM, LS_RECIPE_OF_MODEL, AT(quantiles), FORM(node),
     .help = "`quantile` only, and required there: a number between 0 and 1, or an ascending list "
             "of up to 16; the network has an output for each quantile of each target"},
    {"", "label_smoothing", LS_KEY_NUMBER, LS_RECIPE_OF_MODEL, AT(label_smoothing), 0, 0, 1,
     .help = "share of the target that is divided equally among all classes"},
    {"", "class_weights", LS_KEY_CUSTOM, LS_RECIPE_OF_MODEL, AT(class_weights), FORM(node),
     .help = "`cross_entropy` only: a list of one factor for each class, by which the loss of "
             "a row of that class is multiplied; or `\"balanced\"` ([weights of "
             "classes](config.md#weights-of-classes))"},
    {"augment", "crop", LS_KEY_INT, LS_RECIPE, AT(preprocessing.crop), 0, 0, 64,
     .help = "training images are shifted by up to this many pixels in each direction"},
    {"augment", "flip", LS_KEY_BOOL, LS_RECIPE, AT(preprocessing.flip),
     .help = "training images are mirrored with probability one half"},
    {"augment", "rotate", LS_KEY_INT, LS_RECIPE, AT(preprocessing.rotate), 0, 0, 45,
     .help = "training images are rotated about their centre by up to this many degrees"},
    {"augment", "erase", LS_KEY_INT, LS_RECIPE, AT(preprocessing.erase), 0, 0, 4096,
     .help =
         "side in pixels of a square, at a random position in a training image, that becomes 0"},
    {"augment", "brightness", LS_KEY_NUMBER, LS_RECIPE, AT(brightness), 0, 0, 1,
     .help = "largest relative change of the brightness of training images: 0.2 multiplies pixels "
             "by 0.8 to 1.2"},
    {"augment", "resized_crop", LS_KEY_NUMBER, LS_RECIPE, AT(resized_crop), 0, 0, 1,
     .help = "smallest share of the area of a random part of a training image that is enlarged to "
             "the whole image; its ratio of width to height is from 3:4 to 4:3. 0.08 is usual for "
             "networks of ImageNet; 0: images are not enlarged"},
    {"augment", "mixup", LS_KEY_NUMBER, LS_RECIPE, AT(mixup), 0, 0, 0.5,
     .help = "largest share of the next row of the shard that is mixed into a training row; "
             "the share is drawn for each row ([augmentation](pictures.md#augmentation))"},
    {"", "gradient_scale", LS_KEY_CHOICE, LS_RECIPE, AT(nominal), .choices = divisors,
     .former = "normalize",
     .help = "divisor of the summed gradient. `\"batch\"`: the number of rows of the minibatch; "
             "`\"nominal\"`: always `batch_size`. The two differ only if the last minibatch of an "
             "epoch is smaller"},
    {"", "precision", LS_KEY_CHOICE, LS_RECIPE, AT(precision), .choices = precisions,
     .help = "precision of matrix products on GPUs: `\"tf32\"` or `\"bf16\"` instead of "
             "`\"fp32\"`; weights stay fp32, and CPUs compute in fp32 ([errors](gpu.md))"},
    {"", "allreduce", LS_KEY_TEXT, LS_RECIPE, AT(allreduce), .text = "ordered",
     .help = "how gradients are added: `ordered` or `naive`; on GPUs also `nccl` or `local` "
             "([how gradients are added](config.md#how-gradients-are-added))"},
    {"", "on_nonfinite", LS_KEY_CHOICE, LS_RECIPE, AT(skip_nonfinite), .choices = at_nonfinite,
     .help = "what happens if a loss is not finite: `\"stop\"`: the run stops; `\"skip\"`: the "
             "weights are not updated in this step"},
    {"", "shards", LS_KEY_CUSTOM, LS_RECIPE, AT(shards), .text = "1 to 8", FORM(shards),
     .help = "number of parts into which each minibatch is divided, on which the weights "
             "depend; `\"devices\"`: one for each device; absent: 1 to 8, by the rows and the "
             "model ([minibatch](config.md#minibatch-and-seed)); with 1, one worker computes"},
    {"", "epochs", LS_KEY_INT, LS_RECIPE_OF_LENGTH, AT(epochs), 10, 1, 1000000, .judges = true,
     .help = "number of passes over the training rows"},
    {"", "devices", LS_KEY_TEXT, LS_NOT_RECIPE, AT(devices), .text = "auto",
     .help = "devices to train on, as for the option `--devices`"},
    {"", "threads", LS_KEY_INT, LS_NOT_RECIPE, AT(threads), 0, 0, 1024,
     .help = "number of threads of each CPU worker; the weights do not depend on it; 0: one; or, "
             "if `devices` is `auto` and there are more cores than shards, an equal part of the "
             "cores"},
    {"", "capacity", LS_KEY_CUSTOM, LS_NOT_RECIPE, FORM(capacity),
     .help = "list of one number for each device: the device's relative speed. Shards are "
             "distributed in proportion; the weights do not depend on it"},
    {"", "eval_every", LS_KEY_INT, LS_NOT_RECIPE, AT(eval_every), 1, 0, 1000000, .judges = true,
     .help = "number of epochs between evaluations; 0: only after the last epoch"},
    {"checkpoint", "every_steps", LS_KEY_INT, LS_NOT_RECIPE, AT(checkpoint.every_steps), 0, 0,
     INT_MAX,
     .help = "a checkpoint is saved after every so many steps; 0: not after a number of steps"},
    {"checkpoint", "every_epochs", LS_KEY_INT, LS_NOT_RECIPE, AT(checkpoint.every_epochs), 1, 0,
     1000000,
     .help = "a checkpoint is saved after every so many epochs; 0: not after a number of epochs. "
             "Another one is saved at the end of the run and on Ctrl-C"},
    {"checkpoint", "every_seconds", LS_KEY_CUSTOM, LS_NOT_RECIPE, AT(checkpoint.every_seconds), 10,
     0, 86400, .text = "10", .read = read_every_seconds, .write = write_number,
     .help = "time in seconds for which a checkpoint that is due is kept in memory after the "
             "last one was written; 0: it is written at once, the default if the config sets "
             "`every_steps` or `every_epochs` "
             "([checkpoints](config.md#evaluation-the-best-checkpoint-early-stopping))"},
    {"checkpoint", "keep", LS_KEY_INT, LS_NOT_RECIPE, AT(checkpoint.keep), 2, 1, 1000000,
     .help = "number of checkpoints that are kept; the oldest ones are deleted"},
    {"checkpoint", "async", LS_KEY_BOOL, LS_NOT_RECIPE, AT(checkpoint.async), 1,
     .help = "training continues while a checkpoint is written"},
    {"checkpoint", "best", LS_KEY_BOOL, LS_NOT_RECIPE, AT(checkpoint.best),
     .help = "the checkpoint of the best evaluation is also kept, for `eval RUN --best`"},
    {"checkpoint", "final", LS_KEY_CUSTOM, LS_NOT_RECIPE, AT(checkpoint.final), .text = "\"last\"",
     .read = read_final, .write = write_final,
     .help = "the weights that `weights.safetensors` gets when the run ends: `\"last\"`, or "
             "`\"best\"`, those of the best evaluation by `monitor` "
             "([which](config.md#evaluation-the-best-checkpoint-early-stopping))"},
    {"", "monitor", LS_KEY_TEXT, LS_NOT_RECIPE, AT(monitor_name), .text = "auto", .judges = true,
     .help = "metric by which the best evaluation is found: `loss`, or a measured metric that is "
             "a number; `auto`: `accuracy` if the loss has one, else `loss`"},
    {"", "patience", LS_KEY_INT, LS_NOT_RECIPE, AT(patience), 0, 0, 1000000, .judges = true,
     .help = "the run ends after this many evaluations in a row that are not better than the best "
             "one; 0: never"},
    {"metrics", "tensorboard", LS_KEY_BOOL, LS_NOT_RECIPE, AT(tensorboard),
     .help = "writes event files to the run directory, for `tensorboard --logdir runs`"},
    {"metrics", "names", LS_KEY_CUSTOM, LS_NOT_RECIPE, AT(metric_names), .text = "\"auto\"",
     .judges = true, FORM(node),
     .help = "metrics that evaluations measure besides the loss, such as `[\"accuracy\", "
             "\"top5\", \"confusion\"]`; `\"auto\"`: those that fit the loss "
             "([metrics](config.md#metrics))"},
    {"", "deadline_s", LS_KEY_NUMBER, LS_NOT_RECIPE, AT(deadline_s), 0, 0, 86400,
     .help = "time in seconds after which a worker that makes no progress counts as failed; "
             "0: 20 times the longest step so far, at least 10 s"},
    {"", "verify_every_steps", LS_KEY_INT, LS_NOT_RECIPE, AT(verify_every_steps), 0, 0, INT_MAX,
     .help = "number of steps between checks that all devices have the same weights, besides "
             "those at checkpoints and at the end of each epoch "
             "([failures](config.md#failures-and-several-hosts))"},
    {"", "on_device_loss", LS_KEY_CHOICE, LS_NOT_RECIPE, AT(stop_on_device_loss),
     .choices = at_loss,
     .help = "what happens if a device is lost: `\"continue\"`: the other devices take over its "
             "shards and repeat the step; `\"stop\"`: the run saves a checkpoint and stops"},
    {"cluster", "transport", LS_KEY_CHOICE, LS_NOT_RECIPE, AT(cluster.transport),
     .choices = transports, .former = "engine",
     .help = "library that connects processes: `\"mpi\"`; `\"auto\"`: MPI if a launcher has "
             "started more than one process; `\"none\"`: each process trains alone"},
    {"cluster", "deadline_s", LS_KEY_NUMBER, LS_NOT_RECIPE, AT(cluster.deadline_s), 0, 0, 86400,
     .help = "time in seconds after which a host that does not answer counts as lost; 0: 30 s"},
    {"cluster", "on_host_loss", LS_KEY_CHOICE, LS_NOT_RECIPE, AT(cluster.survives_loss),
     .choices = at_host_loss, .former = "on_member_loss",
     .help = "what happens if a host is lost: `\"stop\"`: the other hosts save a checkpoint "
             "and stop; `\"continue\"`: they take over its shards and repeat the step, if "
             "they are the majority ([hosts](hosts.md))"},
    {"cluster", "on_arrival", LS_KEY_CHOICE, LS_NOT_RECIPE, AT(cluster.admits),
     .choices = at_arrival,
     .help = "what happens if another host wants to join a run that has begun. `\"refuse\"`: it "
             "is refused; `\"admit\"`, with `on_host_loss` `\"continue\"`: it waits until the end "
             "of the epoch and then takes part ([hosts](hosts.md#adding-a-host))"},
    {"", "receipt", LS_KEY_BOOL, LS_NOT_RECIPE, AT(receipt),
     .help = "the run can be [verified](verify.md): its states are hashed at certain steps, and "
             "the checkpoints of these steps are kept, whatever `checkpoint` says"},
    {"", "run_dir", LS_KEY_CUSTOM, LS_NOT_RECIPE, AT(run_dir), .read = read_run_dir,
     .write = write_text,
     .help = "directory of the run, which must not contain another run; `null`: none; absent: "
             "`runs/<time>-<name>` for the program, none for programs that embed the library"},
    {.key = NULL},
};
