/* Convolutions and matrix products: the seam between ops and NVIDIA's libraries.
 *
 *     ls_math_shape shape = {.kind = LS_MATH_CONV, …};
 *     ls_math_plan *plan;
 *     status = ls_math_plan_create(&plan, math, &shape, err);       slow: may tune
 *     … plan->workspace_bytes of device memory …
 *     status = ls_math_run(plan, stream, &operands, err);           enqueues, allocates nothing
 *     ls_math_plan_destroy(plan);
 *
 * In the plugin this is cuDNN and cuBLASLt (math_lib.c, cudnn_*.c, cublas_dense.c); in tests a double
 * in plain C takes its place (tests/doubles/math_cpu.c).
 *
 * Tensors are channels last, conv weights [out][kh][kw][c / groups], dense weights [out][inputs]. With
 * `half`, all operands of a convolution are bf16, its bias too, and of a product the two factors; what
 * a product puts out, and its bias, is fp32. Results do not depend on what ran before: engines that are
 * not deterministic are never taken.
 *
 * Threads: everything of one ls_math on the worker's thread. The version functions: any thread.
 */
#ifndef CUDA_MATH_MATH_LIB_H
#define CUDA_MATH_MATH_LIB_H

#include <cuda_runtime_api.h>
#include <lockstep/sys/plugin.h>
#include <stddef.h>

typedef struct ls_math ls_math;

typedef struct ls_math_desc {
    const ls_host *host;
    const char *device; /* "cuda(0)", for messages */
    const char *model;  /* "NVIDIA H200": part of the name of a choice that is kept on disk */
    int compute;        /* 90: compute capability 9.0 */
    ls_precision precision;
    const char *cache_dir;   /* Where choices of kernels are kept. With it, plans are tuned on the
                              device, and the first choice for a shape is everybody's from then
                              on; NULL: the library's own first choice, without tuning */
    const char *device_json; /* not NULL: plan for a device so described; nothing can be run */
} ls_math_desc;

int ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err);
void ls_math_close(ls_math *math); /* NULL is allowed */

/* "cuDNN 9.19.0, cuBLAS 13.1". */
void ls_math_version(char *out, size_t size);
/* Why the libraries that were loaded do not fit those this was built with, or NULL. Static. */
const char *ls_math_misfit(void);

/* ---- choices, of which results depend ---- as the device table's choices and choose ---------- */

size_t ls_math_choices(const ls_math *math, char *out, size_t size);
int ls_math_choose(ls_math *math, const char *text, ls_error *err);

/* ---- plans ---------------------------------------------------------------------------------- */

typedef enum ls_math_kind {
    LS_MATH_CONV = 0,         /* a = x, b = weights → out = y */
    LS_MATH_CONV_DATA = 1,    /* a = dy, b = weights → out = dx */
    LS_MATH_CONV_WEIGHTS = 2, /* a = x, b = dy → out = dw */
    LS_MATH_DENSE = 3,        /* y = x·wᵀ */
    LS_MATH_DENSE_DATA = 4,   /* dx = dy·w */
    LS_MATH_DENSE_WEIGHTS = 5 /* dw = dyᵀ·x */
} ls_math_kind;

typedef struct ls_math_shape {
    ls_math_kind kind;
    int half;
    int bias, relu;    /* LS_MATH_CONV, LS_MATH_DENSE: fused behind it; without a bias no relu */
    int rows, c, h, w; /* of x; of sizes a dense layer has rows, c, its inputs, and out alone */
    int out, y_h, y_w; /* of y */
    int kh, kw, sh, sw, ph, pw, dh, dw;
    int groups; /* of channels: weights are [out][kh][kw][c / groups] */
} ls_math_shape;

typedef struct ls_math_plan {
    size_t workspace_bytes;
    char name[96]; /* for people: "cudnn eng6 tc" */
} ls_math_plan;

/* LS_EUNSUPPORTED: no engine of the library does this, or none that is deterministic and precise
 * enough; a caller that asked for a fused form asks for the plain one then. Others: LS_EDEVICE,
 * LS_ENOMEM. */
int ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                        ls_error *err);
void ls_math_plan_destroy(ls_math_plan *plan); /* NULL is allowed */

typedef struct ls_math_operands {
    const void *a, *b;
    const void *bias;
    void *out; /* overwritten; of LS_MATH_DENSE_WEIGHTS added to with `add` */
    int add;
    void *workspace;
} ls_math_operands;

int ls_math_run(ls_math_plan *plan, cudaStream_t stream, const ls_math_operands *operands,
                ls_error *err);

#endif
