/* SPDX-License-Identifier: MIT */
/* Devices of the doubles: which exist, which is current, which are lost. */
#include "doubles/inside.h"

#include <stdio.h>
#include <string.h>

static _Thread_local int current;
static _Atomic int lost[DBL_DEVICES];
static _Atomic int peers[DBL_DEVICES][DBL_DEVICES]; /* [device][whose memory] */

void dbl_devices_begin(void)
{
    current = 0;
    memset(lost, 0, sizeof lost);
    memset(peers, 0, sizeof peers);
}

int dbl_current_device(void)
{
    return current;
}

cudaError_t dbl_lost(int device)
{
    return (cudaError_t)atomic_load_explicit(&lost[device], memory_order_relaxed);
}

void dbl_lose_device(int device, int error)
{
    int none = 0; /* the first error stays */
    atomic_compare_exchange_strong_explicit(&lost[device], &none,
                                            error ? error : (int)cudaErrorECCUncorrectable,
                                            memory_order_relaxed, memory_order_relaxed);
}

void dbl_fault(int device, cudaError_t error)
{
    dbl_lose_device(device, (int)error);
}

int dbl_may_reach(int device, int memory_of)
{
    return device == memory_of ||
           atomic_load_explicit(&peers[device][memory_of], memory_order_relaxed);
}

static int exists(int device)
{
    return device >= 0 && device < dbl_world.devices;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    DBL_ENTER_CUDA(cudaGetDeviceCount);
    *count = dbl_world.devices;
    return dbl_result(*count ? cudaSuccess : cudaErrorInsufficientDriver);
}

cudaError_t cudaSetDevice(int device)
{
    DBL_ENTER_CUDA(cudaSetDevice);
    if (!exists(device))
        return dbl_result(cudaErrorInvalidDevice);
    current = device;
    return dbl_result(dbl_lost(device));
}

cudaError_t cudaGetDevice(int *device)
{
    DBL_ENTER_CUDA(cudaGetDevice);
    *device = current;
    return cudaSuccess;
}

static const char *model[DBL_DEVICES];

void dbl_name_device(int device, const char *name)
{
    model[device] = name;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    DBL_ENTER_CUDA(cudaGetDeviceProperties);
    if (!exists(device))
        return dbl_result(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "%s",
             model[device] ? model[device] : "Double of a GPU");
    prop->major = 9;
    prop->totalGlobalMem = dbl_world.memory_bytes;
    prop->multiProcessorCount = 4;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->sharedMemPerBlock = 49152;
    prop->pciBusID = device + 1;
    prop->unifiedAddressing = 1;
    prop->canMapHostMemory = 1;
    prop->asyncEngineCount = 2;
    prop->concurrentKernels = 1;
    return cudaSuccess;
}

static int driver;

void dbl_set_driver(int version)
{
    driver = version;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    DBL_ENTER_CUDA(cudaDriverGetVersion);
    *version = !dbl_world.devices ? 0 : driver ? driver : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    DBL_ENTER_CUDA(cudaRuntimeGetVersion);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    DBL_ENTER_CUDA(cudaDeviceGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    DBL_ENTER_CUDA(cudaDeviceEnablePeerAccess);
    if (!exists(peer) || peer == current || flags)
        return dbl_result(cudaErrorInvalidDevice);
    if (atomic_exchange_explicit(&peers[current][peer], 1, memory_order_relaxed))
        return dbl_result(cudaErrorPeerAccessAlreadyEnabled);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    DBL_ENTER_CUDA(cudaDeviceSynchronize);
    if (dbl_capture_breaks(current))
        return dbl_result(cudaErrorStreamCaptureUnsupported);
    return dbl_result(dbl_drain_device(current, "cudaDeviceSynchronize"));
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error ? "cudaErrorOfADouble" : "cudaSuccess";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorECCUncorrectable: return "uncorrectable ECC error encountered";
    default: return "an error of the double";
    }
}
