/* SPDX-License-Identifier: MIT */
/* Tests that cuDNN has a plan for every convolution of the shipped examples, in every precision,
 * for full minibatches and for the smaller last minibatch. A *plan* is an engine, an implementation
 * of a convolution in cuDNN, that is ready to run. The real cuDNN makes plans for a GPU that is
 * only described and need not exist. The ops are the back end's own, over the simulated CUDA
 * runtime. The linker wraps the functions `ls_math_…`, so that the requests of an op arrive in this
 * file. For a described GPU, cuDNN does not consider engines that it compiles at run time.
 * Therefore cuDNN finds each plan of this test on the GPU too. */
#include "config/config.h"
#include "cuda/math/inside.h"
#include "cuda_ops/cuda_backend.h"
#include "engine/infer.h"
#include "nn/nn_fixture.h"
#include "nn/plan.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- requests ------------------------------------------------------------------------------- */

enum { MOST = 8192 };

typedef struct asked {
    ls_precision precision;
    ls_math_shape shape;
    int status;
    char name[160];
    size_t workspace;
} asked;

static asked all[MOST];
static int shapes;

/* The plan that an op gets in this test. It cannot run. */
typedef struct stub {
    ls_math_plan plan; /* first */
} stub;

int __real_ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err);
int __wrap_ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err);
int __real_ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                               ls_error *err);
int __wrap_ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                               ls_error *err);
void __real_ls_math_plan_destroy(ls_math_plan *plan);
void __wrap_ls_math_plan_destroy(ls_math_plan *plan);

int __wrap_ls_math_open(ls_math **out, const ls_math_desc *desc, ls_error *err)
{
    ls_math_desc described = *desc;
    described.device_json = described.device_json ? described.device_json : test_h200_json();
    return __real_ls_math_open(out, &described, err);
}

/* Plans each shape only once, because many layers have the same shape. */
static asked *ask(ls_math *math, const ls_math_shape *shape)
{
    const ls_precision precision = math->desc.precision;
    for (int i = 0; i < shapes; i++)
        if (all[i].precision == precision && memcmp(&all[i].shape, shape, sizeof *shape) == 0)
            return &all[i];
    assert_true(shapes < MOST);
    asked *a = &all[shapes++];
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    *a = (asked){.precision = precision, .shape = *shape};
    a->status = __real_ls_math_plan_create(&plan, math, shape, &err);
    snprintf(a->name, sizeof a->name, "%s", plan ? plan->name : "declined");
    a->workspace = plan ? plan->workspace_bytes : 0;
    __real_ls_math_plan_destroy(plan);
    return a;
}

int __wrap_ls_math_plan_create(ls_math_plan **out, ls_math *math, const ls_math_shape *shape,
                               ls_error *err)
{
    const asked *a = ask(math, shape);
    *out = NULL;
    if (a->status)
        return ls_fail(err, a->status, "%s", a->name);
    stub *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->plan.workspace_bytes = a->workspace;
    snprintf(s->plan.name, sizeof s->plan.name, "%.95s", a->name);
    *out = &s->plan;
    return LS_OK;
}

void __wrap_ls_math_plan_destroy(ls_math_plan *plan)
{
    free(plan);
}

/* ---- the examples --------------------------------------------------------------------------- */

/* All examples are for Fashion-MNIST. */
static const char *const examples[] = {EXAMPLES "/fashion_mnist.json", EXAMPLES "/resnet18.json",
                                       EXAMPLES "/mobilenet.json"};
static const uint32_t set_rows[LS_SUBSETS] = {60000, 10000};
enum { EXAMPLE_COUNT = 3, SIZES = 32 };

typedef struct recipe {
    ls_network *model;
    uint32_t batch;
    uint32_t size[SIZES]; /* numbers of rows that shards can have */
    int sizes;
} recipe;

static int number_of(const ls_json *doc, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), key);
    assert_true(cJSON_IsNumber(node));
    return node->valueint;
}

/* Returns the number of shards that the file gives, or the default. */
static int shards_of(const ls_json *doc, const recipe *r)
{
    if (cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "shards"))
        return number_of(doc, "shards");
    return ls_shards_of((int)r->batch, r->model);
}

/* Adds the sizes, in rows (examples), that shards have in training and in evaluation, if a
 * minibatch is divided into `parts` shards. */
static void add_sizes(recipe *r, uint32_t parts)
{
    const uint32_t batch[LS_SUBSETS] = {r->batch, ls_evaluation_batch(r->batch, parts)};
    assert_true(r->sizes + LS_SUBSETS * LS_SHARD_SIZES <= SIZES);
    for (int s = 0; s < LS_SUBSETS; s++)
        r->sizes = ls_add_shard_sizes(r->size, r->sizes, set_rows[s], batch[s], parts);
}

/* Reads a config. The sizes are those of shards of the config as shipped, and of the config with
 * "shards": "devices" on one GPU and on two GPUs. */
static void open_recipe(recipe *r, const char *file)
{
    const ls_shape image = {1, 28, 28};
    ls_json *doc = NULL;
    ls_error err = {0};
    memset(r, 0, sizeof *r);
    must(ls_json_read_file(&doc, file, NULL, &err), &err);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model");
    must(ls_network_parse(&r->model, doc, model, image, 10, NULL, &err), &err);
    r->batch = (uint32_t)number_of(doc, "batch_size");
    const int shards = shards_of(doc, r);
    ls_json_destroy(doc);
    /* 8 is the largest number of shards that is a default; its shards are the smallest */
    assert_int_equal(shards, 8);
    add_sizes(r, (uint32_t)shards);
    add_sizes(r, 1);
    add_sizes(r, 2);
}

/* Creates the ops of a replica. Each op requests its plans when it is created. */
static void make_ops(ls_device *device, const recipe *r, uint32_t rows, int training)
{
    ls_plan *plan = NULL;
    ls_error err = {0};
    ls_plan_desc d = {
        .device = device,
        .model = r->model,
        .normalisation = plain_pixels,
        .uses = {1, 1},
        .rows = (int)rows,
        .training = training,
        .plain_logits = !training,
    };
    if (ls_plan_create(&plan, &d, &err) != LS_OK)
        fail_msg("%u rows: %s", rows, err.text);
    ls_plan_destroy(plan);
}

static void ask_everything(void)
{
    for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++)
        for (int e = 0; e < EXAMPLE_COUNT; e++) {
            ls_device *device = test_cuda_open((ls_precision)p);
            recipe r;
            open_recipe(&r, examples[e]);
            for (int i = 0; i < r.sizes; i++)
                for (int training = 0; training < 2; training++)
                    make_ops(device, &r, r.size[i], training);
            free_model(r.model);
            device->ops->close(device);
        }
}

/* ---- expected results ----------------------------------------------------------------------- */

static const char *text_of(const asked *a)
{
    static char text[256];
    static const char *const precision[] = {"fp32", "tf32", "bf16"};
    static const char *const pass[] = {"forward", "data", "weights"};
    const ls_math_shape *s = &a->shape;
    snprintf(text, sizeof text, "%s %s%s%s, %d rows of %d×%d×%d to %d, %d×%d: %s, %zu KiB",
             precision[a->precision], pass[s->kind % 3], s->bias ? " + bias" : "",
             s->relu ? " + relu" : "", s->rows, s->c, s->h, s->w, s->out, s->kh, s->kw, a->name,
             a->workspace / 1024);
    return text;
}

static void no_convolution_of_the_examples_is_declined(void **state)
{
    int declined = 0, fused[3] = {0}, relu = 0;
    (void)state;
    for (int i = 0; i < shapes; i++) {
        if (all[i].shape.kind >= LS_MATH_DENSE)
            continue;
        fused[all[i].precision] += all[i].shape.bias;
        relu += all[i].shape.relu;
        declined += all[i].status != LS_OK;
        if (all[i].status)
            print_message("    %s\n", text_of(&all[i]));
    }
    print_message("    %d plans; with a bias %d in fp32, %d in tf32, %d in bf16\n", shapes,
                  fused[0], fused[1], fused[2]);
    assert_true(relu > 0);
    for (int p = 0; p < 3; p++)
        assert_true(fused[p] > 0); /* all examples have convolutions with a bias */
    assert_int_equal(declined, 0);
}

static int set_up(void **state)
{
    (void)state;
    ask_everything();
    return 0;
}

static ls_math *open_for(ls_precision precision, const char *json, const char *cache_dir)
{
    ls_math *math = NULL;
    ls_error err = {0};
    ls_math_desc desc = {.device = "cuda(0)",
                         .model = "described",
                         .compute = 90,
                         .precision = precision,
                         .cache_dir = cache_dir,
                         .device_json = json};
    must(ls_math_open(&math, &desc, &err), &err);
    return math;
}

/* Each plan can be restored from the text under which it is stored. */
static void every_plan_comes_back_from_its_text(void **state)
{
    ls_math *math[3];
    (void)state;
    for (int p = 0; p < 3; p++)
        math[p] = open_for((ls_precision)p, test_h200_json(), NULL);
    for (int i = 0; i < shapes; i++) {
        const ls_math *m = math[all[i].precision];
        ls_conv_engine engine, again;
        ls_graph g;
        if (all[i].shape.kind >= LS_MATH_DENSE)
            continue;
        ls_graph_of_conv(&g, m, &all[i].shape);
        assert_int_equal(ls_conv_engine_candidates(&engine, 1, &g, m, &all[i].shape), 1);
        char *text = ls_conv_engine_to_text(&engine, m);
        assert_non_null(text);
        if (ls_conv_engine_from_text(&again, m, text) != LS_OK)
            fail_msg("%s: %s", text_of(&all[i]), text);
        char *same = ls_conv_engine_to_text(&again, m);
        assert_string_equal(text, same);
        assert_int_equal(engine.workspace_bytes, again.workspace_bytes);
        ls_free(NULL, text);
        ls_free(NULL, same);
        ls_conv_engine_destroy(&engine);
        ls_conv_engine_destroy(&again);
        ls_graph_fini(&g);
    }
    for (int p = 0; p < 3; p++)
        ls_math_close(math[p]);
}

static void plans_do_not_run_without_their_device(void **state)
{
    ls_math *math = open_for(LS_PRECISION_TF32, test_h200_json(), NULL);
    ls_math_operands none = {0};
    ls_math_plan *plan = NULL;
    ls_error err = {0};
    (void)state;
    must(__real_ls_math_plan_create(&plan, math, &all[0].shape, &err), &err);
    assert_int_equal(ls_math_run(plan, NULL, &none, &err), LS_EINVAL);
    __real_ls_math_plan_destroy(plan);
    ls_math_close(math);
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

LS_TESTS(cuda_plans, "integration doubles no-asan no-tsan")
{
    test_cuda_begin(DBL_EAGER);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_convolution_of_the_examples_is_declined),
        cmocka_unit_test(every_plan_comes_back_from_its_text),
        cmocka_unit_test(plans_do_not_run_without_their_device),
        cmocka_unit_test(a_senseless_device_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
