/* The metrics file when the disk does not take everything. */
#include "data/scratch.h"
#include "train/sink.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void emit(ls_sink *sink, int number)
{
    char record[32];
    ls_error err;
    int n = snprintf(record, sizeof record, "{\"record\":%4d}", number);
    sink->emit(sink, record, (size_t)n, &err);
}

static void what_could_not_be_written_is_the_end_of_the_file(void **state)
{
    (void)state;
    scratch files;
    ls_sink *sink;
    ls_error err, again;
    uint64_t bytes;
    char text[400] = "";
    scratch_begin(&files);
    const char *path = scratch_path(&files, "metrics.jsonl");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(ls_sink_jsonl(&sink, path, LS_LOG_FILE_NEW, NULL, &err), LS_OK);
    for (int i = 0; i < 6; i++)
        emit(sink, i);
    limit_files(40); /* two records of 16 bytes, and half a third */
    assert_int_equal(ls_log_file_flush(sink->file, &bytes, &err), LS_EIO);
    limit_files(RLIM_INFINITY); /* there is room again: too late */
    for (int i = 6; i < 12; i++)
        emit(sink, i);
    assert_int_equal(ls_log_file_flush(sink->file, &bytes, &again), LS_EIO);
    assert_string_equal(again.text, err.text);
    assert_int_equal(sink->close(sink, &again), LS_EIO);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, "{\"record\":   0}\n{\"record\":   1}\n");
    scratch_end(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_could_not_be_written_is_the_end_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
