/* SPDX-License-Identifier: MIT */
/* Internals of a replica, for the files that create it and run it. replica.h and plan.h explain the
 * terms.
 *
 *     replica.c         creates the replica and its data, and describes it
 *     replica_arenas.c  layout of the arenas, ops that update them, import and export of weights
 *     replica_step.c    training: stages rows for the device; records and runs programs
 *     replica_pieces.c  updates whose sum is computed piece by piece
 *     replica_infer.c   inference
 *
 * A *program* is a list of segments. A *segment* (ls_segment in plan.h) is a sequence of ops. It
 * names the nodes whose backward pass it runs, the other parts of a step that it runs, and the
 * number of floats of the gradient that are complete after it. The ops of a segment are enqueued
 * one by one or, if the segment has been recorded, by launching its recording. All ways to run a
 * step are programs, and one function runs all programs:
 *
 *     LS_GRADIENT            one segment: the whole gradient of a shard       ls_replica_gradient
 *     LS_GRADIENT_BY_BUCKETS a segment for each bucket; after each of them    ls_replica_gradient,
 *                            but the last, the function `ready` is called     ls_replica_on_ready
 *     LS_STEP                one segment: the gradient and the update from    ls_replica_run_
 *                            it, which also copies the loss to the host       whole_steps
 *     LS_STEPS               one segment: LS_UNROLLED such steps              the same
 *     apply                  one segment, which belongs to the replica and    ls_replica_apply
 *                            to no plan: the update from the total
 *
 * All programs are made when the replica is created, because they depend only on the model and on
 * the layouts. Programs are recorded at different times, because the group (merge/group.h) decides
 * which programs are needed. LS_GRADIENT and `apply` are recorded when the replica is created,
 * LS_GRADIENT_BY_BUCKETS when the caller sets `ready`, and LS_STEP and LS_STEPS by
 * ls_replica_record_whole_steps. All segments of a program are recorded, or none. Without
 * recordings, gradients run op by op, and whole steps are not available. Recordings do not depend
 * on the ranks of the group, so they are used again after a change of the group, and only missing
 * recordings are made. Recordings are destroyed with the plan. */
#ifndef NN_REPLICA_IMPL_H
#define NN_REPLICA_IMPL_H

#include "nn/plan.h"

#include <stdbool.h>

/* The arenas, in the order in which they are allocated. */
typedef enum ls_arena { WEIGHTS, GRADIENT, TOTAL, SLOT, ARENAS = SLOT + LS_STATES } ls_arena;

/* The arena that an update reads: the total, or (in whole steps) the gradient. */
typedef enum ls_sum { OF_TOTAL, OF_GRADIENT, SUMS } ls_sum;
typedef struct ls_update {
    ls_op *op;
    unsigned flags; /* flags with which the op runs */
    size_t at;      /* first float of the range of the arenas that the op updates */
} ls_update;
typedef struct ls_updates {
    ls_update *list; /* [count] in the order in which they run; NULL: not created */
    int count;
} ls_updates;

/* The update by pieces of one range of the arenas. */
typedef struct ls_piece_update {
    /* [0]: op for a piece of full length; [1]: op for the shorter last piece; NULL: there is no
     * such piece */
    ls_op *op[2];
    size_t at, end; /* the range: floats at … end − 1 */
} ls_piece_update;

enum { LS_ALLOCATIONS = 32 /* capacity of `allocation` */ };

struct ls_replica {
    ls_device *device;
    const ls_network *model;
    const ls_optimizer *optimizer; /* NULL: never trained */
    const ls_host *host;
    ls_device_info info;
    ls_heartbeat *heartbeat; /* NULL: none */
    ls_step_args args;       /* values that change from step to step, which ops read */

    /* [plans] the first plan is the largest plan that trains; its ops define the layouts of the
     * parameters */
    ls_plan **plan;
    int plans;                /* number of plans */
    ls_updates updates[SUMS]; /* update ops by the arena that they read */
    size_t update_scratch;    /* largest scratch size of an update op in bytes */
    ls_piece_update *pieces;  /* [piece_updates] updates by pieces; NULL: not prepared */
    int piece_updates;        /* number of entries of `pieces` */
    float *piece;             /* memory for one piece of the sum */
    /* [LS_CLIP_FLOATS] on the device, working memory of gradient clipping; NULL: gradients are not
     * clipped */
    float *clip;
    ls_updates unread; /* ops that sum the digest of what no update reads */
    bool digests;      /* updates sum the digest */
    /* total of the sums of all updates, and the total before the last update */
    uint64_t digest, digest_before;
    /* the total on the device, which is copied to `digest` after each update; NULL: updates add to
     * `digest` */
    uint64_t *device_digest;
    ls_segment apply; /* segment of ls_replica_apply, which belongs to no plan */
    float *skip;      /* one float on the device; if it is not 0, updates change nothing */
    float *row_tails; /* [plans][LS_TAIL] on the device: the constant tail of each plan */
    /* [layer · LS_OP_PARAMS + k]: offset in floats of parameter k of a layer in every arena */
    size_t *param_at;
    size_t *stat_at; /* [layer]: offset in floats of its running statistics in every arena */
    /* [param_begins + 1] ascending offsets in floats: of each parameter, of the tail, and of the
     * end of the arena */
    size_t *param_begin;
    int param_begins;   /* number of parameters, plus one for the tail */
    float *rate_of;     /* [param_begins] factor of the learning rate of each parameter */
    ls_buckets buckets; /* buckets of an arena */
    ls_ready_fn *ready; /* called after each bucket; NULL: gradients are not computed by buckets */
    void *ready_user;
    /* Fields of whole steps. */
    /* [LS_RESULT_SLOTS][LS_UNROLLED][LS_TAIL] result slots, in pinned host memory; NULL: whole
     * steps are not recorded */
    float *arrived;
    /* events that are reached when the steps of a result slot are done */
    ls_event *arrival[LS_RESULT_SLOTS];
    ls_step_args step_args[LS_UNROLLED]; /* arguments of the steps that are being enqueued */

    /* ls_replica_promise_same_weights was called; the next ls_replica_gradient clears it */
    bool promises_same_weights;
    /* the last ls_replica_gradient succeeded, so the data that ops have derived (computed) from the
     * weights and kept belong to the weights of that call */
    bool derived;

    size_t tail_at; /* offset of the tail, after the parameters, in floats */
    size_t floats;  /* length of an arena in floats */
    float *arena[ARENAS];
    float *own_gradient; /* the gradient arena that the replica has allocated */
    /* the total arena that the replica has allocated; NULL: none */
    float *own_total;
    char *shadow, *shadow_grad; /* shadows of the parameters and of their gradients
                                   (<lockstep/sys/plugin.h>); NULL: none */
    /* bit mask on the device: the gradients that whole steps write to their shadows only */
    uint32_t *in_shadow;
    char *activations;
    void *scratch;
    float *test_stats;   /* on the device: loss and number of correct rows of an evaluation */
    float *class_weight; /* on the device; NULL: none */
    /* copies of the data on the device; NULL: the device reads host memory */
    void *images[LS_SUBSETS], *labels[LS_SUBSETS], *row_weights[LS_SUBSETS];
    size_t image_bytes, label_bytes; /* size of a row in bytes */
    /* the data with the pointers from which the device reads */
    ls_replica_data data[LS_SUBSETS];
    /* the data, with the pointers that the caller has passed */
    ls_replica_data host_data[LS_SUBSETS];
    uint32_t *device_rows; /* NULL: the device reads staged_rows */

    uint32_t most_rows;    /* largest number of rows of one call */
    uint32_t *staged_rows; /* [most_rows · ls_replica_most_calls()] */
    /* The tail while it is copied to or from the device. It is a member of this struct because the
     * copy can end after the function that enqueues it has returned. */
    float staged_tail[LS_TAIL];
    void *allocation[LS_ALLOCATIONS]; /* all device memory; freed with the replica */
    int allocations;
    ls_replica_memory memory;
};

/* ---- replica.c ------------------------------------------------------------------------------ */

/* Writes the error that host memory ran out, and returns LS_ENOMEM. */
int ls_replica_no_memory(ls_error *err);
/* Allocates zeroed device memory and adds its size to *use. If *status is an error already, returns
 * NULL and does nothing. If the allocation fails, returns NULL and sets *status. */
void *ls_replica_alloc(ls_replica *r, size_t bytes, size_t *use, int *status, ls_error *err);

/* Binds the plan again if it is bound to another gradient arena than the present one. (The other
 * arena belonged to the code that adds the gradients of several shards, and is possibly freed.)
 * Allocates nothing on a device that computes in host memory. */
int ls_replica_bind_again(ls_replica *r, ls_plan *plan, ls_error *err);

/* Returns the plan for exactly `rows` rows, or NULL. */
ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows);
/* Returns the number of rows in the block that begins at row `done` of a shard of n rows. */
uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done);
/* Returns the largest number of steps whose row indices can be staged at the same time:
 * LS_UNROLLED, or 1 if the device cannot record several steps. */
uint32_t ls_replica_most_calls(const ls_replica *r);

/* ---- replica_arenas.c, called after the plans have been created ------------------------------ */

/* A range of the arenas that one update op processes. The caller zeroes it before the first
 * search. */
typedef struct ls_arena_range {
    /* index of the parameter, or of the layer, at which the search for the next range begins */
    int next;
    size_t at, end;
    float rate, momentum;
} ls_arena_range;
/* Finds the next range of adjacent parameters that are not frozen and have the same learning-rate
 * factor. Returns false if there is no further range. */
bool ls_replica_next_params(ls_arena_range *s, const ls_replica *r);
/* Computes the offsets of all parameters and running statistics in the arenas. Errors: LS_ENOMEM.
 */
int ls_replica_lay_out(ls_replica *r, ls_error *err);
/* Creates the update ops that read the arena `sum`. Errors: those of the back end, LS_ENOMEM. */
int ls_replica_make_updates(ls_replica *r, ls_sum sum, ls_error *err);
/* Creates and binds the ops that sum the digest of what no update reads: frozen parameters, and
 * running statistics that do not change. Called when the arenas exist. Errors: those of the back
 * end, LS_ENOMEM. */
int ls_replica_make_unread(ls_replica *r, ls_error *err);
/* Returns the position in the digest of float `at` of the weights or of a slot. */
size_t ls_replica_digest_at(const ls_replica *r, ls_arena arena, size_t at);
/* Allocates the arenas and the shadows. `total_later`: allocates no total arena. Errors: LS_ENOMEM,
 * those of the back end. */
int ls_replica_alloc_arenas(ls_replica *r, bool total_later, ls_error *err);
/* Allocates `row_tails` and writes the constant tails, from which recordings copy. Errors:
 * LS_ENOMEM, those of the back end. */
int ls_replica_make_tails(ls_replica *r, ls_error *err);
/* Binds the update ops that read the arena `sum` to the arenas. Errors: those of the back end. */
int ls_replica_bind_updates(ls_replica *r, ls_sum sum, ls_error *err);
/* Destroys the ops of updates by pieces. */
void ls_replica_destroy_piece_updates(ls_replica *r);
/* Destroys all update ops. */
void ls_replica_destroy_updates(ls_replica *r);
/* Returns whether the update of whole steps can read gradients from their shadows
 * (<lockstep/sys/plugin.h>). This requires that one update op reads all gradients: no parameter is
 * frozen, all parameters have the same learning-rate factor, and gradients are not clipped. */
bool ls_replica_updates_read_shadows(const ls_replica *r);

/* ---- replica_step.c ------------------------------------------------------------------------- */

/* Checks the row indices of `calls` steps of n rows each, and copies the indices to the memory from
 * which the gather ops read them. */
int ls_replica_stage_rows(ls_replica *r, ls_subset subset, const uint32_t *rows, uint32_t n,
                          uint32_t calls, ls_error *err);
/* Returns the address of index number `done` in the memory that ls_replica_stage_rows fills. */
const uint32_t *ls_replica_staged(const ls_replica *r, uint32_t done);

/* Sets the arguments of an update. */
void ls_replica_set_step(ls_step_args *args, const ls_replica_step *step);
/* Begins the digest of an update, whose arguments have been set. */
void ls_replica_begin_digest(ls_replica *r);
/* Ends the digest of an update: adds what no update has read. If the device has the total, enqueues
 * its copy to the host, which arrives with the next wait for the device. */
int ls_replica_end_digest(ls_replica *r, ls_error *err);

/* Runs every op of training once, and then records the program LS_GRADIENT of each plan that
 * trains, and `apply`. All ops must have been bound. Weights and slots must be zero, so that the
 * ops that run leave them zero. */
int ls_replica_record(ls_replica *r, ls_error *err);

#endif
