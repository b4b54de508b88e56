/* SPDX-License-Identifier: MIT */
/* Tests that updates by pieces (nn/replica.h) give the same bits as updates from a total in memory.
 * Also tests that replicas whose model or optimizer needs the total in memory do not support
 * updates by pieces. */
#include "nn/nn_fixture.h"
#include "nn/replica_impl.h"
#include "nn/wrapped_device.h"
#include "runner.h"

#include <stdbool.h>
#include <string.h>

/* The first layer has more weights than a piece, and their number is not a multiple of a piece. */
static const char json[] = "[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":77},"
                           "{\"type\":\"relu\"},{\"type\":\"dense\",\"out\":4}]";
static const ls_shape shape = {2, 8, 7};
enum { CLASSES = 4, ROWS = 6, FLOATS = 112 * 77 + 77 + 77 * 4 + 4 };

/* A replica with its device, model, optimizer and data. */
typedef struct bench {
    counting_host host;
    wrapped_device wrap;
    ls_network *model;
    ls_optimizer optimizer;
    ls_replica_data data;
    ls_replica *replica;
} bench;

static void bench_begin(bench *b, const char *optimizer, double ema)
{
    static const uint32_t shards[] = {ROWS};
    ls_error err = {0};
    memset(b, 0, sizeof *b);
    counting_host_init(&b->host);
    b->model = make_model(json, shape, CLASSES);
    b->optimizer = make_optimizer(optimizer);
    b->optimizer.ema = ema;
    b->data = make_data(ROWS, shape, CLASSES, 1);
    wrap_device(&b->wrap, open_ref64(&b->host.host), 0);
    assert_int_equal(b->model->floats, FLOATS);
    const ls_replica_desc desc = {
        .device = &b->wrap.device,
        .model = b->model,
        .optimizer = &b->optimizer,
        .normalisation = plain_pixels,
        .data = {b->data, b->data},
        .shard_rows = shards,
        .shard_row_counts = 1,
        .host = &b->host.host,
    };
    must(ls_replica_create(&b->replica, &desc, &err), &err);
}

static void bench_end(bench *b)
{
    ls_replica_destroy(b->replica);
    unwrap_device(&b->wrap);
    assert_int_equal(b->host.live, 0);
    free_data(&b->data);
    free_model(b->model);
}

/* Copies a piece of the total, which is the array `user`. */
static void copy_piece(void *user, float *out, size_t first, size_t count)
{
    memcpy(out, (const float *)user + first, count * sizeof *out);
}

/* Applies three updates with the same total. Copies the weights and the optimizer's first state to
 * `weights` and `slot`. */
static void update_thrice(float *weights, float *slot, const char *optimizer, bool by_pieces)
{
    static float start[FLOATS];
    bench b;
    ls_error err = {0};
    bench_begin(&b, optimizer, 0);
    ls_replica *r = b.replica;
    fill_uniform(start, FLOATS, 0.5f, 2);
    must(ls_replica_import(r, ls_replica_weight_arena(r), start, &err), &err);
    assert_true(ls_replica_takes_pieces(r));
    must(ls_replica_prepare_pieces(r, &err), &err);
    must(ls_replica_prepare_pieces(r, &err), &err); /* the second call does nothing */
    float *total = ls_replica_total_arena(r);
    fill_uniform(total, ls_replica_tail_offset(r), 1, 3);
    for (uint64_t step = 1; step <= 3; step++) {
        const ls_replica_step update = {0.25f, 0.125f, ROWS, step};
        must(by_pieces ? ls_replica_apply_pieces(r, &update, copy_piece, total, NULL, &err)
                       : ls_replica_apply(r, &update, NULL, &err),
             &err);
    }
    must(ls_replica_export(r, weights, ls_replica_weight_arena(r), &err), &err);
    must(ls_replica_export(r, slot, ls_replica_slot_arena(r, 0), &err), &err);
    bench_end(&b);
}

static void updates_by_pieces_have_the_same_bits(void **state)
{
    static const char *const optimizers[] = {
        "{\"lr\":0.1,\"momentum\":0.5,\"weight_decay\":0.01}",
        "{\"lr\":0.1,\"momentum\":0.5,\"nesterov\":true}",
        "{\"name\":\"adamw\",\"lr\":0.01,\"weight_decay\":0.1}",
    };
    static float weights[2][FLOATS], slot[2][FLOATS];
    (void)state;
    for (int i = 0; i < 3; i++) {
        for (int by_pieces = 0; by_pieces < 2; by_pieces++)
            update_thrice(weights[by_pieces], slot[by_pieces], optimizers[i], by_pieces);
        assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
        assert_memory_equal(slot[0], slot[1], sizeof slot[0]);
    }
}

/* Gradient clipping and the moving average need the whole total in memory. */
static void clipping_and_averages_need_a_total(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bench b;
        bench_begin(&b, i ? "{\"lr\":0.1}" : "{\"lr\":0.1,\"clip_norm\":1}", i ? 0.9 : 0);
        assert_false(ls_replica_takes_pieces(b.replica));
        bench_end(&b);
    }
}

/* If an allocation fails, ls_replica_prepare_pieces can be called again. */
static void a_refused_allocation_can_be_repeated(void **state)
{
    ls_error err = {0};
    (void)state;
    for (int at = 1;; at++) {
        bench b;
        bench_begin(&b, "{\"lr\":0.1}", 0);
        b.host.fail_at = b.host.allocations + at;
        const int status = ls_replica_prepare_pieces(b.replica, &err);
        b.host.fail_at = 0;
        must(ls_replica_prepare_pieces(b.replica, &err), &err);
        const ls_replica_step update = {0.25f, 0.125f, ROWS, 1};
        must(ls_replica_apply_pieces(b.replica, &update, copy_piece,
                                     ls_replica_total_arena(b.replica), NULL, &err),
             &err);
        bench_end(&b);
        if (status == LS_OK)
            break;
        assert_int_equal(status, LS_ENOMEM);
    }
}

LS_TESTS(nn_updates_by_pieces, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_by_pieces_have_the_same_bits),
        cmocka_unit_test(clipping_and_averages_need_a_total),
        cmocka_unit_test(a_refused_allocation_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
