/* What the CPU twins of the kernels (src/cuda/kernels.h) share. */
#ifndef TESTS_DOUBLES_KERNELS_CPU_H
#define TESTS_DOUBLES_KERNELS_CPU_H

#include "cuda/kernels.h"
#include "doubles/launch.h"

/* Enqueues body(copy of args), which is what a twin does. */
#define TWIN(stream, body, args) dbl_launch(stream, __func__, body, &(args), sizeof(args))

/* Non-zero if the running device may touch the floats; NULL is nobody's. */
static inline int twin_floats(const void *memory, size_t count)
{
    return !memory || dbl_may_touch(memory, count * sizeof(float));
}

static inline int twin_bytes(const void *memory, size_t count)
{
    return !memory || dbl_may_touch(memory, count);
}

#endif
