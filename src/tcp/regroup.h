/* SPDX-License-Identifier: MIT */
/* A regrouping in progress: the members that have survived a loss, or that are to admit a newcomer,
 * vote and connect to each other again. regroup.c has the course and the time limits of a
 * regrouping; voters.c has the connections over which the members vote. In these files the number
 * of a member is its origin (join.h). */
#ifndef TCP_REGROUP_H
#define TCP_REGROUP_H

#include "tcp/join.h"

/* Longest wait for an incoming connection before messages are read again. */
#define TCP_LISTEN_NS UINT64_C(5000000)
/* Interval between two messages STATE of this member, and shortest time between two attempts to
 * connect to one member. */
#define TCP_INTERVAL_NS UINT64_C(100000000)

/* Another member, as this member sees it during the vote. */
typedef struct voter {
    size_t got; /* number of bytes of `in` received */
    struct {
        ls_tcp_message message;
        uint8_t tag[TCP_TAG];
    } in;             /* message that is being received */
    uint64_t next_ns; /* earliest time of the next attempt to connect to the member */
    /* time at which the member's newest message was received, or at which it was connected */
    uint64_t heard_ns;
    ls_tcp_link call;       /* an attempt to connect to the member; fd −1: none */
    uint64_t call_until_ns; /* time limit for that connection, without its handshake */
    bool greets;            /* the connection is made, and `greeting` is in progress */
    ls_tcp_greeting greeting;
    bool refused;   /* the member has delayed the vote: its connections are refused */
    uint64_t ready; /* newest host group of which the member is connected to all members */
} voter;

struct regrouping {
    joining *j;
    ls_tcp_vote *vote;
    ls_tcp_wire
        *old; /* the transport of the previous host group; NULL: this process is a newcomer */
    ls_tcp_set before;      /* members of the previous host group */
    voter *voter;           /* [vote->members] */
    uint64_t grace_ns;      /* grace time */
    uint64_t end_ns;        /* time at which the whole regrouping fails if it is not complete */
    uint64_t first_call_ns; /* time from which on this member connects to others */
    /* Until this time the vote waits for members that are neither connected nor suspected. */
    uint64_t settle_until_ns;
    /* time of the last sign that the vote comes on: a change of the set of connected members or of
     * the vote's state, or the answer of a member to which this one connects */
    uint64_t changed_ns;
    uint64_t sent_ns;  /* time at which this member last sent its message STATE to all */
    uint64_t began_ns; /* time at which the vote began */
    bool news;         /* the links of this member have changed since sent_ns */
    ls_tcp_set met;    /* members that had a link to this member in any vote of the regrouping */
};

/* Time limits of one vote (ls_now_ns). */
typedef struct ls_tcp_limits {
    uint64_t settle_ns; /* end of the wait for members that are neither connected nor suspected */
    uint64_t until_ns;  /* end of the vote */
} ls_tcp_limits;

/* Returns the time limits of a vote that begins at the time `now`. `formed_ns`: time at which this
 * member formed its host group, or 0; `grace_ns`: grace time; `end_ns`: end of the regrouping. */
ls_tcp_limits ls_tcp_limits_of_vote(uint64_t now, uint64_t formed_ns, uint64_t grace_ns,
                                    uint64_t end_ns);

/* ---- voters.c -------------------------------------------------------------------------------- */

/* Sends a message of the vote to the connected members of the set; NULL: to all connected members.
 * Closes a connection over which the message cannot be sent in time. */
void ls_tcp_send_to_voters(regrouping *m, const ls_tcp_set *to, ls_tcp_message *message);
/* Sends this member's message STATE to all connected members. */
void ls_tcp_send_state(regrouping *m);
/* Connects to the members to which this member is to connect, as far as that is possible without
 * waiting. */
void ls_tcp_call_voters(regrouping *m);
/* Waits for an incoming connection, TCP_LISTEN_NS at most, and uses it. */
void ls_tcp_accept_voter(regrouping *m);
/* Reads and processes the messages that a member has sent. Does not wait. */
void ls_tcp_receive_from_voter(regrouping *m, int who);
/* Closes the vote's connection to a member, if there is one. */
void ls_tcp_disconnect_voter(regrouping *m, int who);
/* Closes all connections of the vote, and ends all attempts to connect. */
void ls_tcp_disconnect_voters(regrouping *m);

#endif
