#include "pool/latch.h"

#include "base/error.h"

#include <stdbool.h>

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
        if (err && err->text[0] != '\0')
            latch->error = *err;
        else
            ls_fail(&latch->error, status, "worker %d: a job failed with %s and gave no message",
                    worker, ls_status_name(status));
        latch->error.status = status;
        /* release: pairs with the look without the lock in ls_latch_get. */
        atomic_store_explicit(&latch->status, status, memory_order_release);
    }
    pthread_mutex_unlock(&latch->lock);
}

void ls_latch_mute(ls_latch *latch, atomic_bool *mute)
{
    /* Under the lock, so that a set that is under way comes wholly before or finds it set. */
    pthread_mutex_lock(&latch->lock);
    atomic_store_explicit(mute, true, memory_order_relaxed);
    pthread_mutex_unlock(&latch->lock);
}

int ls_latch_get(const ls_latch *latch, int *worker, ls_error *err)
{
    if (atomic_load_explicit(&latch->status, memory_order_acquire) == LS_OK)
        return LS_OK;
    pthread_mutex_t *lock = (pthread_mutex_t *)&latch->lock; /* reading changes nothing else */
    pthread_mutex_lock(lock);
    int status = atomic_load_explicit(&latch->status, memory_order_relaxed);
    if (status != LS_OK) {
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
