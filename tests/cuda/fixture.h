/* Common parts of the tests of the doubles: begin and end of a test, and two small kernels. */
#ifndef TESTS_CUDA_FIXTURE_H
#define TESTS_CUDA_FIXTURE_H

#include "doubles/control.h"
#include "doubles/launch.h"

#include <cuda_runtime_api.h>

/* dbl_end, which must find nothing wrong. */
void end_clean(void);

/* The world's complaints must hold `text`; they are cleared. */
void expect_complaint(const char *text);

/* y[i] ← value; y[i] ← y[i] + x[i]. */
cudaError_t k_fill(float *y, float value, size_t count, cudaStream_t stream);
cudaError_t k_add(float *y, const float *x, size_t count, cudaStream_t stream);

/* A non-blocking stream, an event without timing, `count` floats of the current device. */
cudaStream_t new_stream(void);
cudaEvent_t new_event(void);
float *new_floats(size_t count);

/* The value that all `count` floats have; fails if they differ. */
float all_of(const float *device_memory, size_t count);

#define OK(call) assert_int_equal((int)(call), 0)

#endif
