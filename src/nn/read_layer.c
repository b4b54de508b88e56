/* SPDX-License-Identifier: MIT */
/* Reads one layer: its type, name, inputs and shape. Also implements the functions of layer.h. */
#include "base/error.h"
#include "nn/layer.h"
#include "nn/reader.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { TYPES_MAX = 64 };

/* ---- messages ------------------------------------------------------------------------------- */

int ls_fail_at_layer(const ls_reader *r, ls_layer_place place, int status, const char *text)
{
    int line;
    int column;
    if (!place.use)
        return ls_json_fail_value(r->err, r->doc, place.node, status, "%s", text);
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(place.use, "block");
    if (ls_json_where(r->doc, place.use, true, &line, &column) != LS_OK)
        return ls_json_fail_value(r->err, r->doc, place.node, status, "%s (in block \"%.40s\")",
                                  text, name->valuestring);
    return ls_json_fail_value(r->err, r->doc, place.node, status,
                              "%s (in block \"%.40s\", used at %s:%d:%d)", text, name->valuestring,
                              ls_json_name(r->doc), line, column);
}

/* ---- type and name -------------------------------------------------------------------------- */

static void read_type(ls_layer *layer, ls_fields *f)
{
    const ls_layer_type *const *types = ls_layer_types();
    const char *names[TYPES_MAX + 1] = {0};
    int type;
    for (int i = 0; i < TYPES_MAX && types[i]; i++)
        names[i] = types[i]->name;
    if (ls_field_choice(f, "type", names, NULL, &type))
        layer->type = types[type];
}

static bool name_is_plain(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    size_t n = strlen(name);
    return n > 0 && n < sizeof((ls_layer *)0)->name && strspn(name, allowed) == n;
}

/* Returns the index of the layer with this name, from index `first` on, or −1. */
static int find_layer(const ls_network *model, int first, const char *name)
{
    for (int i = first; i < model->layers; i++)
        if (strcmp(model->layer[i].name, name) == 0)
            return i;
    return -1;
}

/* Returns the index of the last layer of the use of a block with this name, or −1. */
static int find_block(const ls_reader *r, const char *name)
{
    for (int i = 0; i < r->block_names; i++)
        if (strcmp(r->block[i].name, name) == 0)
            return r->block[i].layer;
    return -1;
}

static bool is_taken(const ls_reader *r, const char *name)
{
    return find_layer(r->model, 0, name) >= 0 || find_block(r, name) >= 0;
}

/* The names of layers are part of the names of tensors in files, so only letters, digits, '_', '-'
 * and '.' are allowed. */
void ls_read_name(const ls_reader *r, const ls_scope *scope, ls_fields *f, int position,
                  char full[64])
{
    const int most = (int)sizeof((ls_layer *)0)->name - 1;
    char number[16];
    char text[160];
    const char *name;
    snprintf(number, sizeof number, "%d", position);
    const char *fallback = number;
    ls_field_text(f, "name", &fallback, &name);
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(f->object, "name");
    int length = snprintf(text, sizeof text, "%s%.70s", scope->prefix, name);
    if (!name_is_plain(name))
        ls_fields_fail(f, node, "\"name\" must be 1 to %d letters, digits, '_', '-' or '.'", most);
    else if (length > most)
        ls_fields_fail(f, node, "its name \"%s\" is longer than %d letters; choose shorter names",
                       text, most);
    else if (strcmp(name, "input") == 0)
        ls_fields_fail(f, node, "\"input\" stands for what a %s reads; choose another name",
                       scope->use ? "block" : "model");
    else if (is_taken(r, text))
        ls_fields_fail(f, node, "the name \"%s\" is taken already; choose another one", text);
    else
        snprintf(full, (size_t)most + 1, "%.63s", text);
}

/* ---- the inputs ------------------------------------------------------------------------------ */

static int resolve(const ls_reader *r, const ls_scope *scope, const char *name)
{
    char full[160];
    snprintf(full, sizeof full, "%s%.70s", scope->prefix, name);
    int layer = find_layer(r->model, scope->first, full);
    return layer < 0 && !scope->use ? find_block(r, name) : layer;
}

static void fail_reference(const ls_reader *r, const ls_scope *scope, ls_fields *f, const char *key,
                           const char *name)
{
    const char *names[LS_MODEL_LAYERS + 1] = {"input"};
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(f->object, key);
    const size_t skip = strlen(scope->prefix);
    const char *where = scope->use ? " in the block" : "";
    size_t count = 1;
    for (int i = scope->first; i < r->model->layers; i++) {
        const char *own = r->model->layer[i].name + skip;
        /* The message does not suggest default names, which are numbers, because a number is close
         * to every short name. */
        if (!isdigit((unsigned char)own[0]))
            names[count++] = own;
    }
    const char *near = ls_closest(name, names, count);
    if (near)
        ls_fields_fail(f, node, "no earlier layer%s is called \"%.63s\"; did you mean \"%s\"?",
                       where, name, near);
    else
        ls_fields_fail(f, node,
                       "no earlier layer%s is called \"%.63s\"; \"%s\" names a layer that stands "
                       "before this one, or \"input\"",
                       where, name, key);
}

int ls_read_reference(const ls_reader *r, const ls_scope *scope, ls_fields *f, const char *key,
                      int fallback)
{
    const char *none = NULL;
    const char *name;
    if (!ls_field_text(f, key, &none, &name))
        return fallback;
    if (strcmp(name, "input") == 0)
        return scope->input;
    int layer = resolve(r, scope, name);
    if (layer < 0)
        fail_reference(r, scope, f, key, name);
    return layer < 0 ? fallback : layer;
}

/* Reads "with", the second input. The key is required, because no layer is a likely default. */
static void read_second(const ls_reader *r, const ls_scope *scope, ls_layer *layer, ls_fields *f)
{
    if (layer->inputs < 2)
        return;
    layer->input[1] = ls_read_reference(r, scope, f, "with", LS_INPUT);
    if (f->status == LS_OK && !cJSON_HasObjectItem(f->object, "with"))
        ls_fields_fail(f, NULL,
                       "\"with\" is missing; name the layer whose output is %s, or "
                       "\"input\"",
                       layer->op.kind == LS_OP_CONCAT     ? "appended"
                       : layer->op.kind == LS_OP_MULTIPLY ? "a factor"
                                                          : "added");
}

/* ---- the layer ------------------------------------------------------------------------------ */

/* Reports a missing "type". Without a type all other keys are unknown. Unknown keys are not
 * reported here, except a key that looks like a misspelt "type". */
static void fail_without_type(ls_fields *f)
{
    static const char *const type = "type";
    const cJSON *node = f->status == LS_OK ? f->object->child : NULL;
    for (; node; node = node->next)
        if (strcmp(node->string, "name") != 0 && ls_closest(node->string, &type, 1))
            ls_fields_fail(f, node, "unknown key \"%.60s\"; did you mean \"type\"?", node->string);
    ls_fields_fail(f, NULL, "\"type\" is missing; add it, such as \"type\": \"dense\"");
}

static int parse_layer(const ls_reader *r, const ls_scope *scope, int position, const cJSON *node,
                       ls_error *err)
{
    ls_layer *layer = &r->model->layer[r->model->layers];
    ls_fields f;
    char what[160];
    layer->index = r->model->layers;
    layer->classes = r->model->classes;
    layer->last = !scope->use && !node->next;
    layer->inputs = 1;
    snprintf(what, sizeof what, "layer %s%d", scope->prefix, position);
    /* a layer of a block is a copy in which the values of the use are filled in */
    ls_fields_begin(&f, scope->use ? NULL : r->doc, node, what, err);
    read_type(layer, &f);
    ls_read_name(r, scope, &f, position, layer->name);
    layer->input[0] =
        ls_read_reference(r, scope, &f, "from",
                          r->model->layers > scope->first ? r->model->layers - 1 : scope->input);
    if (!layer->type) {
        fail_without_type(&f);
        return ls_fields_end(&f);
    }
    snprintf(what, sizeof what, "%s '%s'", layer->type->name, layer->name);
    layer->op.size = sizeof layer->op;
    layer->op.kind = layer->type->kind;
    if (layer->type->parse)
        layer->type->parse(layer, &f);
    read_second(r, scope, layer, &f);
    return ls_fields_end(&f);
}

/* ---- shape ---------------------------------------------------------------------------------- */

static bool same_shape(const ls_shape *a, const ls_shape *b)
{
    return a->c == b->c && a->h == b->h && a->w == b->w;
}

static void add_tensor(ls_network *model, ls_param *p, const ls_layer *layer, const char *suffix)
{
    snprintf(p->name, sizeof p->name, "%s.%s", layer->name, suffix);
    p->rate = 1;
    p->offset = model->floats;
    model->floats += p->count;
}

static int add_tensors(ls_network *model, ls_layer *layer, ls_error *err)
{
    static const char *const param[LS_OP_PARAMS] = {"weight", "bias"};
    static const char *const stat[LS_STATS] = {"running_mean", "running_var"};
    const size_t before = model->floats;
    for (int k = 0; k < layer->params; k++)
        add_tensor(model, &layer->param[k], layer, param[k]);
    model->parameters += model->floats - before;
    for (int k = 0; k < layer->stats; k++)
        add_tensor(model, &layer->stat[k], layer, stat[k]);
    model->params += layer->params;
    model->stats += layer->stats;
    if (model->floats <= LS_MODEL_FLOATS)
        return LS_OK;
    return ls_fail(err, LS_ECONFIG,
                   "with it the model has more than %u parameters; use fewer features",
                   LS_MODEL_FLOATS);
}

static const char *input_name(const ls_network *model, int input)
{
    return input == LS_INPUT ? "input" : model->layer[input].name;
}

static bool is_pixel(const ls_shape *shape)
{
    return shape->h == 1 && shape->w == 1;
}

/* Returns whether shapes a and b are equal. If the layer is a concatenation, the numbers of
 * channels may differ. If it is a product, one of the shapes may be a single pixel. */
static bool have_like_shapes(const ls_layer *layer, const ls_shape *a, ls_shape b)
{
    if (layer->op.kind == LS_OP_CONCAT)
        b.c = a->c;
    if (layer->op.kind == LS_OP_MULTIPLY && (is_pixel(a) || is_pixel(&b)))
        return a->c == b.c;
    return same_shape(a, &b);
}

/* Checks that both inputs of the layer have the same shape, and also the same shape in memory.
 * `memory` and `memory2` are the shapes of the first and the second input in memory. */
static int check_second(const ls_network *model, const ls_layer *layer, const ls_shape *memory,
                        const ls_shape *memory2, ls_error *err)
{
    const ls_shape *a = &layer->in;
    const ls_shape *b = &layer->in2;
    const char *first = input_name(model, layer->input[0]);
    const char *second = input_name(model, layer->input[1]);
    if (!have_like_shapes(layer, a, *b) && layer->op.kind == LS_OP_CONCAT)
        return ls_fail(
            err, LS_ECONFIG,
            "its inputs must have one height and width, but \"%s\" gives %d×%d×%d and \"%s\" "
            "gives %d×%d×%d; make them equal, say with an upsample or a pool",
            first, a->c, a->h, a->w, second, b->c, b->h, b->w);
    if (!have_like_shapes(layer, a, *b) && layer->op.kind == LS_OP_MULTIPLY)
        return ls_fail(
            err, LS_ECONFIG,
            "its inputs must have one shape, or one of them one value for each channel "
            "of the other, but \"%s\" gives %d×%d×%d and \"%s\" gives %d×%d×%d; make them "
            "equal, say with a 1×1 conv2d",
            first, a->c, a->h, a->w, second, b->c, b->h, b->w);
    if (!have_like_shapes(layer, a, *b))
        return ls_fail(err, LS_ECONFIG,
                       "its inputs must have one shape, but \"%s\" gives %d×%d×%d and \"%s\" gives "
                       "%d×%d×%d; make them equal, say with a 1×1 conv2d",
                       first, a->c, a->h, a->w, second, b->c, b->h, b->w);
    if (have_like_shapes(layer, memory, *memory2))
        return LS_OK;
    return ls_fail(err, LS_ECONFIG,
                   "of its inputs \"%s\" and \"%s\" one was flattened and the other was not; move "
                   "the flatten layer after it",
                   first, second);
}

static void find_input(const ls_network *model, int input, ls_shape *in, ls_shape *memory)
{
    *in = input == LS_INPUT ? model->input : model->layer[input].out;
    *memory = input == LS_INPUT ? model->input : model->layer[input].y;
}

static int shape_layer(ls_network *model, ls_layer *layer, ls_error *err)
{
    ls_shape memory;
    ls_shape memory2 = {0};
    int status = LS_OK;
    find_input(model, layer->input[0], &layer->in, &memory);
    layer->in_is_flattened = !same_shape(&layer->in, &memory);
    if (layer->inputs == 2) {
        find_input(model, layer->input[1], &layer->in2, &memory2);
        status = check_second(model, layer, &memory, &memory2, err);
    }
    if (status == LS_OK)
        status = layer->type->shape(layer, err);
    if (status != LS_OK)
        return status;
    /* If the layer has no op, or has an op that reads any layout, the shape of its output in memory
     * is the shape of its input in memory. */
    layer->y = layer->op.kind == 0 || layer->same_shape ? memory : layer->out;
    if (layer->op.kind == LS_OP_CONCAT)
        layer->y = (ls_shape){memory.c + memory2.c, memory.h, memory.w};
    long long image = (long long)layer->out.h * layer->out.w;
    if (image > LS_MODEL_VALUES || image * layer->out.c > LS_MODEL_VALUES)
        return ls_fail(err, LS_ECONFIG,
                       "its output of %d×%d×%d has more than %d values for one row; make it "
                       "smaller",
                       layer->out.c, layer->out.h, layer->out.w, LS_MODEL_VALUES);
    return add_tensors(model, layer, err);
}

int ls_read_layer(ls_reader *r, const ls_scope *scope, int position, const cJSON *node,
                  const cJSON *origin)
{
    const ls_layer_place place = {origin, scope->use};
    ls_layer *layer = &r->model->layer[r->model->layers];
    ls_error why = {0};
    int status = parse_layer(r, scope, position, node, &why);
    if (status != LS_OK && scope->use)
        return ls_fail_at_layer(r, place, status, why.text);
    if (status != LS_OK) {
        if (r->err)
            *r->err = why;
        return status;
    }
    if (!r->keys_only)
        status = shape_layer(r->model, layer, &why);
    if (status != LS_OK) {
        char text[LS_ERROR_TEXT];
        snprintf(text, sizeof text, "%s '%s': %.400s", layer->type->name, layer->name, why.text);
        return ls_fail_at_layer(r, place, status, text);
    }
    r->place[r->model->layers++] = place;
    return LS_OK;
}

/* ---- functions of layer.h -------------------------------------------------------------------- */

float ls_read_float(ls_fields *fields, const char *key, double min, double max, double fallback)
{
    double value;
    ls_field_double(fields, key, min, max, &fallback, &value);
    return (float)value;
}

int ls_read_out(ls_layer *layer, ls_fields *fields)
{
    const cJSON *node = ls_field_any(fields, "out");
    const long classes = layer->classes;
    long out;
    if (cJSON_IsString(node) && strcmp(node->valuestring, "classes") == 0)
        return layer->classes;
    ls_field_int(fields, "out", 1, LS_MAX_FEATURES, layer->last ? &classes : NULL, &out);
    return (int)out;
}

/* Returns the number of pixels that the dilated kernel covers in direction `side`: 0 vertically, 1
 * horizontally. */
static int span(const ls_window *w, int side)
{
    return (w->k[side] - 1) * w->d[side] + 1;
}

void ls_window_parse(ls_window *out, ls_fields *fields, const long *stride)
{
    static const long zero = 0;
    static const long one = 1;
    const long most = LS_MAX_KERNEL - 1;
    ls_field_pair(fields, "kernel", 1, LS_MAX_KERNEL, NULL, out->k);
    int given = ls_field_pair(fields, "stride", 1, LS_MAX_STRIDE, stride ? stride : &one, out->s);
    if (!given && !stride)
        memcpy(out->s, out->k, sizeof out->s);
    if (stride) {
        ls_field_pair(fields, "padding", 0, most, &zero, out->p);
        memcpy(out->end, out->p, sizeof out->end);
    } else {
        ls_field_sides(fields, "padding", 0, most, out->p, out->end);
    }
    for (int i = 0; i < 2; i++) {
        const int p = out->p[i] > out->end[i] ? out->p[i] : out->end[i];
        if (out->k[i] > 0 && out->d[i] > 0 && p >= span(out, i))
            ls_fields_fail(fields, cJSON_GetObjectItemCaseSensitive(fields->object, "padding"),
                           "padding %d must be smaller than the kernel, which is %d%s", p,
                           span(out, i), out->d[i] > 1 ? " with its dilation" : "");
    }
}

/* Returns the smallest padding with which a window of k pixels fits into n pixels. */
static int padding_for(int k, int n)
{
    return k > n ? (k - n + 1) / 2 : 0;
}

static int fail_window(const ls_window *w, const int n[2], ls_error *err)
{
    const int k[2] = {span(w, 0), span(w, 1)};
    const int p[2] = {padding_for(k[0], n[0]), padding_for(k[1], n[1])};
    const bool dilated = w->d[0] > 1 || w->d[1] > 1;
    char padding[48] = "";
    if (p[0] < LS_MAX_KERNEL && p[1] < LS_MAX_KERNEL)
        snprintf(padding, sizeof padding,
                 p[0] == p[1] ? " or padding ≥ %d" : " or padding ≥ [%d, %d]", p[0], p[1]);
    return ls_fail(err, LS_ECONFIG, "kernel %d×%d%s does not fit its %d×%d input; use %s%s", k[0],
                   k[1], dilated ? " with its dilation" : "", n[0], n[1],
                   dilated ? "less dilation" : "a smaller kernel", padding);
}

int ls_window_shape(ls_shape *out, const ls_shape *in, const ls_window *window, ls_error *err)
{
    const int n[2] = {in->h, in->w};
    int size[2];
    int fits = 1;
    for (int i = 0; i < 2; i++) {
        size[i] = ls_windows(n[i], span(window, i), window->s[i], window->p[i], window->end[i],
                             window->ceil);
        fits = fits && size[i] > 0;
    }
    if (!fits)
        return fail_window(window, n, err);
    out->h = size[0];
    out->w = size[1];
    return LS_OK;
}

int ls_layer_wants_image(const ls_layer *layer, ls_error *err)
{
    if (!layer->in_is_flattened)
        return LS_OK;
    return ls_fail(err, LS_ECONFIG,
                   "expected an image, but its input of %d features was flattened; remove the "
                   "flatten layer before it",
                   layer->in.c);
}

int ls_layer_add_params(ls_layer *layer, int rank, const int dim[4], int bias, ls_error *err)
{
    assert(layer->params == 0);
    ls_param *weight = &layer->param[0];
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= (size_t)dim[i]; /* at most 2³¹ · 2²⁸ */
        if (count > LS_MODEL_FLOATS)
            return ls_fail(err, LS_ECONFIG,
                           "its weight has more than %u numbers; use fewer features",
                           LS_MODEL_FLOATS);
        weight->dim[i] = dim[i];
    }
    weight->rank = rank;
    weight->count = count;
    weight->fan_in = (int)(count / (size_t)dim[0]);
    weight->fan_out = (int)(count / (size_t)dim[1]);
    layer->params = 1;
    if (bias) {
        layer->param[1] = (ls_param){.rank = 1,
                                     .dim = {dim[0]},
                                     .count = (size_t)dim[0],
                                     .start = LS_START_ZEROS,
                                     .fan_in = weight->fan_in,
                                     .fan_out = dim[0]};
        layer->params = 2;
    }
    return LS_OK;
}

ls_param ls_layer_filled(const ls_shape *dim, ls_start start)
{
    const int values = (int)ls_shape_values(dim);
    return (ls_param){.rank = dim->h == 1 && dim->w == 1 ? 1 : 3,
                      .dim = {dim->c, dim->h, dim->w},
                      .count = (size_t)values,
                      .start = start,
                      .fan_in = values,
                      .fan_out = values};
}

int ls_layer_same_shape(ls_layer *layer, ls_error *err)
{
    (void)err;
    layer->out = layer->in;
    layer->same_shape = true;
    return LS_OK;
}
