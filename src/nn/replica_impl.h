/* The inside of a replica, for the files that make it and run it. */
#ifndef NN_REPLICA_IMPL_H
#define NN_REPLICA_IMPL_H

#include "nn/plan.h"

enum { LS_LINE_BYTES = 192 };

/* What the arenas are for, in the order in which they are allocated. */
typedef enum ls_arena { WEIGHTS, GRADIENT, TOTAL, SLOT, ARENAS = SLOT + LS_OP_SLOTS } ls_arena;

/* A piece of the backward pass ends behind node `node`; then the arena's first `floats` floats are
 * complete. */
typedef struct ls_piece {
    int node;
    size_t floats;
} ls_piece;

/* The ops of a step, from one of two sums. */
typedef enum ls_sum { OF_TOTAL, OF_GRADIENT, SUMS } ls_sum;
typedef struct ls_updates {
    ls_op *update;   /* NULL: not made */
    ls_op **running; /* one per layer with running statistics */
} ls_updates;

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
    ls_updates updates[SUMS];
    int runnings;
    ls_recording *step; /* the updates of the total as one; NULL: op by op */
    float *held;        /* on the device: not 0 holds up all steps */
    float *row_tails;   /* [plan][LS_TAIL]: what recordings put into the gradient's tail */
    size_t *param_at;   /* [layer · LS_OP_PARAMS + k]: offset in every arena */
    size_t *stat_at;    /* [layer]: of its running statistics, in every arena */
    size_t *segment;    /* the same offsets, ascending; then the tail's and the arena's end */
    int segments;
    ls_buckets buckets; /* of an arena */
    ls_piece piece[LS_BUCKETS];
    int pieces;
    ls_ready_fn *ready; /* NULL: the backward pass is one piece */
    void *ready_user;
    /* Of whole steps. */
    float *arrived;                          /* pinned tails [place][LS_UNROLLED]; NULL: none */
    ls_event *arrival[LS_IN_PLACES];         /* when the steps of a place are done */
    ls_step_args unrolled_args[LS_UNROLLED]; /* of those that are enqueued now */

    size_t tail_at; /* behind the parameters */
    size_t floats;  /* of an arena, all of it */
    float *arena[ARENAS];
    char *activations;
    void *scratch;
    float *test_stats;
    uint8_t *images[LS_SUBSETS], *labels[LS_SUBSETS]; /* copies; NULL when the host's are used */
    ls_replica_data data[LS_SUBSETS];                 /* as the device sees them */
    ls_replica_data host_data[LS_SUBSETS];            /* as the caller gave them */
    uint32_t *device_rows;                            /* NULL: the device reads staged_rows */

    uint32_t most_rows;         /* of one call */
    uint32_t *staged_rows;      /* of LS_UNROLLED of them where it trains */
    float staged_tail[LS_TAIL]; /* outlives uploads and downloads that return early */
    char (*line)[LS_LINE_BYTES];
    int lines;
    ls_replica_memory memory;
};

/* Of replica.c's errors. */
int ls_replica_no_memory(ls_error *err);

/* The plan for exactly `rows` rows, or NULL. Of n rows, those of the block that begins behind
 * `done`. */
ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows);
uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done);

/* Checks a call's rows and puts them where the gather ops read them; there they are, `done` of them
 * further on. */
int ls_replica_stage_rows(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                          ls_error *err);
/* The same for `count` calls of n rows each. */
int ls_replica_stage_calls(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                           uint32_t count, ls_error *err);
/* How many calls' rows may be staged. */
uint32_t ls_replica_most_calls(const ls_replica *r);
const uint32_t *ls_replica_staged(const ls_replica *r, uint32_t done);

/* Memory of the device, zeroed, counted in *use. */
int ls_replica_alloc(ls_replica *r, void **out, size_t bytes, size_t *use, ls_error *err);

/* The optimizer's step and the running statistics', op by op. */
int ls_replica_enqueue_step(ls_replica *r, ls_sum sum, ls_error *err);
/* What the ops of a step read of it. */
void ls_replica_set_step(ls_replica *r, const ls_replica_step *step);

/* Where the tail of the k-th whole step of a place arrives. */
static inline float *ls_replica_tail_of(const ls_replica *r, int place, int k)
{
    return r->arrived + ((size_t)place * LS_UNROLLED + (size_t)k) * LS_TAIL;
}

/* ---- replica_record.c: everything is bound -------------------------------------------------- */

/* Runs every op once and records what a step repeats: of each plan a whole shard's gradient, tail
 * included, and the step. Weights and slots are zero and stay so. */
int ls_replica_record(ls_replica *r, ls_error *err);

/* The same in pieces, of each plan that has a recording; one that has it in pieces already keeps
 * it. */
int ls_replica_record_pieces(ls_replica *r, ls_error *err);

/* Whole steps from the gradient, of each plan that has a recording; several as one where the model
 * is small. */
int ls_replica_record_whole(ls_replica *r, ls_error *err);

/* ---- replica_pieces.c ----------------------------------------------------------------------- */

/* Where the backward pass is cut; `least` 0: LS_BUCKET_FLOATS. The arenas are laid out. */
void ls_replica_cut(ls_replica *r, size_t least);
/* The nodes of piece `p`: from *first down to the piece's. */
int ls_replica_piece_begin(const ls_replica *r, int p);
/* Whether somebody is to be told of pieces. */
int ls_replica_in_pieces(const ls_replica *r);
/* What is complete behind piece `p`; nothing is told of the last one. */
int ls_replica_tell(ls_replica *r, int p, ls_error *err);
/* A block's backward pass; when it is the shard's last one, in pieces if somebody is to be told. */
int ls_replica_backward(ls_replica *r, ls_plan *plan, unsigned flags, int last, ls_error *err);

/* ---- replica_arenas.c: the plans are made --------------------------------------------------- */

/* Where each parameter and each layer's statistics lie. */
int ls_replica_lay_out(ls_replica *r, ls_error *err);
/* The ops that step over arenas, and the arenas. */
int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err);
int ls_replica_alloc_arenas(ls_replica *r, ls_error *err);
int ls_replica_bind_updates(ls_replica *r, ls_sum sum, ls_error *err);
void ls_replica_destroy_updates(ls_replica *r);

#endif
