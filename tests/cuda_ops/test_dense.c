/* SPDX-License-Identifier: MIT */
/* Tests dense layers by cuBLASLt: which operands, layouts and fused operations a product is
 * described with, and which of cuBLASLt's algorithms is chosen. The descriptions are those of the
 * real library; a double reads them and computes the product in plain C. So a product whose factors
 * are transposed or exchanged gives other numbers here as on a GPU. */
#include "cuda/math/sample.h"
#include "cuda/math/tune.h"
#include "cuda_ops/cuda_backend.h"
#include "doubles/launch.h"
#include "nn/nn_fixture.h"
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the double of cuBLASLt ------------------------------------------------------------------ */

enum { ALGORITHMS = 8 };

/* What an algorithm is like. Its number is in the first word of its description, from 1 on. */
static struct {
    double ms;
    double error; /* relative to the sum of the magnitudes */
    int varies;   /* non-zero: other bits in each run */
} algorithm[ALGORITHMS + 1];

static struct {
    int runs, asked;
    double ms; /* time of the runs since the last launch of a graph */
} seen;

typedef struct matrix {
    uint64_t rows, columns;
    int64_t ld;
    int half, turned;
} matrix;

typedef struct product {
    matrix a, b, out;
    int relu, number, tf32;
    float alpha, beta;
    const void *left, *right, *c;
    const float *bias;
    float *d;
    void *workspace;
    size_t workspace_bytes;
} product;

#define READ_LAYOUT(layout, attribute, out)                                                        \
    assert_int_equal(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_##attribute,  \
                                                      &(out), sizeof(out), &(size_t){0}),          \
                     0)

static matrix read_layout(cublasLtMatrixLayout_t layout)
{
    matrix m = {0};
    uint32_t type = 0;
    int32_t order = 0;
    READ_LAYOUT(layout, ROWS, m.rows);
    READ_LAYOUT(layout, COLS, m.columns);
    READ_LAYOUT(layout, LD, m.ld);
    READ_LAYOUT(layout, TYPE, type);
    READ_LAYOUT(layout, ORDER, order);
    assert_int_equal(order, CUBLASLT_ORDER_COL);
    assert_true(type == CUDA_R_32F || type == CUDA_R_16BF);
    m.half = type == CUDA_R_16BF;
    return m;
}

#define READ_PRODUCT(desc, attribute, out)                                                         \
    assert_int_equal(cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_##attribute,        \
                                                    &(out), sizeof(out), &(size_t){0}),            \
                     0)

static void read_product(product *p, cublasLtMatmulDesc_t d)
{
    int32_t left = 0, right = 0, compute = 0;
    uint32_t epilogue = 0;
    READ_PRODUCT(d, TRANSA, left);
    READ_PRODUCT(d, TRANSB, right);
    READ_PRODUCT(d, EPILOGUE, epilogue);
    READ_PRODUCT(d, COMPUTE_TYPE, compute);
    p->a.turned = left == CUBLAS_OP_T;
    p->b.turned = right == CUBLAS_OP_T;
    p->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    p->relu = epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        READ_PRODUCT(d, BIAS_POINTER, p->bias);
}

/* op(m)[i][j], where op transposes if the description says so */
static double at(const matrix *m, const void *memory, uint64_t i, uint64_t j)
{
    const uint64_t row = m->turned ? j : i, column = m->turned ? i : j;
    if (row >= m->rows || column >= m->columns)
        return NAN; /* outside of the matrix */
    return ls_sample_value(memory, (size_t)(column * (uint64_t)m->ld + row), m->half ? 2 : 4);
}

static void body(const void *copied)
{
    static uint32_t noise;
    const product *p = copied;
    const uint64_t terms = p->a.turned ? p->a.rows : p->a.columns;
    seen.ms += algorithm[p->number].ms;
    if (p->workspace_bytes > 0)
        memset(p->workspace, 0x77, p->workspace_bytes);
    for (uint64_t i = 0; i < p->out.rows; i++)
        for (uint64_t j = 0; j < p->out.columns; j++) {
            double sum = 0, magnitude = 0;
            for (uint64_t k = 0; k < terms; k++) {
                const double term = at(&p->a, p->left, i, k) * at(&p->b, p->right, k, j);
                sum += term;
                magnitude += fabs(term);
            }
            float *to = &p->d[j * (uint64_t)p->out.ld + i];
            double value = (double)p->alpha * sum + algorithm[p->number].error * magnitude;
            if (p->beta != 0)
                value += (double)(p->beta * ((const float *)p->c)[j * (uint64_t)p->out.ld + i]);
            if (p->bias)
                value += (double)p->bias[i];
            *to = (float)(p->relu && !(value > 0) ? 0 : value);
        }
    if (algorithm[p->number].varies)
        memcpy(p->d, &(uint32_t){noise++ % 64}, sizeof(uint32_t));
}

cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                     const void *alpha, const void *a, cublasLtMatrixLayout_t a_is,
                                     const void *b, cublasLtMatrixLayout_t b_is, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_is, void *out,
                                     cublasLtMatrixLayout_t out_is,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream);
cublasStatus_t __wrap_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                     const void *alpha, const void *a, cublasLtMatrixLayout_t a_is,
                                     const void *b, cublasLtMatrixLayout_t b_is, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_is, void *out,
                                     cublasLtMatrixLayout_t out_is,
                                     const cublasLtMatmulAlgo_t *algo, void *workspace,
                                     size_t workspace_bytes, cudaStream_t stream)
{
    product p = {.a = read_layout(a_is), .b = read_layout(b_is), .out = read_layout(out_is)};
    (void)handle;
    assert_ptr_equal(c_is, out_is);
    read_product(&p, d);
    p.left = a;
    p.right = b;
    p.c = c;
    p.d = out;
    p.number = (int)algo->data[0];
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    p.workspace = workspace;
    p.workspace_bytes = workspace_bytes;
    assert_in_range(p.number, 1, ALGORITHMS);
    assert_int_equal(workspace_bytes, 256 * (size_t)p.number);
    seen.runs++;
    assert_int_equal(dbl_launch(stream, "cuBLAS", body, &p, sizeof p), cudaSuccess);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
__wrap_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                      cublasLtMatmulPreference_t preference, int room,
                                      cublasLtMatmulHeuristicResult_t *result, int *count);
cublasStatus_t
__wrap_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                      cublasLtMatmulPreference_t preference, int room,
                                      cublasLtMatmulHeuristicResult_t *result, int *count)
{
    uint64_t workspace = 0;
    uint32_t reductions = 0;
    size_t written;
    (void)handle, (void)d, (void)a, (void)b, (void)c, (void)out;
    assert_int_equal(cublasLtMatmulPreferenceGetAttribute(preference,
                                                          CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                          &workspace, sizeof workspace, &written),
                     0);
    assert_int_equal(workspace, 32 << 20);
    assert_int_equal(
        cublasLtMatmulPreferenceGetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                             &reductions, sizeof reductions, &written),
        0);
    assert_int_equal(reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE, 0);
    seen.asked = room;
    *count = room < ALGORITHMS ? room : ALGORITHMS;
    for (int i = 0; i < *count; i++) {
        memset(&result[i], 0, sizeof result[i]);
        result[i].algo.data[0] = (uint64_t)i + 1;
        result[i].workspaceSize = 256 * ((size_t)i + 1);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t __wrap_cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              const cublasLtMatmulAlgo_t *algo,
                                              cublasLtMatmulHeuristicResult_t *result);
cublasStatus_t __wrap_cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              const cublasLtMatmulAlgo_t *algo,
                                              cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle, (void)d, (void)a, (void)b, (void)c, (void)out;
    result->workspaceSize = 256 * (size_t)algo->data[0];
    return algo->data[0] >= 1 && algo->data[0] <= ALGORITHMS ? CUBLAS_STATUS_SUCCESS
                                                             : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t
__wrap_cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                            cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                                            size_t size, size_t *written);
cublasStatus_t
__wrap_cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                            cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                                            size_t size, size_t *written)
{
    const int32_t number = name == CUBLASLT_ALGO_CONFIG_ID ? (int32_t)algo->data[0] : 0;
    assert_int_equal(size, sizeof number);
    memcpy(value, &number, sizeof number);
    *written = sizeof number;
    return CUBLAS_STATUS_SUCCESS;
}

cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    seen.ms = 0;
    return __real_cudaGraphLaunch(exec, stream);
}

cudaError_t __wrap_cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop);
cudaError_t __wrap_cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t stop)
{
    (void)start, (void)stop;
    *ms = (float)seen.ms;
    return cudaSuccess;
}

/* ---- a plan --------------------------------------------------------------------------------- */

enum { ROWS = 6, INPUTS = 20, OUTPUTS = 12 };
static char folder[64];
static char choices[1 << 16];

static ls_math *open_math(ls_precision precision, const char *cache_dir)
{
    static int nothing;
    ls_math *math = NULL;
    ls_error err = {0};
    const ls_math_desc desc = {.device = "cuda(0)",
                               .model = "described",
                               .compute = 90,
                               .processors = 4,
                               .precision = precision,
                               .cache_dir = cache_dir,
                               .device_json = test_h200_json()};
    must(ls_math_open(&math, &desc, &err), &err);
    math->blas = (cublasLtHandle_t)(void *)&nothing;
    memset(&seen, 0, sizeof seen);
    return math;
}

static void close_math(ls_math *math)
{
    math->blas = NULL; /* it was never opened */
    ls_math_close(math);
}

static ls_math_shape shape_of(ls_math_kind kind, int half, int bias, int relu)
{
    return (ls_math_shape){.kind = kind,
                           .half = half,
                           .bias = bias,
                           .relu = relu,
                           .rows = ROWS,
                           .c = INPUTS,
                           .out = OUTPUTS};
}

static void *on_device(const void *from, size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
    assert_int_equal(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return memory;
}

/* y = x·wᵀ, dx = dy·w, dw = dyᵀ·x; the tensors are row-major. */
static double expected_at(const ls_math_shape *s, const unsigned char *a, const unsigned char *b,
                          int i, int j)
{
    const size_t bytes = ls_sample_factor_bytes(s);
    const int terms[] = {INPUTS, OUTPUTS, ROWS};
    double sum = 0;
    for (int k = 0; k < terms[s->kind - LS_MATH_DENSE]; k++) {
        int a_at = i * INPUTS + k, b_at = j * INPUTS + k; /* x[i][k] · w[j][k] */
        if (s->kind == LS_MATH_DENSE_DATA)
            a_at = i * OUTPUTS + k, b_at = k * INPUTS + j; /* dy[i][k] · w[k][j] */
        if (s->kind == LS_MATH_DENSE_WEIGHTS)
            a_at = k * INPUTS + j, b_at = k * OUTPUTS + i; /* x[k][j] · dy[k][i] */
        sum += ls_sample_value(a, (size_t)a_at, bytes) * ls_sample_value(b, (size_t)b_at, bytes);
    }
    return sum;
}

static void expect_product(ls_math_kind kind, int half, int bias, int relu, int adds)
{
    static unsigned char a[LS_SAMPLE_BLOCK], b[LS_SAMPLE_BLOCK], c[LS_SAMPLE_BLOCK];
    static float out[256];
    const ls_math_shape s = shape_of(kind, half, bias, relu);
    const int rows = kind == LS_MATH_DENSE_WEIGHTS ? OUTPUTS : ROWS;
    const int columns = kind == LS_MATH_DENSE ? OUTPUTS : INPUTS;
    ls_math *math = open_math(LS_PRECISION_FP32, NULL);
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    ls_sample_fill(&(ls_sample_data){a, b, c}, &s, 0);
    for (int i = 0; i < rows * columns; i++)
        out[i] = (float)i;
    must(ls_math_plan_create(&plan, math, &s, &err), &err);
    ls_math_operands o = {on_device(a, sizeof a),
                          on_device(b, sizeof b),
                          bias ? on_device(c, sizeof c) : NULL,
                          on_device(out, sizeof out),
                          adds,
                          on_device(a, plan->workspace_bytes)};
    ls_math_inside *inside = (ls_math_inside *)plan;
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    must(inside->library->run(inside, stream, &o, &err), &err);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaMemcpy(out, o.out, sizeof out, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            double value = expected_at(&s, a, b, i, j) + (adds ? i * columns + j : 0);
            value += bias ? ls_sample_value(c, (size_t)j, sizeof(float)) : 0;
            value = relu && value < 0 ? 0 : value;
            if (!(fabs((double)out[i * columns + j] - value) < 1e-4))
                fail_msg("kind %d, half %d, bias %d, relu %d, add %d: [%d][%d] is %g, expected %g",
                         kind, half, bias, relu, adds, i, j, (double)out[i * columns + j], value);
        }
    cudaStreamDestroy(stream);
    cudaFree((void *)o.a);
    cudaFree((void *)o.b);
    cudaFree((void *)o.bias);
    cudaFree(o.out);
    cudaFree(o.workspace);
    ls_math_plan_destroy(plan);
    close_math(math);
}

static void plan_anew(char name[96], ls_precision precision)
{
    ls_math *math = open_math(precision, folder);
    const ls_math_shape s = shape_of(LS_MATH_DENSE_DATA, precision == LS_PRECISION_BF16, 0, 0);
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    must(ls_math_plan_create(&plan, math, &s, &err), &err);
    snprintf(name, 96, "%s", plan->name);
    ls_math_plan_destroy(plan);
    assert_true(ls_math_choices(math, choices, sizeof choices) < sizeof choices);
    close_math(math);
}

static void empty_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/*", folder);
    assert_int_equal(system(command), 0);
    for (int i = 1; i <= ALGORITHMS; i++) {
        algorithm[i].ms = 5;
        algorithm[i].error = 0;
        algorithm[i].varies = 0;
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void products_are_those_of_their_layer(void **state)
{
    (void)state;
    empty_folder();
    for (int half = 0; half < 2; half++) {
        for (int fused = 0; fused < 3; fused++)
            expect_product(LS_MATH_DENSE, half, fused > 0, fused > 1, 0);
        expect_product(LS_MATH_DENSE_DATA, half, 0, 0, 0);
        for (int adds = 0; adds < 2; adds++)
            expect_product(LS_MATH_DENSE_WEIGHTS, half, 0, 0, adds);
    }
}

static void the_fastest_exact_algorithm_is_chosen_once(void **state)
{
    char name[96], again[96];
    (void)state;
    for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++) {
        empty_folder();
        algorithm[3].ms = 1; /* other bits in each run */
        algorithm[3].varies = 1;
        algorithm[4].ms = 2; /* a large error */
        algorithm[4].error = 1e-2;
        algorithm[6].ms = 3;
        plan_anew(name, (ls_precision)p);
        assert_string_equal(name, "cublas algorithm 6, tile 0, split 0");
        assert_int_equal(seen.asked, ALGORITHMS);
        assert_true(seen.runs > 0);
        plan_anew(again, (ls_precision)p);
        assert_int_equal(seen.runs, 0);
        assert_string_equal(name, again);
    }
}

static void without_a_directory_the_first_answer_is_taken(void **state)
{
    ls_math *math = open_math(LS_PRECISION_FP32, NULL);
    const ls_math_shape s = shape_of(LS_MATH_DENSE, 0, 1, 1);
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    (void)state;
    must(ls_math_plan_create(&plan, math, &s, &err), &err);
    assert_string_equal(plan->name, "cublas algorithm 1, tile 0, split 0");
    assert_int_equal(plan->workspace_bytes, 256);
    assert_int_equal(seen.asked, 1);
    assert_int_equal(seen.runs, 0);
    ls_math_plan_destroy(plan);
    close_math(math);
}

/* Another machine's choice is used, and the choice on this machine's disk is not. */
static void another_machine_s_choice_is_taken(void **state)
{
    static char text[sizeof choices];
    char name[96];
    ls_error err = {0};
    ls_math_plan *plan = NULL;
    (void)state;
    empty_folder();
    algorithm[2].ms = 1;
    plan_anew(name, LS_PRECISION_FP32);
    memcpy(text, choices, sizeof text);
    empty_folder();
    algorithm[7].ms = 1;
    plan_anew(name, LS_PRECISION_FP32);
    ls_math *math = open_math(LS_PRECISION_FP32, folder);
    const ls_math_shape s = shape_of(LS_MATH_DENSE_DATA, 0, 0, 0);
    must(ls_math_choose(math, text, &err), &err);
    must(ls_math_plan_create(&plan, math, &s, &err), &err);
    assert_string_equal(plan->name, "cublas algorithm 2, tile 0, split 0");
    assert_int_equal(seen.runs, 0);
    ls_math_plan_destroy(plan);
    close_math(math);
    /* cuBLAS does not accept it. */
    math = open_math(LS_PRECISION_FP32, folder);
    char *word = strstr(text, "0000000000000002");
    assert_non_null(word);
    memcpy(word, "00000000000000ff", 16);
    must(ls_math_choose(math, text, &err), &err);
    assert_int_equal(ls_math_plan_create(&plan, math, &s, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "cuBLAS does not take the plan that the first host chose"));
    close_math(math);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-dense-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    empty_folder();
    return rmdir(folder);
}

LS_TESTS(cuda_dense, "integration doubles no-asan no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_their_layer),
        cmocka_unit_test(the_fastest_exact_algorithm_is_chosen_once),
        cmocka_unit_test(without_a_directory_the_first_answer_is_taken),
        cmocka_unit_test(another_machine_s_choice_is_taken),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
