/* SPDX-License-Identifier: MIT */
/* Tests the timeline of a run: steps with their arrows, counters and allocations; and the activity
 * of devices: tracks, overlaps, lost records, and the reason that is given if there is none. */
#include "base/clock.h"
#include "records/trace.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 64 };

/* A device that says what the test wants. */
typedef struct fake {
    ls_device device;
    ls_device_span span[MOST];
    int spans, taken, ended, refuses;
    uint64_t lost;
} fake;

static void describe(const ls_device *device, ls_device_info *out)
{
    (void)device;
    *out = (ls_device_info){.name = "fake(7)"};
}

static int spans_begin(ls_device *device, ls_error *err)
{
    if (!((fake *)device)->refuses)
        return LS_OK;
    *err = (ls_error){.status = LS_EUNSUPPORTED, .text = "no \"fake\" library"};
    return LS_EUNSUPPORTED;
}

static int spans_take(ls_device *device, ls_device_span *out, int most, uint64_t *lost)
{
    fake *f = (fake *)device;
    int count = 0;
    for (; f->taken < f->spans && count < most; count++)
        out[count] = f->span[f->taken++];
    *lost = f->lost;
    f->lost = 0;
    return count;
}

static void spans_end(ls_device *device)
{
    ((fake *)device)->ended++;
}

static const ls_device_ops ops = {.size = sizeof ops,
                                  .describe = describe,
                                  .spans_begin = spans_begin,
                                  .spans_take = spans_take,
                                  .spans_end = spans_end};

typedef struct scene {
    char folder[256], path[300];
    ls_trace *trace;
    fake device;
    uint64_t zero; /* no earlier than the timeline's begin */
    char *text;
} scene;

/* Hooks of a host that counts what is allocated. */
static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    ++*(int *)user;
    return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) ? NULL
                                                                                           : memory;
}

static void counted_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void begin_on(scene *s, int refuses, const ls_host *host)
{
    ls_error err = {0};
    memset(s, 0, sizeof *s);
    const char *parent = getenv("TMPDIR");
    int length =
        snprintf(s->folder, sizeof s->folder, "%s/lockstep-trace.XXXXXX", parent ? parent : "/tmp");
    assert_in_range(length, 1, sizeof s->folder - 1);
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->path, sizeof s->path, "%s/trace.json", s->folder);
    assert_int_equal(ls_trace_create(&s->trace, s->path, 0, 2, host, &err), LS_OK);
    s->device = (fake){.device = {&ops}, .refuses = refuses};
    s->zero = ls_now_ns();
    ls_trace_device(s->trace, 1, &s->device.device);
}

static void begin(scene *s, int refuses)
{
    begin_on(s, refuses, NULL);
}

static void say(scene *s, uint32_t stream, uint64_t from, uint64_t to, const char *name)
{
    s->device.span[s->device.spans++] =
        (ls_device_span){s->zero + from, s->zero + to, name, stream};
}

static void finish(scene *s)
{
    ls_error err = {0};
    ls_trace_drain(s->trace, 0, NULL);
    ls_trace_drain(s->trace, 1, NULL);
    assert_int_equal(ls_trace_finish(s->trace, &err), LS_OK);
    ls_trace_destroy(s->trace);
    FILE *f = fopen(s->path, "r");
    assert_non_null(f);
    s->text = calloc(1, 1 << 20);
    assert_true(fread(s->text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    unlink(s->path);
    rmdir(s->folder);
}

static void expect(const scene *s, const char *text, int wanted)
{
    int found = 0;
    for (const char *at = s->text; (at = strstr(at, text)); at++)
        found++;
    if (found != wanted)
        fail_msg("'%s' is there %d times, not %d:\n%s", text, found, wanted, s->text);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void submit(scene *s, uint64_t step)
{
    const uint64_t now = ls_now_ns();
    ls_trace_submit(s->trace, step, now, ls_now_ns() + 1);
}

static void do_step(scene *s, int worker, uint32_t step)
{
    ls_marks *marks = ls_trace_marks(s->trace, worker);
    for (const uint64_t now = ls_now_ns(); ls_now_ns() == now;) {}
    ls_marks_put(marks, LS_PLACE_STEP, step);
    ls_marks_put(marks, LS_PLACE_ADD, 0);
    ls_marks_put(marks, LS_PLACE_IDLE, 0);
}

static void arrows_lead_from_a_submission_to_each_worker(void **state)
{
    scene s;
    (void)state;
    begin(&s, 1);
    for (uint32_t step = 1; step <= 3; step++) {
        submit(&s, step);
        do_step(&s, 0, step);
        do_step(&s, 1, step);
    }
    finish(&s);
    expect(&s, "\"name\":\"step\"", 6);
    expect(&s, "\"name\":\"submit\",\"dur\"", 3);
    expect(&s, "{\"ph\":\"s\"", 6);
    expect(&s, "{\"ph\":\"f\"", 6);
    expect(&s, "\"id\":6}", 2);
    expect(&s, "\"id\":7}", 0);
    expect(&s, "\"args\":{\"step\":3}", 7); /* "submit"; twice "begin", "add up", "step" */
    free(s.text);
}

static void a_range_of_steps_has_one_arrow(void **state)
{
    scene s;
    (void)state;
    begin(&s, 1);
    submit(&s, 5);
    for (uint32_t step = 5; step < 9; step++)
        do_step(&s, 0, step);
    finish(&s);
    expect(&s, "\"name\":\"step\"", 4);
    expect(&s, "{\"ph\":\"s\"", 1);
    expect(&s, "{\"ph\":\"f\"", 1);
    free(s.text);
}

/* The marks of the first attempt are drained after the step was submitted again. */
static void a_repeated_step_has_the_arrow_of_its_own_submission(void **state)
{
    scene s;
    char *head, *tail;
    (void)state;
    begin(&s, 1);
    submit(&s, 1);
    do_step(&s, 0, 1);
    submit(&s, 1);
    ls_trace_drain(s.trace, 0, NULL);
    do_step(&s, 0, 1);
    finish(&s);
    expect(&s, "{\"ph\":\"s\"", 2);
    char *second = strstr(s.text, "\"name\":\"submit\",\"dur\"");
    second = strstr(second + 1, "\"name\":\"submit\",\"dur\"");
    while (strncmp(second, "\"ts\":", 5) != 0)
        second--;
    const double again = strtod(second + 5, NULL);
    assert_non_null(tail = strstr(s.text, "{\"ph\":\"s\",\"ts\":"));
    assert_non_null(head = strstr(s.text, "{\"ph\":\"f\",\"ts\":"));
    assert_true(strtod(tail + 15, NULL) < again && strtod(head + 15, NULL) < again);
    assert_non_null(tail = strstr(tail + 1, "{\"ph\":\"s\",\"ts\":"));
    assert_true(strtod(tail + 15, NULL) == again);
    free(s.text);
}

static void counters_are_written_when_they_change(void **state)
{
    scene s;
    (void)state;
    begin(&s, 1);
    ls_trace_queues(s.trace, s.zero + 1000, (const int[]){1, 1});
    ls_trace_queues(s.trace, s.zero + 2000, (const int[]){1, 1});
    ls_trace_queues(s.trace, s.zero + 3000, (const int[]){1, 2});
    ls_trace_rate(s.trace, s.zero + 4000, 12345.6784);
    ls_trace_rate(s.trace, s.zero + 5000, 1e300);
    ls_trace_rate(s.trace, s.zero + 5000, -1);
    finish(&s);
    expect(&s, "\"name\":\"queue depth\",\"args\":{\"worker 0\":1,\"worker 1\":1}}", 1);
    expect(&s, "\"name\":\"queue depth\",\"args\":{\"worker 0\":1,\"worker 1\":2}}", 1);
    expect(&s, "\"name\":\"throughput\",\"args\":{\"rows/s\":12345.678}}", 1);
    expect(&s, "{\"ph\":\"C\"", 3);
    free(s.text);
}

static void steps_allocate_nothing(void **state)
{
    scene s;
    int allocated = 0, before = 0;
    (void)state;
    const ls_host host = {
        .size = sizeof host, .alloc = counted_alloc, .free = counted_free, .user = &allocated};
    begin_on(&s, 1, &host);
    for (uint32_t step = 1; step <= 100; step++) {
        submit(&s, step);
        ls_trace_queues(s.trace, ls_now_ns(), (const int[]){(int)step % 3, 1});
        do_step(&s, 0, step);
        ls_trace_drain(s.trace, 0, NULL);
        ls_trace_rate(s.trace, ls_now_ns(), 1e6);
        if (step == 1)
            before = allocated;
    }
    assert_int_equal(allocated, before);
    finish(&s);
    expect(&s, "\"name\":\"step\"", 100);
    free(s.text);
}

/* ---- devices -------------------------------------------------------------------------------- */

static void spans_lie_on_a_track_of_their_stream(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    say(&s, 13, 2000, 3000, "second");
    say(&s, 13, 1000, 2000, "first");
    say(&s, 14, 1500, 2500, "other");
    finish(&s);
    expect(&s, "\"name\":\"fake(7) stream 13\"", 1);
    expect(&s, "\"name\":\"fake(7) stream 14\"", 1);
    expect(&s, "\"tid\":5,\"cat\":\"device\",\"name\":\"first\"", 1);
    expect(&s, "\"tid\":5,\"cat\":\"device\",\"name\":\"second\"", 1);
    expect(&s, "\"tid\":6,\"cat\":\"device\",\"name\":\"other\"", 1);
    expect(&s, "\"dur\":1.000", 3);
    expect(&s, "\"sort_index\":513", 1); /* below worker 1, which is at 512 */
    expect(&s, "\"device_spans\":\"3\",\"lost_device_spans\":\"0\"", 1);
    expect(&s, "no_device_spans", 0);
    assert_int_equal(s.device.ended, 1);
    free(s.text);
}

static void what_overlaps_goes_to_a_further_track(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    say(&s, 13, 1000, 3000, "long");
    say(&s, 13, 2000, 4000, "across");
    say(&s, 13, 3500, 5000, "again");
    finish(&s);
    expect(&s, "\"name\":\"fake(7) stream 13 (2)\"", 1);
    expect(&s, "(3)", 0);
    expect(&s, "\"tid\":5,\"cat\":\"device\",\"name\":\"again\"", 1);
    expect(&s, "\"tid\":6,\"cat\":\"device\",\"name\":\"across\"", 1);
    free(s.text);
}

static void names_are_escaped_as_json_wants_it(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    say(&s, 1, 1, 2,
        "a\"b\\c\nd\x01\xff"
        "e…");
    say(&s, 1, 3, 4, "");
    finish(&s);
    expect(&s,
           "\"name\":\"a\\\"b\\\\c\\nd\\u0001\xEF\xBF\xBD"
           "e…\"",
           1);
    free(s.text);
}

/* Spans that ended before they began, that are from before the timeline, on the seventeenth stream,
 * or beside eight others. */
static void what_has_no_place_is_counted(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    s.device.lost = 100;
    say(&s, 1, 2000, 1000, "backwards");
    s.device.span[s.device.spans++] = (ls_device_span){1, 2, "early", 1};
    for (uint32_t i = 1; i <= 17; i++)
        say(&s, i, 10000, 11000, "stream");
    for (int i = 0; i < 8; i++)
        say(&s, 2, 10000, 11000, "beside");
    finish(&s);
    expect(&s, "\"lost_device_spans\":\"104\"", 1);
    expect(&s, "\"device_spans\":\"23\"", 1);
    free(s.text);
}

static void a_device_that_cannot_say_it_says_why(void **state)
{
    scene s;
    (void)state;
    begin(&s, 1);
    ls_trace_device(s.trace, 0, &s.device.device);
    finish(&s);
    expect(&s, "\"no_device_spans\":\"no \\\"fake\\\" library\"", 1);
    expect(&s, "\"cat\":\"device\"", 0);
    assert_int_equal(s.device.ended, 0);
    free(s.text);
}

LS_TESTS(train_trace, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrows_lead_from_a_submission_to_each_worker),
        cmocka_unit_test(a_range_of_steps_has_one_arrow),
        cmocka_unit_test(a_repeated_step_has_the_arrow_of_its_own_submission),
        cmocka_unit_test(counters_are_written_when_they_change),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(spans_lie_on_a_track_of_their_stream),
        cmocka_unit_test(what_overlaps_goes_to_a_further_track),
        cmocka_unit_test(names_are_escaped_as_json_wants_it),
        cmocka_unit_test(what_has_no_place_is_counted),
        cmocka_unit_test(a_device_that_cannot_say_it_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
