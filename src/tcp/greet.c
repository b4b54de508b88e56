/* The handshake: caller and listener prove to each other that they know the run's secret.
 *
 *     caller                                              listener
 *     hello: version, member, channel, nonce   ──▶
 *                                              ◀──  nonce, proof of (hello, nonce)
 *     proof of (hello, nonce)                  ──▶
 *                                              ◀──  verdict: welcome, or the reason why not
 *
 * A proof is an HMAC-SHA-256 with the secret over one letter, which tells the two ends apart, the
 * hello and the listener's nonce. Each end has chosen a nonce, so that no proof can be used again.
 *
 * The listener serves many callers at once, so that a silent one delays nobody. A caller that
 * finds that the listener has another secret sends its proof all the same, so that the
 * listener learns it, too. */
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

/* Computes the proof of one end: `who` is 'a' for the listener, 'c' for the caller. */
static void prove(uint8_t out[PROOF], const joining *j, char who, const hello *h,
                  const uint8_t nonce[NONCE])
{
    uint8_t claim[1 + sizeof *h + NONCE] = {(uint8_t)who};
    memcpy(claim + 1, h, sizeof *h);
    memcpy(claim + 1 + sizeof *h, nonce, NONCE);
    ls_hmac_sha256(out, j->place.secret, j->place.secret_bytes, claim, sizeof claim);
}

/* Compares two proofs in constant time, so that the duration does not tell where they differ. */
static bool same(const uint8_t *a, const uint8_t *b)
{
    unsigned differs = 0;
    for (int i = 0; i < PROOF; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return differs == 0;
}

/* ---- the listener ---------------------------------------------------------------------------- */

static void drop(joining *j, int i)
{
    close(j->guest[i].fd);
    j->guest[i] = j->guest[--j->guests];
}

static void let_in(joining *j)
{
    const int fd = accept(j->door, NULL, NULL);
    if (fd < 0)
        return;
    tcp_set_up(fd);
    if (j->guests == GUESTS) { /* full: the connection that has been silent longest is dropped */
        int oldest = 0;
        for (int i = 1; i < GUESTS; i++)
            if (j->guest[i].since_ns < j->guest[oldest].since_ns)
                oldest = i;
        drop(j, oldest);
    }
    j->guest[j->guests++] = (guest){.fd = fd, .since_ns = ls_now_ns()};
}

/* Bytes of a hello that are needed to see that it is of another version. */
enum { VERSION_BYTES = 2 * sizeof(uint32_t) };

/* Answers a complete hello. In a run that has begun, members are not answered here: they call
 * again, and reach the listener when they regroup. */
static bool give_answer(joining *j, guest *g)
{
    answer a;
    ls_error unused;
    const hello *h = &g->said.hello;
    if ((j->running && h->from != TCP_NOBODY) || tcp_draw(g->nonce, NONCE, &unused))
        return false;
    memcpy(a.nonce, g->nonce, NONCE);
    prove(a.proof, j, 'a', h, g->nonce);
    return send(g->fd, &a, sizeof a, MSG_NOSIGNAL) ==
           (ssize_t)sizeof a; /* the socket's buffer is empty, so it has room */
}

static bool is_of_this_version(joining *j, const guest *g)
{
    const hello *h = &g->said.hello;
    if (g->got < VERSION_BYTES || (h->magic == MAGIC && h->version == VERSION))
        return true;
    if (h->magic == MAGIC)
        tcp_log_refused(j, g->fd, "?", "has another version of Lockstep");
    return false;
}

/* Decides whether a caller that is not a member yet may join. Returns a tcp_verdict_kind. */
static uint32_t judge(joining *j, const guest *g)
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

/* Checks the proof of a caller and sends the verdict. Returns 1 if the caller is welcome, −1 if
 * it must be dropped. */
static int decide(joining *j, guest *g)
{
    uint8_t proof[PROOF];
    hello *h = &g->said.hello;
    h->host[TCP_HOST - 1] = '\0';
    prove(proof, j, 'c', h, g->nonce);
    if (!same(proof, g->said.proof)) {
        tcp_log_refused(j, g->fd, h->host, "has another secret");
        return -1;
    }
    tcp_verdict v = {.kind = judge(j, g), .members = (uint32_t)j->place.members};
    memcpy(v.host, j->host, sizeof v.host);
    const bool welcome = v.kind == TCP_WELCOME || v.kind == TCP_WAIT;
    return send(g->fd, &v, sizeof v, MSG_NOSIGNAL) == (ssize_t)sizeof v && welcome ? 1 : -1;
}

/* Reads from a pending connection. Returns 1 if the caller has proved itself and is welcome, 0 if
 * data are still missing, −1 if it must be dropped. */
static int listen_to(joining *j, guest *g)
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
    return greeted ? decide(j, g) : give_answer(j, g) ? 0 : -1;
}

/* Serves all pending connections, after waiting up to `wait_ns` for data. Returns the connection of
 * a caller that is welcome, or −1. */
static int serve(joining *j, uint64_t wait_ns, hello *said)
{
    struct pollfd watch[GUESTS + 1];
    const uint64_t patience = j->running ? LATE_NS : TCP_TRY_NS;
    for (int i = 0; i < j->guests; i++)
        watch[i] = (struct pollfd){.fd = j->guest[i].fd, .events = POLLIN};
    watch[j->guests] = (struct pollfd){.fd = j->door, .events = POLLIN};
    poll(watch, (nfds_t)j->guests + 1, wait_ns ? tcp_milliseconds(wait_ns) : 0);
    const bool calls = watch[j->guests].revents != 0;
    /* Backwards, because drop() moves the last one to the place of the dropped one. */
    for (int i = j->guests - 1; i >= 0; i--) {
        guest *g = &j->guest[i];
        const int heard = watch[i].revents ? listen_to(j, g) : 0;
        if (heard > 0) {
            const int fd = g->fd;
            *said = g->said.hello;
            *g = j->guest[--j->guests];
            return fd;
        }
        if (heard < 0 || ls_now_ns() - g->since_ns > patience)
            drop(j, i);
    }
    if (calls)
        let_in(j);
    return -1;
}

/* Lets a caller wait that comes after the run has begun. Returns false if it is another one. */
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
    enum { AT_MOST = 64 }; /* further callers are served by the next call */
    hello said;
    int before = -1;
    for (int i = 0; i < AT_MOST && before != j->guests; i++) {
        before = j->guests;
        const int fd = serve(j, 0, &said);
        if (fd >= 0 && !take_newcomer(j, fd, &said))
            close(fd);
    }
    return tcp_mind_waiting(j) || j->guests > 0;
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* Limits one attempt, so that an address that swallows packets leaves time for others. */
uint64_t tcp_try_until(const joining *j)
{
    return tcp_sooner(ls_now_ns() + j->try_ns, j->until_ns);
}

/* Reports a failed handshake. The listener may have dropped this caller in a crowd of strangers, so
 * the status is LS_EIO: the caller may call again. */
static int fail_greeting(const joining *j, int error, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO,
                   "what answers at %s is no member of this run (%s): another program, or another "
                   "version",
                   j->target, ls_reason(why, error));
}

static int heed_verdict(const joining *j, ls_error *err)
{
    const tcp_verdict *v = &j->verdict;
    switch (v->kind) {
    case TCP_WELCOME:
    case TCP_WAIT: return LS_OK;
    case TCP_MEMBERS:
        return ls_fail(err, LS_EINVAL,
                       "this host expects %d members, host %s, the first, %u: say the same on all",
                       j->place.members, v->host, (unsigned)v->members);
    case TCP_BEGUN:
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the run of host %s at %s has begun with all its %u members, and takes in "
                       "no others (cluster.on_arrival is not \"admit\" there and here): stop that "
                       "one, or give this run another port",
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
    prove(proof, j, 'a', h, a.nonce);
    const bool known = same(proof, a.proof);
    prove(proof, j, 'c', h, a.nonce);
    error = tcp_move_all(fd, proof, sizeof proof, true, until_ns);
    if (!known)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "what answers at %s does not know this run's secret: has every host the "
                       "same one?",
                       j->target);
    if (!error)
        error = tcp_move_all(fd, &j->verdict, sizeof j->verdict, false, until_ns);
    if (error)
        return fail_greeting(j, error, err);
    char name[TCP_HOST];
    j->verdict.host[TCP_HOST - 1] = '\0';
    tcp_take_name(name, j->verdict.host);
    memcpy(j->verdict.host, name, sizeof name);
    return heed_verdict(j, err);
}

/* ---- messages after the verdict ---------------------------------------------------------------
 */

int tcp_hear_note(joining *j, int fd, tcp_note *note, uint64_t until_ns, ls_error *err)
{
    char why[LS_REASON];
    while (!tcp_ready(fd, POLLIN, tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, until_ns))) {
        tcp_beat(j);
        if (ls_now_ns() >= until_ns)
            return ls_fail(err, LS_ETIMEDOUT,
                           "host %s, the first, still waits for others: the time is over here",
                           j->verdict.host);
    }
    const int error =
        tcp_move_all(fd, note, sizeof *note, false, tcp_sooner(ls_now_ns() + j->try_ns, until_ns));
    note->text[TCP_NOTE - 1] = '\0';
    return error ? ls_fail(err, LS_EIO, "host %s, at %s, has gone: %s", j->verdict.host, j->where,
                           ls_reason(why, error))
                 : LS_OK;
}
