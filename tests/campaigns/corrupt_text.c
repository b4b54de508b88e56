/* SPDX-License-Identifier: MIT */
/* Corrupted texts: configs and models. The compared data of a config is its document and the
 * resolved config that a run would use; that of a model is its document and the parsed model.
 *
 * JSON has no checksum: a flipped digit is another number. A changed text may therefore be accepted
 * if exactly that value of its document differs whose characters were changed. */
#include "campaigns/corrupt.h"
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char config_text[] =
    "{\n"
    "  \"name\": \"lenet\", \"seed\": 7, \"epochs\": 10, \"batch_size\": 256, \"shards\": 8,\n"
    "  \"devices\": \"cpu:2\", \"threads\": 1, \"eval_every\": 2, \"gradient_scale\": \"nominal\",\n"
    "  \"data\": {\"name\": \"mnist\", \"path\": \"/data\", \"limit\": 1000,\n"
    "           \"mean\": [0.5, 0.25], \"std\": 0.125},\n"
    "  \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]},\n"
    "  \"init\": {\"name\": \"normal\", \"std\": 0.01}, \"capacity\": [1, 2.5],\n"
    "  \"optimizer\": {\"name\": \"adamw\", \"lr\": 1e-3, \"beta1\": 0.9, \"beta2\": 0.999,\n"
    "                \"epsilon\": 1e-8, \"weight_decay\": 0.01},\n"
    "  \"schedule\": {\"name\": \"step\", \"every_epochs\": 3, \"gamma\": 0.5,\n"
    "               \"warmup_epochs\": 1},\n"
    "  \"lr_scaling\": \"linear\", \"label_smoothing\": 0.1, \"allreduce\": \"ordered\",\n"
    "  \"augment\": {\"crop\": 4, \"flip\": true}, \"run_dir\": \"runs/\\u00e9\"\n"
    "}\n";

static const char model_text[] =
    "{\"name\": \"net\",\n"
    " \"blocks\": {\"same\": [{\"type\": \"conv2d\", \"name\": \"c\", \"out\": \"$out\",\n"
    "                      \"kernel\": 3, \"padding\": 1},\n"
    "                     {\"type\": \"batch_norm\", \"name\": \"n\", \"momentum\": 0.1},\n"
    "                     {\"type\": \"add\", \"with\": \"input\"}, {\"type\": \"relu\"}]},\n"
    " \"layers\": [{\"type\": \"conv2d\", \"name\": \"stem\", \"out\": 8, \"kernel\": [3, 5]},\n"
    "            {\"type\": \"max_pool\", \"kernel\": 2, \"stride\": 2},\n"
    "            {\"block\": \"same\", \"name\": \"b\", \"repeat\": 2, \"out\": 8},\n"
    "            {\"type\": \"dropout\", \"p\": 0.25},\n"
    "            {\"type\": \"flatten\"},\n"
    "            {\"type\": \"dense\", \"name\": \"fc\", \"out\": 10, \"bias\": false}]}\n";

/* ---- trees ---- */

static cJSON *parse(const blob *meaning)
{
    cJSON *tree = cJSON_Parse((const char *)meaning->data);
    must(tree != NULL, "read back a document");
    return tree;
}

/* A list of plain values counts as one value: a point that became a comma makes two of one. */
static int is_plain_list(const cJSON *node)
{
    for (const cJSON *child = node->child; child; child = child->next)
        if (cJSON_IsObject(child) || cJSON_IsArray(child))
            return 0;
    return cJSON_IsArray(node);
}

static int is_leaf(const cJSON *node)
{
    return !node->child || is_plain_list(node);
}

static int same_leaf(const cJSON *a, const cJSON *b)
{
    const cJSON *x = a->child;
    const cJSON *y = b->child;
    if ((a->type & 0xFF) != (b->type & 0xFF))
        return 0;
    if (cJSON_IsNumber(a))
        return memcmp(&a->valuedouble, &b->valuedouble, sizeof(double)) == 0;
    if (cJSON_IsString(a))
        return strcmp(a->valuestring, b->valuestring) == 0;
    for (; x && y; x = x->next, y = y->next)
        if (!same_leaf(x, y))
            return 0;
    return x == y;
}

/* The values in which two trees differ. */
typedef struct difference {
    int structure; /* they have other keys, or more values */
    int leaves;
    size_t leaf;     /* the last one's number, in reading order */
    size_t position; /* position of the walk */
} difference;

static void compare(difference *d, const cJSON *a, const cJSON *b)
{
    d->position++;
    if (is_leaf(a) && is_leaf(b)) {
        if (!same_leaf(a, b)) {
            d->leaves++;
            d->leaf = d->position;
        }
        return;
    }
    d->structure |= is_leaf(a) || is_leaf(b) || (a->type & 0xFF) != (b->type & 0xFF);
    const cJSON *x = a->child;
    const cJSON *y = b->child;
    for (; x && y; x = x->next, y = y->next) {
        if ((x->string == NULL) != (y->string == NULL) ||
            (x->string && strcmp(x->string, y->string) != 0))
            d->structure = 1;
        compare(d, x, y);
    }
    d->structure |= x != y;
}

/* The node at a position of the walk. */
static const cJSON *node_at(const cJSON *node, size_t *left)
{
    if (--*left == 0)
        return node;
    if (is_leaf(node))
        return NULL;
    for (const cJSON *child = node->child; child; child = child->next) {
        const cJSON *found = node_at(child, left);
        if (found)
            return found;
    }
    return NULL;
}

/* ---- places ---- */

static size_t offset_of(const char *text, int line, int column)
{
    size_t at = 0;
    for (; line > 1; line--)
        at += strcspn(text + at, "\n") + 1;
    return at + (size_t)column - 1; /* the texts above have one byte a character */
}

/* How far the characters of the value at `at` go. */
static size_t value_end(const char *text, size_t at)
{
    size_t end = at + 1;
    if (text[at] == '[')
        return at + strcspn(text + at, "]") + 1;
    if (text[at] != '"')
        return at + strcspn(text + at, ",]} \n");
    while (text[end] != '"')
        end += text[end] == '\\' ? 2 : 1;
    return end + 1;
}

/* Whether the unharmed text has the byte among the characters of that value. */
static int value_has_byte(const char *text, size_t leaf, size_t byte)
{
    ls_json *doc;
    int line = 1;
    int column = 1;
    must(ls_json_parse(&doc, "text", text, strlen(text), NULL, NULL) == LS_OK, "read a text");
    const cJSON *node = node_at(ls_json_root(doc), &leaf);
    must(node && ls_json_where(doc, node, true, &line, &column) == LS_OK, "find a value");
    size_t begin = offset_of(text, line, column);
    ls_json_destroy(doc);
    return byte >= begin && byte < value_end(text, begin);
}

static int one_value_differs(const char *text, const change *c, const blob *before, const blob *now)
{
    difference d = {0};
    cJSON *a = parse(before);
    cJSON *b = parse(now);
    compare(&d, a, b);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return !d.structure && d.leaves == 1 && value_has_byte(text, d.leaf, c->byte);
}

static void add_document(blob *out, const ls_json *doc)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_json_put_node(&w, NULL, ls_json_root(doc));
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    must(text != NULL, "write a document");
    blob_add_text(out, text);
    ls_json_writer_fini(&w);
}

static void make_text(family *f, const char *text)
{
    blob content = {0};
    blob_add(&content, text, strlen(text));
    f->files = 1;
    subject_in_memory(&f->file[0], &content);
    free(content.data);
}

/* ---- configs ---- */

static void make_config(family *f, unsigned scale)
{
    (void)scale;
    make_text(f, config_text);
}

static int read_config(const family *f, blob *out, ls_error *err)
{
    ls_config config;
    ls_network *model = NULL;
    ls_json_writer w;
    const ls_trainer_options options = {
        .size = sizeof options, .config_path = f->file[0].path, .host = &corrupt_host};
    int rc = ls_config_read(&config, &options, err);
    if (rc != LS_OK)
        return rc;
    rc = ls_network_parse(&model, ls_config_model_doc(&config), config.model, (ls_shape){1, 28, 28},
                          10, &corrupt_host, err);
    ls_network_destroy(model, &corrupt_host);
    if (rc != LS_OK) {
        ls_config_fini(&config);
        return rc;
    }
    add_document(out, config.doc);
    ls_json_writer_init(&w, 0, &corrupt_host);
    ls_config_write(&w, NULL, &config);
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    must(text != NULL, "write a config");
    blob_add_text(out, text);
    ls_json_writer_fini(&w);
    ls_config_fini(&config);
    return LS_OK;
}

/* Gives the second config the first one's data.standardize_target if they name different data,
 * because its default follows from the kind of data. */
static void level_default(const cJSON *a, const cJSON *b)
{
    const cJSON *from = cJSON_GetObjectItemCaseSensitive(a, "data");
    cJSON *to = cJSON_GetObjectItemCaseSensitive(b, "data");
    const char *first = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(from, "name")),
               *second = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(to, "name"));
    if (first && second && strcmp(first, second) != 0)
        cJSON_ReplaceItemInObjectCaseSensitive(
            to, "standardize_target",
            cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(from, "standardize_target"), 1));
}

/* The resolved config may differ in one value, too. */
static int explains_config(const family *f, const change *c, const blob *before, const blob *now)
{
    (void)f;
    difference d = {0};
    size_t a_size = strlen((const char *)before->data) + 1;
    size_t b_size = strlen((const char *)now->data) + 1;
    cJSON *a = cJSON_Parse((const char *)before->data + a_size);
    cJSON *b = cJSON_Parse((const char *)now->data + b_size);
    must(a && b, "read back a config");
    level_default(a, b);
    compare(&d, a, b);
    cJSON_Delete(a);
    cJSON_Delete(b);
    return !d.structure && d.leaves <= 1 && one_value_differs(config_text, c, before, now);
}

family corrupt_config = {
    .name = "config", .make = make_config, .read = read_config, .explains = explains_config};

/* ---- models ---- */

static void make_model(family *f, unsigned scale)
{
    (void)scale;
    make_text(f, model_text);
}

static int read_model(const family *f, blob *out, ls_error *err)
{
    const subject *s = &f->file[0];
    ls_json *doc;
    ls_network *model = NULL;
    int rc = ls_json_read_file(&doc, s->path, &corrupt_host, err);
    if (rc == LS_OK)
        rc = ls_network_parse(&model, doc, ls_json_root(doc), (ls_shape){3, 16, 16}, 10,
                              &corrupt_host, err);
    if (rc == LS_OK) {
        add_document(out, doc);
        for (int i = 0; i < model->params + model->stats; i++) {
            blob_add_text(out, model->tensor[i]->name);
            blob_add(out, &model->tensor[i]->count, sizeof model->tensor[i]->count);
        }
    }
    ls_network_destroy(model, &corrupt_host);
    ls_json_destroy(doc);
    return rc;
}

static int explains_model(const family *f, const change *c, const blob *before, const blob *now)
{
    (void)f;
    return one_value_differs(model_text, c, before, now);
}

family corrupt_model = {
    .name = "model", .make = make_model, .read = read_model, .explains = explains_model};
