/* SPDX-License-Identifier: MIT */
/* Tests of the random generator: published test vectors, and the properties on which training
 * relies. */
#include "base/portable_math.h"
#include "base/rng.h"
#include "runner.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PORTABLE_BITS UINT64_C(0xf5e65e12d27837b4)

/* Known answers that the generator's authors publish for ten rounds. */
static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        ls_philox4x32(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

static void philox_may_overwrite_its_counter(void **state)
{
    (void)state;
    const uint32_t key[2] = {0, 0}, expected[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    uint32_t words[4] = {0, 0, 0, 0};
    ls_philox4x32(words, words, key);
    assert_memory_equal(words, expected, sizeof words);
}

static void words_put_seed_stream_epoch_and_index_where_they_belong(void **state)
{
    (void)state;
    uint32_t out[4];
    const uint32_t expected[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    ls_rng_words(out, 0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x0370734413198a2eu);
    assert_memory_equal(out, expected, sizeof out);
}

static uint32_t hash(const uint32_t *words, uint32_t n)
{
    uint32_t h = 2166136261u; /* FNV-1a over the little-endian bytes */
    for (uint32_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++)
            h = (h ^ (words[i] >> (8 * b) & 0xff)) * 16777619u;
    return h;
}

static void permutation_holds_every_number_once(void **state)
{
    (void)state;
    static uint32_t order[60000];
    static uint8_t seen[60000];
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        ls_rng_permutation(order, 60000, 7, epoch);
        memset(seen, 0, sizeof seen);
        for (uint32_t i = 0; i < 60000; i++) {
            assert_in_range(order[i], 0, 59999);
            assert_int_equal(seen[order[i]], 0);
            seen[order[i]] = 1;
        }
    }
}

/* The hashes come from a separate implementation. Checkpoints and recorded runs depend on the
 * order: it must never change. */
static void permutation_is_the_one_it_always_was(void **state)
{
    (void)state;
    uint32_t order[1000];
    ls_rng_permutation(order, 1000, 0, 0);
    assert_int_equal(hash(order, 1000), 0xde13e039);
    ls_rng_permutation(order, 1000, 42, 3);
    assert_int_equal(hash(order, 1000), 0x616975e5);
}

static int fixed_points(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    int same = 0;
    for (uint32_t i = 0; i < n; i++)
        same += a[i] == b[i];
    return same;
}

static void permutation_differs_by_epoch_and_by_seed(void **state)
{
    (void)state;
    uint32_t first[1000], epoch[1000], seed[1000];
    ls_rng_permutation(first, 1000, 1, 0);
    ls_rng_permutation(epoch, 1000, 1, 1);
    ls_rng_permutation(seed, 1000, 2, 0);
    /* Two independent orders agree in one place on average. */
    assert_in_range(fixed_points(first, epoch, 1000), 0, 12);
    assert_in_range(fixed_points(first, seed, 1000), 0, 12);
}

static void permutation_of_three_is_uniform(void **state)
{
    (void)state;
    int count[27] = {0};
    for (uint32_t epoch = 0; epoch < 6000; epoch++) {
        uint32_t p[3];
        ls_rng_permutation(p, 3, 11, epoch);
        count[p[0] * 9 + p[1] * 3 + p[2]]++;
    }
    for (uint32_t i = 0; i < 27; i++)
        if (count[i] != 0) /* 1,000 expected, standard deviation 29 */
            assert_in_range(count[i], 850, 1150);
}

static void permutations_of_nothing_and_of_one_are_allowed(void **state)
{
    (void)state;
    uint32_t p[1] = {9};
    ls_rng_permutation(p, 0, 1, 1);
    assert_int_equal(p[0], 9);
    ls_rng_permutation(p, 1, 1, 1);
    assert_int_equal(p[0], 0);
}

static void uniform_has_its_range_mean_and_variance(void **state)
{
    (void)state;
    double sum = 0, squares = 0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        double u = (double)ls_rng_uniform(5, LS_STREAM_AUGMENT, 0, (uint64_t)i);
        assert_true(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
    }
    double mean = sum / n;
    assert_true(fabs(mean - 0.5) < 0.003);
    assert_true(fabs(squares / n - mean * mean - 1.0 / 12) < 0.001);
}

static void normal_has_mean_zero_variance_one_and_tails(void **state)
{
    (void)state;
    double sum = 0, squares = 0, fourth = 0;
    int beyond_two = 0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        double x = (double)ls_rng_normal(3, LS_STREAM_INIT, 0, (uint64_t)i);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        beyond_two += fabs(x) > 2;
    }
    assert_true(fabs(sum / n) < 0.01);
    assert_true(fabs(squares / n - 1) < 0.015);
    assert_true(fabs(fourth / n - 3) < 0.15);
    assert_true(fabs((double)beyond_two / n - 0.0455) < 0.003);
}

/* ---- replacements for the C library ---------------------------------------------------------- */

/* By how many units in the last place of the truth. */
static double units_off(double got, long double truth)
{
    const double near = fabs((double)truth);
    return (double)(fabsl(got - truth) / (long double)(nextafter(near, INFINITY) - near));
}

static void add_bits(uint64_t *sum, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    *sum = (*sum ^ bits) * UINT64_C(0x100000001b3);
}

/* The sum of their bits is what every machine must find, whatever its compiler and C library. */
static void portable_functions_are_near_the_truth_and_the_same_everywhere(void **state)
{
    uint64_t sum = 0;
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        const double u = (double)ls_rng_uniform(3, 1, 0, i) + 0x1p-30;
        const double x = 40 * u - 20, turn = 20 * u;
        const double of[] = {ls_exp(x), ls_ln(u), ls_ln(1e9 * u), ls_log1p(u), ls_cos(turn)};
        const long double truth[] = {expl(x), logl(u), logl(1e9 * u), log1pl(u), cosl(turn)};
        for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
            add_bits(&sum, of[k]);
            if (sizeof(long double) > sizeof(double) && units_off(of[k], truth[k]) > 1.5)
                fail_msg("function %zu of %.17g is %.17g", k, u, of[k]);
        }
    }
    if (sum != PORTABLE_BITS)
        fail_msg("the bits sum up to 0x%" PRIx64, sum);
    assert_true(ls_exp(-1000) == 0 && ls_exp(1000) > 1e308 && isnan(ls_exp(NAN)));
    assert_true(ls_exp(0) == 1 && ls_ln(1) == 0 && ls_log1p(0) == 0 && ls_cos(0) == 1);
    assert_true(ls_power(0.5, 10) == 0x1p-10 && ls_power(3, 0) == 1);
}

static void streams_do_not_repeat_one_another(void **state)
{
    (void)state;
    int same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t a[4], b[4];
        ls_rng_words(a, 1, LS_STREAM_INIT, 0, i);
        ls_rng_words(b, 1, LS_STREAM_INIT + 1, 0, i);
        same += a[0] == b[0];
    }
    assert_int_equal(same, 0);
}

LS_TESTS(base_rng, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(philox_may_overwrite_its_counter),
        cmocka_unit_test(words_put_seed_stream_epoch_and_index_where_they_belong),
        cmocka_unit_test(permutation_holds_every_number_once),
        cmocka_unit_test(permutation_is_the_one_it_always_was),
        cmocka_unit_test(permutation_differs_by_epoch_and_by_seed),
        cmocka_unit_test(permutation_of_three_is_uniform),
        cmocka_unit_test(permutations_of_nothing_and_of_one_are_allowed),
        cmocka_unit_test(uniform_has_its_range_mean_and_variance),
        cmocka_unit_test(normal_has_mean_zero_variance_one_and_tails),
        cmocka_unit_test(portable_functions_are_near_the_truth_and_the_same_everywhere),
        cmocka_unit_test(streams_do_not_repeat_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
