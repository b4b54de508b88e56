/* SPDX-License-Identifier: MIT */
/* Measures one depthwise convolution, forward and backward, on one core. bench/depthwise.py runs it
 * and compares it with PyTorch.
 *
 *     bench_depthwise [ISA]       ISA: avx512, avx2 or generic; default: the best of this CPU
 *
 * For each line "ROWS CHANNELS SIDE KERNEL STRIDE" of its input it prints two times in
 * milliseconds: that of the forward pass, and that of the forward and the backward pass together.
 * Each time is the best of several runs, and is CPU time of this thread. */
#include "cpu/cpu_device.h"
#include "cpu/lanes_kernels.h"
#include "cpu/lanes_op.h"

#include "base/host.h"
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 8

/* Allocates an array of floats with pseudorandom values between −½ and ½. */
static float *memory(size_t bytes)
{
    float *out = ls_alloc(NULL, bytes + 64);
    unsigned state = 1;
    if (!out) {
        fprintf(stderr, "bench_depthwise: out of memory\n");
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof *out; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (float)(state >> 8) / 16777216.0f - 0.5f;
    }
    return out;
}

static void measure(ls_op *op, const ls_op_desc *desc)
{
    ls_op_buffers b = {.x = memory(desc->x.bytes),
                       .y = memory(op->y.bytes),
                       .dx = memory(desc->x.bytes),
                       .dy = memory(op->y.bytes),
                       .param = {memory(op->param_floats[0] * sizeof(float))},
                       .grad = {memory(op->param_floats[0] * sizeof(float))},
                       .scratch = memory(op->scratch_bytes)};
    double forward = 1e30, both = 1e30;
    op->impl->bind(op, &b, NULL);
    for (int i = 0; i < RUNS; i++) {
        const double start = cpu_seconds();
        op->impl->forward(op, NULL, 0, NULL);
        const double middle = cpu_seconds();
        op->impl->backward(op, NULL, 0, NULL);
        const double end = cpu_seconds();
        forward = middle - start < forward ? middle - start : forward;
        both = end - start < both ? end - start : both;
    }
    printf("%.4f %.4f\n", 1e3 * forward, 1e3 * both);
    fflush(stdout);
    void *const all[] = {(void *)b.x,        b.y,       b.dx,     (void *)b.dy,
                         (void *)b.param[0], b.grad[0], b.scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ls_free(NULL, all[i]);
}

int main(int argc, char **argv)
{
    const ls_lanes_kernels *kernels = ls_cpu_isa_at(0);
    for (int i = 0; argc > 1 && kernels && strcmp(kernels->name, argv[1]) != 0;)
        kernels = ls_cpu_isa_at(++i);
    if (!kernels) {
        fprintf(stderr, "bench_depthwise: this CPU has no %s\n", argv[1]);
        return 1;
    }
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        int rows, c, side, kernel, stride;
        if (sscanf(line, "%d %d %d %d %d", &rows, &c, &side, &kernel, &stride) != 5)
            return 64;
        ls_cpu_device device = {.kernels = kernels};
        ls_op_desc desc = {.size = sizeof desc, .kind = LS_OP_CONV2D, .training = 1, .needs_dx = 1};
        ls_error err;
        ls_op *op;
        desc.x = ls_lanes_tensor(&(ls_tensor){LS_F32, rows, c, side, side, NULL, 0});
        desc.u.conv2d = (ls_conv2d){.out = c,
                                    .kh = kernel,
                                    .kw = kernel,
                                    .sh = stride,
                                    .sw = stride,
                                    .ph = kernel / 2,
                                    .pw = kernel / 2,
                                    .groups = c};
        if (ls_cpu_op_create(&op, &device, &desc, &err) != LS_OK) {
            fprintf(stderr, "bench_depthwise: %s\n", err.text);
            return 1;
        }
        measure(op, &desc);
        op->impl->destroy(op);
    }
    return 0;
}
