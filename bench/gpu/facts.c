/* gpu_facts: what later decisions about this GPU hang on. Prints what an empty graph of 25 nodes
 * costs to enqueue and to run, how fast memory is copied, and cuDNN's description of the device,
 * by which its plans can be made and tested where there is no GPU. */
#include "base/clock.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

enum { NODES = 25, RUNS = 400, COPY_BYTES = 1 << 30, COPIES = 10 };

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

/* The nodes set one byte each, one behind the other. */
static void time_graph(cudaStream_t stream)
{
    void *byte = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    double enqueued = 0;
    CUDA(cudaMalloc(&byte, 1));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < NODES; i++)
        CUDA(cudaMemsetAsync(byte, i, 1, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    seconds_of(stream, exec, RUNS, &enqueued);
    double all = seconds_of(stream, exec, RUNS, &enqueued);
    printf("a graph of %d nodes: %.2f us to run, %.2f us to enqueue\n", NODES, all / RUNS * 1e6,
           enqueued / RUNS * 1e6);
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaFree(byte));
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
    time_graph(stream);
    time_copy(stream);
    CUDA(cudaStreamDestroy(stream));
    describe_device();
    return 0;
}
