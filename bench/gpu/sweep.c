/* SPDX-License-Identifier: MIT */
/* gpu_sweep: times every configuration that cuDNN recommends for the convolutions of LeNet and
 * ResNet-18 with 256 rows, in each precision, and measures its error and whether its bits repeat.
 *
 *     gpu_sweep [--json FILE] [--seconds S] [--small]
 *     gpu_sweep --list DEVICE [--json FILE]
 *
 * FILE gets one line of JSON for each configuration, written after each pass. After S seconds
 * (default 40) the remaining passes are left out, and the last line of the output says so. --list
 * names the configurations for a device that a file describes (gpu_facts prints this description),
 * and runs none; it needs no GPU. --small: LeNet with two rows.
 *
 * Time: a CUDA graph of up to 16 runs, the faster of two launches. Bits: the results of four runs
 * are compared; output and workspace are overwritten before each run, and during the last two runs
 * another stream copies memory. Lockstep's own kernels for convolutions of few channels are
 * measured in the same way, as mode "own". If the layer has a pool, they are also timed with it
 * (mode "own+pool"), and so are the kernels that pool what cuDNN computes (mode "pool"). Error: 64
 * outputs, 16 of them in the corners, are computed in double. The error of an output is its
 * distance from this sum, divided by the sum of the magnitudes of all terms; `error` is the root
 * mean square over the outputs, and `worst` the largest. The operands are numbers between −1 and 1
 * that the precision represents exactly. */
#include "sweep.h"
#include "base/clock.h"
#include "base/error.h"
#include "cuda/math/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = LS_SAMPLE_BLOCK, SAMPLES = 64, RUNS_MOST = 16, ROWS = 256, BITS_RUNS = 4 };
#define GRAPH_MS 2.0 /* about the time of a launch: slow configurations have fewer runs */
enum { A, B, BIAS, WORKSPACE, OUT, OUT_2, NOISE, MEMORIES };

typedef struct layer {
    const char *network;
    int c, side, out, kernel, stride, padding, fused;
} layer;

static const layer layers[] = {
    {"lenet", 1, 28, 20, 3, 1, 0, 1},     {"lenet", 20, 13, 50, 5, 1, 0, 1},
    {"resnet", 1, 28, 64, 3, 1, 1, 0},    {"resnet", 64, 28, 64, 3, 1, 1, 0},
    {"resnet", 64, 28, 128, 3, 2, 1, 0},  {"resnet", 64, 28, 128, 1, 2, 0, 0},
    {"resnet", 128, 14, 128, 3, 1, 1, 0}, {"resnet", 128, 14, 256, 3, 2, 1, 0},
    {"resnet", 128, 14, 256, 1, 2, 0, 0}, {"resnet", 256, 7, 256, 3, 1, 1, 0},
    {"resnet", 256, 7, 512, 3, 2, 1, 0},  {"resnet", 256, 7, 512, 1, 2, 0, 0},
    {"resnet", 512, 4, 512, 3, 1, 1, 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0], LENET = 2 };

static const char *const passes[] = {"forward", "data", "weights"};
static const char *const precisions[] = {"fp32", "tf32", "bf16"};

typedef struct program {
    int small;
    double seconds;
    const char *json, *device_json;
    FILE *file;
    uint64_t begin_ns;
    int left_out;
    /* the device */
    ls_math_desc desc;
    cudaStream_t stream, aside;
    cudaEvent_t start, stop;
    unsigned char *block[3]; /* pinned memory of a, b and bias, BLOCK bytes each */
    unsigned char *sampled;  /* pinned; 4 bytes of each sample */
    uint32_t *flag, *flag_back;
} program;

/* A pass of a layer: its memory on the device, and the samples. */
typedef struct pass {
    const char *network, *precision;
    ls_math_shape shape;
    int pooled; /* non-zero: a relu and a pool of 2 × 2 follow the layer */
    void *memory[MEMORIES];
    size_t bytes[MEMORIES];
    ls_sample sample[SAMPLES];
} pass;

/* Measured values of a configuration. */
typedef struct measured {
    int runs, same_bits;
    double us, error, worst;
} measured;

#define CUDA(call) check((int)(call), #call)

static void check(int error, const char *what)
{
    if (error) {
        printf("gpu_sweep: %s: error %d\n", what, error);
        exit(1);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void fill_operand(const program *p, const pass *q, int which)
{
    const size_t bytes = q->bytes[which];
    unsigned char *to = q->memory[which];
    size_t done = bytes < BLOCK ? bytes : BLOCK;
    CUDA(cudaMemcpyAsync(to, p->block[which], done, cudaMemcpyHostToDevice, p->stream));
    for (size_t n; done < bytes; done += n) { /* `done` is a multiple of BLOCK */
        n = done < bytes - done ? done : bytes - done;
        CUDA(cudaMemcpyAsync(to + done, to, n, cudaMemcpyDeviceToDevice, p->stream));
    }
}

/* Makes a block of fp32 numbers one of numbers that tf32 represents exactly. */
static void cut_to_tf32(unsigned char *block)
{
    uint32_t *bits = (uint32_t *)(void *)block;
    for (size_t i = 0; i < BLOCK / sizeof *bits; i++)
        bits[i] &= 0xffffe000u;
}

static void open_pass(const program *p, pass *q, const sweep_engine *engine, int count)
{
    const size_t element = ls_sample_factor_bytes(&q->shape); /* also of the result and the bias */
    const ls_sample_data data = {p->block[A], p->block[B], p->block[BIAS]};
    size_t workspace = 16;
    for (int i = 0; i < count; i++)
        if (!engine[i].skipped && engine[i].workspace_bytes > workspace)
            workspace = engine[i].workspace_bytes;
    for (int which = A; which <= B; which++)
        q->bytes[which] = ls_sample_elements(&q->shape, which) * element;
    q->bytes[BIAS] = (size_t)q->shape.out * element;
    q->bytes[WORKSPACE] = workspace;
    q->bytes[OUT] = q->bytes[OUT_2] = (ls_sample_elements(&q->shape, 2) * element + 3) & ~(size_t)3;
    q->bytes[NOISE] = p->small ? 1024 : (size_t)128 << 20;
    for (int i = 0; i < MEMORIES; i++)
        CUDA(cudaMalloc(&q->memory[i], q->bytes[i]));
    ls_sample_fill(&data, &q->shape, 0);
    for (int which = A; which <= BIAS; which++) {
        if (strcmp(q->precision, "tf32") == 0)
            cut_to_tf32(p->block[which]);
        fill_operand(p, q, which);
    }
    CUDA(cudaStreamSynchronize(p->stream));
    ls_sample_choose(q->sample, SAMPLES, &q->shape);
    for (int k = 0; k < SAMPLES; k++)
        ls_sample_compute(&q->sample[k], &data, &q->shape, LS_PRECISION_FP32);
}

static void close_pass(pass *q)
{
    for (int i = 0; i < MEMORIES; i++)
        CUDA(cudaFree(q->memory[i]));
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int run_into(const program *p, ls_math *math, const pass *q, sweep_engine *e, int out)
{
    const ls_math_operands o = {
        q->memory[A], q->memory[B], q->memory[BIAS], q->memory[out], 0, q->memory[WORKSPACE]};
    if (e->kind != SWEEP_CUDNN)
        return sweep_run_own(e, &q->shape, p->stream, &o) == cudaSuccess ? LS_OK : LS_EDEVICE;
    return sweep_run(e, math, &q->shape, p->stream, &o, NULL);
}

static void overwrite(const program *p, const pass *q, int out)
{
    CUDA(cudaMemsetAsync(q->memory[WORKSPACE], 0xFF, q->bytes[WORKSPACE], p->stream));
    CUDA(cudaMemsetAsync(q->memory[out], 0xFF, q->bytes[out], p->stream));
}

static float launch_ms(const program *p, cudaGraphExec_t exec)
{
    float ms = 0;
    CUDA(cudaEventRecord(p->start, p->stream));
    CUDA(cudaGraphLaunch(exec, p->stream));
    CUDA(cudaEventRecord(p->stop, p->stream));
    CUDA(cudaEventSynchronize(p->stop));
    CUDA(cudaEventElapsedTime(&ms, p->start, p->stop));
    return ms;
}

/* Returns the time of a run within a graph in microseconds; negative if it cannot be recorded. */
static double time_in_graph(const program *p, ls_math *math, const pass *q, sweep_engine *e,
                            int runs)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int status = LS_OK;
    CUDA(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; status == LS_OK && i < runs; i++)
        status = run_into(p, math, q, e, OUT);
    const cudaError_t ended = cudaStreamEndCapture(p->stream, &graph);
    if (status || ended != cudaSuccess || cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) {
        (void)cudaGetLastError();
        if (graph)
            CUDA(cudaGraphDestroy(graph));
        return -1;
    }
    launch_ms(p, exec);
    const float first = launch_ms(p, exec), second = launch_ms(p, exec);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    return (double)(first < second ? first : second) * 1e3 / runs;
}

/* The first run of `repeats_bits`, whose result stays in OUT, has been made. */
static int repeats_bits(const program *p, ls_math *math, const pass *q, sweep_engine *e)
{
    CUDA(cudaMemsetAsync(p->flag, 0, sizeof *p->flag, p->stream));
    for (int run = 1; run < BITS_RUNS; run++) {
        overwrite(p, q, OUT_2);
        for (int i = 0; i < 4 && run >= BITS_RUNS - 2; i++) {
            char *noise = q->memory[NOISE];
            CUDA(cudaMemcpyAsync(noise + q->bytes[NOISE] / 2, noise, q->bytes[NOISE] / 2,
                                 cudaMemcpyDeviceToDevice, p->aside));
        }
        if (run_into(p, math, q, e, OUT_2))
            return 0;
        /* The bits after an odd number of bf16 elements are those of `overwrite` in both. */
        CUDA(sweep_differ(q->memory[OUT], q->memory[OUT_2], q->bytes[OUT] / 4, p->flag, p->stream));
    }
    CUDA(
        cudaMemcpyAsync(p->flag_back, p->flag, sizeof *p->flag, cudaMemcpyDeviceToHost, p->stream));
    CUDA(cudaStreamSynchronize(p->stream));
    CUDA(cudaStreamSynchronize(p->aside));
    return *p->flag_back == 0;
}

static void measure_error(const program *p, const pass *q, measured *m)
{
    const size_t element = ls_sample_result_bytes(&q->shape);
    double squares = 0;
    for (int k = 0; k < SAMPLES; k++)
        CUDA(cudaMemcpyAsync(p->sampled + element * (size_t)k,
                             (char *)q->memory[OUT] + element * q->sample[k].at, element,
                             cudaMemcpyDeviceToHost, p->stream));
    CUDA(cudaStreamSynchronize(p->stream));
    m->worst = 0;
    for (int k = 0; k < SAMPLES; k++) {
        const double exact = q->sample[k].exact, magnitude = q->sample[k].magnitude;
        const double got = ls_sample_value(p->sampled, (size_t)k, element);
        const double off = fabs(got - exact) / (magnitude > 0 ? magnitude : 1);
        squares += off * off;
        m->worst = off > m->worst || isnan(off) ? off : m->worst;
    }
    m->error = sqrt(squares / SAMPLES);
}

/* Returns whether the result of a configuration is not that of its pass. */
static int is_timed_only(const sweep_engine *e)
{
    return e->kind == SWEEP_OWN_POOLED || e->kind == SWEEP_POOL;
}

static measured measure(const program *p, ls_math *math, const pass *q, sweep_engine *e)
{
    measured m = {0};
    float ms = 0;
    overwrite(p, q, OUT);
    CUDA(cudaStreamSynchronize(p->stream));
    m.runs = run_into(p, math, q, e, OUT) == LS_OK; /* the first run loads the kernels */
    CUDA(cudaStreamSynchronize(p->stream));
    if (!m.runs)
        return m;
    overwrite(p, q, OUT);
    CUDA(cudaEventRecord(p->start, p->stream));
    m.runs = run_into(p, math, q, e, OUT) == LS_OK;
    CUDA(cudaEventRecord(p->stop, p->stream));
    CUDA(cudaEventSynchronize(p->stop));
    CUDA(cudaEventElapsedTime(&ms, p->start, p->stop));
    if (!is_timed_only(e)) {
        measure_error(p, q, &m);
        m.same_bits = repeats_bits(p, math, q, e);
    }
    const double fit = GRAPH_MS / ((double)ms + 1e-3);
    m.us = time_in_graph(p, math, q, e, fit < 1 ? 1 : fit > RUNS_MOST ? RUNS_MOST : (int)fit);
    return m;
}

/* ---- results --------------------------------------------------------------------------------- */

static void name_pass(char *out, size_t size, const pass *q)
{
    const ls_math_shape *s = &q->shape;
    snprintf(out, size, "%s %s %s, %d rows of %dx%dx%d to %d, %dx%d, stride %d", q->network,
             q->precision, passes[s->kind], s->rows, s->c, s->h, s->w, s->out, s->kh, s->kw, s->sh);
}

static void write_row(const program *p, const pass *q, const sweep_engine *e, const measured *m)
{
    const ls_math_shape *s = &q->shape;
    if (!p->file)
        return;
    fprintf(p->file,
            "{\"network\": \"%s\", \"precision\": \"%s\", \"pass\": \"%s\", \"rows\": %d, \"c\": "
            "%d, \"side\": %d, \"out\": %d, \"kernel\": %d, \"stride\": %d, \"fused\": %d, "
            "\"engine\": %lld, \"mode\": \"%s\", \"place\": %d, \"notes\": \"%s\", \"knobs\": "
            "\"%s\", \"workspace\": %zu",
            q->network, q->precision, passes[s->kind], s->rows, s->c, s->h, s->out, s->kh, s->sh,
            s->bias, (long long)e->number, e->mode, e->place, e->notes, e->knobs,
            e->workspace_bytes);
    if (e->skipped)
        fprintf(p->file, ", \"skipped\": \"%s\"}\n", e->skipped);
    else if (!m)
        fprintf(p->file, "}\n");
    else if (!m->runs)
        fprintf(p->file, ", \"skipped\": \"it does not run\"}\n");
    else if (is_timed_only(e))
        fprintf(p->file, ", \"us\": %.3f, \"skipped\": \"timed only\"}\n", m->us);
    else if (isfinite(m->error))
        fprintf(p->file, ", \"us\": %.3f, \"error\": %.3e, \"worst\": %.3e, \"same_bits\": %s}\n",
                m->us, m->error, m->worst, m->same_bits ? "true" : "false");
    else
        fprintf(p->file, ", \"us\": %.3f, \"skipped\": \"its result is not finite\"}\n", m->us);
}

static void say_fastest(const char *what, const sweep_engine *e, const measured *m, int i)
{
    if (i >= 0)
        printf("    %-36s %9.2f us, error %.1e, engine %lld, %s %d, %zu KiB%s%s\n", what, m[i].us,
               m[i].error, (long long)e[i].number, e[i].mode, e[i].place,
               e[i].workspace_bytes >> 10, e[i].notes[0] ? ", " : "", e[i].notes);
}

/* Prints the fastest configurations of a pass, with stricter conditions from line to line. */
static void say_pass(const sweep_engine *e, const measured *m, int count)
{
    double least = INFINITY;
    int all = -1, repeat = -1, exact = -1, first = -1;
    for (int i = 0; i < count; i++)
        if (m[i].us > 0 && m[i].same_bits && !is_timed_only(&e[i]) && m[i].error < least)
            least = m[i].error;
    for (int i = 0; i < count; i++) {
        if (m[i].us <= 0 || is_timed_only(&e[i]))
            continue;
        first = first < 0 ? i : first;
        all = all < 0 || m[i].us < m[all].us ? i : all;
        if (!m[i].same_bits || !e[i].deterministic)
            continue;
        repeat = repeat < 0 || m[i].us < m[repeat].us ? i : repeat;
        if (m[i].error <= 4 * least)
            exact = exact < 0 || m[i].us < m[exact].us ? i : exact;
    }
    say_fastest("first of those that run", e, m, first);
    say_fastest("fastest", e, m, all);
    say_fastest("fastest with the same bits", e, m, repeat);
    say_fastest("and at most 4 times the least error", e, m, exact);
    for (int i = 0; i < count; i++)
        if (e[i].kind != SWEEP_CUDNN && m[i].us > 0)
            printf("    %-36s %9.2f us\n", e[i].mode, m[i].us);
}

/* cuDNN recommends the same configurations for fp32 and tf32. Those with tensor cores compute in
 * tf32. */
static int is_of_precision(const pass *q, const sweep_engine *e)
{
    return q->shape.half || e->kind != SWEEP_CUDNN ||
           (strcmp(q->precision, "tf32") == 0) == (strstr(e->notes, "tensor-core") != NULL);
}

static void sweep_pass(program *p, ls_math *math, pass *q)
{
    static sweep_engine engine[SWEEP_MOST];
    static measured m[SWEEP_MOST];
    char name[160];
    ls_error err = {0};
    name_pass(name, sizeof name, q);
    const int engines = sweep_find(engine, math, &q->shape, &err);
    const int count = sweep_find_own(engine, engines, &q->shape, q->pooled);
    memset(m, 0, sizeof m);
    if (count > 0 && !p->device_json)
        open_pass(p, q, engine, count);
    int ran = 0, listed = 0;
    for (int i = 0; i < count; i++) {
        if (!is_of_precision(q, &engine[i]))
            continue;
        const int runs = !engine[i].skipped && !p->device_json;
        if (runs)
            m[i] = measure(p, math, q, &engine[i]);
        listed++;
        ran += m[i].runs;
        write_row(p, q, &engine[i], runs ? &m[i] : NULL);
    }
    printf("%s: %d configurations, %d run%s%s\n", name, listed, ran, engines ? "" : ": ",
           engines ? "" : err.text);
    say_pass(engine, m, count);
    if (p->file)
        fflush(p->file);
    fflush(stdout);
    if (count > 0 && !p->device_json)
        close_pass(q);
    sweep_free(engine, engines);
}

static ls_math_shape shape_of(const program *p, const layer *l, int kind, int half)
{
    const int y = (l->side + 2 * l->padding - l->kernel) / l->stride + 1;
    const int fused = l->fused && kind == LS_MATH_CONV;
    return (ls_math_shape){.kind = (ls_math_kind)kind,
                           .half = half,
                           .bias = fused,
                           .relu = fused,
                           .rows = p->small ? 2 : ROWS,
                           .c = l->c,
                           .h = l->side,
                           .w = l->side,
                           .out = l->out,
                           .y_h = y,
                           .y_w = y,
                           .kh = l->kernel,
                           .kw = l->kernel,
                           .sh = l->stride,
                           .sw = l->stride,
                           .ph = l->padding,
                           .pw = l->padding,
                           .dh = 1,
                           .dw = 1,
                           .groups = 1};
}

/* Sweeps some layers in one precision. */
static void sweep_layers(program *p, int first, int end, ls_precision precision)
{
    ls_math *math = NULL;
    ls_error err = {0};
    p->desc.precision = precision;
    if (ls_math_open(&math, &p->desc, &err)) {
        printf("gpu_sweep: %s\n", err.text);
        exit(1);
    }
    for (int l = first; l < end; l++)
        for (int kind = LS_MATH_CONV; kind <= LS_MATH_CONV_WEIGHTS; kind++) {
            if (kind == LS_MATH_CONV_DATA && layers[l].c == 1)
                continue; /* images have no gradient */
            pass q = {.network = layers[l].network,
                      .precision = precisions[precision],
                      .pooled = layers[l].fused,
                      .shape = shape_of(p, &layers[l], kind, precision == LS_PRECISION_BF16)};
            if ((double)(ls_now_ns() - p->begin_ns) * 1e-9 < p->seconds)
                sweep_pass(p, math, &q);
            else
                p->left_out++;
        }
    ls_math_close(math);
}

/* ---- the program ----------------------------------------------------------------------------- */

static void open_device(program *p)
{
    static struct cudaDeviceProp properties;
    void *pinned = NULL, *flag = NULL;
    CUDA(cudaSetDevice(0));
    CUDA(cudaGetDeviceProperties(&properties, 0));
    p->desc.model = properties.name;
    p->desc.compute = 10 * properties.major + properties.minor;
    CUDA(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&p->aside, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&p->start, cudaEventDefault));
    CUDA(cudaEventCreateWithFlags(&p->stop, cudaEventDefault));
    CUDA(cudaHostAlloc(&pinned, 3 * BLOCK + 4 * SAMPLES + 16, cudaHostAllocDefault));
    for (int i = 0; i < 3; i++)
        p->block[i] = (unsigned char *)pinned + (size_t)i * BLOCK;
    p->sampled = (unsigned char *)pinned + 3 * (size_t)BLOCK;
    p->flag_back = (uint32_t *)(void *)(p->sampled + 4 * SAMPLES);
    CUDA(cudaMalloc(&flag, 16));
    p->flag = flag;
}

static void close_device(program *p)
{
    CUDA(cudaFree(p->flag));
    CUDA(cudaFreeHost(p->block[0]));
    CUDA(cudaEventDestroy(p->start));
    CUDA(cudaEventDestroy(p->stop));
    CUDA(cudaStreamDestroy(p->stream));
    CUDA(cudaStreamDestroy(p->aside));
}

static const char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    check(!file || fread(text, 1, sizeof text - 1, file) == 0, path);
    fclose(file);
    return text;
}

static int parse(program *p, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            p->json = argv[++i];
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            p->seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--list") == 0 && i + 1 < argc)
            p->device_json = text_of(argv[++i]);
        else if (strcmp(argv[i], "--small") == 0)
            p->small = 1;
        else
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    static program p = {.seconds = 40, .desc = {.device = "cuda(0)", .model = "", .compute = 90}};
    int devices = 0;
    if (!parse(&p, argc, argv)) {
        fprintf(stderr, "usage: gpu_sweep [--json FILE] [--seconds S] [--small] [--list DEVICE]\n");
        return 64;
    }
    p.begin_ns = ls_now_ns();
    p.desc.device_json = p.device_json;
    if (!p.device_json && (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1)) {
        printf("skipped: no GPU\n");
        return 77;
    }
    if (p.json)
        check(!(p.file = fopen(p.json, "w")), p.json);
    if (!p.device_json)
        open_device(&p);
    static const ls_precision order[] = {LS_PRECISION_BF16, LS_PRECISION_FP32, LS_PRECISION_TF32};
    for (int i = 0; i < (p.small ? 2 : 3); i++)
        sweep_layers(&p, 0, LENET, order[i]);
    for (int i = 0; i < 3 && !p.small; i++)
        sweep_layers(&p, LENET, LAYERS, order[i]);
    if (!p.device_json)
        close_device(&p);
    if (p.file)
        check(fclose(p.file), p.json);
    printf("%.1f s, %d passes left out\n", (double)(ls_now_ns() - p.begin_ns) * 1e-9, p.left_out);
    return 0;
}
