/* Device activity in a timeline: tracks, overlaps, lost records, and the reason why there is
 * none. */
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
    *err = (ls_error){LS_EUNSUPPORTED, "no \"fake\" library"};
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

static void begin(scene *s, int refuses)
{
    ls_error err = {0};
    memset(s, 0, sizeof *s);
    const char *parent = getenv("TMPDIR");
    int length =
        snprintf(s->folder, sizeof s->folder, "%s/lockstep-trace.XXXXXX", parent ? parent : "/tmp");
    assert_in_range(length, 1, sizeof s->folder - 1);
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->path, sizeof s->path, "%s/trace.json", s->folder);
    assert_int_equal(ls_trace_create(&s->trace, s->path, 0, 2, NULL, &err), LS_OK);
    s->device = (fake){.device = {&ops}, .refuses = refuses};
    s->zero = ls_now_ns();
    ls_trace_device(s->trace, 1, &s->device.device);
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
    s->text = calloc(1, 65536);
    assert_true(fread(s->text, 1, 65535, f) > 0);
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
    expect(&s, "\"tid\":4,\"cat\":\"device\",\"name\":\"first\"", 1);
    expect(&s, "\"tid\":4,\"cat\":\"device\",\"name\":\"second\"", 1);
    expect(&s, "\"tid\":5,\"cat\":\"device\",\"name\":\"other\"", 1);
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
    expect(&s, "\"tid\":4,\"cat\":\"device\",\"name\":\"again\"", 1);
    expect(&s, "\"tid\":5,\"cat\":\"device\",\"name\":\"across\"", 1);
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
        cmocka_unit_test(spans_lie_on_a_track_of_their_stream),
        cmocka_unit_test(what_overlaps_goes_to_a_further_track),
        cmocka_unit_test(names_are_escaped_as_json_wants_it),
        cmocka_unit_test(what_has_no_place_is_counted),
        cmocka_unit_test(a_device_that_cannot_say_it_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
