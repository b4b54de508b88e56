/* What a trained model makes of images: forward passes on every device, no gradients. */
#ifndef TOOLS_PREDICT_H
#define TOOLS_PREDICT_H

#include "nn/replica.h"

#include <lockstep/device_pool.h>

typedef struct ls_predict_desc {
    const ls_registry *registry;
    const char *devices; /* as in ls_device_pool_options */
    int threads;         /* each CPU worker's team; 0: 1 */
    ls_precision precision;
    const char *cache_dir; /* NULL: none */
    const ls_model *model;
    const float *weights;    /* canonical */
    ls_gather normalisation; /* crop and flip are not applied */
    float label_smoothing;   /* of the loss */
    /* The one that the model was trained with: loss and hits then come from the very kernels that a
     * run evaluates with, in the same bits. NULL: from those of a replica that is never trained. */
    const ls_optimizer *optimizer;
    const uint8_t *images;  /* [rows][c][h][w] */
    const uint8_t *labels;  /* [rows]; not needed for logits */
    uint32_t rows;          /* at least 1 */
    uint32_t batch, shards; /* as in training: the same rows then go through the same kernels */
    const ls_host *host;
} ls_predict_desc;

typedef struct ls_prediction {
    /* Summed over the rows, in the order in which a run sums its evaluation; 0 with logits. */
    double loss, correct;
    char devices[512]; /* "[cpu(0), cpu(1)]" */
} ls_prediction;

/* Fills `logits` ([rows][classes]), or, where that is NULL, computes loss and hits. Blocks the
 * caller. Nothing of what comes out depends on how many devices there are. Errors: those of
 * ls_device_pool_create and of the back end, LS_ENOMEM. */
int ls_predict(ls_prediction *out, float *logits, const ls_predict_desc *desc, ls_error *err);

#endif
