/* A device of the CPU back end: one worker's view of the CPU.
 *
 * Threads: as plugin.h says. `open` may run anywhere; everything else, the creation of ops
 * included, runs on the worker's thread after `bind`, because oneDNN sizes its kernels for the
 * OpenMP team of the thread that creates them.
 */
#ifndef CPU_CPU_DEVICE_H
#define CPU_CPU_DEVICE_H

#include <lockstep/plugin.h>

/* Which kernels a device may use. AUTO prefers the lanes family (cpu/lanes.h) and takes oneDNN
 * where lanes decline; the other two exist for tests, which compare the families. With LANES,
 * what has no lanes form at all (optimizer, export) is still the common one. */
typedef enum ls_cpu_family {
    LS_CPU_FAMILY_AUTO = 0,
    LS_CPU_FAMILY_DNNL = 1,
    LS_CPU_FAMILY_LANES = 2
} ls_cpu_family;

typedef struct ls_cpu_device {
    ls_device device; /* first */
    const ls_host *host;
    ls_cpu_family family;
    int index, threads;
    struct dnnl_engine *engine;
    struct dnnl_stream *stream;
    struct ls_md_kept **kept; /* layouts of oneDNN's own, for as long as the device is open */
} ls_cpu_device;

/* The `open` of the table, with a choice of kernels. `*out` is an ls_cpu_device; close it through
 * its ops. Errors: LS_EINVAL, LS_ENOMEM, LS_EDEVICE. */
int ls_cpu_open_with(ls_device **out, const ls_device_request *request, ls_cpu_family family,
                     ls_error *err);

#endif
