/* The report of a run: what it shows, and runs that are damaged, unfinished or not there. */
#include "data/scratch.h"
#include "tools/buffer.h"
#include "tools/live.h"
#include "tools/report.h"
#include "tools/report_svg.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A run of 6 steps, 2 epochs and 2 workers. */
#define FIXTURE TEST_SOURCE_DIR "/run"

typedef struct room {
    scratch s;
    char *metrics; /* of the fixture; `lines` point into it, without their ends */
    char *config;
    char *page; /* what the last report says */
} room;

static char *read_whole(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
    fclose(f);
    return text;
}

static int begin(void **state)
{
    room *r = calloc(1, sizeof *r);
    assert_non_null(r);
    scratch_begin(&r->s);
    r->metrics = read_whole(FIXTURE "/metrics.jsonl");
    r->config = read_whole(FIXTURE "/config.json");
    *state = r;
    return 0;
}

static int end(void **state)
{
    room *r = *state;
    scratch_end(&r->s);
    free(r->metrics);
    free(r->config);
    free(r->page);
    free(r);
    return 0;
}

/* A run directory with these metrics and the fixture's config. */
static void write_run(room *r, const char *metrics, size_t length)
{
    scratch_file(&r->s, "metrics.jsonl", metrics, length);
    scratch_file(&r->s, "config.json", r->config, strlen(r->config));
}

static void reports(room *r, const char *dir)
{
    ls_error err = {0};
    const char *out = scratch_path(&r->s, "out.html");
    int status = ls_report_write(dir, out, NULL, &err);
    if (status)
        print_error("%s\n", err.text);
    assert_int_equal(status, LS_OK);
    free(r->page);
    r->page = read_whole(out);
}

static void shows(const room *r, const char *text)
{
    if (!strstr(r->page, text))
        fail_msg("the report does not say: %s", text);
}

static void does_not_show(const room *r, const char *text)
{
    if (strstr(r->page, text))
        fail_msg("the report says: %s", text);
}

/* Expects the message, with the scratch directory where it has %s. */
static void refuses(room *r, int status, const char *format, ...)
{
    ls_error err = {0};
    char expected[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    assert_int_equal(ls_report_write(r->s.directory, NULL, NULL, &err), status);
    assert_string_equal(err.text, expected);
    assert_int_equal(err.status, status);
}

/* The fixture with one piece of text replaced by another of any length; the caller frees it. */
static char *with(const room *r, const char *old, const char *new)
{
    const char *at = strstr(r->metrics, old);
    assert_non_null(at);
    size_t before = (size_t)(at - r->metrics), size = strlen(r->metrics) + strlen(new) + 1;
    char *text = malloc(size);
    assert_non_null(text);
    snprintf(text, size, "%.*s%s%s", (int)before, r->metrics, new, at + strlen(old));
    return text;
}

static void reports_changed(room *r, const char *old, const char *new)
{
    char *text = with(r, old, new);
    write_run(r, text, strlen(text));
    free(text);
    reports(r, r->s.directory);
}

/* ---- a good run ---- */

static void the_summary_names_result_devices_parameters_and_data(void **state)
{
    room *r = *state;
    reports(r, FIXTURE);
    shows(r, "<dt>Test accuracy</dt><dd>0.7500</dd><dd class=\"detail\">after epoch 2, loss "
             "1.1250</dd>");
    shows(r, "<dt>Training</dt><dd>0.04 <small>s/epoch</small>"); /* the mean of 25 and 50 ms */
    shows(r, "<dt>Throughput</dt><dd>20,480 <small>images/s</small>"); /* 1536 images in 75 ms */
    shows(r, "<dt>Devices</dt><dd>2</dd><dd class=\"detail\">cpu(0), cpu(1)</dd>");
    shows(r, "<dt>Parameters</dt><dd>7,850</dd>");
    shows(r, "<dt>Data</dt><dd>fashion_mnist</dd><dd class=\"detail\">768 for training, 10,000 "
             "for test</dd>");
    shows(r, "<dt>Epochs</dt><dd>2 <small>of 2</small></dd><dd class=\"detail\">6 steps</dd>");
    shows(r, "90012e5afdd16b9375fdff9014c1e2e55c9539716a0dd8668dc74315228010c1");
    does_not_show(r, "SYNTHETIC");
    does_not_show(r, "role=\"note\"");
}

static void the_curves_hold_every_value(void **state)
{
    room *r = *state;
    reports(r, FIXTURE);
    shows(r, "<title>epoch 1\ntraining: 0.4000\ntest: 0.5000</title>");
    shows(r, "<title>epoch 2\ntraining: 0.6000\ntest: 0.7500</title>");
    shows(r, "<title>step 1\nminibatch: 2.2500</title>");
    shows(r, "<title>step 3\nminibatch: 1.5000\ntest: 1.6250</title>");
    shows(r, "<title>step 6\nminibatch: 0.7500\ntest: 1.1250</title>");
    shows(r, "<title>step 4\nstep: 20,000 images/s</title>");
    /* Accuracies of 0.4 to 0.75 on an axis from 0.4 to 0.8: at the bottom, and 7/8 up. */
    shows(r, "<path class=\"line c2\" d=\"M58.0 230.0L544.0 122.0\"/>");
    shows(r, "<path class=\"line c4\" d=\"M58.0 176.0L544.0 41.0\"/>");
    /* The loss starts at 2.25 on an axis from 0 to 2.5. */
    shows(r, "<path class=\"line c2\" d=\"M58.0 35.6L");
}

static void time_is_split_by_worker_and_phase(void **state)
{
    room *r = *state;
    reports(r, FIXTURE);
    shows(r, "<tr><th>0</th><td>1.00</td><td>2.00</td><td>4.00</td><td>0.50</td><td>2.00</td>"
             "<td>0.25</td><td>9.75</td></tr>");
    shows(r, "<tr><th>1</th><td>1.00</td><td>4.00</td><td>4.00</td><td>0.50</td><td>0.00</td>"
             "<td>0.25</td><td>9.75</td></tr>");
    shows(r, "<title>worker 1, all-reduce: 0.500 ms per step (mean) (5.1%)</title>");
}

static void the_page_needs_nothing_but_itself(void **state)
{
    static const char *const outside[] = {"http:",   "https:",  "src=",  "href=", "url(",
                                          "@import", "<script", "<link", "<img",  "<iframe"};
    room *r = *state;
    reports(r, FIXTURE);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        does_not_show(r, outside[i]);
    shows(r, "content=\"default-src 'none'; style-src 'unsafe-inline'\"");
    shows(r, "prefers-color-scheme:dark");
}

static void everything_of_the_run_is_escaped(void **state)
{
    room *r = *state;
    reports(r, FIXTURE); /* its name is a <b> & "c" 'd' */
    shows(r, "<h1>a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;</h1>");
    shows(r, "&quot;name&quot;: &quot;a &lt;b&gt; &amp; \\&quot;c\\&quot; &#39;d&#39;&quot;");
    does_not_show(r, "<b> &");
    reports_changed(r, "\"A CPU\"", "\"</dd><script>alert(1)</script>\"");
    does_not_show(r, "<script");
    shows(r, "&lt;/dd&gt;&lt;script&gt;alert(1)&lt;/script&gt;");
}

static void text_that_is_no_text_is_replaced(void **state)
{
    (void)state;
    ls_buffer b;
    ls_buffer_init(&b, NULL);
    ls_buffer_escape(&b, "a\x01"
                         "b\xFF"
                         "c\xC3\xA9\t\x7F");
    assert_string_equal(b.text, "a\xEF\xBF\xBD"
                                "b\xEF\xBF\xBD"
                                "c\xC3\xA9\t\xEF\xBF\xBD");
    ls_buffer_fini(&b);
}

static void the_default_place_is_the_run_directory(void **state)
{
    room *r = *state;
    write_run(r, r->metrics, strlen(r->metrics));
    assert_int_equal(ls_report_write(r->s.directory, NULL, NULL, NULL), LS_OK);
    char *first = read_whole(scratch_path(&r->s, "report.html"));
    assert_int_equal(ls_report_write(r->s.directory, NULL, NULL, NULL), LS_OK); /* over it */
    char *second = read_whole(scratch_path(&r->s, "report.html"));
    assert_string_equal(first, second);
    free(first);
    free(second);
}

static void numbers_do_not_follow_the_locale(void **state)
{
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8", "de_DE",
                                         "fr_FR.utf8",  "es_ES.UTF-8", "ru_RU.UTF-8"};
    room *r = *state;
    const char *locale = NULL;
    reports(r, FIXTURE);
    char *plain = r->page;
    r->page = NULL;
    for (size_t i = 0; !locale && i < sizeof commas / sizeof *commas; i++)
        locale = setlocale(LC_ALL, commas[i]);
    if (locale)
        reports(r, FIXTURE);
    setlocale(LC_ALL, "C");
    int same = !locale || strcmp(plain, r->page) == 0;
    free(plain);
    if (!locale)
        skip();
    assert_true(same);
}

/* ---- runs that are not whole ---- */

static void synthetic_data_is_said_loudly(void **state)
{
    room *r = *state;
    reports_changed(r, "\"synthetic\":false", "\"synthetic\":true");
    shows(r, "<p class=\"note loud\" role=\"note\"><strong>SYNTHETIC DATA.</strong>");
    shows(r, "(SYNTHETIC data): Lockstep run report</title>");
}

static void a_run_that_failed_or_was_interrupted_says_so(void **state)
{
    room *r = *state;
    reports_changed(r, "\"status\":\"finished\"",
                    "\"status\":\"failed\",\"error\":\"worker 1, step 5: <lost>\"");
    shows(r, "<strong>The run failed:</strong> worker 1, step 5: &lt;lost&gt;</p>");
    reports_changed(r, "\"status\":\"finished\"", "\"status\":\"interrupted\"");
    shows(r, "<strong>Interrupted.</strong>");
}

/* Wherever the last record is cut, the others make a report, which tells. */
static void a_cut_last_record_is_left_out(void **state)
{
    room *r = *state;
    size_t length = strlen(r->metrics), last = length - 1;
    while (r->metrics[last - 1] != '\n')
        last--;
    for (size_t cut = last; cut < length; cut++) {
        write_run(r, r->metrics, cut);
        reports(r, r->s.directory);
        if (cut == length - 1) { /* only the newline is missing: the record is whole */
            does_not_show(r, "role=\"note\"");
            continue;
        }
        shows(r, "<strong>No end.</strong>");
        if (cut == last)
            does_not_show(r, "Cut off.");
        else
            shows(r, "The last record, line 13 of metrics.jsonl, is incomplete and was left out.");
        shows(r, "<title>step 6\nminibatch: 0.7500\ntest: 1.1250</title>");
    }
}

/* After any whole number of records there is something to report. */
static void a_run_under_way_can_be_reported(void **state)
{
    room *r = *state;
    int lines = 0;
    for (size_t i = 0; r->metrics[i]; i++) {
        if (r->metrics[i] != '\n')
            continue;
        write_run(r, r->metrics, i + 1);
        reports(r, r->s.directory);
        if (++lines == 1)
            shows(r, "No values were recorded.");
    }
    assert_int_equal(lines, 13);
}

static void damage_in_the_middle_is_refused_with_its_line(void **state)
{
    room *r = *state;
    char *text = with(r, "\"loss\":1.75", "\"loss\":01.75");
    write_run(r, text, strlen(text));
    refuses(r, LS_EDATA,
            "%s/metrics.jsonl:3:53: expected a number, found a leading zero; remove it",
            r->s.directory);
    free(text);
    text = with(r, "{\"type\":\"epoch\"", "{\"tipe\":\"epoch\"");
    write_run(r, text, strlen(text));
    refuses(r, LS_EDATA,
            "%s/metrics.jsonl:5:1: expected a record, an object with a \"type\"; this is no "
            "metrics file of a run",
            r->s.directory);
    free(text);
}

static void records_without_numbers_leave_gaps(void **state)
{
    room *r = *state;
    reports_changed(r, "\"loss\":1.75", "\"loss\":null");
    does_not_show(r, "nan");
    does_not_show(r, "minibatch: 1.7500");
    shows(r, "<title>step 3\nminibatch: 1.5000");
    /* The curve is interrupted: two pieces that each begin with M. */
    const char *line = strstr(strstr(r->page, "<figcaption>Loss"), "class=\"line c2\" d=\"M");
    const char *close = strchr(strstr(line, "d=\"") + 3, '"'), *second = strchr(line + 20, 'M');
    assert_true(second && second < close);
}

static void what_is_missing_is_named(void **state)
{
    room *r = *state;
    ls_error err;
    char expected[600];
    refuses(r, LS_ENOENT,
            "%s: no metrics.jsonl here; expected the directory of a run, such as "
            "runs/<time>-<name>",
            r->s.directory);
    scratch_file(&r->s, "metrics.jsonl", "", 0);
    refuses(r, LS_ENOENT,
            "%s: no config.json here; expected the directory of a run, such as runs/<time>-<name>",
            r->s.directory);
    scratch_file(&r->s, "config.json", r->config, strlen(r->config));
    refuses(r, LS_EDATA,
            "%s/metrics.jsonl: holds no complete record yet; wait until the run has begun",
            r->s.directory);
    assert_int_equal(ls_report_write("/nowhere/run", NULL, NULL, &err), LS_ENOENT);
    assert_string_equal(err.text, "/nowhere/run: no such directory; expected the directory of a "
                                  "run, such as runs/<time>-<name>");
    const char *file = scratch_path(&r->s, "metrics.jsonl");
    assert_int_equal(ls_report_write(file, NULL, NULL, &err), LS_ENOENT);
    snprintf(expected, sizeof expected,
             "%s: expected the directory of a run, found a file; name the directory it is in",
             file);
    assert_string_equal(err.text, expected);
}

static void a_place_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    ls_error err;
    assert_int_equal(ls_report_write(FIXTURE, "/nowhere/report.html", NULL, &err), LS_EIO);
    assert_string_equal(err.text, "/nowhere/: cannot open the directory: No such file or "
                                  "directory; choose another place with -o FILE");
}

/* ---- long runs ---- */

static int occurrences(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        count++;
    return count;
}

static void a_long_run_is_drawn_with_few_points_that_hide_no_peak(void **state)
{
    enum { STEPS = 20000 };
    room *r = *state;
    FILE *f = fopen(scratch_path(&r->s, "metrics.jsonl"), "w");
    assert_non_null(f);
    for (int i = 1; i <= STEPS; i++)
        fprintf(f, "{\"type\":\"step\",\"step\":%d,\"loss\":%s,\"images_per_s\":100}\n", i,
                i == 777 ? "9.5" : "1.5");
    fclose(f);
    scratch_file(&r->s, "config.json", r->config, strlen(r->config));
    reports(r, r->s.directory);
    assert_true(occurrences(r->page, "class=\"strip\"") <= 500);
    assert_true(strlen(r->page) < 200000);
    assert_int_equal(occurrences(r->page, "(1.5000 to 9.5000)"), 1);
    shows(r, "<title>step 751 to 833\nminibatches (mean and range): 1.5964 (1.5000 to 9.5000)");
    shows(r, "class=\"band c2\"");
}

/* One step that took no time at all must not flatten the curve of the others. */
static void a_single_fast_step_does_not_flatten_the_throughput(void **state)
{
    room *r = *state;
    FILE *f = fopen(scratch_path(&r->s, "metrics.jsonl"), "w");
    assert_non_null(f);
    for (int i = 1; i <= 1000; i++)
        fprintf(f, "{\"type\":\"step\",\"step\":%d,\"loss\":1,\"images_per_s\":%s}\n", i,
                i == 500 ? "900000" : "1000");
    fclose(f);
    scratch_file(&r->s, "config.json", r->config, strlen(r->config));
    reports(r, r->s.directory);
    assert_int_equal(occurrences(r->page, "(1,000 to 900,000)"), 1);
    shows(r, ">2,500</text>"); /* the top of the axis */
    does_not_show(r, ">500,000</text>");
    /* The range ends at the axis' top (y = 14), not above the drawing. */
    shows(r, " 14.0L");
    does_not_show(r, " -");
}

static void large_numbers_have_room_beside_the_axis(void **state)
{
    room *r = *state;
    reports_changed(r, "\"images_per_s\":20000,", "\"images_per_s\":1250000,");
    shows(r, ">0.5 M</text>");
    shows(r, ">1.5 M</text>");
    does_not_show(r, ">1,500,000</text>");
    shows(r, "1,250,000"); /* the value itself, in full */
}

static void ticks_are_one_two_or_five(void **state)
{
    (void)state;
    static const struct {
        double range;
        int ticks;
        double step;
        int digits;
    } cases[] = {{1, 5, 0.2, 1},        {0.35, 5, 0.1, 1},   {10, 5, 2, 0}, {11, 5, 5, 0},
                 {25000, 5, 5000, 0},   {0.01, 5, 0.002, 3}, {7, 7, 1, 0},  {0, 5, 0.2, 1},
                 {INFINITY, 5, 0.2, 1}, {30, 7, 5, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int digits;
        double step = ls_svg_tick_step(cases[i].range, cases[i].ticks, &digits);
        assert_true(fabs(step - cases[i].step) < 1e-9 * cases[i].step);
        assert_int_equal(digits, cases[i].digits);
    }
}

/* ---- a run that goes on ---- */

/* What the page says now. */
static void asks(room *r, ls_live *live)
{
    ls_error err = {0};
    ls_buffer page;
    ls_buffer_init(&page, NULL);
    assert_int_equal(ls_live_page(live, &page, &err), LS_OK);
    free(r->page);
    r->page = strdup(page.text);
    ls_buffer_fini(&page);
    assert_non_null(r->page);
    shows(r, "<script>");
    shows(r, "</html>");
}

static void the_live_page_can_be_asked_for_before_and_after_every_record(void **state)
{
    room *r = *state;
    ls_live *live;
    ls_error err = {0};
    assert_int_equal(ls_live_create(&live, NULL, &err), LS_OK);
    asks(r, live);
    shows(r, "Starting.");
    for (const char *at = r->metrics; *at;) {
        const size_t length = strcspn(at, "\n");
        assert_int_equal(ls_live_record(live, at, length, &err), LS_OK);
        at += length + (at[length] == '\n');
        asks(r, live);
        does_not_show(r, "Starting.");
    }
    shows(r, "<dt>Test accuracy</dt><dd>0.7500</dd>");
    shows(r, "Workers in the newest step");
    ls_live_destroy(live);
}

/* ---- memory ---- */

typedef struct ration {
    int grants, blocks;
} ration;

static void *ration_alloc(void *user, size_t bytes, size_t align)
{
    ration *r = user;
    if (r->grants-- <= 0)
        return NULL;
    r->blocks++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void ration_free(void *user, void *memory)
{
    ((ration *)user)->blocks--;
    free(memory);
}

static void lack_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    room *r = *state;
    ration left = {0, 0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &left};
    const char *out = scratch_path(&r->s, "out.html");
    int status = LS_ENOMEM;
    for (int grants = 0; status != LS_OK; grants++) {
        ls_error err = {0};
        left.grants = grants;
        status = ls_report_write(FIXTURE, out, &host, &err);
        assert_int_equal(left.blocks, 0);
        assert_true(status == LS_OK || status == LS_ENOMEM);
        assert_true(grants < 5000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST_IN_ROOM(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST_IN_ROOM(the_summary_names_result_devices_parameters_and_data),
        TEST_IN_ROOM(the_curves_hold_every_value),
        TEST_IN_ROOM(time_is_split_by_worker_and_phase),
        TEST_IN_ROOM(the_page_needs_nothing_but_itself),
        TEST_IN_ROOM(everything_of_the_run_is_escaped),
        cmocka_unit_test(text_that_is_no_text_is_replaced),
        TEST_IN_ROOM(the_default_place_is_the_run_directory),
        TEST_IN_ROOM(numbers_do_not_follow_the_locale),
        TEST_IN_ROOM(synthetic_data_is_said_loudly),
        TEST_IN_ROOM(a_run_that_failed_or_was_interrupted_says_so),
        TEST_IN_ROOM(a_cut_last_record_is_left_out),
        TEST_IN_ROOM(a_run_under_way_can_be_reported),
        TEST_IN_ROOM(the_live_page_can_be_asked_for_before_and_after_every_record),
        TEST_IN_ROOM(damage_in_the_middle_is_refused_with_its_line),
        TEST_IN_ROOM(records_without_numbers_leave_gaps),
        TEST_IN_ROOM(what_is_missing_is_named),
        TEST_IN_ROOM(a_place_that_cannot_be_written_is_named),
        TEST_IN_ROOM(a_long_run_is_drawn_with_few_points_that_hide_no_peak),
        TEST_IN_ROOM(a_single_fast_step_does_not_flatten_the_throughput),
        TEST_IN_ROOM(large_numbers_have_room_beside_the_axis),
        cmocka_unit_test(ticks_are_one_two_or_five),
        TEST_IN_ROOM(lack_of_memory_is_an_error_that_leaks_nothing),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
