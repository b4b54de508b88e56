/* SPDX-License-Identifier: MIT */
/* Tests the digests that the CPU back end computes (src/base/digest.h): the kernel of each
 * instruction set, and the ops on arenas, which sum what they read before they change it. All are
 * compared with the formula. */
#include "base/digest.h"
#include "base/rng.h"
#include "cpu/cpu_device.h"
#include "cpu/lanes_kernels.h"
#include "runner.h"

#include <lockstep/sys/plugin.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { FLOATS = 16384 + 16 * 37 /* more than one item of work, and no multiple of a block */ };

static _Alignas(64) float w[FLOATS], v[FLOATS], m[FLOATS], g[FLOATS], before[3][FLOATS];

static void draw(float *to, unsigned stream)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        to[i] = ls_rng_uniform(7, stream, i, 0) - 0.5f;
}

static uint64_t digest(const float *x, size_t count, size_t at)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum += bits * ls_digest_weight(at + i);
    }
    return sum;
}

static void the_kernels_sum_by_the_formula(void **state)
{
    (void)state;
    draw(w, 1);
    for (int s = 0; ls_cpu_isa_at(s); s++)
        for (size_t vectors = 0; vectors < 40; vectors += vectors < 5 ? 1 : 7) {
            ls_lanes_digest d = {{0}, {0}};
            ls_cpu_isa_at(s)->digest(vectors, w, w, &d);
            for (int k = 0; k < 16; k++) {
                const int lane = k < 8 ? 2 * k : 2 * (k - 8) + 1;
                uint64_t sum = 0, sums = 0;
                for (size_t i = 0; i < vectors; i++) {
                    uint32_t bits;
                    memcpy(&bits, &w[i * 16 + (size_t)lane], sizeof bits);
                    sums += sum += bits;
                }
                assert_true(d.sum[k] == sum && d.sums[k] == sums);
            }
        }
}

/* Runs an op on an arena, and checks its digest. `slots`: number of states that the op has. */
static void check_op(ls_device *device, ls_op_desc *desc, int slots)
{
    ls_op *op;
    ls_error err = {0};
    uint64_t found = 3, wanted = 3;
    ls_step_args args = {.lr = 0.1f, .scale = 1, .row_scale = 1, .step = 4, .digest = &found};
    const size_t at[] = {320, 16 * 70000, 16 * 90000};
    float *const array[] = {w, v, m};
    for (int i = 0; i < 3; i++) {
        draw(array[i], (unsigned)i);
        for (uint32_t k = 0; k < FLOATS && i == 2; k++)
            m[k] += 1; /* AdamW's v is positive */
        memcpy(before[i], array[i], sizeof before[i]);
    }
    draw(g, 9);
    desc->size = sizeof *desc;
    assert_int_equal(device->ops->op_create(&op, device, desc, &err), LS_OK);
    const ls_op_buffers b = {.args = &args,
                             .param[0] = w,
                             .grad[0] = desc->kind == LS_OP_DIGEST ? NULL : g,
                             .slot = {v, m},
                             .digest_at = {at[0], at[1], at[2]}};
    assert_int_equal(op->impl->bind(op, &b, &err), LS_OK);
    assert_int_equal(op->impl->forward(op, NULL, 0, &err), LS_OK);
    for (int i = 0; i <= slots; i++)
        wanted += digest(before[i], desc->count, at[i]);
    assert_true(found == wanted);
    assert_true((memcmp(w, before[0], sizeof w) == 0) == (desc->kind == LS_OP_DIGEST));
    args.digest = NULL; /* now the op only updates */
    assert_int_equal(op->impl->forward(op, NULL, 0, &err), LS_OK);
    assert_true(found == wanted);
    op->impl->destroy(op);
}

static void updates_sum_what_they_read(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        ls_device *device;
        const ls_device_request request = {.size = sizeof request, .threads = threads};
        assert_int_equal(ls_cpu_backend()->open(&device, &request, NULL), LS_OK);
        ls_op_desc sgd = {.kind = LS_OP_SGD, .count = FLOATS};
        check_op(device, &sgd, 0);
        sgd.u.sgd.momentum = 0.9f;
        check_op(device, &sgd, 1);
        sgd.u.sgd.nesterov = 1;
        check_op(device, &sgd, 1);
        ls_op_desc adamw = {.kind = LS_OP_ADAMW, .count = FLOATS};
        adamw.u.adamw = (ls_adamw){0.9f, 0.99f, 1e-8f, 0.01f};
        check_op(device, &adamw, 2);
        ls_op_desc running = {.kind = LS_OP_RUNNING, .count = FLOATS - 11};
        running.u.running.momentum = 0.1f;
        check_op(device, &running, 0);
        ls_op_desc still = {.kind = LS_OP_DIGEST, .count = FLOATS - 3};
        check_op(device, &still, 0);
        device->ops->close(device);
    }
}

LS_TESTS(lanes_digest, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_sum_by_the_formula),
        cmocka_unit_test(updates_sum_what_they_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
