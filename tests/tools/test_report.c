/* SPDX-License-Identifier: MIT */
/* Tests the report of a run: its contents, and the handling of runs that are damaged, unfinished or
 * missing. */
#include "data/ration.h"
#include "data/scratch.h"
#include "page/compare.h"
#include "page/facts.h"
#include "page/page.h"
#include "runner.h"

#include <locale.h>
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
    char *metrics; /* the fixture's records; `lines` point into them, without line ends */
    char *config;
    char *page; /* text of the last report */
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

static void the_page_holds_the_records_and_a_worker_s_times(void **state)
{
    room *r = *state;
    reports(r, FIXTURE);
    shows(r, "{\"type\":\"page\",\"run\":0,\"width\":1,\"steps_from\":0,\"others_from\":0,"
             "\"cut_line\":0,\"metric\":\"test_accuracy\"}\n{\"type\":\"metrics\",\"all\":["
             "{\"key\":\"test_accuracy\",\"name\":\"accuracy\",\"rises\":true},");
    shows(r, ",{\"key\":\"test_mae\",\"name\":\"mean abs. error\",\"rises\":false},");
    shows(r, "]}\n{\"at\":0,\"type\":\"run_start\",\"time\":\"2024-01-31T09:30:00Z\",");
    shows(r, "\n{\"type\":\"step\",\"step\":1,\"epoch\":1,\"rows\":256,\"loss\":2.25,\"lr\":0.2,"
             "\"images_per_s\":20000}\n");
    shows(r, "\n{\"type\":\"step\",\"step\":6,\"epoch\":2,\"rows\":256,\"loss\":0.75,\"lr\":0.2,"
             "\"images_per_s\":40000}\n");
    shows(r, "\n{\"at\":3,\"type\":\"eval\",\"epoch\":1,\"test_loss\":1.625,");
    shows(r, "\n{\"at\":6,\"type\":\"run_end\",");
    shows(r,
          "\n{\"type\":\"times\",\"steps\":6,\"workers\":[{\"gather_s\":0.006,\"forward_s\":0.012,"
          "\"backward_s\":0.024,\"comm_exposed_s\":0.003,\"wait_s\":0.012,\"apply_s\":0.0015},");
    shows(r, "\n{\"type\":\"newest\",\"step\":{\"type\":\"step\",\"step\":6,");
}

static void without_scripts_a_table_tells_the_outcome(void **state)
{
    room *r = *state;
    reports(r, FIXTURE);
    shows(r, "<noscript><main>\n<h1>a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;</h1>");
    shows(r, "<tr><th scope=\"row\">State</th><td>finished</td></tr>");
    shows(r, "<tr><th scope=\"row\">Test accuracy</th><td>0.7500</td></tr>");
    shows(r, "<tr><th scope=\"row\">Steps</th><td>6</td></tr>");
    shows(r, "<tr><td>2</td><td>training</td><td>1.0000</td><td>0.6000</td></tr>");
    shows(r, "<tr><td>2</td><td>test</td><td>1.1250</td><td>0.7500</td></tr>");
    /* The fixture has no file of weights, whose hash could be shown. */
    shows(r, "<tr><th scope=\"row\">Weights’ SHA-256</th><td>–</td></tr>\n"
             "<tr><th scope=\"row\">Weights</th><td>weights.safetensors cannot be read: ");
    does_not_show(r, "made up by the program: these results say nothing of real data.</p>");
}

/* Reports the fixture as a run that learns two values with `loss`, whose evaluations have
 * `measured` instead of the accuracy. */
static void reports_values(room *r, const char *loss, const char *measured)
{
    char *const original = r->metrics, start[40], key[40];
    snprintf(start, sizeof start, "\"config\":{\"loss\":\"%s\",", loss);
    snprintf(key, sizeof key, "\"%s\"", measured);
    const char *changes[][2] = {{"\"data\":{", "\"data\":{\"targets\":2,"},
                                {"\"config\":{", start},
                                {"\"test_accuracy\"", key},
                                {"\"test_accuracy\"", key},
                                {"\"test_accuracy\"", key}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *text = with(r, changes[i][0], changes[i][1]);
        if (r->metrics != original)
            free(r->metrics);
        r->metrics = text;
    }
    assert_null(strstr(r->metrics, "\"test_accuracy\""));
    write_run(r, r->metrics, strlen(r->metrics));
    free(r->metrics);
    r->metrics = original;
    reports(r, r->s.directory);
}

static void the_metric_is_that_of_the_loss_or_the_first_of_the_evaluations(void **state)
{
    room *r = *state;
    reports_values(r, "mae", "test_mae");
    shows(r, "\"metric\":\"test_mae\"}");
    shows(r, "<tr><th scope=\"row\">Test mean abs. error</th><td>0.7500</td></tr>");
    /* a metric of other losses that is measured as well */
    reports_values(r, "mae", "test_r2\":0.5,\"test_mae");
    shows(r, "\"metric\":\"test_mae\"}");
    reports_values(r, "quantile", "test_pinball");
    shows(r, "\"metric\":\"test_pinball\"}");
    reports_values(r, "mse", "test_r2");
    shows(r, "\"metric\":\"test_r2\"}");
    shows(r, "<tr><td>2</td><td>test</td><td>1.1250</td><td>0.7500</td></tr>");
    reports_values(r, "bce", "test_auc");
    shows(r, "\"metric\":\"test_auc\"}");
    shows(r, "<tr><th scope=\"row\">Test AUC</th><td>0.7500</td></tr>");
    reports_values(r, "mse", "nothing");
    shows(r, "\"metric\":\"test_r2\"}");
    shows(r, "<tr><th scope=\"row\">Test R²</th><td>–</td></tr>");
}

static void each_metric_that_is_drawn_has_a_title(void **state)
{
    (void)state;
    for (int m = 0; m < LS_METRICS; m++)
        if (m != LS_METRIC_LOSS && m != LS_METRIC_CONFUSION && !*ls_metric_title((ls_metric)m))
            fail_msg("%s has no title", ls_metric_names[m]);
}

static void rows_that_are_held_out_are_validation_rows_without_scripts_too(void **state)
{
    room *r = *state;
    reports_changed(r, "'d'\",\"data\":{", "'d'\",\"data\":{\"validation\":0.2,");
    shows(r, "<tr><th scope=\"row\">Validation accuracy</th><td>0.7500</td></tr>");
    shows(r, "<tr><td>2</td><td>validation</td><td>1.1250</td><td>0.7500</td></tr>");
    does_not_show(r, "<td>test</td>");
}

static int occurrences(const char *text, const char *what)
{
    const size_t length = strlen(what);
    const char *const end = text + strlen(text); /* strstr of a sanitizer looks for it each time */
    int count = 0;
    for (const char *at = text; (at = memchr(at, what[0], (size_t)(end - at))) != NULL; at++)
        count += (size_t)(end - at) >= length && memcmp(at, what, length) == 0;
    return count;
}

static void the_page_needs_nothing_but_itself(void **state)
{
    static const char *const outside[] = {"https:", "src=", "@import", "<img", "<iframe", "url(h"};
    room *r = *state;
    reports(r, FIXTURE);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        does_not_show(r, outside[i]);
    assert_int_equal(occurrences(r->page, "http:"), 1); /* SVG's name, which nobody fetches */
    assert_int_equal(occurrences(r->page, "href="), 1); /* the empty icon */
    shows(r, "createElementNS('http://www.w3.org/2000/svg'");
    shows(r, "<link rel=\"icon\" href=\"data:,\">");
    shows(r, "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src ");
    shows(r, "prefers-color-scheme: dark");
    does_not_show(r, "data-from=");
    does_not_show(r, "<!--T"); /* every mark is filled in */
}

/* A name can end neither the script that it stands in nor a line of it. */
static void everything_of_the_run_is_escaped(void **state)
{
    room *r = *state;
    reports_changed(r, "\"A CPU\"",
                    "\"</script><script>alert(1)</script><!--\xE2\x80\xA8\xE2\x80\xA9\"");
    shows(r, "\"device_model\":\"\\u003c/script>\\u003cscript>alert(1)\\u003c/script>\\u003c!--"
             "\\u2028\\u2029\"");
    shows(r, "<td>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;!--");
    assert_int_equal(occurrences(r->page, "</script"), 2);
    assert_int_equal(occurrences(r->page, "\xE2\x80\xA8"), 1); /* in the table, as text */
}

static void text_that_is_no_text_is_replaced(void **state)
{
    (void)state;
    ls_buffer b;
    ls_buffer_init(&b, NULL);
    ls_page_escape(&b, "a\x01"
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
    shows(r, "<p class=\"note loud\"><strong>SYNTHETIC DATA.</strong>");
    shows(r, "(SYNTHETIC data): Lockstep run</title>");
}

static void a_run_that_failed_or_was_interrupted_says_so(void **state)
{
    room *r = *state;
    reports_changed(r, "\"status\":\"finished\"",
                    "\"status\":\"failed\",\"error\":\"worker 1, step 5: <lost>\"");
    shows(r, "<td>failed</td>");
    shows(r, "<td>worker 1, step 5: &lt;lost&gt;</td>");
    reports_changed(r, "\"status\":\"finished\"", "\"status\":\"interrupted\"");
    shows(r, "<td>interrupted</td>");
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
        const int whole = cut == length - 1; /* only the newline is missing */
        shows(r, whole ? "<td>finished</td>" : "<td>not ended</td>");
        shows(r, whole || cut == last ? "\"cut_line\":0," : "\"cut_line\":13,");
        shows(r, "\"step\":6,");
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
        lines++;
        shows(r, lines == 13 ? "<td>finished</td>" : "<td>not ended</td>");
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

static void numbers_that_are_missing_stay_missing(void **state)
{
    room *r = *state;
    reports_changed(r, "\"loss\":1.75", "\"loss\":null");
    shows(r, "\"step\":2,\"epoch\":1,\"rows\":256,\"loss\":null,");
    does_not_show(r, ":nan");
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

static void write_long_run(room *r, int steps, int peak)
{
    FILE *f = fopen(scratch_path(&r->s, "metrics.jsonl"), "w");
    assert_non_null(f);
    for (int i = 1; i <= steps; i++)
        fprintf(f,
                "{\"type\":\"step\",\"step\":%d,\"rows\":16,\"loss\":%s,\"grad_norm\":%d,"
                "\"images_per_s\":%s}\n",
                i, i == peak ? "9.5" : "1.5", i == peak ? 10 : 2, i == peak ? "64" : "128");
    fclose(f);
}

/* 100,000 steps are 12,500 lines of eight each; the means are those of the losses and norms, and
 * the rate that of rows over seconds: 128 rows in 1.125 s. */
static void a_long_run_is_thinned_and_no_peak_is_hidden(void **state)
{
    room *r = *state;
    write_long_run(r, 100000, 77777);
    free(r->page);
    r->page = NULL;
    ls_error err = {0};
    const char *out = scratch_path(&r->s, "out.html");
    assert_int_equal(ls_report_write(r->s.directory, out, NULL, &err), LS_OK);
    FILE *f = fopen(out, "rb");
    char *page = calloc(1, 4 << 20);
    assert_non_null(f);
    assert_non_null(page);
    assert_true(fread(page, 1, (4 << 20) - 1, f) < (4 << 20) - 1);
    fclose(f);
    assert_int_equal(occurrences(page, "\n{\"type\":\"step\""), 12500);
    assert_non_null(strstr(page, "\"width\":8,"));
    assert_non_null(
        strstr(page, "{\"type\":\"step\",\"step\":77784,\"epoch\":0,\"rows\":128,\"loss\":2.5,"
                     "\"lr\":null,\"grad_norm\":3,\"images_per_s\":113.77778,\"steps\":8,"
                     "\"loss_range\":[1.5,9.5],\"rate_range\":[64,128]}"));
    free(page);
}

/* ---- a run that goes on ---- */

/* Models how the page processes what it receives (report.js, take). */
typedef struct reader {
    ls_run_seen have;
    char *step[LS_RUN_STEPS], *other[64], *sums;
} reader;

static uint64_t number_behind(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtoull(at + strlen(key), NULL, 10);
}

static void put(char **place, const char *line)
{
    free(*place);
    *place = strdup(line);
}

static void reader_takes(reader *c, const ls_run_log *log)
{
    ls_buffer b;
    ls_buffer_init(&b, NULL);
    ls_run_log_write(log, &c->have, &b);
    assert_int_equal(ls_buffer_status(&b, NULL), LS_OK);
    c->have = (ls_run_seen){number_behind(b.text, "\"run\":"), number_behind(b.text, "\"width\":"),
                            number_behind(b.text, "\"steps_from\":"),
                            number_behind(b.text, "\"others_from\":")};
    const char *const end = b.text + b.length;
    char *at = strchr(b.text, '\n') + 1;
    for (char *next; (next = memchr(at, '\n', (size_t)(end - at))) != NULL; at = next) {
        *next++ = '\0'; /* a sanitizer looks at a string's end each time */
        if (strncmp(at, "{\"type\":\"step\"", 14) == 0)
            put(&c->step[c->have.steps++], at);
        else if (strncmp(at, "{\"at\":", 6) == 0)
            put(&c->other[c->have.others++], at);
        else
            put(&c->sums, at);
    }
    ls_buffer_fini(&b);
}

static void same_as_all(reader *c, const ls_run_log *log)
{
    reader *all = calloc(1, sizeof *all);
    assert_non_null(all);
    reader_takes(all, log);
    assert_int_equal(c->have.steps, all->have.steps);
    assert_int_equal(c->have.others, all->have.others);
    for (uint64_t i = 0; i < all->have.steps; i++)
        assert_string_equal(c->step[i], all->step[i]);
    for (uint64_t i = 0; i < all->have.others; i++)
        assert_string_equal(c->other[i], all->other[i]);
    for (size_t i = 0; i < LS_RUN_STEPS; i++)
        free(all->step[i]);
    for (size_t i = 0; i < 64; i++)
        free(all->other[i]);
    free(all->sums);
    free(all);
}

static void reader_ends(reader *c)
{
    for (size_t i = 0; i < LS_RUN_STEPS; i++)
        free(c->step[i]);
    for (size_t i = 0; i < 64; i++)
        free(c->other[i]);
    free(c->sums);
    free(c);
}

/* Asked for after every record, and across merges of steps, and by a page of another run. */
static void a_page_that_asks_for_what_is_new_has_everything(void **state)
{
    room *r = *state;
    ls_run_log log;
    ls_error err = {0};
    reader *page = calloc(1, sizeof *page);
    assert_non_null(page);
    ls_run_log_init(&log, 7, NULL);
    reader_takes(page, &log);
    for (const char *at = r->metrics; *at; at += strcspn(at, "\n") + 1) {
        assert_int_equal(ls_run_log_line(&log, "m", 1, at, strcspn(at, "\n"), &err), LS_OK);
        reader_takes(page, &log);
    }
    const char *const warning[] = {"text", "a \"disk\" <is> full", NULL};
    assert_int_equal(ls_run_log_note(&log, "warning", warning, &err), LS_OK);
    reader_takes(page, &log);
    assert_non_null(strstr(page->other[page->have.others - 1],
                           "\"type\":\"warning\",\"text\":\"a \\\"disk\\\" \\u003cis> full\"}"));
    same_as_all(page, &log);
    for (int i = 7; i < 70000; i++) {
        char line[96];
        int n =
            snprintf(line, sizeof line, "{\"type\":\"step\",\"step\":%d,\"loss\":%d}", i, i % 10);
        assert_int_equal(ls_run_log_line(&log, "m", 1, line, (size_t)n, &err), LS_OK);
        if (i % 12001 == 0) { /* as many entries as before, but of two steps each */
            reader_takes(page, &log);
            same_as_all(page, &log);
        }
    }
    ls_run_log_fini(&log);
    ls_run_log_init(&log, 8, NULL);
    reader_takes(page, &log);
    assert_int_equal(page->have.steps + page->have.others, 0);
    reader_ends(page);
    ls_run_log_fini(&log);
}

static void the_served_page_fetches_its_records(void **state)
{
    room *r = *state;
    ls_buffer page;
    ls_buffer_init(&page, NULL);
    assert_int_equal(ls_page_write(&page, NULL, NULL), LS_OK);
    free(r->page);
    r->page = strdup(page.text);
    ls_buffer_fini(&page);
    assert_non_null(r->page);
    shows(r, "id=\"records\" data-from=\"records\">");
    shows(r, "<a href=\"state.json\">");
    shows(r, "</html>");
}

/* ---- memory ---- */

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

/* ---- several runs ---- */

static void facts_are_the_same_without_the_steps(void **state)
{
    (void)state;
    ls_run_facts facts[2];
    for (int brief = 0; brief < 2; brief++) {
        ls_run_log log;
        ls_error err = {0};
        ls_run_log_init(&log, 0, NULL);
        log.brief = brief;
        assert_int_equal(ls_report_read(&log, FIXTURE, &err), LS_OK);
        assert_int_equal(log.steps == 0, brief);
        ls_run_facts_find(&facts[brief], &log, FIXTURE);
        ls_run_log_fini(&log);
    }
    assert_string_equal(facts[0].name, facts[1].name);
    assert_true(facts[0].name[0] != '\0');
    assert_string_equal(facts[0].hash, facts[1].hash);
    assert_int_equal(facts[0].state, facts[1].state);
    assert_int_equal(facts[0].steps, facts[1].steps);
    assert_true(facts[0].steps > 0);
    assert_float_equal(facts[0].value, facts[1].value, 0);
    assert_float_equal(facts[0].rate, facts[1].rate, 0);
}

static void a_log_is_thinned_and_no_step_is_lost(void **state)
{
    (void)state;
    ls_run_log log;
    ls_error err = {0};
    uint64_t steps = 0;
    ls_run_log_init(&log, 0, NULL);
    for (int i = 1; i <= 1001; i++) {
        char line[96];
        const int n =
            snprintf(line, sizeof line, "{\"type\":\"step\",\"step\":%d,\"loss\":%d}", i, i % 10);
        assert_int_equal(ls_run_log_line(&log, "m", 1, line, (size_t)n, &err), LS_OK);
    }
    ls_run_log_thin(&log, 300);
    assert_int_equal(log.steps, 251);
    assert_int_equal(log.width, 4);
    for (size_t i = 0; i < log.steps; i++)
        steps += log.step[i].steps;
    assert_int_equal(steps, 1001);
    assert_int_equal(log.step[log.steps - 1].step, 1001);
    ls_run_log_fini(&log);
}

static void lack_of_memory_for_a_comparison_leaks_nothing(void **state)
{
    (void)state;
    static const char *const runs[] = {FIXTURE, FIXTURE};
    ration left = {0, 0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &left};
    int status = LS_ENOMEM;
    for (int grants = 0; status != LS_OK; grants++) {
        ls_comparison c;
        ls_buffer page;
        ls_error err = {0};
        left.grants = grants;
        ls_buffer_init(&page, &host);
        status = ls_comparison_open(&c, runs, 2, &host, &err);
        if (status == LS_OK)
            status = ls_comparison_page(&page, &c, &err);
        ls_comparison_close(&c);
        ls_buffer_fini(&page);
        assert_int_equal(left.blocks, 0);
        assert_true(status == LS_OK || status == LS_ENOMEM);
        assert_true(grants < 5000);
    }
}

LS_TESTS(report, "integration")
{
    const struct CMUnitTest tests[] = {
#define TEST_IN_ROOM(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST_IN_ROOM(the_page_holds_the_records_and_a_worker_s_times),
        TEST_IN_ROOM(without_scripts_a_table_tells_the_outcome),
        TEST_IN_ROOM(the_metric_is_that_of_the_loss_or_the_first_of_the_evaluations),
        cmocka_unit_test(each_metric_that_is_drawn_has_a_title),
        TEST_IN_ROOM(rows_that_are_held_out_are_validation_rows_without_scripts_too),
        TEST_IN_ROOM(the_page_needs_nothing_but_itself),
        TEST_IN_ROOM(everything_of_the_run_is_escaped),
        TEST_IN_ROOM(text_that_is_no_text_is_replaced),
        TEST_IN_ROOM(the_default_place_is_the_run_directory),
        TEST_IN_ROOM(numbers_do_not_follow_the_locale),
        TEST_IN_ROOM(synthetic_data_is_said_loudly),
        TEST_IN_ROOM(a_run_that_failed_or_was_interrupted_says_so),
        TEST_IN_ROOM(a_cut_last_record_is_left_out),
        TEST_IN_ROOM(a_run_under_way_can_be_reported),
        TEST_IN_ROOM(damage_in_the_middle_is_refused_with_its_line),
        TEST_IN_ROOM(numbers_that_are_missing_stay_missing),
        TEST_IN_ROOM(what_is_missing_is_named),
        TEST_IN_ROOM(a_place_that_cannot_be_written_is_named),
        TEST_IN_ROOM(a_long_run_is_thinned_and_no_peak_is_hidden),
        TEST_IN_ROOM(a_page_that_asks_for_what_is_new_has_everything),
        TEST_IN_ROOM(the_served_page_fetches_its_records),
        TEST_IN_ROOM(lack_of_memory_is_an_error_that_leaks_nothing),
        TEST_IN_ROOM(facts_are_the_same_without_the_steps),
        TEST_IN_ROOM(a_log_is_thinned_and_no_step_is_lost),
        TEST_IN_ROOM(lack_of_memory_for_a_comparison_leaks_nothing),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
