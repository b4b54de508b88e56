/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

uint64_t ls_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t ls_deadline_ns(uint64_t timeout)
{
    uint64_t now = ls_now_ns();
    return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

uint64_t ls_attended_ns(uint64_t *seen_ns, uint64_t queued_ns)
{
    uint64_t now = ls_now_ns(), passed = now - *seen_ns, most = LS_ATTENTION_NS + queued_ns;
    *seen_ns = now;
    return passed < most ? passed : most;
}

ls_patience ls_patience_of(uint64_t timeout)
{
    return (ls_patience){timeout, ls_now_ns()};
}

ls_patience ls_patience_until(uint64_t deadline_ns)
{
    uint64_t now = ls_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    return (ls_patience){deadline_ns == UINT64_MAX ? UINT64_MAX : left, now};
}

uint64_t ls_patience_nap(const ls_patience *p)
{
    if (p->left_ns == UINT64_MAX)
        return UINT64_MAX;
    return p->seen_ns + (p->left_ns < LS_NAP_NS ? p->left_ns : LS_NAP_NS);
}

bool ls_patience_over(ls_patience *p)
{
    uint64_t attended = ls_attended_ns(&p->seen_ns, 0);
    if (p->left_ns == UINT64_MAX)
        return false;
    p->left_ns -= attended < p->left_ns ? attended : p->left_ns;
    return p->left_ns == 0;
}
