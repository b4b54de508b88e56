/* SPDX-License-Identifier: MIT */
/* Tests the reading of a model from JSON: shapes, parameters and their names, and every kind of
 * error. */
#include "nn/nn_fixture.h"
#include "runner.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_shape gray28 = {1, 28, 28};

static void assert_shape(ls_shape got, int c, int h, int w)
{
    assert_int_equal(got.c, c);
    assert_int_equal(got.h, h);
    assert_int_equal(got.w, w);
}

static void assert_dims(const ls_param *p, const char *name, int rank, int a, int b, int c, int d)
{
    const int want[4] = {a, b, c, d};
    assert_string_equal(p->name, name);
    assert_int_equal(p->rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(p->dim[i], want[i]);
}

static void lenet_has_the_seeds_parameters(void **state)
{
    (void)state;
    ls_network *m = make_model(lenet_json, gray28, 10);
    assert_string_equal(m->name, "lenet");
    assert_int_equal(m->floats, 129068);
    assert_int_equal(m->floats * sizeof(float), 516272);
    assert_int_equal(m->params, 8);
    assert_dims(m->param[0], "conv1.weight", 4, 20, 1, 3, 3);
    assert_dims(m->param[1], "conv1.bias", 1, 20, 0, 0, 0);
    assert_dims(m->param[2], "conv2.weight", 4, 50, 20, 5, 5);
    assert_dims(m->param[3], "conv2.bias", 1, 50, 0, 0, 0);
    assert_dims(m->param[4], "fc1.weight", 2, 128, 800, 0, 0); /* shape [out][in], as in PyTorch */
    assert_dims(m->param[5], "fc1.bias", 1, 128, 0, 0, 0);
    assert_dims(m->param[6], "fc2.weight", 2, 10, 128, 0, 0);
    assert_dims(m->param[7], "fc2.bias", 1, 10, 0, 0, 0);
    size_t offset = 0;
    for (int i = 0; i < m->params; i++) {
        assert_int_equal(m->param[i]->offset, offset);
        assert_int_equal(m->param[i]->start, i % 2 ? LS_START_ZEROS : LS_START_DRAWN);
        offset += m->param[i]->count;
    }
    assert_int_equal(m->param[2]->fan_in, 500);
    assert_int_equal(m->param[2]->fan_out, 1250);
    assert_int_equal(m->param[6]->fan_in, 128);
    assert_int_equal(m->param[6]->fan_out, 10);
    free_model(m);
}

static void lenet_has_the_seeds_shapes(void **state)
{
    (void)state;
    ls_network *m = make_model(lenet_json, gray28, 10);
    assert_int_equal(m->layers, 10);
    assert_shape(m->layer[0].out, 20, 26, 26);
    assert_shape(m->layer[2].out, 20, 13, 13);
    assert_shape(m->layer[3].out, 50, 9, 9);
    assert_shape(m->layer[5].out, 50, 4, 4);
    assert_shape(m->layer[6].out, 800, 1, 1);
    assert_shape(m->layer[6].y, 50, 4, 4); /* flatten moves nothing */
    assert_int_equal(m->layer[6].op.kind, 0);
    assert_true(m->layer[7].in_is_flattened);
    assert_false(m->layer[9].in_is_flattened);
    assert_shape(m->layer[9].out, 10, 1, 1);
    assert_string_equal(m->layer[1].name, "1"); /* the default name is the position in the list */
    assert_string_equal(m->layer[7].name, "fc1");
    free_model(m);
}

static void a_last_layer_gives_what_the_data_has(void **state)
{
    (void)state;
    ls_network *m = make_model("[{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":\"classes\"},"
                               "{\"type\":\"relu\"},{\"type\":\"dense\"}]",
                               gray28, 7);
    assert_shape(m->layer[1].out, 7, 1, 1);
    assert_shape(m->layer[3].out, 7, 1, 1);
    free_model(m);
    m = make_model(
        "[{\"type\":\"conv2d\",\"kernel\":3,\"out\":\"classes\"},{\"type\":\"global_avg_pool\"}]",
        gray28, 5);
    assert_shape(m->layer[1].out, 5, 1, 1);
    free_model(m);
}

/* Equals torch.nn.Conv2d(8, 12, (3, 5), dilation=(2, 1), groups=4), with the fans that
 * torch.nn.init computes. */
static void groups_and_dilation_have_pytorchs_shapes_and_fans(void **state)
{
    (void)state;
    ls_network *m = make_model(
        "[{\"type\":\"conv2d\",\"name\":\"c\",\"out\":12,\"kernel\":[3,5],\"groups\":4,"
        "\"dilation\":[2,1],\"padding\":[3,0]},"
        "{\"type\":\"conv2d\",\"name\":\"d\",\"out\":12,\"kernel\":3,\"groups\":12,\"bias\":false},"
        "{\"type\":\"flatten\"},{\"type\":\"dense\",\"out\":3}]",
        (ls_shape){8, 20, 20}, 3);
    assert_dims(m->param[0], "c.weight", 4, 12, 2, 3, 5);
    assert_dims(m->param[1], "c.bias", 1, 12, 0, 0, 0);
    assert_dims(m->param[2], "d.weight", 4, 12, 1, 3, 3);
    assert_int_equal(m->param[0]->fan_in, 30);
    assert_int_equal(m->param[0]->fan_out, 180);
    assert_int_equal(m->param[2]->fan_in, 9);
    assert_int_equal(m->param[2]->fan_out, 108);
    assert_shape(m->layer[0].out, 12, 22, 16);
    assert_shape(m->layer[1].out, 12, 20, 14);
    free_model(m);
}

static void keys_are_read_as_documented(void **state)
{
    (void)state;
    ls_network *m = make_model(
        "[{\"type\":\"conv2d\",\"name\":\"a\",\"out\":4,\"kernel\":[3,5],\"stride\":[2,1],"
        "\"padding\":[0,2],\"bias\":false},"
        "{\"type\":\"max_pool\",\"kernel\":[3,2],\"padding\":1,\"from\":\"a\"},"
        "{\"type\":\"avg_pool\",\"kernel\":3,\"stride\":1},"
        "{\"type\":\"flatten\"},{\"type\":\"relu\"},{\"type\":\"dense\",\"out\":3}]",
        (ls_shape){2, 20, 20}, 3);
    const ls_conv2d *conv = &m->layer[0].op.u.conv2d;
    const ls_pool2d *max = &m->layer[1].op.pool;
    const ls_pool2d *avg = &m->layer[2].op.pool;
    assert_int_equal(m->layer[0].params, 1);
    assert_int_equal(conv->kh * 10 + conv->kw, 35);
    assert_int_equal(conv->sh * 10 + conv->sw, 21);
    assert_int_equal(conv->ph * 10 + conv->pw, 2);
    assert_false(conv->bias);
    assert_shape(m->layer[0].out, 4, 9, 20);
    assert_true(max->max);
    assert_int_equal(max->sh * 10 + max->sw, 32); /* the default stride is the kernel */
    assert_shape(m->layer[1].out, 4, 3, 11);
    assert_false(avg->max);
    assert_int_equal(avg->sh * 10 + avg->sw, 11);
    assert_shape(m->layer[2].out, 4, 1, 9);
    assert_shape(m->layer[4].y, 4, 1, 9); /* a relu after a flatten computes on the image */
    assert_shape(m->layer[4].out, 36, 1, 1);
    free_model(m);
}

/* ---- errors, with the exact messages -------------- */

typedef struct bad {
    const char *layers; /* a list of layers, or a whole model if it begins with '{' */
    const char *message;
} bad;

#define DENSE10 "{\"type\":\"dense\",\"out\":10}"
#define FLAT "{\"type\":\"flatten\"}"
#define REST "," FLAT "," DENSE10 "]"

static const bad bads[] = {
#include "nn/bad_models.inc"
};

static void check_bad(const bad *b)
{
    char text[4096];
    ls_json *doc = NULL;
    ls_network *model = NULL;
    ls_error err = {0};
    snprintf(text, sizeof text, b->layers[0] == '{' ? "%s" : "{\"layers\":%s}", b->layers);
    must(ls_json_parse(&doc, "m.json", text, strlen(text), NULL, &err), &err);
    int rc = ls_network_parse(&model, doc, ls_json_root(doc), gray28, 10, NULL, &err);
    assert_null(model);
    assert_string_equal(err.text, b->message);
    assert_int_equal(rc, LS_ECONFIG);
    assert_int_equal(err.status, LS_ECONFIG);
    /* without the data, the same keys are refused, with the same message */
    err = (ls_error){0};
    rc = ls_network_check(doc, ls_json_root(doc), NULL, &err);
    if (strstr(b->message, "unknown ")) {
        assert_int_equal(rc, LS_ECONFIG);
        assert_string_equal(err.text, b->message);
    }
    ls_json_destroy(doc);
}

static void every_bad_model_is_refused_with_its_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++)
        check_bad(&bads[i]);
}

/* The list of a message that would be too long ends with the number of the other types. */
static void an_unknown_type_like_no_other_is_answered_with_the_types(void **state)
{
    static const char text[] = "{\"layers\":[{\"type\":\"attention\"}]}";
    static const char before[] =
        "m.json:1:20: layer 0: unknown type \"attention\"; expected one of: ";
    const ls_layer_type *const *types = ls_layer_types();
    char rest[32] = "";
    int count = 0, shown = 0;
    ls_json *doc = NULL;
    ls_error err = {0};
    (void)state;
    while (types[count])
        count++;
    must(ls_json_parse(&doc, "m.json", text, strlen(text), NULL, &err), &err);
    assert_int_equal(ls_network_check(doc, ls_json_root(doc), NULL, &err), LS_ECONFIG);
    ls_json_destroy(doc);
    assert_memory_equal(err.text, before, strlen(before));
    const char *at = err.text + strlen(before);
    for (; shown < count; shown++) {
        char word[64];
        const int n = snprintf(word, sizeof word, "%s%s", shown ? ", " : "", types[shown]->name);
        if (strncmp(at, word, (size_t)n) != 0)
            break;
        at += n;
    }
    if (shown < count)
        snprintf(rest, sizeof rest, " and %d more", count - shown);
    assert_string_equal(at, rest);
    assert_true(shown >= 20);
}

/* A model whose keys are right passes ls_network_check, even if its shapes fit no data. */
static void a_check_without_data_computes_no_shapes(void **state)
{
    (void)state;
    static const char text[] =
        "{\"blocks\":{\"b\":[{\"type\":\"conv2d\",\"out\":\"$n\",\"kernel\":99},"
        "{\"type\":\"add\",\"with\":\"input\"}]},"
        "\"layers\":[{\"block\":\"b\",\"n\":3},"
        "{\"type\":\"conv2d\",\"out\":\"classes\",\"kernel\":3,\"groups\":2}]}";
    counting_host h;
    ls_json *doc = NULL;
    ls_error err = {0};
    must(ls_json_parse(&doc, "m.json", text, strlen(text), NULL, &err), &err);
    counting_host_init(&h);
    must(ls_network_check(doc, ls_json_root(doc), &h.host, &err), &err);
    assert_int_equal(h.live, 0);
    ls_json_destroy(doc);
}

static void a_model_of_too_many_layers_is_refused(void **state)
{
    (void)state;
    enum { LAYERS = LS_MODEL_LAYERS + 1 };
    static char text[LAYERS * 16 + 64] = "{\"layers\":[";
    size_t n = strlen(text);
    for (int i = 0; i < LAYERS; i++)
        n += (size_t)sprintf(text + n, "%s{\"type\":\"relu\"}", i ? "," : "");
    strcpy(text + n, "]}");
    ls_json *doc = NULL;
    ls_network *model = NULL;
    ls_error err = {0};
    must(ls_json_parse(&doc, "m.json", text, strlen(text), NULL, &err), &err);
    assert_int_equal(ls_network_parse(&model, doc, ls_json_root(doc), gray28, 10, NULL, &err),
                     LS_ECONFIG);
    assert_string_equal(err.text, "m.json:1:11: model: expected at most 1000 layers, found 1001");
    ls_json_destroy(doc);
}

static void an_impossible_input_is_refused(void **state)
{
    (void)state;
    static const ls_shape inputs[] = {{0, 1, 1},
                                      {1, -3, 1},
                                      {INT_MAX, INT_MAX, INT_MAX},
                                      {1 << 20, 1 << 20, 1},
                                      {1, 1 << 15, 1 << 15}};
    static const char text[] = "{\"layers\":[" DENSE10 "]}";
    ls_json *doc = NULL;
    ls_network *model = NULL;
    ls_error err = {0};
    must(ls_json_parse(&doc, "m.json", text, strlen(text), NULL, &err), &err);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        assert_int_equal(
            ls_network_parse(&model, doc, ls_json_root(doc), inputs[i], 10, NULL, &err), LS_EINVAL);
    assert_int_equal(ls_network_parse(&model, doc, ls_json_root(doc), gray28, 0, NULL, &err),
                     LS_EINVAL);
    ls_json_destroy(doc);
}

static void a_failed_allocation_leaks_nothing(void **state)
{
    (void)state;
    counting_host h;
    ls_json *doc = NULL;
    ls_error err = {0};
    must(ls_json_parse(&doc, "m.json", lenet_json, strlen(lenet_json), NULL, &err), &err);
    long n = 0;
    int rc;
    do {
        ls_network *model = NULL;
        counting_host_init(&h);
        h.fail_at = ++n;
        rc = ls_network_parse(&model, doc, ls_json_root(doc), gray28, 10, &h.host, &err);
        if (rc == LS_OK)
            ls_network_destroy(model, &h.host);
        else
            assert_int_equal(rc, LS_ENOMEM);
        assert_int_equal(h.live, 0);
    } while (rc != LS_OK);
    assert_int_equal(n, 6); /* in five runs of the loop one allocation failed */
    ls_json_destroy(doc);
}

/* ---- optimizer ---- */

static int parse_optimizer(ls_optimizer *out, const char *text, ls_error *err)
{
    ls_json *doc = NULL;
    must(ls_json_parse(&doc, "o.json", text, strlen(text), NULL, err), err);
    int rc = ls_optimizer_parse(out, doc, ls_json_root(doc), err);
    ls_json_destroy(doc);
    return rc;
}

static void sgd_reads_its_keys(void **state)
{
    (void)state;
    ls_optimizer o;
    ls_error err = {0};
    must(parse_optimizer(&o, "{\"name\":\"sgd\",\"lr\":0.2}", &err), &err);
    assert_int_equal(o.op.kind, LS_OP_SGD);
    assert_true(o.lr == 0.2);
    assert_int_equal(o.slots, 0);
    must(parse_optimizer(&o, "{\"lr\":1e-3,\"momentum\":0.5,\"weight_decay\":0.25}", &err), &err);
    assert_true(o.op.u.sgd.momentum == 0.5f);
    assert_true(o.op.u.sgd.weight_decay == 0.25f);
    assert_int_equal(o.slots, 1);
    must(parse_optimizer(&o, "{\"lr\":1,\"momentum\":0.5,\"nesterov\":true}", &err), &err);
    assert_true(o.op.u.sgd.nesterov);
}

static void adamw_reads_its_keys(void **state)
{
    (void)state;
    ls_optimizer o;
    ls_error err = {0};
    must(parse_optimizer(&o, "{\"name\":\"adamw\",\"lr\":0.25}", &err), &err);
    const ls_adamw *a = &o.op.u.adamw;
    assert_int_equal(o.op.kind, LS_OP_ADAMW);
    assert_int_equal(o.slots, 2);
    assert_true(a->beta1 == 0.9f && a->beta2 == 0.999f && a->epsilon == 1e-8f);
    assert_true(a->weight_decay == 0.01f);
    must(parse_optimizer(&o,
                         "{\"name\":\"adamw\",\"lr\":1,\"beta1\":0.5,\"beta2\":0.75,"
                         "\"epsilon\":0.125,\"weight_decay\":0}",
                         &err),
         &err);
    assert_true(a->beta1 == 0.5f && a->beta2 == 0.75f && a->epsilon == 0.125f);
    assert_true(a->weight_decay == 0);
}

/* ls_optimizer_parse must accept the written text, and the text must contain the defaults. */
static void an_optimizer_is_written_as_it_is_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"name\":\"sgd\",\"lr\":0.5,\"clip_norm\":0,\"momentum\":0.25,\"weight_decay\":0,\"nesterov\":true}",
        "{\"name\":\"adamw\",\"lr\":0.5,\"clip_norm\":2.5,\"beta1\":0.9,\"beta2\":0.999,\"epsilon\":1e-08,"
        "\"weight_decay\":0.01}",
    };
    for (int i = 0; i < 2; i++) {
        ls_optimizer o;
        ls_error err = {0};
        ls_json_writer w;
        size_t length;
        must(parse_optimizer(&o, texts[i], &err), &err);
        ls_json_writer_init(&w, 0, NULL);
        ls_optimizer_write(&w, NULL, &o);
        assert_string_equal(ls_json_writer_text(&w, &length, &err), texts[i]);
        ls_json_writer_fini(&w);
    }
}

static void a_bad_optimizer_is_refused_with_its_message(void **state)
{
    (void)state;
    static const bad cases[] = {
        {"{}", "o.json:1:1: optimizer: \"lr\" is missing; add it"},
        {"3", "o.json:1:1: optimizer: expected an object {…}, found a number"},
        {"{\"name\":\"sdg\",\"lr\":1}",
         "o.json:1:9: optimizer: unknown name \"sdg\"; did you mean \"sgd\"?"},
        {"{\"name\":\"lion\",\"lr\":1}",
         "o.json:1:9: optimizer: unknown name \"lion\"; expected one of: sgd, adamw"},
        {"{\"lr\":1,\"nesterov\":true}",
         "o.json:1:20: optimizer: \"nesterov\" needs momentum; add \"momentum\", such as 0.9"},
        {"{\"name\":\"adamw\",\"lr\":1,\"beta2\":1}",
         "o.json:1:32: optimizer: \"beta2\" must be less than 1: old gradients would never fade"},
        /* epsilon 0 is refused, because a parameter whose gradients were all 0 would become 0/0 */
        {"{\"name\":\"adamw\",\"lr\":1,\"epsilon\":0}",
         "o.json:1:34: optimizer: \"epsilon\" must be a number from 1e-30 to 1, found 0"},
        {"{\"name\":\"adamw\",\"lr\":1,\"momentum\":0.9}",
         "o.json:1:24: optimizer: unknown key \"momentum\"; known keys: name, lr, clip_norm, beta1, beta2, "
         "epsilon, weight_decay"},
        {"{\"lr\":-1}",
         "o.json:1:7: optimizer: \"lr\" must be a number from 0 to 1000000, found -1"},
        {"{\"lr\":\"0.1\"}",
         "o.json:1:7: optimizer: \"lr\" must be a number from 0 to 1000000, found \"0.1\""},
        {"{\"lr\":1,\"momentum\":1}",
         "o.json:1:20: optimizer: \"momentum\" must be less than 1: old gradients would never "
         "fade"},
        {"{\"lr\":1,\"momentun\":0.9}",
         "o.json:1:9: optimizer: unknown key \"momentun\"; did you mean \"momentum\"?"},
        {"{\"l\":1}", "o.json:1:2: optimizer: unknown key \"l\"; did you mean \"lr\"?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_optimizer o;
        ls_error err = {0};
        assert_int_equal(parse_optimizer(&o, cases[i].layers, &err), LS_ECONFIG);
        assert_string_equal(err.text, cases[i].message);
    }
}

/* Prints the messages of all bad models. A programmer who has changed a message copies the output
 * to bad_models.inc. */
static int print_messages(void)
{
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        char text[4096];
        ls_json *doc = NULL;
        ls_network *model = NULL;
        ls_error err = {0};
        snprintf(text, sizeof text, bads[i].layers[0] == '{' ? "%s" : "{\"layers\":%s}",
                 bads[i].layers);
        if (ls_json_parse(&doc, "m.json", text, strlen(text), NULL, &err) == LS_OK)
            ls_network_parse(&model, doc, ls_json_root(doc), gray28, 10, NULL, &err);
        printf("%s\n    %s\n", text, err.text);
        ls_network_destroy(model, NULL);
        ls_json_destroy(doc);
    }
    return 0;
}

LS_TESTS(nn_model, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_has_the_seeds_parameters),
        cmocka_unit_test(lenet_has_the_seeds_shapes),
        cmocka_unit_test(a_last_layer_gives_what_the_data_has),
        cmocka_unit_test(groups_and_dilation_have_pytorchs_shapes_and_fans),
        cmocka_unit_test(keys_are_read_as_documented),
        cmocka_unit_test(every_bad_model_is_refused_with_its_message),
        cmocka_unit_test(an_unknown_type_like_no_other_is_answered_with_the_types),
        cmocka_unit_test(a_check_without_data_computes_no_shapes),
        cmocka_unit_test(a_model_of_too_many_layers_is_refused),
        cmocka_unit_test(an_impossible_input_is_refused),
        cmocka_unit_test(a_failed_allocation_leaks_nothing),
        cmocka_unit_test(sgd_reads_its_keys),
        cmocka_unit_test(adamw_reads_its_keys),
        cmocka_unit_test(an_optimizer_is_written_as_it_is_read),
        cmocka_unit_test(a_bad_optimizer_is_refused_with_its_message),
    };
    if (argc > 1 && strcmp(argv[1], "--messages") == 0)
        return print_messages();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
