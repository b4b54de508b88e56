/* SPDX-License-Identifier: MIT */
/* Tests the shape of the shard tree against shapes that were written by hand. */
#include "merge/tree.h"
#include "runner.h"

#include <lockstep/split.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST 17

/* "((0 1) 2)": the tree over [lo, hi) as ls_tree_middle divides it. */
static size_t print_tree(char *out, int lo, int hi)
{
    if (hi - lo == 1)
        return (size_t)sprintf(out, "%d", lo);
    int m = ls_tree_middle(lo, hi);
    size_t n = (size_t)sprintf(out, "(");
    n += print_tree(out + n, lo, m);
    n += (size_t)sprintf(out + n, " ");
    n += print_tree(out + n, m, hi);
    return n + (size_t)sprintf(out + n, ")");
}

static void trees_have_the_documented_shapes(void **state)
{
    static const char *const shapes[] = {
        "0",
        "(0 1)",
        "((0 1) 2)",
        "((0 1) (2 3))",
        "(((0 1) (2 3)) 4)",
        "(((0 1) (2 3)) (4 5))",
        "(((0 1) (2 3)) ((4 5) 6))",
        "(((0 1) (2 3)) ((4 5) (6 7)))",
        "((((0 1) (2 3)) ((4 5) (6 7))) 8)",
    };
    (void)state;
    for (int s = 1; s <= 9; s++) {
        char text[256];
        print_tree(text, 0, s);
        assert_string_equal(text, shapes[s - 1]);
    }
}

static void a_node_is_divided_behind_the_largest_power_of_two(void **state)
{
    static const int middle[MOST + 1] = {0, 0, 1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16};
    (void)state;
    for (int n = 2; n <= MOST; n++)
        for (int lo = 0; lo < 40; lo += 13)
            assert_int_equal(ls_tree_middle(lo, lo + n), lo + middle[n]);
    assert_int_equal(ls_tree_middle(0, LS_SHARDS_MAX), LS_SHARDS_MAX / 2);
}

/* Marks the nodes of the tree, by the definition. */
static void mark(char node[MOST + 1][MOST + 1], int lo, int hi)
{
    node[lo][hi] = 1;
    if (hi - lo == 1)
        return;
    int half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    mark(node, lo, lo + half);
    mark(node, lo + half, hi);
}

static void nodes_are_told_from_other_spans(void **state)
{
    (void)state;
    for (int s = 1; s <= MOST; s++) {
        char node[MOST + 1][MOST + 1] = {{0}};
        mark(node, 0, s);
        for (int lo = 0; lo <= s; lo++)
            for (int hi = 0; hi <= s; hi++)
                assert_int_equal(ls_tree_is_node(s, lo, hi), node[lo][hi]);
        assert_int_equal(ls_tree_is_node(s, 0, s + 1), 0);
        assert_int_equal(ls_tree_is_node(s, -1, 1), 0);
    }
}

/* The cover of [lo, hi) lies side by side, is made of nodes, and no two of them make a node. */
static void check_cover(int shards, int lo, int hi)
{
    ls_span span[LS_PARTIALS_MAX];
    int count = ls_tree_cover(span, shards, lo, hi), at = lo;
    assert_in_range(count, 1, LS_PARTIALS_MAX);
    for (int i = 0; i < count; i++) {
        assert_int_equal(span[i].lo, at);
        assert_true(ls_tree_is_node(shards, span[i].lo, span[i].hi));
        if (i > 0)
            assert_false(ls_tree_is_node(shards, span[i - 1].lo, span[i].hi));
        at = span[i].hi;
    }
    assert_int_equal(at, hi);
}

static void every_range_is_covered_by_maximal_nodes(void **state)
{
    ls_span span[LS_PARTIALS_MAX];
    (void)state;
    for (int s = 1; s <= MOST; s++)
        for (int lo = 0; lo < s; lo++) {
            for (int hi = lo + 1; hi <= s; hi++)
                check_cover(s, lo, hi);
            assert_int_equal(ls_tree_cover(span, s, lo, lo), 0);
        }
}

static void every_split_of_workers_covers_all_shards(void **state)
{
    (void)state;
    for (uint32_t s = 1; s <= MOST; s++)
        for (uint32_t k = 1; k <= s; k++) {
            uint32_t at = 0;
            for (uint32_t w = 0; w < k; w++) {
                uint32_t first, count;
                ls_split(s, k, w, &first, &count);
                assert_int_equal(first, at);
                assert_true(count > 0);
                check_cover((int)s, (int)first, (int)(first + count));
                at += count;
            }
            assert_int_equal(at, s);
        }
}

static void the_largest_tree_fits_the_stack_of_partial_sums(void **state)
{
    (void)state;
    /* The worst range: all but the first and the last leaf. */
    check_cover(LS_SHARDS_MAX, 1, LS_SHARDS_MAX - 1);
    check_cover(LS_SHARDS_MAX - 1, 1, LS_SHARDS_MAX - 2);
}

LS_TESTS(merge_tree, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_have_the_documented_shapes),
        cmocka_unit_test(a_node_is_divided_behind_the_largest_power_of_two),
        cmocka_unit_test(nodes_are_told_from_other_spans),
        cmocka_unit_test(every_range_is_covered_by_maximal_nodes),
        cmocka_unit_test(every_split_of_workers_covers_all_shards),
        cmocka_unit_test(the_largest_tree_fits_the_stack_of_partial_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
