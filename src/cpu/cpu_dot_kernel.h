/* The product of two rows. See cpu_kernels.h. */
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_vec.h"

LANES_INLINE vec dot_add(vec sum, const float *a, const float *b, int n)
{
    return vec_fma(vec_load_part(a, n), vec_load_part(b, n), sum);
}

static double dot(const float *a, const float *b, size_t n)
{
    vec_wide sum = {{0}, {0}};
    vec few = {0};
    size_t i = 0;
    for (; i + LANES_FEW * LANES_VEC <= n; i += LANES_FEW * LANES_VEC) {
        vec s = {0};
        LANES_UNROLL
        for (size_t k = 0; k < LANES_FEW; k++)
            s = dot_add(s, a + i + k * LANES_VEC, b + i + k * LANES_VEC, LANES_VEC);
        vec_wide_add(&sum, s);
    }
    for (; i + LANES_VEC <= n; i += LANES_VEC)
        few = dot_add(few, a + i, b + i, LANES_VEC);
    if (i < n)
        few = dot_add(few, a + i, b + i, (int)(n - i));
    vec_wide_add(&sum, few);
    double lane[LANES_VEC] = {0}, all = 0;
    vec_wide_store_part(lane, &sum, LANES_VEC);
    for (int l = 0; l < LANES_VEC; l++)
        all += lane[l];
    return all;
}
