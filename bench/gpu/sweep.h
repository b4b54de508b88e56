/* The parts of gpu_sweep (sweep.c): cuDNN's engines for a pass of a convolution.
 *
 * A *configuration* is an engine (one of cuDNN's implementations) with its settings.
 * sweep_engines.c has the functions for cuDNN. sweep_doubled.c has them for tests without a GPU. */
#ifndef BENCH_GPU_SWEEP_H
#define BENCH_GPU_SWEEP_H

#include "cuda/math/math_lib.h"

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

enum { SWEEP_MOST = 512 /* largest number of configurations of a pass */ };

typedef struct sweep_engine {
    int64_t number;      /* cuDNN's number of the engine */
    const char *mode;    /* the heuristic that recommends it first: "A", "B" or "fallback" */
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
