/* SPDX-License-Identifier: MIT */
/* Measures the kernels (inner loops) of the CPU back end, which compute 16 images side by side, on
 * one core: every op of LeNet, forward and backward, in GFLOP/s, and a whole training step in
 * images/s. For comparison it also measures the peak of fused multiply-adds on the same core.
 *
 *     lanes_kernels [ISA [SECONDS]]       ISA: avx512, avx2 or generic; default: this CPU's best
 *
 * A step has 256 rows, computed as in training: forward and backward in blocks of 32 rows, whose
 * gradients are added up, then SGD. LeNet needs at least 10.6 million operations per image; a
 * multiply-add counts as two. */
#include "cpu/lanes_kernels.h"
#include "cpu/cpu_device.h"
#include "cpu/lanes_op.h"

#include "base/host.h"
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 32
#define BATCH 256
#define OPS 6
#define IMAGES 4096
#define IMAGE_MFLOP 10.6

/* ---- the peak -------------------------------------------------------------------------------- */

/* The rest of the project forbids the compiler to contract a product and a sum to a fused
 * multiply-add. The peak is measured with fused multiply-adds. */
#if defined(__clang__)
#define CONTRACT _Pragma("clang fp contract(fast)")
#define CONTRACTED
#else
#define CONTRACT
#define CONTRACTED __attribute__((optimize("fp-contract=fast")))
#endif

/* Computes twelve independent chains of multiply-adds. A CPU core has at most two units for them,
 * with a latency of four or five cycles, so ten chains are enough to keep both units busy. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses): names and attributes take no parentheses */
#define PEAK(name, target, lanes) \
    typedef float name##_vec __attribute__((vector_size(lanes * 4))); \
    target CONTRACTED static float name(long steps) \
    { \
        CONTRACT \
        name##_vec a[12], scale = {0}, sum = {0}; \
        scale += 0.999f; \
        for (int i = 0; i < 12; i++) \
            a[i] = scale + (float)i; \
        for (long s = 0; s < steps; s++) { \
            for (int i = 0; i < 12; i++) \
                a[i] = a[i] * scale + scale; \
        } \
        for (int i = 0; i < 12; i++) \
            sum += a[i]; \
        return sum[0]; \
    }
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#if defined(__x86_64__)
PEAK(peak_avx512, __attribute__((target("avx512f"))), 16)
PEAK(peak_avx2, __attribute__((target("avx2,fma"))), 8)
#endif
PEAK(peak_generic, , 4)

/* Measures the peak in GFLOP/s, the best of a few short runs. */
static double measure_peak(const char *isa)
{
    float (*run)(long) = peak_generic;
    int lanes = 4;
    (void)isa; /* on other CPUs there is only one variant */
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512")) {
        run = peak_avx512;
        lanes = 16;
    } else if (!strcmp(isa, "avx2")) {
        run = peak_avx2;
        lanes = 8;
    }
#endif
    const long steps = 2000000;
    volatile float sink;
    double best = 0;
    for (int i = 0; i < 8; i++) {
        double t = cpu_seconds();
        sink = run(steps);
        double rate = 2.0 * 12 * lanes * (double)steps / (cpu_seconds() - t) * 1e-9;
        best = rate > best ? rate : best;
    }
    (void)sink;
    return best;
}

/* ---- the network ----------------------------------------------------------------------------- */

typedef struct stage {
    const char *name;
    ls_op *op;
    double forward_mflop, backward_mflop; /* operations per image, in millions */
    double forward_s, backward_s;         /* sum of the times of all calls, in seconds */
    /* offsets of the op's parameters in the arrays of weights and gradients */
    size_t param_at[LS_OP_PARAMS];
} stage;

typedef struct network {
    stage stage[OPS];
    float *weights, *grads;
    size_t floats;
    ls_step_args args;
    uint32_t rows[IMAGES];
} network;

static void die(const char *what)
{
    fprintf(stderr, "lanes_kernels: %s\n", what);
    exit(1);
}

static void *memory(size_t bytes)
{
    void *out = ls_alloc(NULL, bytes);
    if (!out)
        die("out of memory");
    return out;
}

static void add(network *n, int i, const ls_lanes_kernels *kernels, const char *name,
                ls_op_desc desc, double forward_mflop, double backward_mflop)
{
    stage *s = &n->stage[i];
    ls_error err = {0};
    desc.size = sizeof desc;
    desc.training = 1;
    desc.needs_dx = i > 1;
    if (i > 0)
        desc.x = n->stage[i - 1].op->y;
    ls_cpu_device device = {.kernels = kernels};
    if (ls_cpu_op_create(&s->op, &device, &desc, &err) != LS_OK)
        die(err.text);
    s->name = name;
    s->forward_mflop = forward_mflop;
    s->backward_mflop = backward_mflop;
    for (int p = 0; p < s->op->params; p++) {
        s->param_at[p] = n->floats;
        n->floats += (s->op->param_floats[p] + 15) / 16 * 16;
    }
}

static void build(network *n, const ls_lanes_kernels *kernels)
{
    const ls_pool2d half = {.kh = 2, .kw = 2, .sh = 2, .sw = 2};
    ls_op_desc gather = {.kind = LS_OP_GATHER, .y_hint = &ls_layout_lanes};
    gather.x = (ls_tensor){LS_U8, ROWS, 1, 28, 28, NULL, 784};
    gather.u.gather = (ls_gather){.std = {1, 1, 1, 1}};
    ls_op_desc conv1 = {.kind = LS_OP_CONV2D, .fuse_relu = 1, .fuse_pool = 1, .pool = half};
    conv1.u.conv2d = (ls_conv2d){.out = 20, .kh = 3, .kw = 3, .sh = 1, .sw = 1, .bias = 1};
    ls_op_desc conv2 = conv1;
    conv2.u.conv2d = (ls_conv2d){.out = 50, .kh = 5, .kw = 5, .sh = 1, .sw = 1, .bias = 1};
    ls_op_desc dense1 = {.kind = LS_OP_DENSE, .fuse_relu = 1, .u.dense = {128, 1}};
    ls_op_desc dense2 = {.kind = LS_OP_DENSE, .u.dense = {10, 1}};
    ls_op_desc loss = {.kind = LS_OP_SOFTMAX_XENT};
    const double c1 = 2e-6 * 26 * 26 * 20 * 9, c2 = 2e-6 * 8 * 8 * 50 * 500;
    const double d1 = 2e-6 * 800 * 128, d2 = 2e-6 * 128 * 10;
    add(n, 0, kernels, "gather", gather, 0, 0);
    add(n, 1, kernels, "conv 3x3x20, relu, pool", conv1, c1, c1);
    add(n, 2, kernels, "conv 5x5x50, relu, pool", conv2, c2, 2 * c2);
    add(n, 3, kernels, "dense 128, relu", dense1, d1, 2 * d1);
    add(n, 4, kernels, "dense 10", dense2, d2, 2 * d2);
    add(n, 5, kernels, "softmax, loss", loss, 0, 0);
}

static void fill(network *n)
{
    unsigned state = 1;
    for (int i = 1; i < OPS; i++) {
        ls_op *op = n->stage[i].op;
        for (int p = 0; p < op->params; p++) {
            float *canonical = memory(op->param_floats[p] * sizeof(float));
            for (size_t k = 0; k < op->param_floats[p]; k++) {
                state = state * 1664525u + 1013904223u;
                canonical[k] = p ? 0 : ((float)(state >> 8) / 16777216.0f - 0.5f) * 0.1f;
            }
            op->impl->import_param(op, p, n->weights + n->stage[i].param_at[p], canonical, NULL);
            ls_free(NULL, canonical);
        }
    }
}

static void bind(network *n)
{
    size_t scratch = 0;
    for (int i = 0; i < OPS; i++)
        if (n->stage[i].op->scratch_bytes > scratch)
            scratch = n->stage[i].op->scratch_bytes;
    uint8_t *images = memory(IMAGES * 784);
    int32_t *labels = memory(IMAGES * sizeof *labels), *batch = memory(BATCH * sizeof *batch);
    for (int i = 0; i < IMAGES * 784; i++)
        images[i] = (uint8_t)((i * 2654435761u) >> 24);
    for (uint32_t i = 0; i < IMAGES; i++) {
        labels[i] = i % 10;
        n->rows[i] = (i * 1103u) % IMAGES;
    }
    n->weights = memory(n->floats * sizeof(float));
    n->grads = memory(n->floats * sizeof(float));
    fill(n);
    void *x = images, *dx = NULL, *shared = memory(scratch), *stats = memory(64);
    for (int i = 0; i < OPS; i++) {
        ls_op *op = n->stage[i].op;
        void *y = memory(op->y.bytes), *dy = memory(op->y.bytes);
        ls_op_buffers b = {.args = &n->args,
                           .x = x,
                           .y = y,
                           .dy = dy,
                           .dx = i > 1 ? dx : NULL,
                           .labels = i == 0 ? labels : batch,
                           .labels_out = batch,
                           .stats = stats,
                           .saved = memory(op->saved_bytes),
                           .scratch = shared};
        for (int p = 0; p < op->params; p++) {
            b.param[p] = n->weights + n->stage[i].param_at[p];
            b.grad[p] = n->grads + n->stage[i].param_at[p];
        }
        if (op->impl->bind(op, &b, NULL) != LS_OK)
            die("bind failed");
        x = y;
        dx = dy;
    }
}

static void step(network *n, int number)
{
    for (int block = 0; block < BATCH / ROWS; block++) {
        unsigned flags = block ? LS_RUN_ACCUMULATE : 0;
        double t = cpu_seconds(), next;
        n->args.rows = n->rows + (number * BATCH + block * ROWS) % IMAGES;
        for (int i = 0; i < OPS; i++, t = next) {
            n->stage[i].op->impl->forward(n->stage[i].op, NULL, flags, NULL);
            n->stage[i].forward_s += (next = cpu_seconds()) - t;
        }
        for (int i = OPS - 2; i > 0; i--, t = next) {
            n->stage[i].op->impl->backward(n->stage[i].op, NULL, flags, NULL);
            n->stage[i].backward_s += (next = cpu_seconds()) - t;
        }
    }
    for (size_t i = 0; i < n->floats; i++)
        n->weights[i] -= 0.01f / BATCH * n->grads[i];
}

/* ---- report ---------------------------------------------------------------------------------- */

static void line(const char *name, const char *pass, double seconds, double mflop, double images,
                 double total, double peak)
{
    printf("  %-26s %-9s %7.1f us/step %5.1f %%", name, pass, seconds / images * BATCH * 1e6,
           100 * seconds / total);
    if (mflop > 0) {
        double rate = mflop * images / seconds * 1e-3;
        printf("  %6.1f GFLOP/s  %5.1f %% of peak", rate, 100 * rate / peak);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : ls_cpu_isa_at(0)->name;
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    const ls_lanes_kernels *kernels = NULL;
    static network n;
    const ls_lanes_kernels *set;
    for (int i = 0; (set = ls_cpu_isa_at(i)); i++)
        if (!strcmp(set->name, isa))
            kernels = set;
    if (!kernels)
        die("this CPU has no such instruction set");
    build(&n, kernels);
    bind(&n);
    for (int i = 0; i < 8; i++)
        step(&n, i);
    for (int i = 0; i < OPS; i++)
        n.stage[i].forward_s = n.stage[i].backward_s = 0;

    double peak = measure_peak(isa), best = 0;
    double start = cpu_seconds();
    long steps = 0;
    while (cpu_seconds() - start < seconds) {
        double t = cpu_seconds();
        for (int i = 0; i < 4; i++)
            step(&n, (int)(steps++ % 1000));
        double rate = 4 * BATCH / (cpu_seconds() - t);
        best = rate > best ? rate : best;
    }
    double total = cpu_seconds() - start, images = (double)steps * BATCH;
    double after = measure_peak(isa);
    peak = after > peak ? after : peak;

    printf("lanes:%s, one core, LeNet, %d rows a step in blocks of %d\n", isa, BATCH, ROWS);
    for (int i = 0; i < OPS; i++)
        line(n.stage[i].name, "forward", n.stage[i].forward_s, n.stage[i].forward_mflop, images,
             total, peak);
    for (int i = OPS - 2; i > 0; i--)
        line(n.stage[i].name, "backward", n.stage[i].backward_s, n.stage[i].backward_mflop, images,
             total, peak);
    printf("  peak %.1f GFLOP/s\n", peak);
    printf("  %.0f images/s (best of short runs %.0f): %.1f %% (%.1f %%) of the floor, "
           "%.1f MFLOP an image at the peak\n",
           images / total, best, 100 * images / total * IMAGE_MFLOP * 1e-3 / peak,
           100 * best * IMAGE_MFLOP * 1e-3 / peak, IMAGE_MFLOP);
    return 0;
}
