/* Is there a GPU, and if not, why: absent (no driver, no GPU) or broken (a driver that is too old,
 * libraries that do not fit each other). */
#include "cuda/cuda_device.h"
#include "cuda/math_lib.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void version_text(char *out, size_t size, int version)
{
    snprintf(out, size, "%d.%d", version / 1000, version % 1000 / 10);
}

static void say(ls_backend_info *out, int broken, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(ls_backend_info *out, int broken, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->reason, sizeof out->reason, format, args);
    va_end(args);
    out->devices = 0;
    out->broken = broken;
}

/* cudaErrorInsufficientDriver means no driver as well as an old one; the version tells which. */
static void explain(ls_backend_info *out, cudaError_t error)
{
    int driver = 0, runtime = 0;
    char have[16], need[16];
    (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    version_text(have, sizeof have, driver);
    version_text(need, sizeof need, runtime);
    if (driver == 0)
        say(out, 0,
            "there is no NVIDIA driver (libcuda.so.1) on this machine; install one for "
            "CUDA %s or newer",
            need);
    else if (error == cudaErrorInsufficientDriver)
        say(out, 1,
            "the NVIDIA driver is for CUDA %s and this back end needs %s: update the driver", have,
            need);
    else if (error == cudaErrorNoDevice)
        say(out, 0, "the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES set?)");
    else
        say(out, 1, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

void ls_cuda_probe(ls_backend_info *out)
{
    char runtime_text[16], math[64];
    int runtime = 0, count = 0;
    memset(out, 0, sizeof *out);
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        (void)cudaGetLastError();
    version_text(runtime_text, sizeof runtime_text, runtime);
    ls_math_version(math, sizeof math);
    snprintf(out->version, sizeof out->version, "CUDA %s, %s", runtime_text, math);
    const char *misfit = ls_math_misfit();
    if (misfit) {
        say(out, 1, "%s", misfit);
        return;
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        explain(out, error);
    else if (count < 1)
        explain(out, cudaErrorNoDevice);
    else
        out->devices = count;
}
