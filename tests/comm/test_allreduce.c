/* SPDX-License-Identifier: MIT */
/* Tests the two all-reduces in host memory against a plain recursive sum over the shard tree
 * (merge/tree.h). */
#include "base/host.h"
#include "base/rng.h"
#include "comm/gang.h"
#include "ref/ref.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SHARDS_MOST 16
/* several steps, so that a step begins with memory that the previous step has used */
#define STEPS 3

/* Writes numbers of very different sizes, so that another sequence of additions gives other
 * bits. */
static void fill_step(float *leaf, int shard, size_t floats, void *user)
{
    const uint32_t step = *(const uint32_t *)user;
    for (size_t i = 0; i < floats; i++) {
        uint32_t w[4];
        ls_rng_words(w, 7, 1, step, (uint64_t)shard << 32 | i);
        float sign = w[0] & 1 ? 1.0f : -1.0f;
        leaf[i] = sign * (float)(w[1] >> 8) * powf(2.0f, (float)(w[2] % 12) - 30.0f);
    }
}

/* Returns element i of the tree node T(lo, hi), computed by the definition (merge/tree.h). */
static float tree_sum(const float *leaves, size_t floats, size_t i, int lo, int hi)
{
    if (hi - lo == 1)
        return leaves[(size_t)lo * floats + i];
    int half = 1;
    while (half * 2 < hi - lo)
        half *= 2;
    return tree_sum(leaves, floats, i, lo, lo + half) + tree_sum(leaves, floats, i, lo + half, hi);
}

/* Returns the sum from left to right, which is not the tree's order. */
static float left_fold(const float *leaves, size_t floats, size_t i, int shards)
{
    float sum = leaves[i];
    for (int s = 1; s < shards; s++)
        sum += leaves[(size_t)s * floats + i];
    return sum;
}

static float *make_leaves(int shards, size_t floats, uint32_t step)
{
    float *leaves = ls_alloc_array(NULL, (size_t)shards * floats, sizeof(float));
    assert_non_null(leaves);
    for (int s = 0; s < shards; s++)
        fill_step(leaves + (size_t)s * floats, s, floats, &step);
    return leaves;
}

/* Results of all members, copied after each step. */
typedef struct found {
    float *total[STEPS][GANG_MOST];
    int status[STEPS][GANG_MOST];
    bool by_pieces; /* each member computes the total itself */
} found;

/* Computes the whole total in pieces of several lengths. */
static int add_pieces(gang_member *m, uint32_t step)
{
    static const size_t lengths[] = {16, 4096, 272, 48};
    const size_t floats = m->gang->desc.floats;
    int status = gang_fold(m, fill_step, &step);
    if (status == LS_OK)
        status = ls_pieces_begin(m->comm, m->fold.stack, m->fold.depth, &m->times, &m->err);
    for (size_t at = 0, k = step, count; status == LS_OK && at < floats; at += count, k++) {
        count = lengths[k % 4] < floats - at ? lengths[k % 4] : floats - at;
        ls_piece(m->comm, m->total + at, at, count);
    }
    return status ? status : ls_pieces_end(m->comm, &m->times, &m->err);
}

static void run_steps(gang_member *m)
{
    found *f = m->gang->user;
    for (uint32_t step = 0; step < STEPS; step++) {
        f->status[step][m->rank] =
            f->by_pieces ? add_pieces(m, step) : gang_reduce(m, fill_step, &step);
        memcpy(f->total[step][m->rank], m->total, m->gang->desc.floats * sizeof(float));
    }
}

/* The memory of the total: an array of each rank (OWN), also written in pieces (BY_PIECES); an
 * array that all ranks share (OF_GROUP); or, with one rank, the array of its first partial sum
 * (IN_PLACE). */
typedef enum sum_place { OWN, BY_PIECES, OF_GROUP, IN_PLACE } sum_place;

/* How ranks add their own shards (comm/comm.h): without spread mode (COPIED), in spread mode
 * (SPREAD), or with dealt shards (DEALT). */
typedef enum fold_form { COPIED, SPREAD, DEALT } fold_form;

/* Replaces the totals of all gang members by totals in `place`. If `back` is true, restores the
 * gang members' own totals. */
static void exchange_totals(gang *g, float *own[GANG_MOST], sum_place place, bool back)
{
    for (int r = 0; r < g->desc.ranks; r++) {
        gang_member *m = &g->member[r];
        if (!back)
            own[r] = m->total;
        m->total = back                 ? own[r]
                   : place <= BY_PIECES ? m->total
                   : place == OF_GROUP  ? ls_host_group_total(g->group)
                                        : ls_fold_root(&m->fold);
        assert_non_null(g->member[r].total);
    }
}

static void reduce(found *f, const ls_comm_type *type, int ranks, int shards, size_t floats,
                   sum_place place, fold_form form)
{
    gang g;
    float *own[GANG_MOST];
    memset(f, 0, sizeof *f);
    f->by_pieces = place == BY_PIECES;
    for (int step = 0; step < STEPS; step++)
        for (int r = 0; r < ranks; r++)
            f->total[step][r] = ls_alloc_array(NULL, floats, sizeof(float));
    gang_begin(&g, type, ranks, shards, floats, UINT64_MAX);
    g.user = f;
    if (form == DEALT)
        gang_deal(&g);
    for (int r = 0; form == SPREAD && r < ranks; r++)
        assert_int_equal(ls_fold_spread(&g.member[r].fold, NULL), LS_OK);
    exchange_totals(&g, own, place, false);
    gang_run(&g, run_steps);
    exchange_totals(&g, own, place, true);
    for (int r = 0; r < ranks; r++) {
        assert_true(g.member[r].times.wait >= 0 && (g.member[r].times.exposed > 0 || f->by_pieces));
        for (int step = 0; step < STEPS; step++)
            assert_int_equal(f->status[step][r], LS_OK);
    }
    gang_end(&g);
}

static void found_free(found *f)
{
    for (int step = 0; step < STEPS; step++)
        for (int r = 0; r < GANG_MOST; r++)
            ls_free(NULL, f->total[step][r]);
}

/* A float of a sum that differs from the sum over the tree. */
typedef struct difference {
    uint32_t step;
    int rank;
    size_t at;
    float found, want;
} difference;

/* Compares all sums with those over the tree. Returns false if they are equal; otherwise *d
 * receives the first difference. */
static bool differs(difference *d, const ls_comm_type *type, int ranks, int shards, size_t floats,
                    sum_place place, fold_form form)
{
    found f;
    bool other = false;
    reduce(&f, type, ranks, shards, floats, place, form);
    for (uint32_t step = 0; step < STEPS; step++) {
        float *leaves = make_leaves(shards, floats, step);
        for (size_t i = 0; i < floats && !other; i++) {
            const float want = tree_sum(leaves, floats, i, 0, shards);
            for (int r = 0; r < ranks && !other; r++) {
                *d = (difference){step, r, i, f.total[step][r][i], want};
                other = memcmp(&d->want, &d->found, sizeof want) != 0;
            }
        }
        ls_free(NULL, leaves);
    }
    found_free(&f);
    return other;
}

static void check_sums(const ls_comm_type *type, int ranks, int shards, size_t floats,
                       sum_place place, fold_form form)
{
    difference d;
    if (differs(&d, type, ranks, shards, floats, place, form))
        fail_msg("%s, %d ranks, %d shards, %zu floats, step %u, rank %d, float %zu: %a, not %a",
                 type->name, ranks, shards, floats, (unsigned)d.step, d.rank, d.at, (double)d.found,
                 (double)d.want);
}

static void check_ordered(int ranks, int shards, size_t floats)
{
    static const struct {
        sum_place place;
        fold_form form;
        int ranks; /* 1: only for one rank; 2: only for several ranks; 0: for any number of ranks */
    } way[] = {
        {OWN, COPIED, 0}, {BY_PIECES, SPREAD, 0}, {OF_GROUP, SPREAD, 0},
        {OWN, DEALT, 2},  {BY_PIECES, DEALT, 2},  {OF_GROUP, COPIED, 2},
        {OWN, SPREAD, 1}, {IN_PLACE, COPIED, 1},  {IN_PLACE, SPREAD, 1},
    };
    for (size_t i = 0; i < sizeof way / sizeof *way; i++)
        if (way[i].ranks == 0 || (way[i].ranks == 1) == (ranks == 1))
            check_sums(&ls_comm_ordered, ranks, shards, floats, way[i].place, way[i].form);
}

static void ordered_has_the_bits_of_the_tree_on_any_number_of_ranks(void **state)
{
    (void)state;
    for (int shards = 1; shards <= SHARDS_MOST; shards++)
        for (int ranks = 1; ranks <= 8 && ranks <= shards; ranks++)
            check_ordered(ranks, shards, 16 * (size_t)(1 + (shards * 5 + ranks * 3) % 37));
}

static void ordered_takes_arenas_of_odd_lengths(void **state)
{
    /* Lengths in lines of 16 floats: fewer lines than ranks, one line more than a piece, and prime
     * numbers. */
    static const size_t lines[] = {1, 2, 3, 16, 17, 127, 257};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        check_ordered(5, 7, 16 * lines[i]);
}

/* A case for any communicator: numbers of ranks and shards, and a length. */
typedef struct any_case {
    int ranks, shards;
    size_t floats;
} any_case;

enum { ANY_CASES = 30 };

static any_case draw_case(uint32_t k)
{
    uint32_t w[4];
    ls_rng_words(w, 11, 1, 0, k);
    const int ranks = 1 + (int)(w[0] % 8);
    const int shards = ranks + (int)(w[1] % (uint32_t)(SHARDS_MOST + 1 - ranks));
    return (any_case){ranks, shards, 16 * (size_t)(1 + w[2] % 90)};
}

static void communicators_with_the_same_bits_add_as_the_tree_does(void **state)
{
    int checked = 0;
    (void)state;
    for (int i = 0; ls_comm_types()[i]; i++) {
        const ls_comm_type *type = ls_comm_types()[i];
        checked += type->same_bits != 0;
        for (uint32_t k = 0; k < ANY_CASES && type->same_bits; k++) {
            const any_case c = draw_case(k);
            check_sums(type, c.ranks, c.shards, c.floats, OWN, COPIED);
        }
    }
    assert_true(checked > 0);
}

/* Adds in the order of the tree, but from left to right if there are five ranks. */
static int lie_with_five_ranks(ls_comm *comm, ls_stream *stream, const ls_partial *partials,
                               int count, float *total, ls_comm_times *times, ls_error *err)
{
    const ls_comm_type *type = comm->group->ranks == 5 ? &ls_comm_naive : &ls_comm_ordered;
    return type->all_reduce(comm, stream, partials, count, total, times, err);
}

/* Checks that the test above finds a communicator whose `same_bits` is not true. */
static void a_communicator_that_lies_about_its_bits_is_found(void **state)
{
    ls_comm_type liar[2] = {ls_comm_naive, ls_comm_ordered};
    (void)state;
    liar[1].all_reduce = lie_with_five_ranks;
    for (int i = 0; i < 2; i++) {
        difference d;
        int lies = 0;
        for (uint32_t k = 0; k < ANY_CASES; k++) {
            const any_case c = draw_case(k);
            lies += differs(&d, &liar[i], c.ranks, c.shards, c.floats, OWN, COPIED);
        }
        assert_true(lies > 0);
    }
}

static void naive_is_near_the_tree_and_the_same_on_every_rank(void **state)
{
    const int shards = 8;
    const size_t floats = 16 * 21;
    (void)state;
    for (int ranks = 1; ranks <= shards; ranks++) {
        found f;
        reduce(&f, &ls_comm_naive, ranks, shards, floats, OWN, COPIED);
        float *leaves = make_leaves(shards, floats, STEPS - 1);
        for (size_t i = 0; i < floats; i++) {
            double sum = 0, size = 0;
            for (int s = 0; s < shards; s++) {
                sum += leaves[(size_t)s * floats + i];
                size += (double)fabsf(leaves[(size_t)s * floats + i]);
            }
            for (int r = 0; r < ranks; r++) {
                assert_true(fabs(f.total[STEPS - 1][r][i] - sum) <= 1e-6 * size);
                assert_memory_equal(&f.total[STEPS - 1][r][i], &f.total[STEPS - 1][0][i], 4);
            }
        }
        ls_free(NULL, leaves);
        found_free(&f);
    }
}

/* Checks that the tests above can fail: sums from left to right differ from sums in the tree's
 * order. */
static void a_tree_that_is_broken_on_purpose_gives_other_bits(void **state)
{
    const size_t floats = 16 * 21;
    (void)state;
    for (int shards = 4; shards <= SHARDS_MOST; shards++) {
        float *leaves = make_leaves(shards, floats, 0);
        size_t other = 0;
        for (size_t i = 0; i < floats; i++)
            other += tree_sum(leaves, floats, i, 0, shards) != left_fold(leaves, floats, i, shards);
        assert_true(other > floats / 100);
        ls_free(NULL, leaves);
    }
}

/* With one shard per rank, `naive` adds from left to right, in the order of the ranks. */
static void naive_adds_in_the_order_of_the_ranks(void **state)
{
    const int shards = 8;
    const size_t floats = 16 * 21;
    found f;
    (void)state;
    reduce(&f, &ls_comm_naive, shards, shards, floats, OWN, COPIED);
    float *leaves = make_leaves(shards, floats, 0);
    size_t other = 0;
    for (size_t i = 0; i < floats; i++) {
        float fold = left_fold(leaves, floats, i, shards);
        assert_true(f.total[0][0][i] == fold);
        other += fold != tree_sum(leaves, floats, i, 0, shards);
    }
    assert_true(other > 0);
    ls_free(NULL, leaves);
    found_free(&f);
}

/* ---- the book's demo: [[1, 1]] and [[2, 2]] on two devices become [[3, 3]] on both ---- */

static void fill_demo(float *leaf, int shard, size_t floats, void *user)
{
    (void)user;
    memset(leaf, 0, floats * sizeof *leaf);
    leaf[0] = leaf[1] = (float)(shard + 1);
}

static void run_demo(gang_member *m)
{
    m->status = gang_reduce(m, fill_demo, NULL);
}

static void two_devices_add_up_to_three_on_both(void **state)
{
    (void)state;
    for (int i = 0; ls_comm_types()[i]; i++) {
        gang g;
        gang_begin(&g, ls_comm_types()[i], 2, 2, 16, UINT64_MAX);
        gang_run(&g, run_demo);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(g.member[r].status, LS_OK);
            assert_true(g.member[r].total[0] == 3.0f && g.member[r].total[1] == 3.0f);
            for (int k = 2; k < 16; k++)
                assert_true(g.member[r].total[k] == 0.0f);
        }
        gang_end(&g);
    }
}

/* ---- the fold alone ---- */

static void keep_cover(gang_member *m)
{
    m->status = gang_reduce(m, gang_ones, NULL);
}

static void a_fold_leaves_the_cover_of_its_range(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 17; shards++)
        for (int ranks = 1; ranks <= shards; ranks++) {
            gang g;
            gang_begin(&g, &ls_comm_ordered, ranks, shards, 16, UINT64_MAX);
            gang_run(&g, keep_cover);
            for (int r = 0; r < ranks; r++) {
                const ls_fold *fold = &g.member[r].fold;
                ls_span span[LS_PARTIALS_MAX];
                int count = ls_tree_cover(span, shards, fold->range.lo, fold->range.hi);
                assert_int_equal(fold->depth, count);
                for (int i = 0; i < count; i++) {
                    assert_memory_equal(&fold->stack[i].span, &span[i], sizeof span[i]);
                    assert_true(fold->stack[i].data[0] == (float)(span[i].hi - span[i].lo));
                }
                assert_true(g.member[r].total[5] == (float)shards);
            }
            gang_end(&g);
        }
}

/* Tests the largest possible stack: the sums on it have the tree's bits. */
static void a_high_stack_is_added_up_as_the_tree_is(void **state)
{
    enum { SHARDS = 65536, FLOATS = 16 };
    const uint32_t step = 5;
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_device *device;
    ls_fold fold;
    float leaf[FLOATS] __attribute__((aligned(64))) = {0};
    float *leaves = make_leaves(SHARDS, FLOATS, step);
    (void)state;
    assert_int_equal(ls_ref_backend()->open(&device, &request, NULL), LS_OK);
    assert_int_equal(ls_fold_init(&fold, device, leaf, FLOATS, SHARDS, 1, SHARDS, NULL), LS_OK);
    assert_int_equal(ls_fold_spread(&fold, NULL), LS_OK);
    for (int i = 1; i < SHARDS; i++) {
        memcpy(ls_fold_leaf(&fold), leaves + (size_t)i * FLOATS, sizeof leaf);
        assert_int_equal(ls_fold_push(&fold, NULL), LS_OK);
    }
    assert_int_equal(fold.depth, LS_PARTIALS_MAX - 1);
    for (int i = 0; i < fold.depth; i++)
        for (size_t k = 0; k < FLOATS; k++) {
            const ls_span span = fold.stack[i].span;
            const float want = tree_sum(leaves, FLOATS, k, span.lo, span.hi);
            assert_memory_equal(&fold.stack[i].data[k], &want, sizeof want);
        }
    ls_fold_fini(&fold);
    ls_free(NULL, leaves);
    device->ops->close(device);
}

/* Pushes shards, each on a random side, until all shards of `reach` have been pushed. Checks after
 * each push that every entry of the stack is a node of the tree, with the tree's bits. */
static void push_at_both_ends(ls_fold *fold, ls_span reach, int first, const float *leaves,
                              size_t floats, uint32_t seed)
{
    ls_span has = {first, first};
    ls_fold_begin(fold);
    while (has.lo > reach.lo || has.hi < reach.hi) {
        uint32_t words[4];
        ls_rng_words(words, 9, 1, seed, (uint64_t)(has.hi - has.lo));
        const bool left =
            has.hi > has.lo && has.lo > reach.lo && (has.hi == reach.hi || words[0] % 2);
        const int leaf = left ? --has.lo : has.hi++;
        memcpy(ls_fold_leaf(fold), leaves + (size_t)leaf * floats, floats * sizeof *leaves);
        if (left)
            ls_fold_push_left(fold);
        else
            assert_int_equal(ls_fold_push(fold, NULL), LS_OK);
        int at = has.lo;
        for (int i = 0; i < fold->depth; i++) {
            const ls_span span = fold->stack[i].span;
            const float want = tree_sum(leaves, floats, 3, span.lo, span.hi);
            assert_int_equal(span.lo, at);
            assert_true(ls_tree_is_node(fold->shards, span.lo, span.hi));
            assert_memory_equal(&fold->stack[i].data[3], &want, sizeof want);
            at = span.hi;
        }
        assert_int_equal(at, has.hi);
    }
}

static void a_fold_of_dealt_shards_takes_them_on_both_sides(void **state)
{
    enum { FLOATS = 16, MOST = 40 };
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_device *device;
    ls_fold fold;
    float leaf[FLOATS] __attribute__((aligned(64))) = {0};
    float *leaves = make_leaves(MOST, FLOATS, 3);
    (void)state;
    assert_int_equal(ls_ref_backend()->open(&device, &request, NULL), LS_OK);
    for (uint32_t k = 0; k < 2000; k++) {
        uint32_t w[4];
        ls_rng_words(w, 8, 1, 0, k);
        const int shards = 1 + (int)(w[0] % MOST), lo = (int)(w[1] % (uint32_t)shards);
        const ls_span reach = {lo, lo + 1 + (int)(w[2] % (uint32_t)(shards - lo))};
        const int first = lo + (int)(w[3] % (uint32_t)(reach.hi - lo));
        assert_int_equal(ls_fold_init(&fold, device, leaf, FLOATS, shards, first, first + 1, NULL),
                         LS_OK);
        assert_int_equal(ls_fold_deal(&fold, reach, first, NULL), LS_OK);
        push_at_both_ends(&fold, reach, first, leaves, FLOATS, k);
        ls_fold_fini(&fold);
    }
    ls_free(NULL, leaves);
    device->ops->close(device);
}

static int refuse_to_add(ls_device *device, ls_stream *stream, float *dst, const float *a,
                         const float *b, size_t count, ls_error *err)
{
    (void)device, (void)stream, (void)dst, (void)a, (void)b, (void)count, (void)err;
    return LS_EDEVICE;
}

static void a_device_that_cannot_add_is_no_sum(void **state)
{
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_device *device;
    ls_fold fold;
    float leaf[16] __attribute__((aligned(64))) = {0};
    (void)state;
    assert_int_equal(ls_ref_backend()->open(&device, &request, NULL), LS_OK);
    const ls_device_ops *real = device->ops;
    ls_device_ops ops = *real;
    ops.add = refuse_to_add;
    device->ops = &ops;
    assert_int_equal(ls_fold_init(&fold, device, leaf, 16, 4, 0, 2, NULL), LS_OK);
    assert_int_equal(ls_fold_push(&fold, NULL), LS_OK);
    assert_int_equal(ls_fold_push(&fold, NULL), LS_EDEVICE);
    ls_fold_fini(&fold);
    real->close(device);
}

/* Checks that the stack has room for all entries, with the largest number of leaves and the ranges
 * that need the most entries. */
static void a_spread_fold_keeps_few_parts(void **state)
{
    static const ls_span ranges[] = {{0, 65536}, {1, 65536},     {1, 65535}, {3, 65533},
                                     {7, 40001}, {32767, 65535}, {5, 6}};
    ls_device_request request = {.size = sizeof request, .threads = 1};
    ls_device *device;
    ls_fold fold;
    float leaf[16] __attribute__((aligned(64))) = {0};
    (void)state;
    assert_int_equal(ls_ref_backend()->open(&device, &request, NULL), LS_OK);
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        float sum = 0;
        assert_int_equal(
            ls_fold_init(&fold, device, leaf, 16, 65536, ranges[k].lo, ranges[k].hi, NULL), LS_OK);
        assert_int_equal(ls_fold_spread(&fold, NULL), LS_OK);
        for (int i = ranges[k].lo; i < ranges[k].hi; i++) {
            gang_ones(ls_fold_leaf(&fold), i, 16, NULL);
            assert_int_equal(ls_fold_push(&fold, NULL), LS_OK);
            assert_in_range(fold.depth, 1, LS_PARTIALS_MAX);
        }
        for (int i = 0; i < fold.depth; i++)
            sum += fold.stack[i].data[15];
        assert_true(sum == (float)(ranges[k].hi - ranges[k].lo));
        assert_true(fold.arenas < LS_PARTIALS_MAX);
        ls_fold_fini(&fold);
    }
    device->ops->close(device);
}

LS_TESTS(comm_allreduce, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_has_the_bits_of_the_tree_on_any_number_of_ranks),
        cmocka_unit_test(ordered_takes_arenas_of_odd_lengths),
        cmocka_unit_test(communicators_with_the_same_bits_add_as_the_tree_does),
        cmocka_unit_test(a_communicator_that_lies_about_its_bits_is_found),
        cmocka_unit_test(naive_is_near_the_tree_and_the_same_on_every_rank),
        cmocka_unit_test(a_fold_of_dealt_shards_takes_them_on_both_sides),
        cmocka_unit_test(a_tree_that_is_broken_on_purpose_gives_other_bits),
        cmocka_unit_test(naive_adds_in_the_order_of_the_ranks),
        cmocka_unit_test(two_devices_add_up_to_three_on_both),
        cmocka_unit_test(a_fold_leaves_the_cover_of_its_range),
        cmocka_unit_test(a_spread_fold_keeps_few_parts),
        cmocka_unit_test(a_high_stack_is_added_up_as_the_tree_is),
        cmocka_unit_test(a_device_that_cannot_add_is_no_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
