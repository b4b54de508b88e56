/* Softmax and cross-entropy: a warp for each row, then the rows' losses added in order. A small batch
 * does both in one kernel, which gives the same bits. */
#include "cuda/kernels.cuh"

enum { WARP = 32, SUM_THREADS = 256, ONE_BLOCK = 1024, SMALL = 32768 /* logits of one block */ };

__device__ static double add_warp(double value)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* The first largest value of a row. */
__device__ static void find_largest(float *most, int *best, const float *x, int classes, int lane)
{
    *best = lane < classes ? lane : 0;
    *most = x[*best];
    for (int j = lane + WARP; j < classes; j += WARP)
        if (x[j] > *most) {
            *most = x[j];
            *best = j;
        }
    for (int step = WARP / 2; step > 0; step /= 2) {
        float value = __shfl_xor_sync(0xffffffffu, *most, step);
        int at = __shfl_xor_sync(0xffffffffu, *best, step);
        if (value > *most || (value == *most && at < *best)) {
            *most = value;
            *best = at;
        }
    }
}

/* loss = log Σe − Σ target·(z − m); dx = e/Σe − target. */
__device__ static void do_row(const ls_k_xent &k, int row, int lane)
{
    const float *x = k.x + (size_t)row * k.classes;
    const int label = k.labels[row];
    const double smoothing = k.smoothing;
    float m;
    int best;
    find_largest(&m, &best, x, k.classes, lane);
    double sum = 0, all = 0;
    for (int j = lane; j < k.classes; j += WARP) {
        sum += (double)expf(x[j] - m);
        all += (double)x[j] - (double)m;
    }
    sum = add_warp(sum);
    all = add_warp(all);
    const float everywhere = (float)(smoothing / k.classes), at_label = (float)(1 - smoothing);
    for (int j = lane; k.dx && j < k.classes; j += WARP) {
        float p = (float)((double)expf(x[j] - m) / sum) - everywhere;
        k.dx[(size_t)row * k.classes + j] = j == label ? p - at_label : p;
    }
    if (lane != 0)
        return;
    int known = label < k.classes;
    double target = known ? (1 - smoothing) * ((double)x[label] - (double)m) : 0;
    /* Nothing may be learned from a row without a label. */
    k.row[row] = known ? (float)(log(sum) - target - smoothing / k.classes * all) : NAN;
    k.row[k.rows + row] = best == label;
}

__device__ static void report(const ls_k_xent &k, int row)
{
    k.fault->row = row;
    k.fault->label = k.labels[row];
    k.fault->classes = k.classes;
    __threadfence_system();
    k.fault->code = LS_K_FAULT_LABEL;
}

/* By SUM_THREADS threads of one block, the others only waiting. */
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
            if (k.labels[r] >= k.classes && r < bad[me])
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

__global__ static void rows_alone(const __grid_constant__ ls_k_xent k)
{
    int row = (int)((blockIdx.x * blockDim.x + threadIdx.x) / WARP);
    if (row < k.rows)
        do_row(k, row, threadIdx.x % WARP);
}

__global__ static void sum_alone(const __grid_constant__ ls_k_xent k)
{
    add_rows(k);
}

__global__ static void __launch_bounds__(ONE_BLOCK)
    rows_and_sum(const __grid_constant__ ls_k_xent k)
{
    for (int row = threadIdx.x / WARP; row < k.rows; row += blockDim.x / WARP)
        do_row(k, row, threadIdx.x % WARP);
    __syncthreads(); /* the block sees what it wrote to k.row */
    add_rows(k);
}

cudaError_t ls_k_softmax_xent(const ls_k_xent *k, cudaStream_t stream)
{
    if ((size_t)k->rows * (size_t)k->classes <= SMALL) {
        rows_and_sum<<<1, ONE_BLOCK, 0, stream>>>(*k);
        return cudaGetLastError();
    }
    unsigned blocks = ((unsigned)k->rows + 7) / 8;
    rows_alone<<<blocks, 8 * WARP, 0, stream>>>(*k);
    sum_alone<<<1, SUM_THREADS, 0, stream>>>(*k);
    return cudaGetLastError();
}
