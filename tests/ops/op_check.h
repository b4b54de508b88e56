/* Runs ops of any back end and compares them with the reference back end.
 *
 * The unit is a *chain*: one op, or several, each with the output of the previous one as its input
 * unless `source` says otherwise; an op's output is the input of at most one other op. The first
 * op, and one op that reads the chain's second input, read plain row-major data. An op whose output
 * has a layout of the back end is followed by LS_OP_EXPORT (the checker appends it), so that y can
 * be read and dy can be given in row-major order; a chain that ends in softmax_xent needs none.
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

#define OP_CHAIN 12     /* most ops of a chain, without the export */
#define OP_DATA_ROWS 64 /* rows of the data set that a gather reads */
#define OP_ITEMS (3 + (LS_OP_PARAMS + 1) * OP_CHAIN)
#define OP_SECOND (-2) /* as a source: the chain's second input */

typedef struct op_chain {
    uint64_t seed;
    int count;
    ls_op_desc op[OP_CHAIN]; /* op[0].x: rows, c, h, w; everything about layouts is filled in */
    int source[OP_CHAIN];    /* of an op's x: 0: the op before, OP_SECOND, or k + 1: op k */
    int source2[OP_CHAIN];   /* of its x2, if it has one: OP_SECOND, or k + 1: op k */
    int before, behind;      /* other rows of the shard, of which a gather takes a part */
    ls_tensor x2;            /* the chain's second input; rows 0: there is none */
    int training, needs_dx;  /* needs_dx: of the chain's inputs. No training: evaluation */
    int evaluate;            /* with training: ops made for training, run in evaluation */
    int hints;               /* ask preferred_layout and pass y_hint on */
    int grid;                /* inputs are multiples of ½ (pixels 0 or 255), so that sums are
                                exact in fp32, zeros and ties occur, and every back end sees the
                                same ones; only what makes logits is not, so that they never tie */
    int off_kinks;           /* the last op ends in a fused relu of sums that are not exact: dy is
                                0 where those are near 0 */
    float spread;            /* x is multiplied with it; 0 counts as 1 */
    float offset;            /* and this is added */
} op_chain;

/* The chain as one line of text, in static storage. */
const char *op_chain_text(const op_chain *chain);

typedef struct op_inputs {
    size_t x_row, x2_row, dy_row; /* elements of a row */
    float *x, *x2, *dy;
    float *param[OP_CHAIN][LS_OP_PARAMS];
    float *running[OP_CHAIN]; /* of a batchnorm: mean [c], variance [c] */
    uint8_t *images;          /* OP_DATA_ROWS rows */
    int32_t *labels;          /* suit both uses; or targets, floats */
    size_t label_words;       /* of a row */
    uint32_t *rows;           /* of the data set, for gather and dropout */
    uint64_t seed;            /* of random ops */
    uint32_t epoch;
} op_inputs;

/* Inputs drawn from the chain's seed; fresh draws for another `seed`. */
op_inputs *op_inputs_create(const op_chain *chain, uint64_t seed);
void op_inputs_destroy(op_inputs *in);

/* A chain made into ops, with memory. */
typedef struct op_run op_run;

/* With `twin` (a run of the same chain with other rows), parameters, gradients and stats are the
 * twin's, which must be closed later. NULL when the device declines with LS_EUNSUPPORTED. */
op_run *op_run_open(ls_device *device, const op_chain *chain, op_run *twin);
void op_run_close(op_run *run);

/* Imports the parameters. */
void op_run_params(op_run *run, const op_inputs *in);

/* Forward and, in training, backward on the inputs' rows from `first` on. Memory that the ops may
 * not rely on is filled with NaN before. */
void op_run_step(op_run *run, const op_inputs *in, int first, unsigned flags);

/* Forward alone, in evaluation: what op_run_step does with a chain that is not for training. */
void op_run_evaluate(op_run *run, const op_inputs *in, int first, unsigned flags);

/* One compared array. */
typedef struct op_item {
    char name[32];
    float *data;
    size_t n;
} op_item;

typedef struct op_result {
    op_item item[OP_ITEMS]; /* y, dx, dx2, grad0.0, grad0.1, …, contribution0, … as far as they
                               exist */
    int items;
    int has_stats;
    float stats[2];
    int32_t labels[OP_DATA_ROWS]; /* of a gather */
} op_result;

/* Reads back what the last step made. Also checks that padding in gradients is zero. */
op_result *op_run_read(op_run *run);
void op_result_destroy(op_result *result);

/* The item of that name, or NULL. */
const op_item *op_result_item(const op_result *result, const char *name);

/* Items with equal names agree: ‖a − b‖ ≤ tolerance · (‖b‖ + 0.1·√n), for sums may cancel (ten
 * times that below 16 elements); losses to 1e-6, or to `tolerance` behind other ops; counts of
 * correct predictions exactly. Items that only one side has are passed over. `who` says in
 * messages what is being compared. */
void op_expect_near(const char *who, const op_chain *chain, const op_result *a, const op_result *b,
                    double tolerance);

/* The same items, with the same bits. */
void op_expect_same(const char *who, const op_chain *chain, const op_result *a, const op_result *b);

/* The oracle: the chain run on ref64, fused forms taken apart. `in` may be NULL. */
op_result *op_reference(const op_chain *chain, const op_inputs *in);

/* Opens, loads, steps once, reads, closes; NULL when the device declines. */
op_result *op_once(ls_device *device, const op_chain *chain, const op_inputs *in);

#endif
