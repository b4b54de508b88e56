/* Monotonic time. Any thread; never fails. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary start that is the same for all threads. */
uint64_t ls_now_ns(void);

/* `timeout` nanoseconds from now as a point in time; UINT64_MAX (never) stays what it is, and a
 * sum that would overflow becomes it. */
uint64_t ls_deadline_ns(uint64_t timeout);

#endif
