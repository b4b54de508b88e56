/* SPDX-License-Identifier: MIT */
/* Compares LeNet with PyTorch's results in float64: the gradient of every parameter in the first
 * step, and the losses of ten steps. make_reference.py creates PyTorch's results. */
#include "comm/comm.h"
#include "data/dataset.h"
#include "nn/replica.h"
#include "nn/safetensors.h"
#include "parity/parity_devices.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 256, SHARDS = 8, STEPS = 10 };

/* Everything that does not depend on the device. */
static struct {
    ls_dataset *train, *test;
    ls_json *config, *reference;
    ls_network *model;
    ls_optimizer sgd;
    ls_error err;
} shared;

#define OK(call) check_ok(call, #call)

static void check_ok(int status, const char *what)
{
    if (status)
        fail_msg("%s: %s", what, shared.err.text);
}

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!node)
        fail_msg("the reference has no '%s'", name);
    return node;
}

static int set_up(void **state)
{
    (void)state;
    const char *own = getenv("LOCKSTEP_DATA");
    const char *dirs[] = {own ? own : "/usr/share/datasets"};
    ls_dataset_spec spec = {.name = "fashion_mnist", .search = dirs, .search_count = 1};
    if (ls_dataset_open(&shared.train, &shared.test, &spec, NULL, &shared.err) == LS_ENOENT) {
        printf("skipped: %s\n", shared.err.text);
        exit(77);
    }
    ls_error *err = &shared.err;
    if (ls_json_read_file(&shared.config, PARITY_CONFIG, NULL, err) ||
        ls_json_read_file(&shared.reference, PARITY_FOLDER "/lenet_reference.json", NULL, err))
        return -1;
    const cJSON *root = ls_json_root(shared.config);
    return ls_network_parse(&shared.model, shared.config, member(root, "model"),
                            (ls_shape){1, 28, 28}, 10, NULL, err) ||
           ls_optimizer_parse(&shared.sgd, shared.config, member(root, "optimizer"), err);
}

static int tear_down(void **state)
{
    (void)state;
    ls_network_destroy(shared.model, NULL);
    ls_json_destroy(shared.reference);
    ls_json_destroy(shared.config);
    ls_dataset_close(shared.test);
    ls_dataset_close(shared.train);
    return 0;
}

/* One worker's replica and fold, as the trainer makes them, on one device. */
typedef struct bench {
    ls_device *device;
    ls_replica *replica;
    ls_fold fold;
} bench;

static void open_bench(bench *b, const parity_device *which)
{
    static const uint32_t sizes[] = {BATCH / SHARDS};
    ls_dataset_view view = ls_dataset_resident(shared.train);
    OK(which->open(&b->device, &shared.err));
    OK(b->device->ops->bind(b->device, &shared.err));
    ls_replica_desc desc = {
        .device = b->device,
        .model = shared.model,
        .optimizer = &shared.sgd,
        .normalisation = {.std = {1, 1, 1, 1}},
        .data[LS_TRAIN] = {.images = view.images, .labels = view.labels, .rows = 60000},
        .shard_rows = sizes,
        .shard_row_counts = 1,
    };
    OK(ls_replica_create(&b->replica, &desc, &shared.err));
    OK(ls_fold_init(&b->fold, b->device, ls_replica_gradient_arena(b->replica),
                    ls_replica_floats(b->replica), SHARDS, 0, SHARDS, &shared.err));
}

static void close_bench(bench *b)
{
    ls_fold_fini(&b->fold);
    ls_replica_destroy(b->replica);
    b->device->ops->close(b->device);
}

static void load_weights(bench *b, const char *file)
{
    char path[512];
    float *weights = malloc(shared.model->floats * sizeof(float));
    snprintf(path, sizeof path, PARITY_FOLDER "/%s", file);
    OK(ls_safetensors_load(weights, path, shared.model, "", NULL, &shared.err));
    OK(ls_replica_import(b->replica, ls_replica_weight_arena(b->replica), weights, &shared.err));
    free(weights);
}

/* The summed gradient of BATCH rows from `first` on → the total arena. Returns the mean loss. */
static double gradient(bench *b, uint32_t first)
{
    uint32_t rows[BATCH];
    float tail[LS_TAIL];
    ls_replica_times times = {0};
    size_t floats = ls_replica_floats(b->replica);
    float *total = ls_replica_total_arena(b->replica);
    ls_device *d = b->device;
    for (uint32_t i = 0; i < BATCH; i++)
        rows[i] = first + i;
    ls_fold_begin(&b->fold);
    for (int s = 0; s < SHARDS; s++) {
        OK(ls_replica_gradient(b->replica, rows + s * (BATCH / SHARDS), BATCH / SHARDS, 0, &times,
                               &shared.err));
        OK(ls_fold_push(&b->fold, &shared.err));
    }
    assert_int_equal(b->fold.depth, 1);
    OK(d->ops->copy(d, NULL, total, b->fold.stack[0].data, floats * sizeof(float), &shared.err));
    OK(d->ops->download(d, NULL, tail, total + ls_replica_tail_offset(b->replica), sizeof tail,
                        &shared.err));
    OK(d->ops->sync(d, NULL, &shared.err));
    assert_true(tail[LS_TAIL_ROWS] == BATCH);
    return (double)tail[LS_TAIL_LOSS] / BATCH;
}

/* ‖ours / BATCH − reference‖ / ‖reference‖ of one parameter. */
static double relative_error(const float *sum, const float *reference, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)sum[i] / BATCH - (double)reference[i];
        difference += d * d;
        norm += (double)reference[i] * (double)reference[i];
    }
    return sqrt(difference / norm);
}

/* Returns the error of PyTorch in fp32: the larger one of its two forms. */
static double torch_error(const cJSON *state, const char *parameter)
{
    const cJSON *forms = member(state, "torch_fp32_error");
    double a = member(member(forms, "contiguous"), parameter)->valuedouble;
    double b = member(member(forms, "channels_last"), parameter)->valuedouble;
    return a > b ? a : b;
}

/* The reference gradients are stored in fp32 themselves: half a unit in the last place. */
#define STORED_ERROR 6e-8

static void gradients_match_on(bench *b, const char *device)
{
    char path[512];
    const cJSON *state = member(ls_json_root(shared.reference), "start");
    const char *file = member(state, "file")->valuestring;
    size_t floats = shared.model->floats;
    float *ours = malloc(floats * sizeof(float)), *reference = malloc(floats * sizeof(float));
    load_weights(b, file);
    double loss = gradient(b, 0);
    assert_true(fabs(loss / member(state, "loss")->valuedouble - 1) < 1e-6);
    snprintf(path, sizeof path, PARITY_FOLDER "/%s", file);
    OK(ls_safetensors_load(reference, path, shared.model, "grad.", NULL, &shared.err));
    OK(ls_replica_export(b->replica, ours, ls_replica_total_arena(b->replica), &shared.err));
    int bad = 0;
    for (int i = 0; i < shared.model->params; i++) {
        const ls_param *p = shared.model->param[i];
        double error = relative_error(ours + p->offset, reference + p->offset, p->count);
        double torch = torch_error(state, p->name);
        int fits = error <= 2e-5 && error <= 2 * torch + STORED_ERROR;
        printf("  %-8s %-13s error %.1e, PyTorch fp32 %.1e%s\n", device, p->name, error, torch,
               fits ? "" : "   TOO LARGE");
        bad += !fits;
    }
    free(ours);
    free(reference);
    assert_int_equal(bad, 0);
}

static void gradients_match_float64(void **state)
{
    (void)state;
    for (int d = 0; d < parity_device_count; d++) {
        bench b;
        open_bench(&b, &parity_devices[d]);
        gradients_match_on(&b, parity_devices[d].name);
        close_bench(&b);
    }
}

static void ten_steps_follow_float64(void **state)
{
    const cJSON *root = ls_json_root(shared.reference), *steps = member(root, "ten_steps");
    const char *file = member(member(root, "start"), "file")->valuestring;
    const cJSON *losses = member(steps, "losses");
    uint32_t first = (uint32_t)member(steps, "first_row")->valueint;
    (void)state;
    for (int d = 0; d < parity_device_count; d++) {
        bench b;
        double worst = 0;
        ls_replica_times times = {0};
        open_bench(&b, &parity_devices[d]);
        load_weights(&b, file);
        for (int step = 0; step < STEPS; step++) {
            double loss = gradient(&b, first + (uint32_t)step * BATCH);
            double expected = cJSON_GetArrayItem(losses, step)->valuedouble;
            worst = fmax(worst, fabs(loss / expected - 1));
            const ls_replica_step update = {0.2f, 1.0f / BATCH, BATCH, (uint64_t)step + 1};
            OK(ls_replica_apply(b.replica, &update, &times, &shared.err));
        }
        printf("  %-8s ten steps: losses within %.1e\n", parity_devices[d].name, worst);
        assert_true(worst <= 5e-5);
        close_bench(&b);
    }
}

/* parity [TEST] */
LS_TESTS(parity, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_float64),
        cmocka_unit_test(ten_steps_follow_float64),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("parity", tests, set_up, tear_down);
}
