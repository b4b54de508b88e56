/* Convolutions by cuDNN: the graph of a pass, the choice of an engine, and running it. */
#include "cuda/cudnn_engine.h"

#include <stdio.h>
#include <string.h>

/* What memory is bound to. */
enum { A = 1, B = 2, OUT = 3, BIAS = 4, SUM = 5, BIASED = 6 };

typedef struct conv_plan {
    ls_math_inside inside; /* first */
    ls_engine engine;
    ls_graph_object pack; /* the memory of the last run, which is mostly that of the next */
    void *bound[5];       /* a, b, out, bias, workspace of it */
} conv_plan;

/* ---- the graph ------------------------------------------------------------------------------ */

static ls_graph_object tensor(ls_graph *g, int64_t number, cudnnDataType_t type, int n, int c,
                              int h, int w, int flags)
{
    const int64_t line = (int64_t)w * c;
    const int64_t dims[4] = {n, c, h, w}, strides[4] = {h * line, 1, line, c};
    return ls_graph_tensor(g, number, type, dims, strides, flags);
}

static void build_forward(ls_graph *g, const ls_math_shape *s, ls_graph_object x, ls_graph_object w,
                          cudnnDataType_t type)
{
    const int n = s->rows, c = s->out, high = s->y_h, wide = s->y_w;
    ls_graph_object y = tensor(g, OUT, type, n, c, high, wide, 0);
    if (!s->bias) {
        ls_graph_conv(g, LS_MATH_CONV, x, w, y, s);
        return;
    }
    ls_graph_object sum = tensor(g, SUM, CUDNN_DATA_FLOAT, n, c, high, wide, LS_GRAPH_VIRTUAL);
    ls_graph_object bias = tensor(g, BIAS, type, 1, c, 1, 1, 0); /* else no engine fuses it */
    ls_graph_conv(g, LS_MATH_CONV, x, w, sum, s);
    if (!s->relu) {
        ls_graph_pointwise(g, CUDNN_POINTWISE_ADD, sum, bias, y);
        return;
    }
    ls_graph_object biased =
        tensor(g, BIASED, CUDNN_DATA_FLOAT, n, c, high, wide, LS_GRAPH_VIRTUAL);
    ls_graph_pointwise(g, CUDNN_POINTWISE_ADD, sum, bias, biased);
    ls_graph_pointwise(g, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
}

static void build(ls_graph *g, const ls_math *math, const ls_math_shape *s)
{
    const cudnnDataType_t type = s->half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int x_is = s->kind == LS_MATH_CONV_DATA ? OUT : A;
    const int w_is = s->kind == LS_MATH_CONV_WEIGHTS ? OUT : B;
    const int y_is = s->kind == LS_MATH_CONV_DATA ? A : B;
    ls_graph_init(g);
    ls_graph_object x = tensor(g, x_is, type, s->rows, s->c, s->h, s->w, 0);
    ls_graph_object w = tensor(g, w_is, type, s->out, s->c, s->kh, s->kw, 0);
    if (s->kind == LS_MATH_CONV) {
        build_forward(g, s, x, w, type);
    } else {
        ls_graph_object dy = tensor(g, y_is, type, s->rows, s->out, s->y_h, s->y_w, 0);
        ls_graph_conv(g, s->kind, x, w, dy, s);
    }
    ls_graph_close(g, math);
}

/* ---- running -------------------------------------------------------------------------------- */

static cudnnStatus_t make_pack(conv_plan *p, void *const memory[5])
{
    const int64_t numbers[4] = {A, B, OUT, BIAS}, count = p->inside.shape.bias ? 4 : 3;
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

static void conv_destroy(ls_math_inside *inside)
{
    conv_plan *p = (conv_plan *)inside;
    if (p->pack)
        cudnnBackendDestroyDescriptor(p->pack);
    ls_engine_destroy(&p->engine);
    ls_free(inside->math->desc.host, p);
}

/* ---- tuning --------------------------------------------------------------------------------- */

static size_t operand_bytes(const ls_math_shape *s, int which)
{
    const size_t element = s->half ? 2 : 4;
    const size_t x = (size_t)s->rows * (size_t)s->h * (size_t)s->w * (size_t)s->c;
    const size_t y = (size_t)s->rows * (size_t)s->y_h * (size_t)s->y_w * (size_t)s->out;
    const size_t w = (size_t)s->out * (size_t)s->kh * (size_t)s->kw * (size_t)s->c;
    const size_t role[3][3] = {{x, w, y}, {y, w, x}, {x, y, w}}; /* by kind: a, b, out */
    return role[s->kind][which] * element;
}

/* Memory to time candidates on, and two events. */
typedef struct bench {
    cudaStream_t stream;
    void *memory[5];
    cudaEvent_t start, stop;
} bench;

static void bench_fini(bench *b)
{
    for (int i = 0; i < 5; i++)
        if (b->memory[i])
            cudaFree(b->memory[i]);
    if (b->start)
        cudaEventDestroy(b->start);
    if (b->stop)
        cudaEventDestroy(b->stop);
    if (b->stream)
        cudaStreamDestroy(b->stream);
}

static cudaError_t bench_init(bench *b, const ls_math_shape *s, size_t workspace)
{
    const size_t bytes[5] = {operand_bytes(s, 0), operand_bytes(s, 1), operand_bytes(s, 2),
                             (size_t)s->out * sizeof(float), workspace + 1};
    memset(b, 0, sizeof *b);
    cudaError_t e = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    for (int i = 0; i < 5 && e == cudaSuccess; i++) {
        e = cudaMalloc(&b->memory[i], bytes[i]);
        if (e == cudaSuccess)
            e = cudaMemsetAsync(b->memory[i], 0, bytes[i], b->stream);
    }
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&b->start, cudaEventDefault);
    return e == cudaSuccess ? cudaEventCreateWithFlags(&b->stop, cudaEventDefault) : e;
}

/* Milliseconds of the fastest of some runs; negative: it does not run. */
static float time_of(conv_plan *p, const ls_engine *engine, const bench *b)
{
    enum { RUNS = 6 };
    const ls_math_operands o = {b->memory[0], b->memory[1], b->memory[3], b->memory[2], 0,
                                b->memory[4]};
    float best = -1;
    p->engine = *engine;
    for (int i = 0; i < RUNS; i++) {
        float ms = 0;
        if (cudaEventRecord(b->start, b->stream) != cudaSuccess ||
            p->inside.run(&p->inside, b->stream, &o, NULL) != LS_OK ||
            cudaEventRecord(b->stop, b->stream) != cudaSuccess ||
            cudaEventSynchronize(b->stop) != cudaSuccess ||
            cudaEventElapsedTime(&ms, b->start, b->stop) != cudaSuccess)
            return -1;
        if (i > 0 && (best < 0 || ms < best)) /* the first run loads the kernel */
            best = ms;
    }
    return best;
}

/* The number of the fastest candidate; the first when they cannot be timed. */
static int fastest(conv_plan *p, const ls_engine *candidate, int count)
{
    bench b;
    size_t workspace = 0;
    int best = 0;
    float least = -1;
    for (int i = 0; i < count; i++)
        if (candidate[i].workspace_bytes > workspace)
            workspace = candidate[i].workspace_bytes;
    if (bench_init(&b, &p->inside.shape, workspace) == cudaSuccess)
        for (int i = 0; i < count; i++) {
            float ms = time_of(p, &candidate[i], &b);
            if (ms >= 0 && (least < 0 || ms < least)) {
                least = ms;
                best = i;
            }
        }
    (void)cudaGetLastError();
    bench_fini(&b);
    return best;
}

/* ---- choosing ------------------------------------------------------------------------------- */

static void key_of(char *out, size_t size, const ls_math *math, const ls_math_shape *s)
{
    snprintf(
        out, size,
        "lockstep 1 cudnn %zu sm_%d %s precision %d kind %d half %d bias %d relu %d x %d %d %d "
        "%d y %d %d %d kernel %d %d stride %d %d padding %d %d",
        cudnnGetVersion(), math->desc.compute, math->desc.model, (int)math->desc.precision,
        (int)s->kind, s->half, s->bias, s->relu, s->rows, s->c, s->h, s->w, s->out, s->y_h, s->y_w,
        s->kh, s->kw, s->sh, s->sw, s->ph, s->pw);
}

static int from_cache(ls_engine *out, const ls_math *math, const char *key)
{
    char *text = ls_math_cache_get(math, key);
    int found = text && ls_engine_from_text(out, math, text) == LS_OK;
    ls_free(math->desc.host, text);
    return found;
}

/* Times the candidates and keeps the best of them as everybody's choice, unless one was made
 * meanwhile. */
static void tune(conv_plan *p, const ls_engine *candidate, int count, const char *key)
{
    const ls_math *math = p->inside.math;
    char *text = ls_engine_to_text(&candidate[fastest(p, candidate, count)], math);
    if (text)
        ls_math_cache_put(math, key, text);
    ls_free(math->desc.host, text);
}

/* The tuned choice is taken as others will find it; where it cannot be kept, everybody takes cuDNN's
 * first, so that all workers still choose alike. */
static int choose(conv_plan *p, const ls_graph *g, const char *key, ls_error *err)
{
    const ls_math *math = p->inside.math;
    const int tunes = math->desc.cache_dir && math->cudnn;
    ls_engine candidate[LS_ENGINES];
    int count = ls_engine_candidates(candidate, tunes ? LS_ENGINES : 1, g, math, &p->inside.shape);
    if (count == 0)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "cuDNN has no deterministic engine of this precision for the "
                       "convolution");
    if (tunes)
        tune(p, candidate, count, key);
    const int kept = !tunes || !from_cache(&p->engine, math, key);
    if (kept)
        p->engine = candidate[0];
    for (int i = kept ? 1 : 0; i < count; i++)
        ls_engine_destroy(&candidate[i]);
    return LS_OK;
}

static int plan(conv_plan *p, ls_error *err)
{
    const ls_math *math = p->inside.math;
    char key[384];
    ls_graph g;
    int status = LS_OK;
    key_of(key, sizeof key, math, &p->inside.shape);
    if (math->cudnn && from_cache(&p->engine, math, key))
        return LS_OK;
    build(&g, math, &p->inside.shape);
    if (g.status != CUDNN_STATUS_SUCCESS)
        status = ls_fail(err, LS_EUNSUPPORTED, "cuDNN declines the convolution: %s", g.text);
    else
        status = choose(p, &g, key, err);
    ls_graph_fini(&g);
    return status;
}

int ls_cudnn_conv_plan(ls_math_inside **out, ls_math *math, const ls_math_shape *shape,
                       ls_error *err)
{
    conv_plan *p = ls_alloc(math->desc.host, sizeof *p);
    *out = NULL;
    if (!p)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a plan", math->desc.device);
    p->inside.math = math;
    p->inside.shape = *shape;
    p->inside.run = conv_run;
    p->inside.destroy = conv_destroy;
    int status = plan(p, err);
    if (status) {
        conv_destroy(&p->inside);
        return status;
    }
    p->inside.plan.workspace_bytes = p->engine.workspace_bytes;
    snprintf(p->inside.plan.name, sizeof p->inside.plan.name, "cudnn %s", p->engine.name);
    *out = &p->inside;
    return LS_OK;
}
