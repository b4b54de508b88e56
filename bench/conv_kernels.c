/* Every convolution of LeNet and of ResNet-18 on one core: forward and both gradients, in lanes beside the
 * best of oneDNN's kernels, in turns.
 *
 *     conv_kernels [ROWS [ROUNDS]]     default: 32 rows, a shard's; 7 rounds
 *
 * The instruction set is the CPU's best; GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F DNNL_MAX_CPU_ISA=AVX2 in the
 * environment makes it AVX2 for both sides. GFLOP/s are effective: two operations for every product of the
 * direct form, so that Winograd's can pass the peak. oneDNN lays tensors out as it likes and converts
 * nothing; the best of its direct and Winograd kernels counts. Medians of the rounds, processor time of this
 * thread; a ratio above 1 says that lanes are faster.
 */
#include "cpu/cpu_dnnl.h"
#include "cpu/cpu_isa.h"
#include "cpu/lanes.h"

#include "base/host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void omp_set_num_threads(int threads); /* OpenMP's, of the runtime that oneDNN uses */

#define ROUNDS_MOST 99

typedef enum bench_pass { FORWARD, DATA, WEIGHTS, PASSES } bench_pass;
typedef enum bench_form { LANES, DNNL_DIRECT, DNNL_WINOGRAD, FORMS } bench_form;

typedef struct layer {
    const char *name;
    int in, side; /* of x */
    ls_conv2d conv;
    int first; /* no gradient of x is wanted */
    int times; /* how often the network has it */
} layer;

static const layer layers[] = {
    {"LeNet 3x3", 1, 28, {20, 3, 3, 1, 1, 0, 0, 0}, 1, 1},
    {"LeNet 5x5", 20, 13, {50, 5, 5, 1, 1, 0, 0, 0}, 0, 1},
    {"stem", 1, 28, {64, 3, 3, 1, 1, 1, 1, 0}, 1, 1},
    {"64, 3x3", 64, 28, {64, 3, 3, 1, 1, 1, 1, 0}, 0, 4},
    {"64 to 128, 3x3 / 2", 64, 28, {128, 3, 3, 2, 2, 1, 1, 0}, 0, 1},
    {"64 to 128, 1x1 / 2", 64, 28, {128, 1, 1, 2, 2, 0, 0, 0}, 0, 1},
    {"128, 3x3", 128, 14, {128, 3, 3, 1, 1, 1, 1, 0}, 0, 3},
    {"128 to 256, 3x3 / 2", 128, 14, {256, 3, 3, 2, 2, 1, 1, 0}, 0, 1},
    {"128 to 256, 1x1 / 2", 128, 14, {256, 1, 1, 2, 2, 0, 0, 0}, 0, 1},
    {"256, 3x3", 256, 7, {256, 3, 3, 1, 1, 1, 1, 0}, 0, 3},
    {"256 to 512, 3x3 / 2", 256, 7, {512, 3, 3, 2, 2, 1, 1, 0}, 0, 1},
    {"256 to 512, 1x1 / 2", 256, 7, {512, 1, 1, 2, 2, 0, 0, 0}, 0, 1},
    {"512, 3x3", 512, 4, {512, 3, 3, 1, 1, 1, 1, 0}, 0, 3},
};

#define LAYERS (sizeof layers / sizeof layers[0])

static void die(const char *what)
{
    fprintf(stderr, "conv_kernels: %s\n", what);
    exit(1);
}

static float *memory(size_t floats)
{
    float *out = ls_alloc(NULL, (floats + 16) * sizeof(float));
    if (!out)
        die("out of memory");
    for (size_t i = 0; i < floats; i++)
        out[i] = (float)(i * 2654435761u >> 8 & 0xffff) / 65536.0f - 0.5f;
    return out;
}

/* Of this thread: what else runs on the machine is not counted. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int outputs(const layer *l)
{
    return (l->side + 2 * l->conv.ph - l->conv.kh) / l->conv.sh + 1;
}

/* ---- lanes ------------------------------------------------------------------------------------ */

typedef struct lanes_runner {
    ls_op *op;
    float *x, *y, *dy, *dx, *w, *dw, *saved, *scratch;
} lanes_runner;

static void open_lanes(lanes_runner *r, const layer *l, int rows, int needs_dx)
{
    ls_tensor x = {LS_F32, rows, l->in, l->side, l->side, NULL, 0};
    ls_op_desc desc = {.size = sizeof desc,
                       .kind = LS_OP_CONV2D,
                       .training = 1,
                       .needs_dx = needs_dx,
                       .x = ls_lanes_tensor(&x)};
    ls_error err;
    desc.u.conv2d = l->conv;
    if (ls_lanes_op_create_with(&r->op, NULL, &ls_cpu_isa_at(0)->lanes, &desc, &err))
        die(err.text);
    r->x = memory(desc.x.bytes / sizeof(float));
    r->dx = memory(desc.x.bytes / sizeof(float));
    r->y = memory(r->op->y.bytes / sizeof(float));
    r->dy = memory(r->op->y.bytes / sizeof(float));
    r->w = memory(r->op->param_floats[0]);
    r->dw = memory(r->op->param_floats[0]);
    r->saved = memory(r->op->saved_bytes / sizeof(float));
    r->scratch = memory(r->op->scratch_bytes / sizeof(float));
    ls_op_buffers b = {.x = r->x,
                       .y = r->y,
                       .dy = r->dy,
                       .dx = needs_dx ? r->dx : NULL,
                       .saved = r->saved,
                       .scratch = r->scratch,
                       .param = {r->w},
                       .grad = {r->dw}};
    if (r->op->impl->bind(r->op, &b, &err))
        die(err.text);
}

static void close_lanes(lanes_runner *r)
{
    float *all[] = {r->x, r->y, r->dy, r->dx, r->w, r->dw, r->saved, r->scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ls_free(NULL, all[i]);
    r->op->impl->destroy(r->op);
}

/* The gradient of x is what an op that makes it takes longer than one that does not. */
static void time_lanes(const layer *l, int rows, double seconds[PASSES])
{
    lanes_runner r[2];
    double both[2] = {0};
    for (int i = 0; i < 2; i++) {
        open_lanes(&r[i], l, rows, i);
        for (int warm = 0; warm < 2; warm++) {
            double start = now();
            if (!i)
                r[i].op->impl->forward(r[i].op, NULL, 0, NULL);
            seconds[FORWARD] = i ? seconds[FORWARD] : now() - start;
            start = now();
            if (!i || !l->first)
                r[i].op->impl->backward(r[i].op, NULL, 0, NULL);
            both[i] = now() - start;
        }
        close_lanes(&r[i]);
    }
    seconds[WEIGHTS] = both[0];
    seconds[DATA] = both[1] - both[0];
}

/* ---- oneDNN ----------------------------------------------------------------------------------- */

typedef struct dnnl_runner {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arg[4];
    float *memory[4];
} dnnl_runner;

static void add_arg(dnnl_runner *r, const ls_cpu_device *device, int i, int name, const ls_md *md)
{
    ls_error err;
    r->arg[i].arg = name;
    r->memory[i] = memory(ls_md_bytes(md) / sizeof(float));
    if (!ls_md_rank(md)) /* no scratchpad is needed */
        return;
    if (ls_dnnl_memory(&r->arg[i].memory, device, md, r->memory[i], "bench", &err))
        die(err.text);
}

/* 0 when there is no such kernel. */
static int open_dnnl(dnnl_runner *r, const ls_cpu_device *device, const layer *l, int rows,
                     bench_pass pass, int winograd)
{
    static const ls_pass passes[] = {LS_PASS_FORWARD, LS_PASS_BACKWARD_DATA,
                                     LS_PASS_BACKWARD_WEIGHTS};
    static const int args[PASSES][3] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    static const int queries[PASSES][3] = {
        {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
    };
    int side = outputs(l);
    /* There is no Winograd of one channel; but its fastest kernel may be the one of channels last. */
    const ls_md_format format = winograd && l->in == 1 ? LS_MD_NHWC : LS_MD_ANY;
    winograd = winograd && l->in > 1;
    ls_linear_mds m = {.x = ls_md_image(rows, l->in, l->side, l->side, format),
                       .weight = ls_md_image(l->conv.out, l->in, l->conv.kh, l->conv.kw, LS_MD_ANY),
                       .y = ls_md_image(rows, l->conv.out, side, side, format)};
    ls_pd forward = NULL, pd = NULL;
    ls_error err;
    *r = (dnnl_runner){0};
    if (ls_pd_conv(&forward, device, LS_PASS_FORWARD, &m, &l->conv, winograd, 0, NULL, &err) ||
        ls_pd_conv(&pd, device, passes[pass], &m, &l->conv, winograd, 0,
                   pass == FORWARD ? NULL : forward, &err) ||
        dnnl_primitive_create(&r->primitive, pd) != dnnl_success) {
        ls_pd_destroy(forward);
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        ls_md md = ls_pd_md(device, pd, (dnnl_query_t)queries[pass][i]);
        add_arg(r, device, i, args[pass][i], &md);
    }
    ls_md pad = ls_pd_md(device, pd, dnnl_query_scratchpad_md);
    add_arg(r, device, 3, DNNL_ARG_SCRATCHPAD, &pad);
    ls_pd_destroy(pd);
    ls_pd_destroy(forward);
    return 1;
}

static double time_dnnl(const ls_cpu_device *device, const layer *l, int rows, bench_pass pass,
                        int winograd)
{
    dnnl_runner r;
    double start = 0, end = NAN;
    if (!open_dnnl(&r, device, l, rows, pass, winograd))
        return NAN;
    for (int warm = 0; warm < 2; warm++) {
        start = now();
        dnnl_primitive_execute(r.primitive, device->stream, r.arg[3].memory ? 4 : 3, r.arg);
        end = now();
    }
    for (int i = 0; i < 4; i++) {
        dnnl_memory_destroy(r.arg[i].memory);
        ls_free(NULL, r.memory[i]);
    }
    dnnl_primitive_destroy(r.primitive);
    return end - start;
}

/* ---- report ----------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

/* Seconds in lanes and of oneDNN's best, of one layer, to `sum`. */
static void report(const layer *l, int rows, double of[PASSES][2], double sum[2])
{
    int side = outputs(l);
    double gflop = 2e-9 * rows * side * side * l->in * l->conv.out * l->conv.kh * l->conv.kw;
    printf("| %-19s |", l->name);
    for (int p = 0; p < PASSES; p++) {
        if (p == DATA && l->first) {
            printf("        |                 |");
            continue;
        }
        printf(" %6.2f | %6.1f / %6.1f |", of[p][1] / of[p][0], gflop / of[p][0], gflop / of[p][1]);
        for (int i = 0; i < 2; i++)
            sum[i] += l->times * of[p][i];
    }
    printf("\n");
    fflush(stdout);
}

static void measure(const layer *l, int rows, int rounds, const ls_cpu_device *device,
                    double of[PASSES][2])
{
    static double seconds[PASSES][FORMS][ROUNDS_MOST];
    for (int i = 0; i < rounds; i++) {
        double lanes[PASSES] = {0};
        time_lanes(l, rows, lanes);
        for (int p = 0; p < PASSES; p++) {
            seconds[p][LANES][i] = lanes[p];
            for (int f = DNNL_DIRECT; f < FORMS; f++)
                seconds[p][f][i] = time_dnnl(device, l, rows, (bench_pass)p, f == DNNL_WINOGRAD);
        }
    }
    for (int p = 0; p < PASSES; p++) {
        of[p][0] = median(seconds[p][LANES], rounds);
        of[p][1] = median(seconds[p][DNNL_DIRECT], rounds);
        double winograd = median(seconds[p][DNNL_WINOGRAD], rounds);
        if (winograd < of[p][1])
            of[p][1] = winograd;
    }
}

int main(int argc, char **argv)
{
    int rows = argc > 1 ? atoi(argv[1]) : 32, rounds = argc > 2 ? atoi(argv[2]) : 7;
    static ls_cpu_device device;
    ls_error err;
    double sum[2][2] = {{0}};
    if (rows < 1 || rounds < 1 || rounds > ROUNDS_MOST)
        die("usage: conv_kernels [ROWS [ROUNDS]], at most 99 rounds");
    omp_set_num_threads(1);
    if (ls_dnnl_engine(&device, &err))
        die(err.text);
    printf("%s, one core, %d rows; oneDNN's seconds by ours, and GFLOP/s of both\n\n"
           "| %-19s | forward | ours / oneDNN | data | ours / oneDNN | weights | ours / oneDNN |\n"
           "|---|---:|---:|---:|---:|---:|---:|\n",
           ls_cpu_isa_at(0)->name, rows, "convolution");
    for (size_t i = 0; i < LAYERS; i++) {
        double of[PASSES][2];
        if (argc > 3 && !strstr(layers[i].name, argv[3]))
            continue;
        measure(&layers[i], rows, rounds, &device, of);
        report(&layers[i], rows, of, sum[i > 1]);
    }
    printf("\nall of LeNet's %.2f, all of ResNet-18's %.2f (%.1f ms ours)\n", sum[0][1] / sum[0][0],
           sum[1][1] / sum[1][0], 1e3 * sum[1][0]);
    ls_dnnl_engine_free(&device);
    return 0;
}
