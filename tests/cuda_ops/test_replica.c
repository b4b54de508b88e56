/* A whole replica on the CUDA back end over the doubles, beside one on the plain-C reference:
 * steps of training with a ragged last minibatch, and evaluation, give the same weights and
 * losses. */
#include "cuda_ops/cuda_backend.h"
#include "nn/nn_fixture.h"
#ifdef DOUBLES_MODE
#include "doubles/control.h"

#include <cuda_runtime_api.h>
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, STEPS = 4 };

static const char residual_json[] =
    "[{\"type\": \"conv2d\", \"name\": \"c1\", \"out\": 6, \"kernel\": 3, \"padding\": 1, "
    "\"bias\": false}, {\"type\": \"batch_norm\", \"name\": \"n1\"},"
    "{\"type\": \"relu\", \"name\": \"r1\"},"
    "{\"type\": \"conv2d\", \"name\": \"c2\", \"out\": 6, \"kernel\": 3, \"padding\": 1, "
    "\"bias\": false}, {\"type\": \"batch_norm\", \"name\": \"n2\"},"
    "{\"type\": \"add\", \"name\": \"a\", \"with\": \"r1\"}, {\"type\": \"relu\"},"
    "{\"type\": \"max_pool\", \"kernel\": 3, \"stride\": 2, \"padding\": 1},"
    "{\"type\": \"dropout\", \"p\": 0.25}, {\"type\": \"global_avg_pool\"},"
    "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"name\": \"fc\", \"out\": 5}]";

/* A replica, and what a few steps on it make. */
typedef struct side {
    ls_device *device;
    ls_replica *replica;
    double loss, correct;
    float *weights;
} side;

static const uint32_t counts[2] = {16, 7};

static void open_side(side *s, ls_device *device, const ls_model *model,
                      const ls_optimizer *optimizer, const ls_replica_data data, int crop,
                      int no_recording)
{
    ls_error err = {0};
    ls_gather pixels = plain_pixels;
    pixels.crop = crop;
    pixels.flip = crop > 0;
    ls_replica_desc desc = {
        .device = device,
        .model = model,
        .optimizer = optimizer,
        .normalisation = pixels,
        .data = {data, data},
        .shard_rows = counts,
        .shard_row_counts = 2,
        .seed = 11,
        .no_recording = no_recording,
    };
    s->device = device;
    must(ls_replica_create(&s->replica, &desc, &err), &err);
    s->weights = calloc(model->floats, sizeof *s->weights);
    fill_weights(s->weights, model, 0.2f, 5);
    must(ls_replica_import(s->replica, ls_replica_weight_arena(s->replica), s->weights, &err),
         &err);
}

/* One shard, so the total is its gradient. */
static void step_side(side *s, int number, uint32_t rows)
{
    ls_error err = {0};
    uint32_t row[16];
    ls_replica_step step = {0.05f, 1.0f / (float)rows, rows, (uint64_t)number};
    for (uint32_t i = 0; i < rows; i++)
        row[i] = ((uint32_t)number * 16 + i * 3) % ROWS;
    must(ls_replica_gradient(s->replica, row, rows, (uint32_t)number, NULL, &err), &err);
    must(s->device->ops->copy(s->device, NULL, ls_replica_total_arena(s->replica),
                              ls_replica_gradient_arena(s->replica),
                              ls_replica_floats(s->replica) * sizeof(float), &err),
         &err);
    must(ls_replica_apply(s->replica, &step, NULL, &err), &err);
}

static void run_side(side *s)
{
    ls_error err = {0};
    uint32_t row[16];
    for (int k = 1; k <= STEPS; k++)
        step_side(s, k, counts[k == STEPS]);
    for (uint32_t i = 0; i < 16; i++)
        row[i] = i;
    must(ls_replica_evaluate(s->replica, LS_TEST, row, 16, &s->loss, &s->correct, &err), &err);
    must(ls_replica_export(s->replica, s->weights, ls_replica_weight_arena(s->replica), &err),
         &err);
}

static void close_side(side *s)
{
    ls_replica_destroy(s->replica);
    s->device->ops->close(s->device);
    free(s->weights);
}

static ls_device *open_in(ls_precision precision)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .precision = precision};
    ls_error err = {0};
    must(test_cuda_backend()->open(&device, &request, &err), &err);
    must(device->ops->bind(device, &err), &err);
    return device;
}

static ls_device *open_cuda(void)
{
    return open_in(LS_PRECISION_FP32);
}

/* What two sides are made of. */
typedef struct recipe {
    ls_model *model;
    ls_replica_data data;
    ls_json *doc;
    ls_optimizer optimizer;
    int crop;
} recipe;

static void open_recipe(recipe *r, const char *json, ls_shape input, int classes,
                        const char *optimizer, int crop)
{
    ls_error err = {0};
    *r = (recipe){.model = make_model(json, input, classes),
                  .data = make_data(ROWS, input, classes, 3),
                  .crop = crop};
    must(ls_json_parse(&r->doc, "optimizer", optimizer, strlen(optimizer), NULL, &err), &err);
    must(ls_optimizer_parse(&r->optimizer, r->doc, ls_json_root(r->doc), &err), &err);
}

static void close_recipe(recipe *r)
{
    ls_json_destroy(r->doc);
    free_data(&r->data);
    free_model(r->model);
}

static void open_with(side *s, ls_device *device, const recipe *r, int no_recording)
{
    open_side(s, device, r->model, &r->optimizer, r->data, r->crop, no_recording);
}

/* ‖Δ‖/‖reference‖ of the weights. */
static double distance(const ls_model *model, const side *a, const side *reference)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < model->floats; i++) {
        double d = (double)a->weights[i] - (double)reference->weights[i];
        error += d * d;
        norm += (double)reference->weights[i] * (double)reference->weights[i];
    }
    return sqrt(error / norm);
}

static void expect_near(const ls_model *model, const side *cuda_side, const side *ref_side)
{
    const side cuda = *cuda_side, ref = *ref_side;
    double error = distance(model, cuda_side, ref_side);
    if (!(error < 2e-6))
        fail_msg("the weights differ by %g", error);
    if (!(fabs(cuda.loss - ref.loss) < 1e-5 * (ref.loss + 1)))
        fail_msg("loss %.9g, not %.9g", cuda.loss, ref.loss);
    assert_true(cuda.correct == ref.correct);
}

static void expect_alike(const recipe *r)
{
    side cuda, ref;
    open_with(&cuda, open_cuda(), r, 0);
    open_with(&ref, open_ref64(NULL), r, 0);
    run_side(&cuda);
    run_side(&ref);
    expect_near(r->model, &cuda, &ref);
    close_side(&cuda);
    close_side(&ref);
}

/* After steps of training in bf16 the weights are near those of fp32, and not the same. */
static void expect_near_in_bf16(const recipe *r)
{
    side half, ref;
    open_with(&half, open_in(LS_PRECISION_BF16), r, 0);
    open_with(&ref, open_ref64(NULL), r, 0);
    run_side(&half);
    run_side(&ref);
    double error = distance(r->model, &half, &ref);
    print_message("             the weights differ by %.2g, the loss by %.2g\n", error,
                  fabs(half.loss / ref.loss - 1));
    assert_true(error > 1e-6 && error < 2e-2);
    assert_true(fabs(half.loss / ref.loss - 1) < 2e-2);
    close_side(&half);
    close_side(&ref);
}

static void expect_same_bits(const recipe *r, ls_precision precision)
{
    side recorded, eager;
    open_with(&recorded, open_in(precision), r, 0);
    open_with(&eager, open_in(precision), r, 1);
    /* Two plans, and the step where it is more than one op. */
    assert_int_equal(ls_replica_recordings(recorded.replica), 2 + (r->model->stats > 0));
    assert_int_equal(ls_replica_recordings(eager.replica), 0);
    run_side(&recorded);
    run_side(&eager);
    assert_memory_equal(recorded.weights, eager.weights, r->model->floats * sizeof(float));
    assert_true(recorded.loss == eager.loss && recorded.correct == eager.correct);
    close_side(&recorded);
    close_side(&eager);
}

static void open_lenet(recipe *r)
{
    open_recipe(r, lenet_json, (ls_shape){1, 28, 28}, 10,
                "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0.0005}",
                0);
}

static void open_residual(recipe *r)
{
    open_recipe(r, residual_json, (ls_shape){3, 9, 9}, 5, "{\"name\": \"adamw\", \"lr\": 0.05}", 2);
}

static void lenet_trains_as_on_the_reference(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_alike(&r);
    close_recipe(&r);
}

static void a_residual_network_trains_as_on_the_reference(void **state)
{
    recipe r;
    (void)state;
    open_residual(&r);
    expect_alike(&r);
    close_recipe(&r);
}

static void sgd_residual(recipe *r)
{
    open_recipe(r, residual_json, (ls_shape){3, 9, 9}, 5,
                "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9}", 2);
}

static void training_in_bf16_stays_near(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_near_in_bf16(&r);
    close_recipe(&r);
    sgd_residual(&r);
    expect_near_in_bf16(&r);
    close_recipe(&r);
}

static void recorded_steps_give_the_bits_of_steps_op_by_op(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_same_bits(&r, LS_PRECISION_FP32);
    close_recipe(&r);
    open_residual(&r);
    expect_same_bits(&r, LS_PRECISION_FP32);
    expect_same_bits(&r, LS_PRECISION_BF16);
    close_recipe(&r);
}

#ifdef DOUBLES_MODE
/* The second plan is refused, so the first alone is recorded. */
static void what_cannot_be_recorded_runs_op_by_op(void **state)
{
    side cuda, ref;
    recipe r;
    (void)state;
    open_residual(&r);
    dbl_fail("cudaGraphInstantiate", 2, cudaErrorNotSupported);
    open_with(&cuda, open_cuda(), &r, 0);
    open_with(&ref, open_ref64(NULL), &r, 0);
    assert_int_equal(ls_replica_recordings(cuda.replica), 1);
    run_side(&cuda);
    run_side(&ref);
    expect_near(r.model, &cuda, &ref);
    close_side(&cuda);
    close_side(&ref);
    close_recipe(&r);
}

/* Each call of the runtime that creation makes, failing in turn, ends in an error or in steps op by
 * op, and leaves nothing behind: the doubles would complain about it. */
static void a_call_that_fails_in_creation_leaves_nothing_behind(void **state)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphInstantiate",   "launch",
                                        "cudaMemsetAsync",        "cudaStreamSynchronize"};
    (void)state;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (int nth = 1; nth <= 3; nth++) {
            recipe r;
            ls_replica *replica = NULL;
            ls_error err = {0};
            open_residual(&r);
            ls_device *device = open_cuda();
            ls_replica_desc desc = {.device = device,
                                    .model = r.model,
                                    .optimizer = &r.optimizer,
                                    .normalisation = plain_pixels,
                                    .data = {r.data, r.data},
                                    .shard_rows = counts,
                                    .shard_row_counts = 2};
            dbl_fail(calls[c], nth, 0);
            int rc = ls_replica_create(&replica, &desc, &err);
            assert_true(rc == LS_OK || err.text[0]);
            ls_replica_destroy(replica);
            device->ops->close(device);
            close_recipe(&r);
        }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_trains_as_on_the_reference),
        cmocka_unit_test(a_residual_network_trains_as_on_the_reference),
        cmocka_unit_test(training_in_bf16_stays_near),
        cmocka_unit_test(recorded_steps_give_the_bits_of_steps_op_by_op),
#ifdef DOUBLES_MODE
        cmocka_unit_test(what_cannot_be_recorded_runs_op_by_op),
        cmocka_unit_test(a_call_that_fails_in_creation_leaves_nothing_behind),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
