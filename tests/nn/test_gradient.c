/* SPDX-License-Identifier: MIT */
/* Tests the gradients of every layer type, in every sample model of that type
 * (ls_layer_type.samples). On the reference back end with sums in double, the gradient of the
 * backward pass is compared with the slope of the loss. Every other back end is compared with the
 * reference back end. */
#include "nn/nn_fixture.h"

#include "ref/ref.h"
#include "runner.h"

#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Comparisons of back ends use more than sixteen rows, because some code computes sixteen rows at a
 * time. Slopes use few rows, so that few relus *switch*: a relu switches if its input changes its
 * sign. */
enum { ROWS = 20, SLOPE_ROWS = 4, MANY_ROWS = 70 };

/* A model and its replica on one device. */
typedef struct probe {
    ls_network *model;
    ls_device *device;
    ls_replica *replica;
    float *weights, *gradient;   /* canonical */
    uint32_t rows[MANY_ROWS], n; /* [n] row indices */
} probe;

static void probe_begin(probe *p, const struct ls_layer_sample *sample, ls_device *device,
                        const ls_replica_data *data, int classes, uint32_t n)
{
    static const ls_optimizer_type type = {.name = "sgd"};
    static const ls_optimizer sgd = {.type = &type,
                                     .op = {.size = sizeof(ls_op_desc), .kind = LS_OP_SGD}};
    const uint32_t shards[] = {n};
    ls_error err = {0};
    *p = (probe){.device = device, .n = n};
    p->model = make_model(sample->layers, sample->input, classes);
    ls_replica_desc desc = {
        .device = device,
        .model = p->model,
        .optimizer = &sgd,
        .shard_rows = shards,
        .shard_row_counts = 1,
        .normalisation = plain_pixels,
        .data = {*data, *data},
    };
    must(ls_replica_create(&p->replica, &desc, &err), &err);
    p->weights = calloc(p->model->floats, sizeof *p->weights);
    p->gradient = calloc(p->model->floats, sizeof *p->gradient);
    fill_weights(p->weights, p->model, 0.5f, 4);
    for (uint32_t i = 0; i < n; i++)
        p->rows[i] = n - 1 - i;
}

static void probe_end(probe *p)
{
    ls_replica_destroy(p->replica);
    p->device->ops->close(p->device);
    free(p->weights);
    free(p->gradient);
    free_model(p->model);
}

static double loss_of(probe *p)
{
    ls_error err = {0};
    double loss;
    double correct;
    must(ls_replica_import(p->replica, ls_replica_weight_arena(p->replica), p->weights, &err),
         &err);
    must(ls_replica_evaluate(p->replica, LS_TRAIN, p->rows, p->n, &loss, &correct, NULL, &err),
         &err);
    return loss;
}

static void compute_gradient(probe *p)
{
    ls_error err = {0};
    must(ls_replica_import(p->replica, ls_replica_weight_arena(p->replica), p->weights, &err),
         &err);
    must(ls_replica_gradient(p->replica, p->rows, p->n, 0, NULL, &err), &err);
    must(ls_replica_export(p->replica, p->gradient, ls_replica_gradient_arena(p->replica), &err),
         &err);
}

/* Returns whether the loss differs between training and evaluation, as with dropout. */
static int trains_differently(const ls_network *m)
{
    for (int i = 0; i < m->layers; i++)
        if (m->layer[i].op.kind == LS_OP_BATCHNORM || m->layer[i].op.kind == LS_OP_DROPOUT)
            return 1;
    return 0;
}

/* Returns the loss whose gradient the backward pass computes. */
static double trained_loss(probe *p)
{
    ls_error err = {0};
    if (!trains_differently(p->model))
        return loss_of(p);
    must(ls_replica_import(p->replica, ls_replica_weight_arena(p->replica), p->weights, &err),
         &err);
    must(ls_replica_gradient(p->replica, p->rows, p->n, 0, NULL, &err), &err);
    return (double)ls_replica_gradient_arena(p->replica)[ls_replica_tail_offset(p->replica)];
}

/* Returns the slope of the loss along weight i: the change of the loss between the weight's value
 * minus `step` and its value plus `step`, divided by the change of the weight. */
static double slope(probe *p, size_t i, float step)
{
    float at = p->weights[i];
    float high = at + step;
    float low = at - step;
    p->weights[i] = high;
    double up = trained_loss(p);
    p->weights[i] = low;
    double down = trained_loss(p);
    p->weights[i] = at;
    return (up - down) / ((double)high - (double)low);
}

/* Returns whether the slope agrees with the gradient for one of several values of `step`. If a relu
 * or a maximum switches between the two points, the slope is not the derivative. With a smaller
 * `step` usually nothing switches, but the rounding of the loss has more influence. The function
 * begins with the largest value. */
static int agrees(probe *p, size_t i)
{
    static const float steps[] = {4e-3f, 1e-3f, 2.5e-4f};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        double want = slope(p, i, steps[s]);
        if (fabs((double)p->gradient[i] - want) <= 2e-3 * (0.5 + fabs(want)))
            return 1;
    }
    return 0;
}

/* Returns whether nine of ten numbers agree. It is not required that all agree, because in a large
 * model some relu always switches. */
static int param_agrees(probe *p, const ls_param *param)
{
    /* tries about 60 numbers of a large parameter */
    const size_t stride = param->count > 60 ? param->count / 60 : 1;
    size_t right = 0;
    size_t tried = 0;
    for (size_t k = 0; k < param->count; k += stride, tried++)
        right += (size_t)agrees(p, param->offset + k);
    return 10 * right >= 9 * tried;
}

/* Returns the first parameter whose gradient is wrong, or NULL. */
static const ls_param *wrong_param(probe *p)
{
    compute_gradient(p);
    for (int i = 0; i < p->model->params; i++)
        if (!param_agrees(p, p->model->param[i]))
            return p->model->param[i];
    return NULL;
}

/* Tries several sets of weights, until the gradient is found correct. With some weights a relu's
 * input is nearly zero in a whole channel, and a correct gradient seems wrong. A gradient that is
 * really wrong is found wrong with all sets of weights. */
static void check_slopes(const struct ls_layer_sample *sample)
{
    probe p;
    const ls_param *wrong = NULL;
    ls_replica_data data = make_data(ROWS, sample->input, LS_SAMPLE_CLASSES, 3);
    probe_begin(&p, sample, open_ref64(NULL), &data, LS_SAMPLE_CLASSES, SLOPE_ROWS);
    for (uint64_t seed = 4; seed < 8; seed++) {
        fill_weights(p.weights, p.model, 0.5f, seed);
        wrong = wrong_param(&p);
        if (!wrong)
            break;
    }
    if (wrong)
        fail_msg("%s: the gradient of %s is not the loss's slope", sample->layers, wrong->name);
    probe_end(&p);
    free_data(&data);
}

static int occurs(const char *type, const struct ls_layer_sample *sample)
{
    ls_network *m = make_model(sample->layers, sample->input, LS_SAMPLE_CLASSES);
    int found = 0;
    for (int i = 0; i < m->layers; i++)
        found = found || strcmp(m->layer[i].type->name, type) == 0;
    free_model(m);
    return found;
}

static void every_layer_type_occurs_in_its_samples(void **state)
{
    (void)state;
    for (const ls_layer_type *const *t = ls_layer_types(); *t; t++) {
        assert_non_null((*t)->samples);
        assert_non_null((*t)->samples[0].layers);
        for (const struct ls_layer_sample *s = (*t)->samples; s->layers; s++)
            if (!occurs((*t)->name, s))
                fail_msg("%s has a sample without it: %s", (*t)->name, s->layers);
    }
}

#ifdef NEW_LAYER
/* One of the two programs that contain this file is built with an additional row in the list of
 * layer types. */
static void the_new_layer_is_among_them(void **state)
{
    (void)state;
    const ls_layer_type *const *t = ls_layer_types();
    while (*t && strcmp((*t)->name, NEW_LAYER) != 0)
        t++;
    assert_non_null(*t);
}
#endif

static void gradients_are_slopes_of_the_loss(void **state)
{
    (void)state;
    for (const ls_layer_type *const *t = ls_layer_types(); *t; t++)
        for (const struct ls_layer_sample *s = (*t)->samples; s->layers; s++)
            check_slopes(s);
}

#define TOLERANCE 3e-5 /* largest error of fp32 compared with double; terms of a sum can cancel */

/* ---- other back ends ------------------------------------------------------------------------ */

typedef struct back_end {
    const char *name;
    const ls_backend *(*get)(void);
} back_end;

#ifdef LOCKSTEP_OPS_CUDA
#include "cuda_ops/cuda_backend.h"
#endif

static const back_end back_ends[] = {
    {"ref", ls_ref_backend},
#ifdef LOCKSTEP_OPS_CUDA
    {"cuda", test_cuda_backend},
#endif
#ifdef LOCKSTEP_WITH_CPU
    {"cpu", ls_cpu_backend},
#endif
};

static ls_device *open_device(const back_end *which)
{
    ls_device *device = NULL;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_error err = {0};
    must(which->get()->open(&device, &request, &err), &err);
    must(device->ops->bind(device, &err), &err);
    return device;
}

static double squares(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Returns the scale to which the error of n numbers of a gradient is compared. The scale is the
 * norm of these numbers. If the numbers are nearly zero compared with the whole gradient, the scale
 * is computed from the whole gradient instead. (A bias that changes all logits equally has the
 * gradient zero.) */
static double scale_of(const probe *p, double norm_squared, size_t n)
{
    double mean = 0;
    for (int i = 0; i < p->model->params; i++)
        mean += squares(p->gradient + p->model->param[i]->offset, p->model->param[i]->count);
    mean /= (double)p->model->parameters;
    return sqrt(fmax(norm_squared, 1e-2 * mean * (double)n));
}

static double error_of(const probe *got, const probe *want, const ls_param *p)
{
    double difference = 0;
    for (size_t i = p->offset; i < p->offset + p->count; i++)
        difference += pow((double)got->gradient[i] - (double)want->gradient[i], 2);
    return sqrt(difference) /
           scale_of(want, squares(want->gradient + p->offset, p->count), p->count);
}

static void compare(const back_end *other, const struct ls_layer_sample *sample, int classes,
                    uint32_t n)
{
    probe want;
    probe got;
    ls_replica_data data = make_data(n, sample->input, classes, 3);
    probe_begin(&want, sample, open_ref64(NULL), &data, classes, n);
    probe_begin(&got, sample, open_device(other), &data, classes, n);
    double loss[2] = {loss_of(&want), loss_of(&got)};
    if (fabs(loss[1] - loss[0]) > 1e-5 * loss[0])
        fail_msg("%s: %s: loss %.9g, expected %.9g", other->name, sample->layers, loss[1], loss[0]);
    compute_gradient(&want);
    compute_gradient(&got);
    for (int i = 0; i < want.model->params; i++) {
        const ls_param *p = want.model->param[i];
        double error = error_of(&got, &want, p);
        if (error > TOLERANCE)
            fail_msg("%s: %s: gradient of %s is off by %.2g", other->name, sample->layers, p->name,
                     error);
    }
    probe_end(&want);
    probe_end(&got);
    free_data(&data);
}

static void every_back_end_agrees_with_the_reference(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof back_ends / sizeof *back_ends; d++)
        for (const ls_layer_type *const *t = ls_layer_types(); *t; t++)
            for (const struct ls_layer_sample *s = (*t)->samples; s->layers; s++)
                compare(&back_ends[d], s, LS_SAMPLE_CLASSES, ROWS);
}

/* Uses more rows than a back end's preferred block, and a last block with fewer rows. */
static void lenet_in_blocks_agrees_with_the_reference(void **state)
{
    (void)state;
    const struct ls_layer_sample lenet = {lenet_json, {1, 28, 28}};
    for (size_t d = 0; d < sizeof back_ends / sizeof *back_ends; d++)
        compare(&back_ends[d], &lenet, 10, MANY_ROWS);
}

LS_TESTS(nn_gradient, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
#ifdef NEW_LAYER
        cmocka_unit_test(the_new_layer_is_among_them),
#endif
        cmocka_unit_test(every_layer_type_occurs_in_its_samples),
        cmocka_unit_test(gradients_are_slopes_of_the_loss),
        cmocka_unit_test(every_back_end_agrees_with_the_reference),
        cmocka_unit_test(lenet_in_blocks_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
