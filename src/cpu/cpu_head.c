#include "cpu/cpu_head.h"

#include "cpu/cpu_kernels.h"

static int run(void *self, float *x, float *y, unsigned flags, ls_error *err)
{
    const ls_cpu_op *op = self;
    const ls_cpu_kernels *kernels = ls_cpu_kernels_best();
    const float *weight = ls_program_memory(&op->program, op->head_weight);
    const float *bias = op->op.params > 1 ? op->buffers.param[1] : NULL;
    int out = op->op.y.c;
    size_t in = ls_md_bytes(&op->param_plain[0]) / sizeof(float) / (size_t)out;
    (void)flags;
    (void)err;
    for (int row = 0; row < op->op.y.rows; row++, x += in)
        for (int o = 0; o < out; o++) {
            double sum = kernels->dot(x, weight + (size_t)o * in, in);
            *y++ = (float)(sum + (bias ? (double)bias[o] : 0));
        }
    return LS_OK;
}

void ls_cpu_head_forward(ls_cpu_op *op, const ls_md *plain_x, int x, int weight, int y)
{
    ls_program *p = &op->program;
    int plain = ls_program_convert(p, x, plain_x, LS_AT_TEMP);
    op->head_weight = ls_program_convert(p, weight, &op->param_plain[0], LS_AT_TEMP);
    ls_program_call(p, run, op, plain, y);
}
