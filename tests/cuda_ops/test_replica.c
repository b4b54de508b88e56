/* SPDX-License-Identifier: MIT */
/* Compares a whole replica (a model on a device) on the CUDA back end, over the simulated CUDA
 * runtime, with a replica on the plain-C reference back end. Training steps, with a smaller last
 * minibatch, and evaluation must give the same weights and losses. */
#include "cuda_ops/cuda_backend.h"
#include "nn/nn_fixture.h"
#include "nn/replica_impl.h"
#include "runner.h"
#ifndef PLUGIN
#include "doubles/control.h"

#include <cuda_runtime_api.h>
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, STEPS = 4 };

static const char residual_json[] =
    "[{\"type\": \"conv2d\", \"name\": \"c1\", \"out\": 6, \"kernel\": 3, \"padding\": 1, "
    "\"bias\": false}, {\"type\": \"batch_norm\", \"name\": \"n1\"},"
    "{\"type\": \"relu\", \"name\": \"r1\"},"
    "{\"type\": \"conv2d\", \"name\": \"c2\", \"out\": 6, \"kernel\": 3, \"padding\": 1, "
    "\"bias\": false}, {\"type\": \"batch_norm\", \"name\": \"n2\"},"
    "{\"type\": \"add\", \"name\": \"a\", \"with\": \"r1\"}, {\"type\": \"relu\"},"
    "{\"type\": \"max_pool\", \"kernel\": 3, \"stride\": 2, \"padding\": 1},"
    "{\"type\": \"dropout\", \"p\": 0.25}, {\"type\": \"global_avg_pool\"},"
    "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"name\": \"fc\", \"out\": 5}]";

/* A replica, and the results of a few steps on it. */
typedef struct side {
    ls_device *device;
    ls_replica *replica;
    double loss, correct;
    float *weights;
} side;

static const uint32_t counts[2] = {16, 7};
static const uint32_t *made_for = counts; /* row counts of the replicas that are created next */
static size_t bucket_floats;              /* floats in a bucket of these replicas */
/* number of entries of `made_for` on which these replicas train; 0: all */
static int trained_counts;

static void open_side(side *s, ls_device *device, const ls_network *model,
                      const ls_optimizer *optimizer, const ls_replica_data data, int crop,
                      int no_recording)
{
    ls_error err = {0};
    ls_gather pixels = plain_pixels;
    pixels.crop = crop;
    pixels.flip = crop > 0;
    ls_replica_desc desc = {
        .device = device,
        .model = model,
        .optimizer = optimizer,
        .normalisation = pixels,
        .data = {data, data},
        .shard_rows = made_for,
        .shard_row_counts = 2,
        .trained_row_counts = trained_counts,
        .seed = 11,
        .no_recording = no_recording,
        .bucket_floats = bucket_floats,
    };
    s->device = device;
    must(ls_replica_create(&s->replica, &desc, &err), &err);
    s->weights = calloc(model->floats, sizeof *s->weights);
    fill_weights(s->weights, model, 0.2f, 5);
    must(ls_replica_import(s->replica, ls_replica_weight_arena(s->replica), s->weights, &err),
         &err);
}

/* Makes a step of one shard. The total gradient of the step is the gradient of this shard. */
static void step_side(side *s, int number, uint32_t rows)
{
    ls_error err = {0};
    uint32_t row[16];
    ls_replica_step step = {0.05f, 1.0f / (float)rows, rows, (uint64_t)number};
    for (uint32_t i = 0; i < rows; i++)
        row[i] = ((uint32_t)number * 16 + i * 3) % ROWS;
    must(ls_replica_gradient(s->replica, row, rows, (uint32_t)number, NULL, &err), &err);
    must(s->device->ops->copy(s->device, NULL, ls_replica_total_arena(s->replica),
                              ls_replica_gradient_arena(s->replica),
                              ls_replica_floats(s->replica) * sizeof(float), &err),
         &err);
    must(ls_replica_apply(s->replica, &step, NULL, &err), &err);
}

static void run_side(side *s)
{
    ls_error err = {0};
    uint32_t row[16];
    for (int k = 1; k <= STEPS; k++)
        step_side(s, k, counts[k == STEPS]);
    for (uint32_t i = 0; i < 16; i++)
        row[i] = i;
    must(ls_replica_evaluate(s->replica, LS_TEST, row, 16, &s->loss, &s->correct, NULL, &err),
         &err);
    must(ls_replica_export(s->replica, s->weights, ls_replica_weight_arena(s->replica), &err),
         &err);
}

static void close_side(side *s)
{
    ls_replica_destroy(s->replica);
    s->device->ops->close(s->device);
    free(s->weights);
}

static ls_device *open_cuda(void)
{
    return test_cuda_open(LS_PRECISION_FP32);
}

/* The parameters that two sides share. */
typedef struct recipe {
    ls_network *model;
    ls_replica_data data;
    ls_json *doc;
    ls_optimizer optimizer;
    int crop;
} recipe;

static void open_recipe(recipe *r, const char *json, ls_shape input, int classes,
                        const char *optimizer, int crop)
{
    ls_error err = {0};
    *r = (recipe){.model = make_model(json, input, classes),
                  .data = make_data(ROWS, input, classes, 3),
                  .crop = crop};
    must(ls_json_parse(&r->doc, "optimizer", optimizer, strlen(optimizer), NULL, &err), &err);
    must(ls_optimizer_parse(&r->optimizer, r->doc, ls_json_root(r->doc), &err), &err);
}

static void close_recipe(recipe *r)
{
    ls_json_destroy(r->doc);
    free_data(&r->data);
    free_model(r->model);
}

static void open_with(side *s, ls_device *device, const recipe *r, int no_recording)
{
    open_side(s, device, r->model, &r->optimizer, r->data, r->crop, no_recording);
}

/* Returns ‖Δ‖/‖reference‖, where Δ is the difference between the weights of `a` and of
 * `reference`. */
static double distance(const ls_network *model, const side *a, const side *reference)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < model->floats; i++) {
        double d = (double)a->weights[i] - (double)reference->weights[i];
        error += d * d;
        norm += (double)reference->weights[i] * (double)reference->weights[i];
    }
    return sqrt(error / norm);
}

static void expect_near(const ls_network *model, const side *cuda_side, const side *ref_side)
{
    const side cuda = *cuda_side, ref = *ref_side;
    double error = distance(model, cuda_side, ref_side);
    if (!(error < 2e-6))
        fail_msg("the weights differ by %g", error);
    if (!(fabs(cuda.loss - ref.loss) < 1e-5 * (ref.loss + 1)))
        fail_msg("loss %.9g, not %.9g", cuda.loss, ref.loss);
    assert_true(cuda.correct == ref.correct);
}

static void expect_alike(const recipe *r)
{
    side cuda, ref;
    open_with(&cuda, open_cuda(), r, 0);
    open_with(&ref, open_ref64(NULL), r, 0);
    run_side(&cuda);
    run_side(&ref);
    expect_near(r->model, &cuda, &ref);
    close_side(&cuda);
    close_side(&ref);
}

/* Checks that after training in bf16 the weights are near those of training in fp32, but not the
 * same. */
static void expect_near_in_bf16(const recipe *r)
{
    side half, ref;
    open_with(&half, test_cuda_open(LS_PRECISION_BF16), r, 0);
    open_with(&ref, open_ref64(NULL), r, 0);
    run_side(&half);
    run_side(&ref);
    double error = distance(r->model, &half, &ref);
    print_message("             the weights differ by %.2g, the loss by %.2g\n", error,
                  fabs(half.loss / ref.loss - 1));
    assert_true(error > 1e-6 && error < 2e-2);
    assert_true(fabs(half.loss / ref.loss - 1) < 2e-2);
    close_side(&half);
    close_side(&ref);
}

static void expect_same_bits(const recipe *r, ls_precision precision)
{
    side recorded, eager;
    open_with(&recorded, test_cuda_open(precision), r, 0);
    open_with(&eager, test_cuda_open(precision), r, 1);
    /* One recording for each of two plans, and one for the update if it has more than one op. */
    assert_int_equal(ls_replica_recordings(recorded.replica), 2 + (r->model->stats > 0));
    assert_int_equal(ls_replica_recordings(eager.replica), 0);
    run_side(&recorded);
    run_side(&eager);
    assert_memory_equal(recorded.weights, eager.weights, r->model->floats * sizeof(float));
    assert_true(recorded.loss == eager.loss && recorded.correct == eager.correct);
    close_side(&recorded);
    close_side(&eager);
}

static void open_lenet(recipe *r)
{
    open_recipe(r, lenet_json, (ls_shape){1, 28, 28}, 10,
                "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9, \"weight_decay\": 0.0005}",
                0);
}

static void open_residual(recipe *r)
{
    open_recipe(r, residual_json, (ls_shape){3, 9, 9}, 5, "{\"name\": \"adamw\", \"lr\": 0.05}", 2);
}

static void lenet_trains_as_on_the_reference(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_alike(&r);
    close_recipe(&r);
}

static void a_residual_network_trains_as_on_the_reference(void **state)
{
    recipe r;
    (void)state;
    open_residual(&r);
    expect_alike(&r);
    close_recipe(&r);
}

static void sgd_residual(recipe *r)
{
    open_recipe(r, residual_json, (ls_shape){3, 9, 9}, 5,
                "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9}", 2);
}

/* Returns ‖Δ‖/‖g‖ for the gradient of one shard of 16 rows, without running statistics. g is the
 * gradient computed in double, and Δ is the difference from g. */
static double gradient_error(const recipe *r, ls_precision precision)
{
    const size_t floats = r->model->floats;
    ls_device *const devices[2] = {test_cuda_open(precision), open_ref64(NULL)};
    float *gradient[2];
    ls_error err = {0};
    uint32_t row[16];
    for (uint32_t i = 0; i < 16; i++)
        row[i] = i * 3 % ROWS;
    for (int k = 0; k < 2; k++) {
        side s;
        open_with(&s, devices[k], r, 1);
        gradient[k] = calloc(floats, sizeof **gradient);
        must(ls_replica_gradient(s.replica, row, 16, 1, NULL, &err), &err);
        must(ls_replica_export(s.replica, gradient[k], ls_replica_gradient_arena(s.replica), &err),
             &err);
        for (int i = 0; i < r->model->stats; i++)
            memset(gradient[k] + r->model->stat[i]->offset, 0,
                   r->model->stat[i]->count * sizeof **gradient);
        close_side(&s);
    }
    double error = 0, norm = 0;
    for (size_t i = 0; i < floats; i++) {
        error += pow((double)gradient[0][i] - (double)gradient[1][i], 2);
        norm += pow((double)gradient[1][i], 2);
    }
    free(gradient[0]);
    free(gradient[1]);
    return sqrt(error / norm);
}

/* The error of each precision has the size that plugin.h gives for this ls_precision, and differs
 * from the errors of the other precisions. */
static void gradients_err_as_their_precision_says(void **state)
{
    static const struct {
        ls_precision precision;
        const char *name;
        double least, most;
    } rows[] = {{LS_PRECISION_FP32, "fp32", 0, 1e-5},
                {LS_PRECISION_TF32, "tf32", 2e-5, 3e-3},
                {LS_PRECISION_BF16, "bf16", 5e-3, 8e-2}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int residual = 0; residual < 2; residual++) {
            recipe r;
            residual ? open_residual(&r) : open_lenet(&r);
            double error = gradient_error(&r, rows[i].precision);
            print_message("             %s, %s: the gradient errs by %.1e\n", rows[i].name,
                          residual ? "residual" : "lenet", error);
            assert_true(error >= rows[i].least && error <= rows[i].most);
            close_recipe(&r);
        }
}

static void training_in_bf16_stays_near(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_near_in_bf16(&r);
    close_recipe(&r);
    sgd_residual(&r);
    expect_near_in_bf16(&r);
    close_recipe(&r);
}

static void recorded_steps_give_the_bits_of_steps_op_by_op(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_same_bits(&r, LS_PRECISION_FP32);
    close_recipe(&r);
    open_residual(&r);
    expect_same_bits(&r, LS_PRECISION_FP32);
    expect_same_bits(&r, LS_PRECISION_BF16);
    close_recipe(&r);
}

/* ---- a backward pass in pieces -------------------------------------------------------------- */

/* A listener that is called for each complete piece of the gradient, and copies the gradient. */
typedef struct listener {
    side *of;
    int tells;
    size_t floats;
    float *seen;
} listener;

/* Waits for the enqueued work. Then the first `floats` floats of the gradient must be complete. */
static int listen(void *user, size_t floats, ls_error *err)
{
    listener *l = user;
    const ls_device_ops *ops = l->of->device->ops;
    assert_true(floats > l->floats);
    int rc = ops->download(l->of->device, NULL, l->seen + l->floats,
                           ls_replica_gradient_arena(l->of->replica) + l->floats,
                           (floats - l->floats) * sizeof *l->seen, err);
    l->floats = floats;
    l->tells++;
    return rc == LS_OK ? ops->sync(l->of->device, NULL, err) : rc;
}

static float *gradient_arena(side *s, uint32_t n)
{
    uint32_t row[16];
    ls_error err = {0};
    const size_t floats = ls_replica_floats(s->replica);
    float *out = calloc(floats, sizeof *out);
    for (uint32_t i = 0; i < 16; i++)
        row[i] = i;
    must(ls_replica_gradient(s->replica, row, n, 0, NULL, &err), &err);
    must(s->device->ops->download(s->device, NULL, out, ls_replica_gradient_arena(s->replica),
                                  floats * sizeof *out, &err),
         &err);
    must(ls_replica_sync(s->replica, &err), &err);
    return out;
}

static void expect_pieces(const recipe *r, int no_recording)
{
    ls_error err = {0};
    side s;
    bucket_floats = 100;
    open_with(&s, open_cuda(), r, no_recording);
    bucket_floats = 0;
    const int before = ls_replica_recordings(s.replica);
    const size_t floats = ls_replica_floats(s.replica);
    listener l = {.of = &s};
    for (int i = 0; i < 2; i++) {
        float *whole = gradient_arena(&s, counts[i]);
        l.seen = calloc(floats, sizeof *l.seen);
        l.tells = 0;
        l.floats = 0;
        free(gradient_arena(&s, counts[1 - i])); /* the memory has other numbers before */
        must(ls_replica_on_ready(s.replica, listen, &l, &err), &err);
        float *pieces = gradient_arena(&s, counts[i]);
        assert_true(l.tells >= 1);
        assert_memory_equal(pieces, whole, floats * sizeof *whole);
        assert_memory_equal(l.seen, whole, l.floats * sizeof *whole);
        /* Both plans have a recording of each piece, the last one included. */
        assert_int_equal(ls_replica_recordings(s.replica),
                         no_recording ? 0 : before + 2 * (l.tells + 1));
        must(ls_replica_on_ready(s.replica, NULL, NULL, &err), &err);
        free(whole);
        free(pieces);
        free(l.seen);
    }
    close_side(&s);
}

static void gradients_in_pieces_have_the_bits_of_whole_ones(void **state)
{
    recipe r;
    (void)state;
    for (int no_recording = 0; no_recording < 2; no_recording++) {
        open_residual(&r);
        expect_pieces(&r, no_recording);
        close_recipe(&r);
        open_lenet(&r);
        expect_pieces(&r, no_recording);
        close_recipe(&r);
    }
}

/* ---- whole steps ---------------------------------------------------------------------------- */

static void enqueue_whole(side *s, int number, uint32_t rows, float lr)
{
    ls_error err = {0};
    uint32_t row[16];
    ls_replica_times times = {0};
    const ls_replica_step step = {lr, 1.0f / (float)rows, rows, (uint64_t)number};
    for (uint32_t i = 0; i < rows; i++)
        row[i] = ((uint32_t)number * 16 + i * 3) % ROWS;
    must(ls_replica_run_whole_steps(s->replica, row, (uint32_t)number, &step, 1,
                                    number % LS_RESULT_SLOTS, &times, &err),
         &err);
}

static const float *await_whole(side *s, int number)
{
    ls_error err = {0};
    for (bool arrived = false; !arrived;)
        must(ls_replica_arrived(&arrived, s->replica, number % LS_RESULT_SLOTS, &err), &err);
    return ls_replica_arrived_tail(s->replica, number % LS_RESULT_SLOTS, 0);
}

/* Runs the same steps as step_side, but enqueues each step before it reads the result of the
 * previous step. */
static void run_whole(side *s)
{
    ls_error err = {0};
    must(ls_replica_record_whole_steps(s->replica, &err), &err);
    assert_true(ls_replica_most_whole_steps(s->replica, counts[0]));
    assert_false(ls_replica_most_whole_steps(s->replica, counts[0] + 1));
    for (int k = 1; k <= STEPS + 1; k++) {
        if (k <= STEPS)
            enqueue_whole(s, k, counts[k == STEPS], 0.05f);
        if (k == 1)
            continue;
        const float *tail = await_whole(s, k - 1);
        assert_true(isfinite(tail[LS_TAIL_LOSS]) && tail[LS_TAIL_LOSS] > 0);
        assert_true(tail[LS_TAIL_ROWS] == (float)counts[k - 1 == STEPS]);
    }
    must(ls_replica_export(s->replica, s->weights, ls_replica_weight_arena(s->replica), &err),
         &err);
}

static void expect_whole_steps(const recipe *r, ls_precision precision)
{
    side whole, parts;
    open_with(&whole, test_cuda_open(precision), r, 0);
    open_with(&parts, test_cuda_open(precision), r, 0);
    run_whole(&whole);
    run_side(&parts);
    assert_memory_equal(whole.weights, parts.weights, r->model->floats * sizeof(float));
    close_side(&whole);
    close_side(&parts);
}

static void whole_steps_give_the_bits_of_steps_in_parts(void **state)
{
    recipe r;
    (void)state;
    open_lenet(&r);
    expect_whole_steps(&r, LS_PRECISION_FP32);
    close_recipe(&r);
    open_residual(&r);
    expect_whole_steps(&r, LS_PRECISION_FP32);
    expect_whole_steps(&r, LS_PRECISION_BF16);
    close_recipe(&r);
}

/* The gradient of a convolution's bias is not computed if only batch norm reads the output. The
 * memory of this gradient must then be 0 whenever an op reads it, in parts and in whole steps, so
 * that momentum does not change the bias. */
static void a_bias_before_batch_norm_stays_what_it_was(void **state)
{
    static const char json[] =
        "[{\"type\": \"conv2d\", \"name\": \"c\", \"out\": 6, \"kernel\": 3},"
        "{\"type\": \"batch_norm\", \"name\": \"n\"}, {\"type\": \"relu\"},"
        "{\"type\": \"global_avg_pool\"}, {\"type\": \"flatten\"},"
        "{\"type\": \"dense\", \"name\": \"fc\", \"out\": 5}]";
    static const ls_precision precisions[] = {LS_PRECISION_FP32, LS_PRECISION_BF16};
    (void)state;
    for (int p = 0; p < 2; p++) {
        recipe r;
        side s;
        open_recipe(&r, json, (ls_shape){2, 8, 8}, 5,
                    "{\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9}", 0);
        open_with(&s, test_cuda_open(precisions[p]), &r, 0);
        const ls_param *bias = &r.model->layer[0].param[1];
        float *before = calloc(bias->count, sizeof *before);
        memcpy(before, s.weights + bias->offset, bias->count * sizeof *before);
        run_side(&s);
        assert_memory_equal(s.weights + bias->offset, before, bias->count * sizeof *before);
        run_whole(&s);
        assert_memory_equal(s.weights + bias->offset, before, bias->count * sizeof *before);
        free(before);
        close_side(&s);
        close_recipe(&r);
    }
}

static void fetch(void *to, const side *s, const void *from, size_t bytes)
{
    ls_error err = {0};
    must(s->device->ops->download(s->device, NULL, to, from, bytes, &err), &err);
    must(s->device->ops->sync(s->device, NULL, &err), &err);
}

/* Checks that the shadows, the bf16 copies of the parameters, are up to date. */
static void expect_shadows(const side *s)
{
    const ls_replica *r = s->replica;
    float *weights = calloc(r->tail_at, sizeof *weights);
    uint16_t *shadow = calloc(r->tail_at, sizeof *shadow);
    fetch(weights, s, r->arena[WEIGHTS], r->tail_at * sizeof *weights);
    fetch(shadow, s, r->shadow, r->tail_at * sizeof *shadow);
    for (size_t i = 0; i < r->tail_at; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], sizeof bits);
        assert_int_equal(shadow[i], (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    free(weights);
    free(shadow);
}

/* Shadows must be up to date after an import of weights, and after an update in parts or in a whole
 * step. Gradients that stay in bf16 must equal the gradients rounded to bf16. In fp32 there are no
 * shadows. */
static void shadows_follow_their_weights(void **state)
{
    recipe r;
    side s;
    ls_error err = {0};
    (void)state;
    open_residual(&r);
    open_with(&s, test_cuda_open(LS_PRECISION_FP32), &r, 0);
    assert_null(s.replica->shadow);
    close_side(&s);
    open_with(&s, test_cuda_open(LS_PRECISION_BF16), &r, 0);
    expect_shadows(&s);
    run_side(&s);
    expect_shadows(&s);
    run_whole(&s);
    expect_shadows(&s);
    for (size_t i = 0; i < r.model->floats; i++)
        s.weights[i] = 0.3f * (float)(i % 7);
    must(ls_replica_import(s.replica, ls_replica_weight_arena(s.replica), s.weights, &err), &err);
    expect_shadows(&s);
    close_side(&s);
    close_recipe(&r);
}

/* For a number of rows that is only evaluated, the replica creates no backward pass, and cuDNN's
 * engines are not timed for one. Evaluation gives the same results as with a backward pass. */
static void rows_that_are_evaluated_only_have_no_backward_pass(void **state)
{
    const uint32_t row[7] = {3, 1, 4, 15, 9, 2, 6};
    double loss[2], correct[2];
    ls_error err = {0};
    recipe r;
    side s;
    (void)state;
    open_residual(&r);
    for (int k = 0; k < 2; k++) {
        trained_counts = k;
        open_with(&s, open_cuda(), &r, 0);
        trained_counts = 0;
        assert_true(s.replica->plan[0]->training);
        assert_true(s.replica->plan[1]->training == !k);
        assert_true((s.replica->plan[1]->loss[LS_TRAIN] == NULL) == k);
        must(ls_replica_record_whole_steps(s.replica, &err), &err);
        assert_int_equal(ls_replica_most_whole_steps(s.replica, 7), k ? 0 : 1);
        must(ls_replica_evaluate(s.replica, LS_TEST, row, 7, &loss[k], &correct[k], NULL, &err),
             &err);
        const int status = ls_replica_gradient(s.replica, row, 7, 1, NULL, &err);
        assert_int_equal(status, k ? LS_EINVAL : LS_OK);
        step_side(&s, 1, 16);
        must(ls_replica_sync(s.replica, &err), &err);
        close_side(&s);
    }
    assert_true(loss[0] == loss[1] && correct[0] == correct[1]);
    close_recipe(&r);
}

/* Training has small minibatches, and evaluation has larger ones. The first plan is for training
 * steps, which are unrolled. The larger plan has no backward pass. */
static void rows_that_are_evaluated_only_may_be_the_most(void **state)
{
    static const uint32_t few_trained[2] = {7, 16};
    double loss[2], correct[2];
    uint32_t row[16];
    ls_error err = {0};
    recipe r;
    side s;
    (void)state;
    open_residual(&r);
    for (uint32_t i = 0; i < 16; i++)
        row[i] = 2 * i + 1;
    for (int k = 0; k < 2; k++) {
        made_for = k ? few_trained : counts;
        trained_counts = k;
        open_with(&s, open_cuda(), &r, 0);
        made_for = counts;
        trained_counts = 0;
        assert_int_equal(s.replica->plan[0]->rows, k ? 7 : 16);
        assert_true(s.replica->plan[0]->training);
        assert_true(s.replica->plan[1]->training == !k);
        must(ls_replica_record_whole_steps(s.replica, &err), &err);
        assert_int_equal(ls_replica_most_whole_steps(s.replica, 16), k ? 0 : LS_UNROLLED);
        assert_int_equal(ls_replica_most_whole_steps(s.replica, 7), k ? LS_UNROLLED : 1);
        must(ls_replica_evaluate(s.replica, LS_TEST, row, 16, &loss[k], &correct[k], NULL, &err),
             &err);
        step_side(&s, 1, 7);
        must(ls_replica_sync(s.replica, &err), &err);
        close_side(&s);
    }
    assert_true(loss[0] == loss[1] && correct[0] == correct[1]);
    close_recipe(&r);
}

/* Returns the loss of seven rows, evaluated by a replica that trains on seven rows, or only on
 * sixteen. */
static double evaluated(const recipe *r, ls_precision precision, int trained)
{
    const uint32_t row[7] = {3, 1, 4, 15, 9, 2, 6};
    double loss, correct;
    ls_error err = {0};
    side s;
    trained_counts = trained;
    open_with(&s, test_cuda_open(precision), r, 0);
    trained_counts = 0;
    assert_true(s.replica->plan[1]->training == (trained != 1));
    must(ls_replica_evaluate(s.replica, LS_TEST, row, 7, &loss, &correct, NULL, &err), &err);
    close_side(&s);
    return loss;
}

/* Rounding to bf16 must not depend on whether a plan has a backward pass. Therefore a frozen batch
 * norm beside a branch that learns is never fused with the addition, and a batch norm that learns
 * always is. */
static void evaluation_has_the_same_bits_in_every_plan(void **state)
{
    static const char branch[] =
        "[{\"type\": \"conv2d\", \"name\": \"p\", \"out\": 4, \"kernel\": 3},"
        "{\"type\": \"conv2d\", \"name\": \"c\", \"from\": \"input\", \"out\": 4, \"kernel\": 3},"
        "{\"type\": \"batch_norm\", \"name\": \"n\"}, {\"type\": \"add\", \"with\": \"p\"},"
        "{\"type\": \"relu\"}, {\"type\": \"global_avg_pool\"}, {\"type\": \"flatten\"},"
        "{\"type\": \"dense\", \"name\": \"fc\", \"out\": 5}]";
    double loss[2];
    recipe r;
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++)
        for (int p = LS_PRECISION_FP32; p <= LS_PRECISION_BF16; p++) {
            open_recipe(&r, branch, (ls_shape){2, 8, 8}, 5, "{\"name\": \"sgd\", \"lr\": 0.05}", 0);
            for (int i = 1; frozen && i <= 2; i++)
                for (int k = 0; k < r.model->layer[i].params; k++)
                    r.model->layer[i].param[k].rate = 0;
            loss[0] = evaluated(&r, (ls_precision)p, 0);
            loss[1] = evaluated(&r, (ls_precision)p, 1);
            if (loss[0] != loss[1])
                fail_msg("%s, precision %d: %.9g where rows are trained on, too, %.9g where not",
                         frozen ? "frozen" : "learning", p, loss[0], loss[1]);
            close_recipe(&r);
        }
}

/* A weight is NaN, so the loss of a step is NaN. This step must change nothing, and neither must
 * the next step, which is enqueued before the loss is known. */
static void a_whole_step_that_is_held_holds_up_the_next(void **state)
{
    recipe r;
    side s;
    float *before, *after;
    ls_error err = {0};
    (void)state;
    open_lenet(&r);
    open_with(&s, open_cuda(), &r, 0);
    must(ls_replica_record_whole_steps(s.replica, &err), &err);
    before = calloc(r.model->floats, sizeof *before);
    after = calloc(r.model->floats, sizeof *after);
    float *arena = ls_replica_weight_arena(s.replica);
    for (size_t i = 0; i < r.model->floats; i++)
        before[i] = i == r.model->floats - 1 ? NAN : s.weights[i]; /* a weight of a logit */
    must(ls_replica_import(s.replica, arena, before, &err), &err);
    enqueue_whole(&s, 1, counts[0], 0.05f);
    must(ls_replica_import(s.replica, arena, s.weights, &err), &err); /* enqueued after the step */
    enqueue_whole(&s, 2, counts[0], 0.05f);
    assert_false(isfinite(await_whole(&s, 1)[LS_TAIL_LOSS]));
    assert_true(isfinite(await_whole(&s, 2)[LS_TAIL_LOSS]));
    must(ls_replica_export(s.replica, after, arena, &err), &err);
    assert_memory_equal(after, s.weights, r.model->floats * sizeof *after);
    must(ls_replica_resume_updates(s.replica, &err), &err);
    enqueue_whole(&s, 2, counts[0], 0.05f);
    await_whole(&s, 2);
    must(ls_replica_export(s.replica, after, arena, &err), &err);
    assert_memory_not_equal(after, s.weights, r.model->floats * sizeof *after);
    free(before);
    free(after);
    close_side(&s);
    close_recipe(&r);
}

#ifndef PLUGIN
/* The recording of the second plan is refused, so only the first plan is recorded. */
static void what_cannot_be_recorded_runs_op_by_op(void **state)
{
    side cuda, ref;
    recipe r;
    (void)state;
    open_residual(&r);
    dbl_fail("cudaGraphInstantiate", 2, cudaErrorNotSupported);
    open_with(&cuda, open_cuda(), &r, 0);
    open_with(&ref, open_ref64(NULL), &r, 0);
    assert_int_equal(ls_replica_recordings(cuda.replica), 1);
    run_side(&cuda);
    run_side(&ref);
    expect_near(r.model, &cuda, &ref);
    close_side(&cuda);
    close_side(&ref);
    close_recipe(&r);
}

/* The second recording of a program (the list of a plan's recordings) is refused. Then the replica
 * destroys the existing recordings, and makes steps without recordings. */
static void a_program_is_recorded_whole_or_not_at_all(void **state)
{
    side s;
    recipe r;
    ls_error err = {0};
    listener l = {.of = &s};
    (void)state;
    open_lenet(&r);
    bucket_floats = 100;
    open_with(&s, open_cuda(), &r, 0);
    bucket_floats = 0;
    const int before = ls_replica_recordings(s.replica);
    dbl_fail("cudaGraphInstantiate", 1, cudaErrorNotSupported);
    must(ls_replica_record_whole_steps(s.replica, &err), &err);
    assert_int_equal(ls_replica_most_whole_steps(s.replica, counts[0]), 0);
    assert_int_equal(ls_replica_recordings(s.replica), before);
    float *whole = gradient_arena(&s, counts[0]);
    l.seen = calloc(ls_replica_floats(s.replica), sizeof *l.seen);
    dbl_fail("cudaGraphInstantiate", 2, cudaErrorNotSupported);
    must(ls_replica_on_ready(s.replica, listen, &l, &err), &err);
    assert_int_equal(ls_replica_recordings(s.replica), before);
    float *pieces = gradient_arena(&s, counts[0]);
    assert_true(l.tells >= 1);
    assert_memory_equal(pieces, whole, ls_replica_floats(s.replica) * sizeof *whole);
    free(l.seen);
    free(whole);
    free(pieces);
    close_side(&s);
    close_recipe(&r);
}

/* Each call of the CUDA runtime during creation fails in turn. Creation must fail, or the replica
 * must make its steps op by op. The doubles report memory that stays allocated. */
static void a_call_that_fails_in_creation_leaves_nothing_behind(void **state)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture",
                                        "cudaGraphInstantiate",   "launch",
                                        "cudaMemsetAsync",        "cudaStreamSynchronize"};
    (void)state;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (int nth = 1; nth <= 3; nth++) {
            recipe r;
            ls_replica *replica = NULL;
            ls_error err = {0};
            open_residual(&r);
            ls_device *device = open_cuda();
            ls_replica_desc desc = {.device = device,
                                    .model = r.model,
                                    .optimizer = &r.optimizer,
                                    .normalisation = plain_pixels,
                                    .data = {r.data, r.data},
                                    .shard_rows = counts,
                                    .shard_row_counts = 2};
            dbl_fail(calls[c], nth, 0);
            int rc = ls_replica_create(&replica, &desc, &err);
            assert_true(rc == LS_OK || err.text[0]);
            ls_replica_destroy(replica);
            device->ops->close(device);
            close_recipe(&r);
        }
}
#endif

LS_TESTS(cuda_replica, "integration doubles no-tsan")
{
    test_cuda_begin(DBL_THREADS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_trains_as_on_the_reference),
        cmocka_unit_test(a_residual_network_trains_as_on_the_reference),
        cmocka_unit_test(training_in_bf16_stays_near),
        cmocka_unit_test(gradients_err_as_their_precision_says),
        cmocka_unit_test(recorded_steps_give_the_bits_of_steps_op_by_op),
        cmocka_unit_test(gradients_in_pieces_have_the_bits_of_whole_ones),
        cmocka_unit_test(whole_steps_give_the_bits_of_steps_in_parts),
        cmocka_unit_test(shadows_follow_their_weights),
        cmocka_unit_test(rows_that_are_evaluated_only_have_no_backward_pass),
        cmocka_unit_test(rows_that_are_evaluated_only_may_be_the_most),
        cmocka_unit_test(evaluation_has_the_same_bits_in_every_plan),
        cmocka_unit_test(a_bias_before_batch_norm_stays_what_it_was),
        cmocka_unit_test(a_whole_step_that_is_held_holds_up_the_next),
#ifndef PLUGIN
        cmocka_unit_test(what_cannot_be_recorded_runs_op_by_op),
        cmocka_unit_test(a_program_is_recorded_whole_or_not_at_all),
        cmocka_unit_test(a_call_that_fails_in_creation_leaves_nothing_behind),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
