/* SPDX-License-Identifier: MIT */
/* The common part of ops on tensors in lanes.
 *
 * Why lanes. Libraries that put channels into vector registers pad the channels to sixteen. Then 20
 * channels cost as much as 32. Here a register holds the same element of sixteen rows instead.
 * Therefore any number of channels and any filter size, stride and padding use whole registers:
 *
 *                    lane 0   lane 1         lane 15
 *     element 0      row 0    row 1    …     row 15      sixteen floats: one vector
 *     element 1      row 0    row 1    …     row 15      the next vector
 *     …                                                  all elements of one packet
 *
 * Words that all files of this directory use:
 *
 *     row        one example of the batch. A line of pixels of an image is an *image row*.
 *     vector     sixteen adjacent floats in memory. A CPU with shorter registers needs several
 *                *parts*, that is registers, for a vector (kernels/vec.inc).
 *     lane       a position 0 … 15 in a vector
 *     packet     sixteen consecutive rows, one in each lane; the last packet can be partly filled
 *     in lanes   stored as the layout `lanes` below
 *     block      two packets: 32 rows (LS_LANES_BLOCK_PACKETS). Gradients of parameters are summed
 *                over a block. That sum is then added to the sum of the earlier blocks.
 *     kernel     a function that loops over memory (kernels/). Kernels are compiled once per
 *                instruction set; the set is chosen at run time. In messages, and in the public
 *                headers, "kernel" means the filter.
 *     filter     the kh × kw weights of a convolution for one input and one output channel, which
 *                other libraries call a kernel. A *tap* is one of these weights.
 *     eight      a set of eight output channels whose weights are stored side by side
 *     sixteen    a set of sixteen output channels whose weights are stored side by side
 *     step       a distance in memory, in floats, from one element to the next. (A step of training
 *                is called a training step.)
 *     twin       the op of the same layer for another number of rows (ls_op_desc.twin); both ops
 *                have the same parameters
 *
 * dy is the gradient of an op's output y, dx the gradient of its input x. Each op has a source file
 * of its own.
 *
 * Numbers: a result depends on the rows, the parameters and the op's description alone, and has the
 * same bits on every CPU. Gradients of parameters are summed block after block, whether the blocks
 * come in one call or in several calls with LS_RUN_ACCUMULATE. */
#ifndef CPU_LANES_OP_H
#define CPU_LANES_OP_H

#include "cpu/cpu_device.h"

#include <lockstep/sys/plugin.h>
#include <stdbool.h>
#include <stddef.h>

/* Layouts of tensors in the CPU back end, as ls_tensor.layout names them:
 *
 *     lanes   [ceil(rows/16)][c][h][w][16]: sixteen rows side by side. If the last packet is partly
 *             filled, its other lanes hold finite numbers in activations and zeros in gradients.
 *     few     for batches of one to eight rows (see few.h)
 *     flat    for the gathered rows of such batches (see few.h)
 *     NULL    plain: [rows][c][h][w], as everywhere else. Only the output of an export and inputs
 *             from outside the model are plain. */

#define LS_LANES 16

enum { LS_LAYOUT_LANES = 1, LS_LAYOUT_FEW, LS_LAYOUT_FLAT };

struct ls_layout {
    char number; /* identity of the layout, LS_LAYOUT_* */
    /* For the output of an op for few rows (few.h), which has a structure of its own: how many such
     * ops the device had created before, plus 1; and the op in lanes that the op contains, if this
     * op can compute the batch norm that reads the output (ls_few_finisher), else NULL. */
    uint64_t order;
    struct ls_lanes_op *finisher;
};

/* The layout of all tensors in lanes. The shape of a tensor determines the rest. */
extern const ls_layout ls_layout_lanes;

/* Returns the size in bytes of a tensor of rows × c × h × w floats in lanes. */
size_t ls_lanes_bytes(int rows, int c, int h, int w);

/* Returns a tensor in lanes with dtype and shape of `like`, and sets its `bytes`. */
ls_tensor ls_lanes_tensor(const ls_tensor *like);

/* Copies a plain tensor of the shape of `t` into lanes. Lanes that have no row become zero. */
void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *t);
/* Copies a tensor of the shape of `t` from lanes into a plain one. */
void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *t);

/* Work that the threads of a team divide (cpu_team.h): work(op, i) for every i < items. */
typedef struct ls_lanes_pass {
    ls_team_work *work;
    uint32_t items;
} ls_lanes_pass;

typedef struct ls_lanes_op {
    ls_op op; /* base; must be first */
    const ls_host *host;
    const ls_lanes_kernels *kernels;
    ls_team *team; /* NULL: the worker's thread alone */
    ls_op_buffers b;
    int packets; /* number of packets of rows */
    int training, needs_dx;
    /* The passes of the op. `gradients` computes the gradients of the parameters. A pass that the
     * op does not have is zeroed. */
    ls_lanes_pass forward, gradients, dx;
    unsigned flags; /* flags (LS_RUN_…) of the current call */
    /* Runs forward with all buffers in the layout `few` (see few.h). NULL: the op has no code for
     * this layout. */
    void (*few)(struct ls_lanes_op *op);
    bool few_reads_flat; /* `few` reads x in the layout in which it was described */
    /* `few` can compute the batch norm that is the only reader of y; the norm, once there is one
     * whose work it does (see ls_few_finisher) */
    bool few_finishes;
    struct ls_lanes_op *few_norm;
    size_t few_scratch;           /* bytes of scratch memory that `few` needs */
    int outputs, elements, block; /* layout of parameter 0 (ls_lanes_op_set_params) */
    char kernel[48];
} ls_lanes_op;

/* Allocates a zeroed op of `size` bytes that begins with an ls_lanes_op. Sets op.kernel, the name
 * of its kernel, to "plain C". Returns NULL if memory runs out. */
ls_lanes_op *ls_lanes_op_alloc(size_t size, const ls_op_impl *impl, const ls_cpu_device *device,
                               const ls_op_desc *desc);

/* Allocates an op that uses the vector kernels, after checking that x is in lanes and that the twin
 * is an op of the same kind. Errors: LS_EUNSUPPORTED, LS_EINVAL, LS_ENOMEM. */
int ls_lanes_op_new(ls_lanes_op **out, size_t size, const ls_op_impl *impl,
                    const ls_cpu_device *device, const ls_op_desc *desc, ls_error *err);

/* Sets op.y to a tensor in lanes of the op's rows × c × h × w. */
void ls_lanes_op_set_y(ls_lanes_op *op, int c, int h, int w);

/* Stores the finished op in `*out`. If the op has a twin and differs from it in the sizes of its
 * parameters or in its forward pass, destroys the op and returns LS_EINVAL. */
int ls_lanes_op_finish(ls_op **out, ls_lanes_op *op, const ls_op_desc *desc, ls_error *err);

/* Sets the sizes of the op's parameters. Parameter 0 is the weights: `elements` numbers for each of
 * `outputs` outputs. If `bias` is set, parameter 1 has one number per output. The weights are
 * stored as [ceil(outputs / block)][elements][block], zero-padded. `block` is the number of outputs
 * whose weights lie side by side; 1: the weights are row-major. */
void ls_lanes_op_set_params(ls_lanes_op *op, int outputs, int elements, int block, bool bias);

/* Returns the index of element e of output o in parameter 0. */
static inline size_t ls_lanes_place(int block, int elements, int o, int e)
{
    return ((size_t)(o / block) * (size_t)elements + (size_t)e) * (size_t)block +
           (size_t)(o % block);
}

/* Initializer of an ls_op_impl with the given forward and backward, and with the common functions
 * below. */
#define LS_LANES_IMPL(its_forward, its_backward)                                                   \
    {                                                                                              \
        .size = sizeof(ls_op_impl), .bind = ls_lanes_op_bind, .forward = (its_forward),            \
        .backward = (its_backward), .import_param = ls_lanes_op_import,                            \
        .export_param = ls_lanes_op_export, .destroy = ls_lanes_op_destroy                         \
    }

/* Implementation of an op that needs no code besides its passes. */
extern const ls_op_impl ls_lanes_passes;

/* Common functions of an ls_op_impl. Thread: the worker's.
 *
 * - bind copies the buffers' addresses.
 * - forward runs the op's forward pass.
 * - backward runs the pass `gradients`, and then the pass `dx` if the op needs dx.
 * - destroy frees the op.
 * - import and export convert a parameter between canonical order and the layout that
 *   ls_lanes_op_set_params describes. Errors: LS_EINVAL (there is no such parameter). */
int ls_lanes_op_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err);
int ls_lanes_op_forward(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);
int ls_lanes_op_backward(ls_op *base, ls_stream *stream, unsigned flags, ls_error *err);
void ls_lanes_op_destroy(ls_op *op);
int ls_lanes_op_import(ls_op *base, int index, void *dst, const float *src, ls_error *err);
int ls_lanes_op_export(ls_op *base, int index, float *dst, const void *src, ls_error *err);

/* Returns true if the op has a second input. */
bool ls_lanes_has_x2(const ls_op_desc *desc);

/* Returns the number of rows in a packet: sixteen, or fewer in the last packet. */
static inline int ls_lanes_rows_of(int rows, int packet)
{
    int left = rows - packet * LS_LANES;
    return left < LS_LANES ? left : LS_LANES;
}

/* Returns true if an input of the op is plain. */
bool ls_lanes_are_plain(const ls_op_desc *desc);
/* Creates an op with plain inputs. The op contains an op in lanes, and copies the inputs into lanes
 * for it. */
ls_cpu_create ls_lanes_plain_create;
/* Returns the op in lanes that `op` contains, if `op` is an op for plain inputs or for the layout
 * `few`. Otherwise returns `op` itself, which may be NULL. */
const ls_op *ls_lanes_inner(const ls_op *op);

/* ls_lanes_conv_create creates a convolution in which each output depends on all input channels.
 * ls_lanes_depth_create creates a depthwise convolution, in which each channel has a small filter
 * of its own. */
ls_cpu_create ls_lanes_conv_create, ls_lanes_depth_create;
/* Returns true if ls_lanes_depth_create can create the described convolution. */
bool ls_lanes_is_depthwise(const ls_op_desc *desc);

#endif
