/* SPDX-License-Identifier: MIT */
/* Common parts of the CPU twins of the kernels (src/cuda/kernels/kernels.h). */
#ifndef TESTS_DOUBLES_KERNELS_CPU_H
#define TESTS_DOUBLES_KERNELS_CPU_H

#include "cuda/kernels/kernels.h"
#include "doubles/launch.h"

#include <string.h>

/* Enqueues body(copy of args), as every twin does. */
#define TWIN(stream, body, args) dbl_launch(stream, __func__, body, &(args), sizeof(args))

/* Returns non-zero if the running device may access the floats. NULL is always allowed. */
static inline int twin_floats(const void *memory, size_t count)
{
    return !memory || dbl_may_touch(memory, count * sizeof(float));
}

/* The same for a tensor of fp32 or, with `half`, of bf16. */
static inline int twin_tensor(const void *memory, size_t count, int half)
{
    return !memory || dbl_may_touch(memory, count * (half ? sizeof(uint16_t) : sizeof(float)));
}

static inline float twin_get(const void *memory, size_t i, int half)
{
    uint32_t bits;
    float value;
    if (!half)
        return ((const float *)memory)[i];
    bits = (uint32_t)((const uint16_t *)memory)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void twin_put(void *memory, size_t i, int half, float value)
{
    uint32_t bits;
    if (!half) {
        ((float *)memory)[i] = value;
        return;
    }
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* keep a NaN a NaN */
        ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16 | 0x40u);
    else
        ((uint16_t *)memory)[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline int twin_bytes(const void *memory, size_t count)
{
    return !memory || dbl_may_touch(memory, count);
}

#endif
