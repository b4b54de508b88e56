/* SPDX-License-Identifier: MIT */
/* The exchange: memory that the coordinator and the jobs of the workers share. Internal to the
 * engine. */
#ifndef ENGINE_EXCHANGE_H
#define ENGINE_EXCHANGE_H

#include "engine/engine.h"

/* Arguments and results of jobs (work of all workers between steps). If a worker stalls, the whole
 * exchange is left to that worker, and the other workers get a new exchange. Therefore later writes
 * of the stalled worker do no harm. */
typedef struct ls_exchange {
    ls_engine *engine;
    const ls_network *model; /* model of replicas that are built (ls_engine_set_model) */
    /* [2][training rows] indices of the training rows, in the order in which an epoch trains on
     * them. Epochs with an even index (from 0) use array 0, the others array 1. */
    uint32_t *permutation[2];
    ls_sharded_rows test;     /* rows and results of an evaluation */
    ls_engine_state state;    /* weights and optimizer states that are loaded or read back */
    int exporter;             /* index of the worker that exports its weights; −1: none */
    uint64_t steps;           /* number of steps completed so far */
    struct ls_exchange *next; /* next in the list of exchanges that were left to stalled workers */
} ls_exchange;

/* Creates an exchange for the engine's data, model and optimizer. Sets engine->lacks_scores to
 * whether the memory for scores was lacking. Errors: LS_ENOMEM. */
int ls_exchange_create(ls_exchange **out, ls_engine *engine, ls_error *err);
/* Frees an exchange. NULL is allowed. */
void ls_exchange_destroy(ls_exchange *exchange, const ls_host *host);

#endif
