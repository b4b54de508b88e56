/* Internals of a replica, for the files that create it and run it:
 *
 *     replica.c         creates the replica and its data, and describes it
 *     replica_arenas.c  layout of the arenas, ops that update them, import and export of weights
 *     replica_step.c    training: stages rows for the device; records and runs programs
 *     replica_pieces.c  updates whose sum is computed piece by piece
 *     replica_infer.c   inference
 *
 * A step is a program: a list of segments, each with its nodes, an optional recording, and the
 * number of floats that are complete after it (ls_segment in plan.h). Every way to take a step is
 * such a list, and one function runs them all:
 *
 *     LS_GRADIENT            one segment, the whole gradient of a shard       ls_replica_gradient
 *     LS_GRADIENT_BY_BUCKETS one for each bucket; `ready` is called after     the same, once
 *                            each but the last                               ls_replica_on_ready
 *     LS_STEP                one: the gradient and the update from it,        ls_replica_step_whole
 *                            which reports the loss to the host
 *     LS_STEPS               LS_UNROLLED of these                             the same
 *     apply                  one, in the replica: the update from the total   ls_replica_apply
 *
 * All programs are listed, op by op, when the replica is created; they depend only on the model
 * and on the layouts. LS_GRADIENT and `apply` are recorded at creation, the buckets when the
 * caller sets `ready`, and whole steps by ls_replica_prepare_whole, since the group decides
 * which of them it needs. A program is recorded as a whole or not at all. Without recordings
 * gradients run op by op, and whole steps are not available. Recordings do not depend on the
 * members of the group, so that a new group reuses them and records only what is missing. They
 * are destroyed with the plan. */
#ifndef NN_REPLICA_IMPL_H
#define NN_REPLICA_IMPL_H

#include "nn/plan.h"

#include <stdbool.h>

/* The arenas, in the order in which they are allocated. */
typedef enum ls_arena { WEIGHTS, GRADIENT, TOTAL, SLOT, ARENAS = SLOT + LS_STATES } ls_arena;

/* The sum that an update reads: the total, or the gradient in whole steps. */
typedef enum ls_sum { OF_TOTAL, OF_GRADIENT, SUMS } ls_sum;
typedef struct ls_update {
    ls_op *op;
    unsigned flags; /* flags with which the op runs */
    size_t at;      /* offset of its range in the arenas, in floats */
} ls_update;
typedef struct ls_updates {
    ls_update *list; /* in the order in which they run; NULL: not created */
    int count;
} ls_updates;

/* An update by pieces of a range of the arenas. */
typedef struct ls_piece_update {
    ls_op *op[2];   /* for a whole piece, and for the rest; NULL: there is none */
    size_t at, end; /* the range, in floats */
} ls_piece_update;

enum { LS_ALLOCATIONS = 32 /* capacity of `allocation` */ };

struct ls_replica {
    ls_device *device;
    const ls_model *model;
    const ls_optimizer *optimizer; /* NULL: never trained */
    const ls_host *host;
    ls_device_info info;
    ls_heartbeat *heartbeat; /* NULL: none */
    ls_step_args args;

    ls_plan **plan; /* the largest that trains is first: its ops define the parameter layouts */
    int plans;
    ls_updates updates[SUMS];
    size_t update_scratch;   /* largest scratch size of an update op in bytes */
    ls_piece_update *pieces; /* [piece_updates] updates by pieces; NULL: not prepared */
    int piece_updates;
    float *piece;     /* memory of one piece of the sum */
    float *clip;      /* on the device: LS_CLIP_FLOATS; NULL: gradients are not clipped */
    ls_segment apply; /* the segment of ls_replica_apply, which has no plan */
    float *held;      /* on the device: non-zero blocks all updates */
    float *row_tails; /* on the device: `tail` of each plan, LS_TAIL floats each */
    size_t *param_at; /* [layer · LS_OP_PARAMS + k]: offset in every arena, in floats */
    size_t *stat_at;  /* [layer]: offset of its running statistics in every arena, in floats */
    /* offsets of the parameters, ascending; of the tail; of the arena's end */
    size_t *param_begin;
    int param_begins;   /* number of parameters, plus one for the tail */
    float *rate_of;     /* [param_begins]: factor of a parameter's learning rate */
    ls_buckets buckets; /* buckets of an arena */
    ls_ready_fn *ready; /* NULL: a gradient is one segment */
    void *ready_user;
    /* Fields of whole steps. */
    float *arrived;                      /* pinned tails [slot][LS_UNROLLED][LS_TAIL]; NULL: none */
    ls_event *arrival[LS_RESULT_SLOTS];  /* reached when the steps of a slot are done */
    ls_step_args step_args[LS_UNROLLED]; /* arguments of the steps that are being enqueued */

    size_t tail_at; /* offset of the tail, after the parameters, in floats */
    size_t floats;  /* length of an arena in floats */
    float *arena[ARENAS];
    float *own_gradient; /* the arena GRADIENT that the replica has allocated itself */
    /* the arena TOTAL that the replica has allocated itself; NULL: none */
    float *own_total;
    char *shadow, *shadow_grad; /* shadows of the parameters and their gradients; NULL: none */
    uint32_t *in_shadow;        /* on the device: mask of the gradients that whole
                                   steps leave there */
    char *activations;
    void *scratch;
    float *test_stats;
    float *class_weight;                           /* on the device; NULL: none */
    void *images[LS_SUBSETS], *labels[LS_SUBSETS]; /* copies; NULL if the device reads the host's */
    size_t image_bytes, label_bytes;               /* size of a row in bytes */
    ls_replica_data data[LS_SUBSETS];              /* the data as the device sees them */
    ls_replica_data host_data[LS_SUBSETS];         /* the data as the caller gave them */
    uint32_t *device_rows;                         /* NULL: the device reads staged_rows */

    uint32_t most_rows;    /* largest number of rows of one call */
    uint32_t *staged_rows; /* [most_rows · ls_replica_most_calls()] */
    /* a field, because uploads and downloads may end after the function that
     * enqueues them has returned */
    float staged_tail[LS_TAIL];
    void *allocation[LS_ALLOCATIONS]; /* all device memory; freed with the replica */
    int allocations;
    ls_replica_memory memory;
};

/* ---- replica.c ------------------------------------------------------------------------------ */

/* Reports LS_ENOMEM for host memory. Returns it. */
int ls_replica_no_memory(ls_error *err);
/* Allocates zeroed device memory and adds its size to *use. Returns NULL and does nothing if
 * *status is not LS_OK; returns NULL and sets *status if the allocation fails. */
void *ls_replica_alloc(ls_replica *r, size_t bytes, size_t *use, int *status, ls_error *err);

/* Binds the plan again if the gradient arena has moved since, because the memory of the
 * former arena (a leaf of a fold) may have been freed. Allocates nothing on a device that
 * uses the host's memory. */
int ls_replica_bind_again(ls_replica *r, ls_plan *plan, ls_error *err);

/* ls_replica_plan_for returns the plan for exactly `rows` rows, or NULL. ls_replica_block_rows
 * returns the number of rows in the block that begins at row `done` of n. */
ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows);
uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done);
/* Returns the number of calls whose rows can be staged at once. */
uint32_t ls_replica_most_calls(const ls_replica *r);

/* ---- replica_arenas.c, called after the plans have been created ------------------------------ */

/* A range of the arenas that one update op processes. Zeroed before the first search. */
typedef struct ls_stretch {
    int next; /* index of the parameter, or layer, at which the search for the next range begins */
    size_t at, end;
    float rate, momentum;
} ls_stretch;
/* Finds the next range of adjacent parameters with the same learning-rate factor, frozen ones
 * excluded. Returns false if there is none. */
bool ls_replica_next_params(ls_stretch *s, const ls_replica *r);
/* Computes the offsets of all parameters and running statistics in the arenas. */
int ls_replica_lay_out(ls_replica *r, ls_error *err);
/* Creates the update ops. */
int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err);
/* also allocates the shadows */
int ls_replica_alloc_arenas(ls_replica *r, bool total_later, ls_error *err);
/* allocates and sets the tails of recorded gradients */
int ls_replica_make_tails(ls_replica *r, ls_error *err);
/* Binds the update ops of a sum to the arenas. Errors: those of the back end. */
int ls_replica_bind_updates(ls_replica *r, ls_sum sum, ls_error *err);
/* Destroys all update ops. */
void ls_replica_destroy_updates(ls_replica *r);
/* Returns whether whole steps may leave gradients in their shadows: only if
 * one op reads them all. */
bool ls_replica_leaves_shadows(const ls_replica *r);

/* ---- replica_pieces.c ----------------------------------------------------------------------- */

/* Destroys the ops of updates by pieces. */
void ls_replica_destroy_pieces(ls_replica *r);

/* ---- replica_step.c ------------------------------------------------------------------------- */

/* ls_replica_stage_rows checks the rows of `calls` calls of n rows each and copies
 * them to where the gather ops read them. ls_replica_staged returns that address for
 * the row with index `done`. */
int ls_replica_stage_rows(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                          uint32_t calls, ls_error *err);
const uint32_t *ls_replica_staged(const ls_replica *r, uint32_t done);

/* Sets the arguments of an update. */
void ls_replica_set_step(ls_step_args *args, const ls_replica_step *step);

/* Runs every op once, then records each plan's gradient and the update from the total. Everything
 * must have been bound. Weights and slots are zero and stay zero. */
int ls_replica_record(ls_replica *r, ls_error *err);

#endif
