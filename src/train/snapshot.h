/* Snapshots of a trainer, and the inference state that a trainer and its snapshots share
 * (infer.h). */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "nn/model.h"

#include <lockstep/device_pool.h>
#include <lockstep/snapshot.h>

/* State that a trainer and its snapshots share: the model and the predictors. A predictor is a
 * device with a replica, and serves one caller at a time. The state is reference counted; the last
 * release frees it. */
typedef struct ls_inference ls_inference;

/* Creates the shared state with one reference. Takes ownership of `model`, also after an error.
 * `host` and `registry` must outlive the shared state. `registry` NULL: the shared state creates a
 * registry of its own. Errors: LS_ENOMEM, those of the registry and of the model's card. */
int ls_inference_create(ls_inference **out, ls_model *model, const ls_registry *registry,
                        const ls_gather *preprocessing, const ls_host *host, ls_error *err);
/* Drops a reference. NULL is allowed. */
void ls_inference_release(ls_inference *inference);

/* Returns the registry of devices. */
const ls_registry *ls_inference_registry(const ls_inference *inference);

/* Returns whether this process inherited the object by fork. Any thread. */
bool ls_inference_is_inherited(const ls_inference *inference);

/* Sets the kind of device for predictions to that of `device`, such as "cuda(3)". Must be called
 * before the first snapshot. */
void ls_inference_use_kind_of(ls_inference *inference, const char *device);

/* Free stack in bytes that the calling thread needs for a prediction. train/calls.h has the sizes
 * for other calls. */
#define LS_PREDICT_STACK_BYTES ((size_t)96 << 10)

/* Creates a snapshot: a copy of the canonical weights after `steps` steps. Errors: LS_ENOMEM. */
int ls_snapshot_create(ls_snapshot **out, ls_inference *inference, const float *canonical,
                       uint64_t steps, ls_error *err);

#endif
