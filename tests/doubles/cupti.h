/* SPDX-License-Identifier: MIT */
/* A double of CUPTI: returns records of the work that the doubles' streams ran, in the buffers that
 * it is given, and fails where a test requests it. It replaces cuda/cupti_lib.c. */
#ifndef TESTS_DOUBLES_CUPTI_H
#define TESTS_DOUBLES_CUPTI_H

#include <stddef.h>
#include <stdint.h>

/* Makes `function` ("cuptiActivityEnable") fail from its n-th call from now on (1: the next).
 * "load": the library is missing. NULL: all work again. */
void dbl_cupti_fail(const char *function, int nth);

/* Sets the number of records in a buffer; 0: as many as fit. */
void dbl_cupti_buffer_records(size_t most);

/* Sets the name of all kernels from now on; NULL: their own names. The text must be static. */
void dbl_cupti_name(const char *name);

/* Called by the executor: `stream` of `device` ran `what` from begin_ns until now. */
void dbl_cupti_ran(const char *what, int device, int stream, uint64_t begin_ns);

/* Returns non-zero while records are requested. */
int dbl_cupti_wants(void);

#endif
