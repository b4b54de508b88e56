/* The implementation of math_lib.h: handles, versions, and the choice of the library for a plan. */
#include "cuda/math/inside.h"

#include <stdio.h>
#include <string.h>

/* ---- versions ------------------------------------------------------------------------------- */

void ls_math_version(char *out, size_t size)
{
    size_t cudnn = cudnnGetVersion(), blas = cublasLtGetVersion();
    snprintf(out, size, "cuDNN %zu.%zu.%zu, cuBLAS %zu.%zu", cudnn / 10000, cudnn / 100 % 100,
             cudnn % 100, blas / 10000, blas / 100 % 100);
}

/* The order of run-time search paths decides which copy of cuDNN is loaded. A copy that is older
 * than the header lacks functions that the header declares. */
const char *ls_math_misfit(void)
{
    size_t have = cudnnGetVersion();
    if (have / 10000 != CUDNN_MAJOR || have < CUDNN_VERSION / 100 * 100)
        return "the cuDNN that was loaded is older than the one this back end was built with";
    return NULL;
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
