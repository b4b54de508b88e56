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

#define CPU_ISA(set)                                                                               \
    const ls_lanes_kernels ls_cpu_isa_##set = {                                                    \
        .name = #set,                                                                              \
        .mask_bytes = LANES_MASK_BYTES,                                                            \
        .conv_forward = lanes_conv_forward,                                                        \
        .conv_unpool = lanes_conv_unpool,                                                          \
        .conv_correlate = lanes_conv_correlate,                                                    \
        .conv_bias = lanes_conv_bias,                                                              \
        .sum_lanes = lanes_sum_lanes,                                                              \
        .conv_panels = lanes_conv_panels,                                                          \
        .conv_weights = lanes_conv_weights,                                                        \
        .conv_data = lanes_conv_data,                                                              \
        .depth_forward = lanes_depth_forward,                                                      \
        .depth_data = lanes_depth_data,                                                            \
        .depth_weights = lanes_depth_weights,                                                      \
        .dense_forward = lanes_dense_forward,                                                      \
        .dense_grad = lanes_dense_grad,                                                            \
        .dense_weights = lanes_dense_weights,                                                      \
        .dense_data = lanes_dense_data,                                                            \
        .pool_forward = lanes_pool_forward,                                                        \
        .pool_backward = lanes_pool_backward,                                                      \
        .curve = {lanes_relu, lanes_leaky, lanes_sigmoid, lanes_tanh, lanes_gelu, lanes_silu,      \
                  lanes_exp, lanes_log},                                                           \
        .slope = {lanes_relu_slope, lanes_leaky_slope, lanes_sigmoid_slope, lanes_tanh_slope,      \
                  lanes_gelu_slope, lanes_silu_slope},                                             \
        .add = lanes_add_forward,                                                                  \
        .add_dx = lanes_add_backward,                                                              \
        .norm_sum = lanes_norm_sum,                                                                \
        .norm_squares = lanes_norm_squares,                                                        \
        .normalise = lanes_normalise,                                                              \
        .norm_sums = lanes_norm_sums,                                                              \
        .norm_dx = lanes_norm_dx,                                                                  \
        .layer_forward = lanes_layer_forward,                                                      \
        .layer_dx = lanes_layer_dx,                                                                \
        .layer_weights = lanes_layer_weights,                                                      \
        .loss = lanes_loss,                                                                        \
        .wino =                                                                                    \
            {                                                                                      \
                .name = #set,                                                                      \
                .weights = {wino_weights_2_3, wino_weights_4_3, wino_weights_2_5,                  \
                            wino_weights_2_5_halves},                                              \
                .input = {wino_input_2_3, wino_input_4_3, wino_input_2_5, wino_input_2_5_halves},  \
                .output = {wino_output_2_3, wino_output_4_3, wino_output_2_5,                      \
                           wino_output_2_5_halves},                                                \
                .error = {wino_error_2_3, wino_error_4_3, wino_error_2_5},                         \
                .spread = {wino_spread_2_3, wino_spread_4_3, wino_spread_2_5},                     \
                .panels = {wino_panels_2_3, wino_panels_4_3, wino_panels_2_5},                     \
                .gradient = {wino_gradient_2_3, wino_gradient_4_3, wino_gradient_2_5},             \
                .multiply = wino_multiply,                                                         \
                .correlate = wino_correlate,                                                       \
            },                                                                                     \
    }
