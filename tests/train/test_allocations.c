/* SPDX-License-Identifier: MIT */
/* Tests that neither the workers nor the coordinator allocate memory in a training step. */
#include "runner.h"
#include "train/count_malloc.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_COUNTED 3 /* allocations are counted from this step on */

#ifdef LS_EMULATED /* in an emulator ResNet-18 takes more than twenty minutes */
#define NETS 1
#else
#define NETS 2
#endif

typedef struct counts {
    ls_host host;
    atomic_long host_calls; /* allocations through the host's hooks */
    /* Values of `host_calls` at step FIRST_COUNTED and at the epoch's last step. */
    long host_begin, host_end;
    long malloc_begin, malloc_end;
    long evaluated_malloc; /* calls of the allocator until the end of the evaluation */
} counts;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    atomic_fetch_add(&((counts *)user)->host_calls, 1);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counting_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void on_progress(void *user, const ls_progress *p)
{
    counts *c = user;
    if (p->epoch_done) {
        c->evaluated_malloc = count_malloc_calls();
    } else if (p->step == FIRST_COUNTED) {
        c->host_begin = c->host_calls;
        c->malloc_begin = count_malloc_calls();
    } else if (p->step == p->steps) {
        c->malloc_end = count_malloc_calls();
        c->host_end = c->host_calls;
    }
}

/* The config of ResNet-18, changed to a few images. With all test images of the built-in data the
 * evaluation takes many times as long as the steps. */
static char resnet[16384];

static void use_resnet(fixture *f)
{
    static ls_data_source few;
    static const ls_data_source *sources[1];
    few = own_data(0);
    few.train_rows = 10;
    few.test_rows = 4;
    FILE *file = fopen(RESNET, "rb");
    assert_non_null(file);
    assert_true(fread(resnet, 1, sizeof resnet - 1, file) > 0);
    fclose(file);
    f->options.config_text = resnet;
    fixture_use_source(f, &few, sources);
    fixture_set(f, "batch_size=2");
    fixture_set(f, "epochs=1");
    fixture_set(f, "run_dir=null");
}

/* Runs one epoch: LeNet with 12 steps, the last of which has fewer rows, or ResNet-18 with 5
 * steps. */
static void run(counts *c, const char *devices, int is_resnet)
{
    fixture f;
    memset(c, 0, sizeof *c);
    c->host = (ls_host){sizeof c->host, counting_alloc, counting_free, NULL, c};
    fixture_begin(&f);
    if (is_resnet)
        use_resnet(&f);
    else
        fixture_use_lenet(&f);
    fixture_set(&f, devices);
    if (!is_resnet)
        fixture_set(&f, "data.limit=376");
    fixture_set(&f, "init={\"name\": \"normal\", \"std\": 0.01}");
    f.options.host = &c->host;
    f.callbacks.record = NULL;
    f.callbacks.progress = on_progress;
    f.callbacks.user = c;
    ls_trainer *t = fixture_run(&f);
    assert_int_equal(ls_trainer_result(t)->steps, is_resnet ? 5 : 12);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
    assert_true(c->malloc_begin > 0 && c->host_begin > 0 && c->malloc_end > 0);
}

static void steps_on_the_reference_allocate_nothing(void **state)
{
    counts c;
    (void)state;
    run(&c, "devices=ref:3", 0);
    assert_int_equal(c.malloc_end - c.malloc_begin, 0);
    assert_int_equal(c.host_end - c.host_begin, 0);
    /* the evaluation does not allocate either */
    assert_int_equal(c.evaluated_malloc - c.malloc_end, 0);
}

static void steps_on_the_cpu_allocate_nothing(void **state)
{
    counts c;
    (void)state;
    if (!has_backend("cpu"))
        skip();
    for (int is_resnet = 0; is_resnet < NETS; is_resnet++) {
        run(&c, "devices=cpu:2", is_resnet);
        assert_int_equal(c.host_end - c.host_begin, 0);
        assert_int_equal(c.malloc_end - c.malloc_begin, 0);
    }
}

/* Predicts one to eight rows with ResNet-18, twice: the first time a device is opened and the
 * weights are prepared. */
static void predictions_of_few_rows_on_the_cpu_allocate_nothing(void **state)
{
    static uint8_t images[8 * OWN_PIXELS];
    static float scores[8 * OWN_CLASSES];
    fixture f;
    ls_model *net;
    long first = 0;
    (void)state;
    if (!has_backend("cpu") || NETS < 2)
        skip();
    fixture_begin(&f);
    use_resnet(&f);
    fixture_set(&f, "devices=cpu:1");
    ls_trainer *t = fixture_open(&f);
    assert_int_equal(ls_trainer_model(&net, t, &f.err), LS_OK);
    for (int i = 0; i < 2; i++) {
        first = count_malloc_calls();
        for (uint32_t n = 1; n <= 8; n++)
            assert_int_equal(ls_model_predict(net, images, LS_ROW_U8, n, LS_OUTPUT_LOGITS, scores,
                                              sizeof scores / sizeof *scores, &f.err),
                             LS_OK);
    }
    assert_int_equal(count_malloc_calls() - first, 0);
    ls_model_release(net);
    ls_trainer_close(t, NULL);
    fixture_end(&f);
}

/* Tests that count_malloc_calls counts a call of malloc. */
static void the_counter_sees_an_allocation(void **state)
{
    (void)state;
    long before = count_malloc_calls();
    void *volatile memory = malloc(10);
    assert_int_equal(count_malloc_calls() - before, 1);
    free(memory);
    assert_int_equal(count_malloc_calls() - before, 2);
}

LS_TESTS(train_allocations, "integration no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_sees_an_allocation),
        cmocka_unit_test(steps_on_the_reference_allocate_nothing),
        cmocka_unit_test(steps_on_the_cpu_allocate_nothing),
        cmocka_unit_test(predictions_of_few_rows_on_the_cpu_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
