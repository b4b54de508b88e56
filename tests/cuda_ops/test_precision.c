/* SPDX-License-Identifier: MIT */
/* Tests convolutions and dense layers over the simulated CUDA runtime: convolutions with pooling in
 * every precision, all other cases in bf16. Parameters, inputs and results must remain fp32, and
 * the results must be as close to a computation in double as the 8 bits of a bf16 mantissa allow.
 */
#include "cuda_ops/cuda_backend.h"
#include "ops/op_cases.h"
#include "ops/op_devices.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { CASES = 40 };
#define NEAR 1.5e-2    /* for several roundings to 8 bits, each with an error of at most 2⁻⁹ */
#define DEEP_NEAR 5e-2 /* for a whole network, in which errors add up */

static double worst(const op_item *a, const op_item *b)
{
    double most = 0;
    for (size_t i = 0; i < a->n; i++) {
        double d = (double)a->data[i] - (double)b->data[i];
        most = d * d > most ? d * d : most;
    }
    return most;
}

static int differs(const op_result *a, const op_result *b)
{
    double most = 0;
    for (int i = 0; i < a->items; i++)
        most = worst(&a->item[i], &b->item[i]) > most ? worst(&a->item[i], &b->item[i]) : most;
    return most > 1e-12;
}

/* Checks that results are near those of the reference back end. In at least `least` cases they must
 * differ from the reference, which shows that numbers were rounded to bf16. */
static void expect_rounded(op_make *make, uint64_t seed, double near, int least)
{
    ls_device *device = test_cuda_open(LS_PRECISION_BF16);
    int differ = 0;
    for (uint64_t s = seed; s < seed + CASES; s++) {
        op_chain chain = make(s);
        op_inputs *in = op_inputs_create(&chain, s);
        op_result *got = op_once(device, &chain, in), *want = op_reference(&chain, in);
        assert_non_null(got);
        op_expect_near("cuda bf16", &chain, got, want, near);
        differ += differs(got, want);
        op_result_destroy(got);
        op_result_destroy(want);
        op_inputs_destroy(in);
    }
    if (differ < least)
        fail_msg("seeds from %d: %d of %d differ", (int)seed, differ, CASES);
    device->ops->close(device);
}

static void convolutions_are_near_in_bf16(void **state)
{
    (void)state;
    expect_rounded(op_make_conv, 1000, NEAR, CASES / 2);
}

static void dense_layers_are_near_in_bf16(void **state)
{
    (void)state;
    expect_rounded(op_make_dense, 2000, NEAR, CASES / 2);
}

/* The output of a convolution is bf16. Batch norm and add continue in bf16; all other ops convert
 * it to fp32. */
static void networks_hand_on_bf16(void **state)
{
    (void)state;
    expect_rounded(op_make_norm_after_conv, 23000, DEEP_NEAR, 1);
    /* sums of numbers that bf16 can represent */
    expect_rounded(op_make_add_of_convs, 21800, DEEP_NEAR, 0);
    expect_rounded(op_make_after_conv, 8000, DEEP_NEAR, 1);
    expect_rounded(op_make_residual, 23300, DEEP_NEAR, 1);
    expect_rounded(op_make_network, 8500, DEEP_NEAR, 1);
}

/* An earlier step must have no effect on a step. The gradients of a second block of rows must be
 * added to those of the first. */
static void bf16_accumulates(void **state)
{
    ls_device *device = test_cuda_open(LS_PRECISION_BF16);
    (void)state;
    for (uint64_t s = 3000; s < 3000 + CASES; s++) {
        op_chain chain = s % 2 ? op_make_conv(s) : op_make_dense(s);
        op_expect_accumulates("cuda bf16 twice", device, &chain);
    }
    device->ops->close(device);
}

/* Draws a case with pooling by windows of 2 × 2 whose output has more than one channel and more
 * than one pixel. Returns whether the draw is such a case. */
static int makes_quads(op_chain *chain, uint64_t seed)
{
    *chain = op_make_conv_pool(seed);
    const ls_op_desc *conv = &chain->op[0];
    const ls_conv2d *k = &conv->u.conv2d;
    chain->op[0].pool = (ls_pool2d){.max = conv->pool.max, .kh = 2, .kw = 2, .sh = 2, .sw = 2};
    return k->out > 1 && (conv->x.h + 2 * k->ph - k->kh) / k->sh + 1 >= 4 &&
           (conv->x.w + 2 * k->pw - k->kw) / k->sw + 1 >= 4;
}

/* No convolution with pooling by quads may be declined. (If a back end declines a fused form, a
 * replica uses three kernels instead.) */
static void convolutions_take_pooling_along(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        ls_device *device = test_cuda_open(form ? LS_PRECISION_BF16 : LS_PRECISION_FP32);
        int made = 0;
        for (uint64_t s = 7600; s < 7600 + 3 * CASES; s++) {
            op_chain chain;
            if (!makes_quads(&chain, s))
                continue;
            op_inputs *in = op_inputs_create(&chain, s);
            op_result *got = op_once(device, &chain, in), *want = op_reference(&chain, in);
            if (!got)
                fail_msg("declined: %s", op_chain_text(&chain));
            /* in bf16, rounding can make another pixel the largest */
            if (!form || !chain.op[0].pool.max)
                op_expect_near(form ? "cuda bf16" : "cuda", &chain, got, want,
                               form ? DEEP_NEAR : 1e-5);
            op_result_destroy(got);
            op_result_destroy(want);
            op_inputs_destroy(in);
            made++;
        }
        assert_true(made > CASES / 2);
        device->ops->close(device);
    }
}

/* If a tensor has one channel, row-major and channels last are the same order, and the tensor is
 * fp32. Therefore pooling is not fused with a bf16 convolution of one output channel. */
static void a_single_channel_is_pooled_by_itself_in_bf16(void **state)
{
    (void)state;
    ls_device *device = test_cuda_open(LS_PRECISION_BF16);
    int made = 0;
    for (uint64_t s = 7600; s < 7600 + 3 * CASES; s++) {
        op_chain chain;
        if (!makes_quads(&chain, s))
            continue;
        chain.op[0].u.conv2d.out = 1;
        op_inputs *in = op_inputs_create(&chain, s);
        op_result *got = op_once(device, &chain, in);
        if (got)
            fail_msg("taken: %s", op_chain_text(&chain));
        op_inputs_destroy(in);
        made++;
    }
    assert_true(made > CASES / 2);
    device->ops->close(device);
}

LS_TESTS(cuda_precision, "integration doubles no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_near_in_bf16),
        cmocka_unit_test(dense_layers_are_near_in_bf16),
        cmocka_unit_test(networks_hand_on_bf16),
        cmocka_unit_test(bf16_accumulates),
        cmocka_unit_test(convolutions_take_pooling_along),
        cmocka_unit_test(a_single_channel_is_pooled_by_itself_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
