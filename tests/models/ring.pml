/* SPDX-License-Identifier: MIT */
/* The ring between one producer and one consumer (src/sync/ring.c), which both can park (sleep, see
 * park.pml). A third process, the closer, can close the ring at any time. The consumer can stop
 * early.
 *
 * Checked:
 *
 * - The consumer gets each item once, in the sequence of the pushes.
 * - A slot is never written while it is read.
 * - An item that was pushed before the close is delivered.
 * - After the consumer has been told "closed", no push succeeds.
 * - No process sleeps for ever. (A process that cannot end is an invalid end state, which Spin
 *   reports.) The only cycles of the state graph are those of waiting. Therefore every run ends.
 *
 * The model assumes sequential consistency (see park.pml).
 *
 * Planted bugs: BUG_CLOSE_APART, BUG_NO_SECOND_LOOK, BUG_WAKE_FIRST, BUG_PUBLISH_FIRST,
 * BUG_FREE_FIRST, BUG_ONE_TOO_MANY, BUG_CLOSE_WAKES_ONE. */
#define SLEEPERS 2
#include "park.pml"

#define CAPACITY 2
#define ITEMS 4
#ifdef BUG_ONE_TOO_MANY
#define ROOM (CAPACITY + 1)
#else
#define ROOM CAPACITY
#endif

#define PRODUCER 0
#define CONSUMER 1

/* `tail`, the number of items pushed, and `closed`, the closing bit, are one word in C. Therefore
 * an exchange changes or tests both in one step. */
byte tail;
bool closed;
byte head;
byte slot[CAPACITY];
park_word producer_park;
park_word consumer_park;

/* ls_ring_close */
inline close(seen_by_closer)
{
    closed = true;
    park_wake(consumer_park, seen_by_closer);
#ifndef BUG_CLOSE_WAKES_ONE
    park_wake(producer_park, seen_by_closer)
#endif
}

/* For the assertions. */
byte pushed;  /* number of pushes that succeeded */
bool ended;   /* the consumer was told "closed" */
byte writing; /* slots that are being written, one bit each; `reading`: slots that are being read */
byte reading;

#define BIT(position) (1 << ((position) % CAPACITY))

inline write_slot(position, item)
{
    d_step {
        assert((reading & BIT(position)) == 0);
        writing = writing | BIT(position);
    }
    d_step {
        slot[(position) % CAPACITY] = item;
        writing = writing & ~BIT(position);
        assert((reading & BIT(position)) == 0);
    }
}

inline read_slot(position, item)
{
    d_step {
        assert((writing & BIT(position)) == 0);
        reading = reading | BIT(position);
    }
    d_step {
        item = slot[(position) % CAPACITY];
        reading = reading & ~BIT(position);
        assert((writing & BIT(position)) == 0);
    }
}

#define OK 0
#define FULL 1
#define EMPTY 1
#define CLOSED 2

/* The exchange that publishes a slot. It fails if the ring is closed. */
inline publish()
{
    d_step {
#ifndef BUG_CLOSE_APART
        /* With a store instead of the exchange, a close between the load and the store would have
         * no effect. */
        if
        :: closed -> status = CLOSED
        :: else
        fi;
#endif
        if
        :: status == OK ->
            assert(!ended);
            tail = mine + 1;
            pushed++
        :: else
        fi
    }
}

/* ls_ring_try_push */
inline try_push(item)
{
    d_step {
        mine = tail;
        status = (closed -> CLOSED : OK);
    }
    if
    :: status == OK && mine - head_seen == ROOM ->
        d_step {
            head_seen = head;
            status = (mine - head_seen == ROOM -> FULL : OK);
        }
    :: else
    fi
    if
    :: status == OK ->
#ifdef BUG_WAKE_FIRST
        park_wake(consumer_park, seen);
#endif
#ifdef BUG_PUBLISH_FIRST
        publish();
        write_slot(mine, item);
#else
        write_slot(mine, item);
        publish();
#endif
#ifndef BUG_WAKE_FIRST
        if
        :: status == OK -> park_wake(consumer_park, seen)
        :: else
        fi
#endif
    :: else
    fi
}

active proctype producer()
{
    byte head_seen, mine, status, key, seen;
    byte item = 1;
    bool late;
    do
    :: item <= ITEMS ->
        try_push(item);
        if
        :: status == FULL ->
            park_prepare(producer_park, key);
#ifndef BUG_NO_SECOND_LOOK
            try_push(item);
#endif
            if
            :: status == FULL -> park_sleep(producer_park, key, PRODUCER, late)
            :: else
            fi
        :: else
        fi
        if
        :: status == OK -> item++
        :: status == CLOSED -> break
        :: status == FULL
        fi
    :: else -> break
    od
}

/* ls_ring_try_pop */
inline try_pop(item)
{
    status = OK;
    if
    :: head == tail_seen ->
        d_step {
            tail_seen = tail;
            status = (head != tail_seen -> OK : (closed -> CLOSED : EMPTY));
        }
    :: else
    fi
    if
    :: status == OK ->
#ifdef BUG_FREE_FIRST
        head = head + 1;
        read_slot(head - 1, item);
#else
        read_slot(head, item);
        head = head + 1;
#endif
        park_wake(producer_park, seen)
    :: else
    fi
}

active proctype consumer()
{
    byte tail_seen, status, key, seen, item;
    byte expected = 1;
    bool late, left;
    do
    :: expected > ITEMS -> break
    :: expected > 1 -> left = true; break /* the consumer stops early, and closes the ring */
    :: expected <= ITEMS ->
        try_pop(item);
        if
        :: status == EMPTY ->
            park_prepare(consumer_park, key);
#ifndef BUG_NO_SECOND_LOOK
            try_pop(item);
#endif
            if
            :: status == EMPTY -> park_sleep(consumer_park, key, CONSUMER, late)
            :: else
            fi
        :: else
        fi
        if
        :: status == OK ->
            assert(item == expected);
            expected++
        :: status == CLOSED -> break
        :: status == EMPTY
        fi
    od;
    if
    :: left -> close(seen)
    :: else
    fi;
    d_step {
        if
        :: status == CLOSED ->
            assert(pushed == expected - 1);
            ended = true /* from now on a push must not succeed */
        :: else
        fi
    }
}

active proctype closer()
{
    byte seen;
    if
    :: true -> close(seen)
    :: true
    fi
}
