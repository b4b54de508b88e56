/* SPDX-License-Identifier: MIT */
/* Parses a model from its JSON and draws its initial weights. */
#include "nn/network.h"

#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "nn/layer.h"
#include "nn/reader.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LS_LAYER(name) extern const ls_layer_type ls_layer_##name;
#include "nn/layers.def"
#undef LS_LAYER

static const ls_layer_type *const types[] = {
#define LS_LAYER(name) &ls_layer_##name,
#include "nn/layers.def"
#undef LS_LAYER
    NULL,
};

const ls_layer_type *const *ls_layer_types(void)
{
    return types;
}

static int read_layers(ls_reader *r, const cJSON *list)
{
    const ls_scope scope = {.input = LS_INPUT};
    int position = 0;
    int status = LS_OK;
    for (const cJSON *node = list->child; node && status == LS_OK; node = node->next, position++) {
        if (cJSON_GetObjectItemCaseSensitive(node, "block"))
            status = ls_read_block(r, &scope, position, node);
        else
            status = ls_read_layer(r, &scope, position, node, node);
    }
    return status;
}

/* ---- the whole model ------------------------------------------------------------------------- */

static int fail_layer(const ls_reader *r, int layer, const char *message)
{
    const ls_layer *l = &r->model->layer[layer];
    char text[LS_ERROR_TEXT];
    snprintf(text, sizeof text, "%s '%s': %s", l->type->name, l->name, message);
    return ls_fail_at_layer(r, r->place[layer], LS_ECONFIG, text);
}

static bool is_read(const ls_network *model, int layer)
{
    for (int i = layer + 1; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].inputs; k++)
            if (model->layer[i].input[k] == layer)
                return true;
    return false;
}

static int check_readers(const ls_reader *r)
{
    for (int i = 0; i < r->model->layers - 1; i++)
        if (!is_read(r->model, i))
            return fail_layer(r, i,
                              "nobody reads its output; remove the layer, or name it in a later "
                              "layer's \"from\"");
    return LS_OK;
}

static int check_output(const ls_reader *r)
{
    const ls_network *model = r->model;
    const ls_layer *last = &model->layer[model->layers - 1];
    char text[192];
    if (last->out.h != 1 || last->out.w != 1)
        snprintf(text, sizeof text,
                 "the last layer gives an image of %d×%d×%d, expected a vector of %d features; "
                 "append flatten and a dense layer",
                 last->out.c, last->out.h, last->out.w, model->classes);
    else if (last->out.c != model->classes)
        snprintf(text, sizeof text,
                 "the last layer gives %d features, but %d are needed, one for each class, target, "
                 "or quantile of a target; make it give %d",
                 last->out.c, model->classes, model->classes);
    else if (model->params == 0)
        snprintf(text, sizeof text,
                 "no layer of the model has parameters to train; add a dense or conv2d layer");
    else
        return LS_OK;
    return fail_layer(r, model->layers - 1, text);
}

static int list_tensors(ls_network *model, const ls_host *host, ls_error *err)
{
    const int all = model->params + model->stats;
    int n = 0;
    model->tensor = ls_alloc_array(host, (size_t)all * 2, sizeof *model->tensor);
    if (!model->tensor)
        return ls_fail(err, LS_ENOMEM, "model: no memory for %d tensors", all);
    model->param = model->tensor + all;
    model->stat = model->param + model->params;
    model->params = model->stats = 0;
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *layer = &model->layer[i];
        for (int k = 0; k < layer->params; k++)
            model->tensor[n++] = model->param[model->params++] = &layer->param[k];
        for (int k = 0; k < layer->stats; k++)
            model->tensor[n++] = model->stat[model->stats++] = &layer->stat[k];
    }
    return LS_OK;
}

static void check_list(ls_fields *f, const cJSON *list)
{
    if (!list)
        ls_fields_fail(f, NULL, "\"layers\" is missing; add the list of layers");
    else if (!cJSON_IsArray(list))
        ls_fields_fail(f, list, "\"layers\" must be a list of layers, found %s",
                       ls_json_kind(list));
    else if (!list->child)
        ls_fields_fail(f, list, "\"layers\" is empty; add at least one dense or conv2d layer");
}

/* Checks that the rows have the shape "input", if the model has this key. */
static void check_rows(const ls_reader *r, ls_fields *f, const cJSON *node)
{
    const ls_shape *in = &r->model->input;
    const int mine[3] = {in->c, in->h, in->w};
    int side[3], n = 0;
    bool same = true;
    if (!node || f->status)
        return;
    if (!cJSON_IsArray(node) || cJSON_GetArraySize(node) != 3) {
        ls_fields_fail(f, node, "\"input\" must be [channels, height, width], found %s",
                       ls_json_kind(node));
        return;
    }
    for (const cJSON *item = node->child; item && ls_field_is_int(f, "input", item, 1, 1 << 20);
         item = item->next) {
        side[n] = (int)item->valuedouble;
        same &= side[n] == mine[n];
        n++;
    }
    if (n == 3 && !same && !r->keys_only)
        ls_fields_fail(f, node,
                       "the model reads rows of %d×%d×%d (channels, height, width), but the data "
                       "have %d×%d×%d; change the data, such as data.image_size and data.channels",
                       side[0], side[1], side[2], mine[0], mine[1], mine[2]);
}

static int read_head(ls_reader *r, const cJSON *node, const cJSON **list)
{
    static const char *const unnamed = "model";
    ls_network *model = r->model;
    const char *name;
    ls_fields f;
    ls_fields_begin(&f, r->doc, node, "model", r->err);
    ls_field_text(&f, "name", &unnamed, &name);
    r->blocks = ls_field_any(&f, "blocks");
    ls_field_any(&f, "source");
    check_rows(r, &f, ls_field_any(&f, "input"));
    *list = ls_field_any(&f, "layers");
    if (f.status == LS_OK && strlen(name) >= sizeof model->name)
        ls_fields_fail(&f, cJSON_GetObjectItemCaseSensitive(f.object, "name"),
                       "\"name\" must have at most %d bytes, found %zu",
                       (int)sizeof model->name - 1, strlen(name));
    if (f.status == LS_OK)
        check_list(&f, *list);
    snprintf(model->name, sizeof model->name, "%s", name);
    int status = ls_fields_end(&f);
    return status == LS_OK ? ls_check_blocks(r, *list) : status;
}

static int check_input(const ls_shape *input, int classes, ls_error *err)
{
    if (input->c < 1 || input->h < 1 || input->w < 1 ||
        (long long)input->h * input->w > LS_MODEL_VALUES ||
        ls_shape_values(input) > LS_MODEL_VALUES)
        return ls_fail(err, LS_EINVAL, "model: no input can have %d×%d×%d values", input->c,
                       input->h, input->w);
    if (classes < 1)
        return ls_fail(err, LS_EINVAL, "model: expected at least one class, found %d", classes);
    return LS_OK;
}

/* Allocates the memory for all layers at once, because pointers to layers must stay valid. */
static int make_room(ls_reader *r, const cJSON *list, const ls_host *host)
{
    int layers = 0;
    int members = cJSON_GetArraySize(list);
    for (const cJSON *n = list->child; n && layers <= LS_MODEL_LAYERS; n = n->next)
        layers += ls_count_layers(r, n);
    if (layers > LS_MODEL_LAYERS)
        return ls_json_fail_value(r->err, r->doc, list, LS_ECONFIG,
                                  "model: expected at most %d layers, found %s%d", LS_MODEL_LAYERS,
                                  members > LS_MODEL_LAYERS ? "" : "with all blocks at least ",
                                  members > LS_MODEL_LAYERS ? members : layers);
    r->model->layer = ls_alloc_array(host, (size_t)layers, sizeof *r->model->layer);
    r->place = ls_alloc_array(host, (size_t)layers, sizeof *r->place);
    r->block = ls_alloc_array(host, (size_t)members, sizeof *r->block);
    if (!r->model->layer || !r->place || !r->block)
        return ls_fail(r->err, LS_ENOMEM, "model: no memory for %d layers", layers);
    return LS_OK;
}

static int parse_model(ls_reader *r, const cJSON *node, const ls_host *host)
{
    const cJSON *list = NULL;
    int status = read_head(r, node, &list);
    if (status == LS_OK)
        status = make_room(r, list, host);
    if (status == LS_OK)
        status = read_layers(r, list);
    if (status == LS_OK)
        status = check_readers(r);
    if (status == LS_OK && !r->keys_only)
        status = check_output(r);
    ls_free(host, r->block);
    ls_free(host, r->place);
    if (status != LS_OK || r->keys_only)
        return status;
    return list_tensors(r->model, host, r->err);
}

int ls_network_parse(ls_network **out, const ls_json *doc, const cJSON *node, ls_shape input,
                     int classes, const ls_host *host, ls_error *err)
{
    int status = check_input(&input, classes, err);
    if (status != LS_OK)
        return status;
    ls_network *model = ls_alloc(host, sizeof *model);
    if (!model)
        return ls_fail(err, LS_ENOMEM, "model: no memory");
    model->input = input;
    model->classes = classes;
    ls_reader r = {.model = model, .doc = doc, .err = err};
    status = parse_model(&r, node, host);
    if (status == LS_OK)
        *out = model;
    else
        ls_network_destroy(model, host);
    return status;
}

int ls_network_check(const ls_json *doc, const cJSON *node, const ls_host *host, ls_error *err)
{
    ls_network *model = ls_alloc(host, sizeof *model);
    if (!model)
        return ls_fail(err, LS_ENOMEM, "model: no memory");
    model->classes = 1; /* not known; only the size of the last layer depends on the number */
    ls_reader r = {.model = model, .doc = doc, .keys_only = true, .err = err};
    const int status = parse_model(&r, node, host);
    ls_network_destroy(model, host);
    return status;
}

void ls_network_destroy(ls_network *model, const ls_host *host)
{
    if (!model)
        return;
    ls_free(host, model->card);
    ls_free(host, model->tensor);
    ls_free(host, model->layer);
    ls_free(host, model);
}

/* ---- learning rates -------------------------------------------------------------------------- */

/* Returns whether `name` matches `pattern`, in which '*' stands for any characters. */
static bool matches(const char *pattern, const char *name)
{
    for (; *pattern != '*'; pattern++, name++)
        if (*pattern != *name)
            return false;
        else if (!*name)
            return true;
    for (pattern++;; name++) {
        if (matches(pattern, name))
            return true;
        if (!*name)
            return false;
    }
}

/* Sets the rates of the parameters whose names match the pattern: to `rate`, or, if `each` is not
 * NULL, to the parameter's number in `each`, which has one for each parameter of the layers in
 * order. */
static int set_rates(ls_network *model, const char *pattern, float rate, const float *each,
                     const char *key, const ls_json *doc, const cJSON *node, ls_error *err)
{
    int found = 0, at = 0;
    for (int i = 0; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].params; k++, at++) {
            ls_param *p = &model->layer[i].param[k];
            if (!matches(pattern, p->name))
                continue;
            p->rate = each ? each[at] : rate;
            found++;
        }
    if (found)
        return LS_OK;
    return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                              "%s: no parameter is called \"%.60s\"; the first is %s, the last %s",
                              key, pattern, model->param[0]->name,
                              model->param[model->params - 1]->name);
}

/* Sets the rates of the parameters that `freeze` freezes to 0. The last pattern that a name matches
 * decides: "!fc.*" takes fc.weight out again. `kept`: the rate that a parameter had before. */
static int freeze_some(ls_network *model, const ls_json *doc, const cJSON *node, const float *kept,
                       ls_error *err)
{
    const cJSON *first = cJSON_IsArray(node) ? node->child : node;
    int status = LS_OK;
    for (const cJSON *n = first; n && status == LS_OK; n = cJSON_IsArray(node) ? n->next : NULL)
        status = cJSON_IsString(n)
                     ? n->valuestring[0] == '!'
                           ? set_rates(model, n->valuestring + 1, 0, kept, "freeze", doc, n, err)
                           : set_rates(model, n->valuestring, 0, NULL, "freeze", doc, n, err)
                     : ls_json_fail_value(
                           err, doc, n, LS_ECONFIG,
                           "freeze: expected a pattern of names, such as \"conv1.*\", found %s",
                           ls_json_kind(n));
    return status;
}

bool ls_layer_learns(const ls_layer *layer)
{
    for (int k = 0; k < layer->params; k++)
        if (layer->param[k].rate != 0)
            return true;
    return false;
}

/* Freezes the parameters that `freeze` names. */
static int apply_freeze(ls_network *model, const ls_json *doc, const cJSON *freeze,
                        const ls_host *host, ls_error *err)
{
    int at = 0;
    for (int i = 0; i < model->layers; i++)
        at += model->layer[i].params;
    float *kept = ls_alloc_array(host, (size_t)at, sizeof *kept);
    if (!kept)
        return ls_fail(err, LS_ENOMEM, "out of memory for learning rates");
    at = 0;
    for (int i = 0; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].params; k++)
            kept[at++] = model->layer[i].param[k].rate;
    int status = freeze_some(model, doc, freeze, kept, err);
    ls_free(host, kept);
    return status;
}

int ls_network_set_rates(ls_network *model, const ls_json *doc, const cJSON *freeze,
                         const cJSON *factors, const ls_host *host, ls_error *err)
{
    int status = LS_OK;
    if (factors && !cJSON_IsObject(factors))
        return ls_json_fail_value(err, doc, factors, LS_ECONFIG,
                                  "lr_factors: expected an object such as {\"fc.*\": 10}, found %s",
                                  ls_json_kind(factors));
    for (const cJSON *n = factors ? factors->child : NULL; n && status == LS_OK; n = n->next)
        status = cJSON_IsNumber(n) && n->valuedouble >= 1e-6 && n->valuedouble <= 1e6
                     ? set_rates(model, n->string, (float)n->valuedouble, NULL, "lr_factors", doc,
                                 n, err)
                     : ls_json_fail_value(
                           err, doc, n, LS_ECONFIG,
                           "lr_factors: expected a number from 1e-6 to 1e6; to leave a parameter "
                           "as it is, name it in \"freeze\"");
    if (status == LS_OK && freeze)
        status = apply_freeze(model, doc, freeze, host, err);
    for (int i = 0; status == LS_OK && i < model->layers; i++)
        if (ls_layer_learns(&model->layer[i]))
            return LS_OK;
    return status
               ? status
               : ls_json_fail_value(err, doc, freeze, LS_ECONFIG,
                                    "freeze: all parameters are frozen, nothing is left to learn");
}

/* ---- initial weights ------------------------------------------------------------------------- */

/* Names in the order of ls_init_rule, then two aliases. */
static const char *const init_names[] = {"normal", "xavier", "kaiming", "glorot", "he", NULL};

enum { INIT_NAMES = sizeof init_names / sizeof *init_names - 1 };

static ls_init_rule rule_of_name(int name)
{
    return (ls_init_rule)(name > LS_INIT_KAIMING ? name - LS_INIT_KAIMING : name);
}

const char *ls_init_name(ls_init_rule rule)
{
    return init_names[rule];
}

void ls_init_read(ls_init *out, ls_fields *f, bool optional)
{
    static const double std = 0.01;
    const int rest =
        cJSON_GetObjectItemCaseSensitive(f->object, "std") ? LS_INIT_NORMAL : LS_INIT_KAIMING;
    int name;
    double value;
    ls_field_choice(f, "name", init_names, optional ? &rest : NULL, &name);
    const ls_init_rule rule = rule_of_name(name);
    if (ls_field_double(f, "std", 0, 1000, &std, &value) && rule != LS_INIT_NORMAL)
        ls_fields_fail(f, cJSON_GetObjectItemCaseSensitive(f->object, "std"),
                       "\"std\" belongs to \"normal\" alone; remove it");
    *out = (ls_init){rule, (float)value};
}

static int parse_name(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    const char *name = node->valuestring;
    for (int i = 0; init_names[i]; i++) {
        if (strcmp(init_names[i], name) == 0) {
            *out = (ls_init){rule_of_name(i), 0.01f};
            return LS_OK;
        }
    }
    const char *near = ls_closest(name, init_names, INIT_NAMES);
    if (near)
        return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                                  "unknown init \"%.40s\"; did you mean \"%s\"?", name, near);
    return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                              "unknown init \"%.40s\"; expected one of: normal, xavier, kaiming, "
                              "glorot, he",
                              name);
}

int ls_init_parse(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err)
{
    if (!node) {
        *out = (ls_init){LS_INIT_KAIMING, 0.01f};
        return LS_OK;
    }
    if (cJSON_IsString(node))
        return parse_name(out, doc, node, err);
    if (!cJSON_IsObject(node))
        return ls_json_fail_value(err, doc, node, LS_ECONFIG,
                                  "init: expected a name or an object {…}, found %s",
                                  ls_json_kind(node));
    ls_fields f;
    ls_fields_begin(&f, doc, node, "init", err);
    ls_init_read(out, &f, false);
    return ls_fields_end(&f);
}

static float start_of(const ls_param *p)
{
    return p->start == LS_START_ONES ? 1.0f : 0.0f;
}

/* Draws one number of the parameter with index `stream` − LS_STREAM_INIT. The draw depends on no
 * other draw, so the order of the draws does not matter. The value is computed in double precision
 * and rounded once. */
static float draw(const ls_param *p, const ls_init *init, uint64_t seed, uint32_t stream,
                  uint64_t element)
{
    if (init->rule == LS_INIT_XAVIER) {
        double limit = sqrt(6.0 / ((double)p->fan_in + p->fan_out));
        return (float)((2.0 * ls_rng_uniform(seed, stream, 0, element) - 1.0) * limit);
    }
    double std = init->rule == LS_INIT_NORMAL ? init->std : sqrt(2.0 / p->fan_in);
    return (float)(std * ls_rng_normal(seed, stream, 0, element));
}

void ls_init_weights(float *canonical, const ls_network *model, const ls_init *init, uint64_t seed)
{
    for (int i = 0; i < model->params; i++) {
        const ls_param *p = model->param[i];
        const uint32_t stream = LS_STREAM_INIT + (uint32_t)i;
        for (size_t k = 0; k < p->count; k++)
            canonical[p->offset + k] =
                p->start == LS_START_DRAWN ? draw(p, init, seed, stream, k) : start_of(p);
    }
    for (int i = 0; i < model->stats; i++)
        for (size_t k = 0; k < model->stat[i]->count; k++)
            canonical[model->stat[i]->offset + k] = start_of(model->stat[i]);
}
