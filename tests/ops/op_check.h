/* SPDX-License-Identifier: MIT */
/* Runs ops of any back end and compares them with the reference back end.
 *
 * The unit is a *chain* of one or several ops. The input of an op is the output of the previous op,
 * unless `source` says otherwise. The output of an op is the input of at most one other op. The
 * first op, and the op that reads the chain's second input, read plain row-major data. If the last
 * output has a layout of the back end, op_run_open appends an LS_OP_EXPORT, which copies to
 * row-major order. Then y can be read and dy can be given in row-major order. A chain that ends in
 * softmax_xent needs no export. A row is an example of the batch.
 *
 *     op_chain chain = {.seed = 7, .count = 1, .training = 1, .needs_dx = 1};
 *     chain.op[0] = …;                              kind, x's rows and shape, u, pool
 *     op_inputs *in = op_inputs_create(&chain);     x, dy, parameters, labels from the seed
 *     op_run *run = op_run_open(device, &chain, NULL);
 *     op_run_params(run, in);
 *     op_run_step(run, in, 0, 0);                   forward and backward
 *     op_result *result = op_run_read(run);
 *
 * A failure inside these functions fails the running cmocka test and prints the chain. */
#ifndef OPS_OP_CHECK_H
#define OPS_OP_CHECK_H

#include <lockstep/sys/plugin.h>

#define OP_CHAIN 12     /* largest number of ops of a chain, without the export */
#define OP_DATA_ROWS 64 /* number of rows in the data set that a gather reads */
#define OP_ITEMS (3 + (LS_OP_PARAMS + 1) * OP_CHAIN)
#define OP_SECOND (-2) /* as a source of an op's input: the chain's second input */

typedef struct op_chain {
    uint64_t seed;
    int count;
    /* of op[0].x only rows, c, h and w are set; op_run_open fills in layouts */
    ls_op_desc op[OP_CHAIN];
    /* source of an op's x: 0: the previous op; OP_SECOND; or k + 1: op k */
    int source[OP_CHAIN];
    /* source of an op's x2, if the op has an x2: OP_SECOND, or k + 1: op k */
    int source2[OP_CHAIN];
    int before, behind; /* numbers of rows of the shard before and after the chain's rows */
    ls_tensor x2;       /* the chain's second input; rows 0: there is none */
    /* needs_dx: gradients of the chain's inputs are computed; training 0: evaluation */
    int training, needs_dx;
    /* non-zero, with `training`: the ops are created for training, but run in evaluation */
    int evaluate;
    int hints; /* non-zero: query preferred_layout, and pass y_hint */
    /* Non-zero: inputs are on the *grid*: multiples of ½ (pixels are 0 or 255). Then sums are exact
     * in fp32, and zeros and equal values occur at the same places with every back end. The inputs
     * of ops that compute logits are not on the grid, so that no two logits are equal. */
    int grid;
    /* Non-zero: the last op ends in a fused relu of sums that are not exact. Then dy is 0 where
     * these sums are near 0, the relu's *kink*, because rounding decides their sign there. */
    int off_kinks;
    int row_weights; /* non-zero: the rows of a loss have the weights of op_row_weight */
    float spread;    /* factor of x; 0 counts as 1 */
    float offset;    /* added to x */
} op_chain;

/* Returns the chain as one line of text, in static storage. */
const char *op_chain_text(const op_chain *chain);

typedef struct op_inputs {
    size_t x_row, x2_row, dy_row; /* elements of a row */
    float *x, *x2, *dy;
    float *param[OP_CHAIN][LS_OP_PARAMS];
    float *running[OP_CHAIN]; /* statistics of a batchnorm: mean [c], variance [c] */
    uint8_t *images;          /* OP_DATA_ROWS rows */
    int32_t *labels;          /* labels that are valid for gather and loss; or targets as floats */
    size_t label_words;       /* words in a row's label */
    uint32_t *rows;           /* row numbers in the data set, for gather and dropout */
    uint64_t seed;            /* seed of random ops */
    uint32_t epoch;
} op_inputs;

/* Draws inputs from the chain's seed and `seed`: another `seed` gives other inputs. */
op_inputs *op_inputs_create(const op_chain *chain, uint64_t seed);
void op_inputs_destroy(op_inputs *in);

/* The ops of a chain, with their memory. */
typedef struct op_run op_run;

/* Opens a chain. `twin`: NULL, or a run of the same chain with another number of rows. With a twin,
 * the new run uses the parameters, gradients and stats of the twin; close the new run first.
 * Returns NULL if the device declines with LS_EUNSUPPORTED. */
op_run *op_run_open(ls_device *device, const op_chain *chain, op_run *twin);
void op_run_close(op_run *run);

/* Imports the parameters. */
void op_run_params(op_run *run, const op_inputs *in);

/* Runs the chain forward and, in training, backward on the inputs' rows from `first` on. Before,
 * fills memory whose contents the ops must not use with NaN. */
void op_run_step(op_run *run, const op_inputs *in, int first, unsigned flags);

/* Runs the chain forward in evaluation, even if the chain is for training. */
void op_run_evaluate(op_run *run, const op_inputs *in, int first, unsigned flags);

/* An array to compare. */
typedef struct op_item {
    char name[32];
    float *data;
    size_t n;
} op_item;

typedef struct op_result {
    /* y, dx, dx2, grad0.0, grad0.1, …, contribution0, …, as far as the chain has them */
    op_item item[OP_ITEMS];
    int items;
    int has_stats;
    float stats[2];
    int32_t labels[OP_DATA_ROWS]; /* output of a gather */
} op_result;

/* Reads the results of the last step. Also checks that padding in gradients is zero. */
op_result *op_run_read(op_run *run);
void op_result_destroy(op_result *result);

/* Returns the item of that name, or NULL. */
const op_item *op_result_item(const op_result *result, const char *name);

/* Checks that items with equal names agree. For arrays of n elements: ‖a − b‖ ≤ tolerance · (‖b‖ +
 * 0.1·√n). The term with √n is for sums whose terms cancel. For fewer than 16 elements the bound is
 * ten times as large. Losses must agree to 1e-6, or to `tolerance` if other ops precede the loss.
 * Counts of correct predictions must be equal. Items that only one of the two results has are
 * ignored. `who`: name of the comparison for messages. */
void op_expect_near(const char *who, const op_chain *chain, const op_result *a, const op_result *b,
                    double tolerance);

/* Runs a step of the chain, and then one that adds its gradients to those of the first. Checks that
 * the sums are twice the gradients, as op_expect_near does with the tolerance 1e-5. */
void op_expect_accumulates(const char *who, ls_device *device, const op_chain *chain);

/* Checks that the items have the same bits. */
void op_expect_same(const char *who, const op_chain *chain, const op_result *a, const op_result *b);

/* Runs the chain with the inputs `in` on ref64, the reference back end with sums in double. Each
 * fused op becomes an op of its own. */
op_result *op_reference(const op_chain *chain, const op_inputs *in);

/* Opens the chain, loads the inputs, runs one step, reads the result and closes the chain. Returns
 * NULL if the device declines. */
op_result *op_once(ls_device *device, const op_chain *chain, const op_inputs *in);

#endif
