/* SPDX-License-Identifier: MIT */
/* Tests the additions that remain to be done when every worker has computed its partial sums,
 * against the definition of the shard tree. */
#include "merge/group.h"
#include "merge/tree.h"
#include "runner.h"

#include <lockstep/split.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 9

/* A sum whose value depends on the order: neither commutative nor associative. */
static uint64_t plus(uint64_t left, uint64_t right)
{
    return (left * 6364136223846793005u + 1442695040888963407u) ^
           (right + (left >> 29)) * 2862933555777941757u;
}

static uint64_t sum_of(int lo, int hi)
{
    int half = 1;
    if (hi - lo == 1)
        return (uint64_t)lo * 2654435761u + 1;
    while (half * 2 < hi - lo)
        half *= 2;
    return plus(sum_of(lo, lo + half), sum_of(lo + half, hi));
}

static void begin(ls_merge_group *group, int ranks, int shards, const ls_host *host)
{
    const ls_comm_group_desc desc = {.ranks = ranks, .shards = shards, .floats = 16, .host = host};
    memset(group, 0, sizeof *group);
    assert_int_equal(ls_merge_group_init(group, &desc, NULL), LS_OK);
}

/* Rank r holds the part (r + turn) mod ranks. */
static void show(ls_merge_group *group, int turn)
{
    const int ranks = group->base.ranks, shards = group->desc.shards;
    for (int r = 0; r < ranks; r++) {
        ls_span spans[LS_PARTIALS_MAX];
        uint32_t first, count;
        ls_split((uint32_t)shards, (uint32_t)ranks, (uint32_t)((r + turn) % ranks), &first, &count);
        group->rank[r].count = ls_tree_cover(spans, shards, (int)first, (int)(first + count));
        for (int i = 0; i < group->rank[r].count; i++)
            group->rank[r].partials[i].span = spans[i];
    }
}

static uint64_t add_up(const ls_tree_rest *rest, const ls_merge_group *group)
{
    uint64_t stack[LS_PARTIALS_MAX] = {0};
    int depth = 0, deepest = 0;
    for (int p = 0; p < rest->count; p++) {
        const ls_tree_rest_part *part = &rest->part[p];
        const ls_span span = group->rank[part->rank].partials[part->index].span;
        stack[depth++] = sum_of(span.lo, span.hi);
        deepest = depth > deepest ? depth : deepest;
        for (int j = 0; j < part->joins; j++, depth--)
            stack[depth - 2] = plus(stack[depth - 2], stack[depth - 1]);
    }
    assert_int_equal(depth, 1);
    assert_int_equal(deepest, rest->depth);
    return stack[0];
}

static void the_rest_of_any_split_gives_the_sum_of_the_tree(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int shards = 1; shards <= 40; shards++)
            for (int turn = 0; turn < ranks; turn++) {
                ls_merge_group group;
                ls_tree_rest rest = {0};
                begin(&group, ranks, shards, NULL);
                show(&group, turn);
                assert_int_equal(ls_tree_rest_update(&rest, &group, NULL), LS_OK);
                assert_true(add_up(&rest, &group) == sum_of(0, shards));
                ls_tree_rest_fini(&rest, NULL);
                ls_merge_group_fini(&group);
            }
}

static void a_rest_follows_the_split(void **state)
{
    const int splits[][2] = {{3, 8}, {2, 4}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        ls_merge_group group;
        ls_tree_rest rest = {0};
        begin(&group, splits[i][0], splits[i][1], NULL);
        for (int turn = 0; turn < 6; turn++) {
            show(&group, turn);
            assert_int_equal(ls_tree_rest_update(&rest, &group, NULL), LS_OK);
            assert_true(add_up(&rest, &group) == sum_of(0, splits[i][1]));
        }
        ls_tree_rest_fini(&rest, NULL);
        ls_merge_group_fini(&group);
    }
}

static int allocations;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    allocations++;
    return aligned_alloc(align, bytes);
}

static void count_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void the_same_split_again_allocates_nothing(void **state)
{
    const ls_host host = {sizeof host, count_alloc, count_free, NULL, NULL};
    ls_merge_group group;
    ls_tree_rest rest = {0};
    (void)state;
    begin(&group, 4, 13, &host);
    show(&group, 0);
    assert_int_equal(ls_tree_rest_update(&rest, &group, NULL), LS_OK);
    allocations = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(ls_tree_rest_update(&rest, &group, NULL), LS_OK);
    assert_int_equal(allocations, 0);
    ls_tree_rest_fini(&rest, &host);
    ls_merge_group_fini(&group);
}

/* Two ranks with one span each. */
static void expect_refusal(ls_span a, ls_span b, int shards, const char *words)
{
    ls_merge_group group;
    ls_tree_rest rest = {0};
    ls_error err = {0};
    begin(&group, 2, shards, NULL);
    group.rank[0].partials[0].span = a;
    group.rank[1].partials[0].span = b;
    group.rank[0].count = group.rank[1].count = 1;
    assert_int_equal(ls_tree_rest_update(&rest, &group, &err), LS_EINVAL);
    assert_non_null(strstr(err.text, words));
    ls_tree_rest_fini(&rest, NULL);
    ls_merge_group_fini(&group);
}

static void sums_that_are_not_the_tree_s_are_told(void **state)
{
    (void)state;
    expect_refusal((ls_span){1, 2}, (ls_span){2, 4}, 4, "no rank has summed shard 0");
    expect_refusal((ls_span){0, 2}, (ls_span){3, 4}, 4, "no rank has summed shard 2");
    expect_refusal((ls_span){0, 2}, (ls_span){2, 3}, 4, "no rank has summed shard 3");
    expect_refusal((ls_span){0, 1}, (ls_span){1, 4}, 4, "no nodes of a tree over 4 shards");
    expect_refusal((ls_span){0, 2}, (ls_span){2, 5}, 4, "no nodes of a tree over 4 shards");
}

LS_TESTS(merge_rest, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_of_any_split_gives_the_sum_of_the_tree),
        cmocka_unit_test(a_rest_follows_the_split),
        cmocka_unit_test(the_same_split_again_allocates_nothing),
        cmocka_unit_test(sums_that_are_not_the_tree_s_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
