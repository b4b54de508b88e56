/* Dataset rows (bytes) to a plain batch of floats. A pixel has 256 values, so every result is
 * looked up in a table of its channel, computed once with correctly rounded divisions. Where the
 * first consumer prefers lanes, the lanes family's gather is used instead, except for training with
 * random crops or flips. */
#include "cpu/cpu_op.h"

#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"

typedef struct gather_op {
    ls_op op; /* first */
    ls_cpu_device *device;
    ls_op_buffers buffers;
    int crop, flip; /* 0 unless training */
    float table[4][256];
} gather_op;

/* Where a row's pixels come from: (i + dy, j + dx) of the image, mirrored first if `mirror`. */
typedef struct shift {
    int dy, dx, mirror;
} shift;

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

static shift draw_shift(const gather_op *g, uint32_t row)
{
    const ls_step_args *args = g->buffers.args;
    uint32_t w[4], span = 2 * (uint32_t)g->crop + 1;
    ls_rng_words(w, args->seed, LS_STREAM_AUGMENT, args->epoch, row);
    return (shift){(int)(w[0] % span) - g->crop, (int)(w[1] % span) - g->crop,
                   g->flip && (w[2] & 1)};
}

static void copy_plane(float *to, const uint8_t *from, size_t pixels, const float *table)
{
    for (size_t i = 0; i < pixels; i++)
        to[i] = table[from[i]];
}

/* Outside the image a pixel is 0. */
static void copy_shifted(float *to, const uint8_t *from, int h, int w, shift s, const float *table)
{
    for (int i = 0; i < h; i++) {
        for (int j = 0; j < w; j++, to++) {
            int y = i + s.dy, x = j + s.dx;
            int inside = y >= 0 && y < h && x >= 0 && x < w;
            if (s.mirror)
                x = w - 1 - x;
            *to = table[inside ? from[(size_t)y * (size_t)w + (size_t)x] : 0];
        }
    }
}

static void gather_rows(const gather_op *g)
{
    const ls_tensor *y = &g->op.y;
    size_t pixels = (size_t)y->h * (size_t)y->w, row_bytes = pixels * (size_t)y->c;
    int plain = !g->crop && !g->flip;
    float *to = g->buffers.y;
    for (int r = 0; r < y->rows; r++) {
        uint32_t row = g->buffers.args->rows[r];
        const uint8_t *from = (const uint8_t *)g->buffers.x + row * row_bytes;
        shift s = plain ? (shift){0, 0, 0} : draw_shift(g, row);
        for (int c = 0; c < y->c; c++, from += pixels, to += pixels) {
            if (plain)
                copy_plane(to, from, pixels, table_of(g, c));
            else
                copy_shifted(to, from, y->h, y->w, s, table_of(g, c));
        }
    }
}

static int gather_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err)
{
    gather_op *g = (gather_op *)op;
    const ls_op_buffers *b = &g->buffers;
    (void)stream;
    (void)flags;
    (void)err;
    gather_rows(g);
    if (b->labels && b->labels_out)
        for (int r = 0; r < op->y.rows; r++)
            b->labels_out[r] = b->labels[b->args->rows[r]];
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
    if (x->dtype != LS_U8)
        return ls_fail(err, LS_EINVAL, "gather: the dataset must be of bytes");
    for (int c = 0; c < 4 && c < x->c; c++)
        if (!(k->std[c] > 0))
            return ls_fail(err, LS_EINVAL, "gather: std[%d] is %g; it must be above 0", c,
                           (double)k->std[c]);
    if (k->crop < 0 || k->crop > x->h + x->w)
        return ls_fail(err, LS_EINVAL, "gather: a crop of %d pixels for images of %d×%d", k->crop,
                       x->h, x->w);
    gather_op *g = ls_alloc(device->host, sizeof *g);
    if (!g)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of gather");
    g->device = device;
    g->crop = desc->training ? k->crop : 0;
    g->flip = desc->training ? k->flip : 0;
    g->op.impl = &gather_impl;
    g->op.kernel = "plain C";
    g->op.y = (ls_tensor){LS_F32, x->rows, x->c, x->h, x->w, NULL, 0};
    g->op.y.bytes = (size_t)x->rows * (size_t)x->c * (size_t)x->h * (size_t)x->w * sizeof(float);
    for (int c = 0; c < 4 && c < x->c; c++)
        for (int v = 0; v < 256; v++)
            g->table[c][v] = ((float)v / 255.0f - k->mean[c]) / k->std[c];
    *out = &g->op;
    return LS_OK;
}
