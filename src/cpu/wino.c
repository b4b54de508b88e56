/* SPDX-License-Identifier: MIT */
/* Winograd's algorithm for convolutions: plans of the passes, and their execution by a team of
 * threads. wino.h explains the words. */
#include "cpu/wino.h"

#include <lockstep/split.h>
#include <stdbool.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The following constants decide the number of tiles of a block. This number decides how the sums
 * of a gradient are divided, and with that the bits of the gradient. Therefore the constants are
 * the same on every CPU. */

/* largest size in bytes of the values of a block's inputs and outputs: the size of an L2 cache */
#define BLOCK_BYTES ((size_t)1 << 20)
/* Size in bytes above which the weights' values are too large for the caches. They are read again
 * from memory for every block. Therefore blocks are then larger than BLOCK_BYTES: half the size of
 * the weights' values. */
#define MANY_WEIGHTS ((size_t)12 << 20)
#define FEWEST 3 /* fewest tiles of a block: the product kernel computes this many at a time */

static const struct {
    int m, r, n; /* n × n products per tile */
} form_of[LS_WINO_FORMS] = {{2, 3, 4}, {4, 3, 6}, {2, 5, 6}, {2, 5, 7}};

/* Returns the step from one point to the next for `floats` floats per point. The step is not a
 * multiple of 4 KiB, because the transforms write to all points in turn. */
static size_t point_floats(size_t floats)
{
    return (floats + 1023) / 1024 * 1024 + 5 * 16;
}

static size_t to_multiple(int n, int of)
{
    return (size_t)((n + of - 1) / of * of);
}

/* Returns the number of tiles whose values fit into the memory that a block may use. */
static int most_tiles(const ls_wino *w)
{
    size_t tile = (size_t)w->points * (size_t)(w->x.channels + w->y.channels) * 64;
    size_t weights = (size_t)w->points * w->point_weights * sizeof(float);
    size_t bytes = weights > MANY_WEIGHTS ? weights / 2 : BLOCK_BYTES;
    return (int)(bytes / tile);
}

void ls_wino_fit(ls_wino *w, int packets)
{
    const int tiles = packets * w->y.down * w->y.across;
    if (tiles <= most_tiles(w))
        ls_wino_set_block(w, tiles);
}

void ls_wino_set_block(ls_wino *w, int tiles)
{
    w->block = tiles;
    w->tiles = tiles % 8 ? tiles : tiles + 1;
    w->point_x = point_floats((size_t)w->x.channels * (size_t)w->tiles * 16);
    w->point_y = point_floats((size_t)w->y.channels * (size_t)w->tiles * 16);
}

static ls_wino_image image_of(int channels, int h, int w)
{
    ls_wino_image image = {.channels = channels, .h = h, .w = w, .to = channels};
    image.line = (size_t)w * 16;
    image.channel = (size_t)h * image.line;
    image.packet = (size_t)channels * image.channel;
    return image;
}

void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *s)
{
    const int m = form_of[form].m, n = form_of[form].n;
    *w = (ls_wino){.kernels = kernels, .form = form, .points = n * n};
    w->x = image_of(s->in, s->h, s->w);
    w->y = image_of(s->out, s->oh, s->ow);
    w->x.top = s->ph;
    w->x.left = s->pw;
    w->x.down = w->y.down = (w->y.h + m - 1) / m;
    w->x.across = w->y.across = (w->y.w + m - 1) / m;
    /* Room for the weights whether they are transposed or not: eights of outputs (sets of eight
     * whose weights lie side by side) by inputs, rounded up to an even number. */
    w->point_weights = point_floats(to_multiple(s->in, 8) * to_multiple(s->out, 8));
    w->point_gradient = point_floats((size_t)s->in * to_multiple(s->out, 16));
    const int most = most_tiles(w) / FEWEST * FEWEST;
    ls_wino_set_block(w, most < FEWEST ? FEWEST : most);
}

/* Swaps inputs and outputs for a spread pass. The tiles remain tiles of y. */
static void init_spread(ls_wino *w)
{
    const ls_wino_image dy = w->y;
    w->y = w->x;
    w->x = dy;
    w->transposed = w->spread = 1;
    ls_wino_set_block(w, w->block);
}

void ls_wino_init_data(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *s)
{
    const int m = form_of[form].m, r = form_of[form].r;
    const ls_wino_shape transposed = {.in = s->out,
                                      .out = s->in,
                                      .h = s->oh,
                                      .w = s->ow,
                                      .oh = s->h,
                                      .ow = s->w,
                                      .ph = r - 1 - s->ph,
                                      .pw = r - 1 - s->pw};
    ls_wino_init(w, kernels, form, s);
    if (w->y.down * w->y.across < (s->h + m - 1) / m * ((s->w + m - 1) / m)) {
        init_spread(w);
        return;
    }
    ls_wino_init(w, kernels, form, &transposed);
    w->transposed = 1;
}

void ls_wino_init_gradient(ls_wino *w, const ls_wino_kernels *kernels, int form,
                           const ls_wino_shape *s, int packets)
{
    ls_wino_init(w, kernels, form, s);
    const int tiles = w->most = packets * w->y.down * w->y.across;
    w->whole = (size_t)s->in * (size_t)s->out >= 32 * (size_t)tiles * (size_t)(s->in + s->out);
    if (w->whole)
        ls_wino_set_block(w, tiles);
}

size_t ls_wino_weight_floats(const ls_wino *w)
{
    return (size_t)w->points * w->point_weights;
}

/* Returns the step (distance in floats) from one point to the next if values of outputs overwrite
 * values of inputs (see place_values). */
static size_t slot_floats(const ls_wino *w)
{
    return w->point_x > w->point_y ? w->point_x : w->point_y;
}

/* Returns the number of floats of a block's values of inputs and outputs for one thread. */
static size_t block_floats(const ls_wino *w)
{
    return (size_t)(w->points + 1) * slot_floats(w);
}

size_t ls_wino_conv_floats(const ls_wino *w)
{
    const size_t apart = (size_t)w->points * (w->point_x + w->point_y);
    const size_t blocks = (size_t)ls_team_size(w->team) * block_floats(w);
    return apart > blocks ? apart : blocks;
}

/* A gradient of the weights is computed for a *part* of PART_OUT outputs at a time, so that the
 * panels of all points stay in the cache. If all tiles are one block (ls_wino.whole), a part has
 * only PART_IN inputs. PART_POINT: step from one point to the next in a part's values. */
#define PART_OUT 48
#define PART_IN 32
#define PART_POINT (PART_OUT * PART_IN + 5 * 16)

/* Returns the step from one point to the next in the panels of a part. */
static size_t part_panels(const ls_wino *w)
{
    return (size_t)w->block * 16 * PART_OUT + (size_t)5 * 16;
}

static size_t part_floats(const ls_wino *w)
{
    return (size_t)w->points * (part_panels(w) + (w->whole ? PART_POINT : 0));
}

/* Returns the number of floats of the gradient's values for all outputs. It is 0 if all tiles are
 * one block (ls_wino.whole), because the gradient is then computed part by part. */
static size_t gradient_floats(const ls_wino *w)
{
    return w->whole ? 0 : (size_t)w->points * w->point_gradient;
}

/* Sums. If a team computes a gradient block by block, the values of the gradient of each block, its
 * *sums*, are stored [block][points][ceil(outputs/16)][in][16]. The sums of as many blocks exist at
 * the same time as fit into SUMS_BYTES, which is a part of a core's L3 cache; after them lies one
 * more, the total of the blocks so far. */
#define SUMS_BYTES ((size_t)4 << 20)

/* Returns the step from one point to the next in the sums of a block. */
static size_t sums_point(const ls_wino *w)
{
    return (size_t)w->x.channels * to_multiple(w->y.channels, 16) + (size_t)5 * 16;
}

static size_t sums_floats(const ls_wino *w)
{
    return (size_t)w->points * sums_point(w);
}

static int blocks_of(const ls_wino *w, int tiles)
{
    return (tiles + w->block - 1) / w->block;
}

/* Returns the number of blocks whose sums exist at the same time. It is 0 if the gradient is not
 * computed in this way: there is no team, all tiles are one block, or the sums take so much memory
 * that there would not be a block for each thread. */
static int blocks_with_sums(const ls_wino *w)
{
    const int threads = ls_team_size(w->team), most = blocks_of(w, w->most);
    const size_t fit = SUMS_BYTES / (sums_floats(w) * sizeof(float));
    const int blocks = fit < (size_t)most ? (int)fit : most;
    return threads == 1 || w->whole || (blocks < threads && blocks < most) ? 0 : blocks;
}

/* Returns the number of floats that a thread needs for the values of a block of x and of a part of
 * dy. */
static size_t thread_floats(const ls_wino *w)
{
    return (size_t)w->points * w->point_x + part_floats(w);
}

size_t ls_wino_gradient_floats(const ls_wino *w)
{
    const size_t threads = (size_t)ls_team_size(w->team), blocks = (size_t)blocks_with_sums(w);
    if (blocks)
        return threads * thread_floats(w) + (blocks + 1) * sums_floats(w);
    return (size_t)w->points * w->point_x + gradient_floats(w) + threads * part_floats(w);
}

/* ---- work that a team divides ---------------------------------------------------------------- */

/* Arguments of a pass over tiles `first` … `first` + `count` − 1, or over weights. */
typedef struct wino_pass {
    const ls_wino *w;
    int first, count, add;
    const float *x, *dy, *weights;
    float *y, *in, *out, *values, *panels;
    size_t in_point, out_point; /* steps from one point of `in` and of `out` to the next */
    const ls_wino_finish *finish;
    float *memory;  /* values of all threads (ls_wino_conv_floats, ls_wino_gradient_floats) */
    int tiles;      /* number of tiles of the pass */
    uint32_t parts; /* number of parts into which the tiles are divided */
    /* gradient from sums: first block and number of blocks that have sums; number of parts into
     * which the outputs of a block are divided */
    int begin, blocks, cuts;
} wino_pass;

/* number of channels of an item; a thread of the team transforms one item at a time */
#define SOME 4

static uint32_t items(const ls_wino_image *image)
{
    return (uint32_t)((image->channels + SOME - 1) / SOME);
}

/* Returns the image restricted to the channels of an item. */
static ls_wino_image some_of(const ls_wino_image *image, uint32_t item)
{
    ls_wino_image some = *image;
    some.from = (int)item * SOME;
    some.to = some.from + SOME < image->channels ? some.from + SOME : image->channels;
    return some;
}

/* Transforms the channels of `x` to values of the inputs of the pass. */
static void to_values(const wino_pass *p, const ls_wino_image *x)
{
    const ls_wino *w = p->w;
    const ls_wino_values in = {p->in, p->in_point, w->tiles};
    (w->spread ? w->kernels->dy : w->kernels->input)[w->form](in, x, p->x, p->first, p->count);
}

static void transform_input(void *arg, uint32_t item)
{
    const wino_pass *p = arg;
    const ls_wino_image some = some_of(&p->w->x, item);
    to_values(p, &some);
}

/* Transforms values of the outputs of the pass to the channels of `y`. */
static void from_values(const wino_pass *p, const ls_wino_image *y)
{
    const ls_wino *w = p->w;
    const ls_wino_values out = {p->out, p->out_point, w->tiles};
    if (w->spread)
        w->kernels->spread[w->form](p->y, y, out, p->first, p->count);
    else
        w->kernels->output[w->form](p->y, y, out, p->first, p->count, p->finish);
}

static void transform_output(void *arg, uint32_t item)
{
    const wino_pass *p = arg;
    const ls_wino_image some = some_of(&p->w->y, item);
    from_values(p, &some);
}

/* Computes the products of the points `point` … `point` + count − 1. */
static void multiply(const wino_pass *pass, uint32_t point, uint32_t count)
{
    const ls_wino *w = pass->w;
    ls_wino_product p = {.to = w->y.channels,
                         .from = w->x.channels,
                         .tiles = w->tiles,
                         .count = pass->count,
                         .transposed = w->transposed};
    p.eight_step = to_multiple(w->transposed ? p.to : p.from, 2) * 8;
    for (const uint32_t end = point + count; point < end; point++) {
        p.out = pass->out + (size_t)point * pass->out_point;
        p.in = pass->in + (size_t)point * pass->in_point;
        p.weights = pass->weights + (size_t)point * w->point_weights;
        w->kernels->multiply(&p);
    }
}

/* Computes the products of one thread's share of the points. The points of a thread are adjacent,
 * so the results that it writes are adjacent too. */
static void multiply_points(void *arg, uint32_t part)
{
    const wino_pass *pass = arg;
    const ls_wino *w = pass->w;
    uint32_t point, count;
    ls_split((uint32_t)w->points, (uint32_t)ls_team_size(w->team), part, &point, &count);
    multiply(pass, point, count);
}

static void transform_weights(void *arg, uint32_t eight)
{
    const wino_pass *p = arg;
    const ls_wino *w = p->w;
    const int in = w->transposed ? w->y.channels : w->x.channels, r = form_of[w->form].r;
    const size_t row = to_multiple(in, 2) * 8, taps = (size_t)(r * r * 8);
    w->kernels->weights[w->form](p->values + eight * row, w->point_weights,
                                 p->weights + eight * (size_t)in * taps, in,
                                 w->transposed && !w->spread);
}

static void transform_gradient(void *arg, uint32_t sixteen)
{
    const wino_pass *p = arg;
    const ls_wino *w = p->w;
    const int r = form_of[w->form].r, o = (int)sixteen * 16;
    const size_t taps = (size_t)w->x.channels * (size_t)(r * r) * 8;
    w->kernels->gradient[w->form](p->y + (size_t)(o / 8) * taps, taps,
                                  p->values + (size_t)o * (size_t)w->x.channels, w->point_gradient,
                                  w->x.channels, w->y.channels - o, p->add);
}

/* Computes the gradient of the weights of the outputs o … o + outputs − 1 and of all inputs, from
 * the panels of these outputs, if all tiles are one block. */
static void whole_gradient(const wino_pass *p, const float *panels, float *values, int o,
                           int outputs)
{
    const ls_wino *w = p->w;
    const int inputs = w->x.channels, r = form_of[w->form].r;
    const size_t line = (size_t)w->tiles * 16, taps = (size_t)(r * r) * 8;
    for (int i = 0, n; i < inputs; i += n) {
        n = inputs - i < PART_IN ? inputs - i : PART_IN;
        for (int point = 0; point < w->points; point++)
            w->kernels->correlate(values + (size_t)point * PART_POINT,
                                  panels + (size_t)point * part_panels(w),
                                  p->in + (size_t)point * p->in_point + (size_t)i * line, n,
                                  (outputs + 15) / 16, w->tiles, p->count, 0);
        for (int s = 0; s < outputs; s += 16)
            w->kernels->gradient[w->form](
                p->y + ((size_t)((o + s) / 8) * (size_t)inputs + (size_t)i) * taps,
                (size_t)inputs * taps, values + (size_t)s * (size_t)n, PART_POINT, n, outputs - s,
                p->add);
    }
}

/* Adds the products of one block of tiles to the values of the gradient, for the outputs o … o +
 * outputs − 1. */
static void block_gradient(const wino_pass *p, const float *panels, int o, int outputs)
{
    const ls_wino *w = p->w;
    for (int point = 0; point < w->points; point++)
        w->kernels->correlate(
            p->values + (size_t)point * w->point_gradient + (size_t)o * (size_t)w->x.channels,
            panels + (size_t)point * part_panels(w), p->in + (size_t)point * p->in_point,
            w->x.channels, (outputs + 15) / 16, w->tiles, p->count, p->add);
}

/* Computes the gradient of the weights for one part: the outputs o … o + outputs − 1. */
static void gradient_of_part(const wino_pass *p, float *panels, int o, int outputs)
{
    const ls_wino *w = p->w;
    ls_wino_image some = w->y;
    some.from = o;
    some.to = o + outputs;
    w->kernels->panels[w->form](panels, part_panels(w), &some, p->dy, p->first, p->count);
    if (w->whole)
        whole_gradient(p, panels, panels + (size_t)w->points * part_panels(w), o, outputs);
    else
        block_gradient(p, panels, o, outputs);
}

/* Computes the gradient for one thread's share of the outputs. The sixteens of outputs are divided
 * into parts of nearly equal size, and every thread gets the same number of parts. */
static void some_gradients(void *arg, uint32_t thread)
{
    const wino_pass *p = arg;
    const uint32_t team = (uint32_t)ls_team_size(p->w->team), most = PART_OUT / 16;
    const uint32_t sixteens = (uint32_t)(p->w->y.channels + 15) / 16;
    const uint32_t parts = ((sixteens + most - 1) / most + team - 1) / team * team;
    uint32_t part, count, s, n;
    ls_split(parts, team, thread, &part, &count);
    for (const uint32_t end = part + count; part < end; part++) {
        ls_split(sixteens, parts, part, &s, &n);
        const int o = (int)s * 16, left = p->w->y.channels - o;
        if (n > 0)
            gradient_of_part(p, p->panels + thread * part_floats(p->w), o,
                             (int)n * 16 < left ? (int)n * 16 : left);
    }
}

/* ---- the passes ------------------------------------------------------------------------------ */

/* fewest weights for which a team divides their transform */
#define TEAM_WEIGHTS (1 << 14)

void ls_wino_weights(const ls_wino *w, float *values, const float *weights)
{
    const int out = w->transposed ? w->x.channels : w->y.channels;
    const bool few = (size_t)w->x.channels * (size_t)w->y.channels < TEAM_WEIGHTS;
    wino_pass pass = {.w = w, .values = values, .weights = weights};
    ls_team_run(few ? NULL : w->team, (uint32_t)(out + 7) / 8, transform_weights, &pass);
}

/* Computes all tiles of one part of a pass, block by block, in the memory of `slot`. All points of
 * a block are computed one after another. The outputs of each point overwrite the inputs of the
 * previous point, which are not needed any more, so that a block takes only half of the cache. */
static void conv_part(void *arg, uint32_t slot, uint32_t part)
{
    wino_pass p = *(const wino_pass *)arg;
    const ls_wino *w = p.w;
    const uint32_t unit = w->spread ? (uint32_t)(w->y.down * w->y.across) : 1;
    uint32_t first, count;
    ls_split((uint32_t)p.tiles / unit, p.parts, part, &first, &count);
    const int end = (int)((first + count) * unit);
    p.in_point = p.out_point = slot_floats(w);
    p.out = p.memory + slot * block_floats(w);
    p.in = p.out + p.in_point;
    for (p.first = (int)(first * unit); p.first < end; p.first += p.count) {
        p.count = end - p.first < w->block ? end - p.first : w->block;
        to_values(&p, &w->x);
        multiply(&p, 0, (uint32_t)w->points);
        from_values(&p, &w->y);
    }
}

/* Computes a pass block by block, each by the whole team. The values of inputs and outputs lie
 * apart, because the threads compute different points at the same time. */
static void conv_by_blocks(wino_pass *p)
{
    const ls_wino *w = p->w;
    p->in_point = w->point_x;
    p->out_point = w->point_y;
    p->in = p->memory;
    p->out = p->memory + (size_t)w->points * w->point_x;
    for (; p->first < p->tiles; p->first += p->count) {
        p->count = p->tiles - p->first < w->block ? p->tiles - p->first : w->block;
        ls_team_run(w->team, items(&w->x), transform_input, p);
        ls_team_run(w->team, (uint32_t)ls_team_size(w->team), multiply_points, p);
        ls_team_run(w->team, items(&w->y), transform_output, p);
    }
}

/* Returns the number of parts into which the tiles of a pass are divided; 0: the team divides each
 * block instead. The parts are at most as large as a block, so that every thread gets equally many.
 * In a spread pass a part is whole packets, whose neighbouring tiles are added to the same
 * pixels. */
static uint32_t parts_of(const ls_wino *w, int tiles)
{
    const uint32_t threads = (uint32_t)ls_team_size(w->team);
    const uint32_t blocks = (uint32_t)blocks_of(w, tiles), most = (uint32_t)tiles / FEWEST;
    uint32_t parts = (blocks + threads - 1) / threads * threads;
    if (threads == 1)
        return 1;
    if (parts > most)
        parts = blocks > most ? blocks : most;
    if (w->spread)
        parts = (uint32_t)(tiles / (w->y.down * w->y.across));
    const bool many = (size_t)w->points * w->point_weights * sizeof(float) > MANY_WEIGHTS;
    return many || parts < threads ? 0 : parts;
}

void ls_wino_conv(const ls_wino *w, int packets, float *y, const float *x,
                  const ls_wino_finish *finish, const float *values, float *memory)
{
    const int tiles = packets * w->y.down * w->y.across;
    wino_pass p = {.w = w,
                   .x = x,
                   .y = y,
                   .weights = values,
                   .finish = finish,
                   .memory = memory,
                   .tiles = tiles,
                   .parts = parts_of(w, tiles)};
    if (p.parts)
        ls_team_run_parts(w->team, p.parts, conv_part, &p);
    else
        conv_by_blocks(&p);
}

/* ---- the gradient by a team, from the sums of blocks ----------------------------------------- */

static float *sums_of(const wino_pass *p, int block)
{
    return p->memory + (size_t)ls_team_size(p->w->team) * thread_floats(p->w) +
           (size_t)block * sums_floats(p->w);
}

/* Computes the sums of one block for some of the outputs, in the memory of `slot`. */
static void sums_of_block(void *arg, uint32_t slot, uint32_t part)
{
    wino_pass p = *(const wino_pass *)arg;
    const ls_wino *w = p.w;
    const int block = (int)part / p.cuts;
    uint32_t s, n;
    ls_split((uint32_t)(w->y.channels + 15) / 16, (uint32_t)p.cuts, part % (uint32_t)p.cuts, &s,
             &n);
    const int end = (int)(s + n) * 16 < w->y.channels ? (int)(s + n) * 16 : w->y.channels;
    float *const sums = sums_of(&p, block);
    p.first = (p.begin + block) * w->block;
    p.count = p.tiles - p.first < w->block ? p.tiles - p.first : w->block;
    p.in = p.memory + slot * thread_floats(w);
    p.in_point = w->point_x;
    p.panels = p.in + (size_t)w->points * w->point_x;
    to_values(&p, &w->x);
    for (int o = (int)s * 16; o < end; o += PART_OUT) {
        ls_wino_image some = w->y;
        some.from = o;
        some.to = o + PART_OUT < end ? o + PART_OUT : end;
        w->kernels->panels[w->form](p.panels, part_panels(w), &some, p.dy, p.first, p.count);
        for (int point = 0; point < w->points; point++)
            w->kernels->correlate(
                sums + (size_t)point * sums_point(w) + (size_t)o * (size_t)w->x.channels,
                p.panels + (size_t)point * part_panels(w), p.in + (size_t)point * w->point_x,
                w->x.channels, (some.to - o + 15) / 16, w->tiles, p.count, 0);
    }
}

/* Adds sums of one block to the total. `first` is non-zero for the first block, whose sums become
 * the total. */
static void add_sums(float *total, const float *sums, size_t n, int first)
{
    if (first) {
        memcpy(total, sums, n * sizeof *total);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        total[i] += sums[i];
}

#define SOME_INPUTS 16 /* number of input channels of an item of total_of */

/* Adds the sums of the blocks to the total, for sixteen outputs and up to SOME_INPUTS inputs. After
 * the last block, transforms the total to the gradient of the weights. */
static void total_of(void *arg, uint32_t item)
{
    const wino_pass *p = arg;
    const ls_wino *w = p->w;
    const int inputs = w->x.channels, r = form_of[w->form].r;
    const int chunks = (inputs + SOME_INPUTS - 1) / SOME_INPUTS;
    const int o = (int)item / chunks * 16, i = (int)item % chunks * SOME_INPUTS;
    const int n = inputs - i < SOME_INPUTS ? inputs - i : SOME_INPUTS;
    const size_t at = ((size_t)o * (size_t)inputs) + (size_t)i * 16, taps = (size_t)(r * r) * 8;
    float *const total = sums_of(p, blocks_with_sums(w)) + at;
    for (int block = 0; block < p->blocks; block++)
        for (int point = 0; point < w->points; point++)
            add_sums(total + (size_t)point * sums_point(w),
                     sums_of(p, block) + (size_t)point * sums_point(w) + at, (size_t)n * 16,
                     p->begin + block == 0);
    if (p->begin + p->blocks == blocks_of(w, p->tiles))
        w->kernels->gradient[w->form](p->y + ((size_t)(o / 8) * (size_t)inputs + (size_t)i) * taps,
                                      (size_t)inputs * taps, total, sums_point(w), n,
                                      w->y.channels - o, p->add);
}

static void gradient_by_sums(wino_pass *p)
{
    const ls_wino *w = p->w;
    const int blocks = blocks_of(w, p->tiles), most = blocks_with_sums(w);
    const uint32_t sixteens = (uint32_t)(w->y.channels + 15) / 16;
    const uint32_t chunks = (uint32_t)(w->x.channels + SOME_INPUTS - 1) / SOME_INPUTS;
    for (; p->begin < blocks; p->begin += p->blocks) {
        p->blocks = blocks - p->begin < most ? blocks - p->begin : most;
        p->cuts = (int)ls_team_cuts(w->team, (uint32_t)p->blocks, sixteens);
        ls_team_run_parts(w->team, (uint32_t)(p->blocks * p->cuts), sums_of_block, p);
        ls_team_run(w->team, sixteens * chunks, total_of, p);
    }
}

/* Computes the gradient block by block, each by the whole team. */
static void gradient_by_blocks(wino_pass *p)
{
    const ls_wino *w = p->w;
    const int add = p->add;
    p->in = p->memory;
    p->in_point = w->point_x;
    p->values = p->memory + (size_t)w->points * w->point_x;
    p->panels = p->values + gradient_floats(w);
    p->add = w->whole && add;
    for (; p->first < p->tiles; p->first += p->count, p->add = 1) {
        p->count = p->tiles - p->first < w->block ? p->tiles - p->first : w->block;
        ls_team_run(w->team, items(&w->x), transform_input, p);
        ls_team_run(w->team, (uint32_t)ls_team_size(w->team), some_gradients, p);
    }
    if (w->whole)
        return;
    p->add = add;
    ls_team_run(w->team, (uint32_t)(w->y.channels + 15) / 16, transform_gradient, p);
}

void ls_wino_gradient(const ls_wino *w, int packets, float *gradient, const float *x,
                      const float *dy, int add, float *work)
{
    wino_pass p = {.w = w,
                   .x = x,
                   .dy = dy,
                   .y = gradient,
                   .add = add,
                   .memory = work,
                   .tiles = packets * w->y.down * w->y.across};
    if (blocks_with_sums(w))
        gradient_by_sums(&p);
    else
        gradient_by_blocks(&p);
}
