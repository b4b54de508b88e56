/* SPDX-License-Identifier: MIT */
/* Tests the metrics file of a run when the disk is full or fails, and when the file was changed
 * before the run is resumed. */
#include "data/scratch.h"
#include "records/kept.h"
#include "records/sink.h"
#include "runner.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void emit(ls_sink *sink, int number)
{
    char text[32];
    ls_error err;
    int n = snprintf(text, sizeof text, "{\"record\":%4d}", number);
    sink->emit(sink, &(ls_record){.json = text, .length = (size_t)n}, &err);
}

/* The file's records are handed to the system, as before a checkpoint. */
static int flush(ls_sink *jsonl, ls_sink_mark *mark, ls_error *err)
{
    ls_sinks sinks = {.metrics = jsonl, .sink = {jsonl}, .count = 1};
    return ls_sinks_flush(&sinks, mark, err);
}

static void what_could_not_be_written_is_the_end_of_the_file(void **state)
{
    (void)state;
    scratch files;
    ls_sink *sink;
    ls_error err, again;
    ls_sink_mark mark;
    char text[400] = "";
    scratch_begin(&files);
    const char *path = scratch_path(&files, "metrics.jsonl");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(ls_sink_jsonl(&sink, path, NULL, NULL, &err), LS_OK);
    for (int i = 0; i < 6; i++)
        emit(sink, i);
    scratch_limit(40); /* two records of 16 bytes, and half a third */
    assert_int_equal(flush(sink, &mark, &err), LS_EIO);
    scratch_limit(0); /* there is room again: too late */
    for (int i = 6; i < 12; i++)
        emit(sink, i);
    assert_int_equal(flush(sink, &mark, &again), LS_EIO);
    assert_string_equal(again.text, err.text);
    assert_non_null(strstr(err.text, "copy the run directory to another disk, and go on with "
                                     "--resume COPY"));
    assert_int_equal(sink->close(sink, &again), LS_EIO);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, "{\"record\":   0}\n{\"record\":   1}\n");
    scratch_end(&files);
}

#define RECORDS 20
#define RECORD 16 /* bytes, the newline included */

static ls_sink_mark write_records(scratch *files, const char **path)
{
    ls_sink *sink;
    ls_error err;
    ls_sink_mark mark;
    scratch_begin(files);
    *path = scratch_path(files, "metrics.jsonl");
    assert_int_equal(ls_sink_jsonl(&sink, *path, NULL, NULL, &err), LS_OK);
    for (int i = 0; i < RECORDS; i++)
        emit(sink, i);
    assert_int_equal(flush(sink, &mark, &err), LS_OK);
    assert_int_equal(mark.bytes, RECORDS * RECORD);
    assert_int_equal(mark.sums.lines, RECORDS);
    emit(sink, 99); /* after the mark: will be cut off */
    assert_int_equal(sink->close(sink, &err), LS_OK);
    return mark;
}

static void overwrite(const char *path, long offset, const void *bytes, size_t count)
{
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static void refuses(const char *path, const ls_sink_mark *mark, const char *words)
{
    ls_sink *sink;
    ls_error err;
    char expected[600];
    snprintf(expected, sizeof expected, "%s%s", path, words);
    assert_int_equal(ls_sink_jsonl(&sink, path, mark, NULL, &err), LS_EDATA);
    err.text[strlen(expected) < strlen(err.text) ? strlen(expected) : strlen(err.text)] = '\0';
    assert_string_equal(err.text, expected);
}

/* A digit of each record in turn becomes another digit: a record still, but not the one that was
 * written. */
static void a_changed_record_is_named_by_its_line(void **state)
{
    (void)state;
    scratch files;
    const char *path;
    char words[100];
    const ls_sink_mark mark = write_records(&files, &path);
    for (int i = 0; i < RECORDS; i++) {
        const char digit[2] = {(char)('0' + i % 10), (char)('0' + (i + 1) % 10)};
        overwrite(path, i * RECORD + 13, &digit[1], 1);
        snprintf(words, sizeof words,
                 ":%d:1: this is not the record that was written before the checkpoint; put",
                 i + 1);
        refuses(path, &mark, words);
        overwrite(path, i * RECORD + 13, &digit[0], 1);
    }
    scratch_end(&files);
}

static void wherever_a_bit_flips_the_metrics_file_is_refused(void **state)
{
    (void)state;
    scratch files;
    const char *path;
    ls_sink *sink;
    ls_error err;
    const ls_sink_mark mark = write_records(&files, &path);
    char text[RECORDS * RECORD];
    FILE *f = fopen(path, "r");
    assert_int_equal(fread(text, 1, sizeof text, f), sizeof text);
    fclose(f);
    for (size_t bit = 0; bit < 8 * sizeof text; bit++) {
        const char changed = (char)(text[bit / 8] ^ (1 << bit % 8));
        overwrite(path, (long)(bit / 8), &changed, 1);
        assert_int_equal(ls_sink_jsonl(&sink, path, &mark, NULL, &err), LS_EDATA);
        char place[20];
        /* A newline more or less makes two lines of one, or one of two. */
        snprintf(place, sizeof place, ".jsonl:%zu:1: this", bit / 8 / RECORD + 1);
        assert_non_null(strstr(err.text, place));
        overwrite(path, (long)(bit / 8), &text[bit / 8], 1);
    }
    assert_int_equal(ls_sink_jsonl(&sink, path, &mark, NULL, &err), LS_OK);
    sink->close(sink, NULL);
    scratch_end(&files);
}

static void several_changed_records_are_refused_and_the_first_broken_one_named(void **state)
{
    (void)state;
    scratch files;
    const char *path;
    const char zeros[3 * RECORD] = {0};
    const ls_sink_mark mark = write_records(&files, &path);
    overwrite(path, 3 * RECORD + 13, "8", 1);
    overwrite(path, 7 * RECORD + 13, "8", 1);
    refuses(path, &mark,
            ": several of its first 20 lines are not the records that were written before the "
            "checkpoint; put");
    overwrite(path, 9 * RECORD + 5, zeros, sizeof zeros);
    refuses(path, &mark,
            ":10:1: this, and maybe more of the file, is not the record that was written");
    scratch_end(&files);
}

static void a_file_that_is_as_it_was_goes_on_and_can_go_on_again(void **state)
{
    (void)state;
    scratch files;
    const char *path;
    ls_sink *sink;
    ls_error err;
    ls_sink_mark mark = write_records(&files, &path), second;
    assert_int_equal(ls_sink_jsonl(&sink, path, &mark, NULL, &err), LS_OK);
    emit(sink, 50);
    assert_int_equal(flush(sink, &second, &err), LS_OK);
    assert_int_equal(second.bytes, (RECORDS + 1) * RECORD);
    assert_int_equal(sink->close(sink, &err), LS_OK);
    assert_int_equal(ls_sink_jsonl(&sink, path, &second, NULL, &err), LS_OK);
    assert_int_equal(sink->close(sink, &err), LS_OK);
    overwrite(path, RECORDS * RECORD + 13, "4", 1);
    refuses(path, &second, ":21:1: this is not the record");
    scratch_end(&files);
}

/* ---- the end that is cut off ---- */

/* What the records after the mark say of the run's end. */
static ls_former_end end_after(const char *records)
{
    scratch files;
    const char *path;
    ls_former_end out;
    const ls_sink_mark mark = write_records(&files, &path);
    assert_int_equal(truncate(path, (off_t)mark.bytes), 0);
    overwrite(path, (long)mark.bytes, records, strlen(records));
    ls_kept_end(&out, path, &mark, NULL);
    scratch_end(&files);
    return out;
}

#define RUN_END "{\"type\":\"run_end\",\"time\":\"T1\",\"status\":\"failed\",\"error\":\"why\"}\n"
#define STEP "{\"type\":\"step\",\"status\":\"no\"}\n"
#define RESUME(ended) "{\"type\":\"resume\",\"time\":\"T2\"" ended "}\n"

static void the_end_that_a_resume_cuts_off_is_known(void **state)
{
    (void)state;
    static const char before[] =
        RESUME(",\"ended\":{\"status\":\"interrupted\",\"time\":\"T0\"}") STEP STEP;
    ls_former_end end = end_after(STEP RUN_END);
    assert_string_equal(end.status, "failed");
    assert_string_equal(end.time, "T1");
    assert_string_equal(end.error, "why");
    end = end_after(before); /* it was resumed, and killed before its next checkpoint */
    assert_string_equal(end.status, "interrupted");
    assert_string_equal(end.time, "T0");
    assert_string_equal(end.error, "");
    assert_string_equal(end_after(RESUME("") STEP).status, "");
    assert_string_equal(end_after(STEP).status, "");
    assert_string_equal(end_after("").status, "");
    assert_string_equal(end_after("{\"type\":\"run_end\",\"status\":\"fai").status, "");
}

/* ---- files that another program moves or cuts ---- */

/* The file is cut between two marks. The second mark is one of the file as it is then. */
static void a_mark_after_a_cut_is_one_of_what_is_left(void **state)
{
    (void)state;
    scratch files;
    ls_sink *sink;
    ls_error err;
    ls_sink_mark mark;
    scratch_begin(&files);
    const char *path = scratch_path(&files, "metrics.jsonl");
    assert_int_equal(ls_sink_jsonl(&sink, path, NULL, NULL, &err), LS_OK);
    for (int i = 0; i < RECORDS; i++)
        emit(sink, i);
    assert_int_equal(flush(sink, &mark, &err), LS_OK);
    assert_int_equal(truncate(path, 0), 0);
    for (int i = 0; i < 3; i++)
        emit(sink, i);
    assert_int_equal(flush(sink, &mark, &err), LS_OK);
    assert_int_equal(mark.bytes, 3 * RECORD);
    assert_int_equal(mark.sums.lines, 3);
    emit(sink, 3);
    assert_int_equal(flush(sink, &mark, &err), LS_OK);
    assert_int_equal(mark.sums.lines, 4);
    assert_int_equal(sink->close(sink, &err), LS_OK);
    assert_int_equal(ls_sink_jsonl(&sink, path, &mark, NULL, &err), LS_OK);
    assert_int_equal(sink->close(sink, &err), LS_OK);
    overwrite(path, 2 * RECORD + 13, "9", 1);
    refuses(path, &mark, ":3:1: this is not the record");
    scratch_end(&files);
}

/* ---- text ---- */

typedef struct listener {
    ls_sink base;
    const char *text; /* text of the last record */
    float loss;
} listener;

static int listen_to(ls_sink *sink, const ls_record *record, ls_error *err)
{
    listener *l = (listener *)sink;
    (void)err;
    l->text = record->json;
    l->loss = record->of.step.loss;
    return LS_OK;
}

static int leave(ls_sink *sink, ls_error *err)
{
    (void)sink;
    (void)err;
    return LS_OK;
}

static void records_become_text_once_and_only_for_those_who_want_it(void **state)
{
    (void)state;
    ls_sinks sinks;
    ls_error err;
    listener a = {.base = {.emit = listen_to, .close = leave}}, b = a, c = a;
    ls_record r = {
        .type = LS_RECORD_STEP, .epoch = 1, .of.step = {.step = 3, .rows = 2, .loss = 0.5f}};
    b.base.wants_text = c.base.wants_text = 1;
    ls_sinks_init(&sinks, NULL);
    assert_int_equal(ls_sinks_add(&sinks, &a.base, &err), LS_OK);
    assert_int_equal(ls_sinks_emit(&sinks, &r, &err), LS_OK);
    assert_null(a.text);
    assert_float_equal(a.loss, 0.5f, 0);
    assert_int_equal(ls_sinks_add(&sinks, &b.base, &err), LS_OK);
    assert_int_equal(ls_sinks_add(&sinks, &c.base, &err), LS_OK);
    assert_int_equal(ls_sinks_emit(&sinks, &r, &err), LS_OK);
    assert_memory_equal(b.text, "{\"type\":\"step\",", strlen("{\"type\":\"step\","));
    assert_non_null(strstr(b.text, "\"step\":3,"));
    assert_non_null(strstr(b.text, "\"loss\":0.5,"));
    assert_int_equal(r.length, strlen(b.text));
    assert_int_equal(b.text[r.length - 1], '}');
    assert_ptr_equal(b.text, c.text);
    assert_int_equal(ls_sinks_close(&sinks, &err), LS_OK);
}

LS_TESTS(train_sink, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_become_text_once_and_only_for_those_who_want_it),
        cmocka_unit_test(what_could_not_be_written_is_the_end_of_the_file),
        cmocka_unit_test(a_changed_record_is_named_by_its_line),
        cmocka_unit_test(wherever_a_bit_flips_the_metrics_file_is_refused),
        cmocka_unit_test(the_end_that_a_resume_cuts_off_is_known),
        cmocka_unit_test(a_mark_after_a_cut_is_one_of_what_is_left),
        cmocka_unit_test(several_changed_records_are_refused_and_the_first_broken_one_named),
        cmocka_unit_test(a_file_that_is_as_it_was_goes_on_and_can_go_on_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
