/* Fills in one instruction set's table but for depthwise convolutions, few rows and Winograd's algorithm, which
 * have tables of their own (cpu_isa_depth.h, cpu_isa_few.h, cpu_isa_wino.h) in files of their own: a compiler works
 * on each for a while. Included once by each of cpu_isa_avx512.c, cpu_isa_avx2.c and
 * cpu_isa_generic.c, which CMakeLists.txt has compiled with different flags. */
#include "cpu/lanes_conv_bwd_kernel.h"
#include "cpu/lanes_conv_fwd_kernel.h"
#include "cpu/lanes_dense_kernel.h"
#include "cpu/lanes_kernels.h"
#include "cpu/lanes_loss_kernel.h"
#include "cpu/lanes_pass_kernel.h"
#include "cpu/lanes_pool_kernel.h"

/* A kernel has its place's name. */
#define LANES_KERNEL(place) .place = lanes_##place,

/* clang-format off */
#define CPU_ISA(set) \
    extern const ls_lanes_depth_kernels ls_cpu_isa_##set##_depth; \
    extern const ls_few_kernels ls_cpu_isa_##set##_few; \
    extern const ls_wino_kernels ls_cpu_isa_##set##_wino; \
    const ls_lanes_kernels ls_cpu_isa_##set = { \
        .name = #set, \
        .mask_bytes = LANES_MASK_BYTES, \
        LANES_KERNEL(conv_forward) LANES_KERNEL(conv_unpool) LANES_KERNEL(conv_correlate) \
        LANES_KERNEL(conv_bias) LANES_KERNEL(sum_lanes) LANES_KERNEL(conv_panels) \
        LANES_KERNEL(conv_weights) LANES_KERNEL(conv_data) LANES_KERNEL(dense_forward) \
        LANES_KERNEL(dense_grad) LANES_KERNEL(dense_weights) LANES_KERNEL(dense_data) \
        LANES_KERNEL(pool_forward) LANES_KERNEL(pool_backward) LANES_KERNEL(add) \
        LANES_KERNEL(add_dx) LANES_KERNEL(norm_sum) LANES_KERNEL(norm_squares) \
        LANES_KERNEL(normalise) LANES_KERNEL(norm_sums) LANES_KERNEL(norm_dx) \
        LANES_KERNEL(layer_forward) LANES_KERNEL(layer_dx) LANES_KERNEL(layer_weights) \
        LANES_KERNEL(loss) \
        .curve = {lanes_relu, lanes_leaky, lanes_sigmoid, lanes_tanh, lanes_gelu, lanes_silu, \
                  lanes_exp, lanes_log}, \
        .slope = {lanes_relu_slope, lanes_leaky_slope, lanes_sigmoid_slope, lanes_tanh_slope, \
                  lanes_gelu_slope, lanes_silu_slope}, \
        .depth = &ls_cpu_isa_##set##_depth, \
        .few = &ls_cpu_isa_##set##_few, \
        .wino = &ls_cpu_isa_##set##_wino, \
    }
/* clang-format on */
