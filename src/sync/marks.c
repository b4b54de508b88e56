#include "sync/marks.h"

#include "base/clock.h"

int ls_marks_init(ls_marks *marks, const ls_host *host, size_t capacity, ls_error *err)
{
    marks->lost = 0;
    return ls_ring_init(&marks->ring, host, sizeof(ls_mark), capacity, err);
}

void ls_marks_fini(ls_marks *marks)
{
    ls_ring_fini(&marks->ring);
}

void ls_marks_put(ls_marks *marks, int place, uint32_t number)
{
    ls_mark mark = {.ns = ls_now_ns(), .place = place, .number = number};
    if (marks->lost > 0) {
        const ls_mark gap = {.ns = mark.ns, .place = LS_MARKS_LOST, .number = marks->lost};
        if (ls_ring_try_push(&marks->ring, &gap) == LS_OK)
            marks->lost = 0;
    }
    if (marks->lost > 0 || ls_ring_try_push(&marks->ring, &mark) != LS_OK)
        marks->lost++;
}

int ls_marks_take(ls_marks *marks, ls_mark *out)
{
    return ls_ring_try_pop(&marks->ring, out) == LS_OK;
}
