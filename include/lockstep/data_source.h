/* SPDX-License-Identifier: MIT */
/* Custom data: a dataset that the program supplies through a callback, and that a config can name.
 *
 *     static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count,
 *                          void *values, void *targets, ls_error *err) { ...; return LS_OK; }
 *
 *     ls_data_source mine = {.size = sizeof mine, .name = "letters", .channels = 1, .height = 28,
 *                            .width = 28, .row_type = LS_ROW_U8, .classes = 26,
 *                            .train_rows = 88800, .test_rows = 14800, .read = read_rows};
 *     const ls_data_source *const sources[] = {&mine};
 *     ls_trainer_options o = {..., .sources = sources, .source_count = 1};
 *     // config: "data": {"name": "letters"}
 *
 * A row is [channels][height][width], bytes (0 … 255), floats or doubles. The *target* of a row is
 * what the model learns to predict for it: a class (an int32_t from 0 to `classes` − 1), or a
 * vector of numbers (the field `target_count` says how many). Values and targets are in their own
 * units: the config's keys data.mean, data.std and data.standardize say how the values of a row are
 * scaled, and with the losses mse, mae, huber and quantile the network learns scaled targets
 * (data.standardize_target).
 *
 * *Resident* data (the default) is read once, while the trainer is opened. *Streamed* training data
 * is read minibatch by minibatch, and can therefore be larger than memory. A *minibatch* is the
 * rows of one training step. If the source is streamed and has no training rows (train_rows 0), the
 * callback is not called for training, and the program passes every row to ls_trainer_step.
 */
#ifndef LOCKSTEP_DATA_SOURCE_H
#define LOCKSTEP_DATA_SOURCE_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Type of the values of a row. The values of rows to train on are finite. */
typedef enum ls_row_type {
    /* 0 is no type: a structure whose row_type was not set is refused */
    LS_ROW_U8 = 1,  /* uint8_t */
    LS_ROW_F32 = 2, /* float */
    LS_ROW_F64 = 3  /* double, for numbers that a float does not hold closely */
} ls_row_type;

/* A custom dataset. */
typedef struct ls_data_source {
    size_t size;      /* sizeof(ls_data_source) */
    const char *name; /* name by which the config's data.name selects this source; no name of a
                       * built-in data set; copied */
    int channels, height, width; /* shape of a row */
    int classes;                 /* number of classes, ≥ 2; 0: the targets are numbers */
    /* Number of training rows, which one epoch visits once each. 0 is allowed if `streamed` is set:
     * the program then trains with ls_trainer_step only, and there are no epochs: a schedule by
     * epochs needs `epoch_steps`, and other rules that depend on the epoch use epoch 1. */
    uint32_t train_rows;
    uint32_t test_rows; /* number of test rows; 0: the model is not evaluated */
    int streamed;       /* non-zero: training rows are streamed; zero: resident. Test rows are
                         * always resident */
    /* Reads `count` rows and their targets.
     *
     * - test: non-zero for test rows, zero for training rows
     * - rows: [count] row numbers, each below test_rows or train_rows. The rows in `values` and
     *   `targets` have the order of `rows`
     * - values: output buffer [count][channels][height][width], uint8_t, float or double as
     *   `row_type` says
     * - targets: output buffer for the targets, int32_t [count]; or [count][k] if the field
     *   `target_count` is k > 0, float or double as `target_type` says
     *
     * Returns LS_OK, or a negative status with a message in `err` (status.h, "Callbacks"). The
     * function of the trainer that needed the rows, such as ls_trainer_run, then fails with that
     * error. The callback runs on the thread that opens or runs the trainer, never on two threads
     * at once for one trainer. `read` may be NULL if train_rows and test_rows are 0. */
    int (*read)(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                void *targets, ls_error *err);
    void *user;           /* first argument of `read`; what it points to outlives the trainer */
    ls_row_type row_type; /* type of a row's values */
    int target_count; /* number of numbers in the target of each row; 0: the target is a class */
    /* Non-zero: rows have weights. The loss and the gradient of a row are multiplied by its weight,
     * and their sums over a minibatch are divided by the sum of its weights. A weight is 0 (the row
     * is not learnt from), or from 1e-9 to 1e9. If all weights of a minibatch are 0, its gradient
     * is 0. Batch norm sees every row alike. Zero: all weights are 1. */
    int weighted;
    /* With `weighted`: [train_rows] and [test_rows] weights of the rows; NULL: all are 1. They
     * outlive the trainer. ls_trainer_step receives the weights of its rows itself. */
    const float *train_weights, *test_weights;
    /* Type of the numbers of targets, if `target_count` is above 0: LS_ROW_F32, or LS_ROW_F64 for
     * those that a float does not hold closely, such as times and amounts of money. They stay
     * doubles until they are scaled. 0: LS_ROW_F64 if `row_type` is that, else LS_ROW_F32. */
    ls_row_type target_type;
} ls_data_source;

#ifdef __cplusplus
}
#endif
#endif
