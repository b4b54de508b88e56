/* Convolution of one to eight images that are stored one after another (the layout `few`, few.h).
 *
 * Words of this file:
 *
 *     image       one example of the batch
 *     image row   a line of pixels of an image
 *     lane        one of the sixteen positions of a vector
 *     kernel      a function of kernels/. All kernels of convolutions process sixteen images, one
 *                 in each lane.
 *     filter      the weights of a convolution for one input and one output channel
 *     patch       the pixels of x from which one result is computed. The result is one pixel of y;
 *                 or one window of the pool, if a pool is fused; or one tile of Winograd's
 *                 algorithm (wino.h).
 *     group       sixteen patches, one in each lane, and the sixteen results. (In other files a
 *                 group is sixteen images. lanes_conv.h says *lane group* for a group of this
 *                 file.)
 *
 * Sixteen patches are copied into the sixteen lanes. The kernels then process the patches as if
 * these were sixteen small images. Each sum has the same terms in the same order as for a whole
 * image, and therefore the same bits. The results of a group are consecutive pixels or tiles, which
 * can belong to several images.
 *
 * The direct form (the one without Winograd's algorithm) does not multiply with the padding above
 * and below an image. Instead it leaves the filter rows that lie over this padding out of the sums.
 * A kernel does so for all lanes alike. Therefore all pixels of a group must leave out the same
 * filter rows. A *run* consists of consecutive image rows of y that leave out the same filter rows,
 * and each run has groups of its own.
 *
 * The scratch memory is [copy of x with zeros around it][patches of x][results][memory of the
 * kernels]; parts that are not needed are left out. With Winograd's algorithm, transformed weights
 * that the op does not keep come first. */
#include "base/error.h"
#include "base/host.h"
#include "cpu/lanes_conv.h"

#include <string.h>

/* largest size in bytes of the patches of all groups that are computed together */
#define GROUP_BYTES ((size_t)160 << 10)
/* largest number of groups that are computed together */
#define GROUPS_MOST 12

/* Returns `floats` rounded up to whole cache lines of sixteen floats. */
static size_t to_cache_lines(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

/* ---- x and y in lanes ------------------------------------------------------------------------ */

/* Returns the shape of x. */
static ls_tensor x_of(const ls_conv_op *op)
{
    const ls_lanes_conv *c = &op->few.one;
    return (ls_tensor){.rows = op->base.op.y.rows, .c = c->ic, .h = op->x_h, .w = op->x_w};
}

/* Returns the number of floats of the copy of one channel of all images, with zeros around each; 0
 * if x is not copied. */
static size_t copy_floats(const ls_conv_op *op)
{
    const ls_few_conv *f = &op->few;
    return f->copied ? to_cache_lines((size_t)op->base.op.y.rows * (size_t)f->h * (size_t)f->w) : 0;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Copies one channel of all images to `to`, with `up` image rows of zeros above and `left` columns
 * of zeros to the left of each image. The memory already contains these zeros. */
static void copy_channel(const ls_conv_op *op, int channel, int up, int left, float *to)
{
    const ls_few_conv *f = &op->few;
    const ls_tensor x = x_of(op);
    const int h = smaller(x.h, f->h - up), w = smaller(x.w, f->w - left);
    for (int r = 0; r < x.rows; r++, to += f->h * f->w) {
        const float *from = (const float *)op->base.b.x + (size_t)r * ls_few_row(&x) +
                            (size_t)channel * ls_few_plane(&x);
        for (int i = 0; i < h; i++)
            memcpy(to + (up + i) * f->w + left, from + (size_t)i * (size_t)x.w,
                   (size_t)w * sizeof *to);
    }
}

/* Returns the memory from which the patches of a channel are read: a copy of the channel in `room`,
 * or x itself. */
static const float *channel_of(const ls_conv_op *op, int channel, int up, int left, float *room)
{
    const ls_tensor x = x_of(op);
    if (!op->few.copied)
        return (const float *)op->base.b.x + (size_t)channel * ls_few_plane(&x);
    copy_channel(op, channel, up, left, room);
    return room;
}

/* ---- Winograd -------------------------------------------------------------------------------- */

/* Copies the results of a group of sixteen tiles, one channel, from `from` to y. Outputs of a tile
 * that lie beyond the right or lower edge of y are left out. With a pool a tile has one output. */
static void put_tiles(const ls_conv_op *op, int group, const float *from, float *y)
{
    const ls_few_conv *f = &op->few;
    const ls_tensor *t = &op->base.op.y;
    const int m = op->conv.pool_h > 1 ? 1 : f->m, tiles = f->down * f->across;
    const int count = smaller(LS_LANES, t->rows * tiles - group * LS_LANES);
    const int32_t *place = f->place + group * LS_LANES;
    for (int l = 0; l < count; l++) {
        const int tile = (group * LS_LANES + l) % tiles;
        /* height and width of the part of the tile that lies inside y */
        const int inside_h = smaller(m, t->h - tile / f->across * m);
        const int inside_w = smaller(m, t->w - tile % f->across * m);
        float *to = y + place[l];
        for (int i = 0; i < inside_h; i++)
            for (int j = 0; j < inside_w; j++)
                to[i * t->w + j] = from[(i * m + j) * LS_LANES + l];
    }
}

/* Computes the groups `first` … `first` + `count` − 1, which consist of tiles. */
static void winograd_some(const ls_conv_op *op, int first, int count, const ls_wino_finish *finish,
                          const float *values, float *room)
{
    const ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &op->conv;
    const int side = f->wino.x.h, m = f->wino.y.h;
    const size_t patch = (size_t)(side * side) * LS_LANES;
    const size_t sums = (size_t)(c->pool_h > 1 ? 1 : m * m) * LS_LANES;
    float *in = room + copy_floats(op), *out = in + (size_t)f->most * (size_t)c->ic * patch;
    const size_t plane = ls_few_plane(&op->base.op.y);
    for (int i = 0; i < c->ic; i++) {
        const float *from = channel_of(op, i, c->ph, c->pw, room);
        for (int g = 0; g < count; g++) {
            const ls_few_pick pick = {.index = f->index + (first + g) * LS_LANES,
                                      .rows = side,
                                      .columns = side,
                                      .from_row = f->w,
                                      .to_row = (ptrdiff_t)side * LS_LANES};
            op->base.kernels->few->pick(&pick, from,
                                        in + ((size_t)g * (size_t)c->ic + (size_t)i) * patch);
        }
    }
    ls_wino_conv(&f->wino, count, out, in, finish, values,
                 out + (size_t)f->most * (size_t)c->oc * sums);
    for (int g = 0; g < count; g++)
        for (int o = 0; o < c->oc; o++)
            put_tiles(op, first + g, out + ((size_t)g * (size_t)c->oc + (size_t)o) * sums,
                      (float *)op->base.b.y + (size_t)o * plane);
}

/* Forward by Winograd's algorithm (ls_lanes_op.few). */
static void by_winograd(ls_lanes_op *base)
{
    const ls_conv_op *op = (const ls_conv_op *)base;
    const ls_few_conv *f = &op->few;
    const ls_wino_finish finish = {.bias = op->bias ? base->b.param[1] : NULL,
                                   .relu = op->conv.relu,
                                   .pool = op->conv.pool_h > 1};
    float *room = base->b.scratch;
    const float *values = ls_conv_transformed_weights(op, LS_CONV_FORWARD, op->base.flags, room);
    room += op->kept[LS_CONV_FORWARD] ? 0 : ls_wino_weight_floats(&op->forward.wino);
    memset(room, 0, copy_floats(op) * sizeof *room);
    for (int g = 0, count; g < f->groups; g += count) {
        count = smaller(f->groups - g, f->most);
        winograd_some(op, g, count, &finish, values, room);
    }
}

/* ---- direct ---------------------------------------------------------------------------------- */

/* Copies the results of a group of pixels, one channel, from `from` to y. */
static void put_pixels(const ls_few_conv *f, int group, const float *from, float *y)
{
    const int32_t *place = f->place + group * LS_LANES;
    if (f->along[2 * group + 1]) {
        memcpy(y + place[0], from, LS_LANES * sizeof *y);
        return;
    }
    for (int l = 0; l < LS_LANES && place[l] >= 0; l++)
        y[place[l]] = from[l];
}

/* Computes the groups `first` … `first` + `count` − 1, all of one run, with one call of the kernel.
 * In each lane, the patches of the groups are placed side by side, as one small image that is
 * `count` patches wide. The stride is the width of a patch. */
static void direct_some(const ls_conv_op *op, const ls_few_run *run, int first, int count,
                        float *room)
{
    const ls_few_conv *f = &op->few;
    const ls_few_kernels *k = op->base.kernels->few;
    const bool pooled = f->one.pool_h * f->one.pool_w > 1;
    ls_lanes_conv c = f->one;
    const int wide = c.iw; /* number of columns of a patch */
    const size_t pixel = (size_t)c.y_h * (size_t)c.y_w * LS_LANES;
    const size_t plane = ls_few_plane(&op->base.op.y);
    float *in = room + copy_floats(op);
    c.ih = run->rows;
    c.ph = run->up;
    c.iw = wide * count;
    if (!pooled) {
        c.sw = wide;
        c.ow = c.y_w = count;
    }
    const ptrdiff_t line = (ptrdiff_t)c.iw * LS_LANES;
    for (int i = 0; i < c.ic; i++) {
        const float *from = channel_of(op, i, 0, c.pw, room);
        for (int g = 0; g < count; g++) {
            const ls_few_pick pick = {.index = f->index + (first + g) * LS_LANES,
                                      .side_by_side = f->along[2 * (first + g)],
                                      .rows = run->rows,
                                      .columns = wide,
                                      .from_row = f->w,
                                      .to_row = line};
            k->pick(&pick, from, in + (ptrdiff_t)i * run->rows * line + g * wide * LS_LANES);
        }
    }
    float *out = in + to_cache_lines((size_t)c.ic * (size_t)run->rows * (size_t)line);
    float *tile = out + (size_t)c.oc * (size_t)count * pixel;
    op->base.kernels->conv_forward(&c, in, op->base.b.param[0],
                                   op->bias ? op->base.b.param[1] : NULL, out, NULL, tile);
    for (int o = 0; o < c.oc; o++)
        for (int g = 0; g < count; g++)
            put_pixels(f, first + g, out + ((size_t)o * (size_t)count + (size_t)g) * LS_LANES,
                       (float *)op->base.b.y + (size_t)o * plane);
}

/* Forward in the direct form (ls_lanes_op.few). */
static void direct(ls_lanes_op *base)
{
    const ls_conv_op *op = (const ls_conv_op *)base;
    const ls_few_conv *f = &op->few;
    memset(base->b.scratch, 0, copy_floats(op) * sizeof(float));
    for (int i = 0; i < f->runs; i++) {
        const ls_few_run *run = &f->run[i];
        for (int g = 0, count; g < run->groups; g += count) {
            count = smaller(run->groups - g, f->most);
            direct_some(op, run, run->first + g, count, base->b.scratch);
        }
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Allocates the arrays of the plan for at most `groups` groups and `runs` runs. */
static int make_room(ls_conv_op *op, size_t groups, size_t runs, ls_error *err)
{
    ls_few_conv *f = &op->few;
    const ls_host *host = op->base.host;
    f->index = ls_alloc_array(host, groups * LS_LANES, sizeof *f->index);
    f->place = ls_alloc_array(host, groups * LS_LANES, sizeof *f->place);
    f->along = ls_alloc_array(host, groups * 2, sizeof *f->along);
    f->run = ls_alloc_array(host, runs, sizeof *f->run);
    return f->index && f->place && f->along && f->run
               ? LS_OK
               : ls_fail(err, LS_ENOMEM, "lanes: out of memory for few rows");
}

void ls_few_conv_fini(ls_conv_op *op)
{
    const ls_host *host = op->base.host;
    ls_free(host, op->few.index);
    ls_free(host, op->few.place);
    ls_free(host, op->few.along);
    ls_free(host, op->few.run);
}

/* Returns the number of floats from one image to the next in the memory that channel_of returns. */
static int picked_row(const ls_conv_op *op)
{
    const ls_tensor x = x_of(op);
    return op->few.copied ? op->few.h * op->few.w : (int)ls_few_row(&x);
}

/* Returns the offset of pixel (y, x) of the image `row` in channel 0 of y. */
static int place_of(const ls_conv_op *op, int row, int y, int x)
{
    const ls_tensor *t = &op->base.op.y;
    return row * (int)ls_few_row(t) + y * t->w + x;
}

static int plan_winograd(ls_conv_op *op, ls_error *err)
{
    ls_few_conv *f = &op->few;
    const ls_lanes_conv *c = &op->conv;
    const ls_wino *w = &op->forward.wino;
    const int rows = op->base.op.y.rows;
    /* m is 2 in all forms of Winograd's algorithm that compute y */
    const int m = 2, side = c->kh + m - 1;
    f->m = m;
    f->down = w->y.down;
    f->across = w->y.across;
    f->groups = (rows * f->down * f->across + LS_LANES - 1) / LS_LANES;
    f->h = f->down * m + c->kh - 1;
    f->w = f->across * m + c->kw - 1;
    f->copied = c->ph || c->pw || f->h > op->x_h || f->w > op->x_w;
    if (!f->copied)
        f->w = op->x_w;
    ls_wino_init(
        &f->wino, op->base.kernels->wino, w->form,
        &(ls_wino_shape){.in = c->ic, .out = c->oc, .h = side, .w = side, .oh = m, .ow = m});
    if (c->pool_h > 1) {
        f->wino.y.line = f->wino.y.channel = LS_LANES;
        f->wino.y.group = (size_t)c->oc * LS_LANES;
    }
    f->most = smaller(f->wino.block, f->groups);
    ls_wino_set_block(&f->wino, f->most);
    f->wino.team = op->base.team;
    int status = make_room(op, (size_t)f->groups, 1, err);
    if (status)
        return status;
    const int tiles = f->down * f->across, unit = c->pool_h > 1 ? 1 : m;
    for (int i = 0; i < f->groups * LS_LANES; i++) {
        const int t = smaller(i, rows * tiles - 1), row = t / tiles;
        const int ty = t % tiles / f->across, tx = t % f->across;
        f->index[i] = row * picked_row(op) + ty * m * f->w + tx * m;
        f->place[i] = place_of(op, row, ty * unit, tx * unit);
    }
    const size_t out = (size_t)(unit * unit) * (size_t)c->oc,
                 in = (size_t)(side * side) * (size_t)c->ic;
    op->base.few = by_winograd;
    op->base.few_scratch =
        (ls_wino_weight_floats(w) + copy_floats(op) + (size_t)f->most * (in + out) * LS_LANES +
         ls_wino_conv_floats(&f->wino)) *
        sizeof(float);
    return LS_OK;
}

/* Returns a run without groups for image row q of y (after pooling): its fields `up` and `rows`
 * describe the image rows of x on which this image row depends. */
static ls_few_run run_at(const ls_conv_op *op, const ls_lanes_conv *c, int q)
{
    const int tall = op->few.one.ih, top = q * c->pool_h * c->sh - c->ph;
    const int from = top < 0 ? 0 : top, end = smaller(c->ih, top + tall);
    return (ls_few_run){.up = from - top, .rows = end > from ? end - from : 0};
}

/* Sets the number of groups of a run that has the image rows q0 … q1 − 1 of all images, and fills
 * index, place and along for these groups. */
static void fill_run(ls_conv_op *op, const ls_lanes_conv *c, ls_few_run *run, int q0, int q1)
{
    ls_few_conv *f = &op->few;
    const int lines = q1 - q0, of_row = lines * c->y_w, pixels = op->base.op.y.rows * of_row;
    run->groups = (pixels + LS_LANES - 1) / LS_LANES;
    for (int i = 0; i < run->groups * LS_LANES; i++) {
        const int p = smaller(i, pixels - 1), row = p / of_row, at = run->first * LS_LANES + i;
        const int q = q0 + p % of_row / c->y_w, x = p % c->y_w;
        const int top = q * c->pool_h * c->sh - c->ph;
        f->index[at] = row * picked_row(op) + (top < 0 ? 0 : top) * f->w + x * c->pool_w * c->sw;
        f->place[at] = i < pixels ? place_of(op, row, q, x) : -1;
    }
    for (int g = run->first; g < run->first + run->groups; g++) {
        f->along[2 * g] = f->along[2 * g + 1] = 1;
        for (int l = 1; l < LS_LANES; l++) {
            f->along[2 * g] &= f->index[g * LS_LANES + l] == f->index[g * LS_LANES] + l;
            f->along[2 * g + 1] &= f->place[g * LS_LANES + l] == f->place[g * LS_LANES] + l;
        }
    }
}

/* Divides the image rows of y into runs, and fills the arrays of the plan. */
static void fill_runs(ls_conv_op *op, const ls_lanes_conv *c)
{
    ls_few_conv *f = &op->few;
    for (int q = 0, end; q < c->y_h; q = end) {
        ls_few_run run = run_at(op, c, q);
        for (end = q + 1; end < c->y_h; end++) {
            const ls_few_run next = run_at(op, c, end);
            if (next.up != run.up || next.rows != run.rows)
                break;
        }
        run.first = f->groups;
        fill_run(op, c, &run, q, end);
        f->groups += run.groups;
        f->run[f->runs++] = run;
    }
}

/* Derives the geometry of the convolution of one patch from that of the whole convolution `c`. */
static void plan_one(ls_conv_op *op, const ls_lanes_conv *c)
{
    ls_few_conv *f = &op->few;
    const size_t taps = (size_t)(c->kh - 1) * (size_t)c->dh + 1;
    ls_lanes_conv *one = &f->one;
    *one = *c;
    one->ih = (c->pool_h - 1) * c->sh + (int)taps;
    one->iw = (c->pool_w - 1) * c->sw + (c->kw - 1) * c->dw + 1;
    one->oh = c->pool_h;
    one->ow = c->pool_w;
    one->y_h = one->y_w = 1;
    f->copied = c->pw > 0;
    f->h = c->ih;
    f->w = c->iw;
    const bool pooled = c->pool_h * c->pool_w > 1;
    const size_t group =
        (size_t)c->ic * (size_t)one->ih * (size_t)one->iw * LS_LANES * sizeof(float);
    const size_t fit = GROUP_BYTES / group;
    f->most = pooled || fit < 1 ? 1 : fit < GROUPS_MOST ? (int)fit : GROUPS_MOST;
    if (f->most > 3)
        f->most = f->most / 3 * 3; /* kernels keep the sums of up to 3 pixels in registers */
}

static int plan_direct(ls_conv_op *op, const ls_lanes_conv *c, ls_error *err)
{
    ls_few_conv *f = &op->few;
    plan_one(op, c);
    /* The last group of each run can be partly filled. There are at most as many runs as image rows
     * of y. */
    const size_t pixels = (size_t)op->base.op.y.rows * (size_t)c->y_h * (size_t)c->y_w;
    int status = make_room(op, pixels / LS_LANES + (size_t)c->y_h + 1, (size_t)c->y_h, err);
    if (status)
        return status;
    fill_runs(op, c);
    const size_t eights = ((size_t)c->oc + 7) / 8 * 8,
                 window = (size_t)c->pool_h * (size_t)c->pool_w;
    /* The kernel stores the sums of this many pixels, but needs room for at least 6
     * (ls_lanes_tile_floats). */
    const size_t most = window > 1 ? window : (size_t)f->most;
    const size_t in = (size_t)c->ic * (size_t)f->one.ih * (size_t)f->one.iw * LS_LANES;
    op->base.few = direct;
    op->base.few_scratch =
        (copy_floats(op) + to_cache_lines((size_t)f->most * in) +
         (size_t)f->most * (size_t)c->oc * LS_LANES + eights * (most > 6 ? most : 6) * LS_LANES) *
        sizeof(float);
    return LS_OK;
}

int ls_few_conv_plan(ls_conv_op *op, const ls_op_desc *desc, ls_error *err)
{
    /* The geometry as it is described. (In op->conv, ls_conv_plan has turned a convolution with a
     * 1 × 1 filter into a product over one long image row.) */
    ls_lanes_conv c;
    int status = ls_conv_geometry(&c, desc, err);
    if (status)
        return status;
    op->few.one = c;
    return op->forward.by_winograd ? plan_winograd(op, err) : plan_direct(op, &c, err);
}
