/* SPDX-License-Identifier: MIT */
#include "parity/parity_devices.h"

#include "ref/ref.h"
#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#endif

static int open_ref(ls_device **out, ls_error *err)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    return ls_ref_backend()->open(out, &request, err);
}

#ifdef LOCKSTEP_WITH_CPU
static int open_cpu(ls_device **out, ls_error *err)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    return ls_cpu_backend()->open(out, &request, err);
}
#endif

const parity_device parity_devices[] = {
    {"ref", open_ref},
#ifdef LOCKSTEP_WITH_CPU
    {"cpu", open_cpu},
#endif
};

const int parity_device_count = (int)(sizeof parity_devices / sizeof *parity_devices);
