/* SPDX-License-Identifier: MIT */
#include "cluster/wire_double.h"

#include "base/clock.h"
#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct message {
    struct message *next;
    uint64_t due_ns;
    size_t bytes;
    unsigned char data[];
} message;

typedef struct waiting {
    struct waiting *next;
    ls_transfer *transfer;
    uint64_t due_ns; /* arrival time of a sent message */
} waiting;

/* The messages from one member to another on one channel. */
typedef struct lane {
    message *first, **last;
    waiting *receive, **last_receive;
    uint64_t latest_ns; /* arrival time of the last message */
} lane;

typedef struct double_wire {
    ls_wire base;
    wire_world *world;
    waiting *sent, **last_sent; /* sends whose message is in transit */
} double_wire;

struct wire_world {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int members, expected, here;
    lane lane[WIRE_MOST][WIRE_MOST][LS_TRANSPORT_CHANNELS];
    bool cut[WIRE_MOST], hang[WIRE_MOST];
    bool held[WIRE_MOST][LS_TRANSPORT_CHANNELS];
    uint64_t sent[WIRE_MOST][LS_TRANSPORT_CHANNELS];
    uint64_t posts[WIRE_MOST], kill_at[WIRE_MOST], break_at[WIRE_MOST];
    uint64_t sever_at[WIRE_MOST][WIRE_MOST]; /* [member][peer] */
    size_t under_way[WIRE_MOST], most_under_way[WIRE_MOST];
    uint64_t delay_ns, random, bytes_per_s;
    /* The clock of the progress threads (wire_world_own_clock); 0: they use the machine's clock. */
    _Atomic uint64_t own_ns;
    /* `open`: the member's transport is open; `polled`: the member has polled without result since
     * the clock last advanced */
    bool open[WIRE_MOST], polled[WIRE_MOST];
};

/* ---- the clock ------------------------------------------------------------------------------- */

#define OWN_START_NS 1000000000u
#define OWN_STEP_NS 2000000u

_Thread_local const _Atomic uint64_t *wire_own_clock;

static uint64_t machine_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Stores that a member has polled without result. Advances the clock if all open members have.
 * Returns whether the clock was advanced. */
static bool advance(wire_world *w, int member)
{
    w->polled[member] = true;
    for (int m = 0; m < w->members; m++)
        if (w->open[m] && !w->polled[m])
            return false;
    memset(w->polled, 0, sizeof w->polled);
    atomic_fetch_add(&w->own_ns, OWN_STEP_NS);
    pthread_cond_broadcast(&w->change);
    return true;
}

wire_world *wire_world_create(int members)
{
    pthread_condattr_t clock;
    wire_world *w = calloc(1, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->change, &clock);
    w->members = w->expected = members;
    for (int m = 0; m < WIRE_MOST; m++) {
        w->kill_at[m] = w->break_at[m] = UINT64_MAX;
        for (int peer = 0; peer < WIRE_MOST; peer++)
            w->sever_at[m][peer] = UINT64_MAX;
    }
    for (int i = 0; i < WIRE_MOST * WIRE_MOST * LS_TRANSPORT_CHANNELS; i++) {
        lane *l = &w->lane[0][0][0] + i;
        l->last = &l->first;
        l->last_receive = &l->receive;
    }
    return w;
}

void wire_world_destroy(wire_world *w)
{
    for (int i = 0; i < WIRE_MOST * WIRE_MOST * LS_TRANSPORT_CHANNELS; i++) {
        lane *l = &w->lane[0][0][0] + i;
        for (message *m = l->first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        for (waiting *r = l->receive, *next; r; r = next) {
            next = r->next;
            free(r);
        }
    }
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

#define CHANGE(w, what)                                                                            \
    do {                                                                                           \
        pthread_mutex_lock(&(w)->lock);                                                            \
        what;                                                                                      \
        pthread_cond_broadcast(&(w)->change);                                                      \
        pthread_mutex_unlock(&(w)->lock);                                                          \
    } while (0)

void wire_world_delay(wire_world *w, uint64_t most_ns, uint64_t seed)
{
    CHANGE(w, (w->delay_ns = most_ns, w->random = seed * 2 + 1));
}

void wire_world_cut(wire_world *w, int member, int cut)
{
    CHANGE(w, w->cut[member] = cut != 0);
}

void wire_world_kill_at(wire_world *w, int member, uint64_t posts)
{
    CHANGE(w, w->kill_at[member] = posts);
}

void wire_world_sever_at(wire_world *w, int member, int peer, uint64_t posts)
{
    CHANGE(w, w->sever_at[member][peer] = posts);
}

void wire_world_break_at(wire_world *w, int member, uint64_t posts)
{
    CHANGE(w, w->break_at[member] = posts);
}

void wire_world_hold(wire_world *w, int member, int channel)
{
    CHANGE(w, w->held[member][channel] = true);
}

void wire_world_rate(wire_world *w, uint64_t bytes_per_s)
{
    CHANGE(w, w->bytes_per_s = bytes_per_s);
}

void wire_world_own_clock(wire_world *w)
{
    atomic_store(&w->own_ns, OWN_START_NS);
}

uint64_t wire_world_elapsed_ns(wire_world *w)
{
    return atomic_load(&w->own_ns) - OWN_START_NS;
}

uint64_t wire_world_posts(wire_world *w, int member)
{
    uint64_t posts;
    CHANGE(w, posts = w->posts[member]);
    return posts;
}

uint64_t wire_world_sent(wire_world *w, int member, int channel)
{
    uint64_t sent;
    CHANGE(w, sent = w->sent[member][channel]);
    return sent;
}

size_t wire_world_most_under_way(wire_world *w, int member)
{
    size_t most;
    CHANGE(w, most = w->most_under_way[member]);
    return most;
}

void wire_world_hang(wire_world *w, int member, int hang)
{
    CHANGE(w, w->hang[member] = hang != 0);
}

void wire_world_expect(wire_world *w, int members)
{
    CHANGE(w, w->expected = members);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Waits until the machine's clock reaches `ns`, or the state of the world changes. */
static void wait_until(wire_world *w, uint64_t ns)
{
    const struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u),
                                .tv_nsec = (long)(ns % 1000000000u)};
    pthread_cond_timedwait(&w->change, &w->lock, &at);
}

static int open_double(ls_wire **out, const ls_wire_options *o, ls_error *err)
{
    const wire_place *place = o->place;
    wire_world *w = place->world;
    double_wire *mine = calloc(1, sizeof *mine);
    (void)err;
    mine->base = (ls_wire){.type = &wire_double, .member = place->member, .members = w->members};
    mine->world = w;
    mine->last_sent = &mine->sent;
    pthread_mutex_lock(&w->lock);
    w->here++;
    w->open[place->member] = true;
    pthread_cond_broadcast(&w->change);
    while (w->here < w->expected)
        wait_until(w, ls_now_ns() + 10000000u);
    wire_own_clock = atomic_load(&w->own_ns) ? &w->own_ns : NULL;
    pthread_mutex_unlock(&w->lock);
    *out = &mine->base;
    return LS_OK;
}

static uint64_t draw_delay(wire_world *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return w->delay_ns ? (w->random >> 33) % w->delay_ns : 0;
}

static void append(waiting ***last, ls_transfer *transfer, uint64_t due_ns)
{
    waiting *item = calloc(1, sizeof *item);
    item->transfer = transfer;
    item->due_ns = due_ns;
    **last = item;
    *last = &item->next;
}

static void send(double_wire *mine, ls_transfer *t)
{
    wire_world *w = mine->world;
    lane *l = &w->lane[mine->base.member][t->peer][t->channel];
    message *m = malloc(sizeof *m + t->bytes);
    const uint64_t due = ls_now_ns() + draw_delay(w);
    *m = (message){.due_ns = due > l->latest_ns ? due : l->latest_ns, .bytes = t->bytes};
    m->due_ns += w->bytes_per_s ? t->bytes * 1000000000u / w->bytes_per_s : 0;
    l->latest_ns = m->due_ns;
    w->sent[mine->base.member][t->channel]++;
    size_t *now = &w->under_way[mine->base.member], *most = &w->most_under_way[mine->base.member];
    *now += t->bytes;
    *most = *now > *most ? *now : *most;
    if (t->bytes > 0)
        memcpy(m->data, t->data, t->bytes);
    *l->last = m;
    l->last = &m->next;
    append(&mine->last_sent, t, w->bytes_per_s ? m->due_ns : 0);
}

static int post_double(ls_wire *base, ls_transfer *t, ls_error *err)
{
    double_wire *mine = (double_wire *)base;
    wire_world *w = mine->world;
    pthread_mutex_lock(&w->lock);
    const uint64_t number = w->posts[base->member]++;
    const bool severed = number >= w->sever_at[base->member][t->peer];
    const bool broken = number >= w->break_at[base->member];
    base->lost = severed ? 1 + t->peer : 0;
    w->cut[base->member] |= broken || number >= w->kill_at[base->member];
    if (t->incoming)
        append(&w->lane[t->peer][base->member][t->channel].last_receive, t, 0);
    else
        send(mine, t);
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
    return broken || severed ? ls_fail(err, LS_EIO, "the connection broke") : LS_OK;
}

/* Receives the next message of a lane (from one member to another on one channel), if the message
 * is due. Returns whether a message was due. A message of a wrong length is an error. */
static bool take(wire_world *w, lane *l, ls_transfer **ended, int *status, ls_error *err)
{
    message *m = l->first;
    waiting *r = l->receive;
    (void)w;
    if (!m || !r || m->due_ns > ls_now_ns())
        return false;
    if (m->bytes != r->transfer->bytes) {
        *status = ls_fail(err, LS_EDATA, "a message of %zu bytes where %zu were expected", m->bytes,
                          r->transfer->bytes);
        return false;
    }
    if (m->bytes > 0)
        memcpy(r->transfer->data, m->data, m->bytes);
    *ended = r->transfer;
    l->first = m->next;
    l->last = l->first ? l->last : &l->first;
    l->receive = r->next;
    l->last_receive = l->receive ? l->last_receive : &l->receive;
    free(m);
    free(r);
    return true;
}

static int collect(double_wire *mine, ls_transfer **ended, int most, ls_error *err)
{
    wire_world *w = mine->world;
    const int self = mine->base.member;
    int count = 0, status = LS_OK;
    while (mine->sent && mine->sent->due_ns <= ls_now_ns() && count < most && !w->cut[self]) {
        waiting *s = mine->sent;
        ended[count++] = s->transfer;
        w->under_way[self] -= s->transfer->bytes;
        mine->sent = s->next;
        mine->last_sent = mine->sent ? mine->last_sent : &mine->sent;
        free(s);
    }
    for (int m = 0; m < w->members && !w->cut[self]; m++)
        for (int c = 0; c < LS_TRANSPORT_CHANNELS && !w->cut[m]; c++)
            while (!w->held[m][c] && count < most &&
                   take(w, &w->lane[m][self][c], &ended[count], &status, err))
                count++;
    return status ? status : count;
}

static int poll_double(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns,
                       ls_error *err)
{
    double_wire *mine = (double_wire *)base;
    wire_world *w = mine->world;
    const uint64_t until = ls_now_ns() + timeout_ns;
    pthread_mutex_lock(&w->lock);
    int count = collect(mine, ended, most, err);
    if (count == 0 && wire_own_clock) {
        if (!advance(w, base->member))
            wait_until(w, machine_ns() + (timeout_ns ? 10000000u : 100000u));
        count = collect(mine, ended, most, err);
    }
    while (count == 0 && !wire_own_clock && ls_now_ns() < until) {
        const uint64_t soon = ls_now_ns() + 200000u;
        wait_until(w, soon < until ? soon : until);
        count = collect(mine, ended, most, err);
    }
    while (w->hang[base->member])
        wait_until(w, ls_now_ns() + 10000000u);
    pthread_mutex_unlock(&w->lock);
    return count;
}

static void close_double(ls_wire *base)
{
    double_wire *mine = (double_wire *)base;
    wire_world *w = mine->world;
    pthread_mutex_lock(&w->lock);
    w->open[base->member] = false;
    wire_own_clock = NULL;
    for (waiting *s = mine->sent, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    for (int m = 0; m < w->members; m++)
        for (int c = 0; c < LS_TRANSPORT_CHANNELS; c++) {
            lane *l = &w->lane[m][base->member][c];
            for (waiting *r = l->receive, *next; r; r = next) {
                next = r->next;
                free(r);
            }
            l->receive = NULL;
            l->last_receive = &l->receive;
        }
    pthread_mutex_unlock(&w->lock);
    free(mine);
}

static int abort_double(ls_wire *base)
{
    close_double(base);
    return 0;
}

const ls_transport wire_double = {.abi = LS_TRANSPORT_ABI,
                                  .size = sizeof(ls_transport),
                                  .name = "double",
                                  .open = open_double,
                                  .post = post_double,
                                  .poll = poll_double,
                                  .close = close_double,
                                  .abort = abort_double};
