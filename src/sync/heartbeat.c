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

/* The one place where time is counted against a thread that shows no sign of life.
 *
 * A deadline is to find threads that hang, and a thread can hang in two ways: asleep, in a call that does
 * not return (a driver's, mostly), or at work, in a loop that does not end. Time counts while it does
 * either. It must not count while the thread could do nothing about its silence, and that, too, comes in
 * two ways:
 *   - every thread was stopped, the watcher included. The watcher notices by its own absence: it planned
 *     to look again long before (ls_attended_ns);
 *   - this thread alone was: no CPU was free for it (state R, and it did not run), or a debugger
 *     holds it (t, T). While it is in one of these states only the time that it did run counts, which
 *     is nothing for a thread that is stopped, a share for one on a starved machine, and all for
 *     one that spins.
 * Asleep all time counts but that on the run queue in between: a thread that sleeps and wakes
 * by turns waits for a CPU each time. The kernel adds a wait to queued_ns when it is over, so this may be
 * more than the time since the last look; what is too much was not counted as it passed.
 *
 * Until the thread is suspected, and where the system tells nothing of threads, all attended time counts (but
 * not what the watcher lacked a CPU, since the thread may have lacked it too): a
 * hung thread is found everywhere, a starved one is told apart on Linux with /proc alone. A thread of
 * which another one waits inside an op (a team's) is told apart by its own state: the one that waits sleeps. */
static uint64_t count(const ls_thread_use *before, const ls_thread_use *now, uint64_t attended_ns)
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
    /* One load, so that the place is that of the beat. */
    uint64_t word = atomic_load_explicit(&heartbeat->word, memory_order_relaxed);
    if (word >> 24 != s->count || s->since_ns == 0) {
        *s = (ls_silence){word >> 24, (int)(word & LS_PLACE_MAX), ls_now_ns(), 0, {0}};
        return;
    }
    if (s->held_ns + LS_ATTENTION_NS >= suspicious_ns)
        ls_thread_look(&s->use, thread);
    s->held_ns += count(&before, &s->use, attended_ns);
}

/* ---- marks ------------------------------------------------------------------------------------ */

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

/* ---- what a thread does ----------------------------------------------------------------------- */

/* "12/task/34": the number that this /proc knows the thread by, whatever namespace it is of. */
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

/* The first bytes of a file of the thread's. */
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
    /* "34 (a name, with any character) S …" */
    const char *name_end = read_file(text, sizeof text, thread, "stat") ? strrchr(text, ')') : NULL;
    if (name_end && name_end[1] == ' ')
        out->state = name_end[2];
    return out->state != 0;
}
