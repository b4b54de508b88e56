/* SPDX-License-Identifier: MIT */
/* Tests runs that end early: by interrupts, failing devices, failing sinks, failed allocations, and
 * losses that are not finite. No run may hang, leak memory, or report a wrong cause. */
#include "data/scratch.h"
#include "runner.h"
#include "train/faulty_backend.h"
#include "train/train_fixture.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- interrupts ---- */

/* Checks that the result reports the steps that were done, and that every replica has done these
 * steps. */
static void check_interrupted(fixture *f, ls_trainer *t, int status)
{
    const ls_result *r = ls_trainer_result(t);
    char text[80];
    assert_int_equal(status, LS_EINTERRUPTED);
    assert_int_equal(f->err.status, LS_EINTERRUPTED);
    snprintf(text, sizeof text, "interrupted after %llu %s", (unsigned long long)r->steps,
             r->steps == 1 ? "step" : "steps");
    assert_string_equal(f->err.text, text);
    assert_true(r->interrupted);
    assert_int_equal(fixture_count(f, "step"), r->steps);
    assert_int_equal(fixture_count(f, "epoch"), r->epochs);
    assert_int_equal(strlen(r->weights_sha256), 64);
    replicas_are_equal(t);
    const char *end = fixture_record(f, "run_end", 0);
    assert_non_null(strstr(end, "\"status\":\"interrupted\""));
    assert_non_null(strstr(end, r->weights_sha256));
    assert_int_equal(record_number(end, "steps"), r->steps);
}

static void an_interrupt_before_the_run_leaves_fresh_weights(void **state)
{
    fixture f;
    (void)state;
    fixture_begin(&f);
    ls_trainer *t = fixture_open(&f);
    ls_trainer_interrupt(t);
    check_interrupted(&f, t, ls_trainer_run(t, &f.err));
    assert_int_equal(ls_trainer_result(t)->steps, 0);
    assert_true(isnan(ls_trainer_result(t)->metric_value));
    assert_non_null(strstr(fixture_record(&f, "run_end", 0), "\"test_accuracy\":null"));
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

struct interrupter {
    ls_trainer *trainer;
    long after_ns;
};

static void *interrupt_later(void *arg)
{
    const struct interrupter *i = arg;
    const struct timespec nap = {.tv_nsec = i->after_ns};
    nanosleep(&nap, NULL);
    ls_trainer_interrupt(i->trainer);
    return NULL;
}

static void an_interrupt_from_another_thread_ends_at_a_whole_step(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        fixture f;
        pthread_t thread;
        fixture_begin(&f);
        fixture_set(&f, "epochs=1000000");
        fixture_set(&f, round % 3 ? "devices=ref:3" : "devices=ref:1");
        fixture_set(&f, "eval_every=1");
        ls_trainer *t = fixture_open(&f);
        struct interrupter i = {t, 1000000L * (1 + 7 * round)};
        assert_int_equal(pthread_create(&thread, NULL, interrupt_later, &i), 0);
        int status = ls_trainer_run(t, &f.err);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (f.records < FIXTURE_RECORDS)
            check_interrupted(&f, t, status);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

static void interrupt_at_step_four(void *user, const ls_progress *p)
{
    if (p->epoch == 2 && p->step == 1 && !p->epoch_done)
        ls_trainer_interrupt(*(ls_trainer **)user);
}

static ls_trainer *interrupted_at_four(fixture *f, const char *devices)
{
    static ls_trainer *t;
    fixture_begin(f);
    fixture_set(f, devices);
    fixture_set(f, "epochs=5");
    f->callbacks.record = NULL;
    f->callbacks.progress = interrupt_at_step_four;
    f->callbacks.user = &t;
    t = fixture_open(f);
    assert_int_equal(ls_trainer_run(t, &f->err), LS_EINTERRUPTED);
    return t;
}

/* After an interrupt the steps that were already submitted are completed. With several workers this
 * is one more step. A single worker gets several short steps at once, so it completes the steps up
 * to the end of the epoch. */
static void an_interrupt_at_a_given_step_gives_the_same_bits(void **state)
{
    char hash[65] = "";
    (void)state;
    for (int i = 0; i < 4; i++) {
        static const char *const devices[] = {"devices=ref:2", "devices=ref:3", "devices=ref:4",
                                              "devices=ref:1"};
        fixture f;
        ls_trainer *t = interrupted_at_four(&f, devices[i]);
        const ls_result *r = ls_trainer_result(t);
        assert_int_equal(r->steps, i < 3 ? 5 : 6);
        assert_int_equal(r->epochs, i < 3 ? 1 : 2);
        if (i == 0 || i == 3)
            memcpy(hash, r->weights_sha256, sizeof hash);
        assert_string_equal(r->weights_sha256, hash);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

static void interrupt_at_the_end(void *user, const ls_progress *p)
{
    if (p->epoch_done)
        ls_trainer_interrupt(*(ls_trainer **)user);
}

static void an_interrupt_behind_the_last_evaluation_comes_too_late(void **state)
{
    fixture f;
    ls_trainer *t;
    (void)state;
    fixture_begin(&f);
    f.callbacks.record = NULL;
    f.callbacks.progress = interrupt_at_the_end;
    f.callbacks.user = &t;
    t = fixture_open(&f);
    assert_int_equal(ls_trainer_run(t, &f.err), LS_OK);
    assert_false(ls_trainer_result(t)->interrupted);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* ---- failing devices ---- */

static int status_of_run(fixture *f, ls_trainer **t)
{
    *t = fixture_open(f);
    memset(&f->err, 0, sizeof f->err);
    return ls_trainer_run(*t, &f->err);
}

#define STOPPED "; stopped, as on_device_loss says"

static void faulty_fixture(fixture *f)
{
    fault_reset();
    fault.device = 1;
    fixture_begin(f);
    assert_int_equal(ls_registry_add(f->registry, faulty_backend(), &f->err), LS_OK);
    fixture_set(f, "devices=faulty:3");
    fixture_set(f, "shards=6");
    fixture_set(f, "epochs=2");
}

static void a_device_that_fails_before_the_commit_point_can_end_the_run(void **state)
{
    (void)state;
    for (int step = 1; step <= 6; step++) {
        fixture f;
        ls_trainer *t;
        char text[200];
        faulty_fixture(&f);
        fixture_set(&f, "on_device_loss=stop");
        fixture_set(&f, "shards=3"); /* one shard per worker */
        fault.tail_at = step;
        assert_int_equal(status_of_run(&f, &t), LS_EDEVICE);
        snprintf(text, sizeof text,
                 "worker 1, step %d: the device fell off the bus in upload" STOPPED, step);
        assert_string_equal(f.err.text, text);
        assert_int_equal(ls_trainer_result(t)->steps, step - 1);
        assert_int_equal(fixture_count(&f, "step"), step - 1);
        const char *end = fixture_record(&f, "run_end", 0);
        assert_non_null(strstr(end, "\"status\":\"failed\""));
        assert_non_null(strstr(end, text));
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

static void a_device_that_fails_behind_the_commit_point_can_end_the_run(void **state)
{
    (void)state;
    for (int at = 1; at <= 6; at++) {
        fixture f;
        ls_trainer *t;
        faulty_fixture(&f);
        fixture_set(&f, "on_device_loss=stop");
        fault.download_at = 1 + at; /* the start-up check makes the first download */
        assert_int_equal(status_of_run(&f, &t), LS_EDEVICE);
        /* There are three downloads in steps, and then one for each shard of each minibatch of the
         * evaluation. */
        char text[200];
        if (at <= 3)
            snprintf(text, sizeof text,
                     "worker 1, step %d: the device fell off the bus in download" STOPPED, at);
        else
            snprintf(text, sizeof text,
                     "worker 1, evaluation of epoch 1: the device fell off the "
                     "bus in download" STOPPED);
        assert_string_equal(f.err.text, text);
        /* the weights of rank 0 */
        assert_int_equal(strlen(ls_trainer_result(t)->weights_sha256), 64);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

static void a_device_without_memory_fails_the_opening(void **state)
{
    (void)state;
    for (int at = 1; at < 200; at++) {
        fixture f;
        ls_trainer *t;
        faulty_fixture(&f);
        fault.alloc_at = at;
        int status = ls_trainer_open(&t, &f.options, &f.err);
        if (status == LS_OK)
            ls_trainer_close(t, NULL);
        else
            assert_string_equal(f.err.text, "worker 1: the device fell off the bus in alloc");
        fixture_end(&f);
        if (status == LS_OK) {
            assert_true(at > 3);
            return;
        }
    }
    fail_msg("the opening never worked");
}

/* ---- failing sinks ---- */

static void a_record_that_is_refused_ends_the_run(void **state)
{
    (void)state;
    for (int at = 1; at <= 6; at++) { /* run_start, three steps, epoch, eval */
        fixture f;
        ls_trainer *t;
        char text[64];
        fixture_begin(&f);
        f.fail_record_at = at;
        assert_int_equal(status_of_run(&f, &t), LS_EIO);
        snprintf(text, sizeof text, "the reader of record %d had enough", at);
        assert_string_equal(f.err.text, text);
        assert_int_equal(f.records, at); /* the callback is not called again */
        assert_int_equal(strlen(ls_trainer_result(t)->weights_sha256), 64);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

static void a_refused_last_record_is_reported_too(void **state)
{
    fixture f;
    ls_trainer *t;
    (void)state;
    fixture_begin(&f);
    f.fail_record_at = 7; /* run_end */
    assert_int_equal(status_of_run(&f, &t), LS_EIO);
    assert_string_equal(f.err.text, "the reader of record 7 had enough");
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* ---- numbers without bound ---- */

static void a_loss_that_is_not_finite_names_the_step(void **state)
{
    fixture f;
    ls_trainer *t;
    char text[200], *end;
    (void)state;
    fixture_begin(&f);
    fixture_use_lenet(&f);
    fixture_set(&f, "init={\"name\": \"kaiming\"}");
    fixture_set(&f, "optimizer.lr=1e6");
    fixture_set(&f, "epochs=5");
    assert_int_equal(status_of_run(&f, &t), LS_ENONFINITE);
    /* The last step record is that of the last step with a finite loss. */
    int steps = fixture_count(&f, "step");
    assert_int_equal(ls_trainer_result(t)->steps, steps);
    int shard = (int)strtol(strstr(f.err.text, "shard ") + 6, &end, 10);
    int worker = (int)strtol(strstr(f.err.text, "worker ") + 7, &end, 10);
    snprintf(
        text, sizeof text,
        "step %d: the loss of shard %d, on worker %d, is not finite any more; the step was not "
        "applied; try a smaller optimizer.lr",
        steps + 1, shard, worker);
    assert_string_equal(f.err.text, text);
    assert_int_equal(fixture_count(&f, "nonfinite"), 1);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* The run has one step, so the first loss that is computed with the weights that are not finite is
 * that of the evaluation. */
static void a_test_loss_that_is_not_finite_names_the_epoch(void **state)
{
    static const char *const cases[][3] = {
        {"data.limit=64", "data.validation=0",
         "epoch 1: the test loss is not finite any more; try a smaller optimizer.lr"},
        {"data.limit=80", "data.validation=0.2",
         "epoch 1: the validation loss is not finite any more; try a smaller optimizer.lr"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture f;
        ls_trainer *t;
        fixture_begin(&f);
        fixture_use_lenet(&f);
        fixture_set(&f, "optimizer.lr=1e6");
        fixture_set(&f, "optimizer.weight_decay=1000");
        fixture_set(&f, cases[i][0]);
        fixture_set(&f, cases[i][1]);
        fixture_set(&f, "optimizer.momentum=0");
        assert_int_equal(status_of_run(&f, &t), LS_ENONFINITE);
        assert_string_equal(f.err.text, cases[i][2]);
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

/* ---- no memory ---- */

typedef struct failing_host {
    ls_host host;
    atomic_long allocations, live;
    long fail_at;
    atomic_size_t fail_bytes; /* the next allocation of this size fails; 0: none */
    size_t fail_later;        /* when a device is lost, fail_bytes is set to this value */
    /* not 0: one of these warnings was logged: a checkpoint could not be saved, an old checkpoint
     * could not be removed, or workers could not share one array for the total */
    int warned;
} failing_host;

static void *failing_alloc(void *user, size_t bytes, size_t align)
{
    failing_host *h = user;
    size_t expected = bytes;
    if (atomic_fetch_add(&h->allocations, 1) + 1 == h->fail_at ||
        atomic_compare_exchange_strong(&h->fail_bytes, &expected, 0))
        return NULL;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory)
        atomic_fetch_add(&h->live, 1);
    return memory;
}

static void failing_free(void *user, void *memory)
{
    failing_host *h = user;
    atomic_fetch_sub(&h->live, 1);
    free(memory);
}

static void failing_log(void *user, ls_log_level level, const char *text)
{
    failing_host *h = user;
    if (level == LS_LOG_WARNING && strstr(text, "memory") &&
        (strstr(text, "checkpoint") || strstr(text, "a total that all workers share")))
        h->warned = 1;
    if (strstr(text, "go on without it"))
        h->fail_bytes = h->fail_later;
}

/* Opens, runs and closes a trainer, and lets the nth allocation fail. Returns whether there were n
 * allocations. If the failure is logged as one of the warnings above, the run may succeed; every
 * other failure must end the run. */
static int run_with_failure(long nth, const char *run_dir)
{
    failing_host h = {.fail_at = nth};
    fixture f;
    ls_trainer *t;
    h.host = (ls_host){sizeof h.host, failing_alloc, failing_free, failing_log, &h};
    fixture_begin(&f);
    fixture_set(&f, "data.limit=64");
    fixture_set(&f, run_dir);
    f.options.host = &h.host;
    int opened = ls_trainer_open(&t, &f.options, &f.err);
    int status = opened;
    if (opened == LS_OK) {
        status = ls_trainer_run(t, &f.err);
        ls_trainer_close(t, NULL);
    }
    int reached = nth > 0 && h.allocations >= nth;
    if (reached && status == LS_OK && h.warned)
        h.warned = 2;
    else if (reached && status != LS_ENOMEM)
        fail_msg("allocation %ld failed: %s: %s", nth, ls_status_name(status), f.err.text);
    if (reached && h.warned != 2)
        assert_true(strstr(f.err.text, "memory") != NULL);
    if (!reached)
        assert_int_equal(status, LS_OK);
    assert_int_equal(h.live, 0);
    fixture_end(&f);
    return reached;
}

/* After the loss of a device, the first allocation of a gradient's size is the new group's array
 * for the total. */
static void recovering_goes_on_without_memory_for_one_total(void **state)
{
    static const char *const losses[] = {"worker=1,step=2,kind=fail"};
    char hash[65];
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        failing_host h = {0};
        fixture f;
        h.host = (ls_host){sizeof h.host, failing_alloc, failing_free, failing_log, &h};
        fixture_begin(&f);
        fixture_set(&f, "devices=ref:3");
        f.options.host = &h.host;
        f.sys.inject = losses;
        f.sys.inject_count = 1;
        ls_trainer *t = fixture_open(&f);
        if (fails)
            h.fail_later = ls_replica_floats(t->engine->worker[0].replica) * sizeof(float);
        assert_int_equal(ls_trainer_run(t, &f.err), LS_OK);
        assert_int_equal(h.warned, fails);
        if (fails)
            assert_string_equal(ls_trainer_result(t)->weights_sha256, hash);
        memcpy(hash, ls_trainer_result(t)->weights_sha256, sizeof hash);
        ls_trainer_close(t, NULL);
        assert_int_equal(h.live, 0);
        fixture_end(&f);
    }
}

static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    scratch s;
    char run_dir[400];
    const int stride = SLOW_BUILD ? 3 : 1; /* a release build lets each allocation fail */
    long n = 0;
    (void)state;
    scratch_begin(&s);
    do {
        n += stride;
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/%ld", s.directory, n);
    } while (run_with_failure(n, run_dir));
    assert_true(n > 60);
    scratch_end(&s);
}

/* Opens a trainer, loads a file while the nth allocation of the load fails, and closes the trainer.
 * Returns whether the load made n allocations. */
static int load_with_failure(long nth, const char *path)
{
    failing_host h = {0};
    fixture f;
    h.host = (ls_host){sizeof h.host, failing_alloc, failing_free, failing_log, &h};
    fixture_begin(&f);
    fixture_set(&f, "data.limit=64");
    f.options.host = &h.host;
    ls_trainer *t = fixture_open(&f);
    h.allocations = 0;
    h.fail_at = nth;
    int status = ls_trainer_load(t, path, &f.err);
    int reached = h.allocations >= nth;
    assert_int_equal(status, reached ? LS_ENOMEM : LS_OK);
    if (reached)
        assert_non_null(strstr(f.err.text, "memory"));
    ls_trainer_close(t, NULL);
    assert_int_equal(h.live, 0);
    fixture_end(&f);
    return reached;
}

static void a_failed_allocation_of_a_load_leaks_nothing(void **state)
{
    scratch s;
    fixture f;
    long n = 1;
    (void)state;
    scratch_begin(&s);
    const char *path = scratch_path(&s, "saved");
    fixture_begin(&f);
    fixture_set(&f, "data.limit=64");
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_save(t, path, &f.err), LS_OK);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
    while (load_with_failure(n, path))
        n++;
    assert_true(n > 5);
    scratch_end(&s);
}

LS_TESTS(train_failures, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interrupt_before_the_run_leaves_fresh_weights),
        cmocka_unit_test(an_interrupt_from_another_thread_ends_at_a_whole_step),
        cmocka_unit_test(an_interrupt_at_a_given_step_gives_the_same_bits),
        cmocka_unit_test(an_interrupt_behind_the_last_evaluation_comes_too_late),
        cmocka_unit_test(a_device_that_fails_before_the_commit_point_can_end_the_run),
        cmocka_unit_test(a_device_that_fails_behind_the_commit_point_can_end_the_run),
        cmocka_unit_test(a_device_without_memory_fails_the_opening),
        cmocka_unit_test(a_record_that_is_refused_ends_the_run),
        cmocka_unit_test(a_refused_last_record_is_reported_too),
        cmocka_unit_test(a_loss_that_is_not_finite_names_the_step),
        cmocka_unit_test(a_test_loss_that_is_not_finite_names_the_epoch),
        cmocka_unit_test(recovering_goes_on_without_memory_for_one_total),
        cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
        cmocka_unit_test(a_failed_allocation_of_a_load_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
