/* SPDX-License-Identifier: MIT */
/* Compares every op of every back end, with random shapes and parameters, with the reference back
 * end, which adds in double. op_check.h describes how ops are run. */
#include "ops/op_cases.h"
#include "ops/op_devices.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define CASES 200

/* ---- one op on row-major data --------------------------------------------------------------- */

static void conv2d_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_conv, 1000, CASES);
}

static void winograd_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_winograd, 1200, CASES);
}

static void dilated_conv2d_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_dilated, 24000, CASES);
}

static void grouped_conv2d_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_grouped, 24300, CASES);
}

static void depthwise_conv2d_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_depthwise, 24600, 240);
}

static void dense_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_dense, 2000, CASES);
}

static void average_pool_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_average, 3000, CASES);
}

static void max_pool_gives_the_first_of_equals(void **state)
{
    op_all_agree(state, op_make_maximum, 4000, CASES);
}

static void relu_is_zero_at_zero(void **state)
{
    op_all_agree(state, op_make_relu, 5000, CASES);
}

static void softmax_xent_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_loss, 6000, CASES);
}

static void vector_losses_match_double_sums(void **state)
{
    op_all_agree(state, op_make_vector_loss, 6200, CASES);
}

static void export_gives_row_major_data_back(void **state)
{
    op_all_agree(state, op_make_export, 6500, 50);
}

/* ---- fused forms ---------------------------------------------------------------------------- */

static void conv2d_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_conv_relu, 7000, CASES);
}

static void depthwise_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_depthwise_relu, 24900, 120);
}

static void grouped_with_what_is_fused_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_grouped_pool, 25200, 120);
}

static void winograd_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_winograd_relu, 7200, 60);
}

static void dense_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_dense_relu, 7300, CASES);
}

static void conv2d_with_fused_pool_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_conv_pool, 7600, CASES);
}

/* ---- ops on layouts of the back end --------------------------------------------------------- */

static void ops_read_the_layouts_of_other_ops(void **state)
{
    op_all_agree(state, op_make_after_conv, 8000, 240);
}

static void network_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_network, 8500, 60);
}

static void lenet_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_lenet, 8700, 12);
}

static void fused_lenet_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_fused_lenet, 8700, 12);
}

/* ---- residual networks, and other ops -------------------------------------------------------- */

static void batchnorm_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_norm, 20000, CASES);
}

static void batchnorm_evaluates_with_running_statistics(void **state)
{
    op_all_agree(state, op_make_norm_evaluate, 20300, CASES);
}

static void batchnorm_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_norm_relu, 20600, CASES);
}

static void batchnorm_with_fused_add_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_norm_add, 20900, CASES);
}

static void add_gives_dy_to_both_inputs(void **state)
{
    op_all_agree(state, op_make_add, 21200, CASES);
}

static void add_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_add_relu, 21500, CASES);
}

static void add_takes_two_layouts(void **state)
{
    op_all_agree(state, op_make_add_of_convs, 21800, CASES);
}

static void sigmoid_matches_double(void **state)
{
    op_all_agree(state, op_make_sigmoid, 22100, CASES);
}

static void tanh_matches_double(void **state)
{
    op_all_agree(state, op_make_tanh, 22400, CASES);
}

static void gelu_matches_double(void **state)
{
    op_all_agree(state, op_make_gelu, 23500, CASES);
}

static void layer_norm_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_layer_norm, 24100, CASES);
}

static void upsample_gives_dy_back_summed(void **state)
{
    op_all_agree(state, op_make_upsample, 24400, CASES);
}

static void pad_surrounds_x_with_zeros(void **state)
{
    op_all_agree(state, op_make_pad, 24600, CASES);
}

static void concat_takes_two_layouts(void **state)
{
    op_all_agree(state, op_make_concat, 24700, CASES);
}

static void multiply_sums_over_the_pixels_of_a_factor(void **state)
{
    op_all_agree(state, op_make_multiply, 25900, CASES);
}

static void gelu_with_tanh_matches_double(void **state)
{
    op_all_agree(state, op_make_gelu_tanh, 26200, CASES);
}

static void affine_matches_double(void **state)
{
    op_all_agree(state, op_make_affine, 26500, CASES);
}

static void silu_matches_double(void **state)
{
    op_all_agree(state, op_make_silu, 23800, CASES);
}

static void hard_curves_match_double(void **state)
{
    op_all_agree(state, op_make_clamp, 25000, CASES);
    op_all_agree(state, op_make_hard_sigmoid, 25300, CASES);
    op_all_agree(state, op_make_hard_swish, 25600, CASES);
}

static void smoothed_loss_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_smooth_loss, 22700, CASES);
}

static void later_ops_read_the_layouts_of_convolutions(void **state)
{
    op_all_agree(state, op_make_norm_after_conv, 23000, 240);
}

static void residual_block_matches_double_sums(void **state)
{
    op_all_agree(state, op_make_residual, 23300, 60);
}

static void augmented_images_reach_the_convolution(void **state)
{
    op_all_agree(state, op_make_augmented, 23600, 60);
}

LS_TESTS(ops, "integration no-tsan")
{
    static const op_test tests[] = {
        OP_COMPARED(conv2d_matches_double_sums),
        OP_COMPARED(winograd_matches_double_sums),
        OP_COMPARED(dilated_conv2d_matches_double_sums),
        OP_COMPARED(grouped_conv2d_matches_double_sums),
        OP_COMPARED(depthwise_conv2d_matches_double_sums),
        OP_COMPARED(dense_matches_double_sums),
        OP_COMPARED(average_pool_matches_double_sums),
        OP_COMPARED(max_pool_gives_the_first_of_equals),
        OP_COMPARED(relu_is_zero_at_zero),
        OP_COMPARED(softmax_xent_matches_double_sums),
        OP_COMPARED(vector_losses_match_double_sums),
        OP_COMPARED(export_gives_row_major_data_back),
        OP_COMPARED(conv2d_with_fused_relu_equals_the_sequence),
        OP_COMPARED(depthwise_with_fused_relu_equals_the_sequence),
        OP_COMPARED(grouped_with_what_is_fused_equals_the_sequence),
        OP_COMPARED(winograd_with_fused_relu_equals_the_sequence),
        OP_COMPARED(dense_with_fused_relu_equals_the_sequence),
        OP_COMPARED(conv2d_with_fused_pool_equals_the_sequence),
        OP_COMPARED(ops_read_the_layouts_of_other_ops),
        OP_COMPARED(network_matches_double_sums),
        OP_COMPARED(lenet_matches_double_sums),
        OP_COMPARED(fused_lenet_matches_double_sums),
        OP_COMPARED(batchnorm_matches_double_sums),
        OP_COMPARED(batchnorm_evaluates_with_running_statistics),
        OP_COMPARED(batchnorm_with_fused_relu_equals_the_sequence),
        OP_COMPARED(batchnorm_with_fused_add_equals_the_sequence),
        OP_COMPARED(add_gives_dy_to_both_inputs),
        OP_COMPARED(add_with_fused_relu_equals_the_sequence),
        OP_COMPARED(add_takes_two_layouts),
        OP_COMPARED(sigmoid_matches_double),
        OP_COMPARED(tanh_matches_double),
        OP_COMPARED(gelu_matches_double),
        OP_COMPARED(gelu_with_tanh_matches_double),
        OP_COMPARED(affine_matches_double),
        OP_COMPARED(silu_matches_double),
        OP_COMPARED(hard_curves_match_double),
        OP_COMPARED(layer_norm_matches_double_sums),
        OP_COMPARED(upsample_gives_dy_back_summed),
        OP_COMPARED(pad_surrounds_x_with_zeros),
        OP_COMPARED(concat_takes_two_layouts),
        OP_COMPARED(multiply_sums_over_the_pixels_of_a_factor),
        OP_COMPARED(smoothed_loss_matches_double_sums),
        OP_COMPARED(later_ops_read_the_layouts_of_convolutions),
        OP_COMPARED(residual_block_matches_double_sums),
        OP_COMPARED(augmented_images_reach_the_convolution),
    };
    return op_run_groups(tests, (int)(sizeof tests / sizeof tests[0]), argc, argv);
}
