#define _GNU_SOURCE /* ppoll */
/* Transfers over TCP. A message is its length, in eight bytes, and its bytes. Nothing here waits but poll. */
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "tcp/join.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    HEAD = 8,
    QUEUE = 16,
    TURN = 1 << 20 /* bytes of one line before the next has its turn */
};
#define LONGEST_NS 1000000000u
#define DOOR_NS 1000000000u  /* from one look at the door to the next */
#define DRAIN_NS 2000000000u /* the longest wait for the others' end */

/* ---- queues --------------------------------------------------------------------------------- */

static int push(tcp_queue *q, ls_transfer *t, ls_error *err)
{
    if (q->count == q->room) { /* on the way up; a step has as many transfers as the last one */
        const unsigned room = q->room ? 2 * q->room : QUEUE;
        ls_transfer **item = ls_alloc_array(NULL, room, sizeof(ls_transfer *));
        if (!item)
            return ls_fail(err, LS_ENOMEM, "out of memory for %u messages", room);
        for (unsigned i = 0; i < q->count; i++)
            item[i] = q->item[(q->first + i) & (q->room - 1)];
        ls_free(NULL, q->item);
        q->item = item;
        q->room = room;
        q->first = 0;
    }
    q->item[(q->first + q->count++) & (q->room - 1)] = t;
    return LS_OK;
}

static ls_transfer *pop(tcp_queue *q)
{
    ls_transfer *t = q->item[q->first];
    q->first = (q->first + 1) & (q->room - 1);
    q->count--;
    return t;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void put_length(uint8_t head[HEAD], uint64_t bytes)
{
    for (int i = 0; i < HEAD; i++)
        head[i] = (uint8_t)(bytes >> (8 * i));
}

static uint64_t get_length(const uint8_t head[HEAD])
{
    uint64_t bytes = 0;
    for (int i = 0; i < HEAD; i++)
        bytes |= (uint64_t)head[i] << (8 * i);
    return bytes;
}

/* What is left of a head and its message, from byte `done` on. */
static int parts_of(struct iovec part[2], uint8_t *head, const ls_transfer *t, size_t done)
{
    int count = 0;
    if (done < HEAD)
        part[count++] = (struct iovec){head + done, HEAD - done};
    const size_t body = done < HEAD ? 0 : done - HEAD;
    if (t->bytes > body)
        part[count++] = (struct iovec){(char *)t->data + body, t->bytes - body};
    return count;
}

static int fail_line(const ls_transfer *t, int error, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO, "the connection to member %d broke: %s", t->peer,
                   error ? ls_reason(why, error) : "it was closed there");
}

/* As much of the first message as the connection takes. *moved: bytes; 0: it takes none now. */
static int send_some(tcp_line *line, size_t *moved, ls_error *err)
{
    const ls_transfer *t = line->out.item[line->out.first];
    struct iovec part[2];
    put_length(line->head_out, t->bytes);
    struct msghdr message = {.msg_iov = part};
    message.msg_iovlen = (size_t)parts_of(part, line->head_out, t, line->sent);
    ssize_t n;
    do
        n = sendmsg(line->fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    *moved = n > 0 ? (size_t)n : 0;
    return n >= 0 || errno == EAGAIN ? LS_OK : fail_line(t, errno, err);
}

static int receive_some(tcp_line *line, size_t *moved, ls_error *err)
{
    const ls_transfer *t = line->in.item[line->in.first];
    struct iovec part[2];
    struct msghdr message = {.msg_iov = part};
    message.msg_iovlen = (size_t)parts_of(part, line->head_in, t, line->got);
    ssize_t n;
    do
        n = recvmsg(line->fd, &message, 0);
    while (n < 0 && errno == EINTR);
    *moved = n > 0 ? (size_t)n : 0;
    if (n == 0 || (n < 0 && errno != EAGAIN))
        return fail_line(t, n < 0 ? errno : 0, err);
    if (line->got < HEAD && line->got + *moved >= HEAD && get_length(line->head_in) != t->bytes)
        return ls_fail(err, LS_EDATA,
                       "member %d sent a message of %llu bytes where %zu were expected", t->peer,
                       (unsigned long long)get_length(line->head_in), t->bytes);
    return LS_OK;
}

/* One direction of a line, until it stops or has had its turn. */
static int go_on(tcp_wire *w, tcp_line *line, tcp_queue *q, size_t *done,
                 int (*some)(tcp_line *, size_t *, ls_error *), ls_error *err)
{
    size_t moved = 1;
    for (size_t turn = 0;
         q->count > 0 && moved > 0 && turn < TURN && w->ended_count < w->ended_most;
         turn += moved) {
        int status = some(line, &moved, err);
        if (status)
            return status;
        *done += moved;
        if (*done < HEAD + q->item[q->first]->bytes)
            continue;
        *done = 0;
        w->ended[w->ended_count++] = pop(q);
    }
    return LS_OK;
}

static int lines_of(const tcp_wire *w)
{
    return w->base.members * LS_WIRE_CHANNELS;
}

/* A line that breaks keeps none of the others from going on: on one of them may stand why. */
static void go_on_all(tcp_wire *w)
{
    for (int i = 0; i < lines_of(w); i++) {
        tcp_line *line = &w->line[i];
        ls_error why = {0};
        if (line->broken)
            continue;
        int status = go_on(w, line, &line->out, &line->sent, send_some, &why);
        const int other = go_on(w, line, &line->in, &line->got, receive_some, status ? NULL : &why);
        status = status ? status : other;
        line->broken = status != LS_OK;
        if (status && !w->broken.status)
            w->broken = why;
    }
}

static void wait_for_lines(tcp_wire *w, uint64_t ns)
{
    const uint64_t most = ns < LONGEST_NS ? ns : LONGEST_NS;
    const struct timespec limit = {.tv_sec = (time_t)(most / 1000000000u),
                                   .tv_nsec = (long)(most % 1000000000u)};
    unsigned count = 0;
    for (int i = 0; i < lines_of(w); i++) {
        const tcp_line *line = &w->line[i];
        const short events =
            (short)((line->in.count > 0 ? POLLIN : 0) | (line->out.count > 0 ? POLLOUT : 0));
        if (events && !line->broken)
            w->watch[count++] = (struct pollfd){.fd = line->fd, .events = events};
    }
    ppoll(w->watch, count, &limit, NULL); /* whatever ends it, the lines are looked at again */
}

/* ---- the table ------------------------------------------------------------------------------ */

static int post_tcp(ls_wire *base, ls_transfer *t, ls_error *err)
{
    tcp_wire *w = (tcp_wire *)base;
    tcp_line *line = tcp_line_of(w, t->peer, t->channel);
    return push(t->incoming ? &line->in : &line->out, t, err);
}

static void mind_door(tcp_wire *w, uint64_t now)
{
    if (!w->meeting || now < w->door_ns)
        return;
    tcp_clear_door(w->meeting);
    w->door_ns = now + DOOR_NS;
}

static int poll_tcp(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns,
                    ls_error *err)
{
    tcp_wire *w = (tcp_wire *)base;
    const uint64_t until = ls_deadline_ns(timeout_ns);
    w->ended = ended;
    w->ended_count = 0;
    w->ended_most = most;
    for (;;) {
        go_on_all(w);
        const uint64_t now = ls_now_ns();
        mind_door(w, now);
        if (w->ended_count > 0)
            break;
        if (w->broken.status) { /* once; the other lines go on in later polls */
            const ls_error why = w->broken;
            w->broken.status = LS_OK;
            return ls_fail(err, why.status, "%s", why.text);
        }
        if (now >= until)
            break;
        wait_for_lines(w, until - now);
    }
    return w->ended_count;
}

/* Everything has been said; what is still on its way must not be cut off by a close on this side. */
static void close_tcp(ls_wire *base)
{
    tcp_wire *w = (tcp_wire *)base;
    const uint64_t until = ls_deadline_ns(DRAIN_NS);
    char rest[256];
    for (int i = 0; i < lines_of(w); i++)
        if (w->line[i].fd >= 0)
            shutdown(w->line[i].fd, SHUT_WR);
    for (int i = 0; i < lines_of(w); i++) {
        struct pollfd watch = {.fd = w->line[i].fd, .events = POLLIN};
        ssize_t n = watch.fd >= 0;
        for (uint64_t now; n > 0 && (now = ls_now_ns()) < until;)
            n = poll(&watch, 1, (int)((until - now) / 1000000u) + 1) == 1
                    ? recv(watch.fd, rest, sizeof rest, 0)
                    : 1;
    }
    tcp_free(w);
}

/* The system keeps what was handed to it, and touches nothing of the transfers'. */
static int abort_tcp(ls_wire *base)
{
    tcp_free((tcp_wire *)base);
    return 0;
}

int tcp_make_lines(tcp_wire *w, int members, ls_error *err)
{
    const size_t count = (size_t)members * LS_WIRE_CHANNELS;
    w->line = ls_alloc_array(NULL, count, sizeof *w->line);
    w->watch = ls_alloc_array(NULL, count, sizeof *w->watch);
    if (!w->line)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu connections", count);
    for (size_t i = 0; i < count; i++)
        w->line[i].fd = -1;
    w->base.members = members;
    return w->watch ? LS_OK : ls_fail(err, LS_ENOMEM, "out of memory for %zu connections", count);
}

void tcp_free(tcp_wire *w)
{
    for (int i = 0; w->line && i < lines_of(w); i++) {
        if (w->line[i].fd >= 0)
            close(w->line[i].fd);
        ls_free(NULL, w->line[i].out.item);
        ls_free(NULL, w->line[i].in.item);
    }
    tcp_forget_meeting(w->meeting);
    ls_free(NULL, w->watch);
    ls_free(NULL, w->line);
    ls_free(NULL, w);
}

static int open_tcp(ls_wire **out, const ls_wire_options *options, ls_error *err);
static int regroup_tcp(ls_wire **out, ls_wire *old, const ls_regroup *how, ls_error *err);

static const ls_wire_type wire_tcp = {.abi = LS_WIRE_ABI,
                                      .size = sizeof(ls_wire_type),
                                      .name = "tcp",
                                      .open = open_tcp,
                                      .post = post_tcp,
                                      .poll = poll_tcp,
                                      .close = close_tcp,
                                      .abort = abort_tcp,
                                      .regroup = regroup_tcp};

static int regroup_tcp(ls_wire **out, ls_wire *old, const ls_regroup *how, ls_error *err)
{
    tcp_wire *w = NULL;
    int status = tcp_regroup(&w, (tcp_wire *)old, how, err);
    if (status == LS_OK)
        w->base.type = &wire_tcp;
    *out = status ? NULL : &w->base;
    return status;
}

static int open_tcp(ls_wire **out, const ls_wire_options *options, ls_error *err)
{
    const ls_tcp_place *place = options->comm;
    *out = NULL;
    if (!place || place->size != sizeof *place)
        return ls_fail(err, LS_EINVAL, "the engine tcp needs an ls_tcp_place as options.comm");
    tcp_wire *w = ls_alloc(NULL, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for a wire");
    w->base.type = &wire_tcp;
    int status = tcp_join(w, place, options->regroups != 0, err);
    if (status)
        tcp_free(w);
    else
        *out = &w->base;
    return status;
}

const ls_wire_type *ls_wire_tcp(void)
{
    return &wire_tcp;
}
