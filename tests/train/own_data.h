/* A data source of the caller (ls_data_source): 96 training and 40 test images of 1 × 28 × 28,
 * which a small network can learn. */
#ifndef TESTS_OWN_DATA_H
#define TESTS_OWN_DATA_H

#include <lockstep/data_source.h>

#define OWN_TRAIN 96
#define OWN_TEST 40
#define OWN_CLASSES 10
#define OWN_PIXELS (28 * 28)

/* Returns a data source called "own". The member `user` may point to an int, the number, from 1, of
 * the call of `read` that fails. */
ls_data_source own_data(int streamed);

/* Fills row `row` with the values that the callback `read` gives. */
void own_row(int test, uint32_t row, uint8_t *image, int32_t *label);

#endif
