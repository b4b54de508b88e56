/* SPDX-License-Identifier: MIT */
/* Newcomers: processes that come after the run has begun (docs/faults.md, "A host that comes").
 * This file is the side of the members; come.c is the side of the newcomer.
 *
 * A newcomer connects to any member and proves that it knows the secret. The member compares the
 * newcomer's fingerprint with the run's fingerprint. If they are equal, the newcomer waits. The
 * member sends the newcomer a note (ls_tcp_note) every ten seconds. At the end of an epoch the
 * members agree on one newcomer (src/train). All members then call `regroup` of the transport with
 * this newcomer as the argument `arrival`. The member at which the newcomer waits sends an
 * invitation: the newcomer's number, the addresses of all members, and the host group that the vote
 * is to replace.
 *
 * A failed admission (a firewall between the newcomer and one member) costs the run time, so every
 * member keeps a list of such newcomers. A newcomer is tried again after 1 round (end of an epoch),
 * then after 2, 4 and 8 rounds. After TRIES failures it is told the reason and refused. If it is
 * started again, it is tried once more after AGAIN rounds. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAY_NS UINT64_C(10000000000) /* interval between two notes to a waiting newcomer */
#define COME_NS UINT64_C(5000000000) /* time limit for a fingerprint */

enum {
    TRIES = 5, /* failed admissions after which a newcomer is refused */
    AGAIN = 16 /* rounds until a newcomer that was refused is tried again */
};

static const char waiting_for[] = "waiting for the end of the epoch";

/* ---- waiting --------------------------------------------------------------------------------- */

bool ls_tcp_may_wait(const joining *j, const hello *h)
{
    return j->options.admits && h->admits && j->vote.members > 0;
}

/* Closes the connection of entry i of j->waiting and removes the entry. */
static void remove_waiting(joining *j, int i)
{
    close(j->waiting[i].link.fd);
    memmove(&j->waiting[i], &j->waiting[i + 1],
            (size_t)(--j->waiting_count - i) * sizeof j->waiting[0]);
}

/* Sends a note to the newcomer i of j->waiting. A note that cannot be sent at once is dropped. If a
 * part of it was sent, the connection is of no use any more: it is shut down, and read_waiting()
 * finds that it has ended. */
static void send_to_waiting(joining *j, int i, ls_tcp_note_kind kind, const char *text)
{
    ls_tcp_note note = {.kind = kind, .members = (uint32_t)j->vote.members};
    snprintf(note.text, sizeof note.text, "%s", text);
    j->waiting[i].told_ns = ls_now_ns();
    const int error = ls_tcp_send_now(&j->waiting[i].link, &note, sizeof note);
    if (error && error != EAGAIN)
        shutdown(j->waiting[i].link.fd, SHUT_RDWR);
}

void ls_tcp_dismiss_waiting(joining *j, const char *why)
{
    if (!j)
        return;
    while (j->waiting_count > 0) {
        send_to_waiting(j, j->waiting_count - 1, TCP_FAILED, why);
        remove_waiting(j, j->waiting_count - 1);
    }
}

void ls_tcp_let_wait(joining *j, const ls_tcp_link *link, const hello *h)
{
    if (j->waiting_count == TCP_WAITING_MAX) {
        close(link->fd);
        return;
    }
    ls_tcp_waiting *w = &j->waiting[j->waiting_count++];
    memset(w, 0, sizeof *w);
    w->link = *link;
    w->since_ns = ls_now_ns();
    ls_tcp_set_entry(&w->at, link->fd, h);
}

/* ---- failed admissions ----------------------------------------------------------------------- */

static bool is_same_newcomer(const entry *a, const entry *b)
{
    return memcmp(a->address, b->address, sizeof a->address) == 0 && strcmp(a->host, b->host) == 0;
}

/* Returns the list's entry of a newcomer; NULL: none of its admissions has failed. */
static ls_tcp_failed *find_failed(joining *j, const entry *at)
{
    for (int i = 0; i < TCP_WAITING_MAX; i++)
        if (j->failed[i].tries > 0 && is_same_newcomer(&j->failed[i].at, at))
            return &j->failed[i];
    return NULL;
}

/* Notes a failed admission in the round `round`. If the list is full, replaces the entry that is
 * due first. */
static void note_failed(joining *j, uint64_t round)
{
    ls_tcp_failed *f = find_failed(j, &j->trial.at);
    if (!f) {
        f = &j->failed[0];
        for (int i = 1; i < TCP_WAITING_MAX && f->tries > 0; i++)
            if (j->failed[i].tries == 0 || j->failed[i].next < f->next)
                f = &j->failed[i];
        *f = (ls_tcp_failed){.at = j->trial.at};
    }
    f->tries += f->tries < TRIES;
    f->given_up = f->tries == TRIES;
    f->next = round + (f->given_up ? AGAIN : UINT64_C(1) << (f->tries - 1));
    memcpy(f->why, j->trial.why, sizeof f->why);
}

/* Finds out how the last admission has ended: the newcomer is a member, or the admission has
 * failed. */
static void end_trial(joining *j, uint64_t round)
{
    ls_tcp_failed *f = find_failed(j, &j->trial.at);
    if (j->trial.number == 0)
        return;
    if (!ls_tcp_set_has(&j->vote.formed.set, j->trial.number))
        note_failed(j, round);
    else if (f)
        f->tries = 0;
    j->trial.number = 0;
}

void ls_tcp_explain_failure(joining *j, const ls_regroup *how)
{
    ls_tcp_say_apart(j->trial.why, sizeof j->trial.why, j, how->arrival->host,
                     &j->vote.formed.apart, ls_tcp_set_count(&j->vote.formed.set));
    if (how->why)
        snprintf(how->why, how->why_bytes, "%s", j->trial.why);
}

/* Tells a waiting newcomer what it waits for. Returns false if the newcomer is refused instead. */
static bool tell_waiting(joining *j, int i)
{
    char text[TCP_NOTE];
    ls_tcp_failed *f = find_failed(j, &j->waiting[i].at);
    if (!f) {
        send_to_waiting(j, i, TCP_COMING, waiting_for);
        return true;
    }
    snprintf(text, sizeof text,
             f->given_up ? "%d tries to admit it have failed: %s"
                         : "admission failed (try %d): %s; a later epoch's end "
                           "is waited for",
             f->tries, f->why);
    send_to_waiting(j, i, f->given_up ? TCP_FAILED : TCP_COMING, text);
    if (!f->given_up)
        return true;
    ls_tcp_log_refused(j, j->waiting[i].link.fd, j->waiting[i].at.host, text);
    f->given_up = false;
    return false;
}

/* ---- newcomers that wait --------------------------------------------------------------------- */

/* Compares the received fingerprint of a waiting newcomer. Returns whether the newcomer may go on
 * waiting. If the fingerprint differs, sends the newcomer the reason. */
static bool check_fingerprint(joining *j, int i)
{
    ls_tcp_waiting *w = &j->waiting[i];
    char why[TCP_NOTE], line[TCP_NOTE + 40];
    if (!ls_tcp_is_sealed(&w->link.in, &w->said.note, sizeof w->said.note, w->said.tag)) {
        snprintf(line, sizeof line, "wants to join, but %s", ls_tcp_changed);
        ls_tcp_log_refused(j, w->link.fd, w->at.host, line);
        return false;
    }
    const size_t bytes = w->said.note.member < TCP_NOTE ? w->said.note.member : TCP_NOTE;
    w->fit =
        w->said.note.kind == TCP_ARRIVAL &&
        (!j->options.refuses || j->options.refuses(j->options.user, w->at.host, w->said.note.text,
                                                   bytes, why, sizeof why) == 0);
    if (w->fit) {
        ls_tcp_log(j, LS_LOG_INFO, "host %s has come and is %s", w->at.host, waiting_for);
        return tell_waiting(j, i);
    }
    if (w->said.note.kind != TCP_ARRIVAL)
        return false;
    snprintf(line, sizeof line, "wants to join: %s", why);
    ls_tcp_log_refused(j, w->link.fd, w->at.host, line);
    send_to_waiting(j, i, TCP_FAILED, why);
    return false;
}

/* Reads from the connection of a waiting newcomer. Returns false if the newcomer must be removed,
 * because it has closed the connection, has another fingerprint, or did not send a fingerprint in
 * time. */
static bool read_waiting(joining *j, int i)
{
    ls_tcp_waiting *w = &j->waiting[i];
    if (w->fit) {
        const bool here = !ls_tcp_is_closed(w->link.fd);
        if (here && ls_now_ns() - w->told_ns > SAY_NS)
            return tell_waiting(j, i);
        if (!here)
            ls_tcp_log(j, LS_LOG_WARNING, "host %s, which waited, has gone", w->at.host);
        return here;
    }
    const ssize_t n =
        recv(w->link.fd, (char *)&w->said + w->got, sizeof w->said - w->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return ls_now_ns() - w->since_ns < COME_NS;
    w->got += n > 0 ? (size_t)n : 0;
    if (n <= 0)
        return false;
    return w->got < sizeof w->said || check_fingerprint(j, i);
}

bool ls_tcp_serve_waiting(joining *j)
{
    bool open = false;
    for (int i = j->waiting_count - 1; i >= 0; i--) {
        if (!read_waiting(j, i))
            remove_waiting(j, i);
        else
            open |= !j->waiting[i].fit;
    }
    return open;
}

/* Returns whether a waiting newcomer may be admitted in this round. */
static bool is_due(joining *j, const ls_tcp_waiting *w, uint64_t round)
{
    const ls_tcp_failed *f = find_failed(j, &w->at);
    return w->fit && (!f || round >= f->next);
}

int ls_tcp_arrivals(ls_wire *base, uint64_t round, ls_arrival *out)
{
    joining *j = ((ls_tcp_wire *)base)->rendezvous;
    int count = 0;
    memset(out, 0, sizeof *out);
    if (!j)
        return 0;
    out->number = j->vote.members;
    end_trial(j, round);
    ls_tcp_answer_late(j);
    for (int i = 0; i < j->waiting_count; i++) {
        const ls_tcp_waiting *w = &j->waiting[i];
        if (is_due(j, w, round) && count++ == 0) {
            _Static_assert(sizeof out->host == TCP_HOST, "a host's name");
            _Static_assert(sizeof out->at >= offsetof(entry, host), "an address");
            memcpy(out->host, w->at.host, sizeof out->host);
            memcpy(out->at, &w->at, offsetof(entry, host));
        }
    }
    return count;
}

/* ---- inviting ------------------------------------------------------------------------------- */

/* Adds an entry for the newcomer to j->entry. If a member has the same host name, appends "#" and
 * the newcomer's number to the newcomer's name. Every member makes the
 * same change, so all members have the same names. */
static int add_entry(joining *j, const ls_arrival *arrival, ls_error *err)
{
    const int before = j->vote.members, number = (int)arrival->number;
    entry *all = ls_alloc_array(NULL, (size_t)number + 1, sizeof *all);
    if (!all)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d members", number + 1);
    memcpy(all, j->entry, (size_t)(before < number ? before : number) * sizeof *all);
    ls_free(NULL, j->entry);
    j->entry = all;
    entry *e = &all[number];
    memcpy(e, arrival->at, offsetof(entry, host));
    ls_tcp_take_name(e->host, arrival->host);
    for (int i = 0; i < number; i++)
        if (ls_tcp_set_has(&j->vote.formed.set, i) && strcmp(all[i].host, e->host) == 0) {
            ls_tcp_number_name(e->host, number);
            break;
        }
    return LS_OK;
}

/* Sends the invitation to a newcomer that waits at this member. If sending fails, the newcomer
 * takes no part in the vote. */
static void send_invitation(joining *j, int i, int number, uint64_t grace_ns)
{
    ls_tcp_note head = {.kind = TCP_ADMITTED,
                        .members = (uint32_t)j->vote.members,
                        .member = (uint32_t)number,
                        .run = j->run};
    ls_tcp_invitation what = {.formed = j->vote.formed, .grace_ns = grace_ns};
    const uint64_t until_ns = ls_now_ns() + j->try_ns;
    ls_tcp_link *to = &j->waiting[i].link;
    entry first = j->entry[0];
    if (j->first_bytes > 0) /* this member has reached the first member at j->first */
        ls_tcp_pack_address(first.address[0], &first.port, &j->first);
    if (ls_tcp_send(to, &head, sizeof head, until_ns) == 0 &&
        ls_tcp_send(to, &what, sizeof what, until_ns) == 0 &&
        ls_tcp_send(to, &first, sizeof first, until_ns) == 0)
        ls_tcp_send(to, j->entry + 1, (size_t)(j->vote.members - 1) * sizeof(entry), until_ns);
    remove_waiting(j, i);
}

int ls_tcp_invite(joining *j, const ls_arrival *arrival, uint64_t grace_ns, ls_error *err)
{
    const int number = (int)arrival->number;
    memset(&j->trial, 0, sizeof j->trial);
    j->trial.number = number;
    memcpy(&j->trial.at, arrival->at, offsetof(entry, host));
    ls_tcp_take_name(j->trial.at.host, arrival->host);
    snprintf(j->trial.why, sizeof j->trial.why, "host %s was lost during its admission",
             j->trial.at.host);
    int status = add_entry(j, arrival, err);
    if (status == LS_OK)
        status = ls_tcp_vote_expect(&j->vote, number, err);
    for (int i = j->waiting_count - 1; i >= 0 && status == LS_OK; i--)
        if (j->waiting[i].fit &&
            memcmp(&j->waiting[i].at, arrival->at, offsetof(entry, host)) == 0) {
            send_invitation(j, i, number, grace_ns);
            break;
        }
    return status;
}
