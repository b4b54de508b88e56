#define _GNU_SOURCE /* for ppoll */
/* Transfers over TCP. A *line* is the connection to another member for one channel. A message
 * consists of a header, which is the length of the data in bytes as a uint64_t, and the data. Only
 * tcp_poll and tcp_drain wait. */
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
    HEAD = sizeof(uint64_t), /* bytes of a message's header */
    QUEUE = 16,              /* initial capacity of a queue */
    /* most bytes that one direction of a connection moves before the next direction is served */
    TURN = 1 << 20
};
#define LONGEST_NS 1000000000u  /* longest wait in one call of ppoll */
#define LISTENER_NS 1000000000u /* interval at which tcp_poll serves the listener */
#define ADMITS_NS 100000000u    /* interval for the listener in a run that admits newcomers */
#define BUSY_NS 10000000u       /* interval for the listener while a handshake is in progress */
#define DRAIN_NS 2000000000u    /* longest wait of tcp_drain for the other members */

/* ---- queues --------------------------------------------------------------------------------- */

static int push(tcp_queue *q, ls_transfer *t, ls_error *err)
{
    /* The queue grows only in the first steps, because all steps post the same number of
     * transfers. */
    if (q->count == q->room) {
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

/* ---- connections ----------------------------------------------------------------------------- */

static ls_transfer *first_of(const tcp_queue *q)
{
    return q->item[q->first];
}

/* Lists the parts of the queue's first transfer that have not been moved yet: the rest of the
 * header and the rest of the data. Returns the number of parts. */
static size_t parts_of(struct iovec part[2], tcp_flow *flow)
{
    const ls_transfer *t = first_of(&flow->queue);
    size_t count = 0;
    if (flow->done < HEAD)
        part[count++] = (struct iovec){(char *)&flow->head + flow->done, HEAD - flow->done};
    const size_t body = flow->done < HEAD ? 0 : flow->done - HEAD;
    if (t->bytes > body)
        part[count++] = (struct iovec){(char *)t->data + body, t->bytes - body};
    return count;
}

static int fail_line(const tcp_wire *w, const ls_transfer *t, int error, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO, "the connection to host %s broke: %s", w->host[t->peer],
                   error ? ls_reason(why, error) : "it was closed there");
}

/* Checks a received header: the message must be as long as the posted receive. */
static int check_head(const tcp_wire *w, const tcp_flow *flow, const ls_transfer *t, ls_error *err)
{
    return flow->head == t->bytes
               ? LS_OK
               : ls_fail(err, LS_EDATA,
                         "host %s sent a message of %llu bytes where %zu were expected",
                         w->host[t->peer], (unsigned long long)flow->head, t->bytes);
}

/* Sends or receives as much of the first transfer as the connection allows. Sets *moved to the
 * number of bytes moved; 0 if the socket would block. Errors: LS_EIO (the connection broke),
 * LS_EDATA (check_head). */
static int move_some(const tcp_wire *w, tcp_line *line, tcp_flow *flow, size_t *moved,
                     ls_error *err)
{
    const ls_transfer *t = first_of(&flow->queue);
    const bool out = !t->incoming;
    struct iovec part[2];
    struct msghdr message = {.msg_iov = part};
    if (out)
        flow->head = t->bytes;
    message.msg_iovlen = parts_of(part, flow);
    ssize_t n;
    do
        n = out ? sendmsg(line->fd, &message, MSG_NOSIGNAL) : recvmsg(line->fd, &message, 0);
    while (n < 0 && errno == EINTR);
    *moved = n > 0 ? (size_t)n : 0;
    if ((n == 0 && !out) || (n < 0 && errno != EAGAIN))
        return fail_line(w, t, n < 0 ? errno : 0, err);
    return !out && flow->done < HEAD && flow->done + *moved >= HEAD ? check_head(w, flow, t, err)
                                                                    : LS_OK;
}

/* Moves transfers in one direction of a connection until the socket would block, TURN bytes have
 * been moved, or the output array of tcp_poll is full. */
static int move_transfers(tcp_wire *w, tcp_line *line, tcp_flow *flow, ls_error *err)
{
    size_t moved = 1;
    for (size_t turn = 0;
         flow->queue.count > 0 && moved > 0 && turn < TURN && w->ended_count < w->ended_most;
         turn += moved) {
        int status = move_some(w, line, flow, &moved, err);
        if (status)
            return status;
        flow->done += moved;
        if (flow->done < HEAD + first_of(&flow->queue)->bytes)
            continue;
        flow->done = 0;
        w->ended[w->ended_count++] = pop(&flow->queue);
    }
    return LS_OK;
}

static int lines_of(const tcp_wire *w)
{
    return w->base.members * LS_WIRE_CHANNELS;
}

/* Moves transfers on all connections. A broken connection does not stop the other connections,
 * because another connection can carry a message with the reason. */
static void move_all_transfers(tcp_wire *w)
{
    for (int i = 0; i < lines_of(w); i++) {
        tcp_line *line = &w->line[i];
        ls_error why = {0};
        if (line->broken)
            continue;
        int status = move_transfers(w, line, &line->out, &why);
        const int other = move_transfers(w, line, &line->in, status ? NULL : &why);
        status = status ? status : other;
        line->broken = status != LS_OK;
        if (status && !w->broken.status)
            w->broken = why;
    }
}

/* Waits until a connection with pending transfers is ready, `ns` nanoseconds at most. */
static void wait_for_lines(tcp_wire *w, uint64_t ns)
{
    const uint64_t most = ns < LONGEST_NS ? ns : LONGEST_NS;
    const struct timespec limit = {.tv_sec = (time_t)(most / 1000000000u),
                                   .tv_nsec = (long)(most % 1000000000u)};
    unsigned count = 0;
    for (int i = 0; i < lines_of(w); i++) {
        const tcp_line *line = &w->line[i];
        const short events = (short)((line->in.queue.count > 0 ? POLLIN : 0) |
                                     (line->out.queue.count > 0 ? POLLOUT : 0));
        if (events && !line->broken)
            w->watch[count++] = (struct pollfd){.fd = line->fd, .events = events};
    }
    /* The result is not needed: all connections are tried again in any case. */
    ppoll(w->watch, count, &limit, NULL);
}

/* ---- transfers ------------------------------------------------------------------------------ */

int tcp_post(ls_wire *base, ls_transfer *t, ls_error *err)
{
    tcp_wire *w = (tcp_wire *)base;
    tcp_line *line = tcp_line_of(w, t->peer, t->channel);
    return push(t->incoming ? &line->in.queue : &line->out.queue, t, err);
}

/* Serves the listener if its time has come. */
static void serve_listener(tcp_wire *w, uint64_t now)
{
    if (!w->rendezvous || now < w->listener_ns)
        return;
    const uint64_t idle_ns = w->rendezvous->options.admits ? ADMITS_NS : LISTENER_NS;
    w->listener_ns = now + (tcp_answer_late(w->rendezvous) ? BUSY_NS : idle_ns);
}

int tcp_poll(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err)
{
    tcp_wire *w = (tcp_wire *)base;
    const uint64_t until = ls_deadline_ns(timeout_ns);
    w->ended = ended;
    w->ended_count = 0;
    w->ended_most = most;
    for (;;) {
        move_all_transfers(w);
        const uint64_t now = ls_now_ns();
        serve_listener(w, now);
        if (w->ended_count > 0)
            break;
        if (w->broken.status) { /* returned once; later calls serve the other connections */
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

void tcp_drain(tcp_wire *w)
{
    const uint64_t until = ls_deadline_ns(DRAIN_NS);
    char rest[256];
    for (int i = 0; i < lines_of(w); i++)
        if (w->line[i].fd >= 0)
            shutdown(w->line[i].fd, SHUT_WR);
    for (int i = 0; i < lines_of(w); i++)
        while (w->line[i].fd >= 0 && tcp_ready(w->line[i].fd, POLLIN, until) &&
               recv(w->line[i].fd, rest, sizeof rest, 0) > 0)
            ;
}

/* ---- creating and freeing -------------------------------------------------------------------- */

int tcp_make_lines(tcp_wire *w, int members, ls_error *err)
{
    const size_t count = (size_t)members * LS_WIRE_CHANNELS;
    w->line = ls_alloc_array(NULL, count, sizeof *w->line);
    w->watch = ls_alloc_array(NULL, count, sizeof *w->watch);
    w->host = ls_alloc_array(NULL, (size_t)members, sizeof *w->host);
    /* base.members is still 0 here. Therefore tcp_free closes no connection after this error. */
    if (!w->line || !w->watch || !w->host)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu connections", count);
    for (size_t i = 0; i < count; i++)
        w->line[i].fd = -1;
    w->base.members = members;
    return LS_OK;
}

void tcp_free_lines(tcp_wire *w)
{
    for (int i = 0; w->line && i < lines_of(w); i++) {
        if (w->line[i].fd >= 0)
            close(w->line[i].fd);
        ls_free(NULL, w->line[i].out.queue.item);
        ls_free(NULL, w->line[i].in.queue.item);
    }
    ls_free(NULL, w->watch);
    ls_free(NULL, w->host);
    ls_free(NULL, w->line);
    ls_free(NULL, w->place);
}

void tcp_free(tcp_wire *w)
{
    tcp_free_lines(w);
    ls_free(NULL, w);
}
