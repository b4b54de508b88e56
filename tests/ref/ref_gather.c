/* Dataset rows to a batch, cropped and flipped at random where that is asked for. */
#include "base/error.h"
#include "base/rng.h"
#include "ref/ref_op.h"

/* Where pixel (i, j) comes from: (i + down, j + right) of the image, mirrored if `mirror`. */
typedef struct shift {
    int down, right, mirror;
} shift;

static shift draw_shift(const ref_op *op, uint32_t row)
{
    const ls_gather *g = &op->desc.u.gather;
    const ls_step_args *a = op->b.args;
    uint32_t w[4], places = 2 * (uint32_t)g->crop + 1;
    if (!op->desc.training)
        return (shift){0, 0, 0};
    ls_rng_words(w, a->seed, LS_STREAM_AUGMENT, a->epoch, row);
    return (shift){(int)(w[0] % places) - g->crop, (int)(w[1] % places) - g->crop,
                   g->flip && w[2] % 2};
}

static uint8_t pixel_at(const uint8_t *plane, int h, int w, int i, int j, shift s)
{
    i += s.down;
    j += s.right;
    if (i < 0 || i >= h || j < 0 || j >= w)
        return 0;
    return plane[i * w + (s.mirror ? w - 1 - j : j)];
}

static void gather_row(const ref_op *op, float *y, uint32_t row)
{
    const ls_gather *g = &op->desc.u.gather;
    const ls_tensor *x = &op->desc.x;
    const uint8_t *plane = (const uint8_t *)op->b.x + row * ref_row(x);
    shift s = draw_shift(op, row);
    for (int c = 0; c < x->c; c++, plane += x->h * x->w) {
        float mean = g->mean[c < 3 ? c : 3], std = g->std[c < 3 ? c : 3];
        for (int i = 0; i < x->h; i++)
            for (int j = 0; j < x->w; j++) {
                float pixel = pixel_at(plane, x->h, x->w, i, j, s);
                *y++ = (pixel / 255.0f - mean) / std;
            }
    }
}

int ref_gather(ref_op *op, unsigned flags, ls_error *err)
{
    const uint32_t *rows = op->b.args->rows;
    (void)flags;
    if (!rows)
        return ls_fail(err, LS_EINVAL, "gather: no rows are given");
    for (int r = 0; r < op->desc.x.rows; r++) {
        gather_row(op, (float *)op->b.y + (size_t)r * ref_row(&op->desc.x), rows[r]);
        if (op->b.labels)
            op->b.labels_out[r] = op->b.labels[rows[r]];
    }
    return LS_OK;
}
