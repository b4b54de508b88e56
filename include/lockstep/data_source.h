/* The caller's own data: a dataset that a config can name, read through one callback.
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
 * A row is [channels][height][width], bytes (0 … 255) or floats; its target is its class, an int32_t
 * below `classes`, or `targets` floats. What the values mean is the config's "preprocessing".
 *
 * Resident data (the default) is read once, while the trainer is opened. Streamed training data is
 * read minibatch by minibatch: it may be larger than memory, or come from ls_trainer_step alone.
 */
#ifndef LOCKSTEP_DATA_SOURCE_H
#define LOCKSTEP_DATA_SOURCE_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_row_type {
    LS_ROW_U8 = 0, /* uint8_t */
    LS_ROW_F32 = 1 /* float, finite */
} ls_row_type;

typedef struct ls_data_source {
    size_t size;      /* sizeof(ls_data_source) */
    const char *name; /* what the config's data.name says; not a name that is built in */
    int channels, height, width;
    int classes;         /* 2 or more; 0 where targets are floats */
    uint32_t train_rows; /* of one epoch. 0, allowed where it is streamed: training is by
                          * ls_trainer_step alone, and there are no epochs */
    uint32_t test_rows;  /* 0: there is nothing to evaluate on */
    int streamed;        /* non-zero: training rows are read when they are needed */
    /* Writes `count` rows, in the order of `rows` (each below train_rows, or test_rows when `test`),
     * into `values` [count][channels][height][width], uint8_t or float, and `targets`, int32_t
     * [count] or float [count][targets]. Called by the thread that opens or runs the trainer, never
     * by two at once for one trainer. A negative status, with a message in `err`, ends what was
     * asked of the trainer. May be NULL when both numbers of rows are 0. */
    int (*read)(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                void *targets, ls_error *err);
    void *user;
    ls_row_type dtype; /* of a row's values */
    int targets;       /* floats that a row is to give; 0: it has a class */
} ls_data_source;

#ifdef __cplusplus
}
#endif
#endif
