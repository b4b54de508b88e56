/* What a back end derives from the weights for one shard of a step (LS_RUN_SAME) is used for the
 * others, and never after the weights have been written: every gradient has the bits that a new
 * replica with the same weights computes. */
#include "nn/nn_fixture.h"

#include "runner.h"

#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, CLASSES = 4 };

/* Convolutions that the CPU back end transforms, with gradients of x. */
static const ls_shape input = {16, 6, 6};
static const char layers[] =
    "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":16,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"name\":\"c2\",\"out\":24,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"name\":\"c3\",\"out\":16,\"kernel\":3},"
    "{\"type\":\"flatten\"},{\"type\":\"dense\",\"name\":\"f\",\"out\":4}]";
static const uint32_t shards[] = {32, 16};

typedef struct bench {
    ls_model *model;
    ls_optimizer optimizer;
    ls_device *device;
    ls_replica_data data;
    float *weights, *gradient[2]; /* canonical */
    ls_replica *replica;
    uint64_t step;
} bench;

static ls_replica *new_replica(const bench *b)
{
    const ls_replica_desc desc = {.device = b->device,
                                  .model = b->model,
                                  .optimizer = &b->optimizer,
                                  .normalisation = plain_pixels,
                                  .data = {b->data, b->data},
                                  .shard_rows = shards,
                                  .shard_row_counts = 2,
                                  .seed = 1};
    ls_replica *replica = NULL;
    ls_error err = {0};
    must(ls_replica_create(&replica, &desc, &err), &err);
    must(ls_replica_import(replica, ls_replica_weight_arena(replica), b->weights, &err), &err);
    return replica;
}

static void gradient_of(ls_replica *replica, uint32_t first, uint32_t n, float *out)
{
    uint32_t rows[ROWS];
    ls_error err = {0};
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (first + i) % ROWS;
    must(ls_replica_gradient(replica, rows, n, 0, NULL, &err), &err);
    must(ls_replica_export(replica, out, ls_replica_gradient_arena(replica), &err), &err);
}

/* Computes the gradient of a shard and compares it with a new replica's. */
static void like_new(const bench *b, uint32_t first, uint32_t n)
{
    const size_t bytes = b->model->floats * sizeof(float);
    ls_replica *other = new_replica(b);
    gradient_of(b->replica, first, n, b->gradient[0]);
    gradient_of(other, first, n, b->gradient[1]);
    assert_memory_equal(b->gradient[0], b->gradient[1], bytes);
    ls_replica_destroy(other);
}

static void two_shards_like_new(const bench *b)
{
    like_new(b, 3, 32);
    like_new(b, 35, 16);
    like_new(b, 20, 32);
}

/* Takes a step with the last gradient as the sum, and reads the weights. */
static void step(bench *b)
{
    const ls_replica_step step = {.lr = 0.5f, .scale = 1.0f / 32, .rows = 32, .number = ++b->step};
    const size_t bytes = ls_replica_floats(b->replica) * sizeof(float);
    ls_error err = {0};
    memcpy(ls_replica_total_arena(b->replica), ls_replica_gradient_arena(b->replica), bytes);
    must(ls_replica_apply(b->replica, &step, NULL, &err), &err);
}

/* Reads the weights in a way that tells the replica nothing. */
static void read_weights(bench *b, const float *arena)
{
    ls_error err = {0};
    must(ls_replica_export(b->replica, b->weights, arena, &err), &err);
}

static void open_bench(bench *b)
{
    const ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    memset(b, 0, sizeof *b);
    must(ls_cpu_backend()->open(&b->device, &request, &err), &err);
    must(b->device->ops->bind(b->device, &err), &err);
    b->model = make_model(layers, input, CLASSES);
    b->optimizer = make_optimizer("{\"lr\":0.5}");
    b->optimizer.ema = 0.9;
    b->data = make_data(ROWS, input, CLASSES, 2);
    b->weights = calloc(b->model->floats, sizeof(float));
    for (int i = 0; i < 2; i++)
        b->gradient[i] = calloc(b->model->floats, sizeof(float));
    fill_uniform(b->weights, b->model->floats, 0.2f, 3);
    b->replica = new_replica(b);
}

static void close_bench(bench *b)
{
    ls_replica_destroy(b->replica);
    b->device->ops->close(b->device);
    for (int i = 0; i < 2; i++)
        free(b->gradient[i]);
    free(b->weights);
    free_data(&b->data);
    free_model(b->model);
}

static void gradients_follow_the_weights(void **state)
{
    (void)state;
    bench b;
    ls_error err = {0};
    open_bench(&b);
    float *arena = ls_replica_weight_arena(b.replica);
    two_shards_like_new(&b);
    for (int i = 0; i < 2; i++) {
        step(&b);
        read_weights(&b, arena);
        two_shards_like_new(&b);
    }
    fill_uniform(b.weights, b.model->floats, 0.2f, 4);
    must(ls_replica_import(b.replica, arena, b.weights, &err), &err);
    two_shards_like_new(&b);
    memset(ls_replica_weight_arena(b.replica), 0, 64 * sizeof(float));
    read_weights(&b, arena);
    two_shards_like_new(&b);
    must(ls_replica_use_average(b.replica, true, &err), &err);
    read_weights(&b, arena);
    two_shards_like_new(&b);
    must(ls_replica_use_average(b.replica, false, &err), &err);
    read_weights(&b, arena);
    two_shards_like_new(&b);
    close_bench(&b);
}

LS_TESTS(nn_same_weights, "unit")
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_follow_the_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
