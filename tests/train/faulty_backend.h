/* The reference back end with a device that fails on request. */
#ifndef TESTS_TRAIN_FAULTY_BACKEND_H
#define TESTS_TRAIN_FAULTY_BACKEND_H

#include <lockstep/sys/plugin.h>
#include <stdatomic.h>

/* Which call of device `device` fails, counted from 1 over the calls of that kind; 0: none.
 * Every later call of that kind fails too: a device that is gone does not come back. */
typedef struct faults {
    atomic_int device;
    atomic_int tail_at; /* within a step, before its commit point: the tail of a shard's gradient */
    atomic_int download_at; /* behind the commit point: the tail of the merged arena */
    atomic_int alloc_at;    /* while the trainer is opened */
    atomic_int tails, downloads, allocs;
} faults;

extern faults fault; /* back ends have no pointer of their own */

void fault_reset(void);

/* "faulty": `faulty:3` opens three of them. */
const ls_backend *faulty_backend(void);

#endif
