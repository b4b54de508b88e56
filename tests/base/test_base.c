/* SPDX-License-Identifier: MIT */
/* Tests of src/base: names of statuses, error messages, the host's memory functions, and
 * deadlines. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "runner.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

static void every_status_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(ls_status_name(LS_OK), "LS_OK");
    for (int s = LS_EDIVERGED; s < 0; s++)
        assert_memory_equal(ls_status_name(s), "LS_E", 4);
    assert_string_equal(ls_status_name(LS_EDIVERGED - 1), "unknown status");
    assert_string_equal(ls_status_name(1), "unknown status");
}

static void fail_writes_one_line_and_returns_the_status(void **state)
{
    (void)state;
    ls_error err;
    assert_int_equal(ls_fail(&err, LS_EDATA, "row %d of %s", 3, "x"), LS_EDATA);
    assert_int_equal(err.status, LS_EDATA);
    assert_string_equal(err.text, "row 3 of x");
    assert_int_equal(ls_fail(NULL, LS_EIO, "nobody listens"), LS_EIO);
}

static void a_message_is_one_line_of_valid_utf8(void **state)
{
    (void)state;
    ls_error err;
    ls_fail(&err, LS_EIO, "%s", "a\nb\tc\x7f \xc3\xa4 \xc3 \x1b[2J");
    assert_string_equal(err.text, "a?b?c? \xc3\xa4 ? ?[2J");
    char text[LS_ERROR_TEXT + 8]; /* cut in the middle of an ä */
    memset(text, 'a', LS_ERROR_TEXT - 2);
    memcpy(text + LS_ERROR_TEXT - 2, "\xc3\xa4", 3);
    ls_fail(&err, LS_EIO, "%s", text);
    assert_string_equal(err.text + LS_ERROR_TEXT - 3, "a?");
}

static void an_error_has_the_reason_of_its_last_failure(void **state)
{
    (void)state;
    ls_error err = {.reason = LS_REASON_CLASSES};
    ls_fail(&err, LS_EDATA, "data.encoding");
    assert_int_equal(err.reason, LS_REASON_NONE);
    assert_int_equal(ls_because(&err, ls_fail(&err, LS_EDATA, "x"), LS_REASON_DECIMAL), LS_EDATA);
    assert_int_equal(err.reason, LS_REASON_DECIMAL);
    assert_string_equal(err.text, "x");
    assert_int_equal(ls_because(NULL, LS_EDATA, LS_REASON_DECIMAL), LS_EDATA);
    /* a callback sets none */
    ls_error told = {.text = "x", .reason = LS_REASON_CLASSES};
    assert_int_equal(ls_callback_result(&told, LS_EDATA, &told, "f"), LS_EDATA);
    assert_int_equal(told.reason, LS_REASON_NONE);
}

static void the_result_of_a_callback_is_a_status_with_a_line(void **state)
{
    (void)state;
    ls_error told = {0}, err;
    assert_int_equal(ls_callback_result(&err, LS_OK, &told, "f"), LS_OK);
    assert_int_equal(ls_callback_result(&err, LS_EDATA, &told, "f"), LS_EDATA);
    assert_string_equal(err.text, "f failed with LS_EDATA and gave no message");
    assert_int_equal(err.status, LS_EDATA);
    static const int odd[] = {1, 7, INT_MAX, INT_MIN, LS_EDIVERGED - 1};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char expected[100];
        snprintf(expected, sizeof expected,
                 "f returned %d; expected LS_OK (0) or a negative ls_status", odd[i]);
        assert_int_equal(ls_callback_result(&err, odd[i], &told, "f"), LS_EINVAL);
        assert_int_equal(err.status, LS_EINVAL);
        assert_string_equal(err.text, expected);
    }
    memset(told.text, 'x', sizeof told.text); /* no zero at the end */
    assert_int_equal(ls_callback_result(&err, LS_EIO, &told, "f"), LS_EIO);
    assert_int_equal(strlen(err.text), LS_ERROR_TEXT - 1);
    assert_int_equal(ls_callback_result(&told, 7, &told, "f"), LS_EINVAL);
    assert_memory_equal(told.text, "f returned 7;", 13);
    strcpy(told.text, "disk\nfull\x01");
    assert_int_equal(ls_callback_result(&err, LS_EIO, &told, "f"), LS_EIO);
    assert_string_equal(err.text, "disk?full?");
    assert_int_equal(ls_callback_result(NULL, 7, &told, "f"), LS_EINVAL);
}

/* The limits are set for the whole process; each test program's case runs in one of its own. */
static void a_refused_thread_names_the_limits_that_are_set(void **state)
{
    (void)state;
    char text[LS_THREAD_REASON];
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    low = before;
    low.rlim_cur = 123456u * 1024;
    assert_int_equal(setrlimit(RLIMIT_DATA, &low), 0);
    ls_thread_reason(text, EAGAIN);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_non_null(strstr(text, "Resource temporarily unavailable"));
    assert_non_null(strstr(text, "ulimit -d is 123456 KiB"));
    assert_non_null(strstr(text, "pids.max of the cgroup, or memory"));
    if (before.rlim_cur == RLIM_INFINITY)
        assert_null(strstr(ls_thread_reason(text, EAGAIN), "ulimit -d"));
    assert_null(strstr(ls_thread_reason(text, EPERM), "ulimit"));
}

static void the_limits_of_memory_are_those_that_are_set(void **state)
{
    (void)state;
    char text[LS_MEMORY_LIMITS];
    struct rlimit address, data, low;
    assert_int_equal(getrlimit(RLIMIT_AS, &address), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &data), 0);
    if (address.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY)
        skip();
    assert_string_equal(ls_memory_limits(text), "");
    low = data;
    low.rlim_cur = 123456u * 1024;
    assert_int_equal(setrlimit(RLIMIT_DATA, &low), 0);
    ls_memory_limits(text);
    assert_int_equal(setrlimit(RLIMIT_DATA, &data), 0);
    assert_string_equal(text, "ulimit -d is 123456 KiB");
}

static void a_message_that_is_too_long_is_cut(void **state)
{
    (void)state;
    char text[2 * LS_ERROR_TEXT];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    ls_error err;
    ls_fail(&err, LS_EIO, "%s", text);
    assert_int_equal(strlen(err.text), LS_ERROR_TEXT - 1);
}

struct counted {
    int blocks;
    char line[64];
};

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    ((struct counted *)user)->blocks++;
    void *memory = aligned_alloc(align, bytes);
    if (memory)
        memset(memory, 0xA5, bytes);
    return memory;
}

static void counted_free(void *user, void *memory)
{
    ((struct counted *)user)->blocks--;
    free(memory);
}

static void keep_line(void *user, ls_log_level level, const char *text)
{
    struct counted *c = user;
    c->line[0] = (char)('0' + (int)level);
    strncpy(c->line + 1, text, sizeof c->line - 2);
}

static void memory_is_zeroed_aligned_and_the_hosts(void **state)
{
    (void)state;
    struct counted c = {0};
    ls_host host = {sizeof host, counted_alloc, counted_free, NULL, &c};
    const ls_host *hosts[] = {NULL, &host};
    for (int h = 0; h < 2; h++) {
        unsigned char *p = ls_alloc(hosts[h], 100);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % LS_ALIGN, 0);
        for (int i = 0; i < 100; i++)
            assert_int_equal(p[i], 0);
        assert_int_equal(c.blocks, h);
        ls_free(hosts[h], p);
        ls_free(hosts[h], NULL);
        assert_int_equal(c.blocks, 0);
    }
    char *text = ls_strdup(&host, "lockstep");
    assert_string_equal(text, "lockstep");
    ls_free(&host, text);
}

static void sizes_that_overflow_give_no_memory(void **state)
{
    (void)state;
    assert_null(ls_alloc(NULL, SIZE_MAX));
    assert_null(ls_alloc_array(NULL, SIZE_MAX / 2, 3));
    void *p = ls_alloc_array(NULL, 0, 8);
    assert_non_null(p);
    ls_free(NULL, p);
}

/* The system refuses the truncated path, and its folder or its name as well: nothing is created
 * elsewhere. */
static void a_path_that_is_cut_leads_nowhere(void **state)
{
    (void)state;
    char folder[2 * LS_PATH_BYTES], name[256], path[LS_PATH_BYTES];
    struct stat st;
    memset(name, 'n', 255);
    name[255] = '\0';
    assert_string_equal(ls_path_join(path, "a/b", "c"), "a/b/c");
    for (size_t length = 2; length < sizeof folder; length += 2) {
        for (size_t i = 0; i < length; i++)
            folder[i] = i % 2 ? '/' : '.';
        folder[length - 1] = '\0'; /* "./././." */
        errno = 0;
        assert_int_equal(stat(ls_path_join(path, folder, name), &st), -1);
        assert_int_equal(errno, length + 256 > 4096 ? ENAMETOOLONG : ENOENT);
        const char *slash = strrchr(path, '/');
        if (length + 255 >= sizeof path)
            assert_true(slash - path >= 4095 || strlen(slash + 1) > 255);
        else
            assert_string_equal(slash + 1, name);
    }
}

static void log_lines_reach_the_host_with_their_level(void **state)
{
    (void)state;
    struct counted c = {0};
    ls_host host = {sizeof host, NULL, NULL, keep_line, &c};
    ls_log(&host, LS_LOG_WARNING, "%d workers", 3);
    assert_string_equal(c.line, "23 workers");
    ls_log(NULL, LS_LOG_ERROR, "nobody listens");
}

static void deadlines_never_wrap_around(void **state)
{
    (void)state;
    uint64_t before = ls_now_ns();
    uint64_t deadline = ls_deadline_ns(1000);
    assert_true(deadline >= before + 1000 && deadline <= ls_now_ns() + 1000);
    assert_true(ls_deadline_ns(UINT64_MAX) == UINT64_MAX);
    assert_true(ls_deadline_ns(UINT64_MAX - 1) == UINT64_MAX);
}

static void a_pause_uses_up_no_patience(void **state)
{
    const uint64_t second = 1000000000;
    (void)state;
    ls_patience p = ls_patience_of(second);
    assert_true(ls_patience_nap(&p) == p.seen_ns + LS_NAP_NS);
    p.seen_ns -= 10 * second; /* as if nobody had looked for so long */
    assert_false(ls_patience_over(&p));
    assert_true(p.left_ns == second - LS_ATTENTION_NS);
    for (int i = 1; i < 20; i++) { /* late every time: it ends nevertheless */
        assert_true(p.left_ns > 0);
        p.seen_ns -= second;
        assert_true(ls_patience_over(&p) == (i == 19));
    }
    p = ls_patience_of(UINT64_MAX);
    p.seen_ns -= 10 * second;
    assert_false(ls_patience_over(&p));
    assert_true(ls_patience_nap(&p) == UINT64_MAX);
    p = ls_patience_until(1);
    assert_true(p.left_ns == 0 && ls_patience_over(&p));
    uint64_t seen = ls_now_ns() - second; /* a watcher that is known to have had no CPU */
    assert_true(ls_attended_ns(&seen, second / 2) == second / 2 + LS_ATTENTION_NS);
}

static void *refuse_large(void *user, size_t bytes, size_t alignment)
{
    (void)alignment;
    return bytes <= *(const size_t *)user ? malloc(bytes) : NULL;
}

static void release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void a_text_without_memory_names_its_bytes(void **state)
{
    (void)state;
    size_t most = 0;
    const ls_host host = {
        .size = sizeof host, .alloc = refuse_large, .free = release, .user = &most};
    ls_error err;
    ls_buffer b;
    ls_buffer_init(&b, &host);
    ls_buffer_put(&b, "the first memory");
    assert_int_equal(ls_buffer_status(&b, &err), LS_ENOMEM);
    assert_string_equal(err.text, "out of memory for 1024 bytes of text");
    ls_buffer_fini(&b);
    most = 1024;
    for (int i = 0; i < 200; i++)
        ls_buffer_put(&b, "sixteen letters.");
    assert_int_equal(ls_buffer_status(&b, &err), LS_ENOMEM);
    assert_string_equal(err.text, "out of memory for 2048 bytes of text");
    ls_buffer_fini(&b);
    b.failed = true; /* as who has no memory for a part of the text sets it */
    assert_int_equal(ls_buffer_status(&b, &err), LS_ENOMEM);
    assert_string_equal(err.text, "out of memory for a text");
}

LS_TESTS(base, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(fail_writes_one_line_and_returns_the_status),
        cmocka_unit_test(a_message_is_one_line_of_valid_utf8),
        cmocka_unit_test(an_error_has_the_reason_of_its_last_failure),
        cmocka_unit_test(the_result_of_a_callback_is_a_status_with_a_line),
        cmocka_unit_test(a_refused_thread_names_the_limits_that_are_set),
        cmocka_unit_test(the_limits_of_memory_are_those_that_are_set),
        cmocka_unit_test(a_message_that_is_too_long_is_cut),
        cmocka_unit_test(memory_is_zeroed_aligned_and_the_hosts),
        cmocka_unit_test(sizes_that_overflow_give_no_memory),
        cmocka_unit_test(a_path_that_is_cut_leads_nowhere),
        cmocka_unit_test(a_text_without_memory_names_its_bytes),
        cmocka_unit_test(log_lines_reach_the_host_with_their_level),
        cmocka_unit_test(deadlines_never_wrap_around),
        cmocka_unit_test(a_pause_uses_up_no_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
