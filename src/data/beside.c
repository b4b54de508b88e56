/* SPDX-License-Identifier: MIT */
#include "data/beside.h"

#include "base/host.h"

/* ---- work beside the caller's ---------------------------------------------------------------- */

static void *run_it(void *beside)
{
    ls_beside *other = beside;
    other->status = other->run(other->arg);
    return NULL;
}

void ls_beside_begin(ls_beside *other, int (*run)(void *arg), void *arg)
{
    *other = (ls_beside){.run = run, .arg = arg};
    other->started = ls_thread_start(&other->thread, run_it, other) == 0;
}

int ls_beside_end(ls_beside *other)
{
    if (other->started)
        pthread_join(other->thread, NULL);
    else
        run_it(other);
    return other->status;
}

/* ---- hashing on another thread --------------------------------------------------------------- */

/* The hashing thread. Hashes the reported bytes until `over` is set and none of them is left. If no
 * thread could be started, the function runs within ls_hash_behind_end, when all bytes have been
 * written. */
static int hash_behind(void *behind)
{
    ls_hash_behind *h = behind;
    size_t done = 0;
    for (;;) {
        pthread_mutex_lock(&h->lock);
        while (h->reached == done && !h->over)
            pthread_cond_wait(&h->more, &h->lock);
        const size_t reached = h->reached;
        pthread_mutex_unlock(&h->lock);
        if (reached == done)
            return 0;
        ls_sha256_update(h->hash, h->bytes + done, reached - done);
        done = reached;
    }
}

void ls_hash_behind_begin(ls_hash_behind *h, ls_sha256 *hash, const void *bytes)
{
    h->hash = hash;
    h->bytes = bytes;
    h->reached = 0;
    h->over = false;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->more, NULL);
    ls_beside_begin(&h->other, hash_behind, h);
}

/* Sets `reached` and `over` for the hashing thread and wakes it. It is the only thread that waits
 * on the condition, so pthread_cond_signal is enough. */
static void report(ls_hash_behind *h, size_t reached, bool over)
{
    pthread_mutex_lock(&h->lock);
    h->reached = reached;
    h->over = over;
    pthread_mutex_unlock(&h->lock);
    pthread_cond_signal(&h->more);
}

void ls_hash_behind_reach(ls_hash_behind *h, size_t count)
{
    report(h, count, false);
}

void ls_hash_behind_end(ls_hash_behind *h)
{
    /* only this thread writes `reached`, so it needs no lock to read it */
    report(h, h->reached, true);
    ls_beside_end(&h->other);
    pthread_cond_destroy(&h->more);
    pthread_mutex_destroy(&h->lock);
}
