/* SPDX-License-Identifier: MIT */
/* Blocks: lists of layers that a model defines once and uses several times.
 *
 *     "blocks": {"same": [{"type": "conv2d", "out": "$out", …}, …]},
 *     "layers": [{"block": "same", "name": "b1", "repeat": 2, "out": 64}, …]
 *
 * An object {"block": …} in the list of layers is a *use* of the block, which the parser expands:
 * - "$out" becomes the value of the use's key "out";
 * - the names of the layers get the use's name as a prefix;
 * - "input" stands for the layer that the use reads.
 *
 * After parsing, no other part of the program knows blocks. */
#include "base/error.h"
#include "nn/reader.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Largest number of keys that a use may have. */
enum { VALUES_MAX = 32 };

static const cJSON *find_definition(const ls_reader *r, const cJSON *use)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(use, "block");
    if (!cJSON_IsString(name))
        return NULL;
    return cJSON_GetObjectItemCaseSensitive(r->blocks, name->valuestring);
}

static bool is_use(const cJSON *node)
{
    return cJSON_GetObjectItemCaseSensitive(node, "block") != NULL;
}

/* ---- the definitions ------------------------------------------------------------------------ */

static bool is_used(const cJSON *definition, const cJSON *list)
{
    for (const cJSON *node = list->child; node; node = node->next) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(node, "block");
        if (cJSON_IsString(name) && strcmp(name->valuestring, definition->string) == 0)
            return true;
    }
    return false;
}

int ls_check_blocks(const ls_reader *r, const cJSON *list)
{
    if (r->blocks && !cJSON_IsObject(r->blocks))
        return ls_json_fail_value(
            r->err, r->doc, r->blocks, LS_ECONFIG,
            "model: \"blocks\" must be an object of lists of layers, found %s",
            ls_json_kind(r->blocks));
    if (cJSON_GetArraySize(list) > LS_MODEL_LAYERS)
        /* The list is too long and is refused later (make_room in model.c). Because this function
         * returns here, it does not compare every entry of the long list with every block. */
        return LS_OK;
    for (const cJSON *b = r->blocks ? r->blocks->child : NULL; b; b = b->next) {
        if (!cJSON_IsArray(b) || !b->child)
            return ls_json_fail_value(
                r->err, r->doc, b, LS_ECONFIG,
                "block \"%.40s\": expected a list of at least one layer, found %s", b->string,
                cJSON_IsArray(b) ? "an empty one" : ls_json_kind(b));
        if (!is_used(b, list))
            return ls_json_fail(r->err, r->doc, b, LS_ECONFIG,
                                "block \"%.40s\": no layer uses it; remove it, or use it with "
                                "{\"block\": \"%.40s\"}",
                                b->string, b->string);
    }
    return LS_OK;
}

int ls_count_layers(const ls_reader *r, const cJSON *node)
{
    const cJSON *definition = is_use(node) ? find_definition(r, node) : NULL;
    const cJSON *repeat = cJSON_GetObjectItemCaseSensitive(node, "repeat");
    int times = 1;
    if (!definition)
        return 1;
    if (cJSON_IsNumber(repeat) && repeat->valuedouble > 1)
        times = repeat->valuedouble < LS_MODEL_LAYERS ? (int)repeat->valuedouble : LS_MODEL_LAYERS;
    int most = LS_MODEL_LAYERS + 1;
    int layers = cJSON_GetArraySize(definition);
    return layers > most / times ? most : layers * times;
}

/* ---- values of a use ------------------------------------------------------------------------- */

static const char *value_name(const cJSON *node)
{
    return cJSON_IsString(node) && node->valuestring[0] == '$' ? node->valuestring + 1 : NULL;
}

/* Registers every "$key" of a block's definition as a known key of the use. Sets *missing to the
 * first such key that the use does not have. The caller reports an unknown key of the use before a
 * missing key, because an unknown key is usually a misspelt form of the missing key. */
static void read_values(ls_fields *f, const cJSON *node, const char **missing)
{
    const char *key = value_name(node);
    if (key && !ls_fields_know(f, key)) {
        if (f->count >= VALUES_MAX)
            ls_fields_fail(f, NULL, "its block asks for more than %d values", VALUES_MAX);
        else if (!ls_field_any(f, key) && !*missing)
            *missing = key;
    }
    for (const cJSON *child = node->child; child && f->status == LS_OK; child = child->next)
        read_values(f, child, missing);
}

/* Replaces every "$key" in `node`, a copy of a layer of the definition, by the use's value for the
 * key. Returns 0 if memory runs out. */
static int fill_in(cJSON *node, const cJSON *use)
{
    cJSON *next;
    for (cJSON *child = node->child; child; child = next) {
        const char *key = value_name(child);
        next = child->next;
        if (!key) {
            if (!fill_in(child, use))
                return 0;
            continue;
        }
        cJSON *value = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(use, key), 1);
        char *name = child->string;
        if (!value)
            return 0;
        if (name) { /* `child` is a member of an object; `value` gets the key of `child` */
            cJSON_free(value->string);
            value->string = name;
            child->string = NULL;
        }
        cJSON_ReplaceItemViaPointer(node, child, value);
    }
    return 1;
}

/* ---- a use ---------------------------------------------------------------------------------- */

static void fail_unknown_block(const ls_reader *r, ls_fields *f, const cJSON *name)
{
    const char *names[LS_MODEL_LAYERS];
    size_t count = 0;
    const cJSON *b = r->blocks ? r->blocks->child : NULL;
    for (; b && count < LS_MODEL_LAYERS; b = b->next)
        names[count++] = b->string;
    const char *near = ls_closest(name->valuestring, names, count);
    if (near)
        ls_fields_fail(f, name, "no block is called \"%.40s\"; did you mean \"%s\"?",
                       name->valuestring, near);
    else
        ls_fields_fail(f, name, "no block is called \"%.40s\"; define it in the model's \"blocks\"",
                       name->valuestring);
}

/* The contents of a use, without the values for "$key". */
typedef struct block_use {
    const cJSON *definition;
    char name[64];
    int input;
    int times;
    /* the use has the key "repeat". The index of a repetition is then part of the names of the
     * layers of that repetition */
    int numbered;
} block_use;

static int read_use(const ls_reader *r, const ls_scope *scope, int position, const cJSON *node,
                    block_use *use)
{
    static const long once = 1;
    const char *block;
    const char *missing = NULL;
    char what[24];
    long times;
    ls_fields f;
    snprintf(what, sizeof what, "layer %d", position);
    ls_fields_begin(&f, r->doc, node, what, r->err);
    ls_field_text(&f, "block", NULL, &block);
    ls_read_name(r, scope, &f, position, use->name);
    int before = r->model->layers > 0 ? r->model->layers - 1 : LS_INPUT;
    use->input = ls_read_reference(r, scope, &f, "from", before);
    use->numbered = ls_field_int(&f, "repeat", 1, LS_MODEL_LAYERS, &once, &times);
    use->times = (int)times;
    use->definition = find_definition(r, node);
    if (f.status == LS_OK && !use->definition)
        fail_unknown_block(r, &f, cJSON_GetObjectItemCaseSensitive(node, "block"));
    if (f.status == LS_OK)
        read_values(&f, use->definition, &missing);
    int status = ls_fields_end(&f);
    if (status != LS_OK || !missing)
        return status;
    return ls_json_fail_value(r->err, r->doc, node, LS_ECONFIG,
                              "%s: \"%.40s\" is missing; block \"%.40s\" asks for \"$%.40s\"", what,
                              missing, block, missing);
}

static int read_filled_in(ls_reader *r, const ls_scope *scope, int position, const cJSON *origin)
{
    const ls_layer_place place = {origin, scope->use};
    if (is_use(origin))
        return ls_fail_at_layer(r, place, LS_ECONFIG,
                                "a block cannot use another one; write its layers out");
    cJSON *copy = cJSON_Duplicate(origin, 1);
    int status;
    if (copy && fill_in(copy, scope->use))
        status = ls_read_layer(r, scope, position, copy, origin);
    else
        status = ls_json_fail_value(r->err, r->doc, origin, LS_ENOMEM, "no memory");
    cJSON_Delete(copy);
    return status;
}

static int read_once(ls_reader *r, const ls_scope *scope, const cJSON *definition)
{
    int position = 0;
    int status = LS_OK;
    for (const cJSON *n = definition->child; n && status == LS_OK; n = n->next)
        status = read_filled_in(r, scope, position++, n);
    return status;
}

int ls_read_block(ls_reader *r, const ls_scope *outer, int position, const cJSON *node)
{
    block_use use = {0};
    int status = read_use(r, outer, position, node, &use);
    ls_scope scope = {.input = use.input, .use = node};
    for (int i = 0; i < use.times && status == LS_OK; i++) {
        if (use.numbered)
            snprintf(scope.prefix, sizeof scope.prefix, "%.60s.%d.", use.name, i);
        else
            snprintf(scope.prefix, sizeof scope.prefix, "%.60s.", use.name);
        scope.first = r->model->layers;
        status = read_once(r, &scope, use.definition);
        scope.input = r->model->layers - 1;
    }
    if (status != LS_OK)
        return status;
    ls_block_name *name = &r->block[r->block_names++];
    snprintf(name->name, sizeof name->name, "%s", use.name);
    name->layer = r->model->layers - 1;
    return LS_OK;
}
