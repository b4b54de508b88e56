/* SPDX-License-Identifier: MIT */
/* Kernels over whole arenas (arrays of all parameters, or of all gradients): optimizers, running
 * statistics, digests, clipping, sums of arenas. Also the arguments of a training step. */
#define LS_DIGEST_FN __host__ __device__ static inline
#include "base/digest.h"
#include "cuda/kernels/kernels.cuh"

/* ---- arguments of a step --------------------------------------------------------------------- */

__global__ static void set_args(ls_k_args *to, ls_k_steps value)
{
    to[threadIdx.x] = value.step[threadIdx.x];
}

cudaError_t ls_k_set_args(ls_k_args *to, const ls_k_steps *value, int count, cudaStream_t stream)
{
    set_args<<<1, count, 0, stream>>>(to, *value);
    return cudaGetLastError();
}

/* ---- digests --------------------------------------------------------------------------------- */

/* The digest of the floats that a thread reads (base/digest.h). All floats of a thread, or the
 * first of each four, are in the same lane (position mod 16), because the number of threads of a
 * grid is a multiple of 16. So the power of the factor that belongs to the lane is multiplied once,
 * at the end. */
struct digest_sum {
    uint64_t sum;

    /* Adds the float of vector (position div 16) number `vector`. */
    __device__ void add(float x, uint64_t vector)
    {
        sum += __float_as_uint(x) * (2 * vector + 1);
    }

    /* Adds four floats that follow each other. */
    __device__ void add(float4 x, uint64_t vector)
    {
        uint64_t four = __float_as_uint(x.w);
        four = four * LS_DIGEST_FACTOR + __float_as_uint(x.z);
        four = four * LS_DIGEST_FACTOR + __float_as_uint(x.y);
        four = four * LS_DIGEST_FACTOR + __float_as_uint(x.x);
        sum += four * (2 * vector + 1);
    }

    /* Adds the sums of all threads to *digest, unless it is NULL. Every thread of the block must
     * call this. `lane`: lane of the thread's floats. The additions are atomic and relaxed: the
     * result does not depend on their order, and it is read by work that the stream runs after this
     * kernel. */
    __device__ void put(uint64_t *digest, unsigned lane) const
    {
        if (!digest)
            return;
        const uint64_t all = ls_sum_of_block(sum * ls_digest_weight(lane));
        if (threadIdx.x == 0)
            atomicAdd((unsigned long long *)digest, (unsigned long long)all);
    }
};

__global__ static void digest_of(const float *x, const ls_k_args *args, size_t at, size_t count)
{
    digest_sum d = {0};
    if (!args->digest)
        return;
    LS_EACH(i, count)
    d.add(x[i], (at + i) / 16);
    d.put(args->digest, threadIdx.x % 16);
}

cudaError_t ls_k_digest(const float *x, const ls_k_args *args, size_t at, size_t count,
                        cudaStream_t stream)
{
    digest_of<<<ls_blocks(count), LS_THREADS, 0, stream>>>(x, args, at, count);
    return cudaGetLastError();
}

/* ---- optimizers ----------------------------------------------------------------------------- */

/* Returns non-zero if the update must be skipped. All threads read the same loss. If it is not
 * finite, one thread sets `skip`, and no thread reads it. If the loss is finite, all threads read
 * `skip`, and no thread writes it. */
__device__ static int is_skipped(ls_k_guard guard)
{
    if (!guard.loss)
        return 0;
    const float loss = *guard.loss;
    if (loss - loss == 0) /* true for finite numbers only */
        return *guard.skip != 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *guard.skip = 1;
    return 1;
}

/* Copies the loss and the number of correct rows to host memory (args->stats_copy). No separate
 * copy is then needed after the update. */
__device__ static void tell(const ls_k_args *args, ls_k_guard guard)
{
    if (blockIdx.x == 0 && threadIdx.x < 2 && guard.loss && args->stats_copy)
        args->stats_copy[threadIdx.x] = guard.loss[threadIdx.x];
}

__device__ static float rate_of(const ls_k_args *args, ls_k_guard guard)
{
    return guard.rate != 0 ? args->lr * guard.rate : args->lr;
}

__device__ static float scale_of(const ls_k_args *args, ls_k_guard guard)
{
    return guard.clip ? args->scale * guard.clip[0] : args->scale;
}

struct sgd_step {
    float lr, scale, momentum, weight_decay;
    int nesterov;

    __device__ void operator()(float &w, float &v, float &, float g) const
    {
        float gradient = g * scale + weight_decay * w;
        float step = gradient;
        if (momentum != 0) {
            v = momentum * v + gradient;
            step = nesterov ? gradient + momentum * v : v;
        }
        w -= lr * step;
    }
};

struct adamw_step {
    float beta1, beta2, rest1, rest2, epsilon, scale, keep, rate, root;

    __device__ void operator()(float &w, float &m, float &v, float g) const
    {
        float gradient = g * scale;
        m = beta1 * m + rest1 * gradient;
        v = beta2 * v + rest2 * (gradient * gradient);
        w = w * keep - rate * (m / (sqrtf(v) / root + epsilon));
    }
};

/* Returns the gradients of the elements 4·i … 4·i + 3. */
__device__ static float4 gradients(const ls_k_update &u, uint32_t i)
{
    if (!u.in_shadow || !(u.in_shadow[i >> 7] >> (i >> 2 & 31) & 1))
        return ((const float4 *)u.grad)[i];
    const uint2 pairs = ((const uint2 *)u.shadow_grad)[i];
    return make_float4(__uint_as_float(pairs.x << 16), __uint_as_float(pairs.x & 0xffff0000u),
                       __uint_as_float(pairs.y << 16), __uint_as_float(pairs.y & 0xffff0000u));
}

/* Applies `step`, the update of one float, to each float of the arena. Threads process four floats
 * at a time; the number of floats in an arena is a multiple of 16. Fours are counted in 32 bits,
 * because no GPU has memory for 2³² of them. SUMS: also sums the digest of what is read, before it
 * changes. */
template <bool SUMS, class Step> __device__ static void step_arena(const ls_k_update &u, Step step)
{
    const float4 zero = make_float4(0, 0, 0, 0);
    float4 *w = (float4 *)u.w, *v1 = (float4 *)u.slot[0], *v2 = (float4 *)u.slot[1];
    const uint32_t quads = (uint32_t)(u.count / 4), step_by = gridDim.x * blockDim.x;
    digest_sum d = {0};
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += step_by) {
        float4 a = w[i], b = v1 ? v1[i] : zero, c = v2 ? v2[i] : zero, g = gradients(u, i);
        if (SUMS) {
            d.add(a, u.digest_at[0] / 16 + i / 4);
            if (v1)
                d.add(b, u.digest_at[1] / 16 + i / 4);
            if (v2)
                d.add(c, u.digest_at[2] / 16 + i / 4);
        }
        step(a.x, b.x, c.x, g.x);
        step(a.y, b.y, c.y, g.y);
        step(a.z, b.z, c.z, g.z);
        step(a.w, b.w, c.w, g.w);
        w[i] = a;
        if (v1)
            v1[i] = b;
        if (v2)
            v2[i] = c;
        if (u.shadow)
            ((uint2 *)u.shadow)[i] =
                make_uint2(ls_rounded_pair(a.x, a.y), ls_rounded_pair(a.z, a.w));
    }
    if (SUMS)
        d.put(u.args->digest, 4 * (threadIdx.x % 4));
}

template <bool SUMS>
__global__ static void sgd(ls_k_update u, float momentum, float weight_decay, int nesterov)
{
    tell(u.args, u.guard);
    if (is_skipped(u.guard))
        return;
    const float lr = rate_of(u.args, u.guard), scale = scale_of(u.args, u.guard);
    step_arena<SUMS>(u, sgd_step{lr, scale, momentum, weight_decay, nesterov});
}

cudaError_t ls_k_sgd(const ls_k_update *update, float momentum, float weight_decay, int nesterov,
                     cudaStream_t stream)
{
    LS_CHOSEN(update->sums, SUMS,
              sgd<SUMS><<<ls_blocks(update->count / 4), LS_THREADS, 0, stream>>>(
                  *update, momentum, weight_decay, nesterov));
    return cudaGetLastError();
}

/* Computes the differences 1 − βᵗ once per thread block, in double, because they can be small. */
template <bool SUMS> __global__ static void adamw(ls_k_update u, ls_k_adamw k)
{
    __shared__ adamw_step shared;
    tell(u.args, u.guard);
    if (is_skipped(u.guard)) /* all threads get the same result */
        return;
    if (threadIdx.x == 0) {
        double t = (double)u.args->step, lr = rate_of(u.args, u.guard);
        shared.beta1 = k.beta1;
        shared.beta2 = k.beta2;
        shared.rest1 = (float)(1 - (double)k.beta1);
        shared.rest2 = (float)(1 - (double)k.beta2);
        shared.epsilon = k.epsilon;
        shared.scale = scale_of(u.args, u.guard);
        shared.keep = (float)(1 - lr * (double)k.weight_decay);
        shared.rate = (float)(lr / (1 - pow((double)k.beta1, t)));
        shared.root = (float)sqrt(1 - pow((double)k.beta2, t));
    }
    __syncthreads();
    adamw_step step = shared;
    step_arena<SUMS>(u, step);
}

cudaError_t ls_k_adamw_step(const ls_k_update *update, const ls_k_adamw *k, cudaStream_t stream)
{
    LS_CHOSEN(update->sums, SUMS,
              adamw<SUMS><<<ls_blocks(update->count / 4), LS_THREADS, 0, stream>>>(*update, *k));
    return cudaGetLastError();
}

__global__ static void running(ls_k_update u, float momentum, int of_weights)
{
    digest_sum d = {0};
    if (is_skipped(u.guard))
        return;
    const float scale = of_weights ? 1 : u.args->row_scale;
    uint64_t *digest = u.sums ? u.args->digest : NULL;
    LS_EACH(i, u.count)
    {
        const float before = u.w[i];
        if (digest)
            d.add(before, (u.digest_at[0] + i) / 16);
        u.w[i] = before + momentum * (u.grad[i] * scale - before);
    }
    if (digest)
        d.put(digest, threadIdx.x % 16);
}

cudaError_t ls_k_running(const ls_k_update *update, float momentum, int of_weights,
                         cudaStream_t stream)
{
    running<<<ls_blocks(update->count), LS_THREADS, 0, stream>>>(*update, momentum, of_weights);
    return cudaGetLastError();
}

/* Clipping: each of LS_K_CLIP_SUMS thread blocks sums its part of the squares. Then one thread
 * block adds these sums. */

__global__ static void square_blocks(double *partial, const float *grad, size_t count)
{
    double sum = 0;
    for (size_t i = (size_t)blockIdx.x * LS_THREADS + threadIdx.x; i < count;
         i += (size_t)LS_K_CLIP_SUMS * LS_THREADS)
        sum += (double)grad[i] * (double)grad[i];
    sum = ls_sum_of_block(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ static void find_clip(float *clip, const double *partial, const ls_k_args *args,
                                 float most, int add)
{
    double sum = ls_sum_of_block(partial[threadIdx.x]), *kept = (double *)(clip + 2);
    if (threadIdx.x != 0)
        return;
    sum = add ? *kept + sum : sum;
    *kept = sum;
    clip[0] = (float)fmin(1.0, (double)most / (sqrt(sum) * (double)args->scale + 1e-6));
}

cudaError_t ls_k_clip(float *clip, double *partial, const float *grad, const ls_k_args *args,
                      float most, int add, size_t count, cudaStream_t stream)
{
    static_assert((int)LS_K_CLIP_SUMS == (int)LS_THREADS, "a thread for each block's sum");
    square_blocks<<<LS_K_CLIP_SUMS, LS_THREADS, 0, stream>>>(partial, grad, count);
    find_clip<<<1, LS_THREADS, 0, stream>>>(clip, partial, args, most, add);
    return cudaGetLastError();
}

/* ---- sums of arenas ------------------------------------------------------------------------- */

struct tree {
    const float *in[LS_K_ARENAS];
    uint8_t order[2 * LS_K_ARENAS];
    int steps;
};

__global__ static void add_arenas(float *out, const __grid_constant__ tree t, size_t floats)
{
    __shared__ float stack[LS_K_STACK][LS_THREADS]; /* one column per thread */
    const unsigned me = threadIdx.x;
    LS_EACH(i, floats)
    {
        int depth = 0;
        for (int s = 0; s < t.steps; s++) {
            if (t.order[s] == LS_K_ADD) {
                depth--;
                stack[depth - 1][me] = stack[depth - 1][me] + stack[depth][me];
            } else {
                stack[depth++][me] = t.in[t.order[s]][i];
            }
        }
        out[i] = stack[0][me];
    }
}

/* Returns true if the order of additions leaves one value, never takes a value from an empty stack,
 * and needs a stack of at most LS_K_STACK values. */
static bool is_postfix(const tree *t, int count)
{
    int depth = 0;
    for (int s = 0; s < t->steps; s++) {
        if (t->order[s] != LS_K_ADD && t->order[s] >= count)
            return false;
        if (t->order[s] == LS_K_ADD && depth < 2)
            return false;
        depth += t->order[s] == LS_K_ADD ? -1 : 1;
        if (depth > LS_K_STACK)
            return false;
    }
    return depth == 1;
}

cudaError_t ls_k_add_arenas(float *out, const float *const *in, int count, const uint8_t *order,
                            size_t floats, cudaStream_t stream)
{
    tree t = {};
    if (count < 1 || count > LS_K_ARENAS)
        return cudaErrorInvalidValue;
    for (int k = 0; k < count; k++)
        t.in[k] = in[k];
    t.steps = 2 * count - 1;
    for (int s = 0; s < t.steps; s++)
        t.order[s] = order[s];
    if (!is_postfix(&t, count))
        return cudaErrorInvalidValue;
    if (count == 2)
        return ls_k_sum(out, t.in[t.order[0]], t.in[t.order[1]], floats, stream);
    add_arenas<<<ls_blocks(floats), LS_THREADS, 0, stream>>>(out, t, floats);
    return cudaGetLastError();
}
