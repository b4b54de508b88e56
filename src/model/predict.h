/* SPDX-License-Identifier: MIT */
/* Forward passes of a trained model over rows, on all devices, without gradients. */
#ifndef MODEL_PREDICT_H
#define MODEL_PREDICT_H

#include "model/trained.h"

#include <lockstep/device.h>

/* Describes the rows to predict. */
typedef struct ls_predict_desc {
    const ls_trained *trained;
    const ls_registry *registry;
    const char *devices;       /* as in ls_device_pool_options; NULL: those of the config */
    const float *class_weight; /* NULL: none */
    /* true: use the kernels that a run uses for its evaluations, so that loss and number of correct
     * rows are bit-identical to those in the run's records. false: use the kernels of a model that
     * is only used for predictions. */
    bool as_in_training;
    /* [rows][c][h][w], or [total_rows][c][h][w] with `row_index`; bytes or floats; crop and flip
     * are not applied */
    const void *images;
    /* [rows]: the rows to predict, as row numbers in `images` and `labels`; NULL: rows
     * 0 … rows − 1 */
    const uint32_t *row_index;
    uint32_t total_rows; /* with `row_index`: number of rows in `images` and `labels` */
    /* classes or target vectors of the rows in `images`; NULL: not known, and only the scores are
     * valid */
    const void *labels;
    const float *weights; /* weights of the rows in `images`; NULL: all are 1 */
    uint32_t rows;        /* number of rows to predict, at least 1 */
} ls_predict_desc;

typedef struct ls_prediction {
    /* Sum of the rows' losses, each multiplied by the row's weight, and number of correctly
     * predicted rows. Both are added in the same order as in a run's evaluation. */
    double loss, correct;
    char devices[512]; /* names of the devices: "[cpu(0), cpu(1)]" */
} ls_prediction;

/* Predicts rows. Stores loss and number of correct rows in *out; these two numbers are meaningless
 * if desc->labels is NULL. Stores the model's outputs in `scores` [rows][classes], unless it is
 * NULL. Returns when all devices have finished. The results are bit-identical for any number of
 * devices. Errors: those of ls_device_pool_create and of the back end, LS_ENOMEM. */
int ls_predict(ls_prediction *out, float *scores, const ls_predict_desc *desc, ls_error *err);

#endif
