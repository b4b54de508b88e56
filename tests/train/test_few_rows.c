/* SPDX-License-Identifier: MIT */
/* Tests that the prediction for a row has the same bits, with any other rows in the same call. Rows
 * are predicted one at a time, a few at a time and sixteen at a time. The networks come from a
 * generator of random networks, or have layers that are wide enough for Winograd's algorithm.
 *
 *     few_rows NETS WIDE     NETS: number of random networks; WIDE: number of wide networks */
#include "campaigns/swarm.h"
#include "runner.h"
#include "train/kernels.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 48, MOST = 40 };

#define CONV(rest) "{\"type\":\"conv2d\"," rest "}"
#define RELU "{\"type\":\"relu\"}"
#define POOL "{\"type\":\"avg_pool\",\"kernel\":2}"
#define NORM(rest) ",{\"type\":\"batch_norm\"" rest "}"
#define ADD(with) ",{\"type\":\"add\",\"with\":\"" with "\"}"
#define RELU_ "," RELU
#define CONV_(rest) "," CONV(rest)
#define END "{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":10}"

static const char *const wide[] = {
    /* A LeNet: small kernel windows, 5 × 5 windows that are computed in two halves, and a dense
     * layer whose number of outputs is no multiple of 16. */
    CONV("\"out\":20,\"kernel\":3") "," RELU "," POOL "," CONV(
        "\"out\":50,\"kernel\":5") "," RELU "," POOL
                                   ",{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":150}," RELU
                                   ",{\"type\":\"dense\",\"out\":10}",
    /* Windows of 3 × 3 with pooling. The blocks of outputs that are computed at once (tiles) extend
     * over the edge of the image, and there are more channels than are summed at once. */
    CONV("\"out\":18,\"kernel\":3,\"stride\":3") "," CONV(
        "\"out\":72,\"kernel\":3,\"padding\":1") "," RELU
                                                 "," CONV(
                                                     "\"out\":17,\"kernel\":3,\"padding\":2") "," RELU
                                                                                              "," POOL
                                                                                              "," END,
    /* Strides, windows of one pixel, dilation, groups, groups of one channel, more than 64 inputs,
     * and a pool of three rows. */
    CONV("\"out\":70,\"kernel\":5,\"stride\":2,\"padding\":2") ",{\"type\":\"batch_norm\"}," RELU "," CONV("\"out\":24,\"kernel\":1,\"stride\":2") "," CONV("\"out\":24,\"kernel\":3,\"padding\":1,\"groups\":24") "," CONV(
        "\"out\":12,\"kernel\":[3,1],\"dilation\":[2,1],\"padding\":[2,0]") "," RELU
                                                                            ",{\"type\":\"avg_pool\",\"kernel\":[3,2]}," CONV(
                                                                                "\"out\":12,\"kernel\":3,\"padding\":1,\"groups\":3") "," END,
    /* A batch norm in the store of each form of convolution: with one tap, with strides, by
     * Winograd's algorithm, depthwise; with additions of an earlier output, of the input of the
     * network, and of an output that is computed after the convolution. A convolution that two
     * layers read keeps its own output. Channels beyond whole sixteens and beyond 64. */
    CONV("\"name\":\"a\",\"out\":70,\"kernel\":3,\"stride\":3") NORM("")
        RELU_ CONV_("\"out\":70,\"kernel\":3,\"padding\":1") NORM("") ADD("a")
            RELU_ CONV_("\"name\":\"b\",\"out\":70,\"kernel\":5,\"padding\":2")
                CONV_("\"name\":\"d\",\"out\":70,\"kernel\":1,\"from\":\"a\"")
                    NORM(",\"name\":\"n\",\"from\":\"b\"") ADD("d")
                        RELU_ CONV_("\"out\":70,\"kernel\":3,\"padding\":1,\"groups\":70") NORM("")
                            RELU_ CONV_("\"name\":\"e\",\"out\":33,\"kernel\":1,\"stride\":2")
                                NORM("") ADD("e") "," END,
    /* A network like a U-Net: upsampling, and joined channels that do not begin a sixteen. */
    CONV("\"name\":\"a\",\"out\":20,\"kernel\":3,\"padding\":1") "," RELU ",{\"type\":\"max_pool\",\"name\":\"p\",\"kernel\":2}," CONV(
        "\"out\":24,\"kernel\":3,\"padding\":1,\"groups\":2")
        NORM(
            "") ",{\"type\":\"upsample\",\"scale\":2},{\"type\":\"pad\",\"padding\":1},{\"type\":\"max_pool\",\"kernel\":3,\"stride\":1},{\"type\":\"concat\",\"with\":\"a\"},"
                "{\"type\":\"concat\",\"with\":\"input\"}," CONV(
                    "\"out\":17,\"kernel\":3,\"padding\":[2,0],\"dilation\":2") NORM("") RELU_
    ",{\"type\":\"layer_norm\"}," END,
};

/* Returns the text of network number `net`. The first `drawn` networks come from the generator of
 * random networks; the others are in the array above. */
static char *text_of(int net, int drawn, const ls_data_source *data)
{
    static char text[65536];
    draws d = {.seed = 36, .number = (uint32_t)net};
    if (net < drawn) {
        cJSON *model = swarm_model(&d, data, data->classes);
        char *json = cJSON_PrintUnformatted(model);
        snprintf(text, sizeof text, "model=%s", json);
        cJSON_free(json);
        cJSON_Delete(model);
    } else {
        snprintf(text, sizeof text, "model={\"layers\":[%s]}", wide[net - drawn]);
    }
    return text;
}

typedef struct scenario {
    fixture f;
    ls_data_source data;
    const ls_data_source *sources[1];
} scenario;

/* Opens a trainer for the model, which the caller closes. */
static ls_trainer *opened(scenario *s, const char *model)
{
    fixture_begin(&s->f);
    s->data = own_data(0);
    fixture_use_source(&s->f, &s->data, s->sources);
    fixture_set(&s->f, "devices=cpu:1");
    fixture_set(&s->f, "batch_size=48");
    fixture_set(&s->f, "shards=1");
    fixture_set(&s->f, "epochs=1");
    fixture_set(&s->f, "optimizer.lr=0.01");
    fixture_set(&s->f, "init={\"name\":\"kaiming\"}");
    fixture_set(&s->f, model);
    return fixture_open(&s->f);
}

static ls_model *model_of(ls_trainer *t, scenario *s)
{
    ls_model *now;
    if (ls_trainer_model(&now, t, &s->f.err) != LS_OK)
        fail_msg("%s", s->f.err.text);
    return now;
}

static void predict(ls_model *net, const uint8_t *images, uint32_t n, float *scores,
                    const char *model)
{
    ls_error err;
    if (ls_model_predict(net, images, LS_ROW_U8, n, LS_OUTPUT_LOGITS, scores,
                         (size_t)n * OWN_CLASSES, &err) != LS_OK)
        fail_msg("%s\n%s", err.text, model);
}

/* Checks that the predictions of 1 to `most` rows have the bits of `all`, the predictions of all
 * rows. */
static void compare(ls_model *net, const uint8_t *images, const float *all, uint32_t most,
                    const char *model)
{
    static float some[MOST * OWN_CLASSES];
    for (uint32_t n = 1; n <= most; n++) {
        /* the row gets another position among the sixteen rows that a vector register holds */
        const uint32_t first = n * 5 % (ROWS - n + 1);
        predict(net, images + first * OWN_PIXELS, n, some, model);
        for (uint32_t i = 0; i < n; i++)
            if (memcmp(some + i * OWN_CLASSES, all + (first + i) * OWN_CLASSES,
                       OWN_CLASSES * sizeof *all) != 0)
                fail_msg("row %u of %u has other bits than among %d\n%s", (unsigned)i, (unsigned)n,
                         ROWS, model);
    }
}

/* number of drawn nets that learnt nothing, for example because a product with the output of a relu
 * is 0 for every row */
static int dead;

/* Checks that the outputs of a net that has learnt nothing do not depend on the row. */
static void check_dead(const float *outputs, const char *model)
{
    dead++;
    for (int i = 1; i < ROWS; i++)
        if (memcmp(outputs, outputs + i * OWN_CLASSES, OWN_CLASSES * sizeof *outputs) != 0)
            fail_msg("training changed no output\n%s", model);
}

/* Checks a model before and after a few steps of training, after which no weight has a special
 * value such as 0. Both snapshots share what is prepared for predictions, so that the weights
 * change between two predictions. */
static void check(const char *model, const uint8_t *images)
{
    static float before[ROWS * OWN_CLASSES], after[ROWS * OWN_CLASSES];
    static scenario s;
    ls_trainer *t = opened(&s, model);
    ls_model *initial = model_of(t, &s);
    predict(initial, images, ROWS, before, model); /* three groups of sixteen */
    compare(initial, images, before, 2, model);
    if (ls_trainer_run(t, &s.f.err) != LS_OK)
        fail_msg("%s\n%s", s.f.err.text, model);
    ls_model *trained = model_of(t, &s);
    predict(trained, images, ROWS, after, model);
    if (memcmp(before, after, sizeof before) == 0)
        check_dead(before, model);
    compare(trained, images, after, MOST, model);
    compare(initial, images, before, 1, model);
    ls_model_release(trained);
    ls_model_release(initial);
    ls_trainer_close(t, NULL);
    fixture_end(&s.f);
}

static int nets, wide_nets;

static void a_row_has_its_bits_whatever_comes_with_it(void **state)
{
    static uint8_t images[ROWS * OWN_PIXELS];
    const ls_data_source data = own_data(0);
    const int all = nets + wide_nets;
    int32_t label;
    (void)state;
    for (uint32_t i = 0; i < ROWS; i++)
        own_row(0, i, images + (size_t)i * OWN_PIXELS, &label);
    for (int net = 0; net < all; net++)
        check(text_of(net, nets, &data), images);
    assert_in_range(dead, 0, all / 50);
}

static void the_kernels_are_those_that_are_meant(void **state)
{
    (void)state;
    kernels_that_are_meant();
}

LS_TESTS(few_rows, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_are_those_that_are_meant),
        cmocka_unit_test(a_row_has_its_bits_whatever_comes_with_it),
    };
    if (argc < 3)
        return 2;
    nets = atoi(argv[1]);
    wide_nets = atoi(argv[2]);
    if (wide_nets > (int)(sizeof wide / sizeof *wide))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
