/* SPDX-License-Identifier: MIT */
/* gpu_sweep: all configurations of cuDNN that its heuristics recommend for a pass, with cuDNN's own
 * notes on them. Nothing is left out here, because the program also shows what the back end does
 * not use. */
#include "sweep.h"

#include "cuda/math/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIGS = 256, NOTES = 32 };
#define WORKSPACE_MOST ((size_t)2 << 30)

static const struct heuristic {
    const char *name;
    cudnnBackendHeurMode_t mode;
} heuristics[] = {
    {"A", CUDNN_HEUR_MODE_A}, {"B", CUDNN_HEUR_MODE_B}, {"fallback", CUDNN_HEUR_MODE_FALLBACK}};
enum { HEURISTICS = sizeof heuristics / sizeof heuristics[0] };

static const char *const note_names[] = {
    [CUDNN_NUMERICAL_NOTE_TENSOR_CORE] = "tensor-core",
    [CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS] = "down-convert-inputs",
    [CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION] = "reduced-precision-reduction",
    [CUDNN_NUMERICAL_NOTE_FFT] = "fft",
    [CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC] = "nondeterministic",
    [CUDNN_NUMERICAL_NOTE_WINOGRAD] = "winograd",
    [CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4] = "winograd-4x4",
    [CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6] = "winograd-6x6",
    [CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13] = "winograd-13x13",
    [CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP] = "strict-nan",
};
enum { NOTE_NAMES = sizeof note_names / sizeof note_names[0] };

static ls_graph_object object(cudnnBackendDescriptorType_t type)
{
    ls_graph_object o = NULL;
    return cudnnBackendCreateDescriptor(type, &o) == CUDNN_STATUS_SUCCESS ? o : NULL;
}

static void destroy_all(ls_graph_object *o, int count)
{
    for (int i = 0; i < count; i++)
        if (o[i])
            cudnnBackendDestroyDescriptor(o[i]);
}

static int set(ls_graph_object o, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    return o && cudnnBackendSetAttribute(o, name, type, count, value) == CUDNN_STATUS_SUCCESS;
}

/* Returns the number of values that were read. */
static int get(ls_graph_object o, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t room, void *values)
{
    int64_t count = 0;
    if (!o || cudnnBackendGetAttribute(o, name, type, room, &count, values) != CUDNN_STATUS_SUCCESS)
        return 0;
    return (int)(count < room ? count : room);
}

/* ---- a configuration as cuDNN describes it --------------------------------------------------- */

static void append(char *text, size_t size, const char *word)
{
    const size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s", length ? " " : "", word);
}

static void read_notes(sweep_engine *e, ls_graph_object engine)
{
    cudnnBackendNumericalNote_t note[NOTES];
    cudnnBackendBehaviorNote_t behavior[NOTES];
    char number[32];
    const int notes =
        get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, note);
    const int behaviors =
        get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, behavior);
    e->deterministic = 1;
    for (int i = 0; i < notes; i++) {
        const int n = (int)note[i];
        snprintf(number, sizeof number, "note-%d", n);
        append(e->notes, sizeof e->notes,
               n >= 0 && n < NOTE_NAMES && note_names[n] ? note_names[n] : number);
        e->deterministic &= note[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    }
    for (int i = 0; i < behaviors; i++)
        if (behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            e->skipped = "cuDNN compiles it at run time";
}

static void read_knobs(sweep_engine *e, ls_graph_object config)
{
    ls_conv_knob knob[LS_CONV_KNOBS];
    const int count = ls_conv_engine_knobs(knob, config);
    for (int i = 0; i < count; i++) {
        char text[48];
        snprintf(text, sizeof text, "%d=%lld", knob[i].type, (long long)knob[i].value);
        append(e->knobs, sizeof e->knobs, text);
    }
}

static void read_config(sweep_engine *e, ls_graph_object config)
{
    ls_graph_object engine = object(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    e->number = -1;
    if (get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) == 1) {
        get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->number);
        read_notes(e, engine);
    }
    read_knobs(e, config);
    destroy_all(&engine, 1);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void make_plan(sweep_engine *e, const ls_math *math, ls_graph_object config)
{
    ls_graph_object plan = object(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0;
    if (math->cudnn)
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &math->cudnn);
    else
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &math->properties);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (!plan || cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS ||
        get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1 ||
        bytes < 0)
        e->skipped = "cuDNN makes no plan of it";
    else if ((size_t)bytes > WORKSPACE_MOST)
        e->skipped = "it needs more than 2 GiB of workspace";
    e->workspace_bytes = bytes > 0 ? (size_t)bytes : 0;
    e->plan = plan;
}

static int is_known(const sweep_engine *list, int count, const sweep_engine *e)
{
    for (int i = 0; i < count; i++)
        if (list[i].number == e->number && strcmp(list[i].knobs, e->knobs) == 0)
            return 1;
    return 0;
}

/* Fetches the recommendations of a heuristic. Returns their number. */
static int recommend(ls_graph_object *config, const ls_graph *g, const ls_math *math,
                     cudnnBackendHeurMode_t mode)
{
    ls_graph_object h = object(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int count = 0;
    set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->graph);
    set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (math->properties)
        set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &math->properties);
    for (int i = 0; i < CONFIGS; i++)
        config[i] = object(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (h && cudnnBackendFinalize(h) == CUDNN_STATUS_SUCCESS)
        count =
            get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, config);
    destroy_all(&h, 1);
    return count;
}

static int add_recommended(sweep_engine *out, int known, const ls_graph *g, const ls_math *math,
                           const struct heuristic *heuristic)
{
    ls_graph_object config[CONFIGS];
    const int count = recommend(config, g, math, heuristic->mode);
    for (int i = 0; i < count && known < SWEEP_MOST; i++) {
        sweep_engine *e = &out[known];
        *e = (sweep_engine){.mode = heuristic->name, .place = i};
        read_config(e, config[i]);
        if (is_known(out, known, e))
            continue;
        if (!e->skipped)
            make_plan(e, math, config[i]);
        known++;
    }
    destroy_all(config, CONFIGS);
    return known;
}

int sweep_find(sweep_engine *out, ls_math *math, const ls_math_shape *shape, ls_error *err)
{
    ls_graph g;
    int known = 0;
    ls_graph_of_conv(&g, math, shape);
    if (g.status != CUDNN_STATUS_SUCCESS)
        ls_fail(err, LS_EUNSUPPORTED, "cuDNN declines the convolution: %s", g.text);
    for (int i = 0; g.status == CUDNN_STATUS_SUCCESS && i < HEURISTICS; i++)
        known = add_recommended(out, known, &g, math, &heuristics[i]);
    if (g.status == CUDNN_STATUS_SUCCESS && known == 0)
        ls_fail(err, LS_EUNSUPPORTED, "cuDNN recommends nothing");
    ls_graph_fini(&g);
    return known;
}

/* ---- running --------------------------------------------------------------------------------- */

static int bind(sweep_engine *e, const ls_math_shape *shape, const ls_math_operands *o)
{
    const int64_t numbers[4] = {LS_GRAPH_A, LS_GRAPH_B, LS_GRAPH_OUT, LS_GRAPH_BIAS};
    const int64_t count = shape->bias ? 4 : 3;
    void *const memory[4] = {(void *)o->a, (void *)o->b, o->out, (void *)o->bias};
    ls_graph_object pack = e->pack;
    destroy_all(&pack, 1);
    e->pack = pack = object(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    e->bound = *o;
    return set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers) &&
           set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, memory) &&
           set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &o->workspace) &&
           cudnnBackendFinalize(pack) == CUDNN_STATUS_SUCCESS;
}

int sweep_run(sweep_engine *e, ls_math *math, const ls_math_shape *shape, cudaStream_t stream,
              const ls_math_operands *o, ls_error *err)
{
    cudnnStatus_t s = cudnnSetStream(math->cudnn, stream);
    if (s != CUDNN_STATUS_SUCCESS ||
        ((!e->pack || memcmp(&e->bound, o, sizeof *o) != 0) && !bind(e, shape, o)))
        return ls_fail(err, LS_EDEVICE, "cuDNN does not take the operands");
    s = cudnnBackendExecute(math->cudnn, e->plan, e->pack);
    return s == CUDNN_STATUS_SUCCESS
               ? LS_OK
               : ls_fail(err, LS_EDEVICE, "cuDNN: %s", cudnnGetErrorString(s));
}

void sweep_free(sweep_engine *engine, int count)
{
    for (int i = 0; i < count; i++) {
        ls_graph_object of[2] = {engine[i].plan, engine[i].pack};
        destroy_all(of, 2);
    }
}
