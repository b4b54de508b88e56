/* The inside of a replica, for the files that make it and run it. */
#ifndef NN_REPLICA_IMPL_H
#define NN_REPLICA_IMPL_H

#include "nn/plan.h"

enum { LS_LINE_BYTES = 192 };

/* What the arenas are for, in the order in which they are allocated. */
typedef enum ls_arena { WEIGHTS, GRADIENT, TOTAL, SLOT, ARENAS = SLOT + LS_OP_SLOTS } ls_arena;

struct ls_replica {
    ls_device *device;
    const ls_model *model;
    const ls_optimizer *optimizer; /* NULL: never trained */
    const ls_host *host;
    ls_device_info info;
    ls_heartbeat *heartbeat; /* NULL: none */
    ls_step_args args;

    ls_plan **plan; /* most rows first: its ops define the layout of parameters */
    int plans;
    ls_op *update;
    ls_op **running; /* one per layer with running statistics */
    int runnings;
    size_t *param_at; /* [layer · LS_OP_PARAMS + k]: offset in every arena */
    size_t *stat_at;  /* [layer]: of its running statistics, in every arena */
    size_t *segment;  /* the same offsets, ascending; then the tail's and the arena's end */
    int segments;

    size_t tail_at; /* behind the parameters */
    size_t floats;  /* of an arena, all of it */
    float *arena[ARENAS];
    char *activations;
    void *scratch;
    float *test_stats;
    uint8_t *images[LS_SUBSETS], *labels[LS_SUBSETS]; /* copies; NULL when the host's are used */
    ls_replica_data data[LS_SUBSETS];                 /* as the device sees them */
    uint32_t *device_rows;                            /* NULL: the device reads staged_rows */

    uint32_t most_rows;
    uint32_t *staged_rows;
    float staged_tail[LS_TAIL]; /* outlives uploads and downloads that return early */
    char (*line)[LS_LINE_BYTES];
    int lines;
    ls_replica_memory memory;
};

/* Of replica.c's errors. */
int ls_replica_no_memory(ls_error *err);

/* Memory of the device, zeroed, counted in *use. */
int ls_replica_alloc(ls_replica *r, void **out, size_t bytes, size_t *use, ls_error *err);

/* ---- replica_arenas.c: the plans are made --------------------------------------------------- */

/* Where each parameter and each layer's statistics lie. */
int ls_replica_lay_out(ls_replica *r, ls_error *err);
/* The ops that step over arenas, and the arenas. */
int ls_replica_make_updates(ls_replica *r, ls_error *err);
int ls_replica_alloc_arenas(ls_replica *r, ls_error *err);
int ls_replica_bind_updates(ls_replica *r, ls_error *err);

#endif
