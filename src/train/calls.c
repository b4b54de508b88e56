/* SPDX-License-Identifier: MIT */
/* The checks with which each public function of the trainer begins. */
#include "train/calls.h"

#include "base/error.h"
#include "base/stack.h"
#include "pool/pool.h"
#include "train/trainer.h"

static int check_process(const ls_trainer *t, const char *function, ls_error *err)
{
    if (!t)
        return ls_fail(err, LS_EINVAL, "%s: the trainer is NULL", function);
    if (t->inference && ls_inference_is_inherited(t->inference))
        return ls_fail(err, LS_EINVAL,
                       "%s: the trainer belongs to another process, of which this one was forked: "
                       "open one here",
                       function);
    return LS_OK;
}

/* Checks the caller's pool, if the trainer uses one: the pool must not be cancelled, and the
 * calling thread must not be running a job of the pool. A pool that the trainer has created needs
 * no check, because the caller cannot cancel such a pool or run jobs in it. */
static int check_pool(const ls_trainer *t, ls_error *err)
{
    const ls_pool *pool = t->options.pool;
    if (!pool)
        return LS_OK;
    int status = ls_pool_check_owner(pool, err);
    return status ? status : ls_pool_check_canceled(pool, err);
}

/* Marks the trainer as used by this call. */
static int mark_in_use(ls_trainer *t, const char *function, ls_error *err)
{
    /* Memory order. Only ls_call_end stores 0. That store has release order and follows everything
     * that the ending call did. An exchange that returns 0 has read such a store or the initial
     * value. If the exchange has read such a store, the store synchronizes with the exchange,
     * because the exchange has acquire order. So everything that the earlier call did happens
     * before this call. An exchange that returns 1 has replaced 1 by 1, and this call is
     * refused. */
    if (!atomic_exchange_explicit(&t->in_call, 1, memory_order_acquire))
        return LS_OK;
    return ls_fail(err, LS_EINVAL,
                   "%s: another function of this trainer is under way: the call comes from one of "
                   "its callbacks, or from a second thread",
                   function);
}

ls_call ls_call_begin(ls_trainer *t, const char *function, ls_error *err)
{
    int status = check_process(t, function, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_CALL_STACK_BYTES, function, err);
    if (status == LS_OK)
        status = mark_in_use(t, function, err);
    if (status)
        return (ls_call){NULL, status};
    status = check_pool(t, err);
    if (status)
        ls_call_end(&(ls_call){t, LS_OK});
    return (ls_call){status ? NULL : t, status};
}

void ls_call_end(const ls_call *call)
{
    if (call->trainer)
        atomic_store_explicit(&call->trainer->in_call, 0, memory_order_release);
}
