/* SPDX-License-Identifier: MIT */
#include "cuda/math/inside.h"

#include <stdio.h>
#include <string.h>

enum {
    CONFIGS = 128,
    NOTES = CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
    BEHAVIORS = CUDNN_BEHAVIOR_NOTE_TYPE_COUNT
};

/* ---- objects that the caller destroys ------------------------------------------------------- */

static ls_graph_object object(cudnnBackendDescriptorType_t type)
{
    ls_graph_object o = NULL;
    return cudnnBackendCreateDescriptor(type, &o) == CUDNN_STATUS_SUCCESS ? o : NULL;
}

static void destroy(ls_graph_object o)
{
    if (o)
        cudnnBackendDestroyDescriptor(o);
}

static bool set(ls_graph_object o, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    return cudnnBackendSetAttribute(o, name, type, count, value) == CUDNN_STATUS_SUCCESS;
}

/* Returns the number of values that were read. */
static int get(ls_graph_object o, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t room, void *values)
{
    int64_t count = 0;
    if (cudnnBackendGetAttribute(o, name, type, room, &count, values) != CUDNN_STATUS_SUCCESS)
        return 0;
    return (int)(count < room ? count : room);
}

/* ---- traits of an engine --------------------------------------------------------------------- */

typedef struct traits {
    int64_t number;
    uint64_t settings; /* hash of the knobs */
    int note[NOTES];
    int compiled; /* non-zero: compiled at run time */
} traits;

static void read_behavior(traits *t, ls_graph_object engine)
{
    cudnnBackendBehaviorNote_t note[BEHAVIORS];
    int notes =
        get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, BEHAVIORS, note);
    for (int i = 0; i < notes; i++)
        t->compiled |= note[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
}

int ls_conv_engine_knobs(ls_conv_knob out[LS_CONV_KNOBS], ls_graph_object config)
{
    ls_graph_object knob[LS_CONV_KNOBS];
    for (int i = 0; i < LS_CONV_KNOBS; i++)
        knob[i] = object(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    const int count = get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          LS_CONV_KNOBS, knob);
    for (int i = 0; i < count; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t value = 0;
        get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
        out[i] = (ls_conv_knob){(int)type, value};
    }
    for (int i = 0; i < LS_CONV_KNOBS; i++)
        destroy(knob[i]);
    return count;
}

/* Hashes the settings, so that two configurations of an engine can be compared. */
static uint64_t hash_settings(ls_graph_object config)
{
    ls_conv_knob knob[LS_CONV_KNOBS];
    uint64_t hash = 0;
    const int count = ls_conv_engine_knobs(knob, config);
    for (int i = 0; i < count; i++) {
        /* The knobs can come in any sequence, so their mixed numbers are added. */
        uint64_t mixed = ((uint64_t)knob[i].type << 40) + (uint64_t)knob[i].value;
        for (int round = 0; round < 2; round++)
            mixed = (mixed ^ mixed >> 31) * 0xff51afd7ed558ccdu;
        hash += mixed ^ mixed >> 29;
    }
    return hash;
}

static bool read_traits(traits *out, ls_graph_object config)
{
    cudnnBackendNumericalNote_t note[NOTES];
    ls_graph_object engine = object(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    memset(out, 0, sizeof *out);
    const bool good = engine && get(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) == 1;
    if (good) {
        get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &out->number);
        int notes =
            get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, note);
        for (int i = 0; i < notes; i++)
            if ((int)note[i] >= 0 && (int)note[i] < NOTES)
                out->note[note[i]] = 1;
        read_behavior(out, engine);
        out->settings = hash_settings(config);
    }
    destroy(engine);
    return good;
}

/* Returns true if the engine uses Winograd's algorithm. cuDNN 9.19 does not report this for its
 * engine 17 for gradients of weights, although the engine's kernels are called winograd_nonfused on
 * an H200. */
static bool is_winograd(const traits *t, const ls_math_shape *shape)
{
    return t->note[CUDNN_NUMERICAL_NOTE_WINOGRAD] ||
           (shape->kind == LS_MATH_CONV_WEIGHTS && t->number == 17);
}

/* Returns true if cuDNN says that the engine is deterministic and computes in the precision that is
 * requested. With fp32 operands, an engine that uses tensor cores computes in tf32. */
static bool is_welcome(const traits *t, const ls_math *math, const ls_math_shape *shape)
{
    const int *note = t->note;
    if (note[CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC] ||
        note[CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION])
        return false;
    if (!shape->half && note[CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS])
        return false;
    return shape->half || math->desc.precision != LS_PRECISION_FP32 ||
           !note[CUDNN_NUMERICAL_NOTE_TENSOR_CORE];
}

/* Returns true if the engine may be used although its error was not measured. (tune.h says how
 * errors are measured.) */
static bool is_plain(const traits *t, const ls_math_shape *shape)
{
    return !is_winograd(t, shape) && !t->note[CUDNN_NUMERICAL_NOTE_FFT];
}

/* ---- plans ---------------------------------------------------------------------------------- */

size_t ls_conv_workspace_limit(const ls_math *math)
{
    const size_t least = (size_t)256 << 20, share = math->desc.memory_bytes / 256;
    return share > least ? share : least;
}

void ls_conv_engine_destroy(ls_conv_engine *engine)
{
    destroy(engine->plan);
    memset(engine, 0, sizeof *engine);
}

static int finish(ls_conv_engine *out, const ls_math *math, ls_graph_object plan)
{
    int64_t bytes = 0;
    out->plan = plan;
    if (!plan || cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS ||
        get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes) != 1 ||
        bytes < 0 || (size_t)bytes > ls_conv_workspace_limit(math)) {
        ls_conv_engine_destroy(out);
        return LS_EUNSUPPORTED;
    }
    out->workspace_bytes = (size_t)bytes;
    return LS_OK;
}

static ls_graph_object new_plan(const ls_math *math)
{
    ls_graph_object plan = object(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (plan && math->cudnn)
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &math->cudnn);
    else if (plan)
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &math->properties);
    return plan;
}

static int make_engine(ls_conv_engine *out, ls_graph_object config, const traits *t,
                       const ls_math *math, const ls_math_shape *shape)
{
    memset(out, 0, sizeof *out);
    ls_graph_object plan = new_plan(math);
    if (plan)
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &config);
    int status = finish(out, math, plan);
    out->number = t->number;
    out->settings = t->settings;
    out->simple = t->number == 0 || t->number == 1;
    snprintf(out->name, sizeof out->name, "engine %lld%s%s%s", (long long)t->number,
             t->note[CUDNN_NUMERICAL_NOTE_TENSOR_CORE] ? ", tensor cores" : "",
             is_winograd(t, shape) ? ", Winograd" : "", t->compiled ? ", compiled here" : "");
    return status;
}

/* Fetches the configurations of engines that one of cuDNN's heuristics recommends, best first.
 * Returns their number. */
static int recommend(ls_graph_object *config, const ls_graph *g, const ls_math *math,
                     cudnnBackendHeurMode_t mode)
{
    ls_graph_object h = object(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int count = 0;
    for (int i = 0; i < CONFIGS; i++)
        config[i] = NULL;
    if (h &&
        set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
            &g->graph) &&
        set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) &&
        (!math->properties || set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &math->properties)) &&
        cudnnBackendFinalize(h) == CUDNN_STATUS_SUCCESS) {
        for (int i = 0; i < CONFIGS; i++)
            config[i] = object(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        count =
            get(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, config);
    }
    destroy(h);
    return count;
}

enum { MODES = 3 };

/* The candidates found so far. */
typedef struct list {
    ls_conv_engine *at;
    int room, count;
    /* non-zero: only engines that cuDNN compiles at run time are added; 0: only the others */
    int compiled;
} list;

static bool is_known(const list *l, const traits *t)
{
    for (int i = 0; i < l->count; i++)
        if (l->at[i].number == t->number && l->at[i].settings == t->settings)
            return true;
    return false;
}

static void consider(list *l, ls_graph_object config, const ls_math *math,
                     const ls_math_shape *shape)
{
    traits t;
    if (l->count < l->room && read_traits(&t, config) && is_welcome(&t, math, shape) &&
        (l->room > 1 || is_plain(&t, shape)) && t.compiled == l->compiled && !is_known(l, &t))
        l->count += make_engine(&l->at[l->count], config, &t, math, shape) == LS_OK;
}

/* Considers the recommendations of all modes in turn. */
static void consider_all(list *l, ls_graph_object config[MODES][CONFIGS], const int found[MODES],
                         const ls_math *math, const ls_math_shape *shape)
{
    for (int i = 0; i < CONFIGS; i++)
        for (int m = 0; m < MODES; m++)
            if (i < found[m])
                consider(l, config[m][i], math, shape);
}

static void destroy_all(ls_graph_object config[CONFIGS])
{
    for (int i = 0; i < CONFIGS; i++)
        destroy(config[i]);
}

static const cudnnBackendHeurMode_t modes[MODES] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                    CUDNN_HEUR_MODE_FALLBACK};

/* Finds the first candidate, and asks no further heuristic then, because that takes time. */
static void find_first(list *l, const ls_graph *g, const ls_math *math, const ls_math_shape *shape)
{
    ls_graph_object config[CONFIGS];
    for (int m = 0; m < MODES && l->count == 0; m++) {
        const int count = recommend(config, g, math, modes[m]);
        for (int i = 0; i < count; i++)
            consider(l, config[i], math, shape);
        destroy_all(config);
    }
}

static void find_all(list *l, const ls_graph *g, const ls_math *math, const ls_math_shape *shape)
{
    ls_graph_object config[MODES][CONFIGS];
    int found[MODES];
    for (int m = 0; m < MODES; m++)
        found[m] = recommend(config[m], g, math, modes[m]);
    consider_all(l, config, found, math, shape);
    for (int m = 0; m < MODES; m++)
        destroy_all(config[m]);
}

int ls_conv_engine_candidates(ls_conv_engine *out, int room, const ls_graph *g, const ls_math *math,
                              const ls_math_shape *shape)
{
    list l = {out, room, 0, 0};
    for (; l.compiled < 2 && l.count == 0; l.compiled++)
        (room > 1 ? find_all : find_first)(&l, g, math, shape);
    return l.count;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Writes the engine's name on a line of its own, followed by cuDNN's JSON. */
char *ls_conv_engine_to_text(const ls_conv_engine *engine, const ls_math *math)
{
    int64_t bytes = 0;
    const size_t head = strlen(engine->name) + 1;
    if (cudnnBackendGetAttribute(engine->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, 0, &bytes, NULL) != CUDNN_STATUS_SUCCESS ||
        bytes <= 0)
        return NULL;
    char *text = ls_alloc(math->desc.host, head + (size_t)bytes + 1);
    if (!text)
        return NULL;
    snprintf(text, head + 1, "%s\n", engine->name);
    if (cudnnBackendGetAttribute(engine->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, bytes, &bytes,
                                 text + head) == CUDNN_STATUS_SUCCESS)
        return text;
    ls_free(math->desc.host, text);
    return NULL;
}

int ls_conv_engine_from_text(ls_conv_engine *out, const ls_math *math, const char *text)
{
    const char *line = strchr(text, '\n');
    memset(out, 0, sizeof *out);
    if (!line)
        return LS_EUNSUPPORTED;
    ls_graph_object plan = new_plan(math);
    if (plan && !set(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                     (int64_t)strlen(line + 1), line + 1)) {
        destroy(plan);
        return LS_EUNSUPPORTED;
    }
    int status = finish(out, math, plan);
    snprintf(out->name, sizeof out->name, "%.*s", (int)(line - text), text);
    return status;
}
