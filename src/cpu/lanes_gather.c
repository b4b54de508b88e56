/* The gather op: dataset rows (bytes) to lanes. A pixel has 256 values, so every result is looked
 * up in its channel's table, computed once with correctly rounded divisions. */
#include "base/error.h"
#include "cpu/lanes_op.h"

#include <string.h>

#define PIXELS 16 /* worked through at a time: a line of cache from each row, 16 lines of y */

typedef struct gather_op {
    ls_lanes_op base; /* first */
    float table[4][256];
} gather_op;

/* Pixels first … first + n − 1 of sixteen rows; rows from `rows` on are zero. */
static void gather_pixels(const float *table, const uint8_t *const *row, int rows, size_t first,
                          size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        float *to = y + (first + i) * LS_LANES;
        for (int l = 0; l < rows; l++)
            to[l] = table[row[l][first + i]];
        for (int l = rows; l < LS_LANES; l++)
            to[l] = 0;
    }
}

static void gather_group(const gather_op *op, const uint8_t *const *row, int rows, float *y)
{
    const ls_tensor *t = &op->base.op.y;
    const size_t plane = (size_t)t->h * (size_t)t->w;
    for (int c = 0; c < t->c; c++) {
        const float *table = op->table[c < 4 ? c : 3];
        size_t end = ((size_t)c + 1) * plane;
        for (size_t i = (size_t)c * plane; i < end; i += PIXELS)
            gather_pixels(table, row, rows, i, end - i < PIXELS ? end - i : PIXELS, y);
    }
}

static int gather_forward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err)
{
    const gather_op *op = (const gather_op *)base;
    const ls_op_buffers *b = &op->base.b;
    const ls_tensor *y = &base->y;
    const size_t floats = (size_t)y->c * (size_t)y->h * (size_t)y->w;
    (void)stream;
    (void)flags;
    (void)err;
    for (int g = 0; g < op->base.groups; g++) {
        const uint8_t *row[LS_LANES] = {0};
        int rows = 0;
        for (; rows < LS_LANES && g * LS_LANES + rows < y->rows; rows++)
            row[rows] = (const uint8_t *)b->x + b->args->rows[g * LS_LANES + rows] * floats;
        gather_group(op, row, rows, (float *)b->y + (size_t)g * floats * LS_LANES);
    }
    if (b->labels && b->labels_out)
        for (int r = 0; r < y->rows; r++)
            b->labels_out[r] = b->labels[b->args->rows[r]];
    return LS_OK;
}

static const ls_op_impl gather_impl = {
    .size = sizeof(ls_op_impl),
    .bind = ls_lanes_op_bind,
    .forward = gather_forward,
    .destroy = ls_lanes_op_destroy,
};

int ls_lanes_gather_create(ls_op **out, const ls_host *host, const ls_lanes_kernels *kernels,
                           const ls_op_desc *desc, ls_error *err)
{
    const ls_gather *k = &desc->u.gather;
    ls_lanes_op *base;
    if (desc->x.dtype != LS_U8)
        return ls_fail(err, LS_EINVAL, "gather: the dataset must be of bytes");
    for (int c = 0; c < 4 && c < desc->x.c; c++)
        if (!(k->std[c] > 0))
            return ls_fail(err, LS_EINVAL, "gather: std[%d] is %g; it must be above 0", c,
                           (double)k->std[c]);
    if (desc->training && (k->crop || k->flip))
        return ls_fail(err, LS_EUNSUPPORTED, "lanes: gather does not crop or flip");
    int status = ls_lanes_op_new(&base, sizeof(gather_op), &gather_impl, host, kernels, desc, err);
    if (status)
        return status;
    gather_op *op = (gather_op *)base;
    for (int c = 0; c < 4 && c < desc->x.c; c++)
        for (int v = 0; v < 256; v++)
            op->table[c][v] = ((float)v / 255.0f - k->mean[c]) / k->std[c];
    ls_lanes_op_set_y(base, desc->x.c, desc->x.h, desc->x.w);
    return ls_lanes_op_finish(out, base, desc, err);
}
