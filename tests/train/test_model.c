/* SPDX-License-Identifier: MIT */
/* Tests snapshots of a trainer's weights: their predictions, their use by several threads, and
 * their lifetime. */
#include "device/registry.h"
#include "ref/ref.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 32
#define READERS 3

typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
} scenario;

static void begin(scenario *s, int streamed, const char *devices)
{
    fixture_begin(&s->f);
    s->data = own_data(streamed);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "epochs=4");
    fixture_set(&s->f, devices);
    fixture_set(&s->f,
                "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                "{\"type\":\"dropout\",\"p\":0.5},{\"type\":\"dense\",\"out\":10}]}");
}

static void test_images(uint8_t *images, int32_t *labels, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        own_row(1, i, images + (size_t)i * OWN_PIXELS, &labels[i]);
}

static int best(const float *scores)
{
    int k = 0;
    for (int i = 1; i < OWN_CLASSES; i++)
        k = scores[i] > scores[k] ? i : k;
    return k;
}

/* Computes the mean cross-entropy and the share of correct rows from the scores. */
static void judge(const float *scores, const int32_t *labels, uint32_t n, double *loss,
                  double *accuracy)
{
    *loss = *accuracy = 0;
    for (uint32_t i = 0; i < n; i++, scores += OWN_CLASSES) {
        double sum = 0;
        for (int k = 0; k < OWN_CLASSES; k++)
            sum += exp((double)scores[k]);
        *loss += (log(sum) - (double)scores[labels[i]]) / n;
        *accuracy += (best(scores) == labels[i]) / (double)n;
    }
}

static void predictions_are_those_of_the_evaluation(const char *devices)
{
    scenario s;
    uint8_t images[OWN_TEST * OWN_PIXELS];
    int32_t labels[OWN_TEST];
    float scores[OWN_TEST * OWN_CLASSES], one[OWN_CLASSES];
    double loss, accuracy;
    begin(&s, 0, devices);
    ls_trainer *t = fixture_run(&s.f);
    test_images(images, labels, OWN_TEST);
    if (own_predict(t, images, LS_ROW_U8, OWN_TEST, scores, ROOM(scores), &s.f.err) != LS_OK)
        fail_msg("%s", s.f.err.text);
    judge(scores, labels, OWN_TEST, &loss, &accuracy);
    assert_true(fabs(loss - ls_trainer_result(t)->test_loss) < 1e-5 * (1 + loss));
    assert_true(fabs(accuracy - ls_trainer_result(t)->metric_value) < 1e-9);
    assert_true(accuracy > 0.5); /* the model has learnt, so the test is not trivial */
    for (uint32_t i = 0; i < OWN_TEST; i += 7) {
        assert_int_equal(
            own_predict(t, images + i * OWN_PIXELS, LS_ROW_U8, 1, one, ROOM(one), &s.f.err), LS_OK);
        for (int k = 0; k < OWN_CLASSES; k++)
            assert_true(fabsf(one[k] - scores[i * OWN_CLASSES + k]) < 1e-4f);
    }
    assert_int_equal(own_predict(t, NULL, LS_ROW_U8, 0, NULL, 0, &s.f.err), LS_OK);
    assert_int_equal(own_predict(t, NULL, LS_ROW_U8, 1, one, ROOM(one), &s.f.err), LS_EINVAL);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static void the_reference_back_end_predicts_what_it_evaluates(void **state)
{
    (void)state;
    predictions_are_those_of_the_evaluation("devices=ref:2");
}

static void the_cpu_predicts_what_it_evaluates(void **state)
{
    (void)state;
    if (!has_backend("cpu"))
        skip();
    predictions_are_those_of_the_evaluation("devices=cpu:2");
}

static void a_model_does_not_change_and_outlives_its_trainer(void **state)
{
    (void)state;
    scenario s;
    uint8_t image[OWN_PIXELS], rows[BATCH * OWN_PIXELS];
    int32_t label, labels[BATCH];
    float before[OWN_CLASSES], after[OWN_CLASSES], newer[OWN_CLASSES];
    ls_model *first, *second;
    ls_model_info info = {.size = sizeof info};
    begin(&s, 1, "devices=ref:2");
    ls_trainer *t = fixture_open(&s.f);
    test_images(image, &label, 1);
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, i, rows + (size_t)i * OWN_PIXELS, &labels[i]);
    assert_int_equal(ls_trainer_model(&first, t, &s.f.err), LS_OK);
    assert_int_equal(ls_model_predict(first, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, before,
                                      ROOM(before), &s.f.err),
                     LS_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(own_step(t, rows, labels, BATCH, NULL, &s.f.err), LS_OK);
    assert_int_equal(ls_trainer_model(&second, t, &s.f.err), LS_OK);
    ls_trainer_close(t, NULL);
    assert_int_equal(ls_model_predict(second, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, newer,
                                      ROOM(newer), &s.f.err),
                     LS_OK);
    assert_int_equal(ls_model_predict(first, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, after,
                                      ROOM(after), &s.f.err),
                     LS_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(before, newer, sizeof before);
    ls_model_describe(second, &info, NULL);
    assert_int_equal(info.steps, 3);
    assert_int_equal(info.outputs, OWN_CLASSES);
    assert_int_equal(info.height, 28);
    ls_model_release(first);
    ls_model_release(second);
    ls_model_release(NULL);
    fixture_end(&s.f);
}

static void any_number_of_images_gives_as_many_rows_of_scores(void **state)
{
    (void)state;
    enum { MOST = 150 };
    static const uint32_t counts[] = {1, 2, 15, 16, 17, 31, 33, 48, 49, 63, 64, 65, 81, 128, MOST};
    scenario s;
    ls_model *snapshot;
    uint8_t *images = malloc(MOST * OWN_PIXELS);
    int32_t labels[MOST];
    float *whole = malloc(MOST * OWN_CLASSES * sizeof *whole);
    float *scores = malloc((MOST + 1) * OWN_CLASSES * sizeof *scores);
    begin(&s, 1, "devices=ref:1");
    ls_trainer *t = fixture_open(&s.f);
    test_images(images, labels, MOST);
    assert_int_equal(ls_trainer_model(&snapshot, t, &s.f.err), LS_OK);
    assert_int_equal(ls_model_predict(snapshot, images, LS_ROW_U8, MOST, LS_OUTPUT_LOGITS, whole,
                                      MOST * OWN_CLASSES, &s.f.err),
                     LS_OK);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const uint32_t n = counts[c], end = n * OWN_CLASSES;
        scores[end] = 1234.0f;
        assert_int_equal(ls_model_predict(snapshot, images, LS_ROW_U8, n, LS_OUTPUT_LOGITS, scores,
                                          n * OWN_CLASSES, &s.f.err),
                         LS_OK);
        assert_true(scores[end] == 1234.0f); /* no value is written after the scores */
        assert_memory_equal(scores, whole, end * sizeof *scores);
    }
    ls_model_release(snapshot);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
    free(images);
    free(whole);
    free(scores);
}

/* ---- many threads ---- */

/* A place for the newest snapshot, as a prediction service has it: one thread publishes snapshots,
 * and other threads use the newest. */
typedef struct board {
    pthread_mutex_t lock;
    ls_model *current;
    atomic_int stop;
    atomic_uint predicted;
} board;

static ls_model *take(board *b)
{
    pthread_mutex_lock(&b->lock);
    ls_model *s = b->current ? ls_model_retain(b->current) : NULL;
    pthread_mutex_unlock(&b->lock);
    return s;
}

static void publish(board *b, ls_model *s)
{
    pthread_mutex_lock(&b->lock);
    ls_model *old = b->current;
    b->current = s;
    pthread_mutex_unlock(&b->lock);
    ls_model_release(old);
}

/* Predicts the same rows twice. Different results would mean that weights of another thread's
 * snapshot were used. */
static void *read_for_ever(void *arg)
{
    board *b = arg;
    uint8_t images[3 * OWN_PIXELS];
    int32_t labels[3];
    float once[3 * OWN_CLASSES], again[3 * OWN_CLASSES];
    ls_error err;
    test_images(images, labels, 3);
    while (!atomic_load(&b->stop)) {
        ls_model *s = take(b);
        if (!s)
            continue;
        if (ls_model_predict(s, images, LS_ROW_U8, 3, LS_OUTPUT_LOGITS, once, ROOM(once), &err) !=
                LS_OK ||
            ls_model_predict(s, images, LS_ROW_U8, 3, LS_OUTPUT_LOGITS, again, ROOM(again), &err) !=
                LS_OK ||
            memcmp(once, again, sizeof once) != 0)
            return b; /* the results differ */
        ls_model_release(s);
        atomic_fetch_add(&b->predicted, 1);
    }
    return NULL;
}

static void on_model(void *user, ls_model *snapshot)
{
    publish(user, ls_model_retain(snapshot));
}

static void threads_predict_while_a_run_trains(void **state)
{
    (void)state;
    scenario s;
    board b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t reader[READERS];
    char undisturbed[65];
    begin(&s, 0, "devices=ref:2");
    fixture_set(&s.f, SLOW_BUILD ? "epochs=5" : "epochs=30");
    memcpy(undisturbed, fixture_hash(&s.f), 65);
    s.f.callbacks.record = NULL;
    s.f.callbacks.model = on_model;
    s.f.callbacks.model_every_steps = 2;
    s.f.callbacks.user = &b;
    ls_trainer *t = fixture_open(&s.f);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&reader[i], NULL, read_for_ever, &b), 0);
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    assert_string_equal(ls_trainer_result(t)->weights_sha256, undisturbed);
    ls_model_info info = {.size = sizeof info};
    ls_model_describe(b.current, &info, NULL);
    assert_true(info.steps % 2 == 0 && info.steps > 0);
    while (atomic_load(&b.predicted) < READERS)
        continue;
    ls_trainer_close(t, NULL);
    atomic_store(&b.stop, 1);
    for (int i = 0; i < READERS; i++) {
        void *verdict;
        assert_int_equal(pthread_join(reader[i], &verdict), 0);
        assert_null(verdict);
    }
    publish(&b, NULL);
    fixture_end(&s.f);
}

/* ---- a back end that keeps something per thread ---------------------------------------------- */

/* The functions of the reference back end's devices. The functions below wrap them, and count calls
 * by a thread other than the one to which the device is bound. */
static const ls_device_ops *ref_ops;
static atomic_int strangers, bound;
static _Thread_local const ls_device *mine[4];

static void check_thread(const ls_device *device)
{
    size_t k = 0;
    while (k < sizeof mine / sizeof *mine && mine[k] != device)
        k++;
    atomic_fetch_add(&strangers, k == sizeof mine / sizeof *mine);
}

/* `holds`: the device whose next download waits until the test changes `holds`: none, the
 * trainer's, or a predictor's. `held`: 1: a download has begun to wait. */
enum { NOBODY, TRAINER, PREDICTOR };
static const ls_device *trainers;
static atomic_int holds, held;

static void wait_if_held(const ls_device *device)
{
    const int who = device == trainers ? TRAINER : PREDICTOR;
    if (atomic_load(&holds) == who)
        atomic_store(&held, 1);
    while (atomic_load(&holds) == who)
        sched_yield();
}

static void describe_strict(const ls_device *device, ls_device_info *out)
{
    ref_ops->describe(device, out);
    snprintf(out->name, sizeof out->name, "strict(0)");
}

static int bind_here(ls_device *device, ls_error *err)
{
    mine[atomic_fetch_add(&bound, 1) % 4] = device;
    return ref_ops->bind(device, err);
}

static void close_here(ls_device *device)
{
    if (device)
        check_thread(device);
    ref_ops->close(device);
}

static int alloc_here(void **out, ls_device *device, size_t bytes, ls_error *err)
{
    check_thread(device);
    return ref_ops->alloc(out, device, bytes, err);
}

static void free_here(ls_device *device, void *memory)
{
    check_thread(device);
    ref_ops->free(device, memory);
}

static int upload_here(ls_device *device, ls_stream *stream, void *dst, const void *src,
                       size_t bytes, ls_error *err)
{
    check_thread(device);
    return ref_ops->upload(device, stream, dst, src, bytes, err);
}

static int download_here(ls_device *device, ls_stream *stream, void *dst, const void *src,
                         size_t bytes, ls_error *err)
{
    check_thread(device);
    wait_if_held(device);
    return ref_ops->download(device, stream, dst, src, bytes, err);
}

static int sync_here(ls_device *device, ls_stream *stream, ls_error *err)
{
    check_thread(device);
    return ref_ops->sync(device, stream, err);
}

static int create_here(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err)
{
    check_thread(device);
    return ref_ops->op_create(out, device, desc, err);
}

static int open_strict(ls_device **out, const ls_device_request *request, ls_error *err)
{
    static ls_device_ops ops;
    int status = ls_ref_backend()->open(out, request, err);
    if (status)
        return status;
    if (!ref_ops) { /* the first device belongs to the trainer's only worker */
        ref_ops = (*out)->ops;
        ops = *ref_ops;
        /* predictors use devices of the kind that `describe` reports */
        ops.describe = describe_strict;
        ops.bind = bind_here;
        ops.close = close_here;
        ops.alloc = alloc_here;
        ops.free = free_here;
        ops.upload = upload_here;
        ops.download = download_here;
        ops.sync = sync_here;
        ops.op_create = create_here;
    }
    (*out)->ops = &ops;
    trainers = trainers ? trainers : *out; /* the trainer opens the first device */
    return LS_OK;
}

static void probe_strict(ls_backend_info *out)
{
    ls_ref_backend()->probe(out);
}

static const ls_backend strict = {.abi = LS_PLUGIN_ABI,
                                  .size = sizeof strict,
                                  .name = "strict",
                                  .counted = 1,
                                  .probe = probe_strict,
                                  .open = open_strict};

typedef struct caller {
    ls_model *snapshot;
    const uint8_t *image;
    float *scores;
} caller;

static void *predict_and_leave(void *arg)
{
    caller *c = arg;
    ls_error err;
    return ls_model_predict(c->snapshot, c->image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, c->scores,
                            OWN_CLASSES, &err)
               ? c
               : NULL;
}

static ls_trainer *begin_strict(scenario *s, ls_model **snapshot, uint8_t image[OWN_PIXELS])
{
    int32_t label;
    trainers = NULL;
    begin(s, 0, "devices=strict:1");
    assert_int_equal(ls_registry_add(s->f.registry, &strict, &s->f.err), LS_OK);
    test_images(image, &label, 1);
    ls_trainer *t = fixture_open(&s->f);
    assert_int_equal(ls_trainer_model(snapshot, t, &s->f.err), LS_OK);
    return t;
}

static void await_hold(void)
{
    while (!atomic_load(&held))
        sched_yield();
    atomic_store(&held, 0);
}

/* Runs all steps of a training. */
static void a_prediction_that_does_not_end_holds_up_no_step(void **state)
{
    (void)state;
    scenario s;
    uint8_t image[OWN_PIXELS];
    float scores[OWN_CLASSES];
    ls_model *snapshot;
    pthread_t thread;
    void *failed;
    ls_trainer *t = begin_strict(&s, &snapshot, image);
    caller c = {snapshot, image, scores};
    atomic_store(&holds, PREDICTOR);
    assert_int_equal(pthread_create(&thread, NULL, predict_and_leave, &c), 0);
    await_hold();
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    assert_int_equal(atomic_load(&holds), PREDICTOR);
    atomic_store(&holds, NOBODY);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    ls_model_release(snapshot);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static void *predict_beside_a_held_step(void *arg)
{
    void *failed = NULL;
    await_hold();
    for (int i = 0; i < 3 && !failed; i++)
        failed = predict_and_leave(arg);
    atomic_store(&holds, NOBODY);
    return failed;
}

static void a_step_that_does_not_end_holds_up_no_prediction(void **state)
{
    (void)state;
    scenario s;
    uint8_t image[OWN_PIXELS];
    float scores[OWN_CLASSES];
    ls_model *snapshot;
    pthread_t thread;
    void *failed;
    ls_trainer *t = begin_strict(&s, &snapshot, image);
    caller c = {snapshot, image, scores};
    atomic_store(&holds, TRAINER);
    assert_int_equal(pthread_create(&thread, NULL, predict_beside_a_held_step, &c), 0);
    assert_int_equal(ls_trainer_run(t, &s.f.err), LS_OK);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    ls_model_release(snapshot);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

/* Two threads predict, one after the other: the first opens the predictor, and the second borrows
 * it later. Then this thread releases the last reference. */
static void a_device_that_predicts_is_used_by_the_thread_that_bound_it(void **state)
{
    scenario s;
    uint8_t image[OWN_PIXELS];
    float scores[2][OWN_CLASSES];
    ls_model *snapshot;
    (void)state;
    ls_trainer *t = begin_strict(&s, &snapshot, image);
    const int trained = atomic_load(&bound);
    ls_trainer_close(t, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        void *failed;
        caller c = {snapshot, image, scores[i]};
        assert_int_equal(pthread_create(&thread, NULL, predict_and_leave, &c), 0);
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
    }
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    ls_model_release(snapshot);
    assert_true(atomic_load(&bound) > trained);
    assert_int_equal(atomic_load(&strangers), 0);
    fixture_end(&s.f);
}

LS_TESTS(train_model, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_back_end_predicts_what_it_evaluates),
        cmocka_unit_test(the_cpu_predicts_what_it_evaluates),
        cmocka_unit_test(a_model_does_not_change_and_outlives_its_trainer),
        cmocka_unit_test(any_number_of_images_gives_as_many_rows_of_scores),
        cmocka_unit_test(a_device_that_predicts_is_used_by_the_thread_that_bound_it),
        cmocka_unit_test(a_prediction_that_does_not_end_holds_up_no_step),
        cmocka_unit_test(a_step_that_does_not_end_holds_up_no_prediction),
        cmocka_unit_test(threads_predict_while_a_run_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
