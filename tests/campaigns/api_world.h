/* SPDX-License-Identifier: MIT */
/* Common parts of the randomized test of the public API (api_swarm.c). */
#ifndef TESTS_CAMPAIGNS_API_WORLD_H
#define TESTS_CAMPAIGNS_API_WORLD_H

#include <lockstep/collective.h>
#include <lockstep/model.h>
#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>
#include <pthread.h>
#include <stdatomic.h>

#define WORLD_MODELS 3
#define WORLD_BATCH 16
#define WORLD_PARAMETERS 4096
#define WORLD_STATUSES 20 /* LS_OK and the number of different errors */

/* ---- promises of the headers, and results that occurred (api_promises.c) --------------------- */

typedef struct promise {
    char name[48];
    unsigned errors;              /* bit −status: the header names the error */
    unsigned listed;              /* bit −status: it is in the list of what does not occur */
    long reached[WORLD_STATUSES]; /* [−status]: how often it was returned */
} promise;

/* Reads the headers in `directory`. Ends the program if that fails. */
void promises_read(const char *directory);
/* Reads the list of promised errors that do not occur here (api_unreached.txt). Ends the program if
 * a line names a function or an error that the headers do not have. */
void promises_read_unreached(const char *path);
/* Returns NULL if no header declares the function. */
promise *promises_find(const char *name);
/* Prints, as one JSON object, the results of each function that occurred and those that did not. */
void promises_print(unsigned long long sequences, unsigned long long calls);

/* ---- the state of one sequence of calls ------------------------------------------------------ */

typedef struct world {
    uint64_t seed, number; /* seed and number of the sequence */
    uint32_t drawn;
    const char *directory; /* existing directory for files */
    const char *call;      /* name of the function being called */
    unsigned long long calls;
    char problem[600]; /* the first finding; "": none */
    ls_error err;
    /* The allocator: number of the call that fails, counted down; 0: none. */
    ls_host host;
    atomic_long fails_in;
    atomic_int persistent;
    /* Objects of the sequence; NULL: none. */
    ls_registry *registry;
    ls_pool *pool, *devices;
    int abandoned;      /* a worker of `pool` was abandoned */
    int devices_broken; /* its owner is working, or one of its workers was abandoned */
    ls_collective *collective;
    int ranks; /* number of ranks of the collective */
    ls_model *snapshot[WORLD_MODELS], *model;
    /* The trainer, and one with a single sound device that makes the same steps. */
    ls_trainer *trainer, *shadow;
    int comparable; /* the two should have the same weights */
    int ran, calls_in, resident;
    ls_data_source data;
    int read_that_fails; /* user pointer of the read callback that fails, if it has one */
    const ls_data_source *sources[1];
    ls_trainer_callbacks callbacks;
    ls_trainer_sys sys;
    uint8_t images[WORLD_BATCH * 28 * 28];
    int32_t labels[WORLD_BATCH];
    char saved[512]; /* path of a checkpoint; "": none */
    int has_table;   /* "table.safetensors" exists in the directory */
    /* Another thread, which reads the published snapshot. */
    pthread_t reader;
    int reading;
    atomic_int stop;
    pthread_mutex_t lock;
    ls_model *published;
} world;

/* Draws a number below `below`. */
uint32_t world_draw(world *w, uint32_t below);
/* Returns true once in `times` draws on average. */
int world_chance(world *w, uint32_t times);
/* Records the status of a call, and a finding if the header does not promise it. Returns the
 * status. */
int world_note(world *w, const char *name, int status);
/* Like world_note, for functions without a status. */
void world_did(world *w, const char *name);
/* Records a finding; only the first one counts. */
void world_problem(world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Stops refusing memory and threads. */
void world_disarm(world *w);
/* Returns the host whose allocator fails on request, or NULL. */
const ls_host *world_host(world *w);

/* From now on files of more than `bytes` bytes cannot be written; 0: all can. */
void world_limit_files(unsigned long bytes);

typedef void world_call(world *w);

/* Calls of pool, registry and collective (api_pools.c), of trainer, snapshots and models
 * (api_trainer.c), and calls that need a special preparation (api_rare.c). NULL-terminated. */
extern world_call *const pool_calls[], *const trainer_calls[], *const rare_calls[];

/* Destroy all objects, without failures of memory and files. */
void world_end_trainer(world *w);
void world_end_pools(world *w);

#endif
