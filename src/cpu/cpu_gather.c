/* SPDX-License-Identifier: MIT */
/* The gather op: copies rows of the dataset, bytes or floats, into a batch of floats in lanes
 * (lanes_op.h). Batches of one to eight rows for predictions have another layout (few.h).
 *
 * Each channel of bytes has a lookup table of its 256 results, computed with correctly rounded
 * divisions. A vector kernel, which is faster, is used for a channel if it agrees with the table
 * for all 256 values (compare_with_table). */
#include "cpu/cpu_device.h"
#include "cpu/few.h"

#include "base/augment.h"
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"

#include <string.h>

typedef struct gather_op {
    ls_lanes_op base;   /* base; must be first */
    ls_augment augment; /* all zero if the op is not for training */
    ls_gather rule;     /* mean and std of each channel, and the type of a row */
    /* [channel][byte]: results of the bytes; channels after the fourth use that of the fourth */
    float table[4][256];
    bool computes[4]; /* [channel], true: the kernel has the same results as the table */
} gather_op;

/* A row of the dataset, and where the pixels of the result come from. If `mirror` is non-zero, the
 * image is mirrored first. Pixel (i, j) of the result is pixel (i + dy, j + dx) of the possibly
 * mirrored image. */
typedef struct source {
    const uint8_t *image; /* bytes, or floats */
    int dy, dx, mirror;
} source;

/* Returns the index of a channel's entry in `mean`, `std` and `table`, which have four entries. */
static int rule_of(int channel)
{
    return channel < 4 ? channel : 3;
}

static const float *table_of(const gather_op *g, int channel)
{
    return g->table[rule_of(channel)];
}

/* Returns row `row` of the dataset. */
static const uint8_t *image_of(const gather_op *g, uint32_t row)
{
    const ls_tensor *y = &g->base.op.y;
    const size_t values = (size_t)y->c * (size_t)y->h * (size_t)y->w;
    return (const uint8_t *)g->base.b.x + row * values * (g->rule.floats ? sizeof(float) : 1);
}

static bool is_random(const gather_op *g)
{
    return g->augment.crop || g->augment.flip;
}

/* Returns the source of row `r` of the batch, with random shift and mirroring. */
static source draw_source(const gather_op *g, int r)
{
    const ls_step_args *args = g->base.b.args;
    const int crop = g->augment.crop;
    const uint32_t row = args->rows[r], span = 2 * (uint32_t)crop + 1;
    source s = {.image = image_of(g, row)};
    if (is_random(g)) {
        uint32_t w[4];
        ls_rng_words(w, args->seed, LS_STREAM_AUGMENT, args->epoch, row);
        s.dy = (int)(w[0] % span) - crop;
        s.dx = (int)(w[1] % span) - crop;
        s.mirror = g->augment.flip && (w[2] & 1);
    }
    return s;
}

/* Copies image row i of one shifted channel (`plane`) of one image. Pixels outside the image get
 * the result for byte 0. */
static void copy_line(float *to, const uint8_t *plane, const ls_tensor *y, source s, int i,
                      const float *table)
{
    const int from = i + s.dy;
    const uint8_t *line = from >= 0 && from < y->h ? plane + (size_t)from * (size_t)y->w : NULL;
    for (int j = 0; j < y->w; j++, to += LS_LANES) {
        int x = j + s.dx;
        const int inside = line && x >= 0 && x < y->w;
        if (s.mirror)
            x = y->w - 1 - x;
        *to = table[inside ? line[x] : 0];
    }
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/* Fills one channel of a packet of `rows` ≤ 16 images from the images' bytes `first` … first +
 * pixels − 1. Lanes that have no image become zero. */
static void lanes_plane(float *to, const source *s, int rows, size_t first, size_t pixels,
                        const float *table)
{
    for (size_t i = first; i < first + pixels; i++, to += LS_LANES) {
        for (int l = 0; l < rows; l++)
            to[l] = table[s[l].image[i]];
        for (int l = rows; l < LS_LANES; l++)
            to[l] = 0;
    }
}

/* Does the same as lanes_plane for one channel, with the vector kernel. */
static void lanes_computed(float *to, const gather_op *g, const source *s, int rows, int channel)
{
    const ls_tensor *y = &g->base.op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w;
    ls_lanes_images b = {.rows = rows,
                         .first = (size_t)channel * pixels,
                         .pixels = pixels,
                         .mean = g->rule.mean[rule_of(channel)],
                         .std = g->rule.std[rule_of(channel)]};
    for (int l = 0; l < LS_LANES; l++)
        b.image[l] = s[l < rows ? l : 0].image;
    g->base.kernels->gather(&b, to);
}

/* Does the same as lanes_plane for one channel, with the shift and mirroring of each source. */
static void lanes_shifted(float *to, const source *s, int rows, size_t first, const ls_tensor *y,
                          const float *table)
{
    for (int i = 0; i < y->h; i++, to += (size_t)y->w * LS_LANES) {
        for (int l = 0; l < rows; l++)
            copy_line(to + l, s[l].image + first, y, s[l], i, table);
        for (int j = 0; j < y->w; j++)
            for (int l = rows; l < LS_LANES; l++)
                to[j * LS_LANES + l] = 0;
    }
}

static void gather_lanes(const gather_op *g)
{
    const ls_tensor *y = &g->base.op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w;
    float *to = g->base.b.y;
    for (int begin = 0; begin < y->rows; begin += LS_LANES) {
        const int rows = ls_lanes_rows_of(y->rows, begin / LS_LANES);
        source s[LS_LANES];
        for (int l = 0; l < rows; l++)
            s[l] = draw_source(g, begin + l);
        for (int c = 0; c < y->c; c++, to += pixels * LS_LANES) {
            if (is_random(g))
                lanes_shifted(to, s, rows, (size_t)c * pixels, y, table_of(g, c));
            else if (g->computes[rule_of(c)])
                lanes_computed(to, g, s, rows, c);
            else
                lanes_plane(to, s, rows, (size_t)c * pixels, pixels, table_of(g, c));
        }
    }
}

/* ---- rows of floats -------------------------------------------------------------------------- */

/* Returns the number of channels from `channel` on that have the same mean and std. Usually these
 * are all channels: a column of a table is a channel, and reading a CSV file standardises its
 * columns already. */
static int same_rule(const gather_op *g, int channel)
{
    const ls_gather *rule = &g->rule;
    const int channels = g->base.op.y.c, first = rule_of(channel);
    int end = channel + 1;
    while (end < 4 && end < channels && rule->mean[end] == rule->mean[first] &&
           rule->std[end] == rule->std[first])
        end++;
    return (end < 4 ? end : channels) - channel;
}

static void gather_floats(const gather_op *g)
{
    const ls_tensor *y = &g->base.op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w;
    float *to = g->base.b.y;
    for (int begin = 0; begin < y->rows; begin += LS_LANES) {
        ls_lanes_rows rows = {.rows = ls_lanes_rows_of(y->rows, begin / LS_LANES)};
        for (int l = 0; l < rows.rows; l++)
            rows.row[l] = (const float *)(const void *)image_of(g, g->base.b.args->rows[begin + l]);
        for (int c = 0, n; c < y->c; c += n) {
            n = same_rule(g, c);
            rows.values = (size_t)n * pixels;
            rows.mean = g->rule.mean[rule_of(c)];
            rows.std = g->rule.std[rule_of(c)];
            g->base.kernels->gather_floats(&rows, to);
            to += rows.values * LS_LANES;
            for (int l = 0; l < rows.rows; l++)
                rows.row[l] += rows.values;
        }
    }
}

/* Copies row r of the batch, with the shift and mirroring of its source. Pixels outside the image
 * are zero before the mean is subtracted. */
static void shifted_row(const gather_op *g, int r, float *to)
{
    const ls_tensor *y = &g->base.op.y;
    const source s = draw_source(g, r);
    const float *plane = (const float *)(const void *)s.image;
    for (int c = 0; c < y->c; c++, plane += (size_t)y->h * (size_t)y->w) {
        const float mean = g->rule.mean[rule_of(c)], std = g->rule.std[rule_of(c)];
        for (int i = s.dy; i < s.dy + y->h; i++)
            for (int j = s.dx; j < s.dx + y->w; j++, to += LS_LANES) {
                const int inside = i >= 0 && i < y->h && j >= 0 && j < y->w;
                const int x = s.mirror ? y->w - 1 - j : j;
                *to = ((inside ? plane[(size_t)i * (size_t)y->w + (size_t)x] : 0) - mean) / std;
            }
    }
}

/* ---- rows that are augmented in more ways than by a shift and mirroring ---------------------- */

/* Returns the dataset row with which mixup mixes row r of the batch. */
static uint32_t other_row(const gather_op *g, int r)
{
    const ls_step_args *args = g->base.b.args;
    return ls_mixed_row(args->rows, g->base.op.y.rows, r, args->rows_before, args->rows_after);
}

static ls_change draw_change(const gather_op *g, uint32_t row)
{
    const ls_step_args *args = g->base.b.args;
    const ls_tensor *y = &g->base.op.y;
    uint32_t v[4], more[4], place[4];
    ls_change c;
    ls_rng_words(v, args->seed, LS_STREAM_AUGMENT, args->epoch, row);
    ls_rng_words(more, args->seed, LS_STREAM_AUGMENT_MORE, args->epoch, row);
    ls_rng_words(place, args->seed, LS_STREAM_AUGMENT_PART, args->epoch, row);
    ls_change_draw(&c, &g->augment, y->h, y->w, v, more, place);
    return c;
}

/* Computes one channel of an augmented row. c[0] and image[0] belong to the row itself, c[1] and
 * image[1] to the other row. The rows are mixed if c[0].other, the share of the other row, is above
 * 0. */
static void changed_plane(float *to, const gather_op *g, const ls_change c[2],
                          const void *const image[2], int channel)
{
    const ls_tensor *y = &g->base.op.y;
    const int k = rule_of(channel), mixed = c[0].other > 0;
    const size_t plane = (size_t)channel * (size_t)y->h * (size_t)y->w;
    for (int i = 0; i < y->h; i++)
        for (int j = 0; j < y->w; j++, to += LS_LANES) {
            if (g->rule.floats) {
                const float a = ls_changed_float((const float *)image[0] + plane, &c[0], i, j);
                const float b =
                    mixed ? ls_changed_float((const float *)image[1] + plane, &c[1], i, j) : 0;
                *to = (ls_mixed_float(a, b, &c[0]) - g->rule.mean[k]) / g->rule.std[k];
            } else {
                const int a = ls_changed_byte((const uint8_t *)image[0] + plane, &c[0], i, j);
                const int b =
                    mixed ? ls_changed_byte((const uint8_t *)image[1] + plane, &c[1], i, j) : 0;
                *to = table_of(g, channel)[ls_mixed_byte(a, b, &c[0])];
            }
        }
}

static void changed_row(const gather_op *g, int r, float *to)
{
    const ls_tensor *y = &g->base.op.y;
    const uint32_t row = g->base.b.args->rows[r], other = other_row(g, r);
    const ls_change c[2] = {draw_change(g, row), draw_change(g, other)};
    const void *const image[2] = {image_of(g, row), image_of(g, other)};
    for (int k = 0; k < y->c; k++, to += (size_t)y->h * (size_t)y->w * LS_LANES)
        changed_plane(to, g, c, image, k);
}

/* Calls `make` for each row of the batch. `make` writes the values of row r to `to`, LS_LANES
 * floats apart. */
static void gather_rows(const gather_op *g, void (*make)(const gather_op *g, int r, float *to))
{
    const ls_tensor *y = &g->base.op.y;
    const size_t row = (size_t)y->c * (size_t)y->h * (size_t)y->w;
    if (y->rows % LS_LANES)
        memset(g->base.b.y, 0, y->bytes); /* clears the lanes that have no row */
    for (int r = 0; r < y->rows; r++)
        make(g, r,
             (float *)g->base.b.y + (size_t)(r / LS_LANES) * row * LS_LANES +
                 (size_t)(r % LS_LANES));
}

/* Writes the label of row r of the batch, which mixup mixes with another row. A target vector is
 * mixed like the images. A class is taken from one of the two rows. `words`: number of 32-bit words
 * of a label. */
static void mix_target(const gather_op *g, int r, size_t words)
{
    const ls_op_buffers *b = &g->base.b;
    const ls_change c = draw_change(g, b->args->rows[r]);
    const int32_t *mine = b->labels + b->args->rows[r] * words;
    const int32_t *other = b->labels + other_row(g, r) * words;
    float *to = (float *)(void *)b->labels_out + (size_t)r * words;
    if (!g->rule.targets)
        b->labels_out[r] = c.other_label ? *other : *mine;
    for (size_t i = 0; g->rule.targets && i < words; i++)
        to[i] = ls_mixed_float(((const float *)(const void *)mine)[i],
                               ((const float *)(const void *)other)[i], &c);
}

/* ---- few rows (few.h): for predictions, therefore never augmented ---------------------------- */

/* Copies a row to `to`. Channels are `step` floats apart within a sixteen, and sixteens `sixteen`
 * floats; pixels are `pixel` floats apart. */
static void few_row(const gather_op *g, const uint8_t *image, float *to, size_t pixel, size_t step,
                    size_t sixteen)
{
    const ls_tensor *y = &g->base.op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w;
    for (int c = 0; c < y->c; c++) {
        const float mean = g->rule.mean[rule_of(c)], std = g->rule.std[rule_of(c)];
        const float *table = table_of(g, c), *floats = (const float *)(const void *)image;
        const size_t first = (size_t)c * pixels;
        float *plane = to + (size_t)(c / LS_LANES) * sixteen + (size_t)(c % LS_LANES) * step;
        if (g->rule.floats)
            for (size_t i = 0; i < pixels; i++)
                plane[i * pixel] = (floats[first + i] - mean) / std;
        else
            for (size_t i = 0; i < pixels; i++)
                plane[i * pixel] = table[image[first + i]];
    }
}

static void gather_few(const gather_op *g)
{
    const ls_tensor *y = &g->base.op.y;
    const size_t plane = ls_few_plane(y);
    const bool flat = y->layout == &ls_layout_flat;
    float *to = g->base.b.y;
    memset(to, 0, y->bytes); /* clears channels that do not exist */
    for (int r = 0; r < y->rows; r++, to += y->bytes / sizeof *to / (size_t)y->rows) {
        const uint8_t *image = image_of(g, g->base.b.args->rows[r]);
        if (flat)
            few_row(g, image, to, 1, plane / LS_LANES, plane);
        else
            few_row(g, image, to, LS_LANES, 1, plane);
    }
}

/* ---- the op ---------------------------------------------------------------------------------- */

static int gather_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const gather_op *g = (const gather_op *)op;
    const ls_op_buffers *b = &g->base.b;
    (void)stream;
    (void)flags;
    (void)err;
    if (ls_is_few(op->y.layout))
        gather_few(g);
    else if (ls_augment_more(&g->augment))
        gather_rows(g, changed_row);
    else if (!g->rule.floats)
        gather_lanes(g);
    else if (is_random(g))
        gather_rows(g, shifted_row);
    else
        gather_floats(g);
    const size_t words = g->rule.targets ? (size_t)g->rule.targets : 1;
    for (int r = 0; b->labels && b->labels_out && r < op->y.rows; r++) {
        if (g->augment.mixup)
            mix_target(g, r, words);
        else
            memcpy(b->labels_out + (size_t)r * words, b->labels + b->args->rows[r] * words,
                   words * sizeof *b->labels);
    }
    for (int r = 0; b->weights && b->weights_out && r < op->y.rows; r++)
        b->weights_out[r] = b->weights[b->args->rows[r]];
    return LS_OK;
}

/* Returns true if the kernel and the table agree for all 256 values of a byte. */
static bool compare_with_table(const gather_op *g, int channel)
{
    uint8_t image[256];
    _Alignas(64) float found[256 * LS_LANES];
    ls_lanes_images b = {.rows = LS_LANES,
                         .pixels = 256,
                         .mean = g->rule.mean[channel],
                         .std = g->rule.std[channel]};
    bool same = g->base.kernels->gather != NULL;
    for (int v = 0; v < 256; v++)
        image[v] = (uint8_t)v;
    for (int l = 0; l < LS_LANES; l++)
        b.image[l] = image;
    if (same)
        g->base.kernels->gather(&b, found);
    for (int i = 0; same && i < 256 * LS_LANES; i++)
        same = memcmp(&found[i], &g->table[channel][i / LS_LANES], sizeof *found) == 0;
    return same;
}

static const ls_op_impl gather_impl = LS_LANES_IMPL(gather_forward, NULL);

int ls_cpu_gather_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_gather *k = &desc->u.gather;
    *out = NULL;
    if (x->dtype != (k->floats ? LS_F32 : LS_U8) || k->targets < 0)
        return ls_fail(err, LS_EINVAL, "gather: the dataset must be of %s",
                       k->floats ? "floats" : "bytes");
    for (int c = 0; c < 4 && c < x->c; c++)
        if (!(k->std[c] > 0))
            return ls_fail(err, LS_EINVAL, "gather: std[%d] is %g; it must be above 0", c,
                           (double)k->std[c]);
    if (k->crop < 0 || k->crop > x->h + x->w)
        return ls_fail(err, LS_EINVAL, "gather: a crop of %d pixels for images of %d×%d", k->crop,
                       x->h, x->w);
    if (!ls_augment_fits(k->rotate, k->erase, k->brightness, k->mixup, k->part))
        return ls_fail(err, LS_EINVAL,
                       "gather: at most 45 degrees, 256 256ths of brightness, 128 of mixup, and "
                       "65536 65536ths of the area");
    gather_op *g = (gather_op *)ls_lanes_op_alloc(sizeof *g, &gather_impl, device, desc);
    if (!g)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of gather");
    if (desc->training)
        g->augment =
            (ls_augment){k->crop, k->flip, k->rotate, k->erase, k->brightness, k->mixup, k->part};
    g->rule = *k;
    ls_lanes_op_set_y(&g->base, x->c, x->h, x->w);
    if (ls_few_wanted(desc))
        g->base.op.y = ls_few_tensor(&g->base.op.y, desc->y_hint);
    for (int c = 0; c < 4 && c < x->c; c++)
        for (int v = 0; v < 256; v++)
            g->table[c][v] = ((float)v / 255.0f - k->mean[c]) / k->std[c];
    for (int c = 0; c < 4 && c < x->c && !k->floats; c++)
        g->computes[c] = compare_with_table(g, c);
    *out = &g->base.op;
    return LS_OK;
}
