/* Common parts of the randomized test of the public API (api_swarm.c). */
#ifndef TESTS_CAMPAIGNS_API_WORLD_H
#define TESTS_CAMPAIGNS_API_WORLD_H

#include <lockstep/collective.h>
#include <lockstep/model.h>
#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>
#include <pthread.h>
#include <stdatomic.h>

#define WORLD_SNAPSHOTS 3
#define WORLD_BATCH 16
#define WORLD_PARAMETERS 4096
#define WORLD_STATUSES 20 /* LS_OK, and as many errors as there are */

/* ---- what the headers promise, and what was reached (api_promises.c) ------------------------- */

typedef struct promise {
    char name[48];
    unsigned errors;              /* bit −status: the header names it */
    long reached[WORLD_STATUSES]; /* [−status] */
} promise;

/* Reads the headers in `directory`. Ends the program where it cannot. */
void promises_read(const char *directory);
/* NULL: no header declares it. */
promise *promises_find(const char *name);
/* Prints, as one JSON object, what was reached of each function and what was not. */
void promises_print(unsigned long long sequences, unsigned long long calls);

/* ---- the world of one sequence --------------------------------------------------------------- */

typedef struct world {
    uint64_t seed, number; /* of the sequence */
    uint32_t drawn;
    const char *directory; /* for files; exists */
    const char *call;      /* the function that is under way */
    unsigned long long calls;
    char problem[600]; /* the first finding; "": none */
    ls_error err;
    /* The allocator: the call that fails, counted down; 0: none. */
    ls_host host;
    atomic_long fails_in;
    atomic_int persistent;
    /* What there is; NULL: nothing. */
    ls_registry *registry;
    ls_pool *pool, *devices;
    int abandoned;      /* a worker of `pool` was */
    int devices_broken; /* its owner works, or one of its workers was given up */
    ls_collective *collective;
    int ranks; /* of it */
    ls_snapshot *snapshot[WORLD_SNAPSHOTS], *model;
    /* The trainer, and one of one sound device that does the same. */
    ls_trainer *trainer, *shadow;
    int comparable; /* the two should have the same weights */
    int ran, calls_in, resident;
    ls_data_source data;
    int read_that_fails; /* its user, where it has one */
    const ls_data_source *sources[1];
    ls_trainer_callbacks callbacks;
    ls_trainer_sys sys;
    uint8_t images[WORLD_BATCH * 28 * 28];
    int32_t labels[WORLD_BATCH];
    char saved[512]; /* a checkpoint; "": none */
    int has_table;   /* "table.safetensors" is in the directory */
    /* Another thread, which reads what is published. */
    pthread_t reader;
    int reading;
    atomic_int stop;
    pthread_mutex_t lock;
    ls_snapshot *published;
} world;

/* A number below `below`. */
uint32_t world_draw(world *w, uint32_t below);
/* True once in so many times. */
int world_chance(world *w, uint32_t times);
/* Notes how a call ended, and whether it may have. Returns its status. */
int world_note(world *w, const char *name, int status);
/* For functions without a status. */
void world_did(world *w, const char *name);
/* A finding; the first one counts. */
void world_problem(world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* From now on no memory and no thread is refused. */
void world_disarm(world *w);
/* The allocator that fails when it is told to, or NULL. */
const ls_host *world_host(world *w);

typedef void world_call(world *w);

/* Calls of the pool, registry and collective (api_pools.c), of the trainer, snapshots and models (api_trainer.c), and
 * those that need a stage of their own (api_rare.c); the ends are NULL. */
extern world_call *const pool_calls[], *const trainer_calls[], *const rare_calls[];

/* The ends of what is there, with sound memory and files. */
void world_end_trainer(world *w);
void world_end_pools(world *w);

#endif
