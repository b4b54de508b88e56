/* SPDX-License-Identifier: MIT */
/* Tests IDX files: the directories in which they are looked for, and every kind of damage with its
 * exact message. */
#include "data/dataset.h"
#include "data/ration.h"
#include "data/scratch.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { TRAIN = 5, TEST = 3, SIDE = 4, PIXELS = SIDE * SIDE };
enum { TRAIN_IMAGES = 16 + TRAIN * PIXELS, TRAIN_LABELS = 8 + TRAIN };

static const char *const file_names[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                          "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

/* A file's bytes. */
typedef struct content {
    size_t count;
    uint8_t bytes[256];
} content;

static void put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static content images(uint32_t rows)
{
    content c = {.count = 16 + rows * PIXELS};
    put32(c.bytes, 0x0803);
    put32(c.bytes + 4, rows);
    put32(c.bytes + 8, SIDE);
    put32(c.bytes + 12, SIDE);
    for (uint32_t i = 0; i < rows * PIXELS; i++)
        c.bytes[16 + i] = (uint8_t)(i * 37 + 11);
    return c;
}

static content labels(uint32_t rows)
{
    content c = {.count = 8 + rows};
    put32(c.bytes, 0x0801);
    put32(c.bytes + 4, rows);
    for (uint32_t i = 0; i < rows; i++)
        c.bytes[8 + i] = (uint8_t)((i * 7 + 3) % 10);
    return c;
}

/* The four files of a good dataset. */
typedef struct dataset_files {
    content of[4];
} dataset_files;

static dataset_files good(void)
{
    return (dataset_files){{images(TRAIN), labels(TRAIN), images(TEST), labels(TEST)}};
}

static void write_files(scratch *s, const char *folder, const dataset_files *files, int gzip)
{
    char name[128];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s%s%s", folder, *folder ? "/" : "", file_names[i],
                 gzip ? ".gz" : "");
        if (gzip)
            scratch_gzip(s, name, files->of[i].bytes, files->of[i].count);
        else
            scratch_file(s, name, files->of[i].bytes, files->of[i].count);
    }
}

static int open_path(ls_dataset **split, const char *path, uint32_t limit, const ls_host *host,
                     ls_error *err)
{
    const ls_dataset_spec spec = {.name = "mnist", .path = path, .limit = limit};
    return ls_dataset_open(&split[0], &split[1], &spec, host, err);
}

static void close_both(ls_dataset **split)
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

static void has_good_content(ls_dataset **split, uint32_t train_rows)
{
    const dataset_files files = good();
    for (int i = 0; i < 2; i++) {
        uint32_t rows = i == 0 ? train_rows : TEST;
        const ls_dataset_info *info = ls_dataset_describe(split[i]);
        ls_dataset_view v = ls_dataset_resident(split[i]);
        assert_int_equal(info->rows, rows);
        assert_int_equal(info->height, SIDE);
        assert_int_equal(info->width, SIDE);
        assert_memory_equal(v.images, files.of[2 * i].bytes + 16, rows * PIXELS);
        for (uint32_t r = 0; r < rows; r++)
            assert_int_equal(v.labels[r], files.of[2 * i + 1].bytes[8 + r]);
    }
}

/* ---- good files ---- */

static void opens(scratch *s, const char *folder, uint32_t limit)
{
    ls_dataset *split[2];
    ls_error err = {0};
    int rc = open_path(split, *folder ? scratch_path(s, folder) : s->directory, limit, NULL, &err);
    if (rc != LS_OK)
        print_error("%s\n", err.text);
    assert_int_equal(rc, LS_OK);
    has_good_content(split, limit ? limit : TRAIN);
    close_both(split);
}

static void plain_and_compressed_files_give_the_same_rows(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    scratch_directory(s, "plain");
    scratch_directory(s, "gz");
    write_files(s, "plain", &files, 0);
    write_files(s, "gz", &files, 1);
    opens(s, "plain", 0);
    opens(s, "gz", 0);
    opens(s, "plain", 2);
    opens(s, "gz", 2);
    opens(s, "gz", TRAIN);
}

static void compression_is_told_by_content_not_by_name(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    write_files(s, "", &files, 1);
    /* An uncompressed file whose name ends with .gz, and a compressed file whose name does not. */
    scratch_file(s, "train-labels-idx1-ubyte.gz", files.of[1].bytes, files.of[1].count);
    scratch_gzip(s, "t10k-images-idx3-ubyte", files.of[2].bytes, files.of[2].count);
    opens(s, "", 0);
}

static void gzip_files_of_several_members_are_read_through(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    char command[64];
    uint8_t both[512];
    size_t n = 0;
    write_files(s, "", &files, 1);
    scratch_gzip(s, "a", files.of[0].bytes, 21);
    scratch_gzip(s, "b", files.of[0].bytes + 21, files.of[0].count - 21);
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%c", 'a' + i);
        FILE *f = fopen(scratch_path(s, command), "rb");
        assert_non_null(f);
        n += fread(both + n, 1, sizeof both - n, f);
        fclose(f);
    }
    scratch_file(s, "train-images-idx3-ubyte.gz", both, n);
    opens(s, "", 0);
}

static void rows_are_copied_and_bounds_checked(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    ls_dataset *split[2];
    ls_error err;
    uint8_t pixels[2 * PIXELS];
    int32_t label[2];
    const uint32_t rows[2] = {4, 1};
    const uint32_t bad[1] = {TRAIN};
    write_files(s, "", &files, 0);
    assert_int_equal(open_path(split, s->directory, 0, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_read(split[0], rows, 2, pixels, label, &err), LS_OK);
    assert_memory_equal(pixels, files.of[0].bytes + 16 + 4 * PIXELS, PIXELS);
    assert_memory_equal(pixels + PIXELS, files.of[0].bytes + 16 + PIXELS, PIXELS);
    assert_int_equal(label[0], files.of[1].bytes[8 + 4]);
    assert_int_equal(label[1], files.of[1].bytes[8 + 1]);
    assert_int_equal(ls_dataset_read(split[0], bad, 1, pixels, label, &err), LS_EINVAL);
    assert_string_equal(err.text, "mnist: row 5 does not exist; the train split has 5 rows");
    close_both(split);
}

/* ---- places of files --------------- */

/* Names with a dot instead of a dash; each file in a directory of its own name; a path that is the
 * parent of the files' directory. */
static void files_are_found_as_people_have_them(void **state)
{
    static const char *const dotted[4] = {
        "dot/train-images.idx3-ubyte", "dot/train-labels.idx1-ubyte",
        "dot/t10k-images.idx3-ubyte.gz", "dot/t10k-labels.idx1-ubyte"};
    static const char *const nested[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                          "t10k-images.idx3-ubyte", "t10k-labels-idx1-ubyte"};
    scratch *s = *state;
    const dataset_files files = good();
    scratch_directory(s, "dot");
    scratch_directory(s, "nest");
    for (int i = 0; i < 4; i++) {
        char name[128];
        if (i == 2)
            scratch_gzip(s, dotted[i], files.of[i].bytes, files.of[i].count);
        else
            scratch_file(s, dotted[i], files.of[i].bytes, files.of[i].count);
        snprintf(name, sizeof name, "nest/%s", nested[i]);
        if (i != 2) {
            scratch_directory(s, name);
            snprintf(name, sizeof name, "nest/%s/%s", nested[i], nested[i]);
        }
        scratch_file(s, name, files.of[i].bytes, files.of[i].count);
    }
    opens(s, "dot", 0);
    opens(s, "nest", 0);
    scratch_directory(s, "data");
    scratch_directory(s, "data/MNIST");
    scratch_directory(s, "data/MNIST/raw");
    write_files(s, "data/MNIST/raw", &files, 1);
    opens(s, "data", 0);
    opens(s, "data/MNIST", 0);
}

static void directories_are_searched_in_order(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    dataset_files other = good();
    ls_dataset *split[2];
    ls_error err;
    other.of[0].bytes[16] ^= 0xFF;
    scratch_directory(s, "one");
    scratch_directory(s, "two");
    scratch_directory(s, "two/MNIST");
    scratch_directory(s, "two/MNIST/raw");
    scratch_directory(s, "three");
    scratch_directory(s, "three/mnist");
    write_files(s, "two/MNIST/raw", &files, 1);
    write_files(s, "three/mnist", &other, 1);
    const char *const search[] = {scratch_path(s, "absent"), scratch_path(s, "one"),
                                  scratch_path(s, "two"), scratch_path(s, "three")};
    ls_dataset_spec spec = {.name = "mnist", .search = search, .search_count = 4};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    has_good_content(split, TRAIN);
    assert_string_equal(ls_dataset_describe(split[0])->source, scratch_path(s, "two/MNIST/raw"));
    close_both(split);

    write_files(s, "one", &other, 0); /* files directly in the search directory are found as well */
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    assert_string_equal(ls_dataset_describe(split[0])->source, scratch_path(s, "one"));
    close_both(split);

    /* with spec.path, no other directory is searched */
    spec.path = scratch_path(s, "two/MNIST/raw");
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    has_good_content(split, TRAIN);
    close_both(split);
}

static void missing_data_is_reported_with_every_place_and_the_remedy(void **state)
{
    scratch *s = *state;
    ls_dataset *split[2];
    ls_error err;
    static const char *const search[] = {"/nowhere/a", "/nowhere/b"};
    ls_dataset_spec spec = {.name = "fashion_mnist", .search = search, .search_count = 2};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_ENOENT);
    assert_string_equal(err.text,
                        "fashion_mnist not found; install the Debian package "
                        "dataset-fashion-mnist, name the directory of the files with --set "
                        "data.path=DIR, or try --set data.name=synthetic; no "
                        "train-images-idx3-ubyte[.gz] in /nowhere/a, /nowhere/b (each also as "
                        "DIR/fashion-mnist and DIR/FashionMNIST/raw)");
    assert_null(split[0]);
    assert_null(split[1]);
    spec.path = "/nowhere/c";
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_ENOENT);
    assert_string_equal(err.text,
                        "fashion_mnist not found; install the Debian package "
                        "dataset-fashion-mnist, name the directory of the files with --set "
                        "data.path=DIR, or try --set data.name=synthetic; no "
                        "train-images-idx3-ubyte[.gz] in /nowhere/c");
    assert_int_equal(err.reason, LS_REASON_NO_FILES);
    spec = (ls_dataset_spec){.name = "mnist"};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_ENOENT);
    assert_string_equal(
        err.text, "mnist not found; name the directory of the files with --set "
                  "data.path=DIR, or try --set data.name=synthetic; no "
                  "train-images-idx3-ubyte[.gz] in any directory, as none was to be searched");
    scratch_file(s, "file", "x", 1);
    char expected[600];
    snprintf(expected, sizeof expected,
             "data.path: expected a directory, found the file %s/file; name the directory it is in",
             s->directory);
    assert_int_equal(open_path(split, scratch_path(s, "file"), 0, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, expected);
}

/* ---- damage ---- */

/* Expects opening to fail with "DIRECTORY/file" and then the message. */
static void refuses(scratch *s, const char *file, int status, const char *message)
{
    ls_dataset *split[2];
    ls_error err = {0};
    char expected[1200];
    snprintf(expected, sizeof expected, "%s/%s%s", s->directory, file, message);
    assert_int_equal(open_path(split, s->directory, 0, NULL, &err), status);
    assert_int_equal(err.status, status);
    assert_string_equal(err.text, expected);
    assert_null(split[0]);
    assert_null(split[1]);
}

static void one_missing_file_is_named(void **state)
{
    scratch *s = *state;
    ls_dataset *split[2];
    ls_error err;
    char expected[600];
    const dataset_files files = good();
    write_files(s, "", &files, 1);
    assert_int_equal(unlink(scratch_path(s, "t10k-labels-idx1-ubyte.gz")), 0);
    snprintf(expected, sizeof expected,
             "%s: no t10k-labels-idx1-ubyte[.gz] beside train-images-idx3-ubyte; the dataset is "
             "incomplete, fetch it again",
             s->directory);
    assert_int_equal(open_path(split, s->directory, 0, NULL, &err), LS_ENOENT);
    assert_string_equal(err.text, expected);
}

static void a_wrong_magic_is_refused(void **state)
{
    scratch *s = *state;
    dataset_files files = good();
    put32(files.of[0].bytes, 0x12345678);
    write_files(s, "", &files, 0);
    refuses(s, "train-images-idx3-ubyte", LS_EDATA,
            ": expected the IDX number 0x00000803 at byte 0, found 0x12345678; this is no IDX file "
            "of images");
    files = good();
    files.of[3] = images(1);
    write_files(s, "", &files, 0);
    refuses(
        s, "t10k-labels-idx1-ubyte", LS_EDATA,
        ": expected IDX labels (0x00000801) at byte 0, found images (0x00000803); are the files "
        "swapped?");
}

static void counts_that_differ_are_refused(void **state)
{
    scratch *s = *state;
    dataset_files files = good();
    char message[700];
    files.of[1] = labels(TRAIN - 1);
    write_files(s, "", &files, 1);
    snprintf(message, sizeof message,
             ": expected 5 labels at byte 4, one for each image of %s/train-images-idx3-ubyte.gz, "
             "found 4; the two files do not belong together",
             s->directory);
    refuses(s, "train-labels-idx1-ubyte.gz", LS_EDATA, message);
}

static void a_label_beyond_the_classes_is_refused(void **state)
{
    scratch *s = *state;
    dataset_files files = good();
    ls_dataset *split[2];
    ls_error err;
    files.of[1].bytes[8 + 3] = 10;
    write_files(s, "", &files, 1);
    refuses(s, "train-labels-idx1-ubyte.gz", LS_EDATA,
            ": expected a label from 0 to 9 at byte 11, found 10; fetch the file again");
    /* The wrong label is found even if data.limit leaves its row out. */
    assert_int_equal(open_path(split, s->directory, 2, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, "at byte 11, found 10"));
}

static void trailing_bytes_are_refused(void **state)
{
    scratch *s = *state;
    dataset_files files = good();
    files.of[0].count++;
    write_files(s, "", &files, 1);
    refuses(s, "train-images-idx3-ubyte.gz", LS_EDATA,
            ": expected the end of the data at byte 96, found more; fetch the file again");
    files = good();
    files.of[1].count += 2;
    write_files(s, "", &files, 0);
    refuses(s, "train-labels-idx1-ubyte", LS_EDATA,
            ": expected the end of the data at byte 13, found more; fetch the file again");
}

static size_t read_back(scratch *s, const char *name, uint8_t *out, size_t size)
{
    FILE *f = fopen(scratch_path(s, name), "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, size, f);
    fclose(f);
    return n;
}

static void damaged_gzip_files_are_refused(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    static const char name[] = "train-images-idx3-ubyte.gz";
    uint8_t gz[512];
    write_files(s, "", &files, 1);
    size_t n = read_back(s, name, gz, sizeof gz - 8);
    char message[256];

    scratch_file(s, name, gz, n / 2);
    snprintf(
        message, sizeof message,
        ": expected more compressed data, found the end of the file at byte %zu; the gzip file "
        "is truncated, fetch it again",
        n / 2);
    refuses(s, name, LS_EDATA, message);

    memcpy(gz + n, "extra", 5);
    scratch_file(s, name, gz, n + 5);
    snprintf(message, sizeof message,
             ": expected the end of the file at compressed byte %zu, found more; fetch the file "
             "again",
             n);
    refuses(s, name, LS_EDATA, message);

    gz[n - 6] ^= 1; /* in the checksum of gzip */
    scratch_file(s, name, gz, n);
    snprintf(message, sizeof message,
             ": expected gzip data, found damage near compressed byte %zu (incorrect data check); "
             "fetch the file again",
             n - 4);
    refuses(s, name, LS_EDATA, message);
}

static void a_header_that_promises_too_much_is_refused_before_memory_is_asked_for(void **state)
{
    scratch *s = *state;
    for (int gzip = 0; gzip < 2; gzip++) {
        dataset_files files = good();
        put32(files.of[0].bytes + 4, UINT32_MAX);
        put32(files.of[1].bytes + 4, UINT32_MAX);
        write_files(s, "", &files, gzip);
        refuses(
            s, gzip ? "train-images-idx3-ubyte.gz" : "train-images-idx3-ubyte", LS_EDATA,
            ": expected 68719476720 bytes after the header, by its counts from byte 4 on, found "
            "a file too small to hold them; fetch it again");
        for (int i = 0; !gzip && i < 4; i++)
            assert_int_equal(unlink(scratch_path(s, file_names[i])), 0);
    }
    dataset_files files = good();
    put32(files.of[0].bytes + 12, 0x80000000u);
    write_files(s, "", &files, 0);
    refuses(s, "train-images-idx3-ubyte", LS_EDATA,
            ": expected images of 1 to 4096 pixels a side at byte 8, found 4 x 2147483648");
    files = good();
    put32(files.of[0].bytes + 4, 0);
    write_files(s, "", &files, 0);
    refuses(s, "train-images-idx3-ubyte", LS_EDATA,
            ": expected at least one image at byte 4, found 0");
}

static void test_images_of_another_size_are_refused(void **state)
{
    scratch *s = *state;
    dataset_files files = good();
    put32(files.of[2].bytes + 8, SIDE / 2);
    put32(files.of[2].bytes + 12, SIDE * 2);
    write_files(s, "", &files, 0);
    refuses(s, "t10k-images-idx3-ubyte", LS_EDATA,
            ": expected test images of 4 x 4 pixels at byte 8, like the training images, found 2 x "
            "8");
}

static void things_that_are_not_readable_files_are_refused(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    static const char name[] = "train-images-idx3-ubyte";
    write_files(s, "", &files, 0);
    assert_int_equal(unlink(scratch_path(s, name)), 0);
    scratch_loop(s, name);
    refuses(s, name, LS_EIO, ": cannot be read: Too many levels of symbolic links");
    assert_int_equal(unlink(scratch_path(s, name)), 0);
    scratch_directory(s, name);
    refuses(s, name, LS_EDATA, ": expected a data file, found a directory; name a file");
    assert_int_equal(rmdir(scratch_path(s, name)), 0);
    assert_int_equal(mkfifo(scratch_path(s, name), 0600), 0);
    refuses(s, name, LS_EDATA,
            ": expected a data file, found a device or a pipe; copy it to "
            "a file first");
    assert_int_equal(unlink(scratch_path(s, name)), 0);
    scratch_file(s, name, "", 0);
    refuses(s, name, LS_EDATA, ": expected data, found an empty file; save or fetch it again");
    if (geteuid() != 0) {
        assert_int_equal(chmod(scratch_path(s, name), 0), 0);
        refuses(s, name, LS_EIO, ": cannot be read: Permission denied");
    }
}

static void a_file_cut_at_any_byte_never_opens(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    for (int gzip = 0; gzip < 2; gzip++) {
        for (int i = 0; i < 2; i++) {
            uint8_t whole[512];
            char name[64];
            write_files(s, "", &files, gzip);
            snprintf(name, sizeof name, "%s%s", file_names[i], gzip ? ".gz" : "");
            size_t n = read_back(s, name, whole, sizeof whole);
            for (size_t cut = 0; cut < n; cut++) {
                ls_dataset *split[2];
                ls_error err = {0};
                scratch_file(s, name, whole, cut);
                assert_int_equal(open_path(split, s->directory, 0, NULL, &err), LS_EDATA);
                assert_non_null(strstr(err.text, name));
                /* With a limit the cut file is refused as well. */
                assert_int_equal(open_path(split, s->directory, 1, NULL, NULL), LS_EDATA);
            }
            scratch_file(s, name, whole, n);
        }
        for (int i = 0; !gzip && i < 4; i++) {
            opens(s, "", 0);
            assert_int_equal(unlink(scratch_path(s, file_names[i])), 0);
            write_files(s, "", &files, 0);
        }
        for (int i = 0; !gzip && i < 4; i++)
            assert_int_equal(unlink(scratch_path(s, file_names[i])), 0);
    }
}

/* Each bit of a compressed file is flipped in turn. Opening the file then fails, or returns the
 * right rows. */
static void a_file_with_any_byte_changed_is_harmless(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    static const char name[] = "train-images-idx3-ubyte.gz";
    uint8_t gz[512];
    write_files(s, "", &files, 1);
    size_t n = read_back(s, name, gz, sizeof gz);
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            ls_dataset *split[2];
            gz[at] ^= (uint8_t)(1 << bit);
            scratch_file(s, name, gz, n);
            if (open_path(split, s->directory, 0, NULL, NULL) == LS_OK) {
                /* the flipped bit is in the time or the system byte of gzip's header */
                has_good_content(split, TRAIN);
                close_both(split);
            }
            gz[at] ^= (uint8_t)(1 << bit);
        }
    }
}

static void a_limit_beyond_the_rows_is_refused(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    ls_dataset *split[2];
    ls_error err;
    char expected[600];
    write_files(s, "", &files, 0);
    snprintf(expected, sizeof expected,
             "data.limit: expected at most the 5 training rows of %s, found 6; 0 means all",
             s->directory);
    assert_int_equal(open_path(split, s->directory, 6, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, expected);
}

/* ---- the host ---- */

typedef struct recorder {
    /* must be the first field, because ration_alloc gets the address of the recorder */
    ration left;
    int lines;
    char line[4][512];
} recorder;

static void recorder_log(void *user, ls_log_level level, const char *text)
{
    recorder *r = user;
    assert_int_equal(level, LS_LOG_WARNING);
    assert_true(r->lines < 4);
    snprintf(r->line[r->lines++], sizeof r->line[0], "%s", text);
}

static void a_payload_that_is_not_the_published_one_is_warned_about(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    recorder r = {.left = {1000, 0}};
    const ls_host host = {sizeof host, ration_alloc, ration_free, recorder_log, &r};
    ls_dataset *split[2];
    ls_error err;
    char expected[700];
    write_files(s, "", &files, 1);
    ls_dataset_spec spec = {.name = "fashion_mnist", .path = s->directory};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, &host, &err), LS_OK);
    assert_int_equal(r.lines, 4);
    for (int i = 0; i < 2; i++) {
        const ls_dataset_info *info = ls_dataset_describe(split[i]);
        assert_int_equal(info->payload, LS_PAYLOAD_DIFFERS);
        assert_int_equal(strlen(info->images_sha256), 64);
        assert_string_not_equal(info->images_sha256, info->labels_sha256);
    }
    snprintf(expected, sizeof expected,
             "%s/train-images-idx3-ubyte.gz: not the published content of fashion_mnist: "
             "expected SHA-256 c59f468a2f672dc8, found %.16s; results cannot be compared",
             s->directory, ls_dataset_describe(split[0])->images_sha256);
    assert_string_equal(r.line[0], expected);
    close_both(split);
    assert_int_equal(r.left.blocks, 0);
}

static void lack_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    scratch *s = *state;
    const dataset_files files = good();
    recorder r = {.lines = 0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &r};
    write_files(s, "", &files, 1);
    for (int grants = 0;; grants++) {
        ls_dataset *split[2];
        ls_error err = {0};
        r.left.grants = grants;
        int rc = open_path(split, s->directory, 0, &host, &err);
        if (rc == LS_OK) {
            has_good_content(split, TRAIN);
            close_both(split);
        }
        assert_int_equal(r.left.blocks, 0);
        if (rc == LS_OK)
            break;
        assert_int_equal(rc, LS_ENOMEM);
        assert_non_null(strstr(err.text, "out of memory"));
        assert_true(grants < 200);
    }
}

/* The two splits are read at the same time, but an error of the training split is always the one
 * that is reported. */
static void of_two_damaged_splits_the_training_split_is_told(void **state)
{
    scratch *s = *state;
    for (int damaged = 1; damaged <= 3; damaged++) {
        dataset_files files = good();
        ls_dataset *split[2];
        ls_error err = {0};
        for (int i = 0; i < 2; i++)
            files.of[2 * i].count -= damaged >> i & 1;
        write_files(s, "", &files, 0);
        assert_int_equal(open_path(split, s->directory, 0, NULL, &err), LS_EDATA);
        assert_non_null(strstr(err.text, file_names[damaged == 2 ? 2 : 0]));
        assert_null(split[0]);
        assert_null(split[1]);
    }
}

/* The file is so long that another thread hashes it. At the end the file is truncated. */
static void a_long_file_has_the_hash_of_its_bytes(void **state)
{
    enum { LONG_SIDE = 256, ROWS = 300, BYTES = 16 + ROWS * LONG_SIDE * LONG_SIDE };
    scratch *s = *state;
    dataset_files files = good();
    uint8_t *bytes = malloc(BYTES);
    char wanted[LS_SHA256_HEX];
    ls_dataset *split[2];
    ls_error err = {0};
    ls_sha256 hash;
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
    memcpy(bytes, files.of[0].bytes, 16);
    put32(bytes + 4, ROWS);
    put32(bytes + 8, LONG_SIDE);
    put32(bytes + 12, LONG_SIDE);
    write_files(s, "", &files, 0);
    scratch_file(s, file_names[0], bytes, BYTES);
    uint8_t label[8 + ROWS] = {0};
    put32(label, 0x0801);
    put32(label + 4, ROWS);
    scratch_file(s, file_names[1], label, sizeof label);
    /* The test images have another size than the training images, so opening fails after both
     * splits were read and hashed. */
    const ls_dataset_spec spec = {.name = "mnist", .path = s->directory};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, file_names[2]));
    scratch_file(s, file_names[2], bytes, BYTES);
    scratch_file(s, file_names[3], label, sizeof label);
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, bytes, BYTES);
    ls_sha256_final_hex(&hash, wanted);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(ls_dataset_describe(split[i])->images_sha256, wanted);
        assert_memory_equal(ls_dataset_resident(split[i]).images, bytes + 16, BYTES - 16);
    }
    close_both(split);
    scratch_file(s, file_names[0], bytes, BYTES - 1);
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_EDATA);
    assert_non_null(strstr(err.text, file_names[0]));
    free(bytes);
}

/* With labels_only, the file of images is not read, so damage in it has no effect. If rows are held
 * out, the file is read. */
static void training_images_that_nobody_asks_for_are_not_read(void **state)
{
    scratch *s = *state;
    dataset_files files = good();
    files.of[0].count++;
    write_files(s, "", &files, 0);
    ls_dataset_spec spec = {.name = "mnist", .path = s->directory, .labels_only = true};
    ls_dataset *split[2];
    ls_error err = {0};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_rows(split[0]), TRAIN);
    for (uint32_t r = 0; r < TRAIN; r++)
        assert_int_equal(ls_dataset_resident(split[0]).labels[r], files.of[1].bytes[8 + r]);
    assert_memory_equal(ls_dataset_resident(split[1]).images, files.of[2].bytes + 16,
                        TEST * PIXELS);
    assert_string_equal(ls_dataset_describe(split[0])->images_sha256, "");
    close_both(split);
    spec.keys.validation = 0.5;
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_EDATA);
}

LS_TESTS(data_idx, "integration")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(plain_and_compressed_files_give_the_same_rows),
        IN_SCRATCH(compression_is_told_by_content_not_by_name),
        IN_SCRATCH(gzip_files_of_several_members_are_read_through),
        IN_SCRATCH(rows_are_copied_and_bounds_checked),
        IN_SCRATCH(files_are_found_as_people_have_them),
        IN_SCRATCH(directories_are_searched_in_order),
        IN_SCRATCH(missing_data_is_reported_with_every_place_and_the_remedy),
        IN_SCRATCH(one_missing_file_is_named),
        IN_SCRATCH(a_wrong_magic_is_refused),
        IN_SCRATCH(counts_that_differ_are_refused),
        IN_SCRATCH(a_label_beyond_the_classes_is_refused),
        IN_SCRATCH(trailing_bytes_are_refused),
        IN_SCRATCH(damaged_gzip_files_are_refused),
        IN_SCRATCH(a_header_that_promises_too_much_is_refused_before_memory_is_asked_for),
        IN_SCRATCH(test_images_of_another_size_are_refused),
        IN_SCRATCH(things_that_are_not_readable_files_are_refused),
        IN_SCRATCH(a_file_cut_at_any_byte_never_opens),
        IN_SCRATCH(a_file_with_any_byte_changed_is_harmless),
        IN_SCRATCH(a_limit_beyond_the_rows_is_refused),
        IN_SCRATCH(a_payload_that_is_not_the_published_one_is_warned_about),
        IN_SCRATCH(training_images_that_nobody_asks_for_are_not_read),
        IN_SCRATCH(lack_of_memory_is_an_error_that_leaks_nothing),
        IN_SCRATCH(of_two_damaged_splits_the_training_split_is_told),
        IN_SCRATCH(a_long_file_has_the_hash_of_its_bytes),
    };
    return cmocka_run_group_tests_name("data_idx", tests, NULL, NULL);
}
