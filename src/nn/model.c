#include "nn/model.h"

#include "base/closest.h"
#include "base/host.h"
#include "nn/layer.h"

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

enum { TYPES = sizeof types / sizeof *types - 1 };

const ls_layer_type *const *ls_layer_types(void)
{
    return types;
}

/* What the reading of one model passes around. */
typedef struct reader {
    ls_model *model;
    const ls_json *doc;
    ls_error *err;
    char what[112]; /* the layer being read, for messages: "conv2d 'conv1'" */
} reader;

/* ---- one layer ------------------------------------------------------------------------------ */

static void read_type(ls_layer *layer, ls_fields *f)
{
    const char *names[TYPES + 1] = {0};
    int type;
    for (int i = 0; i < TYPES; i++)
        names[i] = types[i]->name;
    if (ls_field_choice(f, "type", names, NULL, &type))
        layer->type = types[type];
}

static int name_is_plain(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    size_t n = strlen(name);
    return n > 0 && n < sizeof((ls_layer *)0)->name && strspn(name, allowed) == n;
}

/* The layer before `end` that has this name, or −1. */
static int find_layer(const ls_model *model, const char *name, int end)
{
    for (int i = 0; i < end; i++)
        if (strcmp(model->layer[i].name, name) == 0)
            return i;
    return -1;
}

/* Names become names of tensors in files, so they are kept simple. */
static void read_name(ls_layer *layer, const ls_model *model, int index, ls_fields *f)
{
    char position[16];
    const char *name;
    snprintf(position, sizeof position, "%d", index);
    const char *fallback = position;
    ls_field_text(f, "name", &fallback, &name);
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(f->object, "name");
    int other = find_layer(model, name, index);
    if (!name_is_plain(name))
        ls_fields_fail(f, node, "\"name\" must be 1 to %d letters, digits, '_', '-' or '.'",
                       (int)sizeof layer->name - 1);
    else if (other >= 0)
        ls_fields_fail(f, node, "layer %d is called \"%s\" already; choose another name", other,
                       name);
    else
        snprintf(layer->name, sizeof layer->name, "%s", name);
}

static void fail_from(const ls_model *model, const char *from, int index, const cJSON *node,
                      ls_fields *f)
{
    const char *names[LS_MODEL_LAYERS];
    for (int i = 0; i < index; i++)
        names[i] = model->layer[i].name;
    const char *near = ls_closest(from, names, (size_t)index);
    if (near)
        ls_fields_fail(f, node, "no earlier layer is called \"%.63s\"; did you mean \"%s\"?", from,
                       near);
    else
        ls_fields_fail(f, node,
                       "no earlier layer is called \"%.63s\"; \"from\" names a layer that "
                       "stands before this one",
                       from);
}

static void read_from(ls_layer *layer, const ls_model *model, int index, ls_fields *f)
{
    const char *none = NULL;
    const char *from;
    layer->input = index > 0 ? index - 1 : LS_INPUT;
    if (!ls_field_text(f, "from", &none, &from))
        return;
    int input = find_layer(model, from, index);
    if (input >= 0)
        layer->input = input;
    else
        fail_from(model, from, index, cJSON_GetObjectItemCaseSensitive(f->object, "from"), f);
}

/* Without a type nobody knows the other keys, so they are not the ones to complain about. */
static void fail_without_type(ls_fields *f)
{
    static const char *const type = "type";
    const cJSON *node = f->status == LS_OK ? f->object->child : NULL;
    for (; node; node = node->next)
        if (strcmp(node->string, "name") != 0 && ls_closest(node->string, &type, 1))
            ls_fields_fail(f, node, "unknown key \"%.60s\"; did you mean \"type\"?", node->string);
    ls_fields_fail(f, NULL, "\"type\" is missing; add it, such as \"type\": \"dense\"");
}

static int read_layer(reader *r, int index, const cJSON *node)
{
    ls_layer *layer = &r->model->layer[index];
    ls_fields f;
    snprintf(r->what, sizeof r->what, "layer %d", index);
    ls_fields_begin(&f, r->doc, node, r->what, r->err);
    read_type(layer, &f);
    read_name(layer, r->model, index, &f);
    read_from(layer, r->model, index, &f);
    if (!layer->type) {
        fail_without_type(&f);
        return ls_fields_end(&f);
    }
    snprintf(r->what, sizeof r->what, "%s '%s'", layer->type->name, layer->name);
    layer->op.size = sizeof layer->op;
    layer->type->parse(layer, &f);
    return ls_fields_end(&f);
}

/* ---- shapes --------------------------------------------------------------------------------- */

static int same_shape(const ls_shape *a, const ls_shape *b)
{
    return a->c == b->c && a->h == b->h && a->w == b->w;
}

/* Layers whose output lies in memory as their input does. */
static int keeps_memory(const ls_layer *layer)
{
    return layer->op.kind == 0 || layer->op.kind == LS_OP_RELU;
}

static int count_params(ls_model *model, ls_layer *layer, ls_error *err)
{
    static const char *const suffix[2] = {"weight", "bias"};
    for (int k = 0; k < layer->params; k++) {
        ls_param *p = &layer->param[k];
        snprintf(p->name, sizeof p->name, "%s.%s", layer->name, suffix[p->bias != 0]);
        p->offset = model->floats;
        model->floats += p->count;
        if (model->floats > LS_MODEL_FLOATS)
            return ls_fail(err, LS_ECONFIG,
                           "with it the model has more than %u parameters; use fewer features",
                           LS_MODEL_FLOATS);
    }
    model->params += layer->params;
    return LS_OK;
}

static int shape_layer(ls_model *model, ls_layer *layer, ls_error *err)
{
    const ls_layer *before = layer->input == LS_INPUT ? NULL : &model->layer[layer->input];
    ls_shape lies = before ? before->y : model->input;
    layer->in = before ? before->out : model->input;
    layer->flat = !same_shape(&layer->in, &lies);
    int rc = layer->type->shape(layer, err);
    if (rc != LS_OK)
        return rc;
    layer->y = keeps_memory(layer) ? lies : layer->out;
    long long image = (long long)layer->out.h * layer->out.w;
    if (image > LS_MODEL_VALUES || image * layer->out.c > LS_MODEL_VALUES)
        return ls_fail(err, LS_ECONFIG,
                       "its output of %d×%d×%d has more than %d values for one row; make it "
                       "smaller",
                       layer->out.c, layer->out.h, layer->out.w, LS_MODEL_VALUES);
    return count_params(model, layer, err);
}

static int fail_layer(const reader *r, const ls_layer *layer, const cJSON *node, int status,
                      const char *text)
{
    return ls_json_fail_value(r->err, r->doc, node, status, "%s '%s': %s", layer->type->name,
                              layer->name, text);
}

static int read_layers(reader *r, const cJSON *list)
{
    ls_model *model = r->model;
    const cJSON *node = list->child;
    for (int i = 0; i < model->layers; i++, node = node->next) {
        ls_error why;
        int rc = read_layer(r, i, node);
        if (rc != LS_OK)
            return rc;
        rc = shape_layer(model, &model->layer[i], &why);
        if (rc != LS_OK)
            return fail_layer(r, &model->layer[i], node, rc, why.text);
    }
    return LS_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* A gradient flows back to a layer once, so each output has one reader. Were there two, one of
 * their chains would end unread anyway, since no layer takes two inputs. */
static int check_readers(const reader *r, const cJSON *list)
{
    const ls_model *model = r->model;
    const cJSON *node = list->child;
    for (int i = 0; i < model->layers - 1; i++, node = node->next) {
        int readers = 0;
        for (int j = i + 1; j < model->layers; j++)
            readers += model->layer[j].input == i;
        if (readers == 0)
            return fail_layer(r, &model->layer[i], node, LS_ECONFIG,
                              "nobody reads its output; remove the layer, or name it in a later "
                              "layer's \"from\"");
    }
    return LS_OK;
}

static int check_output(const reader *r, const cJSON *list)
{
    const ls_model *model = r->model;
    const ls_layer *last = &model->layer[model->layers - 1];
    const cJSON *node = cJSON_GetArrayItem(list, model->layers - 1);
    char text[192];
    if (last->out.h != 1 || last->out.w != 1)
        snprintf(text, sizeof text,
                 "the last layer gives an image of %d×%d×%d, expected a vector of %d classes; "
                 "append flatten and a dense layer",
                 last->out.c, last->out.h, last->out.w, model->classes);
    else if (last->out.c != model->classes)
        snprintf(text, sizeof text,
                 "the last layer gives %d features, but the data has %d classes; make it give %d",
                 last->out.c, model->classes, model->classes);
    else if (model->params == 0)
        snprintf(text, sizeof text,
                 "no layer of the model has parameters to train; add a dense or conv2d layer");
    else
        return LS_OK;
    return fail_layer(r, last, node, LS_ECONFIG, text);
}

static int list_params(ls_model *model, const ls_host *host, ls_error *err)
{
    int n = 0;
    model->param = ls_alloc_array(host, (size_t)model->params, sizeof *model->param);
    if (!model->param)
        return ls_fail(err, LS_ENOMEM, "model: no memory for %d parameters", model->params);
    for (int i = 0; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].params; k++)
            model->param[n++] = &model->layer[i].param[k];
    return LS_OK;
}

static void read_head(ls_model *model, const cJSON **list, ls_fields *f)
{
    static const char *const unnamed = "model";
    const char *name;
    ls_field_text(f, "name", &unnamed, &name);
    *list = ls_field_any(f, "layers");
    if (f->status != LS_OK)
        return;
    int count = cJSON_GetArraySize(*list);
    if (strlen(name) >= sizeof model->name)
        ls_fields_fail(f, cJSON_GetObjectItemCaseSensitive(f->object, "name"),
                       "\"name\" must have at most %d bytes, found %zu",
                       (int)sizeof model->name - 1, strlen(name));
    else if (!*list)
        ls_fields_fail(f, NULL, "\"layers\" is missing; add the list of layers");
    else if (!cJSON_IsArray(*list))
        ls_fields_fail(f, *list, "\"layers\" must be a list of layers, found %s",
                       ls_json_kind(*list));
    else if (count == 0)
        ls_fields_fail(f, *list, "\"layers\" is empty; add at least one dense or conv2d layer");
    else if (count > LS_MODEL_LAYERS)
        ls_fields_fail(f, *list, "expected at most %d layers, found %d", LS_MODEL_LAYERS, count);
    snprintf(model->name, sizeof model->name, "%s", name);
    model->layers = count;
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

static int parse_model(reader *r, const cJSON *node, const ls_host *host)
{
    ls_model *model = r->model;
    const cJSON *list = NULL;
    ls_fields f;
    ls_fields_begin(&f, r->doc, node, "model", r->err);
    read_head(model, &list, &f);
    int rc = ls_fields_end(&f);
    if (rc != LS_OK)
        return rc;
    model->layer = ls_alloc_array(host, (size_t)model->layers, sizeof *model->layer);
    if (!model->layer)
        return ls_fail(r->err, LS_ENOMEM, "model: no memory for %d layers", model->layers);
    rc = read_layers(r, list);
    if (rc == LS_OK)
        rc = check_readers(r, list);
    if (rc == LS_OK)
        rc = check_output(r, list);
    return rc == LS_OK ? list_params(model, host, r->err) : rc;
}

int ls_model_parse(ls_model **out, const ls_json *doc, const cJSON *node, ls_shape input,
                   int classes, const ls_host *host, ls_error *err)
{
    int rc = check_input(&input, classes, err);
    if (rc != LS_OK)
        return rc;
    ls_model *model = ls_alloc(host, sizeof *model);
    if (!model)
        return ls_fail(err, LS_ENOMEM, "model: no memory");
    model->input = input;
    model->classes = classes;
    reader r = {.model = model, .doc = doc, .err = err};
    rc = parse_model(&r, node, host);
    if (rc == LS_OK)
        *out = model;
    else
        ls_model_destroy(model, host);
    return rc;
}

void ls_model_destroy(ls_model *model, const ls_host *host)
{
    if (!model)
        return;
    ls_free(host, model->param);
    ls_free(host, model->layer);
    ls_free(host, model);
}
