/* SPDX-License-Identifier: MIT */
/* Convolutions by cuDNN: chooses an engine (math_lib.h) and runs it. For convolutions of few
 * channels Lockstep's own kernels (own_conv.h) are a candidate as well. */
#include "cuda/math/tune.h"
#include "cuda/own_conv.h"

#include <stdio.h>
#include <string.h>

typedef struct conv_plan {
    ls_math_inside inside; /* base; must be first */
    ls_conv_engine engine; /* the engine that the plan runs: a copy of a candidate, or the plan's
                            * own if there are no candidates */
    ls_conv_engine *candidate; /* [LS_ENGINES] while the plan is made, else NULL */
    int candidates;
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

static int run_own(const ls_math_inside *inside, cudaStream_t stream, const ls_math_operands *o,
                   ls_error *err)
{
    return cuda_check(err, ls_own_conv_run(&inside->shape, o, stream), "%s: a convolution by %s",
                      inside->math->desc.device, inside->plan.name);
}

static int conv_run(ls_math_inside *inside, cudaStream_t stream, const ls_math_operands *o,
                    ls_error *err)
{
    conv_plan *p = (conv_plan *)inside;
    if (p->engine.own)
        return run_own(inside, stream, o, err);
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

/* ---- choosing (ls_math_library) -------------------------------------------------------------- */

static void conv_key(char *out, size_t size, const ls_math_inside *inside)
{
    const ls_math *math = inside->math;
    const ls_math_shape *s = &inside->shape;
    const int length = snprintf(
        out, size,
        "lockstep 4 cudnn %zu cublas %zu sm_%d %s precision %d kind %d half %d bias %d relu %d x "
        "%d %d %d %d y %d %d %d kernel %d %d stride %d %d padding %d %d",
        cudnnGetVersion(), cublasLtGetVersion(), math->desc.compute, math->desc.model,
        (int)math->desc.precision, (int)s->kind, s->half, s->bias, s->relu, s->rows, s->c, s->h,
        s->w, s->out, s->y_h, s->y_w, s->kh, s->kw, s->sh, s->sw, s->ph, s->pw);
    if ((s->groups > 1 || s->dh > 1 || s->dw > 1) && length > 0 && (size_t)length < size)
        snprintf(out + length, size - (size_t)length, " dilation %d %d groups %d", s->dh, s->dw,
                 s->groups);
    /* Choices that were made without the kernels as a candidate are not used. */
    if (ls_own_conv_takes(s) && strlen(out) + sizeof LS_OWN_CONV_TEXT < size)
        strcat(out, " own " LS_OWN_CONV_VERSION);
}

/* Destroys all candidates. The plan then runs nothing. */
static void drop_candidates(conv_plan *p)
{
    for (int i = 0; i < p->candidates; i++)
        ls_conv_engine_destroy(&p->candidate[i]);
    p->candidates = 0;
    memset(&p->engine, 0, sizeof p->engine);
}

/* Adds cuDNN's engines to the candidates. */
static int find_engines(conv_plan *p, int room, ls_error *err)
{
    const ls_math_inside *inside = &p->inside;
    ls_graph g;
    int status = LS_OK;
    ls_graph_of_conv(&g, inside->math, &inside->shape);
    if (g.status != CUDNN_STATUS_SUCCESS)
        status = ls_fail(err, LS_EUNSUPPORTED, "cuDNN declines the convolution: %s", g.text);
    else
        p->candidates += ls_conv_engine_candidates(p->candidate + p->candidates, room, &g,
                                                   inside->math, &inside->shape);
    ls_graph_fini(&g);
    if (status == LS_OK && p->candidates == 0)
        status = ls_fail(err, LS_EUNSUPPORTED,
                         "cuDNN has no deterministic engine of this precision for the convolution");
    return status;
}

/* Returns Lockstep's own kernels as an engine. They count as adding term by term only in forward:
 * in the gradient of the weights their error is too small for a yardstick. */
static ls_conv_engine own_engine(const ls_math_shape *s)
{
    return (ls_conv_engine){.own = true,
                            .simple = s->kind == LS_MATH_CONV,
                            .workspace_bytes = ls_own_conv_workspace(s),
                            .name = "own kernels"};
}

/* Makes Lockstep's own kernels the first candidate, if they compute the shape. */
static void find_own(conv_plan *p, int room)
{
    const ls_math_shape *s = &p->inside.shape;
    if (room > 1 ? ls_own_conv_takes(s) : ls_own_conv_is_first(s))
        p->candidate[p->candidates++] = own_engine(s);
}

static int conv_find(ls_math_inside *inside, ls_tune_result *result, int room, ls_error *err)
{
    conv_plan *p = (conv_plan *)inside;
    int status = LS_OK;
    drop_candidates(p);
    if (!p->candidate)
        p->candidate = ls_alloc_array(inside->math->desc.host, LS_ENGINES, sizeof *p->candidate);
    if (!p->candidate)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a plan", inside->math->desc.device);
    find_own(p, room);
    if (room > p->candidates)
        status = find_engines(p, room - p->candidates, err);
    if (p->candidates > 0)
        status = LS_OK; /* cuDNN may decline what the own kernels compute */
    for (int i = 0; i < p->candidates; i++) {
        snprintf(result[i].name, sizeof result[i].name, "%s", p->candidate[i].name);
        result[i].workspace_bytes = p->candidate[i].workspace_bytes;
        result[i].simple = p->candidate[i].simple;
    }
    return status ? status : p->candidates;
}

static void conv_take(ls_math_inside *inside, int i)
{
    conv_plan *p = (conv_plan *)inside;
    p->engine = p->candidate[i];
}

static char *conv_to_text(const ls_math_inside *inside)
{
    const ls_conv_engine *engine = &((const conv_plan *)inside)->engine;
    if (!engine->own)
        return ls_conv_engine_to_text(engine, inside->math);
    char *text = ls_alloc(inside->math->desc.host, sizeof LS_OWN_CONV_TEXT);
    if (text)
        memcpy(text, LS_OWN_CONV_TEXT, sizeof LS_OWN_CONV_TEXT);
    return text;
}

static int conv_from_text(ls_math_inside *inside, const char *text)
{
    conv_plan *p = (conv_plan *)inside;
    ls_conv_engine engine;
    if (strcmp(text, LS_OWN_CONV_TEXT) == 0 && ls_own_conv_takes(&inside->shape)) {
        drop_candidates(p);
        p->engine = own_engine(&inside->shape);
        return LS_OK;
    }
    const int status = ls_conv_engine_from_text(&engine, inside->math, text);
    if (status == LS_OK) {
        drop_candidates(p);
        p->engine = engine;
    }
    return status;
}

/* Keeps the engine that the plan runs, and destroys the other candidates. */
static void keep_engine(conv_plan *p)
{
    for (int i = 0; i < p->candidates; i++)
        if (p->candidate[i].plan != p->engine.plan)
            ls_conv_engine_destroy(&p->candidate[i]);
    p->candidates = 0;
    ls_free(p->inside.math->desc.host, p->candidate);
    p->candidate = NULL;
}

static int conv_init(ls_math_inside *inside, ls_error *err)
{
    conv_plan *p = (conv_plan *)inside;
    int status = ls_math_choose_plan(inside, err);
    if (status)
        drop_candidates(p);
    keep_engine(p);
    inside->plan.workspace_bytes = p->engine.workspace_bytes;
    inside->plan.own = p->engine.own;
    snprintf(inside->plan.name, sizeof inside->plan.name, "%s%s", p->engine.own ? "" : "cudnn ",
             p->engine.name);
    return status;
}

static void conv_fini(ls_math_inside *inside)
{
    conv_plan *p = (conv_plan *)inside;
    if (p->pack)
        cudnnBackendDestroyDescriptor(p->pack);
    ls_conv_engine_destroy(&p->engine);
}

const ls_math_library ls_cudnn_conv = {
    .bytes = sizeof(conv_plan),
    .init = conv_init,
    .run = conv_run,
    .fini = conv_fini,
    .key = conv_key,
    .find = conv_find,
    .take = conv_take,
    .to_text = conv_to_text,
    .from_text = conv_from_text,
    .name = "cuDNN",
};
