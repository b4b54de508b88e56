/* SPDX-License-Identifier: MIT */
/* Tests a backward pass by buckets, which are parts of the gradient (nn/replica.h). The function
 * `ready` must be called after each bucket but the last. When it is called, the reported floats
 * must be complete. */
#include "nn/nn_fixture.h"

#include "base/error.h"
#include "nn/wrapped_device.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>

static const ls_shape input = {2, 8, 7};
static const char layers[] =
    "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":5,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"batch_norm\",\"name\":\"n1\"},{\"type\":\"relu\"},"
    "{\"type\":\"max_pool\",\"kernel\":2},{\"type\":\"flatten\"},"
    "{\"type\":\"dense\",\"name\":\"f1\",\"out\":40},{\"type\":\"relu\"},"
    "{\"type\":\"dense\",\"name\":\"f2\",\"out\":40},{\"type\":\"relu\"},"
    "{\"type\":\"dense\",\"name\":\"f3\",\"out\":4}]";
static const char plain_layers[] =
    "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":5,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},{\"type\":\"max_pool\",\"kernel\":2},{\"type\":\"flatten\"},"
    "{\"type\":\"dense\",\"name\":\"f1\",\"out\":40},{\"type\":\"relu\"},"
    "{\"type\":\"dense\",\"name\":\"f2\",\"out\":40},{\"type\":\"relu\"},"
    "{\"type\":\"dense\",\"name\":\"f3\",\"out\":4}]";

/* Order of the arena (the array of all gradients): f3 160+16 floats (weight + bias, rounded up to
 * 16), f2 1600+48, f1 2400+48, then the first layers. */
enum { CLASSES = 4, ROWS = 24, SHARD = 12, AFTER_F2 = 1824, AFTER_F1 = 4272, LEAST = 1500 };

typedef struct bench {
    wrapped_device wrap;
    ls_network *model;
    ls_optimizer optimizer;
    ls_replica_data data;
    ls_replica *replica;
    /* The values of `floats` that were reported. */
    size_t reported[16];
    int reports, fail_at;
    float *seen; /* copy of the reported floats at the time of the report */
} bench;

static void open_bench(bench *b, const char *json, int block_rows, size_t least)
{
    static const uint32_t shards[] = {SHARD};
    ls_error err = {0};
    memset(b, 0, sizeof *b);
    b->model = make_model(json, input, CLASSES);
    b->optimizer = make_optimizer("{\"lr\":0.1}");
    b->data = make_data(ROWS, input, CLASSES, 1);
    wrap_device(&b->wrap, open_ref64(NULL), block_rows);
    ls_replica_desc desc = {
        .device = &b->wrap.device,
        .model = b->model,
        .optimizer = &b->optimizer,
        .normalisation = plain_pixels,
        .data = {b->data, b->data},
        .shard_rows = shards,
        .shard_row_counts = 1,
        .seed = 9,
        .bucket_floats = least,
    };
    must(ls_replica_create(&b->replica, &desc, &err), &err);
    float *weights = calloc(b->model->floats, sizeof *weights);
    fill_weights(weights, b->model, 0.4f, 2);
    must(ls_replica_import(b->replica, ls_replica_weight_arena(b->replica), weights, &err), &err);
    free(weights);
    b->seen = calloc(ls_replica_floats(b->replica), sizeof *b->seen);
}

static void close_bench(bench *b)
{
    ls_replica_destroy(b->replica);
    unwrap_device(&b->wrap);
    free(b->seen);
    free_data(&b->data);
    free_model(b->model);
}

static int note_floats(void *user, size_t floats, ls_error *err)
{
    bench *b = user;
    size_t before = b->reports > 0 ? b->reported[b->reports - 1] : 0;
    b->reported[b->reports++] = floats;
    memcpy(b->seen + before, ls_replica_gradient_arena(b->replica) + before,
           (floats - before) * sizeof *b->seen);
    return b->reports == b->fail_at ? ls_fail(err, LS_EABORTED, "another worker failed first")
                                    : LS_OK;
}

static int run(bench *b, uint32_t n, ls_error *err)
{
    uint32_t rows[SHARD];
    for (uint32_t i = 0; i < SHARD; i++)
        rows[i] = (i * 5) % ROWS;
    b->reports = 0;
    return ls_replica_gradient(b->replica, rows, n, 0, NULL, err);
}

static float *gradient(bench *b, uint32_t n)
{
    ls_error err = {0};
    const size_t floats = ls_replica_floats(b->replica);
    float *out = calloc(floats, sizeof *out);
    memset(ls_replica_gradient_arena(b->replica), 0x7f, floats * sizeof *out); /* not zero */
    must(run(b, n, &err), &err);
    memcpy(out, ls_replica_gradient_arena(b->replica), floats * sizeof *out);
    return out;
}

static void expect_pieces(const char *json, int block_rows)
{
    ls_error err = {0};
    bench b;
    open_bench(&b, json, block_rows, LEAST);
    const size_t tail = ls_replica_tail_offset(b.replica);
    float *whole = gradient(&b, SHARD);
    assert_int_equal(b.reports, 0);
    must(ls_replica_on_ready(b.replica, note_floats, &b, &err), &err);
    float *pieces = gradient(&b, SHARD);
    /* The floats after f1 are fewer than the smallest size of a bucket. */
    assert_int_equal(b.reports, 1);
    assert_int_equal(b.reported[0], AFTER_F2);
    assert_memory_equal(b.seen, whole, AFTER_F2 * sizeof *whole);
    assert_memory_equal(pieces, whole, (tail + LS_TAIL) * sizeof *whole);
    must(ls_replica_on_ready(b.replica, NULL, NULL, &err), &err);
    free(pieces);
    pieces = gradient(&b, SHARD);
    assert_int_equal(b.reports, 0);
    free(pieces);
    free(whole);
    close_bench(&b);
}

static void what_is_told_is_complete_and_the_gradient_the_same(void **state)
{
    (void)state;
    expect_pieces(plain_layers, 0);
    expect_pieces(layers, 0);
}

static void a_shard_in_blocks_is_told_of_in_its_last(void **state)
{
    (void)state;
    expect_pieces(plain_layers, 5);
}

static void smaller_pieces_are_told_of_in_ascending_order(void **state)
{
    static const size_t want[] = {176, AFTER_F2, AFTER_F1};
    ls_error err = {0};
    bench b;
    (void)state;
    open_bench(&b, plain_layers, 0, 90);
    /* A bucket has at least an eighth of the arena. An eighth is more than f3, so there are fewer
     * buckets than parameters. */
    must(ls_replica_on_ready(b.replica, note_floats, &b, &err), &err);
    float *g = gradient(&b, SHARD);
    const size_t least = ls_replica_floats(b.replica) / 8 + 1;
    int cuts = 0;
    size_t begin = 0;
    for (int i = 0; i < 3; i++)
        if (want[i] - begin >= least && ls_replica_floats(b.replica) - want[i] >= least) {
            assert_true(cuts < b.reports);
            assert_int_equal(b.reported[cuts++], want[i]);
            begin = want[i];
        }
    assert_int_equal(b.reports, cuts);
    assert_true(cuts >= 1);
    free(g);
    close_bench(&b);
}

/* An empty shard reports the same floats as a shard with rows. */
static void an_empty_shard_is_told_of_alike(void **state)
{
    ls_error err = {0};
    bench b;
    (void)state;
    open_bench(&b, layers, 0, LEAST);
    must(ls_replica_on_ready(b.replica, note_floats, &b, &err), &err);
    float *g = gradient(&b, 0);
    assert_int_equal(b.reports, 1);
    assert_int_equal(b.reported[0], AFTER_F2);
    for (size_t i = 0; i < AFTER_F2; i++)
        assert_true(b.seen[i] == 0);
    free(g);
    close_bench(&b);
}

static void a_small_model_has_one_piece(void **state)
{
    ls_error err = {0};
    bench b;
    (void)state;
    open_bench(&b, plain_layers, 0, 0);
    must(ls_replica_on_ready(b.replica, note_floats, &b, &err), &err);
    free(gradient(&b, SHARD));
    assert_int_equal(b.reports, 0);
    close_bench(&b);
}

static void who_cannot_be_told_ends_the_call_and_it_can_be_repeated(void **state)
{
    ls_error err = {0};
    bench b;
    (void)state;
    open_bench(&b, layers, 0, LEAST);
    float *want = gradient(&b, SHARD);
    must(ls_replica_on_ready(b.replica, note_floats, &b, &err), &err);
    b.fail_at = 1;
    assert_int_equal(run(&b, SHARD, &err), LS_EABORTED);
    assert_string_equal(err.text, "another worker failed first");
    b.fail_at = 0;
    float *again = gradient(&b, SHARD);
    assert_memory_equal(again, want, (ls_replica_tail_offset(b.replica) + LS_TAIL) * sizeof *want);
    free(again);
    free(want);
    close_bench(&b);
}

LS_TESTS(nn_pieces, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_is_complete_and_the_gradient_the_same),
        cmocka_unit_test(a_shard_in_blocks_is_told_of_in_its_last),
        cmocka_unit_test(smaller_pieces_are_told_of_in_ascending_order),
        cmocka_unit_test(an_empty_shard_is_told_of_alike),
        cmocka_unit_test(a_small_model_has_one_piece),
        cmocka_unit_test(who_cannot_be_told_ends_the_call_and_it_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
