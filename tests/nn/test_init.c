/* SPDX-License-Identifier: MIT */
/* Tests the initial weights of a model: their distribution, and that they depend only on the seed.
 */
#include "nn/nn_fixture.h"

#include "nn/safetensors.h"
#include "runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_shape gray28 = {1, 28, 28};

static float *drawn(const ls_network *m, ls_init_rule rule, float std, uint64_t seed)
{
    const ls_init init = {rule, std};
    float *w = malloc(m->floats * sizeof *w);
    assert_non_null(w);
    /* fills w with NaN, so that the test finds weights that are not set */
    memset(w, 0xFF, m->floats * sizeof *w);
    ls_init_weights(w, m, &init, seed);
    return w;
}

typedef struct moments {
    double mean, std, most; /* most: largest absolute value */
} moments;

static moments moments_of(const float *x, size_t count)
{
    double sum = 0;
    double squares = 0;
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        most = fmax(most, fabs((double)x[i]));
    }
    double mean = sum / (double)count;
    return (moments){mean, sqrt(squares / (double)count - mean * mean), most};
}

/* Checks that mean and standard deviation are within four standard errors of the expected values.
 * The errors are computed for a normal distribution, so the distribution must not have longer
 * tails. */
static void assert_moments(const float *x, size_t count, double std)
{
    moments m = moments_of(x, count);
    double n = (double)count;
    if (fabs(m.mean) > 4 * std / sqrt(n) || fabs(m.std - std) > 4 * std / sqrt(2 * n))
        fail_msg("mean %g, deviation %g of %zu numbers, expected 0 and %g", m.mean, m.std, count,
                 std);
}

static void normal_has_the_deviation_asked_for(void **state)
{
    (void)state;
    ls_network *m = make_model(lenet_json, gray28, 10);
    float *w = drawn(m, LS_INIT_NORMAL, 0.01f, 3);
    for (int i = 0; i < m->params; i += 2)
        assert_moments(w + m->param[i]->offset, m->param[i]->count, 0.01);
    free(w);
    free_model(m);
}

static void kaiming_follows_fan_in(void **state)
{
    (void)state;
    ls_network *m = make_model(lenet_json, gray28, 10);
    float *w = drawn(m, LS_INIT_KAIMING, 0, 3);
    const double fan_in[4] = {9, 500, 800, 128};
    for (int i = 0; i < 4; i++)
        assert_moments(w + m->param[2 * i]->offset, m->param[2 * i]->count, sqrt(2 / fan_in[i]));
    free(w);
    free_model(m);
}

static void xavier_is_uniform_within_its_limit(void **state)
{
    (void)state;
    ls_network *m = make_model(lenet_json, gray28, 10);
    float *w = drawn(m, LS_INIT_XAVIER, 0, 3);
    const double fans[4] = {9 + 180, 500 + 1250, 800 + 128, 128 + 10};
    for (int i = 0; i < 4; i++) {
        const ls_param *p = m->param[2 * i];
        double limit = sqrt(6 / fans[i]);
        double most = moments_of(w + p->offset, p->count).most;
        assert_moments(w + p->offset, p->count, limit / sqrt(3));
        assert_true(most <= limit * (1 + 1e-6));
        assert_true(most > limit * 0.9);
    }
    free(w);
    free_model(m);
}

static void biases_start_at_zero(void **state)
{
    (void)state;
    ls_network *m = make_model(lenet_json, gray28, 10);
    for (int rule = LS_INIT_NORMAL; rule <= LS_INIT_KAIMING; rule++) {
        float *w = drawn(m, (ls_init_rule)rule, 0.01f, 1);
        for (int i = 1; i < m->params; i += 2)
            for (size_t k = 0; k < m->param[i]->count; k++)
                assert_true(w[m->param[i]->offset + k] == 0);
        free(w);
    }
    free_model(m);
}

static void hash_of(char out[65], const ls_network *m, ls_init_rule rule, uint64_t seed)
{
    float *w = drawn(m, rule, 0.01f, seed);
    ls_weights_sha256(out, m, w);
    free(w);
}

static void a_seed_always_gives_the_same_weights(void **state)
{
    (void)state;
    char a[65];
    char b[65];
    ls_network *m = make_model(lenet_json, gray28, 10);
    hash_of(a, m, LS_INIT_NORMAL, 5);
    hash_of(b, m, LS_INIT_NORMAL, 5);
    assert_string_equal(a, b);
    hash_of(b, m, LS_INIT_NORMAL, 6);
    assert_string_not_equal(a, b);
    hash_of(b, m, LS_INIT_NORMAL, 5 + (UINT64_C(1) << 32));
    assert_string_not_equal(a, b);
    free_model(m);
}

/* These hashes must never change: a seed gives the same weights in every later release. Xavier uses
 * no transcendental function. The other two rules use ls_ln and ls_cos (base/portable_math.h),
 * whose results have the same bits on every system. */
static void seed_zero_gives_known_weights(void **state)
{
    (void)state;
    static const char *const want[3] = {
        "f1e064b3b89fe9ac57fd1778c4eac741cb8ee953b0c50acf68964431f61bd7be",
        "ed60928b685986141d03d14800b046ebdb4d502b1cd5d52e8a7d59a7eae420f6",
        "f314697059e14ab6a342c1e57f3360725704344e9bca4fd2814d47a9b256511f",
    };
    char got[65];
    ls_network *m = make_model(lenet_json, gray28, 10);
    for (int rule = LS_INIT_NORMAL; rule <= LS_INIT_KAIMING; rule++) {
        hash_of(got, m, (ls_init_rule)rule, 0);
        assert_string_equal(got, want[rule]);
    }
    free_model(m);
}

static void a_parameters_draws_do_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    ls_network *small = make_model("[{\"type\":\"dense\",\"out\":3}]", (ls_shape){4, 1, 1}, 3);
    ls_network *large = make_model(
        "[{\"type\":\"dense\",\"out\":9},{\"type\":\"dense\",\"out\":3}]", (ls_shape){4, 1, 1}, 3);
    float *a = drawn(small, LS_INIT_NORMAL, 1, 2);
    float *b = drawn(large, LS_INIT_NORMAL, 1, 2);
    assert_memory_equal(a, b, 12 * sizeof *a); /* parameter 0 of both models */
    free(a);
    free(b);
    free_model(small);
    free_model(large);
}

/* ---- reading the config ---- */

static int parse_init(ls_init *out, const char *text, ls_error *err)
{
    ls_json *doc = NULL;
    must(ls_json_parse(&doc, "i.json", text, strlen(text), NULL, err), err);
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "init");
    int rc = ls_init_parse(out, doc, node, err);
    ls_json_destroy(doc);
    return rc;
}

static void rules_are_read_by_name_or_as_an_object(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        ls_init_rule rule;
        float std;
    } cases[] = {
        {"{}", LS_INIT_KAIMING, 0},
        {"{\"init\":\"normal\"}", LS_INIT_NORMAL, 0.01f},
        {"{\"init\":\"xavier\"}", LS_INIT_XAVIER, 0},
        {"{\"init\":\"kaiming\"}", LS_INIT_KAIMING, 0},
        {"{\"init\":\"glorot\"}", LS_INIT_XAVIER, 0},
        {"{\"init\":\"he\"}", LS_INIT_KAIMING, 0},
        {"{\"init\":{\"name\":\"he\"}}", LS_INIT_KAIMING, 0},
        {"{\"init\":{\"name\":\"normal\"}}", LS_INIT_NORMAL, 0.01f},
        {"{\"init\":{\"name\":\"normal\",\"std\":0.5}}", LS_INIT_NORMAL, 0.5f},
        {"{\"init\":{\"name\":\"kaiming\"}}", LS_INIT_KAIMING, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_init init;
        ls_error err = {0};
        must(parse_init(&init, cases[i].text, &err), &err);
        assert_int_equal(init.rule, cases[i].rule);
        if (init.rule == LS_INIT_NORMAL)
            assert_true(init.std == cases[i].std);
    }
    assert_string_equal(ls_init_name(LS_INIT_XAVIER), "xavier");
}

static void a_bad_rule_is_refused_with_its_message(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"init\":\"kaimin\"}", "i.json:1:9: unknown init \"kaimin\"; did you mean \"kaiming\"?"},
        {"{\"init\":\"orthogonal\"}",
         "i.json:1:9: unknown init \"orthogonal\"; expected one of: normal, xavier, kaiming, "
         "glorot, he"},
        {"{\"init\":3}", "i.json:1:9: init: expected a name or an object {…}, found a number"},
        {"{\"init\":{\"name\":\"normal\",\"std\":-1}}",
         "i.json:1:32: init: \"std\" must be a number from 0 to 1000, found -1"},
        {"{\"init\":{\"name\":\"xavier\",\"std\":1}}",
         "i.json:1:32: init: \"std\" belongs to \"normal\" alone; remove it"},
        {"{\"init\":{\"std\":1}}", "i.json:1:9: init: \"name\" is missing; add it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_init init;
        ls_error err = {0};
        assert_int_equal(parse_init(&init, cases[i].text, &err), LS_ECONFIG);
        assert_string_equal(err.text, cases[i].message);
    }
}

LS_TESTS(nn_init, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_has_the_deviation_asked_for),
        cmocka_unit_test(kaiming_follows_fan_in),
        cmocka_unit_test(xavier_is_uniform_within_its_limit),
        cmocka_unit_test(biases_start_at_zero),
        cmocka_unit_test(a_seed_always_gives_the_same_weights),
        cmocka_unit_test(seed_zero_gives_known_weights),
        cmocka_unit_test(a_parameters_draws_do_not_depend_on_its_neighbours),
        cmocka_unit_test(rules_are_read_by_name_or_as_an_object),
        cmocka_unit_test(a_bad_rule_is_refused_with_its_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
