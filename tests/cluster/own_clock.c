/* SPDX-License-Identifier: MIT */
/* Replaces the library's clock in threads that have a clock of their own (wire_double.h). The
 * linker's option --wrap makes all calls of the library's functions reach these functions. */
#include "cluster/wire_double.h"

uint64_t __real_ls_now_ns(void);
uint64_t __wrap_ls_now_ns(void);
uint64_t __real_ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns);
uint64_t __wrap_ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns);

uint64_t __wrap_ls_now_ns(void)
{
    return wire_own_clock ? atomic_load(wire_own_clock) : __real_ls_now_ns();
}

uint64_t __wrap_ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns)
{
    const uint64_t before = *seen_ns;
    if (!wire_own_clock)
        return __real_ls_attended_ns(seen_ns, queued_ns);
    *seen_ns = atomic_load(wire_own_clock);
    return before < *seen_ns ? *seen_ns - before : 0;
}
