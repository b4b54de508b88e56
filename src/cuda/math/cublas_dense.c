/* Dense layers by cuBLASLt. The bias and the relu are in cuBLASLt's epilogue.
 *
 * cuBLAS matrices are column-major: cuBLAS sees a row-major [r][c] as a c × r matrix. Therefore
 * y[rows][out] = x·wᵀ is written as Y(out × rows) = W(in × out)ᵀ · X(in × rows). dx and the
 * gradient of the weights are written in the same way. */
#include "cuda/math/inside.h"

#include <stdio.h>
#include <string.h>

enum { WORKSPACE = 8 << 20 };

typedef struct dense_plan {
    ls_math_inside inside; /* base; must be first */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out;
    cublasLtMatmulAlgo_t algo;
    const void *bias; /* bias that `product` is set to */
} dense_plan;

/* m × n ← op(left) · op(right), where the sum has k terms. */
typedef struct dense_form {
    int m, n, k;
    int turn_left, turn_right;
    int weights_left; /* non-zero: operand b is the left factor; 0: operand a is */
} dense_form;

static dense_form form_of(const ls_math_shape *s)
{
    switch (s->kind) {
    case LS_MATH_DENSE: return (dense_form){s->out, s->rows, s->c, 1, 0, 1};
    case LS_MATH_DENSE_DATA: return (dense_form){s->c, s->rows, s->out, 0, 0, 1};
    default: return (dense_form){s->c, s->out, s->rows, 0, 1, 0};
    }
}

static cublasStatus_t set(dense_plan *p, cublasLtMatmulDescAttributes_t name, const void *value,
                          size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(p->product, name, value, bytes);
}

static cublasStatus_t describe(dense_plan *p, const dense_form *f)
{
    const ls_math_shape *s = &p->inside.shape;
    const cudaDataType_t in = s->half ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t compute =
        !s->half && p->inside.math->desc.precision == LS_PRECISION_TF32
            ? CUBLAS_COMPUTE_32F_FAST_TF32
            : CUBLAS_COMPUTE_32F;
    const cublasOperation_t left = f->turn_left ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right = f->turn_right ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = s->relu   ? CUBLASLT_EPILOGUE_RELU_BIAS
                                        : s->bias ? CUBLASLT_EPILOGUE_BIAS
                                                  : CUBLASLT_EPILOGUE_DEFAULT;
    const int left_rows = f->turn_left ? f->k : f->m, right_rows = f->turn_right ? f->n : f->k;
    cublasStatus_t e = cublasLtMatmulDescCreate(&p->product, compute, CUDA_R_32F);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = set(p, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = set(p, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatrixLayoutCreate(&p->left, in, (uint64_t)left_rows,
                                       (uint64_t)(f->turn_left ? f->m : f->k), left_rows);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatrixLayoutCreate(&p->right, in, (uint64_t)right_rows,
                                       (uint64_t)(f->turn_right ? f->k : f->n), right_rows);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatrixLayoutCreate(&p->out, CUDA_R_32F, (uint64_t)f->m, (uint64_t)f->n, f->m);
    return e;
}

/* Sets the limits for cuBLASLt's heuristic. Reductions in place are excluded, because they add in
 * the order in which thread blocks finish, which varies. */
static cublasStatus_t limit(cublasLtMatmulPreference_t preference)
{
    const uint64_t workspace = WORKSPACE;
    const uint32_t alignment = 16;
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t e = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    for (int i = 0; i < 4 && e == CUBLAS_STATUS_SUCCESS; i++)
        e = cublasLtMatmulPreferenceSetAttribute(preference, aligned[i], &alignment,
                                                 sizeof alignment);
    return e;
}

/* Takes the library's first recommendation. The recommendation depends on the shapes and the device
 * alone. Therefore all workers take the same recommendation, although no choice is stored. Nothing
 * is timed, because each dense layer of the examples moves less than a megabyte, and takes about as
 * long as the launch of a kernel. */
static cublasStatus_t choose(dense_plan *p)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    memset(&result, 0, sizeof result);
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = limit(preference);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulAlgoGetHeuristic(p->inside.math->blas, p->product, p->left, p->right,
                                           p->out, p->out, preference, 1, &result, &found);
    if (e == CUBLAS_STATUS_SUCCESS && found < 1)
        e = CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    p->algo = result.algo;
    p->inside.plan.workspace_bytes = result.workspaceSize;
    return e;
}

/* ---- running -------------------------------------------------------------------------------- */

static int dense_run(ls_math_inside *inside, cudaStream_t stream, const ls_math_operands *o,
                     ls_error *err)
{
    dense_plan *p = (dense_plan *)inside;
    const dense_form f = form_of(&inside->shape);
    const float alpha = 1, beta = o->add ? 1 : 0;
    cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
    if (inside->shape.bias && o->bias != p->bias) {
        e = set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias);
        p->bias = o->bias;
    }
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmul(inside->math->blas, p->product, &alpha, f.weights_left ? o->b : o->a,
                           p->left, f.weights_left ? o->a : o->b, p->right, &beta, o->out, p->out,
                           o->out, p->out, &p->algo, o->workspace, inside->plan.workspace_bytes,
                           stream);
    if (e == CUBLAS_STATUS_SUCCESS)
        return LS_OK;
    return ls_fail(err, e == CUBLAS_STATUS_ALLOC_FAILED ? LS_ENOMEM : LS_EDEVICE,
                   "%s: a dense layer by cuBLAS: %s", inside->math->desc.device,
                   cublasLtGetStatusString(e));
}

static void dense_fini(ls_math_inside *inside)
{
    dense_plan *p = (dense_plan *)inside;
    if (p->out)
        cublasLtMatrixLayoutDestroy(p->out);
    if (p->right)
        cublasLtMatrixLayoutDestroy(p->right);
    if (p->left)
        cublasLtMatrixLayoutDestroy(p->left);
    if (p->product)
        cublasLtMatmulDescDestroy(p->product);
}

static int dense_init(ls_math_inside *inside, ls_error *err)
{
    const ls_math_shape *s = &inside->shape;
    const dense_form f = form_of(s);
    dense_plan *p = (dense_plan *)inside;
    snprintf(inside->plan.name, sizeof inside->plan.name, "cublas");
    cublasStatus_t e = describe(p, &f);
    if (e == CUBLAS_STATUS_SUCCESS && inside->math->blas)
        e = choose(p);
    if (e == CUBLAS_STATUS_SUCCESS)
        return LS_OK;
    return ls_fail(err, e == CUBLAS_STATUS_NOT_SUPPORTED ? LS_EUNSUPPORTED : LS_EDEVICE,
                   "cuBLAS declines a dense layer of %d inputs, %d outputs and %d rows: %s", s->c,
                   s->out, s->rows, cublasLtGetStatusString(e));
}

const ls_math_library ls_cublas_dense = {sizeof(dense_plan), dense_init, dense_run, dense_fini};
