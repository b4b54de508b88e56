/* SPDX-License-Identifier: MIT */
/* Cases of batch norm, additions, activations, dropout and label smoothing, and of graphs that are
 * parts of residual networks. */
#include "ops/op_cases.h"

#include <math.h>

/* Appends a batch norm. If it averages few values, a variance can be tiny, and division by its root
 * can magnify the rounding of x. Such cases get a larger epsilon. */
static void add_norm(op_chain *chain, op_draws *d, const ls_tensor *x)
{
    ls_tensor y = *x;
    int values = x->rows * x->h * x->w;
    op_add_plain(chain, LS_OP_BATCHNORM, &y);
    chain->op[chain->count - 1].u.batchnorm.epsilon =
        values < 32 ? 0.1f * (float)op_draw(d, 1, 5) : 1e-5f * (float)op_draw(d, 1, 100);
}

/* Gives the last op the chain's second input, with the same shape as its first input. */
static void take_second(op_chain *chain, const ls_tensor *x)
{
    chain->source2[chain->count - 1] = OP_SECOND;
    chain->x2 = *x;
}

static ls_op_desc *last(op_chain *chain)
{
    return &chain->op[chain->count - 1];
}

op_chain op_make_norm(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 15);
    if (seed % 10 == 0) /* one value for each channel: one row with one pixel */
        x = (ls_tensor){LS_F32, 1 + (int)(seed / 10 % 2), op_draw(&d, 1, 70), 1, 1, NULL, 0};
    chain.offset = op_flip(&d) ? 3 : 0;
    add_norm(&chain, &d, &x);
    return chain;
}

op_chain op_make_norm_evaluate(uint64_t seed)
{
    op_chain chain = op_make_norm(seed);
    chain.evaluate = chain.training = (int)(seed % 2);
    chain.needs_dx = chain.training;
    return chain;
}

op_chain op_make_norm_relu(uint64_t seed)
{
    op_chain chain = op_make_norm(seed);
    last(&chain)->fuse_relu = chain.off_kinks = 1;
    return chain;
}

op_chain op_make_norm_add(uint64_t seed)
{
    op_chain chain = op_make_norm(seed);
    last(&chain)->fuse_add = 1;
    last(&chain)->fuse_relu = chain.off_kinks = seed % 4 != 0;
    take_second(&chain, &chain.op[0].x);
    return chain;
}

op_chain op_make_add(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 15);
    op_add_plain(&chain, LS_OP_ADD, &x);
    take_second(&chain, &x);
    return chain;
}

op_chain op_make_add_relu(uint64_t seed)
{
    op_chain chain = op_make_add(seed);
    chain.op[0].fuse_relu = chain.grid = 1; /* sums are exact, and often 0 */
    return chain;
}

/* Draws add(conv(x), conv(x2)), add(conv(x), x2) or add(x2, conv(x)). The convolutions have
 * different kernels and numbers of channels. Therefore a back end can choose different layouts for
 * them. */
op_chain op_make_add_of_convs(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 20, 30, 17), y = x, y2;
    chain.grid = 1;
    chain.hints = op_flip(&d);
    op_add_conv(&chain, &d, &y);
    y.rows = chain.op[0].x.rows; /* op_add_conv can have reduced the number of rows */
    if (seed % 3 == 0) {
        int side = op_flip(&d) ? 1 : 3;
        y2 = (ls_tensor){LS_F32, y.rows, op_draw(&d, 1, 20), y.h, y.w, NULL, 0};
        chain.x2 = y2;
        op_add_plain(&chain, LS_OP_CONV2D, &y2);
        last(&chain)->u.conv2d = (ls_conv2d){y.c, side, side, 1, 1, side / 2, side / 2, 1, 1, 1, 1};
        chain.source[1] = OP_SECOND;
        op_add_plain(&chain, LS_OP_ADD, &y);
        chain.source[2] = 1;
        chain.source2[2] = 2;
    } else {
        op_add_plain(&chain, LS_OP_ADD, &y);
        chain.x2 = y;
        chain.source[1] = seed % 3 == 1 ? 0 : OP_SECOND;
        chain.source2[1] = seed % 3 == 1 ? OP_SECOND : 1;
    }
    if (op_flip(&d))
        op_add_plain(&chain, LS_OP_RELU, &y);
    return chain;
}

static op_chain activation(uint64_t seed, ls_op_kind kind)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 15);
    op_add_plain(&chain, kind, &x);
    chain.spread = op_flip(&d) ? 30.0f : 1.5f; /* 30·√12: up to ±104, where e⁻ˣ overflows fp32 */
    return chain;
}

op_chain op_make_sigmoid(uint64_t seed)
{
    return activation(seed, LS_OP_SIGMOID);
}

op_chain op_make_tanh(uint64_t seed)
{
    return activation(seed, LS_OP_TANH);
}

op_chain op_make_gelu(uint64_t seed)
{
    return activation(seed, LS_OP_GELU);
}

op_chain op_make_silu(uint64_t seed)
{
    return activation(seed, LS_OP_SILU);
}

op_chain op_make_clamp(uint64_t seed)
{
    op_draws d;
    op_chain chain = activation(seed, LS_OP_CLAMP);
    op_case(&d, seed + 1);
    const float least = (float)op_draw(&d, -20, 20) / 10;
    last(&chain)->u.clamp = (ls_clamp){seed % 4 ? least : 0, seed % 4 ? least + 1.5f : 6};
    if (seed % 8 == 1)
        last(&chain)->u.clamp.least = -INFINITY;
    if (seed % 8 == 3)
        last(&chain)->u.clamp.most = INFINITY;
    return chain;
}

op_chain op_make_gelu_tanh(uint64_t seed)
{
    return activation(seed, LS_OP_GELU_TANH);
}

op_chain op_make_affine(uint64_t seed)
{
    op_draws d;
    op_chain chain = activation(seed, LS_OP_AFFINE);
    op_case(&d, seed + 1);
    last(&chain)->u.affine =
        (ls_affine){(float)op_draw(&d, -30, 30) / 20, (float)op_draw(&d, -20, 20) / 10};
    return chain;
}

op_chain op_make_hard_sigmoid(uint64_t seed)
{
    op_draws d;
    op_chain chain = activation(seed, LS_OP_HARD_SIGMOID);
    op_case(&d, seed + 1);
    last(&chain)->u.hard_sigmoid =
        (ls_hard_sigmoid){(float)op_draw(&d, 0, 20) / 60, (float)op_draw(&d, -5, 15) / 10};
    return chain;
}

op_chain op_make_hard_swish(uint64_t seed)
{
    return activation(seed, LS_OP_HARD_SWISH);
}

/* In every third case, appends a convolution, which the tested op then follows. */
static ls_tensor maybe_behind_conv(op_chain *chain, op_draws *d, uint64_t seed)
{
    ls_tensor x = op_image(d, 40, 40, 13);
    if (seed % 3 == 2)
        op_add_conv(chain, d, &x);
    return x;
}

op_chain op_make_layer_norm(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = maybe_behind_conv(&chain, &d, seed);
    op_add_plain(&chain, LS_OP_LAYERNORM, &x);
    last(&chain)->u.layernorm.epsilon = op_flip(&d) ? 1e-2f : 0.3f;
    return chain;
}

op_chain op_make_upsample(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = maybe_behind_conv(&chain, &d, seed);
    op_add_plain(&chain, LS_OP_UPSAMPLE, &x);
    last(&chain)->u.upsample = (ls_upsample){op_draw(&d, 1, 3), op_draw(&d, 1, 3)};
    return chain;
}

ls_pad op_draw_pad(op_draws *d)
{
    ls_pad pad = {op_draw(d, 0, 3), op_draw(d, 0, 3), op_draw(d, 0, 3), op_draw(d, 0, 3)};
    return pad;
}

op_chain op_make_pad(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = maybe_behind_conv(&chain, &d, seed);
    op_add_plain(&chain, LS_OP_PAD, &x);
    last(&chain)->u.pad = op_draw_pad(&d);
    return chain;
}

op_chain op_make_concat(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = maybe_behind_conv(&chain, &d, seed);
    op_add_plain(&chain, LS_OP_CONCAT, &x);
    chain.source2[chain.count - 1] = OP_SECOND;
    chain.x2 = x;
    chain.x2.rows = chain.op[0].x.rows;
    chain.x2.c = op_draw(&d, 1, 40);
    return chain;
}

op_chain op_make_multiply(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = maybe_behind_conv(&chain, &d, seed);
    op_add_plain(&chain, LS_OP_MULTIPLY, &x);
    chain.source2[chain.count - 1] = OP_SECOND;
    chain.x2 = x;
    chain.x2.rows = chain.op[0].x.rows;
    chain.hints = op_flip(&d);
    if (op_flip(&d))
        chain.x2.h = chain.x2.w = 1;
    return chain;
}

static void add_dropout(op_chain *chain, op_draws *d, ls_tensor *x)
{
    op_add_plain(chain, LS_OP_DROPOUT, x);
    last(chain)->u.dropout.p = (float)op_draw(d, 0, 19) / 20;
    last(chain)->u.dropout.stream = 0x1000 + (uint32_t)op_draw(d, 0, 9);
}

op_chain op_make_dropout(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 15);
    add_dropout(&chain, &d, &x);
    return chain;
}

op_chain op_make_smooth_loss(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_make_loss(seed);
    op_case(&d, seed + 1);
    chain.op[0].u.softmax_xent.smoothing = (float)op_draw(&d, 1, 20) / 20;
    chain.op[0].u.softmax_xent.weighted = op_flip(&d);
    return chain;
}

/* Draws conv2d → an op. The convolution has no bias, because before batch norm the gradient of a
 * bias would consist of rounding errors alone. */
op_chain op_make_norm_after_conv(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 30, 17);
    chain.grid = 1;
    chain.hints = op_flip(&d);
    chain.needs_dx = op_flip(&d);
    op_add_conv(&chain, &d, &x);
    chain.op[0].u.conv2d.bias = 0;
    x.rows = chain.op[0].x.rows;
    switch (seed % 6) {
    case 0: add_norm(&chain, &d, &x); break;
    case 1:
        add_norm(&chain, &d, &x);
        last(&chain)->fuse_relu = chain.off_kinks = 1;
        break;
    case 2:
        add_norm(&chain, &d, &x);
        last(&chain)->fuse_relu = last(&chain)->fuse_add = chain.off_kinks = 1;
        take_second(&chain, &x);
        break;
    case 3: op_add_plain(&chain, seed % 4 ? LS_OP_SIGMOID : LS_OP_GELU, &x); break;
    case 4: op_add_plain(&chain, seed % 4 ? LS_OP_TANH : LS_OP_SILU, &x); break;
    default: add_dropout(&chain, &d, &x); break;
    }
    return chain;
}

/* Draws add(norm(conv(tanh(norm(conv(x))))), conv(x2)) → tanh, a residual block with a projection.
 * It has tanh instead of the usual relu, because the derivative of tanh has no jump. */
op_chain op_make_residual(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    int out = op_draw(&d, 1, 40), rows = op_draw(&d, 2, 12), side = op_draw(&d, 4, 12);
    ls_tensor x = {LS_F32, rows, op_draw(&d, 1, 20), side, side, NULL, 0}, y = x;
    ls_conv2d three = {out, 3, 3, 1, 1, 1, 1, 0, 1, 1, 1},
              one = {out, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1};
    chain.hints = (int)(seed % 2);
    chain.x2 = x;
    y.c = out;
    op_add_plain(&chain, LS_OP_CONV2D, &x);
    chain.op[0].u.conv2d = three;
    add_norm(&chain, &d, &y);
    op_add_plain(&chain, LS_OP_TANH, &y);
    op_add_plain(&chain, LS_OP_CONV2D, &y);
    chain.op[3].u.conv2d = three;
    add_norm(&chain, &d, &y);
    op_add_plain(&chain, LS_OP_CONV2D, &x);
    chain.op[5].u.conv2d = one;
    chain.source[5] = OP_SECOND;
    op_add_plain(&chain, LS_OP_ADD, &y);
    chain.source[6] = 5;
    chain.source2[6] = 6;
    op_add_plain(&chain, LS_OP_TANH, &y);
    return chain;
}

/* Draws gather with random crops and flips → conv2d. */
op_chain op_make_augmented(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 4, 20);
    ls_gather g = {.mean = {0.5f, 0.25f, 0.75f, 0.5f}, .std = {0.25f, 0.5f, 0.25f, 0.125f}};
    g.crop = op_draw(&d, 0, x.h + x.w < 6 ? x.h + x.w : 6);
    g.flip = op_flip(&d);
    chain.needs_dx = 0;
    chain.hints = op_flip(&d);
    chain.grid = 1;
    op_add_plain(&chain, LS_OP_GATHER, &x);
    chain.op[0].u.gather = g;
    op_add_conv(&chain, &d, &x);
    return chain;
}

op_chain op_make_rowwise(uint64_t seed)
{
    switch (seed % 18) {
    case 0: return op_make_add(seed);
    case 1: return op_make_sigmoid(seed);
    case 2: return op_make_tanh(seed);
    case 3: return op_make_dropout(seed);
    case 4: return op_make_smooth_loss(seed);
    case 5: return op_make_gelu(seed);
    case 6: return op_make_silu(seed);
    case 7: return op_make_layer_norm(seed);
    case 8: return op_make_upsample(seed);
    case 9: return op_make_concat(seed);
    case 10: return op_make_clamp(seed);
    case 11: return op_make_hard_sigmoid(seed);
    case 12: return op_make_hard_swish(seed);
    case 13: return op_make_multiply(seed);
    case 14: return op_make_pad(seed);
    case 15: return op_make_gelu_tanh(seed);
    case 16: return op_make_affine(seed);
    default: return op_make_add_of_convs(seed);
    }
}

op_chain op_make_any_norm(uint64_t seed)
{
    switch (seed % 6) {
    case 0: return op_make_norm(seed);
    case 1: return op_make_norm_relu(seed);
    case 2: return op_make_norm_add(seed);
    case 3: return op_make_norm_after_conv(seed);
    default: return op_make_residual(seed);
    }
}
