/* Element-wise addition and its gradient, over whole tensors. See cpu_kernels.h. */
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_vec.h"

LANES_INLINE vec add_at(const float *a, const float *b, int n, int relu)
{
    vec v = vec_load_part(a, n) + vec_load_part(b, n);
    return relu ? vec_relu(v) : v;
}

static void add_forward(const float *a, const float *b, float *y, size_t n, int relu)
{
    size_t i = 0;
    for (; i + LANES_VEC <= n; i += LANES_VEC)
        vec_store_part(y + i, add_at(a + i, b + i, LANES_VEC, relu), LANES_VEC);
    int rest = (int)(n - i);
    if (rest)
        vec_store_part(y + i, add_at(a + i, b + i, rest, relu), rest);
}

LANES_INLINE void add_dx_at(const float *y, const float *dy, float *dx, float *dx2, int n)
{
    vec g = vec_load_part(dy, n);
    if (y)
        g = vec_where_positive(vec_load_part(y, n), g);
    vec_store_part(dx, g, n);
    if (dx2)
        vec_store_part(dx2, g, n);
}

static void add_backward(const float *y, const float *dy, float *dx, float *dx2, size_t n)
{
    size_t i = 0;
    for (; i + LANES_VEC <= n; i += LANES_VEC)
        add_dx_at(y ? y + i : NULL, dy + i, dx + i, dx2 ? dx2 + i : NULL, LANES_VEC);
    int rest = (int)(n - i);
    if (rest)
        add_dx_at(y ? y + i : NULL, dy + i, dx + i, dx2 ? dx2 + i : NULL, rest);
}
