#include "store/store_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

/* ---- writing -------------------------------------------------------------------------------- */

static void what_is_committed_is_read_back(void **state)
{
    scratch *s = *state;
    ls_bundle_reader *r;
    const ls_bundle_file *file;
    ls_error err = {0};
    save_bundle(s->directory, "step-1", "one");
    assert_names(s->directory, "step-1");
    assert_names(scratch_path(s, "step-1"), "data.bin manifest.json state.json");
    must(ls_bundle_open(&r, scratch_path(s, "step-1//"), NULL, &err), &err);
    assert_string_equal(ls_bundle_name(r), "step-1");
    assert_string_equal(ls_bundle_path(r), scratch_path(s, "step-1"));
    assert_int_equal(ls_bundle_files(r), 2);
    assert_string_equal(ls_bundle_file_at(r, 0)->name, "state.json");
    must(ls_bundle_find(&file, r, "data.bin", &err), &err);
    assert_ptr_equal(file, ls_bundle_file_at(r, 1));
    assert_null(ls_bundle_file_at(r, 2));
    assert_string_equal(file->path, scratch_path(s, "step-1/data.bin"));
    assert_int_equal(file->bytes, 5000);
    assert_int_equal(strlen(file->sha256), 64);
    refused(ls_bundle_find(&file, r, "x", &err), LS_EDATA, &err,
            "manifest.json: there is no file \"x\" in this bundle");
    assert_null(file);
    ls_bundle_close(r);
    assert_bundle(s->directory, "step-1", "one");
}

static void the_manifest_says_what_is_there(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    must(ls_bundle_begin(&b, s->directory, "b", NULL, &err), &err);
    must(ls_bundle_put(b, "a.txt", "abc", 3, &err), &err);
    must(ls_bundle_commit(b, &err), &err);
    ls_bundle_destroy(b);
    char *text = read_whole(scratch_path(s, "b/manifest.json"), NULL);
    assert_string_equal(
        text,
        "{\n  \"schema\": 1,\n  \"files\": [\n    {\n      \"name\": \"a.txt\",\n"
        "      \"bytes\": 3,\n      \"sha256\": "
        "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n    }\n  ]\n}\n");
    free(text);
}

static void an_empty_bundle_and_an_empty_file_are_whole(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    ls_bundle_reader *r;
    char *bytes;
    size_t count = 7;
    must(ls_bundle_begin(&b, s->directory, "empty", NULL, &err), &err);
    must(ls_bundle_commit(b, &err), &err);
    ls_bundle_destroy(b);
    must(ls_bundle_open(&r, scratch_path(s, "empty"), NULL, &err), &err);
    assert_int_equal(ls_bundle_files(r), 0);
    ls_bundle_close(r);
    must(ls_bundle_begin(&b, s->directory, "b", NULL, &err), &err);
    must(ls_bundle_put(b, "nothing", "", 0, &err), &err);
    must(ls_bundle_commit(b, &err), &err);
    ls_bundle_destroy(b);
    must(ls_bundle_open(&r, scratch_path(s, "b"), NULL, &err), &err);
    must(ls_bundle_read(&bytes, &count, r, "nothing", 0, &err), &err);
    assert_int_equal(count, 0);
    assert_string_equal(bytes, "");
    free(bytes);
    ls_bundle_close(r);
}

static void nothing_is_seen_before_the_commit_nor_after_giving_up(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    ls_file_writer *w;
    ls_bundle_names names;
    save_bundle(s->directory, "b", "old");
    must(ls_bundle_begin(&b, s->directory, "b", NULL, &err), &err);
    must(ls_bundle_put(b, "state.json", "new", 3, &err), &err);
    must(ls_bundle_open_file(&w, b, "data.bin", &err), &err);
    must(ls_file_writer_write(w, "x", 1, &err), &err);
    must(ls_bundle_list(&names, s->directory, NULL, &err), &err);
    assert_int_equal(names.count, 1);
    ls_bundle_names_fini(&names);
    assert_bundle(s->directory, "b", "old");
    ls_bundle_destroy(b);
    assert_names(s->directory, "b");
    assert_bundle(s->directory, "b", "old");
    ls_bundle_destroy(NULL);
}

static void a_bundle_of_the_same_name_is_replaced(void **state)
{
    scratch *s = *state;
    save_bundle(s->directory, "b", "one");
    save_bundle(s->directory, "b", "two");
    assert_bundle(s->directory, "b", "two");
    assert_names(s->directory, "b");
}

static void a_broken_bundle_of_the_same_name_is_replaced(void **state)
{
    scratch *s = *state;
    save_bundle(s->directory, "b", "one");
    flip(scratch_path(s, "b/data.bin"), 0);
    save_bundle(s->directory, "b", "two");
    assert_bundle(s->directory, "b", "two");
    scratch_directory(s, "e");
    save_bundle(s->directory, "e", "in an empty directory's place");
    assert_names(s->directory, "b e");
}

static void what_is_no_bundle_is_not_replaced(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    scratch_directory(s, "d");
    scratch_file(s, "d/photo", "x", 1);
    scratch_file(s, "f", "x", 1);
    must(ls_bundle_begin(&b, s->directory, "d", NULL, &err), &err);
    refused(ls_bundle_commit(b, &err), LS_EIO, &err,
            "d: cannot give the bundle its name: Directory not empty");
    ls_bundle_destroy(b);
    must(ls_bundle_begin(&b, s->directory, "f", NULL, &err), &err);
    refused(ls_bundle_commit(b, &err), LS_EIO, &err,
            "f: cannot give the bundle its name: Not a directory");
    ls_bundle_destroy(b);
    assert_names(s->directory, "d f");
    assert_names(scratch_path(s, "d"), "photo");
}

static void names_that_are_not_allowed_are_refused(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b = NULL;
    ls_file_writer *w;
    char name[LS_BUNDLE_NAME + 2];
    static const char *const bad[] = {"",    ".",   "..",  ".a",       "-a",           "_a",
                                      "a/b", "a b", "a\n", "\xc3\xa4", "manifest.json"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused(ls_bundle_begin(&b, s->directory, bad[i], NULL, &err), LS_EINVAL, &err,
                "expected a name of 1 to 128 letters, digits");
        assert_null(b);
    }
    refused(ls_bundle_begin(&b, s->directory, "a.replaced", NULL, &err), LS_EINVAL, &err, "taken");
    memset(name, 'n', sizeof name);
    name[LS_BUNDLE_NAME + 1] = '\0';
    refused(ls_bundle_begin(&b, s->directory, name, NULL, &err), LS_EINVAL, &err, "1 to 128");
    name[LS_BUNDLE_NAME] = '\0';
    must(ls_bundle_begin(&b, s->directory, name, NULL, &err), &err);
    refused(ls_bundle_put(b, "../a", "x", 1, &err), LS_EINVAL, &err, "expected a name");
    refused(ls_bundle_put(b, "manifest.json", "x", 1, &err), LS_EINVAL, &err, "expected a name");
    must(ls_bundle_put(b, "a.replaced", "x", 1, &err), &err); /* a file may be called that */
    refused(ls_bundle_open_file(&w, b, "a.replaced", &err), LS_EINVAL, &err,
            "already has a file \"a.replaced\"");
    must(ls_bundle_put(b, name, "x", 1, &err), &err);
    must(ls_bundle_commit(b, &err), &err);
    ls_bundle_destroy(b);
    assert_names(s->directory, name);
}

static void too_many_files_are_refused(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    ls_bundle_reader *r;
    char name[16];
    must(ls_bundle_begin(&b, s->directory, "b", NULL, &err), &err);
    for (int i = 0; i < LS_BUNDLE_FILES; i++) {
        snprintf(name, sizeof name, "f%d", i);
        must(ls_bundle_put(b, name, name, 1, &err), &err);
    }
    refused(ls_bundle_put(b, "one-more", "x", 1, &err), LS_EINVAL, &err,
            "expected at most 256 files");
    must(ls_bundle_commit(b, &err), &err);
    ls_bundle_destroy(b);
    must(ls_bundle_open(&r, scratch_path(s, "b"), NULL, &err), &err);
    assert_int_equal(ls_bundle_files(r), LS_BUNDLE_FILES);
    ls_bundle_close(r);
}

static void a_missing_parent_is_an_error(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    refused(ls_bundle_begin(&b, scratch_path(s, "none"), "b", NULL, &err), LS_EIO, &err,
            "none: cannot open the directory: No such file or directory");
    assert_null(b);
}

/* After one failure nothing can make the bundle whole, and the first cause is what is heard. */
static void a_failed_file_fails_the_bundle(void **state)
{
    scratch *s = *state;
    ls_error err = {0}, again = {0};
    ls_bundle *b;
    ls_file_writer *w;
    char hidden[64] = "";
    must(ls_bundle_begin(&b, s->directory, "b", NULL, &err), &err);
    DIR *stream = opendir(s->directory);
    for (const struct dirent *e; (e = readdir(stream)) != NULL;)
        if (strstr(e->d_name, "lockstep-"))
            snprintf(hidden, sizeof hidden, "%.40s/taken", e->d_name);
    closedir(stream);
    scratch_file(s, hidden, "x", 1); /* somebody else's file is in the way */
    refused(ls_bundle_open_file(&w, b, "taken", &err), LS_EIO, &err,
            "b/taken: cannot create: File exists");
    refused(ls_bundle_put(b, "other", "x", 1, &again), LS_EIO, &again, "b/taken: cannot create");
    refused(ls_bundle_commit(b, &again), LS_EIO, &again, "b/taken: cannot create");
    ls_bundle_destroy(b);
    assert_names(s->directory, "");
}

static void two_may_be_written_at_once(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *a, *b;
    must(ls_bundle_begin(&a, s->directory, "same", NULL, &err), &err);
    must(ls_bundle_begin(&b, s->directory, "same", NULL, &err), &err);
    must(ls_bundle_put(a, "state.json", "a", 1, &err), &err);
    must(ls_bundle_put(b, "state.json", "b", 1, &err), &err);
    must(ls_bundle_commit(a, &err), &err);
    assert_bundle(s->directory, "same", "a");
    must(ls_bundle_commit(b, &err), &err);
    ls_bundle_destroy(a);
    ls_bundle_destroy(b);
    assert_bundle(s->directory, "same", "b");
    assert_names(s->directory, "same");
}

/* ---- reading -------------------------------------------------------------------------------- */

static void open_refused(scratch *s, int status, const char *words)
{
    ls_bundle_reader *r;
    ls_error err = {0};
    refused(ls_bundle_open(&r, scratch_path(s, "b"), NULL, &err), status, &err, words);
    assert_null(r);
}

static void damage_is_named(void **state)
{
    scratch *s = *state;
    ls_bundle_reader *r;
    ls_error err = {0};
    open_refused(s, LS_ENOENT, "b: no such directory");
    scratch_file(s, "b", "x", 1);
    open_refused(s, LS_ENOENT, "b: expected a directory");
    assert_int_equal(unlink(scratch_path(s, "b")), 0);
    scratch_directory(s, "b");
    open_refused(s, LS_EDATA,
                 "b/manifest.json: expected this file, found none; the bundle is damaged");
    save_bundle(s->directory, "b", "one");

    flip(scratch_path(s, "b/data.bin"), -1);
    open_refused(s, LS_EDATA, "b/data.bin: expected SHA-256 ");
    open_refused(s, LS_EDATA, "(manifest.json:9), found ");
    flip(scratch_path(s, "b/data.bin"), -1);
    assert_int_equal(truncate(scratch_path(s, "b/data.bin"), 4999), 0);
    open_refused(s, LS_EDATA,
                 "b/data.bin: offset 4999: expected 5000 bytes (manifest.json:9), found 4999; the "
                 "bundle is damaged: use another one");
    assert_int_equal(truncate(scratch_path(s, "b/data.bin"), 5001), 0);
    open_refused(s, LS_EDATA, "b/data.bin: offset 5000: expected 5000 bytes");
    assert_int_equal(unlink(scratch_path(s, "b/data.bin")), 0);
    open_refused(s, LS_EDATA, "b/data.bin: expected this file, found none");
    scratch_directory(s, "b/data.bin");
    open_refused(s, LS_EDATA, "b/data.bin: expected a plain file, found something else");
    assert_int_equal(rmdir(scratch_path(s, "b/data.bin")), 0);
    assert_int_equal(symlink("state.json", scratch_path(s, "b/data.bin")), 0);
    open_refused(s, LS_EDATA, "b/data.bin: expected a plain file, found a symbolic link");

    save_bundle(s->directory, "b", "one");
    flip(scratch_path(s, "b/manifest.json"), 0);
    open_refused(s, LS_EDATA, "b/manifest.json:1:1: ");
    scratch_file(s, "b/manifest.json", "", 0);
    open_refused(s, LS_EDATA, "b/manifest.json:1:1: expected a value");
    assert_int_equal(truncate(scratch_path(s, "b/manifest.json"), 2 << 20), 0);
    open_refused(s, LS_EDATA, "b/manifest.json: offset 1048576: expected at most 1048576 bytes");
    scratch_loop(s, "c");
    refused(ls_bundle_open(&r, scratch_path(s, "c"), NULL, &err), LS_EIO, &err,
            "c: cannot open the directory: Too many levels of symbolic links");
}

/* Every bit of every file counts. In the manifest alone a blank may become another one, and upper
 * case is no other way to write a name. */
static void every_bit_flip_is_refused_or_harmless(void **state)
{
    scratch *s = *state;
    static const char *const files[] = {"b/manifest.json", "b/state.json"};
    save_bundle(s->directory, "b", "one");
    for (int f = 0; f < 2; f++) {
        size_t size;
        int accepted = 0;
        const char *path = scratch_path(s, files[f]);
        char *bytes = read_whole(path, &size);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            ls_bundle_reader *r;
            ls_error err = {0};
            bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
            scratch_file(s, files[f], bytes, size);
            bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
            if (ls_bundle_open(&r, scratch_path(s, "b"), NULL, &err) != LS_OK) {
                assert_int_equal(err.status, LS_EDATA);
                assert_memory_equal(err.text, s->directory, strlen(s->directory));
                continue;
            }
            accepted++;
            assert_int_equal(f, 0);
            assert_int_equal(ls_bundle_files(r), 2);
            assert_string_equal(ls_bundle_file_at(r, 0)->name, "state.json");
            assert_string_equal(ls_bundle_file_at(r, 1)->name, "data.bin");
            ls_bundle_close(r);
        }
        scratch_file(s, files[f], bytes, size);
        free(bytes);
        assert_true(accepted < 30);
    }
    assert_bundle(s->directory, "b", "one");
}

static void every_truncation_is_refused(void **state)
{
    scratch *s = *state;
    size_t size;
    save_bundle(s->directory, "b", "one");
    char *bytes = read_whole(scratch_path(s, "b/manifest.json"), &size);
    for (size_t n = 0; n < size - 1; n++) { /* the last byte ends the last line */
        scratch_file(s, "b/manifest.json", bytes, n);
        open_refused(s, LS_EDATA, "b/manifest.json:");
    }
    free(bytes);
}

static void what_changes_after_opening_is_noticed(void **state)
{
    scratch *s = *state;
    ls_bundle_reader *r;
    ls_error err = {0};
    char *bytes;
    size_t count;
    save_bundle(s->directory, "b", "one");
    must(ls_bundle_open(&r, scratch_path(s, "b"), NULL, &err), &err);
    refused(ls_bundle_read(&bytes, &count, r, "state.json", 2, &err), LS_EDATA, &err,
            "state.json: expected at most 2 bytes, found 3");
    flip(scratch_path(s, "b/state.json"), 0);
    refused(ls_bundle_read(&bytes, &count, r, "state.json", 9, &err), LS_EDATA, &err,
            "state.json: expected SHA-256");
    assert_null(bytes);
    assert_int_equal(truncate(scratch_path(s, "b/state.json"), 1), 0);
    refused(ls_bundle_read(&bytes, &count, r, "state.json", 9, &err), LS_EDATA, &err,
            "state.json: offset 1: expected 3 bytes, found 1");
    ls_bundle_close(r);
    ls_bundle_close(NULL);
}

static void other_files_are_nobody_s_business(void **state)
{
    scratch *s = *state;
    save_bundle(s->directory, "b", "one");
    scratch_file(s, "b/notes", "x", 1);
    assert_bundle(s->directory, "b", "one");
}

static int save_and_read(scratch *s, const ls_host *host, ls_error *err)
{
    ls_bundle *b;
    ls_bundle_reader *r = NULL;
    char *bytes;
    size_t count;
    int rc = ls_bundle_begin(&b, s->directory, "b", host, err);
    if (rc == LS_OK)
        rc = ls_bundle_put(b, "state.json", "new", 3, err);
    if (rc == LS_OK)
        rc = ls_bundle_commit(b, err);
    ls_bundle_destroy(b);
    if (rc == LS_OK)
        rc = ls_bundle_latest(&r, s->directory, NULL, NULL, host, err);
    if (rc == LS_OK)
        rc = ls_bundle_read(&bytes, &count, r, "state.json", 10, err);
    if (rc == LS_OK)
        host->free(host->user, bytes);
    ls_bundle_close(r);
    return rc == LS_OK ? ls_bundle_prune(s->directory, 1, host, err) : rc;
}

static void lack_of_memory_is_reported_and_leaks_nothing(void **state)
{
    scratch *s = *state;
    counting c;
    int rc = LS_ENOMEM;
    counting_init(&c);
    save_bundle(s->directory, "b", "old");
    for (long n = 1; rc != LS_OK; n++) {
        ls_error err = {0};
        c.allocations = 0;
        c.fail_at = n;
        rc = save_and_read(s, &c.host, &err);
        if (rc != LS_OK)
            refused(rc, LS_ENOMEM, &err, "out of memory");
        assert_names(s->directory, "b");
        assert_int_equal(c.live, 0);
        assert_true(n < 200);
    }
    assert_bundle(s->directory, "b", "new");
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static void no_descriptor_is_left_open(void **state)
{
    scratch *s = *state;
    ls_error err = {0};
    ls_bundle *b;
    int before = open_descriptors();
    for (int i = 0; i < 3; i++) {
        save_bundle(s->directory, "b", "one");
        assert_bundle(s->directory, "b", "one");
        must(ls_bundle_begin(&b, s->directory, "b", NULL, &err), &err);
        must(ls_bundle_put(b, "x", "x", 1, &err), &err);
        ls_bundle_destroy(b);
        must(ls_bundle_prune(s->directory, 1, NULL, &err), &err);
        flip(scratch_path(s, "b/data.bin"), 0);
        open_refused(s, LS_EDATA, "SHA-256");
    }
    assert_int_equal(open_descriptors(), before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_committed_is_read_back),
        TEST(the_manifest_says_what_is_there),
        TEST(an_empty_bundle_and_an_empty_file_are_whole),
        TEST(nothing_is_seen_before_the_commit_nor_after_giving_up),
        TEST(a_bundle_of_the_same_name_is_replaced),
        TEST(a_broken_bundle_of_the_same_name_is_replaced),
        TEST(what_is_no_bundle_is_not_replaced),
        TEST(names_that_are_not_allowed_are_refused),
        TEST(too_many_files_are_refused),
        TEST(a_missing_parent_is_an_error),
        TEST(a_failed_file_fails_the_bundle),
        TEST(two_may_be_written_at_once),
        TEST(damage_is_named),
        TEST(every_bit_flip_is_refused_or_harmless),
        TEST(every_truncation_is_refused),
        TEST(what_changes_after_opening_is_noticed),
        TEST(other_files_are_nobody_s_business),
        TEST(lack_of_memory_is_reported_and_leaks_nothing),
        TEST(no_descriptor_is_left_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
