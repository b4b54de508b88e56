/* SPDX-License-Identifier: MIT */
/* Convolutions and matrix products: the interface between ops and NVIDIA's libraries.
 *
 *     ls_math_shape shape = {.kind = LS_MATH_CONV, …};
 *     ls_math_plan *plan;
 *     status = ls_math_plan_create(&plan, math, &shape, err);       slow if it times engines
 *     … plan->workspace_bytes of device memory …
 *     status = ls_math_run(plan, stream, &operands, err);           enqueues, allocates nothing
 *     ls_math_plan_destroy(plan);
 *
 * The plugin implements this interface with cuDNN and cuBLASLt (math_lib.c, cudnn_*.c,
 * cublas_dense.c). Tests link a test double in plain C instead (tests/doubles/math_cpu.c).
 *
 * Tensors are channels last. Convolution weights are [out][kh][kw][c / groups], and dense weights
 * are [out][inputs]. With `half`, all operands of a convolution are bf16, its bias included. In a
 * dense product with `half`, the two factors are bf16, but the result and the bias are fp32. An
 * *engine* is one of the library's implementations of an operation. Only deterministic engines are
 * used, so results do not depend on what ran before. Lockstep's own kernels for convolutions of few
 * channels (own_conv.h) count as an engine. A *plan* is an engine, ready to run a product of one
 * shape. A *choice* is the engine that was chosen for a shape (choice.c, tune.h).
 *
 * Threads: all calls with one ls_math are made on the worker's thread. The version functions may be
 * called on any thread. */
#ifndef CUDA_MATH_MATH_LIB_H
#define CUDA_MATH_MATH_LIB_H

#include <cuda_runtime_api.h>
#include <lockstep/sys/plugin.h>
#include <stddef.h>

typedef struct ls_math ls_math;

typedef struct ls_math_desc {
    const ls_host *host;
    const char *device;  /* "cuda(0)", for messages */
    const char *model;   /* "NVIDIA H200": part of the key of a choice that is stored on disk */
    int compute;         /* compute capability; 90 is 9.0 */
    int processors;      /* number of multiprocessors; 0: unknown */
    size_t memory_bytes; /* memory of the device; 0: unknown */
    ls_precision precision;
    /* Directory in which choices are stored. If it is set, engines are measured on the device
     * (tune.h); all workers and all later runs use the first choice for a shape. NULL: the
     * library's first recommendation is used, and nothing is measured. */
    const char *cache_dir;
    /* description of another device, for which plans can be made but not run. NULL: this device */
    const char *device_json;
} ls_math_desc;

/* Opens the libraries for one device. The strings of `desc` must outlive the result. Returns LS_OK,
 * LS_ENOMEM, LS_EDEVICE (a library does not start), or LS_EINVAL (cuDNN rejects device_json). */
int ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err);
/* Closes the libraries and frees all choices. All plans must be destroyed. `math` may be NULL. */
void ls_math_close(ls_math *math);

/* Writes the versions of the libraries to `out` (`size` bytes), as in "cuDNN 9.19.0, cuBLAS
 * 13.1". */
void ls_math_version(char *out, size_t size);
/* Writes the versions of the libraries with which this back end was built, in the same form. */
void ls_math_built(char *out, size_t size);
/* Writes the versions of the loaded libraries and their files: "cuDNN 9.19.0 (/usr/lib/…), …". */
void ls_math_loaded(char *out, size_t size);
/* Returns 0 if the loaded libraries are compatible with the libraries of the build. Otherwise
 * writes the reason and returns non-zero. */
int ls_math_misfit(char *out, size_t size);

/* ---- choices; results depend on them; used by `choices` and `choose` of the device table ----- */

/* Writes all choices as text, at most `size` bytes including the terminating zero. Returns the
 * length of the whole text without the zero. */
size_t ls_math_choices(const ls_math *math, char *out, size_t size);
/* Makes `math` use the choices of another machine, which ls_math_choices has written as text there.
 * Afterwards `math` times no engines. Errors: LS_EDATA, LS_ENOMEM. */
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
    /* fused operations after LS_MATH_CONV or LS_MATH_DENSE; a relu is fused only together with a
     * bias */
    int bias, relu;
    /* size of x. A dense layer uses only rows, c (its inputs) and out. */
    int rows, c, h, w;
    int out, y_h, y_w; /* channels and size of y */
    int kh, kw, sh, sw, ph, pw, dh, dw;
    int groups; /* groups of channels */
} ls_math_shape;

typedef struct ls_math_plan {
    size_t workspace_bytes;
    char name[96]; /* readable name: "cudnn eng6 tc" */
    int own;       /* non-zero: the plan runs Lockstep's own kernels (own_conv.h) */
} ls_math_plan;

/* Creates a plan. Errors: LS_EUNSUPPORTED if no engine that is deterministic and precise enough
 * computes the shape (the caller can then request the shape without fused operations); LS_EDEVICE,
 * LS_ENOMEM. */
int ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                        ls_error *err);
/* Destroys a plan. `plan` may be NULL. */
void ls_math_plan_destroy(ls_math_plan *plan);

typedef struct ls_math_operands {
    const void *a, *b;
    const void *bias;
    /* the result. It is overwritten, except that LS_MATH_DENSE_WEIGHTS with `add` adds to it */
    void *out;
    int add;
    void *workspace;
} ls_math_operands;

/* Enqueues the plan's work on `stream`; allocates nothing. Errors: LS_EINVAL if the plan is for
 * another device (device_json), LS_EDEVICE, LS_ENOMEM. */
int ls_math_run(ls_math_plan *plan, cudaStream_t stream, const ls_math_operands *operands,
                ls_error *err);

#endif
