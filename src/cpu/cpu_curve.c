/* Sigmoid and tanh by oneDNN, whose gradients are functions of y. Sigmoid does not keep zeros, so
 * that the padding of x's layout must be known to it; in lanes there is nothing to know, for what
 * lies beyond the last row need only be finite. */
#include "cpu/cpu_op.h"

#include "base/error.h"

#include <stdio.h>

static void add_steps(ls_cpu_op *op, const ls_md *md, ls_pd forward, ls_pd backward)
{
    ls_program *p = &op->program;
    int x = ls_program_value(p, md, LS_AT_X), y = ls_program_value(p, md, LS_AT_Y);
    ls_arg args[] = {{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}};
    ls_program_primitive(p, forward, args, 2);
    if (!backward)
        return;
    ls_program_backward(p);
    ls_arg back[] = {{DNNL_ARG_DST, y},
                     {DNNL_ARG_DIFF_DST, ls_program_value(p, md, LS_AT_DY)},
                     {DNNL_ARG_DIFF_SRC, ls_program_value(p, md, LS_AT_DX)}};
    ls_program_primitive(p, backward, back, 3);
}

int ls_cpu_curve_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_curve curve = desc->kind == LS_OP_TANH ? LS_CURVE_TANH : LS_CURVE_SIGMOID;
    const char *name = curve == LS_CURVE_TANH ? "tanh" : "sigmoid";
    ls_pd forward = NULL, backward = NULL;
    ls_cpu_op *op;
    *out = NULL;
    int status = ls_cpu_op_create(&op, device, desc, name, err);
    if (status)
        return status;
    ls_cpu_op_set_y_like(op, &desc->x);
    int floats = (int)(op->op.y.bytes / sizeof(float));
    int flat = ls_layout_is_lanes(desc->x.layout);
    ls_md md = flat ? ls_md_make(1, &floats, LS_MD_PLAIN) : ls_md_of(&desc->x);
    status = ls_pd_curve(&forward, device, curve, LS_PASS_FORWARD, &md, NULL, err);
    if (status == LS_OK && desc->training && desc->needs_dx)
        status = ls_pd_curve(&backward, device, curve, LS_PASS_BACKWARD_DATA, &md, forward, err);
    if (status == LS_OK) {
        snprintf(op->kernel, sizeof op->kernel, "dnnl %s", ls_pd_kernel(forward));
        add_steps(op, &md, forward, backward);
        status = ls_cpu_op_finish(out, op);
    } else {
        ls_cpu_op_destroy(&op->op);
    }
    ls_pd_destroy(backward);
    ls_pd_destroy(forward);
    return status;
}
