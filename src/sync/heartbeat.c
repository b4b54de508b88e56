/* SPDX-License-Identifier: MIT */
/* heartbeat.h explains beats, places, marks, silence and suspicion. */
#include "sync/heartbeat.h"

#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ls_heartbeat_place(const ls_heartbeat *heartbeat)
{
    return (int)(atomic_load_explicit(&heartbeat->word, memory_order_relaxed) & LS_PLACE_MAX);
}

/* Returns how much of `attended_ns`, the attended time since the last look (base/clock.h), counts
 * against a silent thread. `before` and `now` are the silent thread's states at the last look and
 * at this look.
 *
 * A deadline is meant to find threads that hang. A thread can hang asleep, in a call that does not
 * return (usually a call of a driver), or running, in a loop that does not end. Time counts in both
 * cases. Time must not count while the thread cannot run. There are two reasons why a thread cannot
 * run:
 *
 * - All threads are stopped, including the watcher. The watcher then looks again much later than it
 *   planned. ls_attended_ns (base/clock.h) concludes from this delay that the process was stopped,
 *   and does not count the excess.
 * - Only this thread cannot run: no CPU is free for it (state R, but it does not run), or a
 *   debugger stops it (t, T). In these states only the time for which the thread did run counts. A
 *   stopped thread runs for none of the time, a thread on an overloaded machine for a part of it,
 *   and a thread that spins for all of it.
 *
 * For a sleeping thread all time counts except the time on the run queue. (A thread that
 * alternately sleeps and wakes waits for a CPU each time.) The kernel adds a wait to queued_ns when
 * the wait is over. So queued_ns can grow by more than the time since the last look, if the wait
 * began before that look. The subtraction below therefore stops at 0.
 *
 * The states are unknown before the watcher suspects the thread, and on systems that report nothing
 * about threads. Attended time then counts up to LS_ATTENTION_NS a look. A larger `attended_ns`
 * contains time for which the watcher lacked a CPU, and the thread can have lacked a CPU as well.
 * So a hung thread is found on every system, but a thread without a CPU is recognised only on Linux
 * with /proc. The watched thread can be asleep inside an op because it waits for another thread of
 * its team. Its time then counts, even if the other thread lacks a CPU. */
static uint64_t counted_ns(const ls_thread_use *before, const ls_thread_use *now,
                           uint64_t attended_ns)
{
    if (before->state == 0 || now->state == 0)
        return attended_ns < LS_ATTENTION_NS ? attended_ns : LS_ATTENTION_NS;
    uint64_t ran_ns = now->ran_ns - before->ran_ns;
    uint64_t queued_ns = now->queued_ns - before->queued_ns;
    if (now->state == 'R' || now->state == 'T' || now->state == 't')
        return ran_ns;
    uint64_t slept_ns = attended_ns > queued_ns ? attended_ns - queued_ns : 0;
    return slept_ns > ran_ns ? slept_ns : ran_ns;
}

void ls_silence_look(ls_silence *s, const ls_heartbeat *heartbeat, int thread, uint64_t attended_ns,
                     uint64_t suspicious_ns)
{
    const ls_thread_use before = s->use;
    /* The count and the place come from a single load, so that both belong to the same beat. */
    uint64_t word = atomic_load_explicit(&heartbeat->word, memory_order_relaxed);
    if (word >> 24 != s->count || s->since_ns == 0) {
        *s = (ls_silence){word >> 24, (int)(word & LS_PLACE_MAX), ls_now_ns(), 0, {0}};
        return;
    }
    if (s->held_ns + LS_ATTENTION_NS >= suspicious_ns)
        ls_thread_look(&s->use, thread);
    s->held_ns += counted_ns(&before, &s->use, attended_ns);
}

/* ---- marks ----------------------------------------------------------------------------------- */

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

/* ---- states of threads ----------------------------------------------------------------------- */

/* The link reads "12/task/34". Its last part is the thread's number in the PID namespace of this
 * /proc. It can differ from the number that gettid returns. */
int ls_thread_self(void)
{
    char link[64];
    ssize_t length = readlink("/proc/thread-self", link, sizeof link - 1);
    if (length <= 0)
        return 0;
    link[length] = '\0';
    const char *slash = strrchr(link, '/');
    return slash ? (int)strtol(slash + 1, NULL, 10) : 0;
}

/* Reads the first size − 1 bytes of /proc/self/task/`thread`/`name` as text. Returns false on
 * failure. */
static bool read_file(char *text, size_t size, int thread, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

bool ls_thread_look(ls_thread_use *out, int thread)
{
    char text[160], *end;
    *out = (ls_thread_use){0};
    if (thread <= 0 || !read_file(text, sizeof text, thread, "schedstat"))
        return false;
    out->ran_ns = strtoull(text, &end, 10);
    out->queued_ns = strtoull(end, NULL, 10);
    /* The file reads "34 (a name with any characters) S …". */
    const char *name_end = read_file(text, sizeof text, thread, "stat") ? strrchr(text, ')') : NULL;
    if (name_end && name_end[1] == ' ')
        out->state = name_end[2];
    return out->state != 0;
}
