/* Every op of every back end against the reference back end with double sums, on random
 * descriptions. See op_check.h for how ops are run. */
#include "ops/op_cases.h"
#include "ops/op_devices.h"

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

static void export_gives_row_major_data_back(void **state)
{
    op_all_agree(state, op_make_export, 6500, 50);
}

/* ---- fused forms ---------------------------------------------------------------------------- */

static void conv2d_with_fused_relu_equals_the_sequence(void **state)
{
    op_all_agree(state, op_make_conv_relu, 7000, CASES);
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

int main(int argc, char **argv)
{
    static const op_test tests[] = {
        OP_TEST(conv2d_matches_double_sums),
        OP_TEST(dense_matches_double_sums),
        OP_TEST(average_pool_matches_double_sums),
        OP_TEST(max_pool_gives_the_first_of_equals),
        OP_TEST(relu_is_zero_at_zero),
        OP_TEST(softmax_xent_matches_double_sums),
        OP_TEST(export_gives_row_major_data_back),
        OP_TEST(conv2d_with_fused_relu_equals_the_sequence),
        OP_TEST(dense_with_fused_relu_equals_the_sequence),
        OP_TEST(conv2d_with_fused_pool_equals_the_sequence),
        OP_TEST(ops_read_the_layouts_of_other_ops),
        OP_TEST(network_matches_double_sums),
        OP_TEST(lenet_matches_double_sums),
        OP_TEST(fused_lenet_matches_double_sums),
    };
    return op_run_groups(tests, (int)(sizeof tests / sizeof tests[0]), argc, argv);
}
