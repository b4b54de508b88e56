/* SPDX-License-Identifier: MIT */
/* Tests how often `bind` of a back end's ops is called (bind: set the addresses of an op's
 * buffers). If the device does not declare LS_DEVICE_REBINDS, or if it records ops, each op must be
 * bound exactly once. Otherwise ops can be bound again to other addresses, and the results must
 * have the same bits. */
#include "base/error.h"
#include "engine/view.h"
#include "ref/ref.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct {
    bool rebinds, records; /* properties that the devices declare */
    atomic_int ops, binds;
} declared;

/* The functions of the reference back end's devices, the functions of its ops, and copies of the
 * latter that also count the calls of `bind`. `lock` protects them, because several workers open
 * their devices at the same time. */
static const ls_device_ops *real;
static const ls_op_impl *real_impl[4];
static ls_op_impl counting[4];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void describe(const ls_device *device, ls_device_info *out)
{
    real->describe(device, out);
    if (!declared.rebinds)
        out->flags &= ~(unsigned)LS_DEVICE_REBINDS;
}

static int count_bind(ls_op *op, const ls_op_buffers *buffers, ls_error *err)
{
    atomic_fetch_add(&declared.binds, 1);
    return real_impl[op->impl - counting]->bind(op, buffers, err);
}

/* Returns the counting functions for an op that has the functions `impl`. */
static const ls_op_impl *counting_for(const ls_op_impl *impl)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < 3 && real_impl[i] && real_impl[i] != impl)
        i++;
    if (!real_impl[i]) {
        counting[i] = *impl;
        counting[i].bind = count_bind;
        real_impl[i] = impl;
    }
    pthread_mutex_unlock(&lock);
    return &counting[i];
}

static int op_create(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    int status = real->op_create(out, device, desc, err);
    if (status != LS_OK)
        return status;
    atomic_fetch_add(&declared.ops, 1);
    (*out)->impl = counting_for((*out)->impl);
    return LS_OK;
}

/* The device refuses every recording, so all ops are enqueued one by one. */
static int record_begin(ls_device *device, ls_stream *stream, ls_error *err)
{
    (void)device;
    (void)stream;
    return ls_fail(err, LS_EUNSUPPORTED, "not this");
}

static int open_device(ls_device **out, const ls_device_request *request, ls_error *err)
{
    static ls_device_ops plain, recording;
    int status = ls_ref_backend()->open(out, request, err);
    if (status != LS_OK)
        return status;
    pthread_mutex_lock(&lock);
    if (!real) { /* set only once, because other devices can already be using these functions */
        real = (*out)->ops;
        plain = *real;
        plain.describe = describe;
        plain.op_create = op_create;
        recording = plain;
        recording.record_begin = record_begin;
    }
    pthread_mutex_unlock(&lock);
    (*out)->ops = declared.records ? &recording : &plain;
    return LS_OK;
}

static void probe(ls_backend_info *out)
{
    ls_ref_backend()->probe(out);
}

static const ls_backend counted = {.abi = LS_PLUGIN_ABI,
                                   .size = sizeof counted,
                                   .name = "counted",
                                   .counted = 1,
                                   .probe = probe,
                                   .open = open_device};

/* Runs three steps of six shards. *again becomes the number of calls of `bind`, without the first
 * call for each op. */
static const char *run(bool rebinds, bool records, const char *devices, int *again)
{
    static char hash[65];
    fixture f;
    declared.rebinds = rebinds;
    declared.records = records;
    declared.ops = declared.binds = 0;
    fixture_begin(&f);
    assert_int_equal(ls_registry_add(f.registry, &counted, &f.err), LS_OK);
    fixture_set(&f, devices);
    fixture_set(&f, "shards=6");
    memcpy(hash, fixture_hash(&f), sizeof hash);
    fixture_end(&f);
    *again = declared.binds - declared.ops;
    return hash;
}

static void ops_are_bound_again_only_where_the_device_says_so(void **state)
{
    static const char *const devices[] = {"devices=counted:1", "devices=counted:2"};
    char hash[65];
    int again;
    (void)state;
    memcpy(hash, run(true, false, devices[0], &again), sizeof hash);
    assert_true(again > 0);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(run(false, false, devices[i], &again), hash);
        assert_int_equal(again, 0);
        for (int rebinds = 0; rebinds < 2; rebinds++) {
            assert_string_equal(run(rebinds, true, devices[i], &again), hash);
            assert_int_equal(again, 0);
        }
    }
}

/* Returns the size in bytes of a device's memory, as the record run_start reports it. The callers
 * use one shard per worker, so that a worker needs no extra memory for partial sums. */
static double device_bytes(bool rebinds, const char *devices, const char *shards)
{
    fixture f;
    declared.records = false;
    declared.rebinds = rebinds;
    fixture_begin(&f);
    assert_int_equal(ls_registry_add(f.registry, &counted, &f.err), LS_OK);
    fixture_set(&f, devices);
    fixture_set(&f, shards);
    ls_trainer_close(fixture_run(&f), NULL);
    const double bytes = record_number(fixture_record(&f, "run_start", 0), "device_bytes");
    fixture_end(&f);
    return bytes;
}

static void the_total_is_counted_wherever_it_lies(void **state)
{
    (void)state;
    const double own = device_bytes(false, "devices=counted:3", "shards=3");
    assert_true(own > 0 && own == device_bytes(true, "devices=counted:3", "shards=3"));
}

/* A single worker computes the sum of gradients in the array of its gradient. So it has no array
 * for the total. */
static void a_single_worker_has_no_total(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    ls_trainer *t = fixture_open(&f);
    const double arena = 4 * (double)ls_replica_floats(t->engine->worker[0].replica);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
    const double own = device_bytes(false, "devices=counted:1", "shards=1");
    assert_true(arena > 0 && own - device_bytes(true, "devices=counted:1", "shards=1") == arena);
}

enum { BATCH = 32, COMPARED_STEP = 5, AT_MOST = 100000 };

static void train_step(fixture *f, ls_trainer *t, int step)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    static int32_t labels[BATCH];
    for (int i = 0; i < BATCH; i++)
        own_row(0, (uint32_t)((step * BATCH + i) % OWN_TRAIN), images + (size_t)i * OWN_PIXELS,
                labels + i);
    if (own_step(t, images, labels, BATCH, NULL, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
}

/* Drives a trainer of two devices. The second device stalls in step 2 (its worker sleeps). The
 * worker wakes while the other worker continues with later steps. `weights` receives the weights
 * after COMPARED_STEP steps. */
static void leave_behind(float *weights, size_t room)
{
    static const char *const faults[] = {"worker=1,step=2,kind=stall,stage=shard,seconds=1"};
    const ls_data_source *sources[1];
    const ls_data_source data = own_data(1);
    fixture f;
    fixture_begin(&f);
    assert_int_equal(ls_registry_add(f.registry, &counted, &f.err), LS_OK);
    fixture_use_source(&f, &data, sources);
    fixture_set(&f, "devices=counted:2");
    fixture_set(&f, "shards=2");
    fixture_set(&f, "deadline_s=0.2");
    f.sys.inject = faults;
    f.sys.inject_count = 1;
    declared.ops = declared.binds = 0;
    ls_trainer *t = fixture_open(&f);
    const ls_feed *before = ls_engine_feed(t->engine);
    for (int step = 1; step <= COMPARED_STEP; step++)
        train_step(&f, t, step);
    assert_int_equal(ls_trainer_weights(t, weights, room, &f.err), LS_OK);
    for (int step = COMPARED_STEP + 1; step <= AT_MOST && ls_pool_busy(t->engine->pool, 1) > 0;
         step++)
        train_step(&f, t, step);
    assert_int_equal(fixture_count(&f, "fault"), 1);
    assert_ptr_not_equal(before, ls_engine_feed(t->engine));
    assert_true(declared.rebinds == (declared.binds > declared.ops));
    assert_int_equal(ls_trainer_close(t, NULL), LS_OK);
    fixture_end(&f);
}

/* A stalled worker can still read the buffer of streamed rows (the feed). So this buffer is left to
 * it, and the other workers get a new feed. If the stalled worker wakes while steps continue, it
 * must read the rows of its own step. ThreadSanitizer detects a write to these rows. */
static void a_worker_that_is_left_behind_keeps_its_streamed_rows(void **state)
{
    static float weights[2][1 << 16];
    (void)state;
    declared.records = false;
    for (int rebinds = 0; rebinds < 2; rebinds++) {
        declared.rebinds = rebinds > 0;
        leave_behind(weights[rebinds], ROOM(weights[rebinds]));
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
}

LS_TESTS(train_rebinding, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_bound_again_only_where_the_device_says_so),
        cmocka_unit_test(the_total_is_counted_wherever_it_lies),
        cmocka_unit_test(a_single_worker_has_no_total),
        cmocka_unit_test(a_worker_that_is_left_behind_keeps_its_streamed_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
