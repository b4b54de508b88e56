/* SPDX-License-Identifier: MIT */
/* Tests how the cuDNN engine (implementation) of a convolution is chosen, and how the *choice* is
 * stored on disk and sent to other machines (src/cuda/math/cache.c). The real cuDNN makes plans for
 * a GPU that is only described. The engines are not run: the test decides how long each engine
 * takes, and whether its results are repeatable. */
#include "base/clock.h"
#include "cuda/math/sample.h"
#include "cuda/math/tune.h"
#include "cuda_ops/cuda_backend.h"
#include "doubles/launch.h"
#include "nn/nn_fixture.h"
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the double of a run -------------------------------------------------------------------- */

cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack);
cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values);
cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t __wrap_cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop);
cudaError_t __real_ls_k_busy(uint32_t *out, int blocks, uint32_t rounds, cudaStream_t stream);
cudaError_t __wrap_ls_k_busy(uint32_t *out, int blocks, uint32_t rounds, cudaStream_t stream);

enum {
    ROWS = 4,
    SIDE = 6,
    CHANNELS = 16,
    OUT = ROWS * SIDE * SIDE * CHANNELS,
    MOST = 2 * LS_ENGINES
};

/* Traits of an engine, by its number in the sequence of first runs. */
typedef struct engine_traits {
    double ms;    /* time of a run; 0: 5 ms */
    double error; /* error of each output, in units of what the format makes unavoidable */
    int only;     /* kind of operands + 1 for which the engine has the error; 0: for all */
    enum {
        STEADY = 0,
        VARIES, /* other bits in each run */
        /* other bits in every fourth run: the last of those that are compared, because a candidate
         * has run 195 times before (3 errors, 12 graphs of 16 runs) */
        VARIES_IN_LAST,
        VARIES_BESIDE_LOAD, /* other bits beside load */
        WRITES_NOTHING,
        IS_NOT_RECORDED /* fails while its stream is recorded */
    } habit;
} engine_traits;

static engine_traits traits[MOST];

static struct {
    cudaStream_t stream;
    cudnnBackendDescriptor_t plan[MOST]; /* the plans in the sequence of their first run */
    int plans, runs, launches, loads;
    int run_of[MOST]; /* number of runs of each engine */
    int loaded;       /* non-zero: load was started after the last run */
    double ms;        /* time of the runs since the last launch of a graph */
} seen;

/* The pass that is computed: y, dx or dw of a 3×3 convolution with padding 1. */
static ls_math_shape shape;
static ls_precision precision;

typedef struct run {
    int number, beside_load;
    const void *a, *b, *bias;
    void *out;
    uint16_t *workspace;
} run;

/* The results for the operands of the last run. */
static struct {
    uint64_t operands;
    double value[OUT], magnitude[OUT];
    int kind;
} result;

static double value_of(const void *memory, size_t at)
{
    return ls_sample_value(memory, at, ls_sample_factor_bytes(&shape));
}

static uint64_t hash_of(const void *memory, size_t bytes, uint64_t hash)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)memory)[i]) * 0x100000001b3u;
    return hash;
}

static size_t bytes_of(int which)
{
    return ls_sample_elements(&shape, which) * ls_sample_factor_bytes(&shape);
}

static void add(size_t to, double term)
{
    result.value[to] += term;
    result.magnitude[to] += fabs(term);
}

/* Adds the products of one pixel of y and one tap. */
static void add_products(const run *r, int row, int y, int x, int tap)
{
    const int i = y + tap / 3 - 1, j = x + tap % 3 - 1;
    if (i < 0 || j < 0 || i >= SIDE || j >= SIDE)
        return;
    const size_t channels = (size_t)shape.c;
    const size_t to = (size_t)((row * SIDE + y) * SIDE + x) * CHANNELS;
    const size_t from = (size_t)((row * SIDE + i) * SIDE + j) * channels;
    for (size_t o = 0; o < CHANNELS; o++)
        for (size_t c = 0; c < channels; c++) {
            const size_t w = (o * 9 + (size_t)tap) * channels + c;
            if (shape.kind == LS_MATH_CONV)
                add(to + o, value_of(r->a, from + c) * value_of(r->b, w));
            else if (shape.kind == LS_MATH_CONV_DATA)
                add(from + c, value_of(r->a, to + o) * value_of(r->b, w));
            else
                add(w, value_of(r->a, from + c) * value_of(r->b, to + o));
        }
}

static int kind_of(const void *a, size_t count)
{
    int kind = 0;
    for (size_t i = 0; i < count; i++) {
        if (fabs(value_of(a, i)) > 1)
            return 2;
        kind |= value_of(a, i) == 0;
    }
    return kind;
}

static void compute(const run *r)
{
    const uint64_t operands = hash_of(r->b, bytes_of(1), hash_of(r->a, bytes_of(0), 1));
    if (operands == result.operands)
        return;
    memset(&result, 0, sizeof result);
    result.operands = operands;
    result.kind = kind_of(r->a, ls_sample_elements(&shape, 0));
    for (int row = 0; row < ROWS; row++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int tap = 0; tap < 9; tap++)
                    add_products(r, row, y, x, tap);
    for (size_t i = 0; shape.bias && i < OUT; i++) {
        const double bias = value_of(r->bias, i % CHANNELS);
        result.value[i] += bias;
        result.magnitude[i] += fabs(bias);
    }
}

static void store(void *memory, size_t at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (shape.half)
        ((uint16_t *)memory)[at] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    else
        ((float *)memory)[at] = value;
}

static int has_other_bits(const run *r, const engine_traits *t)
{
    return t->habit == VARIES || (t->habit == VARIES_IN_LAST && seen.run_of[r->number] % 4 == 3) ||
           (t->habit == VARIES_BESIDE_LOAD && r->beside_load);
}

static void body(const void *copied)
{
    static uint32_t noise;
    const run *r = copied;
    const engine_traits *t = &traits[r->number];
    const double unit = shape.half ? 0x1p-9 : precision == LS_PRECISION_TF32 ? 0x1p-12 : 0x1p-24;
    seen.ms += t->ms > 0 ? t->ms : 5;
    seen.run_of[r->number]++;
    compute(r);
    r->workspace[0] = 1;
    if (t->habit == WRITES_NOTHING)
        return;
    for (size_t i = 0; i < ls_sample_elements(&shape, 2); i++) {
        const bool errs = t->error > 0 && (t->only == 0 || t->only == result.kind + 1);
        double value = result.value[i];
        if (errs)
            value += (i % 2 ? 1 : -1) * t->error * unit * result.magnitude[i];
        if (shape.relu && !(value > 0))
            value = 0;
        store(r->out, i, (float)value);
    }
    if (has_other_bits(r, t))
        ((uint16_t *)r->out)[1] = (uint16_t)noise++;
}

cudnnStatus_t __wrap_cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    seen.stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* Memory that a pack binds to tensors. It is noted when it is set, because cuDNN does not give it
 * back. */
static struct {
    cudnnBackendDescriptor_t pack;
    int64_t numbers[8], count, pointers;
    void *memory[8], *workspace;
} bound;

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t object,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count,
                                              const void *values)
{
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
        bound.pack = object;
        bound.count = count;
        memcpy(bound.numbers, values, (size_t)count * sizeof *bound.numbers);
    } else if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
        bound.pointers = count;
        memcpy(bound.memory, values, (size_t)count * sizeof *bound.memory);
    } else if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE) {
        memcpy(&bound.workspace, values, sizeof bound.workspace);
    }
    return __real_cudnnBackendSetAttribute(object, name, type, count, values);
}

/* Returns the memory that the pack binds to the tensor with this number. */
static void *bound_to(cudnnBackendDescriptor_t pack, int64_t number)
{
    assert_ptr_equal(pack, bound.pack);
    assert_int_equal(bound.count, bound.pointers);
    for (int64_t i = 0; i < bound.count; i++)
        if (bound.numbers[i] == number)
            return bound.memory[i];
    return NULL;
}

cudnnStatus_t __wrap_cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack)
{
    run r = {0};
    enum cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
    (void)handle;
    while (r.number < seen.plans && seen.plan[r.number] != plan)
        r.number++;
    if (r.number == seen.plans)
        seen.plan[seen.plans++] = plan;
    seen.runs++;
    r.a = bound_to(pack, LS_GRAPH_A);
    r.b = bound_to(pack, LS_GRAPH_B);
    r.out = bound_to(pack, LS_GRAPH_OUT);
    r.bias = bound_to(pack, LS_GRAPH_BIAS);
    r.workspace = bound.workspace;
    assert_true(r.a && r.b && r.out && r.workspace && (r.bias || !shape.bias));
    r.beside_load = seen.loaded;
    seen.loaded = 0;
    assert_int_equal(cudaStreamIsCapturing(seen.stream, &recording), cudaSuccess);
    if (recording != cudaStreamCaptureStatusNone && traits[r.number].habit == IS_NOT_RECORDED)
        return CUDNN_STATUS_NOT_SUPPORTED;
    assert_int_equal(dbl_launch(seen.stream, "cuDNN", body, &r, sizeof r), cudaSuccess);
    return CUDNN_STATUS_SUCCESS;
}

cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    seen.launches++;
    seen.ms = 0;
    return __real_cudaGraphLaunch(exec, stream);
}

cudaError_t __wrap_cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop)
{
    (void)start;
    (void)stop;
    *ms = (float)seen.ms;
    return cudaSuccess;
}

cudaError_t __wrap_ls_k_busy(uint32_t *out, int blocks, uint32_t rounds, cudaStream_t stream)
{
    seen.loads++;
    seen.loaded = 1;
    assert_int_equal(blocks, 66);
    return __real_ls_k_busy(out, 1, rounds / 64, stream);
}

/* ---- Lockstep's own kernels ------------------------------------------------------------------ */

cudaError_t __real_ls_k_conv_forward(void *y, uint8_t *bits, const void *x, const void *weight,
                                     const void *bias, const ls_k_conv *conv, cudaStream_t stream);
cudaError_t __wrap_ls_k_conv_forward(void *y, uint8_t *bits, const void *x, const void *weight,
                                     const void *bias, const ls_k_conv *conv, cudaStream_t stream);
cudaError_t __real_ls_k_conv_weights(const ls_k_conv_grad *grad, const ls_k_conv *conv,
                                     cudaStream_t stream);
cudaError_t __wrap_ls_k_conv_weights(const ls_k_conv_grad *grad, const ls_k_conv *conv,
                                     cudaStream_t stream);

static double own_ms; /* time of a run of the kernels' twins */

static void take_time(const void *copied)
{
    seen.ms += *(const double *)copied;
}

cudaError_t __wrap_ls_k_conv_forward(void *y, uint8_t *bits, const void *x, const void *weight,
                                     const void *bias, const ls_k_conv *conv, cudaStream_t stream)
{
    const cudaError_t e = __real_ls_k_conv_forward(y, bits, x, weight, bias, conv, stream);
    return e ? e : dbl_launch(stream, "own", take_time, &own_ms, sizeof own_ms);
}

cudaError_t __wrap_ls_k_conv_weights(const ls_k_conv_grad *grad, const ls_k_conv *conv,
                                     cudaStream_t stream)
{
    const cudaError_t e = __real_ls_k_conv_weights(grad, conv, stream);
    return e ? e : dbl_launch(stream, "own", take_time, &own_ms, sizeof own_ms);
}

/* ---- log ------------------------------------------------------------------------------------ */

enum { LINES = 160 };
static char line[LINES][512];
static ls_log_level level[LINES];
static int lines;

static void keep_line(void *user, ls_log_level of, const char *text)
{
    (void)user;
    assert_true(lines < LINES);
    level[lines] = of;
    snprintf(line[lines++], sizeof *line, "%s", text);
}

static const char *logged(ls_log_level of, const char *part)
{
    for (int i = 0; i < lines; i++)
        if (level[i] == of && strstr(line[i], part))
            return line[i];
    return NULL;
}

/* ---- a plan --------------------------------------------------------------------------------- */

static char folder[64];

/* given: choices of another machine for the next plan; NULL: none. choices: receives the choices
 * that the plan makes. */
static const char *given;
static char choices[1 << 20];

static const ls_math_shape forward = {
    LS_MATH_CONV, 1, 1, 1, ROWS, CHANNELS, SIDE, SIDE, CHANNELS, SIDE,
    SIDE,         3, 3, 1, 1,    1,        1,    1,    1,        1};

/* Makes a plan as a newly started process does, and writes the plan's name. */
static int plan_or_fail(char name[96], ls_error *err)
{
    static const ls_host host = {.size = sizeof host, .log = keep_line};
    const ls_math_desc desc = {.host = &host,
                               .device = "cuda(0)",
                               .model = "described",
                               .compute = 90,
                               .processors = 132,
                               .precision = precision,
                               .cache_dir = folder,
                               .device_json = test_h200_json()};
    ls_math *math = NULL;
    ls_math_plan *plan = NULL;
    lines = 0;
    memset(&seen, 0, sizeof seen);
    memset(&result, 0, sizeof result);
    must(ls_math_open(&math, &desc, err), err);
    int status = given ? ls_math_choose(math, given, err) : LS_OK;
    if (status == LS_OK)
        status = ls_math_plan_create(&plan, math, &shape, err);
    if (status == LS_OK) {
        snprintf(name, 96, "%s", plan->name);
        ls_math_plan_destroy(plan);
        assert_true(ls_math_choices(math, choices, sizeof choices) < sizeof choices);
    }
    ls_math_close(math);
    return status;
}

static void plan_anew(char name[96])
{
    ls_error err = {0};
    must(plan_or_fail(name, &err), &err);
}

static void in_folder(const char *command)
{
    char text[256];
    snprintf(text, sizeof text, "cd '%s' && %s", folder, command);
    assert_int_equal(system(text), 0);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void begin_with(ls_precision of, ls_math_kind kind, int half)
{
    in_folder("rm -f *");
    memset(traits, 0, sizeof traits);
    precision = of;
    shape = forward;
    shape.kind = kind;
    shape.half = half;
    shape.bias = shape.relu = kind == LS_MATH_CONV;
}

/* The forms of each engine that cuDNN recommends, of all its heuristics. */
static int list_candidates(int of[256], const ls_math_shape *s, ls_precision in, double *seconds)
{
    static ls_conv_engine engine[LS_ENGINES];
    const ls_math_desc desc = {.device = "cuda(0)",
                               .model = "described",
                               .compute = 90,
                               .precision = in,
                               .memory_bytes = (size_t)141 << 30,
                               .device_json = test_h200_json()};
    ls_math *math = NULL;
    ls_error err = {0};
    ls_graph g;
    must(ls_math_open(&math, &desc, &err), &err);
    memset(of, 0, 256 * sizeof *of);
    const uint64_t begin = ls_now_ns();
    ls_graph_of_conv(&g, math, s);
    const int count = ls_conv_engine_candidates(engine, LS_ENGINES, &g, math, s);
    *seconds = (double)(ls_now_ns() - begin) * 1e-9;
    for (int i = 0; i < count; i++) {
        of[engine[i].number]++;
        for (int k = 0; k < i; k++)
            assert_false(engine[i].number == engine[k].number &&
                         engine[i].settings == engine[k].settings);
    }
    for (int i = 0; i < count; i++)
        ls_conv_engine_destroy(&engine[i]);
    ls_graph_fini(&g);
    ls_math_close(math);
    return count;
}

/* Mode A alone has no engine 67 for LeNet's second convolution in tf32, and three forms of an
 * engine are few for the weights' gradient of 512 channels, for which all recommendations are
 * engine 65. */
static void all_forms_of_all_modes_are_candidates(void **state)
{
    static const ls_math_shape lenet = {
        LS_MATH_CONV, 0, 0, 0, 256, 20, 12, 12, 50, 8, 8, 5, 5, 1, 1, 0, 0, 1, 1, 1};
    static const ls_math_shape deep = {
        LS_MATH_CONV_WEIGHTS, 1, 0, 0, 256, 512, 4, 4, 512, 4, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    int of[256];
    double seconds;
    (void)state;
    int count = list_candidates(of, &lenet, LS_PRECISION_TF32, &seconds);
    print_message("             LeNet, tf32: %d candidates, %d of engine 67, %.2f s\n", count,
                  of[67], seconds);
    assert_true(of[67] >= 4);
    assert_true(count > 16 && count <= LS_ENGINES);
    count = list_candidates(of, &deep, LS_PRECISION_BF16, &seconds);
    print_message("             512 channels, bf16: %d candidates, %d of engine 65, %.2f s\n",
                  count, of[65], seconds);
    assert_true(of[65] >= 16);
}

static void candidates_are_timed_in_graphs_and_reported(void **state)
{
    char name[96];
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    traits[1].ms = 1;
    plan_anew(name);
    int tried = 0;
    for (int i = 0; i < lines; i++)
        tried += level[i] == LS_LOG_DEBUG && strstr(line[i], "engine ") &&
                 strstr(line[i], " ms, ") && strstr(line[i], " KiB, error ");
    assert_true(tried > 8);
    assert_int_equal(tried, seen.plans);
    assert_int_equal(seen.launches, 2 * tried + 10 * 6);
    /* Each candidate runs once for each kind of operands and has graphs of 16 runs; the chosen one
     * runs four times more, twice beside load. */
    assert_int_equal(seen.runs, 3 * tried + 16 * (tried + 6) + 4);
    assert_int_equal(seen.loads, 2);
    const char *choice = logged(LS_LOG_INFO, ": the fastest of ");
    assert_non_null(choice);
    assert_non_null(strstr(choice, name + strlen("cudnn ")));
    assert_non_null(strstr(choice, "planned in "));
    assert_non_null(
        strstr(choice, "conv2d, 4 rows of 16×6×6 to 16, 3×3, forward + bias + relu, bf16: engine"));
    assert_non_null(strstr(choice, ", 1.0000 ms, "));
    char text[96];
    snprintf(text, sizeof text, "test $(grep -c ' ms, ' *.tried) = %d", tried);
    in_folder(text);
}

/* Expects that engine 1 is refused, although it is the fastest, and engine 2 is chosen. */
static void expect_refused(const char *what, const char *why)
{
    char name[96];
    traits[1].ms = 1;
    traits[2].ms = 2;
    plan_anew(name);
    const char *refused = logged(LS_LOG_WARNING, why),
               *choice = logged(LS_LOG_INFO, ", 2.0000 ms, ");
    if (!refused && strcmp(why, "") != 0)
        fail_msg("%s: no warning", what);
    if (!choice)
        fail_msg("%s: %s", what, logged(LS_LOG_INFO, ""));
}

static void engines_with_varying_results_are_refused(void **state)
{
    static const char why[] = "its results vary";
    (void)state;
    for (int habit = VARIES; habit <= VARIES_BESIDE_LOAD; habit++) {
        begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
        traits[1].habit = habit;
        expect_refused(habit == VARIES           ? "varies"
                       : habit == VARIES_IN_LAST ? "varies in the last run"
                                                 : "varies beside load",
                       why);
    }
}

static void engines_that_do_not_run_are_refused(void **state)
{
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    traits[1].habit = IS_NOT_RECORDED;
    expect_refused("not recorded", "");
    assert_non_null(logged(LS_LOG_DEBUG, "cannot be recorded in a graph"));
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    traits[1].habit = WRITES_NOTHING;
    expect_refused("writes nothing", "");
    assert_non_null(logged(LS_LOG_DEBUG, "its error is too large"));
}

/* An error that is 27 times that of the other engines, as that of engine 17 for 5×5 weights, is
 * refused in each pass and precision, also if only one kind of operands shows it. */
static void engines_with_a_large_error_are_refused(void **state)
{
    (void)state;
    for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++)
        for (int kind = 0; kind < 3; kind++)
            for (int only = 0; only <= 3; only++) {
                char what[96];
                begin_with((ls_precision)p, (ls_math_kind)kind, p == LS_PRECISION_BF16);
                traits[1].error = 27;
                traits[1].only = only;
                snprintf(what, sizeof what, "precision %d, pass %d, operands %d", p, kind,
                         only - 1);
                expect_refused(what, "");
                if (!logged(LS_LOG_DEBUG, "its error is too large"))
                    fail_msg("%s: not for its error", what);
            }
}

/* An error of 1.5 units of the format, as that of Winograd's algorithm with 2×2 tiles, is
 * accepted, in fp32 if the engines that add term by term have a similar one. */
static void engines_with_a_small_error_are_chosen(void **state)
{
    char name[96];
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        begin_with(LS_PRECISION_FP32, (ls_math_kind)kind, 0);
        for (int i = 0; i < MOST; i++)
            traits[i].error = 1;
        traits[1].error = 2;
        traits[1].ms = 1;
        plan_anew(name);
        assert_non_null(logged(LS_LOG_INFO, ", 1.0000 ms, "));
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

enum { SUMS = 4096 };
static double sums[SUMS], magnitudes[SUMS];

static void add_to(size_t to, double term)
{
    assert_true(to < SUMS);
    sums[to] += term;
    magnitudes[to] += fabs(term);
}

/* Adds the products of one pixel of y, one tap and one output channel to y, x or the weights. */
static void add_channel(const ls_math_shape *s, const ls_sample_data *d, const int at[6], int o)
{
    const int i = at[1] * s->sh + at[3] * s->dh - s->ph, j = at[2] * s->sw + at[4] * s->dw - s->pw;
    const int c = s->c / s->groups, group = o / (s->out / s->groups);
    if (i < 0 || j < 0 || i >= s->h || j >= s->w)
        return;
    for (int k = 0; k < c; k++) {
        const size_t y = (size_t)(((at[0] * s->y_h + at[1]) * s->y_w + at[2]) * s->out + o);
        const size_t x = (size_t)(((at[0] * s->h + i) * s->w + j) * s->c + group * c + k);
        const size_t w = (size_t)(((o * s->kh + at[3]) * s->kw + at[4]) * c + k);
        if (s->kind % 3 == LS_MATH_CONV)
            add_to(y, ls_sample_value(d->a, x, 4) * ls_sample_value(d->b, w, 4));
        else if (s->kind % 3 == LS_MATH_CONV_DATA)
            add_to(x, ls_sample_value(d->a, y, 4) * ls_sample_value(d->b, w, 4));
        else
            add_to(w, ls_sample_value(d->a, x, 4) * ls_sample_value(d->b, y, 4));
    }
}

static void add_everything(const ls_math_shape *s, const ls_sample_data *d)
{
    int at[6];
    memset(sums, 0, sizeof sums);
    memset(magnitudes, 0, sizeof magnitudes);
    for (at[0] = 0; at[0] < s->rows; at[0]++)
        for (at[1] = 0; at[1] < s->y_h; at[1]++)
            for (at[2] = 0; at[2] < s->y_w; at[2]++)
                for (at[3] = 0; at[3] < s->kh; at[3]++)
                    for (at[4] = 0; at[4] < s->kw; at[4]++)
                        for (int o = 0; o < s->out; o++)
                            add_channel(s, d, at, o);
}

/* Each sample is the output of the product, computed in another way, also with strides, dilation,
 * groups and a rectangular kernel, and for dense layers. */
static void samples_are_outputs_of_the_product(void **state)
{
    static unsigned char a[LS_SAMPLE_BLOCK], b[LS_SAMPLE_BLOCK], c[LS_SAMPLE_BLOCK];
    static const ls_math_shape shapes[] = {
        {LS_MATH_CONV, 0, 0, 0, 3, 6, 7, 8, 10, 5, 6, 3, 3, 1, 1, 0, 0, 1, 1, 1},
        {LS_MATH_CONV, 0, 0, 0, 3, 6, 9, 8, 10, 5, 4, 3, 2, 2, 2, 1, 0, 1, 1, 1},
        {LS_MATH_CONV, 0, 0, 0, 2, 6, 8, 9, 4, 8, 7, 3, 2, 1, 1, 2, 0, 2, 2, 2},
        {LS_MATH_DENSE, 0, 0, 0, 5, 12, 1, 1, 20, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1}};
    const ls_sample_data d = {a, b, c};
    ls_sample sample[LS_TUNE_SAMPLES];
    (void)state;
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
        ls_math_shape s = shapes[i / 3];
        s.kind = (ls_math_kind)((int)s.kind + (int)(i % 3));
        ls_sample_fill(&d, &s, 0);
        add_everything(&s, &d);
        ls_sample_choose(sample, LS_TUNE_SAMPLES, &s);
        for (int k = 0; k < LS_TUNE_SAMPLES; k++) {
            ls_sample *now = &sample[k];
            assert_true(now->at < ls_sample_elements(&s, 2));
            ls_sample_compute(now, &d, &s, LS_PRECISION_FP32);
            if (!(fabs(now->exact - sums[now->at]) < 1e-12 &&
                  fabs(now->magnitude - magnitudes[now->at]) < 1e-12))
                fail_msg("shape %zu, pass %zu, output %zu: %g of %g, expected %g of %g", i / 3,
                         i % 3, now->at, now->exact, now->magnitude, sums[now->at],
                         magnitudes[now->at]);
        }
    }
}

/* With tensor cores the unavoidable error of a long sum includes the truncation of its parts;
 * without them it is the rounding of the result. */
static void long_sums_of_tensor_cores_are_truncated(void **state)
{
    static unsigned char a[LS_SAMPLE_BLOCK], b[LS_SAMPLE_BLOCK], c[LS_SAMPLE_BLOCK];
    ls_math_shape s = {.kind = LS_MATH_DENSE_WEIGHTS, .rows = 50000, .c = 8, .out = 8};
    const ls_sample_data d = {a, b, c};
    ls_sample sample = {.at = 9};
    (void)state;
    for (int half = 0; half < 2; half++) {
        s.half = half;
        ls_sample_fill(&d, &s, 0);
        ls_sample_compute(&sample, &d, &s, half ? LS_PRECISION_BF16 : LS_PRECISION_FP32);
        const double off = fabs(sample.rounded - sample.exact);
        assert_true(off <= fabs(sample.exact) * (half ? 1e-2 : 0x1p-24));
        if (half)
            assert_true(off > fabs(sample.exact) * 0x1p-20);
    }
}

/* Figures of LeNet's weights' gradient and of 3×3 convolutions, measured on an H200 and on CPUs. */
static void the_rule_decides_by_error_alone(void **state)
{
    static const double none[LS_TUNE_KINDS];
    static const struct {
        double rms, worst;
        int good;
    } cases[] = {{3.2e-7, 1.0e-6, 1},                       /* engine 1 */
                 {8.7e-6, 2.5e-5, 0},                       /* engine 17 for 5×5 */
                 {6.4e-7, 2.0e-6, 1},                       /* Winograd, 2×2 tiles for 3×3 */
                 {7.8e-7, 2.5e-6, 1},                       /* Winograd, 4×4 tiles for 3×3 */
                 {1.27e-6, 5.0e-6, 1},                      /* just within the limits */
                 {1.30e-6, 5.0e-6, 0}, {3.2e-7, 5.2e-6, 0}, /* one output is wrong */
                 {NAN, NAN, 0},        {INFINITY, INFINITY, 0}};
    enum { COUNT = sizeof cases / sizeof *cases };
    ls_tune_result r[COUNT];
    (void)state;
    for (int kind = 0; kind < LS_TUNE_KINDS; kind++) {
        memset(r, 0, sizeof r);
        r[0].simple = true;
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < LS_TUNE_KINDS; k++)
                r[i].error[k] = k == kind ? (ls_tune_error){cases[i].rms, cases[i].worst}
                                          : (ls_tune_error){3.2e-7, 1.0e-6};
        ls_tune_judge(r, COUNT, none);
        for (int i = 0; i < COUNT; i++)
            if ((r[i].refused == NULL) != cases[i].good)
                fail_msg("operands %d, error %g: %s", kind, cases[i].rms,
                         r[i].refused ? r[i].refused : "accepted");
    }
}

static void without_memory_nothing_is_measured(void **state)
{
    char name[96];
    (void)state;
    begin_with(LS_PRECISION_FP32, LS_MATH_CONV, 0);
    dbl_fail("cudaMalloc", 3, 0);
    plan_anew(name);
    assert_int_equal(seen.runs, 0);
    assert_non_null(logged(LS_LOG_WARNING, "used without measuring, for lack of memory"));
}

static void engines_that_all_vary_are_declined_and_none_is_kept(void **state)
{
    char name[96];
    ls_error err = {0};
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    for (int i = 0; i < MOST; i++)
        traits[i].habit = VARIES;
    assert_int_equal(plan_or_fail(name, &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "gives the same bits in each run"));
    in_folder("! ls | grep 'plan$'");
    memset(traits, 0, sizeof traits);
    plan_anew(name);
}

static void a_choice_is_made_once(void **state)
{
    char name[96], again[96];
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    plan_anew(name);
    assert_true(seen.runs > 0);
    plan_anew(again);
    assert_int_equal(seen.runs, 0);
    assert_string_equal(name, again);
}

static void expect_replaced(const char *why)
{
    char name[96];
    plan_anew(name);
    if (seen.runs == 0)
        fail_msg("%s: it was taken", why);
    plan_anew(name);
    if (seen.runs > 0)
        fail_msg("%s: it was not replaced", why);
}

static void a_damaged_choice_is_replaced(void **state)
{
    char name[96];
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    plan_anew(name);
    in_folder("sed -i 's/CUDNN_DATA_BFLOAT16/CUDNN_DATA_BFLOAT17/' *.plan");
    expect_replaced("other bytes");
    in_folder("truncate -s 500 *.plan");
    expect_replaced("half a file");
    in_folder("for f in *.plan; do : >\"$f\"; done");
    expect_replaced("an empty file");
}

/* The file of a choice is complete, but cuDNN no longer accepts its content. */
static void a_choice_that_no_longer_loads_is_replaced(void **state)
{
    static const char useless[] = "engine 6\n{\"cudnnVersion\":80900}";
    char name[96], path[192] = "", key[512] = "";
    const ls_math math = {.desc = {.device = "cuda(0)", .cache_dir = folder}};
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    plan_anew(name);
    in_folder("ls *.plan >list");
    snprintf(path, sizeof path, "%s/list", folder);
    FILE *list = fopen(path, "r");
    assert_true(list && fscanf(list, "%63s", name) == 1);
    fclose(list);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_true(file && fgets(key, sizeof key, file));
    fclose(file);
    key[strcspn(key, "\n")] = '\0';
    assert_int_equal(unlink(path), 0);
    ls_math_cache_put(&math, key, useless);
    expect_replaced("a plan of another version");
    assert_null(logged(LS_LOG_WARNING, "no longer takes"));

    /* Another choice, which was stored meanwhile, stays. */
    char *now = ls_math_cache_get(&math, key);
    ls_math_cache_drop(&math, key, useless);
    char *then = ls_math_cache_get(&math, key);
    assert_string_equal(now, then);
    ls_free(NULL, now);
    ls_free(NULL, then);
}

/* ---- two workers ---------------------------------------------------------------------------- */

/* content that another worker writes directly before a choice is removed; NULL: none */
static const char *meanwhile;
static char *others; /* the choice that the other worker then uses */

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    const ls_math other = {.desc = {.device = "cuda(1)", .cache_dir = folder}};
    const char *text = meanwhile;
    if (text && strcmp(path + strlen(path) - 5, ".plan") == 0) {
        meanwhile = NULL;
        __real_unlink(path);
        ls_math_cache_put(&other, "a key", text);
        others = ls_math_cache_get(&other, "a key");
    }
    return __real_unlink(path);
}

/* Two workers read a damaged choice and replace it. Both must then use the same choice, whichever
 * of them comes first. */
static void workers_that_meet_a_damaged_choice_choose_alike(void **state)
{
    const ls_math one = {.desc = {.device = "cuda(0)", .cache_dir = folder}};
    (void)state;
    in_folder("rm -f *");
    ls_math_cache_put(&one, "a key", "a choice");
    in_folder("sed -i 's/choice/chance/' *.plan");
    assert_null(ls_math_cache_get(&one, "a key"));
    meanwhile = "the other's";
    ls_math_cache_put(&one, "a key", "the one's");
    char *mine = ls_math_cache_get(&one, "a key");
    if (!others) {
        ls_math_cache_put(&one, "a key", meanwhile);
        others = ls_math_cache_get(&one, "a key");
        meanwhile = NULL;
    }
    assert_string_equal(mine, "the one's");
    assert_string_equal(mine, others);
    ls_free(NULL, mine);
    ls_free(NULL, others);
}

/* ---- two machines --------------------------------------------------------------------------- */

/* This machine has stored another choice on disk, which stays there. */
static void another_machine_s_choice_is_taken_and_nothing_timed(void **state)
{
    static char copy[sizeof choices];
    char name[96], other[96];
    ls_error err = {0};
    (void)state;
    begin_with(LS_PRECISION_BF16, LS_MATH_CONV, 1);
    plan_anew(name);
    memcpy(copy, choices, sizeof copy);
    in_folder("rm -f *");
    given = copy;
    plan_anew(other);
    assert_int_equal(seen.runs, 0);
    assert_string_equal(name, other);
    assert_string_equal(copy, choices);
    in_folder("! ls | grep 'plan$'");

    /* The text is truncated, or cuDNN does not accept it. */
    copy[strlen(copy) - 1] = '\0';
    assert_int_equal(plan_or_fail(other, &err), LS_EDATA);
    memcpy(copy, choices, sizeof copy);
    memcpy(strstr(copy, "\"cudnnVersion\"") + 1, "x", 1);
    assert_int_equal(plan_or_fail(other, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "does not take the plan that the first host chose"));
    given = NULL;
}

/* ---- convolutions of few channels ------------------------------------------------------------ */

static void begin_with_few_channels(ls_precision of, ls_math_kind kind, double ms)
{
    begin_with(of, kind, of == LS_PRECISION_BF16);
    shape.c = 1;
    own_ms = ms;
}

/* Time decides between Lockstep's own kernels and cuDNN's engines, which take 5 ms here. The choice
 * is stored as any other. */
static void own_kernels_are_a_candidate(void **state)
{
    char name[96];
    (void)state;
    for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++)
        for (int pass = 0; pass < 2; pass++) {
            const ls_math_kind kind = pass ? LS_MATH_CONV_WEIGHTS : LS_MATH_CONV;
            begin_with_few_channels((ls_precision)p, kind, 4);
            plan_anew(name);
            assert_string_equal(name, "own kernels");
            assert_true(seen.plans > 0); /* cuDNN's engines were measured too */
            assert_non_null(logged(LS_LOG_INFO, ": own kernels, 4.0000 ms, "));
            plan_anew(name);
            assert_string_equal(name, "own kernels");
            assert_int_equal(seen.runs, 0);

            begin_with_few_channels((ls_precision)p, kind, 6);
            plan_anew(name);
            assert_non_null(strstr(name, "cudnn engine "));
            assert_non_null(logged(LS_LOG_DEBUG, ": own kernels, 6.0000 ms, "));
        }
}

/* Another machine's choice is taken, unless the kernels have other bits there. */
static void own_kernels_of_another_version_are_refused(void **state)
{
    static char copy[sizeof choices];
    char name[96];
    ls_error err = {0};
    (void)state;
    begin_with_few_channels(LS_PRECISION_FP32, LS_MATH_CONV_WEIGHTS, 4);
    plan_anew(name);
    memcpy(copy, choices, sizeof copy);
    in_folder("rm -f *");
    given = copy;
    plan_anew(name);
    assert_string_equal(name, "own kernels");
    assert_int_equal(seen.runs, 0);
    char *version = strstr(copy, "own kernels\n1");
    assert_non_null(version);
    version[strlen("own kernels\n")] = '0';
    assert_int_equal(plan_or_fail(name, &err), LS_EDEVICE);
    given = NULL;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-tuning-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    in_folder("rm -rf \"$PWD\"");
    return 0;
}

LS_TESTS(cuda_tuning, "integration doubles no-asan no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_of_all_modes_are_candidates),
        cmocka_unit_test(candidates_are_timed_in_graphs_and_reported),
        cmocka_unit_test(engines_with_varying_results_are_refused),
        cmocka_unit_test(engines_that_do_not_run_are_refused),
        cmocka_unit_test(engines_with_a_large_error_are_refused),
        cmocka_unit_test(engines_with_a_small_error_are_chosen),
        cmocka_unit_test(samples_are_outputs_of_the_product),
        cmocka_unit_test(long_sums_of_tensor_cores_are_truncated),
        cmocka_unit_test(the_rule_decides_by_error_alone),
        cmocka_unit_test(without_memory_nothing_is_measured),
        cmocka_unit_test(engines_that_all_vary_are_declined_and_none_is_kept),
        cmocka_unit_test(a_choice_is_made_once),
        cmocka_unit_test(a_damaged_choice_is_replaced),
        cmocka_unit_test(a_choice_that_no_longer_loads_is_replaced),
        cmocka_unit_test(workers_that_meet_a_damaged_choice_choose_alike),
        cmocka_unit_test(another_machine_s_choice_is_taken_and_nothing_timed),
        cmocka_unit_test(own_kernels_are_a_candidate),
        cmocka_unit_test(own_kernels_of_another_version_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
