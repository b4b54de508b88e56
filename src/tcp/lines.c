/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* for ppoll */
/* Transfers over TCP. A message consists of two sealed messages (seal.h): a header, which is the
 * length of the data in bytes as a uint64_t, and the data. The data are sent from, and received
 * into, the memory of the transfer. The tags are computed piece by piece meanwhile. A received
 * transfer ends only when both of its tags match. Only ls_tcp_poll and ls_tcp_drain wait. */
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
    HEAD = sizeof(ls_tcp_head), /* bytes of a message's header */
    QUEUE = 16,                 /* initial capacity of a queue */
    AHEAD = 1 << 17, /* most data whose tag is computed before they are sent: they stay cached */
    /* most bytes that one direction of a connection moves before the next direction is served */
    TURN = 1 << 20
};
#define LONGEST_NS 1000000000u  /* longest wait in one call of ppoll */
#define LISTENER_NS 1000000000u /* interval at which ls_tcp_poll serves the listener */
#define ADMITS_NS 100000000u    /* interval for the listener in a run that admits newcomers */
#define BUSY_NS 10000000u       /* interval for the listener while a handshake is in progress */
#define DRAIN_NS 2000000000u    /* longest wait of ls_tcp_drain for the other members */

/* ---- queues --------------------------------------------------------------------------------- */

static int push(ls_tcp_queue *q, ls_transfer *t, ls_error *err)
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

static ls_transfer *pop(ls_tcp_queue *q)
{
    ls_transfer *t = q->item[q->first];
    q->first = (q->first + 1) & (q->room - 1);
    q->count--;
    return t;
}

/* ---- connections ----------------------------------------------------------------------------- */

static ls_transfer *first_of(const ls_tcp_queue *q)
{
    return q->item[q->first];
}

/* Number of bytes that are sent for a transfer: header, data and tag of the data. */
static size_t whole_of(const ls_transfer *t)
{
    return HEAD + t->bytes + TCP_TAG;
}

/* Returns how many bytes of the data have been moved, if `done` bytes of the transfer have been. */
static size_t data_of(const ls_transfer *t, size_t done)
{
    const size_t body = done > HEAD ? done - HEAD : 0;
    return body < t->bytes ? body : t->bytes;
}

/* Lists the parts of the queue's first transfer that can be moved now: the rest of the header, the
 * data from the first byte that has not been moved up to `until`, and, if all data can be moved,
 * the rest of the tag. Returns the number of parts. */
static size_t parts_of(struct iovec part[3], ls_tcp_flow *flow, size_t until)
{
    const ls_transfer *t = first_of(&flow->queue);
    const size_t done = flow->done, body = data_of(t, done);
    size_t count = 0;
    if (done < HEAD)
        part[count++] = (struct iovec){(char *)&flow->head + done, HEAD - done};
    if (until > body)
        part[count++] = (struct iovec){(char *)t->data + body, until - body};
    if (until == t->bytes) {
        const size_t tag = done > HEAD + t->bytes ? done - HEAD - t->bytes : 0;
        part[count++] = (struct iovec){flow->tag + tag, TCP_TAG - tag};
    }
    return count;
}

static int fail_line(const ls_tcp_wire *w, const ls_transfer *t, int error, ls_error *err)
{
    char why[LS_REASON];
    return ls_fail(err, LS_EIO, "the connection to host %s broke: %s", w->host[t->peer],
                   error ? ls_reason(why, error) : "it was closed there");
}

/* Ends receiving, because a tag does not match. Nothing of the message is used. */
static int fail_changed(const ls_tcp_wire *w, ls_tcp_line *line, const ls_transfer *t,
                        ls_error *err)
{
    line->deaf = true;
    return ls_fail(err, LS_EIO, "from host %s to host %s %s", w->host[t->peer],
                   w->host[w->base.member], ls_tcp_changed);
}

/* ---- sending and receiving ------------------------------------------------------------------- */

/* Makes the tag of the data cover the first `until` bytes. */
static void cover(ls_tcp_flow *flow, const ls_transfer *t, size_t until)
{
    if (until > flow->covered)
        ls_mac_update(&flow->mac, (const char *)t->data + flow->covered, until - flow->covered);
    flow->covered = until;
}

/* Seals the header of the first transfer, and begins the tag of its data. */
static void begin_sending(ls_tcp_line *line)
{
    ls_tcp_flow *flow = &line->out;
    flow->head.bytes = first_of(&flow->queue)->bytes;
    ls_mac_begin(&flow->mac, line->link.out.number++);
    ls_mac_update(&flow->mac, &flow->head.bytes, sizeof flow->head.bytes);
    ls_mac_end(&flow->mac, flow->head.tag);
    ls_mac_begin(&flow->mac, line->link.out.number++);
    flow->covered = 0;
    flow->sealed = false;
    flow->begun = true;
}

/* Sends as much of the first transfer as the connection takes, but AHEAD bytes of data at most.
 * Returns the result of sendmsg. The tag covers data before they are sent, so that the tag goes out
 * together with the last data. */
static ssize_t send_some(ls_tcp_line *line)
{
    ls_tcp_flow *flow = &line->out;
    const ls_transfer *t = first_of(&flow->queue);
    struct iovec part[3];
    if (!flow->begun)
        begin_sending(line);
    const size_t sent = data_of(t, flow->done), left = t->bytes - sent;
    const size_t until = left > AHEAD ? sent + AHEAD : t->bytes;
    cover(flow, t, until);
    if (until == t->bytes && !flow->sealed) {
        ls_mac_end(&flow->mac, flow->tag);
        flow->sealed = true;
    }
    const struct msghdr message = {.msg_iov = part, .msg_iovlen = parts_of(part, flow, until)};
    return sendmsg(line->link.fd, &message, MSG_NOSIGNAL | (flow->sealed ? 0 : MSG_MORE));
}

/* Checks a received header, and begins the tag of the data: the message must be as long as the
 * posted receive. */
static int check_head(const ls_tcp_wire *w, ls_tcp_line *line, const ls_transfer *t, ls_error *err)
{
    ls_tcp_flow *flow = &line->in;
    uint8_t tag[TCP_TAG];
    ls_mac_begin(&flow->mac, line->link.in.number++);
    ls_mac_update(&flow->mac, &flow->head.bytes, sizeof flow->head.bytes);
    ls_mac_end(&flow->mac, tag);
    if (!ls_equal_secrets(tag, flow->head.tag, TCP_TAG))
        return fail_changed(w, line, t, err);
    ls_mac_begin(&flow->mac, line->link.in.number++);
    flow->covered = 0;
    return flow->head.bytes == t->bytes
               ? LS_OK
               : ls_fail(err, LS_EDATA,
                         "host %s sent a message of %llu bytes where %zu were expected",
                         w->host[t->peer], (unsigned long long)flow->head.bytes, t->bytes);
}

/* Checks what has been received of the first transfer, `done` bytes in all: the header, and the tag
 * of the data when everything has arrived. */
static int check_received(const ls_tcp_wire *w, ls_tcp_line *line, size_t done, ls_error *err)
{
    ls_tcp_flow *flow = &line->in;
    const ls_transfer *t = first_of(&flow->queue);
    uint8_t tag[TCP_TAG];
    if (done < HEAD)
        return LS_OK;
    int status = flow->done < HEAD ? check_head(w, line, t, err) : LS_OK;
    if (status)
        return status;
    cover(flow, t, data_of(t, done));
    if (done < whole_of(t))
        return LS_OK;
    ls_mac_end(&flow->mac, tag);
    return ls_equal_secrets(tag, flow->tag, TCP_TAG) ? LS_OK : fail_changed(w, line, t, err);
}

/* Receives as much of the first transfer as has arrived. Data go to the memory of the transfer
 * before they are checked. Nobody reads them there until ls_tcp_poll returns the transfer. */
static ssize_t receive_some(ls_tcp_line *line)
{
    struct iovec part[3];
    struct msghdr message = {.msg_iov = part};
    message.msg_iovlen = parts_of(part, &line->in, first_of(&line->in.queue)->bytes);
    return recvmsg(line->link.fd, &message, 0);
}

/* Sends or receives as much of the first transfer as the connection allows. Sets *moved to the
 * number of bytes moved; 0 if the socket would block. Errors: LS_EIO (the connection broke, or a
 * message was changed), LS_EDATA (check_head). */
static int move_some(const ls_tcp_wire *w, ls_tcp_line *line, bool out, size_t *moved,
                     ls_error *err)
{
    const ls_transfer *t = first_of(out ? &line->out.queue : &line->in.queue);
    ssize_t n;
    do
        n = out ? send_some(line) : receive_some(line);
    while (n < 0 && errno == EINTR);
    *moved = n > 0 ? (size_t)n : 0;
    if ((n == 0 && !out) || (n < 0 && errno != EAGAIN))
        return fail_line(w, t, n < 0 ? errno : 0, err);
    return out ? LS_OK : check_received(w, line, line->in.done + *moved, err);
}

/* Moves transfers in one direction of a connection until the socket would block, TURN bytes have
 * been moved, or the output array of ls_tcp_poll is full. */
static int move_transfers(ls_tcp_wire *w, ls_tcp_line *line, bool out, ls_error *err)
{
    ls_tcp_flow *flow = out ? &line->out : &line->in;
    size_t moved = 1;
    for (size_t turn = 0;
         flow->queue.count > 0 && moved > 0 && turn < TURN && w->ended_count < w->ended_most;
         turn += moved) {
        int status = move_some(w, line, out, &moved, err);
        if (status)
            return status;
        flow->done += moved;
        if (flow->done < whole_of(first_of(&flow->queue)))
            continue;
        flow->done = 0;
        flow->begun = false;
        w->ended[w->ended_count++] = pop(&flow->queue);
    }
    return LS_OK;
}

static int lines_of(const ls_tcp_wire *w)
{
    return w->base.members * LS_TRANSPORT_CHANNELS;
}

/* Moves transfers on all connections. A broken connection does not stop the other connections,
 * because another connection can carry a message with the reason. */
static void move_all_transfers(ls_tcp_wire *w)
{
    for (int i = 0; i < lines_of(w); i++) {
        ls_tcp_line *line = &w->line[i];
        ls_error why = {0};
        if (line->broken)
            continue;
        int status = move_transfers(w, line, true, &why);
        const int other = line->deaf ? LS_OK : move_transfers(w, line, false, status ? NULL : &why);
        line->broken = status != LS_OK || (other != LS_OK && !line->deaf);
        status = status ? status : other;
        if (status && !w->broken.status) {
            w->broken = why;
            w->base.lost = 1 + i / LS_TRANSPORT_CHANNELS;
        }
    }
}

/* Waits until a connection with pending transfers is ready, `ns` nanoseconds at most. */
static void wait_for_lines(ls_tcp_wire *w, uint64_t ns)
{
    const uint64_t most = ns < LONGEST_NS ? ns : LONGEST_NS;
    const struct timespec limit = {.tv_sec = (time_t)(most / 1000000000u),
                                   .tv_nsec = (long)(most % 1000000000u)};
    unsigned count = 0;
    for (int i = 0; i < lines_of(w); i++) {
        const ls_tcp_line *line = &w->line[i];
        const short events = (short)((line->in.queue.count > 0 && !line->deaf ? POLLIN : 0) |
                                     (line->out.queue.count > 0 ? POLLOUT : 0));
        if (events && !line->broken)
            w->watch[count++] = (struct pollfd){.fd = line->link.fd, .events = events};
    }
    /* The result is not needed: all connections are tried again in any case. */
    ppoll(w->watch, count, &limit, NULL);
}

/* ---- transfers ------------------------------------------------------------------------------ */

int ls_tcp_post(ls_wire *base, ls_transfer *t, ls_error *err)
{
    ls_tcp_wire *w = (ls_tcp_wire *)base;
    ls_tcp_line *line = ls_tcp_line_of(w, t->peer, t->channel);
    return push(t->incoming ? &line->in.queue : &line->out.queue, t, err);
}

/* Serves the listener if its time has come. */
static void serve_listener(ls_tcp_wire *w, uint64_t now)
{
    if (!w->rendezvous || now < w->listener_ns)
        return;
    const uint64_t idle_ns = w->rendezvous->options.admits ? ADMITS_NS : LISTENER_NS;
    w->listener_ns = now + (ls_tcp_answer_late(w->rendezvous) ? BUSY_NS : idle_ns);
}

int ls_tcp_poll(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns, ls_error *err)
{
    ls_tcp_wire *w = (ls_tcp_wire *)base;
    const uint64_t until = ls_deadline_ns(timeout_ns);
    w->ended = ended;
    w->ended_count = 0;
    w->ended_most = most;
    for (;;) {
        move_all_transfers(w);
        /* What a member has sent before it closed this connection can have come after the other
         * connections were served. */
        if (w->broken.status && w->ended_count == 0)
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

void ls_tcp_drain(ls_tcp_wire *w)
{
    const uint64_t until = ls_deadline_ns(DRAIN_NS);
    char rest[256];
    for (int i = 0; i < lines_of(w); i++)
        if (w->line[i].link.fd >= 0)
            shutdown(w->line[i].link.fd, SHUT_WR);
    for (int i = 0; i < lines_of(w); i++)
        while (w->line[i].link.fd >= 0 && ls_tcp_ready(w->line[i].link.fd, POLLIN, until) &&
               recv(w->line[i].link.fd, rest, sizeof rest, 0) > 0)
            ;
}

/* ---- creating and freeing -------------------------------------------------------------------- */

int ls_tcp_make_lines(ls_tcp_wire *w, int members, ls_error *err)
{
    const size_t count = (size_t)members * LS_TRANSPORT_CHANNELS;
    w->line = ls_alloc_array(NULL, count, sizeof *w->line);
    w->watch = ls_alloc_array(NULL, count, sizeof *w->watch);
    w->host = ls_alloc_array(NULL, (size_t)members, sizeof *w->host);
    /* base.members is still 0 here. Therefore ls_tcp_free closes no connection after this error. */
    if (!w->line || !w->watch || !w->host)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu connections", count);
    for (size_t i = 0; i < count; i++)
        w->line[i].link.fd = -1;
    w->base.members = members;
    return LS_OK;
}

void ls_tcp_expand_keys(ls_tcp_wire *w)
{
    for (int i = 0; i < lines_of(w); i++) {
        ls_mac_init(&w->line[i].out.mac, w->line[i].link.out.key);
        ls_mac_init(&w->line[i].in.mac, w->line[i].link.in.key);
    }
}

void ls_tcp_free_lines(ls_tcp_wire *w)
{
    for (int i = 0; w->line && i < lines_of(w); i++) {
        ls_tcp_hang_up_link(&w->line[i].link);
        ls_free(NULL, w->line[i].out.queue.item);
        ls_free(NULL, w->line[i].in.queue.item);
    }
    ls_free(NULL, w->watch);
    ls_free(NULL, w->host);
    ls_free(NULL, w->line);
    ls_free(NULL, w->place);
}

void ls_tcp_free(ls_tcp_wire *w)
{
    ls_tcp_free_lines(w);
    ls_free(NULL, w);
}
