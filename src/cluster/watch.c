/* SPDX-License-Identifier: MIT */
/* Faults, signs of life, and the watch over the other members of a run. All functions run on the
 * progress thread.
 *
 * Problem. A member that dies, or whose host is cut off, sends nothing. The other members wait for
 * its part of an order, such as a sum or a gather (cluster.h). This watch ends their wait. A
 * network can also deliver short messages and lose long messages. (Error messages call a sum or a
 * gather an "exchange".)
 *
 * Signs of life. Each member sends a short message to every other member at a fixed interval:
 * ALIVE_NS, or an eighth of the deadline if that is shorter (send_alive). The progress thread calls
 * ls_watch_check every few milliseconds. This function measures two durations:
 *
 *     silent_ns   for each peer (other member): since the last message from the peer arrived
 *     stuck_ns    for the order: since data of the order last moved, counted while all members
 *                 take part in the order
 *
 * If silent_ns exceeds the deadline, the peer is lost. If stuck_ns exceeds the deadline, a network
 * link is stuck, which is a fault. Both are measured in *attended time*: elapsed time without the
 * time during which this process was stopped (ls_attended_ns in base/clock.h). A stop of this
 * process therefore counts against no other member.
 *
 * Errors. ls_watch_fault or ls_watch_loss stores the first error in c->fault. The error ends the
 * order in progress, and every later order fails with the same message. If the error is the loss of
 * a member and the run can go on without that member, fault_is_loss is set: the progress thread
 * regroups with the surviving members (progress.c) and clears the fault.
 *
 * Last messages. A member that has a fault, that has noticed a loss, or that has nothing more to
 * do, sends one last message to each peer. The message says which of these is the case
 * (ls_control_kind), so that the peers need not wait for the deadline. After its last message a
 * member sends nothing on this transport. The states of a peer:
 *
 *     sent_last        the peer's last message has arrived; the peer's silence is no longer watched
 *     leaves_run       the peer's last message says that the peer leaves the run; false if that
 *                      message reports a loss, because the peer will then regroup
 *     last_posted      this member's last message to the peer has been posted
 *     last_in_transit  that message has been posted, and the transport has not sent it yet */
#include "base/clock.h"
#include "base/error.h"
#include "cluster/progress.h"

#include <stdio.h>
#include <string.h>

#define ALIVE_NS 1000000000u /* one second: longest interval between two signs of life */
enum { MOST_REGROUPS = 8 };  /* largest number of regroupings in a row without a successful sum */

/* ---- faults --------------------------------------------------------------------------------- */

void ls_watch_end_order(ls_cluster *c, const ls_error *why, bool by_loss)
{
    c->status = why ? why->status : LS_OK;
    if (c->status) {
        c->error = *why;
        c->lost = why == &c->fault ? c->fault_lost : 0;
    }
    c->failed_by_loss = by_loss;
    c->active = false;
    atomic_store_explicit(&c->done, true, LS_PROGRESS_DONE);
    ls_park_wake(&c->finished);
}

void ls_watch_note_fault(ls_cluster *c)
{
    c->fault_ns = ls_now_ns();
    if (c->active && c->kind != LS_ORDER_CLOSE)
        ls_watch_end_order(c, &c->fault, c->fault_is_loss);
    if (c->wire)
        ls_watch_send_last(c,
                           c->fault_is_loss                  ? LS_CONTROL_LOSS
                           : c->fault.status == LS_EDIVERGED ? LS_CONTROL_END
                                                             : LS_CONTROL_LEAVE,
                           c->fault.text);
}

bool ls_watch_may_regroup(const ls_cluster *c)
{
    return atomic_load_explicit(&c->regroups, memory_order_relaxed) && c->wire &&
           c->wire->type->regroup && c->regroups_since_sum < MOST_REGROUPS &&
           c->kind != LS_ORDER_CLOSE &&
           !atomic_load_explicit(&c->leave_asked, memory_order_relaxed);
}

void ls_watch_note_wire(ls_cluster *c, int status, const ls_error *why)
{
    if (status == LS_EIO)
        ls_watch_loss(c, c->wire->lost, "%.400s", why->text);
    else if (status)
        ls_watch_fault(c, status, "%.400s", why->text);
}

bool ls_watch_post(ls_cluster *c, ls_transfer *transfer)
{
    ls_error why;
    int status = c->wire->type->post(c->wire, transfer, &why);
    ls_watch_note_wire(c, status, &why);
    return status == LS_OK;
}

/* ---- signs of life -------------------------------------------------------------------------- */

bool ls_watch_owes_parts(const ls_cluster *c)
{
    return c->active && c->kind == LS_ORDER_SUM && c->fault.status == LS_OK &&
           !ls_sum_is_delivered(c);
}

/* Fills a control message. A sum for which this member still owes data does not count as begun, so
 * that its peers do not expect data to move yet (all_take_part). */
static void fill(ls_control *out, const ls_cluster *c, ls_control_kind kind, const char *text)
{
    memset(out, 0, sizeof *out);
    out->magic = LS_CLUSTER_MAGIC;
    out->kind = kind;
    out->begun = ls_watch_owes_parts(c) ? c->begun - 1 : c->begun;
    out->lost = (uint32_t)c->fault_lost;
    snprintf(out->text, sizeof out->text, "%s", text);
}

/* Posts the transfer of a control message, which is stored in *text. */
static void post_control(ls_cluster *c, int m, ls_request *request, ls_request_kind kind,
                         ls_control *text)
{
    *request = (ls_request){.transfer = {.peer = m,
                                         .channel = LS_ON_CONTROL,
                                         .incoming = kind == LS_REQUEST_CONTROL_IN,
                                         .data = text,
                                         .bytes = sizeof *text},
                            .kind = kind};
    ls_watch_post(c, &request->transfer);
}

void ls_watch_receive(ls_cluster *c, int m)
{
    ls_peer *p = &c->peer[m];
    post_control(c, m, &p->in_request, LS_REQUEST_CONTROL_IN, &p->in);
}

/* Sends a sign of life to each peer. A peer is left out if the previous sign of life to it is still
 * in transit, or if the peer or this member has sent the last message to the other. */
static void send_alive(ls_cluster *c)
{
    for (int m = 0; m < ls_watch_members(c) && c->fault.status == LS_OK; m++) {
        ls_peer *p = &c->peer[m];
        if (m == c->wire->member || p->alive_in_transit || p->sent_last || p->last_posted)
            continue;
        p->alive_in_transit = true;
        fill(&p->out, c, LS_CONTROL_ALIVE, "");
        post_control(c, m, &p->out_request, LS_REQUEST_CONTROL_OUT, &p->out);
    }
    c->alive_sent_ns = ls_now_ns();
}

void ls_watch_send_last(ls_cluster *c, ls_control_kind kind, const char *text)
{
    for (int m = 0; m < ls_watch_members(c); m++) {
        ls_peer *p = &c->peer[m];
        if (m == c->wire->member || p->last_posted)
            continue;
        p->last_posted = p->last_in_transit = true;
        fill(&p->last, c, kind, text);
        post_control(c, m, &p->last_request, LS_REQUEST_LAST_OUT, &p->last);
    }
}

/* Writes what this member is doing, for error messages: "in a gather (exchange 7)". */
static void describe_moment(char *out, size_t size, const ls_cluster *c)
{
    const unsigned long long number = c->begun;
    if (!c->active)
        snprintf(out, size, "between two exchanges, after exchange %llu", number);
    else if (c->kind == LS_ORDER_SUM)
        snprintf(out, size, "in the sum of gradients (exchange %llu)", number);
    else
        snprintf(out, size, "%s (exchange %llu)",
                 c->kind == LS_ORDER_CLOSE ? "at the end" : "in a gather", number);
}

/* Returns 1 + the number of the member whose loss a message reports; 0: none. */
static int lost_by(const ls_cluster *c, const ls_control *in)
{
    return in->lost <= (uint32_t)ls_watch_members(c) ? (int)in->lost : 0;
}

/* Returns 1 + the number of the member that was lost first, when member `m` leaves the run: the
 * member whose loss made m leave, or m itself. */
static int lost_first(const ls_cluster *c, int m)
{
    const int lost = lost_by(c, &c->peer[m].in);
    return lost == 0 || lost == 1 + c->wire->member ? 1 + m : lost;
}

void ls_watch_on_control(ls_cluster *c, int m)
{
    ls_peer *p = &c->peer[m];
    const ls_control *in = &p->in;
    if (in->magic != LS_CLUSTER_MAGIC || in->kind > LS_CONTROL_END) {
        ls_watch_fault(c, LS_EIO,
                       "host %s sent a message that this version of Lockstep does not know",
                       p->host);
        return;
    }
    p->begun = in->begun;
    p->sent_last = in->kind != LS_CONTROL_ALIVE;
    p->leaves_run = p->sent_last && in->kind != LS_CONTROL_LOSS;
    if (in->kind == LS_CONTROL_END)
        ls_watch_fault(c, LS_EDIVERGED, "host %s has ended the run: %.400s", p->host, in->text);
    else if (in->kind == LS_CONTROL_LEAVE)
        ls_watch_loss(c, lost_first(c, m), "host %s has left the run: %.400s", p->host, in->text);
    else if (in->kind == LS_CONTROL_LOSS) /* the sender has noticed that a third member is lost */
        ls_watch_loss(c, lost_by(c, in), "%.400s", in->text);
    else if (in->kind == LS_CONTROL_ALIVE)
        ls_watch_receive(c, m);
}

/* Returns whether all members take part in the order in progress and have delivered their own data
 * for it. If it returns true, data of the order should be moving. */
static bool all_take_part(const ls_cluster *c)
{
    bool all = c->active && c->kind != LS_ORDER_CLOSE && !ls_watch_owes_parts(c);
    for (int m = 0; m < ls_watch_members(c); m++)
        all = all && (m == c->wire->member || c->peer[m].begun >= c->begun);
    return all;
}

/* Returns how long this thread has waited for a CPU since the last ls_watch_check. It costs system
 * calls, so it is measured only while a peer has been silent for more than a quarter of the
 * deadline, and is 0 otherwise. ls_attended_ns adds it, because a thread that waits for a CPU has
 * not been stopped. */
static uint64_t own_queued_ns(ls_cluster *c, uint64_t deadline)
{
    const ls_thread_use before = c->own;
    bool suspects = false;
    for (int m = 0; m < ls_watch_members(c); m++)
        suspects |=
            m != c->wire->member && !c->peer[m].sent_last && c->peer[m].silent_ns > deadline / 4;
    c->own.state = 0;
    return suspects && ls_thread_look(&c->own, ls_thread_self()) && before.state != 0
               ? c->own.queued_ns - before.queued_ns
               : 0;
}

/* Reports that no data move although all members send signs of life. A likely cause is a link whose
 * MTU is smaller than the hosts', with a firewall that drops the ICMP messages about it, so that
 * only short messages arrive. The error names a member from which data are expected, or else to
 * which data are in transit. */
static void note_stuck(ls_cluster *c, const char *what)
{
    int m = 0;
    while (m < ls_watch_members(c) && c->peer[m].coming == 0)
        m++;
    for (int i = 0; m == ls_watch_members(c) && i < ls_watch_members(c); i++)
        if (c->peer[i].under_way > 0)
            m = i;
    ls_watch_fault(
        c, LS_ESTALLED,
        "for %.1f s nothing has come or gone between host %s and host %s, though every host is "
        "alive, %s: does a link between them pass only smaller packets than the hosts send (ip "
        "link show: the MTU), or does a firewall drop ICMP?",
        (double)c->stuck_ns * 1e-9, c->peer[c->wire->member].host,
        m < ls_watch_members(c) ? c->peer[m].host : "?", what);
}

void ls_watch_check(ls_cluster *c)
{
    const uint64_t deadline = c->options.deadline_ns;
    const uint64_t attended = ls_attended_ns(&c->checked_ns, own_queued_ns(c, deadline));
    char what[100];
    ls_beat(&c->heartbeat, 0);
    describe_moment(what, sizeof what, c);
    for (int m = 0; m < ls_watch_members(c); m++) {
        ls_peer *p = &c->peer[m];
        /* A peer that has sent its last message is watched only as long as this member's last
         * message to the peer is in transit. A peer that does not receive that message is lost. */
        if (m == c->wire->member || (p->sent_last && !p->last_in_transit))
            continue;
        p->silent_ns += attended;
        if (p->silent_ns > deadline)
            ls_watch_loss(c, 1 + m, "host %s has been silent for %.1f s, %s", p->host,
                          (double)p->silent_ns * 1e-9, what);
    }
    c->stuck_ns = all_take_part(c) ? c->stuck_ns + attended : 0;
    if (c->stuck_ns > deadline)
        note_stuck(c, what);
    if (ls_now_ns() - c->alive_sent_ns > (deadline / 8 < ALIVE_NS ? deadline / 8 : ALIVE_NS))
        send_alive(c);
}
