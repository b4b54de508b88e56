/* Parking (src/sync/park.h), shared by the models of what sleeps on it.
 *
 * The word's lowest bit says that somebody announced itself, the bits above count the wake-ups. A
 * futex call sleeps only if the word still holds the key, in one step of the kernel's.
 *
 * Each step below is one atomic operation of the C code. Spin interleaves them in every order, but
 * always as if there were one memory that all see at once: sequential consistency. What weaker
 * memory does to ring, barrier and park is for tests/sync (test_park_model.c,
 * weakened_orders.sh) to show.
 */
typedef park_word {
    byte word;
    bool asleep[SLEEPERS]; /* by the process's number: who sleeps on it */
};

/* Announces the caller; `key` is what it may sleep on. */
inline park_prepare(park, key)
{
    d_step {
        park.word = park.word | 1;
        key = park.word;
    }
}

/* Sleeps if the word is still the key; returns when woken. With DEADLINES it may return at any
 * time, and then `late` is set. */
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

/* Looks for announcements, and wakes everybody if there is one. `seen` is the caller's. */
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
        :: else /* another waker was faster: it wakes the same sleepers */
        fi
    :: else
    fi
    seen = 0;
}

hidden byte park_index;
