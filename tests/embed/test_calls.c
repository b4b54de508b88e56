/* SPDX-License-Identifier: MIT */
/* Tests calls of public functions that are not allowed but that programs make by mistake: from a
 * callback, in a forked child, on a small stack, with a pool whose owner is working, with NULL
 * arguments. Each must return an accurate error. None may hang, or return old weights. */
#include "embed/scene.h"
#include "runner.h"
#include "train/faulty_backend.h"
#include "train/own_data.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BATCH 16
#define MOST_PARAMETERS 4096

static const char config[] =
    "{\"data\": {\"name\": \"own\"}, \"batch_size\": 16, \"shards\": 2, \"run_dir\": null,"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 2, \"kernel\": 5, \"stride\": 5},"
    " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

typedef struct story {
    ls_registry *registry;
    ls_data_source data;
    const ls_data_source *sources[1];
    const char *set[1];
    ls_trainer_callbacks callbacks;
    ls_trainer_options options;
    ls_trainer *trainer;
    uint8_t images[BATCH * OWN_PIXELS];
    int32_t labels[BATCH];
    float weights[MOST_PARAMETERS];
    ls_error err;
} story;

static void begin(story *s, const char *devices)
{
    memset(s, 0, sizeof *s);
    fault_reset();
    s->registry = scene_registry();
    assert_int_equal(ls_registry_add(s->registry, faulty_backend(), &s->err), LS_OK);
    s->data = own_data(1);
    s->sources[0] = &s->data;
    s->set[0] = devices;
    s->callbacks = (ls_trainer_callbacks){.size = sizeof s->callbacks, .user = s};
    s->options = (ls_trainer_options){.size = sizeof s->options,
                                      .config_text = config,
                                      .set = s->set,
                                      .set_count = 1,
                                      .sources = s->sources,
                                      .source_count = 1,
                                      .callbacks = &s->callbacks,
                                      .registry = s->registry};
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, i, s->images + (size_t)i * OWN_PIXELS, &s->labels[i]);
}

static void open_trainer(story *s)
{
    if (ls_trainer_open(&s->trainer, &s->options, &s->err) != LS_OK)
        fail_msg("%s", s->err.text);
    assert_in_range(ls_trainer_summary(s->trainer)->parameters, 1, MOST_PARAMETERS);
}

static int step(story *s)
{
    return own_step(s->trainer, s->images, s->labels, BATCH, NULL, &s->err);
}

static int weights(story *s)
{
    return ls_trainer_weights(s->trainer, s->weights, MOST_PARAMETERS, &s->err);
}

static void end(story *s)
{
    assert_int_equal(ls_trainer_close(s->trainer, NULL), LS_OK);
    ls_registry_destroy(s->registry);
    fault_reset();
}

/* Refused, with `text` in the message. */
static void assert_refused(const story *s, int status, int wanted, const char *text)
{
    assert_int_equal(status, wanted);
    assert_int_equal(s->err.status, wanted);
    if (!strstr(s->err.text, text))
        fail_msg("expected \"…%s…\", got: %s", text, s->err.text);
}

/* ---- pools of the caller's ---- */

static ls_pool *device_pool(story *s, int caller_works)
{
    ls_pool *pool;
    const ls_device_pool_options o = {.size = sizeof o,
                                      .registry = s->registry,
                                      .devices = "ref:2",
                                      .caller_works = caller_works};
    assert_int_equal(ls_device_pool_create(&pool, &o, &s->err), LS_OK);
    return pool;
}

static void a_pool_whose_owner_works_is_refused(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:2");
    s.options.pool = device_pool(&s, 1);
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "caller_works");
    ls_pool_destroy(s.options.pool, LS_FOREVER, NULL);
    end(&s);
}

static void a_pool_without_devices_is_refused(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:2");
    const ls_pool_options o = {.size = sizeof o, .workers = 2};
    assert_int_equal(ls_pool_create(&s.options.pool, &o, &s.err), LS_OK);
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "no devices");
    ls_pool_destroy(s.options.pool, LS_FOREVER, NULL);
    end(&s);
}

/* A step may be over when a worker still returns from it. */
static void clear(ls_pool *pool)
{
    ls_error err;
    assert_int_equal(ls_pool_wait(pool, LS_FOREVER, &err), LS_ECANCELED);
    assert_int_equal(ls_pool_clear(pool, &err), LS_OK);
}

static void a_cancelled_pool_is_said_and_trains_once_it_is_cleared(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:2");
    ls_pool *pool = s.options.pool = device_pool(&s, 0);
    open_trainer(&s);
    assert_int_equal(step(&s), LS_OK);
    ls_pool_cancel(pool);
    assert_refused(&s, step(&s), LS_ECANCELED, "cancelled");
    assert_refused(&s, weights(&s), LS_ECANCELED, "cancelled");
    assert_int_equal(ls_trainer_close(s.trainer, NULL), LS_ECANCELED);
    clear(pool);
    assert_int_equal(step(&s), LS_OK);
    assert_int_equal(weights(&s), LS_OK);
    end(&s);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

static int cancel_the_pool(void *user, const char *json, size_t length, ls_error *err)
{
    const story *s = user;
    (void)length;
    (void)err;
    if (strncmp(json, "{\"type\":\"step\"", 14) == 0)
        ls_pool_cancel(s->options.pool);
    return LS_OK;
}

/* Steps are under way, and some workers have begun the next one, some have not. */
static void a_pool_that_is_cancelled_in_a_run_ends_it(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        story s;
        begin(&s, "epochs=50");
        s.data = own_data(0);
        ls_pool *pool = s.options.pool = device_pool(&s, 0);
        s.callbacks.record = cancel_the_pool;
        open_trainer(&s);
        assert_refused(&s, ls_trainer_run(s.trainer, &s.err), LS_ECANCELED, "cancelled");
        clear(pool);
        end(&s);
        ls_pool_destroy(pool, LS_FOREVER, NULL);
    }
}

typedef struct inner {
    story *s;
    int status;
} inner;

static int step_in_a_job(const ls_worker *worker, void *arg, ls_error *err)
{
    inner *i = arg;
    (void)err;
    if (worker->index == 0)
        i->status = step(i->s);
    return LS_OK;
}

static void a_step_from_a_job_of_its_own_pool_is_refused(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:2");
    ls_pool *pool = s.options.pool = device_pool(&s, 0);
    open_trainer(&s);
    inner i = {&s, LS_OK};
    assert_int_equal(ls_pool_run(pool, step_in_a_job, &i, LS_FOREVER, &s.err), LS_OK);
    assert_refused(&s, i.status, LS_EINVAL, "job");
    assert_int_equal(step(&s), LS_OK);
    end(&s);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
}

/* ---- weights ---- */

static void weights_without_a_device_are_an_error(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=faulty:1");
    fault.tail_at = 3; /* two shards a step */
    open_trainer(&s);
    assert_int_equal(step(&s), LS_OK);
    assert_int_equal(step(&s), LS_EDEVICE);
    assert_refused(&s, weights(&s), LS_EDEVICE, "device");
    end(&s);
}

static void a_device_that_fails_as_weights_are_read_costs_none(void **state)
{
    float wanted[MOST_PARAMETERS];
    (void)state;
    for (int failing = 0; failing < 2; failing++) {
        story s;
        begin(&s, "devices=faulty:2");
        open_trainer(&s);
        assert_int_equal(step(&s), LS_OK);
        assert_int_equal(weights(&s), LS_OK);
        assert_int_equal(step(&s), LS_OK);
        fault.download_at = failing; /* all are read from device 0 */
        if (weights(&s) != LS_OK)
            fail_msg("%s", s.err.text);
        if (failing) {
            assert_true(atomic_load(&fault.downloads) > 0);
            assert_memory_equal(s.weights, wanted, sizeof wanted);
        }
        memcpy(wanted, s.weights, sizeof wanted);
        end(&s);
    }
}

/* ---- NULLs ---- */

static void nulls_in_options_are_named(void **state)
{
    story s;
    char *text;
    const char *const none[] = {NULL};
    (void)state;
    begin(&s, "devices=ref:1");
    const ls_trainer_options good = s.options;
    s.set[0] = NULL;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "set[0]");
    assert_refused(&s, ls_config_resolve(&text, &s.options, &s.err), LS_EINVAL, "set[0]");
    s.set[0] = "devices=ref:1";
    s.options.set = NULL;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "set");
    s.options = good;
    s.options.set_count = -1;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "set");
    s.options = good;
    s.options.data_dirs = none;
    s.options.data_dir_count = 1;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "data_dirs[0]");
    s.options = good;
    s.sources[0] = NULL;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "sources[0]");
    s.options.sources = NULL;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "sources");
    s.options = good;
    s.sources[0] = &s.data;
    s.options.step_row_count = 1;
    assert_refused(&s, ls_trainer_open(&s.trainer, &s.options, &s.err), LS_EINVAL, "step_rows");
    assert_int_equal(ls_config_resolve(&text, NULL, &s.err), LS_EINVAL);
    assert_int_equal(ls_trainer_open(&s.trainer, NULL, &s.err), LS_EINVAL);
    end(&s);
}

static void nulls_for_results_are_refused(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:1");
    open_trainer(&s);
    assert_int_equal(ls_trainer_weights(s.trainer, NULL, MOST_PARAMETERS, &s.err), LS_EINVAL);
    assert_int_equal(ls_trainer_model(NULL, s.trainer, &s.err), LS_EINVAL);
    assert_int_equal(ls_trainer_load(s.trainer, NULL, &s.err), LS_EINVAL);
    assert_int_equal(own_predict(s.trainer, NULL, LS_ROW_U8, 1, NULL, 0, &s.err), LS_EINVAL);
    assert_int_equal(own_step(NULL, s.images, s.labels, BATCH, NULL, &s.err), LS_EINVAL);
    assert_int_equal(ls_trainer_weights(NULL, s.weights, MOST_PARAMETERS, &s.err), LS_EINVAL);
    assert_int_equal(ls_pool_create(NULL, NULL, &s.err), LS_EINVAL);
    assert_int_equal(ls_device_pool_create(NULL, NULL, &s.err), LS_EINVAL);
    assert_int_equal(ls_registry_add(s.registry, NULL, &s.err), LS_EINVAL);
    assert_int_equal(step(&s), LS_OK);
    end(&s);
}

/* ---- callbacks that call in ---- */

static int call_everything(void *user, const char *json, size_t length, ls_error *err)
{
    story *s = user;
    ls_model *snapshot = NULL;
    (void)json;
    (void)length;
    (void)err;
    if (!s->trainer) /* while it is opened */
        return LS_OK;
    ls_error why;
    assert_int_equal(own_step(s->trainer, s->images, s->labels, BATCH, NULL, &why), LS_EINVAL);
    assert_non_null(strstr(why.text, "callback"));
    assert_int_equal(ls_trainer_run(s->trainer, NULL), LS_EINVAL);
    assert_int_equal(ls_trainer_weights(s->trainer, s->weights, MOST_PARAMETERS, NULL), LS_EINVAL);
    assert_int_equal(ls_trainer_evaluate(s->trainer, NULL, NULL), LS_EINVAL);
    assert_int_equal(ls_trainer_model(&snapshot, s->trainer, NULL), LS_EINVAL);
    assert_int_equal(ls_trainer_save(s->trainer, "nowhere", NULL), LS_EINVAL);
    assert_int_equal(ls_trainer_load(s->trainer, "nowhere", NULL), LS_EINVAL);
    assert_int_equal(ls_trainer_close(s->trainer, NULL), LS_EINVAL);
    return LS_OK;
}

static void a_callback_that_calls_in_is_refused(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:2");
    s.callbacks.record = call_everything;
    open_trainer(&s);
    assert_int_equal(step(&s), LS_OK);
    assert_int_equal(step(&s), LS_OK);
    assert_int_equal(weights(&s), LS_OK);
    end(&s);
}

static int refuse_the_end(void *user, const char *json, size_t length, ls_error *err)
{
    (void)user;
    (void)length;
    if (strncmp(json, "{\"type\":\"run_end\"", 17) != 0)
        return LS_OK;
    err->status = LS_EDATA;
    memcpy(err->text, "no more", sizeof "no more");
    return LS_EDATA;
}

/* The last record of a trainer whose caller makes the steps is written while it is closed, which
 * returns no error. */
static void a_callback_has_an_error_to_fill_in_whenever_it_is_called(void **state)
{
    story s;
    (void)state;
    begin(&s, "devices=ref:1");
    s.callbacks.record = refuse_the_end;
    open_trainer(&s);
    assert_int_equal(step(&s), LS_OK);
    end(&s);
}

/* ---- a forked child ---- */

/* 0: all as promised; else the number of what was not. */
static int be_the_child(story *s, ls_model *snapshot)
{
    float scores[OWN_CLASSES];
    if (step(s) != LS_EINVAL || !strstr(s->err.text, "forked"))
        return 1;
    if (weights(s) != LS_EINVAL)
        return 2;
    if (ls_model_predict(snapshot, s->images, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, scores, OWN_CLASSES,
                         &s->err) != LS_EINVAL)
        return 3;
    if (ls_trainer_close(s->trainer, NULL) != LS_EINVAL)
        return 4;
    return 0;
}

static void a_forked_child_is_told_so(void **state)
{
    story s;
    ls_model *snapshot;
    int status = -1;
    (void)state;
    begin(&s, "devices=ref:2");
    open_trainer(&s);
    assert_int_equal(step(&s), LS_OK);
    assert_int_equal(ls_trainer_model(&snapshot, s.trainer, &s.err), LS_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(be_the_child(&s, snapshot));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(step(&s), LS_OK);
    ls_model_release(snapshot);
    end(&s);
}

/* ---- small stacks ---- */

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they need more */
static void *call_all(void *arg)
{
    story *s = arg;
    ls_trainer *other = NULL;
    const int opened = ls_trainer_open(&other, &s->options, &s->err);
    if (opened != LS_OK)
        assert_refused(s, opened, LS_EINVAL, "stack");
    ls_trainer_close(other, NULL);
    const int statuses[] = {
        step(s), weights(s),
        own_predict(s->trainer, s->images, LS_ROW_U8, 1, s->weights, MOST_PARAMETERS, &s->err)};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i] != LS_OK)
            assert_int_equal(statuses[i], LS_EINVAL);
    return NULL;
}

static void a_small_stack_is_said(void **state)
{
    pthread_t thread;
    pthread_attr_t attr;
    story s;
    (void)state;
    begin(&s, "devices=ref:2");
    open_trainer(&s);
    for (size_t kib = 32; kib <= 256; kib += kib / 2) {
        assert_int_equal(pthread_attr_init(&attr), 0);
        assert_int_equal(pthread_attr_setstacksize(&attr, kib << 10 & ~(size_t)4095), 0);
        assert_int_equal(pthread_create(&thread, &attr, call_all, &s), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        pthread_attr_destroy(&attr);
    }
    assert_int_equal(step(&s), LS_OK);
    end(&s);
}

#endif

LS_TESTS(embed_calls, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_whose_owner_works_is_refused),
        cmocka_unit_test(a_pool_without_devices_is_refused),
        cmocka_unit_test(a_cancelled_pool_is_said_and_trains_once_it_is_cleared),
        cmocka_unit_test(a_pool_that_is_cancelled_in_a_run_ends_it),
        cmocka_unit_test(a_step_from_a_job_of_its_own_pool_is_refused),
        cmocka_unit_test(weights_without_a_device_are_an_error),
        cmocka_unit_test(a_device_that_fails_as_weights_are_read_costs_none),
        cmocka_unit_test(nulls_in_options_are_named),
        cmocka_unit_test(nulls_for_results_are_refused),
        cmocka_unit_test(a_callback_that_calls_in_is_refused),
        cmocka_unit_test(a_callback_has_an_error_to_fill_in_whenever_it_is_called),
        cmocka_unit_test(a_forked_child_is_told_so),
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        cmocka_unit_test(a_small_stack_is_said),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
