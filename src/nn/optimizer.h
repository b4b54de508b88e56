/* SPDX-License-Identifier: MIT */
/* The configuration of the optimizer: how a step changes the weights. It does not change after
 * parsing, and all replicas share it. */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "json/json.h"

#include <lockstep/sys/plugin.h>

#include <stdbool.h>

struct ls_fields;

typedef struct ls_optimizer_type ls_optimizer_type;

typedef struct ls_optimizer {
    const ls_optimizer_type *type;
    double lr; /* learning rate in the config; the schedule computes each step's rate from it */
    /* largest norm of a gradient; a gradient with a larger norm is scaled down to this norm; 0: no
     * limit */
    double clip_norm;
    /* Decay of the moving average of the weights: the fraction of the average that a step keeps,
     * from 0 to 1. 0: the optimizer keeps no average. The config parser reads it from the config's
     * own key `ema` (config/config_rows.c), not ls_optimizer_parse. */
    double ema;
    int slots;     /* number of state arenas (arrays with one number per weight, replica.h), at most
                    * LS_OP_SLOTS; the moving average is not counted */
    ls_op_desc op; /* description of the op that updates the weights. The replica copies it for
                    * each range of weights, and sets `count` and `rate` in the copy */
} ls_optimizer;

/* A row of the table in optimizer.c. */
struct ls_optimizer_type {
    const char *name;              /* config key optimizer.name */
    const char *slot[LS_OP_SLOTS]; /* names of the state arenas in checkpoints, the same names as in
                                    * PyTorch */
    /* Reads the keys that only this optimizer has, and sets `slots` and `op`. ls_optimizer_parse
     * has read the other keys ("name", "lr" and "clip_norm") before it calls this function. */
    void (*parse)(ls_optimizer *optimizer, struct ls_fields *fields);
    /* Writes the keys that only this optimizer has, in the form that `parse` reads. */
    void (*write)(const ls_optimizer *optimizer, ls_json_writer *w);
};

/* Reads {"name": "sgd", "lr": 0.2, …}. The name defaults to "sgd"; lr is required.
 * Errors: LS_ECONFIG. */
int ls_optimizer_parse(ls_optimizer *out, const ls_json *doc, const cJSON *node, ls_error *err);

/* largest number of state arenas of any optimizer, the moving average included */
#define LS_STATES (LS_OP_SLOTS + 1)
/* Returns the number of all state arenas: optimizer->slots, plus one if the optimizer keeps a
 * moving average of the weights. The arena of the average comes after the others. */
int ls_optimizer_states(const ls_optimizer *optimizer);
/* Returns the name of a state arena in checkpoints. */
const char *ls_optimizer_state_name(const ls_optimizer *optimizer, int state);
/* Returns the index of the moving average among the state arenas; −1: the optimizer keeps no
 * average. */
int ls_optimizer_average(const ls_optimizer *optimizer);

/* Writes the optimizer as a member `key`, with all defaults filled in. */
void ls_optimizer_write(ls_json_writer *w, const char *key, const ls_optimizer *optimizer);

#endif
