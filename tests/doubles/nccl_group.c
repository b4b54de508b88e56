/* SPDX-License-Identifier: MIT */
/* Calls of the NCCL double: they are collected in the thread's group and enqueued at its end. */
#include "doubles/nccl_inside.h"

typedef struct call {
    dbl_op op;
    ncclComm_t comm;
    cudaStream_t stream;
    int taken;
} call;

static _Thread_local call calls[DBL_GROUP];
static _Thread_local int call_count, depth;
static _Thread_local ncclResult_t group_error;
static _Thread_local ncclComm_t aborts[DBL_RANKS];
static _Thread_local int abort_count;

int dbl_group_abort(ncclComm_t comm)
{
    if (depth == 0)
        return 0;
    aborts[abort_count++] = comm;
    return 1;
}

static size_t item_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
    }
}

static ncclResult_t check_stream(const call *c)
{
    if (dbl_check_handle(c->stream, "an NCCL call") != cudaSuccess)
        return ncclUnhandledCudaError;
    if (c->stream->device != c->comm->device) {
        dbl_complain("a communicator of device %d on a stream of device %d", c->comm->device,
                     c->stream->device);
        return ncclInvalidUsage;
    }
    cudaStream_t before =
        atomic_exchange_explicit(&c->comm->stream, c->stream, memory_order_relaxed);
    if (before && before != c->stream &&
        atomic_load_explicit(&c->comm->running, memory_order_relaxed))
        dbl_complain("a communicator on two streams at once");
    return ncclSuccess;
}

/* A communicator says "in progress" and enqueues when it has been asked often enough. */
static ncclResult_t submit(const call *first, dbl_work *work)
{
    ncclComm_t comm = first->comm;
    if (first->stream->capture || dbl_world.nccl_polls == 0)
        return dbl_enqueue(first->stream, work) ? ncclUnhandledCudaError : ncclSuccess;
    pthread_mutex_lock(&comm->lock);
    work->device = comm->device;
    comm->deferred[comm->deferred_count] = work;
    comm->deferred_to[comm->deferred_count++] = first->stream;
    comm->polls = dbl_world.nccl_polls;
    comm->state = ncclInProgress;
    pthread_mutex_unlock(&comm->lock);
    return ncclInProgress;
}

/* All calls of the group for the communicator of calls[first]. */
static ncclResult_t flush_comm(int first)
{
    dbl_op ops[DBL_GROUP];
    int count = 0;
    for (int i = first; i < call_count; i++) {
        if (calls[i].comm != calls[first].comm)
            continue;
        if (calls[i].stream != calls[first].stream)
            dbl_complain("a group with one communicator on two streams");
        calls[i].taken = 1;
        ops[count++] = calls[i].op;
    }
    ncclResult_t result = check_stream(&calls[first]);
    if (result != ncclSuccess)
        return result;
    return submit(&calls[first], dbl_nccl_work(calls[first].comm, ops, count));
}

static ncclResult_t flush(void)
{
    ncclResult_t result = group_error;
    for (int i = 0; i < call_count; i++)
        calls[i].taken = 0;
    for (int i = 0; i < call_count && (result == ncclSuccess || result == ncclInProgress); i++)
        if (!calls[i].taken) {
            ncclResult_t one = flush_comm(i);
            if (one != ncclSuccess)
                result = one;
        }
    call_count = 0;
    group_error = ncclSuccess;
    return result;
}

ncclResult_t ncclGroupStart(void)
{
    DBL_ENTER(ncclGroupStart, ncclResult_t);
    depth++;
    return ncclSuccess;
}

/* When it fails by a rule, the group is dropped. */
ncclResult_t ncclGroupEnd(void)
{
    int error;
    dbl_enter(DBL_ncclGroupEnd, &error);
    if (depth == 0) {
        dbl_complain("ncclGroupEnd without ncclGroupStart");
        return ncclInvalidUsage;
    }
    if (--depth > 0)
        return (ncclResult_t)error;
    if (error)
        group_error = (ncclResult_t)error;
    for (int i = 0; i < abort_count; i++)
        dbl_comm_abort_end(aborts[i]);
    abort_count = 0;
    return flush();
}

static ncclResult_t add(const char *caller, ncclComm_t comm, cudaStream_t stream, dbl_op op,
                        ncclDataType_t type)
{
    ncclResult_t result = dbl_comm_check(comm, caller);
    op.item = item_bytes(type);
    if (result == ncclSuccess && (op.item == 0 || op.peer < 0 || op.peer >= comm->clique->ranks))
        result = ncclInvalidArgument;
    if (result == ncclSuccess && call_count == DBL_GROUP)
        result = ncclInternalError;
    if (result == ncclSuccess)
        calls[call_count++] = (call){op, comm, stream, 0};
    else if (depth > 0)
        group_error = result;
    if (depth > 0 || result != ncclSuccess)
        return result;
    result = flush(); /* a call of its own does not say that it is not enqueued yet */
    return result == ncclInProgress ? ncclSuccess : result;
}

static ncclResult_t only_sums_of_floats(ncclDataType_t type, ncclRedOp_t how)
{
    if (type == ncclFloat32 && how == ncclSum)
        return ncclSuccess;
    dbl_complain("the double reduces fp32 with ncclSum only");
    return ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream)
{
    DBL_ENTER(ncclAllReduce, ncclResult_t);
    ncclResult_t result = only_sums_of_floats(type, how);
    dbl_op op = {.kind = DBL_ALL_REDUCE, .send = send, .recv = recv, .count = count};
    return result ? result : add("ncclAllReduce", comm, stream, op, type);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    DBL_ENTER(ncclSend, ncclResult_t);
    dbl_op op = {.kind = DBL_SEND, .send = send, .count = count, .peer = peer};
    return add("ncclSend", comm, stream, op, type);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    DBL_ENTER(ncclRecv, ncclResult_t);
    dbl_op op = {.kind = DBL_RECV, .recv = recv, .count = count, .peer = peer};
    return add("ncclRecv", comm, stream, op, type);
}
