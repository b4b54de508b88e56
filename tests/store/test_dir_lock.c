/* SPDX-License-Identifier: MIT */
/* Tests the lock of a directory, which lets only one process use a run. */
#include "runner.h"
#include "store/durable.h"
#include "store/store_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_held_lock_is_refused_with_its_holder_s_number(void **state)
{
    (void)state;
    scratch s;
    char words[400];
    ls_dir_lock lock, second;
    ls_error err = {0};
    scratch_begin(&s);
    must(ls_dir_lock_take(&lock, s.directory, NULL, &err), &err);
    snprintf(words, sizeof words, "%s: in use by process %ld; ", s.directory, (long)getpid());
    refused(ls_dir_lock_take(&second, s.directory, NULL, &err), LS_EAGAIN, &err, words);
    ls_dir_lock_release(&second);
    ls_dir_lock_release(&lock);
    ls_dir_lock_release(&lock);
    must(ls_dir_lock_take(&lock, s.directory, NULL, &err), &err);
    ls_dir_lock_release(&lock);
    memset(&lock, 0, sizeof lock);
    ls_dir_lock_release(&lock);
    assert_int_not_equal(write(STDOUT_FILENO, "", 0), -1); /* descriptor 0 and 1 are still there */
    assert_names(s.directory, "lock");
    scratch_end(&s);
}

/* Takes the lock in another process and waits there; returns once it is held. */
static pid_t hold_elsewhere(const char *directory, int pipe_end[2])
{
    char byte;
    assert_int_equal(pipe(pipe_end), 0);
    pid_t child = fork();
    if (child == 0) {
        ls_dir_lock lock;
        if (ls_dir_lock_take(&lock, directory, NULL, NULL) != LS_OK ||
            write(pipe_end[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pipe_end[0], &byte, 1), 1);
    return child;
}

static void a_dead_holder_holds_nothing(void **state)
{
    (void)state;
    scratch s;
    int pipe_end[2];
    int status;
    char words[100];
    ls_dir_lock lock;
    ls_error err = {0};
    scratch_begin(&s);
    pid_t child = hold_elsewhere(s.directory, pipe_end);
    snprintf(words, sizeof words, "in use by process %ld;", (long)child);
    refused(ls_dir_lock_take(&lock, s.directory, NULL, &err), LS_EAGAIN, &err, words);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    scratch_file(&s, "lock", "a longer text than a number\n", 28);
    must(ls_dir_lock_take(&lock, s.directory, NULL, &err), &err);
    char *text = read_whole(scratch_path(&s, "lock"), NULL);
    snprintf(words, sizeof words, "%ld\n", (long)getpid());
    assert_string_equal(text, words);
    free(text);
    ls_dir_lock_release(&lock);
    close(pipe_end[0]);
    close(pipe_end[1]);
    scratch_end(&s);
}

static void a_lock_without_a_number_is_a_lock(void **state)
{
    (void)state;
    scratch s;
    ls_dir_lock lock, second;
    ls_error err = {0};
    scratch_begin(&s);
    must(ls_dir_lock_take(&lock, s.directory, NULL, &err), &err);
    scratch_file(&s, "lock", "what?", 5);
    refused(ls_dir_lock_take(&second, s.directory, NULL, &err), LS_EAGAIN, &err,
            "in use by another process");
    ls_dir_lock_release(&lock);
    scratch_end(&s);
}

static void what_cannot_be_opened_is_named(void **state)
{
    (void)state;
    scratch s;
    ls_dir_lock lock;
    ls_error err = {0};
    scratch_begin(&s);
    refused(ls_dir_lock_take(&lock, scratch_path(&s, "none"), NULL, &err), LS_EIO, &err,
            "none/lock: cannot open for writing: No such file or directory");
    assert_false(lock.held);
    scratch_end(&s);
}

LS_TESTS(store_dir_lock, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_lock_is_refused_with_its_holder_s_number),
        cmocka_unit_test(a_dead_holder_holds_nothing),
        cmocka_unit_test(a_lock_without_a_number_is_a_lock),
        cmocka_unit_test(what_cannot_be_opened_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
