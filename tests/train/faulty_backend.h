/* The reference back end with one device that fails or is slow, as a test requests. */
#ifndef TESTS_TRAIN_FAULTY_BACKEND_H
#define TESTS_TRAIN_FAULTY_BACKEND_H

#include <lockstep/sys/plugin.h>
#include <stdatomic.h>

/* Faults of device `device`. For each kind of call: number, from 1, of the first call that fails;
 * 0: no call fails. Every later call of that kind fails as well, because a lost device does not
 * work again. */
typedef struct faults {
    atomic_int device;
    /* writes of the tail of a shard's gradient: within a step, before its commit point */
    atomic_int tail_at;
    atomic_int download_at; /* downloads of the tail of the total: after the commit point */
    atomic_int alloc_at;    /* allocations while the trainer is opened */
    /* not 0: the device does not fail but is slow: its first shard of a step ends after the other
     * devices have computed `wait_for` shards */
    atomic_int wait_for;
    atomic_int tails, downloads, allocs;
    atomic_int others; /* number of shards that the other devices have computed */
    /* the others have computed `wait_for` shards before the slow device stopped waiting */
    atomic_int others_in_time;
} faults;

extern faults fault; /* global, because back ends have no pointer of their own */

void fault_reset(void);

/* Returns the back end "faulty". The device list `faulty:3` opens three devices. */
const ls_backend *faulty_backend(void);

#endif
