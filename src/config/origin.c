/* SPDX-License-Identifier: MIT */
/* Reads a trained network with which training is to begin (origin.h). */
#include "config/origin.h"

#include "base/error.h"
#include "base/host.h"
#include "config/card.h"
#include "config/picture_rule.h"
#include "nn/safetensors.h"
#include "onnx/import.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Name of a new last layer. It differs from that of the old one, so that init.weights does not read
 * the old weights where the numbers of outputs are equal. */
static const char fresh[] = "new_head";

static bool ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), e = strlen(end);
    return n > e && strcmp(path + n - e, end) == 0;
}

static int keep_text(ls_origin *o, ls_json_writer *w, ls_error *err)
{
    const char *text = ls_json_writer_text(w, NULL, err);
    o->model = text ? ls_strdup(o->host, text) : NULL;
    ls_json_writer_fini(w);
    return o->model ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for the model");
}

/* Takes the licence from "source" of a model, the metadata of the file from which it was read. */
static void take_licence(ls_origin *o, const cJSON *model)
{
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(model, "source"),
                *entry = cJSON_GetObjectItemCaseSensitive(source, "metadata");
    for (entry = entry ? entry->child : NULL; entry; entry = entry->next)
        if (cJSON_IsString(entry) && (strcasecmp(entry->string, "license") == 0 ||
                                      strcasecmp(entry->string, "licence") == 0))
            snprintf(o->licence, sizeof o->licence, "%s", entry->valuestring);
}

/* ---- how pictures become rows ---------------------------------------------------------------- */

/* Guesses how pictures become rows, for a file that does not say it. An image in colour is taken
 * for one of the networks for ImageNet: of a square that has 8/7 of the row's side, 256 for 224,
 * the centre is cut out. In other cases the whole shorter side is seen. */
static void guess_rows(ls_origin *o)
{
    const ls_picture_rule *usual = &ls_imagenet_rule;
    const int side = o->input.h;
    o->guessed = !o->scales && o->input.c == usual->channels && side * o->input.w > 1;
    o->resize = (ls_prep_resize){side, 0, usual->resize.interpolation};
    if (!o->guessed)
        return;
    o->scales = true;
    o->resize.height = (2 * side * usual->resize.height + usual->crop) / (2 * usual->crop);
    memcpy(o->mean, usual->mean, sizeof o->mean);
    memcpy(o->std, usual->std, sizeof o->std);
}

/* Completes how pictures become rows. `told`: the file says how they are resized. */
static void complete_rows(ls_origin *o, bool told)
{
    const ls_shape *in = &o->input;
    if (!told)
        guess_rows(o);
    if (in->h != in->w && !(told && o->resize.height))
        o->resize = (ls_prep_resize){in->h, in->w, LS_PREP_BILINEAR};
    const ls_picture_rule *rule =
        o->scales ? ls_picture_rule_of(in, &o->resize, o->mean, o->std) : NULL;
    o->pictures = rule ? rule->name : NULL;
}

/* ---- ONNX ------------------------------------------------------------------------------------ */

/* Reads the file without a shape for rows, unless `source` has one, and, if the file leaves it
 * open, once more with one. */
static int import(ls_onnx_net **net, bool *open, ls_onnx_source *source, int side,
                  const ls_host *host, ls_error *err)
{
    ls_error first;
    int status = ls_onnx_import(net, source, host, &first);
    *open = status == LS_ECONFIG && !source->input.c;
    if (*open) {
        source->input = (ls_shape){3, side, side};
        return ls_onnx_import(net, source, host, err);
    }
    return status ? ls_fail(err, status, "%s", first.text) : LS_OK;
}

/* Stores the values of model.output and model.input that the user has set in *out. The texts belong
 * to *doc, which the caller destroys, also after a failure. */
static int take_part(ls_onnx_source *out, ls_json **doc, const char *const *set, int count,
                     const ls_host *host, ls_error *err)
{
    static const char empty[] = "{\"model\": {}}";
    ls_fields f;
    int status = ls_json_parse(doc, "--set", empty, sizeof empty - 1, host, err);
    for (int i = 0; i < count && status == LS_OK; i++)
        if (strncmp(set[i], "model.", 6) == 0)
            status = ls_json_set(*doc, set[i], err);
    if (status)
        return status;
    ls_fields_begin(&f, *doc, cJSON_GetObjectItemCaseSensitive(ls_json_root(*doc), "model"),
                    "model", err);
    ls_field_any(&f, "onnx");
    ls_config_read_part(out, &f);
    out->new_head = true;
    return ls_fields_end(&f);
}

static int read_onnx(ls_origin *o, ls_onnx_source *source, const char *named, int side,
                     ls_error *err)
{
    ls_onnx_net *net;
    ls_json_writer w;
    ls_json *doc = NULL;
    bool open;
    int status = import(&net, &open, source, side, o->host, err);
    if (status)
        return status;
    const ls_onnx_about *a = ls_onnx_net_about(net);
    const int sides[3] = {a->input.c, a->input.h, a->input.w};
    o->input = a->input;
    o->open = open;
    o->layers = a->layers;
    o->outputs = a->outputs;
    o->taken = a->weights;
    o->left = a->left_out;
    o->norms = a->norms;
    o->scales = a->rows.known;
    o->resize = a->rows.resize;
    memcpy(o->mean, a->rows.mean, sizeof o->mean);
    memcpy(o->std, a->rows.std, sizeof o->std);
    complete_rows(o, a->rows.known);
    snprintf(o->head, sizeof o->head, "%s", a->head);
    ls_json_writer_init(&w, 0, o->host);
    ls_json_open_object(&w, NULL);
    ls_json_put_string(&w, "onnx", named);
    if (open) {
        ls_json_open_array(&w, "input");
        for (int i = 0; i < 3; i++)
            ls_json_put_int(&w, NULL, sides[i]);
        ls_json_close(&w);
    }
    ls_json_put_string(&w, "head", "new");
    ls_json_close(&w);
    status = ls_onnx_net_parse(&doc, net, err);
    if (status == LS_OK)
        take_licence(o, ls_json_root(doc));
    ls_json_destroy(doc);
    ls_onnx_net_destroy(net);
    int kept = keep_text(o, &w, status ? NULL : err);
    return status ? status : kept;
}

/* ---- files of weights ------------------------------------------------------------------------ */

/* Returns the entry of `layers` that is the last layer with weights, if it can be replaced: a dense
 * layer or a convolution, and not one of a block. */
static const cJSON *find_head(const cJSON *layers, const ls_network *model)
{
    const ls_layer *last = NULL;
    const cJSON *found = NULL, *entry;
    for (int i = 0; i < model->layers; i++)
        if (model->layer[i].params > 0)
            last = &model->layer[i];
    int at = 0;
    cJSON_ArrayForEach(entry, layers)
    {
        char number[16];
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "name"));
        snprintf(number, sizeof number, "%d", at++);
        if (last && strcmp(name ? name : number, last->name) == 0)
            found = entry;
    }
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(found, "type"));
    return type && (strcmp(type, "dense") == 0 || strcmp(type, "conv2d") == 0) ? found : NULL;
}

static void put_head(ls_json_writer *w, const cJSON *head)
{
    ls_json_open_object(w, NULL);
    for (const cJSON *key = head->child; key; key = key->next)
        if (strcmp(key->string, "out") != 0 && strcmp(key->string, "name") != 0)
            ls_json_put_node(w, key->string, key);
    ls_json_put_string(w, "name", fresh);
    ls_json_put_string(w, "out", "classes");
    ls_json_close(w);
}

/* Writes the model with a new last layer. */
static void put_model(ls_json_writer *w, const cJSON *model, const cJSON *head)
{
    ls_json_open_object(w, NULL);
    for (const cJSON *key = model->child; key; key = key->next) {
        if (strcmp(key->string, "layers") != 0) {
            ls_json_put_node(w, key->string, key);
            continue;
        }
        ls_json_open_array(w, "layers");
        for (const cJSON *layer = key->child; layer; layer = layer->next)
            if (layer == head)
                put_head(w, head);
            else
                ls_json_put_node(w, NULL, layer);
        ls_json_close(w);
    }
    ls_json_close(w);
}

/* Counts the weights that are taken over, and those that are not. */
static void count_weights(ls_origin *o, const ls_network *model)
{
    o->layers = model->layers;
    o->taken = model->floats;
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *layer = &model->layer[i];
        o->norms |= layer->op.kind == LS_OP_BATCHNORM;
        if (layer->params == 0)
            continue;
        o->left = 0;
        for (int k = 0; k < layer->params; k++)
            o->left += layer->param[k].count;
    }
    o->taken -= o->left;
}

static int take_card(ls_origin *o, const ls_card *card, const ls_tensor_file *file,
                     const char *path, ls_error *err)
{
    const ls_gather *scale = &card->config.preprocessing;
    ls_network *model;
    float *weights;
    int status = ls_card_load(&model, &weights, card, file, err);
    if (status)
        return status;
    ls_json_writer w;
    const cJSON *text = card->config.model,
                *head = find_head(cJSON_GetObjectItemCaseSensitive(text, "layers"), model);
    o->input = card->input;
    o->outputs = card->classes;
    o->weights = path;
    o->scales = !scale->floats;
    for (int i = 0; i < 4; i++)
        o->mean[i] = scale->mean[i], o->std[i] = scale->std[i];
    o->resize = card->prep->resize;
    complete_rows(o, o->scales);
    snprintf(o->head, sizeof o->head, "%s", fresh);
    count_weights(o, model);
    take_licence(o, text);
    ls_network_destroy(model, o->host);
    ls_free(o->host, weights);
    if (!head)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: its last layer with weights is not a dense layer or convolution "
                       "outside blocks, so it cannot be replaced; write the model yourself, and "
                       "set init to {\"weights\": FILE, \"partial\": true}",
                       path);
    ls_json_writer_init(&w, 0, o->host);
    put_model(&w, text, head);
    return keep_text(o, &w, err);
}

static int read_weights(ls_origin *o, const char *path, ls_error *err)
{
    ls_card card = {.classes = 0};
    ls_tensor_file *file;
    ls_error cause;
    int status = ls_tensor_file_open(&file, path, o->host, err);
    if (status)
        return status;
    status = ls_card_read(&card, file, o->host, &cause);
    if (status == LS_OK)
        status = take_card(o, &card, file, path, err);
    else if (status == LS_EDATA)
        status = ls_fail(err, LS_EUNSUPPORTED,
                         "%.400s; a file of weights alone does not say which network they belong "
                         "to: export the network as ONNX, with torch.onnx.export, and name that "
                         "file; or write the layers into a config, and set init to {\"weights\": "
                         "FILE, \"partial\": true}",
                         cause.text);
    else
        status = ls_fail(err, status, "%s", cause.text);
    ls_card_fini(&card);
    ls_tensor_file_close(file);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

int ls_origin_read(ls_origin *out, const char *path, const char *named, int side,
                   const char *const *set, int count, const ls_host *host, ls_error *err)
{
    *out = (ls_origin){.host = host};
    if (ends_with(path, ".onnx")) {
        ls_onnx_source source = {.path = path};
        ls_json *doc = NULL;
        int status = take_part(&source, &doc, set, count, host, err);
        if (status == LS_OK)
            status = read_onnx(out, &source, named, side, err);
        ls_json_destroy(doc);
        return status;
    }
    if (ends_with(path, ".safetensors"))
        return read_weights(out, path, err);
    return ls_fail(err, LS_EINVAL,
                   "%.400s: expected a file that ends in .onnx or .safetensors; a .pt or .pth of "
                   "PyTorch becomes one with torch.onnx.export",
                   path);
}

void ls_origin_fini(ls_origin *o)
{
    if (o->model)
        ls_free(o->host, o->model);
    o->model = NULL;
}
