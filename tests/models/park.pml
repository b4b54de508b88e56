/* SPDX-License-Identifier: MIT */
/* Parking (src/sync/park.h): a thread sleeps until another thread wakes it. The models of the ring
 * and of the barrier include this file.
 *
 * The lowest bit of the park's word says that a thread has announced that it is about to sleep. The
 * bits above count the wake-ups. The *key* is the value of the word after the announcement. The
 * futex call compares the word with the key and sleeps only if they are equal, in one step of the
 * kernel.
 *
 * Each step below is one atomic operation of the C code. Spin interleaves the steps of all
 * processes in every sequence, but always with sequential consistency: every process sees every
 * write at once. The effects of weaker memory orders on ring, barrier and park are tested in
 * tests/sync (test_park_model.c, weakened_orders.sh). */
typedef park_word {
    byte word;
    bool asleep[SLEEPERS]; /* by the number of a process: this process sleeps on the word */
};

/* Announces that the calling process is about to sleep, and sets `key`. */
inline park_prepare(park, key)
{
    d_step {
        park.word = park.word | 1;
        key = park.word;
    }
}

/* Sleeps if the word is still equal to the key, until another process wakes this one. With
 * DEADLINES it can also return at any earlier time, and then sets `late`. */
inline park_sleep(park, key, me, late)
{
    park.asleep[me] = (park.word == key);
    if
    :: d_step { !park.asleep[me] -> late = false; }
#ifdef DEADLINES
    :: d_step { park.asleep[me] -> park.asleep[me] = false; late = true; }
#endif
    fi
}

/* Looks for an announcement, and wakes all sleepers if there is one. `seen`: a variable of the
 * calling process. */
inline park_wake(park, seen)
{
    seen = park.word;
    if
    :: seen & 1 ->
        if
        :: d_step { park.word == seen -> park.word = seen + 1; }
            d_step {
                park_index = 0;
                do
                :: park_index < SLEEPERS -> park.asleep[park_index] = false; park_index++
                :: else -> break
                od;
                park_index = 0;
            }
        :: else /* another process has changed the word first, and wakes the same sleepers */
        fi
    :: else
    fi
    seen = 0;
}

hidden byte park_index;
