/* Faults, signs of life, and the watch over the other members. Each member sends signs of life, and
 * a last message when it leaves. A member that has been silent for the deadline is lost; if all are
 * alive but no data move for the deadline, a link is stuck. All functions run on the progress
 * thread. */
#include "base/clock.h"
#include "base/error.h"
#include "cluster/courier.h"

#include <stdio.h>
#include <string.h>

#define SAY_NS 1000000000u /* longest interval between two signs of life */
enum { IN_VAIN = 8 };      /* most regroupings without a sum between them */

/* ---- faults --------------------------------------------------------------------------------- */

void ls_watch_end_order(ls_cluster *c, const ls_error *why, bool lost)
{
    c->status = why ? why->status : LS_OK;
    if (c->status)
        c->error = *why;
    c->lost = lost;
    c->active = false;
    atomic_store_explicit(&c->done, true, LS_COURIER_DONE);
    ls_park_wake(&c->finished);
}

void ls_watch_note_fault(ls_cluster *c)
{
    c->fault_ns = ls_now_ns();
    if (c->active && c->kind != LS_ORDER_CLOSE)
        ls_watch_end_order(c, &c->fault, c->loss);
    if (c->wire)
        ls_watch_say_last(c,
                          c->loss                           ? LS_SAY_LOSS
                          : c->fault.status == LS_EDIVERGED ? LS_SAY_END
                                                            : LS_SAY_LEAVE,
                          c->fault.text);
}

bool ls_watch_may_regroup(const ls_cluster *c)
{
    return atomic_load_explicit(&c->regroups, memory_order_relaxed) && c->wire &&
           c->wire->type->regroup && c->in_vain < IN_VAIN && c->kind != LS_ORDER_CLOSE &&
           !atomic_load_explicit(&c->left, memory_order_relaxed);
}

void ls_watch_note_wire(ls_cluster *c, int status, const ls_error *why)
{
    if (status == LS_EIO)
        ls_watch_loss(c, "%.400s", why->text);
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

bool ls_watch_brings(const ls_cluster *c)
{
    return c->active && c->kind == LS_ORDER_SUM && c->fault.status == LS_OK &&
           !ls_sum_is_brought(c);
}

static void fill(ls_control *out, const ls_cluster *c, ls_say say, const char *text)
{
    memset(out, 0, sizeof *out);
    out->magic = LS_CLUSTER_MAGIC;
    out->say = say;
    out->begun = c->begun - ls_watch_brings(c);
    snprintf(out->text, sizeof out->text, "%s", text);
}

static void post_control(ls_cluster *c, int m, ls_parcel *parcel, ls_parcel_kind kind,
                         ls_control *text)
{
    *parcel = (ls_parcel){.transfer = {.peer = m,
                                       .channel = LS_ON_CONTROL,
                                       .incoming = kind == LS_PARCEL_CONTROL_IN,
                                       .data = text,
                                       .bytes = sizeof *text},
                          .kind = kind};
    ls_watch_post(c, &parcel->transfer);
}

void ls_watch_listen(ls_cluster *c, int m)
{
    ls_peer *p = &c->peer[m];
    post_control(c, m, &p->in_parcel, LS_PARCEL_CONTROL_IN, &p->in);
}

/* Sends a sign of life to all members, except to one whose last sign of life
 * is still in transit. */
static void say_alive(ls_cluster *c)
{
    for (int m = 0; m < ls_watch_members(c) && c->fault.status == LS_OK; m++) {
        ls_peer *p = &c->peer[m];
        if (m == c->wire->member || p->saying || p->gone || p->told_last)
            continue;
        p->saying = true;
        fill(&p->out, c, LS_SAY_ALIVE, "");
        post_control(c, m, &p->out_parcel, LS_PARCEL_CONTROL_OUT, &p->out);
    }
    c->spoke_ns = ls_now_ns();
}

void ls_watch_say_last(ls_cluster *c, ls_say say, const char *text)
{
    for (int m = 0; m < ls_watch_members(c); m++) {
        ls_peer *p = &c->peer[m];
        if (m == c->wire->member || p->told_last)
            continue;
        p->told_last = p->telling = true;
        fill(&p->last, c, say, text);
        post_control(c, m, &p->last_parcel, LS_PARCEL_LAST_OUT, &p->last);
    }
}

static void say_what(char *out, size_t size, const ls_cluster *c)
{
    const unsigned long long number = c->begun;
    if (!c->active)
        snprintf(out, size, "between two exchanges, after the %lluth", number);
    else if (c->kind == LS_ORDER_SUM)
        snprintf(out, size, "in the sum of gradients (exchange %llu)", number);
    else
        snprintf(out, size, "%s (exchange %llu)",
                 c->kind == LS_ORDER_CLOSE ? "at the end" : "in a gather", number);
}

void ls_watch_hear(ls_cluster *c, int m)
{
    ls_peer *p = &c->peer[m];
    const ls_control *in = &p->in;
    if (in->magic != LS_CLUSTER_MAGIC || in->say > LS_SAY_END) {
        ls_watch_fault(c, LS_EIO, "host %s sends what no Lockstep of this version does", p->host);
        return;
    }
    p->begun = in->begun;
    p->gone = in->say != LS_SAY_ALIVE;
    p->ended = p->gone && in->say != LS_SAY_LOSS;
    if (in->say == LS_SAY_END)
        ls_watch_fault(c, LS_EDIVERGED, "host %s has ended the run: %.400s", p->host, in->text);
    else if (in->say == LS_SAY_LEAVE)
        ls_watch_loss(c, "host %s has left the run: %.400s", p->host, in->text);
    else if (in->say ==
             LS_SAY_LOSS) /* the sender may recover from this loss when this member cannot */
        ls_watch_loss(c, "%.400s", in->text);
    else if (in->say == LS_SAY_ALIVE)
        ls_watch_listen(c, m);
}

/* Returns whether each member has brought its part of this order, so that data should move. */
static bool all_are_in_it(const ls_cluster *c)
{
    bool all = c->active && c->kind != LS_ORDER_CLOSE && !ls_watch_brings(c);
    for (int m = 0; m < ls_watch_members(c); m++)
        all = all && (m == c->wire->member || c->peer[m].begun >= c->begun);
    return all;
}

/* Returns for how long this thread had no CPU since its last look. It matters only once a member is
 * suspected, and is measured only then: a lost member must be found no later on a busy machine. */
static uint64_t had_no_cpu(ls_cluster *c, uint64_t deadline)
{
    const ls_thread_use before = c->own;
    bool suspects = false;
    for (int m = 0; m < ls_watch_members(c); m++)
        suspects |= m != c->wire->member && !c->peer[m].gone && c->peer[m].silent_ns > deadline / 4;
    c->own.state = 0;
    return suspects && ls_thread_look(&c->own, ls_thread_self()) && before.state != 0
               ? c->own.queued_ns - before.queued_ns
               : 0;
}

/* Reports that no data move although signs of life do. A likely cause is a link that takes smaller
 * packets than the hosts send, while a firewall drops the ICMP messages that say so: short messages
 * then arrive and long ones do not. */
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
        "alive, %s: does a link between them take smaller packets than its ends (ip link show: "
        "the MTU), or a firewall drop ICMP?",
        (double)c->stuck_ns * 1e-9, c->peer[c->wire->member].host,
        m < ls_watch_members(c) ? c->peer[m].host : "?", what);
}

void ls_watch_look(ls_cluster *c)
{
    const uint64_t deadline = c->options.deadline_ns;
    const uint64_t attended = ls_attended_ns(&c->looked_ns, had_no_cpu(c, deadline));
    char what[100];
    ls_beat(&c->heartbeat, 0);
    say_what(what, sizeof what, c);
    for (int m = 0; m < ls_watch_members(c); m++) {
        ls_peer *p = &c->peer[m];
        /* A member to which a last message is in transit must receive it. */
        if (m == c->wire->member || (p->gone && !p->telling))
            continue;
        p->silent_ns += attended;
        if (p->silent_ns > deadline)
            ls_watch_loss(c, "host %s has been silent for %.1f s, %s", p->host,
                          (double)p->silent_ns * 1e-9, what);
    }
    c->stuck_ns = all_are_in_it(c) ? c->stuck_ns + attended : 0;
    if (c->stuck_ns > deadline)
        note_stuck(c, what);
    if (ls_now_ns() - c->spoke_ns > (deadline / 8 < SAY_NS ? deadline / 8 : SAY_NS))
        say_alive(c);
}
