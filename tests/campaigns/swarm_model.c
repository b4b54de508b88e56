/* SPDX-License-Identifier: MIT */
/* Draws random models: stacks of layers with shortcuts, branches and blocks, whose shapes fit. */
#include "campaigns/swarm.h"

#include <lockstep/sys/plugin.h>
#include <stdio.h>
#include <string.h>

typedef struct builder {
    draws *d;
    cJSON *layers, *blocks;
    int c, h, w;
    int vector; /* non-zero: flattened, or after a dense layer */
    int names;
} builder;

static cJSON *layer(cJSON *list, const char *type)
{
    cJSON *node = cJSON_CreateObject();
    cJSON_AddStringToObject(node, "type", type);
    cJSON_AddItemToArray(list, node);
    return node;
}

static cJSON *add(builder *b, const char *type)
{
    return layer(b->layers, type);
}

static void add_name(builder *b, cJSON *node, char name[16])
{
    snprintf(name, 16, "n%d", b->names++);
    cJSON_AddStringToObject(node, "name", name);
}

/* One number, or two in an array, which stand for the same where they are equal. */
static void add_pair(builder *b, cJSON *node, const char *key, int first, int second)
{
    if (first == second && draw(b->d, 2))
        cJSON_AddNumberToObject(node, key, first);
    else
        cJSON_AddItemToObject(node, key, cJSON_CreateIntArray((int[]){first, second}, 2));
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int reach(int size, int kernel, int stride, int padding, int dilation)
{
    return (size + 2 * padding - (kernel - 1) * dilation - 1) / stride + 1;
}

/* A dilation with which the kernel fits without padding. */
static int draw_dilation(builder *b, int size, int kernel)
{
    return draw_from(b->d, 1, kernel < 2 ? 3 : least(3, (size - 1) / (kernel - 1)));
}

/* Draws kernel, stride, padding and, where allowed, dilation that fit. The shape becomes that of
 * the output. */
static void add_window(builder *b, cJSON *node, int most, int may_dilate)
{
    const int square = !one_in(b->d, 4);
    int k[2], s[2], p[2], e[2] = {1, 1};
    for (int i = 0; i < 2; i++) {
        const int size = i ? b->w : b->h;
        k[i] = draw_from(b->d, 1, least(most, size));
        s[i] = draw_from(b->d, 1, 2);
        p[i] = draw_from(b->d, 0, least(2, k[i] - 1));
    }
    if (square && k[0] <= b->w)
        k[1] = k[0], s[1] = s[0], p[1] = p[0];
    if (may_dilate && one_in(b->d, 4)) {
        e[0] = draw_dilation(b, b->h, k[0]);
        e[1] = draw_dilation(b, b->w, k[1]);
        add_pair(b, node, "dilation", e[0], e[1]);
    }
    add_pair(b, node, "kernel", k[0], k[1]);
    add_pair(b, node, "stride", s[0], s[1]);
    if (p[0] || p[1] || draw(b->d, 2))
        add_pair(b, node, "padding", p[0], p[1]);
    b->h = reach(b->h, k[0], s[0], p[0], e[0]);
    b->w = reach(b->w, k[1], s[1], p[1], e[1]);
}

/* Draws a window whose padding differs from side to side, and whose number is rounded up or down.
 */
static void add_uneven_window(builder *b, cJSON *node)
{
    int *const size[2] = {&b->h, &b->w};
    int sides[4];
    const int k = draw_from(b->d, 1, least(3, least(b->h, b->w))), s = draw_from(b->d, 1, 2);
    const int up = (int)draw(b->d, 2);
    for (int i = 0; i < 4; i++)
        sides[i] = draw_from(b->d, 0, k - 1);
    for (int i = 0; i < 2; i++)
        *size[i] = ls_windows(*size[i], k, s, sides[i], sides[2 + i], up);
    cJSON_AddNumberToObject(node, "kernel", k);
    cJSON_AddNumberToObject(node, "stride", s);
    cJSON_AddItemToObject(node, "padding", cJSON_CreateIntArray(sides, 4));
    if (up || draw(b->d, 2))
        cJSON_AddBoolToObject(node, "ceil_mode", up);
}

static int draw_channels(builder *b)
{
    static const int common[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 32, 33};
    return common[draw(b->d, one_in(b->d, 6) ? 12 : 8)];
}

static void add_conv(builder *b)
{
    cJSON *node = add(b, "conv2d");
    const int in = b->c;
    b->c = draw_channels(b);
    if (one_in(b->d, 4)) { /* two groups, or one for each channel, with one or two outputs */
        const int groups = in % 2 == 0 && draw(b->d, 2) ? 2 : in;
        b->c = groups == in ? in * draw_from(b->d, 1, 2) : b->c * 2;
        cJSON_AddNumberToObject(node, "groups", groups);
    }
    cJSON_AddNumberToObject(node, "out", b->c);
    add_window(b, node, 5, 1);
    if (one_in(b->d, 3))
        cJSON_AddBoolToObject(node, "bias", (int)draw(b->d, 2));
}

static void add_norm(builder *b, cJSON *list)
{
    cJSON *node = layer(list, "batch_norm");
    if (one_in(b->d, 4))
        cJSON_AddNumberToObject(node, "epsilon", draw_between(b->d, 1e-4, 1e-2));
    if (one_in(b->d, 4))
        cJSON_AddNumberToObject(node, "momentum", draw_between(b->d, 0, 1));
}

static void add_activation(builder *b)
{
    static const char *const types[] = {
        "relu",       "relu",         "relu",       "sigmoid", "tanh", "gelu",   "silu",
        "leaky_relu", "hard_sigmoid", "hard_swish", "relu6",   "clip", "affine", NULL};
    const char *type = draw_word(b->d, types);
    cJSON *node = add(b, type);
    if (strcmp(type, "leaky_relu") == 0 && draw(b->d, 2))
        cJSON_AddNumberToObject(node, "slope", draw_between(b->d, 0, 1));
    if (strcmp(type, "gelu") == 0 && draw(b->d, 2))
        cJSON_AddStringToObject(node, "approximate", draw(b->d, 2) ? "tanh" : "none");
    if (strcmp(type, "clip") == 0) {
        const int limits = draw_from(b->d, 1, 3);
        if (limits & 1)
            cJSON_AddNumberToObject(node, "min", draw_between(b->d, -2, 0));
        if (limits & 2)
            cJSON_AddNumberToObject(node, "max", draw_between(b->d, 0.5, 6));
    }
    if (strcmp(type, "affine") == 0) {
        cJSON_AddNumberToObject(node, "slope", draw_between(b->d, -1, 2));
        if (draw(b->d, 2))
            cJSON_AddNumberToObject(node, "offset", draw_between(b->d, -1, 1));
    }
    if (strcmp(type, "hard_sigmoid") == 0 && draw(b->d, 2)) {
        cJSON_AddNumberToObject(node, "slope", draw_between(b->d, 0.1, 0.5));
        cJSON_AddNumberToObject(node, "offset", draw_between(b->d, 0.2, 0.8));
    }
}

/* A convolution whose padding differs from side to side: a pad before a convolution. */
static void add_padded_conv(builder *b)
{
    int sides[4];
    for (int i = 0; i < 4; i++)
        sides[i] = draw_from(b->d, 0, 2);
    cJSON_AddItemToObject(add(b, "pad"), "padding", cJSON_CreateIntArray(sides, 4));
    b->h += sides[0] + sides[2];
    b->w += sides[1] + sides[3];
    add_conv(b);
}

static void add_dropout(builder *b)
{
    cJSON *node = add(b, "dropout");
    if (draw(b->d, 2))
        cJSON_AddNumberToObject(node, "p", draw_between(b->d, 0, 0.8));
}

static void add_pool(builder *b)
{
    const int average = (int)draw(b->d, 2);
    cJSON *node = add(b, average ? "avg_pool" : "max_pool");
    if (one_in(b->d, 3)) {
        add_uneven_window(b, node);
        if (average && draw(b->d, 2))
            cJSON_AddBoolToObject(node, "count_include_pad", 1);
    } else {
        add_window(b, node, 3, 0);
    }
}

/* A convolution that keeps the shape, in `list` and from `from` or its predecessor. */
static cJSON *keeping(builder *b, const char *from)
{
    cJSON *node = add(b, "conv2d");
    cJSON_AddNumberToObject(node, "out", b->c);
    cJSON_AddNumberToObject(node, "kernel", 3);
    cJSON_AddNumberToObject(node, "padding", 1);
    if (from)
        cJSON_AddStringToObject(node, "from", from);
    return node;
}

/* A shortcut around two layers, or two branches that meet. */
static void add_sum(builder *b)
{
    char begin[16], branch[16];
    add_name(b, keeping(b, NULL), begin);
    add_name(b, keeping(b, NULL), branch);
    const int shortcut = (int)draw(b->d, 2);
    if (!shortcut)
        keeping(b, begin);
    if (draw(b->d, 2))
        add_norm(b, b->layers);
    cJSON_AddStringToObject(add(b, "add"), "with", shortcut ? begin : branch);
    if (draw(b->d, 2))
        add_activation(b);
}

/* A branch at half the size that comes back beside what it left: a small U-Net. */
static void add_skip(builder *b)
{
    static const char *const keys[] = {"kernel", "scale"};
    char skip[16];
    add_name(b, keeping(b, NULL), skip);
    if (b->h % 2 == 0 && b->w % 2 == 0 && draw(b->d, 2)) {
        for (int i = 0; i < 2; i++) {
            cJSON *node = add(b, i ? "upsample" : "avg_pool");
            if (!i || draw(b->d, 2))
                add_pair(b, node, keys[i], 2, 2);
        }
    } else {
        add_activation(b);
    }
    cJSON_AddStringToObject(add(b, "concat"), "with", skip);
    b->c *= 2;
}

/* Squeeze and excitation: each channel is multiplied by a number that a small network computes from
 * the means of all channels. Or a product of two branches. */
static void add_product(builder *b)
{
    static const char *const gates[] = {"sigmoid", "hard_sigmoid", "relu6", NULL};
    char branch[16];
    add_name(b, keeping(b, NULL), branch);
    if (draw(b->d, 2)) {
        add(b, "global_avg_pool");
        cJSON_AddNumberToObject(add(b, "dense"), "out", b->c);
    } else {
        keeping(b, NULL);
    }
    add(b, draw_word(b->d, gates));
    cJSON_AddStringToObject(add(b, "multiply"), "with", branch);
}

static void add_layer_norm(builder *b)
{
    cJSON *node = add(b, "layer_norm");
    if (one_in(b->d, 4))
        cJSON_AddNumberToObject(node, "epsilon", draw_between(b->d, 1e-4, 1e-2));
}

static void define_block(builder *b)
{
    cJSON *list = cJSON_AddArrayToObject(b->blocks, "same");
    cJSON *conv = layer(list, "conv2d");
    cJSON_AddStringToObject(conv, "out", "$out");
    cJSON_AddNumberToObject(conv, "kernel", 3);
    cJSON_AddNumberToObject(conv, "padding", 1);
    if (draw(b->d, 2))
        add_norm(b, list);
    if (draw(b->d, 2)) { /* a shortcut inside */
        cJSON_AddStringToObject(conv, "name", "first");
        layer(list, "tanh");
        cJSON_AddStringToObject(layer(list, "add"), "with", "first");
    }
    layer(list, "relu");
}

static void add_block(builder *b)
{
    char name[16];
    if (!cJSON_GetObjectItem(b->blocks, "same"))
        define_block(b);
    cJSON *use = cJSON_CreateObject();
    cJSON_AddStringToObject(use, "block", "same");
    cJSON_AddItemToArray(b->layers, use);
    if (draw(b->d, 2))
        add_name(b, use, name);
    else
        cJSON_AddStringToObject(use, "name", "same1");
    if (draw(b->d, 2))
        cJSON_AddNumberToObject(use, "repeat", draw_from(b->d, 1, 2));
    b->c = draw_from(b->d, 1, 6);
    cJSON_AddNumberToObject(use, "out", b->c);
}

static void add_image_layer(builder *b, int *blocks)
{
    switch (draw(b->d, 16)) {
    case 0:
    case 1:
    case 2: add_conv(b); break;
    case 3:
        add_conv(b);
        add_activation(b);
        break;
    case 4: /* which may be one op */
        add_conv(b);
        add(b, "relu");
        add_pool(b);
        break;
    case 5: add_pool(b); break;
    case 6: add_norm(b, b->layers); break;
    case 7: add_activation(b); break;
    case 8: add_dropout(b); break;
    case 9: add_sum(b); break;
    case 12: add_skip(b); break;
    case 13: add_layer_norm(b); break;
    case 14: add_product(b); break;
    case 15: add_padded_conv(b); break;
    case 10:
        if ((*blocks)++ == 0)
            add_block(b);
        break;
    default:
        add_norm(b, b->layers);
        add(b, "relu");
        break;
    }
}

static void add_dense(builder *b, int out)
{
    cJSON *node = add(b, "dense");
    cJSON_AddNumberToObject(node, "out", out);
    if (one_in(b->d, 4))
        cJSON_AddBoolToObject(node, "bias", (int)draw(b->d, 2));
}

/* Hidden layers of vectors, some with a sum. */
static void add_vectors(builder *b)
{
    for (int n = draw_from(b->d, 0, 2); n > 0; n--) {
        const int out = draw_from(b->d, 1, 24);
        char name[16];
        add_dense(b, out);
        if (one_in(b->d, 3))
            add_norm(b, b->layers);
        else if (one_in(b->d, 4))
            add_layer_norm(b);
        if (one_in(b->d, 4)) {
            add_name(b, add(b, "tanh"), name);
            add_dense(b, out);
            cJSON_AddStringToObject(add(b, "add"), "with", name);
        }
        add_activation(b);
        if (one_in(b->d, 4))
            add_dropout(b);
    }
}

/* Says of some layers by name what they read anyway. */
static void decorate(builder *b, cJSON *list)
{
    const char *before = "input";
    char name[16];
    for (cJSON *node = list->child; node; node = node->next) {
        const int is_block = cJSON_HasObjectItem(node, "block");
        if (before && one_in(b->d, 6) && !cJSON_HasObjectItem(node, "from"))
            cJSON_AddStringToObject(node, "from", before);
        if (!is_block && one_in(b->d, 3) && !cJSON_HasObjectItem(node, "name"))
            add_name(b, node, name);
        before = cJSON_GetStringValue(cJSON_GetObjectItem(node, "name"));
    }
}

cJSON *swarm_model(draws *d, const ls_data_source *data, int outputs)
{
    cJSON *model = cJSON_CreateObject();
    builder b = {.d = d, .c = data->channels, .h = data->height, .w = data->width};
    int blocks = 0;
    if (one_in(d, 3)) {
        const int sides[] = {data->channels, data->height, data->width};
        cJSON_AddStringToObject(model, "name", "drawn");
        cJSON_AddItemToObject(model, "input", cJSON_CreateIntArray(sides, 3));
    }
    b.layers = cJSON_AddArrayToObject(model, "layers");
    b.blocks = cJSON_CreateObject();
    for (int n = draw_from(d, 0, 4); n > 0; n--)
        add_image_layer(&b, &blocks);
    if (one_in(d, 5)) { /* a convolution makes the scores */
        cJSON *node = add(&b, "conv2d");
        cJSON_AddNumberToObject(node, "out", outputs);
        cJSON_AddNumberToObject(node, "kernel", 1);
        add(&b, "global_avg_pool");
    } else {
        add(&b, one_in(d, 6) ? "global_avg_pool" : "flatten");
        add_vectors(&b);
        add_dense(&b, outputs);
    }
    decorate(&b, b.layers);
    for (cJSON *list = b.blocks->child; list; list = list->next)
        decorate(&b, list);
    if (cJSON_GetArraySize(b.blocks) > 0)
        cJSON_AddItemToObject(model, "blocks", b.blocks);
    else
        cJSON_Delete(b.blocks);
    return model;
}
