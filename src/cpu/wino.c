/* Winograd's algorithm for convolutions: plans of the passes, and their execution by a team of
 * threads. A *tile* is m × m outputs, which the algorithm computes from the *values* (transformed
 * numbers) at a number of *points*. A *block* is the tiles that a pass processes at a time. A
 * *step* is a distance in memory, in floats. (See wino.h.) */
#include "cpu/wino.h"

#include <lockstep/split.h>
#include <stdbool.h>

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

static int block_tiles(const ls_wino *w)
{
    const int most = most_tiles(w) / FEWEST * FEWEST;
    return most < FEWEST ? FEWEST : most;
}

void ls_wino_fit(ls_wino *w, int groups)
{
    const int tiles = groups * w->y.down * w->y.across;
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
    image.group = (size_t)channels * image.channel;
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
    ls_wino_set_block(w, block_tiles(w));
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
                           const ls_wino_shape *s, int groups)
{
    ls_wino_init(w, kernels, form, s);
    const int tiles = groups * w->y.down * w->y.across;
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

size_t ls_wino_conv_floats(const ls_wino *w)
{
    const size_t apart = (size_t)w->points * (w->point_x + w->point_y);
    const size_t slots = (size_t)(w->points + 1) * slot_floats(w);
    return apart > slots ? apart : slots;
}

/* A gradient of the weights is computed for a *part* of the outputs, PART_OUT of them, at a time,
 * so that the panels of all points stay in the cache. (A panel is values of dy in another order;
 * wino.h.) If all tiles are one block (ls_wino.whole), a part also has only PART_IN inputs.
 * PART_POINT: step from one point to the next in the values of such a part. */
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

size_t ls_wino_gradient_floats(const ls_wino *w)
{
    return (size_t)w->points * w->point_x + gradient_floats(w) +
           (size_t)ls_team_size(w->team) * part_floats(w);
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

static void transform_input(void *arg, uint32_t item)
{
    const wino_pass *p = arg;
    const ls_wino *w = p->w;
    const ls_wino_image some = some_of(&w->x, item);
    const ls_wino_values in = {p->in, p->in_point, w->tiles};
    (w->spread ? w->kernels->dy : w->kernels->input)[w->form](in, &some, p->x, p->first, p->count);
}

static void transform_output(void *arg, uint32_t item)
{
    const wino_pass *p = arg;
    const ls_wino *w = p->w;
    const ls_wino_image some = some_of(&w->y, item);
    const ls_wino_values out = {p->out, p->out_point, w->tiles};
    if (w->spread)
        w->kernels->spread[w->form](p->y, &some, out, p->first, p->count);
    else
        w->kernels->output[w->form](p->y, &some, out, p->first, p->count, p->finish);
}

/* Computes the products of one thread's share of the points. The points of a thread are adjacent,
 * so the results that it writes are adjacent too. */
static void multiply_points(void *arg, uint32_t part)
{
    const wino_pass *pass = arg;
    const ls_wino *w = pass->w;
    uint32_t point, count;
    ls_split((uint32_t)w->points, (uint32_t)ls_team_size(w->team), part, &point, &count);
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

void ls_wino_weights(const ls_wino *w, float *values, const float *weights)
{
    const int out = w->transposed ? w->x.channels : w->y.channels;
    wino_pass pass = {.w = w, .values = values, .weights = weights};
    ls_team_run(w->team, (uint32_t)(out + 7) / 8, transform_weights, &pass);
}

/* Places the values of inputs and outputs in `memory`. If a single thread computes all points one
 * after another, the outputs of each point overwrite the inputs of the previous point, which are
 * not needed any more. A block then takes only half of the cache. */
static void place_values(wino_pass *p, float *memory)
{
    const ls_wino *w = p->w;
    const bool alone = ls_team_size(w->team) == 1;
    p->in_point = alone ? slot_floats(w) : w->point_x;
    p->out_point = alone ? slot_floats(w) : w->point_y;
    p->in = alone ? memory + p->in_point : memory;
    p->out = alone ? memory : memory + (size_t)w->points * w->point_x;
}

void ls_wino_conv(const ls_wino *w, int groups, float *y, const float *x,
                  const ls_wino_finish *finish, const float *values, float *memory)
{
    const int tiles = groups * w->y.down * w->y.across;
    wino_pass p = {.w = w, .x = x, .y = y, .weights = values, .finish = finish};
    place_values(&p, memory);
    for (; p.first < tiles; p.first += p.count) {
        p.count = tiles - p.first < w->block ? tiles - p.first : w->block;
        ls_team_run(w->team, items(&w->x), transform_input, &p);
        ls_team_run(w->team, (uint32_t)ls_team_size(w->team), multiply_points, &p);
        ls_team_run(w->team, items(&w->y), transform_output, &p);
    }
}

void ls_wino_gradient(const ls_wino *w, int groups, float *gradient, const float *x,
                      const float *dy, int add, float *work)
{
    const int tiles = groups * w->y.down * w->y.across;
    wino_pass p = {.w = w, .x = x, .dy = dy, .y = gradient, .add = w->whole && add};
    p.in = work;
    p.in_point = w->point_x;
    p.values = work + (size_t)w->points * w->point_x;
    p.panels = p.values + gradient_floats(w);
    for (; p.first < tiles; p.first += p.count, p.add = 1) {
        p.count = tiles - p.first < w->block ? tiles - p.first : w->block;
        ls_team_run(w->team, items(&w->x), transform_input, &p);
        ls_team_run(w->team, (uint32_t)ls_team_size(w->team), some_gradients, &p);
    }
    if (w->whole)
        return;
    p.add = add;
    ls_team_run(w->team, (uint32_t)(w->y.channels + 15) / 16, transform_gradient, &p);
}
