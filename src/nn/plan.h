/* A plan: the ops that compute the model for a fixed number of rows, and the
 * layout of their memory.
 *
 *     ls_plan_create(&plan, &desc, err);          chooses kernels and layouts
 *     … allocate plan->activation_bytes, plan->scratch_bytes …
 *     ls_plan_bind(plan, &memory, err);           fixes every pointer
 *     ls_plan_gather(plan, LS_TRAIN, err);
 *     ls_plan_forward(plan, LS_TRAIN, 0, err);
 *     ls_plan_backward(plan, plan->nodes - 1, 0, 0, err);
 *
 * The plans of a replica run one after another, so they share activations and scratch. All
 * functions are called on the device's worker thread. Nothing allocates after bind.
 *
 * Each op is a node of the plan. Forward runs the nodes in ascending order, backward in descending
 * order. If several nodes read a tensor, the gradient of the tensor is the sum of the gradients
 * (dx) that these nodes compute. The node with the highest number comes first in the backward pass
 * and writes its dx to the tensor's gradient (dy). Each of the other nodes writes its dx to a
 * buffer of its own, which is then added. The order of additions is therefore always the same.
 *
 * Activations share memory: when no later op reads a buffer, its memory is used for another one
 * (ls_live_buffer). Backward reads the outputs of forward, so most memory is in use when backward
 * begins. From then on backward frees more memory than its gradients need, so it would gain nothing
 * to let dy and dx of an op share memory. */
#ifndef NN_PLAN_H
#define NN_PLAN_H

#include "nn/loss.h"
#include "nn/replica.h"

#include <stdbool.h>

/* ---- fuse.c ---------------------------------------------------------------------------------
 *
 * Fusion: decides which neighbouring layers are offered to a back end as one op (a form). The back
 * end may refuse a form; then the next smaller one is tried. Any thread; these functions cannot
 * fail.
 *
 *     conv2d [+ relu] [+ pool]      dense + relu      batch_norm [+ add] [+ relu]      add + relu
 *
 * A layer is fused with the layer before it only if it is that layer's only reader. An add is fused
 * with a batch_norm only if its other input is computed before the batch_norm runs. */

#define LS_FUSE_FORMS 3

/* A chain of layers from `first` to `last`, each the only reader of the one
 * before, run as one op. */
typedef struct ls_fuse_form {
    int first, last;
    int relu, pool, add; /* indices of the fused layers, or −1 */
} ls_fuse_form;

/* Lists the forms that begin with layer `first`, which must have an op, in the order in which they
 * are tried: the form with the most layers first, the layer alone last. Returns their number. */
int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_model *model, int first);

/* Returns the layer's op description with the form's fused layers. x, x2, y_hint, twin, training
 * and needs_dx are left zero. */
ls_op_desc ls_fuse_desc(const ls_model *model, const ls_fuse_form *form);

/* Lists the one or two layers (or LS_INPUT) whose outputs the form's op reads.
 * Returns their number. */
int ls_fuse_inputs(int out[LS_INPUTS], const ls_model *model, const ls_fuse_form *form);

/* Returns the layer whose op wrote the tensor of `layer`: `layer` itself or, if it has no op, the
 * nearest one before it that has. Returns LS_INPUT if there is none. */
int ls_fuse_producer(const ls_model *model, int layer);

/* Returns the first layer with an op that reads the tensor of `layer` (or LS_INPUT); −1 if
 * only the loss reads it. */
int ls_fuse_reader(const ls_model *model, int layer);

/* ---- plans ----------------------------------------------------------------------------------- */

/* The gradient of one input of a node. */
typedef struct ls_node_dx {
    size_t at;         /* byte offset in the activations */
    bool add;          /* it must be added to the input's dy, because a node has written there */
    float *sum;        /* destination of the addition, set by bind */
    const float *part; /* source of the addition, set by bind */
    size_t count;      /* number of floats to add */
} ls_node_dx;

/* One op. */
typedef struct ls_node {
    ls_op *op;
    ls_fuse_form form; /* the layers it computes; first −1: an export for the loss */
    int inputs;
    int input[LS_INPUTS]; /* nodes whose y it reads; LS_INPUT: the gathered rows */
    bool learns;   /* this node, or one that it depends on, has parameters that are trained */
    bool backward; /* `learns`, and the plan is for training: backward is called */
    bool needs_dx; /* a node that it depends on has `backward` */
    ls_node_dx dx[LS_INPUTS];
    size_t y_at, dy_at, saved_at; /* byte offsets in the activations */
} ls_node;

/* A segment of a step: the backward pass of the nodes `first` down to `last`, and the parts that
 * the bits of `parts` name. They run in the order of these constants. The backward pass runs after
 * LS_PART_FORWARD and before the others. */
enum {
    LS_PART_FORWARD = 1, /* before the backward pass: gather, forward and loss */
    LS_PART_TAIL = 2,    /* writes the tail of the gradient, except what the loss op has written */
    LS_PART_UPDATE = 4,  /* update from the gradient; it also reports the loss to the host */
    LS_PART_APPLY = 8    /* update from the total */
};
typedef struct ls_segment {
    unsigned parts;
    int first, last;
    int steps;               /* number of consecutive steps; more than 1 only if recorded */
    size_t floats;           /* number of first floats of the gradient that are then complete */
    ls_recording *recording; /* NULL: the segment runs op by op */
} ls_segment;

/* Segments that run one after another. */
typedef struct ls_program {
    ls_segment segment[LS_BUCKETS];
    int segments;
} ls_program;

/* The programs of a plan. */
enum {
    LS_GRADIENT,            /* the gradient of a shard in one segment */
    LS_GRADIENT_BY_BUCKETS, /* the same, cut where a bucket is complete */
    LS_STEP,                /* a whole step */
    LS_STEPS,               /* LS_UNROLLED whole steps */
    LS_PROGRAMS
};

typedef struct ls_plan {
    ls_device *device;
    const ls_model *model;
    const ls_host *host;
    int rows;
    bool training;
    bool constant;             /* only imports write the weights */
    ls_op_desc loss_desc;      /* without x */
    int targets;               /* number of 4-byte words in a row's label or target */
    ls_op *gather[LS_SUBSETS]; /* NULL: the subset is never used */
    ls_node *node;
    int nodes;
    int *node_of; /* [layer]: 1 + index of the node that computes it; 0: none does */
    /* loss[LS_TRAIN] also computes the gradient and is NULL if the plan is not for training;
     * loss[LS_TEST] does not. */
    ls_op *loss[LS_SUBSETS];
    /* op that converts the logits to row-major; NULL: they are, or no caller reads them */
    ls_op *scores;
    size_t x_at, labels_at, scores_at, loss_saved_at[LS_SUBSETS];
    size_t activation_bytes; /* bytes of activations as planned */
    size_t unshared_bytes;   /* bytes if each buffer had memory of its own */
    size_t live_bytes;       /* most bytes in use at one time: a lower bound of any layout */
    size_t scratch_bytes;
    size_t kept_bytes; /* bytes that the ops have allocated themselves (ls_op.kept_bytes) */
    /* The replica's programs (replica_impl.h). Their recordings are destroyed with the plan. */
    ls_program program[LS_PROGRAMS];
    /* constant tail on the device, which recorded gradients copy; NULL: none is recorded */
    const float *tail;
    ls_heartbeat *heartbeat; /* NULL: none */
    const float *gradient;   /* the gradient arena to which the plan is bound */
} ls_plan;

typedef struct ls_plan_desc {
    ls_device *device;
    const ls_model *model;
    const ls_host *host;
    ls_gather normalisation;
    int uses[LS_SUBSETS]; /* non-zero: rows of this subset will be gathered */
    int rows;
    bool training;
    bool constant; /* only imports write the weights */
    /* plan with another number of rows that must have the same parameter layouts; NULL: none */
    const ls_plan *twin;
    const ls_loss *loss; /* NULL: cross-entropy */
    float smoothing;     /* label smoothing */
    bool weighted;       /* class_weight will be set in ls_plan_memory */
    bool no_sharing;     /* every activation gets memory of its own */
    bool plain_logits;   /* the logits must be row-major, because the caller reads them too */
    bool scores;         /* ls_plan_scores will be called */
} ls_plan_desc;

/* The memory to which the plans of a replica are bound. */
typedef struct ls_plan_memory {
    const ls_step_args *args;
    const void *images[LS_SUBSETS], *labels[LS_SUBSETS];
    char *activations;
    void *scratch;
    float *weights, *gradient; /* gradient NULL: never trained */
    /* [layer · LS_OP_PARAMS + k]: offset of a parameter in weights and gradient, in floats */
    const size_t *param_at;
    /* shadows of weights and gradient, shadow_bytes for a parameter; NULL: none */
    char *shadow, *shadow_grad;
    int shadow_bytes;
    /* [layer]: offset in floats of its running statistics in weights, and of its contribution
     * to them in gradient */
    const size_t *stat_at;
    float *stats[LS_SUBSETS]; /* sums of the two loss ops: LS_OP_STATS floats each */
    /* [classes], for both loss ops; NULL: all classes have the same weight */
    const float *class_weight;
    ls_heartbeat *heartbeat;
} ls_plan_memory;

/* Creates a plan. For each layer it offers the back end the forms of ls_fuse_forms until the back
 * end accepts one. The caller destroys *out. Errors: those of the back end; LS_EDEVICE if its ops
 * do not fit together; LS_ENOMEM. */
int ls_plan_create(ls_plan **out, const ls_plan_desc *desc, ls_error *err);
/* Destroys the plan, its ops and its recordings. NULL is allowed. */
void ls_plan_destroy(ls_plan *plan);

/* Binds all ops of the plan to `memory`. It may be called again if the device allows that
 * (LS_DEVICE_REBINDS). Errors: those of the back end. */
int ls_plan_bind(ls_plan *plan, const ls_plan_memory *memory, ls_error *err);

/* Enqueues the gather of the rows given by the args: writes x and the labels. */
int ls_plan_gather(ls_plan *plan, ls_subset subset, ls_error *err);
/* Enqueues the ops from x to the logits, then the loss op `loss`. With LS_TEST the ops run as in
 * evaluation (LS_RUN_EVALUATE), and no backward pass may follow. `flags` may contain
 * LS_RUN_ACCUMULATE, which is passed to the loss op only (ops of batch norm add up contributions as
 * well, but plans with batch norm always compute whole shards at once), and LS_RUN_SAME, which is
 * passed to all ops. */
int ls_plan_forward(ls_plan *plan, ls_subset loss, unsigned flags, ls_error *err);
/* Called after a forward pass: makes the logits [rows][classes] row-major. *at becomes their byte
 * offset in the activations. */
int ls_plan_scores(size_t *at, ls_plan *plan, ls_error *err);
/* Enqueues the backward pass of nodes `first` down to `last`; does nothing if `first`
 * is less than `last`. */
int ls_plan_backward(ls_plan *plan, int first, int last, unsigned flags, ls_error *err);

/* Enqueues a recorded segment. `args`: one entry for each step of the segment. */
int ls_plan_launch(ls_plan *plan, ls_recording *recording, const ls_step_args *args, ls_error *err);
/* Destroys the recordings of the program. */
void ls_plan_drop_recordings(ls_plan *plan, int program);

/* ---- plan_memory.c, functions for plan.c ----------------------------------------------------- */

/* Returns the output tensor of node `k`; LS_INPUT: that of the gather. */
const ls_tensor *ls_plan_tensor(const ls_plan *plan, int k);
/* Returns the node whose output the loss reads, or LS_INPUT. */
int ls_plan_output(const ls_plan *plan);
/* Gives every buffer its offset. `share`: buffers may share memory. Errors: LS_ENOMEM. */
int ls_plan_place(ls_plan *plan, bool share, ls_error *err);

/* Writes the name of the op to which the heartbeat's position `place` belongs, such as "backward of
 * conv2+relu". Returns 0 if it belongs to no op of this plan. */
int ls_plan_place_text(char *out, size_t size, const ls_plan *plan, int place);

/* Writes the description of an op, one line of `size` bytes. Returns 0 past the last line. */
int ls_plan_line(char *out, size_t size, const ls_plan *plan, int line);

/* ---- plan_memory.c: memory for buffers that are not all needed at the same time ----------------
 *
 *     ls_live_buffer b[2] = {{.bytes = 100, .first = 0, .last = 3},
 *                            {.bytes = 80, .first = 4, .last = 6}};
 *     size_t bytes = ls_place_buffers(b, 2, true);  → 128: b[0].at and b[1].at are both 0
 *
 * Pure functions; any thread. */

/* One buffer, which is needed from time `first` to time `last` of a schedule, both included. */
typedef struct ls_live_buffer {
    size_t bytes;
    int first, last;
    size_t at; /* byte offset, a multiple of LS_ALIGN; 0 if the buffer has no bytes */
    int next;  /* used by ls_place_buffers */
    bool placed;
} ls_live_buffer;

/* Sets `at` of every buffer and returns the total size in bytes, a multiple of LS_ALIGN. The
 * largest buffer is placed first, each at the lowest offset that is free during its time. The
 * same input always gives the same offsets. If `share` is false, every buffer gets memory of
 * its own. Sizes larger than the memory of any machine give a sum that no allocation can
 * satisfy; no sum overflows. */
size_t ls_place_buffers(ls_live_buffer *buffer, int count, bool share);

/* Returns the most bytes that are needed at one time, a lower bound of the size of any layout. */
size_t ls_live_bytes(const ls_live_buffer *buffer, int count);

#endif
