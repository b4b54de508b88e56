/* SPDX-License-Identifier: MIT */
/* NCCL operations as work of a stream: every rank sends copies of its contribution to every rank,
 * including itself, and then takes what it needs, so that only the messages order the ranks.
 *
 * A sum is taken from rank 1 on, with rank 0 last: an order on which nobody may rely. A send ends
 * when its message has been taken, like a send without a buffer: two ranks that send to each other
 * outside a group hang. */
#include "doubles/nccl_inside.h"

#include <string.h>

typedef struct task {
    ncclComm_t comm;
    int begun, ended, finished;
    int op;                      /* which one takes */
    int from;                    /* how many of its peers' messages were taken */
    uint64_t awaited[DBL_RANKS]; /* messages that must have been taken from each channel of ours */
    int count;
    dbl_op ops[];
} task;

static _Atomic int pending[DBL_DEVICES];

void dbl_nccl_begin(void)
{
    memset(pending, 0, sizeof pending);
    dbl_comms_begin();
}

int dbl_nccl_pending(int device)
{
    return atomic_load_explicit(&pending[device], memory_order_relaxed);
}

static void finish(task *t)
{
    if (!t->finished)
        atomic_fetch_sub_explicit(&pending[t->comm->device], 1, memory_order_relaxed);
    t->finished = 1;
}

typedef struct header {
    dbl_op_kind kind;
    size_t bytes;
} header;

static dbl_channel *channel(const task *t, int from, int to)
{
    const dbl_clique *clique = t->comm->clique;
    return &clique->channel[from * clique->ranks + to];
}

/* ---- sending -------------------------------------------------------------------------------- */

static void post(task *t, int to, dbl_op_kind kind, const void *data, size_t bytes)
{
    dbl_channel *c = channel(t, t->comm->rank, to);
    header h = {kind, bytes};
    dbl_work *message = dbl_work_create("message", NULL, NULL, sizeof h + bytes);
    memcpy(message->data, &h, sizeof h);
    if (bytes)
        memcpy(message->data + sizeof h, data, bytes);
    c->sent++;
    dbl_fifo_push(&c->messages, message);
}

static void post_op(task *t, const dbl_op *op)
{
    size_t bytes = op->count * op->item;
    if (op->kind == DBL_RECV || !dbl_may_touch(op->send, bytes))
        return;
    if (op->kind == DBL_SEND) {
        post(t, op->peer, DBL_SEND, op->send, bytes);
        t->awaited[op->peer] = channel(t, t->comm->rank, op->peer)->sent;
        return;
    }
    for (int r = 0; r < t->comm->clique->ranks; r++)
        post(t, r, op->kind, op->send, bytes);
}

/* ---- taking --------------------------------------------------------------------------------- */

static int messages_wanted(const task *t, const dbl_op *op)
{
    if (op->kind == DBL_SEND)
        return 0;
    return op->kind == DBL_RECV ? 1 : t->comm->clique->ranks;
}

static void put(const dbl_op *op, int is_first, const void *data)
{
    float *sum = op->recv;
    if (is_first || op->kind != DBL_ALL_REDUCE)
        memcpy(op->recv, data, op->count * op->item);
    else
        for (size_t i = 0; i < op->count; i++)
            sum[i] += ((const float *)data)[i];
}

static void mismatch(const task *t, int from)
{
    dbl_complain("NCCL ranks %d and %d do not agree on the sequence of operations", from,
                 t->comm->rank);
    atomic_store_explicit(&t->comm->error, ncclInvalidUsage, memory_order_relaxed);
}

/* Zero while the message is not there. */
static int take(task *t, const dbl_op *op)
{
    int ranks = t->comm->clique->ranks;
    int from = op->kind == DBL_RECV ? op->peer : (t->from + 1) % ranks;
    dbl_channel *c = channel(t, from, t->comm->rank);
    const dbl_work *message = dbl_fifo_peek(&c->messages);
    if (!message)
        return 0;
    header h;
    memcpy(&h, message->data, sizeof h);
    dbl_op_kind expected = op->kind == DBL_RECV ? DBL_SEND : op->kind;
    if (h.kind != expected || h.bytes != op->count * op->item)
        mismatch(t, from);
    else if (h.bytes && dbl_may_touch(op->recv, h.bytes))
        put(op, t->from == 0, message->data + sizeof h);
    dbl_fifo_pop(&c->messages);
    atomic_fetch_add_explicit(&c->taken, 1, memory_order_relaxed);
    return 1;
}

static int sends_were_taken(const task *t)
{
    for (int r = 0; r < t->comm->clique->ranks; r++)
        if (atomic_load_explicit(&channel(t, t->comm->rank, r)->taken, memory_order_relaxed) <
            t->awaited[r])
            return 0;
    return 1;
}

/* ---- an operation's life -------------------------------------------------------------------- */

static void begin(task *t)
{
    t->begun = 1;
    atomic_fetch_add_explicit(&t->comm->running, 1, memory_order_relaxed);
    for (int i = 0; i < t->count; i++) {
        dbl_hold(t->ops[i].send, 1);
        dbl_hold(t->ops[i].recv, 1);
    }
    for (int i = 0; i < t->count; i++)
        post_op(t, &t->ops[i]);
}

/* Memory of an operation that was cut short may still be accessed by running peers. */
static void end(task *t, int cut_short)
{
    t->ended = 1;
    for (int i = 0; i < t->count; i++) {
        const void *memory[2] = {t->ops[i].send, t->ops[i].recv};
        for (int k = 0; k < 2; k++)
            if (cut_short && memory[k])
                dbl_limbo(t->comm->clique, memory[k]);
            else
                dbl_hold(memory[k], -1);
    }
    atomic_fetch_sub_explicit(&t->comm->running, 1, memory_order_relaxed);
}

static dbl_progress run(dbl_work *work)
{
    task *t = (task *)work->data;
    if (atomic_load_explicit(&t->comm->aborted, memory_order_relaxed)) {
        if (t->begun)
            end(t, 1);
        finish(t);
        return DBL_DONE;
    }
    if (!t->begun)
        begin(t);
    for (; t->op < t->count; t->op++, t->from = 0)
        for (; t->from < messages_wanted(t, &t->ops[t->op]); t->from++)
            if (!take(t, &t->ops[t->op]))
                return DBL_BLOCKED;
    if (!sends_were_taken(t))
        return DBL_BLOCKED;
    end(t, 0);
    finish(t);
    return DBL_DONE;
}

/* The device was lost in the middle. */
static void drop(dbl_work *work)
{
    task *t = (task *)work->data;
    if (t->begun && !t->ended)
        end(t, 1);
    finish(t);
}

dbl_work *dbl_nccl_work(ncclComm_t comm, const dbl_op *ops, int count)
{
    size_t bytes = sizeof(task) + (size_t)count * sizeof *ops;
    dbl_work *work = dbl_work_create("NCCL operation", run, NULL, bytes);
    task *t = (task *)work->data;
    atomic_fetch_add_explicit(&pending[comm->device], 1, memory_order_relaxed);
    t->comm = comm;
    t->count = count;
    memcpy(t->ops, ops, (size_t)count * sizeof *ops);
    work->drop = drop;
    return work;
}
