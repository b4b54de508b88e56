/* SPDX-License-Identifier: MIT */
/* Writes layers as a config has them, with their weights in the order of the canonical weights:
 * layer by layer, and in each layer weight, bias, running_mean, running_var. */
#include "onnx/importer.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Largest tensor that several layers may have as their weights: each of them gets a copy. */
    MOST_SHARED = 16384,
    /* Largest number of weights of all such copies, and of weights that no tensor has, together. */
    MOST_COPIED = 1 << 22,
    /* Limits of the metadata that are kept: entries, and bytes of an entry. */
    MOST_ENTRIES = 64,
    MOST_ENTRY = 4096
};

struct ls_onnx_net {
    const ls_host *host;
    char *path, *text;
    char *place; /* origins of the input and of each layer, a line each */
    float *weight;
    ls_onnx_about about;
};

/* ---- names ---------------------------------------------------------------------------------- */

static bool is_taken(const ls_import *g, const char *name)
{
    for (int i = 0; i < g->layers; i++)
        if (strcmp(g->layer[i].name, name) == 0)
            return true;
    return strcmp(name, "input") == 0;
}

/* Copies a name, with '.' for '/' and '_' for other characters that names of layers cannot have.
 * Keeps the end of a name that is too long. */
static void tidy_name(char out[57], ls_onnx_text name, size_t most)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    size_t n = 0;
    while (name.length > 0 && (*name.at == '/' || *name.at == '.'))
        name.at++, name.length--;
    if (name.length > most)
        name.at += name.length - most, name.length = most;
    for (size_t i = 0; i < name.length; i++) {
        const char c = name.at[i];
        out[n++] = c == '/' ? '.' : (c && strchr(allowed, c)) ? c : '_';
    }
    out[n] = '\0';
}

/* Removes the end of a text. */
static bool cut_end(ls_onnx_text *text, const char *end)
{
    const size_t n = strlen(end);
    if (text->length <= n || memcmp(text->at + text->length - n, end, n) != 0)
        return false;
    text->length -= n;
    return true;
}

/* Chooses the name of a layer: that of its weights if it ends with ".weight", otherwise that of the
 * node, otherwise the type. PyTorch's exporters name nodes "/layer1/conv1/Conv". */
static void choose_name(char out[64], const ls_import *g, const ls_onnx_node *n, const char *type,
                        const ls_import_value *like)
{
    char stem[57], op[72] = "/";
    ls_onnx_text name = n->name;
    if (like && like->name.length) {
        ls_onnx_text weight = like->name;
        if (cut_end(&weight, ".weight"))
            name = weight;
    }
    if (n->op.length > 0 && n->op.length < sizeof op - 1) {
        memcpy(op + 1, n->op.at, n->op.length);
        op[1 + n->op.length] = '\0';
        cut_end(&name, op);
    }
    const char *colon = name.length ? memchr(name.at, ':', name.length) : NULL;
    if (colon) /* one of the nodes that graph.c writes for a layer: "gelu1:erf" */
        name.length = (size_t)(colon - name.at);
    tidy_name(stem, name, sizeof stem - 1);
    if (!stem[0])
        snprintf(stem, sizeof stem, "%.40s", type);
    snprintf(out, 64, "%s", stem);
    for (int i = 2; is_taken(g, out); i++)
        snprintf(out, 64, "%s_%d", stem, i % 10000); /* at most LS_MODEL_LAYERS are taken */
}

/* ---- layers --------------------------------------------------------------------------------- */

static const char *name_of(const ls_import *g, int layer)
{
    return layer == LS_INPUT ? "input" : g->layer[layer].name;
}

ls_shape ls_import_shape(const ls_import *g, int layer)
{
    return layer == LS_INPUT ? g->input : g->layer[layer].out;
}

int ls_import_begin_net(ls_import *g)
{
    g->layer = ls_alloc_array(g->host, LS_MODEL_LAYERS, sizeof *g->layer);
    ls_json_writer_init(&g->json, 0, g->host);
    ls_json_open_object(&g->json, NULL);
    ls_json_open_array(&g->json, "layers");
    return g->layer ? LS_OK : ls_import_no_memory(g);
}

int ls_import_begin_layer(ls_import *g, const ls_onnx_node *n, const char *type, int from,
                          const ls_import_value *like)
{
    if (g->layers == LS_MODEL_LAYERS)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "it would be layer %d; at most %d are read",
                              LS_MODEL_LAYERS + 1, LS_MODEL_LAYERS);
    ls_import_layer *layer = &g->layer[g->layers];
    *layer = (ls_import_layer){.node = n, .first = -2, .second = -2};
    choose_name(layer->name, g, n, type, like);
    snprintf(layer->type, sizeof layer->type, "%s", type);
    g->norms |= strcmp(type, "batch_norm") == 0;
    ls_json_open_object(&g->json, NULL);
    ls_json_put_string(&g->json, "type", type);
    ls_json_put_string(&g->json, "name", layer->name);
    if (from != g->layers - 1)
        ls_json_put_string(&g->json, "from", name_of(g, from));
    return LS_OK;
}

void ls_import_with(ls_import *g, int layer)
{
    ls_json_put_string(&g->json, "with", name_of(g, layer));
}

int ls_import_end_layer(ls_import *g, ls_shape out)
{
    const int64_t image = (int64_t)out.h * out.w;
    ls_json_close(&g->json);
    g->large |= image > LS_MODEL_VALUES || image * out.c > LS_MODEL_VALUES;
    g->layer[g->layers].out = g->large ? (ls_shape){1, 1, 1} : out;
    return g->layers++;
}

/* Makes room for `count` more weights. */
static int make_room(ls_import *g, const ls_onnx_node *n, size_t count)
{
    if (count > LS_MODEL_FLOATS - g->weights)
        return ls_import_fail(g, n, LS_EUNSUPPORTED, "with it the model has more than %u weights",
                              LS_MODEL_FLOATS);
    if (g->weights + count <= g->room)
        return LS_OK;
    size_t room = g->room ? g->room : 4096;
    while (room < g->weights + count)
        room += room / 2;
    float *longer = ls_alloc_unset(g->host, room * sizeof *longer);
    if (!longer)
        return ls_import_no_memory(g);
    if (g->weights)
        memcpy(longer, g->weight, g->weights * sizeof *longer);
    ls_free(g->host, g->weight);
    g->weight = longer;
    g->room = room;
    return LS_OK;
}

int ls_import_add_weight(ls_import *g, const ls_onnx_node *n, ls_import_value *v, bool transposed,
                         double factor, size_t count, float fill)
{
    char name[80];
    ls_import_value *root = v && v->root ? v->root : v;
    if (v && root->weight && v->count > MOST_SHARED)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "its weights \"%s\" belong to another node as well; layers that "
                              "share weights are not read",
                              ls_onnx_copy(name, sizeof name, v->name));
    if (!v || root->weight || v->count < count)
        g->copied += count;
    if (g->copied > MOST_COPIED)
        return ls_import_fail(g, n, LS_EUNSUPPORTED,
                              "with it more than %d weights are copies or belong to no tensor",
                              MOST_COPIED);
    int status = make_room(g, n, count);
    if (status)
        return status;
    if (g->head != g->layers || g->weights == 0)
        g->head_at = g->weights;
    g->head = g->layers;
    float *out = g->weight + g->weights;
    g->weights += count;
    if (v)
        root->weight = true;
    const size_t columns = transposed ? (size_t)v->dim[1] : 1,
                 rows = count / (columns ? columns : 1);
    for (size_t i = 0; i < count; i++) {
        const size_t at = transposed ? i % rows * columns + i / rows : i;
        /* without a factor the bits of a float stay as they are */
        out[i] = !v            ? fill
                 : factor == 1 ? (float)ls_import_number(v, v->count == 1 ? 0 : at)
                               : (float)(factor * ls_import_number(v, v->count == 1 ? 0 : at));
    }
    return LS_OK;
}

/* ---- the rest of the JSON -------------------------------------------------------------------- */

static void put_text(ls_json_writer *w, const char *key, ls_onnx_text text)
{
    char copy[MOST_ENTRY];
    if (text.length > 0 && text.length < sizeof copy)
        ls_json_put_string(w, key, ls_onnx_copy(copy, sizeof copy, text));
}

static void put_source(ls_import *g)
{
    ls_json_writer *w = &g->json;
    char hex[LS_SHA256_HEX], key[128];
    int kept = 0;
    ls_sha256_final_hex(&g->hash, hex);
    ls_json_open_object(w, "source");
    ls_json_put_string(w, "format", "onnx");
    ls_json_put_string(w, "sha256", hex);
    put_text(w, "producer", g->file.producer);
    put_text(w, "producer_version", g->file.version);
    put_text(w, "doc", g->file.doc);
    if (g->ending)
        ls_json_put_string(w, "ends_with", g->ending);
    ls_json_open_object(w, "metadata");
    /* Lockstep's own metadata describe rows, and are in the model's card */
    const bool own = ls_onnx_is(g->file.producer, "lockstep");
    for (int i = 0; i < g->file.entry.count && kept < MOST_ENTRIES && !own; i++) {
        const ls_onnx_entry *e = &g->file.entry.at[i];
        if (e->key.length == 0 || e->key.length >= sizeof key || e->value.length >= MOST_ENTRY)
            continue;
        bool twice = false;
        for (int k = 0; k < i; k++)
            twice |= ls_onnx_same(e->key, g->file.entry.at[k].key);
        if (twice)
            continue;
        put_text(w, ls_onnx_copy(key, sizeof key, e->key), e->value);
        kept++;
    }
    ls_json_close(w);
    ls_json_close(w);
}

/* Fails if the last layer with weights cannot get another number of outputs. */
static int check_head(const ls_import *g)
{
    const ls_import_layer *head = &g->layer[g->head];
    const bool dense = strcmp(head->type, "dense") == 0, conv = strcmp(head->type, "conv2d") == 0;
    if ((dense || conv) && head->out.c == g->layer[g->layers - 1].out.c)
        return LS_OK;
    return ls_import_fail(g, head->node, LS_EUNSUPPORTED,
                          "its last layer with weights is \"%s\", a %s of %d outputs before an "
                          "output of %d values; a new head takes the place of a dense layer or "
                          "convolution that gives the output; \"output\" can name an earlier "
                          "tensor",
                          head->name, head->type, head->out.c, g->layer[g->layers - 1].out.c);
}

/* Writes the layer `node`, with as many outputs as the data have classes, and a bias. (Exporters
 * leave out a bias that is 0.) */
static void put_head(ls_json_writer *w, const cJSON *node)
{
    ls_json_open_object(w, NULL);
    for (const cJSON *key = node->child; key; key = key->next)
        if (strcmp(key->string, "out") == 0)
            ls_json_put_string(w, "out", "classes");
        else if (strcmp(key->string, "bias") != 0)
            ls_json_put_node(w, key->string, key);
    ls_json_close(w);
}

/* Writes the JSON of the net once more, with a new head. */
static int renew_head(ls_import *g)
{
    ls_json *doc;
    int at = 0;
    const char *text = ls_json_writer_text(&g->json, NULL, NULL);
    int status = text ? ls_json_parse(&doc, g->file.path, text, strlen(text), g->host, g->err)
                      : ls_import_no_memory(g);
    if (status)
        return status;
    ls_json_writer_reset(&g->json);
    ls_json_open_object(&g->json, NULL);
    for (const cJSON *key = ls_json_root(doc)->child; key; key = key->next) {
        if (strcmp(key->string, "layers") != 0) {
            ls_json_put_node(&g->json, key->string, key);
            continue;
        }
        ls_json_open_array(&g->json, "layers");
        for (const cJSON *layer = key->child; layer; layer = layer->next, at++)
            if (at == g->head)
                put_head(&g->json, layer);
            else
                ls_json_put_node(&g->json, NULL, layer);
        ls_json_close(&g->json);
    }
    ls_json_close(&g->json);
    ls_json_destroy(doc);
    return LS_OK;
}

static void describe(ls_onnx_about *out, const ls_import *g)
{
    const bool renewed = g->source->new_head;
    *out = (ls_onnx_about){.input = g->input,
                           .layers = g->layers,
                           .outputs = g->layer[g->layers - 1].out.c,
                           .weights = renewed ? g->head_at : g->weights,
                           .norms = g->norms,
                           .left_out = renewed ? g->weights - g->head_at : 0,
                           .rows = g->rows};
    snprintf(out->head, sizeof out->head, "%s", g->layer[g->head].name);
}

/* Stores where the input and the layers come from. */
static int keep_places(ls_onnx_net *net, const ls_import *g)
{
    char name[100], place[LS_ONNX_PLACE];
    ls_buffer lines;
    ls_buffer_init(&lines, g->host);
    ls_buffer_format(&lines, "input \"%s\"\n", ls_onnx_copy(name, sizeof name, g->begin));
    for (int i = 0; i < g->layers; i++) {
        ls_import_place(place, g, g->layer[i].node);
        ls_buffer_format(&lines, "%s\n", place);
    }
    net->place = lines.text;
    net->path = ls_strdup(g->host, g->file.path);
    return lines.failed || !net->path ? ls_import_no_memory(g) : LS_OK;
}

int ls_import_finish_net(ls_onnx_net **out, ls_import *g)
{
    ls_json_writer *w = &g->json;
    const int sides[3] = {g->input.c, g->input.h, g->input.w};
    char name[64];
    int status = g->source->new_head ? check_head(g) : LS_OK;
    if (status)
        return status;
    ls_onnx_net *net = ls_alloc(g->host, sizeof *net);
    if (!net)
        return ls_import_no_memory(g);
    net->host = g->host;
    ls_json_close(w); /* layers */
    ls_onnx_copy(name, sizeof name, g->file.graph_name);
    ls_json_put_string(w, "name", name[0] ? name : "onnx");
    ls_json_open_array(w, "input");
    for (int i = 0; i < 3; i++)
        ls_json_put_int(w, NULL, sides[i]);
    ls_json_close(w);
    put_source(g);
    ls_json_close(w);
    if (g->source->new_head && (status = renew_head(g)) != LS_OK) {
        ls_onnx_net_destroy(net);
        return status;
    }
    const char *text = ls_json_writer_text(w, NULL, NULL);
    net->text = text ? ls_strdup(g->host, text) : NULL;
    if (!net->text || keep_places(net, g) != LS_OK) {
        ls_onnx_net_destroy(net);
        return ls_import_no_memory(g);
    }
    net->weight = g->weight;
    describe(&net->about, g);
    g->weight = NULL;
    *out = net;
    return LS_OK;
}

const char *ls_onnx_net_text(const ls_onnx_net *net)
{
    return net->text;
}

/* Gives a node of the document the next of the lines, or nothing if there is no such node. */
static int set_place(ls_json *doc, const cJSON *node, const char **line, ls_error *err)
{
    char place[LS_ONNX_PLACE];
    const size_t length = strcspn(*line, "\n");
    snprintf(place, sizeof place, "%.*s", (int)length, *line);
    *line += length + ((*line)[length] == '\n');
    return ls_json_set_place(doc, node, place, err);
}

int ls_onnx_net_parse(ls_json **doc, const ls_onnx_net *net, ls_error *err)
{
    const char *line = net->place;
    int status = ls_json_parse(doc, net->path, net->text, strlen(net->text), net->host, err);
    if (status)
        return status;
    const cJSON *root = ls_json_root(*doc), *layer,
                *layers = cJSON_GetObjectItemCaseSensitive(root, "layers");
    status = set_place(*doc, cJSON_GetObjectItemCaseSensitive(root, "input"), &line, err);
    cJSON_ArrayForEach(layer, layers)
    {
        if (status == LS_OK)
            status = set_place(*doc, layer, &line, err);
    }
    if (status) {
        ls_json_destroy(*doc);
        *doc = NULL;
    }
    return status;
}

const ls_onnx_about *ls_onnx_net_about(const ls_onnx_net *net)
{
    return &net->about;
}

/* Returns the number of weights of the model's layer `name`, which a new head has. */
static size_t weights_of_layer(const ls_network *model, const char *name)
{
    size_t count = 0;
    for (int i = 0; i < model->layers; i++)
        for (int k = 0; k < model->layer[i].params && strcmp(model->layer[i].name, name) == 0; k++)
            count += model->layer[i].param[k].count;
    return count;
}

int ls_onnx_net_load(float *canonical, const ls_onnx_net *net, const ls_network *model,
                     ls_error *err)
{
    const ls_onnx_about *a = &net->about;
    const size_t head = a->left_out ? weights_of_layer(model, a->head) : 0;
    if (model->floats != a->weights + head)
        return ls_fail(err, LS_EDATA,
                       "the ONNX file has %zu weights, but the model that was read from it has %zu",
                       a->weights, model->floats - head);
    if (a->weights)
        memcpy(canonical, net->weight, a->weights * sizeof *canonical);
    return LS_OK;
}

void ls_onnx_net_destroy(ls_onnx_net *net)
{
    if (!net)
        return;
    ls_free(net->host, net->weight);
    ls_free(net->host, net->text);
    ls_free(net->host, net->place);
    ls_free(net->host, net->path);
    ls_free(net->host, net);
}
