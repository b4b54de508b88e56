/* The wire over TCP: the inside of ls_wire_tcp (<lockstep/cluster.h>). Every two members have one
 * connection for each channel, a *line*, so that what waits on one channel holds up no other. */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include <lockstep/cluster.h>
#include <stdbool.h>
#include <stdint.h>

/* First in, first out; grows. */
typedef struct tcp_queue {
    ls_transfer **item;
    unsigned first, count, room; /* room is a power of two */
} tcp_queue;

typedef struct tcp_line {
    int fd; /* −1: this member's own, which has none */
    bool broken;
    tcp_queue out, in;
    /* Of the first of each: bytes that have gone, or come, its head included. */
    size_t sent, got;
    uint8_t head_out[8], head_in[8];
} tcp_line;

struct joining;

typedef struct tcp_wire {
    ls_wire base;
    struct joining *meeting; /* what a later one needs; NULL: there will be none */
    tcp_line *line;          /* [members][LS_WIRE_CHANNELS] */
    struct pollfd *watch;    /* as many */
    uint64_t door_ns;        /* its door is looked at again */
    tcp_queue ended;
    ls_error broken; /* the first line that broke, until what had ended before has been named */
} tcp_wire;

static inline tcp_line *tcp_line_of(const tcp_wire *w, int member, int channel)
{
    return &w->line[member * LS_WIRE_CHANNELS + channel];
}

/* Lines for `members`, without connections. Errors: LS_ENOMEM. */
int tcp_make_lines(tcp_wire *w, int members, ls_error *err);

/* Closes what there is of lines and connections, and frees the wire. */
void tcp_free(tcp_wire *w);

/* Meets the others at the place, and connects to all of them: fills the wire's numbers and lines, with sockets
 * that never block; with `again`, in such a way that who is left can meet anew. Errors: LS_EINVAL, LS_ESYSTEM,
 * LS_ETIMEDOUT, LS_ENOMEM; what was made is in the wire. */
int tcp_join(tcp_wire *w, const ls_tcp_place *place, bool again, ls_error *err);
void tcp_forget_meeting(struct joining *meeting); /* NULL is allowed */

/* Between two meetings hangs up on who waits at the door, before strangers crowd it; members call again. */
void tcp_clear_door(struct joining *meeting);

/* The slot `regroup`, but for the table that *out is of. */
int tcp_regroup(tcp_wire **out, tcp_wire *old, const ls_regroup *how, ls_error *err);

#endif
