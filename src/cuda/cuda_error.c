/* SPDX-License-Identifier: MIT */
/* Translates CUDA's errors to Lockstep's errors. */
#include "cuda/cuda_device.h"

#include <stdarg.h>
#include <stdio.h>

bool cuda_is_lost(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

const char *cuda_advice(cudaError_t error)
{
    switch (error) {
    case cudaErrorDevicesUnavailable:
        return ": another process has the GPU for itself (compute mode EXCLUSIVE_PROCESS), or MPS "
               "has no room; wait, or set the mode with nvidia-smi -c DEFAULT";
    case cudaErrorSystemNotReady:
        return ": start NVIDIA's fabric manager, which connects the GPUs "
               "(systemctl start nvidia-fabricmanager)";
    case cudaErrorInitializationError:
        return ": a process that was forked from one that uses CUDA cannot use it; start it by "
               "exec (spawn)";
    default: return "";
    }
}

/* Returns true for errors that only a mistake in this back end can cause. */
static bool is_misuse(cudaError_t error)
{
    switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorIllegalState: return true;
    default: return false;
    }
}

static int status_of(cudaError_t error)
{
    if (error == cudaErrorMemoryAllocation)
        return LS_ENOMEM;
    return is_misuse(error) ? LS_EINTERNAL : LS_EDEVICE;
}

int cuda_check(ls_error *err, cudaError_t error, const char *what, ...)
{
    char tried[256], text[LS_ERROR_TEXT];
    va_list args;
    if (error == cudaSuccess)
        return LS_OK;
    va_start(args, what);
    vsnprintf(tried, sizeof tried, what, args);
    va_end(args);
    const char *advice = cuda_advice(error);
    const bool lost = cuda_is_lost(error) && advice[0] == '\0';
    snprintf(text, sizeof text, "%s: %s (%s%s)%s", tried, cudaGetErrorString(error),
             cudaGetErrorName(error), lost ? "; the device is lost" : "", advice);
    (void)cudaGetLastError();
    return ls_fail(err, status_of(error), "%s", text);
}
