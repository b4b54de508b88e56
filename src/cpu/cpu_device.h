/* The CPU back end: one row of the registry, and its devices. Each device is one worker's view of the same
 * CPU; an index only names the worker that uses it.
 *
 *     const ls_backend *cpu = ls_cpu_backend();
 *     ls_device_request r = {.size = sizeof r, .index = 0, .threads = 1};
 *     cpu->open(&device, &r, &err);
 *
 * Threads: more than plugin.h asks. Any may use and close a device, one at a time that sees what the last one did.
 */
#ifndef CPU_CPU_DEVICE_H
#define CPU_CPU_DEVICE_H

#include "cpu/cpu_team.h"
#include "cpu/lanes_kernels.h"

#include <lockstep/sys/plugin.h>

typedef struct ls_cpu_device {
    ls_device device; /* first */
    const ls_host *host;
    const ls_lanes_kernels *kernels; /* those of the best instruction set, but in tests */
    ls_team *team;                   /* NULL: the worker alone */
    int index;
} ls_cpu_device;

/* The table. Static, constant, any thread. */
const ls_backend *ls_cpu_backend(void);

/* ---- its ops: a file and a row in ops.def each ------------------------------------------------ */

/* A creator of ops of one kind. Thread: the worker's. Errors: LS_EUNSUPPORTED where it declines a fused
 * form, LS_EINVAL, LS_ENOMEM. */
typedef int ls_cpu_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                          ls_error *err);

/* Any op: the table's op_create. */
ls_cpu_create ls_cpu_op_create;

#define LS_CPU_OP(kind, name) ls_cpu_create ls_cpu_##name##_create;
#define LS_CPU_ALSO(kind, name)
#include "cpu/ops.def"
#undef LS_CPU_OP
#undef LS_CPU_ALSO

#endif
