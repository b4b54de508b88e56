/* The wire over TCP: the inside of ls_wire_tcp (<lockstep/sys/wire.h>), its lines, and what the two halves of a
 * meeting share. Every two members have one connection for each channel, a *line*, so that what waits on one
 * channel holds up no other. */
#ifndef TCP_JOIN_H
#define TCP_JOIN_H

#include "tcp/vote.h"

#include <lockstep/sys/wire.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* First in, first out; grows. */
typedef struct tcp_queue {
    ls_transfer **item;
    unsigned first, count, room; /* room is a power of two */
} tcp_queue;

/* One direction of a line. */
typedef struct tcp_flow {
    tcp_queue queue;
    /* Of the first: bytes that have gone, or come, its head included. */
    size_t done;
    uint64_t head; /* its length; of one byte order, as all that members say */
} tcp_flow;

typedef struct tcp_line {
    int fd; /* −1: this member's own, which has none */
    bool broken;
    tcp_flow out, in;
} tcp_line;

struct joining;

typedef struct tcp_wire {
    ls_wire base;
    struct joining *meeting;     /* what a later one needs; NULL: there will be none */
    tcp_line *line;              /* [members][LS_WIRE_CHANNELS] */
    struct pollfd *watch;        /* as many */
    uint64_t door_ns;            /* its door is looked at again */
    ls_transfer **ended;         /* the place for it of the poll that is under way, … */
    int ended_count, ended_most; /* … and how many are there, and have room */
    ls_error broken; /* the first line that broke, until what had ended before has been named */
} tcp_wire;

static inline tcp_line *tcp_line_of(const tcp_wire *w, int member, int channel)
{
    return &w->line[member * LS_WIRE_CHANNELS + channel];
}

/* Lines for `members`, without connections. Errors: LS_ENOMEM. */
int tcp_make_lines(tcp_wire *w, int members, ls_error *err);

/* Closes what there is of lines and connections, and frees the wire, but not its meeting. */
void tcp_free(tcp_wire *w);

/* The slots `post` and `poll`. */
int tcp_post(ls_wire *base, ls_transfer *t, ls_error *err);
int tcp_poll(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err);

/* Says on every line that nothing more comes, and waits until the others have said so too, two seconds at most. */
void tcp_drain(tcp_wire *w);

/* Meets the others at the place, and connects to all of them: fills the wire's numbers and lines, with sockets
 * that never block; with `again`, so that surviving members can regroup. Errors: LS_EINVAL, LS_ESYSTEM,
 * LS_ETIMEDOUT, LS_ENOMEM; what was made is in the wire. */
int tcp_join(tcp_wire *w, const ls_tcp_place *place, bool again, ls_error *err);
void tcp_forget_meeting(struct joining *j); /* NULL is allowed */

/* Between two meetings hangs up on who waits at the door, before strangers crowd it; members call again. */
void tcp_clear_door(struct joining *j);

/* The slot `regroup`, but for the table that *out is of. */
int tcp_regroup(tcp_wire **out, tcp_wire *old, const ls_regroup *how, ls_error *err);

/* ---- meeting ---------------------------------------------------------------------------------- */

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

static inline uint64_t tcp_sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* For poll: rounded up. */
static inline int tcp_milliseconds(uint64_t ns)
{
    return (int)(ns / 1000000u) + 1;
}

/* Whether the descriptor, −1 for none, is ready before the time is over. */
bool tcp_ready(int fd, short events, uint64_t until_ns);

/* When a try to reach, or to greet, that begins now is over. */
uint64_t tcp_try_until(const joining *j);

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

/* A member that waits in the rendezvous is alive: beats. */
static inline void tcp_beat(const joining *j)
{
    if (j->how && j->how->alive)
        j->how->alive(j->how->user);
}

/* Calls: says hello, and both ends prove themselves. Errors: LS_EUNSUPPORTED (another secret), LS_EIO (hung
 * up on: it may be tried again), LS_ESYSTEM. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err);

#endif
