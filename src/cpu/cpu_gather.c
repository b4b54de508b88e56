/* Dataset rows (bytes, or floats) to a batch of floats in lanes. A pixel has 256 values, so every result is looked up in a
 * table of its channel, computed once with correctly rounded divisions. */
#include "cpu/cpu_device.h"
#include "cpu/lanes_op.h"

#include "base/augment.h"
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"

#include <string.h>

#define PIXELS 16 /* of lanes, worked through at a time: a line of cache from each row */

typedef struct gather_op {
    ls_op op; /* first */
    ls_cpu_device *device;
    ls_op_buffers buffers;
    int crop, flip; /* 0 unless training */
    ls_augment augment;
    ls_gather rule; /* mean and std, and what a row is */
    float table[4][256];
} gather_op;

/* A row of the dataset, and where its pixels come from: (i + dy, j + dx) of the image, mirrored first
 * if `mirror`. */
typedef struct source {
    const uint8_t *image; /* of bytes, or of floats */
    int dy, dx, mirror;
} source;

static const float *table_of(const gather_op *g, int channel)
{
    return g->table[channel < 4 ? channel : 3];
}

static int gather_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    (void)err;
    ((gather_op *)op)->buffers = *buffers;
    return LS_OK;
}

static bool is_random(const gather_op *g)
{
    return g->crop || g->flip;
}

/* Where row `r` of the batch comes from. */
static source draw_source(const gather_op *g, int r)
{
    const ls_step_args *args = g->buffers.args;
    const ls_tensor *y = &g->op.y;
    const uint32_t row = args->rows[r], span = 2 * (uint32_t)g->crop + 1;
    const size_t bytes = (size_t)y->c * (size_t)y->h * (size_t)y->w *
                         (g->rule.floats ? sizeof(float) : sizeof(uint8_t));
    source s = {.image = (const uint8_t *)g->buffers.x + row * bytes};
    if (is_random(g)) {
        uint32_t w[4];
        ls_rng_words(w, args->seed, LS_STREAM_AUGMENT, args->epoch, row);
        s.dy = (int)(w[0] % span) - g->crop;
        s.dx = (int)(w[1] % span) - g->crop;
        s.mirror = g->flip && (w[2] & 1);
    }
    return s;
}

/* Line i of a plane, its pixels `step` floats apart. Outside the image a pixel is 0. */
static void copy_line(float *to, size_t step, const uint8_t *plane, const ls_tensor *y, source s,
                      int i, const float *table)
{
    const int from = i + s.dy;
    const uint8_t *line = from >= 0 && from < y->h ? plane + (size_t)from * (size_t)y->w : NULL;
    for (int j = 0; j < y->w; j++, to += step) {
        int x = j + s.dx;
        const int inside = line && x >= 0 && x < y->w;
        if (s.mirror)
            x = y->w - 1 - x;
        *to = table[inside ? line[x] : 0];
    }
}

/* ---- lanes ----------------------------------------------------------------------------------- */

/* `count` pixels of sixteen rows from pixel `first` of the images on; rows from `rows` on are zero. */
static void lanes_pixels(float *to, const source *s, int rows, size_t first, size_t count,
                         const float *table)
{
    for (size_t i = first; i < first + count; i++, to += LS_LANES) {
        for (int l = 0; l < rows; l++)
            to[l] = table[s[l].image[i]];
        for (int l = rows; l < LS_LANES; l++)
            to[l] = 0;
    }
}

static void lanes_plane(float *to, const source *s, int rows, size_t first, size_t pixels,
                        const float *table)
{
    for (size_t i = 0; i < pixels; i += PIXELS)
        lanes_pixels(to + i * LS_LANES, s, rows, first + i,
                     pixels - i < PIXELS ? pixels - i : PIXELS, table);
}

static void lanes_shifted(float *to, const source *s, int rows, size_t first, const ls_tensor *y,
                          const float *table)
{
    for (int i = 0; i < y->h; i++, to += (size_t)y->w * LS_LANES) {
        for (int l = 0; l < rows; l++)
            copy_line(to + l, LS_LANES, s[l].image + first, y, s[l], i, table);
        for (int j = 0; j < y->w; j++)
            for (int l = rows; l < LS_LANES; l++)
                to[j * LS_LANES + l] = 0;
    }
}

static void gather_lanes(const gather_op *g)
{
    const ls_tensor *y = &g->op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w;
    float *to = g->buffers.y;
    for (int begin = 0; begin < y->rows; begin += LS_LANES) {
        const int rows = y->rows - begin < LS_LANES ? y->rows - begin : LS_LANES;
        source s[LS_LANES];
        for (int l = 0; l < rows; l++)
            s[l] = draw_source(g, begin + l);
        for (int c = 0; c < y->c; c++, to += pixels * LS_LANES) {
            if (is_random(g))
                lanes_shifted(to, s, rows, (size_t)c * pixels, y, table_of(g, c));
            else
                lanes_plane(to, s, rows, (size_t)c * pixels, pixels, table_of(g, c));
        }
    }
}

/* ---- rows of floats -------------------------------------------------------------------------- */

/* A channel of one row, its values `step` floats apart. */
static void float_plane(float *to, size_t step, const gather_op *g, const source *s, int channel)
{
    const ls_tensor *y = &g->op.y;
    const int k = channel < 4 ? channel : 3;
    const float mean = g->rule.mean[k], std = g->rule.std[k];
    const float *plane =
        (const float *)(const void *)s->image + (size_t)channel * (size_t)y->h * (size_t)y->w;
    for (int i = s->dy; i < s->dy + y->h; i++)
        for (int j = s->dx; j < s->dx + y->w; j++, to += step) {
            const int inside = i >= 0 && i < y->h && j >= 0 && j < y->w;
            const int x = s->mirror ? y->w - 1 - j : j;
            *to = ((inside ? plane[(size_t)i * (size_t)y->w + (size_t)x] : 0) - mean) / std;
        }
}

static void gather_floats(const gather_op *g)
{
    const ls_tensor *y = &g->op.y;
    const size_t plane = (size_t)y->h * (size_t)y->w * LS_LANES;
    if (y->rows % LS_LANES)
        memset(g->buffers.y, 0, y->bytes); /* the lanes of no row */
    for (int r = 0; r < y->rows; r++) {
        const source s = draw_source(g, r);
        float *to = (float *)g->buffers.y + (size_t)(r / LS_LANES) * (size_t)y->c * plane +
                    (size_t)(r % LS_LANES);
        for (int c = 0; c < y->c; c++)
            float_plane(to + (size_t)c * plane, LS_LANES, g, &s, c);
    }
}

/* ---- rows that are changed in more ways --------------------------------------------------------- */

static uint32_t other_row(const gather_op *g, int r)
{
    const ls_step_args *args = g->buffers.args;
    return ls_mixed_row(args->rows, g->op.y.rows, r, args->before, args->behind);
}

static ls_change draw_change(const gather_op *g, uint32_t row)
{
    const ls_step_args *args = g->buffers.args;
    const ls_tensor *y = &g->op.y;
    uint32_t v[4], more[4];
    ls_change c;
    ls_rng_words(v, args->seed, LS_STREAM_AUGMENT, args->epoch, row);
    ls_rng_words(more, args->seed, LS_STREAM_AUGMENT_MORE, args->epoch, row);
    ls_change_draw(&c, &g->augment, y->h, y->w, v, more);
    return c;
}

/* A channel of one row, and of the one that it is mixed with. */
static void changed_plane(float *to, const gather_op *g, const ls_change c[2],
                          const void *const image[2], int channel)
{
    const ls_tensor *y = &g->op.y;
    const int k = channel < 4 ? channel : 3, mixed = c[0].other > 0;
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

static void gather_changed(const gather_op *g)
{
    const ls_tensor *y = &g->op.y;
    const size_t pixels = (size_t)y->h * (size_t)y->w, lanes = pixels * LS_LANES;
    const size_t bytes = (size_t)y->c * pixels * (g->rule.floats ? sizeof(float) : sizeof(uint8_t));
    if (y->rows % LS_LANES)
        memset(g->buffers.y, 0, y->bytes); /* the lanes of no row */
    for (int r = 0; r < y->rows; r++) {
        const uint32_t row = g->buffers.args->rows[r], other = other_row(g, r);
        const ls_change c[2] = {draw_change(g, row), draw_change(g, other)};
        const char *all = g->buffers.x;
        const void *const image[2] = {all + row * bytes, all + other * bytes};
        float *to = (float *)g->buffers.y + (size_t)(r / LS_LANES) * (size_t)y->c * lanes +
                    (size_t)(r % LS_LANES);
        for (int k = 0; k < y->c; k++)
            changed_plane(to + (size_t)k * lanes, g, c, image, k);
    }
}

/* The class, or the vector, of row r and the one that it is mixed with. */
static void mix_target(const gather_op *g, int r, size_t words)
{
    const ls_op_buffers *b = &g->buffers;
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

/* ---- the op ---------------------------------------------------------------------------------- */

static int gather_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    const gather_op *g = (const gather_op *)op;
    const ls_op_buffers *b = &g->buffers;
    (void)stream;
    (void)flags;
    (void)err;
    if (ls_augment_more(&g->augment))
        gather_changed(g);
    else if (g->rule.floats)
        gather_floats(g);
    else
        gather_lanes(g);
    const size_t words = g->rule.targets ? (size_t)g->rule.targets : 1;
    for (int r = 0; b->labels && b->labels_out && r < op->y.rows; r++) {
        if (g->augment.mixup)
            mix_target(g, r, words);
        else
            memcpy(b->labels_out + (size_t)r * words, b->labels + b->args->rows[r] * words,
                   words * sizeof *b->labels);
    }
    return LS_OK;
}

static void gather_destroy(ls_op *op)
{
    if (op)
        ls_free(((gather_op *)op)->device->host, op);
}

static const ls_op_impl gather_impl = {
    .size = sizeof(ls_op_impl),
    .bind = gather_bind,
    .forward = gather_forward,
    .destroy = gather_destroy,
};

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
    if (!ls_augment_fits(k->rotate, k->erase, k->brightness, k->mixup))
        return ls_fail(err, LS_EINVAL,
                       "gather: at most 45 degrees, 256 256ths of brightness and 128 of mixup");
    gather_op *g = ls_alloc(device->host, sizeof *g);
    if (!g)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of gather");
    g->device = device;
    g->crop = desc->training ? k->crop : 0;
    g->flip = desc->training ? k->flip : 0;
    if (desc->training)
        g->augment = (ls_augment){k->crop, k->flip, k->rotate, k->erase, k->brightness, k->mixup};
    g->rule = *k;
    g->op.impl = &gather_impl;
    g->op.kernel = "plain C";
    g->op.y = (ls_tensor){LS_F32, x->rows, x->c, x->h, x->w, NULL, 0};
    g->op.y.bytes = (size_t)x->rows * (size_t)x->c * (size_t)x->h * (size_t)x->w * sizeof(float);
    g->op.y = ls_lanes_tensor(&g->op.y);
    for (int c = 0; c < 4 && c < x->c; c++)
        for (int v = 0; v < 256; v++)
            g->table[c][v] = ((float)v / 255.0f - k->mean[c]) / k->std[c];
    *out = &g->op;
    return LS_OK;
}
