/* SPDX-License-Identifier: MIT */
/* Tests the vote by which the processes of a run decide which of them continue after a loss. Some
 * processes crash, some learn of losses late or are told wrong losses, and connections break and
 * are made again. There are *arrivals* (processes to be admitted) that not every process knows.
 * src/tcp/vote.h explains the words. */
#include "runner.h"
#include "tcp/vote.h"
#include "train/train_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_MEMBERS = 7, WAITING = 64 };

typedef enum mode { AT_WORK, VOTING, DEAD } mode;

typedef struct world {
    int members; /* number of members, arrivals included */
    int first;   /* number of members of the first group */
    ls_tcp_vote vote[MAX_MEMBERS];
    mode mode[MAX_MEMBERS];
    /* the two members are connected; `cut`: the two members cannot connect */
    bool met[MAX_MEMBERS][MAX_MEMBERS];
    bool cut[MAX_MEMBERS][MAX_MEMBERS];
    ls_tcp_message waiting[MAX_MEMBERS][MAX_MEMBERS][WAITING]; /* [from][to]: messages in transit */
    int count[MAX_MEMBERS][MAX_MEMBERS];
    ls_tcp_ballot last; /* the last group that was at work with all its members */
    int groups;         /* number of groups that were at work so far */
    int admitted;       /* number of these groups with a new member */
    uint64_t random;
} world;

static world w;

static unsigned draw(unsigned below)
{
    w.random = w.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(w.random >> 33) % below;
}

static void send_message(int from, int to, const ls_tcp_message *message)
{
    if (from != to && w.met[from][to] && w.count[from][to] < WAITING)
        w.waiting[from][to][w.count[from][to]++] = *message;
}

static void send_to_set(int from, const ls_tcp_message *message)
{
    for (int to = 0; to < w.members; to++)
        if (ls_tcp_set_has(&message->ballot.set, to))
            send_message(from, to, message);
}

/* Member a tells its links to all members to which it is connected. */
static void tell_links(int a)
{
    ls_tcp_message state;
    ls_tcp_vote_state(&w.vote[a], &state);
    for (int to = 0; to < w.members; to++)
        send_message(a, to, &state);
}

static void part(int a, int b)
{
    if (!w.met[a][b])
        return;
    w.met[a][b] = w.met[b][a] = false;
    w.count[a][b] = w.count[b][a] = 0;
    ls_tcp_vote_disconnect(&w.vote[a], b);
    ls_tcp_vote_disconnect(&w.vote[b], a);
    tell_links(a);
    tell_links(b);
}

static void part_from_all(int a)
{
    for (int b = 0; b < w.members; b++)
        part(a, b);
}

static void meet(int a, int b)
{
    ls_tcp_message state;
    if (a == b || w.cut[a][b] || w.met[a][b] || w.mode[a] != VOTING || w.mode[b] != VOTING ||
        /* one of the two is an arrival that the other does not know */
        w.vote[a].members <= b || w.vote[b].members <= a)
        return;
    w.met[a][b] = w.met[b][a] = true;
    ls_tcp_vote_state(&w.vote[a], &state);
    send_message(a, b, &state);
    ls_tcp_vote_state(&w.vote[b], &state);
    send_message(b, a, &state);
}

static void go_to_work(int a, uint64_t before)
{
    if (w.vote[a].formed.number != before)
        w.mode[a] = AT_WORK;
}

static void deliver(int from, int to)
{
    ls_tcp_message in, answer;
    const uint64_t before = w.vote[to].formed.number;
    if (w.count[from][to] == 0 || w.mode[to] != VOTING)
        return;
    in = w.waiting[from][to][0];
    memmove(w.waiting[from][to], w.waiting[from][to] + 1, (size_t)--w.count[from][to] * sizeof in);
    const bool is_new = !ls_tcp_set_has(&w.vote[to].here, from);
    if (ls_tcp_vote_on_message(&w.vote[to], from, &in, &answer))
        send_message(to, from, &answer);
    if (is_new && ls_tcp_set_has(&w.vote[to].here, from))
        tell_links(to);
    if (ls_tcp_vote_formed(&w.vote[to], &answer))
        send_to_set(to, &answer);
    go_to_work(to, before);
}

/* Member a makes a proposal if the rules allow it, even if not all members are connected yet. This
 * happens in reality if the time limit for connections has passed. */
static void propose(int a)
{
    ls_tcp_message message;
    const uint64_t before = w.vote[a].formed.number;
    if (w.mode[a] != VOTING || !ls_tcp_vote_propose(&w.vote[a], &message))
        return;
    send_to_set(a, &message);
    if (ls_tcp_vote_formed(&w.vote[a], &message))
        send_to_set(a, &message);
    go_to_work(a, before);
}

static void begin_vote(int a)
{
    if (w.mode[a] == DEAD)
        return;
    part_from_all(a);
    if (w.mode[a] == AT_WORK) /* forgets the arrival of an earlier vote */
        w.vote[a].arrivals = (ls_tcp_set){{0}};
    w.mode[a] = VOTING;
    ls_tcp_vote_begin(&w.vote[a], &(ls_tcp_set){{0}});
}

static void cut_anew(void)
{
    const unsigned side = draw(1u << MAX_MEMBERS), how = draw(4); /* 0, 1: nothing is cut */
    for (int a = 0; a < w.members; a++)
        for (int b = 0; b < a; b++) {
            w.cut[a][b] = w.cut[b][a] =
                how == 2 ? (side >> a & 1) != (side >> b & 1) : how == 3 && draw(6) == 0;
            if (w.cut[a][b])
                part(a, b);
        }
}

/* Returns whether all members of the group are at work in it. A sum needs all members of a
 * group. */
static bool is_whole(const ls_tcp_ballot *group)
{
    bool whole = true;
    for (int a = 0; a < w.members; a++)
        whole &= !ls_tcp_set_has(&group->set, a) ||
                 (w.mode[a] == AT_WORK && w.vote[a].formed.number == group->number &&
                  memcmp(&w.vote[a].formed.set, &group->set, sizeof group->set) == 0);
    return whole;
}

static bool is_part(const ls_tcp_set *part, const ls_tcp_set *whole)
{
    bool inside = true;
    for (size_t i = 0; i < sizeof part->bits / sizeof *part->bits; i++)
        inside &= (part->bits[i] & ~whole->bits[i]) == 0;
    return inside;
}

/* If a group is at work, an arrival comes. Most members of the group are told about the arrival. */
static void come(void)
{
    const int n = w.members;
    if (n == MAX_MEMBERS || !is_whole(&w.last))
        return;
    w.members++;
    w.mode[n] = VOTING;
    assert_int_equal(ls_tcp_vote_init(&w.vote[n], n, n + 1, NULL), LS_OK);
    w.vote[n].formed = w.last;
    for (int a = 0; a <= n; a++)
        if (a == n || (ls_tcp_set_has(&w.last.set, a) && draw(8) > 0)) {
            begin_vote(a);
            assert_int_equal(ls_tcp_vote_expect(&w.vote[a], n, NULL), LS_OK);
        }
    const bool all_connect = draw(2); /* before any of them proposes */
    for (int round = 0; all_connect && round < 4 * n; round++)
        for (int a = 0; a <= n; a++)
            for (int b = 0; b <= n; b++) {
                meet(a, b);
                deliver(a, b);
            }
    for (int a = 0; a <= n; a++)
        propose(a);
    for (unsigned i = draw(400); i > 0; i--) /* some of the messages arrive */
        deliver((int)draw((unsigned)w.members), (int)draw((unsigned)w.members));
}

/* Checks that all groups that are ever at work follow one another: no group is at work at the same
 * time as an earlier group. Without arrivals, each group must be a subset of the previous group. */
static void check_row(unsigned seed)
{
    for (int a = 0; a < w.members; a++) {
        const ls_tcp_ballot *group = &w.vote[a].formed;
        if (w.mode[a] != AT_WORK || group->number == w.last.number || !is_whole(group))
            continue;
        const bool follows =
            w.members > w.first ? !is_whole(&w.last) : is_part(&group->set, &w.last.set);
        if (group->number < w.last.number || !follows)
            fail_msg("seed %u: group %llu goes on beside group %llu", seed,
                     (unsigned long long)group->number, (unsigned long long)w.last.number);
        w.admitted += ls_tcp_set_count(&group->fresh) > 0;
        w.last = *group;
        w.groups++;
    }
}

static void begin_world(unsigned seed)
{
    memset(&w, 0, sizeof w);
    w.random = seed * 2 + 1;
    w.members = w.first = 2 + (int)draw(MAX_MEMBERS - 1);
    for (int a = 0; a < w.members; a++)
        assert_int_equal(ls_tcp_vote_init(&w.vote[a], a, w.members, NULL), LS_OK);
    w.last = w.vote[0].formed;
}

static void happen(void)
{
    const int a = (int)draw((unsigned)w.members), b = (int)draw((unsigned)w.members);
    const unsigned what = draw(1000);
    if (what < 450)
        deliver(a, b);
    else if (what < 750)
        meet(a, b);
    else if (what < 900)
        propose(a);
    else if (what < 940)
        begin_vote(a);
    else if (what < 960)
        part(a, b);
    else if (what < 970)
        come();
    else if (what < 990)
        ls_tcp_set_add(&w.vote[a].suspects, b);
    else if (what < 997)
        cut_anew();
    else if (what == 999) {
        part_from_all(a);
        w.mode[a] = DEAD;
    }
}

static void at_most_one_part_goes_on_whatever_happens(void **state)
{
    (void)state;
    const unsigned draws = ls_tests_rounds(SLOW_BUILD ? 500 : 2000, 8000);
    int groups = 0, admitted = 0;
    for (unsigned seed = 1; seed <= draws; seed++) {
        begin_world(seed);
        for (int i = 0; i < 1500; i++) {
            happen();
            check_row(seed);
        }
        groups += w.groups;
        admitted += w.admitted;
        for (int a = 0; a < w.members; a++)
            ls_tcp_vote_fini(&w.vote[a]);
    }
    assert_in_range(groups, draws, INT32_MAX); /* many of the draws lead to several groups */
    assert_in_range(admitted, draws / 20, INT32_MAX);
}

/* ---- cases without chance -------------------------------------------------------------------- */

/* Lets the members in `alive` (one bit for each member) vote until no message is left. Returns the
 * members that continue. */
static unsigned vote_among(unsigned alive)
{
    unsigned on = 0;
    for (int a = 0; a < w.members; a++) {
        w.mode[a] = alive >> a & 1 ? w.mode[a] : DEAD;
        begin_vote(a);
    }
    for (int a = 0; a < w.members; a++)
        for (int b = 0; b < a; b++)
            meet(a, b);
    for (int round = 0; round < 20; round++)
        for (int a = 0; a < w.members; a++) {
            for (int b = 0; b < w.members; b++)
                while (w.count[b][a] > 0 && w.mode[a] == VOTING)
                    deliver(b, a);
            if (round > 2)
                propose(a);
        }
    for (int a = 0; a < w.members; a++)
        on |= w.mode[a] == AT_WORK ? 1u << a : 0;
    return on;
}

static void begin_with(int members)
{
    begin_world(1);
    for (int a = 0; a < w.members; a++)
        ls_tcp_vote_fini(&w.vote[a]);
    w.members = w.first = members;
    for (int a = 0; a < members; a++)
        assert_int_equal(ls_tcp_vote_init(&w.vote[a], a, members, NULL), LS_OK);
}

static void end_world(void)
{
    for (int a = 0; a < w.members; a++)
        ls_tcp_vote_fini(&w.vote[a]);
}

static void more_than_half_go_on_and_of_two_halves_the_one_with_the_lowest(void **state)
{
    (void)state;
    static const struct {
        int members;
        unsigned alive, on;
    } cases[] = {{3, 6, 6}, {3, 3, 3}, {3, 4, 0},  {3, 1, 0}, {2, 1, 1},
                 {2, 2, 0}, {4, 3, 3}, {4, 12, 0}, {4, 9, 9}, {4, 14, 14}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin_with(cases[i].members);
        assert_int_equal(vote_among(cases[i].alive), cases[i].on);
        end_world();
    }
}

static void one_after_the_other_is_lost_until_one_is_left(void **state)
{
    (void)state;
    begin_with(3);
    assert_int_equal(vote_among(6), 6);
    assert_int_equal(vote_among(2), 2);
    end_world();
    begin_with(5);
    assert_int_equal(vote_among(0x1e), 0x1e);
    assert_int_equal(vote_among(0x1c), 0x1c);
    assert_int_equal(vote_among(0x0c), 0x0c);
    assert_int_equal(vote_among(0x04), 0x04);
    end_world();
}

/* The arrival, number 3, becomes a member if all members know the arrival. From then on it counts
 * for quorums. */
static void an_arrival_is_let_in_where_all_know_of_it(void **state)
{
    (void)state;
    for (int unaware = 0; unaware < 2; unaware++) {
        begin_with(3);
        w.members = 4;
        assert_int_equal(ls_tcp_vote_init(&w.vote[3], 3, 4, NULL), LS_OK);
        w.vote[3].formed = w.vote[0].formed;
        w.mode[3] = VOTING;
        for (int a = unaware; a < 4; a++)
            assert_int_equal(ls_tcp_vote_expect(&w.vote[a], 3, NULL), LS_OK);
        for (int a = 0; a < 3; a++)
            w.mode[a] = VOTING; /* the member regroups because of the arrival */
        assert_int_equal(vote_among(15), unaware ? 7 : 15);
        assert_int_equal(ls_tcp_set_has(&w.vote[1].formed.fresh, 3), !unaware);
        if (!unaware)
            /* the first member is lost, and three of four remain */
            assert_int_equal(vote_among(14), 14);
        end_world();
    }
}

/* An arrival comes to `members` members, and has no link to the members `apart`. Returns the
 * members that continue. */
static unsigned let_come(int members, unsigned apart)
{
    begin_with(members);
    w.members = members + 1;
    assert_int_equal(ls_tcp_vote_init(&w.vote[members], members, members + 1, NULL), LS_OK);
    w.vote[members].formed = w.vote[0].formed;
    w.mode[members] = VOTING;
    for (int a = 0; a <= members; a++) {
        w.cut[a][members] = w.cut[members][a] = apart >> a & 1;
        w.mode[a] = VOTING;
        assert_int_equal(ls_tcp_vote_expect(&w.vote[a], members, NULL), LS_OK);
    }
    return vote_among((2u << members) - 1);
}

/* All subsets of links of an arrival are cut before the vote, or when the arrival is a member. */
static void who_reaches_not_all_costs_no_older_member(void **state)
{
    (void)state;
    for (int members = 1; members <= 5; members++)
        for (unsigned apart = 0; apart < 1u << members; apart++) {
            const unsigned old = (1u << members) - 1, all = old | 1u << members;
            assert_int_equal(let_come(members, apart), apart ? old : all);
            for (int a = 0; a < members; a++)
                assert_int_equal(w.vote[a].formed.apart.bits[0], apart);
            end_world();
            assert_int_equal(let_come(members, 0), all);
            for (int a = 0; a < members; a++)
                w.cut[a][members] = w.cut[members][a] = apart >> a & 1;
            assert_int_equal(vote_among(all), apart ? old : all);
            end_world();
        }
}

/* Of two members, 0 and 1, that do not reach each other, 1 does not go on with an arrival. */
static void an_arrival_does_not_count_in_the_vote_on_its_admission(void **state)
{
    (void)state;
    for (unsigned apart = 0; apart < 4; apart++) {
        begin_with(2);
        w.members = 3;
        assert_int_equal(ls_tcp_vote_init(&w.vote[2], 2, 3, NULL), LS_OK);
        w.vote[2].formed = w.vote[0].formed;
        w.cut[0][1] = w.cut[1][0] = true;
        for (int a = 0; a < 3; a++) {
            w.mode[a] = VOTING;
            w.cut[a][2] = w.cut[2][a] = apart >> a & 1;
            assert_int_equal(ls_tcp_vote_expect(&w.vote[a], 2, NULL), LS_OK);
        }
        const unsigned on = vote_among(7);
        assert_true(on & 1);
        assert_false(on & 2);
        end_world();
    }
}

static void of_two_members_without_a_link_the_older_goes_on(void **state)
{
    (void)state;
    begin_with(4);
    w.cut[1][3] = w.cut[3][1] = true;
    assert_int_equal(vote_among(15), 7);
    end_world();
}

/* Members 0 and 1 are connected, 2 is not yet. What another member suspects of 2 counts only if
 * that member is older than 2. */
static void a_newer_member_cannot_hurry_the_others(void **state)
{
    (void)state;
    for (int from = 1; from < 4; from += 2) {
        begin_with(4);
        for (int a = 0; a < 4; a++)
            begin_vote(a);
        for (int round = 0; round < 8; round++)
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < 4; b++)
                    if (a != 2 && b != 2) {
                        meet(a, b);
                        deliver(a, b);
                    }
        assert_false(ls_tcp_vote_settled(&w.vote[0]));
        ls_tcp_set_add(&w.vote[from].suspects, 2);
        tell_links(from);
        while (w.count[from][0] > 0)
            deliver(from, 0);
        assert_int_equal(ls_tcp_vote_settled(&w.vote[0]), from < 2);
        end_world();
    }
}

/* Member 2 was stopped while the others went on. Member 2 continues while the others hold another
 * vote. */
static void one_that_comes_back_is_not_let_in(void **state)
{
    (void)state;
    begin_with(3);
    w.mode[2] = DEAD;
    assert_int_equal(vote_among(3), 3);
    w.mode[2] = AT_WORK;
    for (int a = 0; a < 3; a++)
        begin_vote(a);
    assert_int_equal(vote_among(7), 3);
    assert_false(ls_tcp_set_has(&ls_tcp_vote_last(&w.vote[2])->set, 2));
    end_world();
}

/* A message that was changed on its way. */
static void a_word_that_names_others_than_the_members_counts_for_nothing(void **state)
{
    (void)state;
    ls_tcp_message message, answer;
    begin_with(3);
    ls_tcp_vote_state(&w.vote[1], &message);
    assert_true(ls_tcp_vote_is_valid(&w.vote[0], &message));
    ls_tcp_set_add(&message.ballot.set, 3);
    assert_false(ls_tcp_vote_is_valid(&w.vote[0], &message));
    ls_tcp_vote_state(&w.vote[1], &message);
    ls_tcp_set_add(&message.suspects, LS_MEMBERS_MAX - 1);
    assert_false(ls_tcp_vote_is_valid(&w.vote[0], &message));
    message = (ls_tcp_message){.kind = TCP_STATE};
    assert_false(ls_tcp_vote_is_valid(&w.vote[0], &message));
    /* A proposal that contains an abandoned member does not count either. */
    assert_int_equal(vote_among(3), 3);
    message =
        (ls_tcp_message){.kind = TCP_PROPOSE, .ballot = {.number = 9, .set = {{7}}}, .number = 8};
    assert_true(ls_tcp_vote_is_valid(&w.vote[0], &message));
    ls_tcp_vote_on_message(&w.vote[0], 1, &message, &answer);
    assert_int_equal(w.vote[0].tries, 0);
    message.ballot.set.bits[0] = 3;
    ls_tcp_vote_on_message(&w.vote[0], 1, &message, &answer);
    assert_int_equal(w.vote[0].tries, 1);
    end_world();
}

LS_TESTS(cluster_vote, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_most_one_part_goes_on_whatever_happens),
        cmocka_unit_test(more_than_half_go_on_and_of_two_halves_the_one_with_the_lowest),
        cmocka_unit_test(one_after_the_other_is_lost_until_one_is_left),
        cmocka_unit_test(one_that_comes_back_is_not_let_in),
        cmocka_unit_test(an_arrival_is_let_in_where_all_know_of_it),
        cmocka_unit_test(who_reaches_not_all_costs_no_older_member),
        cmocka_unit_test(an_arrival_does_not_count_in_the_vote_on_its_admission),
        cmocka_unit_test(of_two_members_without_a_link_the_older_goes_on),
        cmocka_unit_test(a_newer_member_cannot_hurry_the_others),
        cmocka_unit_test(a_word_that_names_others_than_the_members_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_vote, "nightly no-asan no-tsan")
