/* SPDX-License-Identifier: MIT */
/* The callers' side: gives orders to the progress thread (progress.c), and waits until they are
 * done.
 *
 * `hangs` is set when the progress thread has not answered in time. */
#include "cluster/cluster.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "cluster/progress.h"
#include "device/registry.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* interval at which a waiting caller calls ls_cluster_wait.beat and looks at the progress thread */
#define SLICE_NS 20000000u
/* time that the progress thread gets beyond the deadline of the other members */
#define GRACE_NS ((uint64_t)1000000000u)

/* ---- orders ---------------------------------------------------------------------------------- */

static bool is_done(void *arg)
{
    return atomic_load_explicit(&((ls_cluster *)arg)->done, LS_PROGRESS_SEEN);
}

/* Waits until the order is done. Returns false if the heartbeat of the progress thread has not
 * changed for `limit_ns`. (The progress thread beats every few milliseconds, unless a call of the
 * transport does not return.) `wait`: `beat` is called while this function waits; NULL: nothing is
 * called. */
static bool await_done(ls_cluster *c, uint64_t limit_ns, const ls_cluster_wait *wait)
{
    ls_silence silence = {0};
    uint64_t seen = ls_now_ns();
    while (!ls_park_until(&c->finished, is_done, c, ls_now_ns() + SLICE_NS)) {
        if (wait)
            wait->beat(wait->user);
        ls_silence_look(&silence, &c->heartbeat, 0, ls_attended_ns(&seen, 0), UINT64_MAX);
        if (silence.held_ns > limit_ns)
            return is_done(c);
    }
    return true;
}

int ls_cluster_usable(const ls_cluster *c, ls_error *err)
{
    if (c->hangs)
        return ls_fail(err, LS_ESTALLED, "the thread that talks to the other hosts hangs");
    if (c->summing) /* the sum's own error is reported by the call that waits for the sum */
        return ls_fail(err, LS_EINTERNAL, "another exchange in the midst of a sum");
    return c->error.status ? ls_fail(err, c->error.status, "%s", c->error.text) : LS_OK;
}

/* Hands an order to the progress thread. The results of the previous order are no longer valid. */
static int push_order(ls_cluster *c, ls_order_kind order, ls_error *err)
{
    const int kind = (int)order;
    if (c->hangs)
        return ls_cluster_usable(c, err);
    atomic_store_explicit(&c->done, false, memory_order_relaxed); /* the push releases it */
    return ls_ring_try_push(&c->orders, &kind) == LS_OK
               ? LS_OK
               : ls_fail(err, LS_EINTERNAL, "two orders at once for the progress thread");
}

/* Waits for the end of an order. If the heartbeat of the progress thread stands still for
 * `limit_ns`, sets `hangs` and fails: from then on no order can be given. `wait`: as for
 * await_done. */
static int await_order(ls_cluster *c, ls_order_kind order, uint64_t limit_ns,
                       const ls_cluster_wait *wait, ls_error *err)
{
    bool done = await_done(c, limit_ns, wait);
    if (!done && order == LS_ORDER_OPEN && !ls_joining_ends(c, LS_JOINING_GIVEN_UP))
        /* the progress thread has joined just before the caller gave up */
        done = await_done(c, GRACE_NS, wait);
    if (!done) {
        c->hangs = true;
        /* If the transport's call returns later, the progress thread tells this reason to the other
         * members. */
        ls_cluster_leave(c, "its transport did not return from a call");
        return ls_fail(
            err, LS_ESTALLED,
            "transport %s does not return from a call %s: is the network up, and did every "
            "process start?",
            c->options.type->name, order == LS_ORDER_OPEN ? "that joins the others" : "");
    }
    if (c->status && err)
        *err = c->error;
    return c->status;
}

static int give_order(ls_cluster *c, ls_order_kind order, uint64_t limit_ns,
                      const ls_cluster_wait *wait, ls_error *err)
{
    int status = push_order(c, order, err);
    return status ? status : await_order(c, order, limit_ns, wait, err);
}

/* Returns the longest time for which the heartbeat of the progress thread may stand still. This
 * time is longer than the deadline of the other members, so that the progress thread can report a
 * lost member first. */
static uint64_t patience(const ls_cluster *c)
{
    return c->options.deadline_ns + GRACE_NS;
}

int ls_cluster_order(ls_cluster *c, ls_order_kind order, ls_error *err)
{
    int status = ls_cluster_usable(c, err);
    return status ? status : give_order(c, order, patience(c), NULL, err);
}

int ls_cluster_room(ls_cluster *c, int count, ls_error *err)
{
    if (count <= c->request_room)
        return LS_OK;
    ls_free(c->options.host, c->request);
    c->request = ls_alloc_array(c->options.host, (size_t)count, sizeof *c->request);
    c->request_room = c->request ? count : 0;
    return c->request ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %d messages", count);
}

/* ---- gathers --------------------------------------------------------------------------------- */

/* Makes room for `bytes` bytes in c->stage. */
static int make_stage(ls_cluster *c, size_t bytes, ls_error *err)
{
    if (bytes <= c->stage_bytes)
        return LS_OK;
    ls_free(c->options.host, c->stage);
    c->stage = ls_alloc(c->options.host, bytes);
    c->stage_bytes = c->stage ? bytes : 0;
    return c->stage ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %zu bytes", bytes);
}

int ls_cluster_gather_parts(ls_cluster *c, void *const *part, const size_t *bytes, ls_error *err)
{
    size_t all = 0, own = 0;
    int requests = 0;
    int status = ls_cluster_usable(c, err);
    if (status)
        return status;
    for (int m = 0; m < c->members; m++) {
        own = m == c->member ? all : own;
        all += bytes[m];
        requests += 4 + (int)(bytes[m] / LS_MESSAGE_MOST + bytes[c->member] / LS_MESSAGE_MOST);
    }
    status = make_stage(c, all, err);
    if (status == LS_OK)
        status = ls_cluster_room(c, requests, err);
    if (status)
        return status;
    if (bytes[c->member] > 0)
        memcpy(c->stage + own, part[c->member], bytes[c->member]);
    memcpy(c->bytes, bytes, (size_t)c->members * sizeof *bytes);
    c->order_bytes = bytes[c->member];
    status = give_order(c, LS_ORDER_GATHER, patience(c), NULL, err);
    unsigned char *from = c->stage;
    for (int m = 0; m < c->members && status == LS_OK; from += bytes[m++])
        if (m != c->member && bytes[m] > 0)
            memcpy(part[m], from, bytes[m]);
    return status;
}

/* Gathers a part of `bytes` bytes from each member; `data` has all parts one after another. If
 * `only` ≥ 0, gathers only the part of member `only`; then `data` has this part alone. */
static int gather_even(ls_cluster *c, int only, void *data, size_t bytes, ls_error *err)
{
    const size_t count = (size_t)c->members;
    void **part = ls_alloc_array(c->options.host, count, sizeof *part);
    size_t *sizes = ls_alloc_array(c->options.host, count, sizeof *sizes);
    int status = part && sizes ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a gather");
    for (size_t m = 0; m < count && status == LS_OK; m++) {
        part[m] = (unsigned char *)data + (only < 0 ? m * bytes : 0);
        sizes[m] = only < 0 || (int)m == only ? bytes : 0;
    }
    if (status == LS_OK)
        status = ls_cluster_gather_parts(c, part, sizes, err);
    ls_free(c->options.host, sizes);
    ls_free(c->options.host, part);
    return status;
}

int ls_cluster_gather(ls_cluster *c, void *all, size_t bytes, ls_error *err)
{
    return gather_even(c, -1, all, bytes, err);
}

int ls_cluster_share_from(ls_cluster *c, int from, void *data, size_t bytes, ls_error *err)
{
    return gather_even(c, from, data, bytes, err);
}

int ls_cluster_share(ls_cluster *c, void *data, size_t bytes, ls_error *err)
{
    return ls_cluster_share_from(c, 0, data, bytes, err);
}

/* ---- sums ------------------------------------------------------------------------------------ */

int ls_cluster_prepare(ls_cluster *c, int shards, size_t floats, ls_error *err)
{
    int status = ls_cluster_usable(c, err);
    if (status == LS_OK)
        status = ls_sum_prepare(c, shards, floats, err);
    return status ? status : ls_cluster_room(c, ls_sum_requests(c), err);
}

float *ls_cluster_node(const ls_cluster *c, int i)
{
    return c->sum.node[i];
}

const float *ls_cluster_total(const ls_cluster *c)
{
    return c->sum.total;
}

static void *memory_of(const ls_cluster *c, size_t *bytes)
{
    *bytes = (size_t)(c->sum.nodes + 1) * c->sum.floats * sizeof(float);
    return c->sum.memory;
}

int ls_cluster_begin_sum(ls_cluster *c, ls_error *err)
{
    if (c->summing)
        return LS_OK;
    int status = ls_cluster_usable(c, err);
    if (status)
        return status;
    c->order_bytes = c->sum.floats * sizeof(float);
    status = push_order(c, LS_ORDER_SUM, err);
    c->summing = status == LS_OK;
    return status;
}

void ls_cluster_set_digest(ls_cluster *c, uint64_t digest)
{
    if (!c->summing) /* otherwise the progress thread has the order already */
        c->digest = digest;
}

static size_t is_ready(const ls_cluster *c)
{
    /* Relaxed, because the caller itself has stored the number. */
    return atomic_load_explicit(&c->sum.ready, memory_order_relaxed);
}

void ls_cluster_ready(ls_cluster *c, size_t floats)
{
    if (floats > is_ready(c))
        atomic_store_explicit(&c->sum.ready, floats, LS_PROGRESS_READY);
}

int ls_cluster_sum(ls_cluster *c, const ls_cluster_wait *wait, ls_error *err)
{
    int status = ls_cluster_begin_sum(c, err);
    if (status)
        return status;
    ls_cluster_ready(c, c->sum.floats);
    status = await_order(c, LS_ORDER_SUM, patience(c), wait, err);
    c->summing = false;
    c->summed = status == LS_OK;
    /* Relaxed, because the push of the next order releases this store. */
    atomic_store_explicit(&c->sum.ready, 0, memory_order_relaxed);
    return status;
}

int ls_cluster_agreed(const ls_cluster *c)
{
    return c->agreed;
}

void ls_cluster_commit(ls_cluster *c, int committed)
{
    if (c->summed && !committed)
        ls_cluster_leave(c, "its workers failed after a sum that the other hosts have used");
    c->summed = false;
}

const ls_members_ops ls_cluster_ops = {.size = sizeof(ls_members_ops),
                                       .node = ls_cluster_node,
                                       .total = ls_cluster_total,
                                       .memory = memory_of,
                                       .begin = ls_cluster_begin_sum,
                                       .ready = ls_cluster_ready,
                                       .is_ready = is_ready,
                                       .sum = ls_cluster_sum,
                                       .agreed = ls_cluster_agreed,
                                       .commit = ls_cluster_commit};

/* ---- transports ------------------------------------------------------------------------------ */

int ls_transport_load(const ls_transport **out, const char *name, ls_error *err)
{
    char found[512];
    void *symbol = NULL;
    ls_transport_entry_fn *entry;
    int status =
        ls_plugin_symbol(&symbol, found, sizeof found, name, NULL, LS_TRANSPORT_ENTRY, err);
    if (status)
        return status;
    memcpy(&entry, &symbol, sizeof entry);
    const ls_transport *type = entry();
    if (!type || type->abi != LS_TRANSPORT_ABI || type->size != sizeof *type)
        return ls_fail(err, LS_EDEVICE,
                       "%.300s was built for another Lockstep than this one (wire ABI %d): "
                       "rebuild it",
                       found, LS_TRANSPORT_ABI);
    *out = type;
    return LS_OK;
}

/* ---- opening, regrouping and closing --------------------------------------------------------- */

int ls_cluster_member(const ls_cluster *c)
{
    return c->member;
}

int ls_cluster_members(const ls_cluster *c)
{
    return c->members;
}

const char *ls_cluster_host(const ls_cluster *c, int member)
{
    return c->name[member];
}

int ls_cluster_origin(const ls_cluster *c, int member)
{
    return c->origin[member];
}

bool ls_cluster_can_regroup(const ls_cluster *c)
{
    return c->options.regroups && c->options.type->regroup;
}

void ls_cluster_regroups(ls_cluster *c)
{
    atomic_store_explicit(&c->regroups, true, memory_order_release);
}

bool ls_cluster_lost(const ls_cluster *c)
{
    /* During a sum it returns false, because ls_cluster_sum has not reported the sum's end yet. */
    return c->failed_by_loss && !c->hangs && !c->summing;
}

void ls_cluster_why(const ls_cluster *c, ls_error *out)
{
    *out = c->error;
}

int ls_cluster_lost_member(const ls_cluster *c)
{
    return c->error.status == LS_ESTALLED && c->lost - 1 != c->member ? c->lost - 1 : -1;
}

/* Makes room for the sizes of the parts of a gather, one for each member. */
static int make_bytes(ls_cluster *c, ls_error *err)
{
    ls_free(c->options.host, c->bytes);
    c->bytes = ls_alloc_array(c->options.host, (size_t)c->members, sizeof *c->bytes);
    return c->bytes ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for a cluster");
}

int ls_cluster_regroup(ls_cluster *c, ls_error *err)
{
    const int before = c->members;
    ls_old_sum *old = ls_alloc(c->options.host, sizeof *old);
    if (!old)
        return ls_fail(err, LS_ENOMEM, "out of memory for a regrouping");
    int status = LS_ESTALLED;
    while (status && ls_cluster_lost(c)) /* another member can be lost during the regrouping */
        status = give_order(c, LS_ORDER_REGROUP, patience(c), NULL, err);
    if (status) {
        ls_free(c->options.host, old);
        return status;
    }
    c->error = (ls_error){0};
    c->summing = c->summed = false; /* a sum that was begun has failed because of the loss */
    old->sum = c->sum;
    old->next = c->old_sums;
    c->old_sums = old;
    memset(&c->sum, 0, sizeof c->sum);
    return c->members > before ? make_bytes(c, err) : LS_OK;
}

static void leave(ls_cluster *c, int status, const char *why)
{
    if (!c || atomic_load_explicit(&c->leave_asked, memory_order_relaxed))
        return;
    ls_fail(&c->leaving, status, "%s", why);
    atomic_store_explicit(&c->leave_asked, true, memory_order_release);
}

void ls_cluster_leave(ls_cluster *c, const char *why)
{
    leave(c, LS_ESTALLED, why);
}

void ls_cluster_end_all(ls_cluster *c, const char *why)
{
    leave(c, LS_EDIVERGED, why);
}

static int start_progress(ls_cluster *c, ls_error *err)
{
    const ls_pool_options o = {
        .size = sizeof o, .workers = 1, .name = "progress", .host = c->options.host};
    int status = ls_ring_init(&c->orders, c->options.host, sizeof(int), 2, err);
    ls_park_init(&c->finished, LS_PROGRESS_SPINS);
    if (status == LS_OK)
        status = ls_pool_create(&c->pool, &o, err);
    return status ? status : ls_pool_submit(c->pool, 0, ls_progress_run, c, err);
}

int ls_cluster_open(ls_cluster **out, const ls_cluster_options *options, ls_error *err)
{
    ls_cluster *c = ls_alloc(options->host, sizeof *c);
    if (!c)
        return ls_fail(err, LS_ENOMEM, "out of memory for a cluster");
    c->options = *options;
    if (gethostname(c->host, sizeof c->host - 1) != 0 || !c->host[0])
        snprintf(c->host, sizeof c->host, "this");
    int status = start_progress(c, err);
    if (status == LS_OK)
        status = give_order(c, LS_ORDER_OPEN, options->open_ns, NULL, err);
    if (status == LS_OK)
        status = make_bytes(c, err);
    /* An admitted process has the names of all members from the transport (ls_wire.place). */
    if (status == LS_OK && !ls_cluster_was_admitted(c))
        status = ls_cluster_share(c, NULL, 0, err); /* the headers carry the hosts' names */
    if (status)
        ls_cluster_close(c);
    else
        *out = c;
    return status;
}

void ls_cluster_free_old(ls_cluster *c)
{
    while (c->old_sums) {
        ls_old_sum *old = c->old_sums;
        c->old_sums = old->next;
        ls_sum_fini(&old->sum, c->options.host);
        ls_free(c->options.host, old);
    }
}

/* Frees all memory. Called only when no other thread and no transport can access the memory any
 * more. */
static void free_all(ls_cluster *c)
{
    const ls_host *host = c->options.host;
    ls_sum_fini(&c->sum, host);
    ls_cluster_free_old(c);
    ls_free(host, c->bytes);
    ls_free(host, c->stage);
    ls_free(host, c->request);
    ls_free(host, c->peer);
    ls_free(host, c->name);
    ls_free(host, c->origin);
    ls_free(host, c);
}

void ls_cluster_keep_memory(ls_cluster *c)
{
    c->kept = true;
}

int ls_cluster_close(ls_cluster *c)
{
    if (!c)
        return LS_OK;
    if (!c->pool) { /* the cluster was not opened, and no other thread uses its memory */
        ls_ring_fini(&c->orders);
        free_all(c);
        return LS_OK;
    }
    if (c->summing) { /* leaving is a fault, which ends the sum */
        ls_cluster_leave(c, "it came to its end in the midst of a sum");
        await_order(c, LS_ORDER_SUM, patience(c), NULL, NULL);
    }
    give_order(c, LS_ORDER_CLOSE, patience(c), NULL, NULL);
    if (ls_pool_destroy(c->pool, c->hangs ? 0 : GRACE_NS, NULL) || c->hangs)
        return LS_ESTALLED;
    if (c->touched || c->kept)
        return LS_ESTALLED;
    ls_ring_fini(&c->orders);
    free_all(c);
    return LS_OK;
}
