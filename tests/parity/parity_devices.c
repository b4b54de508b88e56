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
static int open_cpu(ls_device **out, ls_cpu_family family, ls_error *err)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    return ls_cpu_open_with(out, &request, family, err);
}

static int open_cpu_auto(ls_device **out, ls_error *err)
{
    return open_cpu(out, LS_CPU_FAMILY_AUTO, err);
}

static int open_cpu_dnnl(ls_device **out, ls_error *err)
{
    return open_cpu(out, LS_CPU_FAMILY_DNNL, err);
}

static int open_cpu_lanes(ls_device **out, ls_error *err)
{
    return open_cpu(out, LS_CPU_FAMILY_LANES, err);
}
#endif

const parity_device parity_devices[] = {
    {"ref", open_ref},
#ifdef LOCKSTEP_WITH_CPU
    {"cpu", open_cpu_auto},
    {"oneDNN", open_cpu_dnnl},
    {"lanes", open_cpu_lanes},
#endif
};

const int parity_device_count = (int)(sizeof parity_devices / sizeof *parity_devices);
