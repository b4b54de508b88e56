/* SPDX-License-Identifier: MIT */
#include "cuda/comm/group.h"

#include "base/clock.h"
#include "base/host.h"
#include "cuda/cuda_device.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* period of the watchdog in nanoseconds */
enum { LOOK_EVERY_NS = 2000000 };

typedef struct nccl_link {
    pthread_mutex_t lock;
    ncclComm_t comm; /* NULL before the communicator is created and after it was aborted */
    char own_cache_line[64];
} nccl_link;

struct ls_cuda_links {
    ls_nccl nccl; /* loaded by rank 0 before the first meeting, or earlier */
    ls_barrier *barrier;
    const ls_host *host;
    int ranks;
    ncclUniqueId id;      /* written by rank 0 before the first meeting */
    pthread_mutex_t lock; /* protects the fields that follow */
    pthread_cond_t changed;
    pthread_t watchdog;
    int watched; /* non-zero: there is a watchdog */
    int closing; /* non-zero: the links are being destroyed, and the watchdog must end */
    /* 0: communicators may be created; 1: the watchdog is aborting all communicators, and no new
     * communicator may be created; 2: all are aborted */
    int gone;
    ls_error failure; /* error that the watchdog has found; status 0: none */
    nccl_link link[]; /* [ranks] */
};

void ls_cuda_nap(unsigned rounds)
{
    const struct timespec nap = {0, 50000};
    if (rounds < 64)
        return;
    /* The caller's first polls yield instead of sleeping, for some milliseconds, because even the
     * shortest sleep takes longer than most training steps. */
    if (rounds < 4096)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

static int nccl_fail(const ls_cuda_links *l, ls_error *err, int rank, const char *what,
                     ncclResult_t result)
{
    int status = result == ncclInvalidUsage ? LS_EUNSUPPORTED : LS_EDEVICE;
    return ls_fail(err, status, "NCCL, rank %d: %s: %s%s", rank, what,
                   l->nccl.ncclGetErrorString(result),
                   result == ncclInvalidUsage
                       ? " (workers that share a GPU merge with \"ordered\" or \"local\")"
                       : "");
}

/* ---- the watchdog --------------------------------------------------------------------------- */

/* Takes the communicator from a rank, so that no other thread calls NCCL with it. */
static ncclComm_t take_comm(ls_cuda_links *l, int rank)
{
    pthread_mutex_lock(&l->link[rank].lock);
    ncclComm_t comm = l->link[rank].comm;
    l->link[rank].comm = NULL;
    pthread_mutex_unlock(&l->link[rank].lock);
    return comm;
}

/* Aborts all communicators in one NCCL group, because the abort of one can wait for the kernels of
 * the others. No lock is held meanwhile, so that no worker waits for the abort. */
static void abort_all(ls_cuda_links *l)
{
    ncclComm_t comm;
    if (!l->nccl.version)
        return;
    const bool grouped = l->nccl.ncclGroupStart() == ncclSuccess;
    for (int r = 0; r < l->ranks; r++)
        if ((comm = take_comm(l, r)) != NULL)
            (void)l->nccl.ncclCommAbort(comm);
    if (grouped)
        (void)l->nccl.ncclGroupEnd();
}

/* Asks every communicator for errors. An error aborts the barrier. */
static void links_check(ls_cuda_links *l)
{
    for (int r = 0; r < l->ranks; r++) {
        ncclResult_t state = ncclSuccess, result = ncclSuccess;
        pthread_mutex_lock(&l->link[r].lock);
        if (l->link[r].comm)
            result = l->nccl.ncclCommGetAsyncError(l->link[r].comm, &state);
        pthread_mutex_unlock(&l->link[r].lock);
        if (!ls_nccl_is_bad(result) && !ls_nccl_is_bad(state))
            continue;
        pthread_mutex_lock(&l->lock);
        if (l->failure.status == LS_OK)
            (void)nccl_fail(l, &l->failure, r, "asynchronous error",
                            ls_nccl_is_bad(result) ? result : state);
        pthread_mutex_unlock(&l->lock);
        ls_barrier_abort(l->barrier);
        return;
    }
}

/* Sleeps until the next check of the communicators, or until the watchdog is woken. Returns
 * non-zero if the links are being destroyed. */
static int sleep_until_closing(ls_cuda_links *l)
{
    uint64_t end = ls_now_ns() + LOOK_EVERY_NS;
    struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    pthread_mutex_lock(&l->lock);
    if (!l->closing && !(ls_barrier_aborted(l->barrier) && !l->gone))
        pthread_cond_timedwait(&l->changed, &l->lock, &until);
    int closing = l->closing;
    pthread_mutex_unlock(&l->lock);
    return closing;
}

static void end_all(ls_cuda_links *l)
{
    pthread_mutex_lock(&l->lock);
    /* `gone` is set before the communicators are aborted, so that no rank creates a communicator
     * after that. */
    l->gone = 1;
    pthread_mutex_unlock(&l->lock);
    abort_all(l);
    pthread_mutex_lock(&l->lock);
    l->gone = 2;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static void *watch(void *arg)
{
    ls_cuda_links *l = arg;
    int ended = 0;
    while (!sleep_until_closing(l)) {
        if (!ended && !ls_barrier_aborted(l->barrier))
            links_check(l);
        if (!ended && ls_barrier_aborted(l->barrier)) {
            end_all(l);
            ended = 1;
        }
    }
    if (!ended)
        end_all(l);
    return NULL;
}

static int start_watchdog(ls_cuda_links *l, ls_error *err)
{
    pthread_mutex_lock(&l->lock);
    const int failed = ls_thread_start(&l->watchdog, watch, l);
    l->watched = !failed;
    pthread_mutex_unlock(&l->lock);
    return failed ? ls_fail(err, LS_ESYSTEM, "cannot create the thread of NCCL's watchdog") : LS_OK;
}

void ls_cuda_links_wake(ls_cuda_links *l)
{
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

bool ls_cuda_links_are_gone(ls_cuda_links *l, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u),
                             (long)(deadline_ns % 1000000000u)};
    pthread_mutex_lock(&l->lock);
    while (l->watched && l->gone < 2 && ls_now_ns() < deadline_ns) {
        pthread_cond_broadcast(&l->changed);
        pthread_cond_timedwait(&l->changed, &l->lock, &until);
    }
    const bool gone = !l->watched || l->gone == 2;
    pthread_mutex_unlock(&l->lock);
    return gone;
}

/* ---- creation -------------------------------------------------------------------------------- */

static int make_locks(ls_cuda_links *l)
{
    pthread_condattr_t attributes;
    int failed = pthread_mutex_init(&l->lock, NULL);
    if (failed || pthread_condattr_init(&attributes) != 0)
        return -1;
    failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) != 0 ||
             pthread_cond_init(&l->changed, &attributes) != 0;
    pthread_condattr_destroy(&attributes);
    for (int r = 0; !failed && r < l->ranks; r++)
        failed = pthread_mutex_init(&l->link[r].lock, NULL);
    return failed ? -1 : 0;
}

int ls_cuda_links_create(ls_cuda_links **out, ls_barrier *barrier, int ranks, const ls_host *host,
                         ls_error *err)
{
    ls_cuda_links *l = ls_alloc(host, sizeof *l + (size_t)ranks * sizeof *l->link);
    *out = NULL;
    if (!l)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d communicators", ranks);
    l->barrier = barrier;
    l->host = host;
    l->ranks = ranks;
    if (make_locks(l) != 0) {
        ls_free(host, l);
        return ls_fail(err, LS_ESYSTEM, "cannot create the locks of %d communicators", ranks);
    }
    *out = l;
    return LS_OK;
}

void ls_cuda_links_destroy(ls_cuda_links *l)
{
    if (!l)
        return;
    if (l->watched) {
        pthread_mutex_lock(&l->lock);
        l->closing = 1;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->watchdog, NULL);
    }
    for (int r = 0; r < l->ranks; r++)
        pthread_mutex_destroy(&l->link[r].lock);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    ls_free(l->host, l);
}

int ls_cuda_links_load(ls_cuda_links *l, ls_error *err)
{
    char have[16], built[16];
    if (l->nccl.version)
        return LS_OK;
    int status = ls_nccl_load(&l->nccl, err);
    if (status != LS_OK)
        return status;
    ls_nccl_version_text(have, l->nccl.version);
    ls_nccl_version_text(built, NCCL_VERSION_CODE);
    ls_log(l->host, LS_LOG_INFO, "loaded NCCL %s (%s), built with %s", have, l->nccl.path, built);
    return LS_OK;
}

int ls_cuda_links_version(const ls_cuda_links *l)
{
    return l->nccl.version;
}

/* ---- a rank's calls ------------------------------------------------------------------------- */

/* Fails with the error that the watchdog has found. If there is none, fails with the message that
 * another worker has failed. */
static int say_why(ls_cuda_links *l, ls_error *err)
{
    pthread_mutex_lock(&l->lock);
    ls_error failure = l->failure;
    pthread_mutex_unlock(&l->lock);
    if (failure.status != LS_OK)
        return ls_fail(err, failure.status, "%s", failure.text);
    return ls_fail(err, LS_EABORTED, "another worker failed first");
}

/* Waits until NCCL has enqueued the calls that this rank has made on its communicator. Between two
 * polls the rank's lock is free. */
static int links_await(ls_cuda_links *l, int rank, const char *what, uint64_t deadline_ns,
                       ls_error *err)
{
    for (unsigned rounds = 0;; rounds++) {
        ncclResult_t state = ncclSuccess, result = ncclSuccess;
        pthread_mutex_lock(&l->link[rank].lock);
        int gone = !l->link[rank].comm;
        if (!gone)
            result = l->nccl.ncclCommGetAsyncError(l->link[rank].comm, &state);
        pthread_mutex_unlock(&l->link[rank].lock);
        if (gone || ls_barrier_aborted(l->barrier))
            return say_why(l, err);
        if (ls_nccl_is_bad(result) || ls_nccl_is_bad(state))
            return nccl_fail(l, err, rank, what, ls_nccl_is_bad(result) ? result : state);
        if (state == ncclSuccess)
            return LS_OK;
        if (ls_now_ns() >= deadline_ns)
            return ls_fail(err, LS_ETIMEDOUT, "NCCL, rank %d: %s: not done in time", rank, what);
        ls_cuda_nap(rounds);
    }
}

/* Creates the rank's communicator. Afterwards the watchdog can abort it at any time.
 *
 * The communicator is non-blocking, although NCCL then creates a thread for each group of calls,
 * which takes some 20 µs. With a lost peer a call of a blocking one would not return, while the
 * rank holds the link's lock, without which the watchdog must not abort the communicator. Calls of
 * a non-blocking one return at once, and the rank polls without the lock (links_await). */
static int make_comm(ls_cuda_links *l, int rank, ls_cuda_peer peer, ls_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = NULL;
    ncclResult_t result =
        l->nccl.ncclCommInitRankConfig(&comm, peer.ranks, l->id, peer.rank, &config);
    pthread_mutex_lock(&l->link[rank].lock);
    pthread_mutex_lock(&l->lock);
    int late = l->gone != 0;
    pthread_mutex_unlock(&l->lock);
    if (!late)
        l->link[rank].comm = comm;
    pthread_mutex_unlock(&l->link[rank].lock);
    if (late && comm)
        (void)l->nccl.ncclCommAbort(comm);
    if (ls_nccl_is_bad(result))
        return nccl_fail(l, err, rank, "joining", result);
    return late ? say_why(l, err) : LS_OK;
}

int ls_cuda_links_connect(ls_cuda_links *l, int rank, ls_cuda_peer peer, uint64_t deadline_ns,
                          ls_error *err)
{
    int status = LS_OK;
    if (rank == 0) {
        status = ls_cuda_links_load(l, err);
        ncclResult_t result = status == LS_OK ? l->nccl.ncclGetUniqueId(&l->id) : ncclInternalError;
        if (status == LS_OK && result != ncclSuccess)
            status = nccl_fail(l, err, rank, "creating a unique id", result);
        if (status == LS_OK)
            status = start_watchdog(l, err);
    }
    if (status == LS_OK)
        status = ls_barrier_wait(l->barrier, rank, deadline_ns, err);
    if (status == LS_OK && peer.rank >= 0)
        status = make_comm(l, rank, peer, err);
    if (status == LS_OK && peer.rank >= 0)
        status = links_await(l, rank, "joining", deadline_ns, err);
    return status == LS_OK ? ls_barrier_wait(l->barrier, rank, deadline_ns, err) : status;
}

int ls_cuda_links_begin(ls_cuda_link *out, ls_cuda_links *l, int rank, ls_error *err)
{
    pthread_mutex_lock(&l->link[rank].lock);
    *out = (ls_cuda_link){&l->nccl, l->link[rank].comm};
    if (out->comm)
        return LS_OK;
    pthread_mutex_unlock(&l->link[rank].lock);
    return say_why(l, err);
}

int ls_cuda_links_end(ls_cuda_links *l, int rank, ncclResult_t result, uint64_t deadline_ns,
                      ls_error *err)
{
    pthread_mutex_unlock(&l->link[rank].lock);
    if (ls_nccl_is_bad(result))
        return nccl_fail(l, err, rank, "merging", result);
    return result == ncclInProgress ? links_await(l, rank, "merging", deadline_ns, err) : LS_OK;
}
