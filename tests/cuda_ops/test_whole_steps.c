/* Training runs over the doubles in which a step is one recording, and the next one is enqueued before
 * its result is known: beside runs whose steps are taken in parts, because something is planned for
 * each of them (a stall of no seconds). */
#include "cuda_ops/cuda_backend.h"
#include "device/registry.h"
#include "doubles/control.h"
#include "train/train_fixture.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 8 };

static const char *const in_parts[STEPS] = {
    "worker=0,step=1,kind=stall,seconds=0", "worker=0,step=2,kind=stall,seconds=0",
    "worker=0,step=3,kind=stall,seconds=0", "worker=0,step=4,kind=stall,seconds=0",
    "worker=0,step=5,kind=stall,seconds=0", "worker=0,step=6,kind=stall,seconds=0",
    "worker=0,step=7,kind=stall,seconds=0", "worker=0,step=8,kind=stall,seconds=0"};

static void begin(fixture *f, int parts)
{
    static ls_backend doubled; /* `cuda` is what the library finds itself */
    doubled = *test_cuda_backend();
    doubled.name = "doubled";
    fixture_begin(f);
    if (ls_registry_add(f->registry, &doubled, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    fixture_set(f, "devices=doubled:0");
    fixture_set(f, "shards=1");
    fixture_set(f, "batch_size=8");
    fixture_set(f, "data.limit=26"); /* the last minibatch of an epoch is a small one */
    fixture_set(f, "epochs=2");
    f->options.inject = in_parts;
    f->options.inject_count = parts ? STEPS : 0;
}

static void use_residual(fixture *f)
{
    fixture_set(f, "optimizer={\"name\": \"adamw\", \"lr\": 0.01}");
    fixture_set(f, "model={\"layers\": [{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 5,"
                   " \"bias\": false}, {\"type\": \"batch_norm\"}, {\"type\": \"relu\"},"
                   " {\"type\": \"max_pool\", \"kernel\": 4}, {\"type\": \"dropout\", \"p\": 0.2},"
                   " {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(f, "augment={\"crop\": 2, \"flip\": true}");
}

/* Products of many weights, which soon overflow. */
static void use_deep(fixture *f)
{
    fixture_set(f, "model={\"layers\": [{\"type\": \"avg_pool\", \"kernel\": 4},"
                   " {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 12},"
                   " {\"type\": \"dense\", \"out\": 12},"
                   " {\"type\": \"dense\", \"out\": 10}]}");
}

/* All of an arena; what a double calls the device's memory can be read. */
static float *copy_of(const float *arena, size_t floats)
{
    float *copy = malloc(floats * sizeof *copy);
    memcpy(copy, arena, floats * sizeof *copy);
    return copy;
}

/* What a run came to. */
typedef struct story {
    int status, skipped, steps;
    long launches, waits;
    char text[512];
    double loss[STEPS];
    float *arena[3]; /* weights and running statistics, the optimizer's state */
    size_t floats, tail;
} story;

/* The biases stay. */
static void make_bright_rows_fatal(ls_replica *r)
{
    int count;
    const size_t weights = ls_replica_segments(r, &count)[1];
    for (size_t i = 0; i < weights; i++)
        ls_replica_weight_arena(r)[i] = 3e38f;
}

static void tell(story *s, fixture *f)
{
    memset(s, 0, sizeof *s);
    ls_trainer *t = fixture_open(f);
    ls_replica *r = t->worker[0].replica;
    if (f->options.source_count > 0)
        make_bright_rows_fatal(r);
    s->launches = dbl_calls("cudaGraphLaunch");
    s->waits = dbl_calls("cudaStreamSynchronize");
    s->status = ls_trainer_run(t, &f->err);
    s->launches = dbl_calls("cudaGraphLaunch") - s->launches;
    s->waits = dbl_calls("cudaStreamSynchronize") - s->waits;
    if (s->status)
        snprintf(s->text, sizeof s->text, "%s", f->err.text);
    s->skipped = fixture_count(f, "nonfinite");
    s->steps = fixture_count(f, "step");
    for (int i = 0; i < s->steps && i < STEPS; i++)
        s->loss[i] = record_number(fixture_record(f, "step", i), "loss");
    s->floats = ls_replica_floats(r);
    s->tail = ls_replica_tail_offset(r);
    assert_int_equal(ls_replica_sync(r, NULL), LS_OK);
    s->arena[0] = copy_of(ls_replica_weight_arena(r), s->floats);
    for (int i = 0; i < 2; i++)
        if (ls_replica_slot_arena(r, i))
            s->arena[1 + i] = copy_of(ls_replica_slot_arena(r, i), s->floats);
    ls_trainer_close(t);
}

static void forget(story *s)
{
    for (int i = 0; i < 3; i++)
        free(s->arena[i]);
}

static void expect_the_same(const story *a, const story *b)
{
    assert_int_equal(a->status, b->status);
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->skipped, b->skipped);
    for (int i = 0; i < a->steps; i++)
        assert_true(a->loss[i] == b->loss[i] || (isnan(a->loss[i]) && isnan(b->loss[i])));
    for (int i = 0; i < 3; i++)
        if (a->arena[i])
            assert_memory_equal(a->arena[i], b->arena[i], a->floats * sizeof(float));
}

static void two_stories(story *whole, story *parts, void (*net)(fixture *f),
                        const char *const *sets)
{
    for (int p = 0; p < 2; p++) {
        fixture f;
        begin(&f, p);
        if (net)
            net(&f);
        for (int i = 0; sets && sets[i]; i++)
            fixture_set(&f, sets[i]);
        tell(p ? parts : whole, &f);
        fixture_end(&f);
    }
}

static void whole_steps_give_the_bits_of_steps_in_parts(void **state)
{
    (void)state;
    for (int residual = 0; residual < 2; residual++) {
        story whole, parts;
        two_stories(&whole, &parts, residual ? use_residual : NULL, NULL);
        assert_int_equal(whole.status, LS_OK);
        assert_int_equal(whole.steps, STEPS);
        /* One launch a step; in parts the update of two ops is another. */
        assert_int_equal(whole.launches, STEPS);
        assert_int_equal(parts.launches, residual ? 2 * STEPS : STEPS);
        /* And no wait for all that was enqueued. */
        assert_true(parts.waits - whole.waits >= STEPS);
        expect_the_same(&whole, &parts);
        forget(&whole);
        forget(&parts);
    }
}

/* The first step that is not finite ends the run: it changes nothing, nor does the one behind it that
 * was on its way. */
static void a_loss_that_is_not_finite_stops_and_changes_nothing(void **state)
{
    static const char *const optimizers[] = {
        "optimizer={\"name\": \"sgd\", \"lr\": 1000000, \"momentum\": 0.9}",
        "optimizer={\"name\": \"adamw\", \"lr\": 1000000}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *const sets[] = {optimizers[i], NULL};
        story whole, parts;
        two_stories(&whole, &parts, use_deep, sets);
        print_message("             %s\n", whole.text);
        assert_int_equal(whole.status, LS_ENONFINITE);
        assert_non_null(strstr(whole.text, "the loss of shard 0, on worker 0, is not finite"));
        expect_the_same(&whole, &parts);
        for (size_t k = 0; k < whole.tail; k++)
            assert_true(isfinite(whole.arena[0][k]));
        forget(&whole);
        forget(&parts);
    }
}

/* With a rate that is too high some minibatches have a loss and others have not. */
static void skipped_steps_are_those_of_steps_in_parts(void **state)
{
    static const char *const rates[] = {"optimizer.lr=1", "optimizer.lr=1e3", "optimizer.lr=1e4",
                                        "optimizer.lr=1e5", "optimizer.lr=1e6"};
    int mixed = 0, skipped = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const char *const sets[] = {rates[i], "on_nonfinite=skip", "eval_every=0", NULL};
        story whole, parts;
        two_stories(&whole, &parts, use_deep, sets);
        expect_the_same(&whole, &parts);
        print_message("             %s: %d steps, %d skipped\n", rates[i], whole.steps,
                      whole.skipped);
        skipped += whole.skipped;
        mixed += whole.skipped > 0 && whole.skipped < STEPS - 2;
        forget(&whole);
        forget(&parts);
    }
    print_message("             %d steps skipped, %d runs went on behind one\n", skipped, mixed);
    assert_true(skipped > 0);
}

enum { SIDE = 4, SOURCE_ROWS = 26 };

/* Dark images, but for two bright ones: whose loss is no number where weights are huge. */
static int read_dark(void *user, int test, const uint32_t *rows, uint32_t count, uint8_t *images,
                     uint8_t *labels, ls_error *err)
{
    (void)user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        memset(images + (size_t)i * SIDE * SIDE, rows[i] % 13 == 5 ? 200 : 0, SIDE * SIDE);
        labels[i] = (uint8_t)(rows[i] % 7);
    }
    return LS_OK;
}

static void use_bright_rows(fixture *f, int streamed)
{
    static ls_data_source source;
    static const ls_data_source *sources[1];
    source = (ls_data_source){.size = sizeof source,
                              .name = "dark",
                              .channels = 1,
                              .height = SIDE,
                              .width = SIDE,
                              .classes = 10,
                              .train_rows = SOURCE_ROWS,
                              .streamed = streamed,
                              .read = read_dark};
    fixture_use_source(f, &source, sources);
    fixture_set(f, "model={\"layers\": [{\"type\": \"flatten\"},"
                   " {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(f, "on_nonfinite=skip");
    fixture_set(f, "eval_every=0");
}

static void resident_bright_rows(fixture *f)
{
    use_bright_rows(f, 0);
}

static void streamed_bright_rows(fixture *f)
{
    use_bright_rows(f, 1);
}

/* Steps that were on their way behind one that is left out are applied all the same, once. */
static void a_step_behind_a_skipped_one_is_applied_once(void **state)
{
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++) {
        story whole, parts;
        int behind = 0;
        two_stories(&whole, &parts, streamed ? streamed_bright_rows : resident_bright_rows, NULL);
        assert_int_equal(whole.status, LS_OK);
        for (int i = 0; i + 1 < STEPS; i++)
            behind += i != STEPS / 2 - 1 && isnan(whole.loss[i]) && !isnan(whole.loss[i + 1]);
        print_message("             %d of %d skipped, %d went on\n", whole.skipped, whole.steps,
                      behind);
        assert_true(behind > 0);
        expect_the_same(&whole, &parts);
        forget(&whole);
        forget(&parts);
    }
}

/* Several shards, or a merge with others, take a step in parts. */
static void only_a_single_shard_is_taken_whole(void **state)
{
    fixture f;
    story s;
    (void)state;
    begin(&f, 0);
    use_deep(&f);
    fixture_set(&f, "shards=2");
    tell(&s, &f);
    assert_int_equal(s.status, LS_OK);
    assert_int_equal(s.launches, 2 * STEPS);
    forget(&s);
    fixture_end(&f);
}

struct runner {
    ls_trainer *trainer;
    ls_error err;
    int status;
};

static void *run_it(void *arg)
{
    struct runner *r = arg;
    r->status = ls_trainer_run(r->trainer, &r->err);
    return NULL;
}

static void wait_for_launches(long count)
{
    const struct timespec nap = {0, 1000000};
    for (int i = 0; i < 20000 && dbl_calls("cudaGraphLaunch") < count; i++)
        nanosleep(&nap, NULL);
}

/* While the device does nothing, two steps are enqueued, and no third. */
static void the_next_step_is_enqueued_before_the_result_is_known(void **state)
{
    const struct timespec while_later = {0, 50000000};
    struct runner r = {0};
    pthread_t thread;
    fixture f;
    (void)state;
    begin(&f, 0);
    use_deep(&f);
    r.trainer = fixture_open(&f);
    const long before = dbl_calls("cudaGraphLaunch");
    dbl_stall_streams(0);
    assert_int_equal(pthread_create(&thread, NULL, run_it, &r), 0);
    wait_for_launches(before + LS_IN_FLIGHT);
    nanosleep(&while_later, NULL);
    assert_int_equal(dbl_calls("cudaGraphLaunch") - before, LS_IN_FLIGHT);
    dbl_go_on();
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (r.status != LS_OK)
        fail_msg("%s", r.err.text);
    assert_int_equal(dbl_calls("cudaGraphLaunch") - before, STEPS);
    assert_int_equal(fixture_count(&f, "step"), STEPS);
    ls_trainer_close(r.trainer);
    fixture_end(&f);
}

/* ---- merging while backward goes on --------------------------------------------------------- */

/* Two workers with a GPU and a shard each, and a model of two pieces. */
static void tell_of_two_workers(story *s, const char *allreduce, const char *const *inject)
{
    fixture f;
    begin(&f, 0);
    fixture_set(&f, "devices=doubled:0,1");
    fixture_set(&f, "shards=2");
    fixture_set(&f, "epochs=1");
    fixture_set(&f, "data.limit=9"); /* the last step's second shard is empty */
    fixture_set(&f, "model={\"layers\": [{\"type\": \"flatten\"},"
                    " {\"type\": \"dense\", \"out\": 1400}, {\"type\": \"relu\"},"
                    " {\"type\": \"dense\", \"out\": 800}, {\"type\": \"relu\"},"
                    " {\"type\": \"dense\", \"out\": 10}]}");
    fixture_set(&f, allreduce);
    f.options.inject = inject;
    f.options.inject_count = inject ? 1 : 0;
    tell(s, &f);
    if (s->status)
        fail_msg("%s", s->text);
    fixture_end(&f);
}

/* With NCCL the merge begins behind the first piece; the sum of two has one order. A worker that fails
 * when a part of its gradient is on its way leaves the step to the other, which takes both shards. */
static void gradients_merged_while_backward_goes_on_give_the_same_bits(void **state)
{
    static const char *const fault[] = {"worker=1,step=1,kind=fail,stage=merge"};
    story late, early, alone;
    (void)state;
    tell_of_two_workers(&late, "allreduce=ordered", NULL);
    tell_of_two_workers(&early, "allreduce=nccl", NULL);
    tell_of_two_workers(&alone, "allreduce=nccl", fault);
    assert_true(early.launches > late.launches); /* a launch for each piece */
    expect_the_same(&late, &early);
    expect_the_same(&late, &alone);
    forget(&late);
    forget(&early);
    forget(&alone);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Nothing is wrong or left over, and no rule either. */
static void another_world(void)
{
    assert_string_equal(dbl_end(), "");
    dbl_begin(&(dbl_options){
        .mode = DOUBLES_MODE, .seed = 7, .devices = 2, .patience_ns = 60 * (uint64_t)1000000000});
}

/* Each call that a step makes fails in turn: the run ends with an error or goes on, in time, and
 * leaves nothing behind; when it goes on, with the bits of one that was not disturbed. */
static void a_call_that_fails_in_a_whole_step_ends_in_order(void **state)
{
    static const char *const calls[] = {"cudaGraphLaunch", "cudaEventQuery",
                                        "cudaEventRecord", "cudaMemcpyAsync",
                                        "launch",          "cudaStreamSynchronize"};
    story calm;
    fixture f;
    (void)state;
    begin(&f, 0);
    use_deep(&f);
    tell(&calm, &f);
    fixture_end(&f);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        another_world();
        for (int nth = 1; nth <= 12; nth += nth < 6 ? 1 : 3) {
            begin(&f, 0);
            use_deep(&f);
            ls_trainer *t = fixture_open(&f);
            dbl_fail(calls[c], nth, nth % 2 ? cudaErrorMemoryAllocation : cudaErrorLaunchFailure);
            int status = ls_trainer_run(t, &f.err);
            assert_true(status == LS_OK || f.err.text[0]);
            if (status == LS_OK)
                assert_memory_equal(ls_replica_weight_arena(t->worker[0].replica), calm.arena[0],
                                    calm.floats * sizeof(float));
            ls_trainer_close(t);
            fixture_end(&f);
        }
    }
    another_world();
    forget(&calm);
}

/* A call that fails while the run is opened: then that fails, or steps are taken otherwise. */
static void a_call_that_fails_in_preparation_leaves_nothing_behind(void **state)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphInstantiate", "cudaHostAlloc"};
    story calm;
    fixture f;
    (void)state;
    begin(&f, 0);
    use_deep(&f);
    tell(&calm, &f);
    fixture_end(&f);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        another_world();
        for (int nth = 1; nth <= 8; nth++) {
            ls_trainer *t;
            begin(&f, 0);
            use_deep(&f);
            dbl_fail(calls[c], nth, 0);
            int status = ls_trainer_open(&t, &f.options, &f.err);
            assert_true(status == LS_OK || f.err.text[0]);
            if (status == LS_OK) {
                if (ls_trainer_run(t, &f.err) != LS_OK)
                    fail_msg("%s: %s", calls[c], f.err.text);
                assert_memory_equal(ls_replica_weight_arena(t->worker[0].replica), calm.arena[0],
                                    calm.floats * sizeof(float));
                ls_trainer_close(t);
            }
            fixture_end(&f);
        }
    }
    another_world();
    forget(&calm);
}

/* What cannot be recorded whole is taken in parts. */
static void a_device_that_records_no_whole_step_takes_parts(void **state)
{
    fixture f;
    story calm, s;
    (void)state;
    begin(&f, 0);
    use_deep(&f);
    tell(&calm, &f);
    fixture_end(&f);
    begin(&f, 0);
    use_deep(&f);
    dbl_fail("cudaGraphInstantiate", 3, cudaErrorNotSupported); /* behind the two plans' */
    tell(&s, &f);
    assert_int_equal(s.status, LS_OK);
    expect_the_same(&s, &calm);
    forget(&s);
    forget(&calm);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_steps_give_the_bits_of_steps_in_parts),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_and_changes_nothing),
        cmocka_unit_test(skipped_steps_are_those_of_steps_in_parts),
        cmocka_unit_test(a_step_behind_a_skipped_one_is_applied_once),
        cmocka_unit_test(only_a_single_shard_is_taken_whole),
        cmocka_unit_test(the_next_step_is_enqueued_before_the_result_is_known),
        cmocka_unit_test(gradients_merged_while_backward_goes_on_give_the_same_bits),
        cmocka_unit_test(a_call_that_fails_in_a_whole_step_ends_in_order),
        cmocka_unit_test(a_call_that_fails_in_preparation_leaves_nothing_behind),
        cmocka_unit_test(a_device_that_records_no_whole_step_takes_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
