#include "cpu/cpu_isa.h"

#include <stdbool.h>

/* glibc's answers obey its tunable: GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F makes a better CPU a lesser
 * one, for tests and for results to compare. */
#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>

/* As x86_cpu_active of that header, which shifts a bit into an int's sign. */
static bool is_active(unsigned feature)
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

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return HAS(AVX2, "avx2") && HAS(FMA, "fma");
}

static bool has_avx512(void)
{
    return has_avx2() && HAS(AVX512F, "avx512f") && HAS(AVX512BW, "avx512bw") &&
           HAS(AVX512DQ, "avx512dq") && HAS(AVX512VL, "avx512vl");
}
#endif

const ls_lanes_kernels *ls_cpu_isa_at(int i)
{
#if defined(__x86_64__)
    if (has_avx512() && i-- == 0)
        return &ls_cpu_isa_avx512;
    if (has_avx2() && i-- == 0)
        return &ls_cpu_isa_avx2;
#endif
    return i == 0 ? &ls_cpu_isa_generic : NULL;
}
