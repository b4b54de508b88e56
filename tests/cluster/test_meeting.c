/* SPDX-License-Identifier: MIT */
/* Tests how the processes of a run, its members, find each other over TCP: which member is the
 * first, which lines are logged while members wait, and which errors both sides report. A thread of
 * the test stands for each member. */
#include "base/clock.h"
#include "free_port.h"
#include "runner.h"

#include <lockstep/sys/transport.h>

#include <arpa/inet.h>
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
#include <unistd.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
enum { MAX_MEMBERS = 3 };

static const char secret[] = "of this run and of no other";

typedef struct member {
    pthread_t thread;
    ls_tcp_place place;
    bool stays; /* polls until it is told to end */
    atomic_bool *ends;
    ls_wire *wire;
    int status, number;
    ls_error err;
    char said[6000];
    pthread_mutex_t lock; /* guards `said` */
    atomic_int beats;
} member;

static void note(void *user, int level, const char *text)
{
    member *m = user;
    (void)level;
    pthread_mutex_lock(&m->lock);
    const size_t used = strlen(m->said);
    snprintf(m->said + used, sizeof m->said - used, "%s\n", text);
    pthread_mutex_unlock(&m->lock);
}

static bool has_said(member *m, const char *text)
{
    pthread_mutex_lock(&m->lock);
    const bool said = strstr(m->said, text) != NULL;
    pthread_mutex_unlock(&m->lock);
    return said;
}

static void beat(void *user)
{
    ((member *)user)->beats++;
}

static void *run_member(void *arg)
{
    member *m = arg;
    ls_transfer *ended[1];
    const ls_wire_options o = {
        .size = sizeof o, .place = &m->place, .alive = beat, .say = note, .user = m};
    m->status = ls_transport_tcp()->open(&m->wire, &o, &m->err);
    if (m->status)
        return NULL;
    m->number = m->wire->member;
    while (m->stays && !*m->ends)
        m->wire->type->poll(m->wire, ended, 1, SECOND / 100, &m->err);
    m->wire->type->close(m->wire);
    return NULL;
}

static void prepare(member *m, const char *listen, const char *meet, int members)
{
    *m = (member){.place = {.size = sizeof m->place,
                            .meet = meet,
                            .listen = listen,
                            .secret = secret,
                            .secret_bytes = sizeof secret,
                            .members = members,
                            .timeout = 20 * SECOND},
                  .number = -1};
    pthread_mutex_init(&m->lock, NULL);
}

static void go(member *m)
{
    assert_int_equal(pthread_create(&m->thread, NULL, run_member, m), 0);
}

static void join(member *m)
{
    assert_int_equal(pthread_join(m->thread, NULL), 0);
}

static void await_said(member *m, const char *text)
{
    const uint64_t until = ls_now_ns() + 20 * SECOND;
    while (!has_said(m, text)) {
        if (ls_now_ns() > until)
            fail_msg("it has not said '%s' but: %s", text, m->said);
        poll(NULL, 0, 5);
    }
}

static void has_failed(member *m, int status, const char *text)
{
    if (m->status != status || !strstr(m->err.text, text))
        fail_msg("%d, not %d with '%s': %s", m->status, status, text, m->err.text);
}

static void has_met(member *m)
{
    if (m->status)
        fail_msg("%d: %s", m->status, m->err.text);
}

/* The addresses of a run: ":port" to listen at, and "127.0.0.1:port" to join. */
typedef struct places {
    char listen[16], meet[40];
} places;

static places some_places(void)
{
    places p;
    const int port = free_port();
    snprintf(p.listen, sizeof p.listen, ":%d", port);
    snprintf(p.meet, sizeof p.meet, "127.0.0.1:%d", port);
    return p;
}

/* Prepares `count` members of a run of `members` members: m[0] listens, the others join it. */
static void prepare_all(places *p, member *m, int count, int members)
{
    *p = some_places();
    prepare(&m[0], p->listen, NULL, members);
    for (int i = 1; i < count; i++)
        prepare(&m[i], NULL, p->meet, members);
}

/* ---- the first member ------------------------------------------------------------------------ */

static void the_first_listens_at_all_addresses_and_is_joined_at_one(void **state)
{
    member m[3];
    places p;
    (void)state;
    prepare_all(&p, m, 3, 3);
    go(&m[0]);
    await_said(&m[0], "1 of 3 have come: ");
    await_said(&m[0], "; waiting for 2");
    go(&m[1]);
    await_said(&m[0], "2 of 3 have come: ");
    await_said(&m[1], "2 of 3 have come: "); /* waiting members receive this line too */
    go(&m[2]);
    for (int i = 0; i < 3; i++) {
        join(&m[i]);
        has_met(&m[i]);
        assert_true(has_said(&m[i], "all 3 have come: "));
        assert_true(m[i].beats > 0);
    }
    assert_int_equal(m[0].number, 0);
}

/* A member that has a listener of its own (--listen) is never the first member, even if the address
 * that it joins is its own. */
static void a_member_may_come_before_the_first(void **state)
{
    member m[2];
    const places p = some_places();
    (void)state;
    prepare(&m[0], p.listen, NULL, 2);
    prepare(&m[1], ":0", p.meet, 2);
    go(&m[1]);
    await_said(&m[1], "nobody answers at 127.0.0.1:");
    go(&m[0]);
    for (int i = 0; i < 2; i++) {
        join(&m[i]);
        has_met(&m[i]);
    }
    assert_int_equal(m[0].number, 0);
}

static void a_second_first_is_told_so(void **state)
{
    member m[2], last;
    const places p = some_places();
    (void)state;
    prepare(&m[0], p.listen, NULL, 2);
    prepare(&m[1], p.listen, NULL, 2);
    go(&m[0]);
    await_said(&m[0], "1 of 2");
    run_member(&m[1]);
    has_failed(&m[1], LS_ESYSTEM, "has this port; take another one, on all hosts. Of several");
    prepare(&last, NULL, p.meet, 2);
    run_member(&last);
    has_met(&last);
    join(&m[0]);
    has_met(&m[0]);
}

static void places_that_cannot_be_are_refused_at_once(void **state)
{
    static const struct {
        const char *listen, *meet, *advertise, *text;
    } cases[] = {
        {"192.0.2.1:7070", NULL, NULL, "this host has no such address"},
        {"7070", NULL, NULL, "expected [ADDRESS]:PORT"},
        {":0", NULL, NULL, "from 1 to 65535"},
        {":7070", NULL, "192.0.2.1", "advertises nothing"},
        {NULL, "0.0.0.0:7070", NULL, "--listen :7070"},
        {":0", "10.0.0.1:7070", "0.0.0.0:1", "advertise one that others reach"},
        {":0", "10.0.0.1:7070", "10.0.0.1:x", "expected HOST:PORT"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        member m;
        prepare(&m, cases[i].listen, cases[i].meet, 2);
        m.place.advertise = cases[i].advertise;
        run_member(&m);
        has_failed(&m, LS_EINVAL, cases[i].text);
    }
}

/* A host's own name maps to 127.0.1.1, as in Debian's hosts file. */
static void a_name_that_is_loopback_is_named(void **state)
{
    char name[80] = "", meet[100];
    member m;
    FILE *known = fopen("/etc/hosts", "r");
    (void)state;
    for (char line[200]; known && !name[0] && fgets(line, sizeof line, known);) {
        char found[80];
        if (sscanf(line, "127.0.1.1 %79s", found) == 1 && !strstr(found, "localhost"))
            snprintf(name, sizeof name, "%s", found);
    }
    if (known)
        fclose(known);
    if (!name[0])
        skip(); /* no name maps to 127.0.1.1 on this host */
    snprintf(meet, sizeof meet, "%s:7070", name);
    prepare(&m, NULL, meet, 2);
    run_member(&m);
    has_failed(&m, LS_EINVAL, "which no other host reaches");
}

/* ---- errors, on both sides ------------------------------------------------------------------- */

/* Checks that the second of three members is refused with `status` and the message `told`, that the
 * first member logs `said`, and that the third member can then come in the second one's place. */
static void turn_away(member m[3], int status, const char *told, const char *said)
{
    go(&m[0]);
    await_said(&m[0], "1 of 2");
    run_member(&m[1]);
    has_failed(&m[1], status, told);
    await_said(&m[0], said);
    run_member(&m[2]);
    has_met(&m[2]);
    join(&m[0]);
    has_met(&m[0]);
}

static void another_number_of_members_is_said_on_both_sides(void **state)
{
    member m[3];
    places p;
    (void)state;
    prepare_all(&p, m, 3, 2);
    m[1].place.members = 3;
    turn_away(m, LS_EINVAL, "this host expects 3 members, host ",
              "expects 3 members where this one expects 2");
}

static void another_secret_is_said_on_both_sides(void **state)
{
    member m[3];
    places p;
    (void)state;
    prepare_all(&p, m, 3, 2);
    m[1].place.secret = "of another run altogether...";
    turn_away(m, LS_EUNSUPPORTED, "does not know this run's secret",
              "has another secret (take the same file on all hosts");
}

static void a_run_that_has_begun_says_so_to_late_callers(void **state)
{
    member m[2], late;
    atomic_bool ends = false;
    places p;
    (void)state;
    prepare_all(&p, m, 2, 2);
    for (int i = 0; i < 2; i++) {
        m[i].stays = true;
        m[i].ends = &ends;
        go(&m[i]);
        if (i == 0)
            await_said(&m[0],
                       /* the other member must come second: it can listen at the address, and would
                        * be the first member */
                       "1 of 2");
    }
    await_said(&m[1], "all 2 have come");
    prepare(&late, NULL, p.meet, 2);
    run_member(&late);
    has_failed(&late, LS_EUNSUPPORTED, "has begun with all its 2 members");
    await_said(&m[0], "wants to join, but this run has begun");
    ends = true;
    for (int i = 0; i < 2; i++) {
        join(&m[i]);
        has_met(&m[i]);
    }
}

/* ---- other versions -------------------------------------------------------------------------- */

/* The first bytes of each connection, from both ends, in all versions (src/tcp/greet.c). */
typedef struct opening {
    uint32_t magic, version;
} opening;

#define MAGIC 0x50434c53u
#define OLD 0x20003u /* version 2.3 */

static void name_versions(char out[200], uint32_t version, uint32_t other)
{
    snprintf(out, 200,
             "speaks version %u.%u of the protocol between hosts where this host speaks %u.%u (all "
             "hosts of a run need the same version of Lockstep)",
             version >> 16, version & 0xffff, other >> 16, other & 0xffff);
}

/* Connects to a member on this host, sends `said` and receives the answer. Returns how many bytes
 * came before the member closed the connection. */
static size_t knock(const places *p, const opening *said, opening *answer)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char more[8];
    at.sin_port = htons((uint16_t)atoi(p->listen + 1));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(send(fd, said, sizeof *said, MSG_NOSIGNAL), sizeof *said);
    const ssize_t n = recv(fd, answer, sizeof *answer, MSG_WAITALL);
    assert_true(n <= 0 || recv(fd, more, sizeof more, 0) <= 0);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

static void a_caller_of_another_version_is_named_and_told(void **state)
{
    const opening old = {MAGIC, OLD}, swapped = {__builtin_bswap32(MAGIC), OLD}, other = {1, OLD};
    opening answer = {0};
    char expected[200];
    member m[2];
    places p;
    (void)state;
    prepare_all(&p, m, 2, 2);
    go(&m[0]);
    await_said(&m[0], "1 of 2");
    assert_int_equal(knock(&p, &old, &answer), sizeof answer);
    assert_int_equal(answer.magic, MAGIC);
    name_versions(expected, OLD, answer.version);
    await_said(&m[0], expected);
    assert_int_equal(knock(&p, &swapped, &answer), sizeof answer);
    await_said(&m[0], "has another byte order");
    assert_int_equal(knock(&p, &other, &answer), 0); /* another program is told nothing */
    go(&m[1]);
    for (int i = 0; i < 2; i++) {
        join(&m[i]);
        has_met(&m[i]);
    }
}

/* A listener of another version or byte order answers with its own magic and version. */
static void a_listener_of_another_version_is_named(void **state)
{
    const opening answers[2] = {{MAGIC, OLD}, {__builtin_bswap32(MAGIC), OLD}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof at;
        opening said;
        char meet[40], expected[200];
        member m;
        const int door = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(door, (struct sockaddr *)&at, bytes), 0);
        assert_int_equal(listen(door, 5), 0);
        assert_int_equal(getsockname(door, (struct sockaddr *)&at, &bytes), 0);
        snprintf(meet, sizeof meet, "127.0.0.1:%d", ntohs(at.sin_port));
        prepare(&m, ":0", meet, 2);
        go(&m);
        const int fd = accept(door, NULL, NULL);
        assert_int_equal(recv(fd, &said, sizeof said, MSG_WAITALL), sizeof said);
        assert_int_equal(send(fd, &answers[i], sizeof *answers, MSG_NOSIGNAL), sizeof *answers);
        join(&m); /* it does not call again */
        name_versions(expected, OLD, said.version);
        has_failed(&m, LS_EUNSUPPORTED, i == 0 ? expected : "has another byte order");
        close(fd);
        close(door);
    }
}

/* ---- secrets --------------------------------------------------------------------------------- */

static void a_secret_that_can_be_guessed_is_warned_of(void **state)
{
    static const struct {
        const char *secret;
        bool warns;
    } cases[] = {{"correct horse 12", true},
                 {"correct horse battery 3\n", true}, /* 23 characters */
                 {"correct horse battery 34", false},
                 {"1234567890123456\x01", false}, /* not a text */
                 {"\xff\xfe random bytes.", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const places p = some_places();
        member m;
        prepare(&m, p.listen, NULL, 1);
        m.place.secret = cases[i].secret;
        m.place.secret_bytes = strlen(cases[i].secret);
        run_member(&m);
        has_met(&m);
        assert_int_equal(has_said(&m, "make a random one: head -c 32 /dev/urandom > FILE"),
                         cases[i].warns);
    }
}

/* ---- hosts that are not reached -------------------------------------------------------------- */

/* After the rendezvous, all members are told at once which host cannot be reached. */
static void a_member_that_another_one_does_not_reach_is_named_to_all(void **state)
{
    member m[3];
    places p;
    (void)state;
    prepare_all(&p, m, 3, 3);
    m[1].place.advertise =
        /* No program listens there. When the callers are sorted, this address is the lowest. */
        "127.0.0.1:256";
    go(&m[0]);
    /* another member must not come first: it can listen at the address, and would be the first
     * member */
    await_said(&m[0], "1 of 3");
    go(&m[1]);
    go(&m[2]);
    for (int i = 0; i < 3; i++) {
        join(&m[i]);
        has_failed(&m[i], LS_ESYSTEM, "cannot be reached from host ");
        has_failed(&m[i], LS_ESYSTEM, "127.0.0.1:256");
    }
}

/* The first member gives up, and tells the waiting members why. */
static void those_that_wait_hear_that_not_all_have_come(void **state)
{
    member m[2];
    places p;
    (void)state;
    prepare_all(&p, m, 2, 3);
    m[0].place.timeout = 3 * SECOND;
    go(&m[0]);
    await_said(&m[0], "1 of 3");
    go(&m[1]);
    for (int i = 0; i < 2; i++) {
        join(&m[i]);
        has_failed(&m[i], LS_ETIMEDOUT, "2 of 3 hosts have come");
    }
}

LS_TESTS(cluster_meeting, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_listens_at_all_addresses_and_is_joined_at_one),
        cmocka_unit_test(a_member_may_come_before_the_first),
        cmocka_unit_test(a_second_first_is_told_so),
        cmocka_unit_test(places_that_cannot_be_are_refused_at_once),
        cmocka_unit_test(a_name_that_is_loopback_is_named),
        cmocka_unit_test(another_number_of_members_is_said_on_both_sides),
        cmocka_unit_test(another_secret_is_said_on_both_sides),
        cmocka_unit_test(a_caller_of_another_version_is_named_and_told),
        cmocka_unit_test(a_listener_of_another_version_is_named),
        cmocka_unit_test(a_secret_that_can_be_guessed_is_warned_of),
        cmocka_unit_test(a_run_that_has_begun_says_so_to_late_callers),
        cmocka_unit_test(a_member_that_another_one_does_not_reach_is_named_to_all),
        cmocka_unit_test(those_that_wait_hear_that_not_all_have_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
