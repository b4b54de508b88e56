/* The optimizer's recipe: what a step does to the weights. Immutable; replicas share it. */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "json/json.h"

#include <lockstep/sys/plugin.h>

#include <stdbool.h>

struct ls_fields;

typedef struct ls_optimizer_type ls_optimizer_type;

typedef struct ls_optimizer {
    const ls_optimizer_type *type;
    double lr;
    double clip_norm; /* most of the gradient's norm; 0: any */
    double ema;    /* of the weights' moving average, what a step leaves of it; 0: there is none */
    int slots;     /* arenas of state beside the weights, ≤ LS_OP_SLOTS */
    ls_op_desc op; /* the update, but for its `count` and `rate` */
} ls_optimizer;

/* A row of the table in optimizer.c. */
struct ls_optimizer_type {
    const char *name;              /* config key optimizer.name */
    const char *slot[LS_OP_SLOTS]; /* what a checkpoint calls them: PyTorch's names */
    /* Reads the optimizer's own keys (lr is read by the caller); sets slots and op. */
    void (*parse)(ls_optimizer *optimizer, struct ls_fields *fields);
    /* Writes its own keys, as parse reads them. */
    void (*write)(const ls_optimizer *optimizer, ls_json_writer *w);
};

/* Reads {"name": "sgd", "lr": 0.2, …}, the name being "sgd" unless given; lr is required. */
int ls_optimizer_parse(ls_optimizer *out, const ls_json *doc, const cJSON *node, ls_error *err);

/* What is kept beside the weights: the slots, and behind them the average where there is one. */
#define LS_STATES (LS_OP_SLOTS + 1)
int ls_optimizer_states(const ls_optimizer *optimizer);
/* What a checkpoint calls one of them. */
const char *ls_optimizer_state_name(const ls_optimizer *optimizer, int state);
/* The average's number, −1: there is none. */
int ls_optimizer_average(const ls_optimizer *optimizer);

/* Writes the optimizer as a member `key`, with all defaults filled in. */
void ls_optimizer_write(ls_json_writer *w, const char *key, const ls_optimizer *optimizer);

#endif
