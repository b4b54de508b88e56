/* SPDX-License-Identifier: MIT */
/* Tests which requests the reference back end refuses, and its messages. */
#include "ops/op_chain.h"
#include "ref/ref.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ls_device *open_ref(void)
{
    ls_device *ref = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    assert_int_equal(ls_ref_backend()->open(&ref, &request, NULL), LS_OK);
    return ref;
}

static ls_op_desc image_op(ls_op_kind kind)
{
    ls_op_desc d = {.size = sizeof d, .kind = kind, .training = 1, .needs_dx = 1, .count = 16};
    d.x = (ls_tensor){kind == LS_OP_GATHER ? LS_U8 : LS_F32, 2, 3, 4, 4, NULL, 0};
    d.pool = (ls_pool2d){.max = 1, .kh = 2, .kw = 2, .sh = 2, .sw = 2};
    if (kind == LS_OP_CONV2D)
        d.u.conv2d = (ls_conv2d){2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
    if (kind == LS_OP_DENSE)
        d.u.dense = (ls_dense){5, 1};
    if (kind == LS_OP_SGD)
        d.u.sgd = (ls_sgd){.momentum = 0.9f};
    if (kind == LS_OP_ADAMW)
        d.u.adamw = (ls_adamw){.beta1 = 0.9f, .beta2 = 0.99f};
    if (kind == LS_OP_RUNNING)
        d.u.running = (ls_running){.momentum = 0.1f};
    if (kind == LS_OP_ADD || kind == LS_OP_CONCAT || kind == LS_OP_MULTIPLY)
        d.x2 = d.x;
    if (kind == LS_OP_LAYERNORM)
        d.u.layernorm.epsilon = 1e-3f;
    if (kind == LS_OP_UPSAMPLE)
        d.u.upsample = (ls_upsample){2, 2};
    if (kind == LS_OP_CLAMP)
        d.u.clamp = (ls_clamp){0, 6};
    if (kind == LS_OP_AFFINE)
        d.u.affine = (ls_affine){2, 1};
    if (kind == LS_OP_PAD)
        d.u.pad = (ls_pad){0, 1, 2, 3};
    if (kind == LS_OP_GATHER)
        d.training = d.needs_dx = 0;
    return d;
}

/* The pointers of ls_op_buffers that this test leaves out, one at a time. */
#define POINTER(field)                                                                             \
    {                                                                                              \
#field, offsetof(ls_op_buffers, field)                                                     \
    }
static const struct {
    const char *name;
    size_t offset;
} pointers[] = {
    POINTER(args),       POINTER(x),        POINTER(y),
    POINTER(dy),         POINTER(dx),       POINTER(param[0]),
    POINTER(grad[0]),    POINTER(labels),   POINTER(slot[0]),
    POINTER(x2),         POINTER(param[1]), POINTER(grad[1]),
    POINTER(labels_out), POINTER(slot[1]),  POINTER(dx2),
    POINTER(stats),      POINTER(running),  POINTER(contribution),
    POINTER(saved),      POINTER(scratch),
};

static int bind_without(ls_op *op, size_t i, ls_error *err)
{
    static float f[4096];
    static int32_t u[4096];
    static ls_step_args args;
    void *none = NULL;
    ls_op_buffers b = {.args = &args,
                       .x = f,
                       .x2 = f,
                       .y = f,
                       .dy = f,
                       .dx = f,
                       .dx2 = f,
                       .param = {f, f},
                       .grad = {f, f},
                       .slot = {f, f},
                       .labels = u,
                       .labels_out = u,
                       .stats = f,
                       .running = f,
                       .contribution = f,
                       .saved = f,
                       .scratch = f};
    memcpy((char *)&b + pointers[i].offset, &none, sizeof none);
    return op->impl->bind(op, &b, err);
}

/* Binds with one pointer missing, for each pointer in turn. If the op needs the pointer, bind
 * must fail with the pointer's name in the message. If the op does not need it, bind must succeed.
 */
static void expect_desc_needs(const ls_op_desc *d, const char *const *needed)
{
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    assert_int_equal(ref->ops->op_create(&op, ref, d, NULL), LS_OK);
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
        ls_error err = {0};
        char want[100];
        int must = 0;
        for (const char *const *n = needed; *n; n++)
            must = must || strcmp(*n, pointers[i].name) == 0;
        int rc = bind_without(op, i, &err);
        snprintf(want, sizeof want, "bind needs `%s`", pointers[i].name);
        if (rc != (must ? LS_EINVAL : LS_OK) || (must && !strstr(err.text, want)))
            fail_msg("op kind %d without %s: %s, \"%s\"", (int)d->kind, pointers[i].name,
                     ls_status_name(rc), err.text);
    }
    op->impl->destroy(op);
    ref->ops->close(ref);
}

static void expect_needs(ls_op_kind kind, const char *const *needed)
{
    ls_op_desc d = image_op(kind);
    expect_desc_needs(&d, needed);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NEEDS(kind, ...) expect_needs(kind, LIST(__VA_ARGS__))

static void bind_refuses_what_is_missing(void **state)
{
    (void)state;
    NEEDS(LS_OP_GATHER, "args", "x", "y", "labels", "labels_out");
    NEEDS(LS_OP_CONV2D, "x", "y", "dy", "dx", "param[0]", "param[1]", "grad[0]", "grad[1]",
          "scratch");
    NEEDS(LS_OP_DENSE, "x", "y", "dy", "dx", "param[0]", "param[1]", "grad[0]", "grad[1]",
          "scratch");
    NEEDS(LS_OP_POOL, "x", "y", "dy", "dx", "saved", "scratch");
    NEEDS(LS_OP_RELU, "x", "y", "dy", "dx");
    NEEDS(LS_OP_SOFTMAX_XENT, "x", "dx", "labels", "stats");
    NEEDS(LS_OP_SGD, "args", "param[0]", "grad[0]", "slot[0]");
    NEEDS(LS_OP_EXPORT, "x", "y", "dy", "dx");
    NEEDS(LS_OP_BATCHNORM, "x", "y", "dy", "dx", "param[0]", "param[1]", "grad[0]", "grad[1]",
          "contribution", "saved");
    NEEDS(LS_OP_ADD, "x", "x2", "y", "dy", "dx", "dx2");
    NEEDS(LS_OP_SIGMOID, "x", "y", "dy", "dx");
    NEEDS(LS_OP_TANH, "x", "y", "dy", "dx");
    NEEDS(LS_OP_LAYERNORM, "x", "y", "dy", "dx", "param[0]", "param[1]", "grad[0]", "grad[1]",
          "saved");
    NEEDS(LS_OP_UPSAMPLE, "x", "y", "dy", "dx");
    NEEDS(LS_OP_PAD, "x", "y", "dy", "dx");
    NEEDS(LS_OP_MULTIPLY, "x", "x2", "y", "dy", "dx", "dx2");
    NEEDS(LS_OP_CONCAT, "x", "x2", "y", "dy", "dx", "dx2");
    NEEDS(LS_OP_GELU, "x", "y", "dy", "dx");
    NEEDS(LS_OP_SILU, "x", "y", "dy", "dx");
    NEEDS(LS_OP_CLAMP, "x", "y", "dy", "dx");
    NEEDS(LS_OP_GELU_TANH, "x", "y", "dy", "dx");
    NEEDS(LS_OP_AFFINE, "x", "y", "dy", "dx");
    NEEDS(LS_OP_HARD_SIGMOID, "x", "y", "dy", "dx");
    NEEDS(LS_OP_HARD_SWISH, "x", "y", "dy", "dx");
    NEEDS(LS_OP_DROPOUT, "args", "x", "y", "dy", "dx", "saved");
    NEEDS(LS_OP_ADAMW, "args", "param[0]", "grad[0]", "slot[0]", "slot[1]");
    NEEDS(LS_OP_RUNNING, "args", "param[0]", "grad[0]");
}

static void batchnorm_needs_depend_on_its_use(void **state)
{
    (void)state;
    ls_op_desc d = image_op(LS_OP_BATCHNORM);
    d.fuse_add = 1;
    d.x2 = d.x;
    expect_desc_needs(&d, LIST("x", "x2", "y", "dy", "dx", "dx2", "param[0]", "param[1]", "grad[0]",
                               "grad[1]", "contribution", "saved"));
    d = image_op(LS_OP_BATCHNORM);
    d.training = d.needs_dx = 0;
    expect_desc_needs(&d, LIST("x", "y", "param[0]", "param[1]", "running"));
}

static void expect_refused(ls_device *ref, const ls_op_desc *d, int status)
{
    ls_op *op = NULL;
    ls_error err = {0};
    assert_int_equal(ref->ops->op_create(&op, ref, d, &err), status);
    assert_int_equal(err.status, status);
    assert_true(err.text[0] != 0);
    assert_null(op);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    ls_device *ref = open_ref();
    ls_op_desc d = image_op(LS_OP_CONV2D);
    d.u.conv2d.kh = 7; /* larger than the image of side 4, padded to 6 */
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.sw = 0;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.out = 0;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.dh = 3; /* a kernel of side 3 that spans 7 pixels */
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.dw = -1;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.groups = d.x.c + 1;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_DENSE);
    d.u.dense.out = -1;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_POOL);
    d.pool.ph = 2; /* some window consists of padding alone */
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_RELU);
    d.x.rows = 0;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_GATHER);
    d.x.dtype = LS_F32;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_ADD);
    d.x2.w = 5;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_BATCHNORM); /* no x2 */
    d.fuse_add = 1;
    expect_refused(ref, &d, LS_EINVAL);
    ref->ops->close(ref);
}

static void unknown_and_fused_forms_are_declined(void **state)
{
    (void)state;
    ls_device *ref = open_ref();
    ls_op_desc d = image_op(LS_OP_CONV2D);
    d.fuse_pool = 1;
    expect_refused(ref, &d, LS_EUNSUPPORTED);
    d.kind = (ls_op_kind)99;
    expect_refused(ref, &d, LS_EUNSUPPORTED);
    d = image_op(LS_OP_POOL);
    d.fuse_relu = 1;
    expect_refused(ref, &d, LS_EUNSUPPORTED);
    d = image_op(LS_OP_CONV2D);
    d.fuse_add = 1;
    expect_refused(ref, &d, LS_EUNSUPPORTED);
    ref->ops->close(ref);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const float no_smoothing[] = {-0.1f, 1.5f}, no_p[] = {-0.1f, 1};
    static const int no_crop[] = {-1, 9}; /* images of 4×4 */
    ls_device *ref = open_ref();
    for (int i = 0; i < 2; i++) {
        ls_op_desc d = image_op(LS_OP_GATHER);
        d.u.gather.crop = no_crop[i];
        expect_refused(ref, &d, LS_EINVAL);
        d = image_op(LS_OP_DROPOUT);
        d.u.dropout.p = no_p[i];
        expect_refused(ref, &d, LS_EINVAL);
        d = image_op(LS_OP_SOFTMAX_XENT);
        d.u.softmax_xent.smoothing = no_smoothing[i];
        expect_refused(ref, &d, LS_EINVAL);
    }
    ref->ops->close(ref);
}

/* The mean of one value is the value, and its variance is 0. */
static void batchnorm_of_one_value_is_its_bias(void **state)
{
    (void)state;
    ls_op_desc d = image_op(LS_OP_BATCHNORM);
    d.x.rows = d.x.h = d.x.w = 1;
    d.u.batchnorm.epsilon = 1e-5f;
    float x[3] = {1, -5, 1e6f}, y[3], dx[3], dy[3] = {1, 2, 3}, weight[3] = {2, 3, 4};
    float bias[3] = {7, 8, 9}, grad[6], contribution[6];
    double saved[6];
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    assert_int_equal(ref->ops->op_create(&op, ref, &d, NULL), LS_OK);
    assert_true(op->saved_bytes <= sizeof saved);
    ls_op_buffers b = {.x = x,
                       .y = y,
                       .dx = dx,
                       .dy = dy,
                       .param = {weight, bias},
                       .grad = {grad, grad + 3},
                       .contribution = contribution,
                       .saved = saved};
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_OK);
    assert_int_equal(op->impl->backward(op, NULL, 0, NULL), LS_OK);
    assert_memory_equal(y, bias, sizeof y);
    assert_memory_equal(dx, ((float[3]){0, 0, 0}), sizeof dx);
    assert_memory_equal(grad, ((float[6]){0, 0, 0, 1, 2, 3}), sizeof grad);
    assert_memory_equal(contribution, ((float[6]){1, -5, 1e6f, 0, 0, 0}), sizeof contribution);
    /* with this contribution the running statistics do not change */
    const float running[6] = {5, 6, 7, 0.5f, 1, 2};
    b.running = running;
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_OK);
    assert_memory_equal(contribution, running, sizeof contribution);
    assert_int_equal(op->impl->forward(op, NULL, LS_RUN_ACCUMULATE, NULL), LS_OK);
    assert_true(contribution[0] == 10 && contribution[5] == 4);
    b.running = NULL;
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, LS_RUN_EVALUATE, NULL), LS_EINVAL);
    op->impl->destroy(op);
    ref->ops->close(ref);
}

/* A dropout whose input needs no gradient has no backward. Its forward drops elements as usual. */
static void dropout_without_backward_drops(void **state)
{
    (void)state;
    ls_op_desc d = image_op(LS_OP_DROPOUT);
    d.training = d.needs_dx = 0;
    d.u.dropout = (ls_dropout){0.5f, 0x1000};
    static const uint32_t rows[2] = {3, 1};
    ls_step_args args = {.seed = 1};
    float x[96], y[96];
    int dropped = 0;
    for (int i = 0; i < 96; i++)
        x[i] = 1;
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    ls_error err = {0};
    assert_int_equal(ref->ops->op_create(&op, ref, &d, NULL), LS_OK);
    ls_op_buffers b = {.args = &args, .x = x, .y = y};
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, &err), LS_EINVAL);
    assert_string_equal(err.text, "dropout: no rows are given");
    args.rows = rows;
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_OK);
    for (int i = 0; i < 96; i++)
        dropped += y[i] == 0;
    assert_in_range(dropped, 20, 76);
    assert_int_equal(op->impl->forward(op, NULL, LS_RUN_EVALUATE, NULL), LS_OK);
    assert_memory_equal(y, x, sizeof y);
    op->impl->destroy(op);
    ref->ops->close(ref);
}

static void twin_of_another_layer_is_refused(void **state)
{
    (void)state;
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    ls_op_desc d = image_op(LS_OP_DENSE);
    assert_int_equal(ref->ops->op_create(&op, ref, &d, NULL), LS_OK);
    ls_op_desc twin = d;
    twin.twin = op;
    twin.u.dense.out = 6;
    expect_refused(ref, &twin, LS_EINVAL);
    op->impl->destroy(op);
    ref->ops->close(ref);
}

static void label_beyond_the_classes_is_refused(void **state)
{
    (void)state;
    float x[4] = {0}, dx[4], stats[2];
    int32_t labels[2] = {0, 2};
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    ls_op_desc d = image_op(LS_OP_SOFTMAX_XENT);
    ls_error err = {0};
    d.x = (ls_tensor){LS_F32, 2, 2, 1, 1, NULL, 16};
    assert_int_equal(ref->ops->op_create(&op, ref, &d, NULL), LS_OK);
    ls_op_buffers b = {.x = x, .dx = dx, .labels = labels, .stats = stats};
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, &err), LS_EDATA);
    assert_string_equal(err.text, "softmax_xent: row 1 has label 2 of 2 classes");
    op->impl->destroy(op);
    ref->ops->close(ref);
}

static void calls_out_of_order_are_refused(void **state)
{
    (void)state;
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    ls_op_desc d = image_op(LS_OP_RELU);
    d.training = d.needs_dx = 0;
    float x[96] = {0}, y[96];
    ls_op_buffers b = {.x = x, .y = y};
    assert_int_equal(ref->ops->op_create(&op, ref, &d, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_EINVAL);
    assert_int_equal(op->impl->bind(op, &b, NULL), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, NULL), LS_OK);
    assert_int_equal(op->impl->backward(op, NULL, 0, NULL), LS_EINVAL);
    op->impl->destroy(op);
    ref->ops->close(ref);
}

static void sixty_four_devices_can_be_opened(void **state)
{
    (void)state;
    ls_backend_info info;
    ls_device_request request = {.size = sizeof request, .index = 63, .threads = 1};
    ls_device_info about;
    ls_device *ref = NULL;
    ls_error err = {0};
    ls_ref64_backend()->probe(&info);
    assert_int_equal(info.devices, 64);
    assert_true(ls_ref64_backend()->counted);
    assert_int_equal(ls_ref64_backend()->open(&ref, &request, &err), LS_OK);
    ref->ops->describe(ref, &about);
    assert_string_equal(about.name, "ref64(63)");
    ref->ops->close(ref);
    request.index = 64;
    assert_int_equal(ls_ref64_backend()->open(&ref, &request, &err), LS_EINVAL);
}

/* Tests the functions of the device table. */
static void memory_is_zeroed_and_add_adds(void **state)
{
    (void)state;
    ls_device *ref = open_ref();
    void *memory = NULL;
    assert_int_equal(ref->ops->alloc(&memory, ref, 100, NULL), LS_OK);
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((unsigned char *)memory)[i], 0);
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30};
    assert_int_equal(ref->ops->upload(ref, NULL, memory, a, sizeof a, NULL), LS_OK);
    assert_int_equal(ref->ops->add(ref, NULL, memory, memory, b, 3, NULL), LS_OK);
    assert_int_equal(ref->ops->download(ref, NULL, a, memory, sizeof a, NULL), LS_OK);
    assert_memory_equal(a, ((float[3]){11, 22, 33}), sizeof a);
    ref->ops->free(ref, memory);
    ref->ops->free(ref, NULL);
    ref->ops->close(ref);
}

static void every_kind_of_op_has_a_name_in_messages(void **state)
{
    (void)state;
    for (int kind = 1; kind < LS_OP_KINDS; kind++)
        if (strcmp(op_kind_name(kind), "?") == 0)
            fail_msg("op %d has no name in op_chain.c", kind);
    assert_string_equal(op_kind_name(0), "?");
    assert_string_equal(op_kind_name(LS_OP_KINDS), "?");
}

LS_TESTS(ref_contract, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_op_has_a_name_in_messages),
        cmocka_unit_test(bind_refuses_what_is_missing),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(unknown_and_fused_forms_are_declined),
        cmocka_unit_test(batchnorm_needs_depend_on_its_use),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(batchnorm_of_one_value_is_its_bias),
        cmocka_unit_test(dropout_without_backward_drops),
        cmocka_unit_test(twin_of_another_layer_is_refused),
        cmocka_unit_test(label_beyond_the_classes_is_refused),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(sixty_four_devices_can_be_opened),
        cmocka_unit_test(memory_is_zeroed_and_add_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
