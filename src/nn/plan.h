/* A plan: the ops that take one number of rows through the model, and where their memory lies.
 *
 *     ls_plan_create(&plan, &desc, err);          chooses kernels and layouts
 *     … allocate plan->activation_bytes, plan->scratch_bytes …
 *     ls_plan_bind(plan, &memory, err);           fixes every pointer
 *     ls_plan_gather(plan, LS_TRAIN, err);
 *     ls_plan_forward(plan, LS_TRAIN, 0, err);
 *     ls_plan_backward(plan, plan->nodes - 1, 0, 0, err);
 *
 * Plans of a replica run one after another, so they share activations and scratch. Everything is
 * called on the device's worker thread; nothing allocates after bind.
 *
 * Nodes run in the order of their numbers and backwards in reverse. The gradient of a tensor that
 * several nodes read is the sum of what they write: the last node's dx goes where dy is read, each
 * earlier one's into a buffer of its own, which is then added, so that the order is always the same.
 *
 * Activations are planned: a buffer's place is free again once no op will read it (ls_live_buffer).
 * Backward reads the outputs of forward, so the peak is at its beginning; what it frees on its way
 * is always more than the gradients it makes, and sharing dy with dx would gain nothing.
 */
#ifndef NN_PLAN_H
#define NN_PLAN_H

#include "nn/loss.h"
#include "nn/replica.h"

#include <stdbool.h>

/* ---- fuse.c ---------------------------------------------------------------------------------
 * Which neighbouring layers may be offered to a back end as one op. Any thread; never fails.
 *
 *     conv2d [+ relu] [+ pool]      dense + relu      batch_norm [+ add] [+ relu]      add + relu
 *
 * A layer is drawn into the op of the one before it only when it alone reads that one's output.
 * An add joins a batch_norm when its other input is there before the batch_norm runs.
 */

#define LS_FUSE_FORMS 3

/* Layers `first`, its only reader, that one's only reader … up to `last`, done by one op. */
typedef struct ls_fuse_form {
    int first, last;
    int relu, pool, add; /* layers, or −1 */
} ls_fuse_form;

/* The forms in which the op of layer `first` (which has one) may be tried, the richest first and
 * the layer alone last. Returns how many there are. */
int ls_fuse_forms(ls_fuse_form out[LS_FUSE_FORMS], const ls_model *model, int first);

/* The layer's op description with what the form fuses. x, x2, y_hint, twin, training and needs_dx
 * are left zero. */
ls_op_desc ls_fuse_desc(const ls_model *model, const ls_fuse_form *form);

/* The layers (or LS_INPUT) whose outputs the form's op reads: one, or two. Returns how many. */
int ls_fuse_inputs(int out[LS_INPUTS], const ls_model *model, const ls_fuse_form *form);

/* The layer that made the tensor in which a layer's output lies: the layer itself, or, behind layers
 * without an op, the one before them. LS_INPUT stays. */
int ls_fuse_producer(const ls_model *model, int layer);

/* The first layer with an op that reads what `layer` made (or LS_INPUT), −1 when only the loss
 * does. */
int ls_fuse_reader(const ls_model *model, int layer);

/* ---- a plan --------------------------------------------------------------------------------- */

/* The gradient of one of a node's inputs. */
typedef struct ls_node_dx {
    size_t at;  /* offset in the activations */
    bool add;   /* to be added to the input's dy, which a later node has begun */
    float *sum; /* the two, once bound */
    const float *part;
    size_t count;
} ls_node_dx;

/* One op. */
typedef struct ls_node {
    ls_op *op;
    ls_fuse_form form; /* the layers it does; first −1: only makes a vector for the loss */
    int inputs;
    int input[LS_INPUTS]; /* the nodes whose y it reads, LS_INPUT: the gathered rows */
    bool learns;          /* whether it or something before it does, when the model is trained */
    bool backward;        /* whether backward is called: it learns, and the plan is for training */
    bool needs_dx;        /* whether something before it learns */
    ls_node_dx dx[LS_INPUTS];
    size_t y_at, dy_at, saved_at; /* offsets in the activations */
} ls_node;

/* A stretch of a step: of the backward pass the nodes from `first` down to `last`, and what else its
 * parts say, in their order. */
enum {
    LS_PART_FORWARD = 1, /* before the nodes: gather, forward and loss */
    LS_PART_TAIL = 2,    /* the gradient's tail, but for what the loss op has put there */
    LS_PART_UPDATE = 4,  /* the update from the gradient, which tells the host of the loss */
    LS_PART_APPLY = 8    /* the update from the total */
};
typedef struct ls_segment {
    unsigned parts;
    int first, last;
    int steps;               /* so often, one step after another; more than 1 only if recorded */
    size_t floats;           /* so many of the gradient's first are complete behind it */
    ls_recording *recording; /* NULL: it runs op by op */
} ls_segment;

/* Segments that run one after another. */
typedef struct ls_program {
    ls_segment segment[LS_BUCKETS];
    int segments;
} ls_program;

/* What a plan's rows can be run as. */
enum {
    LS_GRADIENT,            /* a shard's gradient in one segment */
    LS_GRADIENT_BY_BUCKETS, /* cut where a bucket is complete */
    LS_STEP,                /* a whole step */
    LS_STEPS,               /* LS_UNROLLED of them */
    LS_PROGRAMS
};

typedef struct ls_plan {
    ls_device *device;
    const ls_model *model;
    const ls_host *host;
    int rows;
    bool training;
    bool constant;             /* the weights are those that were imported */
    ls_op_desc loss_desc;      /* but for x */
    int targets;               /* 4-byte words of a row's label or target */
    ls_op *gather[LS_SUBSETS]; /* NULL: the subset is never used */
    ls_node *node;
    int nodes;
    int *node_of;            /* of each layer: 1 + the node that does it; 0: none does */
    ls_op *loss[LS_SUBSETS]; /* LS_TRAIN: with gradient, NULL when never trained; LS_TEST: not */
    ls_op *scores;           /* what the loss reads, row-major; NULL: it is, or nobody asks */
    size_t x_at, labels_at, scores_at, loss_saved_at[LS_SUBSETS];
    size_t activation_bytes; /* as planned */
    size_t unshared_bytes;   /* if each buffer had memory of its own */
    size_t live_bytes;       /* the most in use at one time: no plan could do with less */
    size_t scratch_bytes;
    /* The replica's (replica_impl.h), whose recordings are destroyed with the plan. */
    ls_program program[LS_PROGRAMS];
    const float *tail;       /* of the gradients that are recorded, on the device; NULL: none is */
    ls_heartbeat *heartbeat; /* NULL: none */
    const float *gradient;   /* it is bound to */
} ls_plan;

typedef struct ls_plan_desc {
    ls_device *device;
    const ls_model *model;
    const ls_host *host;
    ls_gather normalisation;
    int uses[LS_SUBSETS]; /* non-zero: rows of this subset will be gathered */
    int rows;
    bool training;
    bool constant;       /* nothing but imports write the weights */
    const ls_plan *twin; /* a plan with other rows whose layouts of parameters are to be shared */
    const ls_loss *loss; /* NULL: cross-entropy */
    float smoothing;     /* of labels */
    bool weighted;       /* the memory has class_weight */
    bool no_sharing;     /* every activation gets memory of its own */
    bool plain_logits;   /* what the loss reads is row-major, for the caller to read too */
    bool scores;         /* ls_plan_scores will be called */
} ls_plan_desc;

/* What the plans of a replica are bound to. */
typedef struct ls_plan_memory {
    const ls_step_args *args;
    const void *images[LS_SUBSETS], *labels[LS_SUBSETS];
    char *activations;
    void *scratch;
    float *weights, *gradient;  /* gradient NULL: never trained */
    const size_t *param_at;     /* [layer · LS_OP_PARAMS + k]: offset of a parameter in both */
    char *shadow, *shadow_grad; /* of both, shadow_bytes for a parameter; NULL: there are none */
    int shadow_bytes;
    const size_t *stat_at;     /* [layer]: of its running statistics in weights, and of its
                                  contribution to them in gradient */
    float *stats[LS_SUBSETS];  /* of the two loss ops */
    const float *class_weight; /* of both; NULL: classes count alike */
    ls_heartbeat *heartbeat;
} ls_plan_memory;

/* Tries each fused form the model offers, richest first. Errors: the back end's. */
int ls_plan_create(ls_plan **out, const ls_plan_desc *desc, ls_error *err);
void ls_plan_destroy(ls_plan *plan); /* NULL is allowed */

int ls_plan_bind(ls_plan *plan, const ls_plan_memory *memory, ls_error *err);

/* Rows named by args → x and labels. */
int ls_plan_gather(ls_plan *plan, ls_subset subset, ls_error *err);
/* x → logits, and the loss op `loss` on them; with LS_TEST the ops know that no backward follows.
 * `flags` go to the loss (LS_RUN_ACCUMULATE): plans of models with batch norm are whole shards. */
int ls_plan_forward(ls_plan *plan, ls_subset loss, unsigned flags, ls_error *err);
/* Behind a forward: what the loss has read, [rows][classes]. → where it lies in the activations. */
int ls_plan_scores(size_t *at, ls_plan *plan, ls_error *err);
/* Of nodes `first` down to `last`; none where `first` is the lower number. */
int ls_plan_backward(ls_plan *plan, int first, int last, unsigned flags, ls_error *err);

/* Enqueues what was recorded of a segment, with the args of each of its steps. */
int ls_plan_launch(ls_plan *plan, ls_recording *recording, const ls_step_args *args, ls_error *err);
/* The segments of the program have no recordings any more. */
void ls_plan_drop_recordings(ls_plan *plan, int program);

/* ---- plan_memory.c, for plan.c -------------------------------------------------------------- */

/* The y of node `k`, LS_INPUT: of the gather. */
const ls_tensor *ls_plan_tensor(const ls_plan *plan, int k);
/* The node whose y the loss reads, or LS_INPUT. */
int ls_plan_output(const ls_plan *plan);
/* Gives every buffer its place. Errors: LS_ENOMEM. */
int ls_plan_place(ls_plan *plan, bool share, ls_error *err);

/* For people: the op that beat with `place`, "backward of conv2+relu". Returns 0 when none did. */
int ls_plan_place_text(char *out, size_t size, const ls_plan *plan, int place);

/* For people: one line per op. Returns 0 past the last. */
int ls_plan_line(char *out, size_t size, const ls_plan *plan, int line);

/* ---- plan_memory.c: sharing memory between buffers that are never needed at the same time ------
 *
 *     ls_live_buffer b[2] = {{.bytes = 100, .first = 0, .last = 3}, {.bytes = 80, .first = 4, .last = 6}};
 *     size_t bytes = ls_place_buffers(b, 2, true);  → 128: b[0].at and b[1].at are both 0
 *
 * Pure; any thread. */

/* One buffer: needed from time `first` to time `last` of a schedule, both included. */
typedef struct ls_live_buffer {
    size_t bytes;
    int first, last;
    size_t at; /* its place, a multiple of LS_ALIGN; 0 when it has no bytes */
    int next;  /* used while placing */
    bool placed;
} ls_live_buffer;

/* Sets `at` of every buffer and returns the bytes of all together, a multiple of LS_ALIGN. The
 * largest is placed first, each at the lowest place that is free while it is needed. The same input
 * always gives the same places. `share` false: every buffer gets memory of its own. Sizes beyond what
 * any machine has give a sum that no allocation can satisfy; nothing wraps around. */
size_t ls_place_buffers(ls_live_buffer *buffer, int count, bool share);

/* The most bytes that are needed at one time: no placing can do with less. */
size_t ls_live_bytes(const ls_live_buffer *buffer, int count);

#endif
