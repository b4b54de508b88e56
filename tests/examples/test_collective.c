/* SPDX-License-Identifier: MIT */
/* Tests the public all-reduce (<lockstep/collective.h>) with pools of reference devices. */
#include "ref/ref.h"
#include "runner.h"

#include <lockstep/collective.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_RANKS = 8, MOST_FLOATS = 70, ROUNDS = 3 };

typedef struct fixture {
    ls_registry *registry;
    ls_pool *pool;
    ls_collective *group;
    size_t floats;
    int in_place;
    int absent; /* this rank stays away; −1: nobody does */
    int status[MOST_RANKS];
    ls_error error[MOST_RANKS];
    float found[ROUNDS][MOST_RANKS][MOST_FLOATS];
} fixture;

static void must(int status, const ls_error *err)
{
    if (status != LS_OK)
        fail_msg("%s", err->text);
}

static void begin(fixture *f, int ranks, const char *algorithm, size_t floats, ls_timeout timeout)
{
    ls_error err;
    char devices[16];
    memset(f, 0, sizeof *f);
    f->floats = floats;
    f->absent = -1;
    snprintf(devices, sizeof devices, "ref:%d", ranks);
    must(ls_registry_create(&f->registry, NULL, &err), &err);
    must(ls_registry_add(f->registry, ls_ref_backend(), &err), &err);
    ls_device_pool_options pool = {
        .size = sizeof pool, .registry = f->registry, .devices = devices};
    must(ls_device_pool_create(&f->pool, &pool, &err), &err);
    ls_collective_options options = {.size = sizeof options,
                                     .ranks = ranks,
                                     .floats = floats,
                                     .algorithm = algorithm,
                                     .timeout = timeout};
    must(ls_collective_create(&f->group, &options, &err), &err);
}

/* The devices go first: a group may outlive them. */
static void end(fixture *f)
{
    ls_pool_destroy(f->pool, LS_FOREVER, NULL);
    ls_collective_destroy(f->group);
    ls_registry_destroy(f->registry);
}

/* Numbers whose sum depends on the order of addition. */
static float value(int rank, int round, size_t i)
{
    static const float scale[] = {1.0f, 1e4f, 1e-4f, 3e6f};
    uint32_t hash = (uint32_t)(rank * 7919 + round * 104729 + (int)i * 31) * 2654435761u;
    float size = (float)(hash >> 8) * scale[(hash >> 4) % 4];
    return hash & 1 ? size : -size;
}

/* T(lo, hi): the halves are split at the largest power of two below their number. */
static float tree(int round, size_t i, int lo, int hi)
{
    int half = 1;
    if (hi - lo == 1)
        return value(lo, round, i);
    while (half * 2 < hi - lo)
        half *= 2;
    return tree(round, i, lo, lo + half) + tree(round, i, lo + half, hi);
}

static float in_rank_order(int round, size_t i, int ranks)
{
    float sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += value(r, round, i);
    return sum;
}

/* Arrays end where they end: an address sanitizer sees who reads or writes beyond. */
static int reduce_rounds(const ls_worker *w, void *arg, ls_error *err)
{
    fixture *f = arg;
    float *in = malloc(f->floats * sizeof *in);
    float *out = f->in_place ? in : malloc(f->floats * sizeof *out);
    int status = LS_OK;
    for (int round = 0; round < ROUNDS && status == LS_OK; round++) {
        for (size_t i = 0; i < f->floats; i++)
            in[i] = value(w->index, round, i);
        status = ls_all_reduce(f->group, w->index, ls_worker_device(w), in, out, err);
        memcpy(f->found[round][w->index], out, f->floats * sizeof *out);
    }
    if (out != in)
        free(out);
    free(in);
    return status;
}

static void check_sums(int ranks, const char *algorithm, size_t floats, int in_place)
{
    fixture *f = malloc(sizeof *f);
    ls_error err;
    int naive = strcmp(algorithm, "naive") == 0;
    begin(f, ranks, algorithm, floats, 0);
    f->in_place = in_place;
    must(ls_pool_run(f->pool, reduce_rounds, f, LS_FOREVER, &err), &err);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < floats; i++) {
            float want = naive ? in_rank_order(round, i, ranks) : tree(round, i, 0, ranks);
            for (int r = 0; r < ranks; r++)
                if (f->found[round][r][i] != want)
                    fail_msg("%s, %d ranks, %zu floats%s, round %d, rank %d, float %zu: %g, not %g",
                             algorithm, ranks, floats, in_place ? " in place" : "", round, r, i,
                             (double)f->found[round][r][i], (double)want);
        }
    end(f);
    free(f);
}

static void everybody_gets_the_sum_whatever_the_length_and_in_place_too(void **state)
{
    static const int ranks[] = {1, 2, 3, 4, 7};
    static const size_t floats[] = {1, 2, 16, 17, 64, 70};
    (void)state;
    for (int r = 0; r < 5; r++)
        for (int n = 0; n < 6; n++)
            for (int in_place = 0; in_place < 2; in_place++) {
                check_sums(ranks[r], "ordered", floats[n], in_place);
                check_sums(ranks[r], "naive", floats[n], in_place);
            }
}

/* ---- failures ------------------------------------------------------------------------------- */

static int one_round(const ls_worker *w, void *arg, ls_error *err)
{
    (void)err;
    fixture *f = arg;
    float in[MOST_FLOATS] = {0}, out[MOST_FLOATS];
    if (w->index != f->absent)
        f->status[w->index] =
            ls_all_reduce(f->group, w->index, ls_worker_device(w), in, out, &f->error[w->index]);
    return LS_OK;
}

static int abort_instead(const ls_worker *w, void *arg, ls_error *err)
{
    fixture *f = arg;
    if (w->index != 0)
        return one_round(w, arg, err);
    ls_collective_abort(f->group);
    return LS_OK;
}

static int with_a_rank_that_does_not_exist(const ls_worker *w, void *arg, ls_error *err)
{
    fixture *f = arg;
    float x[MOST_FLOATS] = {0};
    if (w->index != 0)
        return one_round(w, arg, err);
    f->status[0] = ls_all_reduce(f->group, 3, ls_worker_device(w), x, x, &f->error[0]);
    return LS_OK;
}

static void a_rank_that_aborts_releases_the_others(void **state)
{
    fixture f;
    ls_error err;
    (void)state;
    begin(&f, 3, "ordered", 16, 0);
    must(ls_pool_run(f.pool, abort_instead, &f, LS_FOREVER, &err), &err);
    assert_int_equal(f.status[1], LS_EABORTED);
    assert_int_equal(f.status[2], LS_EABORTED);
    must(ls_pool_run(f.pool, one_round, &f, LS_FOREVER, &err), &err);
    for (int r = 0; r < 3; r++)
        assert_int_equal(f.status[r], LS_EABORTED); /* for good */
    end(&f);
}

static void a_call_that_fails_releases_the_others(void **state)
{
    fixture f;
    ls_error err;
    (void)state;
    begin(&f, 3, "naive", 16, 0);
    must(ls_pool_run(f.pool, with_a_rank_that_does_not_exist, &f, LS_FOREVER, &err), &err);
    assert_int_equal(f.status[0], LS_EINVAL);
    assert_string_equal(f.error[0].text, "ls_all_reduce: rank 3 of 3 does not exist");
    assert_int_equal(f.status[1], LS_EABORTED);
    assert_int_equal(f.status[2], LS_EABORTED);
    end(&f);
}

static void a_rank_that_stays_away_is_named(void **state)
{
    fixture f;
    ls_error err;
    (void)state;
    begin(&f, 2, "ordered", 16, 50000000);
    f.absent = 1;
    must(ls_pool_run(f.pool, one_round, &f, LS_FOREVER, &err), &err);
    assert_int_equal(f.status[0], LS_ETIMEDOUT);
    assert_non_null(strstr(f.error[0].text, "1"));
    end(&f);
}

static void refused(ls_collective_options options, const char *text)
{
    ls_collective *group = NULL;
    ls_error err;
    assert_int_equal(ls_collective_create(&group, &options, &err), LS_EINVAL);
    assert_string_equal(err.text, text);
    assert_null(group);
}

static void an_algorithm_like_no_other_is_answered_with_the_names(void **state)
{
    const ls_collective_options options = {
        .size = sizeof options, .ranks = 2, .floats = 4, .algorithm = "ring"};
    ls_collective *group;
    ls_error err;
    (void)state;
    assert_int_equal(ls_collective_create(&group, &options, &err), LS_EINVAL);
    assert_non_null(
        strstr(err.text, "all-reduce 'ring' does not exist; use one of ordered, naive"));
}

static void options_that_make_no_sense_are_refused(void **state)
{
    const size_t size = sizeof(ls_collective_options);
    (void)state;
    refused((ls_collective_options){.size = 1},
            "ls_collective_options: `size` is not set: expected sizeof(ls_collective_options)");
    refused((ls_collective_options){.size = size, .floats = 4},
            "ls_collective_create: 0 ranks; give 1 to 65535");
    refused((ls_collective_options){.size = size, .ranks = 2},
            "ls_collective_create: 0 floats cannot be added up");
    refused((ls_collective_options){.size = size, .ranks = 2, .floats = 4, .algorithm = "orderd"},
            "all-reduce 'orderd' does not exist; did you mean 'ordered'?");
    ls_collective_destroy(NULL);
}

LS_TESTS(collective, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_gets_the_sum_whatever_the_length_and_in_place_too),
        cmocka_unit_test(a_rank_that_aborts_releases_the_others),
        cmocka_unit_test(a_call_that_fails_releases_the_others),
        cmocka_unit_test(a_rank_that_stays_away_is_named),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(an_algorithm_like_no_other_is_answered_with_the_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
