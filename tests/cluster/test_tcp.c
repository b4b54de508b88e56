/* SPDX-License-Identifier: MIT */
/* Tests the transport over TCP. The processes of a run (its members) connect on the loopback
 * interface, while other programs connect to the same ports. A thread of the test stands for each
 * process. */
#define _GNU_SOURCE /* syscall */
#include "base/clock.h"
#include "free_port.h"
#include "runner.h"
#include "tcp/regroup.h"

#include <lockstep/sys/transport.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
enum { MAX_MEMBERS = 5 };

static const char secret[] = "of this run and of no other";

typedef struct member member;
struct member {
    pthread_t thread;
    ls_tcp_place place;
    void (*body)(member *m);
    int regroups, admits;
    ls_wire *wire;
    int status;
    ls_error err;
    uint64_t took_ns;
    atomic_bool ended; /* the thread has ended */
    void *more;
};

static void *run_member(void *arg)
{
    member *m = arg;
    const ls_wire_options o = {
        .size = sizeof o, .place = &m->place, .regroups = m->regroups, .admits = m->admits};
    const uint64_t start = ls_now_ns();
    m->status = ls_transport_tcp()->open(&m->wire, &o, &m->err);
    m->took_ns = ls_now_ns() - start;
    if (m->status == LS_OK && m->body)
        m->body(m);
    atomic_store(&m->ended, true);
    return NULL;
}

static void start(member *m, const char *meet, int members, void (*body)(member *))
{
    *m = (member){.place = {.size = sizeof m->place,
                            .meet = meet,
                            .secret = secret,
                            .secret_bytes = sizeof secret,
                            .members = members,
                            .timeout = 10 * SECOND},
                  .body = body};
}

static void go(member *m)
{
    assert_int_equal(pthread_create(&m->thread, NULL, run_member, m), 0);
}

static const char *some_place(char out[40])
{
    snprintf(out, 40, "127.0.0.1:%d", free_port());
    return out;
}

/* Starts `count` members, each of which runs `body`, and waits until they have ended. */
static void run_all(member *m, int count, void (*body)(member *))
{
    char meet[40];
    some_place(meet);
    for (int i = 0; i < count; i++)
        start(&m[i], meet, count, body);
    for (int i = 0; i < count; i++)
        go(&m[i]);
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_join(m[i].thread, NULL), 0);
}

/* Polls until `count` transfers have ended. Returns LS_OK, or the status of a failed poll. */
static int await(member *m, int count)
{
    ls_transfer *ended[8];
    const uint64_t until = ls_now_ns() + 20 * SECOND;
    while (count > 0 && ls_now_ns() < until) {
        const int n = m->wire->type->poll(m->wire, ended, 8, SECOND / 10, &m->err);
        if (n < 0)
            return n;
        count -= n;
    }
    return count ? LS_ETIMEDOUT : LS_OK;
}

static void post(member *m, ls_transfer *t)
{
    assert_int_equal(m->wire->type->post(m->wire, t, &m->err), LS_OK);
}

/* ---- messages ------------------------------------------------------------------------------- */

static const size_t lengths[] = {3, 0, 70000, 1, 8, 3000000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static uint8_t byte_of(int from, int to, int channel, int which, size_t at)
{
    return (uint8_t)(from * 61 + to * 31 + channel * 17 + which * 7 + (int)(at % 251));
}

/* Sends messages of the first `most` lengths on every channel to each other member, and receives
 * such messages, all at the same time. */
static void exchange_some(member *m, int most)
{
    const int own = m->wire->member, members = m->wire->members;
    const int each = LS_TRANSPORT_CHANNELS * most, count = 2 * each * (members - 1);
    ls_transfer *t = calloc((size_t)count + 1, sizeof *t);
    int used = 0;
    for (int peer = 0; peer < members; peer++)
        for (int i = 0; peer != own && i < 2 * each; i++) {
            const int channel = i / 2 % LS_TRANSPORT_CHANNELS,
                      which = i / 2 / LS_TRANSPORT_CHANNELS;
            uint8_t *data = malloc(lengths[which] + 1);
            t[used] = (ls_transfer){.peer = peer,
                                    .channel = channel,
                                    .incoming = i % 2,
                                    .data = data,
                                    .bytes = lengths[which]};
            for (size_t at = 0; at < lengths[which]; at++)
                data[at] = i % 2 ? 0 : byte_of(own, peer, channel, which, at);
            post(m, &t[used++]);
        }
    m->status = await(m, used);
    for (int i = 0; i < used; i++) {
        const int which = i % (2 * each) / 2 / LS_TRANSPORT_CHANNELS;
        const uint8_t *data = t[i].data;
        for (size_t at = 0; t[i].incoming && at < t[i].bytes; at++)
            if (data[at] != byte_of(t[i].peer, own, t[i].channel, which, at))
                m->status = LS_EDATA;
        free(t[i].data);
    }
    free(t);
    m->wire->type->close(m->wire);
}

static void exchange(member *m)
{
    exchange_some(m, LENGTHS - 1);
}

static void exchange_all(member *m)
{
    exchange_some(m, LENGTHS);
}

static void messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    for (int count = 1; count <= (int)ls_tests_rounds(3, MAX_MEMBERS); count += 2) {
        member m[MAX_MEMBERS];
        run_all(m, count, exchange_all);
        for (int i = 0; i < count; i++)
            assert_int_equal(m[i].status, LS_OK);
    }
}

static void note_number(member *m)
{
    *(int *)m->more += 1 << (4 * m->wire->member);
    m->wire->type->close(m->wire);
}

static void each_member_has_a_number_of_its_own(void **state)
{
    int counts[MAX_MEMBERS] = {0}, sum = 0;
    member m[MAX_MEMBERS];
    char meet[40];
    (void)state;
    some_place(meet);
    for (int i = 0; i < MAX_MEMBERS; i++) {
        start(&m[i], meet, MAX_MEMBERS, note_number);
        m[i].place.timeout = i % 2 ? LS_FOREVER : m[i].place.timeout;
        m[i].more = &counts[i];
        go(&m[i]);
    }
    for (int i = 0; i < MAX_MEMBERS; i++) {
        pthread_join(m[i].thread, NULL);
        sum += counts[i];
    }
    assert_int_equal(sum, 0x11111);
}

/* A message on one channel waits for a receive that is never posted. It must not delay the other
 * channels. */
static void block_one_channel(member *m)
{
    static char large[2][8 << 20];
    char small = 'x';
    const int own = m->wire->member;
    ls_transfer stuck = {.peer = !own, .channel = 0, .data = large[own], .bytes = sizeof *large};
    ls_transfer quick = {.peer = !own, .channel = 3, .incoming = own, .data = &small, .bytes = 1};
    if (own == 0)
        post(m, &stuck);
    post(m, &quick);
    m->status = await(m, 1);
    if (m->status == LS_OK && own == 0) { /* waits until the other member has left */
        while ((m->status = await(m, 1)) == LS_ETIMEDOUT)
            continue;
        m->status = m->status == LS_EIO ? LS_OK : LS_EINTERNAL;
    }
    m->wire->type->abort(m->wire);
}

static void channels_do_not_hold_each_other_up(void **state)
{
    member m[2];
    (void)state;
    run_all(m, 2, block_one_channel);
    assert_int_equal(m[0].status, LS_OK);
    assert_int_equal(m[1].status, LS_OK);
}

/* ---- trouble -------------------------------------------------------------------------------- */

/* Runs `body` on two members. Returns the status that one of them sees. */
static int seen_by_two(void (*body)(member *))
{
    member m[2];
    char meet[40];
    int seen = LS_OK;
    some_place(meet);
    for (int i = 0; i < 2; i++) {
        start(&m[i], meet, 2, body);
        m[i].more = &seen;
        go(&m[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(m[i].thread, NULL);
    return seen;
}

static void send_another_length(member *m)
{
    char data[64] = "";
    const int own = m->wire->member;
    ls_transfer t = {.peer = !own, .incoming = own, .data = data, .bytes = own ? 10 : 20};
    post(m, &t);
    m->status = await(m, 1);
    if (own == 0) { /* stays until the other member has polled */
        ls_transfer wait = {.peer = 1, .channel = 1, .incoming = 1, .data = data, .bytes = 1};
        post(m, &wait);
        await(m, 1);
    } else {
        *(int *)m->more = m->status;
    }
    m->wire->type->abort(m->wire);
}

static void a_message_of_another_length_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(seen_by_two(send_another_length), LS_EDATA);
}

/* The moment at which a thread has found nothing to read on the connection `fd`. The thread waits
 * there until another one has acted. */
static struct {
    atomic_bool come, over;
    int channel;  /* the last word is sent on it */
    bool between; /* the word is sent at the moment; else before its receiver looks at all */
} moment;
static _Thread_local int moment_fd; /* 0: none; the moment comes once */

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);

static bool await_moment(atomic_bool *what)
{
    for (int ms = 0; ms < 20000 && !atomic_load(what); ms++)
        poll(NULL, 0, 1);
    return atomic_load(what);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    const ssize_t n = __real_recvmsg(fd, message, flags);
    if (n < 0 && errno == EAGAIN && moment_fd > 0 && fd == moment_fd) {
        moment_fd = 0;
        atomic_store(&moment.come, true);
        await_moment(&moment.over);
        errno = EAGAIN;
    }
    return n;
}

/* A member sends its reason for leaving on one channel, and then closes the connections of all
 * channels. The other one expects something on another channel too. */
static void leave_with_a_word(member *m)
{
    char word[16] = "disk full", more[4];
    const int own = m->wire->member;
    ls_transfer last = {.peer = !own,
                        .channel = moment.channel,
                        .incoming = own,
                        .data = word,
                        .bytes = sizeof word};
    ls_transfer never = {
        .peer = 0, .channel = 3 - moment.channel, .incoming = 1, .data = more, .bytes = 4};
    if (own == 0) {
        m->status = !moment.between || await_moment(&moment.come) ? LS_OK : LS_ETIMEDOUT;
        post(m, &last);
        await(m, 1);
        m->wire->type->abort(m->wire);
        atomic_store(&moment.over, true);
        return;
    }
    memset(word, 0, sizeof word);
    post(m, &last);
    post(m, &never);
    if (moment.between)
        moment_fd = ls_tcp_line_of((const ls_tcp_wire *)m->wire, 0, 0)->link.fd;
    else
        await_moment(&moment.over);
    m->status = await(m, 1);
    if (m->status == LS_OK)
        m->status = strcmp(word, "disk full") == 0 ? await(m, 1) : LS_EDATA;
    *(int *)m->more = m->status == LS_EIO && word[0] ? LS_OK : LS_EINTERNAL;
    m->wire->type->abort(m->wire);
}

static void check_last_word(int channel, bool between)
{
    atomic_store(&moment.come, false);
    atomic_store(&moment.over, false);
    moment.channel = channel;
    moment.between = between;
    assert_int_equal(seen_by_two(leave_with_a_word), LS_OK);
    assert_true(atomic_load(&moment.over));
    assert_int_equal(atomic_load(&moment.come), between);
}

static void a_last_word_arrives_before_the_end_is_seen(void **state)
{
    (void)state;
    check_last_word(3, false);
}

/* The word is sent while the other member, which has served its connection, is about to serve
 * another one. */
static void a_last_word_between_two_connections_arrives(void **state)
{
    (void)state;
    check_last_word(0, true);
}

/* ---- strangers ------------------------------------------------------------------------------ */

typedef struct stranger {
    pthread_t thread;
    int port;
    bool silent;
} stranger;

/* Connects again and again, sending garbage or nothing, as long as a listener accepts
 * connections. */
static void *be_a_stranger(void *arg)
{
    const stranger *s = arg;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)s->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char garbage[100];
    int held[200], count = 0;
    memset(garbage, 'G', sizeof garbage);
    for (int i = 0; i < 200; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && !s->silent)
            (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
        held[count++] = fd;
        poll(NULL, 0, 2);
    }
    while (count > 0)
        close(held[--count]);
    return NULL;
}

static void strangers_keep_nobody_from_meeting(void **state)
{
    member m[3];
    char meet[40];
    (void)state;
    const char *place = some_place(meet);
    stranger s[2] = {{.port = atoi(strchr(place, ':') + 1)}, {.silent = true}};
    s[1].port = s[0].port;
    for (int i = 0; i < 3; i++)
        start(&m[i], meet, 3, exchange);
    go(&m[0]);
    poll(NULL, 0, 50);
    for (int i = 0; i < 2; i++)
        pthread_create(&s[i].thread, NULL, be_a_stranger, &s[i]);
    poll(NULL, 0, 200); /* by then there are more pending connections than the listener keeps */
    go(&m[1]);
    go(&m[2]);
    for (int i = 0; i < 3; i++) {
        pthread_join(m[i].thread, NULL);
        assert_int_equal(m[i].status, LS_OK);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(s[i].thread, NULL);
}

static void who_does_not_know_the_secret_is_kept_out(void **state)
{
    member m[3];
    char meet[40];
    (void)state;
    some_place(meet);
    for (int i = 0; i < 3; i++)
        start(&m[i], meet, 2, exchange);
    m[2].place.secret = "of another run altogether...";
    go(&m[0]);
    poll(NULL, 0, 100);
    go(&m[2]);
    pthread_join(m[2].thread, NULL);
    assert_int_equal(m[2].status, LS_EUNSUPPORTED);
    assert_non_null(strstr(m[2].err.text, "does not know this run's secret"));
    go(&m[1]);
    for (int i = 0; i < 2; i++) {
        pthread_join(m[i].thread, NULL);
        assert_int_equal(m[i].status, LS_OK);
    }
}

/* A member connects, completes the handshake, and ends before the other members have come. */
static void one_that_came_and_went_is_not_waited_for(void **state)
{
    member m[4];
    char meet[40];
    (void)state;
    some_place(meet);
    for (int i = 0; i < 4; i++)
        start(&m[i], meet, 3, exchange);
    m[3].place.timeout = SECOND / 4;
    go(&m[0]);
    poll(NULL, 0, 50);
    go(&m[3]);
    pthread_join(m[3].thread, NULL);
    assert_int_equal(m[3].status, LS_ETIMEDOUT);
    go(&m[1]);
    go(&m[2]);
    for (int i = 0; i < 3; i++) {
        pthread_join(m[i].thread, NULL);
        assert_int_equal(m[i].status, LS_OK);
    }
}

/* ---- members that do not come --------------------------------------------------------------- */

static void waiting_has_an_end(void **state)
{
    member m;
    char meet[40];
    (void)state;
    start(&m, some_place(meet), 3, NULL);
    m.place.timeout = SECOND / 2;
    run_member(&m);
    assert_int_equal(m.status, LS_ETIMEDOUT);
    assert_non_null(strstr(m.err.text, "1 of 3 hosts have come"));
    assert_true(m.took_ns < 3 * SECOND);
}

static void a_wait_for_ever_is_the_longest_that_poll_knows(void **state)
{
    (void)state;
    assert_int_equal(ls_tcp_milliseconds(0), 1);
    assert_int_equal(ls_tcp_milliseconds(2500000), 3);
    assert_int_equal(ls_tcp_milliseconds(((uint64_t)UINT32_MAX + 8) * 1000000), INT_MAX);
    assert_int_equal(ls_tcp_milliseconds(LS_FOREVER), INT_MAX);
}

/* Another program listens at the port. */
static void another_program_at_the_address_is_named(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char meet[40];
    member m;
    (void)state;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 5), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(meet, sizeof meet, "127.0.0.1:%d", ntohs(at.sin_port));
    start(&m, meet, 2, NULL);
    m.place.timeout = SECOND / 2;
    run_member(&m);
    close(fd);
    assert_int_equal(m.status, LS_EIO); /* that program accepts connections and sends nothing */
    assert_non_null(strstr(m.err.text, "another program"));
}

/* A listener with a full queue, which neither accepts nor refuses connections, behaves like a
 * firewall that drops packets. */
static void an_address_that_swallows_calls_is_given_up(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    char meet[40];
    int caller[8];
    member m;
    (void)state;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    for (int i = 0; i < 8; i++) {
        caller[i] = socket(AF_INET, SOCK_STREAM, 0);
        fcntl(caller[i], F_SETFL, O_NONBLOCK);
        (void)connect(caller[i], (struct sockaddr *)&at, bytes);
    }
    snprintf(meet, sizeof meet, "127.0.0.1:%d", ntohs(at.sin_port));
    start(&m, meet, 2, NULL);
    m.place.timeout = SECOND / 2;
    run_member(&m);
    for (int i = 0; i < 8; i++)
        close(caller[i]);
    close(fd);
    assert_int_equal(m.status, LS_ETIMEDOUT);
    assert_true(m.took_ns < 4 * SECOND);
}

/* A name with an IPv6 and an IPv4 address, as localhost can have. */
static void a_name_with_two_addresses_has_one_first(void **state)
{
    member m[3];
    char meet[40];
    struct addrinfo *known;
    (void)state;
    if (getaddrinfo("localhost", NULL, NULL, &known))
        skip(); /* there is no /etc/hosts */
    freeaddrinfo(known);
    snprintf(meet, sizeof meet, "localhost:%d", free_port());
    for (int i = 0; i < 3; i++) {
        start(&m[i], meet, 3, exchange);
        go(&m[i]);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(m[i].thread, NULL);
        assert_int_equal(m[i].status, LS_OK);
    }
}

/* Member 2 leaves. Member 1 notices it and tells member 0, which goes on. */
static void go_on_with_the_rest(member *m)
{
    char word[8] = "lost", never[4];
    const int own = m->wire->member;
    ls_transfer lost = {.peer = 2, .channel = 0, .incoming = 1, .data = never, .bytes = 4};
    ls_transfer last = {.peer = !own, .channel = 3, .incoming = own == 0, .data = word, .bytes = 8};
    if (own == 1) {
        post(m, &lost);
        m->status = await(m, 1) == LS_EIO ? LS_OK : LS_EINTERNAL;
        m->wire->type->poll(m->wire, (ls_transfer *[1]){NULL}, 1, 0, &m->err);
    }
    if (own < 2) {
        post(m, &last);
        const int heard = await(m, 1);
        m->status = m->status ? m->status : heard;
        *(int *)m->more = m->status;
        poll(NULL, 0, 200); /* the other member reads what was sent before this end closes */
    }
    m->wire->type->abort(m->wire);
}

static void a_line_that_broke_keeps_the_others_from_nothing(void **state)
{
    member m[3];
    int said[3] = {LS_OK, LS_OK, LS_OK};
    char meet[40];
    (void)state;
    some_place(meet);
    for (int i = 0; i < 3; i++) {
        start(&m[i], meet, 3, go_on_with_the_rest);
        m[i].more = &said[i];
        go(&m[i]);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(m[i].thread, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(said[i], LS_OK);
}

/* ---- meeting anew ---------------------------------------------------------------------------- */

typedef struct parting {
    pthread_barrier_t all;
    unsigned killed, cut_off, hidden; /* one bit for each member */
    /* one bit for each member: the member is lost when the next group has been formed and the
     * member has connected to `after` other members */
    unsigned dying;
    int after;
    /* Like a newcomer, the dying member has no connections of an old transport, whose end the
     * others could notice. Member 0 sleeps when the others begin to wait for its proposal. */
    bool unnoticed;
    unsigned busy; /* one bit for each member: the member is short of CPU time until it has voted */
    atomic_int met;   /* number of members that have regrouped */
    uint64_t late_ns; /* delay of the hidden member */
    struct {
        int status, members;
        uint64_t took_ns;
        ls_error err;
    } said[MAX_MEMBERS];
} parting;

static joining *rendezvous_of(ls_wire *wire)
{
    return ((ls_tcp_wire *)wire)->rendezvous;
}

/* Begins a connection that sends nothing. When the function returns, the connection can still wait
 * to be accepted. */
static int knock(const struct sockaddr_in *at)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    assert_true(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 || errno == EINPROGRESS);
    return fd;
}

/* From now on connections to the member are neither accepted nor refused, as if its host had no
 * power. */
static void swallow_calls(int *door, int crowd[8])
{
    struct sockaddr_in at = {0};
    socklen_t bytes = sizeof at;
    const int on = 1;
    assert_int_equal(getsockname(*door, (struct sockaddr *)&at, &bytes), 0);
    close(*door);
    *door = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(*door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(*door, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(*door, 0), 0);
    for (int i = 0; i < 8; i++)
        crowd[i] = knock(&at);
}

/* A member that is lost when it has formed the next group and has connected to some members. */
typedef struct dying_member {
    const ls_tcp_wire *old;
    joining *rendezvous;
    parting *p;
    int others; /* number of remaining members */
} dying_member;

static void end_lines(const ls_tcp_wire *w)
{
    for (int i = 0; i < w->base.members * LS_TRANSPORT_CHANNELS; i++)
        shutdown(w->line[i].link.fd, SHUT_RDWR);
}

/* Ends all connections, as the end of its process would. The descriptors are closed later. */
static void die_when_formed(void *user)
{
    const dying_member *d = user;
    joining *j = d->rendezvous;
    if (j->vote.formed.number == 0 || j->listen_fd < 0 ||
        j->wire->line[d->p->after * LS_TRANSPORT_CHANNELS].link.fd < 0)
        return;
    close(j->listen_fd);
    j->listen_fd = -1;
    for (int i = 0; i < j->vote.members; i++)
        shutdown(j->voting[i].fd, SHUT_RDWR);
    end_lines(j->wire);
    if (!d->p->unnoticed)
        end_lines(d->old);
    for (int i = 0; i < 10000 && atomic_load(&d->p->met) < d->others; i++)
        poll(NULL, 0, 1);
}

#define SLOW_GRACE_NS SECOND /* grace time of a regrouping with `unnoticed` */

/* Sleeps during the second vote. The other members stop waiting for the lost member three grace
 * times after the first group was formed; the sleep begins before this time and ends after it. */
static void sleep_in_second_vote(void *user)
{
    const joining *j = ((const dying_member *)user)->rendezvous;
    const uint64_t formed_ns = j->formed_ns, now = ls_now_ns();
    const uint64_t begin_ns = formed_ns + 5 * SLOW_GRACE_NS / 2, end_ns = begin_ns + SLOW_GRACE_NS;
    if (formed_ns && now >= begin_ns && now < end_ns)
        poll(NULL, 0, (int)((end_ns - now) / 1000000));
}

/* Lets others run for longer than a handshake takes, as often as the member waits in a vote. */
static void nap_in_vote(void *user)
{
    if (((const dying_member *)user)->rendezvous->vote.formed.number == 0)
        poll(NULL, 0, 250);
}

static void meet_anew(member *m, parting *p, int own)
{
    uint8_t lost[MAX_MEMBERS] = {0};
    int origin[MAX_MEMBERS];
    ls_wire *old = m->wire;
    const bool dies = p->dying >> own & 1;
    dying_member dying = {(const ls_tcp_wire *)old, rendezvous_of(old), p,
                          MAX_MEMBERS - __builtin_popcount(p->killed | p->dying)};
    const ls_regroup how = {.size = sizeof how,
                            .lost = lost,
                            .deadline_ns = p->unnoticed ? 2 * SLOW_GRACE_NS
                                           : dies       ? SECOND / 2
                                                        : 10 * SECOND,
                            .alive = dies                       ? die_when_formed
                                     : p->busy >> own & 1       ? nap_in_vote
                                     : p->unnoticed && own == 0 ? sleep_in_second_vote
                                                                : NULL,
                            .user = &dying,
                            .origin = origin};
    const uint64_t begun = ls_now_ns();
    p->said[own].status = old->type->regroup(&m->wire, old, &how, &p->said[own].err);
    p->said[own].took_ns = ls_now_ns() - begun;
    p->said[own].members = p->said[own].status ? 0 : m->wire->members;
    old->type->abort(old);
}

/* Regroups again until no member of the new group is lost. */
static void meet_until_all_live(member *m, parting *p, int own)
{
    const int others = MAX_MEMBERS - __builtin_popcount(p->killed | p->dying);
    do
        meet_anew(m, p, own);
    while (p->dying && !(p->dying >> own & 1) && p->said[own].members > others);
    atomic_fetch_add(&p->met, !(p->dying >> own & 1));
}

static void part_and_meet(member *m)
{
    parting *p = m->more;
    const int own = m->wire->member;
    const bool killed = p->killed >> own & 1, cut_off = p->cut_off >> own & 1;
    int crowd[8];
    pthread_barrier_wait(&p->all);
    if (cut_off)
        swallow_calls(&rendezvous_of(m->wire)->listen_fd, crowd);
    if (p->hidden >> own & 1) {
        close(rendezvous_of(m->wire)->listen_fd);
        rendezvous_of(m->wire)->listen_fd = -1;
    }
    if (killed)
        m->wire->type->abort(m->wire);
    pthread_barrier_wait(&p->all);
    if (p->hidden >> own & 1)
        poll(NULL, 0, (int)(p->late_ns / 1000000));
    if (!killed && !cut_off)
        meet_until_all_live(m, p, own);
    pthread_barrier_wait(&p->all);
    for (int i = 0; cut_off && i < 8; i++)
        close(crowd[i]);
    if (!killed && m->wire)
        m->wire->type->abort(m->wire);
}

/* Checks that all surviving members have regrouped within `within_ns` nanoseconds. */
static void all_others_met(parting *p, int members, uint64_t within_ns)
{
    member m[MAX_MEMBERS];
    char meet[40];
    const unsigned lost = p->killed | p->cut_off | p->dying;
    some_place(meet);
    assert_int_equal(pthread_barrier_init(&p->all, NULL, (unsigned)members), 0);
    for (int i = 0; i < members; i++) {
        start(&m[i], meet, members, part_and_meet);
        m[i].more = p;
        m[i].regroups = 1;
        go(&m[i]);
    }
    for (int i = 0; i < members; i++)
        pthread_join(m[i].thread, NULL);
    pthread_barrier_destroy(&p->all);
    for (int i = 0; i < members; i++) {
        if (lost >> i & 1)
            continue;
        if (p->said[i].status || p->said[i].members != members - __builtin_popcount(lost) ||
            p->said[i].took_ns > within_ns)
            fail_msg("member %d: %d of %d in %.2f s: %s", i, p->said[i].members, members,
                     (double)p->said[i].took_ns * 1e-9, p->said[i].err.text);
    }
}

static void who_is_left_of_a_process_that_was_killed_meets_at_once(void **state)
{
    (void)state;
    for (unsigned victim = 0; victim < 3; victim++) {
        parting p = {.killed = 1u << victim};
        all_others_met(&p, 3, SECOND);
    }
}

/* Members with higher numbers find at once that the member is lost, because they connect to it. The
 * first member waits for the lost member's connections. */
static void another_may_be_lost_while_they_connect(void **state)
{
    (void)state;
    for (unsigned victim = 1; victim < ls_tests_rounds(2, 3); victim++) {
        parting p = {.killed = 16, .dying = 1u << victim};
        all_others_met(&p, 5, 9 * SECOND);
    }
}

/* The last member connects to the others in the sequence of their numbers, and is lost in between.
 * The members to which it has connected continue before the others. */
static void one_may_be_lost_between_two_connections(void **state)
{
    (void)state;
    for (int after = 1; after < (int)ls_tests_rounds(2, 3); after++) {
        parting p = {.killed = 16, .dying = 8, .after = after};
        all_others_met(&p, 5, 9 * SECOND);
    }
}

/* The last member is lost while it connects, and no connection attempt is refused. Therefore the
 * others wait for it until their time limit. Member 0, which has to propose the next group, is slow
 * at that time, but the others have received messages of member 0 during the vote. */
static void the_first_may_be_slow_to_propose(void **state)
{
    (void)state;
    if (ls_tests_rounds(0, 1) == 0)
        skip(); /* it takes long, with time limits that suffice on a busy machine */
    parting p = {.dying = 16, .unnoticed = true};
    all_others_met(&p, 5, 9 * SECOND);
}

/* On a busy machine a member that votes answers late. Nobody takes it for a lost one. */
static void a_busy_member_is_waited_for(void **state)
{
    (void)state;
    parting p = {.busy = 1};
    all_others_met(&p, 2, 9 * SECOND);
}

/* Between the end of the longest wait for members (is_settled in regroup.c) and the end of the vote
 * there is a grace time for the answers to the proposal, also if the last group was formed just
 * now. */
static void a_vote_has_time_after_its_longest_wait(void **state)
{
    const uint64_t now = 1000 * SECOND, grace_ns = 3 * SECOND / 2;
    (void)state;
    for (uint64_t ago = 0; ago < 60; ago++) {
        const uint64_t formed_ns = now - ago * grace_ns / 10;
        const ls_tcp_limits l = ls_tcp_limits_of_vote(now, formed_ns, grace_ns, UINT64_MAX);
        assert_true(l.settle_ns >= now + grace_ns);
        assert_true(l.until_ns >= l.settle_ns + 2 * grace_ns);
        assert_true(ls_tcp_limits_of_vote(now, formed_ns, grace_ns, now + 1).until_ns == now + 1);
    }
}

/* A firewall refuses connections to the member. The member itself connects to the others, as it did
 * at the start. */
static void one_whose_door_was_never_reached_is_waited_for(void **state)
{
    (void)state;
    parting p = {.killed = 4, .hidden = 2, .late_ns = SECOND / 2};
    all_others_met(&p, 3, 3 * SECOND);
}

/* Two hosts of five have no power. The remaining members try to connect to them in vain, and must
 * still connect to each other. */
static void calls_that_nobody_takes_keep_the_others_from_nothing(void **state)
{
    (void)state;
    parting p = {.cut_off = 6};
    all_others_met(&p, 5, 3 * SECOND);
}

/* Other programs, such as scanners and probes, connect between two losses. */
static void hear_strangers_out(member *m)
{
    struct sockaddr_in at = {0};
    socklen_t bytes = sizeof at;
    char byte;
    ls_transfer *ended[1];
    const uint64_t until = ls_now_ns() + 5 * SECOND;
    bool hung_up = false;
    getsockname(rendezvous_of(m->wire)->listen_fd, (struct sockaddr *)&at, &bytes);
    const int fd = knock(&at);
    while (!hung_up && ls_now_ns() < until) {
        m->wire->type->poll(m->wire, ended, 1, SECOND / 10, &m->err);
        hung_up = recv(fd, &byte, 1, 0) == 0;
    }
    close(fd);
    *(bool *)m->more = hung_up;
    m->wire->type->close(m->wire);
}

static void strangers_do_not_crowd_the_door_of_a_run(void **state)
{
    (void)state;
    bool hung_up[2] = {false};
    member m[2];
    char meet[40];
    some_place(meet);
    for (int i = 0; i < 2; i++) {
        start(&m[i], meet, 2, hear_strangers_out);
        m[i].more = &hung_up[i];
        m[i].regroups = 1;
        go(&m[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(m[i].thread, NULL);
    assert_true(hung_up[0] && hung_up[1]);
}

/* ---- failed admissions ----------------------------------------------------------------------- */

/* A run of two members, to which a newcomer comes that does not reach member 1. */
typedef struct failing {
    pthread_barrier_t both;
    ls_arrival arrival;
    int waiting;       /* number of newcomers that may be admitted in this round */
    uint64_t tried[9]; /* rounds in which an admission was tried */
    int tries;
    atomic_int began; /* number of members that are connected to each other */
    bool mute;        /* after the first failed admission member 0 answers nobody */
    const member *newcomer;
} failing;

/* Ends the test if a member does not behave as it must. After a failed assertion on the thread of
 * one member, the other member would wait for ever. */
static void require(const member *m, bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "member %d %s: %s\n", m->wire ? m->wire->member : -1, what, m->err.text);
    abort();
}

/* Serves the listener of member 0 until a newcomer waits there, or the newcomer has ended. */
static void await_newcomer(member *m, failing *f)
{
    ls_transfer *ended[1];
    const joining *j = rendezvous_of(m->wire);
    while (!atomic_load(&f->newcomer->ended) && !(j->waiting_count > 0 && j->waiting[0].fit))
        require(m, m->wire->type->poll(m->wire, ended, 1, SECOND / 100, &m->err) == 0, "polls");
}

static void admit_each_round(member *m)
{
    failing *f = m->more;
    const int own = m->wire->member;
    atomic_fetch_add(&f->began, 1);
    for (uint64_t round = 0; round < 20; round++) {
        ls_arrival arrival;
        char why[200] = "";
        int origin[3];
        const uint8_t lost[2] = {0};
        const ls_regroup how = {.size = sizeof how,
                                .lost = lost,
                                .deadline_ns = 8 * SECOND,
                                .origin = origin,
                                .arrival = &f->arrival,
                                .why = why,
                                .why_bytes = sizeof why};
        if (own == 0)
            await_newcomer(m, f);
        const int count = m->wire->type->arrivals(m->wire, round, &arrival);
        if (own == 0) {
            f->arrival = arrival;
            f->waiting = count;
        }
        pthread_barrier_wait(&f->both);
        if (f->waiting > 0) {
            ls_wire *old = m->wire;
            m->status = old->type->regroup(&m->wire, old, &how, &m->err);
            old->type->abort(old);
            require(m, m->status == LS_OK, "does not regroup");
            require(m, m->wire->members == 2, "has lost the other member or admitted the newcomer");
            require(m, strstr(why, "do not reach each other"), why);
            if (own == 0)
                f->tried[f->tries] = round;
            m->wire->type->arrivals(m->wire, round, &arrival);
            while (f->mute && !atomic_load(&f->newcomer->ended))
                poll(NULL, 0, 10);
        }
        pthread_barrier_wait(&f->both);
        f->tries += own == 0 && f->waiting > 0;
        pthread_barrier_wait(&f->both);
    }
    m->wire->type->abort(m->wire);
}

/* Runs two members and a newcomer. No program listens at the address of member 1 and of the
 * newcomer. They say where they listen, because a member that does not say it becomes the first if
 * it comes before the first. `wait_ns`: time for which the newcomer waits. */
static void fail_to_admit(member m[3], failing *f, uint64_t wait_ns)
{
    static const char unreached[] = "127.255.255.254:9";
    char meet[40];
    some_place(meet);
    assert_int_equal(pthread_barrier_init(&f->both, NULL, 2), 0);
    for (int i = 0; i < 3; i++) {
        start(&m[i], meet, 2, i < 2 ? admit_each_round : NULL);
        m[i].more = f;
        m[i].regroups = m[i].admits = 1;
        m[i].place.timeout = i < 2 ? 60 * SECOND : wait_ns;
        m[i].place.advertise = i > 0 ? unreached : NULL;
        m[i].place.listen = i > 0 ? "127.0.0.1:0" : meet;
    }
    m[0].place.meet = NULL;
    f->newcomer = &m[2];
    go(&m[0]);
    go(&m[1]);
    while (atomic_load(&f->began) < 2 && !(atomic_load(&m[0].ended) && atomic_load(&m[1].ended)))
        poll(NULL, 0, 10);
    if (m[0].status == LS_OK && m[1].status == LS_OK)
        go(&m[2]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(m[i].thread, NULL), 0);
        if (m[i].status)
            fail_msg("member %d: %s", i, m[i].err.text);
    }
    assert_int_equal(pthread_join(m[2].thread, NULL), 0);
    pthread_barrier_destroy(&f->both);
}

static void admissions_that_fail_are_tried_less_often_and_end(void **state)
{
    static const uint64_t rounds[] = {0, 1, 3, 7, 15};
    failing f = {.tries = 0};
    member m[3];
    (void)state;
    if (ls_tests_rounds(0, 1) == 0)
        skip(); /* it takes long, with time limits that suffice on a busy machine */
    fail_to_admit(m, &f, 60 * SECOND);
    assert_int_equal(f.tries, 5);
    assert_memory_equal(f.tried, rounds, sizeof rounds);
    assert_int_equal(m[2].status, LS_EUNSUPPORTED);
    assert_non_null(strstr(m[2].err.text, "5 tries"));
    assert_non_null(strstr(m[2].err.text, "do not reach each other"));
}

/* After the failed admission the newcomer calls again, and gets no answer until its time is over.
 */
static void a_newcomer_whose_time_ends_in_a_call_says_why_it_was_not_admitted(void **state)
{
    failing f = {.mute = true};
    member m[3];
    (void)state;
    fail_to_admit(m, &f, SECOND / 2);
    assert_int_equal(f.tries, 1);
    assert_int_equal(m[2].status, LS_ETIMEDOUT);
    assert_non_null(strstr(m[2].err.text, "not admitted in"));
    assert_non_null(strstr(m[2].err.text, "do not reach each other"));
}

static void places_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *meet;
        int members;
        size_t secret;
        const char *text;
    } cases[] = {
        {NULL, 2, 20, "expected HOST:PORT"},
        {"localhost", 2, 20, "expected HOST:PORT"},
        {"localhost:", 2, 20, "expected HOST:PORT"},
        {":70", 2, 20, "expected HOST:PORT"},
        {"localhost:7x", 2, 20, "expected HOST:PORT"},
        {"localhost:0", 2, 20, "a port from 1"},
        {"localhost:70000", 2, 20, "a port from 1"},
        {"no such host.:70", 2, 20, "has no address"},
        {"fd77::1:70", 2, 20, "[fd77::1]:70"},
        {"0.0.0.0:70", 2, 20, "--listen :70"},
        {"[::]:70", 2, 20, "--listen :70"},
        {"localhost:70", 0, 20, "0 members"},
        {"localhost:70", 5000, 20, "5000 members"},
        {"localhost:70", 2, 15, "15 bytes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        member m;
        start(&m, cases[i].meet, cases[i].members, NULL);
        m.place.secret_bytes = cases[i].secret;
        m.place.timeout = SECOND / 10; /* during this time an unknown name can become known */
        run_member(&m);
        assert_int_equal(m.status, LS_EINVAL);
        assert_non_null(strstr(m.err.text, cases[i].text));
    }
}

/* ---- notes to a newcomer --------------------------------------------------------------------- */

/* Largest number of bytes that one call of `sendmsg` sends of its first part; 0: no limit. */
static atomic_size_t most_sent;

/* Replaces the C library's function in this program. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    const size_t most = atomic_load(&most_sent);
    return most ? sendto(fd, message->msg_iov[0].iov_base, most, flags, NULL, 0)
                : (ssize_t)syscall(SYS_sendmsg, fd, message, flags);
}

/* A newcomer that does not read while its notes come: only a part of a note may fit into the
 * buffers. Whatever followed the part would be taken for its rest. */
static void a_note_sent_in_part_is_the_last_of_its_connection(void **state)
{
    (void)state;
    int ends[2];
    struct {
        ls_tcp_note note;
        uint8_t tag[TCP_TAG];
    } sealed;
    joining *j = calloc(1, sizeof *j);
    assert_non_null(j);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    j->vote.members = 1;
    j->waiting_count = 1;
    j->waiting[0].link.fd = ends[0];
    j->waiting[0].fit = true;
    assert_false(ls_tcp_serve_waiting(j)); /* the last note was sent at time 0, so another is due */
    assert_int_equal(recv(ends[1], &sealed, sizeof sealed, MSG_DONTWAIT),
                     sizeof(ls_tcp_note) + TCP_TAG);
    assert_int_equal(sealed.note.kind, TCP_COMING);
    assert_int_equal(j->waiting_count, 1);
    j->waiting[0].told_ns = 0;
    atomic_store(&most_sent, sizeof(ls_tcp_note) / 2);
    assert_false(ls_tcp_serve_waiting(j));
    atomic_store(&most_sent, 0);
    assert_int_equal(recv(ends[1], &sealed, sizeof sealed, MSG_DONTWAIT), sizeof(ls_tcp_note) / 2);
    assert_int_equal(recv(ends[1], &sealed, sizeof sealed, MSG_DONTWAIT), 0); /* the end */
    assert_false(ls_tcp_serve_waiting(j));
    assert_int_equal(j->waiting_count, 0);
    close(ends[1]);
    free(j);
}

LS_TESTS(cluster_tcp, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(each_member_has_a_number_of_its_own),
        cmocka_unit_test(channels_do_not_hold_each_other_up),
        cmocka_unit_test(a_message_of_another_length_is_an_error),
        cmocka_unit_test(a_last_word_arrives_before_the_end_is_seen),
        cmocka_unit_test(a_last_word_between_two_connections_arrives),
        cmocka_unit_test(strangers_keep_nobody_from_meeting),
        cmocka_unit_test(who_does_not_know_the_secret_is_kept_out),
        cmocka_unit_test(one_that_came_and_went_is_not_waited_for),
        cmocka_unit_test(waiting_has_an_end),
        cmocka_unit_test(a_wait_for_ever_is_the_longest_that_poll_knows),
        cmocka_unit_test(another_program_at_the_address_is_named),
        cmocka_unit_test(an_address_that_swallows_calls_is_given_up),
        cmocka_unit_test(a_name_with_two_addresses_has_one_first),
        cmocka_unit_test(a_line_that_broke_keeps_the_others_from_nothing),
        cmocka_unit_test(who_is_left_of_a_process_that_was_killed_meets_at_once),
        cmocka_unit_test(another_may_be_lost_while_they_connect),
        cmocka_unit_test(one_may_be_lost_between_two_connections),
        cmocka_unit_test(the_first_may_be_slow_to_propose),
        cmocka_unit_test(a_busy_member_is_waited_for),
        cmocka_unit_test(a_vote_has_time_after_its_longest_wait),
        cmocka_unit_test(one_whose_door_was_never_reached_is_waited_for),
        cmocka_unit_test(calls_that_nobody_takes_keep_the_others_from_nothing),
        cmocka_unit_test(strangers_do_not_crowd_the_door_of_a_run),
        cmocka_unit_test(admissions_that_fail_are_tried_less_often_and_end),
        cmocka_unit_test(a_newcomer_whose_time_ends_in_a_call_says_why_it_was_not_admitted),
        cmocka_unit_test(places_that_cannot_be_are_refused),
        cmocka_unit_test(a_note_sent_in_part_is_the_last_of_its_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

LS_TESTS_LONG(cluster_tcp, "nightly")
