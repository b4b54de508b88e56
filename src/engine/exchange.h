/* The exchange, which the engine keeps to itself. */
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

#endif
