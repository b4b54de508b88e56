/* A double of CUPTI: returns records of the work that the doubles' streams ran, in the buffers that
 * it is given, and fails where a test requests it. It replaces cuda/cupti_lib.c. */
#ifndef TESTS_DOUBLES_CUPTI_H
#define TESTS_DOUBLES_CUPTI_H

#include <stddef.h>
#include <stdint.h>

/* From now on this function fails ("cuptiActivityEnable"), from its n-th call on (1: the next);
 * "load": there is no library. NULL: all work again. */
void dbl_cupti_fail(const char *function, int nth);

/* Records of a buffer; 0: as many as fit. */
void dbl_cupti_buffer_records(size_t most);

/* Kernels are called this from now on; NULL: by their names. The text is static. */
void dbl_cupti_name(const char *name);

/* The executor: `stream` of `device` ran something from begin to now. */
void dbl_cupti_ran(const char *what, int device, int stream, uint64_t begin_ns);

/* Non-zero while records are wanted. */
int dbl_cupti_wants(void);

#endif
