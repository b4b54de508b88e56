#include "cpu/wino.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Of one block's inputs and outputs: an L2 cache. The weights are read for every block, so that blocks are
 * large where they come from beyond the caches. A block's tiles decide where the sums of a gradient are cut:
 * they are the same on every CPU. */
#define BLOCK_BYTES ((size_t)1 << 20)
#define MANY_WEIGHTS ((size_t)12 << 20)
#define FEWEST 3 /* tiles of a block: so many columns has a tile of products */

static const struct {
    int m, r;
} form_of[LS_WINO_FORMS] = {{2, 3}, {4, 3}, {2, 5}};

/* Points are not a multiple of 4 KiB apart: the transforms write to all of them in turn. */
static size_t point_floats(size_t floats)
{
    return (floats + 1023) / 1024 * 1024 + 5 * 16;
}

static size_t to_multiple(int n, int of)
{
    return (size_t)((n + of - 1) / of * of);
}

static int block_tiles(const ls_wino *w)
{
    size_t tile = (size_t)w->points * (size_t)(w->x.channels + w->y.channels) * 64;
    size_t weights = (size_t)w->points * w->point_weights * sizeof(float);
    size_t bytes = weights > MANY_WEIGHTS ? weights / 2 : BLOCK_BYTES;
    int most = (int)(bytes / tile) / FEWEST * FEWEST;
    return most < FEWEST ? FEWEST : most;
}

static ls_wino_image image_of(int channels, int h, int w)
{
    ls_wino_image image = {.channels = channels, .h = h, .w = w};
    image.line = (size_t)w * 16;
    image.channel = (size_t)h * image.line;
    image.group = (size_t)channels * image.channel;
    return image;
}

void ls_wino_init(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *s)
{
    const int m = form_of[form].m, r = form_of[form].r;
    *w = (ls_wino){.kernels = kernels, .form = form, .points = (m + r - 1) * (m + r - 1)};
    w->x = image_of(s->in, s->h, s->w);
    w->y = image_of(s->out, s->oh, s->ow);
    w->x.top = s->ph;
    w->x.left = s->pw;
    w->x.down = w->y.down = (w->y.h + m - 1) / m;
    w->x.across = w->y.across = (w->y.w + m - 1) / m;
    /* In whichever direction: eights of outputs by pairs of inputs. */
    w->point_weights = point_floats(to_multiple(s->in, 8) * to_multiple(s->out, 8));
    w->point_gradient = point_floats((size_t)s->in * to_multiple(s->out, 16));
    w->block = block_tiles(w);
    w->tile = (size_t)(w->points + 1) * 16;
}

void ls_wino_init_data(ls_wino *w, const ls_wino_kernels *kernels, int form, const ls_wino_shape *s)
{
    const int r = form_of[form].r;
    const ls_wino_shape transposed = {.in = s->out,
                                      .out = s->in,
                                      .h = s->oh,
                                      .w = s->ow,
                                      .oh = s->h,
                                      .ow = s->w,
                                      .ph = r - 1 - s->ph,
                                      .pw = r - 1 - s->pw};
    ls_wino_init(w, kernels, form, &transposed);
    w->turned = 1;
}

size_t ls_wino_weight_floats(const ls_wino *w)
{
    return (size_t)w->points * w->point_weights;
}

static size_t values_of(const ls_wino *w, const ls_wino_image *image)
{
    return (size_t)image->channels * (size_t)w->block * w->tile;
}

size_t ls_wino_work_floats(const ls_wino *w)
{
    return values_of(w, &w->x) + values_of(w, &w->y);
}

static size_t panel_floats(const ls_wino *w)
{
    return (size_t)w->block * 16 * to_multiple(w->y.channels, 16);
}

size_t ls_wino_gradient_floats(const ls_wino *w)
{
    return ls_wino_work_floats(w) + (size_t)w->points * w->point_gradient + panel_floats(w);
}

/* ---- the passes ------------------------------------------------------------------------------ */

void ls_wino_weights(const ls_wino *w, float *values, const float *weights)
{
    const int in = w->turned ? w->y.channels : w->x.channels;
    const int out = w->turned ? w->x.channels : w->y.channels;
    const int r = form_of[w->form].r;
    const size_t row = to_multiple(in, 2) * 8, taps = (size_t)(r * r * 8);
    for (int o = 0; o < out; o += 8)
        w->kernels->weights[w->form](values + (size_t)(o / 8) * row, w->point_weights,
                                     weights + (size_t)(o / 8) * (size_t)in * taps, in, w->turned);
}

static void multiply(const ls_wino *w, float *out, const float *values, const float *in, int count)
{
    ls_wino_product p = {.to = w->y.channels,
                         .from = w->x.channels,
                         .tile = w->tile,
                         .tiles = w->block,
                         .count = count,
                         .turned = w->turned};
    p.row = to_multiple(w->turned ? p.to : p.from, 2) * 8;
    for (int point = 0; point < w->points; point++) {
        p.out = out + (size_t)point * 16;
        p.in = in + (size_t)point * 16;
        p.weights = values + (size_t)point * w->point_weights;
        w->kernels->multiply(&p);
    }
}

void ls_wino_conv(const ls_wino *w, int groups, float *y, const float *x, const float *values,
                  const ls_wino_finish *finish, float *work)
{
    const ls_wino_kernels *k = w->kernels;
    const int tiles = groups * w->y.down * w->y.across;
    float *in = work, *out = work + values_of(w, &w->x);
    for (int first = 0, count; first < tiles; first += count) {
        count = tiles - first < w->block ? tiles - first : w->block;
        k->input[w->form](in, w->block, &w->x, x, first, count);
        multiply(w, out, values, in, count);
        k->output[w->form](y, &w->y, out, w->block, first, count, finish);
    }
}

/* A block's products, of all its outputs sixteen by sixteen. */
static void correlate(const ls_wino *w, float *values, const float *out, const float *in,
                      float *panels, int count, int add)
{
    const int outputs = w->y.channels;
    const size_t line = (size_t)w->block * w->tile;
    for (int point = 0; point < w->points; point++) {
        const float *dy = out + (size_t)point * 16;
        float *panel = panels;
        for (int o = 0; o < outputs; o += 16, panel += (size_t)count * 256)
            w->kernels->panel(panel, dy + (size_t)o * line, outputs - o < 16 ? outputs - o : 16,
                              line, count, w->tile);
        w->kernels->correlate(values + (size_t)point * w->point_gradient, panels,
                              in + (size_t)point * 16, w->tile, w->x.channels, (outputs + 15) / 16,
                              w->block, count, add);
    }
}

void ls_wino_gradient(const ls_wino *w, int groups, float *gradient, const float *x,
                      const float *dy, int add, float *work)
{
    const ls_wino_kernels *k = w->kernels;
    const int tiles = groups * w->y.down * w->y.across, r = form_of[w->form].r;
    const size_t taps = (size_t)w->x.channels * (size_t)(r * r) * 8;
    float *in = work, *out = work + values_of(w, &w->x);
    float *values = work + ls_wino_work_floats(w);
    float *panels = values + (size_t)w->points * w->point_gradient;
    for (int first = 0, count; first < tiles; first += count) {
        count = tiles - first < w->block ? tiles - first : w->block;
        k->input[w->form](in, w->block, &w->x, x, first, count);
        k->error[w->form](out, w->block, &w->y, dy, first, count);
        correlate(w, values, out, in, panels, count, first > 0);
    }
    for (int o = 0; o < w->y.channels; o += 16)
        k->gradient[w->form](gradient + (size_t)(o / 8) * taps,
                             values + (size_t)o * (size_t)w->x.channels, w->point_gradient,
                             w->x.channels, w->y.channels - o, add);
}
