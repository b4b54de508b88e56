/* The meaning of a model's outputs: probabilities, the predicted class, predicted values. */
#ifndef MODEL_OUTPUTS_H
#define MODEL_OUTPUTS_H

#include "nn/loss.h"
#include "prep/prep.h"

/* Computes the probabilities of the classes, which are the softmax of a row's logits, [classes].
 * `out` and `logits` may be the same array. */
void ls_softmax(float *out, const float *logits, int classes);
/* Returns the index of the largest logit of a row, and writes the softmax of that logit to
 * *probability. If several logits are equally large, the first of them counts, as in training. */
int ls_best_class(const float *logits, int classes, double *probability);
/* Converts one output of a model without classes to the predicted value. If the loss takes each
 * output as the logit of a yes/no label ("bce"), the value is the probability of yes. If an output
 * is the logarithm of a count ("poisson"), the value is the expected count. Otherwise the value is
 * the output itself. */
double ls_output_value(const ls_loss *loss, float output);
/* Converts a row's logits, [outputs], to what the model predicts: the probabilities of the classes,
 * or values if the loss compares vectors. `loss` NULL: cross-entropy. `out` and `logits` may be the
 * same array. */
void ls_outputs(float *out, const float *logits, int outputs, const ls_loss *loss);

#endif
