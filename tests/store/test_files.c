/* SPDX-License-Identifier: MIT */
/* Tests files that exist completely or not at all: writing and replacing them, and the remains of
 * interrupted processes. */
#define _GNU_SOURCE /* mknod */
#include "runner.h"
#include "store/store_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **state)
{
    scratch *s = malloc(sizeof *s);
    scratch_begin(s);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    scratch_end(*state);
    free(*state);
    return 0;
}

/* ---- the writer ---- */

static void what_is_written_is_there_and_counted(void **state)
{
    scratch *s = *state;
    ls_file_writer w;
    ls_error err = {0};
    const char *path = scratch_path(s, "f");
    must(ls_replace_begin(&w, path, NULL, &err), &err);
    must(ls_file_writer_write(&w, "a", 1, &err), &err);
    must(ls_file_writer_write(&w, NULL, 0, &err), &err);
    must(ls_file_writer_write(&w, "bc", 2, &err), &err);
    must(ls_replace_commit(&w, &err), &err);
    ls_file_writer_abandon(&w); /* does nothing any more */
    assert_int_equal(w.bytes, 3);
    char *bytes = read_whole(path, NULL);
    assert_string_equal(bytes, "abc");
    free(bytes);
}

static void an_abandoned_file_is_gone(void **state)
{
    scratch *s = *state;
    ls_file_writer w = {0};
    ls_error err = {0};
    ls_file_writer_abandon(&w); /* zeroed */
    must(ls_replace_begin(&w, scratch_path(s, "f"), NULL, &err), &err);
    must(ls_file_writer_write(&w, "a", 1, &err), &err);
    ls_file_writer_abandon(&w);
    ls_file_writer_abandon(&w);
    assert_names(s->directory, "");
}

static void modes_follow_the_umask(void **state)
{
    scratch *s = *state;
    struct stat st;
    ls_error err = {0};
    int made;
    mode_t old = umask(027);
    must(ls_replace_file(scratch_path(s, "f"), "a", 1, NULL, &err), &err);
    must(ls_make_directory(scratch_path(s, "b"), &made, &err), &err);
    assert_int_equal(umask(old), 027); /* and leave it alone */
    assert_int_equal(stat(scratch_path(s, "f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(stat(scratch_path(s, "b"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
}

static void descriptors_are_closed_on_exec(void **state)
{
    scratch *s = *state;
    ls_file_writer w;
    ls_error err = {0};
    must(ls_replace_begin(&w, scratch_path(s, "f"), NULL, &err), &err);
    assert_true(fcntl(w.fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(w.lock, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(w.folder, F_GETFD) & FD_CLOEXEC);
    ls_file_writer_abandon(&w);
}

/* In a process of its own, since a limit on sizes comes with a signal. */
static int write_too_much(const scratch *s)
{
    ls_file_writer w;
    ls_error err = {0}, again = {0};
    char path[600];
    char bytes[8000] = {0};
    struct rlimit limit = {5000, 5000};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    snprintf(path, sizeof path, "%s/f", s->directory);
    if (sigaction(SIGXFSZ, &ignore, NULL) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    if (ls_replace_begin(&w, path, NULL, &err) != LS_OK)
        return 2;
    if (ls_file_writer_write(&w, bytes, sizeof bytes, &err) != LS_EIO ||
        !strstr(err.text, "/f: cannot write: File too large")) /* not the hidden name */
        return 3;
    if (ls_file_writer_write(&w, bytes, 1, &again) != LS_EIO || strcmp(again.text, err.text) != 0)
        return 4;
    if (ls_replace_commit(&w, &again) != LS_EIO || strcmp(again.text, err.text) != 0)
        return 5;
    return access(path, F_OK) == 0 ? 6 : 0;
}

static void a_failed_write_fails_the_file(void **state)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(write_too_much(*state));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- replacing ---- */

static void a_replaced_file_is_old_until_it_is_new(void **state)
{
    scratch *s = *state;
    ls_file_writer w;
    ls_error err = {0};
    const char *path = scratch_path(s, "f");
    must(ls_replace_file(path, "old", 3, NULL, &err), &err);
    must(ls_replace_begin(&w, path, NULL, &err), &err);
    must(ls_file_writer_write(&w, "newer", 5, &err), &err);
    char *bytes = read_whole(path, NULL);
    assert_string_equal(bytes, "old");
    free(bytes);
    must(ls_replace_commit(&w, &err), &err);
    bytes = read_whole(path, NULL);
    assert_string_equal(bytes, "newer");
    free(bytes);
    assert_names(s->directory, "f");
}

static void replacing_works_without_a_directory_in_the_path(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(s->directory), 0);
    must(ls_replace_file("f", "a", 1, NULL, &err), &err);
    must(ls_sync_path(".", &err), &err);
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_names(s->directory, "f");
}

static void a_failed_replacement_leaves_nothing_but_the_old(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_file_writer w;
    scratch_directory(s, "d");
    scratch_file(s, "f", "old", 3);
    refused(ls_replace_file(scratch_path(s, "d"), "a", 1, NULL, &err), LS_EIO, &err,
            "/d\": expected the name of a file, found a directory");
    refused(ls_replace_file(scratch_path(s, "d/"), "a", 1, NULL, &err), LS_EIO, &err,
            "/d/\": expected the name of a file, found a directory");
    refused(ls_replace_file(scratch_path(s, "no/f"), "a", 1, NULL, &err), LS_EIO, &err,
            "no/: cannot open the directory: No such file or directory");
    must(ls_replace_begin(&w, scratch_path(s, "e"), NULL, &err), &err);
    scratch_directory(s, "e");
    refused(ls_replace_commit(&w, &err), LS_EIO, &err,
            "/e\": expected the name of a file, found a directory");
    assert_int_equal(rmdir(scratch_path(s, "e")), 0);
    assert_names(s->directory, "d f"); /* without being told to abandon it */
    ls_file_writer_abandon(&w);
    must(ls_replace_begin(&w, scratch_path(s, "f"), NULL, &err), &err);
    must(ls_file_writer_write(&w, "new", 3, &err), &err);
    ls_file_writer_abandon(&w);
    assert_names(s->directory, "d f");
    char *bytes = read_whole(scratch_path(s, "f"), NULL);
    assert_string_equal(bytes, "old");
    free(bytes);
    refused(ls_sync_path(scratch_path(s, "no"), &err), LS_EIO, &err,
            "no: cannot open the directory: No such file or directory");
}

static void a_directory_is_made_with_those_above_it(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    int made;
    must(ls_make_directory(scratch_path(s, "a/b/c/"), &made, &err), &err);
    assert_true(made);
    must(ls_make_directory(scratch_path(s, "a/b/c"), &made, &err), &err);
    assert_false(made);
    must(ls_make_directory(scratch_path(s, "a/b/d"), &made, &err), &err);
    assert_true(made);
    assert_names(scratch_path(s, "a/b"), "c d");
    scratch_file(s, "f", "x", 1);
    refused(ls_make_directory(scratch_path(s, "f"), &made, &err), LS_EIO, &err,
            "f: cannot make the directory: Not a directory");
    refused(ls_make_directory(scratch_path(s, "f/g"), &made, &err), LS_EIO, &err,
            "f/g: cannot make the directory: Not a directory");
    rmdir(scratch_path(s, "a/b/c"));
    rmdir(scratch_path(s, "a/b/d"));
    rmdir(scratch_path(s, "a/b"));
}

static void a_named_link_is_written_through_and_a_plain_file_replaced(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    scratch_file(s, "f", "a longer text", 13);
    assert_int_equal(symlink("f", scratch_path(s, "link")), 0);
    must(ls_write_file(scratch_path(s, "link"), "new", 3, NULL, &err), &err);
    char *bytes = read_whole(scratch_path(s, "f"), NULL);
    assert_string_equal(bytes, "new");
    free(bytes);
    must(ls_write_file(scratch_path(s, "f"), "newer", 5, NULL, &err), &err);
    bytes = read_whole(scratch_path(s, "link"), NULL);
    assert_string_equal(bytes, "newer");
    free(bytes);
    must(ls_write_file("/dev/null", "gone", 4, NULL, &err), &err);
    refused(ls_write_file("/dev/full", "gone", 4, NULL, &err), LS_EIO, &err,
            "/dev/full: cannot write: No space left on device");
    assert_names(s->directory, "f link");
}

/* ---- what stands at a path ---- */

/* Creates a device; returns false if this process may not. */
static bool make_null(const char *path)
{
    return mknod(path, S_IFCHR | 0666, makedev(1, 3)) == 0;
}

static void make_socket(scratch *s, const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", scratch_path(s, name));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

static void is_never_replaced(scratch *s, const char *name, const char *found)
{
    char path[600], words[100], target[LS_PATH_BYTES];
    struct stat before, after;
    ls_error err = {0};
    snprintf(path, sizeof path, "%s", scratch_path(s, name));
    snprintf(words, sizeof words, "/%s\": expected the name of a file, found %s", name, found);
    assert_int_equal(lstat(path, &before), 0);
    refused(ls_follow_links(target, path, &err), LS_EINVAL, &err, words);
    assert_int_equal(symlink(name, scratch_path(s, "link")), 0);
    snprintf(words, sizeof words, "/link\": expected the name of a file, found %s", found);
    refused(ls_follow_links(target, scratch_path(s, "link"), &err), LS_EINVAL, &err, words);
    assert_int_equal(unlink(scratch_path(s, "link")), 0);
    refused(ls_replace_file(path, "a", 1, NULL, &err), LS_EIO, &err, found);
    assert_int_equal(lstat(path, &after), 0);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_ino, before.st_ino);
}

static void nothing_but_a_file_is_replaced(void **state)
{
    scratch *s = *state;
    scratch_directory(s, "d");
    is_never_replaced(s, "d", "a directory");
    assert_int_equal(mkfifo(scratch_path(s, "p"), 0600), 0);
    is_never_replaced(s, "p", "a pipe");
    make_socket(s, "s");
    is_never_replaced(s, "s", "a socket");
    if (make_null(scratch_path(s, "n"))) /* root only */
        is_never_replaced(s, "n", "a device");
}

static void leads_to(scratch *s, const char *name, const char *want)
{
    char target[LS_PATH_BYTES], whole[700];
    ls_error err = {0};
    must(ls_follow_links(target, scratch_path(s, name), &err), &err);
    snprintf(whole, sizeof whole, "%s", scratch_path(s, want));
    assert_string_equal(target, whole);
    must(ls_replace_file(target, name, strlen(name), NULL, &err), &err);
    char *bytes = read_whole(scratch_path(s, name), NULL); /* through the link */
    assert_string_equal(bytes, name);
    free(bytes);
}

static void links_lead_to_the_file_that_is_replaced(void **state)
{
    scratch *s = *state;
    struct stat st;
    char whole[700];
    ls_error err = {0};
    scratch_directory(s, "store");
    scratch_file(s, "store/f", "old", 3);
    snprintf(whole, sizeof whole, "%s", scratch_path(s, "store/f"));
    assert_int_equal(symlink("store/f", scratch_path(s, "relative")), 0);
    assert_int_equal(symlink(whole, scratch_path(s, "absolute")), 0);
    assert_int_equal(symlink("../relative", scratch_path(s, "store/chain")), 0);
    assert_int_equal(symlink("store/new", scratch_path(s, "dangling")), 0);
    leads_to(s, "store/f", "store/f");
    leads_to(s, "relative", "store/f");
    leads_to(s, "absolute", "store/f");
    leads_to(s, "store/chain", "store/../store/f");
    leads_to(s, "dangling", "store/new");
    assert_int_equal(lstat(scratch_path(s, "dangling"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(symlink("round", scratch_path(s, "round")), 0);
    refused(ls_follow_links((char[LS_PATH_BYTES]){0}, scratch_path(s, "round"), &err), LS_EIO, &err,
            "/round: cannot follow the link: Too many levels of symbolic links");
    assert_int_equal(symlink("nothing/", scratch_path(s, "to_none")), 0);
    refused(ls_follow_links((char[LS_PATH_BYTES]){0}, scratch_path(s, "to_none"), &err), LS_EINVAL,
            &err, "found a directory");
    refused(ls_follow_links((char[LS_PATH_BYTES]){0}, "", &err), LS_EINVAL, &err,
            "\"\": expected the name of a file, found a directory");
}

/* Names as long as the file system allows still have a hidden one beside them. */
static void the_longest_name_is_replaced(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    char name[256];
    memset(name, 'n', 255);
    memcpy(name + 126, "\xe2\x82\xac", 3); /* at the place where it is truncated */
    name[255] = '\0';
    must(ls_replace_file(scratch_path(s, name), "a", 1, NULL, &err), &err);
    assert_names(s->directory, name);
}

static void a_long_path_leaves_room_for_the_reason(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    char name[400];
    (void)s;
    memset(name, 'x', sizeof name);
    memcpy(name, "/none/", 6);
    for (size_t i = 7; i < sizeof name - 2; i += 2)
        memcpy(name + i, "\xc3\xa4", 2);
    name[200] = '/';
    name[201] = 'x';
    name[sizeof name - 1] = '\0';
    refused(ls_replace_file(name, "a", 1, NULL, &err), LS_EIO, &err,
            "cannot open the directory: No such file or directory");
    assert_true(((unsigned char)err.text[0] & 0xC0) != 0x80);
}

/* ---- left-overs ---- */

/* A process that dies while it writes. */
static void die_writing(const scratch *s, const char *file)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        ls_file_writer w;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", s->directory, file);
        if (ls_replace_begin(&w, path, NULL, NULL) != LS_OK)
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void what_the_dead_left_is_removed(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    die_writing(s, "f");
    must(ls_replace_file(scratch_path(s, "g"), "a", 1, NULL, &err), &err);
    assert_names(s->directory, "g");
}

static void what_the_living_write_is_left_alone(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_file_writer w;
    must(ls_replace_begin(&w, scratch_path(s, "f"), NULL, &err), &err);
    for (int i = 0; i < 3; i++)
        must(ls_replace_file(scratch_path(s, "g"), "a", 1, NULL, &err), &err);
    must(ls_file_writer_write(&w, "a", 1, &err), &err);
    must(ls_replace_commit(&w, &err), &err);
    assert_names(s->directory, "f g");
}

static void other_hidden_names_are_nobody_s_business(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    static const char *const names[] = {".f",
                                        ".f.lockstep-",
                                        ".f.lockstep-12",
                                        ".f.lockstep-12-",
                                        ".f.lockstep-12-3x",
                                        ".f.lockstep--3",
                                        "f.lockstep-12-3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        scratch_file(s, names[i], "a", 1);
    scratch_file(s, ".a.lockstep-12-3", "a", 1); /* this one is a left-over */
    must(ls_replace_file(scratch_path(s, "z"), "a", 1, NULL, &err), &err);
    assert_names(s->directory, ".f .f.lockstep- .f.lockstep--3 .f.lockstep-12 .f.lockstep-12- "
                               ".f.lockstep-12-3x f.lockstep-12-3 z");
}

/* A directory in a left-over is not what we wrote: it stays, and does no harm. */
static void what_cannot_be_removed_stays(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    scratch_directory(s, ".a.lockstep-12-3");
    scratch_directory(s, ".a.lockstep-12-3/deep");
    must(ls_replace_file(scratch_path(s, "z"), "a", 1, NULL, &err), &err);
    assert_names(s->directory, ".a.lockstep-12-3 z");
}

static void lack_of_memory_is_reported_and_leaks_nothing(void **state)
{
    scratch *s = *state;
    counting c;
    int rc = LS_ENOMEM;
    counting_init(&c);
    for (long n = 1; rc != LS_OK; n++) {
        ls_error err = {0};
        c.allocations = 0;
        c.fail_at = n;
        rc = ls_replace_file(scratch_path(s, "f"), "a", 1, &c.host, &err);
        if (rc != LS_OK) {
            refused(rc, LS_ENOMEM, &err, "out of memory");
            assert_names(s->directory, "");
        }
        assert_int_equal(c.live, 0);
        assert_true(n < 20);
    }
    assert_names(s->directory, "f");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

LS_TESTS(store_files, "unit")
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_there_and_counted),
        TEST(an_abandoned_file_is_gone),
        TEST(modes_follow_the_umask),
        TEST(descriptors_are_closed_on_exec),
        TEST(a_failed_write_fails_the_file),
        TEST(a_replaced_file_is_old_until_it_is_new),
        TEST(replacing_works_without_a_directory_in_the_path),
        TEST(a_failed_replacement_leaves_nothing_but_the_old),
        TEST(a_directory_is_made_with_those_above_it),
        TEST(a_named_link_is_written_through_and_a_plain_file_replaced),
        TEST(nothing_but_a_file_is_replaced),
        TEST(links_lead_to_the_file_that_is_replaced),
        TEST(the_longest_name_is_replaced),
        TEST(a_long_path_leaves_room_for_the_reason),
        TEST(what_the_dead_left_is_removed),
        TEST(what_the_living_write_is_left_alone),
        TEST(other_hidden_names_are_nobody_s_business),
        TEST(what_cannot_be_removed_stays),
        TEST(lack_of_memory_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
