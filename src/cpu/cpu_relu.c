/* relu on its own: element by element over the tensor's memory, so that any layout serves and y
 * has x's. Padding is zero and stays zero. */
#include "cpu/cpu_op.h"

#include <stdio.h>

static void add_steps(ls_cpu_op *op, const ls_md *flat, ls_pd forward, ls_pd backward)
{
    ls_program *p = &op->program;
    int x = ls_program_value(p, flat, LS_AT_X), y = ls_program_value(p, flat, LS_AT_Y);
    ls_arg args[] = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
    ls_program_primitive(p, forward, args, 2);
    if (!backward)
        return;
    ls_program_backward(p);
    ls_arg back[] = {{DNNL_ARG_DST, y},
                     {DNNL_ARG_DIFF_DST, ls_program_value(p, flat, LS_AT_DY)},
                     {DNNL_ARG_DIFF_SRC, ls_program_value(p, flat, LS_AT_DX)}};
    ls_program_primitive(p, backward, back, 3);
}

int ls_cpu_relu_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    ls_pd forward = NULL, backward = NULL;
    ls_cpu_op *op;
    const float slope = desc->u.relu.slope;
    *out = NULL;
    int status = ls_cpu_op_create(&op, device, desc, "relu", err);
    if (status)
        return status;
    ls_cpu_op_set_y_like(op, &desc->x);
    int floats = (int)(op->op.y.bytes / sizeof(float));
    ls_md flat = ls_md_make(1, &floats, LS_MD_PLAIN);
    status = ls_pd_leaky_relu(&forward, device, slope, LS_PASS_FORWARD, &flat, NULL, err);
    if (status == LS_OK && desc->training && desc->needs_dx)
        status =
            ls_pd_leaky_relu(&backward, device, slope, LS_PASS_BACKWARD_DATA, &flat, forward, err);
    if (status == LS_OK) {
        snprintf(op->kernel, sizeof op->kernel, "dnnl %s", ls_pd_kernel(forward));
        add_steps(op, &flat, forward, backward);
        status = ls_cpu_op_finish(out, op);
    } else {
        ls_cpu_op_destroy(&op->op);
    }
    ls_pd_destroy(backward);
    ls_pd_destroy(forward);
    return status;
}
