/* What the files behind math_lib.h share. */
#ifndef CUDA_MATH_INSIDE_H
#define CUDA_MATH_INSIDE_H

#include "cuda/cuda_device.h"
#include "cuda/math_lib.h"

#include <cublasLt.h>
#include <cudnn.h>

struct ls_math {
    ls_math_desc desc;
    cudnnHandle_t cudnn;                 /* NULL when only planning … */
    cudnnBackendDescriptor_t properties; /* … for the device so described */
    cublasLtHandle_t blas;
};

typedef struct ls_math_inside ls_math_inside;

/* The start of every plan. */
struct ls_math_inside {
    ls_math_plan plan; /* first */
    ls_math *math;
    ls_math_shape shape;
    int (*run)(ls_math_inside *plan, cudaStream_t stream, const ls_math_operands *operands,
               ls_error *err);
    void (*destroy)(ls_math_inside *plan);
};

/* cudnn_conv.c, cublas_dense.c. `*out` is a plan without a workspace of its own. */
int ls_cudnn_conv_plan(ls_math_inside **out, ls_math *math, const ls_math_shape *shape,
                       ls_error *err);
int ls_cublas_dense_plan(ls_math_inside **out, ls_math *math, const ls_math_shape *shape,
                         ls_error *err);

/* ---- math_cache.c: choices on disk ----------------------------------------------------------- */

/* The text that is kept under `key` (one line), or NULL. Free it with ls_free. */
char *ls_math_cache_get(const ls_math *math, const char *key);

/* Keeps `text` under `key`, unless somebody was faster: then his stays. A cache that cannot be
 * written is logged and changes nothing. */
void ls_math_cache_put(const ls_math *math, const char *key, const char *text);

#endif
