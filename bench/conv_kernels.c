/* SPDX-License-Identifier: MIT */
/* Measures every convolution of LeNet and of ResNet-18 on one core: forward and both gradients, in
 * GFLOP/s.
 *
 *     conv_kernels [ISA [ROWS [ROUNDS [NAME]]]]
 *
 * Defaults: the best ISA of this CPU; 32 rows, the usual size of a shard; 7 rounds; all
 * convolutions. GFLOP/s are effective: two operations are counted for every product of a direct
 * convolution. Winograd's algorithm needs fewer products, so its result can exceed the CPU's peak.
 * The result is the best of the rounds. Time is CPU time of this thread. The time of the gradient
 * of the input x is the difference of two times: of an op that computes this gradient, and of one
 * that does not. */
#include "cpu/cpu_device.h"
#include "cpu/lanes_kernels.h"
#include "cpu/lanes_op.h"

#include "base/host.h"
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum bench_pass { FORWARD, DATA, WEIGHTS, PASSES } bench_pass;

typedef struct layer {
    const char *name;
    int in, side; /* number of channels of the input x; its height, which is also its width */
    ls_conv2d conv;
    int fused; /* non-zero: the op includes the ReLU and the pooling that follow the convolution in
                  LeNet */
    int first; /* non-zero: the network's first layer, for which no gradient of x is computed */
    int times; /* number of layers of this form in the network */
} layer;

#define CONV(outputs, kernel, stride, padding, with_bias)                                          \
    {                                                                                              \
        .out = (outputs), .kh = (kernel), .kw = (kernel), .sh = (stride), .sw = (stride),          \
        .ph = (padding), .pw = (padding), .bias = (with_bias)                                      \
    }

static const layer layers[] = {
    {"LeNet 3x3", 1, 28, CONV(20, 3, 1, 0, 1), 1, 1, 1},
    {"LeNet 5x5", 20, 13, CONV(50, 5, 1, 0, 1), 1, 0, 1},
    {"LeNet 3x3 alone", 1, 28, CONV(20, 3, 1, 0, 0), 0, 1, 0},
    {"LeNet 5x5 alone", 20, 13, CONV(50, 5, 1, 0, 0), 0, 0, 0},
    {"stem 7x7 / 2", 3, 64, CONV(64, 7, 2, 3, 0), 0, 1, 0},
    {"stem", 1, 28, CONV(64, 3, 1, 1, 0), 0, 1, 1},
    {"64, 3x3", 64, 28, CONV(64, 3, 1, 1, 0), 0, 0, 4},
    {"64 to 128, 3x3 / 2", 64, 28, CONV(128, 3, 2, 1, 0), 0, 0, 1},
    {"64 to 128, 1x1 / 2", 64, 28, CONV(128, 1, 2, 0, 0), 0, 0, 1},
    {"128, 3x3", 128, 14, CONV(128, 3, 1, 1, 0), 0, 0, 3},
    {"128 to 256, 3x3 / 2", 128, 14, CONV(256, 3, 2, 1, 0), 0, 0, 1},
    {"128 to 256, 1x1 / 2", 128, 14, CONV(256, 1, 2, 0, 0), 0, 0, 1},
    {"256, 3x3", 256, 7, CONV(256, 3, 1, 1, 0), 0, 0, 3},
    {"256 to 512, 3x3 / 2", 256, 7, CONV(512, 3, 2, 1, 0), 0, 0, 1},
    {"256 to 512, 1x1 / 2", 256, 7, CONV(512, 1, 2, 0, 0), 0, 0, 1},
    {"512, 3x3", 512, 4, CONV(512, 3, 1, 1, 0), 0, 0, 3},
    {"64 to 16, 1x1", 64, 28, CONV(16, 1, 1, 0, 0), 0, 0, 0},
    {"16 to 64, 1x1", 16, 28, CONV(64, 1, 1, 0, 0), 0, 0, 0},
    {"32 to 48, 3x3 / 2", 32, 28, CONV(48, 3, 2, 1, 0), 0, 0, 0},
    {"32 to 64, 5x5 / 2", 32, 28, CONV(64, 5, 2, 2, 0), 0, 0, 0},
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

typedef struct runner {
    ls_op *op;
    float *memory[16];
    int used;
} runner;

static float *more(runner *r, size_t bytes)
{
    return r->memory[r->used++] = memory(bytes / sizeof(float));
}

static void open_op(runner *r, const ls_lanes_kernels *kernels, const layer *l, int rows,
                    int needs_dx)
{
    ls_tensor x = {LS_F32, rows, l->in, l->side, l->side, NULL, 0};
    ls_op_desc desc = {.size = sizeof desc,
                       .kind = LS_OP_CONV2D,
                       .training = 1,
                       .needs_dx = needs_dx,
                       .fuse_relu = l->fused,
                       .fuse_pool = l->fused,
                       .pool = {.kh = 2, .kw = 2, .sh = 2, .sw = 2},
                       .x = ls_lanes_tensor(&x)};
    ls_cpu_device device = {.kernels = kernels};
    ls_error err;
    desc.u.conv2d = l->conv;
    *r = (runner){0};
    if (ls_cpu_op_create(&r->op, &device, &desc, &err))
        die(err.text);
    ls_op_buffers b = {.x = more(r, desc.x.bytes), .y = more(r, r->op->y.bytes)};
    b.dy = more(r, r->op->y.bytes);
    b.dx = needs_dx ? more(r, desc.x.bytes) : NULL;
    b.saved = more(r, r->op->saved_bytes);
    b.scratch = more(r, r->op->scratch_bytes);
    for (int i = 0; i < r->op->params; i++) {
        b.param[i] = more(r, r->op->param_floats[i] * sizeof(float));
        b.grad[i] = more(r, r->op->param_floats[i] * sizeof(float));
    }
    if (r->op->impl->bind(r->op, &b, &err))
        die(err.text);
}

static void close_op(runner *r)
{
    while (r->used > 0)
        ls_free(NULL, r->memory[--r->used]);
    r->op->impl->destroy(r->op);
}

/* Returns the CPU time of one call in seconds. An earlier call, whose time does not count, warms
 * the caches. */
static double timed(ls_op *op, int (*run)(ls_op *, ls_stream *, unsigned, ls_error *))
{
    double start;
    run(op, NULL, 0, NULL);
    start = cpu_seconds();
    run(op, NULL, 0, NULL);
    return cpu_seconds() - start;
}

static void keep(double *best, double seconds, int round)
{
    if (round == 0 || seconds < *best)
        *best = seconds;
}

static void measure(const ls_lanes_kernels *kernels, const layer *l, int rows, int rounds,
                    double of[PASSES])
{
    runner r[2];
    double both[2] = {0};
    open_op(&r[0], kernels, l, rows, 0);
    open_op(&r[1], kernels, l, rows, 1);
    for (int i = 0; i < rounds; i++) {
        keep(&of[FORWARD], timed(r[0].op, r[0].op->impl->forward), i);
        keep(&both[0], timed(r[0].op, r[0].op->impl->backward), i);
        if (!l->first)
            keep(&both[1], timed(r[1].op, r[1].op->impl->backward), i);
    }
    of[WEIGHTS] = both[0];
    of[DATA] = both[1] - both[0];
    close_op(&r[0]);
    close_op(&r[1]);
}

/* Prints the figures of a layer, and adds its seconds to those of its network in `sum`. */
static void report(const layer *l, int rows, const double of[PASSES], double *sum)
{
    const int side = (l->side + 2 * l->conv.ph - l->conv.kh) / l->conv.sh + 1;
    const double gflop = 2e-9 * rows * side * side * l->in * l->conv.out * l->conv.kh * l->conv.kw;
    printf("| %-19s |", l->name);
    for (int p = 0; p < PASSES; p++) {
        if (p == DATA && l->first) {
            printf("        |");
            continue;
        }
        printf(" %6.1f |", gflop / of[p]);
        *sum += l->times * of[p];
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : ls_cpu_isa_at(0)->name;
    const int rows = argc > 2 ? atoi(argv[2]) : 32, rounds = argc > 3 ? atoi(argv[3]) : 7;
    const ls_lanes_kernels *kernels = NULL, *set;
    double sum[2] = {0};
    for (int i = 0; (set = ls_cpu_isa_at(i)); i++)
        if (!strcmp(set->name, isa))
            kernels = set;
    if (!kernels || rows < 1 || rounds < 1)
        die("usage: conv_kernels [avx512|avx2|generic [ROWS [ROUNDS [NAME]]]]");
    printf("%s, one core, %d rows, GFLOP/s\n\n"
           "| %-19s | forward | data | weights |\n|---|---:|---:|---:|\n",
           isa, rows, "convolution");
    for (size_t i = 0; i < LAYERS; i++) {
        double of[PASSES] = {0};
        if (argc > 4 && !strstr(layers[i].name, argv[4]))
            continue;
        measure(kernels, &layers[i], rows, rounds, of);
        report(&layers[i], rows, of, &sum[i > 1]);
    }
    printf("\nall of LeNet's %.2f ms, all of ResNet-18's %.1f ms\n", 1e3 * sum[0], 1e3 * sum[1]);
    return 0;
}
