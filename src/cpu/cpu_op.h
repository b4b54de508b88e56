/* The ops of the CPU back end: a file and a row in ops.def each. */
#ifndef CPU_CPU_OP_H
#define CPU_CPU_OP_H

#include "cpu/cpu_device.h"

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
