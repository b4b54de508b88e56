/* SPDX-License-Identifier: MIT */
/* Runs one op of the CPU back end with given kernels, and the same op of the reference back end
 * with sums in double, on the same random data. All data that a test sees are row-major.
 *
 * The CPU back end computes sixteen rows (examples) side by side, one in each *lane* of a vector
 * (src/cpu/lanes_op.h). A *twin* is an op of the same layer for another number of rows, with the
 * same parameters.
 *
 *     lanes_case c = {.desc = …};              x's shape, kind, parameters; `desc.training` etc.
 *     lanes_data *in = lanes_data_create(&c.desc, seed);
 *     lanes_data *got = lanes_run(kernels, &c.desc, in, block), *want = lanes_oracle(&c.desc, in);
 *     lanes_expect_near("…", got, want);
 *
 * Failures end the running cmocka test. */
#ifndef LANES_LANES_CHECK_H
#define LANES_LANES_CHECK_H

#include "cpu/lanes_kernels.h"

/* Inputs and results of one op. Arrays that an op does not use are NULL. */
typedef struct lanes_data {
    size_t x_n, y_n, param_n[LS_OP_PARAMS];
    float *x, *x2, *dy, *param[LS_OP_PARAMS]; /* inputs */
    float *y, *dx, *dx2, *grad[LS_OP_PARAMS]; /* results */
    float stats[2];
    int32_t *labels;
} lanes_data;

/* Draws x, dy, parameters and labels for a description with row-major x. */
lanes_data *lanes_data_create(const ls_op_desc *desc, uint64_t seed);
void lanes_data_destroy(lanes_data *data);

/* Runs the op forward and, in training, backward. An op for `block` rows processes one block of
 * rows after another; a twin processes the remaining rows. The second and later blocks run with
 * LS_RUN_ACCUMULATE. If `block` is 0, all rows are one block. With `again`, everything is run a
 * second time with LS_RUN_ACCUMULATE, so that sums double. Before the run, memory whose contents an
 * op must not use is filled with NaN, and input lanes that hold no row are filled with 1e30.
 * Afterwards the function checks that y is finite in all lanes, and after batch norm that it is
 * zero in lanes that hold no row. */
lanes_data *lanes_run(const ls_lanes_kernels *kernels, const ls_op_desc *desc, const lanes_data *in,
                      int block, int again);

/* The team (cpu_team.h) whose threads divide the work of the ops that lanes_run creates. NULL: the
 * calling thread alone. */
extern ls_team *lanes_team;

/* Runs the op on the reference back end; a fused pool becomes an op of its own. */
lanes_data *lanes_oracle(const ls_op_desc *desc, const lanes_data *in);

/* Checks results after `times` runs, whose sums are `times` times those of one run. Each array must
 * differ from the wanted array by at most 1e-5 times its norm, and statistics by at most 1e-6. */
void lanes_expect_near(const char *what, const lanes_data *got, const lanes_data *want, int times);

/* Checks that every result has the same bits. */
void lanes_expect_same(const char *what, const lanes_data *a, const lanes_data *b);

/* Returns one line that describes the op. Static storage. */
const char *lanes_text(const ls_op_desc *desc);

#endif
