/* Random inputs of a chain. */
#include "base/rng.h"
#include "ops/op_chain.h"

#include <stdlib.h>

/* Streams of draws; a parameter's is PARAM + its position. */
enum { X = 100, DY, LABELS, IMAGES, PARAM };

/* Near enough to standard normal, and quick: the sum of a word's four bytes. */
static double bell(uint32_t w)
{
    uint32_t sum = (w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24);
    return 1.7320508 * (sum / 255.0 - 2);
}

static float *draw(int grid, uint64_t seed, uint32_t stream, size_t n, double scale)
{
    float *out = op_zeros(n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        uint32_t w[4];
        ls_rng_words(w, seed, stream, 0, i / 4);
        out[i] = grid ? (float)((int)(w[i % 4] % 5) - 2) / 2 : (float)(scale * bell(w[i % 4]));
    }
    return out;
}

/* Logits must not tie, so what makes them is not on the grid; and it is small, for the softmax of
 * large logits magnifies their rounding. */
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
    ls_tensor x = chain->count > 1 ? op_shape_after(chain, chain->count - 2) : chain->op[0].x;
    size_t n = last->kind == LS_OP_SOFTMAX_XENT ? op_row(&x) : 256;
    return n < 256 ? (int)n : 256;
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
    in->dy = draw(chain->grid, seed, DY, rows * in->dy_row, 1);
    for (int i = 0; i < chain->count; i++)
        for (int p = 0; p < LS_OP_PARAMS; p++)
            if (op_has_params(&chain->op[i]))
                in->param[i][p] =
                    draw(chain->grid && !makes_logits(chain, i), seed,
                         PARAM + (uint32_t)(i * LS_OP_PARAMS + p), op_canonical(chain, i, p),
                         makes_logits(chain, i) ? 0.02 : 1);
    in->labels = op_zeros(labels, 1);
    in->rows = op_zeros(labels, sizeof *in->rows);
    for (size_t i = 0; i < labels; i++) {
        uint32_t w[4];
        ls_rng_words(w, seed, LABELS, 0, i);
        in->labels[i] = (uint8_t)(w[0] % (uint32_t)classes(chain));
        in->rows[i] = w[1] % OP_DATA_ROWS;
    }
    if (chain->op[0].kind == LS_OP_GATHER) {
        in->images = op_zeros(OP_DATA_ROWS, in->x_row);
        for (size_t i = 0; i < OP_DATA_ROWS * in->x_row; i++) {
            uint32_t w[4];
            ls_rng_words(w, seed, IMAGES, 0, i);
            in->images[i] = (uint8_t)(chain->grid ? w[0] % 2 * 255 : w[0]);
        }
    }
    return in;
}

void op_inputs_destroy(op_inputs *in)
{
    for (int i = 0; in && i < OP_CHAIN; i++)
        for (int p = 0; p < LS_OP_PARAMS; p++)
            free(in->param[i][p]);
    if (in) {
        free(in->x);
        free(in->dy);
        free(in->labels);
        free(in->images);
        free(in->rows);
    }
    free(in);
}
