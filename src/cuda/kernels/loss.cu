/* SPDX-License-Identifier: MIT */
/* Losses. Softmax and cross-entropy: a thread computes a row if there are at most FEW classes, else
 * a warp does. A second kernel adds the losses of the rows, in an order that depends only on their
 * number. With at most FEW classes and ONE_BLOCK rows one kernel does both, with the same bits. */
#include "cuda/kernels/kernels.cuh"

enum { WARP = 32, SUM_THREADS = 256, FEW = 32 /* classes */, ONE_BLOCK = 512 /* rows */ };

template <int LANES> __device__ static double add_lanes(double value)
{
    for (int step = LANES / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* Returns value · weight; 0 if the weight is 0, even if the value is not finite. */
__device__ static double weighed(double value, float weight)
{
    return weight == 0 ? 0 : value * (double)weight;
}

/* Returns the factor of a row: the weight of its class times its own. */
__device__ static float weight_of(const ls_k_xent &k, int row, int label)
{
    const float own = k.row_weight ? k.row_weight[row] : 1;
    return k.weight ? k.weight[label] * own : own;
}

/* Stores a row's loss, which it computes from the row's sums, and whether the row's prediction is
 * right. `m`: largest logit; `sum`: Σe; `all`: Σ(z − m). */
__device__ static void put_row(const ls_k_xent &k, int row, int best, float m, double sum,
                               double all)
{
    const double smoothing = k.smoothing;
    const int label = k.labels[row], known = label >= 0 && label < k.classes;
    const float *x = k.x + (size_t)row * k.classes;
    double target = known ? (1 - smoothing) * ((double)x[label] - (double)m) : 0;
    /* A row without a valid label gets the loss NaN, so that the update of this training step is
     * skipped. */
    const double loss = log(sum) - target - smoothing / k.classes * all;
    const bool weighs = k.weight || k.row_weight;
    k.row[row] = !known ? NAN : (float)(weighs ? weighed(loss, weight_of(k, row, label)) : loss);
    k.row[k.rows + row] = best == label;
}

/* Stores dx of class j: e/Σe − target. `share` is 1/Σe, which is computed once per row. */
__device__ static void put_dx(const ls_k_xent &k, int row, int j, float m, double share)
{
    const float everywhere = (float)((double)k.smoothing / k.classes);
    const size_t at = (size_t)row * k.classes + j;
    float p = (float)((double)expf(k.x[at] - m) * share) - everywhere;
    const int label = k.labels[row];
    p = j == label ? p - (float)(1 - (double)k.smoothing) : p;
    if ((k.weight || k.row_weight) && label >= 0 && label < k.classes)
        p = (float)weighed(p, weight_of(k, row, label));
    k.dx[at] = p;
}

/* Finds the first largest value of a row. */
template <int LANES>
__device__ static void find_largest(float *most, int *best, const float *x, int classes, int lane)
{
    *best = lane < classes ? lane : 0;
    *most = x[*best];
    for (int j = lane + LANES; j < classes; j += LANES)
        if (x[j] > *most) {
            *most = x[j];
            *best = j;
        }
    for (int step = LANES / 2; step > 0; step /= 2) {
        float value = __shfl_xor_sync(0xffffffffu, *most, step);
        int at = __shfl_xor_sync(0xffffffffu, *best, step);
        if (value > *most || (value == *most && at < *best)) {
            *most = value;
            *best = at;
        }
    }
}

/* Computes one row: loss = log Σe − Σ target·(z − m), where z is a logit, m the largest logit, and
 * e = exp(z − m). LANES threads compute it together: a warp, or one thread. With few classes one
 * thread is faster, because shuffles take longer than they save. */
template <int LANES> __device__ static void do_row(const ls_k_xent &k, int row, int lane)
{
    static_assert(LANES == 1 || LANES == WARP, "shuffles are over a whole warp");
    const float *x = k.x + (size_t)row * k.classes;
    float m;
    int best;
    find_largest<LANES>(&m, &best, x, k.classes, lane);
    double sum = 0, all = 0;
    for (int j = lane; j < k.classes; j += LANES) {
        sum += (double)expf(x[j] - m);
        all += (double)x[j] - (double)m;
    }
    sum = add_lanes<LANES>(sum);
    all = add_lanes<LANES>(all);
    for (int j = lane; k.dx && j < k.classes; j += LANES)
        put_dx(k, row, j, m, 1 / sum);
    if (lane == 0)
        put_row(k, row, best, m, sum, all);
}

__device__ static void report(const ls_k_xent &k, int row)
{
    k.fault->row = row;
    k.fault->label = k.labels[row];
    k.fault->classes = k.classes;
    __threadfence_system();
    k.fault->code = LS_K_FAULT_LABEL;
}

/* Adds the losses of the rows with SUM_THREADS threads of one thread block; the other threads of
 * the block only take part in barriers. If k.labels is NULL, labels are not checked. */
__device__ static void add_rows(const ls_k_xent &k)
{
    __shared__ double loss[SUM_THREADS], correct[SUM_THREADS];
    __shared__ int bad[SUM_THREADS];
    const int me = threadIdx.x;
    if (me < SUM_THREADS) {
        loss[me] = correct[me] = 0;
        bad[me] = k.rows;
        for (int r = me; r < k.rows; r += SUM_THREADS) {
            loss[me] += k.row[r];
            correct[me] += k.row[k.rows + r];
            if (k.labels && (k.labels[r] < 0 || k.labels[r] >= k.classes) && r < bad[me])
                bad[me] = r;
        }
    }
    for (int half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (me < half) {
            loss[me] += loss[me + half];
            correct[me] += correct[me + half];
            bad[me] = min(bad[me], bad[me + half]);
        }
    }
    if (me != 0)
        return;
    k.stats[0] = (k.add ? k.stats[0] : 0) + (float)loss[0];
    k.stats[1] = (k.add ? k.stats[1] : 0) + (float)correct[0];
    if (bad[0] < k.rows)
        report(k, bad[0]);
}

__global__ static void long_rows(const __grid_constant__ ls_k_xent k)
{
    int row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / WARP);
    if (row < k.rows)
        do_row<WARP>(k, row, threadIdx.x % WARP);
}

__global__ static void short_rows(const __grid_constant__ ls_k_xent k)
{
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (row < k.rows)
        do_row<1>(k, row, 0);
}

__global__ static void sum_alone(const __grid_constant__ ls_k_xent k)
{
    add_rows(k);
}

__global__ static void __launch_bounds__(ONE_BLOCK)
    rows_and_sum(const __grid_constant__ ls_k_xent k)
{
    if ((int)threadIdx.x < k.rows)
        do_row<1>(k, threadIdx.x, 0);
    __syncthreads(); /* makes the block's writes to k.row visible to the block */
    add_rows(k);
}

cudaError_t ls_k_softmax_xent(const ls_k_xent *k, cudaStream_t stream)
{
    const unsigned rows = (unsigned)k->rows;
    if (k->classes <= FEW && rows <= ONE_BLOCK) {
        rows_and_sum<<<1, rows <= SUM_THREADS ? SUM_THREADS : ONE_BLOCK, 0, stream>>>(*k);
        return cudaGetLastError();
    }
    if (k->classes <= FEW)
        short_rows<<<(rows + WARP - 1) / WARP, WARP, 0, stream>>>(*k);
    else
        long_rows<<<(rows + 7) / 8, 8 * WARP, 0, stream>>>(*k);
    sum_alone<<<1, SUM_THREADS, 0, stream>>>(*k);
    return cudaGetLastError();
}

/* ---- losses of target vectors: one warp per row, then the sum over the rows ------------------ */

__device__ static double lose_bce(double *slope, double z, double t)
{
    const double e = exp(-fabs(z));
    *slope = (z > 0 ? 1 : e) / (1 + e) - t;
    return fmax(z, 0.0) - z * t + log1p(e);
}

__device__ static double lose_poisson(double *slope, double z, double t)
{
    const double rate = exp(z);
    *slope = rate - t;
    return rate - z * t;
}

/* Returns the loss of output `j` of a row, and stores its derivative by z. */
__device__ static double lose(const ls_k_vector_loss &k, int j, double *slope, double z, double t)
{
    const double d = z - t, far = fabs(d), sign = (double)((d > 0) - (d < 0));
    switch (k.rule) {
    case LS_K_BCE: return lose_bce(slope, z, t);
    case LS_K_MAE: *slope = sign; return far;
    case LS_K_HUBER:
        *slope = far < k.delta ? d : sign * k.delta;
        return far < k.delta ? 0.5 * d * d : k.delta * (far - 0.5 * k.delta);
    case LS_K_QUANTILE: {
        const double q = k.quantile[j / k.each];
        *slope = 0.5 + 0.5 * sign - q;
        return d > 0 ? (1 - q) * d : -q * d;
    }
    case LS_K_POISSON: return lose_poisson(slope, z, t);
    default: *slope = 2 * d; return d * d;
    }
}

__global__ static void vector_rows(const __grid_constant__ ls_k_vector_loss k)
{
    const int row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / WARP),
              lane = threadIdx.x % WARP;
    const size_t first = (size_t)row * k.n;
    if (row >= k.rows)
        return;
    double sum = 0, wrong = k.rule != LS_K_BCE, slope;
    for (int j = lane; j < k.n; j += WARP) {
        const float z = k.x[first + j], t = k.targets[(size_t)row * k.each + j % k.each];
        sum += lose(k, j, &slope, z, t);
        wrong += (z > 0) != (t > 0.5f);
        if (k.dx)
            k.dx[first + j] = (float)(k.row_weight ? weighed(slope / k.n, k.row_weight[row])
                                                   : slope / k.n);
    }
    sum = add_lanes<WARP>(sum);
    wrong = add_lanes<WARP>(wrong);
    if (lane == 0) {
        k.row[row] = (float)(k.row_weight ? weighed(sum / k.n, k.row_weight[row]) : sum / k.n);
        k.row[k.rows + row] = wrong == 0;
    }
}

cudaError_t ls_k_vector_loss_of(const ls_k_vector_loss *k, cudaStream_t stream)
{
    ls_k_xent sum = {};
    sum.stats = k->stats;
    sum.row = k->row;
    sum.rows = k->rows;
    sum.add = k->add;
    vector_rows<<<(unsigned)(k->rows + 7) / 8, 8 * WARP, 0, stream>>>(*k);
    sum_alone<<<1, SUM_THREADS, 0, stream>>>(sum);
    return cudaGetLastError();
}
