/* SPDX-License-Identifier: MIT */
/* Tests the computation of models that are graphs: shards, running statistics, buffers that share
 * memory, and the first forward pass of ResNet-18. */
#include "nn/nn_fixture.h"

#include "comm/comm.h"
#include "nn/replica_impl.h"
#include "nn/wrapped_device.h"
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model with blocks, a tensor with two readers, batch norm, dropout and a projection. */
static const ls_shape small = {2, 7, 6};
static const char small_json[] =
    "{\"blocks\":{\"b\":["
    "{\"type\":\"conv2d\",\"name\":\"p\",\"out\":\"$out\",\"kernel\":1},"
    "{\"type\":\"conv2d\",\"from\":\"input\",\"out\":\"$out\",\"kernel\":3,\"padding\":1},"
    "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"out\":\"$out\",\"kernel\":3,\"padding\":1},"
    "{\"type\":\"batch_norm\",\"momentum\":0.3},{\"type\":\"add\",\"with\":\"p\"},"
    "{\"type\":\"relu\"}]},"
    "\"layers\":[{\"block\":\"b\",\"out\":4},{\"type\":\"dropout\",\"p\":0.25},"
    "{\"block\":\"b\",\"out\":5},{\"type\":\"global_avg_pool\"},"
    "{\"type\":\"dense\",\"out\":3}]}";

enum { CLASSES = 3, ROWS = 40 };

typedef struct bench {
    wrapped_device wrap;
    ls_network *model;
    ls_optimizer optimizer;
    ls_replica_data data;
    ls_replica *replica;
    float *weights; /* canonical */
} bench;

/* Options in which test set-ups differ. */
typedef struct bench_options {
    const char *json; /* NULL: small_json */
    ls_shape input;
    int block_rows, no_sharing;
    int crop;
    float smoothing;
    uint64_t labels; /* seed of the labels; 0: the default labels */
} bench_options;

static void bench_begin(bench *b, const bench_options *o)
{
    static const uint32_t shards[] = {13, 5, 4};
    const ls_shape input = o->json ? o->input : small;
    ls_error err = {0};
    memset(b, 0, sizeof *b);
    b->model = make_model(o->json ? o->json : small_json, input, CLASSES);
    b->optimizer = make_optimizer("{\"lr\":0.1,\"momentum\":0.5}");
    b->data = make_data(ROWS, input, CLASSES, 1);
    ls_replica_data other = make_data(ROWS, input, CLASSES, o->labels ? o->labels : 1);
    memcpy((void *)(uintptr_t)b->data.labels, other.labels, ROWS * sizeof *other.labels);
    free_data(&other);
    b->weights = calloc(b->model->floats, sizeof *b->weights);
    fill_weights(b->weights, b->model, 0.5f, 2);
    wrap_device(&b->wrap, open_ref64(NULL), o->block_rows);
    ls_replica_desc desc = {
        .device = &b->wrap.device,
        .model = b->model,
        .optimizer = &b->optimizer,
        .normalisation = plain_pixels,
        .label_smoothing = o->smoothing,
        .data = {b->data, b->data},
        .shard_rows = shards,
        .shard_row_counts = 3,
        .seed = 9,
        .no_sharing = o->no_sharing,
    };
    desc.normalisation.crop = o->crop;
    desc.normalisation.flip = o->crop > 0;
    must(ls_replica_create(&b->replica, &desc, &err), &err);
    must(ls_replica_import(b->replica, ls_replica_weight_arena(b->replica), b->weights, &err),
         &err);
}

static void bench_end(bench *b)
{
    ls_replica_destroy(b->replica);
    unwrap_device(&b->wrap);
    free(b->weights);
    free_data(&b->data);
    free_model(b->model);
}

static void gradient(bench *b, uint32_t first, uint32_t n)
{
    uint32_t rows[ROWS];
    ls_error err = {0};
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (first + i) % ROWS;
    must(ls_replica_gradient(b->replica, rows, n, 3, NULL, &err), &err);
}

static void assert_same_arena(const bench *a, const bench *b, ls_arena which)
{
    size_t floats = ls_replica_floats(a->replica);
    assert_int_equal(floats, ls_replica_floats(b->replica));
    assert_memory_equal(a->replica->arena[which], b->replica->arena[which], floats * sizeof(float));
}

/* ---- running statistics --------------------------------------------------------------------- */

static const char norm_json[] = "[{\"type\":\"batch_norm\",\"name\":\"n\",\"momentum\":0.3},"
                                "{\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]";

/* Writes the mean and the unbiased variance of one channel of the rows first … first + n − 1. The
 * pixels are divided by 255. */
static void statistics(const bench *b, uint32_t first, uint32_t n, int channel, double out[2])
{
    const size_t pixels = (size_t)b->model->input.h * (size_t)b->model->input.w;
    const size_t channels = (size_t)b->model->input.c;
    double sum[2] = {0, 0};
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t r = first; r < first + n; r++)
            for (size_t i = 0; i < pixels; i++) {
                double x = b->data.images[(r * channels + (size_t)channel) * pixels + i] / 255.0;
                sum[pass] += pass == 0 ? x : pow(x - sum[0] / ((double)n * (double)pixels), 2);
            }
    double values = (double)n * (double)pixels;
    out[0] = sum[0] / values;
    out[1] = sum[1] / (values > 1 ? values - 1 : 1);
}

/* Tests two shards of different sizes and an empty shard. */
static void running_statistics_are_means_over_rows_of_shards(void **state)
{
    (void)state;
    bench b;
    ls_error err = {0};
    bench_begin(&b, &(bench_options){.json = norm_json, .input = {2, 3, 2}});
    const size_t floats = ls_replica_floats(b.replica);
    float *total = ls_replica_total_arena(b.replica);
    static const uint32_t sizes[] = {13, 4, 0};
    memset(total, 0, floats * sizeof *total);
    for (uint32_t s = 0, first = 0; s < 3; first += sizes[s++]) {
        gradient(&b, first, sizes[s]);
        for (size_t i = 0; i < floats; i++)
            total[i] += ls_replica_gradient_arena(b.replica)[i];
    }
    /* the scale is not 1 / number of rows, because it must not affect the running statistics */
    const ls_replica_step step = {0.1f, 1.0f / 32, 17, 1};
    must(ls_replica_apply(b.replica, &step, NULL, &err), &err);
    float *after = calloc(b.model->floats, sizeof *after);
    must(ls_replica_export(b.replica, after, ls_replica_weight_arena(b.replica), &err), &err);
    for (int k = 0; k < 2 * LS_STATS; k++) {
        const size_t at = b.model->stat[k / 2]->offset + (size_t)(k % 2);
        double one[2];
        double two[2];
        statistics(&b, 0, 13, k % 2, one);
        statistics(&b, 13, 4, k % 2, two);
        double mean = (13 * one[k / 2] + 4 * two[k / 2]) / 17;
        double want = 0.7 * (double)b.weights[at] + 0.3 * mean;
        assert_true(fabs((double)after[at] - want) < 1e-6);
    }
    free(after);
    bench_end(&b);
}

/* The first two of three batch norms use the same momentum. Two ops update the statistics, and each
 * statistic changes by the momentum of its layer. */
static void running_statistics_that_move_alike_are_one_op(void **state)
{
    static const char json[] = "[{\"type\":\"batch_norm\",\"momentum\":0.3},{\"type\":\"relu\"},"
                               "{\"type\":\"batch_norm\",\"momentum\":0.3},"
                               "{\"type\":\"batch_norm\",\"momentum\":0.125},"
                               "{\"type\":\"global_avg_pool\"},{\"type\":\"dense\",\"out\":3}]";
    (void)state;
    bench b;
    ls_error err = {0};
    bench_begin(&b, &(bench_options){.json = json, .input = {5, 3, 2}});
    assert_int_equal(b.replica->updates[OF_TOTAL].count, 1 + 2);
    float *total = ls_replica_total_arena(b.replica),
          *after = calloc(b.model->floats, sizeof *after);
    memset(total, 0, ls_replica_floats(b.replica) * sizeof *total);
    for (size_t i = ls_replica_tail_offset(b.replica) + LS_TAIL; i < ls_replica_floats(b.replica);
         i++)
        total[i] = (float)i;
    const ls_replica_step step = {0.1f, 1, 4, 1};
    must(ls_replica_apply(b.replica, &step, NULL, &err), &err);
    must(ls_replica_export(b.replica, after, ls_replica_weight_arena(b.replica), &err), &err);
    for (int s = 0; s < b.model->stats; s++)
        for (size_t i = 0; i < 5; i++) {
            /* each layer begins at a multiple of 16 floats */
            const size_t at = b.model->stat[s]->offset + i;
            const size_t from = ls_replica_tail_offset(b.replica) + LS_TAIL +
                                16 * (size_t)(s / LS_STATS) + 5 * (size_t)(s % LS_STATS) + i;
            const float momentum = s / LS_STATS < 2 ? 0.3f : 0.125f;
            const float want = b.weights[at] + momentum * ((float)from * 0.25f - b.weights[at]);
            assert_true(fabsf(after[at] - want) < 1e-5f);
        }
    free(after);
    bench_end(&b);
}

static void an_empty_shard_contributes_nothing(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, &(bench_options){0});
    gradient(&b, 0, 13);
    gradient(&b, 0, 0);
    for (size_t i = 0; i < ls_replica_floats(b.replica); i++)
        assert_true(ls_replica_gradient_arena(b.replica)[i] == 0);
    bench_end(&b);
}

static void weights_and_statistics_come_out_as_they_went_in(void **state)
{
    (void)state;
    bench b;
    ls_error err = {0};
    bench_begin(&b, &(bench_options){0});
    float *out = calloc(b.model->floats, sizeof *out);
    must(ls_replica_export(b.replica, out, ls_replica_weight_arena(b.replica), &err), &err);
    assert_memory_equal(out, b.weights, b.model->floats * sizeof *out);
    free(out);
    bench_end(&b);
}

static void arenas_end_with_the_statistics(void **state)
{
    (void)state;
    bench b;
    int count;
    bench_begin(&b, &(bench_options){.json = norm_json, .input = {9, 3, 2}});
    size_t tail = ls_replica_tail_offset(b.replica);
    const size_t *offset = ls_replica_param_offsets(b.replica, &count);
    /* numbers of floats, rounded up to 16: bias 3, weight 27, and two parameters of 9 */
    assert_int_equal(tail, 16 + 32 + 16 + 16);
    assert_int_equal(ls_replica_floats(b.replica), tail + LS_TAIL + 32);
    assert_int_equal(count, 5);
    assert_int_equal(offset[count - 1], tail);
    assert_int_equal(offset[count], ls_replica_floats(b.replica));
    bench_end(&b);
}

/* ---- shards --------------------------------------------------------------------------------- */

static void a_shard_with_batch_norm_is_never_cut(void **state)
{
    (void)state;
    bench whole;
    bench cut;
    bench_begin(&whole, &(bench_options){0});
    bench_begin(&cut, &(bench_options){.block_rows = 4});
    gradient(&whole, 2, 13);
    gradient(&cut, 2, 13);
    assert_same_arena(&whole, &cut, GRADIENT);
    bench_end(&whole);
    bench_end(&cut);
}

enum { SHARDS = 4, STEPS = 3 };

/* Adds the workers' partial sums in the order of the tree. */
static void merge(const ls_fold *fold, int workers, ls_span node, float *out, size_t floats)
{
    for (int w = 0; w < workers; w++)
        for (int i = 0; i < fold[w].depth; i++)
            if (fold[w].stack[i].span.lo == node.lo && fold[w].stack[i].span.hi == node.hi) {
                memcpy(out, fold[w].stack[i].data, floats * sizeof *out);
                return;
            }
    int middle = ls_tree_middle(node.lo, node.hi);
    float *right = malloc(floats * sizeof *right);
    merge(fold, workers, (ls_span){node.lo, middle}, out, floats);
    merge(fold, workers, (ls_span){middle, node.hi}, right, floats);
    for (size_t i = 0; i < floats; i++)
        out[i] += right[i];
    free(right);
}

/* Trains with `workers` replicas in one thread. The first replica stays open and contains the
 * results. */
static void train(bench *worker, int workers)
{
    static const uint32_t size[SHARDS] = {13, 5, 0, 4};
    ls_fold fold[SHARDS];
    ls_error err = {0};
    for (int w = 0; w < workers; w++) {
        bench_begin(&worker[w], &(bench_options){0});
        must(ls_fold_init(&fold[w], &worker[w].wrap.device,
                          ls_replica_gradient_arena(worker[w].replica),
                          ls_replica_floats(worker[w].replica), SHARDS, w * SHARDS / workers,
                          (w + 1) * SHARDS / workers, &err),
             &err);
    }
    for (int step = 0; step < STEPS; step++) {
        const ls_replica_step update = {0.1f, 1.0f / 22, 22, (uint64_t)step + 1};
        for (int w = 0; w < workers; w++) {
            ls_fold_begin(&fold[w]);
            for (int s = w * SHARDS / workers; s < (w + 1) * SHARDS / workers; s++) {
                gradient(&worker[w], (uint32_t)(step * 7 + s * 11), size[s]);
                must(ls_fold_push(&fold[w], &err), &err);
            }
        }
        for (int w = 0; w < workers; w++)
            merge(fold, workers, (ls_span){0, SHARDS}, ls_replica_total_arena(worker[w].replica),
                  ls_replica_floats(worker[w].replica));
        for (int w = 0; w < workers; w++)
            must(ls_replica_apply(worker[w].replica, &update, NULL, &err), &err);
    }
    for (int w = 0; w < workers; w++)
        ls_fold_fini(&fold[w]);
}

static void any_number_of_workers_gives_the_same_bits(void **state)
{
    (void)state;
    bench one[1];
    train(one, 1);
    assert_true(memcmp(one->weights, one->replica->arena[WEIGHTS], 4) != 0);
    for (int workers = 2; workers <= SHARDS; workers++) {
        bench many[SHARDS];
        train(many, workers);
        for (int w = 0; w < workers; w++) {
            assert_same_arena(one, &many[w], WEIGHTS);
            bench_end(&many[w]);
        }
    }
    bench_end(one);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void sharing_memory_changes_no_bit(void **state)
{
    (void)state;
    bench shared;
    bench own;
    ls_replica_memory memory[2];
    uint32_t rows[13] = {0};
    double loss[2];
    double correct[2];
    ls_error err = {0};
    bench_begin(&shared, &(bench_options){0});
    bench_begin(&own, &(bench_options){.no_sharing = 1});
    ls_replica_memory_used(shared.replica, &memory[0]);
    ls_replica_memory_used(own.replica, &memory[1]);
    assert_true(memory[0].activations < memory[1].activations);
    assert_int_equal(memory[0].unshared_activations, memory[1].unshared_activations);
    for (uint32_t first = 0; first < 3; first++) {
        gradient(&shared, first, 13);
        gradient(&own, first, 13);
        assert_same_arena(&shared, &own, GRADIENT);
    }
    must(ls_replica_evaluate(shared.replica, LS_TEST, rows, 13, &loss[0], &correct[0], NULL, &err),
         &err);
    must(ls_replica_evaluate(own.replica, LS_TEST, rows, 13, &loss[1], &correct[1], NULL, &err),
         &err);
    assert_true(loss[0] == loss[1] && correct[0] == correct[1] && isfinite(loss[0]));
    bench_end(&shared);
    bench_end(&own);
}

/* ---- augmentation --------------------------------------------------------------------------- */

static void only_training_changes_images(void **state)
{
    (void)state;
    bench plain;
    bench changed;
    uint32_t rows[13] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9};
    double loss[2];
    double correct[2];
    ls_error err = {0};
    bench_begin(&plain, &(bench_options){0});
    bench_begin(&changed, &(bench_options){.crop = 2});
    gradient(&plain, 0, 13);
    gradient(&changed, 0, 13);
    assert_true(memcmp(plain.replica->arena[GRADIENT], changed.replica->arena[GRADIENT],
                       ls_replica_tail_offset(plain.replica) * sizeof(float)) != 0);
    must(ls_replica_evaluate(plain.replica, LS_TEST, rows, 13, &loss[0], &correct[0], NULL, &err),
         &err);
    must(ls_replica_evaluate(changed.replica, LS_TEST, rows, 13, &loss[1], &correct[1], NULL, &err),
         &err);
    assert_true(loss[0] == loss[1] && correct[0] == correct[1]);
    bench_end(&plain);
    bench_end(&changed);
}

/* ---- label smoothing ------------------------------------------------------------------------ */

static void fully_smoothed_labels_do_not_matter(void **state)
{
    (void)state;
    bench b[4];
    for (int i = 0; i < 4; i++) {
        bench_begin(&b[i],
                    &(bench_options){.smoothing = i < 2 ? 1.0f : 0.5f, .labels = i % 2 ? 77 : 0});
        gradient(&b[i], 0, 13);
    }
    const size_t parameters = ls_replica_tail_offset(b[0].replica) * sizeof(float);
    const float *g[4];
    for (int i = 0; i < 4; i++)
        g[i] = ls_replica_gradient_arena(b[i].replica);
    assert_memory_equal(g[0], g[1], parameters);
    assert_true(memcmp(g[2], g[3], parameters) != 0);
    for (int i = 0; i < 4; i++)
        bench_end(&b[i]);
}

/* ---- ResNet-18 ------------------------------------------------------------------------------ */

static void resnets_first_logits_are_next_to_nothing(void **state)
{
    (void)state;
    enum { N = 2 };
    static const uint32_t shards[] = {N};
    static const uint32_t rows[N] = {0, 1};
    ls_error err = {0};
    ls_network *m = model_of_config(EXAMPLES "/resnet18.json", (ls_shape){1, 28, 28}, 10);
    ls_replica *r = NULL;
    ls_replica_data data = make_data(N, m->input, 10, 5);
    wrapped_device wrap;
    wrap_device(&wrap, open_ref64(NULL), 0);
    ls_replica_desc desc = {.device = &wrap.device,
                            .model = m,
                            .normalisation = plain_pixels,
                            .shard_rows = shards,
                            .shard_row_counts = 1};
    desc.data[LS_TEST] = data;
    must(ls_replica_create(&r, &desc, &err), &err);
    float *weights = malloc(m->floats * sizeof *weights);
    ls_init_weights(weights, m, &(ls_init){LS_INIT_NORMAL, 0.01f}, 0);
    must(ls_replica_import(r, ls_replica_weight_arena(r), weights, &err), &err);
    double loss;
    double correct;
    must(ls_replica_evaluate(r, LS_TEST, rows, N, &loss, &correct, NULL, &err), &err);
    const ls_plan *plan = r->plan[0];
    const float *logits =
        (const float *)(const void *)(r->activations + plan->node[ls_plan_output(plan)].y_at);
    float most = 0;
    for (int i = 0; i < 10 * N; i++) {
        assert_true(isfinite(logits[i]));
        most = fmaxf(most, fabsf(logits[i]));
    }
    printf("  largest logit %.2g\n", (double)most);
    assert_true(most >= 1e-7f && most <= 1e-4f);
    assert_true(fabs(loss / N - log(10)) < 1e-4);
    free(weights);
    ls_replica_destroy(r);
    unwrap_device(&wrap);
    free_data(&data);
    free_model(m);
}

/* Creating a plan allocates no memory on the device, so this test needs little memory. */
static void resnets_memory_is_planned_well(void **state)
{
    (void)state;
    ls_error err = {0};
    ls_network *m = model_of_config(EXAMPLES "/resnet18.json", (ls_shape){1, 28, 28}, 10);
    ls_device *device = open_ref64(NULL);
    for (int training = 0; training < 2; training++) {
        ls_plan *plan = NULL;
        ls_plan_desc desc = {
            .device = device, .model = m, .uses = {1, 1}, .rows = 32, .training = training};
        must(ls_plan_create(&plan, &desc, &err), &err);
        printf("  32 rows, %s: %.1f MB planned, %.1f MB at least, %.1f MB without sharing\n",
               training ? "training" : "evaluation", (double)plan->activation_bytes / 1e6,
               (double)plan->live_bytes / 1e6, (double)plan->unshared_bytes / 1e6);
        assert_true((double)plan->activation_bytes <= 1.03 * (double)plan->live_bytes);
        assert_true(plan->activation_bytes * (training ? 3 : 10) < plan->unshared_bytes * 2);
        ls_plan_destroy(plan);
    }
    device->ops->close(device);
    free_model(m);
}

LS_TESTS(nn_graph_run, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_statistics_are_means_over_rows_of_shards),
        cmocka_unit_test(running_statistics_that_move_alike_are_one_op),
        cmocka_unit_test(an_empty_shard_contributes_nothing),
        cmocka_unit_test(weights_and_statistics_come_out_as_they_went_in),
        cmocka_unit_test(arenas_end_with_the_statistics),
        cmocka_unit_test(a_shard_with_batch_norm_is_never_cut),
        cmocka_unit_test(any_number_of_workers_gives_the_same_bits),
        cmocka_unit_test(sharing_memory_changes_no_bit),
        cmocka_unit_test(only_training_changes_images),
        cmocka_unit_test(fully_smoothed_labels_do_not_matter),
        cmocka_unit_test(resnets_first_logits_are_next_to_nothing),
        cmocka_unit_test(resnets_memory_is_planned_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
