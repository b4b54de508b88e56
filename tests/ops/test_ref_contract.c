/* What the reference back end refuses, and how it says so. */
#include "ref/ref.h"

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
    ls_op_desc d = {.size = sizeof d, .kind = kind, .training = 1, .needs_dx = 1};
    d.x = (ls_tensor){kind == LS_OP_GATHER ? LS_U8 : LS_F32, 2, 3, 4, 4, NULL, 0};
    d.pool = (ls_pool2d){1, 2, 2, 2, 2, 0, 0};
    if (kind == LS_OP_CONV2D)
        d.u.conv2d = (ls_conv2d){2, 3, 3, 1, 1, 1, 1, 1};
    if (kind == LS_OP_DENSE)
        d.u.dense = (ls_dense){5, 1};
    if (kind == LS_OP_SGD)
        d.u.sgd = (ls_sgd){0.9f, 0, 16};
    if (kind == LS_OP_GATHER)
        d.training = d.needs_dx = 0;
    return d;
}

/* Binds with everything set, then with each pointer missing in turn: those that the op needs, and
 * no others, are refused by name. */
static void expect_needs(ls_op_kind kind, const char *const *needed)
{
    static float f[4096];
    static uint8_t u[4096];
    static ls_step_args args;
    const char *const name[] = {"args",     "x",          "y",       "dy",      "dx",
                                "param[0]", "param[1]",   "grad[0]", "grad[1]", "slot[0]",
                                "labels",   "labels_out", "stats",   "saved",   "scratch"};
    ls_device *ref = open_ref();
    ls_op *op = NULL;
    ls_op_desc d = image_op(kind);
    assert_int_equal(ref->ops->op_create(&op, ref, &d, NULL), LS_OK);
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        ls_op_buffers b = {&args, f, f, f, f, {f, f}, {f, f}, {f, f}, u, u, f, f, f};
        ls_error err = {0};
        char want[100];
        int must = 0;
        for (const char *const *n = needed; *n; n++)
            must = must || strcmp(*n, name[i]) == 0;
        switch (i) {
        case 0: b.args = NULL; break;
        case 1: b.x = NULL; break;
        case 2: b.y = NULL; break;
        case 3: b.dy = NULL; break;
        case 4: b.dx = NULL; break;
        case 5:
        case 6: b.param[i - 5] = NULL; break;
        case 7:
        case 8: b.grad[i - 7] = NULL; break;
        case 9: b.slot[0] = NULL; break;
        case 10: b.labels = NULL; break;
        case 11: b.labels_out = NULL; break;
        case 12: b.stats = NULL; break;
        case 13: b.saved = NULL; break;
        default: b.scratch = NULL; break;
        }
        int rc = op->impl->bind(op, &b, &err);
        snprintf(want, sizeof want, "bind needs `%s`", name[i]);
        if (rc != (must ? LS_EINVAL : LS_OK) || (must && !strstr(err.text, want)))
            fail_msg("op kind %d without %s: %s, \"%s\"", (int)kind, name[i], ls_status_name(rc),
                     err.text);
    }
    op->impl->destroy(op);
    ref->ops->close(ref);
}

#define NEEDS(kind, ...) expect_needs(kind, (const char *const[]){__VA_ARGS__, NULL})

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
    d.u.conv2d.kh = 7; /* an image of 4, padded to 6 */
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.sw = 0;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_CONV2D);
    d.u.conv2d.out = 0;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_DENSE);
    d.u.dense.out = -1;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_POOL);
    d.pool.ph = 2; /* a window of padding alone */
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_RELU);
    d.x.rows = 0;
    expect_refused(ref, &d, LS_EINVAL);
    d = image_op(LS_OP_GATHER);
    d.x.dtype = LS_F32;
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
    uint8_t labels[2] = {0, 2};
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

/* The device's own calls. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bind_refuses_what_is_missing),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(unknown_and_fused_forms_are_declined),
        cmocka_unit_test(twin_of_another_layer_is_refused),
        cmocka_unit_test(label_beyond_the_classes_is_refused),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(sixty_four_devices_can_be_opened),
        cmocka_unit_test(memory_is_zeroed_and_add_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
