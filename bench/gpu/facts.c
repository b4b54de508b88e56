/* SPDX-License-Identifier: MIT */
/* gpu_facts: prints properties of this GPU on which later decisions depend: the cost of enqueueing
 * and running a graph of 25 nodes, of kernels and of memsets; the speed of copies; the speed of
 * multiplying matrices of 8192 × 8192 in each precision; and cuDNN's description of the device,
 * from which cuDNN's plans for this GPU can be made and tested on machines without a GPU. */
#include "base/clock.h"
#include "cuda/kernels/kernels.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

enum { NODES = 25, RUNS = 400, COPY_BYTES = 1 << 30, COPIES = 10, SIDE = 8192, PRODUCTS = 20 };

#define CUDA(call) check((int)(call), #call)

static void check(int error, const char *what)
{
    if (error) {
        printf("%s: error %d\n", what, error);
        exit(1);
    }
}

static double seconds_of(cudaStream_t stream, cudaGraphExec_t exec, int runs, double *enqueued)
{
    CUDA(cudaStreamSynchronize(stream));
    uint64_t begin = ls_now_ns();
    for (int i = 0; i < runs; i++)
        CUDA(cudaGraphLaunch(exec, stream));
    *enqueued = (double)(ls_now_ns() - begin) * 1e-9;
    CUDA(cudaStreamSynchronize(stream));
    return (double)(ls_now_ns() - begin) * 1e-9;
}

/* Measures a graph of nodes in sequence, each of which does almost nothing. */
static void time_graph(cudaStream_t stream, int kernels)
{
    void *memory = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    double enqueued = 0;
    CUDA(cudaMalloc(&memory, 64));
    CUDA(ls_k_sum(memory, memory, memory, 16,
                  stream)); /* loads the kernel before the graph is recorded */
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < NODES; i++)
        CUDA(kernels ? ls_k_sum(memory, memory, memory, 16, stream)
                     : cudaMemsetAsync(memory, i, 1, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    seconds_of(stream, exec, RUNS, &enqueued);
    double all = seconds_of(stream, exec, RUNS, &enqueued);
    printf("a graph of %d %s: %.2f us to run, %.2f us a node; %.2f us to enqueue\n", NODES,
           kernels ? "kernels" : "memsets", all / RUNS * 1e6, all / RUNS / NODES * 1e6,
           enqueued / RUNS * 1e6);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(memory));
}

static void time_copy(cudaStream_t stream)
{
    void *a = NULL, *b = NULL;
    CUDA(cudaMalloc(&a, COPY_BYTES));
    CUDA(cudaMalloc(&b, COPY_BYTES));
    CUDA(cudaMemcpyAsync(b, a, COPY_BYTES, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    uint64_t begin = ls_now_ns();
    for (int i = 0; i < COPIES; i++)
        CUDA(cudaMemcpyAsync(b, a, COPY_BYTES, cudaMemcpyDeviceToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    double seconds = (double)(ls_now_ns() - begin) * 1e-9;
    printf("memory: %.2f TB/s read and written\n", 2.0 * COPIES * COPY_BYTES / seconds * 1e-12);
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
}

/* Returns a matrix of numbers of all sizes. Products of zeros would take less power, and could run
 * at a higher clock rate. */
static void *some_matrix(cudaStream_t stream)
{
    const size_t bytes = (size_t)SIDE * SIDE * sizeof(float);
    void *out = NULL;
    uint32_t *host = malloc(bytes), x = 1;
    CUDA(!host);
    for (size_t i = 0; i < bytes / 4; i++) {
        x = x * 1664525u + 1013904223u;
        host[i] = 0x3f003f00u ^ (x & 0x807f80ffu); /* finite as fp32 and as two bf16 */
    }
    CUDA(cudaMalloc(&out, bytes));
    CUDA(cudaMemcpyAsync(out, host, bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    free(host);
    return out;
}

static void time_product(cudaStream_t stream, const char *name, cublasComputeType_t compute,
                         cudaDataType_t type)
{
    const float one = 1, zero = 0;
    void *a = some_matrix(stream), *b = some_matrix(stream), *c = some_matrix(stream);
    cublasLtHandle_t blas;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t layout;
    CUDA(cublasLtCreate(&blas));
    CUDA(cublasLtMatmulDescCreate(&product, compute, CUDA_R_32F));
    CUDA(cublasLtMatrixLayoutCreate(&layout, type, SIDE, SIDE, SIDE));
    uint64_t begin = 0;
    for (int i = -3; i < PRODUCTS; i++) {
        if (i == 0) {
            CUDA(cudaStreamSynchronize(stream));
            begin = ls_now_ns();
        }
        CUDA(cublasLtMatmul(blas, product, &one, a, layout, b, layout, &zero, c, layout, c, layout,
                            NULL, NULL, 0, stream));
    }
    CUDA(cudaStreamSynchronize(stream));
    const double seconds = (double)(ls_now_ns() - begin) * 1e-9;
    printf("matrices in %s: %.1f TFLOP/s\n", name,
           2.0 * SIDE * SIDE * SIDE * PRODUCTS / seconds * 1e-12);
    CUDA(cublasLtMatrixLayoutDestroy(layout));
    CUDA(cublasLtMatmulDescDestroy(product));
    CUDA(cublasLtDestroy(blas));
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(c));
}

static void describe_device(void)
{
    cudnnHandle_t handle = NULL;
    cudnnBackendDescriptor_t d = NULL;
    int64_t bytes = 0;
    CUDA(cudnnCreate(&handle));
    CUDA(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d));
    CUDA(cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    CUDA(cudnnBackendFinalize(d));
    CUDA(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0,
                                  &bytes, NULL));
    char *text = calloc(1, (size_t)bytes + 1);
    if (text)
        CUDA(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                      bytes, &bytes, text));
    printf("cuDNN's description of the device:\n%s\n", text ? text : "no memory");
    free(text);
    CUDA(cudnnBackendDestroyDescriptor(d));
    CUDA(cudnnDestroy(handle));
}

int main(void)
{
    cudaStream_t stream = NULL;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        printf("skipped: no GPU\n");
        return 77;
    }
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    time_graph(stream, 1);
    time_graph(stream, 0);
    time_copy(stream);
    time_product(stream, "bf16", CUBLAS_COMPUTE_32F, CUDA_R_16BF);
    time_product(stream, "tf32", CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F);
    time_product(stream, "fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F);
    CUDA(cudaStreamDestroy(stream));
    describe_device();
    return 0;
}
