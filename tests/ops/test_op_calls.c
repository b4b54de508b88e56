/* SPDX-License-Identifier: MIT */
/* Tests repeated calls of an op, and all ops of one layer together, on every back end. */
#include "ops/op_cases.h"
#include "ops/op_chain.h"
#include "ops/op_devices.h"
#include "runner.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define CASES OP_CASES(200)

/* Checks that results depend neither on earlier steps nor on how often an op was created. */
static void expect_same_bits(op_fixture *f, op_make *m, uint64_t first, int cases)
{
    for (uint64_t seed = first; seed < first + (uint64_t)cases; seed++) {
        op_chain chain = m(seed);
        op_inputs *in = op_inputs_create(&chain, seed);
        op_inputs *other = op_inputs_create(&chain, seed + 5000);
        op_result *once = op_once(f->device, &chain, in);
        op_run *run = once ? op_run_open(f->device, &chain, NULL) : NULL;
        if (run) {
            op_run_params(run, in);
            op_run_step(run, other, 0, 0);
            op_run_step(run, other, 0, LS_RUN_ACCUMULATE);
            op_run_step(run, in, 0, 0);
            op_result *again = op_run_read(run);
            op_expect_same(f->which->name, &chain, again, once);
            op_result_destroy(again);
        } else {
            op_declined(f, &chain);
        }
        op_run_close(run);
        op_result_destroy(once);
        op_inputs_destroy(in);
        op_inputs_destroy(other);
    }
}

static void same_rows_give_the_same_bits(void **state)
{
    expect_same_bits(*state, op_make_any, 10000, CASES);
    expect_same_bits(*state, op_make_rowwise, 10300, OP_CASES(120));
    expect_same_bits(*state, op_make_any_norm, 10600, OP_CASES(120));
    expect_same_bits(*state, op_make_winograd, 10800, OP_CASES(20));
}

/* Runs two blocks of rows, the first with an op and the second with its twin for another number of
 * rows, which has the same parameters. The second block adds to the gradients and the loss of the
 * first. The sums must equal those of one op for all rows. */
static void expect_blocks_add_up(op_fixture *f, op_make *m, uint64_t from, int cases)
{
    for (uint64_t seed = from; seed < from + (uint64_t)cases; seed++) {
        op_chain whole = m(seed);
        int rows = whole.op[0].x.rows, cut = (rows + 1) / 3;
        if (cut < 1)
            continue;
        op_chain first = whole, second = whole;
        first.op[0].x.rows = cut;
        second.op[0].x.rows = rows - cut;
        if (whole.x2.rows) {
            first.x2.rows = cut;
            second.x2.rows = rows - cut;
        }
        op_inputs *in = op_inputs_create(&whole, seed);
        op_run *a = op_run_open(f->device, &first, NULL);
        op_run *b = a ? op_run_open(f->device, &second, a) : NULL;
        if (b) {
            op_run_params(a, in);
            op_run_step(a, in, 0, 0);
            op_run_step(b, in, cut, LS_RUN_ACCUMULATE);
            op_result *got = op_run_read(b), *want = op_reference(&whole, in);
            for (int i = 0; i < got->items; i++) /* of the second block alone */
                if (got->item[i].name[0] != 'g')
                    got->item[i].name[0] = '-';
            op_expect_near(f->which->name, &whole, got, want, OP_TOLERANCE);
            op_result_destroy(got);
            op_result_destroy(want);
        } else {
            op_declined(f, &whole);
        }
        op_run_close(b);
        op_run_close(a);
        op_inputs_destroy(in);
    }
}

static void blocks_of_twins_add_up_to_the_whole(void **state)
{
    expect_blocks_add_up(*state, op_make_any, 11000, CASES);
    expect_blocks_add_up(*state, op_make_rowwise, 11300, OP_CASES(120));
    expect_blocks_add_up(*state, op_make_winograd, 11500, OP_CASES(60));
}

static void add_items(op_result *sum, const op_result *part)
{
    for (int i = 0; i < sum->items; i++)
        for (size_t k = 0; k < sum->item[i].n; k++)
            sum->item[i].data[k] += part->item[i].data[k];
}

/* With two blocks of rows, each block is normalised with its own statistics. Gradients and
 * contributions are summed over the blocks. */
static void batchnorm_accumulates(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 11600; seed < 11600 + OP_CASES(100); seed++) {
        op_chain chain = op_make_norm(seed);
        op_run *run = op_run_open(f->device, &chain, NULL);
        if (!run) {
            op_declined(f, &chain);
            skip();
        }
        op_inputs *in = op_inputs_create(&chain, seed), *next = op_inputs_create(&chain, seed + 9);
        for (int p = 0; p < 2; p++) /* both blocks have the same parameters */
            memcpy(next->param[0][p], in->param[0][p],
                   (size_t)chain.op[0].x.c * sizeof *in->param[0][p]);
        /* A block of one value contributes the running statistics, which both blocks share. */
        memcpy(next->running[0], in->running[0],
               2 * (size_t)chain.op[0].x.c * sizeof *in->running[0]);
        op_run_params(run, in);
        op_run_step(run, in, 0, 0);
        op_run_step(run, next, 0, LS_RUN_ACCUMULATE);
        op_result *got = op_run_read(run), *want = op_reference(&chain, in);
        op_result *more = op_reference(&chain, next);
        add_items(want, more);
        for (int i = 0; i < got->items; i++) /* y and dx belong to the second block alone */
            if (got->item[i].name[0] != 'g' && got->item[i].name[0] != 'c')
                got->item[i].name[0] = '-';
        op_expect_near(f->which->name, &chain, got, want, OP_TOLERANCE);
        op_result_destroy(got);
        op_result_destroy(want);
        op_result_destroy(more);
        op_inputs_destroy(in);
        op_inputs_destroy(next);
        op_run_close(run);
    }
}

/* A training step after an evaluation has the same bits as a training step without one. */
static void evaluation_leaves_no_trace(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 11800; seed < 11800 + OP_CASES(60); seed++) {
        op_chain chain = seed % 2 ? op_make_any_norm(seed) : op_make_dropout(seed);
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *once = op_once(f->device, &chain, in);
        op_run *run = once ? op_run_open(f->device, &chain, NULL) : NULL;
        if (run) {
            op_run_params(run, in);
            op_run_evaluate(run, in, 0, 0);
            op_run_step(run, in, 0, 0);
            op_result *again = op_run_read(run);
            op_expect_same(f->which->name, &chain, again, once);
            op_result_destroy(again);
        } else {
            op_declined(f, &chain);
        }
        op_run_close(run);
        op_result_destroy(once);
        op_inputs_destroy(in);
    }
}

/* The random numbers of ops depend only on the seed, the epoch and the dataset row. */
static void draws_change_with_seed_and_epoch(void **state)
{
    op_fixture *f = *state;
    for (uint64_t seed = 11900; seed < 11900 + 20; seed++) {
        op_draws d;
        op_chain chain = op_case(&d, seed);
        ls_tensor x = {LS_F32, 8, 3, 16, 16, NULL, 0};
        op_add_plain(&chain, seed % 2 ? LS_OP_DROPOUT : LS_OP_GATHER, &x);
        if (seed % 2)
            chain.op[0].u.dropout = (ls_dropout){0.5f, 0x1001};
        else
            chain.op[0].u.gather = (ls_gather){.std = {1, 1, 1, 1}, .crop = 4, .flip = 1};
        chain.needs_dx = (int)(seed % 2);
        op_inputs *in = op_inputs_create(&chain, seed);
        op_result *r[4];
        for (int k = 0; k < 4; k++) { /* first, again, with another epoch, with another seed */
            in->epoch += k == 2;
            in->seed += k == 3;
            r[k] = op_once(f->device, &chain, in);
        }
        if (r[0]) {
            size_t bytes = r[0]->item[0].n * sizeof(float);
            op_expect_same(f->which->name, &chain, r[1], r[0]);
            assert_memory_not_equal(r[2]->item[0].data, r[0]->item[0].data, bytes);
            assert_memory_not_equal(r[3]->item[0].data, r[0]->item[0].data, bytes);
            assert_memory_not_equal(r[3]->item[0].data, r[2]->item[0].data, bytes);
        } else {
            op_declined(f, &chain);
        }
        for (int k = 0; k < 4; k++)
            op_result_destroy(r[k]);
        op_inputs_destroy(in);
    }
}

/* A loss without weights is refused by bind or by the first forward. */
static void a_weighted_loss_without_weights_is_refused(void **state)
{
    op_fixture *f = *state;
    const ls_device_ops *ops = f->device->ops;
    static const char zeros[4096];
    ls_op_desc d = {.size = sizeof d, .kind = LS_OP_SOFTMAX_XENT, .training = 1, .needs_dx = 1};
    d.x = (ls_tensor){LS_F32, 2, 4, 1, 1, NULL, 2 * 4 * sizeof(float)};
    d.u.softmax_xent.weighted = 1;
    void *memory;
    ls_op *op;
    ls_error err = {0};
    assert_int_equal(ops->op_create(&op, f->device, &d, &err), LS_OK);
    assert_int_equal(ops->alloc(&memory, f->device, sizeof zeros, &err), LS_OK);
    assert_int_equal(ops->upload(f->device, NULL, memory, zeros, sizeof zeros, &err), LS_OK);
    const ls_op_buffers b = {.x = memory,
                             .dx = memory,
                             .labels = memory,
                             .stats = memory,
                             .saved = memory,
                             .scratch = memory};
    int status = op->impl->bind(op, &b, &err);
    if (status == LS_OK)
        status = op->impl->forward(op, NULL, 0, &err);
    assert_int_equal(status, LS_EINVAL);
    assert_non_null(strstr(err.text, "class_weight"));
    op->impl->destroy(op);
    ops->free(f->device, memory);
}

/* Checks that `d` is refused with each second input that does not fit. */
static void expect_refused(op_fixture *f, const ls_op_desc *d)
{
    static const int others_layout;
    const ls_tensor t = d->x;
    const ls_tensor bad[] = {
        {LS_F32, 0, 0, 0, 0, NULL, 0},
        {LS_F32, t.rows - 1, t.c, t.h, t.w, NULL, 0},
        {LS_F32, t.rows, t.c, t.h + 1, t.w, NULL, 0},
        {LS_F32, t.rows, t.c, t.h, t.w - 1, NULL, 0},
        {LS_F32, t.rows, 0, t.h, t.w, NULL, 0},
        {LS_F32, t.rows, -t.c, t.h, t.w, NULL, 0},
        {LS_F32, t.rows, INT_MAX, t.h, t.w, NULL, 0},
        {LS_U8, t.rows, t.c, t.h, t.w, NULL, 0},
        {LS_F32, t.rows, t.c, t.h, t.w, (const void *)&others_layout, 0},
        {LS_F32, t.rows, t.c + 1, t.h, t.w, NULL, 0}, /* fits concat */
    };
    const size_t count = sizeof bad / sizeof *bad - (d->kind == LS_OP_CONCAT);
    for (size_t k = 0; k < count; k++) {
        ls_op_desc with = *d;
        ls_op *op = NULL;
        ls_error err = {0};
        with.x2 = bad[k];
        int status = f->device->ops->op_create(&op, f->device, &with, &err);
        if ((status != LS_EINVAL && status != LS_EUNSUPPORTED) || op || !err.text[0])
            fail_msg("%s: %s takes second input %zu: %d, \"%s\"", f->which->name,
                     op_kind_name((int)d->kind), k, status, err.text);
    }
}

static void second_inputs_that_do_not_fit_are_refused(void **state)
{
    static const ls_op_kind kinds[] = {LS_OP_ADD, LS_OP_CONCAT, LS_OP_MULTIPLY, LS_OP_BATCHNORM};
    op_fixture *f = *state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ls_op_desc d = {.size = sizeof d, .kind = kinds[k], .training = 1, .needs_dx = 1};
        ls_op *op;
        ls_error err = {0};
        d.x = d.x2 = (ls_tensor){LS_F32, 3, 4, 5, 6, NULL, 3 * 4 * 5 * 6 * sizeof(float)};
        d.fuse_add = kinds[k] == LS_OP_BATCHNORM;
        if (d.fuse_add)
            d.u.batchnorm.epsilon = 1e-5f;
        int status = f->device->ops->op_create(&op, f->device, &d, &err);
        if (status == LS_OK)
            op->impl->destroy(op);
        else if (status != LS_EUNSUPPORTED || !d.fuse_add)
            fail_msg("%s: %s", f->which->name, err.text);
        expect_refused(f, &d);
    }
}

/* An activation function far from 0, for x below 0 and above 0. If a slope is 0, the function has
 * the constant value `below` or `above` there. Otherwise its value is the slope times x. The slope
 * is also the derivative. */
typedef struct far_curve {
    ls_op_kind kind;
    float below, below_slope, above, above_slope;
} far_curve;

static void expect_far(const op_fixture *f, const far_curve *c, const op_inputs *in,
                       const op_result *got)
{
    const op_item *y = op_result_item(got, "y"), *dx = op_result_item(got, "dx");
    for (size_t i = 0; i < y->n; i++) {
        const float x = in->x[i], slope = x > 0 ? c->above_slope : c->below_slope;
        const float flat = x > 0 ? c->above : c->below, want = slope != 0 ? slope * x : flat;
        if (!(y->data[i] == want && dx->data[i] == slope * in->dy[i]))
            fail_msg("%s: %s of %g is %g, not %g, and its gradient %g, not %g", f->which->name,
                     op_kind_name((int)c->kind), (double)x, (double)y->data[i], (double)want,
                     (double)dx->data[i], (double)(slope * in->dy[i]));
    }
}

static void curves_have_their_limits_far_from_zero_and_at_infinity(void **state)
{
    static const far_curve curves[] = {
        {LS_OP_RELU, 0, 0, 0, 1},         {LS_OP_RELU, 0, 0.25f, 0, 1},
        {LS_OP_SIGMOID, 0, 0, 1, 0},      {LS_OP_TANH, -1, 0, 1, 0},
        {LS_OP_GELU, 0, 0, 0, 1},         {LS_OP_SILU, 0, 0, 0, 1},
        {LS_OP_CLAMP, 0, 0, 6, 0},        {LS_OP_GELU_TANH, 0, 0, 0, 1},
        {LS_OP_HARD_SIGMOID, 0, 0, 1, 0}, {LS_OP_HARD_SWISH, 0, 0, 0, 1},
    };
    static const float far[] = {110, 1e4f, 1.5e19f, 2e19f, 1e30f, FLT_MAX, INFINITY};
    enum { FAR = sizeof far / sizeof *far };
    op_fixture *f = *state;
    for (size_t k = 0; k < sizeof curves / sizeof *curves; k++) {
        op_draws d;
        op_chain chain = op_case(&d, 12000 + k);
        ls_tensor x = {LS_F32, 17, 2 * FAR, 1, 1, NULL, 0};
        op_add_plain(&chain, curves[k].kind, &x);
        if (curves[k].kind == LS_OP_RELU)
            chain.op[0].u.relu.slope = curves[k].below_slope;
        if (curves[k].kind == LS_OP_HARD_SIGMOID)
            chain.op[0].u.hard_sigmoid = (ls_hard_sigmoid){0.2f, 0.5f};
        if (curves[k].kind == LS_OP_CLAMP)
            chain.op[0].u.clamp = (ls_clamp){0, 6};
        op_inputs *in = op_inputs_create(&chain, 12000 + k);
        for (size_t i = 0; i < 17 * 2 * FAR; i++)
            in->x[i] = i % 2 ? -far[i / 2 % FAR] : far[i / 2 % FAR];
        op_result *got = op_once(f->device, &chain, in);
        if (got)
            expect_far(f, &curves[k], in, got);
        else
            op_declined(f, &chain);
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

/* Values at and beside the kinks, and the outputs and derivatives that PyTorch has there. */
typedef struct kink {
    ls_op_kind kind;
    float slope, x, y, derivative;
} kink;

static void hard_curves_have_pytorchs_derivatives_at_their_kinks(void **state)
{
    static const kink kinks[] = {
        {LS_OP_CLAMP, 0, 0, 0, 0},
        {LS_OP_CLAMP, 0, 1e-30f, 1e-30f, 1},
        {LS_OP_CLAMP, 0, 6, 6, 0},
        {LS_OP_CLAMP, 0, 5.9999995f, 5.9999995f, 1},
        {LS_OP_HARD_SIGMOID, 1.0f / 6, -3, 0, 0},
        {LS_OP_HARD_SIGMOID, 1.0f / 6, 3, 1, 0},
        {LS_OP_HARD_SIGMOID, 0.25f, -2, 0, 0},
        {LS_OP_HARD_SIGMOID, 0.25f, 2, 1, 0},
        {LS_OP_HARD_SIGMOID, 0.25f, -1.9990234375f, 0.000244140625f, 0.25f},
        {LS_OP_HARD_SIGMOID, 0.25f, 1.9990234375f, 0.999755859375f, 0.25f},
        {LS_OP_HARD_SWISH, 0, -3, 0, 0},
        {LS_OP_HARD_SWISH, 0, 0, 0, 0.5f},
        {LS_OP_HARD_SWISH, 0, 3, 3, 1},
    };
    op_fixture *f = *state;
    for (size_t k = 0; k < sizeof kinks / sizeof *kinks; k++) {
        const kink *at = &kinks[k];
        op_draws d;
        op_chain chain = op_case(&d, 12600 + k);
        ls_tensor x = {LS_F32, 17, 3, 1, 1, NULL, 0};
        op_add_plain(&chain, at->kind, &x);
        if (at->kind == LS_OP_HARD_SIGMOID)
            chain.op[0].u.hard_sigmoid = (ls_hard_sigmoid){at->slope, 0.5f};
        if (at->kind == LS_OP_CLAMP)
            chain.op[0].u.clamp = (ls_clamp){0, 6};
        op_inputs *in = op_inputs_create(&chain, 12600 + k);
        for (size_t i = 0; i < (size_t)17 * 3; i++)
            in->x[i] = at->x;
        op_result *got = op_once(f->device, &chain, in);
        if (!got)
            op_declined(f, &chain);
        for (size_t i = 0; got && i < (size_t)17 * 3; i++) {
            assert_true(op_result_item(got, "y")->data[i] == at->y);
            assert_true(op_result_item(got, "dx")->data[i] == at->derivative * in->dy[i]);
        }
        op_result_destroy(got);
        op_inputs_destroy(in);
    }
}

/* dx is inversely proportional to x. Multiplies dx by `size`, so that the comparison has numbers of
 * size one. */
static void of_size_one(op_result *r, float size)
{
    const op_item *dx = r ? op_result_item(r, "dx") : NULL;
    for (size_t i = 0; dx && i < dx->n; i++)
        dx->data[i] *= size;
}

/* The squares of the values exceed the range of float. A back end can nevertheless normalise such
 * values, because it does not store the variance of a row. (The back end `ref` cannot: it sums in
 * floats.) */
static void layer_norm_takes_values_of_any_size(void **state)
{
    static const float sizes[] = {1e18f, 1e19f, 3e19f, 1e25f, 1e35f};
    op_fixture *f = *state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && strcmp(f->which->name, "ref") != 0; k++)
        for (uint64_t seed = 24100; seed < 24112; seed++) {
            op_chain chain = op_make_layer_norm(seed);
            if (chain.count > 1) /* a convolution before the op has a range of its own */
                continue;
            chain.spread = sizes[k];
            op_inputs *in = op_inputs_create(&chain, seed);
            op_result *got = op_once(f->device, &chain, in), *want = op_reference(&chain, in);
            of_size_one(got, sizes[k]);
            of_size_one(want, sizes[k]);
            if (got)
                op_expect_near(f->which->name, &chain, got, want, OP_TOLERANCE);
            else
                op_declined(f, &chain);
            op_result_destroy(got);
            op_result_destroy(want);
            op_inputs_destroy(in);
        }
}

/* If the variance exceeds the range of float, y is the bias and dx is 0. The back ends that sum in
 * double can represent the variance: the reference, and the plain-C twins of the CUDA back end's
 * kernels. For these back ends the test only checks that no result is NaN. */
static void batch_norm_of_what_no_variance_holds_gives_the_bias(void **state)
{
    op_fixture *f = *state;
    op_chain chain = op_make_norm(20001);
    chain.spread = 1e22f;
    chain.offset = 0;
    op_inputs *in = op_inputs_create(&chain, 20001);
    op_result *got = op_once(f->device, &chain, in);
    const op_item *y = op_result_item(got, "y"), *dx = op_result_item(got, "dx");
    const ls_tensor *x = &chain.op[0].x;
    const size_t pixels = (size_t)(x->h * x->w), channels = (size_t)x->c;
    const int exact = strcmp(f->which->name, "cpu") == 0 || strcmp(f->which->name, "ref") == 0;
    assert_true((size_t)x->rows * pixels > 1);
    for (size_t i = 0; i < y->n; i++) {
        assert_true(isfinite(y->data[i]) && isfinite(dx->data[i]));
        assert_true(!exact || y->data[i] == in->param[0][1][i / pixels % channels]);
        assert_true(!exact || dx->data[i] == 0);
    }
    op_result_destroy(got);
    op_inputs_destroy(in);
}

static op_chain either(uint64_t seed)
{
    if (seed % 2)
        return op_make_any(seed / 2);
    return seed % 4 ? op_make_rowwise(seed / 4) : op_make_any_norm(seed / 4);
}

static op_chain make_without_dx(uint64_t seed)
{
    op_chain chain = either(seed);
    chain.needs_dx = 0;
    return chain;
}

static op_chain make_inference(uint64_t seed)
{
    op_chain chain = either(seed);
    chain.training = chain.needs_dx = 0;
    return chain;
}

static void gradients_do_not_need_dx(void **state)
{
    op_all_agree(state, make_without_dx, 24000, 200);
}

static void inference_needs_no_gradients(void **state)
{
    op_all_agree(state, make_inference, 26000, 200);
}

LS_TESTS(op_calls, "integration no-tsan")
{
    static const op_test tests[] = {
        OP_TEST(same_rows_give_the_same_bits),
        OP_TEST(blocks_of_twins_add_up_to_the_whole),
        OP_TEST(batchnorm_accumulates),
        OP_TEST(evaluation_leaves_no_trace),
        OP_TEST(draws_change_with_seed_and_epoch),
        OP_TEST(a_weighted_loss_without_weights_is_refused),
        OP_TEST(second_inputs_that_do_not_fit_are_refused),
        OP_TEST(layer_norm_takes_values_of_any_size),
        OP_TEST(batch_norm_of_what_no_variance_holds_gives_the_bias),
        OP_TEST(curves_have_their_limits_far_from_zero_and_at_infinity),
        OP_TEST(hard_curves_have_pytorchs_derivatives_at_their_kinks),
        OP_COMPARED(gradients_do_not_need_dx),
        OP_COMPARED(inference_needs_no_gradients),
    };
    return op_run_groups(tests, (int)(sizeof tests / sizeof tests[0]), argc, argv);
}
