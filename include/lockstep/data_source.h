/* Custom data: a dataset of the embedding program that a config can name, read through a callback.
 *
 *     static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count,
 *                          void *values, void *targets, ls_error *err) { ...; return LS_OK; }
 *
 *     ls_data_source mine = {.size = sizeof mine, .name = "letters", .channels = 1, .height = 28,
 *                            .width = 28, .classes = 26, .train_rows = 88800, .test_rows = 14800,
 *                            .read = read_rows};
 *     const ls_data_source *const sources[] = {&mine};
 *     ls_trainer_options o = {..., .sources = sources, .source_count = 1};
 *     // config: "data": {"name": "letters"}
 *
 * A row is [channels][height][width], bytes (0 … 255) or floats. Its target is a class, an int32_t
 * from 0 to `classes` − 1, or `targets` floats. The config's "preprocessing" says how the values of
 * a row are scaled.
 *
 * Resident data (the default) is read once, while the trainer is opened. Streamed training data is
 * read minibatch by minibatch, so it may be larger than memory. If the source is streamed and has
 * no training rows (train_rows 0), the callback is not called for training, and the program passes
 * every row to ls_trainer_step.
 */
#ifndef LOCKSTEP_DATA_SOURCE_H
#define LOCKSTEP_DATA_SOURCE_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Type of the values of a row. */
typedef enum ls_row_type {
    LS_ROW_U8 = 0, /* uint8_t */
    LS_ROW_F32 = 1 /* float; every value is finite */
} ls_row_type;

/* A custom dataset. */
typedef struct ls_data_source {
    size_t size;      /* sizeof(ls_data_source) */
    const char *name; /* the config's data.name selects this source; not a built-in name */
    int channels, height, width; /* shape of a row */
    int classes;                 /* number of classes, ≥ 2; 0 if targets are floats */
    /* Number of training rows, which one epoch visits once each. 0 is allowed if `streamed` is set:
     * then ls_trainer_step alone trains, and there are no epochs. */
    uint32_t train_rows;
    uint32_t test_rows; /* number of test rows; 0: the model is not evaluated */
    int streamed;       /* non-zero: training rows are read when they are needed */
    /* Reads `count` rows and their targets.
     *
     * - test: non-zero for test rows, zero for training rows
     * - rows: [count] row numbers, each below test_rows or train_rows. The rows in `values` and
     *   `targets` have the order of `rows`
     * - values: output buffer [count][channels][height][width], uint8_t or float as `dtype` says
     * - targets: output buffer, int32_t [count] or float [count][targets]
     *
     * Returns LS_OK, or a negative status with a message in `err`, which ends the call of the
     * trainer that needed the rows. It is called on the thread that opens or runs the trainer,
     * never on two threads at once for one trainer. May be NULL if both numbers of rows are 0. */
    int (*read)(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                void *targets, ls_error *err);
    void *user;        /* first argument of `read` */
    ls_row_type dtype; /* type of a row's values */
    int targets;       /* number of floats in a row's target; 0: the target is a class */
} ls_data_source;

#ifdef __cplusplus
}
#endif
#endif
