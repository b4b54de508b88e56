/* The reference back end with a device that fails, or is slow, on request. */
#ifndef TESTS_TRAIN_FAULTY_BACKEND_H
#define TESTS_TRAIN_FAULTY_BACKEND_H

#include <lockstep/sys/plugin.h>
#include <stdatomic.h>

/* Faults of device `device`: number of the call that fails, counted from 1 for each kind of call;
 * 0: none. Every later call of that kind fails as well, because a lost device does not return. */
typedef struct faults {
    atomic_int device;
    /* within a step, before its commit point: the tail of a shard's gradient */
    atomic_int tail_at;
    atomic_int download_at; /* after the commit point: the tail of the merged arena */
    atomic_int alloc_at;    /* while the trainer is being opened */
    /* the device is slow instead: its first shard ends after the others have computed so many */
    atomic_int wait_for;
    atomic_int tails, downloads, allocs;
    atomic_int others;         /* shards that the other devices have computed */
    atomic_int others_in_time; /* the slow device has seen as many as it waited for */
} faults;

extern faults fault; /* global, because back ends have no pointer of their own */

void fault_reset(void);

/* "faulty"; `faulty:3` opens three devices. */
const ls_backend *faulty_backend(void);

#endif
