/* SPDX-License-Identifier: MIT */
/* Tests functions of the caller that break the rules for their result: a number that is no status,
 * an error without a text, a text without its zero, a text of several lines. Each function of the
 * public headers that returns a status is called with each. */
#include "device/registry.h"
#include "ref/ref.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <stdlib.h>
#include <string.h>

/* What the functions below return, and how they fill their error. */
typedef struct answer {
    int status;
    int fill;     /* byte that fills the whole text; 0: it is left as it is */
    int expected; /* status of the public function */
    const char *text;
} answer;

static const answer answers[] = {
    {7, 0, LS_EINVAL, " returned 7; expected LS_OK (0) or a negative ls_status"},
    {1, 'x', LS_EINVAL, " returned 1; expected LS_OK (0) or a negative ls_status; it said: xxx"},
    {-99, 0, LS_EINVAL, " returned -99; expected"},
    {LS_EDATA, 0, LS_EDATA, " failed with LS_EDATA and gave no message"},
    {LS_EDATA, 'x', LS_EDATA, "xxxxxxxx"},
    {LS_EDATA, '\n', LS_EDATA, "????????"},
    {LS_EDATA, 0xC3, LS_EDATA, "????????"},
};

static int give(const answer *a, ls_error *err)
{
    if (a->fill)
        memset(err->text, a->fill, sizeof err->text);
    return a->status;
}

static void assert_answered(const answer *a, int status, const ls_error *err, const char *who)
{
    assert_int_equal(status, a->expected);
    assert_int_equal(err->status, a->expected);
    assert_in_range(strnlen(err->text, sizeof err->text), 1, sizeof err->text - 1);
    assert_null(strpbrk(err->text, "\n\xC3"));
    if (!strstr(err->text, a->text))
        fail_msg("expected \"%s\" in: %s", a->text, err->text);
    if (!a->fill && !strstr(err->text, who))
        fail_msg("expected the name \"%s\" in: %s", who, err->text);
}

/* ---- records -------------------------------------------------------------------------------- */

static int record(void *user, const char *json, size_t length, ls_error *err)
{
    (void)json;
    (void)length;
    return give(user, err);
}

static void the_receivers_of_records(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM(answers); i++) {
        fixture f;
        fixture_begin(&f);
        f.callbacks.record = record;
        f.callbacks.user = (void *)(uintptr_t)&answers[i];
        ls_trainer *t = fixture_open(&f);
        assert_answered(&answers[i], ls_trainer_run(t, &f.err), &f.err, "the callback for records");
        ls_trainer_close(t, NULL);
        fixture_end(&f);
    }
}

/* ---- data ----------------------------------------------------------------------------------- */

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    (void)test;
    (void)rows;
    (void)count;
    (void)values;
    (void)targets;
    return give(user, err);
}

static void the_readers_of_data(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM(answers); i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            fixture f;
            ls_trainer *t = NULL;
            const ls_data_source *pointers[1];
            ls_data_source data = own_data(streamed);
            data.read = read_rows;
            data.user = (void *)(uintptr_t)&answers[i];
            data.test_rows = 0;
            fixture_begin(&f);
            fixture_use_source(&f, &data, pointers);
            int status = ls_trainer_open(&t, &f.options, &f.err);
            if (streamed) {
                assert_int_equal(status, LS_OK);
                status = ls_trainer_run(t, &f.err);
            }
            assert_answered(&answers[i], status, &f.err, "its callback `read`");
            ls_trainer_close(t, NULL);
            fixture_end(&f);
        }
}

/* ---- pools ---------------------------------------------------------------------------------- */

static int job(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)worker;
    return give(arg, err);
}

static void jobs(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM(answers); i++)
        for (int caller = 0; caller < 2; caller++) {
            ls_error err;
            ls_pool *pool;
            void *arg = (void *)(uintptr_t)&answers[i];
            const ls_pool_options o = {.size = sizeof o, .workers = 1, .caller_works = caller};
            assert_int_equal(ls_pool_create(&pool, &o, &err), LS_OK);
            assert_answered(&answers[i], ls_pool_run(pool, job, arg, LS_FOREVER, &err), &err,
                            "worker 0: a job");
            assert_int_equal(ls_pool_clear(pool, &err), LS_OK);
            assert_int_equal(ls_pool_submit(pool, 0, job, arg, &err), LS_OK);
            assert_answered(&answers[i], ls_pool_wait(pool, LS_FOREVER, &err), &err,
                            "worker 0: a job");
            assert_answered(&answers[i], ls_pool_first_error(pool, NULL, &err), &err, "a job");
            ls_pool_destroy(pool, LS_FOREVER, NULL);
        }
}

static int start(ls_worker *worker, void *user, ls_error *err)
{
    (void)worker;
    return give(user, err);
}

static int start_with_device(const ls_worker *worker, ls_device *device, void **local, void *user,
                             ls_error *err)
{
    (void)worker;
    (void)device;
    (void)local;
    return give(user, err);
}

static void start_hooks(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROOM(answers); i++) {
        ls_error err;
        ls_pool *pool;
        ls_registry *registry;
        void *user = (void *)(uintptr_t)&answers[i];
        for (int caller = 0; caller < 2; caller++) {
            const ls_pool_options o = {.size = sizeof o,
                                       .workers = 1,
                                       .start = start,
                                       .user = user,
                                       .caller_works = caller};
            assert_answered(&answers[i], ls_pool_create(&pool, &o, &err), &err,
                            "worker 0: its start hook");
        }
        const ls_pool_options lent = {
            .size = sizeof lent, .workers = 1, .start = start, .user = user, .borrowed = 1};
        assert_int_equal(ls_pool_create(&pool, &lent, &err), LS_OK);
        assert_answered(&answers[i], ls_pool_serve(pool, 0, &err), &err,
                        "worker 0: its start hook");
        ls_pool_destroy(pool, LS_FOREVER, NULL);
        assert_int_equal(ls_registry_create(&registry, NULL, &err), LS_OK);
        assert_int_equal(ls_registry_add(registry, ls_ref_backend(), &err), LS_OK);
        const ls_device_pool_options devices = {.size = sizeof devices,
                                                .registry = registry,
                                                .devices = "ref:1",
                                                .start = start_with_device,
                                                .user = user};
        assert_answered(&answers[i], ls_device_pool_create(&pool, &devices, &err), &err,
                        "worker 0: its start hook");
        ls_registry_destroy(registry);
    }
}

LS_TESTS(train_public_callbacks, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_receivers_of_records),
        cmocka_unit_test(the_readers_of_data),
        cmocka_unit_test(jobs),
        cmocka_unit_test(start_hooks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
