/* The wire over TCP: the inside of ls_wire_tcp (<lockstep/sys/wire.h>), its lines, and what the two halves of a
 * meeting share. Every two members have one connection for each channel, a *line*, so that what waits on one
 * channel holds up no other. */
#ifndef TCP_JOIN_H
#define TCP_JOIN_H

#include "tcp/vote.h"

#include <lockstep/host.h>
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

enum { TCP_HOST = 64 }; /* bytes of a host's name */

typedef struct tcp_wire {
    ls_wire base;
    char (*host)[TCP_HOST];      /* [members]: their names, for messages */
    struct joining *meeting;     /* what a later one needs; NULL: there will be none */
    tcp_line *line;              /* [members][LS_WIRE_CHANNELS] */
    struct pollfd *watch;        /* as many */
    uint64_t door_ns;            /* its listener is looked at again */
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
 * that never block; with options->regroups, so that surviving members can regroup. Errors: those of ls_wire_tcp's
 * open; what was made is in the wire. */
int tcp_join(tcp_wire *w, const ls_tcp_place *place, const ls_wire_options *options, ls_error *err);
void tcp_forget_meeting(struct joining *j); /* NULL is allowed */

/* Callers that come to a run that has begun are answered that it has; those that have not proved themselves soon are
 * hung up on, and so are members: they call again. Waits for nobody. Returns whether somebody is being answered. */
bool tcp_answer_late(struct joining *j);

/* The slot `regroup`, but for the table that *out is of. */
int tcp_regroup(tcp_wire **out, tcp_wire *old, const ls_regroup *how, ls_error *err);

/* ---- meeting ---------------------------------------------------------------------------------- */

enum { NONCE = 16, PROOF = 32, GUESTS = 128, MEET = 256, TCP_NOTE = 400 };

#define TCP_NOBODY UINT32_MAX /* a caller that has no number yet */

/* Members are of one byte order: the fingerprint of a run sees to that. */
typedef struct hello {
    uint32_t magic, version;
    uint32_t from,
        to; /* what caller and listener were called in the first group; of a line, `from` is of its group */
    uint32_t channel;
    uint32_t port;       /* where the caller listens itself, … */
    uint32_t advertised; /* … and whether `address` is where others reach it, */
    uint32_t members;    /* how many it expects */
    uint64_t run, group; /* the first member's number for the run; tcp_ballot.number */
    uint8_t address[16]; /* of the caller, as it knows it */
    char host[TCP_HOST]; /* its name */
    uint8_t nonce[NONCE];
} hello;

/* What the listener answers to a caller that has proved itself. */
typedef enum tcp_verdict_kind {
    TCP_WELCOME = 'w',
    TCP_MEMBERS = 'm',
    TCP_BEGUN = 'b'
} tcp_verdict_kind;

typedef struct tcp_verdict {
    uint32_t kind, members; /* that the listener expects */
    char host[TCP_HOST];    /* the listener's name */
} tcp_verdict;

/* Where a member listens: an IPv4 address as one of IPv6. The second address is zero where there is none. */
typedef struct entry {
    uint8_t address[2][16];
    uint32_t port;
    char host[TCP_HOST];
} entry;

/* What the first member and another one say to each other between its welcome and the first transfer. */
typedef enum tcp_note_kind {
    TCP_COMING,    /* the first: so many have come */
    TCP_COMPLETE,  /* the first: all have; the entries follow */
    TCP_CONNECTED, /* another: it is connected to all */
    TCP_GO,        /* the first: so are all */
    TCP_FAILED     /* either: nothing comes of it, and why */
} tcp_note_kind;

typedef struct tcp_note {
    uint32_t kind, members, member,
        unused; /* member: the receiver's number, or how many have come */
    uint64_t run;
    char text[TCP_NOTE];
} tcp_note;

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

/* "HOST:PORT" in its parts. */
typedef struct tcp_address {
    char host[MEET]; /* "": none was given */
    char port[8];
} tcp_address;

typedef struct joining {
    tcp_wire *wire;
    ls_tcp_place place; /* `secret` is a copy, and no text is the caller's */
    ls_wire_options options;
    void *secret;
    tcp_address meet, listen; /* "": none */
    struct sockaddr_storage advertise;
    bool advertises;
    char host[TCP_HOST];       /* this machine's name */
    char where[MEET + 16];     /* the rendezvous, for messages: "10.0.0.1:7070" */
    char target[MEET + 16];    /* who is being called, likewise */
    tcp_verdict verdict;       /* the last listener's that answered */
    uint64_t until_ns, try_ns; /* one try to reach, or to greet */
    struct addrinfo *found;    /* what `meet` is known by */
    int door;                  /* the socket that this member listens at; −1: none */
    guest guest[GUESTS];
    int guests;
    /* Of the first: who has called. Of the others: where those listen. */
    int *caller;
    entry *entry;
    struct sockaddr_storage first; /* the address that answered */
    socklen_t first_bytes;
    bool is_first, complete; /* complete: all have come */
    bool running;            /* running: the wire is open, and no regrouping is under way */
    int complaints;          /* about callers that were turned away, … */
    char refused[320];       /* … and the last one */
    char told[TCP_NOTE + 8]; /* what was said last while waiting, … */
    uint64_t told_ns;        /* … and when; 0: never */
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

/* Listens there: fills j->door. 0, or errno. */
int tcp_listen(joining *j, const struct sockaddr *at, socklen_t bytes, bool both_families);

/* Connects: *fd, or −1 and errno in *error. */
void tcp_dial(int *fd, int *error, const struct sockaddr *at, socklen_t bytes, uint64_t until_ns);

/* Sleeps for TCP_AGAIN_NS, or until the rendezvous is over. */
void tcp_pause(const joining *j);

/* The next caller at the listener that knows the secret and is welcome, and what it said; −1 when the time is over. */
int tcp_await_caller(joining *j, uint64_t until_ns, hello *said);

/* Connects to a member of the first group at its first address: *fd, or −1 and what is the matter, of errno, in
 * *error. */
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
    else if (!j->running && j->options.alive)
        j->options.alive(j->options.user);
}

/* Says hello, and both ends prove themselves. Errors: LS_EUNSUPPORTED (another secret, or a run that has begun),
 * LS_EINVAL (another number of members), LS_EIO (hung up on: it may be tried again), LS_ESYSTEM. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err);

/* ---- meet.c: who is first, and who are the others ------------------------------------------------ */

/* Finds out who is first, and meets the others: numbers, names and addresses of all. Errors: as tcp_join. */
int tcp_meet(joining *j, ls_error *err);
/* Behind the others' connections: all are connected, or all fail. `status` and `err` are of this member's. */
int tcp_agree_to_go(joining *j, int status, ls_error *err);
/* A member has said meanwhile that it fails, or has gone. Does not wait. Errors: LS_ESYSTEM. */
int tcp_heed_notes(joining *j, ls_error *err);

/* ---- address.c ---------------------------------------------------------------------------------- */

/* "HOST:PORT", the host in brackets where it has colons itself; `bare`: it may be missing, and the port be 0. Errors:
 * LS_EINVAL. */
int tcp_read_address(tcp_address *out, const char *text, bool bare, ls_error *err);
/* "HOST[:PORT]" as an address that others reach. Errors: LS_EINVAL. */
int tcp_read_advertised(struct sockaddr_storage *out, const char *text, ls_error *err);
/* Whether these addresses are of this machine alone, or stand for all of a machine's. */
bool tcp_is_loopback(const struct sockaddr *at);
bool tcp_is_any(const struct sockaddr *at);
/* Known by hosts files, or by names that mean this machine, as loopback: whether only that. */
bool tcp_means_itself(const char *host);
/* As 16 bytes of IPv6, and back; the port is of the socket's address. */
void tcp_pack_address(uint8_t out[16], uint32_t *port, const struct sockaddr_storage *at);
socklen_t tcp_unpack_address(struct sockaddr_storage *out, const uint8_t address[16],
                             uint32_t port);
/* "10.0.0.1:7070"; without a port for 0. */
const char *tcp_show_address(char out[80], const uint8_t address[16], uint32_t port);
/* A host's name from elsewhere, as it can be printed. */
void tcp_take_name(char out[TCP_HOST], const char *from);

/* ---- log.c ---------------------------------------------------------------------------------------- */

/* A line for the caller's log. */
void tcp_log(const joining *j, ls_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What this member waits for: said when it changes, at once where that is `news`, and every half a minute. Returns
 * whether it was said. */
bool tcp_log_waiting(joining *j, bool news, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A caller was turned away: said for the first few. */
void tcp_log_refused(joining *j, int fd, const char *host, const char *why);

#endif
