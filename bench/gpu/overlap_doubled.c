/* SPDX-License-Identifier: MIT */
/* gpu_overlap with doubles: replacements for the CUDA runtime that run on a CPU (tests/doubles).
 * This file has the spin kernel in C, and starts and ends the doubles. The measured times are
 * meaningless; the purpose is to check that the program runs, and what it computes. */
#include "doubles/control.h"
#include "doubles/launch.h"
#include "overlap_spin.h"

struct run {
    bench_spin *spin;
    uint64_t stride, shard, times;
    int first;
};

static void run_body(const void *copied)
{
    const struct run *r = copied;
    if (!dbl_may_touch(r->spin, sizeof *r->spin))
        return;
    uint64_t state = r->first ? r->spin->step * r->stride + r->shard : r->spin->state;
    for (uint64_t i = 0; i < r->times; i++)
        state = state * 6364136223846793005u + 1442695040888963407u;
    r->spin->state = state;
}

cudaError_t bench_spin_run(bench_spin *spin, uint64_t stride, uint64_t shard, int first,
                           uint64_t times, cudaStream_t stream)
{
    const struct run r = {spin, stride, shard, times, first};
    return dbl_launch(stream, "bench_spin_run", run_body, &r, sizeof r);
}

struct gradient {
    float *leaf;
    size_t floats;
    bench_spin *spin;
    int last;
};

static void gradient_body(const void *copied)
{
    const struct gradient *g = copied;
    if (!dbl_may_touch(g->spin, sizeof *g->spin) ||
        !dbl_may_touch(g->leaf, g->floats * sizeof *g->leaf))
        return;
    for (size_t i = 0; i < g->floats; i++)
        g->leaf[i] = (float)((g->spin->state >> (i % 48)) & 15);
    g->spin->step += g->last != 0;
}

cudaError_t bench_spin_gradient(float *leaf, size_t floats, bench_spin *spin, int last,
                                cudaStream_t stream)
{
    const struct gradient g = {leaf, floats, spin, last};
    return dbl_launch(stream, "bench_spin_gradient", gradient_body, &g, sizeof g);
}

static void begin(void) __attribute__((constructor));
static void end(void) __attribute__((destructor));

static void begin(void)
{
    dbl_begin(&(dbl_options){.mode = DBL_THREADS,
                             .devices = 2,
                             .memory_bytes = (size_t)4 << 30,
                             .patience_ns = 300 * (uint64_t)1000000000});
}

static void end(void)
{
    dbl_end_of_program();
}
