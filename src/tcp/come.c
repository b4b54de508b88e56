/* SPDX-License-Identifier: MIT */
/* The newcomer's side of an admission; admit.c is the side of the members. The newcomer waits at
 * the member to which it has connected, until that member sends an invitation. Then the newcomer
 * takes part in the vote (regroup.c). If the new host group contains the newcomer, the newcomer
 * connects to all its members. If not, it connects to the run again and waits again (join.c). */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "tcp/join.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* longest time between two notes (short messages, ls_tcp_note) of the member at which this newcomer
 * waits */
#define SILENCE_NS UINT64_C(60000000000)

static int send_fingerprint(joining *j, ls_tcp_link *link, ls_error *err)
{
    char why[LS_REASON];
    ls_tcp_note note = {.kind = TCP_ARRIVAL};
    const size_t bytes = j->options.fingerprint ? j->options.fingerprint_bytes : 0;
    if (bytes > LS_FINGERPRINT_MOST)
        return ls_fail(err, LS_EINTERNAL, "a fingerprint of %zu bytes", bytes);
    note.member = (uint32_t)bytes;
    if (bytes > 0)
        memcpy(note.text, j->options.fingerprint, bytes);
    const int error = ls_tcp_send(link, &note, sizeof note, ls_tcp_try_until(j));
    return error ? ls_fail(err, LS_EIO, "host %s, of the run, has gone: %s", j->verdict.host,
                           ls_reason(why, error))
                 : LS_OK;
}

int ls_tcp_fail_admission(const joining *j, ls_error *err)
{
    return ls_fail(err, LS_ETIMEDOUT, "not admitted in %.0f s: %s", (double)j->place.timeout * 1e-9,
                   j->failure);
}

/* Sends the fingerprint and waits for the note TCP_ADMITTED, which begins the invitation. As long
 * as the member sends notes, the wait has no limit before the first failed admission; after it, the
 * limit is j->give_up_ns. */
static int await_turn(joining *j, ls_tcp_link *link, ls_tcp_note *note, ls_error *err)
{
    int status = send_fingerprint(j, link, err);
    while (status == LS_OK) {
        const uint64_t until_ns = ls_now_ns() + SILENCE_NS;
        const bool limited = j->give_up_ns && j->give_up_ns < until_ns;
        status = ls_tcp_receive_note(j, link, note, limited ? j->give_up_ns : until_ns, err);
        if (status == LS_ETIMEDOUT && limited)
            return ls_tcp_fail_admission(j, err);
        if (status == LS_ETIMEDOUT)
            return ls_fail(err, LS_EIO, "host %s has been silent for a minute", j->verdict.host);
        if (status == LS_ESYSTEM) /* a note was changed: this process may call again */
            return LS_EIO;
        if (status == LS_OK && note->kind == TCP_ADMITTED)
            return LS_OK;
        if (status == LS_OK && note->kind == TCP_FAILED)
            return ls_fail(err, LS_EUNSUPPORTED, "%s", note->text);
        if (status == LS_OK && note->kind == TCP_COMING)
            ls_tcp_log_waiting(j, true, "host %s at %s is in a run that has begun: %s",
                               j->verdict.host, j->target, note->text);
    }
    return status;
}

/* Receives the invitation that follows the note TCP_ADMITTED, and prepares the vote. */
static int receive_invitation(joining *j, ls_tcp_link *link, const ls_tcp_note *note,
                              uint64_t *grace_ns, ls_error *err)
{
    ls_tcp_invitation what = {0};
    char why[LS_REASON];
    const int members = (int)note->members, own = (int)note->member;
    const uint64_t until_ns = ls_tcp_try_until(j);
    if (members < 2 || members > LS_MEMBERS_MAX || own != members - 1)
        return ls_fail(err, LS_EDATA, "host %s calls this one member %d of %d", j->verdict.host,
                       own, members);
    /* The array must also have room for place.members entries, because a later call can meet the
     * start of another run. */
    const int room = members > j->place.members ? members : j->place.members;
    entry *all = ls_alloc_array(NULL, (size_t)room, sizeof *all);
    if (!all)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d members", room);
    ls_free(NULL, j->entry);
    j->entry = all;
    int error = ls_tcp_receive(link, &what, sizeof what, until_ns);
    if (!error)
        error = ls_tcp_receive(link, all, sizeof *all, until_ns);
    if (!error)
        error = ls_tcp_receive(link, all + 1, (size_t)(members - 1) * sizeof *all, until_ns);
    if (error)
        return ls_fail(err, LS_EIO, "host %s, of the run, has gone: %s", j->verdict.host,
                       ls_tcp_reason(why, error));
    for (int m = 0; m < members; m++)
        all[m].host[TCP_HOST - 1] = '\0';
    if (all[0].port)
        j->first_bytes = ls_tcp_unpack_address(&j->first, all[0].address[0], all[0].port);
    j->run = note->run;
    j->turned = (ls_tcp_set){{0}};
    *grace_ns = what.grace_ns;
    ls_tcp_vote_fini(&j->vote);
    int status = ls_tcp_vote_init(&j->vote, own, members, err);
    j->vote.formed = what.formed;
    return status ? status : ls_tcp_vote_expect(&j->vote, own, err);
}

/* Moves the new transport `made` into `w`, the structure that the function `open` returns, and
 * lists the members in w->place. Frees the structure `made`. */
static int take_wire(joining *j, ls_tcp_wire *w, ls_tcp_wire *made, ls_error *err)
{
    const int members = made->base.members;
    ls_arrival *place = ls_alloc_array(NULL, (size_t)members, sizeof *place);
    if (!place) {
        ls_tcp_free(made);
        return ls_fail(err, LS_ENOMEM, "out of memory for %d members", members);
    }
    for (int m = 0; m < members; m++) {
        place[m].number = ls_tcp_set_nth(&j->vote.formed.set, m);
        memcpy(place[m].host, j->entry[place[m].number].host, sizeof place[m].host);
    }
    const ls_transport *type = w->base.type;
    ls_tcp_free_lines(w);
    *w = *made;
    ls_free(NULL, made);
    w->base.type = type;
    w->place = place;
    w->base.place = place;
    j->wire = w;
    return LS_OK;
}

/* Keeps the reason of a failed admission. The first one begins the time of --wait. */
static void note_failure(joining *j, int status, const ls_error *why)
{
    if (status != LS_EIO)
        return;
    snprintf(j->failure, sizeof j->failure, "%.250s", why->text);
    if (!j->give_up_ns)
        j->give_up_ns = ls_deadline_ns(j->place.timeout);
}

int ls_tcp_await_admission(joining *j, ls_error *err)
{
    ls_tcp_wire *const w = j->wire, *made = NULL;
    ls_tcp_link *link = &ls_tcp_line_of(w, 0, 0)->link;
    ls_tcp_note note = {0};
    uint64_t grace_ns = 0;
    ls_error why = {0};
    int status = await_turn(j, link, &note, &why);
    if (status == LS_OK)
        status = receive_invitation(j, link, &note, &grace_ns, &why);
    ls_tcp_hang_up_link(link);
    if (status == LS_OK) {
        ls_tcp_log_waiting(j, true, "the epoch has ended: host %s is being admitted", j->host);
        status = ls_tcp_vote_in(&made, j, grace_ns, &why);
        j->wire = w;
        /* LS_EIO lets the caller try again: the new host group does not contain this process, or
         * another member was lost. */
        status = status == LS_ESTALLED || status == LS_ESYSTEM || status == LS_ETIMEDOUT ? LS_EIO
                                                                                         : status;
        note_failure(j, status, &why);
    }
    /* In case this process calls again, the time limit begins anew; after a failed admission it
     * goes on. */
    j->until_ns = j->give_up_ns ? j->give_up_ns : ls_deadline_ns(j->place.timeout);
    if (status == LS_EIO && j->give_up_ns && ls_now_ns() >= j->give_up_ns)
        status = ls_tcp_fail_admission(j, &why);
    if (status == LS_OK)
        status = take_wire(j, w, made, &why);
    if (status) {
        ls_tcp_vote_fini(&j->vote);
        j->vote = (ls_tcp_vote){0};
    }
    return status ? ls_fail(err, status, "%s", why.text) : LS_OK;
}
