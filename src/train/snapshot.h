/* Snapshots of a trainer, and what they share with it: inference, for whoever predicts (infer.h). */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "nn/model.h"

#include <lockstep/device_pool.h>
#include <lockstep/snapshot.h>

/* What a trainer and its snapshots share: the model, and predictors, which are lent to whoever predicts.
 * It is counted, and goes with the last of them. */
typedef struct ls_inference ls_inference;

/* Takes over `model`, also when it fails; `host` and `registry` outlive it. `registry` NULL: one of its own. Errors:
 * LS_ENOMEM. */
int ls_inference_create(ls_inference **out, ls_model *model, const ls_registry *registry,
                        const ls_gather *preprocessing, const ls_host *host, ls_error *err);
void ls_inference_release(ls_inference *inference); /* NULL is allowed */

const ls_registry *ls_inference_registry(const ls_inference *inference);

/* Whether this process got it by fork. Any thread. */
bool ls_inference_is_inherited(const ls_inference *inference);

/* The devices that predict are of this one's kind: "cuda(3)". Before the first snapshot. */
void ls_inference_like(ls_inference *inference, const char *device);

/* What a prediction needs of the calling thread's stack (train/calls.h has the others). */
#define LS_PREDICT_STACK_BYTES ((size_t)96 << 10)

/* A copy of the canonical weights after `steps` steps. Errors: LS_ENOMEM. */
int ls_snapshot_create(ls_snapshot **out, ls_inference *inference, const float *canonical,
                       uint64_t steps, ls_error *err);

#endif
