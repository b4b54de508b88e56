#include "cpu/cpu_kernels.h"

/* glibc's answers obey its tunable: GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F makes a better CPU a lesser
 * one, for tests and for results to compare. */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>

/* As x86_cpu_active of that header, which shifts a bit into an int's sign. */
static int is_active(unsigned feature)
{
    const struct cpuid_feature *leaf = __x86_get_cpuid_feature_leaf(feature / 128);
    return (leaf->active_array[feature % 128 / 32] >> feature % 32 & 1u) != 0;
}

#define HAS(glibc, compiler) is_active(x86_cpu_##glibc)
#endif
#endif
#if defined(__x86_64__) && !defined(HAS)
#define HAS(glibc, compiler) __builtin_cpu_supports(compiler)
#endif

ls_cpu_set ls_cpu_set_best(void)
{
#if defined(__x86_64__)
    if (!HAS(AVX2, "avx2") || !HAS(FMA, "fma"))
        return LS_CPU_SET_GENERIC;
    if (HAS(AVX512F, "avx512f") && HAS(AVX512BW, "avx512bw") && HAS(AVX512DQ, "avx512dq") &&
        HAS(AVX512VL, "avx512vl"))
        return LS_CPU_SET_AVX512;
    return LS_CPU_SET_AVX2;
#else
    return LS_CPU_SET_GENERIC;
#endif
}

const ls_cpu_kernels *ls_cpu_kernels_best(void)
{
    switch (ls_cpu_set_best()) {
#if defined(__x86_64__)
    case LS_CPU_SET_AVX512: return &ls_cpu_kernels_avx512;
    case LS_CPU_SET_AVX2: return &ls_cpu_kernels_avx2;
#endif
    default: return &ls_cpu_kernels_generic;
    }
}
