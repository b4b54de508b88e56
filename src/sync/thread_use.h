/* What another thread of this process does with its time, as the kernel counts it: the portable face of
 * what Linux tells in /proc. Costs some system calls, so it is for threads that are suspected. */
#ifndef SYNC_THREAD_USE_H
#define SYNC_THREAD_USE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_thread_use {
    char state;         /* 'R': runs, or could; 'S', 'D': sleeps; 'T', 't': stopped; 0: not known */
    uint64_t ran_ns;    /* so long it had a CPU, since it began */
    uint64_t queued_ns; /* so long it could have run and had none; counted when it gets one */
} ls_thread_use;

/* The calling thread's number; 0 where the system tells none. */
int ls_thread_self(void);

/* Any thread. False, and a state of 0, where the system does not say, or there is no such thread. */
bool ls_thread_look(ls_thread_use *out, int thread);

#endif
