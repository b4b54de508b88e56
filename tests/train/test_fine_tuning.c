/* SPDX-License-Identifier: MIT */
/* Tests clipping, frozen parameters, learning rates by name, class weights, and a moving average of
 * the weights: the effect of each on a step, and that the weights are bit-identical with any number
 * of workers and after a stop and resume. */
#include "data/scratch.h"
#include "nn/replica_impl.h"
#include "runner.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 32 };

typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
    ls_trainer *trainer;
    uint64_t stop_behind; /* the run stops after this step; 0: it does not stop */
    int is_killed;        /* 1: the run is stopped by SIGKILL; 0: by ls_trainer_interrupt */
    int steps;            /* number of step records, if keep_norm receives the records */
    /* gradient norms of the step records, in the text form of the records, each followed by a
     * comma */
    char norms[800];
} scenario;

static void on_progress(void *user, const ls_progress *p)
{
    scenario *s = user;
    if ((uint64_t)(p->epoch - 1) * p->steps + p->step != s->stop_behind)
        return;
    if (s->is_killed)
        raise(SIGKILL);
    ls_trainer_interrupt(s->trainer);
}

/* A callback that receives records: counts the step records, and appends their gradient norms to
 * `norms`. */
static int keep_norm(void *user, const char *json, size_t length, ls_error *err)
{
    static const char key[] = "\"grad_norm\":";
    scenario *s = user;
    const char *at = strstr(json, key);
    const size_t used = strlen(s->norms);
    (void)length;
    (void)err;
    s->steps += strncmp(json, "{\"type\":\"step\"", 14) == 0;
    if (at)
        snprintf(s->norms + used, sizeof s->norms - used, "%.*s,",
                 (int)strcspn(at + strlen(key), ",}"), at + strlen(key));
    return LS_OK;
}

/* Begins a run of a network with two convolutions, the first followed by a batch norm, and a dense
 * layer. */
static void begin(scenario *s, const char *devices, int streamed)
{
    memset(s, 0, sizeof *s);
    fixture_begin(&s->f);
    s->data = own_data(streamed);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "seed=5");
    fixture_set(&s->f, "shards=8");
    fixture_set(&s->f, "epochs=2");
    fixture_set(&s->f, "batch_size=40"); /* the last minibatch is smaller */
    fixture_set(&s->f, devices);
    fixture_set(&s->f, "model={\"layers\":["
                       "{\"type\":\"conv2d\",\"name\":\"c1\",\"out\":4,\"kernel\":5,\"stride\":3},"
                       "{\"type\":\"batch_norm\",\"name\":\"n1\"},{\"type\":\"relu\"},"
                       "{\"type\":\"conv2d\",\"name\":\"c2\",\"out\":6,\"kernel\":3},"
                       "{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                       "{\"type\":\"dense\",\"name\":\"fc\",\"out\":10}]}");
    s->f.callbacks.record = NULL;
    s->f.callbacks.progress = on_progress;
    s->f.callbacks.user = s;
}

static void end(scenario *s)
{
    fixture_end(&s->f);
}

/* Returns the canonical weights, running statistics included. */
static float *weights_of(ls_trainer *t)
{
    float *weights = calloc(t->model->floats, sizeof *weights);
    ls_error err;
    if (ls_trainer_weights(t, weights, t->model->floats, &err) != LS_OK)
        fail_msg("%s", err.text);
    memcpy(weights, t->engine->exchange->state.canonical, t->model->floats * sizeof *weights);
    return weights;
}

/* Parameters before and after one step of plain gradient descent with a learning rate of 1. */
typedef struct one_step {
    float *before, *after;
    const ls_network *model;
    ls_trainer *trainer;
} one_step;

static void step_once(one_step *out, scenario *s)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    static int32_t labels[BATCH];
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, i, images + (size_t)i * OWN_PIXELS, &labels[i]);
    fixture_set(&s->f, "batch_size=32");
    ls_trainer *t = fixture_open(&s->f);
    out->before = weights_of(t);
    if (own_step(t, images, labels, BATCH, NULL, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    out->after = weights_of(t);
    out->model = t->model;
    out->trainer = t;
}

static void drop(one_step *o)
{
    ls_trainer_close(o->trainer, NULL);
    free(o->before);
    free(o->after);
}

/* Returns the norm of the change of the parameters first … last − 1. */
static double distance(const one_step *o, int first, int last)
{
    double sum = 0;
    for (int k = first; k < last; k++) {
        const ls_param *p = o->model->param[k];
        for (size_t i = p->offset; i < p->offset + p->count; i++)
            sum += pow((double)o->after[i] - (double)o->before[i], 2);
    }
    return sqrt(sum);
}

static const char plain[] = "optimizer={\"name\":\"sgd\",\"lr\":1}";

static const char *const backends[] = {"ref", "cpu"};

static int is_there(int b)
{
#if defined(__SANITIZE_THREAD__)
    /* ThreadSanitizer does not see memory accesses of the CPU kernels, which are built without it
     */
    return b == 0;
#else
    return b == 0 || has_backend(backends[b]);
#endif
}

/* Parameters: c1.weight c1.bias n1.weight n1.bias c2.weight c2.bias fc.weight fc.bias. */
enum { PARAMS = 8, C2 = 4, FC = 6 };

/* Checks that there is one step record, with the gradient norm `wanted`. NAN: the record must have
 * no norm. */
static void expect_norm(const scenario *s, double wanted)
{
    assert_int_equal(s->steps, 1);
    if (isnan(wanted))
        assert_string_equal(s->norms, "");
    else if (!(fabs(strtod(s->norms, NULL) - wanted) < 2e-4 * wanted))
        fail_msg("a gradient norm of %s not %g", s->norms, wanted);
}

static void a_clipped_step_is_as_long_as_the_norm(void **state)
{
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        double free_length = 0, without_c2 = 0;
        for (int form = 0; form < 4; form++) {
            /* form 2: some parameters are frozen, and do not count for the norm; form 3: the limit
             * is so large that gradients are not clipped */
            static const char *const optimizer[] = {
                plain, "optimizer={\"name\":\"sgd\",\"lr\":1,\"clip_norm\":0.01}",
                "optimizer={\"name\":\"sgd\",\"lr\":1,\"clip_norm\":0.01}",
                "optimizer={\"name\":\"sgd\",\"lr\":1,\"clip_norm\":1e6}"};
            scenario s;
            one_step o;
            begin(&s, b ? "devices=cpu:2" : "devices=ref:2", 1);
            fixture_set(&s.f, optimizer[form]);
            if (form == 2)
                fixture_set(&s.f, "freeze=c2.*");
            s.f.callbacks.record = keep_norm;
            step_once(&o, &s);
            const double length = distance(&o, 0, PARAMS);
            free_length = form == 0 ? length : free_length;
            without_c2 =
                form == 0 ? hypot(distance(&o, 0, C2), distance(&o, FC, PARAMS)) : without_c2;
            expect_norm(&s, form == 0 ? NAN : form == 2 ? without_c2 : free_length);
            const double wanted = form == 1 || form == 2 ? 0.01 : free_length;
            if (!(fabs(length - wanted) < 2e-4 * wanted) || free_length < 0.02)
                fail_msg("%s, form %d: %g, not %g", backends[b], form, length, wanted);
            drop(&o);
            end(&s);
        }
    }
}

static void frozen_parameters_stay_and_others_follow_their_rates(void **state)
{
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        scenario s;
        one_step all, some;
        const char *devices = b ? "devices=cpu:2" : "devices=ref:2";
        begin(&s, devices, 1);
        fixture_set(&s.f, plain);
        step_once(&all, &s);
        end(&s);
        begin(&s, devices, 1);
        fixture_set(&s.f, plain);
        fixture_set(&s.f, "freeze=[\"c2.weight\"]");
        fixture_set(&s.f, "lr_factors={\"fc.*\":0.25,\"*.bias\":2}");
        step_once(&some, &s);
        assert_true(distance(&some, C2, C2 + 1) == 0);
        const double c1 = distance(&all, 0, 1), c2_bias = distance(&all, C2 + 1, C2 + 2);
        const double fc = distance(&all, FC, FC + 1), fc_bias = distance(&all, FC + 1, FC + 2);
        assert_true(fabs(distance(&some, 0, 1) - c1) <= 1e-6 * c1);
        assert_true(fabs(distance(&some, C2 + 1, C2 + 2) - 2 * c2_bias) <= 1e-4 * c2_bias);
        assert_true(fabs(distance(&some, FC, FC + 1) - fc / 4) <= 1e-4 * fc);
        assert_true(fabs(distance(&some, FC + 1, FC + 2) - 2 * fc_bias) <= 1e-4 * fc_bias);
        drop(&all);
        drop(&some);
        end(&s);
    }
}

static void a_frozen_beginning_is_not_computed_backward(void **state)
{
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        scenario s;
        one_step o;
        int computed = 0;
        begin(&s, b ? "devices=cpu:2" : "devices=ref:2", 1);
        fixture_set(&s.f, plain);
        fixture_set(&s.f, "freeze=[\"c1.*\",\"n1.*\",\"c2.*\"]");
        step_once(&o, &s);
        const ls_plan *plan = o.trainer->engine->worker[0].replica->plan[0];
        for (int k = 0; k < plan->nodes; k++)
            computed += plan->node[k].backward;
        assert_int_equal(computed, 1); /* only the backward pass of fc */
        assert_false(plan->node[plan->nodes - 1].needs_dx);
        assert_true(distance(&o, 0, FC) == 0 && distance(&o, FC, PARAMS) > 0);
        /* The running statistics of n1 do not change either. */
        assert_memory_equal(o.after + o.model->stat[0]->offset, o.before + o.model->stat[0]->offset,
                            2 * o.model->stat[0]->count * sizeof(float));
        drop(&o);
        end(&s);
    }
}

/* All layers before n1 are frozen. The layer p, whose output is added to the output of n1, is
 * trained. The statistics of n1 must not change. A back end can compute batch norm and addition as
 * one op or as two; the step must be the same. */
static void a_frozen_batch_norm_keeps_its_statistics_beside_a_branch_that_learns(void **state)
{
    double length[2] = {0, 0};
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        scenario s;
        one_step o;
        begin(&s, b ? "devices=cpu:2" : "devices=ref:2", 1);
        fixture_set(&s.f, plain);
        fixture_set(&s.f,
                    "model={\"layers\":["
                    "{\"type\":\"conv2d\",\"name\":\"p\",\"out\":4,\"kernel\":5,\"stride\":3},"
                    "{\"type\":\"conv2d\",\"name\":\"c1\",\"from\":\"input\",\"out\":4,"
                    "\"kernel\":5,\"stride\":3},{\"type\":\"batch_norm\",\"name\":\"n1\"},"
                    "{\"type\":\"add\",\"with\":\"p\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                    "{\"type\":\"dense\",\"name\":\"fc\",\"out\":10}]}");
        fixture_set(&s.f, "freeze=[\"c1.*\",\"n1.*\"]");
        step_once(&o, &s);
        assert_memory_equal(o.after + o.model->stat[0]->offset, o.before + o.model->stat[0]->offset,
                            2 * o.model->stat[0]->count * sizeof(float));
        length[b] = distance(&o, 0, o.model->params);
        assert_true(distance(&o, 0, 2) > 0);
        drop(&o);
        end(&s);
    }
    if (length[1] > 0)
        assert_true(fabs(length[1] - length[0]) < 1e-4 * length[0]);
}

static void all_but_some_parameters_are_frozen(void **state)
{
    scenario s;
    one_step o;
    (void)state;
    begin(&s, "devices=ref:2", 1);
    fixture_set(&s.f, plain);
    fixture_set(&s.f, "freeze=[\"*\",\"!n1.*\",\"n1.bias\",\"!fc.weight\"]");
    fixture_set(&s.f, "lr_factors={\"fc.*\":0.5}");
    step_once(&o, &s);
    for (int k = 0; k < o.model->params; k++) {
        const ls_param *p = o.model->param[k];
        const int learns = strcmp(p->name, "n1.weight") == 0 || strcmp(p->name, "fc.weight") == 0;
        assert_int_equal(distance(&o, k, k + 1) > 0, learns);
        assert_true(p->rate == (!learns ? 0 : p->name[0] == 'f' ? 0.5f : 1));
    }
    drop(&o);
    end(&s);
}

/* Trains a step with BATCH rows. */
static void step_with_rows(ls_trainer *t, uint32_t number)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    static int32_t labels[BATCH];
    ls_error err;
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, number * 7 + i, images + (size_t)i * OWN_PIXELS, &labels[i]);
    if (own_step(t, images, labels, BATCH, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
}

static void begin_release(scenario *s, int b)
{
    begin(s, b ? "devices=cpu:2" : "devices=ref:2", 1);
    fixture_set(&s->f, "batch_size=32"); /* three steps of 32 rows are an epoch */
    fixture_set(&s->f, "optimizer={\"name\":\"adamw\",\"lr\":0.01,\"weight_decay\":0}");
    fixture_set(&s->f, "freeze=[\"*\",\"!fc.*\"]");
    fixture_set(&s->f, "freeze_epochs=1");
}

/* The first step of AdamW moves each weight by the learning rate, whatever its gradient is. So does
 * the first step after a release, of all weights. */
static void after_a_release_the_optimizer_begins_anew(void **state)
{
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        scenario s;
        size_t moved = 0, far = 0;
        begin_release(&s, b);
        ls_trainer *t = fixture_open(&s.f);
        float *first = weights_of(t);
        for (uint32_t step = 0; step < 3; step++)
            step_with_rows(t, step);
        float *held = weights_of(t);
        step_with_rows(t, 3);
        float *after = weights_of(t);
        for (int k = 0; k < t->model->params; k++) {
            const ls_param *p = t->model->param[k];
            size_t changed = 0;
            for (size_t i = p->offset; i < p->offset + p->count; i++) {
                const float by = fabsf(after[i] - held[i]);
                changed += held[i] != first[i];
                moved += by > 0;
                far += by > 0.0099f && by < 0.0101f;
                assert_true(by < 0.0101f);
            }
            assert_int_equal(changed > 0, strncmp(p->name, "fc.", 3) == 0);
        }
        assert_true(moved > 0 && far > moved * 9 / 10);
        free(first);
        free(held);
        free(after);
        ls_trainer_close(t, NULL);
        end(&s);
    }
}

/* A program goes back to a checkpoint from before the release, or from the step after which it
 * is. */
static void a_release_is_repeated_after_a_checkpoint_is_loaded(void **state)
{
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++)
        for (uint32_t saved = 2; saved <= 4; saved++) {
            char path[400];
            scratch place;
            scenario s;
            scratch_begin(&place);
            snprintf(path, sizeof path, "%s/saved.safetensors", place.directory);
            begin_release(&s, b);
            ls_trainer *t = fixture_open(&s.f);
            float *weights[2];
            for (uint32_t step = 0; step < 5; step++) {
                if (step == saved)
                    assert_int_equal(ls_trainer_save(t, path, &s.f.err), LS_OK);
                step_with_rows(t, step);
            }
            weights[0] = weights_of(t);
            if (ls_trainer_load(t, path, &s.f.err) != LS_OK)
                fail_msg("%s", s.f.err.text);
            for (uint32_t step = saved; step < 5; step++)
                step_with_rows(t, step);
            weights[1] = weights_of(t);
            assert_memory_equal(weights[0], weights[1], t->model->floats * sizeof(float));
            free(weights[0]);
            free(weights[1]);
            ls_trainer_close(t, NULL);
            end(&s);
            scratch_end(&place);
        }
}

static void the_average_is_that_of_the_weights(void **state)
{
    static uint8_t images[BATCH * OWN_PIXELS];
    static int32_t labels[BATCH];
    (void)state;
    scenario s[2];
    ls_trainer *t[2];
    for (int k = 0; k < 2; k++) {
        begin(&s[k], "devices=ref:2", 1);
        fixture_set(&s[k].f, "batch_size=32");
        if (k)
            fixture_set(&s[k].f, "ema=0.75");
        t[k] = fixture_open(&s[k].f);
    }
    float *average = weights_of(t[0]);
    for (uint32_t step = 0; step < 4; step++) {
        for (uint32_t i = 0; i < BATCH; i++)
            own_row(0, step * 7 + i, images + (size_t)i * OWN_PIXELS, &labels[i]);
        for (int k = 0; k < 2; k++)
            assert_int_equal(own_step(t[k], images, labels, BATCH, NULL, &s[k].f.err), LS_OK);
        float *weights = weights_of(t[0]), *found = weights_of(t[1]);
        for (int k = 0; k < t[0]->model->params; k++) {
            const ls_param *p = t[0]->model->param[k];
            for (size_t i = p->offset; i < p->offset + p->count; i++) {
                average[i] += 0.25f * (weights[i] - average[i]);
                assert_true(fabsf(found[i] - average[i]) <= 1e-6f);
            }
        }
        free(weights);
        free(found);
    }
    for (int k = 0; k < 2; k++) {
        ls_trainer_close(t[k], NULL);
        end(&s[k]);
    }
    free(average);
}

static void classes_weigh_as_they_are_told(void **state)
{
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        double length[3];
        for (int form = 0; form < 3; form++) {
            /* weights[2]: rows of odd classes have the weight 0 */
            static const char *const weights[] = {
                "ema=0", "class_weights=[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]",
                "class_weights=[1,0,1,0,1,0,1,0,1,0]"};
            scenario s;
            one_step o;
            begin(&s, b ? "devices=cpu:2" : "devices=ref:2", 1);
            fixture_set(&s.f, plain);
            fixture_set(&s.f, weights[form]);
            step_once(&o, &s);
            length[form] = distance(&o, FC, PARAMS);
            drop(&o);
            end(&s);
        }
        assert_true(fabs(length[1] - length[0] / 2) < 1e-5 * length[0]);
        assert_true(fabs(length[2] - length[0]) > 1e-2 * length[0]);
    }
}

/* The 96 training rows have ten classes, with 9 or 10 rows of each class. "balanced" must give the
 * same weights as the list that is computed from these numbers. */
static void balanced_weights_are_those_of_the_training_rows(void **state)
{
    char list[300] = "class_weights=[", hash[2][65];
    int count[OWN_CLASSES] = {0};
    (void)state;
    for (uint32_t i = 0; i < OWN_TRAIN; i++) {
        static uint8_t image[OWN_PIXELS];
        int32_t label;
        own_row(0, i, image, &label);
        count[label]++;
    }
    for (int k = 0; k < OWN_CLASSES; k++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%.17g", k ? "," : "",
                 (double)OWN_TRAIN / (OWN_CLASSES * (double)count[k]));
    snprintf(list + strlen(list), sizeof list - strlen(list), "]");
    for (int k = 0; k < 2; k++) {
        scenario s;
        begin(&s, "devices=ref:2", 0);
        fixture_set(&s.f, k ? list : "class_weights=balanced");
        fixture_set(&s.f, plain);
        memcpy(hash[k], fixture_hash(&s.f), 65);
        end(&s);
    }
    assert_string_equal(hash[0], hash[1]);
}

static void rows_of_more_classes_than_the_model_has_are_not_balanced(void **state)
{
    scenario s;
    ls_config config;
    ls_dataset *train, *test;
    float *weights;
    (void)state;
    begin(&s, "devices=ref:2", 0);
    fixture_set(&s.f, "class_weights=balanced");
    assert_int_equal(ls_config_read(&config, &s.f.options, &s.f.err), LS_OK);
    assert_int_equal(ls_config_open_data(&train, &test, &config, false, &s.f.options, &s.f.err),
                     LS_OK);
    assert_int_equal(ls_config_fit_data(&config, ls_dataset_describe(test), 0, &s.f.err), LS_OK);
    assert_int_equal(ls_config_class_weights(&weights, &config, train, 2, &s.f.err), LS_EDATA);
    assert_non_null(strstr(s.f.err.text, "but the model has 2 classes"));
    assert_null(weights);
    ls_dataset_close(train);
    ls_dataset_close(test);
    ls_config_fini(&config);
    end(&s);
}

/* ---- bits ---- */

static const char *const controls[] = {
    "optimizer={\"name\":\"sgd\",\"lr\":0.05,\"momentum\":0.9,\"clip_norm\":0.5}",
    "optimizer={\"name\":\"adamw\",\"lr\":0.01,\"clip_norm\":0.5}",
    "freeze=[\"c1.*\",\"n1.*\"]",
    "freeze_epochs=1",
    "lr_factors={\"fc.*\":3}",
    "ema=0.9",
    "schedule=one_cycle",
    "class_weights=balanced",
    "data.validation=0.25"};
enum { FREEZE = 2, RELEASE = 3, CONTROLS = sizeof controls / sizeof *controls };

/* Sets control number `which`; from CONTROLS on, sets all of them. A release needs what it
 * releases. */
static void set_controls(scenario *s, int which)
{
    for (int i = 0; i < CONTROLS; i++)
        if (i == which || which == CONTROLS || (i == FREEZE && which == RELEASE))
            fixture_set(&s->f, controls[i]);
}

static int run(scenario *s, char hash[65])
{
    s->trainer = fixture_open(&s->f);
    int status = ls_trainer_run(s->trainer, &s->f.err);
    memcpy(hash, ls_trainer_result(s->trainer)->weights_sha256, 65);
    ls_trainer_close(s->trainer, NULL);
    return status;
}

static void each_has_the_same_bits_on_any_number_of_workers_and_after_a_stop(void **state)
{
    static const int workers[] = {2, 1, 3};
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++)
        for (int which = 0; which <= CONTROLS; which++) {
            char first[65], other[65], devices[32], run_dir[400];
            scratch place;
            scenario s;
            scratch_begin(&place);
            for (int w = 0; w < 3; w++) {
                snprintf(devices, sizeof devices, "devices=%s:%d", backends[b], workers[w]);
                begin(&s, devices, 0);
                set_controls(&s, which);
                assert_int_equal(run(&s, w ? other : first), LS_OK);
                if (w && strcmp(first, other) != 0)
                    fail_msg("%s, control %d: other bits on %d workers", backends[b], which,
                             workers[w]);
                end(&s);
            }
            snprintf(run_dir, sizeof run_dir, "run_dir=%s/run", place.directory);
            for (int half = 0; half < 2; half++) {
                snprintf(devices, sizeof devices, "devices=%s:%d", backends[b], half ? 3 : 2);
                begin(&s, devices, 0);
                set_controls(&s, which);
                fixture_set(&s.f, run_dir);
                s.stop_behind = half ? 0 : 4;
                s.f.options.resume = half ? run_dir + strlen("run_dir=") : NULL;
                assert_int_equal(run(&s, other), half ? LS_OK : LS_EINTERRUPTED);
                end(&s);
            }
            if (strcmp(first, other) != 0)
                fail_msg("%s, control %d: other bits after a stop", backends[b], which);
            scratch_end(&place);
        }
}

/* Worker 1 fails or stalls before the release, or in the first step after it, with which the
 * release is repeated. */
static void a_release_loses_nothing_with_a_device(void **state)
{
    static const char *const faults[] = {NULL, "worker=1,step=2,kind=fail,stage=shard",
                                         "worker=1,step=4,kind=fail,stage=merge",
                                         "worker=1,step=3,kind=stall,stage=merge,seconds=2.5"};
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++) {
        char hash[2][65];
        for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
            scenario s;
            begin(&s, b ? "devices=cpu:2" : "devices=ref:2", 0);
            set_controls(&s, RELEASE);
            fixture_set(&s.f, "shards=2");
            fixture_set(&s.f, SLOW_BUILD ? "deadline_s=2" : "deadline_s=1");
            s.f.sys.inject = &faults[k];
            s.f.sys.inject_count = k > 0;
            assert_int_equal(run(&s, hash[k > 0]), LS_OK);
            if (strcmp(hash[0], hash[k > 0]) != 0)
                fail_msg("%s, %s: other bits", backends[b], faults[k]);
            end(&s);
        }
    }
}

static void gradient_norms_are_recorded_with_the_same_bits_on_any_number_of_workers(void **state)
{
    static const int workers[] = {1, 2, 4};
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++)
        for (int which = 0; which < 2; which++) {
            char first[sizeof((scenario *)0)->norms], devices[32], hash[65];
            for (int w = 0; w < 3; w++) {
                scenario s;
                snprintf(devices, sizeof devices, "devices=%s:%d", backends[b], workers[w]);
                begin(&s, devices, 0);
                set_controls(&s, which);
                s.f.callbacks.record = keep_norm;
                assert_int_equal(run(&s, hash), LS_OK);
                int norms = 0;
                for (const char *c = s.norms; *c; c++)
                    norms += *c == ',';
                assert_true(s.steps > 2 && norms == s.steps);
                if (w == 0)
                    memcpy(first, s.norms, sizeof first);
                assert_string_equal(s.norms, first);
                end(&s);
            }
        }
}

/* Called in a child process, which is killed during the run. */
static void train_until_killed(scenario *s)
{
    char hash[65];
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        s->is_killed = 1;
        run(s, hash);
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

static void all_of_them_go_on_after_a_kill(void **state)
{
    static const uint64_t behind[] = {2, 3, 4};
    (void)state;
    for (int b = 0; b < 2 && is_there(b); b++)
        for (size_t k = 0; k < sizeof behind / sizeof *behind; k++) {
            char hash[2][65], run_dir[400];
            scratch place;
            scratch_begin(&place);
            /* 0: a run without a stop; 1: a run that is killed; 2: its resumption */
            for (int life = 0; life < 3; life++) {
                scenario s;
                snprintf(run_dir, sizeof run_dir, "run_dir=%s/run%d", place.directory, life > 0);
                begin(&s, b ? "devices=cpu:2" : life == 2 ? "devices=ref:3" : "devices=ref:2", 0);
                set_controls(&s, CONTROLS);
                fixture_set(&s.f, run_dir);
                fixture_set(&s.f, "checkpoint.every_steps=1");
                fixture_set(&s.f, "checkpoint.async=false");
                s.stop_behind = life == 1 ? behind[k] : 0;
                s.f.options.resume = life == 2 ? run_dir + strlen("run_dir=") : NULL;
                if (life == 1)
                    train_until_killed(&s);
                else
                    assert_int_equal(run(&s, hash[life / 2]), LS_OK);
                end(&s);
            }
            if (strcmp(hash[0], hash[1]) != 0)
                fail_msg("%s: other bits after a kill behind step %d", backends[b], (int)behind[k]);
            scratch_end(&place);
        }
}

static void wrong_patterns_are_refused_with_their_place(void **state)
{
    static const struct {
        const char *set, *message;
    } cases[] = {
        {"freeze=[\"c3.*\"]", "freeze: no parameter is called \"c3.*\"; the first is c1.weight"},
        {"freeze=*", "freeze: all parameters are frozen"},
        {"freeze=[1]", "freeze: expected a pattern of names"},
        {"freeze=[\"*\",\"!c3.*\"]", "freeze: no parameter is called \"c3.*\""},
        {"freeze_epochs=1", "name them there"},
        {"lr_factors={\"fc\":2}", "lr_factors: no parameter is called \"fc\""},
        {"lr_factors={\"fc.*\":0}", "to leave a parameter as it is, name it in \"freeze\""},
        {"lr_factors=[1]", "lr_factors: expected an object"},
        {"class_weights=[1,2]", "or a number for each of 10 classes"},
        {"class_weights=evenly", "class_weights: expected \"balanced\""},
        {"class_weights=[1,1,1,1,1,1,1,1,1,-1]", "from 0 to 1e6; that of class 9 is not"},
        {"class_weights=[0,0,0,0,0,0,0,0,0,0]", "class_weights: all are 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        ls_trainer *t;
        begin(&s, "devices=ref:2", 0);
        fixture_set(&s.f, cases[i].set);
        assert_int_equal(ls_trainer_open(&t, &s.f.options, &s.f.err), LS_ECONFIG);
        if (!strstr(s.f.err.text, cases[i].message))
            fail_msg("case %zu: %s", i, s.f.err.text);
        end(&s);
    }
}

LS_TESTS(train_fine_tuning, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clipped_step_is_as_long_as_the_norm),
        cmocka_unit_test(frozen_parameters_stay_and_others_follow_their_rates),
        cmocka_unit_test(a_frozen_beginning_is_not_computed_backward),
        cmocka_unit_test(a_frozen_batch_norm_keeps_its_statistics_beside_a_branch_that_learns),
        cmocka_unit_test(all_but_some_parameters_are_frozen),
        cmocka_unit_test(after_a_release_the_optimizer_begins_anew),
        cmocka_unit_test(a_release_is_repeated_after_a_checkpoint_is_loaded),
        cmocka_unit_test(the_average_is_that_of_the_weights),
        cmocka_unit_test(classes_weigh_as_they_are_told),
        cmocka_unit_test(balanced_weights_are_those_of_the_training_rows),
        cmocka_unit_test(rows_of_more_classes_than_the_model_has_are_not_balanced),
        cmocka_unit_test(a_release_loses_nothing_with_a_device),
        cmocka_unit_test(gradient_norms_are_recorded_with_the_same_bits_on_any_number_of_workers),
        cmocka_unit_test(each_has_the_same_bits_on_any_number_of_workers_and_after_a_stop),
        cmocka_unit_test(all_of_them_go_on_after_a_kill),
        cmocka_unit_test(wrong_patterns_are_refused_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
