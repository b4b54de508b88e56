/* SPDX-License-Identifier: MIT */
/* A back end for tests: the reference back end (plain C), with one device that fails or is slow as
 * a test requests. */
#ifndef TESTS_TRAIN_FAULTY_BACKEND_H
#define TESTS_TRAIN_FAULTY_BACKEND_H

#include <lockstep/sys/plugin.h>
#include <stdatomic.h>

/* Faults of device `device`. A field with a name in _at is about one kind of call: it is the
 * number, from 1, of the first call that fails; 0: no call fails. Every later call of that kind
 * fails as well, because a lost device does not work again. The *tail* of a gradient is its last
 * floats, with loss, correct rows and rows. */
typedef struct faults {
    atomic_int device;
    /* writes of the tail of a shard's gradient; they are in a step, before the point after which
     * all workers apply the step */
    atomic_int tail_at;
    atomic_int download_at; /* downloads of the tail of the total; after that point */
    atomic_int alloc_at;    /* allocations while the trainer is opened */
    /* not 0: the device is slow: its first shard of the run ends only after the other devices have
     * computed `wait_for` shards */
    atomic_int wait_for;
    atomic_int tails, downloads, allocs; /* numbers of calls so far */
    atomic_int others;                   /* number of shards that the other devices have computed */
    /* not 0: the other devices have computed `wait_for` shards before the slow device stopped
     * waiting */
    atomic_int others_in_time;
} faults;

extern faults fault; /* global, because a back end's functions get no pointer of the test's */

/* Removes all faults, and sets all counters to 0. */
void fault_reset(void);

/* Returns the back end "faulty". The device list `faulty:3` opens three devices. */
const ls_backend *faulty_backend(void);

#endif
