/* SPDX-License-Identifier: MIT */
/* Tests recordings: steps that are captured as a CUDA graph and replayed. Each replay has other
 * rows, another epoch and another step number, and must be bit-identical to the ops enqueued one by
 * one. The simulated CUDA runtime enforces CUDA's rules of capture. */
#include "cuda_ops/cuda_backend.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { IMAGES = 32, ROWS = 8, SIDE = 6, PIXELS = SIDE * SIDE, VALUES = 3 * PIXELS, ROUNDS = 4 };

/* gather → dropout → adamw. The output of the dropout is the gradient for adamw. */
typedef struct line {
    ls_device *device;
    ls_op *gather, *dropout, *adamw;
    void *images, *x, *y, *saved, *weights, *slot[2];
    uint32_t *rows;
    ls_step_args args;
} line;

static void must(int rc, const ls_error *err)
{
    if (rc != LS_OK)
        fail_msg("%s: %s", ls_status_name(rc), err->text);
}

static void *memory(line *l, size_t bytes)
{
    void *out = NULL;
    ls_error err = {0};
    must(l->device->ops->alloc(&out, l->device, bytes, &err), &err);
    return out;
}

static ls_op *make(line *l, ls_op_desc desc, const ls_op_buffers *buffers)
{
    ls_op *op = NULL;
    ls_error err = {0};
    desc.size = sizeof desc;
    must(l->device->ops->op_create(&op, l->device, &desc, &err), &err);
    must(op->impl->bind(op, buffers, &err), &err);
    return op;
}

static void open_line(line *l)
{
    static uint8_t images[IMAGES * VALUES];
    const size_t bytes = sizeof(float) * ROWS * VALUES;
    ls_device_request request = {.size = sizeof request};
    ls_error err = {0};
    memset(l, 0, sizeof *l);
    must(test_cuda_backend()->open(&l->device, &request, &err), &err);
    must(l->device->ops->bind(l->device, &err), &err);
    for (size_t i = 0; i < sizeof images; i++)
        images[i] = (uint8_t)(i * 37 % 251);
    l->images = memory(l, sizeof images);
    l->rows = memory(l, ROWS * sizeof *l->rows);
    l->x = memory(l, bytes);
    l->y = memory(l, bytes);
    l->saved = memory(l, ROWS * VALUES);
    l->weights = memory(l, bytes);
    for (int i = 0; i < 2; i++)
        l->slot[i] = memory(l, bytes);
    must(l->device->ops->upload(l->device, NULL, l->images, images, sizeof images, &err), &err);
    l->args.rows = l->rows;
    l->args.seed = 5;

    ls_op_desc gather = {.kind = LS_OP_GATHER, .training = 1};
    gather.x = (ls_tensor){LS_U8, ROWS, 3, SIDE, SIDE, NULL, 0};
    gather.u.gather =
        (ls_gather){.mean = {0.5f, 0.5f, 0.5f, 0.5f}, .std = {1, 1, 1, 1}, .crop = 2, .flip = 1};
    l->gather = make(l, gather, &(ls_op_buffers){.args = &l->args, .x = l->images, .y = l->x});
    ls_op_desc dropout = {.kind = LS_OP_DROPOUT, .training = 1, .x = l->gather->y};
    dropout.u.dropout = (ls_dropout){0.4f, 0x1003};
    l->dropout = make(l, dropout,
                      &(ls_op_buffers){.args = &l->args, .x = l->x, .y = l->y, .saved = l->saved});
    ls_op_desc adamw = {.kind = LS_OP_ADAMW, .count = ROWS * VALUES, .rate = 1};
    adamw.u.adamw = (ls_adamw){0.9f, 0.99f, 1e-8f, 0.01f};
    ls_op_buffers b = {.args = &l->args};
    b.param[0] = l->weights;
    b.grad[0] = l->y;
    b.slot[0] = l->slot[0];
    b.slot[1] = l->slot[1];
    l->adamw = make(l, adamw, &b);
}

static void close_line(line *l)
{
    void *all[] = {l->images, l->x, l->y, l->saved, l->weights, l->slot[0], l->slot[1], l->rows};
    l->gather->impl->destroy(l->gather);
    l->dropout->impl->destroy(l->dropout);
    l->adamw->impl->destroy(l->adamw);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        l->device->ops->free(l->device, all[i]);
    l->device->ops->close(l->device);
}

/* Sets the arguments that change from step to step. */
static void prepare(line *l, int step)
{
    uint32_t rows[ROWS];
    ls_error err = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = (i * 5 + (uint32_t)step * 3) % IMAGES;
    must(l->device->ops->upload(l->device, NULL, l->rows, rows, sizeof rows, &err), &err);
    l->args.epoch = (uint32_t)step / 2;
    l->args.step = (uint64_t)step;
    l->args.lr = 0.01f * (float)step;
    l->args.scale = 1.0f / (float)step;
}

static void enqueue(line *l)
{
    ls_op *op[] = {l->gather, l->dropout, l->adamw};
    ls_error err = {0};
    for (int i = 0; i < 3; i++)
        must(op[i]->impl->forward(op[i], NULL, 0, &err), &err);
}

static void read_weights(line *l, float *out)
{
    ls_error err = {0};
    must(l->device->ops->download(l->device, NULL, out, l->weights, sizeof(float) * ROWS * VALUES,
                                  &err),
         &err);
    must(l->device->ops->sync(l->device, NULL, &err), &err);
}

static void a_recording_gives_the_same_bits(void **state)
{
    static float eager[ROUNDS][ROWS * VALUES], again[ROUNDS][ROWS * VALUES];
    ls_recording *recording = NULL;
    ls_error err = {0};
    line l;
    (void)state;
    open_line(&l);
    for (int k = 0; k < ROUNDS; k++) {
        prepare(&l, k + 1);
        enqueue(&l);
        read_weights(&l, eager[k]);
    }
    close_line(&l);
    open_line(&l);
    prepare(&l, ROUNDS); /* replays must not use these arguments, but those of their own step */
    must(l.device->ops->record_begin(l.device, NULL, &err), &err);
    enqueue(&l);
    must(l.device->ops->record_end(&recording, l.device, NULL, &err), &err);
    for (int k = 0; k < ROUNDS; k++) {
        prepare(&l, k + 1);
        must(l.device->ops->launch(l.device, NULL, recording, &l.args, &err), &err);
        read_weights(&l, again[k]);
    }
    assert_memory_equal(eager, again, sizeof eager);
    assert_memory_not_equal(eager[0], eager[ROUNDS - 1], sizeof eager[0]);
    l.device->ops->recording_destroy(l.device, recording);
    l.device->ops->recording_destroy(l.device, NULL);
    close_line(&l);
}

static void a_recording_refuses_what_it_cannot_hold(void **state)
{
    ls_recording *recording = NULL;
    ls_error err = {0};
    uint32_t word = 0;
    line l;
    (void)state;
    open_line(&l);
    const ls_device_ops *ops = l.device->ops;
    assert_int_equal(ops->record_end(&recording, l.device, NULL, &err), LS_EINVAL);
    must(ops->record_begin(l.device, NULL, &err), &err);
    assert_int_equal(ops->record_begin(l.device, NULL, &err), LS_EINVAL);
    assert_int_equal(ops->upload(l.device, NULL, l.rows, &word, sizeof word, &err), LS_EINVAL);
    assert_int_equal(ops->download(l.device, NULL, &word, l.rows, sizeof word, &err), LS_EINVAL);
    assert_int_equal(ops->sync(l.device, NULL, &err), LS_EINVAL);
    must(ops->record_end(&recording, l.device, NULL, &err), &err);
    ops->recording_destroy(l.device, recording);
    must(ops->sync(l.device, NULL, &err), &err);
    close_line(&l);
}

LS_TESTS(cuda_recording, "unit doubles no-asan")
{
    test_cuda_begin(DBL_LAZY);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_gives_the_same_bits),
        cmocka_unit_test(a_recording_refuses_what_it_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
