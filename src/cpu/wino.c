#include "cpu/wino.h"

#include <stdint.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Of one block's inputs and outputs: half an L2 cache. The weights are read for every block, so that
 * blocks are large where they come from beyond the caches. */
#define BLOCK_BYTES ((size_t)1 << 20)
#define MANY_WEIGHTS ((size_t)12 << 20)

static int outputs_of(const ls_wino *w)
{
    return w->size == LS_WINO_2 ? 2 : 4;
}

/* Points are not a multiple of 4 KiB apart: the transforms write to all of them in turn. */
static size_t point_floats(size_t floats)
{
    return (floats + 1023) / 1024 * 1024 + 5 * 16;
}

static int block_tiles(const ls_wino *w)
{
    int one = w->kernels->tiles, all = (w->tiles + one - 1) / one * one;
    size_t tile = (size_t)w->points * (size_t)(w->x.blocks + w->y.blocks) * 64;
    size_t weights = (size_t)w->points * w->point_weights * sizeof(float);
    size_t bytes = weights > MANY_WEIGHTS ? weights / 2 : BLOCK_BYTES;
    int most = (int)(bytes / tile) / one * one;
    if (most < 2 * one)
        most = 2 * one;
    return all < most ? all : most;
}

void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int size, const ls_wino_shape *shape,
                  int threads)
{
    int oh = shape->h + 2 * shape->ph - 2, ow = shape->w + 2 * shape->pw - 2;
    *w = (ls_wino){.kernels = kernels, .size = size, .threads = threads};
    int m = outputs_of(w), down = (oh + m - 1) / m, across = (ow + m - 1) / m;
    w->points = (m + 2) * (m + 2);
    w->tiles = shape->rows * down * across;
    w->x = (ls_wino_image){shape->in / 16, shape->h, shape->w, shape->ph, shape->pw, down, across};
    w->y = (ls_wino_image){shape->out / 16, oh, ow, 0, 0, down, across};
    w->point_weights = point_floats((size_t)shape->in * (size_t)shape->out);
    w->block = block_tiles(w);
    w->point_x = point_floats((size_t)w->block * (size_t)shape->in);
    w->point_y = point_floats((size_t)w->block * (size_t)shape->out);
}

ls_wino_shape ls_wino_transposed(const ls_wino_shape *s)
{
    return (ls_wino_shape){.rows = s->rows,
                           .in = s->out,
                           .out = s->in,
                           .h = s->h + 2 * s->ph - 2,
                           .w = s->w + 2 * s->pw - 2,
                           .ph = 2 - s->ph,
                           .pw = 2 - s->pw};
}

size_t ls_wino_floats(const ls_wino *w)
{
    return (size_t)w->points * (w->point_weights + w->point_x + w->point_y);
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* What a pass works on; `first` and `count` are the block of tiles it has come to. */
typedef struct wino_pass {
    const ls_wino *w;
    const float *x, *dy, *weights, *bias;
    float *y, *gradient;
    float *values;   /* of the weights or of their gradient */
    float *in, *out; /* of the block's inputs and outputs */
    int turned, relu;
    int first, count, whole;
} wino_pass;

/* Calls `run` for each of the parts, which are independent of each other. */
static void share(const wino_pass *pass, int parts, void (*run)(const wino_pass *pass, int part))
{
    int team = pass->w->threads;
    if (team <= 1) { /* without a parallel region, whose team libgomp would allocate */
        for (int part = 0; part < parts; part++)
            run(pass, part);
        return;
    }
#pragma omp parallel for num_threads(team) schedule(static)
    for (int part = 0; part < parts; part++)
        run(pass, part);
}

/* A thread's part of a block's tiles. */
static int part_start(const wino_pass *pass, int part)
{
    return (int)((int64_t)pass->count * part / pass->w->threads);
}

static wino_pass pass_of(const ls_wino *w, float *work)
{
    wino_pass pass = {.w = w, .values = work};
    pass.in = work + (size_t)w->points * w->point_weights;
    pass.out = pass.in + (size_t)w->points * w->point_x;
    return pass;
}

static void next_block(wino_pass *pass, int first)
{
    const ls_wino *w = pass->w;
    int one = w->kernels->tiles;
    pass->first = first;
    pass->count = w->tiles - first < w->block ? w->tiles - first : w->block;
    pass->whole = (pass->count + one - 1) / one * one;
}

/* ---- inputs, outputs, products --------------------------------------------------------------- */

static void transform_input(const wino_pass *pass, int part)
{
    const ls_wino *w = pass->w;
    int start = part_start(pass, part), end = part_start(pass, part + 1);
    w->kernels->input[w->size](pass->in + (size_t)start * 16, w->point_x, w->block, &w->x, pass->x,
                               pass->first + start, end - start);
}

static void transform_error(const wino_pass *pass, int part)
{
    const ls_wino *w = pass->w;
    int start = part_start(pass, part), end = part_start(pass, part + 1);
    w->kernels->error[w->size](pass->out + (size_t)start * 16, w->point_y, w->block, &w->y,
                               pass->dy, pass->first + start, end - start);
}

static void transform_output(const wino_pass *pass, int part)
{
    const ls_wino *w = pass->w;
    int start = part_start(pass, part), end = part_start(pass, part + 1);
    w->kernels->output[w->size](pass->y, &w->y, pass->out + (size_t)start * 16, w->point_y,
                                w->block, pass->first + start, end - start, pass->bias, pass->relu);
}

/* Of whole tiles of the kernel's: what those beyond the block's last give is never read. */
static void multiply(const wino_pass *pass, int point)
{
    const ls_wino *w = pass->w;
    w->kernels->multiply(
        pass->out + (size_t)point * w->point_y, pass->values + (size_t)point * w->point_weights,
        pass->in + (size_t)point * w->point_x, w->y.blocks, w->x.blocks, w->block, pass->whole);
}

static void correlate(const wino_pass *pass, int point)
{
    const ls_wino *w = pass->w;
    w->kernels->correlate(pass->values + (size_t)point * w->point_weights,
                          pass->out + (size_t)point * w->point_y,
                          pass->in + (size_t)point * w->point_x, w->y.blocks, w->x.blocks, w->block,
                          pass->count, pass->first > 0);
}

/* ---- weights: a block of `to` at a time ------------------------------------------------------ */

#define BLOCK ((size_t)9 * 256)

static void transform_weights(const wino_pass *pass, int part)
{
    const ls_wino *w = pass->w;
    size_t to = (size_t)w->y.blocks, from = (size_t)w->x.blocks;
    size_t to_step = pass->turned ? BLOCK : from * BLOCK;
    size_t from_step = pass->turned ? to * BLOCK : BLOCK;
    w->kernels->weights[w->size](pass->values + (size_t)part * from * 256, w->point_weights,
                                 pass->weights + (size_t)part * to_step, w->x.blocks, from_step,
                                 pass->turned);
}

static void transform_gradient(const wino_pass *pass, int part)
{
    const ls_wino *w = pass->w;
    size_t from = (size_t)w->x.blocks;
    w->kernels->gradient[w->size](pass->gradient + (size_t)part * from * BLOCK,
                                  pass->values + (size_t)part * from * 256, w->point_weights,
                                  w->x.blocks);
}

/* ---- the passes ------------------------------------------------------------------------------ */

void ls_wino_conv(const ls_wino *w, float *y, const float *x, const float *weights,
                  ls_wino_weights order, const float *bias, int relu, float *work)
{
    wino_pass pass = pass_of(w, work);
    pass.x = x;
    pass.y = y;
    pass.weights = weights;
    pass.bias = bias;
    pass.relu = relu;
    pass.turned = order == LS_WINO_TRANSPOSED;
    share(&pass, w->y.blocks, transform_weights);
    for (int first = 0; first < w->tiles; first += w->block) {
        next_block(&pass, first);
        share(&pass, w->threads, transform_input);
        share(&pass, w->points, multiply);
        share(&pass, w->threads, transform_output);
    }
}

void ls_wino_gradient(const ls_wino *w, float *weights, const float *x, const float *dy,
                      float *work)
{
    wino_pass pass = pass_of(w, work);
    pass.x = x;
    pass.dy = dy;
    pass.gradient = weights;
    for (int first = 0; first < w->tiles; first += w->block) {
        next_block(&pass, first);
        share(&pass, w->threads, transform_input);
        share(&pass, w->threads, transform_error);
        share(&pass, w->points, correlate);
    }
    share(&pass, w->y.blocks, transform_gradient);
}
