/* SPDX-License-Identifier: MIT */
/* Generates random inputs of a chain. */
#include "base/rng.h"
#include "ops/op_chain.h"

#include <math.h>
#include <stdlib.h>

/* Streams of random draws. The stream of a parameter is PARAM plus the parameter's index. */
enum { X = 100, DY, LABELS, IMAGES, X2, RUNNING, TARGETS, PARAM = 200 };

/* Returns the scaled sum of a word's four bytes, which is close enough to a normal distribution and
 * fast. */
static double bell(uint32_t w)
{
    uint32_t sum = (w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24);
    return 1.7320508 * (sum / 255.0 - 2);
}

static float *draw(int grid, uint64_t seed, uint32_t stream, size_t n, double scale)
{
    float *out = op_zeros(n, sizeof(float));
    uint32_t w[4];
    for (size_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            ls_rng_words(w, seed, stream, 0, i / 4);
        out[i] = grid ? (float)((int)(w[i % 4] % 5) - 2) / 2 : (float)(scale * bell(w[i % 4]));
    }
    return out;
}

/* Returns whether op i computes logits. The inputs of such an op are not on the grid
 * (op_chain.grid), so that no two logits are equal. These inputs are small, because the softmax of
 * large logits magnifies the logits' rounding errors. */
static int makes_logits(const op_chain *chain, int i)
{
    int last = 1;
    for (int k = i + 1; k < chain->count; k++)
        last = last && !op_has_params(&chain->op[k]);
    return last && op_ends_in_loss(chain);
}

static int classes(const op_chain *chain)
{
    const ls_op_desc *last = &chain->op[chain->count - 1];
    ls_tensor x = op_x_of(chain, chain->count - 1);
    size_t n = last->kind == LS_OP_SOFTMAX_XENT ? op_row(&x) : 256;
    return n < 256 ? (int)n : 256;
}

/* Draws running statistics: means around zero, and variances of at least a quarter. */
static void draw_running(op_inputs *in, const op_chain *chain, uint64_t seed)
{
    for (int i = 0; i < chain->count; i++) {
        size_t channels = op_canonical(chain, i, 0);
        if (chain->op[i].kind != LS_OP_BATCHNORM)
            continue;
        in->running[i] = draw(0, seed, RUNNING + (uint32_t)i * 1000, 2 * channels, 1);
        for (size_t c = channels; c < 2 * channels; c++)
            in->running[i][c] = 0.25f + in->running[i][c] * in->running[i][c];
    }
}

/* Sets dy to 0 where the input of the last op's fused relu is near 0, because there rounding
 * decides the sign of the input. */
static void keep_off_kinks(op_inputs *in, const op_chain *chain)
{
    op_chain bare = *chain;
    bare.off_kinks = bare.op[chain->count - 1].fuse_relu = 0;
    op_result *r = op_reference(&bare, in);
    const op_item *y = op_result_item(r, "y");
    for (size_t i = 0; i < y->n; i++)
        if (y->data[i] < 0.02f && y->data[i] > -0.02f)
            in->dy[i] = 0;
    op_result_destroy(r);
}

static void draw_second(op_inputs *in, const op_chain *chain, uint64_t seed)
{
    const ls_tensor *x2 = &chain->x2;
    if (!x2->rows)
        return;
    in->x2_row = op_row(x2);
    in->x2 = draw(chain->grid, seed, X2, (size_t)x2->rows * in->x2_row, 1);
}

/* Makes some targets of a loss with a kink equal to an output. */
static void put_on_kinks(float *targets, const op_inputs *in, const ls_op_desc *loss)
{
    const size_t each = in->label_words;
    const ls_vector_rule rule = loss->u.vector_loss.rule;
    if (in->x_row != (size_t)loss->x.c || (rule != LS_VECTOR_MAE && rule != LS_VECTOR_QUANTILE))
        return;
    for (size_t r = 0; r < (size_t)loss->x.rows; r++)
        for (size_t k = r % 5; k < each; k += 5)
            targets[r * each + k] = in->x[r * in->x_row + k];
}

/* Draws targets: numbers, 0 and 1 if the loss is binary cross-entropy, or counts. */
static void draw_targets(op_inputs *in, const op_chain *chain, size_t rows)
{
    const ls_op_desc *last = &chain->op[chain->count - 1];
    if (last->kind != LS_OP_VECTOR_LOSS)
        return;
    const size_t n = rows * in->label_words;
    float *targets = draw(0, chain->seed, TARGETS, n, 1);
    for (size_t i = 0; last->u.vector_loss.rule == LS_VECTOR_BCE && i < n; i++)
        targets[i] = targets[i] > 0;
    for (size_t i = 0; last->u.vector_loss.rule == LS_VECTOR_POISSON && i < n; i++)
        targets[i] = floorf(3 * fabsf(targets[i]));
    put_on_kinks(targets, in, last);
    free(in->labels);
    in->labels = (int32_t *)(void *)targets;
}

op_inputs *op_inputs_create(const op_chain *chain, uint64_t seed)
{
    op_inputs *in = op_zeros(1, sizeof *in);
    size_t rows = (size_t)chain->op[0].x.rows, labels = rows > OP_DATA_ROWS ? rows : OP_DATA_ROWS;
    ls_tensor y = op_shape_after(chain, chain->count - 1);
    in->x_row = op_row(&chain->op[0].x);
    in->dy_row = op_row(&y);
    in->x = draw(chain->grid, seed, X, rows * in->x_row,
                 chain->spread != 0 ? (double)chain->spread : 1);
    for (size_t i = 0; i < rows * in->x_row; i++)
        in->x[i] += chain->offset;
    draw_second(in, chain, seed);
    draw_running(in, chain, seed);
    in->seed = seed;
    in->epoch = (uint32_t)(seed % 7);
    in->dy = draw(chain->grid, seed, DY, rows * in->dy_row, 1);
    for (int i = 0; i < chain->count; i++)
        for (int p = 0; p < LS_OP_PARAMS; p++)
            if (op_has_params(&chain->op[i]))
                in->param[i][p] =
                    draw(chain->grid && !makes_logits(chain, i), seed,
                         PARAM + (uint32_t)(i * LS_OP_PARAMS + p), op_canonical(chain, i, p),
                         makes_logits(chain, i) ? 0.02 : 1);
    in->label_words = op_label_words(chain);
    in->labels = op_zeros(labels * in->label_words, sizeof *in->labels);
    in->rows = op_zeros(labels, sizeof *in->rows);
    for (size_t i = 0; i < labels; i++) {
        uint32_t w[4];
        ls_rng_words(w, seed, LABELS, 0, i);
        in->labels[i] = (int32_t)(w[0] % (uint32_t)classes(chain));
        in->rows[i] = w[1] % OP_DATA_ROWS;
    }
    draw_targets(in, chain, labels);
    if (chain->op[0].kind == LS_OP_GATHER) {
        in->images = op_zeros(OP_DATA_ROWS, in->x_row);
        for (size_t i = 0; i < OP_DATA_ROWS * in->x_row; i++) {
            uint32_t w[4];
            ls_rng_words(w, seed, IMAGES, 0, i);
            in->images[i] = (uint8_t)(chain->grid ? w[0] % 2 * 255 : w[0]);
        }
    }
    if (chain->off_kinks)
        keep_off_kinks(in, chain);
    return in;
}

void op_inputs_destroy(op_inputs *in)
{
    for (int i = 0; in && i < OP_CHAIN; i++)
        for (int p = 0; p < LS_OP_PARAMS; p++)
            free(in->param[i][p]);
    for (int i = 0; in && i < OP_CHAIN; i++)
        free(in->running[i]);
    if (in) {
        free(in->x);
        free(in->x2);
        free(in->dy);
        free(in->labels);
        free(in->images);
        free(in->rows);
    }
    free(in);
}
