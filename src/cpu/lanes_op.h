/* What ops on lanes have in common.
 *
 * Libraries that put channels into vector registers pad them to sixteen: 20 channels cost as much
 * as 32. Here a register holds the same element of sixteen rows (below), so that any
 * number of channels, any kernel, stride and padding runs at full width. Each op is in one source file; the
 * loops are in kernels/, compiled once per instruction set and chosen at run time.
 *
 * Numbers: a result depends on rows, parameters and the op's description alone, the same bits on every CPU.
 * Gradients of parameters are summed in blocks of 32 rows, block after block, whether the blocks
 * come in one call or in several with LS_RUN_ACCUMULATE.
 */
#ifndef CPU_LANES_OP_H
#define CPU_LANES_OP_H

#include "cpu/cpu_device.h"

#include <lockstep/sys/plugin.h>
#include <stdbool.h>
#include <stddef.h>

/* How tensors are arranged in the CPU back end:
 *
 *   lanes   [ceil(rows/16)][c][h][w][16]: sixteen rows (images) side by side, so that one
 *           512-bit register holds the same element of sixteen rows. Lanes beyond the last row hold finite
 *           numbers in data, zeros in gradients.
 *   NULL    plain: [rows][c][h][w], as everywhere. Only what an export wrote, and inputs from outside.
 */

#define LS_LANES 16

struct ls_layout {
    char number; /* 1: lanes; 2: few rows (few.h) */
};

/* The one lanes layout; the tensor's shape says the rest. */
extern const ls_layout ls_layout_lanes;

/* Bytes of a tensor of floats, c × h × w each, in lanes layout. */
size_t ls_lanes_bytes(int rows, int c, int h, int w);

/* `like` (its dtype and shape) with lanes layout and the bytes that takes. */
ls_tensor ls_lanes_tensor(const ls_tensor *like);

/* `lanes` ← a plain tensor of that shape; rows beyond the last become zero. And back. */
void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *t);
void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *t);

/* What the team does side by side: work(op, i) for every i < items. */
typedef struct ls_lanes_pass {
    ls_team_work *work;
    uint32_t items;
} ls_lanes_pass;

typedef struct ls_lanes_op {
    ls_op op; /* first */
    const ls_host *host;
    const ls_lanes_kernels *kernels;
    ls_team *team; /* NULL: the worker alone */
    ls_op_buffers b;
    int groups; /* of sixteen rows */
    int training, needs_dx;
    ls_lanes_pass forward, gradients,
        dx;         /* as far as there are such; gradients are the parameters' */
    unsigned flags; /* of the run */
    void (*few)(struct ls_lanes_op
                    *op); /* forward of few rows (few.h), which all buffers are; NULL: none */
    size_t few_scratch;   /* bytes that it needs */
    int outputs, elements, block; /* of parameter 0 */
    char kernel[48];
} ls_lanes_op;

/* A zeroed op of `size` bytes that begins with an ls_lanes_op, of plain C; NULL when memory is out. */
ls_lanes_op *ls_lanes_op_alloc(size_t size, const ls_op_impl *impl, const ls_cpu_device *device,
                               const ls_op_desc *desc);

/* The same of kernels, with the checks of x's layout and of the twin. Errors: LS_EUNSUPPORTED, LS_EINVAL,
 * LS_ENOMEM. */
int ls_lanes_op_new(ls_lanes_op **out, size_t size, const ls_op_impl *impl,
                    const ls_cpu_device *device, const ls_op_desc *desc, ls_error *err);

/* Sets op.y. */
void ls_lanes_op_set_y(ls_lanes_op *op, int c, int h, int w);

/* Hands the finished op over in `*out`; destroys it and fails with LS_EINVAL when its parameters
 * are not those of the twin. */
int ls_lanes_op_finish(ls_op **out, ls_lanes_op *op, const ls_op_desc *desc, ls_error *err);

/* Parameters: weights, and a bias or what else there is one of for each output. Weights lie in blocks of outputs,
 * [ceil(outputs / block)][elements][block], zero-padded; in blocks of one as anywhere. */
void ls_lanes_op_set_params(ls_lanes_op *op, int outputs, int elements, int block, bool bias);

/* Where element e of output o lies. */
static inline size_t ls_lanes_place(int block, int elements, int o, int e)
{
    return ((size_t)(o / block) * (size_t)elements + (size_t)e) * (size_t)block +
           (size_t)(o % block);
}

/* The table of an op with these two, one of which may be its passes. */
#define LS_LANES_IMPL(its_forward, its_backward)                                                   \
    {                                                                                              \
        .size = sizeof(ls_op_impl), .bind = ls_lanes_op_bind, .forward = (its_forward),            \
        .backward = (its_backward), .import_param = ls_lanes_op_import,                            \
        .export_param = ls_lanes_op_export, .destroy = ls_lanes_op_destroy                         \
    }

/* An op that is nothing but its passes. */
extern const ls_op_impl ls_lanes_passes;

int ls_lanes_op_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err);
int ls_lanes_op_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);
int ls_lanes_op_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err);
void ls_lanes_op_destroy(ls_op *op);
int ls_lanes_op_import(ls_op *base, int index, void *dst, const float *src, ls_error *err);
int ls_lanes_op_export(ls_op *base, int index, float *dst, const void *src, ls_error *err);

/* Whether the op has a second input. */
bool ls_lanes_has_x2(const ls_op_desc *desc);

/* Rows of a group: sixteen, but for the last. */
static inline int ls_lanes_rows_of(int rows, int group)
{
    int left = rows - group * LS_LANES;
    return left < LS_LANES ? left : LS_LANES;
}

/* Whether an input of the op is plain; an op around one on lanes, which packs such inputs. */
bool ls_lanes_are_plain(const ls_op_desc *desc);
ls_cpu_create ls_lanes_plain_create;
/* The op on lanes inside where `op` is one around it, of plain inputs or of few rows, else `op` itself (may be NULL). */
const ls_op *ls_lanes_inner(const ls_op *op);

/* A convolution of one group; one that has a group for each channel, and a small kernel. */
ls_cpu_create ls_lanes_conv_create, ls_lanes_depth_create;
bool ls_lanes_is_depthwise(const ls_op_desc *desc);

#endif
