/* SPDX-License-Identifier: MIT */
/* Two parts of a pool: protection from deadlocks, and the latch for the first error. pool.h
 * explains both. In this directory only this file and topology.c define _GNU_SOURCE. */
#define _GNU_SOURCE /* for MADV_WIPEONFORK */
#include "pool/pool.h"

#include "base/error.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

int ls_fork_mark_create(ls_fork_mark **out, ls_error *err)
{
    *out = NULL;
    void *page =
        mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return ls_fail(err, LS_ENOMEM, "no memory for a pool");
    *(volatile unsigned char *)page = 1;
    if (madvise(page, page_size(), MADV_WIPEONFORK) == 0)
        *out = page;
    else /* a kernel before Linux 4.14: a child process cannot be recognised */
        munmap(page, page_size());
    return LS_OK;
}

void ls_fork_mark_destroy(ls_fork_mark *mark)
{
    if (mark)
        munmap((void *)(uintptr_t)mark, page_size());
}

/* List of the jobs and hooks that this thread is executing, the innermost one first. The list is
 * empty while the thread executes no job or hook, so no state remains after a pool is destroyed. */
static _Thread_local ls_inside *innermost;

void ls_inside_enter(ls_inside *frame, const ls_pool *pool)
{
    frame->pool = pool;
    frame->outer = innermost;
    innermost = frame;
}

void ls_inside_leave(const ls_inside *frame)
{
    innermost = frame->outer;
}

bool ls_inside_of(const ls_pool *pool)
{
    for (const ls_inside *f = innermost; f; f = f->outer)
        if (f->pool == pool)
            return true;
    return false;
}

int ls_pool_is_ours(const ls_pool *pool, ls_error *err)
{
    if (!pool)
        return ls_fail(err, LS_EINVAL, "the pool is NULL");
    if (ls_fork_mark_is_inherited(pool->mark))
        return ls_fail(err, LS_EINVAL,
                       "the pool belongs to another process, of which this one was forked: make a "
                       "new one here");
    return LS_OK;
}

int ls_pool_check_owner(const ls_pool *pool, ls_error *err)
{
    int status = ls_pool_is_ours(pool, err);
    if (status == LS_OK && ls_inside_of(pool))
        status = ls_fail(err, LS_EINVAL,
                         "called from a job or hook of the same pool, which would wait for itself");
    return status;
}

void ls_latch_init(ls_latch *latch)
{
    pthread_mutex_init(&latch->lock, NULL);
    latch->worker = -1;
    atomic_init(&latch->status, LS_OK);
}

void ls_latch_fini(ls_latch *latch)
{
    pthread_mutex_destroy(&latch->lock);
}

void ls_latch_set(ls_latch *latch, int worker, int status, const ls_error *err,
                  const atomic_bool *mute)
{
    pthread_mutex_lock(&latch->lock);
    bool open = atomic_load_explicit(&latch->status, memory_order_relaxed) == LS_OK;
    if (open && !(mute && atomic_load_explicit(mute, memory_order_relaxed))) {
        latch->worker = worker;
        latch->error = *err;
        latch->error.status = status;
        /* release: pairs with the load without the lock in ls_latch_get. */
        atomic_store_explicit(&latch->status, status, memory_order_release);
    }
    pthread_mutex_unlock(&latch->lock);
}

void ls_latch_set_mute(ls_latch *latch, atomic_bool *mute)
{
    /* Because of the lock, each call of ls_latch_set either is complete before this store or finds
     * *mute set. */
    pthread_mutex_lock(&latch->lock);
    atomic_store_explicit(mute, true, memory_order_relaxed);
    pthread_mutex_unlock(&latch->lock);
}

int ls_latch_get(const ls_latch *latch, int *worker, ls_error *err)
{
    if (atomic_load_explicit(&latch->status, memory_order_acquire) == LS_OK)
        return LS_OK;
    pthread_mutex_t *lock = (pthread_mutex_t *)&latch->lock; /* locking is the only change */
    pthread_mutex_lock(lock);
    int status = atomic_load_explicit(&latch->status, memory_order_relaxed);
    if (status) {
        if (worker)
            *worker = latch->worker;
        if (err)
            *err = latch->error;
    }
    pthread_mutex_unlock(lock);
    return status;
}

void ls_latch_clear(ls_latch *latch)
{
    pthread_mutex_lock(&latch->lock);
    latch->worker = -1;
    atomic_store_explicit(&latch->status, LS_OK, memory_order_relaxed);
    pthread_mutex_unlock(&latch->lock);
}
