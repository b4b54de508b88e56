/* Memory that workers read and write on behalf of the coordinator: the exchange, and the feed, where
 * streamed training rows wait for their step. */
#ifndef ENGINE_EXCHANGE_H
#define ENGINE_EXCHANGE_H

#include "engine/engine.h"

/* Memory that workers read and write on behalf of the coordinator. When a worker has to be left behind, all of it is
 * left to that worker, and its peers get a new one: what it may still do to it then does no harm. */
typedef struct ls_exchange {
    ls_engine *engine;
    uint32_t *permutation[2]; /* training rows of even and odd epochs */
    ls_sharded_rows test;     /* of an evaluation */
    ls_engine_state state;
    int exporter;             /* the worker that exports, −1: none */
    uint64_t steps;           /* applied so far */
    struct ls_exchange *next; /* of those left behind */
} ls_exchange;

/* For the engine's data, model and optimizer. Errors: LS_ENOMEM. */
int ls_exchange_create(ls_exchange **out, ls_engine *engine, ls_error *err);
void ls_exchange_destroy(ls_exchange *exchange, const ls_host *host); /* NULL is allowed */

/* ---- streamed rows -------------------------------------------------------------------------- */

/* A slot for each work item in flight. */
typedef struct ls_feed {
    const ls_host *host;
    uint32_t batch;
    size_t image_bytes, label_bytes; /* of a row's values, and of its label or target */
    char *images, *labels;           /* [LS_IN_FLIGHT · batch] */
    uint32_t *index;                 /* 0, 1, 2, …: a slot's rows are its part of this */
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
