/* SPDX-License-Identifier: MIT */
#include "cuda/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void end_clean(void)
{
    assert_string_equal(dbl_end(), "");
}

void expect_complaint(const char *text)
{
    if (!strstr(dbl_complaints(), text))
        fail_msg("expected a complaint with '%s', got '%s'", text, dbl_complaints());
    dbl_clear_complaints();
}

struct fill {
    float *y;
    float value;
    size_t count;
};

static void fill_body(const void *args)
{
    const struct fill *a = args;
    if (!dbl_may_touch(a->y, a->count * sizeof *a->y))
        return;
    for (size_t i = 0; i < a->count; i++)
        a->y[i] = a->value;
}

cudaError_t k_fill(float *y, float value, size_t count, cudaStream_t stream)
{
    struct fill a = {y, value, count};
    return dbl_launch(stream, "k_fill", fill_body, &a, sizeof a);
}

struct add {
    float *y;
    const float *x;
    size_t count;
};

static void add_body(const void *args)
{
    const struct add *a = args;
    size_t bytes = a->count * sizeof *a->y;
    if (!dbl_may_touch(a->y, bytes) || !dbl_may_touch(a->x, bytes))
        return;
    for (size_t i = 0; i < a->count; i++)
        a->y[i] += a->x[i];
}

cudaError_t k_add(float *y, const float *x, size_t count, cudaStream_t stream)
{
    struct add a = {y, x, count};
    return dbl_launch(stream, "k_add", add_body, &a, sizeof a);
}

cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

float *new_floats(size_t count)
{
    void *memory;
    OK(cudaMalloc(&memory, count * sizeof(float)));
    return memory;
}

float all_of(const float *device_memory, size_t count)
{
    float *copy = malloc(count * sizeof *copy);
    OK(cudaMemcpy(copy, device_memory, count * sizeof *copy, cudaMemcpyDeviceToHost));
    float value = copy[0];
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(&copy[i], &value, sizeof value);
    free(copy);
    return value;
}
