/* SPDX-License-Identifier: MIT */
/* The structures of predictions, for the files of this room alone. */
#ifndef MODEL_INFERENCE_H
#define MODEL_INFERENCE_H

#include "base/host.h"
#include "config/card.h"
#include "device/registry.h"
#include "model/model.h"
#include "model/outputs.h"
#include "pool/pool.h"

#include <pthread.h>
#include <stdatomic.h>

/* The state that a trainer and all models of its model share for predictions (model.h). */
struct ls_inference {
    atomic_uint references;
    /* number of models created so far; the id of a model is this number */
    atomic_ullong models;
    ls_network *model;
    ls_registry *own_registry;   /* registry that was created here; NULL: the caller's is used */
    const ls_registry *registry; /* the list of back ends that is used */
    ls_gather preprocessing;     /* normalisation of the input rows (ls_gather) */
    char device[80];             /* device of predictors, such as "cpu:1" or "cuda:0" */
    /* Contents of the model's card, the part of a model file that describes the model and how rows
     * are prepared (config/card.h). Zeroed: the model has none. */
    ls_card card;
    bool card_changes; /* the card changes while the trainer runs; models have their own copy */
    const ls_host *host;
    ls_fork_mark *mark;     /* says whether this process has inherited the object by fork */
    pthread_mutex_t lock;   /* protects `idle` */
    struct predictor *idle; /* list of the predictors that serve no caller at present */
};

struct ls_model {
    atomic_uint references;
    ls_inference *inference;
    uint64_t id, steps; /* number of the model, from 1; number of steps done before it */
    float *canonical;   /* [model->floats] the weights, in canonical layout (nn/network.h) */
    /* The model's card when the model was taken, as text and as contents, if the card changes;
     * NULL: they are those of the model. */
    char *card_text;
    ls_card *card;
};

/* Returns the card of a model. */
static inline const ls_card *ls_card_of_model(const ls_model *s)
{
    return s->card ? s->card : &s->inference->card;
}

/* ---- reference counting ------------------------------------------------------------------------
 *
 * Memory order. Only a thread that has a reference adds another reference, so the count cannot
 * reach 0 meanwhile, and an increment needs no order. All changes of the count are
 * read-modify-writes. Each decrement has release order, and heads a release sequence that all later
 * changes continue. The last decrement, which finds 1, also has acquire order. Take any earlier
 * decrement D: the value that the last decrement reads is from the release sequence that D heads,
 * so D synchronizes with the last decrement. Therefore everything that a thread did with the object
 * before it dropped its reference happens before the object is freed.
 */

static inline void ls_retain(atomic_uint *references)
{
    atomic_fetch_add_explicit(references, 1, memory_order_relaxed);
}

static inline bool ls_was_last(atomic_uint *references)
{
    return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

/* Returns the back end of a device; NULL: no back end has that name. `device` is written as in the
 * config's key `devices`, such as "cuda:0", or as an open device is called, such as "cuda(0)". */
const ls_backend *ls_inference_backend(const ls_registry *registry, const char *device);

/* Sets the device of predictors, in the form of the config's key `devices`, such as "cuda:3". Must
 * be called before the first model is created. */
int ls_inference_predict_on(ls_inference *i, const char *device, ls_error *err);

/* Type of rows that are prepared already, as in a dataset: bytes or floats, as the network reads.
 */
#define LS_ROWS_READY ((ls_row_type)100)

/* Does the work of ls_model_predict with checked arguments, on a predictor that serves no other
 * caller. Any thread. */
int ls_predictor_run(const ls_model *model, const void *rows, ls_row_type type, uint32_t n,
                     int form, void *outputs, ls_error *err);
/* Closes all predictors. None may serve a caller. */
void ls_predictors_close(ls_inference *i);

/* Returns the meaning of the model's outputs. */
ls_meaning ls_meaning_of_model(const ls_model *model);

/* Checks the form, the room and the stack for predictions of `n` rows in this process. Errors:
 * LS_EINVAL. */
int ls_model_check_call(const ls_model *model, const char *caller, uint32_t n, int form,
                        const void *outputs, size_t capacity, ls_error *err);

/* Fails with LS_EINVAL if a caller's buffer of `capacity` values is too small. */
int ls_check_capacity(size_t capacity, size_t needed, ls_error *err);

#endif
