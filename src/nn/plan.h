/* A plan: the ops that take one number of rows through the model, and where their memory lies.
 *
 *     ls_plan_create(&plan, &desc, err);          chooses kernels and layouts
 *     … allocate plan->activation_bytes, plan->scratch_bytes …
 *     ls_plan_bind(plan, &memory, err);           fixes every pointer
 *     ls_plan_gather(plan, LS_TRAIN, err);
 *     ls_plan_forward(plan, LS_TRAIN, 0, err);
 *     ls_plan_backward(plan, 0, err);
 *
 * Plans of a replica run one after another, so they share activations and scratch. Everything is
 * called on the device's worker thread; nothing allocates after bind.
 *
 * The gradients of tensors live in two buffers that take turns: op k reads dy of its own output
 * from one and writes dx, which is dy of its input, to the other.
 */
#ifndef NN_PLAN_H
#define NN_PLAN_H

#include "nn/fuse.h"
#include "nn/replica.h"

/* One op; it reads what the node before it wrote, the first one the gathered rows. */
typedef struct ls_node {
    ls_op *op;
    ls_fuse_form form;      /* the layers it does; first −1: only makes a vector for the loss */
    int backward, needs_dx; /* whether backward is called; whether something before it learns */
    size_t y_at, saved_at;  /* offsets in the activations */
} ls_node;

typedef struct ls_plan {
    ls_device *device;
    const ls_model *model;
    const ls_host *host;
    int rows;
    int training;
    ls_op *gather[LS_SUBSETS]; /* NULL: the subset is never used */
    ls_node *node;
    int nodes;
    ls_op *loss[LS_SUBSETS]; /* LS_TRAIN: with gradient, NULL when never trained; LS_TEST: not */
    size_t x_at, labels_at, gradient_at[2], loss_saved_at[LS_SUBSETS];
    size_t activation_bytes, scratch_bytes;
} ls_plan;

typedef struct ls_plan_desc {
    ls_device *device;
    const ls_model *model;
    const ls_host *host;
    ls_gather normalisation;
    int uses[LS_SUBSETS]; /* non-zero: rows of this subset will be gathered */
    int rows;
    int training;
    const ls_plan *twin; /* a plan with other rows whose layouts of parameters are to be shared */
} ls_plan_desc;

/* What the plans of a replica are bound to. */
typedef struct ls_plan_memory {
    const ls_step_args *args;
    const uint8_t *images[LS_SUBSETS], *labels[LS_SUBSETS];
    char *activations;
    void *scratch;
    float *weights, *gradient; /* gradient NULL: never trained */
    const size_t *param_at;    /* [layer · LS_OP_PARAMS + k]: offset of a parameter in both */
    float *stats[LS_SUBSETS];  /* of the two loss ops */
} ls_plan_memory;

/* Tries each fused form the model offers, richest first. Errors: the back end's. */
int ls_plan_create(ls_plan **out, const ls_plan_desc *desc, ls_error *err);
void ls_plan_destroy(ls_plan *plan); /* NULL is allowed */

int ls_plan_bind(ls_plan *plan, const ls_plan_memory *memory, ls_error *err);

/* Rows named by args → x and labels. */
int ls_plan_gather(ls_plan *plan, ls_subset subset, ls_error *err);
/* x → logits, and the loss op `loss` on them; with LS_TEST the ops know that no backward follows.
 * `flags` go to the loss (LS_RUN_ACCUMULATE). */
int ls_plan_forward(ls_plan *plan, ls_subset loss, unsigned flags, ls_error *err);
int ls_plan_backward(ls_plan *plan, unsigned flags, ls_error *err);

/* For people: one line per op. Returns 0 past the last. */
int ls_plan_line(char *out, size_t size, const ls_plan *plan, int line);

#endif
