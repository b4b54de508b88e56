/* The feed: where streamed training rows wait for their step. */
#ifndef ENGINE_FEED_H
#define ENGINE_FEED_H

#include "data/dataset.h"
#include "engine/engine.h"

/* A slot for each work item in flight. When a worker has to be left behind, the feed is left to it, which may still read
 * rows, and its peers get a new one. */
typedef struct ls_feed {
    const ls_host *host;
    uint32_t batch;
    size_t image_bytes, label_bytes; /* of a row's values, and of its label or target */
    char *images, *labels;           /* [LS_IN_FLIGHT · batch] */
    uint32_t *index;                 /* 0, 1, 2, …: a slot's rows are its part of this */
    struct ls_feed *next;            /* of those left behind */
} ls_feed;

/* Errors: LS_ENOMEM. */
int ls_feed_create(ls_feed **out, const ls_dataset *data, uint32_t batch, const ls_host *host,
                   ls_error *err);
void ls_feed_destroy(ls_feed *feed); /* NULL is allowed */

/* As a replica's data: all slots. */
ls_replica_data ls_feed_data(const ls_feed *feed);

/* The rows of a slot, as work items name them. */
const uint32_t *ls_feed_rows(const ls_feed *feed, uint32_t slot);

/* Fills a slot that no work item uses: from the dataset, or with the caller's rows. Errors: those of
 * ls_dataset_read. */
int ls_feed_read(ls_feed *feed, uint32_t slot, const ls_dataset *data, const uint32_t *rows,
                 uint32_t n, ls_error *err);
/* The targets of a slot's rows, where rows have some. */
const float *ls_feed_targets(const ls_feed *feed, uint32_t slot);
void ls_feed_copy(ls_feed *feed, uint32_t slot, const void *images, const void *labels, uint32_t n);

#endif
