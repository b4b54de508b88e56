/* SPDX-License-Identifier: MIT */
/* The progress thread, which executes one order of its callers at a time (cluster.h). During and
 * between orders it sends signs of life, and watches the signs of life of the other members
 * (watch.c).
 *
 * c->fault holds a loss or a fault. A *part* of a gather is the data of one member. */
#include "cluster/progress.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

/* longest wait for an order between two calls of the transport's `poll` */
#define IDLE_NS 5000000u
#define ACTIVE_NS 2000000u /* longest call of `poll` during an order */
/* longest call of `poll` while the caller still writes this member's data for a sum */
#define OWN_NS 100000u
/* longest time from a fault on for which the thread waits until its last messages are sent */
#define LAST_WORD_NS 300000000u
/* longest time from a loss on for which the thread waits until its last messages are sent */
#define LOSS_WORD_NS 20000000u
enum { AT_ONCE = 64 /* most transfers that one call of `poll` reports */ };

/* ---- posting transfers ----------------------------------------------------------------------- */

/* Returns whether a send of `bytes` bytes to the peer may be posted now. Together at most
 * LS_UNDER_WAY bytes are in transit to all peers, and each peer has an equal share of them. If
 * nothing is in transit to the peer, a send of any size may be posted. */
static bool has_room(const ls_cluster *c, const ls_peer *p, size_t bytes)
{
    return p->under_way == 0 ||
           p->under_way + bytes <= LS_UNDER_WAY / (size_t)(ls_watch_members(c) - 1);
}

/* Posts the queued sends to the peer for which there is room. */
static void post_next(ls_cluster *c, ls_peer *p)
{
    ls_request *request;
    while ((request = p->waiting) && has_room(c, p, request->transfer.bytes)) {
        p->waiting = request->next;
        p->under_way += request->transfer.bytes;
        if (!ls_watch_post(c, &request->transfer))
            return;
    }
}

void ls_progress_post(ls_cluster *c, ls_request_kind kind, int piece, const ls_transfer *transfer)
{
    if (c->fault.status)
        return;
    ls_request *request = &c->request[c->requests++];
    ls_peer *p = &c->peer[transfer->peer];
    *request = (ls_request){*transfer, kind, piece, NULL};
    c->open++;
    if (transfer->incoming) {
        p->coming++;
        ls_watch_post(c, &request->transfer);
        return;
    }
    *(p->waiting ? p->waiting_end : &p->waiting) = request;
    p->waiting_end = &request->next;
    post_next(c, p);
}

/* ---- orders --------------------------------------------------------------------------------- */

/* Returns the offset of member m's part in c->stage. */
static size_t part_of(const ls_cluster *c, int m)
{
    size_t at = 0;
    for (int i = 0; i < m; i++)
        at += c->bytes[i];
    return at;
}

/* Posts the send or the receive of one message of a gather. The message is the slice of member
 * `part`'s part that begins at offset `at`, LS_MESSAGE_MOST bytes at most. Posts nothing if the
 * part ends before `at`. */
static void post_slice(ls_cluster *c, int peer, int part, size_t at, int incoming)
{
    const size_t left = c->bytes[part] > at ? c->bytes[part] - at : 0;
    const ls_transfer t = {.peer = peer,
                           .channel = LS_ON_DATA,
                           .incoming = incoming,
                           .data = c->stage + part_of(c, part) + at,
                           .bytes = left < LS_MESSAGE_MOST ? left : LS_MESSAGE_MOST};
    if (left > 0)
        ls_progress_post(c, LS_REQUEST_OTHER, 0, &t);
}

/* Posts the parts of a gather: one message of each member's part in turn, so that a short part does
 * not wait for a long part. */
static void begin_gather(ls_cluster *c)
{
    size_t most = 0;
    for (int m = 0; m < c->members; m++)
        most = c->bytes[m] > most ? c->bytes[m] : most;
    for (size_t at = 0; at < most; at += LS_MESSAGE_MOST)
        for (int m = 0; m < c->members; m++) {
            if (m == c->member)
                continue;
            post_slice(c, m, m, at, 1);
            post_slice(c, m, c->member, at, 0);
        }
}

/* Posts the sends of this member's header and the receives of the other members' headers. A header
 * also says whether its sender asks all members to stop the run (`asks`). c->agreed becomes
 * non-zero if any member asks. */
static void exchange_heads(ls_cluster *c)
{
    const atomic_int *asks = c->options.asks;
    c->head = (ls_head){.magic = LS_CLUSTER_MAGIC,
                        .kind = c->kind,
                        .number = c->begun,
                        .bytes = c->order_bytes,
                        .shards = c->kind == LS_ORDER_SUM ? (uint32_t)c->sum.shards : 0,
                        .digest = c->kind == LS_ORDER_SUM ? c->digest : 0,
                        .asks = asks && atomic_load_explicit(asks, memory_order_relaxed) != 0};
    snprintf(c->head.host, sizeof c->head.host, "%s", c->host);
    c->agreed = (int)c->head.asks;
    c->heads = 0;
    for (int m = 0; m < c->members; m++) {
        ls_transfer t = {
            .peer = m, .channel = LS_ON_HEADS, .data = &c->head, .bytes = sizeof c->head};
        if (m == c->member)
            continue;
        ls_progress_post(c, LS_REQUEST_OTHER, 0, &t);
        t.incoming = 1;
        t.data = &c->peer[m].head_in;
        ls_progress_post(c, LS_REQUEST_HEAD_IN, 0, &t);
        c->heads++;
    }
}

/* Checks the header that has arrived from member m. The first headers of a run also carry the names
 * of the hosts. */
static void check_head(ls_cluster *c, int m)
{
    const ls_head *in = &c->peer[m].head_in, *own = &c->head;
    const uint64_t bytes = c->kind == LS_ORDER_GATHER ? c->bytes[m] : own->bytes;
    c->heads--;
    const bool names = c->begun == 1 && c->now_regrouped == 0 && !c->wire->place;
    if (names)
        snprintf(c->peer[m].host, LS_MEMBER_NAME, "%.63s", in->host);
    if (names && c->heads == 0) {
        ls_names_number(c);
        ls_names_publish(c);
    }
    c->agreed |= (int)in->asks;
    /* An internal error: the two processes execute different orders (`kind` is an ls_order_kind),
     * or their orders transfer different numbers of bytes. */
    if (in->magic != own->magic || in->kind != own->kind || in->number != own->number ||
        in->bytes != bytes || in->shards != own->shards)
        ls_watch_fault(
            c, LS_EINTERNAL,
            "host %s brings %llu bytes of kind %u to exchange %llu, this one expected %llu of "
            "kind %u in exchange %llu: the processes do not do the same, as two builds of "
            "different sources",
            c->peer[m].host, (unsigned long long)in->bytes, (unsigned)in->kind,
            (unsigned long long)in->number, (unsigned long long)bytes, (unsigned)own->kind,
            (unsigned long long)own->number);
}

/* Reports a loss if a member has sent its last message and will therefore not take part in the
 * order in progress. */
static void check_ended_members(ls_cluster *c)
{
    for (int m = 0; m < ls_watch_members(c) && c->active && c->kind != LS_ORDER_CLOSE; m++)
        if (m != c->wire->member && c->peer[m].sent_last && c->peer[m].begun < c->begun)
            ls_watch_loss(c, 1 + m, "host %s has ended its run, this one has not", c->peer[m].host);
}

/* The order is relaxed, because no thread reads other memory on the strength of `joining`. What the
 * progress thread has written becomes visible to the caller by the store to `done` (cluster.h,
 * "Memory order", 2 and 6). */
bool ls_joining_ends(ls_cluster *c, int how)
{
    int open = LS_JOINING;
    return atomic_compare_exchange_strong_explicit(&c->joining, &open, how, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* Sets up the members of a new transport. `before` and `origin`: as for ls_names_take. */
static int set_up_members(ls_cluster *c, const ls_peer *before, const int *origin, ls_error *err)
{
    const int members = c->wire->members;
    c->peer = ls_alloc_array(c->options.host, (size_t)members, sizeof *c->peer);
    if (!c->peer)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d members", members);
    ls_names_take(c, before, origin);
    c->checked_ns = c->alive_sent_ns = ls_now_ns();
    c->begun = 0;
    if (!before) {
        int status = ls_names_room(c, err);
        if (status)
            return status;
        ls_names_publish(c);
    }
    for (int m = 0; m < members; m++)
        if (m != c->wire->member)
            ls_watch_receive(c, m);
    return LS_OK;
}

/* Logs a line of text for the transport, which calls this function as `say`. Logs nothing if the
 * caller has given up joining, because then the caller's log function might not exist any more. */
static void log_of_engine(void *cluster, int level, const char *text)
{
    const ls_cluster *c = cluster;
    if (atomic_load_explicit(&c->joining, memory_order_relaxed) != LS_JOINING_GIVEN_UP)
        ls_log(c->options.host, (ls_log_level)level, "%s", text);
}

static void show_life(void *cluster)
{
    ls_beat(&((ls_cluster *)cluster)->heartbeat, 0);
}

/* Compares the fingerprint (data that must be equal on all members) of a process that wants to be
 * admitted. Until the caller has called ls_cluster_regroups, every fingerprint is accepted, because
 * the data to compare with do not exist yet. When the process is admitted, the trainer compares the
 * fingerprints of all members once more (ls_members_compare in train/). */
static int refuses(void *cluster, const char *host, const void *fingerprint, size_t bytes,
                   char *why, size_t size)
{
    const ls_cluster *c = cluster;
    /* acquire: makes the data visible that options.refuses reads (cluster.h, "Memory order", 5) */
    if (!c->options.refuses || !atomic_load_explicit(&c->regroups, memory_order_acquire))
        return 0;
    return c->options.refuses(c->options.user, host, fingerprint, bytes, why, size);
}

/* Opens the transport. The transport's `open` can return after the caller's time limit. Then
 * ls_joining_ends returns false: the caller has given up, and its memory might be freed already.
 * Therefore this thread uses no function of ls_host and no other memory of the caller. */
static void open_wire(ls_cluster *c)
{
    const ls_wire_options o = {.size = sizeof o,
                               .place = c->options.place,
                               .regroups = c->options.regroups,
                               .admits = c->options.admits,
                               .fingerprint = c->options.fingerprint,
                               .fingerprint_bytes = c->options.fingerprint_bytes,
                               .refuses = c->options.admits ? refuses : NULL,
                               .alive = show_life,
                               .say = log_of_engine,
                               .user = c};
    ls_error why = {0};
    int status = c->options.type->open(&c->wire, &o, &why);
    if (!ls_joining_ends(c, LS_JOINING_JOINED)) {
        if (status == LS_OK)
            c->wire->type->abort(c->wire);
        c->wire = NULL;
        c->closed = true;
        return;
    }
    if (status == LS_OK && c->wire->admitted > 0) /* relaxed: only this thread reads it */
        atomic_store_explicit(&c->regroups, true, memory_order_relaxed);
    if (status == LS_OK)
        status = set_up_members(c, NULL, NULL, &why);
    if (status && c->fault.status == LS_OK)
        c->fault = why;
    ls_watch_end_order(c, &c->fault, false);
}

static void check_leave(ls_cluster *c)
{
    if (atomic_load_explicit(&c->leave_asked, memory_order_acquire))
        ls_watch_fault(c, c->leaving.status, "%s", c->leaving.text);
}

/* Begins the order of kind c->kind. Some kinds of orders end in this function. */
static void begin_order(ls_cluster *c)
{
    c->active = true;
    c->requests = c->open = c->heads = 0;
    c->stuck_ns = 0;
    if (c->kind == LS_ORDER_OPEN) {
        open_wire(c);
        return;
    }
    check_leave(c);
    /* After a fault, the last messages have been posted already. */
    if (c->kind == LS_ORDER_CLOSE) {
        if (c->fault.status == LS_OK)
            ls_watch_send_last(c, LS_CONTROL_BYE, "");
        return;
    }
    if (c->fault.status) {
        if (c->active)
            ls_watch_end_order(c, &c->fault, c->fault_is_loss);
        return;
    }
    if (c->kind == LS_ORDER_REGROUP) {
        ls_error why;
        int status = ls_names_room(c, &why);
        if (status == LS_OK)
            ls_names_publish(c);
        memcpy(c->not_admitted, c->failure, sizeof c->not_admitted);
        c->failure[0] = '\0';
        ls_watch_end_order(c, status ? &why : NULL, false);
        return;
    }
    /* The progress thread has regrouped, and the caller has not called ls_cluster_regroup since. */
    if (c->regrouped != c->now_regrouped) {
        ls_watch_end_order(c, &c->last_loss, true);
        return;
    }
    if (c->kind == LS_ORDER_ARRIVALS) {
        const ls_transport *type = c->wire->type;
        memset(&c->arrival, 0, sizeof c->arrival);
        c->arrivals = type->arrivals ? type->arrivals(c->wire, c->round, &c->arrival) : 0;
        ls_watch_end_order(c, NULL, false);
        return;
    }
    c->begun++;
    c->admitting = c->kind == LS_ORDER_ADMIT;
    exchange_heads(c);
    if (c->kind == LS_ORDER_SUM)
        ls_sum_begin(c);
    else if (c->kind == LS_ORDER_GATHER)
        begin_gather(c);
}

/* Returns whether this member has sent its last message to every peer. With `goodbyes`, every
 * peer's last message must have arrived too, and this member's signs of life must have been
 * sent. */
static bool last_messages_are_done(const ls_cluster *c, bool goodbyes)
{
    for (int m = 0; m < ls_watch_members(c); m++) {
        const ls_peer *p = &c->peer[m];
        if (m != c->wire->member &&
            (p->last_in_transit || (goodbyes && (p->alive_in_transit || !p->sent_last))))
            return false;
    }
    return true;
}

/* Closes the transport, or aborts it after a fault. If `abort` fails, `touched` is set: the
 * transport can still read or write memory of the cluster, so ls_cluster_close does not free that
 * memory. */
static void close_wire(ls_cluster *c)
{
    if (c->wire && c->fault.status == LS_OK)
        c->wire->type->close(c->wire);
    else if (c->wire)
        c->touched = c->wire->type->abort(c->wire) != 0;
    c->wire = NULL;
    c->closed = true;
    ls_watch_end_order(c, &c->fault, false);
}

/* Closes the transport when the last messages are done. After a fault it waits at most LAST_WORD_NS
 * for them. */
static void continue_closing(ls_cluster *c)
{
    const bool fine = c->fault.status == LS_OK;
    const bool patient = fine || ls_now_ns() - c->fault_ns < LAST_WORD_NS;
    if (!patient || !c->wire || last_messages_are_done(c, fine))
        close_wire(c);
}

/* ---- completed transfers --------------------------------------------------------------------- */

/* Handles a transfer that has ended. */
static void end_transfer(ls_cluster *c, ls_transfer *transfer)
{
    ls_request *request = (ls_request *)transfer;
    ls_peer *p = &c->peer[transfer->peer];
    if (transfer->incoming)
        p->silent_ns = 0;
    if (request->kind >= LS_REQUEST_HEAD_IN)
        c->stuck_ns = 0; /* only transfers of the order count; a sign of life does not */
    if (c->fault.status && request->kind >= LS_REQUEST_HEAD_IN)
        return; /* the transfer belongs to an order that has failed */
    switch (request->kind) {
    case LS_REQUEST_CONTROL_IN: ls_watch_on_control(c, transfer->peer); return;
    case LS_REQUEST_CONTROL_OUT: p->alive_in_transit = false; return;
    case LS_REQUEST_LAST_OUT: p->last_in_transit = false; return;
    case LS_REQUEST_HEAD_IN: check_head(c, transfer->peer); break;
    case LS_REQUEST_NODE_IN: /* a piece of a node of the shard tree */
        ls_sum_arrived(c, request->piece);
        break;
    case LS_REQUEST_OTHER: break;
    }
    c->open--;
    if (transfer->incoming) {
        p->coming--;
        return;
    }
    p->under_way -= transfer->bytes;
    post_next(c, p);
}

/* Polls the transport once and handles the transfers that have ended. A member is alone if there is
 * no other member and it owes no parts (its own data of a sum are all delivered). It then has no
 * transfers. It polls only if the run admits processes, because `poll` also answers processes that
 * want to join. */
static void poll_wire(ls_cluster *c, uint64_t timeout_ns)
{
    ls_transfer *ended[AT_ONCE];
    ls_error why;
    const bool alone = ls_watch_members(c) == 1 && !ls_watch_owes_parts(c);
    if (!c->wire || (alone && !c->options.admits))
        return;
    int count = c->wire->type->poll(c->wire, ended, AT_ONCE, alone ? 0 : timeout_ns, &why);
    if (count < 0)
        ls_watch_note_wire(c, count, &why);
    /* A member that leaves at once has sent its header, with the name of its host, before. So
     * control messages are handled after headers that have ended in the same poll. (A poll that
     * ends AT_ONCE transfers may leave such a header to the next one.) */
    for (int control = 0; control < 2; control++)
        for (int i = 0; i < count; i++)
            if ((((ls_request *)ended[i])->kind == LS_REQUEST_CONTROL_IN) == (control != 0))
                end_transfer(c, ended[i]);
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Lets the transport regroup, and sets up the members of the new transport. `lost` and `origin`:
 * zeroed arrays for ls_regroup. */
static int open_new_wire(ls_cluster *c, uint8_t *lost, int *origin, ls_error *err)
{
    const uint64_t deadline = c->options.deadline_ns;
    const ls_regroup how = {.size = sizeof how,
                            .lost = lost,
                            .deadline_ns = deadline,
                            .alive = show_life,
                            .user = c,
                            .origin = origin,
                            .arrival = c->admitting ? &c->arrival : NULL,
                            .why = c->failure,
                            .why_bytes = sizeof c->failure};
    ls_peer *before = c->peer;
    ls_wire *old = c->wire;
    for (int m = 0; m < ls_watch_members(c); m++)
        lost[m] = m != old->member && (before[m].leaves_run || before[m].silent_ns > deadline / 2);
    if (c->admitting)
        c->failure[0] = '\0';
    int status = old->type->regroup(&c->wire, old, &how, err);
    if (status)
        c->wire = NULL;
    c->touched |= old->type->abort(old) != 0;
    if (status)
        return status;
    c->last_loss = c->fault;
    c->fault = (ls_error){0};
    c->fault_lost = 0;
    c->fault_is_loss = false;
    c->now_regrouped++;
    c->regroups_since_sum += !c->admitting;
    status = set_up_members(c, before, origin, err);
    ls_free(c->options.host, before);
    if (status) { /* The other members notice that the connections to this member end. */
        c->touched |= c->wire->type->abort(c->wire) != 0;
        c->wire = NULL;
    }
    return status;
}

/* Regroups. If the surviving members do not agree, the loss becomes a fault. */
static void regroup_members(ls_cluster *c)
{
    const size_t count = (size_t)ls_watch_members(c);
    uint8_t *lost = ls_alloc_array(c->options.host, count, sizeof *lost);
    int *origin = ls_alloc_array(c->options.host, count + 1, sizeof *origin);
    ls_error why = c->fault;
    /* Waits until the last messages on the old transport are sent, at most LOSS_WORD_NS. */
    while (!last_messages_are_done(c, false) && ls_now_ns() - c->fault_ns < LOSS_WORD_NS)
        poll_wire(c, ACTIVE_NS);
    int status = lost && origin ? open_new_wire(c, lost, origin, &why)
                                : ls_fail(&why, LS_ENOMEM, "out of memory for a vote");
    if (status) {
        const ls_error first = c->fault.status ? c->fault : c->last_loss;
        c->fault_is_loss = false;
        ls_fail(&c->fault, status, "%.220s; %.280s", first.text, why.text);
        c->fault_ns = ls_now_ns();
        if (c->active && c->kind != LS_ORDER_CLOSE)
            ls_watch_end_order(c, &c->fault, false);
    }
    c->admitting = false;
    ls_free(c->options.host, lost);
    ls_free(c->options.host, origin);
}

/* Ends the order ADMIT. All headers of the order have arrived, so every member has begun the order
 * and knows the arrival (the process to be admitted). The members regroup as after a loss, but no
 * member sends a message that reports a loss. */
static void end_admit(ls_cluster *c)
{
    ls_fail(&c->fault, LS_ESTALLED, "host %.63s is being admitted", c->arrival.host);
    c->fault_ns = ls_now_ns();
    c->fault_is_loss = true;
    ls_watch_end_order(c, &c->fault, true);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Waits for an order for IDLE_NS. Returns whether there is one. */
static bool await_order(ls_cluster *c)
{
    ls_ring *rings[1] = {&c->orders};
    int which = -1, kind;
    if (ls_ring_pop_any(&kind, &which, rings, 1, ls_now_ns() + IDLE_NS, NULL) != LS_OK)
        return false;
    c->kind = (ls_order_kind)kind;
    return true;
}

static const char *name_of_peer(void *cluster, int m)
{
    return ((const ls_cluster *)cluster)->peer[m].host;
}

/* Compares the digests in the headers of all members (base/digest.h). Every member sees the same
 * digests. Returns false after a fault. */
static bool digests_agree(ls_cluster *c)
{
    uint64_t digest[LS_MEMBERS_MAX];
    char why[300];
    for (int m = 0; m < c->members; m++)
        digest[m] = m == c->member ? c->head.digest : c->peer[m].head_in.digest;
    if (ls_digests_agree(digest, c->members))
        return true;
    ls_digest_explain(why, sizeof why, digest, c->members, name_of_peer, c);
    ls_watch_fault(c, LS_EDIVERGED, "%s", why);
    return false;
}

/* Called when all transfers of the order in progress have ended. */
static void end_successfully(ls_cluster *c)
{
    if (c->kind == LS_ORDER_SUM && !digests_agree(c))
        return;
    if (c->kind == LS_ORDER_SUM)
        c->regroups_since_sum = 0;
    if (c->kind == LS_ORDER_ADMIT)
        end_admit(c);
    else
        ls_watch_end_order(c, NULL, false);
}

int ls_progress_run(const ls_worker *worker, void *arg, ls_error *err)
{
    ls_cluster *c = arg;
    (void)worker;
    (void)err;
    c->checked_ns = ls_now_ns();
    while (!c->closed) {
        if (!c->active && await_order(c))
            begin_order(c);
        if (ls_watch_owes_parts(c))
            ls_sum_go_on(c);
        poll_wire(c, ls_watch_owes_parts(c) ? OWN_NS : c->active ? ACTIVE_NS : 0);
        ls_watch_check(c);
        check_leave(c);
        check_ended_members(c);
        if (c->active && c->kind == LS_ORDER_CLOSE)
            continue_closing(c);
        else if (c->active && c->open == 0 && !ls_watch_owes_parts(c))
            end_successfully(c);
        if (c->fault_is_loss && !(c->active && c->kind == LS_ORDER_CLOSE))
            regroup_members(c);
    }
    return LS_OK;
}
