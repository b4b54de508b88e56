#include "nn/model.h"

#include "base/host.h"
#include "nn/layer.h"
#include "nn/reader.h"

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
    int rc = LS_OK;
    for (const cJSON *node = list->child; node && rc == LS_OK; node = node->next, position++) {
        if (cJSON_GetObjectItemCaseSensitive(node, "block"))
            rc = ls_read_block(r, &scope, position, node);
        else
            rc = ls_read_layer(r, &scope, position, node, node);
    }
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int fail_layer(const ls_reader *r, int layer, const char *message)
{
    const ls_layer *l = &r->model->layer[layer];
    char text[LS_ERROR_TEXT];
    snprintf(text, sizeof text, "%s '%s': %s", l->type->name, l->name, message);
    return ls_fail_at_layer(r, r->place[layer], LS_ECONFIG, text);
}

static int is_read(const ls_model *model, int layer)
{
    for (int i = layer + 1; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].inputs; k++)
            if (model->layer[i].input[k] == layer)
                return 1;
    return 0;
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
    const ls_model *model = r->model;
    const ls_layer *last = &model->layer[model->layers - 1];
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
    return fail_layer(r, model->layers - 1, text);
}

static int list_tensors(ls_model *model, const ls_host *host, ls_error *err)
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

static int read_head(ls_reader *r, const cJSON *node, const cJSON **list)
{
    static const char *const unnamed = "model";
    ls_model *model = r->model;
    const char *name;
    ls_fields f;
    ls_fields_begin(&f, r->doc, node, "model", r->err);
    ls_field_text(&f, "name", &unnamed, &name);
    r->blocks = ls_field_any(&f, "blocks");
    *list = ls_field_any(&f, "layers");
    if (f.status == LS_OK && strlen(name) >= sizeof model->name)
        ls_fields_fail(&f, cJSON_GetObjectItemCaseSensitive(f.object, "name"),
                       "\"name\" must have at most %d bytes, found %zu",
                       (int)sizeof model->name - 1, strlen(name));
    if (f.status == LS_OK)
        check_list(&f, *list);
    snprintf(model->name, sizeof model->name, "%s", name);
    int rc = ls_fields_end(&f);
    return rc == LS_OK ? ls_check_blocks(r, *list) : rc;
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

/* Room for all layers, so that their addresses never change. */
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
    int rc = read_head(r, node, &list);
    if (rc == LS_OK)
        rc = make_room(r, list, host);
    if (rc == LS_OK)
        rc = read_layers(r, list);
    if (rc == LS_OK)
        rc = check_readers(r);
    if (rc == LS_OK)
        rc = check_output(r);
    ls_free(host, r->block);
    ls_free(host, r->place);
    return rc == LS_OK ? list_tensors(r->model, host, r->err) : rc;
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
    ls_reader r = {.model = model, .doc = doc, .err = err};
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
    ls_free(host, model->tensor);
    ls_free(host, model->layer);
    ls_free(host, model);
}
