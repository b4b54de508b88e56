#include "cpu/cpu_kernels.h"

const ls_cpu_kernels *ls_cpu_kernels_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &ls_cpu_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &ls_cpu_kernels_avx2;
#endif
    return &ls_cpu_kernels_generic;
}
