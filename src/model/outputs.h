/* SPDX-License-Identifier: MIT */
/* The meaning of a model's outputs: probabilities, the predicted class, predicted values. */
#ifndef MODEL_OUTPUTS_H
#define MODEL_OUTPUTS_H

#include "nn/loss.h"
#include "prep/prep.h"

#include <lockstep/model.h>

/* Meaning of the outputs of one model. */
typedef struct ls_meaning {
    const ls_loss *loss; /* NULL: cross-entropy */
    const ls_prep *prep; /* has the scale of learnt values; NULL: they are not scaled */
    int outputs;         /* number of outputs of a row */
    double threshold;    /* as in ls_card */
} ls_meaning;

/* Returns the predicted class of a row, and writes its probability to *probability. It is the class
 * of the largest logit, and of equal ones the first, as in training; if there is a threshold, it is
 * the second of two classes from that probability on. */
int ls_predicted_class(const float *logits, const ls_meaning *m, double *probability);
/* Returns whether a yes-or-no target with the probability `yes` is predicted to be yes. */
bool ls_predicted_yes(double yes, const ls_meaning *m);

/* Returns what the outputs are. */
ls_task ls_meaning_task(const ls_meaning *m);
/* Converts a row's outputs as the network computes them, [outputs], to the form that the caller of
 * ls_model_predict wants (an ls_output, without LS_OUTPUT_F64). */
void ls_outputs(double *out, const float *network, int form, const ls_meaning *m);
/* Does the same for `rows` rows. Writes to `out` from value number `first` on: doubles if `form`
 * has LS_OUTPUT_F64, otherwise floats. `row`: [outputs] memory for one row. */
void ls_outputs_put(void *out, size_t first, const float *network, uint32_t rows, int form,
                    const ls_meaning *m, double *row);
/* Writes NaN to `count` values of `out` from value number `first` on: the outputs of a row with a
 * value that the model does not know. */
void ls_outputs_put_unknown(void *out, size_t first, size_t count, int form);

#endif
