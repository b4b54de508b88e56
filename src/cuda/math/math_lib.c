/* SPDX-License-Identifier: MIT */
/* The implementation of math_lib.h: handles, versions, and the choice of the library for a plan. */
#include "cuda/math/inside.h"
#include "cuda/shared_lib.h"

#include <stdio.h>
#include <string.h>

/* ---- versions ------------------------------------------------------------------------------- */

static void cudnn_text(char out[24], size_t version)
{
    snprintf(out, 24, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

static void write_versions(char *out, size_t size, size_t cudnn, size_t blas)
{
    char text[24];
    cudnn_text(text, cudnn);
    snprintf(out, size, "cuDNN %s, cuBLAS %zu.%zu", text, blas / 10000, blas / 100 % 100);
}

void ls_math_version(char *out, size_t size)
{
    write_versions(out, size, cudnnGetVersion(), cublasLtGetVersion());
}

void ls_math_built(char *out, size_t size)
{
    write_versions(out, size, CUDNN_VERSION, CUBLAS_VERSION);
}

static void path_of_cudnn(char *out, size_t size)
{
    size_t (*const function)(void) = cudnnGetVersion;
    ls_shared_lib_path(out, size, &function);
}

void ls_math_loaded(char *out, size_t size)
{
    size_t (*const of_blas)(void) = cublasLtGetVersion;
    char text[24], cudnn[160], blas[160];
    const size_t version = cublasLtGetVersion();
    cudnn_text(text, cudnnGetVersion());
    path_of_cudnn(cudnn, sizeof cudnn);
    ls_shared_lib_path(blas, sizeof blas, &of_blas);
    snprintf(out, size, "cuDNN %s (%s), cuBLAS %zu.%zu (%s)", text, cudnn, version / 10000,
             version / 100 % 100, blas);
}

/* The order of run-time search paths, and what the program has loaded before, decide which copy of
 * cuDNN is loaded. A copy that is older than the header lacks functions that the header declares. A
 * copy for another major version of CUDA uses another runtime and another cuBLAS. */
int ls_math_misfit(char *out, size_t size)
{
    const size_t have = cudnnGetVersion(), cuda = cudnnGetCudartVersion() / 1000;
    char loaded[24], path[160];
    cudnn_text(loaded, have);
    path_of_cudnn(path, sizeof path);
    if (have / 10000 != CUDNN_MAJOR || have < CUDNN_VERSION / 100 * 100)
        snprintf(out, size,
                 "cuDNN %s was loaded, and this back end needs %d.%d or newer: update %s", loaded,
                 CUDNN_MAJOR, CUDNN_MINOR, path);
    else if (cuda != CUDART_VERSION / 1000)
        snprintf(out, size, "the loaded cuDNN %s is for CUDA %zu, this back end is for CUDA %d: %s",
                 loaded, cuda, CUDART_VERSION / 1000, path);
    else
        return 0;
    return 1;
}

/* ---- open and close ------------------------------------------------------------------------- */

static int no_library(ls_error *err, const ls_math *math, const char *what, const char *why)
{
    return ls_fail(err, LS_EDEVICE, "%s: %s does not start: %s", math->desc.device, what, why);
}

static int open_libraries(ls_math *math, ls_error *err)
{
    cudnnStatus_t dnn = cudnnCreate(&math->cudnn);
    if (dnn != CUDNN_STATUS_SUCCESS)
        return no_library(err, math, "cuDNN", cudnnGetErrorString(dnn));
    cublasStatus_t blas = cublasLtCreate(&math->blas);
    if (blas != CUBLAS_STATUS_SUCCESS)
        return no_library(err, math, "cuBLAS", cublasLtGetStatusString(blas));
    return LS_OK;
}

/* Tells cuDNN the properties of a device for which plans are made; the device need not exist on
 * this machine. */
static int describe_device(ls_math *math, ls_error *err)
{
    const char *json = math->desc.device_json;
    cudnnBackendDescriptor_t d = NULL;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d);
    math->properties = d;
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                     (int64_t)strlen(json), json);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnBackendFinalize(d);
    if (s == CUDNN_STATUS_SUCCESS)
        return LS_OK;
    return ls_fail(err, LS_EINVAL, "%s: cuDNN does not take this description of a device: %s",
                   math->desc.device, cudnnGetErrorString(s));
}

int ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err)
{
    *out = NULL;
    ls_math *math = ls_alloc(desc->host, sizeof *math);
    if (!math)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory", desc->device);
    math->desc = *desc;
    int status = desc->device_json ? describe_device(math, err) : open_libraries(math, err);
    if (status) {
        ls_math_close(math);
        return status;
    }
    *out = math;
    return LS_OK;
}

void ls_math_close(ls_math *math)
{
    if (!math)
        return;
    ls_math_forget(math);
    if (math->blas)
        cublasLtDestroy(math->blas);
    if (math->properties)
        cudnnBackendDestroyDescriptor(math->properties);
    if (math->cudnn)
        cudnnDestroy(math->cudnn);
    ls_free(math->desc.host, math);
}

/* ---- plans ---------------------------------------------------------------------------------- */

int ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                        ls_error *err)
{
    const ls_math_library *library =
        shape->kind < LS_MATH_DENSE ? &ls_cudnn_conv : &ls_cublas_dense;
    ls_math_inside *plan = ls_alloc(math->desc.host, library->bytes);
    *out = NULL;
    if (!plan)
        return ls_fail(err, LS_ENOMEM, "%s: out of memory for a plan", math->desc.device);
    plan->math = math;
    plan->shape = *shape;
    plan->library = library;
    int status = library->init(plan, err);
    if (status)
        ls_math_plan_destroy(&plan->plan);
    else
        *out = &plan->plan;
    return status;
}

void ls_math_plan_destroy(ls_math_plan *plan)
{
    ls_math_inside *inside = (ls_math_inside *)plan;
    if (!inside)
        return;
    inside->library->fini(inside);
    ls_free(inside->math->desc.host, inside);
}

int ls_math_run(ls_math_plan *plan, cudaStream_t stream, const ls_math_operands *operands,
                ls_error *err)
{
    ls_math_inside *inside = (ls_math_inside *)plan;
    if (inside->math->desc.device_json)
        return ls_fail(err, LS_EINVAL, "%s: it was opened for planning alone",
                       inside->math->desc.device);
    return inside->library->run(inside, stream, operands, err);
}
