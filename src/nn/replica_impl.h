/* The inside of a replica, for the files that make it and run it:
 *
 *     replica.c         making it, its data, and what it says of itself
 *     replica_arenas.c  what lies where in the arenas, the ops that update them, weights in and out
 *     replica_step.c    training: rows on their way to the device; programs, recorded and run
 *     replica_infer.c   inference
 *
 * A step is a program, a list of segments {nodes, recording or none, floats complete behind it}
 * (ls_segment in plan.h). Every way to take a step is such a list, and one function runs them all:
 *
 *     LS_GRADIENT            one segment, the whole gradient of a shard          ls_replica_gradient
 *     LS_GRADIENT_BY_BUCKETS one for each bucket; behind each but the last       the same, once
 *                            `ready` is told of its floats                       ls_replica_on_ready
 *     LS_STEP                one: the gradient, and the update from it, which    ls_replica_step_whole
 *                            tells the host of the loss
 *     LS_STEPS               the same LS_UNROLLED times                          the same
 *     apply                  one, of the replica: the update from the total      ls_replica_apply
 *
 * All are listed when the replica is made, op by op: they depend on the model and on the layouts alone.
 * Recorded are, when it is made, LS_GRADIENT and `apply`; the buckets when the caller wants to be told, and
 * whole steps by ls_replica_prepare_whole, since the group decides which of them it needs. A program is
 * recorded whole or not at all: op by op the gradients run all the same, and whole steps are not taken.
 * Nothing that was recorded depends on who is in the group, so that a new group finds it and records
 * only what is missing. All is freed with the plan.
 */
#ifndef NN_REPLICA_IMPL_H
#define NN_REPLICA_IMPL_H

#include "nn/plan.h"

#include <stdbool.h>

/* What the arenas are for, in the order in which they are allocated. */
typedef enum ls_arena { WEIGHTS, GRADIENT, TOTAL, SLOT, ARENAS = SLOT + LS_STATES } ls_arena;

/* The ops of an update, from one of two sums. */
typedef enum ls_sum { OF_TOTAL, OF_GRADIENT, SUMS } ls_sum;
typedef struct ls_update {
    ls_op *op;
    unsigned flags; /* it runs with */
    size_t at;      /* where in the arenas its part begins */
} ls_update;
typedef struct ls_updates {
    ls_update *list; /* in order; NULL: not made */
    int count;
} ls_updates;

enum { LS_ALLOCATIONS = 32 /* a replica's, at most; each of the fields below is one */ };

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
    size_t update_scratch; /* bytes, the most of an update's op */
    float *clip;           /* on the device: LS_CLIP_FLOATS; NULL: nothing is clipped */
    ls_segment apply;      /* no plan's */
    float *held;           /* on the device: not 0 holds up all steps */
    float *row_tails;      /* on the device: the plans' `tail`, LS_TAIL floats each */
    size_t *param_at;      /* [layer · LS_OP_PARAMS + k]: offset in every arena */
    size_t *stat_at;       /* [layer]: of its running statistics, in every arena */
    size_t
        *param_begin; /* the parameters' offsets, ascending; then the tail's and the arena's end */
    int param_begins; /* the tail's included */
    float *rate_of;   /* [param_begins]: what a parameter's learning rate is multiplied with */
    ls_buckets buckets; /* of an arena */
    ls_ready_fn *ready; /* NULL: a gradient is one segment */
    void *ready_user;
    /* Of whole steps. */
    float *arrived;                      /* pinned tails [slot][LS_UNROLLED]; NULL: none */
    ls_event *arrival[LS_RESULT_SLOTS];  /* when the steps of a slot are done */
    ls_step_args step_args[LS_UNROLLED]; /* of those that are enqueued now */

    size_t tail_at; /* behind the parameters */
    size_t floats;  /* of an arena, all of it */
    float *arena[ARENAS];
    float *own_gradient;        /* the arena GRADIENT, unless it is the caller's */
    float *own_total;           /* the arena TOTAL, unless it is the caller's; NULL: none */
    char *shadow, *shadow_grad; /* of the parameters and their gradients; NULL: none are kept */
    uint32_t *in_shadow;        /* on the device: which gradients whole steps leave there */
    char *activations;
    void *scratch;
    float *test_stats;
    float *class_weight;                           /* on the device; NULL: none */
    void *images[LS_SUBSETS], *labels[LS_SUBSETS]; /* copies; NULL when the host's are used */
    size_t image_bytes, label_bytes;               /* of a row */
    ls_replica_data data[LS_SUBSETS];              /* as the device sees them */
    ls_replica_data host_data[LS_SUBSETS];         /* as the caller gave them */
    uint32_t *device_rows;                         /* NULL: the device reads staged_rows */

    uint32_t most_rows;               /* of one call */
    uint32_t *staged_rows;            /* of LS_UNROLLED of them where it trains */
    float staged_tail[LS_TAIL];       /* outlives uploads and downloads that return early */
    void *allocation[LS_ALLOCATIONS]; /* all memory of the device's; freed with the replica */
    int allocations;
    ls_replica_memory memory;
};

/* ---- replica.c ------------------------------------------------------------------------------ */

int ls_replica_no_memory(ls_error *err);
/* Memory of the device, zeroed, counted in *use; NULL, and nothing happens, where *status says that something has
 * failed before, or says now that this has. */
void *ls_replica_alloc(ls_replica *r, size_t bytes, size_t *use, int *status, ls_error *err);

/* Every pointer of a plan, where the gradient has moved since: the fold that it lay in may be gone. Allocates nothing
 * on a device with the host's memory. */
int ls_replica_bind_again(ls_replica *r, ls_plan *plan, ls_error *err);

/* The plan for exactly `rows` rows, or NULL. Of n rows, those of the block that begins behind
 * `done`. */
ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows);
uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done);
/* How many calls' rows may be staged. */
uint32_t ls_replica_most_calls(const ls_replica *r);

/* ---- replica_arenas.c: the plans are made --------------------------------------------------- */

/* Where each parameter and each layer's statistics lie. */
int ls_replica_lay_out(ls_replica *r, ls_error *err);
/* The ops that update the weights, and the arenas. */
int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err);
int ls_replica_alloc_arenas(ls_replica *r, bool total_later, ls_error *err); /* and the shadows */
int ls_replica_make_tails(ls_replica *r, ls_error *err); /* of gradients that are recorded */
int ls_replica_bind_updates(ls_replica *r, ls_sum sum, ls_error *err);
void ls_replica_destroy_updates(ls_replica *r);
/* Whether gradients of whole steps may stay in their shadows: one op reads them all. */
bool ls_replica_leaves_shadows(const ls_replica *r);

/* ---- replica_step.c ------------------------------------------------------------------------- */

/* Checks the rows of `calls` calls, n rows each, and puts them where the gather ops read them; there
 * they are, `done` of them further on. */
int ls_replica_stage_rows(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                          uint32_t calls, ls_error *err);
const uint32_t *ls_replica_staged(const ls_replica *r, uint32_t done);

/* Everything is bound: runs every op once and records each plan's gradient, and the update from the
 * total. Weights and slots are zero and stay so. */
int ls_replica_record(ls_replica *r, ls_error *err);

#endif
