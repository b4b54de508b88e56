/* SPDX-License-Identifier: MIT */
#include "ops/op_cases.h"
#include "ops/op_chain.h"

#include "base/rng.h"

static uint32_t word(op_draws *d)
{
    uint32_t w[4];
    ls_rng_words(w, d->seed, 90, 0, d->next++);
    return w[0];
}

int op_draw(op_draws *d, int low, int high)
{
    uint32_t range = (uint32_t)(high - low + 1);
    /* Half of the draws come from the lower quarter, because edge cases are among the small
     * sizes. */
    if (word(d) % 2)
        range = (range + 3) / 4;
    return low + (int)(word(d) % range);
}

int op_flip(op_draws *d)
{
    return (int)(word(d) % 2);
}

op_chain op_case(op_draws *d, uint64_t seed)
{
    *d = (op_draws){seed, 0};
    return (op_chain){.seed = seed, .training = 1, .needs_dx = 1};
}

ls_tensor op_image(op_draws *d, int rows, int channels, int side)
{
    return (ls_tensor){LS_F32,
                       op_draw(d, 1, rows),
                       op_draw(d, 1, channels),
                       op_draw(d, 1, side),
                       op_draw(d, 1, side),
                       0,
                       0};
}

static ls_op_desc *append(op_chain *chain, ls_op_kind kind, const ls_tensor *x)
{
    ls_op_desc *op = &chain->op[chain->count++];
    *op = (ls_op_desc){.kind = kind, .x = *x};
    return op;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int out_side(int side, int kernel, int stride, int padding)
{
    return (side + 2 * padding - kernel) / stride + 1;
}

/* Limits a case to about 2 million products. For the first op of a chain, reduces the number of
 * rows. A later op cannot change the rows; for such an op, reduces the number of outputs instead.
 */
static void limit(op_chain *chain, ls_tensor *x, int *out, double products)
{
    double most = 2e6;
    if (chain->count == 1 && products * x->rows > most) {
        x->rows = products > most ? 1 : (int)(most / products);
        chain->op[0].x = *x;
    }
    while (products * x->rows > 2 * most && *out > 1) {
        products /= *out;
        *out = (*out + 1) / 2;
        products *= *out;
    }
}

void op_add_conv(op_chain *chain, op_draws *d, ls_tensor *x)
{
    ls_conv2d *v = &append(chain, LS_OP_CONV2D, x)->u.conv2d;
    v->out = op_draw(d, 1, 70);
    v->ph = op_draw(d, 0, 3);
    v->pw = op_flip(d) ? v->ph : op_draw(d, 0, 3);
    v->kh = op_draw(d, 1, least(7, x->h + 2 * v->ph));
    v->kw = op_flip(d) ? least(v->kh, x->w + 2 * v->pw) : op_draw(d, 1, least(7, x->w + 2 * v->pw));
    v->sh = op_draw(d, 1, 3);
    v->sw = op_flip(d) ? v->sh : op_draw(d, 1, 3);
    v->bias = op_flip(d);
    int h = out_side(x->h, v->kh, v->sh, v->ph), w = out_side(x->w, v->kw, v->sw, v->pw);
    limit(chain, x, &v->out, (double)x->c * v->kh * v->kw * h * w * v->out);
    *x = (ls_tensor){LS_F32, x->rows, v->out, h, w, 0, 0};
}

void op_add_dense(op_chain *chain, op_draws *d, ls_tensor *x)
{
    ls_dense *v = &append(chain, LS_OP_DENSE, x)->u.dense;
    v->out = op_draw(d, 1, 200);
    v->bias = op_flip(d);
    limit(chain, x, &v->out, (double)x->c * x->h * x->w * v->out);
    *x = (ls_tensor){LS_F32, x->rows, v->out, 1, 1, 0, 0};
}

void op_add_pool(op_chain *chain, op_draws *d, ls_tensor *x, int max)
{
    ls_pool2d *p = &append(chain, LS_OP_POOL, x)->pool;
    p->max = max;
    p->kh = op_draw(d, 1, least(5, x->h));
    p->kw = op_flip(d) ? least(p->kh, x->w) : op_draw(d, 1, least(5, x->w));
    p->ph = op_flip(d) ? 0 : op_draw(d, 0, p->kh - 1);
    p->pw = op_flip(d) ? 0 : op_draw(d, 0, p->kw - 1);
    p->sh = op_draw(d, 1, 3);
    p->sw = op_flip(d) ? p->sh : op_draw(d, 1, 3);
    if (op_flip(
            d)) { /* sides that differ; the padding at the end is smaller than the kernel, too */
        p->eh = op_draw(d, 0, p->kh - 1) - p->ph;
        p->ew = op_draw(d, 0, p->kw - 1) - p->pw;
        p->ceil = op_flip(d);
        p->count_padding = op_flip(d);
    }
    *x = (ls_tensor){LS_F32,
                     x->rows,
                     x->c,
                     ls_windows(x->h, p->kh, p->sh, p->ph, p->ph + p->eh, p->ceil),
                     ls_windows(x->w, p->kw, p->sw, p->pw, p->pw + p->ew, p->ceil),
                     0,
                     0};
}

void op_add_plain(op_chain *chain, ls_op_kind kind, ls_tensor *x)
{
    append(chain, kind, x);
}

/* ---- cases ---------------------------------------------------------------------------------- */

op_chain op_make_conv(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 21);
    op_add_conv(&chain, &d, &x);
    return chain;
}

/* Draws a shape for Winograd's algorithm: 3 × 3, multiples of 16 channels, enough tiles; odd sizes
 * and few rows. One case in four has images of a single tile and many rows. */
op_chain op_make_winograd(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_conv2d v = {.kh = 3, .kw = 3, .sh = 1, .sw = 1, .ph = 1, .pw = 1};
    ls_tensor x = {LS_F32, 0, 16 * op_draw(&d, 1, 5), 4, 4, NULL, 0};
    v.out = 16 * op_draw(&d, 1, 5);
    v.bias = op_flip(&d);
    if (seed % 4) {
        v.ph = op_flip(&d);
        v.pw = op_flip(&d);
        x.rows = op_draw(&d, 1, 7);
        x.h = op_draw(&d, x.rows > 3 ? 5 : 9, 21);
        x.w = op_draw(&d, x.rows > 3 ? 5 : 9, 21);
    } else {
        x.rows = op_draw(&d, 16, 40);
    }
    double pixels = (double)x.rows * x.h * x.w;
    while (pixels * x.c * v.out * 9 > 4e6 && (x.c > 16 || v.out > 16))
        *(x.c > v.out ? &x.c : &v.out) -= 16;
    op_add_plain(&chain, LS_OP_CONV2D, &x);
    chain.op[0].u.conv2d = v;
    return chain;
}

/* Draws a dilation with which the kernel still fits the image. */
static int draw_dilation(op_draws *d, int side, int kernel, int padding)
{
    return kernel < 2 ? op_draw(d, 1, 4)
                      : op_draw(d, 1, least(4, (side + 2 * padding - 1) / (kernel - 1)));
}

static void dilate(op_chain *chain, op_draws *d)
{
    ls_conv2d *v = &chain->op[0].u.conv2d;
    v->dh = draw_dilation(d, chain->op[0].x.h, v->kh, v->ph);
    v->dw = op_flip(d) ? draw_dilation(d, chain->op[0].x.w, v->kw, v->pw) : 1;
}

op_chain op_make_dilated(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 21);
    op_add_conv(&chain, &d, &x);
    dilate(&chain, &d);
    return chain;
}

/* Draws a convolution with several groups of channels. Each group has the shape of a convolution
 * with a single group. One case in three is dilated. */
op_chain op_make_grouped(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    const int groups = op_draw(&d, 2, 6);
    ls_tensor x = op_image(&d, 40, 20, 15);
    op_add_conv(&chain, &d, &x);
    chain.op[0].x.c *= groups;
    chain.op[0].x.rows = (chain.op[0].x.rows + groups - 1) / groups;
    chain.op[0].u.conv2d.out *= groups;
    chain.op[0].u.conv2d.groups = groups;
    if (seed % 3 == 0)
        dilate(&chain, &d);
    return chain;
}

/* Draws a depthwise convolution, usually with a kernel of side 3 or 5 and without a stride. */
op_chain op_make_depthwise(uint64_t seed)
{
    static const int sides[] = {3, 5, 3, 7, 1, 2, 3, 4};
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 40, 21), one = x;
    one.c = 1;
    op_add_conv(&chain, &d, &one);
    ls_conv2d *v = &chain.op[0].u.conv2d;
    const int side = sides[seed % 8];
    chain.op[0].x.c = v->out = v->groups = x.c;
    chain.op[0].x.rows = x.rows;
    if (seed / 8 % 4 && x.h + 2 * v->ph >= side && x.w + 2 * v->pw >= side) {
        v->kh = v->kw = side;
        v->sh = v->sw = 1 + (int)(seed / 8 % 2);
    }
    if (seed % 5 == 0)
        dilate(&chain, &d);
    return chain;
}

op_chain op_make_dense(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = {LS_F32, op_draw(&d, 1, 70), op_draw(&d, 1, 200), 1, 1, NULL, 0};
    if (op_flip(&d)) /* flattens an image */
        x = op_image(&d, 40, 30, 8);
    op_add_dense(&chain, &d, &x);
    return chain;
}

static op_chain pool_case(uint64_t seed, int max)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 21);
    chain.grid = max ? op_flip(&d) : 0; /* on the grid, several values of a window are equal */
    op_add_pool(&chain, &d, &x, max);
    return chain;
}

op_chain op_make_average(uint64_t seed)
{
    return pool_case(seed, 0);
}

op_chain op_make_maximum(uint64_t seed)
{
    return pool_case(seed, 1);
}

op_chain op_make_relu(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 15);
    chain.grid = op_flip(&d); /* on the grid there are zeros */
    op_add_plain(&chain, LS_OP_RELU, &x);
    if (seed % 2)
        chain.op[0].u.relu.slope = (float)op_draw(&d, 1, 20) / 20;
    return chain;
}

op_chain op_make_loss(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = {LS_F32, op_draw(&d, 1, 64), op_draw(&d, 2, 100), 1, 1, NULL, 0};
    op_add_plain(&chain, LS_OP_SOFTMAX_XENT, &x);
    chain.spread = op_flip(&d) ? 23.0f : 1.0f; /* 23·√12: up to ±80 */
    chain.needs_dx = chain.training = seed % 5 != 0;
    chain.row_weights = seed % 3 == 1;
    return chain;
}

void op_add_vector_loss(op_chain *chain, op_draws *d, ls_tensor x, uint64_t seed)
{
    ls_vector_loss v = {.rule = (ls_vector_rule)(seed % (LS_VECTOR_POISSON + 1))};
    if (v.rule == LS_VECTOR_HUBER)
        v.delta = op_draw(d, 1, 40) / 10.0;
    if (v.rule == LS_VECTOR_QUANTILE) {
        v.quantiles = op_draw(d, 1, 5);
        x.c = (x.c + v.quantiles - 1) / v.quantiles * v.quantiles;
    }
    for (int q = 0; q < v.quantiles; q++)
        v.quantile[q] = (q + op_draw(d, 1, 9) / 10.0) / v.quantiles;
    op_add_plain(chain, LS_OP_VECTOR_LOSS, &x);
    chain->op[chain->count - 1].u.vector_loss = v;
}

op_chain op_make_vector_loss(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = {LS_F32, op_draw(&d, 1, 64), op_draw(&d, 1, 100), 1, 1, NULL, 0};
    op_add_vector_loss(&chain, &d, x, seed);
    chain.spread = op_flip(&d) ? 23.0f : 1.0f;
    chain.needs_dx = chain.training = seed % 5 != 0;
    chain.row_weights = seed % 3 == 1;
    return chain;
}

op_chain op_make_export(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 70, 15);
    op_add_plain(&chain, LS_OP_EXPORT, &x);
    return chain;
}

op_chain op_make_conv_relu(uint64_t seed)
{
    op_chain chain = op_make_conv(seed);
    chain.grid = chain.op[0].fuse_relu = 1;
    return chain;
}

op_chain op_make_depthwise_relu(uint64_t seed)
{
    op_chain chain = op_make_depthwise(seed);
    chain.grid = chain.op[0].fuse_relu = 1;
    return chain;
}

/* Draws a grouped and dilated convolution, followed by a relu and, in one case of two, by
 * pooling. */
op_chain op_make_grouped_pool(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_make_grouped(seed), pool = op_case(&d, seed);
    chain.grid = chain.op[0].fuse_relu = 1;
    ls_tensor y = op_shape_after(&chain, 0);
    if (seed % 2) {
        op_add_pool(&pool, &d, &y, op_flip(&d));
        chain.op[0].fuse_pool = 1;
        chain.op[0].pool = pool.op[0].pool;
        if (op_flip(&d))
            chain.op[0].pool =
                (ls_pool2d){.kh = 1 + (y.h > 1), .kw = 1 + (y.w > 1), .sh = 2, .sw = 2};
    }
    return chain;
}

op_chain op_make_winograd_relu(uint64_t seed)
{
    op_chain chain = op_make_winograd(seed);
    chain.off_kinks = chain.op[0].fuse_relu = 1;
    return chain;
}

op_chain op_make_dense_relu(uint64_t seed)
{
    op_chain chain = op_make_dense(seed);
    chain.grid = chain.op[0].fuse_relu = 1;
    return chain;
}

op_chain op_make_conv_pool(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed), pool = chain;
    ls_tensor x = op_image(&d, 40, 40, 21);
    op_add_conv(&chain, &d, &x);
    op_add_pool(&pool, &d, &x, op_flip(&d));
    chain.grid = chain.op[0].fuse_pool = 1;
    chain.op[0].fuse_relu = op_flip(&d);
    chain.op[0].pool = pool.op[0].pool;
    if (op_flip(&d)) /* the common form */
        chain.op[0].pool = (ls_pool2d){
            .max = op_flip(&d), .kh = 1 + (x.h > 1), .kw = 1 + (x.w > 1), .sh = 2, .sw = 2};
    return chain;
}

/* Draws conv2d → an op (→ export). The op reads the output in the layout in which the convolution
 * wrote it. */
op_chain op_make_after_conv(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 30, 17);
    chain.grid = 1;
    chain.hints = op_flip(&d);
    chain.needs_dx = op_flip(&d);
    op_add_conv(&chain, &d, &x);
    switch (seed % 6) {
    case 0:
        op_add_conv(&chain, &d, &x);
        if (seed % 4 == 0) { /* depthwise: each channel is a group */
            ls_op_desc *last = &chain.op[1];
            last->u.conv2d.out = last->u.conv2d.groups = last->x.c;
        }
        break;
    case 1: op_add_dense(&chain, &d, &x); break;
    case 2: op_add_pool(&chain, &d, &x, 0); break;
    case 3: op_add_pool(&chain, &d, &x, 1); break;
    case 4: op_add_plain(&chain, LS_OP_RELU, &x); break;
    default:
        op_add_dense(&chain, &d, &x);
        op_add_plain(&chain, LS_OP_SOFTMAX_XENT, &x);
        break;
    }
    return chain;
}

/* Draws a small convolutional network, from the bytes of the dataset to the loss. */
op_chain op_make_network(uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 40, 3, 20);
    chain.needs_dx = 0;
    chain.grid = 1;
    chain.hints = op_flip(&d);
    op_add_plain(&chain, LS_OP_GATHER, &x);
    for (int c = 0; c < 4; c++) {
        chain.op[0].u.gather.mean[c] = 0.5f;
        chain.op[0].u.gather.std[c] = 0.25f;
    }
    op_add_conv(&chain, &d, &x);
    op_add_plain(&chain, LS_OP_RELU, &x);
    op_add_pool(&chain, &d, &x, op_flip(&d));
    op_add_dense(&chain, &d, &x);
    chain.op[4].u.dense.out = x.c = 10;
    op_add_plain(&chain, LS_OP_SOFTMAX_XENT, &x);
    chain.row_weights = seed % 2 == 1;
    return chain;
}

static void add_stage(op_chain *chain, int out, int kernel, int fused)
{
    ls_pool2d half = {.kh = 2, .kw = 2, .sh = 2, .sw = 2};
    ls_op_desc *conv = &chain->op[chain->count++];
    *conv = (ls_op_desc){.kind = LS_OP_CONV2D, .fuse_relu = fused, .fuse_pool = fused};
    conv->u.conv2d = (ls_conv2d){out, kernel, kernel, 1, 1, 0, 0, 1, 1, 1, 1};
    if (fused) {
        conv->pool = half;
        return;
    }
    chain->op[chain->count++] = (ls_op_desc){.kind = LS_OP_RELU};
    chain->op[chain->count++] = (ls_op_desc){.kind = LS_OP_POOL, .pool = half};
}

static op_chain lenet(uint64_t seed, int fused)
{
    static const int rows[] = {32, 12, 2, 40, 16, 1};
    op_chain chain = {.seed = seed, .training = 1, .grid = 1, .hints = (int)(seed / 6 % 2)};
    ls_tensor x = {LS_F32, rows[seed % 6], 1, 28, 28, NULL, 0};
    op_add_plain(&chain, LS_OP_GATHER, &x);
    chain.op[0].u.gather = (ls_gather){.mean = {0.5f}, .std = {0.25f}};
    add_stage(&chain, 20, 3, fused);
    add_stage(&chain, 50, 5, fused);
    ls_op_desc dense = {.kind = LS_OP_DENSE, .fuse_relu = fused, .u.dense = {128, 1}};
    chain.op[chain.count++] = dense;
    if (!fused)
        chain.op[chain.count++] = (ls_op_desc){.kind = LS_OP_RELU};
    chain.op[chain.count++] = (ls_op_desc){.kind = LS_OP_DENSE, .u.dense = {10, 1}};
    op_add_plain(&chain, LS_OP_SOFTMAX_XENT, &x);
    return chain;
}

op_chain op_make_lenet(uint64_t seed)
{
    return lenet(seed, 0);
}

op_chain op_make_fused_lenet(uint64_t seed)
{
    return lenet(seed, 1);
}

op_chain op_make_any(uint64_t seed)
{
    switch (seed % 8) {
    case 0: return op_make_conv(seed);
    case 1: return op_make_dense(seed);
    case 2: return pool_case(seed, op_flip(&(op_draws){seed, 77}));
    case 3: return op_make_conv_relu(seed);
    case 4: return op_make_loss(seed);
    case 5: return op_make_relu(seed);
    case 6: return op_make_conv_pool(seed);
    default: return op_make_after_conv(seed);
    }
}
