/* An op around an op of the lanes family whose x lies differently: x is packed into lanes before
 * forward, dx unpacked after it is made. Kernels so need to know no layout but their own. */
#ifndef CPU_CPU_ADAPT_H
#define CPU_CPU_ADAPT_H

#include "cpu/cpu_device.h"

/* Creates the lanes op of `desc` for x in lanes layout and wraps it. Errors: the lanes op's
 * (LS_EUNSUPPORTED when it declines), LS_ENOMEM, LS_EDEVICE. */
int ls_cpu_adapt_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err);

/* The op inside when `op` is one of these, else `op` itself; for twins. NULL is allowed. */
const ls_op *ls_cpu_adapt_inner(const ls_op *op);

#endif
