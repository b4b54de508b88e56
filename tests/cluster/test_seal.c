/* SPDX-License-Identifier: MIT */
/* Tests that messages between hosts cannot be changed on the way (src/tcp/seal.h). Two transports
 * are connected by pairs of sockets. Between the pairs stands the test, which can change, repeat,
 * exchange, drop and add bytes. Nothing here waits. */
#include "runner.h"
#include "tcp/join.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define CHANGED "a message was changed on the way"

static const char secret[] = "of this run and of no other";

/* Two members, and the ends of their connections that the test has. */
typedef struct world {
    ls_tcp_wire *wire[2];
    int held[2][LS_TRANSPORT_CHANNELS];
    int ended[2]; /* number of transfers that have ended */
} world;

/* Creates two members, all of whose connections are open. `nonce`: what distinguishes these
 * connections from others. */
static world make_world(uint8_t nonce)
{
    world o = {0};
    for (int m = 0; m < 2; m++) {
        ls_tcp_wire *w = calloc(1, sizeof *w);
        assert_int_equal(ls_tcp_make_lines(w, 2, NULL), LS_OK);
        w->base.member = m;
        snprintf(w->host[0], TCP_HOST, "first");
        snprintf(w->host[1], TCP_HOST, "second");
        for (int c = 0; c < LS_TRANSPORT_CHANNELS; c++) {
            const uint8_t claim[2] = {nonce, (uint8_t)c};
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            ls_tcp_link *link = &ls_tcp_line_of(w, !m, c)->link;
            link->fd = pair[0];
            o.held[m][c] = pair[1];
            ls_tcp_set_up(pair[0]);
            ls_tcp_set_up(pair[1]);
            ls_tcp_set_keys(link, secret, sizeof secret, claim, sizeof claim, m == 1);
        }
        ls_tcp_expand_keys(w);
        o.wire[m] = w;
    }
    return o;
}

static void end_world(world *o)
{
    for (int m = 0; m < 2; m++) {
        for (int c = 0; c < LS_TRANSPORT_CHANNELS; c++)
            close(o->held[m][c]);
        ls_tcp_free(o->wire[m]);
    }
}

static void post(world *o, int m, ls_transfer *t)
{
    assert_int_equal(ls_tcp_post(&o->wire[m]->base, t, NULL), LS_OK);
}

/* Polls once; returns what ls_tcp_poll returns. */
static int poll_once(world *o, int m, ls_error *err)
{
    ls_transfer *ended[8];
    const int count = ls_tcp_poll(&o->wire[m]->base, ended, 8, 0, err);
    o->ended[m] += count > 0 ? count : 0;
    return count;
}

/* Reads what member m has sent on a channel. */
static size_t take(world *o, int m, int channel, uint8_t *out, size_t most)
{
    size_t got = 0;
    for (ssize_t n; (n = recv(o->held[m][channel], out + got, most - got, 0)) > 0;)
        got += (size_t)n;
    return got;
}

/* Delivers bytes to member m on a channel. */
static void give(world *o, int m, int channel, const uint8_t *bytes, size_t count)
{
    assert_int_equal(send(o->held[m][channel], bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

enum { SHORT = 10, WRAPPED = sizeof(ls_tcp_head) + SHORT + TCP_TAG };

/* Lets member m send SHORT bytes on a channel, and takes the WRAPPED bytes. */
static void speak(world *o, int m, int channel, const char *text, uint8_t out[WRAPPED])
{
    char data[SHORT] = "";
    ls_transfer t = {.peer = !m, .channel = channel, .data = data, .bytes = SHORT};
    snprintf(data, sizeof data, "%s", text);
    post(o, m, &t);
    assert_int_equal(poll_once(o, m, NULL), 1);
    assert_int_equal(take(o, m, channel, out, WRAPPED), WRAPPED);
}

/* Member m receives SHORT bytes, which must be `text`. */
static void hears(world *o, int m, int channel, const char *text)
{
    char data[SHORT] = "";
    ls_transfer t = {.peer = !m, .channel = channel, .incoming = 1, .data = data, .bytes = SHORT};
    post(o, m, &t);
    assert_int_equal(poll_once(o, m, NULL), 1);
    assert_string_equal(data, text);
}

/* Member m expects SHORT bytes, and notices that they were changed. */
static void notices(world *o, int m, int channel)
{
    static char data[SHORT];
    static ls_transfer t;
    ls_error err = {0};
    t = (ls_transfer){.peer = !m, .channel = channel, .incoming = 1, .data = data, .bytes = SHORT};
    post(o, m, &t);
    assert_int_equal(poll_once(o, m, &err), LS_EIO);
    assert_non_null(strstr(err.text, CHANGED));
    assert_non_null(strstr(err.text, m == 0 ? "from host second to host first"
                                            : "from host first to host second"));
    assert_int_equal(poll_once(o, m, &err), 0); /* the error is reported once */
}

/* ---- what must pass -------------------------------------------------------------------------- */

static uint32_t random_state;

static uint32_t draw(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Carries some bytes from one member to the other on channel 0. */
static void carry(world *o, int from)
{
    static uint8_t bytes[70000];
    const size_t most = draw() % 4 ? 1 + draw() % sizeof bytes : 1 + draw() % 40;
    const ssize_t n = recv(o->held[from][0], bytes, most, 0);
    for (ssize_t done = 0; done < n;) {
        const ssize_t sent =
            send(o->held[!from][0], bytes + done, (size_t)(n - done), MSG_NOSIGNAL);
        done += sent > 0 ? sent : 0;
        if (sent <= 0) /* the receiver must make room */
            assert_true(poll_once(o, !from, NULL) >= 0);
    }
}

/* Messages of many lengths arrive, in pieces of many lengths. */
static void whole_messages_pass_in_any_pieces(void **state)
{
    static const size_t lengths[] = {0, 1, 9, 1000, 1024, 26000, 131072, 131073, 400000, 0, 7};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    (void)state;
    for (uint32_t round = 0; round < 6; round++) {
        world o = make_world(1);
        ls_transfer out[COUNT], in[COUNT];
        random_state = round;
        for (int i = 0; i < COUNT; i++) {
            out[i] = (ls_transfer){.peer = 1, .data = malloc(lengths[i] + 1), .bytes = lengths[i]};
            in[i] = (ls_transfer){.incoming = 1, .data = malloc(lengths[i] + 1)};
            in[i].bytes = lengths[i];
            for (size_t k = 0; k < lengths[i]; k++)
                ((uint8_t *)out[i].data)[k] = (uint8_t)draw();
            memset(in[i].data, 0, lengths[i]);
            post(&o, 0, &out[i]);
            post(&o, 1, &in[i]);
        }
        while (o.ended[1] < COUNT) {
            assert_true(poll_once(&o, 0, NULL) >= 0);
            carry(&o, 0);
            assert_true(poll_once(&o, 1, NULL) >= 0);
        }
        assert_int_equal(o.ended[0], COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_memory_equal(in[i].data, out[i].data, lengths[i]);
            free(in[i].data);
            free(out[i].data);
        }
        end_world(&o);
    }
}

/* Notes and transfers on one connection share its numbers. */
static void notes_come_before_transfers(void **state)
{
    uint8_t wrapped[WRAPPED], note[4 + TCP_TAG];
    char said[4], answer[4];
    world o = make_world(1);
    ls_tcp_link *first = &ls_tcp_line_of(o.wire[0], 1, 2)->link;
    ls_tcp_link *second = &ls_tcp_line_of(o.wire[1], 0, 2)->link;
    (void)state;
    assert_int_equal(ls_tcp_send(first, "abc", 4, 0), 0);
    assert_int_equal(take(&o, 0, 2, note, sizeof note), sizeof note);
    give(&o, 1, 2, note, sizeof note);
    assert_int_equal(ls_tcp_receive(second, said, 4, 0), 0);
    assert_string_equal(said, "abc");
    assert_int_equal(ls_tcp_send_now(second, "def", 4), 0);
    assert_int_equal(take(&o, 1, 2, note, sizeof note), sizeof note);
    give(&o, 0, 2, note, sizeof note);
    assert_int_equal(ls_tcp_receive(first, answer, 4, 0), 0);
    assert_string_equal(answer, "def");
    for (int m = 0; m < 2; m++) {
        speak(&o, m, 2, "data", wrapped);
        give(&o, !m, 2, wrapped, WRAPPED);
        hears(&o, !m, 2, "data");
    }
    end_world(&o);
}

/* The receiver of another length is told so, as before, because the length is the sender's. */
static void another_length_is_another_error(void **state)
{
    uint8_t wrapped[WRAPPED];
    char data[SHORT + 1];
    ls_error err = {0};
    world o = make_world(1);
    ls_transfer t = {.incoming = 1, .data = data, .bytes = sizeof data};
    (void)state;
    speak(&o, 0, 0, "ten", wrapped);
    give(&o, 1, 0, wrapped, WRAPPED);
    post(&o, 1, &t);
    assert_int_equal(poll_once(&o, 1, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "a message of 10 bytes where 11 were expected"));
    end_world(&o);
}

/* ---- what must be noticed -------------------------------------------------------------------- */

static void each_bit_of_a_message_counts(void **state)
{
    uint8_t wrapped[WRAPPED];
    (void)state;
    for (size_t bit = 0; bit < 8 * WRAPPED; bit++) {
        world o = make_world(1);
        speak(&o, 0, 1, "gradients", wrapped);
        wrapped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        give(&o, 1, 1, wrapped, WRAPPED);
        notices(&o, 1, 1);
        end_world(&o);
    }
}

/* A flipped bit of a message of 26 kB, which arrives in pieces. */
static void a_bit_of_a_long_message_counts(void **state)
{
    enum { BYTES = 26000, ALL = sizeof(ls_tcp_head) + BYTES + TCP_TAG };
    static uint8_t data[BYTES], wrapped[ALL + 1];
    (void)state;
    for (int i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 7);
    for (uint32_t seed = 0; seed < 200; seed++) {
        world o = make_world(1);
        ls_error err = {0};
        ls_transfer out = {.peer = 1, .data = data, .bytes = BYTES};
        ls_transfer in = {.incoming = 1, .data = malloc(BYTES), .bytes = BYTES};
        random_state = seed;
        post(&o, 0, &out);
        assert_int_equal(poll_once(&o, 0, NULL), 1);
        assert_int_equal(take(&o, 0, 0, wrapped, sizeof wrapped), ALL);
        const size_t bit = draw() % (8 * ALL), cut = draw() % ALL;
        wrapped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        post(&o, 1, &in);
        give(&o, 1, 0, wrapped, cut);
        const int half = poll_once(&o, 1, &err);
        give(&o, 1, 0, wrapped + cut, ALL - cut);
        assert_int_equal(half ? half : poll_once(&o, 1, &err), LS_EIO);
        assert_non_null(strstr(err.text, CHANGED));
        end_world(&o);
        free(in.data);
    }
}

static void a_repeated_message_is_noticed(void **state)
{
    uint8_t wrapped[WRAPPED], again[WRAPPED];
    world o = make_world(1);
    (void)state;
    speak(&o, 0, 0, "same", wrapped);
    speak(&o, 0, 0, "same", again);
    assert_memory_not_equal(wrapped, again, WRAPPED); /* although they say the same */
    give(&o, 1, 0, wrapped, WRAPPED);
    hears(&o, 1, 0, "same");
    give(&o, 1, 0, wrapped, WRAPPED);
    notices(&o, 1, 0);
    end_world(&o);
}

static void exchanged_and_missing_messages_are_noticed(void **state)
{
    uint8_t one[WRAPPED], two[WRAPPED];
    (void)state;
    for (int repeated = 0; repeated < 2; repeated++) {
        world o = make_world(1);
        speak(&o, 0, 0, "one", one);
        speak(&o, 0, 0, "two", two);
        give(&o, 1, 0, two, WRAPPED);
        if (repeated)
            give(&o, 1, 0, one, WRAPPED);
        notices(&o, 1, 0);
        end_world(&o);
    }
}

/* The header of one message with the data of another one. */
static void headers_and_data_belong_together(void **state)
{
    uint8_t one[WRAPPED], two[WRAPPED];
    world o = make_world(1);
    (void)state;
    speak(&o, 0, 0, "one", one);
    speak(&o, 0, 0, "two", two);
    give(&o, 1, 0, one, sizeof(ls_tcp_head));
    give(&o, 1, 0, two + sizeof(ls_tcp_head), WRAPPED - sizeof(ls_tcp_head));
    notices(&o, 1, 0);
    end_world(&o);
}

/* A member gets back what it has sent itself. */
static void a_reflected_message_is_noticed(void **state)
{
    uint8_t wrapped[WRAPPED];
    (void)state;
    for (int m = 0; m < 2; m++) {
        world o = make_world(1);
        speak(&o, m, 0, "mine", wrapped);
        give(&o, m, 0, wrapped, WRAPPED);
        notices(&o, m, 0);
        end_world(&o);
    }
}

static void a_message_of_another_connection_is_noticed(void **state)
{
    uint8_t wrapped[WRAPPED];
    world o = make_world(1), other = make_world(2);
    (void)state;
    speak(&other, 0, 0, "other run", wrapped);
    give(&o, 1, 0, wrapped, WRAPPED);
    notices(&o, 1, 0);
    speak(&o, 0, 1, "channel 1", wrapped);
    give(&o, 1, 2, wrapped, WRAPPED);
    notices(&o, 1, 2);
    end_world(&o);
    end_world(&other);
}

/* `extra` bytes are added at each place, or left out there. */
static void added_and_missing_bytes_are_noticed(void **state)
{
    uint8_t wrapped[WRAPPED], next[WRAPPED], zero[4] = {0};
    (void)state;
    for (size_t at = 0; at < WRAPPED; at++)
        for (size_t extra = 1; extra <= 4; extra += 3)
            for (int added = 0; added < 2; added++) {
                world o = make_world(1);
                const size_t gone = added || at + extra > WRAPPED ? 0 : extra;
                speak(&o, 0, 0, "one", wrapped);
                speak(&o, 0, 0, "two", next);
                give(&o, 1, 0, wrapped, at);
                if (gone == 0)
                    give(&o, 1, 0, zero, extra);
                give(&o, 1, 0, wrapped + at + gone, WRAPPED - at - gone);
                give(&o, 1, 0, next, WRAPPED);
                notices(&o, 1, 0);
                end_world(&o);
            }
}

/* A connection that is closed in the middle of a message, or before its tag is complete. */
static void a_truncated_message_does_not_count(void **state)
{
    uint8_t wrapped[WRAPPED];
    (void)state;
    for (size_t at = 0; at < WRAPPED; at++) {
        char data[SHORT];
        ls_error err = {0};
        world o = make_world(1);
        ls_transfer t = {.incoming = 1, .data = data, .bytes = SHORT};
        speak(&o, 0, 0, "one", wrapped);
        give(&o, 1, 0, wrapped, at);
        post(&o, 1, &t);
        assert_int_equal(poll_once(&o, 1, &err), 0);
        shutdown(o.held[1][0], SHUT_WR);
        assert_int_equal(poll_once(&o, 1, &err), LS_EIO);
        assert_non_null(strstr(err.text, "it was closed there"));
        end_world(&o);
    }
}

/* After a changed message a member receives nothing more on this connection, but can still say why
 * it leaves. */
static void who_notices_can_still_say_so(void **state)
{
    uint8_t wrapped[WRAPPED];
    world o = make_world(1);
    (void)state;
    speak(&o, 0, 3, "alive", wrapped);
    wrapped[30] ^= 1;
    give(&o, 1, 3, wrapped, WRAPPED);
    notices(&o, 1, 3);
    speak(&o, 1, 3, "farewell", wrapped);
    give(&o, 0, 3, wrapped, WRAPPED);
    hears(&o, 0, 3, "farewell");
    end_world(&o);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static void each_bit_of_a_note_counts(void **state)
{
    uint8_t note[SHORT + TCP_TAG];
    char said[SHORT];
    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof note; bit++) {
        world o = make_world(1);
        assert_int_equal(ls_tcp_send(&ls_tcp_line_of(o.wire[0], 1, 0)->link, "welcome  ", SHORT, 0),
                         0);
        assert_int_equal(take(&o, 0, 0, note, sizeof note), sizeof note);
        note[bit / 8] ^= (uint8_t)(1u << bit % 8);
        give(&o, 1, 0, note, sizeof note);
        assert_int_equal(ls_tcp_receive(&ls_tcp_line_of(o.wire[1], 0, 0)->link, said, SHORT, 0),
                         EBADMSG);
        end_world(&o);
    }
}

/* A note that does not fit into the socket at all does not use up its number. */
static void a_note_that_was_not_sent_leaves_no_gap(void **state)
{
    static uint8_t all[1 << 20];
    char said[SHORT];
    int count = 0, error;
    world o = make_world(1);
    ls_tcp_link *link = &ls_tcp_line_of(o.wire[0], 1, 0)->link;
    (void)state;
    while ((error = ls_tcp_send_now(link, "a note   ", SHORT)) == 0)
        count++;
    if (error == EAGAIN) { /* else a part was sent, and the connection is of no use any more */
        const size_t bytes = take(&o, 0, 0, all, sizeof all);
        assert_int_equal(bytes, (size_t)count * (SHORT + TCP_TAG));
        assert_int_equal(ls_tcp_send_now(link, "the last ", SHORT), 0);
        assert_int_equal(link->out.number, count + 1);
        give(&o, 1, 0, all, SHORT + TCP_TAG);
        assert_int_equal(ls_tcp_receive(&ls_tcp_line_of(o.wire[1], 0, 0)->link, said, SHORT, 0), 0);
    }
    end_world(&o);
}

LS_TESTS(cluster_seal, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_messages_pass_in_any_pieces),
        cmocka_unit_test(notes_come_before_transfers),
        cmocka_unit_test(another_length_is_another_error),
        cmocka_unit_test(each_bit_of_a_message_counts),
        cmocka_unit_test(a_bit_of_a_long_message_counts),
        cmocka_unit_test(a_repeated_message_is_noticed),
        cmocka_unit_test(exchanged_and_missing_messages_are_noticed),
        cmocka_unit_test(headers_and_data_belong_together),
        cmocka_unit_test(a_reflected_message_is_noticed),
        cmocka_unit_test(a_message_of_another_connection_is_noticed),
        cmocka_unit_test(added_and_missing_bytes_are_noticed),
        cmocka_unit_test(a_truncated_message_does_not_count),
        cmocka_unit_test(who_notices_can_still_say_so),
        cmocka_unit_test(each_bit_of_a_note_counts),
        cmocka_unit_test(a_note_that_was_not_sent_leaves_no_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
