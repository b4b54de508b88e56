/* SPDX-License-Identifier: MIT */
/* Checks a model of the parking protocol (sync/park.h) in all interleavings: two waiters and two
 * wakers on one word, on a processor whose stores wait in a buffer (x86-TSO).
 *
 * Waiter i waits for change i, which waker i makes. A wake-up is lost if a waiter sleeps although
 * its change is in memory and no waker is active any more. The protocol of park.c has no such
 * state; each of three wrong variants has such states. The model's steps are the memory accesses of
 * ls_park_until and ls_park_wake, one access a step. */
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIDES 2

enum form {
    AS_WRITTEN,
    PLAIN_LOOK,            /* the waker looks for an announcement with a load, not with a
                            * read-modify-write */
    CHECK_BEFORE_ANNOUNCE, /* the waiter checks before it announces itself, and not afterwards */
    NO_COUNT               /* the waker clears the announcement without incrementing the count */
};

enum waiter { ANNOUNCE, CHECK, SLEEP, ASLEEP, LEFT };
enum waker { CHANGE, LOOK, COUNT, WAKE, DONE };

struct state {
    uint8_t word;
    uint8_t changed[SIDES];  /* in memory */
    uint8_t buffered[SIDES]; /* the waker's store has not reached memory */
    uint8_t waiter[SIDES], key[SIDES];
    uint8_t waker[SIDES], seen[SIDES];
};

/* All states found so far. The states before `next` (in explore) have been expanded: their
 * successors have been added. */
#define STATES_MAX 200000
#define SLOTS (1u << 19)
static struct state states[STATES_MAX];
static uint32_t slots[SLOTS]; /* hash table: index of a state plus 1; 0: empty */
static uint32_t known;

static void meet(const struct state *s)
{
    uint32_t h = 2166136261u;
    const unsigned char *bytes = (const unsigned char *)s;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ bytes[i]) * 16777619u;
    for (h %= SLOTS; slots[h] != 0; h = (h + 1) % SLOTS)
        if (memcmp(&states[slots[h] - 1], s, sizeof *s) == 0)
            return;
    assert_true(known < STATES_MAX);
    states[known] = *s;
    slots[h] = ++known;
}

static void waiter_step(struct state s, int i, enum form form)
{
    int early = form == CHECK_BEFORE_ANNOUNCE;
    switch ((enum waiter)s.waiter[i]) {
    case ANNOUNCE: /* ls_park_prepare */
        s.word |= 1;
        s.key[i] = s.word;
        s.waiter[i] = early ? SLEEP : CHECK;
        break;
    case CHECK: /* ready() */ s.waiter[i] = s.changed[i] ? LEFT : early ? ANNOUNCE : SLEEP; break;
    case SLEEP: /* the kernel compares and puts to sleep in one step */
        s.waiter[i] = s.word == s.key[i] ? ASLEEP : early ? CHECK : ANNOUNCE;
        break;
    case ASLEEP:
    case LEFT: return;
    }
    meet(&s);
}

/* Moves the store of waker i from its buffer to memory. (A read-modify-write first does that.) */
static void flush(struct state *s, int i)
{
    s->changed[i] |= s->buffered[i];
    s->buffered[i] = 0;
}

static void waker_step(struct state s, int i, enum form form)
{
    switch ((enum waker)s.waker[i]) {
    case CHANGE:
        s.buffered[i] = 1;
        s.waker[i] = LOOK;
        break;
    case LOOK:
        if (form != PLAIN_LOOK)
            flush(&s, i);
        s.seen[i] = s.word;
        s.waker[i] = s.word & 1 ? COUNT : DONE;
        break;
    case COUNT: /* the exchange */
        flush(&s, i);
        s.waker[i] = s.word == s.seen[i] ? WAKE : DONE;
        if (s.word == s.seen[i])
            s.word = (uint8_t)(form == NO_COUNT ? s.word & ~1 : s.word + 1);
        break;
    case WAKE:
        for (int k = 0; k < SIDES; k++)
            if (s.waiter[k] == ASLEEP)
                s.waiter[k] = form == CHECK_BEFORE_ANNOUNCE ? CHECK : ANNOUNCE;
        s.waker[i] = DONE;
        break;
    case DONE: return;
    }
    meet(&s);
}

static int loses_a_wake_up(const struct state *s)
{
    for (int i = 0; i < SIDES; i++)
        if ((s->waker[i] != CHANGE && s->waker[i] != DONE) || s->buffered[i])
            return 0;
    for (int i = 0; i < SIDES; i++)
        if (s->waiter[i] == ASLEEP && s->changed[i])
            return 1;
    return 0;
}

/* Returns the number of reachable states in which a wake-up is lost. */
static int explore(enum form form)
{
    int lost = 0;
    struct state first;
    memset(&first, 0, sizeof first);
    memset(first.waiter, form == CHECK_BEFORE_ANNOUNCE ? CHECK : ANNOUNCE, SIDES);
    memset(slots, 0, sizeof slots);
    known = 0;
    meet(&first);
    for (uint32_t next = 0; next < known; next++) {
        const struct state s = states[next];
        lost += loses_a_wake_up(&s);
        for (int i = 0; i < SIDES; i++) {
            struct state flushed = s;
            flush(&flushed, i);
            meet(&flushed);
            waiter_step(s, i, form);
            waker_step(s, i, form);
        }
    }
    return lost;
}

static void parking_loses_no_wake_up(void **state)
{
    (void)state;
    assert_int_equal(explore(AS_WRITTEN), 0);
    assert_true(known > 1000); /* the search did not end at once */
}

static void a_plain_look_would_lose_one(void **state)
{
    (void)state;
    assert_true(explore(PLAIN_LOOK) > 0);
}

static void a_check_before_the_announcement_would_lose_one(void **state)
{
    (void)state;
    assert_true(explore(CHECK_BEFORE_ANNOUNCE) > 0);
}

static void a_word_without_a_count_would_lose_one(void **state)
{
    (void)state;
    assert_true(explore(NO_COUNT) > 0);
}

LS_TESTS(sync_park_model, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parking_loses_no_wake_up),
        cmocka_unit_test(a_plain_look_would_lose_one),
        cmocka_unit_test(a_check_before_the_announcement_would_lose_one),
        cmocka_unit_test(a_word_without_a_count_would_lose_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
