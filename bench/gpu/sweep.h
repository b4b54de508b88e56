/* SPDX-License-Identifier: MIT */
/* The parts of gpu_sweep (sweep.c): cuDNN's engines for a pass of a convolution.
 *
 * A *configuration* is an engine (one of cuDNN's implementations) with its settings.
 * sweep_engines.c has the functions for cuDNN. sweep_doubled.c has them for tests without a GPU.
 * sweep_own.c has Lockstep's own kernels, which are in the list of a pass too. */
#ifndef BENCH_GPU_SWEEP_H
#define BENCH_GPU_SWEEP_H

#include "cuda/math/math_lib.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

enum { SWEEP_MOST = 512 /* largest number of configurations of a pass */ };

/* What a configuration runs. The last two are only timed. Together with cuDNN's engine,
 * SWEEP_POOL is what SWEEP_OWN_POOLED replaces. */
typedef enum sweep_kind {
    SWEEP_CUDNN,
    SWEEP_OWN,        /* the own kernels for few channels (own_conv.h) */
    SWEEP_OWN_POOLED, /* the same, with the relu and the pool fused */
    SWEEP_POOL        /* the kernels that pool what cuDNN computes, or its gradient */
} sweep_kind;

typedef struct sweep_engine {
    sweep_kind kind;
    int64_t number;      /* cuDNN's number of the engine; −kind for the other kinds */
    const char *mode;    /* the heuristic that recommends it first: "A", "B" or "fallback"; "own",
                          * "own+pool" or "pool" for the other kinds */
    int place;           /* its place among the recommendations of `mode`, from 0 */
    char notes[192];     /* cuDNN's numerical notes, separated by spaces */
    char knobs[256];     /* the settings: "3=1 17=64", pairs of cuDNN's knob type and value */
    int deterministic;   /* non-zero: according to cuDNN */
    const char *skipped; /* the reason why it is not run; NULL: it is run */
    size_t workspace_bytes;
    void *plan, *pack; /* owned by sweep_engines.c or sweep_doubled.c */
    ls_math_operands bound;
} sweep_engine;

/* Stores the configurations in `out`, which has room for SWEEP_MOST, in the sequence A, B,
 * fallback; each configuration once. Returns their number; 0 if cuDNN does not accept the pass,
 * with the reason in `err`. */
int sweep_find(sweep_engine *out, ls_math *math, const ls_math_shape *shape, ls_error *err);
/* Enqueues a run. */
int sweep_run(sweep_engine *engine, ls_math *math, const ls_math_shape *shape, cudaStream_t stream,
              const ls_math_operands *operands, ls_error *err);
void sweep_free(sweep_engine *engine, int count);

/* ---- sweep_own.c ----------------------------------------------------------------------------- */

/* Adds the configurations of the own kernels for a pass to `out`, which has `count` already; the
 * last two only if `pooled` is set. Returns the number of all. */
int sweep_find_own(sweep_engine *out, int count, const ls_math_shape *shape, int pooled);
/* Enqueues a run of one of them. The operands have the sizes of the pass without a pool. */
cudaError_t sweep_run_own(const sweep_engine *engine, const ls_math_shape *shape,
                          cudaStream_t stream, const ls_math_operands *operands);

#ifdef __cplusplus
extern "C" {
#endif
/* Sets *flag to 1 if the two arrays of `words` words differ. */
cudaError_t sweep_differ(const uint32_t *a, const uint32_t *b, size_t words, uint32_t *flag,
                         cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
