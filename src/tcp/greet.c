/* The handshake: the *caller* (the process that connects) and the *listener* (the process that
 * accepts) prove to each other that they know the run's secret.
 *
 *     caller                                              listener
 *     hello: version, member, channel, nonce   ──▶
 *                                              ◀──  nonce, proof of (hello, nonce)
 *     proof of (hello, nonce)                  ──▶
 *                                              ◀──  verdict: welcome, or the reason why not
 *
 * A proof is an HMAC-SHA-256 with the secret as its key. It covers three things: one letter
 * (different for the two ends), the hello, and the listener's nonce. The hello contains the
 * caller's nonce. Each end draws a new random nonce for each connection, so a proof recorded from
 * one connection is useless in another connection.
 *
 * The listener serves all *pending* connections (with an incomplete handshake) at the same time, so
 * that a caller that sends nothing does not delay others. A caller that receives a wrong proof also
 * sends its own proof, so that the listener reports too that the secrets differ. */
#include "base/clock.h"
#include "base/error.h"
#include "hash/hash.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x50434c53u /* "SLCP" */
/* version of the transport's interface, and of the handshake */
#define VERSION ((uint32_t)LS_WIRE_ABI << 16 | 3)
/* time limit for a caller of a run that has begun */
#define LATE_NS UINT64_C(1000000000)

typedef struct answer {
    uint8_t nonce[NONCE], proof[PROOF];
} answer;

/* Computes the proof of one end. `who` is the letter of that end: 'a' for the listener, 'c' for the
 * caller. */
static void compute_proof(uint8_t out[PROOF], const joining *j, char who, const hello *h,
                          const uint8_t nonce[NONCE])
{
    uint8_t claim[1 + sizeof *h + NONCE] = {(uint8_t)who};
    memcpy(claim + 1, h, sizeof *h);
    memcpy(claim + 1 + sizeof *h, nonce, NONCE);
    ls_hmac_sha256(out, j->place.secret, j->place.secret_bytes, claim, sizeof claim);
}

/* Compares two proofs in constant time, so that the duration does not reveal the position at which
 * the proofs differ. */
static bool equal_proofs(const uint8_t *a, const uint8_t *b)
{
    unsigned differs = 0;
    for (int i = 0; i < PROOF; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return differs == 0;
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
    tcp_set_up(fd);
    if (j->pending_count == PENDING_MAX) { /* closes the oldest pending connection */
        int oldest = 0;
        for (int i = 1; i < PENDING_MAX; i++)
            if (j->pending[i].since_ns < j->pending[oldest].since_ns)
                oldest = i;
        drop(j, oldest);
    }
    j->pending[j->pending_count++] = (pending){.fd = fd, .since_ns = ls_now_ns()};
}

/* Number of bytes of a hello after which magic and version are complete. */
enum { VERSION_BYTES = 2 * sizeof(uint32_t) };

/* Answers a complete hello. Returns false if the connection must be closed. A member of the run
 * that calls during the run is already regrouping, while this process is not. Such a caller gets no
 * answer. It calls again, and is answered when this process regroups too. */
static bool answer_hello(joining *j, pending *g)
{
    answer a;
    ls_error unused;
    const hello *h = &g->said.hello;
    if ((j->running && h->from != TCP_NOBODY) || tcp_draw(g->nonce, NONCE, &unused))
        return false;
    memcpy(a.nonce, g->nonce, NONCE);
    compute_proof(a.proof, j, 'a', h, g->nonce);
    return send(g->fd, &a, sizeof a, MSG_NOSIGNAL) ==
           (ssize_t)sizeof a; /* the whole answer fits into the empty send buffer */
}

/* Checks magic and version of a hello, as soon as they have arrived. */
static bool is_of_this_version(joining *j, const pending *g)
{
    const hello *h = &g->said.hello;
    if (g->got < VERSION_BYTES || (h->magic == MAGIC && h->version == VERSION))
        return true;
    if (h->magic == MAGIC)
        tcp_log_refused(j, g->fd, "?", "has another version of Lockstep");
    return false;
}

/* Returns the verdict (a tcp_verdict_kind) for a caller that knows the secret: whether the caller
 * may join the run. */
static uint32_t verdict_for(joining *j, const pending *g)
{
    const hello *h = &g->said.hello;
    char why[160];
    if (h->from != TCP_NOBODY)
        return TCP_WELCOME;
    if (tcp_may_wait(j, h))
        return TCP_WAIT;
    if (j->complete || !j->is_first) {
        snprintf(why, sizeof why,
                 "wants to join, but this run has begun with all its %d members, and %s",
                 j->place.members,
                 j->options.admits
                     ? "the newcomer's config does not say cluster.on_arrival \"admit\""
                     : "does not admit others (cluster.on_arrival)");
        tcp_log_refused(j, g->fd, h->host, why);
        return TCP_BEGUN;
    }
    if (h->members == (uint32_t)j->place.members)
        return TCP_WELCOME;
    snprintf(why, sizeof why, "expects %u members where this one expects %d", (unsigned)h->members,
             j->place.members);
    tcp_log_refused(j, g->fd, h->host, why);
    return TCP_MEMBERS;
}

/* Checks the proof of a caller and sends the verdict. Returns 1 if the verdict is TCP_WELCOME or
 * TCP_WAIT, or −1 if the connection must be closed. */
static int finish_handshake(joining *j, pending *g)
{
    uint8_t proof[PROOF];
    hello *h = &g->said.hello;
    h->host[TCP_HOST - 1] = '\0';
    compute_proof(proof, j, 'c', h, g->nonce);
    if (!equal_proofs(proof, g->said.proof)) {
        tcp_log_refused(j, g->fd, h->host, "has another secret");
        return -1;
    }
    tcp_verdict v = {.kind = verdict_for(j, g), .members = (uint32_t)j->place.members};
    memcpy(v.host, j->host, sizeof v.host);
    const bool welcome = v.kind == TCP_WELCOME || v.kind == TCP_WAIT;
    return send(g->fd, &v, sizeof v, MSG_NOSIGNAL) == (ssize_t)sizeof v && welcome ? 1 : -1;
}

/* Reads from a pending connection. Returns 1 if the handshake is complete with TCP_WELCOME or
 * TCP_WAIT, 0 if more data must arrive, −1 if the connection must be closed. */
static int read_pending(joining *j, pending *g)
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
    return greeted ? finish_handshake(j, g) : answer_hello(j, g) ? 0 : -1;
}

/* Waits up to `wait_ns` for data, and then serves all pending connections. Returns the connection
 * of a caller whose handshake is complete with TCP_WELCOME or TCP_WAIT, and writes the caller's
 * hello to *said. Returns −1 if there is no such caller. */
static int serve(joining *j, uint64_t wait_ns, hello *said)
{
    struct pollfd watch[PENDING_MAX + 1];
    const uint64_t patience = j->running ? LATE_NS : TCP_TRY_NS;
    for (int i = 0; i < j->pending_count; i++)
        watch[i] = (struct pollfd){.fd = j->pending[i].fd, .events = POLLIN};
    watch[j->pending_count] = (struct pollfd){.fd = j->listen_fd, .events = POLLIN};
    poll(watch, (nfds_t)j->pending_count + 1, wait_ns ? tcp_milliseconds(wait_ns) : 0);
    const bool calls = watch[j->pending_count].revents != 0;
    /* The loop runs backwards, because drop() moves the last entry to the index of the dropped
     * entry. */
    for (int i = j->pending_count - 1; i >= 0; i--) {
        pending *g = &j->pending[i];
        const int heard = watch[i].revents ? read_pending(j, g) : 0;
        if (heard > 0) {
            const int fd = g->fd;
            *said = g->said.hello;
            *g = j->pending[--j->pending_count];
            return fd;
        }
        if (heard < 0 || ls_now_ns() - g->since_ns > patience)
            drop(j, i);
    }
    if (calls)
        accept_connection(j);
    return -1;
}

/* Handles a caller that is not a member and comes after the run has begun: lets the caller wait
 * here to be admitted, or closes its connection. Does nothing and returns false for any other
 * caller, and for `fd` −1. */
static bool take_newcomer(joining *j, int fd, const hello *said)
{
    if (fd < 0 || said->from != TCP_NOBODY || j->vote.members == 0)
        return false;
    if (tcp_may_wait(j, said))
        tcp_let_wait(j, fd, said);
    else
        close(fd);
    return true;
}

int tcp_await_caller(joining *j, uint64_t until_ns, hello *said)
{
    int fd = -1;
    for (uint64_t now; fd < 0 && (now = ls_now_ns()) < until_ns;) {
        fd = serve(j, tcp_sooner(now + TCP_AGAIN_NS, until_ns) - now, said);
        if (take_newcomer(j, fd, said))
            fd = -1;
        tcp_beat(j);
    }
    return fd;
}

bool tcp_answer_late(joining *j)
{
    enum { AT_MOST = 64 }; /* most callers that one call serves; the next call serves the others */
    hello said;
    int before = -1;
    for (int i = 0; i < AT_MOST && before != j->pending_count; i++) {
        before = j->pending_count;
        const int fd = serve(j, 0, &said);
        if (fd >= 0 && !take_newcomer(j, fd, &said))
            close(fd);
    }
    return tcp_serve_waiting(j) || j->pending_count > 0;
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* One attempt has its own time limit, so that time is left for other addresses if no packet from
 * this address arrives. */
uint64_t tcp_try_until(const joining *j)
{
    return tcp_sooner(ls_now_ns() + j->try_ns, j->until_ns);
}

/* Reports a failed handshake. The status is LS_EIO, which tells the code that called tcp_greet that
 * another attempt can succeed: the listener closes a connection if it has too many pending
 * connections. */
static int fail_greeting(const joining *j, int error, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO,
                   "the program that answers at %s is not a member of this run (%s): it is another "
                   "program, or another version",
                   j->target, ls_reason(why, error));
}

static int check_verdict(const joining *j, ls_error *err)
{
    const tcp_verdict *v = &j->verdict;
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

/* Performs the caller's side of the handshake. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err)
{
    answer a;
    uint8_t proof[PROOF];
    const uint64_t until_ns = tcp_try_until(j);
    h->magic = MAGIC;
    h->version = VERSION;
    h->admits = j->options.admits != 0;
    h->run = j->run;
    memcpy(h->host, j->host, sizeof h->host);
    int status = tcp_draw(h->nonce, NONCE, err);
    if (status)
        return status;
    int error = tcp_move_all(fd, h, sizeof *h, true, until_ns);
    if (!error)
        error = tcp_move_all(fd, &a, sizeof a, false, until_ns);
    if (error)
        return fail_greeting(j, error, err);
    compute_proof(proof, j, 'a', h, a.nonce);
    const bool known = equal_proofs(proof, a.proof);
    compute_proof(proof, j, 'c', h, a.nonce);
    error = tcp_move_all(fd, proof, sizeof proof, true, until_ns);
    if (!known)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "the program that answers at %s does not know this run's secret: is the secret "
            "the same on every host?",
            j->target);
    if (!error)
        error = tcp_move_all(fd, &j->verdict, sizeof j->verdict, false, until_ns);
    if (error)
        return fail_greeting(j, error, err);
    char name[TCP_HOST];
    j->verdict.host[TCP_HOST - 1] = '\0';
    tcp_take_name(name, j->verdict.host);
    memcpy(j->verdict.host, name, sizeof name);
    return check_verdict(j, err);
}

/* ---- notes ----------------------------------------------------------------------------------- */

int tcp_receive_note(joining *j, int fd, tcp_note *note, uint64_t until_ns, ls_error *err)
{
    char why[LS_REASON];
    while (!tcp_ready(fd, POLLIN, tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, until_ns))) {
        tcp_beat(j);
        if (ls_now_ns() >= until_ns)
            return ls_fail(err, LS_ETIMEDOUT,
                           "host %s still waits for others: the time of --wait is over here",
                           j->verdict.host);
    }
    const int error =
        tcp_move_all(fd, note, sizeof *note, false, tcp_sooner(ls_now_ns() + j->try_ns, until_ns));
    note->text[TCP_NOTE - 1] = '\0';
    return error ? ls_fail(err, LS_EIO, "host %s, at %s, has closed its connection: %s",
                           j->verdict.host, j->where, ls_reason(why, error))
                 : LS_OK;
}
