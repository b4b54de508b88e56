/* LS_OP_EXPORT: a tensor in any layout as a plain one, and its gradient the other way. */
#include "cpu/cpu_op.h"

#include <stdio.h>

int ls_cpu_export_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    ls_cpu_op *op;
    *out = NULL;
    int status = ls_cpu_op_create(&op, device, desc, "export", err);
    if (status)
        return status;
    snprintf(op->kernel, sizeof op->kernel, "copy");
    ls_program *p = &op->program;
    ls_md plain = ls_md_image(x->rows, x->c, x->h, x->w, LS_MD_PLAIN);
    ls_cpu_op_set_y(op, x->rows, x->c, x->h, x->w, &plain);
    ls_program_copy(p, ls_program_tensor(p, x, LS_AT_X), ls_program_value(p, &plain, LS_AT_Y));
    if (desc->training && desc->needs_dx) {
        ls_program_backward(p);
        ls_program_copy(p, ls_program_value(p, &plain, LS_AT_DY),
                        ls_program_tensor(p, x, LS_AT_DX));
    }
    return ls_cpu_op_finish(out, op);
}
