/* SPDX-License-Identifier: MIT */
/* Communicators of the NCCL double: from the unique id to abort. */
#include "doubles/nccl_inside.h"

#include <stdlib.h>
#include <string.h>

static dbl_clique *cliques;
static uint32_t last_id;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int lone_aborts;

void dbl_comms_begin(void)
{
    atomic_store(&lone_aborts, 0);
}

int dbl_lone_aborts(void)
{
    return atomic_load(&lone_aborts);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
    }
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* ---- the ranks of an id --------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    DBL_ENTER(ncclGetUniqueId, ncclResult_t);
    dbl_clique *clique = calloc(1, sizeof *clique);
    pthread_mutex_init(&clique->lock, NULL);
    pthread_mutex_lock(&lock);
    clique->id = ++last_id;
    clique->next = cliques;
    cliques = clique;
    pthread_mutex_unlock(&lock);
    memset(out, 0, sizeof *out);
    memcpy(out->internal, &clique->id, sizeof clique->id);
    return ncclSuccess;
}

static dbl_clique *clique_of(const ncclUniqueId *id)
{
    uint32_t number;
    memcpy(&number, id->internal, sizeof number);
    pthread_mutex_lock(&lock);
    dbl_clique *clique = cliques;
    while (clique && clique->id != number)
        clique = clique->next;
    pthread_mutex_unlock(&lock);
    return clique;
}

void dbl_nccl_end(void)
{
    while (cliques) {
        dbl_clique *clique = cliques;
        cliques = clique->next;
        for (int c = 0; c < clique->ranks * clique->ranks; c++)
            dbl_fifo_fini(&clique->channel[c].messages);
        pthread_mutex_destroy(&clique->lock);
        free(clique->channel);
        free(clique->limbo);
        free(clique);
    }
}

static ncclResult_t arrive(dbl_clique *clique, int ranks, int rank)
{
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&clique->lock);
    if (clique->ranks == 0) {
        clique->ranks = ranks;
        clique->channel = calloc((size_t)ranks * (size_t)ranks, sizeof *clique->channel);
        for (int c = 0; c < ranks * ranks; c++)
            dbl_fifo_init(&clique->channel[c].messages);
    }
    if (clique->ranks != ranks || clique->present[rank]) {
        dbl_complain("NCCL rank %d of %d came twice or to another number of ranks", rank, ranks);
        result = ncclInvalidArgument;
    } else {
        clique->present[rank] = 1;
        clique->device[rank] = dbl_current_device();
        atomic_fetch_add(&clique->arrived, 1);
    }
    pthread_mutex_unlock(&clique->lock);
    return result;
}

static int everybody_is_here(void *arg)
{
    const dbl_clique *clique = arg;
    return atomic_load(&clique->arrived) == clique->ranks;
}

/* As NCCL 2.28, which refuses two ranks on one GPU. */
static ncclResult_t check_devices(const dbl_clique *clique)
{
    for (int a = 0; a < clique->ranks; a++)
        for (int b = 0; b < a; b++)
            if (clique->device[a] == clique->device[b])
                return ncclInvalidUsage;
    return ncclSuccess;
}

/* ---- creation ------------------------------------------------------------------------------- */

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    DBL_ENTER(ncclCommInitRankConfig, ncclResult_t);
    ncclConfig_t usual = NCCL_CONFIG_INITIALIZER;
    dbl_clique *clique = clique_of(&id);
    *out = NULL;
    if (!config || config->magic != usual.magic || config->size != usual.size ||
        config->blocking != 0) {
        dbl_complain("the double has non-blocking communicators only, with an ncclConfig_t that "
                     "began as NCCL_CONFIG_INITIALIZER");
        return ncclInvalidArgument;
    }
    if (!clique || ranks < 1 || ranks > DBL_RANKS || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    ncclResult_t result = arrive(clique, ranks, rank);
    if (result != ncclSuccess)
        return result;
    ncclComm_t comm = calloc(1, sizeof *comm);
    atomic_store(&comm->magic, DBL_ALIVE);
    comm->clique = clique;
    comm->rank = rank;
    comm->device = dbl_current_device();
    comm->initialising = 1;
    comm->polls = dbl_world.nccl_polls;
    comm->state = ncclInProgress;
    pthread_mutex_init(&comm->lock, NULL);
    dbl_count(DBL_COMM, 1);
    *out = comm;
    return ncclInProgress;
}

/* ---- while it lives ------------------------------------------------------------------------- */

static int is_alive(ncclComm_t comm, const char *caller)
{
    if (comm && atomic_load_explicit(&comm->magic, memory_order_relaxed) == DBL_ALIVE)
        return 1;
    dbl_complain("%s of a communicator that does not exist any more", caller);
    return 0;
}

ncclResult_t dbl_comm_check(ncclComm_t comm, const char *caller)
{
    if (!is_alive(comm, caller))
        return ncclInvalidArgument;
    if (dbl_lost(comm->device))
        return ncclUnhandledCudaError;
    pthread_mutex_lock(&comm->lock);
    ncclResult_t state = comm->state;
    pthread_mutex_unlock(&comm->lock);
    if (state == ncclInProgress) {
        dbl_complain("%s of a communicator before it was ready", caller);
        return ncclInvalidUsage;
    }
    return state;
}

/* Brings what is under way one poll further. */
static void progress(ncclComm_t comm)
{
    if (comm->initialising && !everybody_is_here(comm->clique))
        return;
    if (comm->polls-- > 0)
        return;
    comm->state = comm->initialising ? check_devices(comm->clique) : ncclSuccess;
    comm->initialising = 0;
    for (int i = 0; i < comm->deferred_count; i++)
        dbl_enqueue(comm->deferred_to[i], comm->deferred[i]);
    comm->deferred_count = 0;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    DBL_ENTER(ncclCommGetAsyncError, ncclResult_t);
    if (!is_alive(comm, "ncclCommGetAsyncError"))
        return ncclInvalidArgument;
    pthread_mutex_lock(&comm->lock);
    if (comm->state == ncclInProgress)
        progress(comm);
    *out = comm->state;
    pthread_mutex_unlock(&comm->lock);
    if (*out == ncclSuccess)
        *out = (ncclResult_t)atomic_load_explicit(&comm->error, memory_order_relaxed);
    if (dbl_lost(comm->device))
        *out = ncclUnhandledCudaError;
    return ncclSuccess;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The lock is the clique's. */
static void empty_limbo(dbl_clique *clique)
{
    for (size_t i = 0; i < clique->limbo_count; i++)
        dbl_hold(clique->limbo[i], -1);
    clique->limbo_count = 0;
}

void dbl_limbo(dbl_clique *clique, const void *memory)
{
    pthread_mutex_lock(&clique->lock);
    if (clique->limbo_count == clique->limbo_room) {
        clique->limbo_room = clique->limbo_room ? 2 * clique->limbo_room : 16;
        clique->limbo = realloc(clique->limbo, clique->limbo_room * sizeof *clique->limbo);
    }
    clique->limbo[clique->limbo_count++] = memory;
    if (atomic_load(&clique->leaving) == atomic_load(&clique->arrived))
        empty_limbo(clique);
    pthread_mutex_unlock(&clique->lock);
}

static void leave(dbl_clique *clique)
{
    pthread_mutex_lock(&clique->lock);
    if (atomic_fetch_add(&clique->leaving, 1) + 1 == atomic_load(&clique->arrived))
        empty_limbo(clique);
    pthread_mutex_unlock(&clique->lock);
}

static void bury(ncclComm_t comm)
{
    atomic_store_explicit(&comm->magic, DBL_DEAD, memory_order_relaxed);
    for (int i = 0; i < comm->deferred_count; i++)
        dbl_work_destroy(comm->deferred[i]);
    comm->deferred_count = 0;
    dbl_count(DBL_COMM, -1);
    dbl_bury(comm);
}

static int nothing_runs(void *arg)
{
    return atomic_load_explicit(&((ncclComm_t)arg)->running, memory_order_relaxed) == 0;
}

void dbl_comm_abort_end(ncclComm_t comm)
{
    dbl_wait_until(nothing_runs, comm, NULL, "ncclCommAbort");
    leave(comm->clique);
    bury(comm);
}

/* The end of an abort can wait for the operations of the other ranks of the process, so all of them
 * must be aborted in one group. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    int error;
    if (dbl_enter(DBL_ncclCommAbort, &error))
        return (ncclResult_t)error;
    if (!is_alive(comm, "ncclCommAbort"))
        return ncclInvalidArgument;
    atomic_store_explicit(&comm->aborted, 1, memory_order_relaxed);
    const int others =
        atomic_load(&comm->clique->arrived) - atomic_fetch_add(&comm->clique->flagged, 1) - 1;
    if (dbl_group_abort(comm))
        return (ncclResult_t)error;
    if (others > 0 && !comm->initialising)
        atomic_fetch_add(&lone_aborts, 1);
    dbl_comm_abort_end(comm);
    return (ncclResult_t)error;
}
