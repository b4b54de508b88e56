/* SPDX-License-Identifier: MIT */
/* Models (unchanging copies of a trainer's weights), and the state for predictions that a
 * trainer and its models share. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "nn/network.h"

#include <lockstep/device_pool.h>
#include <lockstep/model.h>

/* State that a trainer and its models share: the model and the *predictors*. A predictor is a
 * device with a replica for predictions, and serves one caller at a time. The state is reference
 * counted; the last release frees the state. */
typedef struct ls_inference ls_inference;

/* Creates the shared state with one reference. Takes ownership of `model`, even if the function
 * fails. `host` and `registry` (the list of back ends) must outlive the shared state. `registry`
 * NULL: the shared state creates a registry of its own. Errors: LS_ENOMEM, those of the registry
 * and of the model's card (config/card.h). */
int ls_inference_create(ls_inference **out, ls_network *model, const ls_registry *registry,
                        const ls_gather *preprocessing, const ls_host *host, ls_error *err);
/* Drops a reference. NULL is allowed. */
void ls_inference_release(ls_inference *inference);

/* Returns the registry of devices. */
const ls_registry *ls_inference_registry(const ls_inference *inference);

/* Returns whether the object was created in the parent process, before this process was forked. Any
 * thread. */
bool ls_inference_is_inherited(const ls_inference *inference);

/* Sets the kind of device for predictions to that of `device`, such as "cuda(3)". Must be called
 * before the first model. */
void ls_inference_use_kind_of(ls_inference *inference, const char *device);

/* Declares that the model's card changes, so that each model needs a copy of it. Must be called
 * before the first model. */
void ls_inference_expect_changes(ls_inference *inference);

/* Creates a model. `canonical`: the weights after `steps` steps, in canonical layout
 * (nn/network.h), which the function copies. Errors: LS_ENOMEM. */
int ls_model_create(ls_model **out, ls_inference *inference, const float *canonical, uint64_t steps,
                    ls_error *err);

#endif
