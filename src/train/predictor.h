/* A replica that is never trained, on a thread of its own. */
#ifndef TRAIN_PREDICTOR_H
#define TRAIN_PREDICTOR_H

#include "nn/model.h"

#include <lockstep/device_pool.h>

typedef struct ls_predictor ls_predictor;

typedef struct ls_predictor_desc {
    const ls_model *model;
    const ls_registry *registry;
    const char *device; /* "cpu:1", "cuda:0" */
    ls_gather preprocessing;
    const ls_host *host; /* these outlive the predictor */
} ls_predictor_desc;

/* Errors: LS_ENOMEM, LS_ESYSTEM, LS_EDEVICE, LS_EUNSUPPORTED. */
int ls_predictor_create(ls_predictor **out, const ls_predictor_desc *desc, ls_error *err);
void ls_predictor_destroy(ls_predictor *predictor); /* NULL is allowed */

/* One thread at a time. `id` tells weights apart: those it has already are not copied again. Allocates
 * nothing. Errors: the device's. */
int ls_predictor_run(ls_predictor *predictor, const float *canonical, uint64_t id,
                     const uint8_t *images, uint32_t n, float *scores, ls_error *err);

/* For the list of those that nobody uses. */
ls_predictor *ls_predictor_next(const ls_predictor *predictor);
void ls_predictor_link(ls_predictor *predictor, ls_predictor *next);

#endif
