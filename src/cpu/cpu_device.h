/* SPDX-License-Identifier: MIT */
/* The CPU back end: its entry in the registry of back ends, and its devices. All devices stand for
 * the same CPU; the index of a device only names its worker.
 *
 *     const ls_backend *cpu = ls_cpu_backend();
 *     ls_device_request r = {.size = sizeof r, .index = 0, .threads = 1};
 *     cpu->open(&device, &r, &err);
 *
 * Threads: less strict than plugin.h demands. Any thread may use or close a device, one thread at a
 * time, as long as each call happens after the previous one. */
#ifndef CPU_CPU_DEVICE_H
#define CPU_CPU_DEVICE_H

#include "cpu/cpu_team.h"
#include "cpu/lanes_kernels.h"

#include <lockstep/sys/plugin.h>

typedef struct ls_cpu_device {
    ls_device device; /* base; must be first */
    const ls_host *host;
    /* kernels of the best instruction set of this CPU; tests set others */
    const ls_lanes_kernels *kernels;
    ls_team *team; /* NULL: the worker's thread alone */
    int index;
    uint64_t few_ops; /* number of ops for few rows that were created (few.h) */
} ls_cpu_device;

/* Returns the table of the back end. It is static and constant. Thread: any. */
const ls_backend *ls_cpu_backend(void);

/* ---- ops: each has a source file and a row in ops.def ---------------------------------------- */

/* Creates an op of one kind. Returns LS_OK and the op in `*out`, or LS_EUNSUPPORTED (`desc` asks
 * for a fused form that the op does not implement), LS_EINVAL or LS_ENOMEM. Thread: the
 * worker's. */
typedef int ls_cpu_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                          ls_error *err);

/* Creates an op of any kind: chooses the creator by the kind and by the layout of x. Called by
 * op_create of the device and by ops that contain another op. The description must have been
 * checked. */
ls_cpu_create ls_cpu_op_create;

#define LS_CPU_OP(kind, name) ls_cpu_create ls_cpu_##name##_create;
#define LS_CPU_ALSO(kind, name)
#include "cpu/ops.def"
#undef LS_CPU_OP
#undef LS_CPU_ALSO

#endif
