/* SPDX-License-Identifier: MIT */
/* Compares the output of every layer type in an evaluation with numbers that were computed by hand
 * from docs/layers.md. Gradients (test_gradient.c) and hashes agree also if a layer computes
 * another function than its description says. */
#include "nn/nn_fixture.h"

#include "ref/ref.h"
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16 }; /* values of a row, weights, or outputs */

typedef struct layer_case {
    const char *type, *layers;
    ls_shape input;
    int outputs;
    float row[MOST], output[MOST];
    float weights[MOST]; /* parameters, then running statistics */
} layer_case;

#define NAMED(type) "{\"type\":\"" type "\"}"
#define LAYER(type, keys) "{\"type\":\"" type "\"," keys "}"
#define POOL_OF_NINE "\"kernel\":3,\"stride\":2,\"padding\":1"
/* the values times 2, and then a layer that also reads the values themselves */
#define TWICE_AND(type) LAYER("affine", "\"slope\":2") "," LAYER(type, "\"with\":\"input\"")

static const layer_case cases[] = {
    {"conv2d",
     LAYER("conv2d", "\"out\":1,\"kernel\":2"),
     {1, 3, 3},
     4,
     {1, 2, 3, 4, 5, 6, 7, 8, 9},
     {47, 57, 77, 87},
     {1, 2, 3, 4, 10}},
    {"conv2d",
     LAYER("conv2d", "\"out\":1,\"kernel\":2,\"stride\":2,\"padding\":1,\"bias\":false"),
     {1, 3, 3},
     4,
     {1, 2, 3, 4, 5, 6, 7, 8, 9},
     {4, 18, 36, 77},
     {1, 2, 3, 4}},
    {"dense", LAYER("dense", "\"out\":2"), {2, 1, 1}, 2, {1, 2}, {15, 31}, {1, 2, 3, 4, 10, 20}},
    {"relu", NAMED("relu"), {3, 1, 1}, 3, {-1, 0, 2}, {0, 0, 2}, {0}},
    {"avg_pool",
     LAYER("avg_pool", POOL_OF_NINE),
     {1, 3, 3},
     4,
     {1, 2, 3, 4, 5, 6, 7, 8, 9},
     {3, 4, 6, 7},
     {0}},
    {"avg_pool",
     LAYER("avg_pool", POOL_OF_NINE ",\"count_include_pad\":true"),
     {1, 3, 3},
     4,
     {1, 2, 3, 4, 5, 6, 7, 8, 9},
     {12 / 9.f, 16 / 9.f, 24 / 9.f, 28 / 9.f},
     {0}},
    {"max_pool",
     LAYER("max_pool", POOL_OF_NINE),
     {1, 3, 3},
     4,
     {-1, -2, -3, -4, -5, -6, -7, -8, -9},
     {-1, -2, -4, -5},
     {0}},
    {"flatten", NAMED("flatten"), {2, 1, 2}, 4, {1, 2, 3, 4}, {1, 2, 3, 4}, {0}},
    {"batch_norm",
     LAYER("batch_norm", "\"epsilon\":1"),
     {2, 1, 1},
     2,
     {1, 2},
     {11, 21},
     {2, 3, 10, 20, 0, 1, 3, 8}},
    {"add", TWICE_AND("add"), {2, 1, 1}, 2, {1, 2}, {3, 6}, {0}},
    {"global_avg_pool",
     NAMED("global_avg_pool"),
     {2, 2, 2},
     2,
     {1, 2, 3, 4, 5, 6, 7, 8},
     {2.5f, 6.5f},
     {0}},
    {"dropout", NAMED("dropout"), {2, 1, 1}, 2, {1, 2}, {1, 2}, {0}},
    {"sigmoid", NAMED("sigmoid"), {2, 1, 1}, 2, {0, 1.0986123f}, {0.5f, 0.75f}, {0}},
    {"tanh", NAMED("tanh"), {2, 1, 1}, 2, {0, 0.54930614f}, {0, 0.5f}, {0}},
    {"leaky_relu", NAMED("leaky_relu"), {2, 1, 1}, 2, {-1, 2}, {-0.01f, 2}, {0}},
    {"leaky_relu", LAYER("leaky_relu", "\"slope\":0.25"), {2, 1, 1}, 2, {-1, 2}, {-0.25f, 2}, {0}},
    {"gelu", NAMED("gelu"), {2, 1, 1}, 2, {1, -1}, {0.84134475f, -0.15865525f}, {0}},
    {"gelu",
     LAYER("gelu", "\"approximate\":\"tanh\""),
     {2, 1, 1},
     2,
     {1, -1},
     {0.84119199f, -0.15880801f},
     {0}},
    {"silu",
     NAMED("silu"),
     {2, 1, 1},
     2,
     {1.0986123f, -1.0986123f},
     {0.82395922f, -0.27465307f},
     {0}},
    {"layer_norm",
     LAYER("layer_norm", "\"epsilon\":1"),
     {2, 1, 1},
     2,
     {1, 1 + 2 * 1.7320508f}, /* the variance is 3 */
     {10 - 1.7320508f, 20 + 1.5f * 1.7320508f},
     {2, 3, 10, 20}},
    {"upsample",
     LAYER("upsample", "\"scale\":[2,3]"),
     {1, 1, 2},
     12,
     {1, 2},
     {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2},
     {0}},
    {"concat", TWICE_AND("concat"), {2, 1, 1}, 4, {1, 2}, {2, 4, 1, 2}, {0}},
    {"relu6", NAMED("relu6"), {3, 1, 1}, 3, {-1, 3, 7}, {0, 3, 6}, {0}},
    {"hard_sigmoid",
     NAMED("hard_sigmoid"),
     {4, 1, 1},
     4,
     {-4, 0, 1.5f, 4},
     {0, 0.5f, 0.75f, 1},
     {0}},
    {"hard_swish", NAMED("hard_swish"), {3, 1, 1}, 3, {-4, 1.5f, 4}, {0, 1.125f, 4}, {0}},
    {"multiply", TWICE_AND("multiply"), {2, 1, 1}, 2, {1, 3}, {2, 18}, {0}},
    {"pad",
     LAYER("pad", "\"padding\":[1,0,0,2]"),
     {1, 1, 2},
     8,
     {1, 2},
     {0, 0, 0, 0, 1, 2, 0, 0},
     {0}},
    {"clip", LAYER("clip", "\"min\":-1,\"max\":2"), {3, 1, 1}, 3, {-3, 0, 5}, {-1, 0, 2}, {0}},
    {"affine", LAYER("affine", "\"slope\":2,\"offset\":1"), {2, 1, 1}, 2, {1, -2}, {3, -3}, {0}},
#ifdef NEW_LAYER /* with a row for new_layer/layer_smooth.c in the list of layer types */
    {"smooth",
     NAMED("smooth"),
     {1, 3, 3},
     9,
     {1, 2, 3, 4, 5, 6, 7, 8, 9},
     {3, 3.5f, 4, 4.5f, 5, 5.5f, 6, 6.5f, 7},
     {0}},
#endif
};

/* A model must have parameters. So a dense layer with the unit matrix follows, which changes no
 * value. */
static ls_network *model_of(const layer_case *c)
{
    char text[512];
    snprintf(text, sizeof text, "[%s,%s,%s]", c->layers, NAMED("flatten"),
             LAYER("dense", "\"bias\":false"));
    return make_model(text, c->input, c->outputs);
}

static void set_weights(ls_replica *replica, const ls_network *model, const layer_case *c)
{
    float weights[MOST + MOST * MOST] = {0};
    const float *next = c->weights;
    ls_error err = {0};
    assert_true(model->floats <= sizeof weights / sizeof *weights);
    for (int i = 0; i + 1 < model->params; next += model->param[i++]->count)
        memcpy(weights + model->param[i]->offset, next, model->param[i]->count * sizeof *next);
    for (int i = 0; i < model->stats; next += model->stat[i++]->count)
        memcpy(weights + model->stat[i]->offset, next, model->stat[i]->count * sizeof *next);
    for (int k = 0; k < c->outputs; k++)
        weights[model->param[model->params - 1]->offset + (size_t)(k * (c->outputs + 1))] = 1;
    must(ls_replica_import(replica, ls_replica_weight_arena(replica), weights, &err), &err);
}

/* Evaluates the row of a case. */
static void run(float *out, const layer_case *c)
{
    static const uint32_t shards[] = {1}, first[] = {0};
    const int32_t label = 0;
    const ls_replica_data data = {.values = c->row, .labels = &label, .rows = 1};
    ls_device *device = open_ref64(NULL);
    ls_network *model = model_of(c);
    ls_replica *replica;
    ls_error err = {0};
    double loss, correct;
    const ls_replica_desc desc = {.device = device,
                                  .model = model,
                                  .shard_rows = shards,
                                  .shard_row_counts = 1,
                                  .normalisation = {.std = {1, 1, 1, 1}, .floats = 1},
                                  .scores = true,
                                  .data = {data, data}};
    must(ls_replica_create(&replica, &desc, &err), &err);
    set_weights(replica, model, c);
    must(ls_replica_evaluate(replica, LS_TEST, first, 1, &loss, &correct, out, &err), &err);
    ls_replica_destroy(replica);
    free_model(model);
    device->ops->close(device);
}

static void outputs_are_those_computed_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const layer_case *c = &cases[i];
        float out[MOST];
        assert_non_null(strstr(c->layers, c->type));
        run(out, c);
        for (int k = 0; k < c->outputs; k++)
            if (!(fabsf(out[k] - c->output[k]) <= 1e-6f * fmaxf(1, fabsf(c->output[k]))))
                fail_msg("%s: output %d is %.9g, expected %.9g", c->layers, k, (double)out[k],
                         (double)c->output[k]);
    }
}

static void every_layer_type_has_a_case(void **state)
{
    (void)state;
    for (const ls_layer_type *const *t = ls_layer_types(); *t; t++) {
        size_t i = 0;
        while (i < sizeof cases / sizeof *cases && strcmp(cases[i].type, (*t)->name) != 0)
            i++;
        if (i == sizeof cases / sizeof *cases)
            fail_msg("no case for the layer type %s", (*t)->name);
    }
}

LS_TESTS(nn_layer_values, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_type_has_a_case),
        cmocka_unit_test(outputs_are_those_computed_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
