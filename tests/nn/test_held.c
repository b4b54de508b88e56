/* SPDX-License-Identifier: MIT */
/* Tests that a step whose loss is not finite changes neither weights nor running statistics, and
 * that later steps change nothing either, until ls_replica_resume_updates is called. Tests every
 * back end with every optimizer. */
#include "nn/nn_fixture.h"

#include "runner.h"

#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#endif
#ifdef LOCKSTEP_OPS_CUDA
#include "cuda_ops/cuda_backend.h"
#endif
#include "ref/ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, CLASSES = 4, ARENAS = 3 };

static const ls_shape input = {2, 8, 7};
static const char layers[] =
    "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":5,\"kernel\":3,\"bias\":false},"
    "{\"type\":\"batch_norm\",\"name\":\"n1\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
    "{\"type\":\"dense\",\"name\":\"f1\",\"out\":4}]";

static const char *const optimizers[] = {
    "{\"name\": \"sgd\", \"lr\": 0.1}",
    "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0.1}",
    "{\"name\": \"sgd\", \"lr\": 0.1, \"momentum\": 0.9, \"nesterov\": true}",
    "{\"name\": \"adamw\", \"lr\": 0.1}"};

typedef const ls_backend *back_end_fn(void);
static back_end_fn *const back_ends[] = {
    ls_ref_backend,
    ls_ref64_backend,
#ifdef LOCKSTEP_WITH_CPU
    ls_cpu_backend,
#endif
#ifdef LOCKSTEP_OPS_CUDA
    test_cuda_backend,
#endif
};

typedef struct bench {
    ls_network *model;
    ls_replica_data data;
    ls_json *doc;
    ls_optimizer optimizer;
    ls_device *device;
    ls_replica *replica;
    size_t floats;
    uint64_t step;
} bench;

static void open_bench(bench *b, back_end_fn *back_end, const char *optimizer)
{
    static const uint32_t shards[] = {ROWS};
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    memset(b, 0, sizeof *b);
    b->model = make_model(layers, input, CLASSES);
    b->data = make_data(ROWS, input, CLASSES, 1);
    must(ls_json_parse(&b->doc, "optimizer", optimizer, strlen(optimizer), NULL, &err), &err);
    must(ls_optimizer_parse(&b->optimizer, b->doc, ls_json_root(b->doc), &err), &err);
    must(back_end()->open(&b->device, &request, &err), &err);
    must(b->device->ops->bind(b->device, &err), &err);
    ls_replica_desc desc = {
        .device = b->device,
        .model = b->model,
        .optimizer = &b->optimizer,
        .normalisation = plain_pixels,
        .data = {b->data, b->data},
        .shard_rows = shards,
        .shard_row_counts = 1,
    };
    must(ls_replica_create(&b->replica, &desc, &err), &err);
    float *weights = calloc(b->model->floats, sizeof *weights);
    fill_weights(weights, b->model, 0.4f, 2);
    must(ls_replica_import(b->replica, ls_replica_weight_arena(b->replica), weights, &err), &err);
    free(weights);
    b->floats = ls_replica_floats(b->replica);
}

static void close_bench(bench *b)
{
    ls_replica_destroy(b->replica);
    b->device->ops->close(b->device);
    ls_json_destroy(b->doc);
    free_data(&b->data);
    free_model(b->model);
}

/* Runs a step with one shard, whose gradient is the total. If `loss` is not 0, it overwrites the
 * loss in the total. */
static void take_step(bench *b, float loss)
{
    const ls_replica_step how = {0.05f, 1.0f / ROWS, ROWS, ++b->step};
    const ls_device_ops *ops = b->device->ops;
    float *total = ls_replica_total_arena(b->replica);
    uint32_t rows[ROWS];
    ls_error err = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = i;
    must(ls_replica_gradient(b->replica, rows, ROWS, 0, NULL, &err), &err);
    must(ops->copy(b->device, NULL, total, ls_replica_gradient_arena(b->replica),
                   b->floats * sizeof *total, &err),
         &err);
    if (loss != 0)
        must(ops->upload(b->device, NULL, total + ls_replica_tail_offset(b->replica) + LS_TAIL_LOSS,
                         &loss, sizeof loss, &err),
             &err);
    must(ls_replica_apply(b->replica, &how, NULL, &err), &err);
}

/* Returns a copy of the weights and running statistics, followed by the optimizer's states. */
static float *state_of(bench *b)
{
    float *out = calloc(ARENAS * b->floats, sizeof *out);
    ls_error err = {0};
    for (int i = 0; i < ARENAS; i++) {
        const float *arena =
            i == 0 ? ls_replica_weight_arena(b->replica) : ls_replica_slot_arena(b->replica, i - 1);
        if (arena)
            must(b->device->ops->download(b->device, NULL, out + (size_t)i * b->floats, arena,
                                          b->floats * sizeof *out, &err),
                 &err);
    }
    must(ls_replica_sync(b->replica, &err), &err);
    return out;
}

static int changed(bench *b, float **state)
{
    float *now = state_of(b);
    int differs = memcmp(now, *state, ARENAS * b->floats * sizeof *now) != 0;
    free(*state);
    *state = now;
    return differs;
}

static void expect_held(back_end_fn *back_end, const char *optimizer)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    ls_error err = {0};
    bench b;
    open_bench(&b, back_end, optimizer);
    float *state = state_of(&b);
    take_step(&b, 0);
    assert_true(changed(&b, &state));
    take_step(&b, 3e38f); /* large, but finite */
    assert_true(changed(&b, &state));
    for (int i = 0; i < 3; i++) {
        take_step(&b, bad[i]);
        assert_false(changed(&b, &state));
        take_step(&b, 0);
        assert_false(changed(&b, &state));
        must(ls_replica_resume_updates(b.replica, &err), &err);
        take_step(&b, 0);
        assert_true(changed(&b, &state));
    }
    free(state);
    close_bench(&b);
}

static void a_loss_that_is_not_finite_holds_up_all_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof back_ends / sizeof *back_ends; i++)
        for (size_t k = 0; k < sizeof optimizers / sizeof *optimizers; k++)
            expect_held(back_ends[i], optimizers[k]);
}

LS_TESTS(nn_held, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_that_is_not_finite_holds_up_all_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
