/* SPDX-License-Identifier: MIT */
/* The feed: buffers for *streamed* training rows, which are read shortly before their step. The
 * feed contains a row from the time when the row is read until its step has ended. */
#ifndef ENGINE_FEED_H
#define ENGINE_FEED_H

#include "data/dataset.h"
#include "engine/engine.h"

/* Contains LS_IN_FLIGHT slots with up to `batch` rows each. A slot holds the rows of one step that
 * was submitted and not yet collected. (A range is one step if rows are streamed.) If a worker
 * stalls, the feed is left to that worker, which can still read rows, and the other workers get a
 * new feed. */
typedef struct ls_feed {
    const ls_host *host;
    uint32_t batch; /* largest number of rows of a slot */
    /* size in bytes of a row's values, and size in bytes of its label or target */
    size_t image_bytes, label_bytes;
    char *images, *labels; /* [LS_IN_FLIGHT · batch] values, and labels or targets, of the rows */
    float *weights;        /* [LS_IN_FLIGHT · batch] weights of the rows; NULL: all are 1 */
    uint32_t *index; /* [LS_IN_FLIGHT · batch] 0, 1, 2, …: indices of all rows of the feed */
    struct ls_feed *next; /* next in the list of feeds that were left to stalled workers */
} ls_feed;

/* Creates a feed for minibatches of up to `batch` rows of `data`. Errors: LS_ENOMEM. */
int ls_feed_create(ls_feed **out, const ls_dataset *data, uint32_t batch, const ls_host *host,
                   ls_error *err);
/* Frees a feed. NULL is allowed. */
void ls_feed_destroy(ls_feed *feed);

/* Sets the weights of all rows to 1, if rows have weights. */
void ls_feed_reset_weights(ls_feed *feed);

/* Returns the rows of all slots together, as the training data of a replica. */
ls_replica_data ls_feed_data(const ls_feed *feed);

/* Returns the indices of a slot's rows within the feed, [batch], for ls_range.rows. */
const uint32_t *ls_feed_rows(const ls_feed *feed, uint32_t slot);

/* Reads n rows of the dataset, those with the indices `rows`, into a slot. No range in flight may
 * use the slot. Errors: those of ls_dataset_read. */
int ls_feed_read(ls_feed *feed, uint32_t slot, const ls_dataset *data, const uint32_t *rows,
                 uint32_t n, ls_error *err);
/* Returns the targets of a slot's rows. The dataset must have targets. */
const float *ls_feed_targets(const ls_feed *feed, uint32_t slot);

/* Rows of the caller (ls_trainer_step). */
typedef struct ls_feed_rows_given {
    const void *images, *labels;
    const float *weights; /* [n]; NULL: all are 1 */
    uint32_t n;
} ls_feed_rows_given;

/* Copies rows of the caller, scaled (ls_own_rows_take), to a slot. No range in flight may use the
 * slot. Errors: those of ls_own_rows_take. */
int ls_feed_take(ls_feed *feed, uint32_t slot, const ls_dataset *data,
                 const ls_feed_rows_given *rows, ls_error *err);

#endif
