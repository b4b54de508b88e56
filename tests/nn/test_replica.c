/* SPDX-License-Identifier: MIT */
/* Tests a replica (a model on a device): gradients, evaluation and steps, also in blocks of rows,
 * and every kind of failure. */
#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#endif
#include "nn/nn_fixture.h"
#include "runner.h"

#include "nn/replica_impl.h"
#include "nn/wrapped_device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_shape small = {2, 8, 7};
static const char small_json[] =
    "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":5,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},{\"type\":\"max_pool\",\"kernel\":2},"
    "{\"type\":\"conv2d\",\"name\":\"c2\",\"out\":6,\"kernel\":2,\"bias\":false},"
    "{\"type\":\"avg_pool\",\"kernel\":2},{\"type\":\"flatten\"},{\"type\":\"relu\"},"
    "{\"type\":\"dense\",\"name\":\"f1\",\"out\":9},{\"type\":\"relu\"},"
    "{\"type\":\"dense\",\"name\":\"f2\",\"out\":4}]";

enum { CLASSES = 4, ROWS = 64 };

/* A replica, with its device, model, optimizer and data. */
typedef struct bench {
    counting_host host;
    wrapped_device wrap;
    ls_network *model;
    ls_optimizer optimizer;
    ls_replica_data data;
    ls_replica *replica;
    float *weights; /* canonical */
    ls_gather pixels;
} bench;

/* Creates model, data and a device with blocks of `block_rows` rows, but no replica. */
static void bench_begin(bench *b, int block_rows)
{
    memset(b, 0, sizeof *b);
    counting_host_init(&b->host);
    b->model = make_model(small_json, small, CLASSES);
    b->optimizer = make_optimizer("{\"lr\":0.1,\"momentum\":0.5,\"weight_decay\":0.01}");
    b->pixels = plain_pixels;
    b->data = make_data(ROWS, small, CLASSES, 1);
    b->weights = calloc(b->model->floats, sizeof *b->weights);
    fill_uniform(b->weights, b->model->floats, 0.5f, 2);
    wrap_device(&b->wrap, open_ref64(&b->host.host), block_rows);
}

static void bench_end(bench *b)
{
    ls_replica_destroy(b->replica);
    unwrap_device(&b->wrap);
    assert_int_equal(b->host.live, 0);
    free(b->weights);
    free_data(&b->data);
    free_model(b->model);
}

static int create(bench *b, const uint32_t *shards, int count, ls_error *err)
{
    ls_replica_desc desc = {
        .device = &b->wrap.device,
        .model = b->model,
        .optimizer = &b->optimizer,
        .normalisation = b->pixels,
        .data = {b->data, b->data},
        .shard_rows = shards,
        .shard_row_counts = count,
        .seed = 9,
        .host = &b->host.host,
    };
    int rc = ls_replica_create(&b->replica, &desc, err);
    if (rc != LS_OK)
        return rc;
    return ls_replica_import(b->replica, ls_replica_weight_arena(b->replica), b->weights, err);
}

static void bench_with(bench *b, int block_rows, const uint32_t *shards, int count)
{
    ls_error err = {0};
    bench_begin(b, block_rows);
    must(create(b, shards, count, &err), &err);
}

static void list_rows(uint32_t *rows, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (first + 7 * i) % ROWS;
}

/* Returns the gradient of n rows in canonical layout, and writes the tail. The caller frees the
 * array. */
static float *gradient_of(bench *b, uint32_t first, uint32_t n, float tail[LS_TAIL])
{
    uint32_t rows[ROWS];
    ls_error err = {0};
    float *g = calloc(b->model->floats, sizeof *g);
    float *arena = ls_replica_gradient_arena(b->replica);
    list_rows(rows, first, n);
    must(ls_replica_gradient(b->replica, rows, n, 0, NULL, &err), &err);
    must(ls_replica_export(b->replica, g, arena, &err), &err);
    memcpy(tail, arena + ls_replica_tail_offset(b->replica), LS_TAIL * sizeof *tail);
    return g;
}

static double distance(const float *a, const float *b, size_t n)
{
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        norm += pow((double)b[i], 2);
    }
    return sqrt(difference / (norm > 0 ? norm : 1));
}

/* ---- arenas --------------------------------------------------------------------------------- */

static void arenas_hold_parameters_in_reverse_at_multiples_of_16(void **state)
{
    (void)state;
    static const uint32_t shards[] = {8};
    /* Order of the arena: f2 36+4 floats, f1 54+9, c2 120, c1 90+5, each rounded up to 16, then the
     * tail. */
    static const size_t want[] = {0, 48, 64, 128, 144, 272, 368, 384, 400};
    bench b;
    int count;
    bench_with(&b, 0, shards, 1);
    const size_t *offsets = ls_replica_param_offsets(b.replica, &count);
    assert_int_equal(count, 8);
    for (int i = 0; i <= count; i++)
        assert_int_equal(offsets[i], want[i]);
    assert_int_equal(ls_replica_floats(b.replica), 400);
    assert_non_null(ls_replica_slot_arena(b.replica, 0));
    assert_null(ls_replica_slot_arena(b.replica, 1));
    assert_null(ls_replica_slot_arena(b.replica, -1));
    bench_end(&b);
}

static void weights_come_out_as_they_went_in(void **state)
{
    (void)state;
    static const uint32_t shards[] = {8};
    bench b;
    ls_error err = {0};
    bench_with(&b, 0, shards, 1);
    float *out = calloc(b.model->floats, sizeof *out);
    must(ls_replica_export(b.replica, out, ls_replica_weight_arena(b.replica), &err), &err);
    assert_memory_equal(out, b.weights, b.model->floats * sizeof *out);
    free(out);
    bench_end(&b);
}

/* ---- gradients ------------------------------------------------------------------------------ */

static void a_shard_in_blocks_equals_the_whole_shard(void **state)
{
    (void)state;
    static const uint32_t shards[] = {22, 5, 16};
    bench whole;
    bench blocks;
    float tail[2][LS_TAIL];
    bench_with(&whole, 0, shards, 3);
    bench_with(&blocks, 8, shards, 3);
    for (int i = 0; i < 3; i++) {
        float *a = gradient_of(&whole, 3, shards[i], tail[0]);
        float *b = gradient_of(&blocks, 3, shards[i], tail[1]);
        assert_true(distance(b, a, whole.model->floats) < 1e-6);
        assert_true(fabs((double)(tail[0][LS_TAIL_LOSS] - tail[1][LS_TAIL_LOSS])) < 1e-4);
        assert_true(tail[0][LS_TAIL_CORRECT] == tail[1][LS_TAIL_CORRECT]);
        assert_true(tail[1][LS_TAIL_ROWS] == (float)shards[i]);
        free(a);
        free(b);
    }
    bench_end(&whole);
    bench_end(&blocks);
}

#ifdef LOCKSTEP_WITH_CPU
/* Returns the gradient of n rows on the CPU back end, in blocks of `block_rows` rows (0: one
 * block). Each row is mixed with another row, as in augmentation (mixup). block_rows −1: one block,
 * and rows are not mixed. */
static float *mixed_gradient(int block_rows, uint32_t n, float tail[LS_TAIL])
{
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_device *device = NULL;
    ls_error err = {0};
    bench b;
    bench_begin(&b, 0);
    unwrap_device(&b.wrap);
    must(ls_cpu_backend()->open(&device, &request, &err), &err);
    must(device->ops->bind(device, &err), &err);
    wrap_device(&b.wrap, device, block_rows < 0 ? 0 : block_rows);
    b.pixels.mixup = block_rows < 0 ? 0 : 128;
    must(create(&b, &n, 1, &err), &err);
    float *gradient = gradient_of(&b, 3, n, tail);
    bench_end(&b);
    return gradient;
}

/* The last row of a block is mixed with a row of the next block, and the last row of the shard with
 * a row of the first block. The CPU's sums have the same bits with blocks of 32 rows as without
 * blocks. With blocks of 16 rows the sums differ by rounding. */
static void rows_are_mixed_alike_in_blocks_of_any_size(void **state)
{
    (void)state;
    float tail[2][LS_TAIL];
    ls_network *model = make_model(small_json, small, CLASSES);
    for (uint32_t n = 33; n < 64; n += 15) {
        float *plain = mixed_gradient(-1, n, tail[0]), *whole = mixed_gradient(0, n, tail[0]);
        assert_true(distance(plain, whole, model->floats) > 1e-2);
        for (int block = 16; block <= 32; block += 16) {
            float *blocks = mixed_gradient(block, n, tail[1]);
            assert_true(distance(blocks, whole, model->floats) < 1e-6);
            if (block == 32)
                assert_memory_equal(blocks, whole, model->floats * sizeof *blocks);
            free(blocks);
        }
        free(plain);
        free(whole);
    }
    free_model(model);
}

#endif

static const char wide_json[] = "[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":64},"
                                "{\"type\":\"relu\"},{\"type\":\"dense\",\"out\":4}]";

/* The wide model has many more weights than activations per row, so a block has 16 rows instead of
 * 2. */
static void weights_that_outnumber_activations_are_read_for_larger_blocks(void **state)
{
    (void)state;
    static const uint32_t shards[] = {22, 5, 16};
    float tail[2][LS_TAIL];
    for (int wide = 0; wide < 2; wide++) {
        bench b;
        ls_error err = {0};
        bench_begin(&b, 2);
        if (wide) {
            free_model(b.model);
            free(b.weights);
            b.model = make_model(wide_json, small, CLASSES);
            b.weights = calloc(b.model->floats, sizeof *b.weights);
            fill_uniform(b.weights, b.model->floats, 0.5f, 2);
        }
        must(create(&b, shards, 3, &err), &err);
        assert_int_equal(ls_replica_block_rows(b.replica, 22, 0), wide ? 16 : 2);
        float *gradient = gradient_of(&b, 3, 22, tail[wide]);
        assert_true(tail[wide][LS_TAIL_ROWS] == 22);
        free(gradient);
        bench_end(&b);
    }
}

static void gradients_are_sums_over_rows(void **state)
{
    (void)state;
    static const uint32_t shards[] = {10, 5};
    bench b;
    float tail[LS_TAIL];
    bench_with(&b, 0, shards, 2);
    float *both = gradient_of(&b, 0, 10, tail);
    float loss = tail[LS_TAIL_LOSS];
    float *first = gradient_of(&b, 0, 5, tail);
    loss -= tail[LS_TAIL_LOSS];
    float *second = gradient_of(&b, 35, 5, tail); /* list_rows lists every seventh row */
    loss -= tail[LS_TAIL_LOSS];
    for (size_t i = 0; i < b.model->floats; i++)
        first[i] += second[i];
    assert_true(distance(first, both, b.model->floats) < 1e-6);
    assert_true(fabsf(loss) < 1e-5f);
    free(both);
    free(first);
    free(second);
    bench_end(&b);
}

static void an_empty_shard_gives_zeros(void **state)
{
    (void)state;
    static const uint32_t shards[] = {0, 6};
    bench b;
    ls_error err = {0};
    float tail[LS_TAIL];
    bench_with(&b, 4, shards, 2);
    free(gradient_of(&b, 0, 6, tail));
    must(ls_replica_gradient(b.replica, NULL, 0, 0, NULL, &err), &err);
    const float *arena = ls_replica_gradient_arena(b.replica);
    for (size_t i = 0; i < ls_replica_floats(b.replica); i++)
        assert_true(arena[i] == 0);
    bench_end(&b);
}

static void the_tail_says_rows_and_no_failure(void **state)
{
    (void)state;
    static const uint32_t shards[] = {6};
    bench b;
    float tail[LS_TAIL];
    bench_with(&b, 0, shards, 1);
    float *arena = ls_replica_gradient_arena(b.replica);
    for (size_t i = 0; i < LS_TAIL; i++)
        arena[ls_replica_tail_offset(b.replica) + i] = 77; /* as after another step */
    free(gradient_of(&b, 0, 6, tail));
    assert_true(tail[LS_TAIL_ROWS] == 6);
    for (int i = LS_TAIL_ROWS + 1; i < LS_TAIL; i++)
        assert_true(tail[i] == 0);
    bench_end(&b);
}

static void the_same_call_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t shards[] = {13, 4};
    bench b;
    float tail[2][LS_TAIL];
    bench_with(&b, 4, shards, 2);
    float *first = gradient_of(&b, 1, 13, tail[0]);
    free(gradient_of(&b, 20, 4, tail[1])); /* the earlier calls must have no effect */
    float *again = gradient_of(&b, 1, 13, tail[1]);
    assert_memory_equal(first, again, b.model->floats * sizeof *first);
    assert_memory_equal(tail[0], tail[1], sizeof tail[0]);
    free(first);
    free(again);
    bench_end(&b);
}

/* ---- evaluation ----------------------------------------------------------------------------- */

static void evaluation_agrees_with_the_gradients_tail(void **state)
{
    (void)state;
    static const uint32_t shards[] = {22, 5};
    bench b;
    float tail[LS_TAIL];
    ls_error err = {0};
    uint32_t rows[ROWS];
    double loss;
    double correct;
    bench_with(&b, 8, shards, 2);
    for (int i = 0; i < 2; i++) {
        free(gradient_of(&b, 3, shards[i], tail));
        list_rows(rows, 3, shards[i]);
        for (int subset = 0; subset < LS_SUBSETS; subset++) {
            must(ls_replica_evaluate(b.replica, (ls_subset)subset, rows, shards[i], &loss, &correct,
                                     NULL, &err),
                 &err);
            assert_true(fabs(loss - (double)tail[LS_TAIL_LOSS]) < 1e-4);
            assert_true(correct == (double)tail[LS_TAIL_CORRECT]);
        }
    }
    must(ls_replica_evaluate(b.replica, LS_TEST, NULL, 0, &loss, &correct, NULL, &err), &err);
    assert_true(loss == 0 && correct == 0);
    bench_end(&b);
}

static void evaluation_leaves_gradient_and_weights_alone(void **state)
{
    (void)state;
    static const uint32_t shards[] = {6};
    bench b;
    float tail[LS_TAIL];
    ls_error err = {0};
    uint32_t rows[ROWS];
    double loss;
    double correct;
    bench_with(&b, 4, shards, 1);
    free(gradient_of(&b, 0, 6, tail));
    size_t bytes = ls_replica_floats(b.replica) * sizeof(float);
    float *gradient = malloc(bytes);
    float *weights = malloc(bytes);
    memcpy(gradient, ls_replica_gradient_arena(b.replica), bytes);
    memcpy(weights, ls_replica_weight_arena(b.replica), bytes);
    list_rows(rows, 40, 6);
    must(ls_replica_evaluate(b.replica, LS_TEST, rows, 6, &loss, &correct, NULL, &err), &err);
    assert_memory_equal(gradient, ls_replica_gradient_arena(b.replica), bytes);
    assert_memory_equal(weights, ls_replica_weight_arena(b.replica), bytes);
    free(gradient);
    free(weights);
    bench_end(&b);
}

static void a_replica_without_optimizer_only_evaluates(void **state)
{
    (void)state;
    static const uint32_t shards[] = {5};
    bench b;
    ls_error err = {0};
    uint32_t rows[ROWS];
    double loss = 0;
    double correct;
    bench_begin(&b, 0);
    ls_replica_desc desc = {
        .device = &b.wrap.device,
        .model = b.model,
        .normalisation = plain_pixels,
        .shard_rows = shards,
        .shard_row_counts = 1,
        .host = &b.host.host,
    };
    desc.data[LS_TEST] = b.data;
    must(ls_replica_create(&b.replica, &desc, &err), &err);
    must(ls_replica_import(b.replica, ls_replica_weight_arena(b.replica), b.weights, &err), &err);
    list_rows(rows, 0, 5);
    must(ls_replica_evaluate(b.replica, LS_TEST, rows, 5, &loss, &correct, NULL, &err), &err);
    assert_true(loss > 0);
    assert_null(ls_replica_gradient_arena(b.replica));
    assert_int_equal(ls_replica_gradient(b.replica, rows, 5, 0, NULL, &err), LS_EINVAL);
    assert_int_equal(ls_replica_apply(b.replica, &(ls_replica_step){1, 1, 5, 1}, NULL, &err),
                     LS_EINVAL);
    assert_int_equal(ls_replica_evaluate(b.replica, LS_TRAIN, rows, 5, &loss, &correct, NULL, &err),
                     LS_EINVAL);
    assert_string_equal(err.text, "replica: it was made without training data");
    bench_end(&b);
}

/* ---- update --------------------------------------------------------------------------------- */

/* `elsewhere` true: the total is in memory of the caller; false: it is in the replica's own
 * arena. */
static void check_momentum_sgd(bool elsewhere)
{
    static const uint32_t shards[] = {6};
    bench b;
    float tail[LS_TAIL];
    ls_error err = {0};
    ls_replica_times times = {0};
    bench_with(&b, 0, shards, 1);
    size_t n = b.model->floats;
    float *total = elsewhere ? calloc(ls_replica_floats(b.replica), sizeof *total) : NULL;
    if (elsewhere)
        must(ls_replica_total_at(b.replica, total, &err), &err);
    assert_true(!elsewhere || ls_replica_total_arena(b.replica) == total);
    float *g = gradient_of(&b, 0, 6, tail);
    float *w = malloc(n * sizeof *w);
    float *v = calloc(n, sizeof *v);
    memcpy(ls_replica_total_arena(b.replica), ls_replica_gradient_arena(b.replica),
           ls_replica_floats(b.replica) * sizeof *g);
    for (int step = 0; step < 3; step++) {
        const ls_replica_step update = {0.25f, 0.125f, 6, (uint64_t)step + 1};
        must(ls_replica_apply(b.replica, &update, &times, &err), &err);
        for (size_t i = 0; i < n; i++) {
            v[i] = 0.5f * v[i] + (g[i] * 0.125f + 0.01f * b.weights[i]);
            b.weights[i] -= 0.25f * v[i];
        }
    }
    must(ls_replica_export(b.replica, w, ls_replica_weight_arena(b.replica), &err), &err);
    assert_true(distance(w, b.weights, n) < 1e-6);
    must(ls_replica_export(b.replica, w, ls_replica_slot_arena(b.replica, 0), &err), &err);
    assert_true(distance(w, v, n) < 1e-6);
    assert_true(times.apply > 0);
    must(ls_replica_sync(b.replica, &err), &err);
    must(ls_replica_total_at(b.replica, NULL, &err), &err);
    assert_true(ls_replica_total_arena(b.replica) != total);
    free(total);
    free(g);
    free(v);
    free(w);
    bench_end(&b);
}

static void a_step_is_momentum_sgd(void **state)
{
    (void)state;
    check_momentum_sgd(false);
    check_momentum_sgd(true);
}

static void times_are_added_to(void **state)
{
    (void)state;
    static const uint32_t shards[] = {6};
    bench b;
    uint32_t rows[ROWS];
    ls_error err = {0};
    ls_replica_times times = {1, 1, 1, 1};
    bench_with(&b, 4, shards, 1);
    list_rows(rows, 0, 6);
    must(ls_replica_gradient(b.replica, rows, 6, 0, &times, &err), &err);
    assert_true(times.gather > 1 && times.forward > 1 && times.backward > 1);
    assert_true(times.apply == 1);
    bench_end(&b);
}

/* ---- plans ---------------------------------------------------------------------------------- */

static void every_row_count_of_every_shard_gets_one_plan(void **state)
{
    (void)state;
    static const uint32_t shards[] = {22, 16, 6, 0, 3, 22};
    bench b;
    char seen[64] = "", line[LS_LINE_BYTES];
    bench_with(&b, 8, shards, 6); /* numbers of rows of the blocks of the shards: 8 8 6, 8 8, 6,
                                   * none, 3 */
    for (int i = 0; ls_replica_plan_line(line, b.replica, i); i++) {
        if (strncmp(line, "gather", 6) == 0) {
            strcat(seen, " ");
            strncat(seen, line + 7, strcspn(line + 7, "\xC3"));
        }
    }
    assert_string_equal(seen, " 8 6 3");
    assert_null(ls_replica_plan_line(line, b.replica, -1));
    bench_end(&b);
}

static void plan_lines_name_layers_shapes_and_kernels(void **state)
{
    (void)state;
    static const uint32_t shards[] = {6};
    char line[LS_LINE_BYTES];
    bench b;
    bench_with(&b, 0, shards, 1);
    static const char *const want[] = {
        "gather 6×2×8×7 → 6×2×8×7 ",
        "c1+relu 6×2×8×7 → 6×5×8×7 ",
        "max_pool 6×5×8×7 → 6×5×4×3 ",
        "c2 6×5×4×3 → 6×6×3×2 ",
        "avg_pool 6×6×3×2 → 6×6×1×1 ",
        "relu 6×6×1×1 → 6×6×1×1 ",
        "f1+relu 6×6×1×1 → 6×9×1×1 ",
        "f2 6×9×1×1 → 6×4×1×1 ",
        "loss 6×4×1×1 ",
        "sgd 384 floats ",
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_non_null(ls_replica_plan_line(line, b.replica, (int)i));
        if (strncmp(line, want[i], strlen(want[i])) != 0)
            fail_msg("\"%s\" does not begin with \"%s\"", line, want[i]);
    }
    assert_null(ls_replica_plan_line(line, b.replica, sizeof want / sizeof *want));
    bench_end(&b);
}

/* The plan with the most rows is created first. Its ops are the twins of the other plans' ops. */
static void the_largest_plan_is_the_others_twin(void **state)
{
    (void)state;
    static const uint32_t shards[] = {3, 12, 5};
    bench b;
    bench_with(&b, 0, shards, 3);
    assert_int_equal(b.wrap.rows_of_first_layer_op, 12);
    assert_int_equal(b.wrap.layer_ops, 3 * 7);
    assert_int_equal(b.wrap.twins, 2 * 7);
    bench_end(&b);
}

static void declined_fusions_fall_back_and_change_nothing(void **state)
{
    (void)state;
    static const uint32_t shards[] = {6};
    bench fused;
    bench plain;
    float tail[2][LS_TAIL];
    ls_error err = {0};
    bench_with(&fused, 0, shards, 1);
    bench_begin(&plain, 0);
    plain.wrap.decline_fused = 1;
    must(create(&plain, shards, 1, &err), &err);
    assert_int_equal(err.status, LS_OK); /* a refused form leaves no error message */
    assert_int_equal(fused.wrap.layer_ops, 7);
    assert_int_equal(plain.wrap.layer_ops, 9);
    float *a = gradient_of(&fused, 0, 6, tail[0]);
    float *b = gradient_of(&plain, 0, 6, tail[1]);
    assert_true(distance(b, a, fused.model->floats) < 1e-6);
    free(a);
    free(b);
    bench_end(&fused);
    bench_end(&plain);
}

static void assert_form(ls_fuse_form f, int first, int last, int relu, int pool)
{
    assert_int_equal(f.add, -1);
    assert_int_equal(f.first, first);
    assert_int_equal(f.last, last);
    assert_int_equal(f.relu, relu);
    assert_int_equal(f.pool, pool);
}

static void fused_forms_are_offered_richest_first(void **state)
{
    (void)state;
    ls_fuse_form f[LS_FUSE_FORMS];
    ls_network *m = make_model(small_json, small, CLASSES);
    /* the forms of the first layer: conv + relu + pool, conv + relu, conv */
    assert_int_equal(ls_fuse_forms(f, m, 0), 3);
    assert_form(f[0], 0, 2, 1, 2);
    assert_form(f[1], 0, 1, 1, -1);
    assert_form(f[2], 0, 0, -1, -1);
    ls_op_desc d = ls_fuse_desc(m, &f[0]);
    assert_true(d.fuse_relu && d.fuse_pool && d.pool.max && d.pool.kh == 2);
    assert_int_equal(ls_fuse_forms(f, m, 3), 2); /* the form conv + pool */
    assert_form(f[0], 3, 4, -1, 4);
    d = ls_fuse_desc(m, &f[0]);
    assert_true(!d.fuse_relu && d.fuse_pool && !d.pool.max);
    /* the pool alone, because a flatten layer follows it */
    assert_int_equal(ls_fuse_forms(f, m, 4), 1);
    assert_int_equal(ls_fuse_forms(f, m, 7), 2); /* the form dense + relu */
    assert_form(f[0], 7, 8, 8, -1);
    assert_int_equal(ls_fuse_forms(f, m, 9), 1);
    free_model(m);
}

/* ---- forbidden effects ---------------------------------------------------------------------- */

static void nothing_allocates_after_create(void **state)
{
    (void)state;
    static const uint32_t shards[] = {13, 4};
    bench b;
    uint32_t rows[ROWS];
    ls_error err = {0};
    double loss;
    double correct;
    bench_with(&b, 4, shards, 2);
    list_rows(rows, 0, 13);
    long before = b.host.allocations;
    for (int i = 0; i < 3; i++) {
        must(ls_replica_gradient(b.replica, rows, 13, (uint32_t)i, NULL, &err), &err);
        must(ls_replica_gradient(b.replica, rows, 4, (uint32_t)i, NULL, &err), &err);
        must(ls_replica_gradient(b.replica, rows, 0, (uint32_t)i, NULL, &err), &err);
        must(ls_replica_apply(b.replica, &(ls_replica_step){0.1f, 0.1f, 13, 1}, NULL, &err), &err);
        must(ls_replica_evaluate(b.replica, LS_TEST, rows, 13, &loss, &correct, NULL, &err), &err);
    }
    assert_int_equal(b.host.allocations, before);
    bench_end(&b);
}

static void wrong_calls_are_refused_with_a_message(void **state)
{
    (void)state;
    static const uint32_t shards[] = {13};
    static const uint32_t none[] = {0, 0};
    static const uint32_t many[] = {1u << 25};
    bench b;
    uint32_t rows[ROWS];
    ls_error err = {0};
    bench_with(&b, 4, shards, 1);
    list_rows(rows, 0, 14);
    assert_int_equal(ls_replica_gradient(b.replica, rows, 14, 0, NULL, &err), LS_EINVAL);
    assert_string_equal(err.text, "replica: it was not made for shards of 14 rows");
    assert_int_equal(ls_replica_gradient(b.replica, rows, 3, 0, NULL, &err), LS_EINVAL);
    rows[12] = ROWS;
    assert_int_equal(ls_replica_gradient(b.replica, rows, 13, 0, NULL, &err), LS_EINVAL);
    assert_string_equal(err.text, "replica: row 64 of 64 rows of training data does not exist");
    ls_replica_destroy(b.replica);
    b.replica = NULL;
    assert_int_equal(create(&b, none, 2, &err), LS_EINVAL);
    assert_string_equal(err.text, "replica: no shard has any rows");
    assert_int_equal(create(&b, many, 1, &err), LS_EINVAL);
    ls_replica_data data = b.data;
    b.data.images = NULL;
    assert_int_equal(create(&b, shards, 1, &err), LS_EINVAL);
    assert_string_equal(err.text, "replica: there is no data to train or test on");
    b.data = data;
    bench_end(&b);
}

/* Lets each allocation of ls_replica_create fail in turn: the allocations on the host, and those on
 * the device. */
static void sweep(int host_memory)
{
    static const uint32_t shards[] = {13, 4};
    bench b;
    int rc;
    long n = 0;
    bench_begin(&b, 4);
    b.wrap.host_memory = host_memory;
    long open = b.host.live;
    do {
        ls_error err = {0};
        b.host.allocations = 0;
        b.host.fail_at = ++n;
        rc = create(&b, shards, 2, &err);
        if (rc != LS_OK) {
            assert_int_equal(rc, LS_ENOMEM);
            assert_int_equal(err.status, LS_ENOMEM);
            assert_true(strlen(err.text) > 0);
            assert_int_equal(b.host.live, open);
            assert_null(b.replica);
        }
    } while (rc != LS_OK);
    assert_true(n > 30);
    bench_end(&b);
}

static void every_failed_allocation_unwinds(void **state)
{
    (void)state;
    sweep(1);
}

static void every_failed_allocation_unwinds_with_device_memory(void **state)
{
    (void)state;
    sweep(0);
}

/* Tests ops whose creation fails, ops whose binding fails, and ops that fail when they run. */
static void a_failing_op_unwinds_with_its_message(void **state)
{
    (void)state;
    static const uint32_t shards[] = {13, 4};
    bench b;
    int rc;
    int n = 0;
    bench_begin(&b, 4);
    long open = b.host.live;
    do {
        ls_error err = {0};
        b.wrap.ops = 0;
        b.wrap.fail_op = ++n;
        rc = create(&b, shards, 2, &err);
        if (rc != LS_OK) {
            assert_int_equal(rc, LS_EDEVICE);
            assert_string_equal(err.text, "wrapped: no");
            assert_int_equal(b.host.live, open);
        }
    } while (rc != LS_OK);
    /* Each of two plans has two gathers, seven layers and two losses; sgd has one op. */
    assert_int_equal(n - 1, 2 * 11 + 1);
    bench_end(&b);
}

/* ---- a device that cannot read host memory --------------------------------------------------- */

static void rows_that_lie_otherwise_in_evaluation_are_refused(void **state)
{
    static const uint32_t shards[] = {5};
    bench b;
    ls_error err = {0};
    (void)state;
    bench_begin(&b, 0);
    b.wrap.more_in_evaluation = 64;
    assert_int_equal(create(&b, shards, 1, &err), LS_EDEVICE);
    assert_non_null(strstr(err.text, "gather: the back end lays rows for training"));
    bench_end(&b);
}

static void a_device_with_memory_of_its_own_gets_copies(void **state)
{
    (void)state;
    static const uint32_t shards[] = {13, 4};
    bench host;
    bench own;
    float tail[2][LS_TAIL];
    ls_error err = {0};
    ls_replica_memory memory;
    uint32_t rows[ROWS];
    double loss[2];
    double correct[2];
    bench_with(&host, 4, shards, 2);
    bench_begin(&own, 4);
    own.wrap.host_memory = 0;
    must(create(&own, shards, 2, &err), &err);
    ls_replica_memory_used(own.replica, &memory);
    /* Both subsets use the same rows, so there is one copy. */
    assert_int_equal(memory.dataset, ROWS * (2 * 8 * 7 + (int)sizeof(int32_t)));
    ls_replica_memory_used(host.replica, &memory);
    assert_int_equal(memory.dataset, 0);
    assert_int_equal(memory.arenas, 4 * 400 * sizeof(float));
    /* Here the caller changes its data after the device has copied them, which is allowed. */
    memset((void *)(uintptr_t)own.data.images, 0, ROWS * 2 * 8 * 7);
    memset((void *)(uintptr_t)own.data.labels, 0, ROWS * sizeof *own.data.labels);
    float *a = gradient_of(&host, 0, 13, tail[0]);
    float *b = gradient_of(&own, 0, 13, tail[1]);
    assert_memory_equal(a, b, host.model->floats * sizeof *a);
    assert_memory_equal(tail[0], tail[1], sizeof tail[0]);
    list_rows(rows, 5, 13);
    must(ls_replica_evaluate(host.replica, LS_TEST, rows, 13, &loss[0], &correct[0], NULL, &err),
         &err);
    must(ls_replica_evaluate(own.replica, LS_TEST, rows, 13, &loss[1], &correct[1], NULL, &err),
         &err);
    assert_true(loss[0] == loss[1] && correct[0] == correct[1]);
    free(a);
    free(b);
    bench_end(&host);
    bench_end(&own);
}

/* The caller may free `scores` when the function has returned, also after an error. */
static void scores_on_their_way_are_awaited_when_what_follows_fails(void **state)
{
    (void)state;
    static const uint32_t shards[] = {5};
    bench b;
    ls_error err = {0};
    uint32_t rows[ROWS];
    double loss, correct;
    float scores[5 * CLASSES];
    bench_begin(&b, 0);
    const ls_replica_desc desc = {
        .device = &b.wrap.device,
        .model = b.model,
        .normalisation = plain_pixels,
        .scores = true,
        .data[LS_TEST] = b.data,
        .shard_rows = shards,
        .shard_row_counts = 1,
        .host = &b.host.host,
    };
    must(ls_replica_create(&b.replica, &desc, &err), &err);
    must(ls_replica_import(b.replica, ls_replica_weight_arena(b.replica), b.weights, &err), &err);
    list_rows(rows, 0, 5);
    b.wrap.fail_download = 2; /* the first download is that of the scores; the second one fails */
    assert_int_equal(
        ls_replica_evaluate(b.replica, LS_TEST, rows, 5, &loss, &correct, scores, &err),
        LS_EDEVICE);
    assert_string_equal(err.text, "wrapped: nothing comes home");
    assert_int_equal(b.wrap.under_way, 0);
    bench_end(&b);
}

LS_TESTS(nn_replica, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_hold_parameters_in_reverse_at_multiples_of_16),
        cmocka_unit_test(weights_come_out_as_they_went_in),
        cmocka_unit_test(a_shard_in_blocks_equals_the_whole_shard),
#ifdef LOCKSTEP_WITH_CPU
        cmocka_unit_test(rows_are_mixed_alike_in_blocks_of_any_size),
#endif
        cmocka_unit_test(weights_that_outnumber_activations_are_read_for_larger_blocks),
        cmocka_unit_test(gradients_are_sums_over_rows),
        cmocka_unit_test(an_empty_shard_gives_zeros),
        cmocka_unit_test(the_tail_says_rows_and_no_failure),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(evaluation_agrees_with_the_gradients_tail),
        cmocka_unit_test(evaluation_leaves_gradient_and_weights_alone),
        cmocka_unit_test(a_replica_without_optimizer_only_evaluates),
        cmocka_unit_test(a_step_is_momentum_sgd),
        cmocka_unit_test(times_are_added_to),
        cmocka_unit_test(every_row_count_of_every_shard_gets_one_plan),
        cmocka_unit_test(plan_lines_name_layers_shapes_and_kernels),
        cmocka_unit_test(the_largest_plan_is_the_others_twin),
        cmocka_unit_test(declined_fusions_fall_back_and_change_nothing),
        cmocka_unit_test(fused_forms_are_offered_richest_first),
        cmocka_unit_test(nothing_allocates_after_create),
        cmocka_unit_test(wrong_calls_are_refused_with_a_message),
        cmocka_unit_test(every_failed_allocation_unwinds),
        cmocka_unit_test(every_failed_allocation_unwinds_with_device_memory),
        cmocka_unit_test(a_failing_op_unwinds_with_its_message),
        cmocka_unit_test(rows_that_lie_otherwise_in_evaluation_are_refused),
        cmocka_unit_test(a_device_with_memory_of_its_own_gets_copies),
        cmocka_unit_test(scores_on_their_way_are_awaited_when_what_follows_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
