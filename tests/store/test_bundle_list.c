#include "store/natural.h"
#include "store/store_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void numbers_in_names_count_as_numbers(void **state)
{
    (void)state;
    static const char *const sorted[] = {"",
                                         "a",
                                         "a-1",
                                         "a-2",
                                         "a-10",
                                         "a-10-2",
                                         "a-10-11",
                                         "a-99999999999999999999998",
                                         "a-99999999999999999999999",
                                         "a.1",
                                         "a007",
                                         "a07",
                                         "a7",
                                         "a7b",
                                         "b",
                                         "ba"};
    size_t n = sizeof sorted / sizeof *sorted;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            int order = ls_natural_order(sorted[i], sorted[j]);
            if ((order > 0) - (order < 0) != (i > j) - (i < j))
                fail_msg("'%s' and '%s': %d", sorted[i], sorted[j], order);
        }
}

static void assert_list(const char *parent, const char *want)
{
    ls_bundle_names names;
    ls_error err = {0};
    char found[1024] = "";
    must(ls_bundle_list(&names, parent, NULL, &err), &err);
    for (size_t i = 0; i < names.count; i++) {
        strcat(found, i ? " " : "");
        strcat(found, names.name[i]);
    }
    ls_bundle_names_fini(&names);
    assert_string_equal(found, want);
}

static void bundles_are_listed_in_order_and_nothing_else(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle_names names;
    ls_bundle *b;
    assert_list(scratch_path(s, "none"), "");
    assert_list(s->directory, "");
    save_bundle(s->directory, "step-1000", "d");
    save_bundle(s->directory, "step-90", "b");
    save_bundle(s->directory, "step-900", "c");
    save_bundle(s->directory, "a", "a");
    scratch_directory(s, "other");
    scratch_file(s, "file", "x", 1);
    scratch_directory(s, ".hidden");
    scratch_file(s, ".hidden/manifest.json", "{}", 2);
    scratch_directory(s, "odd name");
    scratch_file(s, "odd name/manifest.json", "{}", 2);
    assert_int_equal(symlink("a", scratch_path(s, "latest")), 0);
    must(ls_bundle_begin(&b, s->directory, "unfinished", NULL, &err), &err);
    assert_list(s->directory, "a step-90 step-900 step-1000");
    ls_bundle_destroy(b);
    refused(ls_bundle_list(&names, scratch_path(s, "file"), NULL, &err), LS_EIO, &err,
            "file: cannot open the directory: Not a directory");
    ls_bundle_names_fini(&names);
}

static void many_are_listed(void **state)
{
    scratch *s = *state;
    char name[32];
    ls_bundle_names names;
    ls_error err = {0};
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "b%d", i);
        scratch_directory(s, name);
        strcat(name, "/manifest.json");
        scratch_file(s, name, "", 0);
    }
    must(ls_bundle_list(&names, s->directory, NULL, &err), &err);
    assert_int_equal(names.count, 50);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "b%d", i);
        assert_string_equal(names.name[i], name);
    }
    ls_bundle_names_fini(&names);
}

/* ---- the newest ---- */

typedef struct heard {
    char text[4096];
} heard;

static void hear(void *context, const char *name, const ls_error *why)
{
    heard *h = context;
    size_t n = strlen(h->text);
    snprintf(h->text + n, sizeof h->text - n, "%s: %d %s\n", name, why->status, why->text);
}

static void the_newest_whole_one_is_found(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle_reader *r;
    heard h = {""};
    for (int i = 8; i <= 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "step-%d", i);
        save_bundle(s->directory, name, name);
    }
    must(ls_bundle_latest(&r, s->directory, hear, &h, NULL, &err), &err);
    assert_string_equal(ls_bundle_name(r), "step-12");
    assert_string_equal(h.text, "");
    ls_bundle_close(r);
    flip(scratch_path(s, "step-12/data.bin"), 4096);
    flip(scratch_path(s, "step-11/manifest.json"), 0);
    must(ls_bundle_latest(&r, s->directory, hear, &h, NULL, &err), &err);
    assert_string_equal(ls_bundle_name(r), "step-10");
    assert_string_equal(ls_bundle_path(r), scratch_path(s, "step-10"));
    ls_bundle_close(r);
    const char *first = strstr(h.text, "step-12: -5 ");
    const char *second = strstr(h.text, "\nstep-11: -5 ");
    assert_ptr_equal(first, h.text);
    assert_non_null(second);
    assert_non_null(strstr(first, "data.bin: expected SHA-256"));
    must(ls_bundle_latest(&r, s->directory, NULL, NULL, NULL, &err), &err);
    ls_bundle_close(r);
}

static void none_that_is_whole_is_an_error(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle_reader *r;
    refused(ls_bundle_latest(&r, s->directory, NULL, NULL, NULL, &err), LS_ENOENT, &err,
            "there is nothing saved here");
    assert_null(r);
    refused(ls_bundle_latest(&r, scratch_path(s, "none"), NULL, NULL, NULL, &err), LS_ENOENT, &err,
            "none: there is nothing saved here");
    save_bundle(s->directory, "b", "one");
    flip(scratch_path(s, "b/state.json"), 0);
    refused(ls_bundle_latest(&r, s->directory, NULL, NULL, NULL, &err), LS_EDATA, &err,
            "nothing here is whole; the oldest: ");
    assert_null(r);
}

/* ---- pruning ---- */

static void save_steps(const scratch *s, int first, int last)
{
    for (int i = first; i <= last; i++) {
        char name[32];
        snprintf(name, sizeof name, "step-%d", i);
        save_bundle(s->directory, name, name);
    }
}

static void the_newest_are_kept(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    must(ls_bundle_prune(scratch_path(s, "none"), 1, NULL, &err), &err);
    save_steps(s, 7, 12);
    must(ls_bundle_prune(s->directory, 6, NULL, &err), &err);
    assert_list(s->directory, "step-7 step-8 step-9 step-10 step-11 step-12");
    must(ls_bundle_prune(s->directory, 4, NULL, &err), &err);
    assert_list(s->directory, "step-9 step-10 step-11 step-12");
    must(ls_bundle_prune(s->directory, 1, NULL, &err), &err);
    assert_names(s->directory, "step-12");
    refused(ls_bundle_prune(s->directory, 0, NULL, &err), LS_EINVAL, &err, "keep at least 1");
    assert_bundle(s->directory, "step-12", "step-12");
}

static void the_only_whole_one_is_kept(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    save_steps(s, 1, 5);
    for (int i = 3; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "step-%d/data.bin", i);
        flip(scratch_path(s, name), 0);
    }
    must(ls_bundle_prune(s->directory, 2, NULL, &err), &err);
    assert_list(s->directory, "step-2 step-3 step-4 step-5");
    flip(scratch_path(s, "step-2/data.bin"), 0);
    must(ls_bundle_prune(s->directory, 2, NULL, &err), &err); /* no whole one: none is touched */
    assert_list(s->directory, "step-2 step-3 step-4 step-5");
}

static void an_open_one_stays_for_now(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle_reader *r;
    char *bytes;
    size_t count;
    save_steps(s, 1, 3);
    must(ls_bundle_open(&r, scratch_path(s, "step-1"), NULL, &err), &err);
    must(ls_bundle_prune(s->directory, 1, NULL, &err), &err);
    assert_list(s->directory, "step-1 step-3");
    must(ls_bundle_read(&bytes, &count, r, "data.bin", 5000, &err), &err);
    free(bytes);
    ls_bundle_close(r);
    must(ls_bundle_prune(s->directory, 1, NULL, &err), &err);
    assert_names(s->directory, "step-3");
}

static void a_foreign_directory_in_a_bundle_is_reported_and_not_lost(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    save_steps(s, 1, 3);
    scratch_directory(s, "step-1/mine");
    scratch_file(s, "step-1/mine/thesis", "x", 1);
    refused(ls_bundle_prune(s->directory, 1, NULL, &err), LS_EIO, &err, "cannot remove");
    assert_non_null(strstr(err.text, "(step-1)"));
    assert_list(s->directory, "step-3"); /* and it went on */
}

/* Saves, replaces, sweeps and prunes as others do the same beside it. Returns the failures. */
static int work_beside_others(const char *directory, int worker)
{
    int failures = 0;
    for (int i = 0; i < 60; i++) {
        char name[32], note[300];
        ls_error err = {0};
        ls_bundle *b;
        snprintf(name, sizeof name, i % 3 ? "step-%d" : "same", i);
        snprintf(note, sizeof note, "%s/note", directory);
        int rc = ls_bundle_begin(&b, directory, name, NULL, &err);
        if (rc == LS_OK)
            rc = ls_bundle_put(b, "state.json", name, strlen(name), &err);
        if (rc == LS_OK)
            rc = ls_replace_file(note, name, strlen(name), NULL, &err);
        if (rc == LS_OK)
            rc = ls_bundle_commit(b, &err);
        ls_bundle_destroy(b);
        if (rc == LS_OK && i % 4 == worker)
            rc = ls_bundle_prune(directory, 3, NULL, &err);
        if (rc != LS_OK) {
            fprintf(stderr, "%s\n", err.text);
            failures++;
        }
    }
    return failures;
}

static void several_processes_share_a_directory(void **state)
{
    scratch *s = *state;
    enum { PROCESSES = 4 };
    ls_error err = {0};
    ls_bundle_names names;
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        if (child[p] == 0)
            _exit(work_beside_others(s->directory, p));
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(child[p], &status, 0), child[p]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    must(ls_bundle_prune(s->directory, 3, NULL, &err), &err);
    must(ls_bundle_list(&names, s->directory, NULL, &err), &err);
    assert_true(names.count >= 1 && names.count <= 3);
    for (size_t i = 0; i < names.count; i++) {
        ls_bundle_reader *r;
        must(ls_bundle_open(&r, scratch_path(s, names.name[i]), NULL, &err), &err);
        ls_bundle_close(r);
    }
    ls_bundle_names_fini(&names);
    assert_true(unlink(scratch_path(s, "note")) == 0);
    must(ls_bundle_prune(s->directory, 1, NULL, &err), &err);
    assert_list(s->directory, "step-59"); /* 59 was saved four times and pruned never */
    assert_names(s->directory, "step-59");
}

/* ---- a replacement that was cut short ---- */

static void a_waiting_old_bundle_counts_until_the_new_one_is_there(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle_reader *r;
    ls_bundle *b;
    save_bundle(s->directory, "step-1", "old");
    assert_int_equal(rename(scratch_path(s, "step-1"), scratch_path(s, "step-1.replaced")), 0);
    assert_list(s->directory, "step-1.replaced");
    must(ls_bundle_latest(&r, s->directory, NULL, NULL, NULL, &err), &err);
    ls_bundle_close(r);
    must(ls_bundle_begin(&b, s->directory, "step-2", NULL, &err), &err);
    ls_bundle_destroy(b);
    assert_names(s->directory, "step-1");
    assert_bundle(s->directory, "step-1", "old");

    assert_int_equal(rename(scratch_path(s, "step-1"), scratch_path(s, "step-1.replaced")), 0);
    save_bundle(s->directory, "step-0", "x");
    assert_int_equal(rename(scratch_path(s, "step-1"), scratch_path(s, "step-1.replaced")), 0);
    assert_int_equal(rename(scratch_path(s, "step-0"), scratch_path(s, "step-1")), 0);
    assert_list(s->directory, "step-1");
    must(ls_bundle_prune(s->directory, 5, NULL, &err), &err);
    assert_names(s->directory, "step-1");
    assert_bundle(s->directory, "step-1", "x");
}

static void a_foreign_directory_of_such_a_name_is_left_alone(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    scratch_directory(s, "mine.replaced");
    scratch_file(s, "mine.replaced/thesis", "x", 1);
    save_bundle(s->directory, "mine", "x");
    must(ls_bundle_prune(s->directory, 1, NULL, &err), &err);
    assert_names(s->directory, "mine mine.replaced");
    assert_list(s->directory, "mine");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_in_names_count_as_numbers),
        TEST(bundles_are_listed_in_order_and_nothing_else),
        TEST(many_are_listed),
        TEST(the_newest_whole_one_is_found),
        TEST(none_that_is_whole_is_an_error),
        TEST(the_newest_are_kept),
        TEST(the_only_whole_one_is_kept),
        TEST(an_open_one_stays_for_now),
        TEST(several_processes_share_a_directory),
        TEST(a_foreign_directory_in_a_bundle_is_reported_and_not_lost),
        TEST(a_waiting_old_bundle_counts_until_the_new_one_is_there),
        TEST(a_foreign_directory_of_such_a_name_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
