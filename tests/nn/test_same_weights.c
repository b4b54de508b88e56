/* SPDX-License-Identifier: MIT */
/* A back end may compute data from the weights for one shard of a step, and use the data again for
 * the other shards, if the caller promises that the weights are the same (LS_RUN_SAME). This file
 * tests that a back end uses the data again only with the promise. After any function has written
 * the weights, a gradient must have the same bits as the gradient of a new replica with these
 * weights. */
#include "nn/nn_fixture.h"

#include "runner.h"

#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, CLASSES = 4 };

/* A model with convolutions whose weights the CPU back end transforms, and which compute dx. */
static const ls_shape input = {16, 6, 6};
static const char layers[] =
    "[{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":16,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"name\":\"c2\",\"out\":64,\"kernel\":3,\"padding\":1},"
    "{\"type\":\"relu\"},"
    "{\"type\":\"conv2d\",\"name\":\"c3\",\"out\":64,\"kernel\":3},"
    "{\"type\":\"flatten\"},{\"type\":\"dense\",\"name\":\"f\",\"out\":4}]";
static const uint32_t shards[] = {32, 16};

/* An allocator that counts the bytes in use. */
typedef struct byte_counter {
    ls_host host;
    size_t live;
} byte_counter;

enum {
    HEADER = 64 /* number of bytes before a block, which contain the block's size; a multiple of the
                 * alignment */
};

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    byte_counter *c = user;
    assert_true(align <= HEADER);
    char *block = aligned_alloc(HEADER, HEADER + (bytes + HEADER - 1) / HEADER * HEADER);
    memcpy(block, &bytes, sizeof bytes);
    c->live += bytes;
    return block + HEADER;
}

static void counted_free(void *user, void *memory)
{
    byte_counter *c = user;
    size_t bytes;
    memcpy(&bytes, (char *)memory - HEADER, sizeof bytes);
    c->live -= bytes;
    free((char *)memory - HEADER);
}

typedef struct bench {
    ls_network *model;
    ls_optimizer optimizer;
    byte_counter counter; /* allocator of the device */
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

static void gradient_of(ls_replica *replica, uint32_t first, uint32_t n, bool promise, float *out)
{
    uint32_t rows[ROWS];
    ls_error err = {0};
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (first + i) % ROWS;
    if (promise)
        ls_replica_promise_same_weights(replica);
    must(ls_replica_gradient(replica, rows, n, 0, NULL, &err), &err);
    must(ls_replica_export(replica, out, ls_replica_gradient_arena(replica), &err), &err);
}

/* Computes the gradient of a shard, with or without the promise. Returns whether the gradient has
 * the same bits as the gradient of a new replica. */
static bool is_like_new(const bench *b, uint32_t first, uint32_t n, bool promise)
{
    const size_t bytes = b->model->floats * sizeof(float);
    ls_replica *other = new_replica(b);
    gradient_of(b->replica, first, n, promise, b->gradient[0]);
    gradient_of(other, first, n, false, b->gradient[1]);
    ls_replica_destroy(other);
    return memcmp(b->gradient[0], b->gradient[1], bytes) == 0;
}

/* Computes three shards as a worker does in a step. */
static void shards_are_like_new(const bench *b)
{
    assert_true(is_like_new(b, 3, 32, false));
    assert_true(is_like_new(b, 35, 16, true));
    assert_true(is_like_new(b, 20, 32, true));
}

/* Applies an update with the last gradient as the total. */
static void step(bench *b)
{
    const ls_replica_step step = {.lr = 0.5f, .scale = 1.0f / 32, .rows = 32, .number = ++b->step};
    const size_t bytes = ls_replica_floats(b->replica) * sizeof(float);
    ls_error err = {0};
    memcpy(ls_replica_total_arena(b->replica), ls_replica_gradient_arena(b->replica), bytes);
    must(ls_replica_apply(b->replica, &step, NULL, &err), &err);
}

static void read_weights(bench *b, const float *arena)
{
    ls_error err = {0};
    must(ls_replica_export(b->replica, b->weights, arena, &err), &err);
}

/* Negates the weights in the arena, without a call of a function of the replica. Then reads the
 * weights. */
static void spoil_weights(bench *b)
{
    float *arena = ls_replica_weight_arena(b->replica);
    for (size_t i = 0; i < ls_replica_tail_offset(b->replica); i++)
        arena[i] = -arena[i];
    read_weights(b, arena);
}

static void open_bench(bench *b, double ema)
{
    ls_error err = {0};
    memset(b, 0, sizeof *b);
    b->counter.host = (ls_host){
        .size = sizeof(ls_host), .alloc = counted_alloc, .free = counted_free, .user = &b->counter};
    const ls_device_request request = {
        .size = sizeof request, .threads = 1, .host = &b->counter.host};
    must(ls_cpu_backend()->open(&b->device, &request, &err), &err);
    must(b->device->ops->bind(b->device, &err), &err);
    b->model = make_model(layers, input, CLASSES);
    b->optimizer = make_optimizer("{\"lr\":0.5}");
    b->optimizer.ema = ema;
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

/* Tests every function of a replica that writes weights, and a write through the arena's
 * address. */
static void gradients_follow_the_weights(void **state)
{
    (void)state;
    bench b;
    ls_error err = {0};
    open_bench(&b, 0.9);
    float *arena = ls_replica_weight_arena(b.replica);
    shards_are_like_new(&b);
    for (int i = 0; i < 2; i++) {
        step(&b);
        read_weights(&b, arena);
        shards_are_like_new(&b);
    }
    fill_uniform(b.weights, b.model->floats, 0.2f, 4);
    must(ls_replica_import(b.replica, arena, b.weights, &err), &err);
    shards_are_like_new(&b);
    for (int on = 1; on >= 0; on--) {
        must(ls_replica_use_average(b.replica, on, &err), &err);
        read_weights(&b, arena);
        shards_are_like_new(&b);
    }
    spoil_weights(&b);
    shards_are_like_new(&b);
    close_bench(&b);
}

static void copy_piece(void *user, float *out, size_t first, size_t count)
{
    memcpy(out, (const float *)user + first, count * sizeof *out);
}

static void gradients_follow_updates_by_pieces(void **state)
{
    (void)state;
    bench b;
    ls_error err = {0};
    open_bench(&b, 0);
    assert_true(ls_replica_takes_pieces(b.replica));
    must(ls_replica_prepare_pieces(b.replica, &err), &err);
    shards_are_like_new(&b);
    for (uint64_t i = 1; i < 3; i++) {
        const ls_replica_step step = {.lr = 0.5f, .scale = 1.0f / 32, .rows = 32, .number = i};
        must(ls_replica_apply_pieces(b.replica, &step, copy_piece,
                                     ls_replica_gradient_arena(b.replica), NULL, &err),
             &err);
        read_weights(&b, ls_replica_weight_arena(b.replica));
        shards_are_like_new(&b);
    }
    close_bench(&b);
}

/* A promise holds for one gradient. It has an effect only if a gradient was computed before. */
static void a_promise_holds_for_one_gradient(void **state)
{
    (void)state;
    bench b;
    ls_error err = {0};
    const uint32_t none = ROWS;
    open_bench(&b, 0.9);
    assert_true(is_like_new(&b, 0, 32, true));
    spoil_weights(&b);
    assert_false(is_like_new(&b, 0, 32, true));
    assert_true(is_like_new(&b, 0, 32, false));
    spoil_weights(&b);
    must(ls_replica_gradient(b.replica, NULL, 0, 0, NULL, &err), &err);
    assert_true(is_like_new(&b, 0, 32, true));
    spoil_weights(&b);
    assert_int_equal(ls_replica_gradient(b.replica, &none, 16, 0, NULL, &err), LS_EINVAL);
    assert_true(is_like_new(&b, 0, 32, true));
    ls_replica_promise_same_weights(b.replica);
    assert_int_equal(ls_replica_gradient(b.replica, &none, 16, 0, NULL, &err), LS_EINVAL);
    spoil_weights(&b);
    assert_true(is_like_new(&b, 0, 32, false));
    close_bench(&b);
}

/* All large allocations are counted; small allocations, such as the ops, are not. */
static void kept_weights_are_counted(void **state)
{
    (void)state;
    bench b;
    ls_replica_memory memory;
    open_bench(&b, 0.9);
    const size_t before = b.counter.live;
    ls_replica *replica = new_replica(&b);
    const size_t used = b.counter.live - before;
    ls_replica_memory_used(replica, &memory);
    const size_t counted = memory.arenas + memory.activations + memory.dataset + memory.kept;
    const size_t kernels = 16 * 64 + 64 * 64;
    assert_true(memory.kept >= 2 * 16 * kernels * sizeof(float));
    assert_in_range(used, counted, counted + memory.kept / 8);
    ls_replica_destroy(replica);
    assert_int_equal(b.counter.live, before);
    close_bench(&b);
}

LS_TESTS(nn_same_weights, "unit no-tsan")
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_follow_the_weights),
                                       cmocka_unit_test(gradients_follow_updates_by_pieces),
                                       cmocka_unit_test(a_promise_holds_for_one_gradient),
                                       cmocka_unit_test(kept_weights_are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
