#include "cuda/cuda_comm_meet.h"

#include "base/clock.h"
#include "cuda/cuda_device.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void ls_cuda_nap(unsigned rounds)
{
    if (rounds < 64)
        return;
    if (rounds < 4096) { /* some milliseconds: a nap, however short, takes longer than most steps */
        sched_yield();
        return;
    }
    struct timespec nap = {0, 50000};
    nanosleep(&nap, NULL);
}

/* ---- making --------------------------------------------------------------------------------- */

static int make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return -1;
    int failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
                 pthread_cond_init(condition, &attributes) != 0;
    pthread_condattr_destroy(&attributes);
    return failed ? -1 : 0;
}

int ls_cuda_meet_init(ls_cuda_meet *meet, const ls_host *host, int ranks, unsigned spins,
                      ls_error *err)
{
    memset(meet, 0, sizeof *meet);
    meet->is_here = ls_alloc(host, (size_t)ranks);
    if (!meet->is_here)
        return ls_fail(err, LS_ENOMEM, "out of memory for a group of %d ranks", ranks);
    meet->host = host;
    meet->ranks = ranks;
    meet->spins = spins;
    if (pthread_mutex_init(&meet->lock, NULL) == 0) {
        if (make_condition(&meet->changed) == 0) {
            meet->ready = 1;
            return LS_OK;
        }
        pthread_mutex_destroy(&meet->lock);
    }
    ls_free(host, meet->is_here);
    meet->is_here = NULL;
    return ls_fail(err, LS_ESYSTEM, "the system has no lock for a group of %d ranks", ranks);
}

void ls_cuda_meet_fini(ls_cuda_meet *meet)
{
    if (!meet->ready)
        return;
    pthread_cond_destroy(&meet->changed);
    pthread_mutex_destroy(&meet->lock);
    ls_free(meet->host, meet->is_here);
    meet->ready = 0;
}

/* ---- meeting -------------------------------------------------------------------------------- */

static int say_aborted(ls_error *err)
{
    return ls_fail(err, LS_EABORTED, "another worker failed first");
}

/* The lock is held. */
static int say_missing(const ls_cuda_meet *meet, ls_error *err)
{
    char list[256] = "";
    size_t used = 0;
    for (int r = 0; r < meet->ranks && used + 16 < sizeof list; r++)
        if (!meet->is_here[r])
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", r);
    return ls_fail(err, LS_ETIMEDOUT, "%d of %d ranks came in time; missing: %s", meet->arrived,
                   meet->ranks, list);
}

/* The lock is held. The round's end, whatever it is. */
static int await_end(ls_cuda_meet *meet, uint64_t round, uint64_t deadline_ns, ls_error *err)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                             (long)(deadline_ns % 1000000000u)};
    while (atomic_load(&meet->round) == round && !atomic_load(&meet->aborted)) {
        if (deadline_ns == UINT64_MAX)
            pthread_cond_wait(&meet->changed, &meet->lock);
        else if (ls_now_ns() < deadline_ns)
            pthread_cond_timedwait(&meet->changed, &meet->lock, &until);
        else {
            int status = say_missing(meet, err);
            atomic_store(&meet->aborted, 1);
            pthread_cond_broadcast(&meet->changed);
            return status;
        }
    }
    return atomic_load(&meet->round) != round ? LS_OK : say_aborted(err);
}

static void release(ls_cuda_meet *meet)
{
    meet->arrived = 0;
    memset(meet->is_here, 0, (size_t)meet->ranks);
    atomic_fetch_add(&meet->round, 1);
    pthread_cond_broadcast(&meet->changed);
}

int ls_cuda_meet_wait(ls_cuda_meet *meet, int rank, uint64_t deadline_ns, ls_error *err)
{
    int status = LS_OK;
    pthread_mutex_lock(&meet->lock);
    uint64_t round = atomic_load(&meet->round);
    int aborted = atomic_load(&meet->aborted);
    if (!aborted) {
        meet->is_here[rank] = 1;
        if (++meet->arrived == meet->ranks)
            release(meet);
    }
    pthread_mutex_unlock(&meet->lock);
    if (aborted)
        return say_aborted(err);
    for (unsigned i = 0; i < meet->spins; i++)
        if (atomic_load_explicit(&meet->round, memory_order_acquire) != round)
            return LS_OK;
    pthread_mutex_lock(&meet->lock);
    status = await_end(meet, round, deadline_ns, err);
    pthread_mutex_unlock(&meet->lock);
    return status;
}

void ls_cuda_meet_abort(ls_cuda_meet *meet)
{
    pthread_mutex_lock(&meet->lock);
    atomic_store(&meet->aborted, 1);
    pthread_cond_broadcast(&meet->changed);
    pthread_mutex_unlock(&meet->lock);
}

int ls_cuda_meet_aborted(const ls_cuda_meet *meet)
{
    return atomic_load_explicit(&((ls_cuda_meet *)meet)->aborted, memory_order_acquire);
}
