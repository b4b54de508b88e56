/* Fills in one instruction set's table. Included once by each of cpu_isa_avx512.c, cpu_isa_avx2.c and
 * cpu_isa_generic.c, which CMakeLists.txt has compiled with different flags. */
#include "cpu/lanes_conv_bwd_kernel.h"
#include "cpu/lanes_conv_fwd_kernel.h"
#include "cpu/lanes_dense_kernel.h"
#include "cpu/lanes_depth_kernel.h"
#include "cpu/lanes_kernels.h"
#include "cpu/lanes_loss_kernel.h"
#include "cpu/lanes_panel_kernel.h"
#include "cpu/lanes_pass_kernel.h"
#include "cpu/lanes_pool_kernel.h"
#include "cpu/wino_transform_kernel.h"

/* A kernel has its place's name; those of Winograd's algorithm are one for each form, and for the last one of y alone. */
#define KERNEL(place) .place = lanes_##place,
#define FORMS(place) wino_##place##_2_3, wino_##place##_4_3, wino_##place##_2_5

/* clang-format off */
#define CPU_ISA(set) \
    const ls_lanes_kernels ls_cpu_isa_##set = { \
        .name = #set, \
        .mask_bytes = LANES_MASK_BYTES, \
        KERNEL(conv_forward) KERNEL(conv_unpool) KERNEL(conv_correlate) KERNEL(conv_bias) \
        KERNEL(sum_lanes) KERNEL(conv_panels) KERNEL(conv_weights) KERNEL(conv_data) \
        KERNEL(depth_forward) KERNEL(depth_data) KERNEL(depth_weights) \
        KERNEL(dense_forward) KERNEL(dense_grad) KERNEL(dense_weights) KERNEL(dense_data) \
        KERNEL(pool_forward) KERNEL(pool_backward) KERNEL(add) KERNEL(add_dx) \
        KERNEL(norm_sum) KERNEL(norm_squares) KERNEL(normalise) KERNEL(norm_sums) KERNEL(norm_dx) \
        KERNEL(layer_forward) KERNEL(layer_dx) KERNEL(layer_weights) KERNEL(loss) \
        .curve = {lanes_relu, lanes_leaky, lanes_sigmoid, lanes_tanh, lanes_gelu, lanes_silu, \
                  lanes_exp, lanes_log}, \
        .slope = {lanes_relu_slope, lanes_leaky_slope, lanes_sigmoid_slope, lanes_tanh_slope, \
                  lanes_gelu_slope, lanes_silu_slope}, \
        .wino = {.weights = {FORMS(weights), wino_weights_2_5_halves}, \
                 .input = {FORMS(input), wino_input_2_5_halves}, \
                 .output = {FORMS(output), wino_output_2_5_halves}, \
                 .error = {FORMS(error)}, \
                 .spread = {FORMS(spread)}, \
                 .panels = {FORMS(panels)}, \
                 .gradient = {FORMS(gradient)}, \
                 .multiply = wino_multiply, \
                 .correlate = wino_correlate}, \
    }
/* clang-format on */
