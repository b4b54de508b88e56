/* SPDX-License-Identifier: MIT */
/* Tests how much stack the public functions use: each runs on a stack that was filled with a
 * pattern. A function that needs much stack checks at its start that it has enough; with a little
 * less it must fail instead of overrunning the stack: each also runs on stacks of all sizes from
 * the smallest that a thread can have. */
#include "base/stack.h"
#include "data/scratch.h"
#include "embed/scene.h"
#include "runner.h"
#include "train/faulty_backend.h"
#include "train/own_data.h"

#include <lockstep/collective.h>
#include <lockstep/model.h>
#include <lockstep/sys/plugin.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { BATCH = 16, PAINT = 0xa5 };
#define STACK_BYTES ((size_t)2 << 20)

static const char config[] =
    "{\"data\": {\"name\": \"own\"}, \"batch_size\": 16, \"shards\": 2, \"epochs\": 2, \"eval_every\": 1,"
    " \"optimizer\": {\"name\": \"adamw\", \"lr\": 0.01}, \"checkpoint\": {\"every_steps\": 2},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 16, \"kernel\": 3, \"padding\": 1},"
    " {\"type\": \"batch_norm\"}, {\"type\": \"relu\"}, {\"type\": \"max_pool\", \"kernel\": 2},"
    " {\"type\": \"conv2d\", \"out\": 16, \"kernel\": 5, \"stride\": 3}, {\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"out\": 10}]}}";

typedef struct stage {
    scratch files;
    ls_registry *registry;
    ls_data_source data;
    const ls_data_source *sources[1];
    const char *set[2];
    char run_dir[600], saved[600], weights_file[600], onnx_file[600];
    ls_trainer_options options;
    ls_trainer *trainer;
    ls_model *snapshot, *model;
    /* results of the calls on small stacks, each NULL before and after the call */
    ls_trainer *other;
    ls_model *other_model;
    ls_rows *rows;
    ls_pool *pool;
    ls_collective *group;
    uint8_t images[BATCH * OWN_PIXELS];
    int32_t labels[BATCH];
    float scores[BATCH * OWN_CLASSES], *weights;
    int status;
    ls_error err;
} stage;

static void begin(stage *g, const char *devices, int streamed)
{
    memset(g, 0, sizeof *g);
    scratch_begin(&g->files);
    fault_reset();
    g->registry = scene_registry();
    assert_int_equal(ls_registry_add(g->registry, faulty_backend(), &g->err), LS_OK);
    g->data = own_data(streamed);
    g->sources[0] = &g->data;
    g->set[0] = devices;
    g->set[1] = g->run_dir;
    snprintf(g->run_dir, sizeof g->run_dir, "run_dir=%s", scratch_path(&g->files, "run"));
    snprintf(g->saved, sizeof g->saved, "%s", scratch_path(&g->files, "saved"));
    snprintf(g->weights_file, sizeof g->weights_file, "%s", scratch_path(&g->files, "w"));
    snprintf(g->onnx_file, sizeof g->onnx_file, "%s", scratch_path(&g->files, "w.onnx"));
    g->options = (ls_trainer_options){.size = sizeof g->options,
                                      .config_text = config,
                                      .set = g->set,
                                      .set_count = 2,
                                      .sources = g->sources,
                                      .source_count = 1,
                                      .registry = g->registry};
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, i, g->images + (size_t)i * OWN_PIXELS, &g->labels[i]);
}

static void end(stage *g)
{
    ls_model_release(g->snapshot);
    ls_model_release(g->model);
    assert_int_equal(ls_trainer_close(g->trainer, NULL), LS_OK);
    ls_registry_destroy(g->registry);
    scratch_end(&g->files);
    free(g->weights);
    fault_reset();
}

/* ---- a painted stack ---- */

typedef void call(stage *g);

typedef struct painted {
    call *what;
    stage *stage;
    uintptr_t begun; /* position of the stack when the call was made */
} painted;

static void *make_call(void *arg)
{
    painted *p = arg;
    p->begun = (uintptr_t)__builtin_frame_address(0);
    p->what(p->stage);
    return NULL;
}

static size_t used_by(call *what, stage *g)
{
    painted p = {what, g, 0};
    pthread_attr_t attr;
    pthread_t thread;
    uint8_t *stack = aligned_alloc(4096, STACK_BYTES);
    size_t untouched = 0;
    assert_non_null(stack);
    memset(stack, PAINT, STACK_BYTES);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, make_call, &p), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    while (untouched < STACK_BYTES && stack[untouched] == PAINT)
        untouched++;
    const size_t used = p.begun - (uintptr_t)(stack + untouched);
    free(stack);
    return used;
}

/* Debug builds use more, and sanitizers have stacks of their own. */
static void uses_at_most(const char *name, call *what, stage *g, size_t most)
{
    const size_t used = used_by(what, g);
    if (g->status != LS_OK)
        fail_msg("%s: %s", name, g->err.text);
    print_message("%-22s %4zu of %4zu KiB\n", name, (used + 1023) / 1024, most / 1024);
#if defined NDEBUG && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    if (used > most)
        fail_msg("%s uses %zu bytes of stack; %zu are asked for", name, used, most);
#else
    (void)most;
#endif
}

/* ---- the calls ---- */

static void open_trainer(stage *g)
{
    g->status = ls_trainer_open(&g->trainer, &g->options, &g->err);
}

static void resolve(stage *g)
{
    char *text = NULL;
    g->status = ls_config_resolve(&text, &g->options, &g->err);
    ls_text_free(text);
}

static void step(stage *g)
{
    g->status = own_step(g->trainer, g->images, g->labels, BATCH, NULL, &g->err);
}

static void run(stage *g)
{
    g->status = ls_trainer_run(g->trainer, &g->err);
}

static void evaluate(stage *g)
{
    g->status = ls_trainer_evaluate(g->trainer, NULL, &g->err);
}

static void weights(stage *g)
{
    const size_t parameters = ls_trainer_summary(g->trainer)->parameters;
    free(g->weights);
    g->weights = calloc(parameters, sizeof *g->weights);
    g->status = ls_trainer_weights(g->trainer, g->weights, parameters, &g->err);
}

static void save(stage *g)
{
    g->status = ls_trainer_save(g->trainer, NULL, &g->err);
    if (g->status == LS_OK)
        g->status = ls_trainer_save(g->trainer, g->saved, &g->err);
}

static void load(stage *g)
{
    g->status = ls_trainer_load(g->trainer, g->saved, &g->err);
}

static void load_weights(stage *g)
{
    for (int state = LS_STATE_RESET; state <= LS_STATE_TAKE; state++)
        g->status = ls_trainer_load_weights(g->trainer, g->saved, (ls_load_state)state, &g->err);
}

static void set_lr(stage *g)
{
    g->status = ls_trainer_set_lr(g->trainer, 0.1, &g->err);
}

static void take_model(stage *g)
{
    g->status = ls_trainer_model(&g->snapshot, g->trainer, &g->err);
}

static void predict(stage *g)
{
    g->status = own_predict(g->trainer, g->images, LS_ROW_U8, BATCH, g->scores, BATCH * OWN_CLASSES,
                            &g->err);
}

static void predict_few(stage *g)
{
    g->status = ls_model_predict(g->snapshot, g->images, LS_ROW_U8, 3, LS_OUTPUT_LOGITS, g->scores,
                                 BATCH * OWN_CLASSES, &g->err);
}

static void save_model(stage *g)
{
    g->status = ls_model_save(g->snapshot, g->weights_file, &g->err);
}

static void export_model(stage *g)
{
    g->status = ls_model_export(g->snapshot, g->weights_file, &g->err);
}

static void open_model(stage *g)
{
    const ls_model_options o = {.size = sizeof o, .registry = g->registry};
    g->status = ls_model_open(&g->model, g->weights_file, &o, &g->err);
}

static void run_model(stage *g)
{
    g->status = ls_model_predict(g->model, g->images, LS_ROW_U8, BATCH, LS_OUTPUT_PREDICTION,
                                 g->scores, BATCH * OWN_CLASSES, &g->err);
}

static void close_trainer(stage *g)
{
    g->status = ls_trainer_close(g->trainer, NULL);
    g->trainer = NULL;
}

/* ---- */

/* The calls of a program, in the order in which it makes them. */
static const struct {
    const char *name;
    call *what;
    size_t most;
} calls[] = {
    {"ls_config_resolve", resolve, LS_OPEN_STACK_BYTES},
    {"ls_trainer_open", open_trainer, LS_OPEN_STACK_BYTES},
    {"ls_trainer_step", step, LS_CALL_STACK_BYTES},
    {"ls_trainer_evaluate", evaluate, LS_CALL_STACK_BYTES},
    {"ls_trainer_weights", weights, LS_CALL_STACK_BYTES},
    {"ls_trainer_save", save, LS_CALL_STACK_BYTES},
    {"ls_trainer_load", load, LS_CALL_STACK_BYTES},
    {"ls_trainer_load_weights", load_weights, LS_CALL_STACK_BYTES},
    {"ls_trainer_set_lr", set_lr, LS_CALL_STACK_BYTES},
    {"ls_trainer_model", take_model, LS_CALL_STACK_BYTES},
    {"ls_trainer_predict", predict, LS_PREDICT_STACK_BYTES},
    {"ls_model_predict", predict_few, LS_PREDICT_STACK_BYTES},
    {"ls_model_export", export_model, LS_CALL_STACK_BYTES},
    {"ls_model_save", save_model, LS_CALL_STACK_BYTES},
    {"ls_model_open", open_model, LS_OPEN_STACK_BYTES},
    {"ls_model_predict", run_model, LS_PREDICT_STACK_BYTES},
    {"ls_trainer_close", close_trainer, LS_CALL_STACK_BYTES},
};

static void play(const char *devices)
{
    stage g;
    begin(&g, devices, 1);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        uses_at_most(calls[i].name, calls[i].what, &g, calls[i].most);
    end(&g);
}

static void calls_use_no_more_stack_than_they_ask_for(void **state)
{
    (void)state;
    play("devices=ref:2");
}

static void calls_on_cpus_use_no_more_stack_than_they_ask_for(void **state)
{
    ls_registry *registry = scene_registry();
    int cpu = 0;
    (void)state;
    for (int i = 0; ls_registry_at(registry, i); i++)
        cpu |= strcmp(ls_registry_at(registry, i)->name, "cpu") == 0;
    ls_registry_destroy(registry);
    if (!cpu)
        skip();
    play("devices=cpu:2");
}

/* With checkpoints, records, and a device that is lost in the middle. */
static void a_run_that_recovers_uses_no_more_stack_than_it_asks_for(void **state)
{
    stage g;
    (void)state;
    begin(&g, "devices=faulty:2", 0);
    fault.device = 1;
    fault.tail_at = 4;
    uses_at_most("ls_trainer_open", open_trainer, &g, LS_OPEN_STACK_BYTES);
    uses_at_most("ls_trainer_run", run, &g, LS_CALL_STACK_BYTES);
    assert_true(atomic_load(&fault.tails) >= 4);
    end(&g);
}

static void verify(stage *g)
{
    const ls_trainer_options o = {
        .size = sizeof o, .set = g->set, .set_count = 1, .registry = g->registry};
    const ls_verify_options v = {
        .size = sizeof v, .run = g->run_dir + strlen("run_dir="), .trainer = &o, .all = 1};
    ls_verdict verdict = {.size = sizeof verdict};
    g->status = ls_verify(&verdict, &v, &g->err);
    if (g->status == LS_OK && !verdict.holds)
        fail_msg("%s", verdict.text);
}

static void a_verification_uses_no_more_stack_than_it_asks_for(void **state)
{
    stage g;
    (void)state;
    begin(&g, "devices=ref:2", 0);
    g.options.config_text =
        "{\"data\": {\"name\": \"synthetic\", \"limit\": 64}, \"batch_size\": 16, \"epochs\": 1,"
        " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01},"
        " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";
    open_trainer(&g);
    run(&g);
    close_trainer(&g);
    uses_at_most("ls_verify", verify, &g, LS_OPEN_STACK_BYTES);
    end(&g);
}

/* ---- small stacks ---- */

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they need more */
static void open_other(stage *g)
{
    const char *set[] = {g->set[0], "run_dir=null"};
    ls_trainer_options o = g->options;
    o.set = set;
    g->status = ls_trainer_open(&g->other, &o, &g->err);
}

static void close_other(stage *g)
{
    g->status = ls_trainer_close(g->other, &g->err);
    g->other = g->status == LS_OK ? NULL : g->other;
}

static void open_other_model(stage *g)
{
    const ls_model_options o = {.size = sizeof o, .registry = g->registry};
    g->status = ls_model_open(&g->other_model, g->weights_file, &o, &g->err);
}

static void open_checkpoint(stage *g)
{
    const ls_model_options o = {.size = sizeof o, .registry = g->registry};
    g->status = ls_model_open(&g->other_model, g->saved, &o, &g->err);
}

static void take_other_model(stage *g)
{
    g->status = ls_trainer_model(&g->other_model, g->trainer, &g->err);
}

static void open_rows(stage *g)
{
    g->status = ls_rows_open(&g->rows, g->snapshot, g->weights_file, NULL, &g->err);
}

static void evaluate_model(stage *g)
{
    ls_evaluation out = {.size = sizeof out};
    g->status = ls_model_evaluate(g->snapshot, g->weights_file, NULL, &out, &g->err);
}

static void export_onnx(stage *g)
{
    g->status = ls_model_export(g->snapshot, g->onnx_file, &g->err);
}

static void create_pool(stage *g)
{
    const ls_device_pool_options o = {
        .size = sizeof o, .registry = g->registry, .devices = "ref:2"};
    g->status = ls_device_pool_create(&g->pool, &o, &g->err);
}

static void create_group(stage *g)
{
    const ls_collective_options o = {.size = sizeof o, .ranks = 2, .floats = 100};
    g->status = ls_collective_create(&g->group, &o, &g->err);
}

static void *call_it(void *arg)
{
    const painted *p = arg;
    p->what(p->stage);
    return NULL;
}

/* Calls on a thread with a stack of `bytes`, or on this thread if it is 0, and frees the call's
 * result. */
static int status_on(call *what, stage *g, size_t bytes)
{
    painted p = {what, g, 0};
    pthread_attr_t attr;
    pthread_t thread;
    if (what == close_other)
        open_other(g);
    if (bytes > 0) {
        assert_int_equal(pthread_attr_init(&attr), 0);
        assert_int_equal(pthread_attr_setstacksize(&attr, bytes), 0);
        assert_int_equal(pthread_create(&thread, &attr, call_it, &p), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        pthread_attr_destroy(&attr);
    } else {
        what(g);
    }
    assert_int_equal(ls_trainer_close(g->other, NULL), LS_OK);
    ls_model_release(g->other_model);
    ls_rows_close(g->rows);
    assert_int_equal(ls_pool_destroy(g->pool, LS_FOREVER, NULL), LS_OK);
    ls_collective_destroy(g->group);
    g->other = NULL;
    g->other_model = NULL;
    g->rows = NULL;
    g->pool = NULL;
    g->group = NULL;
    return g->status;
}

/* The calls that a program can make on any thread. Those that fail in this scene do so late. */
static const struct {
    const char *name;
    call *what;
} anywhere[] = {
    {"ls_config_resolve", resolve},
    {"ls_trainer_open", open_other},
    {"ls_trainer_step", step},
    {"ls_trainer_evaluate", evaluate},
    {"ls_trainer_weights", weights},
    {"ls_trainer_save", save},
    {"ls_trainer_load", load},
    {"ls_trainer_load_weights", load_weights},
    {"ls_trainer_set_lr", set_lr},
    {"ls_trainer_model", take_other_model},
    {"ls_trainer_close", close_other},
    {"ls_model_predict", predict_few},
    {"ls_model_save", save_model},
    {"ls_model_export", export_onnx},
    {"ls_model_open of weights", open_other_model},
    {"ls_model_open of a checkpoint", open_checkpoint},
    {"ls_model_evaluate", evaluate_model},
    {"ls_rows_open", open_rows},
    {"ls_verify", verify},
    {"ls_device_pool_create", create_pool},
    {"ls_collective_create", create_group},
};

static void every_call_is_refused_on_a_stack_that_is_too_small(void **state)
{
    const size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN), enough = LS_THREAD_STACK_KIB << 10;
    stage g;
    (void)state;
    begin(&g, "devices=ref:2", 1);
    for (size_t i = 0; i < sizeof calls / sizeof *calls && calls[i].what != close_trainer; i++)
        calls[i].what(&g);
    for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++) {
        const int usual = status_on(anywhere[i].what, &g, 0);
        for (size_t bytes = least; bytes <= enough; bytes += (size_t)8 << 10) {
            const int status = status_on(anywhere[i].what, &g, bytes);
            const int refused = status == LS_EINVAL && strstr(g.err.text, "this thread's stack");
            if (!refused && status != usual)
                fail_msg("%s: %zu KiB: %s: %s", anywhere[i].name, bytes >> 10,
                         ls_status_name(status), g.err.text);
        }
        if (status_on(anywhere[i].what, &g, enough) != usual)
            fail_msg("%s: %s", anywhere[i].name, g.err.text);
    }
    end(&g);
}
#endif

LS_TESTS(embed_stack, "unit")
{
    const struct CMUnitTest tests[] = {
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        cmocka_unit_test(every_call_is_refused_on_a_stack_that_is_too_small),
#endif
        cmocka_unit_test(calls_use_no_more_stack_than_they_ask_for),
        cmocka_unit_test(calls_on_cpus_use_no_more_stack_than_they_ask_for),
        cmocka_unit_test(a_run_that_recovers_uses_no_more_stack_than_it_asks_for),
        cmocka_unit_test(a_verification_uses_no_more_stack_than_it_asks_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
