/* A whole replica on the CUDA back end over the doubles, beside one on the plain-C reference: steps of
 * training with a ragged last minibatch, and evaluation, give the same weights and losses. */
#include "cuda_ops/cuda_backend.h"
#include "nn/nn_fixture.h"

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
                      const ls_optimizer *optimizer, const ls_replica_data data, int crop)
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

static ls_device *open_cuda(void)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request};
    ls_error err = {0};
    must(test_cuda_backend()->open(&device, &request, &err), &err);
    must(device->ops->bind(device, &err), &err);
    return device;
}

static void expect_alike(const char *json, ls_shape input, int classes, const char *optimizer,
                         int crop)
{
    ls_model *model = make_model(json, input, classes);
    ls_replica_data data = make_data(ROWS, input, classes, 3);
    ls_optimizer o = {0};
    ls_json *doc = NULL;
    ls_error err = {0};
    must(ls_json_parse(&doc, "optimizer", optimizer, strlen(optimizer), NULL, &err), &err);
    must(ls_optimizer_parse(&o, doc, ls_json_root(doc), &err), &err);
    side cuda, ref;
    open_side(&cuda, open_cuda(), model, &o, data, crop);
    open_side(&ref, open_ref64(NULL), model, &o, data, crop);
    run_side(&cuda);
    run_side(&ref);
    double error = 0, norm = 0;
    for (size_t i = 0; i < model->floats; i++) {
        double d = (double)cuda.weights[i] - (double)ref.weights[i];
        error += d * d;
        norm += (double)ref.weights[i] * (double)ref.weights[i];
    }
    if (!(sqrt(error / norm) < 2e-6))
        fail_msg("the weights differ by %g", sqrt(error / norm));
    if (!(fabs(cuda.loss - ref.loss) < 1e-5 * (ref.loss + 1)))
        fail_msg("loss %.9g, not %.9g", cuda.loss, ref.loss);
    assert_true(cuda.correct == ref.correct);
    close_side(&cuda);
    close_side(&ref);
    ls_json_destroy(doc);
    free_data(&data);
    free_model(model);
}

static void lenet_trains_as_on_the_reference(void **state)
{
    (void)state;
    expect_alike(lenet_json, (ls_shape){1, 28, 28}, 10,
                 "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0.0005}",
                 0);
}

static void a_residual_network_trains_as_on_the_reference(void **state)
{
    (void)state;
    expect_alike(residual_json, (ls_shape){3, 9, 9}, 5, "{\"name\": \"adamw\", \"lr\": 0.05}", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_trains_as_on_the_reference),
        cmocka_unit_test(a_residual_network_trains_as_on_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
