/* cuDNN has an engine for every convolution of LeNet and ResNet-18, in every precision, on a GPU that
 * need not be here: it plans for a description of one. What it would compile at run time it
 * refuses to plan so, hence a plan that is found here is found there as well. */
#include "cuda/math_lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

typedef struct layer {
    const char *name;
    int c, side, out, kernel, stride, padding;
} layer;

static const layer lenet[] = {
    {"lenet conv1", 1, 28, 20, 3, 1, 1},
    {"lenet conv2", 20, 14, 50, 5, 1, 0},
};

/* For 28×28 images, as in the examples. */
static const layer resnet[] = {
    {"stem", 1, 28, 64, 3, 1, 1},
    {"64", 64, 28, 64, 3, 1, 1},
    {"64 to 128", 64, 28, 128, 3, 2, 1},
    {"shortcut 128", 64, 28, 128, 1, 2, 0},
    {"128", 128, 14, 128, 3, 1, 1},
    {"128 to 256", 128, 14, 256, 3, 2, 1},
    {"shortcut 256", 128, 14, 256, 1, 2, 0},
    {"256", 256, 7, 256, 3, 1, 1},
    {"256 to 512", 256, 7, 512, 3, 2, 1},
    {"shortcut 512", 256, 7, 512, 1, 2, 0},
    {"512", 512, 4, 512, 3, 1, 1},
};

static const char *const precisions[] = {"fp32", "tf32", "bf16"};
static const char *const passes[] = {"forward", "data", "weights"};

static char *description(void)
{
    char *text = calloc(1, 8192);
    FILE *file = fopen(H200_JSON, "r");
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, 8191, file) > 0);
    fclose(file);
    return text;
}

static ls_math_shape shape_of(const layer *l, int rows, int half)
{
    int y = (l->side + 2 * l->padding - l->kernel) / l->stride + 1;
    return (ls_math_shape){
        .half = half,
        .rows = rows,
        .c = l->c,
        .h = l->side,
        .w = l->side,
        .out = l->out,
        .y_h = y,
        .y_w = y,
        .kh = l->kernel,
        .kw = l->kernel,
        .sh = l->stride,
        .sw = l->stride,
        .ph = l->padding,
        .pw = l->padding,
    };
}

static ls_math *open_for(ls_precision precision, const char *json)
{
    ls_math *math = NULL;
    ls_error err = {0};
    ls_math_desc desc = {.device = "cuda(0)",
                         .model = "described",
                         .compute = 90,
                         .precision = precision,
                         .device_json = json};
    if (ls_math_open(&math, &desc, &err) != LS_OK)
        fail_msg("%s", err.text);
    return math;
}

static void expect_plan(ls_math *math, const ls_math_shape *shape, const char *name,
                        const char *precision)
{
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    if (ls_math_plan_create(&plan, math, shape, &err) != LS_OK)
        fail_msg("%s, %d rows, %s, %s: %s", name, shape->rows, precision, passes[shape->kind],
                 err.text);
    print_message("    %-14s b %-3d %s %-7s %-28s %zu KiB\n", name, shape->rows, precision,
                  passes[shape->kind], plan->name, plan->workspace_bytes / 1024);
    ls_math_plan_destroy(plan);
}

static void expect_plans(const layer *layers, size_t count, ls_precision precision, int rows)
{
    char *json = description();
    ls_math *math = open_for(precision, json);
    for (size_t i = 0; i < count; i++)
        for (int pass = 0; pass < 3; pass++) {
            ls_math_shape shape = shape_of(&layers[i], rows, precision == LS_PRECISION_BF16);
            shape.kind = (ls_math_kind)pass;
            if (pass != LS_MATH_CONV_DATA || layers[i].c > 1)
                expect_plan(math, &shape, layers[i].name, precisions[precision]);
        }
    ls_math_close(math);
    free(json);
}

static void every_convolution_of_lenet_has_a_plan(void **state)
{
    (void)state;
    for (int p = 0; p < 3; p++) {
        expect_plans(lenet, sizeof lenet / sizeof *lenet, (ls_precision)p, 256);
        expect_plans(lenet, sizeof lenet / sizeof *lenet, (ls_precision)p, 32);
    }
}

static void every_convolution_of_resnet18_has_a_plan(void **state)
{
    (void)state;
    for (int p = 0; p < 3; p++)
        expect_plans(resnet, sizeof resnet / sizeof *resnet, (ls_precision)p, 256);
}

/* LeNet's bias and relu are part of the convolution where tensor cores are used; in fp32 the library
 * declines, and the op adds them itself. */
static void bias_and_relu_are_fused_in_tf32(void **state)
{
    char *json = description();
    ls_math *math = open_for(LS_PRECISION_TF32, json);
    (void)state;
    for (size_t i = 0; i < sizeof lenet / sizeof *lenet; i++) {
        ls_math_shape shape = shape_of(&lenet[i], 256, 0);
        shape.bias = 1;
        expect_plan(math, &shape, lenet[i].name, "tf32+b");
        shape.relu = 1;
        expect_plan(math, &shape, lenet[i].name, "tf32+r");
    }
    ls_math_close(math);
    free(json);
}

static void plans_do_not_run_without_their_device(void **state)
{
    char *json = description();
    ls_math *math = open_for(LS_PRECISION_TF32, json);
    ls_math_shape shape = shape_of(&lenet[1], 8, 0);
    ls_math_operands none = {0};
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    (void)state;
    assert_int_equal(ls_math_plan_create(&plan, math, &shape, &err), LS_OK);
    assert_int_equal(ls_math_run(plan, NULL, &none, &err), LS_EINVAL);
    ls_math_plan_destroy(plan);
    ls_math_close(math);
    free(json);
}

static void a_senseless_device_is_refused(void **state)
{
    ls_math *math = NULL;
    ls_error err = {0};
    ls_math_desc desc = {.device = "cuda(0)", .model = "", .device_json = "no JSON"};
    (void)state;
    assert_int_equal(ls_math_open(&math, &desc, &err), LS_EINVAL);
    assert_null(math);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_convolution_of_lenet_has_a_plan),
        cmocka_unit_test(every_convolution_of_resnet18_has_a_plan),
        cmocka_unit_test(bias_and_relu_are_fused_in_tf32),
        cmocka_unit_test(plans_do_not_run_without_their_device),
        cmocka_unit_test(a_senseless_device_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
