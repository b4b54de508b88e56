/* Meeting: what the two halves of a rendezvous share. */
#ifndef TCP_JOIN_H
#define TCP_JOIN_H

#include "tcp/tcp.h"
#include "tcp/vote.h"

#include <netdb.h>
#include <sys/socket.h>

enum { NONCE = 16, PROOF = 32, GUESTS = 128, MEET = 256 };

/* Members are of one byte order: the fingerprint of a run sees to that. */
typedef struct hello {
    uint32_t magic, abi;
    uint32_t from, channel;
    uint32_t port; /* where the caller listens itself */
    uint32_t unused;
    uint64_t run, group; /* the first member's number for the run; tcp_ballot.number */
    uint8_t nonce[NONCE];
} hello;

/* Where a member listens: an IPv4 address as one of IPv6. */
typedef struct entry {
    uint8_t address[16];
    uint32_t port;
} entry;

/* A caller that has not proved itself yet. */
typedef struct guest {
    int fd;
    struct {
        hello hello;
        uint8_t proof[PROOF];
    } said;
    size_t got; /* bytes of `said` */
    uint8_t nonce[NONCE];
    uint64_t since_ns;
} guest;

typedef struct joining {
    tcp_wire *wire;
    ls_tcp_place place; /* `secret` is a copy */
    void *secret;
    char meet[MEET + 8], host[MEET];
    const char *port;          /* in `meet` */
    uint64_t until_ns, try_ns; /* one try to reach, or to greet */
    struct addrinfo *found;
    int door; /* where this member listens */
    guest guest[GUESTS];
    int guests;
    /* Of the first: who has called. Of the others: where those listen. */
    int *caller;
    entry *entry;
    struct sockaddr_storage first; /* the address that answered */
    socklen_t first_bytes;
    /* Of who is left when members are lost. */
    uint64_t run;
    tcp_vote vote;
    const ls_regroup *how; /* while they meet; NULL: at the start */
    struct {
        int fd;
        hello said;
    } early[GUESTS]; /* callers of a group that this one has not heard of yet */
    int earlies;
} joining;

/* What a rendezvous looks at again after so long at the latest. */
#define TCP_AGAIN_NS UINT64_C(100000000)
#define TCP_TRY_NS UINT64_C(5000000000) /* one try at the start */

/* Whether the descriptor is ready before the time is over. */
bool tcp_ready(int fd, short events, uint64_t until_ns);

/* 0, or errno; ETIMEDOUT, and ECONNRESET when the other end has closed. */
int tcp_move_all(int fd, void *data, size_t bytes, bool out, uint64_t until_ns);

/* A socket as all of this room's: it never blocks, and is closed on exec. */
void tcp_set_up(int fd);

/* Random bytes. Errors: LS_ESYSTEM. */
int tcp_draw(void *out, size_t bytes, ls_error *err);

/* The next caller at the door that knows the secret, and what it said; −1 when the time is over. */
int tcp_await_caller(joining *j, uint64_t until_ns, hello *said);

/* Connects to a member of the first group: *fd, or −1 and what is the matter, of errno, in *error. */
void tcp_reach(joining *j, int origin, int *fd, int *error);

/* All members of the group connect to each other: fills the wire's lines. Errors: as tcp_join. */
int tcp_connect_all(joining *j, ls_error *err);

/* Nobody is being met any more: hangs up on all callers but those that have become lines. */
void tcp_hang_up(joining *j);

/* Whoever waits here is alive. */
static inline void tcp_beat(const joining *j)
{
    if (j->how && j->how->alive)
        j->how->alive(j->how->user);
}

/* Calls: says hello, and both ends prove themselves. Errors: LS_EUNSUPPORTED (another secret), LS_EIO (hung
 * up on: it may be tried again), LS_ESYSTEM. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err);

#endif
