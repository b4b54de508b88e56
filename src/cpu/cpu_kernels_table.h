/* Fills in one instruction set's table. Included once by each of cpu_kernels_avx512.c,
 * cpu_kernels_avx2.c and cpu_kernels_generic.c, which are compiled with different flags; see
 * cpu_kernels.cmake. */
#include "cpu/cpu_add_kernel.h"
#include "cpu/cpu_dot_kernel.h"
#include "cpu/cpu_norm_kernel.h"

#define CPU_KERNELS(set)                                                                           \
    const ls_cpu_kernels ls_cpu_kernels_##set = {                                                  \
        .name = #set,                                                                              \
        .sum = norm_sum,                                                                           \
        .squares = norm_squares,                                                                   \
        .normalise = norm_normalise,                                                               \
        .norm_sums = norm_sums,                                                                    \
        .norm_dx = norm_dx,                                                                        \
        .dot = dot,                                                                                \
        .add = add_forward,                                                                        \
        .add_dx = add_backward,                                                                    \
    }
