/* SPDX-License-Identifier: MIT */
/* A data source as a program passes it to the library (ls_data_source): 96 training and 40 test
 * images of 1 × 28 × 28 bytes, which a small network can learn. */
#ifndef TESTS_OWN_DATA_H
#define TESTS_OWN_DATA_H

#include <lockstep/trainer.h>

#define OWN_TRAIN 96
#define OWN_TEST 40
#define OWN_CLASSES 10
#define OWN_PIXELS (28 * 28)

/* Returns a data source called "own". The caller may set its member `user` to a pointer to an int:
 * the number, from 1, of the call of `read` that fails. */
ls_data_source own_data(int streamed);

/* Writes the image and the label of row `row`, the same as the data source's callback `read`.
 * `test`: 1 for a test row, 0 for a training row. */
void own_row(int test, uint32_t row, uint8_t *image, int32_t *label);

/* Trains one step on rows of bytes and their classes. */
int own_step(ls_trainer *trainer, const void *images, const void *labels, uint32_t n,
             ls_step_result *out, ls_error *err);

/* Predicts with the trainer's current weights: the logits, or values. */
int own_predict(ls_trainer *trainer, const void *rows, ls_row_type type, uint32_t n, float *outputs,
                size_t capacity, ls_error *err);

#endif
