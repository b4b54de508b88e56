/* SPDX-License-Identifier: MIT */
/* The handshake: caller and listener prove to each other that they know the run's secret.
 *
 *     caller                                              listener
 *     hello: version, member, channel, nonce   ──▶
 *                                              ◀──  version, nonce, proof of (hello, nonce)
 *     proof of (hello, nonce)                  ──▶
 *                                              ◀──  verdict: welcome, or the reason why not
 *
 * A proof is an HMAC-SHA-256 with the secret as its key. It covers three things: one letter
 * (different for the two ends), the hello, and the listener's nonce. The hello contains the
 * caller's nonce. Each end draws a new random nonce for each connection, so a proof recorded from
 * one connection is useless in another connection. The verdict is the first sealed message
 * (seal.h).
 *
 * Versions. Hello and answer begin with the same two numbers in every version: MAGIC, and the
 * version of the protocol. A listener answers a hello of another version with its own two numbers
 * alone and closes the connection, so that both ends can name both versions.
 *
 * The listener serves all *pending* connections (with an incomplete handshake) at the same time, so
 * that a caller that sends nothing does not delay others. A caller that receives a wrong proof also
 * sends its own proof, so that the listener reports too that the secrets differ. */
#include "base/clock.h"
#include "base/error.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x50434c53u /* "SLCP" */
/* version of the transport's interface, and of the handshake; what train/ exchanges is covered by
 * ls_fingerprint.version */
#define VERSION ((uint32_t)LS_TRANSPORT_ABI << 16 | 4)
/* message of both ends about another version: that version, and the one of this process */
#define OTHER_VERSION                                                                              \
    "speaks version %u.%u of the protocol between hosts where this host speaks %u.%u (all hosts "  \
    "of a run need the same version of Lockstep)"
/* time limit for a caller of a run that has begun */
#define LATE_NS UINT64_C(1000000000)

/* Every host of a run lays out these structures alike: they have no gaps, and a change of a size
 * needs a new VERSION. */
_Static_assert(sizeof(hello) == 88 + TCP_HOST, "a hello");
_Static_assert(sizeof(ls_tcp_answer) == 8 + NONCE + PROOF, "an answer");
_Static_assert(sizeof(ls_tcp_verdict) == 8 + TCP_HOST, "a verdict");
_Static_assert(sizeof(entry) == 36 + TCP_HOST, "an entry");
_Static_assert(sizeof(ls_tcp_note) == 24 + TCP_NOTE, "a note");
_Static_assert(sizeof(ls_tcp_set) == LS_MEMBERS_MAX / 8, "a set");
_Static_assert(sizeof(ls_tcp_ballot) == 8 + 4 * sizeof(ls_tcp_set), "a ballot");
_Static_assert(sizeof(ls_tcp_invitation) == sizeof(ls_tcp_ballot) + 8, "an invitation");
_Static_assert(sizeof(ls_tcp_message) == 16 + sizeof(ls_tcp_ballot) + 4 * sizeof(ls_tcp_set),
               "a vote");
_Static_assert(sizeof(ls_tcp_head) == 8 + TCP_TAG, "a header");

/* The values from which the proofs and the keys of a connection are computed. */
typedef struct claim {
    hello hello;
    uint8_t nonce[NONCE]; /* the listener's */
} claim;
_Static_assert(sizeof(claim) == sizeof(hello) + NONCE, "a claim has no gap");

static claim claim_of(const hello *h, const uint8_t nonce[NONCE])
{
    claim c = {.hello = *h};
    memcpy(c.nonce, nonce, NONCE);
    return c;
}

/* Computes the proof of one end. `who`: the letter of that end. */
static void compute_proof(uint8_t out[PROOF], const joining *j, ls_tcp_letter who, const hello *h,
                          const uint8_t nonce[NONCE])
{
    const claim c = claim_of(h, nonce);
    ls_tcp_derive(out, j->place.secret, j->place.secret_bytes, (char)who, &c, sizeof c);
}

/* Sets the keys of a connection. `calls`: this process is the caller. */
static void set_keys(ls_tcp_link *link, const joining *j, const hello *h,
                     const uint8_t nonce[NONCE], bool calls)
{
    const claim c = claim_of(h, nonce);
    ls_tcp_set_keys(link, j->place.secret, j->place.secret_bytes, &c, sizeof c, calls);
}

/* ---- the listener ---------------------------------------------------------------------------- */

/* Closes the pending connection i. */
static void drop(joining *j, int i)
{
    close(j->pending[i].fd);
    j->pending[i] = j->pending[--j->pending_count];
}

static void accept_connection(joining *j)
{
    const int fd = accept(j->listen_fd, NULL, NULL);
    if (fd < 0)
        return;
    ls_tcp_set_up(fd);
    if (j->pending_count == PENDING_MAX) { /* closes the oldest pending connection */
        int oldest = 0;
        for (int i = 1; i < PENDING_MAX; i++)
            if (j->pending[i].since_ns < j->pending[oldest].since_ns)
                oldest = i;
        drop(j, oldest);
    }
    j->pending[j->pending_count++] = (pending){.fd = fd, .since_ns = ls_now_ns()};
}

/* Answers a complete hello. Returns false if the connection must be closed. A member of the run
 * that calls during the run is already regrouping, while this process is not. Such a caller gets no
 * answer. It calls again, and is answered when this process regroups too. */
static bool answer_hello(joining *j, pending *g)
{
    ls_tcp_answer a = {0};
    ls_error unused;
    const hello *h = &g->said.hello;
    if ((j->running && h->from != TCP_NOBODY) || ls_tcp_draw(g->nonce, NONCE, &unused))
        return false;
    a.opening = (ls_tcp_opening){MAGIC, VERSION};
    memcpy(a.nonce, g->nonce, NONCE);
    compute_proof(a.proof, j, TCP_PROOF_LISTENER, h, g->nonce);
    return send(g->fd, &a, sizeof a, MSG_NOSIGNAL) ==
           (ssize_t)sizeof a; /* the whole answer fits into the empty send buffer */
}

/* Checks magic and version of a hello, as soon as they have arrived. Tells a caller with another
 * version the version of this process. */
static bool is_of_this_version(joining *j, const pending *g)
{
    const hello *h = &g->said.hello;
    const ls_tcp_opening own = {MAGIC, VERSION};
    const bool swapped = h->magic == __builtin_bswap32(MAGIC);
    char why[200];
    if (g->got < sizeof own || (h->magic == MAGIC && h->version == VERSION))
        return true;
    if (h->magic != MAGIC && !swapped)
        return false;
    if (swapped)
        snprintf(why, sizeof why, "has another byte order, which one run cannot mix");
    else
        snprintf(why, sizeof why, OTHER_VERSION, (unsigned)h->version >> 16,
                 (unsigned)h->version & 0xffff, VERSION >> 16, VERSION & 0xffff);
    ls_tcp_log_refused(j, g->fd, "?", why);
    (void)send(g->fd, &own, sizeof own, MSG_NOSIGNAL);
    return false;
}

/* Returns the verdict (a ls_tcp_verdict_kind) for a caller that knows the secret: whether the
 * caller may join the run. */
static uint32_t verdict_for(joining *j, const pending *g)
{
    const hello *h = &g->said.hello;
    char why[160];
    if (h->from != TCP_NOBODY)
        return TCP_WELCOME;
    if (ls_tcp_may_wait(j, h))
        return TCP_WAIT;
    if (j->complete || !j->is_first) {
        snprintf(why, sizeof why,
                 "wants to join, but this run has begun with all its %d members, and %s",
                 j->place.members,
                 j->options.admits
                     ? "the newcomer's config does not say cluster.on_arrival \"admit\""
                     : "does not admit others (cluster.on_arrival)");
        ls_tcp_log_refused(j, g->fd, h->host, why);
        return TCP_BEGUN;
    }
    if (h->members == (uint32_t)j->place.members)
        return TCP_WELCOME;
    snprintf(why, sizeof why, "expects %u members where this one expects %d", (unsigned)h->members,
             j->place.members);
    ls_tcp_log_refused(j, g->fd, h->host, why);
    return TCP_MEMBERS;
}

/* Checks the proof of a caller, sets the keys of the connection and sends the verdict. Returns 1 if
 * the verdict is TCP_WELCOME or TCP_WAIT, or −1 if the connection must be closed. */
static int finish_handshake(joining *j, pending *g, ls_tcp_link *link)
{
    uint8_t proof[PROOF];
    hello *h = &g->said.hello;
    h->host[TCP_HOST - 1] = '\0';
    compute_proof(proof, j, TCP_PROOF_CALLER, h, g->nonce);
    if (!ls_equal_secrets(proof, g->said.proof, PROOF)) {
        ls_tcp_log_refused(
            j, g->fd, h->host,
            "has another secret (take the same file on all hosts, made by " TCP_MAKE_SECRET ")");
        return -1;
    }
    link->fd = g->fd;
    set_keys(link, j, h, g->nonce, false);
    ls_tcp_verdict v = {.kind = verdict_for(j, g), .members = (uint32_t)j->place.members};
    memcpy(v.host, j->host, sizeof v.host);
    const bool welcome = v.kind == TCP_WELCOME || v.kind == TCP_WAIT;
    return ls_tcp_send_now(link, &v, sizeof v) == 0 && welcome ? 1 : -1;
}

/* Reads from a pending connection. Returns 1 if the handshake is complete with TCP_WELCOME or
 * TCP_WAIT, with the connection in *link; 0 if more data must arrive; −1 if the connection must be
 * closed. */
static int read_pending(joining *j, pending *g, ls_tcp_link *link)
{
    const bool greeted = g->got >= sizeof(hello);
    const size_t whole = greeted ? sizeof g->said : sizeof(hello);
    const ssize_t n = recv(g->fd, (char *)&g->said + g->got, whole - g->got, 0);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    g->got += (size_t)n;
    if (!is_of_this_version(j, g))
        return -1;
    if (g->got < whole)
        return 0;
    return greeted ? finish_handshake(j, g, link) : answer_hello(j, g) ? 0 : -1;
}

/* Waits up to `wait_ns` for data, and then serves all pending connections. If there is a caller
 * whose handshake is complete with TCP_WELCOME or TCP_WAIT, returns true, and writes the connection
 * to *link and the caller's hello to *said. */
static bool serve(joining *j, uint64_t wait_ns, ls_tcp_link *link, hello *said)
{
    struct pollfd watch[PENDING_MAX + 1];
    const uint64_t patience = j->running ? LATE_NS : TCP_TRY_NS;
    for (int i = 0; i < j->pending_count; i++)
        watch[i] = (struct pollfd){.fd = j->pending[i].fd, .events = POLLIN};
    watch[j->pending_count] = (struct pollfd){.fd = j->listen_fd, .events = POLLIN};
    poll(watch, (nfds_t)j->pending_count + 1, wait_ns ? ls_tcp_milliseconds(wait_ns) : 0);
    const bool calls = watch[j->pending_count].revents != 0;
    /* The loop runs backwards, because drop() moves the last entry to the index of the dropped
     * entry. */
    for (int i = j->pending_count - 1; i >= 0; i--) {
        pending *g = &j->pending[i];
        const int heard = watch[i].revents ? read_pending(j, g, link) : 0;
        if (heard > 0) {
            *said = g->said.hello;
            *g = j->pending[--j->pending_count];
            return true;
        }
        if (heard < 0 || ls_now_ns() - g->since_ns > patience)
            drop(j, i);
    }
    if (calls)
        accept_connection(j);
    return false;
}

/* Handles a caller that is not a member and comes after the run has begun: lets the caller wait
 * here to be admitted, or closes its connection. Does nothing and returns false for any other
 * caller. */
static bool take_newcomer(joining *j, const ls_tcp_link *link, const hello *said)
{
    if (said->from != TCP_NOBODY || j->vote.members == 0)
        return false;
    if (ls_tcp_may_wait(j, said))
        ls_tcp_let_wait(j, link, said);
    else
        close(link->fd);
    return true;
}

bool ls_tcp_await_caller(joining *j, uint64_t until_ns, ls_tcp_link *link, hello *said)
{
    bool came = false;
    for (uint64_t now; !came && (now = ls_now_ns()) < until_ns;) {
        came = serve(j, ls_tcp_sooner(now + TCP_AGAIN_NS, until_ns) - now, link, said) &&
               !take_newcomer(j, link, said);
        ls_tcp_beat(j);
    }
    if (!came)
        link->fd = -1;
    return came;
}

bool ls_tcp_answer_late(joining *j)
{
    enum { AT_MOST = 64 }; /* most callers that one call serves; the next call serves the others */
    hello said;
    ls_tcp_link link;
    int before = -1;
    for (int i = 0; i < AT_MOST && before != j->pending_count; i++) {
        before = j->pending_count;
        if (serve(j, 0, &link, &said) && !take_newcomer(j, &link, &said))
            close(link.fd);
    }
    return ls_tcp_serve_waiting(j) || j->pending_count > 0;
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* One attempt has its own time limit, so that time is left for other addresses if no packet from
 * this address arrives. */
uint64_t ls_tcp_try_until(const joining *j)
{
    return ls_tcp_sooner(ls_now_ns() + j->try_ns, j->until_ns);
}

/* Reports a failed handshake. The status is LS_EIO, which tells the code that called ls_tcp_greet
 * that another attempt can succeed: the listener closes a connection if it has too many pending
 * connections. */
static int fail_greeting(const joining *j, int error, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO,
                   "the program that answers at %s is not a member of this run (%s): it is another "
                   "program, or another version (this one speaks version %u.%u of the protocol "
                   "between hosts)",
                   j->target, ls_reason(why, error), VERSION >> 16, VERSION & 0xffff);
}

/* Reports a listener with another version or another byte order, or another program. */
static int fail_version(const joining *j, const ls_tcp_opening *o, ls_error *err)
{
    if (o->magic == __builtin_bswap32(MAGIC))
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the host that answers at %s has another byte order, which one run cannot "
                       "mix",
                       j->target);
    if (o->magic != MAGIC)
        return fail_greeting(j, EPROTO, err);
    return ls_fail(err, LS_EUNSUPPORTED, "the host that answers at %s " OTHER_VERSION, j->target,
                   (unsigned)o->version >> 16, (unsigned)o->version & 0xffff, VERSION >> 16,
                   VERSION & 0xffff);
}

static int check_verdict(const joining *j, ls_error *err)
{
    const ls_tcp_verdict *v = &j->verdict;
    switch (v->kind) {
    case TCP_WELCOME:
    case TCP_WAIT: return LS_OK;
    case TCP_MEMBERS:
        return ls_fail(
            err, LS_EINVAL,
            "this host expects %d members, host %s, the first, %u: say the same number on all",
            j->place.members, v->host, (unsigned)v->members);
    case TCP_BEGUN:
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the run of host %s at %s has begun with all its %u members, and admits no "
                       "others (cluster.on_arrival is not \"admit\" there and here): stop that "
                       "run, or give this one another port",
                       v->host, j->target, (unsigned)v->members);
    default: return fail_greeting(j, EPROTO, err);
    }
}

/* Reads what has arrived of `whole` bytes; *got: number of bytes read so far. Returns 0 if all have
 * arrived, or an errno; EAGAIN: more must arrive. */
static int read_part(int fd, void *data, size_t whole, size_t *got)
{
    while (*got < whole) {
        const ssize_t n = recv(fd, (char *)data + *got, whole - *got, MSG_DONTWAIT);
        if (n <= 0)
            return n == 0 ? ECONNRESET : errno == EINTR ? EAGAIN : errno;
        *got += (size_t)n;
    }
    return 0;
}

int ls_tcp_begin_greeting(joining *j, ls_tcp_greeting *g, int fd, const hello *h, ls_error *err)
{
    *g = (ls_tcp_greeting){.hello = *h};
    g->hello.magic = MAGIC;
    g->hello.version = VERSION;
    g->hello.admits = j->options.admits != 0;
    g->hello.run = j->run;
    memcpy(g->hello.host, j->host, sizeof g->hello.host);
    int status = ls_tcp_draw(g->hello.nonce, NONCE, err);
    if (status)
        return status;
    const ssize_t n = send(fd, &g->hello, sizeof g->hello, MSG_NOSIGNAL);
    return n == (ssize_t)sizeof g->hello /* it fits into the empty send buffer */
               ? LS_OK
               : fail_greeting(j, n < 0 ? errno : EMSGSIZE, err);
}

/* Receives the answer of a listener of the same version. */
static int receive_answer(const joining *j, ls_tcp_greeting *g, int fd, ls_error *err)
{
    ls_tcp_answer *a = &g->answer;
    const int error = read_part(fd, a, sizeof *a, &g->got);
    /* a listener of another version closes the connection after its opening */
    if (g->got >= sizeof a->opening && (a->opening.magic != MAGIC || a->opening.version != VERSION))
        return fail_version(j, &a->opening, err);
    return error == EAGAIN ? LS_EAGAIN : error ? fail_greeting(j, error, err) : LS_OK;
}

/* Checks the listener's proof, sends the caller's proof, and sets the keys. */
static int send_proof(const joining *j, ls_tcp_greeting *g, ls_tcp_link *link, ls_error *err)
{
    uint8_t proof[PROOF];
    const hello *h = &g->hello;
    compute_proof(proof, j, TCP_PROOF_LISTENER, h, g->answer.nonce);
    const bool known = ls_equal_secrets(proof, g->answer.proof, PROOF);
    compute_proof(proof, j, TCP_PROOF_CALLER, h, g->answer.nonce);
    const ssize_t n = send(link->fd, proof, sizeof proof, MSG_NOSIGNAL);
    if (!known)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "the program that answers at %s does not know this run's secret: is the secret "
            "the same file on every host (made by " TCP_MAKE_SECRET ")? If it is, %s",
            j->target, ls_tcp_changed);
    if (n != (ssize_t)sizeof proof)
        return fail_greeting(j, n < 0 ? errno : EMSGSIZE, err);
    set_keys(link, j, h, g->answer.nonce, true);
    g->proved = true;
    g->got = 0;
    return LS_OK;
}

/* Receives the verdict. */
static int receive_verdict(joining *j, ls_tcp_greeting *g, ls_tcp_link *link, ls_error *err)
{
    char name[TCP_HOST];
    const int error = read_part(link->fd, &g->verdict, sizeof g->verdict, &g->got);
    if (error == EAGAIN)
        return LS_EAGAIN;
    j->verdict = (ls_tcp_verdict){0};
    if (error)
        return fail_greeting(j, error, err);
    if (!ls_tcp_is_sealed(&link->in, &g->verdict.said, sizeof g->verdict.said, g->verdict.tag))
        return ls_fail(err, LS_ESYSTEM, "from the host at %s %s", j->target, ls_tcp_changed);
    j->verdict = g->verdict.said;
    j->verdict.host[TCP_HOST - 1] = '\0';
    ls_tcp_take_name(name, j->verdict.host);
    memcpy(j->verdict.host, name, sizeof name);
    return check_verdict(j, err);
}

int ls_tcp_continue_greeting(joining *j, ls_tcp_greeting *g, ls_tcp_link *link, ls_error *err)
{
    int status = LS_OK;
    if (!g->proved)
        status = receive_answer(j, g, link->fd, err);
    if (status == LS_OK && !g->proved)
        status = send_proof(j, g, link, err);
    return status ? status : receive_verdict(j, g, link, err);
}

int ls_tcp_greet(joining *j, ls_tcp_link *link, const hello *h, uint64_t until_ns, ls_error *err)
{
    ls_tcp_greeting g;
    int status = ls_tcp_begin_greeting(j, &g, link->fd, h, err);
    if (status == LS_OK)
        status = ls_tcp_continue_greeting(j, &g, link, err);
    while (status == LS_EAGAIN) {
        const uint64_t now = ls_now_ns();
        const bool heard =
            ls_tcp_ready(link->fd, POLLIN, ls_tcp_sooner(now + TCP_AGAIN_NS, until_ns));
        ls_tcp_beat(j);
        if (!heard && now >= until_ns)
            return fail_greeting(j, ETIMEDOUT, err);
        status = ls_tcp_continue_greeting(j, &g, link, err);
    }
    return status;
}

/* ---- notes ----------------------------------------------------------------------------------- */

int ls_tcp_receive_note(joining *j, ls_tcp_link *link, ls_tcp_note *note, uint64_t until_ns,
                        ls_error *err)
{
    char why[LS_REASON];
    while (!ls_tcp_ready(link->fd, POLLIN, ls_tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, until_ns))) {
        ls_tcp_beat(j);
        if (ls_now_ns() >= until_ns)
            return ls_fail(err, LS_ETIMEDOUT,
                           "host %s still waits for others: the time of --wait is over here",
                           j->verdict.host);
    }
    const int error =
        ls_tcp_receive(link, note, sizeof *note, ls_tcp_sooner(ls_now_ns() + j->try_ns, until_ns));
    note->text[TCP_NOTE - 1] = '\0';
    if (error == EBADMSG)
        return ls_fail(err, LS_ESYSTEM, "from host %s, at %s, %s", j->verdict.host, j->where,
                       ls_tcp_changed);
    return error ? ls_fail(err, LS_EIO, "host %s, at %s, has closed its connection: %s",
                           j->verdict.host, j->where, ls_reason(why, error))
                 : LS_OK;
}
