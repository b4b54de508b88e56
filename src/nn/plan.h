/* SPDX-License-Identifier: MIT */
/* A plan: the ops that compute the model for a fixed number of rows, and the layout of their
 * memory.
 *
 *     ls_plan_create(&plan, &desc, err);          chooses kernels and layouts
 *     … allocate plan->activation_bytes, plan->scratch_bytes …
 *     ls_plan_bind(plan, &memory, err);           fixes every pointer
 *     ls_plan_gather(plan, LS_TRAIN, err);
 *     ls_plan_forward(plan, LS_TRAIN, 0, err);
 *     ls_plan_backward(plan, plan->nodes - 1, 0, 0, err);
 *
 * ls_op_desc in <lockstep/sys/plugin.h> describes an op, and defines its input x, its output y, and
 * their gradients dx and dy. The ops between the gather and the loss are the *nodes* of the plan.
 * The *gather* copies the rows of a minibatch from the data set, normalised, to the input tensor.
 * An *export* is an op that converts a tensor to row-major memory.
 *
 * The plans of a replica run one after another, so they share the memory for activations and
 * scratch. All functions are called on the device's worker thread. No function allocates after
 * ls_plan_bind.
 *
 * Forward runs the nodes in ascending order, backward in descending order. A tensor T is written by
 * one node, and can be read by several nodes (the *readers* of T). The gradient of T is the `dy` of
 * the node that writes T. This gradient is the sum of the `dx` of all readers of T. The reader with
 * the highest number comes first in the backward pass; its op writes `dx` directly to the gradient
 * of T. The op of each other reader writes `dx` to a buffer of its own, and the plan then adds this
 * buffer to the gradient of T. The order of additions is therefore always the same.
 *
 * Activations share memory: when no later op reads a buffer, its memory is used for another one
 * (ls_live_buffer). dy and dx of an op do not share memory, because the use is highest when
 * backward begins: from then on each node frees more memory than its gradients need. */
#ifndef NN_PLAN_H
#define NN_PLAN_H

#include "nn/loss.h"
#include "nn/replica.h"

#include <stdbool.h>

/* ---- fuse.c ---------------------------------------------------------------------------------
 *
 * Fusion: one op computes several neighbouring layers. A *form* is a list of layers that the plan
 * offers to the back end as one op. If the back end refuses a form, the plan offers the next
 * smaller form. The functions decide which forms are offered. Any thread; the functions cannot
 * fail. A layer without an op, such as flatten, computes nothing: a layer that reads the output of
 * a flatten layer reads the input of the flatten layer instead.
 *
 *     conv2d [+ relu] [+ pool]      dense + relu      batch_norm [+ add] [+ relu]      add + relu
 *
 * A layer is fused with the layer before it only if no third layer reads the output of the layer
 * before it. An add is fused with a batch_norm only if the add's other input is computed before the
 * batch_norm runs. */

#define LS_FUSE_FORMS 3

/* A form: the layers from `first` to `last`. Each layer but the first is the only reader of the
 * layer before it. */
typedef struct ls_fuse_form {
    int first, last;
    int relu, pool, add; /* indices of the fused layers, or −1 */
} ls_fuse_form;

/* Writes the forms that begin with layer `first` in the order in which they are offered, and
 * returns their number. The form with the largest number of layers comes first; the form that
 * contains only layer `first` comes last. Layer `first` must have an op. */
int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_network *model, int first);

/* Returns the description of the form's op. The fields x, x2, y_hint, twin, training and needs_dx
 * are zero; the caller sets them. */
ls_op_desc ls_fuse_desc(const ls_network *model, const ls_fuse_form *form);

/* Writes the one or two layers whose outputs the form's op reads; LS_INPUT stands for the gathered
 * rows. Returns their number. */
int ls_fuse_inputs(int out[LS_INPUTS], const ls_network *model, const ls_fuse_form *form);

/* Returns the layer whose op writes the output of `layer`: `layer` itself if it has an op,
 * otherwise the nearest layer before it that has an op. Returns LS_INPUT if there is no such
 * layer. */
int ls_fuse_producer(const ls_network *model, int layer);

/* Returns the first layer with an op that reads the output of `layer` (LS_INPUT: the gathered
 * rows), or −1 if only the loss reads that output. */
int ls_fuse_reader(const ls_network *model, int layer);

/* ---- plans ----------------------------------------------------------------------------------- */

/* The gradient of one input of a node, which the node's op writes as dx. */
typedef struct ls_node_dx {
    size_t at; /* byte offset in the activations */
    /* this gradient is added to the gradient of the input, because a node with a higher number has
     * written there before */
    bool add;
    float *sum;        /* if `add`: the gradient of the input; set by ls_plan_bind */
    const float *part; /* if `add`: the buffer that the op writes; set by ls_plan_bind */
    size_t count;      /* if `add`: number of floats to add */
} ls_node_dx;

/* One op between the gather and the loss. */
typedef struct ls_node {
    ls_op *op;
    /* the layers that the op computes; if form.first is −1, the op is an export of the model's
     * output for the loss */
    ls_fuse_form form;
    int inputs;           /* number of inputs */
    int input[LS_INPUTS]; /* nodes whose outputs the node reads; LS_INPUT: the gathered rows */
    bool learns; /* this node, or a node that it depends on, has parameters that are trained */
    /* the node runs in the backward pass: `learns` is set and the plan is for training */
    bool backward;
    bool needs_dx; /* the op computes dx: `backward` is set in a node that it depends on */
    ls_node_dx dx[LS_INPUTS];
    size_t y_at, dy_at, saved_at; /* byte offsets in the activations */
} ls_node;

/* A segment of a step. It consists of the parts whose bits are set in `parts`, in the order of
 * these constants, and of the backward pass of the nodes `first` down to `last`. The backward pass
 * runs after LS_PART_FORWARD and before the other parts. */
enum {
    LS_PART_FORWARD = 1, /* before the backward pass: gather, forward and loss */
    /* writes the floats of the gradient's tail that the loss op does not write */
    LS_PART_TAIL = 2,
    /* update that reads the gradient (one worker); it also copies the loss to the host */
    LS_PART_UPDATE = 4,
    LS_PART_APPLY = 8 /* update that reads the total (after a merge) */
};
typedef struct ls_segment {
    unsigned parts;
    int first, last;
    /* number of consecutive steps in the segment; a segment that runs op by op has 1 */
    int steps;
    /* the first `floats` floats of the gradient are complete after the segment */
    size_t floats;
    /* the captured ops, which one launch enqueues (a graph in CUDA); NULL: the segment runs op by
     * op */
    ls_recording *recording;
} ls_segment;

/* A program: segments that run one after another. */
typedef struct ls_program {
    ls_segment segment[LS_BUCKETS];
    int segments;
} ls_program;

/* The programs of a plan. */
enum {
    LS_GRADIENT,            /* the gradient of a shard, in one segment */
    LS_GRADIENT_BY_BUCKETS, /* the gradient of a shard, in one segment per bucket (merge/tree.h) */
    LS_STEP,                /* a whole step */
    LS_STEPS,               /* LS_UNROLLED whole steps */
    LS_PROGRAMS
};

typedef struct ls_plan {
    ls_device *device;
    const ls_network *model;
    const ls_host *host;
    int rows;                  /* number of rows that the ops compute */
    bool training;             /* the plan has a backward pass */
    bool constant;             /* the weights change only by imports, never by updates */
    ls_op_desc loss_desc;      /* description of the loss op; x is not set */
    int targets;               /* number of 4-byte words in a row's label or target */
    bool row_weights;          /* rows have weights, which the gather copies for the loss */
    ls_op *gather[LS_SUBSETS]; /* NULL: the subset is never used */
    ls_node *node;             /* [nodes] in the order of the forward pass */
    int nodes;                 /* number of nodes */
    int *node_of; /* [layer]: 1 + index of the node that computes the layer; 0: no node does */
    /* loss[LS_TRAIN] also computes the gradient of the logits; NULL if the plan is not for
     * training. loss[LS_TEST] computes the loss only. */
    ls_op *loss[LS_SUBSETS];
    /* op that converts the logits (the outputs of the model) to row-major memory for callers; NULL:
     * no caller reads the logits, or they are row-major already */
    ls_op *scores;
    /* byte offsets in the activations */
    size_t x_at, labels_at, weights_at, scores_at, loss_saved_at[LS_SUBSETS];
    size_t activation_bytes; /* size of the activations in bytes */
    size_t unshared_bytes;   /* size of the activations in bytes if buffers did not share memory */
    /* largest number of bytes in use at the same time; no layout needs less memory */
    size_t live_bytes;
    size_t scratch_bytes; /* size of the scratch memory that the ops share, in bytes */
    /* size in bytes of memory that the ops have allocated themselves (ls_op.kept_bytes) */
    size_t kept_bytes;
    /* The plan's programs (replica_impl.h). Their recordings are destroyed with the plan. */
    ls_program program[LS_PROGRAMS];
    /* [LS_TAIL] on the device: the tail of a gradient over this plan's number of rows. Recorded
     * programs copy the tail from here; NULL: no program is recorded */
    const float *tail;
    ls_heartbeat *heartbeat; /* NULL: none */
    const float *gradient;   /* the gradient arena to which the plan is bound */
} ls_plan;

typedef struct ls_plan_desc {
    ls_device *device;
    const ls_network *model;
    const ls_host *host;
    ls_gather normalisation; /* how the gather converts rows */
    int uses[LS_SUBSETS];    /* not 0: rows of this subset will be gathered */
    int rows;
    bool training;
    bool constant; /* the weights change only by imports, never by updates */
    /* plan of the same replica with another number of rows; NULL: none. Parameters must have the
     * same layouts in the twin and in the new plan */
    const ls_plan *twin;
    const ls_loss *loss;   /* NULL: cross-entropy */
    float smoothing;       /* label smoothing */
    ls_vector_loss vector; /* parameters of a loss of vectors; its rule is not used */
    bool weighted;         /* class_weight will be set in ls_plan_memory */
    bool row_weights;      /* row_weights will be set in ls_plan_memory */
    bool no_sharing;       /* every activation gets memory of its own */
    /* the logits that the loss reads must be row-major, because the caller reads them too */
    bool plain_logits;
    bool scores; /* ls_plan_scores will be called */
} ls_plan_desc;

/* The memory to which the plans of a replica are bound. */
typedef struct ls_plan_memory {
    const ls_step_args *args; /* values that change from step to step */
    const void *images[LS_SUBSETS], *labels[LS_SUBSETS];
    const float *row_weights[LS_SUBSETS]; /* weight of each row; NULL: 1 for all rows */
    char *activations;                    /* at least activation_bytes of the plan */
    void *scratch;                        /* at least scratch_bytes of the plan */
    float *weights, *gradient; /* arenas (replica.h); gradient NULL: the replica is never trained */
    /* [layer · LS_OP_PARAMS + k]: offset in floats of parameter k of a layer in `weights` and
     * `gradient` */
    const size_t *param_at;
    /* *shadows* of weights and gradient: second copies in the number type of the device's matrix
     * products (<lockstep/sys/plugin.h>); NULL: none */
    char *shadow, *shadow_grad;
    int shadow_bytes;
    /* [layer]: offset in floats of the layer's running statistics in `weights`. At the same offset
     * `gradient` has the contribution of the shard to these statistics. */
    const size_t *stat_at;
    float *stats[LS_SUBSETS]; /* LS_OP_STATS floats each: results of the two loss ops */
    /* [classes] factor of each class's rows in the loss, for both loss ops; NULL: 1 for all
     * classes */
    const float *class_weight;
    ls_heartbeat *heartbeat;
} ls_plan_memory;

/* Creates a plan. For each layer that no node computes yet, offers the back end the forms of
 * ls_fuse_forms until the back end accepts one. The caller destroys *out. Errors: those of the back
 * end; LS_EDEVICE if the back end's ops do not fit together; LS_ENOMEM. */
int ls_plan_create(ls_plan **out, const ls_plan_desc *desc, ls_error *err);
/* Destroys the plan, its ops and its recordings. NULL is allowed. */
void ls_plan_destroy(ls_plan *plan);

/* Binds all ops of the plan to `memory`. Further calls are allowed if the device has
 * LS_DEVICE_REBINDS. Errors: those of the back end. */
int ls_plan_bind(ls_plan *plan, const ls_plan_memory *memory, ls_error *err);

/* Enqueues the gather of the rows that memory.args names: writes the input tensor and the
 * labels. */
int ls_plan_gather(ls_plan *plan, ls_subset subset, ls_error *err);
/* Enqueues the nodes and then the op loss[loss]. With LS_TEST the ops run as in evaluation
 * (LS_RUN_EVALUATE), and no backward pass may follow. `flags` may contain LS_RUN_SAME, which is
 * passed to all ops, and LS_RUN_ACCUMULATE, which is passed to the loss op only. (Batch norm, the
 * other op that accumulates in forward, does not need it, because a model with batch norm computes
 * each shard in one pass.) */
int ls_plan_forward(ls_plan *plan, ls_subset loss, unsigned flags, ls_error *err);
/* Called after a forward pass. Enqueues the conversion of the logits [rows][classes] to row-major
 * memory, if they are not row-major. *at becomes the byte offset of the row-major logits in the
 * activations. */
int ls_plan_scores(size_t *at, ls_plan *plan, ls_error *err);
/* Enqueues the backward pass of the nodes `first` down to `last`. Does nothing if `first` is less
 * than `last`. */
int ls_plan_backward(ls_plan *plan, int first, int last, unsigned flags, ls_error *err);

/* Enqueues a recorded segment. `args`: [steps of the segment] arguments of each step. */
int ls_plan_launch(ls_plan *plan, ls_recording *recording, const ls_step_args *args, ls_error *err);
/* Destroys the recordings of the program. */
void ls_plan_drop_recordings(ls_plan *plan, int program);

/* ---- plan_memory.c, functions for plan.c ----------------------------------------------------- */

/* Returns the output tensor of node `k`; k = LS_INPUT: the output tensor of the gather. */
const ls_tensor *ls_plan_tensor(const ls_plan *plan, int k);
/* Returns the node whose output the loss reads; LS_INPUT: the loss reads the gathered rows. */
int ls_plan_output(const ls_plan *plan);
/* Computes the offset of every buffer in the activations. `share`: buffers may share memory.
 * Errors: LS_ENOMEM. */
int ls_plan_assign_offsets(ls_plan *plan, bool share, ls_error *err);

/* Writes the work that the place `place` in a heartbeat stands for, such as "backward of
 * conv2+relu". Returns 0 if the place does not belong to an op of this plan. */
int ls_plan_position_name(char *out, size_t size, const ls_plan *plan, int place);

/* Writes line `line` of the plan's description to `out`, at most `size` bytes with the zero byte.
 * Line 0 describes the gather, each further line a node, and the last line the loss. Returns 0 if
 * there is no such line. */
int ls_plan_line(char *out, size_t size, const ls_plan *plan, int line);

/* ---- plan_memory.c: memory for buffers that are not all needed at the same time ----------------
 *
 *     ls_live_buffer b[2] = {{.bytes = 100, .first = 0, .last = 3},
 *                            {.bytes = 80, .first = 4, .last = 6}};
 *     size_t bytes = ls_place_buffers(b, 2, true);  → 128: b[0].at and b[1].at are both 0
 *
 * Pure functions; any thread. */

/* One buffer. It is needed from time `first` to time `last` of a schedule, both included. The times
 * are numbers from 0. */
typedef struct ls_live_buffer {
    size_t bytes;
    int first, last;
    size_t at; /* result: byte offset, a multiple of LS_ALIGN; 0 if the buffer has no bytes */
    int next;  /* used by ls_place_buffers */
    bool placed;
} ls_live_buffer;

/* Sets `at` of every buffer and returns the total size in bytes, a multiple of LS_ALIGN. Buffers
 * are placed in the order of their sizes, the largest first. Each buffer is placed at the lowest
 * offset that is free from its time `first` to its time `last`. The same input always gives the
 * same offsets. If `share` is false, no two buffers share memory. The additions saturate, so that
 * the allocation of sizes that are too large fails. */
size_t ls_place_buffers(ls_live_buffer *buffer, int count, bool share);

/* Returns the largest number of bytes that are needed at the same time. No layout is smaller. */
size_t ls_live_bytes(const ls_live_buffer *buffer, int count);

#endif
