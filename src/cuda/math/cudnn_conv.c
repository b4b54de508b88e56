/* Convolutions by cuDNN: chooses an *engine*, one of cuDNN's implementations, and runs it. */
#include "cuda/math/inside.h"

#include <stdio.h>
#include <string.h>

typedef struct conv_plan {
    ls_math_inside inside; /* base; must be first */
    ls_conv_engine engine;
    /* memory bindings of the last run; the next run usually has the same bindings */
    ls_graph_object pack;
    void *bound[5]; /* addresses in `pack`: a, b, out, bias, workspace */
} conv_plan;

/* ---- running -------------------------------------------------------------------------------- */

static cudnnStatus_t make_pack(conv_plan *p, void *const memory[5])
{
    const int64_t numbers[4] = {LS_GRAPH_A, LS_GRAPH_B, LS_GRAPH_OUT, LS_GRAPH_BIAS};
    const int64_t count = p->inside.shape.bias ? 4 : 3;
    if (p->pack)
        cudnnBackendDestroyDescriptor(p->pack);
    p->pack = NULL;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                     count, numbers);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, count, memory);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                     CUDNN_TYPE_VOID_PTR, 1, &memory[4]);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(p->pack);
    memcpy(p->bound, memory, sizeof p->bound);
    return s;
}

static int conv_run(ls_math_inside *inside, cudaStream_t stream, const ls_math_operands *o,
                    ls_error *err)
{
    conv_plan *p = (conv_plan *)inside;
    const ls_math *math = inside->math;
    void *const memory[5] = {(void *)o->a, (void *)o->b, o->out, (void *)o->bias, o->workspace};
    cudnnStatus_t s = cudnnSetStream(math->cudnn, stream);
    if (s == CUDNN_STATUS_SUCCESS && (!p->pack || memcmp(memory, p->bound, sizeof memory) != 0))
        s = make_pack(p, memory);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendExecute(math->cudnn, p->engine.plan, p->pack);
    if (s == CUDNN_STATUS_SUCCESS)
        return LS_OK;
    return ls_fail(err, s == CUDNN_STATUS_ALLOC_FAILED ? LS_ENOMEM : LS_EDEVICE,
                   "%s: a convolution by cuDNN's %s: %s", math->desc.device, inside->plan.name,
                   cudnnGetErrorString(s));
}

static void conv_fini(ls_math_inside *inside)
{
    conv_plan *p = (conv_plan *)inside;
    if (p->pack)
        cudnnBackendDestroyDescriptor(p->pack);
    ls_conv_engine_destroy(&p->engine);
}

/* ---- tuning --------------------------------------------------------------------------------- */

static size_t operand_bytes(const ls_math_shape *s, int which)
{
    const size_t element = s->half ? 2 : 4;
    const size_t x = (size_t)s->rows * (size_t)s->h * (size_t)s->w * (size_t)s->c;
    const size_t y = (size_t)s->rows * (size_t)s->y_h * (size_t)s->y_w * (size_t)s->out;
    const size_t w = (size_t)s->out * (size_t)s->kh * (size_t)s->kw * (size_t)(s->c / s->groups);
    /* sizes of a, b and out for each kind */
    const size_t role[3][3] = {{x, w, y}, {y, w, x}, {x, y, w}};
    return role[s->kind][which] * element;
}

/* Memory for timing *candidates*, the engines that may be chosen. It contains random numbers, which
 * take as much time as real operands. (With zeros a GPU uses less power and therefore runs faster.)
 */
typedef struct bench {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    void *memory[6]; /* a, b, out, bias, workspace, a second out */
    size_t bytes[6];
    unsigned char *pinned; /* BLOCK bytes */
} bench;

enum { OUT = 2, WORKSPACE = 4, OUT_2 = 5, BLOCK = 1 << 20 };

static void bench_fini(bench *b)
{
    for (int i = 0; i < 6; i++)
        if (b->memory[i])
            cudaFree(b->memory[i]);
    if (b->pinned)
        cudaFreeHost(b->pinned);
    if (b->start)
        cudaEventDestroy(b->start);
    if (b->stop)
        cudaEventDestroy(b->stop);
    if (b->stream)
        cudaStreamDestroy(b->stream);
}

/* Fills the pinned block with numbers between −1 and 1. (The upper half of an fp32 number is a bf16
 * number.) */
static void fill_pinned(bench *b, int half)
{
    uint64_t x = 1;
    for (size_t i = 0; i < BLOCK / 4; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const float value = (float)(int32_t)(x >> 32) * 0x1p-31f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (half)
            bits = bits >> 16 | (bits & 0xffff0000u); /* two equal bf16 numbers */
        memcpy(b->pinned + 4 * i, &bits, sizeof bits);
    }
}

/* Fills an operand with copies of the block. */
static cudaError_t fill(const bench *b, int which)
{
    const size_t bytes = b->bytes[which];
    unsigned char *to = b->memory[which];
    size_t done = bytes < BLOCK ? bytes : BLOCK;
    cudaError_t e = cudaMemcpyAsync(to, b->pinned, done, cudaMemcpyHostToDevice, b->stream);
    for (size_t n; e == cudaSuccess && done < bytes; done += n) {
        n = done < bytes - done ? done : bytes - done;
        e = cudaMemcpyAsync(to + done, to, n, cudaMemcpyDeviceToDevice, b->stream);
    }
    return e;
}

static cudaError_t bench_fill(bench *b, int half)
{
    void *pinned = NULL;
    cudaError_t e = cudaHostAlloc(&pinned, BLOCK, cudaHostAllocDefault);
    b->pinned = pinned;
    if (e == cudaSuccess)
        fill_pinned(b, half);
    for (int i = 0; i < 6 && e == cudaSuccess; i++) {
        e = cudaMalloc(&b->memory[i], b->bytes[i]);
        if (e == cudaSuccess)
            e = fill(b, i);
    }
    return e;
}

static cudaError_t bench_init(bench *b, const ls_math_shape *s, size_t workspace)
{
    *b = (bench){.bytes = {operand_bytes(s, 0), operand_bytes(s, 1), operand_bytes(s, 2),
                           (size_t)s->out * sizeof(float), workspace + 1, operand_bytes(s, 2)}};
    cudaError_t e = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&b->start, cudaEventDefault);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&b->stop, cudaEventDefault);
    return e == cudaSuccess ? bench_fill(b, s->half) : e;
}

static int run_on(conv_plan *p, const bench *b, int out)
{
    const ls_math_operands o = {b->memory[0],        b->memory[1], b->memory[3], b->memory[out], 0,
                                b->memory[WORKSPACE]};
    return conv_run(&p->inside, b->stream, &o, NULL);
}

/* Returns the time of the fastest of several runs in milliseconds. Returns a negative number if the
 * engine does not run. */
static float time_of(conv_plan *p, const ls_conv_engine *engine, const bench *b)
{
    enum { RUNS = 6 };
    float best = -1;
    p->engine = *engine;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        if (cudaEventRecord(b->start, b->stream) != cudaSuccess || run_on(p, b, OUT) != LS_OK ||
            cudaEventRecord(b->stop, b->stream) != cudaSuccess ||
            cudaEventSynchronize(b->stop) != cudaSuccess ||
            cudaEventElapsedTime(&ms, b->start, b->stop) != cudaSuccess)
            return -1;
        if (i > 0 && (best < 0 || ms < best)) /* the first run loads the kernel */
            best = ms;
    }
    return best;
}

/* Returns true if `bytes` bytes from offset `at` on are the same in both outputs. */
static bool is_same(const bench *b, size_t at, size_t bytes)
{
    unsigned char *half = b->pinned + BLOCK / 2;
    return cudaMemcpyAsync(b->pinned, (char *)b->memory[OUT] + at, bytes, cudaMemcpyDeviceToHost,
                           b->stream) == cudaSuccess &&
           cudaMemcpyAsync(half, (char *)b->memory[OUT_2] + at, bytes, cudaMemcpyDeviceToHost,
                           b->stream) == cudaSuccess &&
           cudaStreamSynchronize(b->stream) == cudaSuccess && memcmp(b->pinned, half, bytes) == 0;
}

/* Returns true if two runs of an engine give the same bits, although workspace and output have
 * different contents before the two runs. This is checked because cuDNN's own statement that an
 * engine is deterministic has proved wrong. */
static bool is_repeatable(conv_plan *p, const ls_conv_engine *engine, const bench *b)
{
    p->engine = *engine;
    bool same = run_on(p, b, OUT) == LS_OK;
    for (int i = WORKSPACE; same && i <= OUT_2; i++)
        same = cudaMemsetAsync(b->memory[i], 0xFF, b->bytes[i], b->stream) == cudaSuccess;
    same = same && run_on(p, b, OUT_2) == LS_OK;
    for (size_t at = 0, n; same && at < b->bytes[OUT]; at += n) {
        n = b->bytes[OUT] - at < BLOCK / 2 ? b->bytes[OUT] - at : BLOCK / 2;
        same = is_same(b, at, n);
    }
    return same;
}

static void name_shape(char *out, size_t size, const ls_math_shape *s)
{
    static const char *const pass[] = {"forward", "data gradient", "weight gradient"};
    char groups[32] = "";
    if (s->groups > 1)
        snprintf(groups, sizeof groups, " in %d groups", s->groups);
    snprintf(out, size, "conv2d, %d rows of %d×%d×%d to %d, %d×%d%s, %s%s%s%s", s->rows, s->c, s->h,
             s->w, s->out, s->kh, s->kw, groups, pass[s->kind], s->bias ? " + bias" : "",
             s->relu ? " + relu" : "", s->half ? ", bf16" : "");
}

static void conv_log(const conv_plan *p, ls_log_level level, const ls_conv_engine *e, float ms,
                     const char *what)
{
    char shape[160];
    name_shape(shape, sizeof shape, &p->inside.shape);
    ls_log(p->inside.math->desc.host, level, "%s: %s: %s, %.4f ms, %zu KiB%s",
           p->inside.math->desc.device, shape, e->name, (double)ms, e->workspace_bytes / 1024,
           what);
}

/* Returns the index of the smallest time; −1 if all times are negative. */
static int least(const float *ms, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (ms[i] >= 0 && (best < 0 || ms[i] < ms[best]))
            best = i;
    return best;
}

/* Returns the index of the fastest candidate that gives the same bits in each run; −1 if there is
 * none. */
static int best_of(conv_plan *p, const ls_conv_engine *candidate, int count, const bench *b)
{
    float ms[LS_ENGINES];
    char rest[64];
    for (int i = 0; i < count; i++) {
        ms[i] = time_of(p, &candidate[i], b);
        conv_log(p, LS_LOG_DEBUG, &candidate[i], ms[i], ms[i] < 0 ? ": does not run" : "");
    }
    for (int i; (i = least(ms, count)) >= 0; ms[i] = -1) {
        if (is_repeatable(p, &candidate[i], b)) {
            snprintf(rest, sizeof rest, ": the fastest of %d", count);
            conv_log(p, LS_LOG_INFO, &candidate[i], ms[i], rest);
            return i;
        }
        conv_log(p, LS_LOG_WARNING, &candidate[i], ms[i], ": not used, because its results vary");
    }
    return -1;
}

/* Prepares the memory for timing, and returns the index of the best candidate as `best_of` does. If
 * there is not enough memory for timing, returns 0, the first candidate, because a convolution can
 * run without timing. */
static int fastest(conv_plan *p, const ls_conv_engine *candidate, int count)
{
    bench b;
    size_t workspace = 0;
    int best = 0;
    for (int i = 0; i < count; i++)
        if (candidate[i].workspace_bytes > workspace)
            workspace = candidate[i].workspace_bytes;
    if (bench_init(&b, &p->inside.shape, workspace) == cudaSuccess)
        best = best_of(p, candidate, count, &b);
    else
        conv_log(p, LS_LOG_WARNING, &candidate[0], 0, ": used without timing, for lack of memory");
    (void)cudaGetLastError();
    bench_fini(&b);
    memset(&p->engine, 0, sizeof p->engine); /* p->engine was a copy of a candidate */
    return best;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void key_of(char *out, size_t size, const ls_math *math, const ls_math_shape *s)
{
    const int length = snprintf(
        out, size,
        "lockstep 3 cudnn %zu sm_%d %s precision %d kind %d half %d bias %d relu %d x %d %d %d "
        "%d y %d %d %d kernel %d %d stride %d %d padding %d %d",
        cudnnGetVersion(), math->desc.compute, math->desc.model, (int)math->desc.precision,
        (int)s->kind, s->half, s->bias, s->relu, s->rows, s->c, s->h, s->w, s->out, s->y_h, s->y_w,
        s->kh, s->kw, s->sh, s->sw, s->ph, s->pw);
    /* Without groups and dilation the key is the same as in older versions of this file. */
    if ((s->groups > 1 || s->dh > 1 || s->dw > 1) && length > 0 && (size_t)length < size)
        snprintf(out + length, size - (size_t)length, " dilation %d %d groups %d", s->dh, s->dw,
                 s->groups);
}

static bool from_cache(ls_conv_engine *out, const ls_math *math, const char *key)
{
    if (math->given)
        return false;
    char *text = ls_math_cache_get(math, key);
    const bool found = text && ls_conv_engine_from_text(out, math, text) == LS_OK;
    if (text && !found)
        ls_math_cache_drop(math, key, text);
    ls_free(math->desc.host, text);
    return found;
}

/* Times the candidates and stores the best one as the choice of all workers, unless another process
 * has stored a choice in the meantime. */
static int tune(conv_plan *p, const ls_conv_engine *candidate, int count, const char *key,
                ls_error *err)
{
    const ls_math *math = p->inside.math;
    const int best = fastest(p, candidate, count);
    if (best < 0)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "none of cuDNN's %d engines for the convolution runs and gives the same bits "
            "twice",
            count);
    char *text = ls_conv_engine_to_text(&candidate[best], math);
    if (text)
        ls_math_cache_put(math, key, text);
    ls_free(math->desc.host, text);
    return LS_OK;
}

/* Chooses an engine. After timing, it reads the choice back from the directory, as other workers
 * will do. If the choice could not be stored, every worker uses cuDNN's first candidate, so that
 * all workers make the same choice. */
static int choose(conv_plan *p, const ls_graph *g, const char *key, ls_error *err)
{
    const ls_math *math = p->inside.math;
    const int tunes = math->desc.cache_dir != NULL && !math->given;
    ls_conv_engine candidate[LS_ENGINES];
    int count =
        ls_conv_engine_candidates(candidate, tunes ? LS_ENGINES : 1, g, math, &p->inside.shape);
    if (count == 0)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "cuDNN has no deterministic engine of this precision for the "
                       "convolution");
    const int status = tunes ? tune(p, candidate, count, key, err) : LS_OK;
    const bool kept = status == LS_OK && (!tunes || !from_cache(&p->engine, math, key));
    if (kept)
        p->engine = candidate[0];
    for (int i = kept ? 1 : 0; i < count; i++)
        ls_conv_engine_destroy(&candidate[i]);
    return status;
}

/* Uses the engine that another machine has chosen. If that is not possible, fails, because another
 * engine would give other bits. */
static int as_given(conv_plan *p, const char *text, ls_error *err)
{
    return ls_conv_engine_from_text(&p->engine, p->inside.math, text) == LS_OK
               ? LS_OK
               : ls_fail(err, LS_EDEVICE,
                         "%s: cuDNN does not take the plan that the first host chose",
                         p->inside.math->desc.device);
}

static int plan_alone(conv_plan *p, const char *key, ls_error *err)
{
    const ls_math *math = p->inside.math;
    ls_graph g;
    int status = LS_OK;
    if (from_cache(&p->engine, math, key))
        return LS_OK;
    ls_graph_of_conv(&g, math, &p->inside.shape);
    if (g.status != CUDNN_STATUS_SUCCESS)
        status = ls_fail(err, LS_EUNSUPPORTED, "cuDNN declines the convolution: %s", g.text);
    else
        status = choose(p, &g, key, err);
    ls_graph_fini(&g);
    return status;
}

/* Makes a plan, and adds the choice to those that ls_math_choices sends to other machines. */
static int conv_make_plan(conv_plan *p, ls_error *err)
{
    ls_math *math = p->inside.math;
    char key[384];
    key_of(key, sizeof key, math, &p->inside.shape);
    const char *given = ls_math_chosen(math, key);
    if (given)
        return as_given(p, given, err);
    int status = plan_alone(p, key, err);
    if (status || math->given)
        return status;
    char *text = ls_conv_engine_to_text(&p->engine, math);
    status = ls_math_note(math, key, text, err);
    ls_free(math->desc.host, text);
    return status;
}

static int conv_init(ls_math_inside *inside, ls_error *err)
{
    conv_plan *p = (conv_plan *)inside;
    int status = conv_make_plan(p, err);
    inside->plan.workspace_bytes = p->engine.workspace_bytes;
    snprintf(inside->plan.name, sizeof inside->plan.name, "cudnn %s", p->engine.name);
    return status;
}

const ls_math_library ls_cudnn_conv = {sizeof(conv_plan), conv_init, conv_run, conv_fini};
