/* The transport over TCP: internals of ls_wire_tcp (<lockstep/sys/wire.h>).
 *
 * A *member* is one process of the run. Every two members have one connection for each channel of
 * the transport (tcp_line). Data that wait on one channel therefore do not block another channel.
 *
 * At the start the members find each other in a *rendezvous* (its state is the struct `joining`).
 * One member, the *first member*, listens at an address that all members know. The other members
 * connect to that address. In this directory a *caller* is the process that connects, and a
 * *listener* the process that accepts. Both ends of a connection prove in a handshake that they
 * know the run's secret (greet.c). When all members have come, the first member gives each of them
 * its number and the addresses of all listeners (meet.c). Then each member connects to all members
 * with lower numbers (join.c).
 *
 * A connection is *pending* until its other end has completed the handshake. A *note* is a message
 * between the first member and another member during the rendezvous. A member and a newcomer that
 * waits to be admitted also exchange notes (admit.c, come.c). If members are lost later, the
 * surviving members find each other again at their listeners, and vote which of them form the next
 * *group* (regroup.c).
 *
 * Each member has two numbers. Its *origin* is its number in the first group, and stays the same
 * for the whole run. Its *member number* is its position in the present group. A process that was
 * admitted later has no number in the first group; its origin is the next free number. */
#ifndef TCP_JOIN_H
#define TCP_JOIN_H

#include "tcp/vote.h"

#include <lockstep/host.h>
#include <lockstep/sys/wire.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* A first-in, first-out queue of transfers, which grows as needed. */
typedef struct tcp_queue {
    ls_transfer **item;
    unsigned first, count, room; /* room: capacity, a power of two */
} tcp_queue;

/* One direction of a connection. */
typedef struct tcp_flow {
    tcp_queue queue;
    /* Progress of the first transfer in bytes, its header included. */
    size_t done;
    uint64_t head; /* header: length of the message in bytes, in native byte order */
} tcp_flow;

typedef struct tcp_line {
    int fd; /* −1: not connected, or this member itself */
    bool broken;
    tcp_flow out, in;
} tcp_line;

struct joining;

enum { TCP_HOST = 64 }; /* bytes of a host's name, the zero included */

typedef struct tcp_wire {
    ls_wire base;
    char (*host)[TCP_HOST];      /* [members]: names of their hosts, for messages */
    ls_arrival *place;           /* base.place; NULL: this process was not admitted */
    struct joining *rendezvous;  /* listener and addresses, for a regrouping; NULL: none */
    tcp_line *line;              /* [members][LS_WIRE_CHANNELS] */
    struct pollfd *watch;        /* [members · LS_WIRE_CHANNELS] */
    uint64_t listener_ns;        /* time at which tcp_poll next serves the listener */
    ls_transfer **ended;         /* output array of the current poll() */
    int ended_count, ended_most; /* number of entries used; capacity */
    ls_error broken;             /* the first connection that broke, until it has been reported */
} tcp_wire;

static inline tcp_line *tcp_line_of(const tcp_wire *w, int member, int channel)
{
    return &w->line[member * LS_WIRE_CHANNELS + channel];
}

/* Allocates unconnected connections for `members` members. Errors: LS_ENOMEM. */
int tcp_make_lines(tcp_wire *w, int members, ls_error *err);

/* tcp_free_lines closes all connections and frees the arrays of the transport. tcp_free also frees
 * the structure `w`. Neither frees w->rendezvous. */
void tcp_free_lines(tcp_wire *w);
void tcp_free(tcp_wire *w);

/* The functions `post` and `poll` of the transport. */
int tcp_post(ls_wire *base, ls_transfer *t, ls_error *err);
int tcp_poll(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err);

/* Shuts down the sending side of every connection, and waits until the other members have done the
 * same, two seconds at most. */
void tcp_drain(tcp_wire *w);

/* Runs the rendezvous: meets the other members and connects to all of them. Sets the transport's
 * member numbers and connections, whose sockets never block. With options->regroups the listener
 * stays open, so that surviving members can regroup later. Errors: those of the function `open` of
 * ls_wire_tcp. After an error, the code that called tcp_join frees `w` with tcp_free. */
int tcp_join(tcp_wire *w, const ls_tcp_place *place, const ls_wire_options *options, ls_error *err);
/* Closes the listener and all pending connections, and frees the rendezvous. NULL is allowed. */
void tcp_free_rendezvous(struct joining *j);

/* Serves the listener of a run that has begun. A process outside the run is told that it comes too
 * late. A connection that does not complete the handshake within a second is closed. A connection
 * from a member of this run is closed at once: that member is regrouping already, and calls again
 * until this member regroups too (tcp_regroup). Does not wait. Returns whether a handshake is in
 * progress. */
bool tcp_answer_late(struct joining *j);

/* Implements the function `regroup` of the transport. The code that calls it sets base.type of the
 * new transport, *out. */
int tcp_regroup(tcp_wire **out, tcp_wire *old, const ls_regroup *how, ls_error *err);

/* ---- the rendezvous -------------------------------------------------------------------------- */

enum {
    NONCE = 16,        /* bytes of a nonce */
    PROOF = 32,        /* bytes of a proof, an HMAC-SHA-256 */
    PENDING_MAX = 128, /* most pending connections */
    MEET = 256,        /* bytes of an address as text */
    TCP_NOTE = 400     /* bytes of a note's text */
};

/* hello.channel of a connection for a vote (regroup.c) */
enum { TCP_ON_VOTE = LS_WIRE_CHANNELS };

#define TCP_NOBODY UINT32_MAX /* member number of a caller that has none yet */

/* The first message of a connection. The fields are in native byte order, which is the same on all
 * members. (The fingerprint of a run contains the byte order, and the members compare their
 * fingerprints.) */
typedef struct hello {
    uint32_t magic, version;
    /* `from`: number of the caller; `to`: origin of the listener. In a connection for a vote,
     * `from` is the caller's origin. In a connection that transfers data, it is the caller's member
     * number in the group `group`. */
    uint32_t from, to;
    uint32_t channel;    /* channel of the transport, or TCP_ON_VOTE */
    uint32_t port;       /* port at which the caller listens */
    uint32_t advertised; /* 1: `address` was given by the user (--advertise) */
    uint32_t members;    /* number of members in the caller's options */
    uint32_t admits;     /* 1: the caller may be admitted to a run that has begun */
    uint32_t unused;
    uint64_t run;        /* random number of the run, drawn by the first member */
    uint64_t group;      /* number of the newest group (tcp_ballot) that the caller has formed */
    uint8_t address[16]; /* address of the caller's listener, as the caller knows it */
    char host[TCP_HOST]; /* name of the caller's host */
    uint8_t nonce[NONCE];
} hello;

/* The listener's last message in a handshake, sent to a caller that knows the secret. */
typedef enum tcp_verdict_kind {
    TCP_WELCOME = 'w',
    TCP_MEMBERS = 'm',
    TCP_BEGUN = 'b',
    /* the run has begun and admits processes: the caller sends its fingerprint and waits */
    TCP_WAIT = 'a'
} tcp_verdict_kind;

typedef struct tcp_verdict {
    uint32_t kind, members; /* number of members that the listener expects */
    char host[TCP_HOST];    /* name of the listener's host */
} tcp_verdict;

/* Addresses of one member's listener. IPv4 addresses are mapped to IPv6. tcp_set_entry says why
 * there may be two; the second address is zero if there is only one. */
typedef struct entry {
    uint8_t address[2][16];
    uint32_t port;
    char host[TCP_HOST];
} entry;

/* Notes. During the rendezvous, the first member and each other member exchange them after the
 * verdict and before the first transfer of data. A newcomer exchanges TCP_ARRIVAL and TCP_ADMITTED
 * with the member at which it waits. */
typedef enum tcp_note_kind {
    TCP_COMING,    /* from the first member: number and names of the members that have come */
    TCP_COMPLETE,  /* from the first member: all have come; the entries follow */
    TCP_CONNECTED, /* from another member: it is connected to all members */
    TCP_GO,        /* from the first member: all members are connected to all others */
    TCP_FAILED,    /* from any member: the rendezvous has failed; the text says why */
    TCP_ARRIVAL,   /* from a newcomer: `text` is its fingerprint, of `member` bytes */
    TCP_ADMITTED   /* to a newcomer: a tcp_invitation and the entries of all members follow */
} tcp_note_kind;

typedef struct tcp_note {
    uint32_t kind;    /* a tcp_note_kind */
    uint32_t members; /* number of members of the run */
    /* COMPLETE: number of the receiver; COMING: number of members that have come */
    uint32_t member;
    uint32_t unused;
    uint64_t run;
    char text[TCP_NOTE];
} tcp_note;

/* Data that a newcomer needs to take part in the vote on its admission. */
typedef struct tcp_invitation {
    tcp_ballot formed; /* the group that the next group is to follow */
    uint64_t grace_ns; /* grace time of the vote (regroup.c) */
} tcp_invitation;

/* A process that waits at this member to be admitted. */
typedef struct tcp_waiting {
    int fd;
    entry at;          /* address of its listener, and name of its host */
    tcp_note note;     /* its note TCP_ARRIVAL */
    size_t got;        /* number of bytes of `note` received */
    bool fit;          /* its fingerprint has arrived and equals the run's fingerprint */
    uint64_t since_ns; /* time at which it came */
    uint64_t told_ns;  /* time of the last note to it */
} tcp_waiting;

enum { TCP_WAITING_MAX = 16 /* most processes that wait at one member */ };

/* A pending connection: its other end has not yet proved that it knows the secret. */
typedef struct pending {
    int fd;
    struct {
        hello hello;
        uint8_t proof[PROOF];
    } said;
    size_t got; /* number of bytes of `said` received */
    uint8_t nonce[NONCE];
    uint64_t since_ns;
} pending;

/* "HOST:PORT" split into its parts. */
typedef struct tcp_address {
    char host[MEET]; /* "": not given */
    char port[8];
} tcp_address;

typedef struct joining {
    tcp_wire *wire;
    /* `secret` points to a copy. `meet`, `listen` and `advertise` are NULL, because they have been
     * parsed into the fields below. */
    ls_tcp_place place;
    ls_wire_options options;
    void *secret;
    tcp_address meet, listen; /* "": not given */
    struct sockaddr_storage advertise;
    bool advertises;
    char host[TCP_HOST];    /* name of this host */
    char where[MEET + 16];  /* address of the rendezvous, for messages: "10.0.0.1:7070" */
    char target[MEET + 16]; /* address that is being called, for messages */
    tcp_verdict verdict;    /* verdict of the last listener that answered */
    uint64_t until_ns;      /* end of the rendezvous */
    uint64_t try_ns;        /* time limit of one connection attempt */
    struct addrinfo *found; /* resolved addresses of `meet` */
    int listen_fd;          /* listening socket; −1: none */
    pending pending[PENDING_MAX];
    int pending_count; /* number of entries of `pending` used */
    /* [members]: on the first member, the connections to the members that have come, or −1.
     * REPORTED (meet.c) in place of a connection means that the member has sent TCP_CONNECTED.
     * Other members use caller[0] alone: REPORTED means that the first member has sent TCP_GO. */
    int *caller;
    entry *entry;                  /* [members]: addresses of the listeners */
    struct sockaddr_storage first; /* address at which the first member has answered */
    socklen_t first_bytes;
    bool is_first;           /* this is the first member */
    bool complete;           /* all members have come */
    bool running;            /* the transport is open, and no regrouping is in progress */
    int complaints;          /* number of logged warnings about refused callers */
    char refused[320];       /* the last of these warnings */
    char told[TCP_NOTE + 8]; /* last line that was logged while waiting */
    uint64_t told_ns;        /* time at which it was logged; 0: never */
    /* State for regrouping after members have been lost. */
    uint64_t run;
    tcp_vote vote;
    const ls_regroup *how; /* arguments of the regrouping in progress; NULL: at the start */
    int *vote_fd;          /* [vote.members] connections of its vote; −1: none. NULL: no vote */
    uint64_t formed_ns;    /* time at which this member formed its group; 0: at the start */
    struct {
        int fd;
        hello said;
        /* connections for a group that other members have formed, while this member does not know
         * yet that it is formed */
    } early[PENDING_MAX];
    int earlies; /* number of entries of `early` used */
    /* Processes that wait at this member to be admitted. */
    tcp_waiting waiting[TCP_WAITING_MAX];
    int waiting_count; /* number of entries of `waiting` used */
} joining;

/* Interval at which a waiting member checks again. */
#define TCP_AGAIN_NS UINT64_C(100000000)
#define TCP_TRY_NS UINT64_C(5000000000) /* time limit of one attempt at the start */

static inline uint64_t tcp_sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns milliseconds for poll(), rounded up. */
static inline int tcp_milliseconds(uint64_t ns)
{
    return (int)(ns / 1000000u) + 1;
}

/* Waits until the descriptor is ready, and returns true; or until the time `until_ns`, and returns
 * false. With `fd` −1 it sleeps until `until_ns`. */
bool tcp_ready(int fd, short events, uint64_t until_ns);

/* Returns the time limit of a connection attempt or handshake that begins now. */
uint64_t tcp_try_until(const joining *j);

/* Returns whether the connection has ended: the other end has closed it or it has failed, and all
 * received data have been read. */
bool tcp_is_closed(int fd);

/* Sends (`out` true) or receives all bytes. Returns 0 or an errno: ETIMEDOUT at the time
 * `until_ns`, ECONNRESET if the other end has closed the connection. */
int tcp_move_all(int fd, void *data, size_t bytes, bool out, uint64_t until_ns);

/* Sets up a socket: it does not block, is closed on exec and sends without delay. */
void tcp_set_up(int fd);

/* Fills `out` with random bytes. Errors: LS_ESYSTEM. */
int tcp_draw(void *out, size_t bytes, ls_error *err);

/* Opens j->listen_fd, a listening socket at the address. `both_families`: an IPv6 socket also
 * accepts IPv4. Returns 0 or an errno. */
int tcp_listen(joining *j, const struct sockaddr *at, socklen_t bytes, bool both_families);

/* Connects to an address. Sets *fd to the connection, or to −1 with *error set to an errno. */
void tcp_dial(int *fd, int *error, const struct sockaddr *at, socklen_t bytes, uint64_t until_ns);

/* Sleeps for TCP_AGAIN_NS, or until the end of the rendezvous. */
void tcp_pause(const joining *j);

/* Serves the listener until a caller has completed the handshake with the verdict TCP_WELCOME.
 * Returns the connection and writes the caller's hello to *said, or returns −1 at the time
 * `until_ns`. */
int tcp_await_caller(joining *j, uint64_t until_ns, hello *said);

/* Connects to the member whose origin is `origin`, at address[0] of its entry. Sets *fd to the
 * connection, or to −1 with *error set to an errno. */
void tcp_reach(joining *j, int origin, int *fd, int *error);

/* Connects all members of the group to each other and sets the transport's connections.
 * Errors: those of tcp_join. */
int tcp_connect_all(joining *j, ls_error *err);

/* Ends a rendezvous: closes all connections that do not belong to the transport. */
void tcp_hang_up(joining *j);

/* Calls the function `alive` of the options, or of the regrouping in progress. With it this thread
 * reports that it waits for other members and does not hang. */
static inline void tcp_beat(const joining *j)
{
    if (j->how && j->how->alive)
        j->how->alive(j->how->user);
    else if (!j->running && j->options.alive)
        j->options.alive(j->options.user);
}

/* Sends the hello and completes the handshake. Errors: LS_EUNSUPPORTED (another secret, or the run
 * has begun), LS_EINVAL (another number of members), LS_EIO (the connection was closed; another
 * attempt may succeed), LS_ESYSTEM. */
int tcp_greet(joining *j, int fd, hello *h, ls_error *err);

/* Receives the next note of the member to which this process has connected. Waits until `until_ns`
 * at most. Errors: LS_ETIMEDOUT; LS_EIO if that member has closed the connection. */
int tcp_receive_note(joining *j, int fd, tcp_note *note, uint64_t until_ns, ls_error *err);

/* ---- meet.c: finds the first member and the others ------------------------------------------- */

/* Decides whether this member is the first, and meets the others. Sets the numbers, names and
 * addresses of all members.
 * Errors: those of tcp_join. */
int tcp_meet(joining *j, ls_error *err);
/* Connects to the address of the rendezvous, until a member answers: the first member, or any
 * member of a run that has begun. After that j->verdict is TCP_WELCOME (the start goes on) or
 * TCP_WAIT (the run has begun, and this process may wait to be admitted). In both cases the
 * connection is stored as the transport's connection to member 0 on channel 0. Errors: those of
 * tcp_join. */
int tcp_call_first(joining *j, ls_error *err);
/* Called on every member after tcp_connect_all, whose result `status` and `err` are. Returns LS_OK
 * on all members or an error on all members. */
int tcp_agree_to_go(joining *j, int status, ls_error *err);
/* Reads the notes that have arrived. Fails if another member has failed or has closed its
 * connection. Does not wait.
 * Errors: LS_ESYSTEM. */
int tcp_check_notes(joining *j, ls_error *err);

/* ---- admit.c: processes that come after the run has begun ------------------------------------ */

/* Returns whether a caller with this hello may wait here to be admitted. */
bool tcp_may_wait(const joining *j, const hello *h);
/* Adds a caller whose handshake is complete to the waiting processes. The connection `fd` then
 * belongs to j->waiting. */
void tcp_let_wait(joining *j, int fd, const hello *h);
/* Reads the fingerprints of the waiting processes, refuses processes whose fingerprint differs, and
 * removes processes that have closed their connections. Does not wait. Returns whether a
 * fingerprint has not arrived yet. */
bool tcp_serve_waiting(joining *j);
/* Sends the waiting processes the reason why they are not admitted, and closes their
 * connections. NULL is allowed. */
void tcp_dismiss_waiting(joining *j, const char *why);
/* The function `arrivals` of the transport. */
int tcp_arrivals(ls_wire *base, ls_arrival *out);
/* Prepares the vote for the newcomer `arrival`. If the newcomer waits at this member, sends the
 * newcomer an invitation. `grace_ns`: grace time of the vote. Errors: LS_ENOMEM. */
int tcp_invite(joining *j, const ls_arrival *arrival, uint64_t grace_ns, ls_error *err);

/* ---- come.c, regroup.c: this process comes after the run has begun --------------------------- */

/* Called after the verdict TCP_WAIT: sends the fingerprint, waits until the run admits this
 * process, and connects to all members. Closes the connection that tcp_call_first has made. Errors:
 * LS_EIO (this process may call again until j->until_ns), LS_EUNSUPPORTED (refused), LS_ENOMEM. */
int tcp_await_admission(joining *j, ls_error *err);
/* Votes as a newcomer and connects to the members of the new group. *out becomes the new transport.
 * Errors: LS_ESTALLED (this process was not admitted), LS_ENOMEM, those of tcp_join. */
int tcp_vote_in(tcp_wire **out, joining *j, uint64_t grace_ns, ls_error *err);

/* ---- address.c ------------------------------------------------------------------------------- */

/* Sets the addresses and the name of a caller's listener. If the user gave an address
 * (--advertise), it is the only one. Otherwise the first address is the source address of the
 * caller's connection, and the second address is the one in the caller's hello, if it differs. The
 * second address is needed if a gateway has replaced the source address. */
void tcp_set_entry(entry *e, int fd, const hello *h);
/* Reads "HOST:PORT", with brackets around a host that contains colons. With `bare`, the host may be
 * missing and the port may be 0. Errors: LS_EINVAL. */
int tcp_read_address(tcp_address *out, const char *text, bool bare, ls_error *err);
/* Reads "HOST[:PORT]", an address at which others reach this member. Errors: LS_EINVAL. */
int tcp_read_advertised(struct sockaddr_storage *out, const char *text, ls_error *err);
/* tcp_is_loopback returns whether an address is a loopback address. tcp_is_any returns whether it
 * is the wildcard address, which stands for all addresses of a host. */
bool tcp_is_loopback(const struct sockaddr *at);
bool tcp_is_any(const struct sockaddr *at);
/* Returns whether the user's text for a host fixes the address by itself, without /etc/hosts or
 * DNS: a numeric address, or a name of loopback such as localhost. */
bool tcp_is_literal(const char *host);
/* Convert a socket address to the 16 bytes of an IPv6 address and a port, and back. */
void tcp_pack_address(uint8_t out[16], uint32_t *port, const struct sockaddr_storage *at);
socklen_t tcp_unpack_address(struct sockaddr_storage *out, const uint8_t address[16],
                             uint32_t port);
/* Formats an address, "10.0.0.1:7070"; without the port if it is 0. */
const char *tcp_show_address(char out[80], const uint8_t address[16], uint32_t port);
/* Copies a host's name received from elsewhere; replaces bytes that cannot be printed by '?'. */
void tcp_take_name(char out[TCP_HOST], const char *from);
/* Appends "#" and a number to a host's name that another host has too. */
void tcp_number_name(char host[TCP_HOST], int number);

/* ---- log.c ----------------------------------------------------------------------------------- */

/* Logs a line with the function `say` of the options. */
void tcp_log(const joining *j, ls_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs what this member waits for. An unchanged text is logged every 30 seconds. A changed text is
 * logged at once if `news` is true; otherwise it is logged if the last line is at least 2 seconds
 * old. Returns whether the text was logged. */
bool tcp_log_waiting(joining *j, bool news, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs that a caller was refused. Only the first 16 warnings are logged. */
void tcp_log_refused(joining *j, int fd, const char *host, const char *why);

#endif
