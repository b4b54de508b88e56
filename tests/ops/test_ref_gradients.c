/* SPDX-License-Identifier: MIT */
/* Tests the reference back end, with which all other back ends are compared. Its forward pass is
 * compared with the definitions of the ops, and its gradients with central differences of these
 * definitions, in double. */
#include "ops/definitions.h"
#include "ops/op_cases.h"
#include "ops/op_chain.h"
#include "ref/ref.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Half the distance between the two points of a central difference. It is so small that both points
 * are on the same side of a *kink*, a jump of the derivative (see keep_off_kinks). */
#define STEP (1.0 / 65536)
#define MOST 20000 /* largest number of values of an array */

typedef struct problem {
    const op_chain *chain;
    const op_inputs *in;
    double x[MOST], x2[MOST], param[2][MOST], dy[MOST], y[2][MOST];
    size_t n_x, n_x2, n_param[2], n_y;
} problem;

static void widen(double *out, size_t *n, const float *in, size_t count)
{
    assert_true(count <= MOST);
    *n = count;
    for (size_t i = 0; i < count; i++)
        out[i] = (double)in[i];
}

static size_t evaluate(problem *p, double *y)
{
    definition_inputs in = {.x = p->x,
                            .x2 = p->x2,
                            .weight = p->param[0],
                            .bias = p->n_param[1] ? p->param[1] : NULL,
                            .labels = p->in->labels,
                            .row_weights = p->chain->row_weights,
                            .rows = p->in->rows,
                            .seed = p->in->seed,
                            .epoch = p->in->epoch};
    return define(y, &p->chain->op[0], &in);
}

/* Returns the derivative of Σ dy·y by *at. */
static double slope(problem *p, double *at)
{
    double old = *at, sum = 0;
    *at = old + STEP;
    evaluate(p, p->y[0]);
    *at = old - STEP;
    evaluate(p, p->y[1]);
    *at = old;
    for (size_t i = 0; i < p->n_y; i++)
        sum += p->dy[i] * (p->y[0][i] - p->y[1][i]);
    return sum / (2 * STEP);
}

static void expect_values(const problem *p, const char *name, const op_item *got, size_t n,
                          const double *want, double tolerance)
{
    assert_non_null(got);
    assert_int_equal(got->n, n);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got->data[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("%s\n    %s[%zu] is %.9g, its definition gives %.9g", op_chain_text(p->chain),
                     name, i, (double)got->data[i], want[i]);
}

/* Checks the derivatives of a few dozen elements of an array, or of all elements of a small
 * array. */
static void expect_slopes(problem *p, const char *name, const op_item *got, double *values,
                          size_t n)
{
    size_t stride = n / 40 + 1;
    assert_non_null(got);
    assert_int_equal(got->n, n);
    for (size_t i = p->chain->seed % stride; i < n; i += stride) {
        double want = slope(p, &values[i]);
        if (!(fabs((double)got->data[i] - want) <= 1e-5 * (1 + fabs(want))))
            fail_msg("%s\n    %s[%zu] is %.9g, differences give %.9g", op_chain_text(p->chain),
                     name, i, (double)got->data[i], want);
    }
}

/* Sets x so that no value is near a kink, which all lie at multiples of 1/64, and no two values are
 * near each other, for relus, pools and hard curves. */
static void keep_off_kinks(const op_chain *chain, op_inputs *in)
{
    size_t n = (size_t)chain->op[0].x.rows * in->x_row;
    const ls_op_kind kind = chain->op[0].kind;
    if (kind != LS_OP_RELU && kind != LS_OP_POOL && kind != LS_OP_CLAMP &&
        kind != LS_OP_HARD_SIGMOID && kind != LS_OP_HARD_SWISH)
        return;
    for (size_t i = 0; i < n; i++) /* 7919 is prime, so that every value occurs once */
        in->x[i] = ((float)(i * 7919 % n) - (float)(n / 2) + 0.25f) / 64;
}

/* Checks the number of rows whose outputs all have the right sign. */
static void expect_right_bits(const problem *p, const op_result *r)
{
    const ls_op_desc *d = &p->chain->op[0];
    const float *target = (const float *)(const void *)p->in->labels;
    int correct = 0;
    for (int n = 0; n < d->x.rows && d->u.vector_loss.rule == LS_VECTOR_BCE; n++) {
        int wrong = 0;
        for (int i = n * d->x.c; i < (n + 1) * d->x.c; i++)
            wrong += (p->x[i] > 0) != (target[i] == 1);
        correct += wrong == 0;
    }
    assert_int_equal((int)r->stats[1], correct);
}

/* Checks the number of rows whose label has the largest logit. */
static void expect_correct(const problem *p, const op_result *r)
{
    const ls_tensor *x = &p->chain->op[0].x;
    int classes = x->c * x->h * x->w, correct = 0;
    for (int n = 0; n < x->rows; n++) {
        const double *row = p->x + n * classes;
        int larger = 0;
        for (int i = 0; i < classes; i++)
            larger += row[i] > row[p->in->labels[n]];
        correct += larger == 0;
    }
    if ((int)r->stats[1] != correct)
        fail_msg("%s\n    %g correct, not %d", op_chain_text(p->chain), (double)r->stats[1],
                 correct);
}

static void check_case(const ls_backend *backend, const op_chain *chain)
{
    problem *p = calloc(1, sizeof *p);
    op_inputs *in = op_inputs_create(chain, chain->seed);
    const ls_op_desc *d = &chain->op[0];
    size_t rows = (size_t)d->x.rows;
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    assert_non_null(p);
    keep_off_kinks(chain, in);
    assert_int_equal(backend->open(&ref, &request, NULL), LS_OK);
    op_result *r = op_once(ref, chain, in);
    int loss = d->kind == LS_OP_SOFTMAX_XENT || d->kind == LS_OP_VECTOR_LOSS;
    p->chain = chain;
    p->in = in;
    widen(p->x, &p->n_x, in->x, rows * in->x_row);
    widen(p->x2, &p->n_x2, in->x2, rows * in->x2_row);
    for (int k = 0; k < 2; k++) {
        const op_item *g = op_result_item(r, k ? "grad0.1" : "grad0.0");
        widen(p->param[k], &p->n_param[k], in->param[0][k], g ? g->n : 0);
    }
    p->n_y = evaluate(p, p->y[0]);
    if (loss)
        p->dy[0] = 1;
    else
        widen(p->dy, &p->n_y, in->dy, rows * in->dy_row);
    op_item stats = {.data = r->stats, .n = 1};
    expect_values(p, "y", loss ? &stats : op_result_item(r, "y"), p->n_y, p->y[0], 2e-6);
    if (d->kind == LS_OP_VECTOR_LOSS)
        expect_right_bits(p, r);
    else if (loss)
        expect_correct(p, r);
    expect_slopes(p, "dx", op_result_item(r, "dx"), p->x, p->n_x);
    if (p->n_x2)
        expect_slopes(p, "dx2", op_result_item(r, "dx2"), p->x2, p->n_x2);
    if (d->kind == LS_OP_BATCHNORM) {
        define_contribution(p->y[0], d, p->x, in->running[0]);
        expect_values(p, "contribution", op_result_item(r, "contribution0"), 2 * (size_t)d->x.c,
                      p->y[0], 2e-6);
    }
    for (int k = 0; k < 2; k++)
        if (p->n_param[k])
            expect_slopes(p, k ? "bias" : "weight", op_result_item(r, k ? "grad0.1" : "grad0.0"),
                          p->param[k], p->n_param[k]);
    ref->ops->close(ref);
    op_result_destroy(r);
    op_inputs_destroy(in);
    free(p);
}

/* Makes about every second convolution dilated, and about every third one grouped. */
static void chop(op_chain *chain, op_draws *d)
{
    ls_conv2d *v = &chain->op[0].u.conv2d;
    ls_tensor *x = &chain->op[0].x;
    const int groups = op_draw(d, 2, 3);
    if (chain->seed % 2) {
        v->dh = op_draw(d, 1, 1 + (v->kh == 1 || x->h + 2 * v->ph > 2 * (v->kh - 1)));
        v->dw = op_draw(d, 1, 1 + (v->kw == 1 || x->w + 2 * v->pw > 2 * (v->kw - 1)));
    }
    if (chain->seed % 3 == 0) {
        x->c *= groups;
        v->out *= groups;
        v->groups = groups;
    }
}

/* Draws small shapes, because each difference takes two evaluations of the whole op. */
static op_chain small_case(ls_op_kind kind, uint64_t seed)
{
    op_draws d;
    op_chain chain = op_case(&d, seed);
    ls_tensor x = op_image(&d, 3, 4, 8);
    if (kind == LS_OP_CONV2D) {
        op_add_conv(&chain, &d, &x);
        chain.op[0].u.conv2d.out = 1 + chain.op[0].u.conv2d.out % 4;
        chop(&chain, &d);
    } else if (kind == LS_OP_DENSE) {
        op_add_dense(&chain, &d, &x);
        chain.op[0].u.dense.out = 1 + chain.op[0].u.dense.out % 8;
    } else if (kind == LS_OP_POOL) {
        op_add_pool(&chain, &d, &x, (int)(seed % 2));
    } else if (kind == LS_OP_SOFTMAX_XENT) {
        x.c += 1;
        op_add_plain(&chain, kind, &x);
        chain.op[0].u.softmax_xent.smoothing = seed % 2 ? (float)op_draw(&d, 1, 20) / 20 : 0;
        chain.op[0].u.softmax_xent.weighted = seed % 3 == 1;
        chain.spread = 2;
    } else if (kind == LS_OP_VECTOR_LOSS) {
        x.c = x.c * x.h * x.w;
        x.h = x.w = 1;
        op_add_vector_loss(&chain, &d, x, seed);
        chain.spread = 2;
    } else {
        op_add_plain(&chain, kind, &x);
    }
    if (kind == LS_OP_BATCHNORM) {
        chain.op[0].u.batchnorm.epsilon = 0.2f;
        chain.op[0].fuse_add = seed % 3 == 1;
        chain.op[0].fuse_relu = chain.off_kinks = seed % 2 == 1;
    }
    if (kind == LS_OP_ADD)
        chain.op[0].fuse_relu = chain.off_kinks = seed % 2 == 1;
    if (kind == LS_OP_RELU && seed % 2)
        chain.op[0].u.relu.slope = (float)op_draw(&d, 1, 20) / 20;
    if (kind == LS_OP_HARD_SIGMOID)
        chain.op[0].u.hard_sigmoid = (ls_hard_sigmoid){seed % 2 ? 0.25f : 1.0f / 6, 0.5f};
    if (kind == LS_OP_CLAMP)
        chain.op[0].u.clamp = (ls_clamp){seed % 2 ? -0.5f : 0, seed % 3 ? 0.25f : INFINITY};
    if (kind == LS_OP_AFFINE)
        chain.op[0].u.affine = (ls_affine){-0.75f, 0.25f};
    if (kind == LS_OP_LAYERNORM)
        chain.op[0].u.layernorm.epsilon = 0.2f;
    if (kind == LS_OP_UPSAMPLE)
        chain.op[0].u.upsample = (ls_upsample){op_draw(&d, 1, 3), op_draw(&d, 1, 3)};
    if (kind == LS_OP_PAD)
        chain.op[0].u.pad = op_draw_pad(&d);
    if (kind == LS_OP_DROPOUT)
        chain.op[0].u.dropout = (ls_dropout){(float)op_draw(&d, 0, 19) / 20, 0x1001};
    if (op_has_x2(&chain.op[0])) {
        chain.source2[0] = OP_SECOND;
        chain.x2 = x;
        if (kind == LS_OP_CONCAT)
            chain.x2.c = op_draw(&d, 1, 5);
        if (kind == LS_OP_MULTIPLY && seed % 2)
            chain.x2.h = chain.x2.w = 1;
        chain.op[0].x2 = chain.x2;
    }
    return chain;
}

static void each_case(ls_op_kind kind, uint64_t seed)
{
    for (uint64_t k = seed; k < seed + 200; k++) {
        op_chain chain = small_case(kind, k);
        check_case(ls_ref_backend(), &chain);
        check_case(ls_ref64_backend(), &chain);
    }
}

static void conv2d_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_CONV2D, 100);
}

static void dense_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_DENSE, 200);
}

static void pool_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_POOL, 300);
}

static void relu_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_RELU, 400);
}

static void softmax_xent_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_SOFTMAX_XENT, 500);
}

static void vector_losses_follow_their_definition(void **state)
{
    (void)state;
    each_case(LS_OP_VECTOR_LOSS, 1700);
}

static void export_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_EXPORT, 600);
}

static void batchnorm_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_BATCHNORM, 700);
}

static void add_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_ADD, 800);
}

static void sigmoid_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_SIGMOID, 900);
}

static void tanh_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_TANH, 1000);
}

static void gelu_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_GELU, 1900);
}

static void gelu_with_tanh_and_affine_follow_their_definitions(void **state)
{
    (void)state;
    each_case(LS_OP_GELU_TANH, 4000);
    each_case(LS_OP_AFFINE, 4300);
}

static void silu_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_SILU, 2100);
}

static void multiply_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_MULTIPLY, 4000);
}

static void hard_curves_follow_their_definitions(void **state)
{
    (void)state;
    each_case(LS_OP_CLAMP, 3100);
    each_case(LS_OP_HARD_SIGMOID, 3400);
    each_case(LS_OP_HARD_SWISH, 3700);
}

static void layer_norm_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_LAYERNORM, 2300);
}

static void upsample_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_UPSAMPLE, 2500);
}

static void pad_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_PAD, 2600);
}

static void concat_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_CONCAT, 2700);
}

static void dropout_follows_its_definition(void **state)
{
    (void)state;
    each_case(LS_OP_DROPOUT, 1100);
}

/* At the kink of a fused relu, differences are meaningless. Therefore the test checks the relu's
 * mask with a known gradient: with identity weights, the output of a dense op is its input. */
static void fused_relu_masks_dy(void **state)
{
    (void)state;
    float x[4] = {-1, 0, 2, 1e-30f}, one[1] = {1}, zero[1] = {0}, dy[4] = {5, 6, 7, 8};
    float y[4], dx[4], grad[2];
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_op *op = NULL;
    ls_op_desc desc = {.size = sizeof desc,
                       .kind = LS_OP_DENSE,
                       .x = {LS_F32, 4, 1, 1, 1, NULL, 16},
                       .training = 1,
                       .needs_dx = 1,
                       .fuse_relu = 1,
                       .u.dense = {1, 1}};
    assert_int_equal(ls_ref_backend()->open(&ref, &request, NULL), LS_OK);
    assert_int_equal(ref->ops->op_create(&op, ref, &desc, NULL), LS_OK);
    void *scratch = calloc(1, op->scratch_bytes);
    ls_op_buffers b = {.x = x,
                       .y = y,
                       .dy = dy,
                       .dx = dx,
                       .param = {one, zero},
                       .grad = {grad, grad + 1},
                       .scratch = scratch};
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_OK);
    assert_int_equal(op->impl->backward(op, NULL, 0, NULL), LS_OK);
    assert_memory_equal(y, ((float[4]){0, 0, 2, 1e-30f}), sizeof y);
    assert_memory_equal(dx, ((float[4]){0, 0, 7, 8}), sizeof dx);
    assert_memory_equal(grad, ((float[2]){14, 15}), sizeof grad);
    op->impl->destroy(op);
    ref->ops->close(ref);
    free(scratch);
}

/* The gradient goes to the first of four equal values. */
static void max_pool_sends_dy_to_the_first_of_equals(void **state)
{
    (void)state;
    float x[4] = {3, 3, 3, 3}, dy[1] = {5}, y[1], dx[4];
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_op *op = NULL;
    ls_op_desc desc = {.size = sizeof desc,
                       .kind = LS_OP_POOL,
                       .x = {LS_F32, 1, 1, 2, 2, NULL, 16},
                       .training = 1,
                       .needs_dx = 1,
                       .pool = {.max = 1, .kh = 2, .kw = 2, .sh = 1, .sw = 1}};
    assert_int_equal(ls_ref_backend()->open(&ref, &request, NULL), LS_OK);
    assert_int_equal(ref->ops->op_create(&op, ref, &desc, NULL), LS_OK);
    void *scratch = calloc(1, op->scratch_bytes), *saved = calloc(1, op->saved_bytes);
    ls_op_buffers b = {.x = x, .y = y, .dy = dy, .dx = dx, .saved = saved, .scratch = scratch};
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_OK);
    assert_int_equal(op->impl->backward(op, NULL, 0, NULL), LS_OK);
    assert_memory_equal(dx, ((float[4]){5, 0, 0, 0}), sizeof dx);
    op->impl->destroy(op);
    ref->ops->close(ref);
    free(scratch);
    free(saved);
}

LS_TESTS(ref_gradients, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv2d_follows_its_definition),
        cmocka_unit_test(dense_follows_its_definition),
        cmocka_unit_test(pool_follows_its_definition),
        cmocka_unit_test(relu_follows_its_definition),
        cmocka_unit_test(softmax_xent_follows_its_definition),
        cmocka_unit_test(vector_losses_follow_their_definition),
        cmocka_unit_test(export_follows_its_definition),
        cmocka_unit_test(batchnorm_follows_its_definition),
        cmocka_unit_test(add_follows_its_definition),
        cmocka_unit_test(sigmoid_follows_its_definition),
        cmocka_unit_test(tanh_follows_its_definition),
        cmocka_unit_test(gelu_follows_its_definition),
        cmocka_unit_test(gelu_with_tanh_and_affine_follow_their_definitions),
        cmocka_unit_test(silu_follows_its_definition),
        cmocka_unit_test(multiply_follows_its_definition),
        cmocka_unit_test(hard_curves_follow_their_definitions),
        cmocka_unit_test(layer_norm_follows_its_definition),
        cmocka_unit_test(upsample_follows_its_definition),
        cmocka_unit_test(pad_follows_its_definition),
        cmocka_unit_test(concat_follows_its_definition),
        cmocka_unit_test(dropout_follows_its_definition),
        cmocka_unit_test(fused_relu_masks_dy),
        cmocka_unit_test(max_pool_sends_dy_to_the_first_of_equals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
