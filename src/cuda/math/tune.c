/* SPDX-License-Identifier: MIT */
#include "cuda/math/tune.h"

#include "cuda/math/sample.h"

#include <math.h>
#include <string.h>

enum {
    GRAPH_RUNS = 16,      /* runs in a graph */
    FIRST = 2,            /* launches of each candidate's graph */
    AGAIN = 10,           /* further launches of the best candidates' graphs */
    BEST = 6,             /* number of the best candidates */
    BITS_RUNS = 4,        /* runs that must give the same bits; the last two run beside load */
    LOAD_ROUNDS = 1 << 17 /* rounds of the load's kernel, about a millisecond */
};

/* Limits of a candidate's error, in units of the yardstick. */
static const double most_rms = 4, most_worst = 16;
/* Smallest yardstick: half a unit in the last place of fp32. */
static const double least_yardstick = 0x1p-25;

/* ---- memory --------------------------------------------------------------------------------- */

enum { A, B, OUT, BIAS, WORKSPACE, OUT_2, MEMORIES };

/* Memory and streams for measuring. It contains numbers, because with zeros a GPU uses less power
 * and therefore runs faster. */
typedef struct bench {
    ls_math_inside *plan;
    void (*take)(ls_math_inside *plan, int i);
    cudaStream_t stream, beside; /* `beside`: for the load */
    cudaEvent_t start, stop;
    cudaGraphExec_t exec;
    void *memory[MEMORIES];
    size_t bytes[MEMORIES];
    uint32_t *load;        /* output of the load's kernel */
    unsigned char *pinned; /* the blocks of a, b and the bias, then a block for results */
    ls_sample_data data;
    unsigned char *results;
    ls_sample sample[LS_TUNE_SAMPLES];
} bench;

static void bench_fini(bench *b)
{
    for (int i = 0; i < MEMORIES; i++)
        if (b->memory[i])
            cudaFree(b->memory[i]);
    if (b->load)
        cudaFree(b->load);
    if (b->pinned)
        cudaFreeHost(b->pinned);
    if (b->start)
        cudaEventDestroy(b->start);
    if (b->stop)
        cudaEventDestroy(b->stop);
    if (b->beside)
        cudaStreamDestroy(b->beside);
    if (b->stream)
        cudaStreamDestroy(b->stream);
}

static int load_blocks(const bench *b)
{
    const int half = b->plan->math->desc.processors / 2;
    return half > 0 ? half : 1;
}

static cudaError_t bench_memory(bench *b)
{
    void *pinned = NULL, *load = NULL;
    cudaError_t e = cudaHostAlloc(&pinned, 4 * LS_SAMPLE_BLOCK, cudaHostAllocDefault);
    b->pinned = pinned;
    for (int i = 0; i < MEMORIES && e == cudaSuccess; i++)
        e = cudaMalloc(&b->memory[i], b->bytes[i]);
    if (e == cudaSuccess)
        e = cudaMalloc(&load, (size_t)load_blocks(b) * LS_K_BUSY * sizeof *b->load);
    b->load = load;
    if (e != cudaSuccess)
        return e;
    b->data =
        (ls_sample_data){b->pinned, b->pinned + LS_SAMPLE_BLOCK, b->pinned + 2 * LS_SAMPLE_BLOCK};
    b->results = b->pinned + 3 * LS_SAMPLE_BLOCK;
    return cudaMemsetAsync(b->memory[WORKSPACE], 0xFF, b->bytes[WORKSPACE], b->stream);
}

static cudaError_t bench_init(bench *b, ls_math_inside *plan, size_t workspace)
{
    const ls_math_shape *s = &plan->shape;
    const size_t factor = ls_sample_factor_bytes(s), result = ls_sample_result_bytes(s);
    const size_t out = ls_sample_elements(s, 2) * result;
    *b = (bench){.plan = plan,
                 .bytes = {ls_sample_elements(s, 0) * factor, ls_sample_elements(s, 1) * factor,
                           out, (size_t)s->out * result, workspace + 1, out}};
    cudaError_t e = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&b->beside, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&b->start, cudaEventDefault);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&b->stop, cudaEventDefault);
    ls_sample_choose(b->sample, LS_TUNE_SAMPLES, s);
    return e == cudaSuccess ? bench_memory(b) : e;
}

/* Fills an operand with copies of a block. */
static cudaError_t upload(const bench *b, int which, const unsigned char *block)
{
    const size_t bytes = b->bytes[which];
    unsigned char *to = b->memory[which];
    size_t done = bytes < LS_SAMPLE_BLOCK ? bytes : LS_SAMPLE_BLOCK;
    cudaError_t e = cudaMemcpyAsync(to, block, done, cudaMemcpyHostToDevice, b->stream);
    for (size_t n; e == cudaSuccess && done < bytes; done += n) {
        n = done < bytes - done ? done : bytes - done;
        e = cudaMemcpyAsync(to + done, to, n, cudaMemcpyDeviceToDevice, b->stream);
    }
    return e;
}

static int run_to(const bench *b, int out)
{
    const ls_math_operands o = {
        b->memory[A], b->memory[B], b->memory[BIAS], b->memory[out], 0, b->memory[WORKSPACE]};
    return b->plan->library->run(b->plan, b->stream, &o, NULL);
}

/* ---- error ---------------------------------------------------------------------------------- */

/* Adds the error of one sample. An output without terms must be exact. */
static void add_error(ls_tune_error *e, double value, const ls_sample *s)
{
    const double off = fabs(value - s->exact);
    double error = s->magnitude > 0 ? off / s->magnitude : off > 0 ? INFINITY : 0;
    if (isnan(error))
        error = INFINITY;
    e->rms += error * error / LS_TUNE_SAMPLES;
    e->worst = error > e->worst ? error : e->worst;
}

/* Uploads operands of a kind, and computes the samples from them. Returns the error that the number
 * format makes unavoidable. */
static double prepare_kind(bench *b, int kind)
{
    const ls_math_shape *s = &b->plan->shape;
    ls_tune_error e = {0};
    if (cudaStreamSynchronize(b->stream) != cudaSuccess)
        return 0;
    ls_sample_fill(&b->data, s, kind);
    if (upload(b, A, b->data.a) != cudaSuccess || upload(b, B, b->data.b) != cudaSuccess ||
        upload(b, BIAS, b->data.bias) != cudaSuccess)
        return 0;
    for (int i = 0; i < LS_TUNE_SAMPLES; i++) {
        ls_sample_compute(&b->sample[i], &b->data, s, b->plan->math->desc.precision);
        add_error(&e, b->sample[i].rounded, &b->sample[i]);
    }
    return sqrt(e.rms);
}

/* Runs a candidate, and copies the samples from its output. Returns false if it does not run. */
static bool run_samples(const bench *b)
{
    const size_t bytes = ls_sample_result_bytes(&b->plan->shape);
    bool good = cudaMemsetAsync(b->memory[OUT], 0xFF, b->bytes[OUT], b->stream) == cudaSuccess &&
                run_to(b, OUT) == LS_OK;
    for (int i = 0; i < LS_TUNE_SAMPLES && good; i++)
        good = cudaMemcpyAsync(b->results + (size_t)i * bytes,
                               (char *)b->memory[OUT] + b->sample[i].at * bytes, bytes,
                               cudaMemcpyDeviceToHost, b->stream) == cudaSuccess;
    return cudaStreamSynchronize(b->stream) == cudaSuccess && good;
}

static void measure_error(bench *b, ls_tune_result *r, int i, int kind)
{
    const size_t bytes = ls_sample_result_bytes(&b->plan->shape);
    ls_tune_error e = {0};
    b->take(b->plan, i);
    if (!run_samples(b)) {
        r->refused = "does not run";
        r->ms = -1;
        (void)cudaGetLastError();
        return;
    }
    for (int k = 0; k < LS_TUNE_SAMPLES; k++)
        add_error(&e, ls_sample_value(b->results, (size_t)k, bytes), &b->sample[k]);
    r->error[kind] = (ls_tune_error){sqrt(e.rms), e.worst};
}

/* Returns the yardstick: the smallest error of the candidates that add term by term. If there are
 * none, the smallest error of all. */
static double yardstick_of(const ls_tune_result *r, int count, int kind)
{
    double simple = INFINITY, least = INFINITY;
    for (int i = 0; i < count; i++) {
        if (r[i].refused)
            continue;
        if (r[i].simple)
            simple = fmin(simple, r[i].error[kind].rms);
        least = fmin(least, r[i].error[kind].rms);
    }
    return isfinite(simple) ? simple : isfinite(least) ? least : 0;
}

void ls_tune_judge(ls_tune_result *r, int count, const double unavoidable[LS_TUNE_KINDS])
{
    for (int kind = 0; kind < LS_TUNE_KINDS; kind++) {
        const double measured = yardstick_of(r, count, kind);
        const double yardstick = fmax(least_yardstick, fmax(measured, unavoidable[kind]));
        for (int i = 0; i < count; i++)
            if (!r[i].refused && !(r[i].error[kind].rms <= most_rms * yardstick &&
                                   r[i].error[kind].worst <= most_worst * yardstick))
                r[i].refused = "not used, because its error is too large";
    }
}

/* Measures the errors of all candidates. The last kind of operands stays in memory for timing. */
static void measure_errors(bench *b, ls_tune_result *r, int count)
{
    double unavoidable[LS_TUNE_KINDS];
    for (int kind = LS_TUNE_KINDS - 1; kind >= 0; kind--) {
        unavoidable[kind] = prepare_kind(b, kind);
        for (int i = 0; i < count; i++)
            if (!r[i].refused)
                measure_error(b, &r[i], i, kind);
    }
    ls_tune_judge(r, count, unavoidable);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Records GRAPH_RUNS runs of a candidate as b->exec. Returns false if that is not possible. */
static bool record(bench *b, int i)
{
    cudaGraph_t graph = NULL;
    b->take(b->plan, i);
    bool good = cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    for (int k = 0; k < GRAPH_RUNS && good; k++)
        good = run_to(b, OUT) == LS_OK;
    good = cudaStreamEndCapture(b->stream, &graph) == cudaSuccess && good;
    good = good && cudaGraphInstantiate(&b->exec, graph, 0) == cudaSuccess;
    if (graph)
        cudaGraphDestroy(graph);
    if (!good)
        (void)cudaGetLastError();
    return good;
}

/* Launches b->exec and adjusts `best`, the shortest time of a run; negative: none is known. */
static bool time_launch(const bench *b, float *best)
{
    float ms = 0;
    if (cudaEventRecord(b->start, b->stream) != cudaSuccess ||
        cudaGraphLaunch(b->exec, b->stream) != cudaSuccess ||
        cudaEventRecord(b->stop, b->stream) != cudaSuccess ||
        cudaEventSynchronize(b->stop) != cudaSuccess ||
        cudaEventElapsedTime(&ms, b->start, b->stop) != cudaSuccess)
        return false;
    ms /= GRAPH_RUNS;
    if (*best < 0 || ms < *best)
        *best = ms;
    return true;
}

static void measure_time(bench *b, ls_tune_result *r, int i, int launches)
{
    bool good = record(b, i);
    for (int k = 0; k < launches && good; k++)
        good = time_launch(b, &r->ms);
    if (b->exec)
        cudaGraphExecDestroy(b->exec);
    b->exec = NULL;
    if (good)
        return;
    (void)cudaGetLastError();
    r->refused = "cannot be recorded in a graph";
    r->ms = -1;
}

/* Returns the index of the fastest candidate that is not refused and not in `without`; −1 if there
 * is none. */
static int fastest(const ls_tune_result *r, int count, const bool *without)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (!r[i].refused && r[i].ms >= 0 && !without[i] && (best < 0 || r[i].ms < r[best].ms))
            best = i;
    return best;
}

static void measure_times(bench *b, ls_tune_result *r, int count)
{
    bool done[LS_ENGINES] = {false};
    int best[BEST], bests = 0;
    for (int i = 0; i < count; i++)
        if (!r[i].refused)
            measure_time(b, &r[i], i, FIRST);
    for (int i; bests < BEST && (i = fastest(r, count, done)) >= 0; done[i] = true)
        best[bests++] = i;
    for (int k = 0; k < bests; k++)
        measure_time(b, &r[best[k]], best[k], AGAIN);
}

/* ---- bits ----------------------------------------------------------------------------------- */

/* Returns true if `bytes` bytes from offset `at` on are the same in both outputs. */
static bool is_same(const bench *b, size_t at, size_t bytes)
{
    unsigned char *half = b->results + LS_SAMPLE_BLOCK / 2;
    return cudaMemcpyAsync(b->results, (char *)b->memory[OUT] + at, bytes, cudaMemcpyDeviceToHost,
                           b->stream) == cudaSuccess &&
           cudaMemcpyAsync(half, (char *)b->memory[OUT_2] + at, bytes, cudaMemcpyDeviceToHost,
                           b->stream) == cudaSuccess &&
           cudaStreamSynchronize(b->stream) == cudaSuccess && memcmp(b->results, half, bytes) == 0;
}

static bool is_equal(const bench *b)
{
    bool same = true;
    for (size_t at = 0, n; same && at < b->bytes[OUT]; at += n) {
        n = b->bytes[OUT] - at;
        n = n < LS_SAMPLE_BLOCK / 2 ? n : LS_SAMPLE_BLOCK / 2;
        same = is_same(b, at, n);
    }
    return same;
}

static bool run_beside_load(const bench *b, int out)
{
    return ls_k_busy(b->load, load_blocks(b), LOAD_ROUNDS, b->beside) == cudaSuccess &&
           run_to(b, out) == LS_OK && cudaStreamSynchronize(b->beside) == cudaSuccess;
}

static bool is_repeatable(bench *b, int i)
{
    b->take(b->plan, i);
    bool same = run_to(b, OUT) == LS_OK;
    for (int run = 1; run < BITS_RUNS && same; run++) {
        for (int m = WORKSPACE; same && m <= OUT_2; m++)
            same = cudaMemsetAsync(b->memory[m], run % 2 ? 0xFF : 0x33, b->bytes[m], b->stream) ==
                   cudaSuccess;
        same = same && cudaStreamSynchronize(b->stream) == cudaSuccess;
        same =
            same && (run >= BITS_RUNS - 2 ? run_beside_load(b, OUT_2) : run_to(b, OUT_2) == LS_OK);
        same = same && is_equal(b);
    }
    if (!same)
        (void)cudaGetLastError();
    return same;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int best_of(bench *b, ls_tune_result *r, int count)
{
    static const bool none[LS_ENGINES];
    measure_errors(b, r, count);
    measure_times(b, r, count);
    for (int i; (i = fastest(r, count, none)) >= 0;) {
        if (is_repeatable(b, i))
            return i;
        r[i].refused = "not used, because its results vary";
    }
    return -1;
}

int ls_tune(ls_tune_result *result, int count, ls_math_inside *plan,
            void (*take)(ls_math_inside *plan, int i))
{
    bench b;
    size_t workspace = 0;
    int best = LS_TUNE_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        result[i].ms = -1;
        result[i].refused = NULL;
        memset(result[i].error, 0, sizeof result[i].error);
        if (result[i].workspace_bytes > workspace)
            workspace = result[i].workspace_bytes;
    }
    const cudaError_t e = bench_init(&b, plan, workspace);
    b.take = take;
    if (e == cudaSuccess)
        best = best_of(&b, result, count);
    (void)cudaGetLastError();
    bench_fini(&b);
    return best;
}
