/* SPDX-License-Identifier: MIT */
/* The transport over TCP: internals of ls_transport_tcp (<lockstep/sys/transport.h>).
 *
 * The transport has several *channels*, independent sequences of messages. Every two members have
 * one connection for each channel (ls_tcp_line). Data that wait on one channel therefore do not
 * block another channel.
 *
 * At the start the members find each other in a *rendezvous* (its state is the struct `joining`).
 * One member, the *first member*, listens at an address that all members know. The other members
 * connect to that address. A *caller* is the process that connects to another process; a *listener*
 * is the process that accepts connections, or its socket. Both ends prove in a handshake that they
 * know the run's secret (greet.c). When all members have come, the first member gives each of them
 * its number and the addresses of all listeners (meet.c). Then each member connects to all members
 * with lower numbers (join.c).
 *
 * A connection is *pending* until its other end has completed the handshake. A *note* is a message
 * between the first member and another member during the rendezvous. A *newcomer* is a process that
 * comes after the run has begun, and waits at a member until the run admits it. The newcomer and
 * that member exchange notes too (admit.c, come.c). If members are lost later, the surviving
 * members find each other again at their listeners. They vote which of them form the next host
 * group (vote.h, regroup.c).
 *
 * Each member has two numbers. Its *origin* is its number in the first host group, and stays the
 * same for the whole run. Its *member number* is its position in the present host group. A process
 * that was admitted later has no number in the first host group; its origin is the next free
 * number. */
#ifndef TCP_JOIN_H
#define TCP_JOIN_H

#include "tcp/seal.h"
#include "tcp/vote.h"

#include <limits.h>
#include <lockstep/host.h>
#include <lockstep/sys/transport.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* A first-in, first-out queue of transfers, which grows as needed. */
typedef struct ls_tcp_queue {
    ls_transfer **item; /* [room] a ring, of which `count` entries from index `first` on are used */
    unsigned first, count, room; /* room: capacity, a power of two */
} ls_tcp_queue;

/* Header of a transfer, a sealed message (seal.h). */
typedef struct ls_tcp_head {
    uint64_t bytes; /* length of the data in bytes, in native byte order */
    uint8_t tag[TCP_TAG];
} ls_tcp_head;

/* One direction of a connection. */
typedef struct ls_tcp_flow {
    ls_tcp_queue queue; /* transfers that have not been completed */
    /* number of bytes of the first transfer that have been moved, its header and its tag
     * included */
    size_t done;
    size_t covered;   /* number of bytes of its data that `mac` covers */
    bool begun;       /* sending: the first transfer has its numbers, even if no byte was sent */
    bool sealed;      /* sending: `tag` is complete */
    ls_tcp_head head; /* its header */
    uint8_t tag[TCP_TAG]; /* tag of its data */
    ls_mac mac;           /* has the expanded key of this direction (ls_tcp_expand_keys) */
} ls_tcp_flow;

/* The connection to another member for one channel. */
typedef struct ls_tcp_line {
    ls_tcp_link link; /* link.fd −1: not connected, or this member itself */
    bool broken;      /* the connection has failed, and is not used any more */
    /* A received message was changed on the way, and nothing more is received. This member can
     * still send, for example the reason why it leaves. */
    bool deaf;
    ls_tcp_flow out, in;
} ls_tcp_line;

struct joining;
typedef struct regrouping regrouping; /* regroup.h */

enum { TCP_HOST = 64 }; /* bytes of a host's name, the zero included */

typedef struct ls_tcp_wire {
    ls_wire base;
    char (*host)[TCP_HOST]; /* [members]: names of the members' hosts, for messages */
    ls_arrival *place;      /* the array of base.place; NULL: this process was not admitted later */
    struct joining *rendezvous;  /* listener and addresses, for a regrouping; NULL: none */
    ls_tcp_line *line;           /* [members][LS_TRANSPORT_CHANNELS] all connections */
    struct pollfd *watch;        /* [members · LS_TRANSPORT_CHANNELS] argument of ppoll */
    uint64_t listener_ns;        /* time at which ls_tcp_poll next serves the listener */
    ls_transfer **ended;         /* output array of the current poll() */
    int ended_count, ended_most; /* entries of `ended`: number used; capacity */
    ls_error
        broken; /* error of the first connection that broke, until ls_tcp_poll has returned it */
} ls_tcp_wire;

static inline ls_tcp_line *ls_tcp_line_of(const ls_tcp_wire *w, int member, int channel)
{
    return &w->line[member * LS_TRANSPORT_CHANNELS + channel];
}

/* Allocates unconnected connections for `members` members. Errors: LS_ENOMEM. */
int ls_tcp_make_lines(ls_tcp_wire *w, int members, ls_error *err);

/* Expands the keys of all connections, for transfers. Called when all members are connected. */
void ls_tcp_expand_keys(ls_tcp_wire *w);

/* Closes all connections and frees the arrays of the transport, but not w->rendezvous. */
void ls_tcp_free_lines(ls_tcp_wire *w);
/* Calls ls_tcp_free_lines and frees the structure `w`. Does not free w->rendezvous. */
void ls_tcp_free(ls_tcp_wire *w);

/* The function `post` of the transport (ls_transport.post). */
int ls_tcp_post(ls_wire *base, ls_transfer *t, ls_error *err);
/* The function `poll` of the transport (ls_transport.poll). It also serves the listener. */
int ls_tcp_poll(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err);

/* Shuts down the sending side of every connection, and waits until the other members have done the
 * same, two seconds at most. */
void ls_tcp_drain(ls_tcp_wire *w);

/* Runs the rendezvous: meets the other members and connects to all of them. Sets the transport's
 * member numbers and connections. Calls on their sockets never block. With options->regroups the
 * listener stays open, so that surviving members can regroup later. Errors: those of the function
 * `open` of ls_transport_tcp. After an error, the code that called ls_tcp_join frees `w` with
 * ls_tcp_free. */
int ls_tcp_join(ls_tcp_wire *w, const ls_tcp_place *place, const ls_wire_options *options,
                ls_error *err);
/* Closes the listener and all pending connections, and frees the rendezvous. NULL is allowed. */
void ls_tcp_free_rendezvous(struct joining *j);

/* Serves the listener of a run that has begun. A process outside the run is told that the run has
 * begun, or waits here if the run admits processes. A handshake has a second. A connection from a
 * member of this run is closed at once: that member is regrouping already, and calls again until
 * this member regroups too (ls_tcp_regroup). Does not wait. Returns whether a handshake is in
 * progress. */
bool ls_tcp_answer_late(struct joining *j);

/* Implements the function `regroup` of the transport (ls_transport.regroup), except that the caller
 * of ls_tcp_regroup sets base.type of the new transport, *out. */
int ls_tcp_regroup(ls_tcp_wire **out, ls_tcp_wire *old, const ls_regroup *how, ls_error *err);

/* ---- the rendezvous -------------------------------------------------------------------------- */

enum {
    NONCE = 16,        /* bytes of a nonce, a random number that is used once */
    PROOF = 32,        /* bytes of a proof, an HMAC-SHA-256 */
    PENDING_MAX = 128, /* most pending connections */
    MEET = 256,        /* bytes of an address as text */
    TCP_NOTE = 400     /* bytes of a note's text */
};

/* value of hello.channel for a connection over which members vote (voters.c) */
enum { TCP_ON_VOTE = LS_TRANSPORT_CHANNELS };

#define TCP_NOBODY UINT32_MAX /* hello.from of a caller that has no member number yet */

/* The first message of a connection. The fields are in native byte order. This order is the same on
 * all members, because a process with another byte order sends another `magic` and is refused
 * (greet.c). */
typedef struct hello {
    uint32_t magic, version;
    /* `from` is the number of the caller, or TCP_NOBODY. In a connection for a vote this number is
     * the caller's origin. In a connection that transfers data, it is the caller's member number in
     * the host group `formed`. `to` is the origin of the listener. */
    uint32_t from, to;
    uint32_t channel;    /* channel of the transport, or TCP_ON_VOTE */
    uint32_t port;       /* port of the caller's listener */
    uint32_t advertised; /* 1: `address` was given by the user (--advertise) */
    uint32_t members;    /* number of members in the caller's options */
    uint32_t admits;     /* 1: the caller may be admitted to a run that has begun */
    uint32_t unused;
    uint64_t run; /* random number of the run, drawn by the first member */
    uint64_t
        formed; /* number of the newest host group (ls_tcp_ballot) that the caller has formed */
    uint8_t address[16]; /* address of the caller's listener, as the caller knows it */
    char host[TCP_HOST]; /* name of the caller's host */
    uint8_t nonce[NONCE];
} hello;

/* The listener's last message in a handshake, sent to a caller that knows the secret. */
typedef enum ls_tcp_verdict_kind {
    TCP_WELCOME = 'w', /* the connection is accepted */
    TCP_MEMBERS = 'm', /* refused: the caller expects another number of members */
    TCP_BEGUN = 'b',   /* refused: the run has begun */
    /* the run has begun and admits processes: the caller sends its fingerprint and waits */
    TCP_WAIT = 'a'
} ls_tcp_verdict_kind;

typedef struct ls_tcp_verdict {
    uint32_t kind, members; /* number of members that the listener expects */
    char host[TCP_HOST];    /* name of the listener's host */
} ls_tcp_verdict;

/* First bytes of every hello and every answer, in all versions. */
typedef struct ls_tcp_opening {
    uint32_t magic, version;
} ls_tcp_opening;

/* The listener's answer to a hello. */
typedef struct ls_tcp_answer {
    ls_tcp_opening opening;
    uint8_t nonce[NONCE], proof[PROOF];
} ls_tcp_answer;

/* A handshake of this process as the caller, in progress. */
typedef struct ls_tcp_greeting {
    hello hello;
    ls_tcp_answer answer;
    struct {
        ls_tcp_verdict said;
        uint8_t tag[TCP_TAG];
    } verdict;
    bool proved; /* the answer was received, and this process has sent its proof */
    size_t got;  /* number of bytes received of the answer; if `proved`, of the verdict */
} ls_tcp_greeting;

/* Addresses of one member's listener. IPv4 addresses are mapped to IPv6. There can be two of them
 * (ls_tcp_set_entry says why); if there is one, the second is zero. */
typedef struct entry {
    uint8_t address[2][16];
    uint32_t port;
    char host[TCP_HOST];
} entry;

/* Kinds of notes. During the rendezvous, the first member and each other member exchange notes
 * after the verdict and before the first transfer of data. A newcomer sends TCP_ARRIVAL with its
 * fingerprint (<lockstep/sys/transport.h>) to the member at which it waits. That member sends the
 * newcomer TCP_COMING while it waits, and TCP_ADMITTED or TCP_FAILED at the end. */
typedef enum ls_tcp_note_kind {
    /* to a member that waits: number and names of the members that have come; to a newcomer: the
     * text says what the newcomer waits for */
    TCP_COMING,
    TCP_COMPLETE,  /* from the first member: all members have come; their entries follow */
    TCP_CONNECTED, /* from another member: it is connected to all members */
    TCP_GO,        /* from the first member: all members are connected to all others */
    TCP_FAILED,    /* the rendezvous has failed, or the newcomer is refused; the text says why */
    TCP_ARRIVAL,   /* from a newcomer: `text` is its fingerprint, of `member` bytes */
    TCP_ADMITTED   /* to a newcomer: a ls_tcp_invitation and the entries of all members follow */
} ls_tcp_note_kind;

typedef struct ls_tcp_note {
    uint32_t kind;    /* a ls_tcp_note_kind */
    uint32_t members; /* number of members of the run */
    /* COMPLETE, ADMITTED: number of the receiver; COMING: number of members that have come;
     * ARRIVAL: number of bytes of `text`; FAILED, after COMPLETE: number of the member that has
     * reported its failure to the first one */
    uint32_t member;
    uint32_t unused;
    uint64_t run; /* hello.run */
    char text[TCP_NOTE];
} ls_tcp_note;

/* Data that a newcomer needs to take part in the vote on its admission. */
typedef struct ls_tcp_invitation {
    ls_tcp_ballot formed; /* the host group that the next one is to follow */
    uint64_t grace_ns;    /* grace time of the vote (regroup.c) */
} ls_tcp_invitation;

/* A newcomer that waits at this member to be admitted. */
typedef struct ls_tcp_waiting {
    ls_tcp_link link;
    entry at; /* address of the newcomer's listener, and name of its host */
    /* the newcomer's note TCP_ARRIVAL and its tag, as far as they have arrived */
    struct {
        ls_tcp_note note;
        uint8_t tag[TCP_TAG];
    } said;
    size_t got;        /* number of bytes of `said` received */
    bool fit;          /* the newcomer's fingerprint has arrived and equals the run's fingerprint */
    uint64_t since_ns; /* time at which the newcomer came (ls_now_ns) */
    uint64_t told_ns;  /* time of the last note to the newcomer (ls_now_ns) */
} ls_tcp_waiting;

enum { TCP_WAITING_MAX = 16 /* most newcomers that wait at one member */ };

/* A newcomer whose admission has failed (admit.c). Every member keeps a list of them. */
typedef struct ls_tcp_failed {
    entry at;      /* its name and addresses; the port counts for nothing, a restart changes it */
    int tries;     /* number of failed admissions; 0: this entry is unused */
    uint64_t next; /* round (ls_transport.arrivals) from which on it is tried again */
    bool given_up; /* it is refused, and has not been told yet */
    char why[TCP_NOTE - 100]; /* the reason of the last failure */
} ls_tcp_failed;

/* A pending connection: its other end has not yet proved that it knows the secret. */
typedef struct pending {
    int fd;
    struct {
        hello hello;
        uint8_t proof[PROOF];
    } said;
    size_t got;           /* number of bytes of `said` received */
    uint8_t nonce[NONCE]; /* the listener's nonce for this connection */
    uint64_t since_ns;    /* time at which the connection was accepted */
} pending;

/* "HOST:PORT" split into its parts. */
typedef struct ls_tcp_address {
    char host[MEET]; /* "": not given */
    char port[8];
} ls_tcp_address;

/* The state of the rendezvous. It is kept during the run, for late callers and regroupings. */
typedef struct joining {
    ls_tcp_wire *wire;
    /* The options of this transport. place.secret points to a copy. place.meet, place.listen and
     * place.advertise are NULL once they have been parsed into the fields below. */
    ls_tcp_place place;
    ls_wire_options options;
    void *secret;                      /* the copy of the secret */
    ls_tcp_address meet, listen;       /* "": not given */
    struct sockaddr_storage advertise; /* the address that the user gave (--advertise) */
    bool advertises;                   /* the user gave an address */
    char host[TCP_HOST];               /* name of this host */
    char where[MEET + 16];  /* address of the rendezvous, for messages: "10.0.0.1:7070" */
    char target[MEET + 16]; /* address that is being called, for messages */
    ls_tcp_verdict verdict; /* verdict of the last listener that answered */
    /* time limit (ls_now_ns) of the rendezvous, of a regrouping or of a newcomer's wait */
    uint64_t until_ns;
    uint64_t try_ns;        /* time limit of one connection attempt */
    struct addrinfo *found; /* resolved addresses of `meet` */
    int listen_fd;          /* listening socket; −1: none */
    pending pending[PENDING_MAX];
    int pending_count; /* number of entries of `pending` used */
    /* [members]: on the first member, the connections to the members that have come; fd −1: none.
     * The value REPORTED (meet.c) of fd means that the member has sent TCP_CONNECTED. Members other
     * than the first use caller[0] alone: there REPORTED means that the first member has sent
     * TCP_GO. */
    ls_tcp_link *caller;
    entry *entry;                  /* [members] by origin: addresses of the listeners */
    struct sockaddr_storage first; /* address at which the first member has answered */
    socklen_t first_bytes;
    bool is_first;           /* this is the first member */
    bool complete;           /* all members have come */
    int failed_member;       /* number of the member that has reported its failure; 0: none */
    bool running;            /* the transport is open, and no regrouping is in progress */
    int complaints;          /* number of logged warnings about refused callers */
    char refused[320];       /* the last of these warnings */
    char told[TCP_NOTE + 8]; /* last line of ls_tcp_log_waiting */
    uint64_t told_ns;        /* time at which that line was logged; 0: never */
    /* State for regrouping after members have been lost. */
    uint64_t run; /* random number of the run (hello.run) */
    ls_tcp_vote vote;
    const ls_regroup *how; /* arguments of the regrouping in progress; NULL: at the start */
    /* [vote.members] connections over which this member votes, by origin; fd −1: none. NULL: no
     * vote is in progress */
    ls_tcp_link *voting;
    regrouping *regrouping; /* the regrouping in progress; NULL: none */
    uint64_t formed_ns;     /* time at which this member formed its host group; 0: at the start */
    /* origins of members between which and this member the direction of connections is turned
     * (ls_tcp_calls) */
    ls_tcp_set turned;
    int unreached; /* origin of the member that was not reached when connecting failed; −1: none */
    /* connections for data in a host group that other members have formed, while this member does
     * not know yet that it is formed */
    struct {
        ls_tcp_link link;
        hello said;
    } early[PENDING_MAX];
    int earlies; /* number of entries of `early` used */
    /* Newcomers that wait at this member to be admitted. */
    ls_tcp_waiting waiting[TCP_WAITING_MAX];
    int waiting_count; /* number of entries of `waiting` used */
    /* The newcomer of the last admission, whose result is not known yet, and the newcomers whose
     * admissions have failed. */
    struct {
        entry at;
        int number; /* its origin; 0: there is none */
        char why[TCP_NOTE - 100];
    } trial;
    ls_tcp_failed failed[TCP_WAITING_MAX];
    /* On a newcomer: time at which it gives up, set when its first admission has failed; 0: none
     * has failed. `failure`: the reason of the last failure. */
    uint64_t give_up_ns;
    char failure[TCP_NOTE - 100];
} joining;

/* Interval at which a member that waits checks again whether to go on. */
#define TCP_AGAIN_NS UINT64_C(100000000)
/* Time limit of one connection attempt, except in a regrouping. */
#define TCP_TRY_NS UINT64_C(5000000000)

static inline uint64_t ls_tcp_sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns milliseconds for poll(), rounded up, at most INT_MAX. */
static inline int ls_tcp_milliseconds(uint64_t ns)
{
    const uint64_t whole = ns / 1000000u, most = INT_MAX - 1;
    return (int)(whole < most ? whole : most) + 1;
}

/* Waits until the descriptor is ready, and then returns true. Returns false if it is not ready at
 * the time `until_ns`. With `fd` −1 it sleeps until `until_ns`. */
bool ls_tcp_ready(int fd, short events, uint64_t until_ns);

/* Returns the time at which a connection attempt or handshake that begins now has to end. */
uint64_t ls_tcp_try_until(const joining *j);

/* Returns whether the connection has ended: the other end has closed the connection or the
 * connection has failed, and all received data have been read. */
bool ls_tcp_is_closed(int fd);

/* Sends (`out` true) or receives all bytes. Returns 0 or an errno: ETIMEDOUT if the time `until_ns`
 * comes first, ECONNRESET if the other end has closed the connection. */
int ls_tcp_move_all(int fd, void *data, size_t bytes, bool out, uint64_t until_ns);

/* Sends or receives all bytes of the two parts, as ls_tcp_move_all does. Changes `part`. */
int ls_tcp_move_parts(int fd, struct iovec part[2], bool out, uint64_t until_ns);

/* Sets up a socket, so that it does not block, is closed on exec and sends without delay. */
void ls_tcp_set_up(int fd);

/* Fills `out` with random bytes. Errors: LS_ESYSTEM. */
int ls_tcp_draw(void *out, size_t bytes, ls_error *err);

/* Opens j->listen_fd, a listening socket at the address. `both_families`: an IPv6 socket also
 * accepts IPv4. Returns 0 or an errno. */
int ls_tcp_listen(joining *j, const struct sockaddr *at, socklen_t bytes, bool both_families);

/* Connects to an address. Sets *fd to the connection, or to −1 with *error set to an errno. */
void ls_tcp_dial(int *fd, int *error, const struct sockaddr *at, socklen_t bytes,
                 uint64_t until_ns);

/* Begins to connect to an address. Sets *fd to the socket, with *error 0 or EINPROGRESS, or sets
 * *fd to −1 with *error another errno. Does not wait. */
void ls_tcp_begin_dial(int *fd, int *error, const struct sockaddr *at, socklen_t bytes);
/* Returns the result of a connection attempt: 0, or an errno. EINPROGRESS: there is no result until
 * `until_ns`. */
int ls_tcp_dialled(int fd, uint64_t until_ns);

/* Sleeps for TCP_AGAIN_NS, or until j->until_ns if that is earlier. */
void ls_tcp_pause(const joining *j);

/* Serves the listener until a caller has completed the handshake with the verdict TCP_WELCOME. Then
 * returns true, and writes the connection to *link and the caller's hello to *said. Returns false
 * with link->fd −1 if there is no such caller until `until_ns`. Newcomers are added to j->waiting
 * meanwhile. */
bool ls_tcp_await_caller(joining *j, uint64_t until_ns, ls_tcp_link *link, hello *said);

/* Connects to the member whose origin is `origin`, at address[0] of its entry. Sets *fd to the
 * connection, or to −1 with *error set to an errno. */
void ls_tcp_reach(joining *j, int origin, int *fd, int *error);

/* Returns whether this member makes the connections to the member with this origin: to each member
 * with a lower origin, unless the direction between the two is turned (voters.c). */
static inline bool ls_tcp_calls(const joining *j, int origin)
{
    return (origin < j->vote.own) != ls_tcp_set_has(&j->turned, origin);
}

/* Reads what a member of the new host group has sent over its connection of the vote. Returns
 * whether the member has closed this connection before it was connected to all members: it has left
 * the host group. (voters.c) */
bool ls_tcp_has_left(regrouping *m, int origin);

/* Connects all members of the host group to each other and sets the transport's connections. In a
 * regrouping, an error sets j->unreached. Errors: those of ls_tcp_join. */
int ls_tcp_connect_all(joining *j, ls_error *err);

/* Ends a rendezvous: closes all connections that do not belong to the transport. */
void ls_tcp_hang_up(joining *j);

/* Calls the function `alive` of the options, or of the regrouping in progress. By this call the
 * present thread reports that it waits for other members and does not hang. */
static inline void ls_tcp_beat(const joining *j)
{
    if (j->how && j->how->alive)
        j->how->alive(j->how->user);
    else if (!j->running && j->options.alive)
        j->options.alive(j->options.user);
}

/* Begins the caller's side of the handshake over `fd`: sends the hello `h`, of which this function
 * sets the fields that do not depend on the connection. Does not wait. Errors: LS_EIO (the
 * connection was closed; another attempt can succeed), LS_ESYSTEM. */
int ls_tcp_begin_greeting(joining *j, ls_tcp_greeting *g, int fd, const hello *h, ls_error *err);
/* Continues the handshake with what has arrived. Does not wait. When the handshake is complete,
 * sets j->verdict and the keys of the connection, and returns LS_OK. Errors: LS_EAGAIN (more must
 * arrive), LS_EUNSUPPORTED (another version or another secret, or the run has begun), LS_EINVAL
 * (another number of members), LS_EIO (the connection was closed; another attempt can succeed),
 * LS_ESYSTEM (also: a message was changed). */
int ls_tcp_continue_greeting(joining *j, ls_tcp_greeting *g, ls_tcp_link *link, ls_error *err);
/* Does the caller's side of the handshake over link->fd until the verdict, j->verdict, and waits
 * for it until `until_ns` at most. Errors: those of the two functions above except LS_EAGAIN;
 * LS_EIO if the time is over. */
int ls_tcp_greet(joining *j, ls_tcp_link *link, const hello *h, uint64_t until_ns, ls_error *err);

/* Receives the next note of the member to which this process has connected. Waits until `until_ns`
 * at most. Errors: LS_ETIMEDOUT; LS_EIO if that member has closed the connection; LS_ESYSTEM if the
 * note was changed. */
int ls_tcp_receive_note(joining *j, ls_tcp_link *link, ls_tcp_note *note, uint64_t until_ns,
                        ls_error *err);

/* ---- meet.c: finds the first member and the others ------------------------------------------- */

/* Decides whether this member is the first, and meets the others. Sets the numbers, names and
 * addresses of all members.
 * Errors: those of ls_tcp_join. */
int ls_tcp_meet(joining *j, ls_error *err);
/* Connects to the address of the rendezvous, again and again until a member answers: the first
 * member, or any member of a run that has begun. After success j->verdict is TCP_WELCOME (the start
 * goes on) or TCP_WAIT (the run has begun, and this process may wait to be admitted). In both cases
 * the connection is stored as the transport's connection to member 0 on channel 0. Errors: those of
 * ls_tcp_join. */
int ls_tcp_call_first(joining *j, ls_error *err);
/* Called on every member after ls_tcp_connect_all. `status` and `err`: the result of
 * ls_tcp_connect_all. Returns LS_OK on all members or an error on all members. */
int ls_tcp_agree_to_go(joining *j, int status, ls_error *err);
/* Reads the notes that have arrived. Fails if another member has failed or has closed its
 * connection. Does not wait.
 * Errors: LS_ESYSTEM. */
int ls_tcp_check_notes(joining *j, ls_error *err);

/* ---- admit.c: newcomers, from the members' side ---------------------------------------------- */

/* Returns whether a caller with this hello may wait here to be admitted. */
bool ls_tcp_may_wait(const joining *j, const hello *h);
/* Adds a caller whose handshake is complete to the waiting newcomers. The connection belongs to
 * j->waiting from then on, or is closed if TCP_WAITING_MAX newcomers wait already. */
void ls_tcp_let_wait(joining *j, const ls_tcp_link *link, const hello *h);
/* Reads the fingerprints of the waiting newcomers, refuses newcomers whose fingerprint differs, and
 * removes newcomers that have closed their connections. Does not wait. Returns whether a
 * fingerprint is still expected. */
bool ls_tcp_serve_waiting(joining *j);
/* Sends the waiting newcomers the reason why they are not admitted, and closes their connections.
 * NULL is allowed. */
void ls_tcp_dismiss_waiting(joining *j, const char *why);
/* The function `arrivals` of the transport (ls_transport.arrivals). */
int ls_tcp_arrivals(ls_wire *base, uint64_t round, ls_arrival *out);
/* Called after a vote that has formed a host group without the newcomer how->arrival: writes the
 * reason to how->why, and keeps it for the newcomer. */
void ls_tcp_explain_failure(joining *j, const ls_regroup *how);
/* Prepares the vote on the newcomer `arrival`. If the newcomer waits at this member, sends the
 * newcomer an invitation to the vote. `grace_ns`: grace time of the vote (regroup.c). Errors:
 * LS_ENOMEM. */
int ls_tcp_invite(joining *j, const ls_arrival *arrival, uint64_t grace_ns, ls_error *err);

/* ---- come.c, regroup.c: this process is a newcomer ------------------------------------------- */

/* Called after the verdict TCP_WAIT: sends the fingerprint, waits until the run admits this
 * process, and connects to all members. Closes the connection that ls_tcp_call_first has made.
 * Errors: LS_EIO (this process may call again until j->until_ns), LS_EUNSUPPORTED (refused),
 * LS_ENOMEM. */
int ls_tcp_await_admission(joining *j, ls_error *err);
/* Returns the error of a newcomer that the run has not admitted in the time of --wait:
 * LS_ETIMEDOUT, with the reason of the last failed admission. */
int ls_tcp_fail_admission(const joining *j, ls_error *err);
/* Takes part in the vote as a newcomer, and connects to the members of the new host group. *out
 * becomes the new transport. `grace_ns`: grace time of the vote; 0: a default. Errors: LS_ESTALLED
 * (this process was not admitted), LS_ENOMEM, those of ls_tcp_join. */
int ls_tcp_vote_in(ls_tcp_wire **out, joining *j, uint64_t grace_ns, ls_error *err);

/* ---- address.c ------------------------------------------------------------------------------- */

/* Sets the addresses and the name of a caller's listener. If the user gave an address
 * (--advertise), there is only that one. If not, there are the source address of the caller's
 * connection and, if a gateway has replaced it, the address in the caller's hello. */
void ls_tcp_set_entry(entry *e, int fd, const hello *h);
/* Returns the size of *at, the address at which the member whose origin is `origin` is called:
 * address[0] of its entry. Sets j->target. */
socklen_t ls_tcp_address_of(joining *j, int origin, struct sockaddr_storage *at);
/* Parses "HOST:PORT", with brackets around a host that contains colons. With `bare`, the host may
 * be missing and the port may be 0. Errors: LS_EINVAL. */
int ls_tcp_read_address(ls_tcp_address *out, const char *text, bool bare, ls_error *err);
/* Parses "HOST[:PORT]", an address at which others reach this member. Errors: LS_EINVAL. */
int ls_tcp_read_advertised(struct sockaddr_storage *out, const char *text, ls_error *err);
/* Returns whether an address is a loopback address. */
bool ls_tcp_is_loopback(const struct sockaddr *at);
/* Returns whether an address is the wildcard address, which stands for all addresses of a host. */
bool ls_tcp_is_any(const struct sockaddr *at);
/* Returns whether the user's text for a host fixes the address by itself, without /etc/hosts or
 * DNS: a numeric address, or a name of loopback such as localhost. */
bool ls_tcp_is_literal(const char *host);
/* Converts a socket address to the 16 bytes of an IPv6 address and a port. */
void ls_tcp_pack_address(uint8_t out[16], uint32_t *port, const struct sockaddr_storage *at);
/* Converts the 16 bytes of an IPv6 address and a port back to a socket address. Returns the size of
 * the socket address. */
socklen_t ls_tcp_unpack_address(struct sockaddr_storage *out, const uint8_t address[16],
                                uint32_t port);
/* Formats an address, "10.0.0.1:7070". Leaves out the port if it is 0. Returns `out`. */
const char *ls_tcp_show_address(char out[80], const uint8_t address[16], uint32_t port);
/* Copies a host's name that another process has sent. Replaces bytes that cannot be printed by
 * '?'. */
void ls_tcp_take_name(char out[TCP_HOST], const char *from);
/* Appends "#" and a number to a host's name that another host has too. */
void ls_tcp_number_name(char host[TCP_HOST], int number);

/* ---- log.c ----------------------------------------------------------------------------------- */

/* Logs a line with the function `say` of the options. */
void ls_tcp_log(const joining *j, ls_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs what this member waits for. An unchanged text is logged every 30 seconds. A changed text is
 * logged at once if `news` is true. With `news` false, a changed text is logged only if the last
 * line is at least 2 seconds old. Returns whether the text was logged. */
bool ls_tcp_log_waiting(joining *j, bool news, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Formats "a, b": the hosts of the members in `set`, truncated to `size` bytes. */
void ls_tcp_list_hosts(char *out, size_t size, const joining *j, const ls_tcp_set *set);
/* Formats the reason why the newcomer on `host` was not admitted. `apart`: the members without a
 * link to the newcomer; `members`: number of all members. */
void ls_tcp_say_apart(char *out, size_t size, const joining *j, const char *host,
                      const ls_tcp_set *apart, int members);
/* Logs that a caller was refused. Only the first 16 warnings are logged. */
void ls_tcp_log_refused(joining *j, int fd, const char *host, const char *why);

#endif
