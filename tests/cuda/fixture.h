/* SPDX-License-Identifier: MIT */
/* Common parts of the tests of the doubles, which are the simulated CUDA runtime and NCCL: begin
 * and end of a test, and two small kernels. */
#ifndef TESTS_CUDA_FIXTURE_H
#define TESTS_CUDA_FIXTURE_H

#include "doubles/control.h"
#include "doubles/launch.h"

#include <cuda_runtime_api.h>

/* Calls dbl_end. Fails if it finds a violation. */
void end_clean(void);

/* Checks that the complaints contain `text`, and clears them. */
void expect_complaint(const char *text);

/* k_fill enqueues y[i] = value, and k_add enqueues y[i] = y[i] + x[i]. */
cudaError_t k_fill(float *y, float value, size_t count, cudaStream_t stream);
cudaError_t k_add(float *y, const float *x, size_t count, cudaStream_t stream);

/* Create a non-blocking stream, an event without timing, and `count` floats on the current
 * device. */
cudaStream_t new_stream(void);
cudaEvent_t new_event(void);
float *new_floats(size_t count);

/* Returns the common value of `count` floats. Fails if they differ. */
float all_of(const float *device_memory, size_t count);

#define OK(call) assert_int_equal((int)(call), 0)

#endif
