/* SPDX-License-Identifier: MIT */
/* Dense layers by cuBLASLt. The bias and the relu are in cuBLASLt's epilogue.
 *
 * cuBLAS matrices are column-major: cuBLAS sees a row-major [r][c] as a c × r matrix. Therefore
 * y[rows][out] = x·wᵀ is written as Y(out × rows) = W(in × out)ᵀ · X(in × rows). dx and the
 * gradient of the weights are written in the same way. */
#include "cuda/math/tune.h"

#include <stdio.h>
#include <string.h>

enum {
    WORKSPACE = 32 << 20, /* largest workspace of an algorithm in bytes */
    ANSWERS = 8           /* largest number of algorithms that are measured */
};

typedef struct dense_plan {
    ls_math_inside inside; /* base; must be first */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out;
    cublasLtMatmulAlgo_t algo;
    char name[64];                                   /* "algorithm 66, tile 18, split 1" */
    cublasLtMatmulHeuristicResult_t answer[ANSWERS]; /* candidates */
    int answers;
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

/* ---- choosing (ls_math_library) -------------------------------------------------------------- */

static void dense_key(char *out, size_t size, const ls_math_inside *inside)
{
    const ls_math *math = inside->math;
    const ls_math_shape *s = &inside->shape;
    snprintf(
        out, size,
        "lockstep 4 dense cublas %zu sm_%d %s precision %d kind %d half %d bias %d relu %d x %d "
        "%d out %d",
        cublasLtGetVersion(), math->desc.compute, math->desc.model, (int)math->desc.precision,
        (int)s->kind, s->half, s->bias, s->relu, s->rows, s->c, s->out);
}

static void name_algorithm(char *out, size_t size, const cublasLtMatmulAlgo_t *algo)
{
    static const cublasLtMatmulAlgoConfigAttributes_t names[3] = {
        CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM};
    int32_t value[3] = {0};
    size_t written;
    for (int i = 0; i < 3; i++)
        (void)cublasLtMatmulAlgoConfigGetAttribute(algo, names[i], &value[i], sizeof value[i],
                                                   &written);
    snprintf(out, size, "algorithm %d, tile %d, split %d", (int)value[0], (int)value[1],
             (int)value[2]);
}

static cublasStatus_t ask(dense_plan *p, int room)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t e = cublasLtMatmulPreferenceCreate(&preference);
    p->answers = 0;
    if (e == CUBLAS_STATUS_SUCCESS)
        e = limit(preference);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = cublasLtMatmulAlgoGetHeuristic(p->inside.math->blas, p->product, p->left, p->right,
                                           p->out, p->out, preference, room, p->answer,
                                           &p->answers);
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return e == CUBLAS_STATUS_SUCCESS && p->answers < 1 ? CUBLAS_STATUS_NOT_SUPPORTED : e;
}

static int declines(const ls_math_inside *inside, cublasStatus_t e, ls_error *err)
{
    const ls_math_shape *s = &inside->shape;
    return ls_fail(err, e == CUBLAS_STATUS_NOT_SUPPORTED ? LS_EUNSUPPORTED : LS_EDEVICE,
                   "cuBLAS declines a dense layer of %d inputs, %d outputs and %d rows: %s", s->c,
                   s->out, s->rows, cublasLtGetStatusString(e));
}

static int dense_find(ls_math_inside *inside, ls_tune_result *result, int room, ls_error *err)
{
    dense_plan *p = (dense_plan *)inside;
    const cublasStatus_t e = ask(p, room < ANSWERS ? room : ANSWERS);
    if (e != CUBLAS_STATUS_SUCCESS)
        return declines(inside, e, err);
    for (int i = 0; i < p->answers; i++) {
        name_algorithm(result[i].name, sizeof result[i].name, &p->answer[i].algo);
        result[i].workspace_bytes = p->answer[i].workspaceSize;
        result[i].simple = false;
    }
    return p->answers;
}

static void dense_take(ls_math_inside *inside, int i)
{
    dense_plan *p = (dense_plan *)inside;
    p->algo = p->answer[i].algo;
    name_algorithm(p->name, sizeof p->name, &p->algo);
    inside->plan.workspace_bytes = p->answer[i].workspaceSize;
}

enum { ALGO_WORDS = sizeof(((cublasLtMatmulAlgo_t *)0)->data) / sizeof(uint64_t) };

/* Writes the name on a line of its own, followed by cuBLAS's description, a few words in
 * hexadecimal digits. */
static char *dense_to_text(const ls_math_inside *inside)
{
    const dense_plan *p = (const dense_plan *)inside;
    const size_t size = sizeof p->name + ALGO_WORDS * 17 + 2;
    char *text = ls_alloc(inside->math->desc.host, size);
    if (!text)
        return NULL;
    size_t used = (size_t)snprintf(text, size, "%s\n", p->name);
    for (int i = 0; i < ALGO_WORDS; i++)
        used += (size_t)snprintf(text + used, size - used, "%016llx ",
                                 (unsigned long long)p->algo.data[i]);
    return text;
}

/* Asks cuBLAS whether it accepts the algorithm, and how large its workspace is. */
static int dense_from_text(ls_math_inside *inside, const char *text)
{
    dense_plan *p = (dense_plan *)inside;
    cublasLtMatmulHeuristicResult_t result;
    const char *at = strchr(text, '\n');
    memset(&result, 0, sizeof result);
    for (int i = 0; i < ALGO_WORDS; i++) {
        unsigned long long word;
        int length = 0;
        if (!at || sscanf(at, "%16llx%n", &word, &length) != 1)
            return LS_EUNSUPPORTED;
        p->algo.data[i] = word;
        at += length;
    }
    if (cublasLtMatmulAlgoCheck(inside->math->blas, p->product, p->left, p->right, p->out, p->out,
                                &p->algo, &result) != CUBLAS_STATUS_SUCCESS ||
        result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > WORKSPACE)
        return LS_EUNSUPPORTED;
    name_algorithm(p->name, sizeof p->name, &p->algo);
    inside->plan.workspace_bytes = result.workspaceSize;
    return LS_OK;
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
    const dense_form f = form_of(&inside->shape);
    dense_plan *p = (dense_plan *)inside;
    const cublasStatus_t e = describe(p, &f);
    if (e != CUBLAS_STATUS_SUCCESS)
        return declines(inside, e, err);
    const int status = inside->math->blas ? ls_math_choose_plan(inside, err) : LS_OK;
    snprintf(inside->plan.name, sizeof inside->plan.name, "cublas %s", p->name);
    return status;
}

const ls_math_library ls_cublas_dense = {
    .bytes = sizeof(dense_plan),
    .init = dense_init,
    .run = dense_run,
    .fini = dense_fini,
    .key = dense_key,
    .find = dense_find,
    .take = dense_take,
    .to_text = dense_to_text,
    .from_text = dense_from_text,
    .name = "cuBLAS",
};
