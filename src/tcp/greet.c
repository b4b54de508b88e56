/* Proving to each other that one belongs to the run.
 *
 *     caller                                   the one that is called
 *     hello: version, who, which channel, nonce ──▶
 *                                            ◀── nonce, proof of (hello, nonce)
 *     proof of (hello, nonce)                  ──▶
 *                                            ◀── welcome
 *
 * The member that is called serves many callers at once, so that a silent one delays nobody. */
#include "base/clock.h"
#include "base/error.h"
#include "hash/hash.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x50434c53u /* "SLCP" */
#define WELCOME 'w'

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

/* A hello is answered as soon as it is whole. */
static bool give_answer(joining *j, guest *g)
{
    answer a;
    ls_error unused;
    const hello *h = &g->said.hello;
    if (h->magic != MAGIC || h->abi != LS_WIRE_ABI || tcp_draw(g->nonce, NONCE, &unused))
        return false;
    memcpy(a.nonce, g->nonce, NONCE);
    prove(a.proof, j, 'a', h, g->nonce);
    return send(g->fd, &a, sizeof a, MSG_NOSIGNAL) ==
           (ssize_t)sizeof a; /* there is room in a new one */
}

/* Takes in what the guest says. 1: it has proved itself, 0: not yet, −1: it has to go. */
static int listen_to(joining *j, guest *g)
{
    uint8_t proof[PROOF];
    const bool greeted = g->got >= sizeof(hello);
    const size_t whole = greeted ? sizeof g->said : sizeof(hello);
    const ssize_t n = recv(g->fd, (char *)&g->said + g->got, whole - g->got, 0);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    g->got += (size_t)n;
    if (g->got < whole)
        return 0;
    if (!greeted)
        return give_answer(j, g) ? 0 : -1;
    prove(proof, j, 'c', &g->said.hello, g->nonce);
    const char welcome = WELCOME;
    return same(proof, g->said.proof) && send(g->fd, &welcome, 1, MSG_NOSIGNAL) == 1 ? 1 : -1;
}

int tcp_await_caller(joining *j, uint64_t until_ns, hello *said)
{
    for (uint64_t now; (now = ls_now_ns()) < until_ns;) {
        struct pollfd watch[GUESTS + 1];
        for (int i = 0; i < j->guests; i++)
            watch[i] = (struct pollfd){.fd = j->guest[i].fd, .events = POLLIN};
        watch[j->guests] = (struct pollfd){.fd = j->door, .events = POLLIN};
        poll(watch, (nfds_t)j->guests + 1,
             tcp_milliseconds(tcp_sooner(now + TCP_AGAIN_NS, until_ns) - now));
        tcp_beat(j);
        const bool calls = watch[j->guests].revents != 0;
        for (int i = j->guests - 1; i >= 0;
             i--) { /* the last one takes the place of one that goes */
            guest *g = &j->guest[i];
            const int heard = watch[i].revents ? listen_to(j, g) : 0;
            if (heard > 0) {
                const int fd = g->fd;
                *said = g->said.hello;
                *g = j->guest[--j->guests];
                return fd;
            }
            if (heard < 0 || ls_now_ns() - g->since_ns > TCP_TRY_NS)
                drop(j, i);
        }
        if (calls)
            let_in(j);
    }
    return -1;
}

void tcp_clear_door(joining *j)
{
    for (int fd; (fd = accept(j->door, NULL, NULL)) >= 0;)
        close(fd);
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
    return ls_fail(
        err, LS_EIO,
        "what answers at %s is no member of this run (%s): another program, another version, "
        "or a run that has all its members",
        j->meet, ls_reason(why, error));
}

/* Both ends prove themselves. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err)
{
    answer a;
    uint8_t proof[PROOF];
    char welcome = 0;
    const uint64_t until_ns = tcp_try_until(j);
    h->magic = MAGIC;
    h->abi = LS_WIRE_ABI;
    h->run = j->run;
    int status = tcp_draw(h->nonce, NONCE, err);
    if (status)
        return status;
    int error = tcp_move_all(fd, h, sizeof *h, true, until_ns);
    if (!error)
        error = tcp_move_all(fd, &a, sizeof a, false, until_ns);
    if (error)
        return fail_greeting(j, error, err);
    prove(proof, j, 'a', h, a.nonce);
    if (!same(proof, a.proof))
        return ls_fail(err, LS_EUNSUPPORTED, "what answers at %s does not know this run's secret",
                       j->meet);
    prove(proof, j, 'c', h, a.nonce);
    error = tcp_move_all(fd, proof, sizeof proof, true, until_ns);
    if (!error)
        error = tcp_move_all(fd, &welcome, 1, false, until_ns);
    return error || welcome != WELCOME ? fail_greeting(j, error, err) : LS_OK;
}
