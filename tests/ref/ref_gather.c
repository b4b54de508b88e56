/* SPDX-License-Identifier: MIT */
/* Gathers dataset rows into a batch, cropped and flipped at random if requested. */
#include "base/augment.h"
#include "base/error.h"
#include "base/rng.h"
#include "ref/ref_op.h"

#include <string.h>

/* Source of pixel (i, j): (i + down, j + right) of the image, mirrored if `mirror`. */
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

/* Returns its index in a plane, or −1 if it is outside. */
static int place_of(int h, int w, int i, int j, shift s)
{
    i += s.down;
    j += s.right;
    if (i < 0 || i >= h || j < 0 || j >= w)
        return -1;
    return i * w + (s.mirror ? w - 1 - j : j);
}

static float value_at(const ls_gather *g, const void *row, size_t plane, int place)
{
    if (place < 0)
        return 0;
    return g->floats ? ((const float *)row)[plane + (size_t)place]
                     : (float)((const uint8_t *)row)[plane + (size_t)place] / 255.0f;
}

static void gather_row(const ref_op *op, float *y, uint32_t row)
{
    const ls_gather *g = &op->desc.u.gather;
    const ls_tensor *x = &op->desc.x;
    const size_t bytes = ref_row(x) * (g->floats ? sizeof(float) : 1);
    const void *values = (const char *)op->b.x + row * bytes;
    shift s = draw_shift(op, row);
    for (int c = 0; c < x->c; c++) {
        const size_t plane = (size_t)c * (size_t)x->h * (size_t)x->w;
        float mean = g->mean[c < 3 ? c : 3], std = g->std[c < 3 ? c : 3];
        for (int i = 0; i < x->h; i++)
            for (int j = 0; j < x->w; j++) {
                const float value = value_at(g, values, plane, place_of(x->h, x->w, i, j, s));
                *y++ = (value - mean) / std;
            }
    }
}

static ls_change draw_change(const ref_op *op, const ls_augment *a, uint32_t row)
{
    uint32_t v[4], more[4], place[4];
    ls_change c;
    ls_rng_words(v, op->b.args->seed, LS_STREAM_AUGMENT, op->b.args->epoch, row);
    ls_rng_words(more, op->b.args->seed, LS_STREAM_AUGMENT_MORE, op->b.args->epoch, row);
    ls_rng_words(place, op->b.args->seed, LS_STREAM_AUGMENT_PART, op->b.args->epoch, row);
    ls_change_draw(&c, a, op->desc.x.h, op->desc.x.w, v, more, place);
    return c;
}

/* Row r, and its target, mixed with the next one's; element by element. */
static void change_row(const ref_op *op, const ls_augment *a, int r)
{
    const ls_gather *g = &op->desc.u.gather;
    const ls_tensor *x = &op->desc.x;
    const ls_step_args *of = op->b.args;
    const uint32_t row[2] = {of->rows[r],
                             ls_mixed_row(of->rows, x->rows, r, of->rows_before, of->rows_after)};
    const ls_change c[2] = {draw_change(op, a, row[0]), draw_change(op, a, row[1])};
    const size_t words = g->targets > 0 ? (size_t)g->targets : 1;
    float *y = (float *)op->b.y + (size_t)r * ref_row(x);
    for (int e = 0; e < (int)ref_row(x); e++) {
        const int k = e / (x->h * x->w), i = e / x->w % x->h, j = e % x->w, colour = k < 3 ? k : 3;
        float f[2];
        int b[2];
        for (int n = 0; n < 2; n++) {
            const size_t at = row[n] * ref_row(x) + (size_t)k * (size_t)x->h * (size_t)x->w;
            if (g->floats)
                f[n] = ls_changed_float((const float *)op->b.x + at, &c[n], i, j);
            else
                b[n] = ls_changed_byte((const uint8_t *)op->b.x + at, &c[n], i, j);
        }
        y[e] = ((g->floats ? ls_mixed_float(f[0], f[1], c)
                           : (float)ls_mixed_byte(b[0], b[1], c) / 255.0f) -
                g->mean[colour]) /
               g->std[colour];
    }
    for (size_t i = 0; op->b.labels && i < words; i++) {
        const size_t mine = row[0] * words + i, other = row[1] * words + i,
                     to = (size_t)r * words + i;
        const float *t = (const float *)(const void *)op->b.labels;
        if (g->targets)
            ((float *)(void *)op->b.labels_out)[to] = ls_mixed_float(t[mine], t[other], c);
        else
            op->b.labels_out[to] = op->b.labels[c[0].other_label ? other : mine];
    }
}

int ref_gather(ref_op *op, unsigned flags, ls_error *err)
{
    const uint32_t *rows = op->b.args->rows;
    const size_t words = op->desc.u.gather.targets > 0 ? (size_t)op->desc.u.gather.targets : 1;
    (void)flags;
    if (!rows)
        return ls_fail(err, LS_EINVAL, "gather: no rows are given");
    const ls_gather *g = &op->desc.u.gather;
    const ls_augment a = {g->crop, g->flip, g->rotate, g->erase, g->brightness, g->mixup, g->part};
    for (int r = 0; r < op->desc.x.rows; r++) {
        if (op->b.weights)
            op->b.weights_out[r] = op->b.weights[rows[r]];
        if (op->desc.training && ls_augment_more(&a)) {
            change_row(op, &a, r);
            continue;
        }
        gather_row(op, (float *)op->b.y + (size_t)r * ref_row(&op->desc.x), rows[r]);
        if (op->b.labels)
            memcpy(op->b.labels_out + (size_t)r * words, op->b.labels + rows[r] * words,
                   words * sizeof *op->b.labels);
    }
    return LS_OK;
}
