/* The ops without sums: gather, relu, export. */
#include "base/error.h"
#include "ref/ref_op.h"

#include <string.h>

int ref_gather(ref_op *op, unsigned flags, ls_error *err)
{
    const ls_gather *g = &op->desc.u.gather;
    const uint32_t *rows = op->b.args->rows;
    const ls_tensor *x = &op->desc.x;
    size_t plane = (size_t)x->h * (size_t)x->w, size = ref_row(x);
    float *y = op->b.y;
    (void)flags;
    if (!rows)
        return ls_fail(err, LS_EINVAL, "gather: no rows are given");
    for (int r = 0; r < x->rows; r++) {
        const uint8_t *image = (const uint8_t *)op->b.x + rows[r] * size;
        for (size_t i = 0; i < size; i++) {
            size_t c = i / plane < 3 ? i / plane : 3;
            y[(size_t)r * size + i] = ((float)image[i] / 255.0f - g->mean[c]) / g->std[c];
        }
        if (op->b.labels)
            op->b.labels_out[r] = op->b.labels[rows[r]];
    }
    return LS_OK;
}

int ref_relu_forward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *x = op->b.x;
    float *y = op->b.y;
    size_t n = (size_t)op->base.y.rows * ref_row(&op->base.y);
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
    return LS_OK;
}

int ref_relu_backward(ref_op *op, unsigned flags, ls_error *err)
{
    const float *y = op->b.y, *dy = op->b.dy;
    float *dx = op->b.dx;
    size_t n = op->desc.needs_dx ? (size_t)op->base.y.rows * ref_row(&op->base.y) : 0;
    (void)flags;
    (void)err;
    for (size_t i = 0; i < n; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
    return LS_OK;
}

int ref_export_forward(ref_op *op, unsigned flags, ls_error *err)
{
    (void)flags;
    (void)err;
    memmove(op->b.y, op->b.x, op->base.y.bytes);
    return LS_OK;
}

int ref_export_backward(ref_op *op, unsigned flags, ls_error *err)
{
    (void)flags;
    (void)err;
    if (op->desc.needs_dx)
        memmove(op->b.dx, op->b.dy, op->base.y.bytes);
    return LS_OK;
}
