/* SPDX-License-Identifier: MIT */
/* Tests files of records when a write fails in the middle of a record. */
#include "runner.h"
#include "store/log_file.h"
#include "store/store_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 70000 }; /* length of a record that is longer than the buffer of a file */

static const ls_log_kind lines = {true, "metrics", "free some space"};

/* Appends "first" and then a long record to a new file. The file has space for `space` bytes of the
 * long record with its newline. Checks that the file has only the complete records. */
static void put_long_into(unsigned long space)
{
    static char record[LONG];
    static const char first[] = "first";
    const unsigned long begun = sizeof first; /* length of the record and its newline */
    const bool fits = space > LONG;
    scratch s;
    ls_log_file *f;
    ls_error err = {0};
    uint64_t length = 0;
    size_t size;
    scratch_begin(&s);
    memset(record, 'x', sizeof record);
    const char *path = scratch_path(&s, "f");
    must(ls_log_file_open(&f, path, LS_LOG_FILE_NEW, &lines, NULL, &err), &err);
    must(ls_log_file_put(f, first, strlen(first), &err), &err);
    scratch_limit(begun + space);
    const int status = ls_log_file_put(f, record, sizeof record, &err);
    scratch_limit(0); /* there is space again: too late */
    if (fits)
        must(status, &err);
    else
        refused(status, LS_EIO, &err, "f: cannot write metrics: File too large; free some space");
    (void)ls_log_file_put(f, "later", 5, NULL);
    assert_int_equal(ls_log_file_flush(f, &length, NULL), fits ? LS_OK : LS_EIO);
    assert_int_equal(ls_log_file_close(f, NULL), fits ? LS_OK : LS_EIO);
    char *bytes = read_whole(path, &size);
    assert_true(length == size);
    assert_int_equal(size, begun + (fits ? LONG + 1 + strlen("later\n") : 0));
    assert_memory_equal(bytes, "first\n", begun);
    free(bytes);
    scratch_end(&s);
}

static void a_long_record_is_there_with_its_newline_or_not_at_all(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    put_long_into(LONG + 1);
    put_long_into(LONG); /* only the newline fails */
    put_long_into(LONG - 1);
    put_long_into(0);
}

static int warnings;

static void count_warnings(void *user, ls_log_level level, const char *text)
{
    (void)user;
    warnings +=
        level == LS_LOG_WARNING && strstr(text, "another program has cut the file from") != NULL;
}

/* What logrotate does with copytruncate: another program makes the file shorter. */
static void a_file_that_another_program_cuts_goes_on_at_its_end(void **state)
{
    (void)state;
    const ls_host host = {.size = sizeof host, .log = count_warnings};
    scratch s;
    ls_log_file *f;
    ls_error err = {0};
    uint64_t length = 0;
    scratch_begin(&s);
    warnings = 0;
    const char *path = scratch_path(&s, "f");
    must(ls_log_file_open(&f, path, LS_LOG_FILE_NEW, &lines, &host, &err), &err);
    must(ls_log_file_put(f, "one", 3, &err), &err);
    must(ls_log_file_flush(f, &length, &err), &err);
    assert_false(ls_log_file_was_cut(f));
    for (int kept = 0; kept <= 4; kept += 4) {
        assert_int_equal(truncate(path, kept), 0);
        must(ls_log_file_put(f, "two", 3, &err), &err);
        must(ls_log_file_put(f, "three", 5, &err), &err);
        must(ls_log_file_flush(f, &length, &err), &err);
        assert_true(ls_log_file_was_cut(f));
        assert_false(ls_log_file_was_cut(f));
        char *bytes = read_whole(path, NULL);
        assert_string_equal(bytes, kept ? "two\ntwo\nthree\n" : "two\nthree\n");
        assert_int_equal(length, strlen(bytes));
        free(bytes);
    }
    assert_int_equal(warnings, 2);
    must(ls_log_file_close(f, &err), &err);
    scratch_end(&s);
}

LS_TESTS(store_log_file, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_record_is_there_with_its_newline_or_not_at_all),
        cmocka_unit_test(a_file_that_another_program_cuts_goes_on_at_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
