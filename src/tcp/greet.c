/* Proving to each other that one belongs to the run.
 *
 *     caller                                   the one that is called
 *     hello: version, who, which channel, nonce ──▶
 *                                            ◀── nonce, proof of (hello, nonce)
 *     proof of (hello, nonce)                  ──▶
 *                                            ◀── verdict: welcome, or why not
 *
 * The member that is called serves many callers at once, so that a silent one delays nobody. A caller that finds that
 * the other end has another secret sends its proof all the same, so that this end learns it, too. */
#include "base/clock.h"
#include "base/error.h"
#include "hash/hash.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x50434c53u                         /* "SLCP" */
#define VERSION ((uint32_t)LS_WIRE_ABI << 16 | 2) /* … and of the greeting */
#define LATE_NS UINT64_C(1000000000)              /* for a caller of a run that has begun */

typedef struct answer {
    uint8_t nonce[NONCE], proof[PROOF];
} answer;

/* `who`: 'a' of the one that was called, 'c' of the caller. */
static void prove(uint8_t out[PROOF], const joining *j, char who, const hello *h,
                  const uint8_t nonce[NONCE])
{
    uint8_t claim[1 + sizeof *h + NONCE] = {(uint8_t)who};
    memcpy(claim + 1, h, sizeof *h);
    memcpy(claim + 1 + sizeof *h, nonce, NONCE);
    ls_hmac_sha256(out, j->place.secret, j->place.secret_bytes, claim, sizeof claim);
}

/* In a time that tells nothing of where two proofs differ. */
static bool same(const uint8_t *a, const uint8_t *b)
{
    unsigned differs = 0;
    for (int i = 0; i < PROOF; i++)
        differs |= (unsigned)(a[i] ^ b[i]);
    return differs == 0;
}

/* ---- being called ----------------------------------------------------------------------------- */

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
    if (j->guests == GUESTS) { /* the one that has been silent longest */
        int oldest = 0;
        for (int i = 1; i < GUESTS; i++)
            if (j->guest[i].since_ns < j->guest[oldest].since_ns)
                oldest = i;
        drop(j, oldest);
    }
    j->guest[j->guests++] = (guest){.fd = fd, .since_ns = ls_now_ns()};
}

/* How much of a hello is needed to see that it is another version's. */
enum { VERSION_BYTES = 2 * sizeof(uint32_t) };

/* A hello is answered as soon as it is whole. Members that call a run find its listener again when they regroup. */
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
           (ssize_t)sizeof a; /* there is room in a new one */
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

/* Whether one that has no number yet may come in. */
static uint32_t judge(joining *j, const guest *g)
{
    const hello *h = &g->said.hello;
    char why[160];
    if (h->from != TCP_NOBODY)
        return TCP_WELCOME;
    if (j->complete || !j->is_first) {
        snprintf(why, sizeof why, "wants to join, but this run has begun with all its %d members",
                 j->place.members);
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

/* A caller has proved itself, or not. 1: it is welcome, −1: it has to go. */
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
    return send(g->fd, &v, sizeof v, MSG_NOSIGNAL) == (ssize_t)sizeof v && v.kind == TCP_WELCOME
               ? 1
               : -1;
}

/* Takes in what the guest says. 1: it has proved itself, 0: not yet, −1: it has to go. */
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

/* Serves all callers, having waited for one at most so long. A caller that is welcome: its connection; or −1. */
static int serve(joining *j, uint64_t wait_ns, hello *said)
{
    struct pollfd watch[GUESTS + 1];
    const uint64_t patience = j->running ? LATE_NS : TCP_TRY_NS;
    for (int i = 0; i < j->guests; i++)
        watch[i] = (struct pollfd){.fd = j->guest[i].fd, .events = POLLIN};
    watch[j->guests] = (struct pollfd){.fd = j->door, .events = POLLIN};
    poll(watch, (nfds_t)j->guests + 1, wait_ns ? tcp_milliseconds(wait_ns) : 0);
    const bool calls = watch[j->guests].revents != 0;
    for (int i = j->guests - 1; i >= 0; i--) { /* the last one takes the place of one that goes */
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

int tcp_await_caller(joining *j, uint64_t until_ns, hello *said)
{
    int fd = -1;
    for (uint64_t now; fd < 0 && (now = ls_now_ns()) < until_ns;) {
        fd = serve(j, tcp_sooner(now + TCP_AGAIN_NS, until_ns) - now, said);
        tcp_beat(j);
    }
    return fd;
}

bool tcp_answer_late(joining *j)
{
    enum { AT_MOST = 64 }; /* a crowd is for the next time */
    hello unused;
    int before = -1;
    for (int i = 0; i < AT_MOST && before != j->guests; i++) {
        before = j->guests;
        const int fd = serve(j, 0, &unused);
        if (fd >= 0)
            close(fd);
    }
    return j->guests > 0;
}

/* ---- calling ---------------------------------------------------------------------------------- */

/* An address that swallows everything leaves time for others. */
uint64_t tcp_try_until(const joining *j)
{
    return tcp_sooner(ls_now_ns() + j->try_ns, j->until_ns);
}

/* Whoever hangs up may have been in a crowd of strangers: LS_EIO, the caller may call again. */
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
    case TCP_WELCOME: return LS_OK;
    case TCP_MEMBERS:
        return ls_fail(err, LS_EINVAL,
                       "this host expects %d members, host %s, the first, %u: say the same on all",
                       j->place.members, v->host, (unsigned)v->members);
    case TCP_BEGUN:
        return ls_fail(err, LS_EUNSUPPORTED,
                       "the run of host %s at %s has begun with all its %u members, and takes in "
                       "no others: stop that one, or give this run another port",
                       v->host, j->target, (unsigned)v->members);
    default: return fail_greeting(j, EPROTO, err);
    }
}

/* Both ends prove themselves. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err)
{
    answer a;
    uint8_t proof[PROOF];
    const uint64_t until_ns = tcp_try_until(j);
    h->magic = MAGIC;
    h->version = VERSION;
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
