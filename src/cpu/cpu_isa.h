/* The instruction sets that our kernels are compiled for, and which of them this CPU has: asked here
 * alone. */
#ifndef CPU_CPU_ISA_H
#define CPU_CPU_ISA_H

#include "cpu/lanes_kernels.h"

#include <stddef.h>

/* ---- passes over memory ---------------------------------------------------------------------- */

/* Vector code of our own beside oneDNN's: passes over memory that oneDNN does not fuse, or does
 * in more of them. One table per instruction set (cpu_isa.h).
 *
 * Those of batch normalisation (`sum` serves the gradient of a bias as well) work on a `ls_run`: `rows` lines of `count` vectors of `width`
 * floats. That is a plane of some rows in any layout: of 16 channels at once where channels lie
 * side by side (the width is 16, or what is left of the channels), of one channel where its pixels
 * do.
 * Coefficients are arrays of 16 floats, one for each lane; sums, which are added to, of 16 doubles:
 * eight numbers at most are added up in float. Products are added with vec_fma.
 */

#define LS_RUN_LANES 16 /* most floats of a vector */

typedef struct ls_run {
    size_t rows, row;   /* lines, and the floats from one to the next */
    size_t count, step; /* vectors of a line, and the floats from one to the next */
    int width;          /* 1 … 16 */
} ls_run;

/* y = scale·(x − mean) + shift, lane by lane. */
typedef struct ls_norm {
    const float *mean, *scale, *shift;
} ls_norm;

/* What lies behind a normalisation: dy counts where relu's output is above zero. */
typedef enum ls_norm_mask {
    LS_NORM_ALL,  /* no relu */
    LS_NORM_OF_X, /* relu directly: the sign is computed again from x */
    LS_NORM_OF_Y  /* relu behind an addition: the sign is y's */
} ls_norm_mask;

typedef struct ls_cpu_kernels {
    const char *name;

    /* sum += x */
    void (*sum)(const ls_run *run, const float *x, double *sum);
    /* sum += (x − mean)² */
    void (*squares)(const ls_run *run, const float *x, const float *mean, double *sum);
    /* y ← the normalised x, plus x2 unless it is NULL, then relu if asked for */
    void (*normalise)(const ls_run *run, const ls_norm *norm, const float *x, const float *x2,
                      float *y, int relu);
    /* g is dy where the mask lets it through, else 0. sum[0…15] += g, sum[16…31] += g·(x − mean);
     * dx2 ← g unless it is NULL. */
    void (*norm_sums)(const ls_run *run, const ls_norm *norm, ls_norm_mask mask, const float *x,
                      const float *y, const float *dy, float *dx2, double *sum);
    /* dx ← a·g + b·(x − mean) + c, with a, b, c in `to` and g as above. */
    void (*norm_dx)(const ls_run *run, const ls_norm *norm, ls_norm_mask mask, const float *x,
                    const float *y, const float *dy, const float *to, float *dx);

    /* Σ a·b */
    double (*dot)(const float *a, const float *b, size_t n);

    /* y ← a + b, then relu if asked for */
    void (*add)(const float *a, const float *b, float *y, size_t n, int relu);
    /* dx and dx2 (may be NULL) ← dy, or with `y` dy where y > 0 and 0 elsewhere */
    void (*add_dx)(const float *y, const float *dy, float *dx, float *dx2, size_t n);
} ls_cpu_kernels;

/* ---- the sets -------------------------------------------------------------------------------- */

typedef struct ls_cpu_isa {
    const char *name;       /* "avx512", "avx2", "generic" */
    ls_cpu_kernels kernels; /* passes over memory */
    ls_lanes_kernels lanes; /* layers */
} ls_cpu_isa;

/* The i-th best that this CPU runs; NULL behind the last. Any thread. */
const ls_cpu_isa *ls_cpu_isa_at(int i);

extern const ls_cpu_isa ls_cpu_isa_avx512, ls_cpu_isa_avx2, ls_cpu_isa_generic;

#endif
