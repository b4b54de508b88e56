/* The exchange: memory that the coordinator and the workers share. Internal to the engine. */
#ifndef ENGINE_EXCHANGE_H
#define ENGINE_EXCHANGE_H

#include "engine/engine.h"

/* Memory that jobs of workers read and write on behalf of the coordinator. If a worker stalls, the
 * whole exchange is left to that worker, and the other workers get a new one, so that later writes
 * of the stalled worker do no harm. */
typedef struct ls_exchange {
    ls_engine *engine;
    uint32_t *permutation[2]; /* [2][training rows] order of the rows in even and odd epochs */
    ls_sharded_rows test;     /* rows and results of an evaluation */
    ls_engine_state state;
    int exporter;             /* index of the worker that exports its weights; −1: none */
    uint64_t steps;           /* number of steps applied so far */
    struct ls_exchange *next; /* next in the list of exchanges left to stalled workers */
} ls_exchange;

/* Creates an exchange for the engine's data, model and optimizer. Sets engine->lacks_scores if it
 * fails for want of memory for scores. Errors: LS_ENOMEM. */
int ls_exchange_create(ls_exchange **out, ls_engine *engine, ls_error *err);
/* Frees an exchange. NULL is allowed. */
void ls_exchange_destroy(ls_exchange *exchange, const ls_host *host);

#endif
