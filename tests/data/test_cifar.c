/* SPDX-License-Identifier: MIT */
/* Tests CIFAR-10's binary files: the directories in which they are looked for, and every kind of
 * damage with its message. */
#include "data/kinds.h"
#include "data/ration.h"
#include "data/scratch.h"
#include "runner.h"
#include "train/train_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* CIFAR-10's format with three records in each file. */
enum { FILES = 3, RECORDS = 3, IMAGE = 3072, RECORD = 1 + IMAGE, BYTES = RECORDS * RECORD };

static const char *const names[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"};

static const ls_cifar_detail small = {
    .records = {RECORDS, RECORDS},
    .labels = 1,
    .files = {names, FILES, {"cifar-10-batches-bin", "CIFAR10/cifar-10-batches-bin"}, "buy it"},
};
static const ls_dataset_kind small_kind = {
    {"small", 3, 32, 32, 10, NULL, NULL, LS_DATA_PUBLIC}, ls_cifar_open, &small};

typedef uint8_t content[BYTES];

static void fill(content bytes, int file)
{
    for (int r = 0; r < RECORDS; r++) {
        uint8_t *record = bytes + r * RECORD;
        record[0] = (uint8_t)((file * RECORDS + r) % 10);
        for (int i = 0; i < IMAGE; i++)
            record[1 + i] = (uint8_t)(i * 7 + i / 1024 + r * 31 + file * 101);
    }
}

static void write_files(scratch *s, const char *folder, int gzip)
{
    static content bytes;
    char name[128];
    for (int i = 0; i < FILES; i++) {
        fill(bytes, i);
        snprintf(name, sizeof name, "%s%s%s%s", folder, *folder ? "/" : "", names[i],
                 gzip ? ".gz" : "");
        if (gzip)
            scratch_gzip(s, name, bytes, BYTES);
        else
            scratch_file(s, name, bytes, BYTES);
    }
}

static int open_path(ls_dataset **split, const char *path, uint32_t limit, const ls_host *host,
                     ls_error *err)
{
    const ls_dataset_spec spec = {.name = "small", .path = path, .limit = limit};
    return ls_dataset_open_kind(&split[0], &split[1], &small_kind, &spec, host, err);
}

static void close_both(ls_dataset **split)
{
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

static void holds(const ls_dataset *ds, int first_file, uint32_t rows)
{
    static content bytes;
    const ls_dataset_info *info = ls_dataset_describe(ds);
    ls_dataset_view v = ls_dataset_resident(ds);
    assert_int_equal(info->rows, rows);
    assert_int_equal(info->channels, 3);
    assert_int_equal(info->height, 32);
    assert_int_equal(info->width, 32);
    assert_int_equal(info->classes, 10);
    for (uint32_t row = 0; row < rows; row++) {
        fill(bytes, first_file + (int)row / RECORDS);
        const uint8_t *record = bytes + row % RECORDS * RECORD;
        assert_int_equal(v.labels[row], record[0]);
        assert_memory_equal(v.images + row * IMAGE, record + 1, IMAGE);
    }
}

static void opens(const char *path, uint32_t limit)
{
    ls_dataset *split[2];
    ls_error err = {0};
    int rc = open_path(split, path, limit, NULL, &err);
    if (rc != LS_OK)
        print_error("%s\n", err.text);
    assert_int_equal(rc, LS_OK);
    holds(split[0], 0, limit ? limit : 2 * RECORDS);
    holds(split[1], 2, RECORDS);
    close_both(split);
}

/* ---- good files ---- */

/* Each record has two labels, as in CIFAR-100. The training file has three records, the test file
 * one. */
static void of_two_labels_the_second_one_counts(void **state)
{
    enum { LONG = 2 + IMAGE };
    static const char *const two[2] = {"train.bin", "test.bin"};
    static const ls_cifar_detail detail = {
        .records = {3, 1}, .labels = 2, .files = {two, 2, {"a", "b"}, NULL}};
    static const ls_dataset_kind kind = {
        {"fine", 3, 32, 32, 100, NULL, NULL, LS_DATA_PUBLIC}, ls_cifar_open, &detail};
    static uint8_t bytes[3 * LONG];
    scratch *s = *state;
    const ls_dataset_spec spec = {.name = "fine", .path = s->directory};
    ls_dataset *split[2];
    ls_error err;
    for (int r = 0; r < 3; r++) {
        bytes[r * LONG] = 200; /* the coarse class, which is not checked */
        bytes[r * LONG + 1] = (uint8_t)(99 - r);
        for (int i = 0; i < IMAGE; i++)
            bytes[r * LONG + 2 + i] = (uint8_t)(i * 5 + r);
    }
    scratch_file(s, "train.bin", bytes, sizeof bytes);
    scratch_file(s, "test.bin", bytes, LONG);
    assert_int_equal(ls_dataset_open_kind(&split[0], &split[1], &kind, &spec, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_describe(split[0])->rows, 3);
    assert_int_equal(ls_dataset_describe(split[1])->rows, 1);
    for (int r = 0; r < 3; r++) {
        const ls_dataset_view v = ls_dataset_resident(split[0]);
        assert_int_equal(v.labels[r], 99 - r);
        assert_memory_equal(v.images + r * IMAGE, bytes + r * LONG + 2, IMAGE);
    }
    close_both(split);
    bytes[2 * LONG + 1] = 100;
    scratch_file(s, "train.bin", bytes, sizeof bytes);
    assert_int_equal(ls_dataset_open_kind(&split[0], &split[1], &kind, &spec, NULL, &err),
                     LS_EDATA);
    assert_non_null(strstr(err.text, "expected a label from 0 to 99 at byte 6149, found 100"));
}

static void plain_and_compressed_files_give_the_same_rows(void **state)
{
    scratch *s = *state;
    scratch_directory(s, "plain");
    scratch_directory(s, "gz");
    write_files(s, "plain", 0);
    write_files(s, "gz", 1);
    for (uint32_t limit = 0; limit <= 2 * RECORDS; limit++) {
        opens(scratch_path(s, "plain"), limit);
        opens(scratch_path(s, "gz"), limit);
    }
}

static void the_hash_is_that_of_the_files_one_after_another(void **state)
{
    scratch *s = *state;
    static content bytes;
    ls_dataset *split[2];
    ls_sha256 hash;
    char expected[LS_SHA256_HEX];
    write_files(s, "", 1);
    assert_int_equal(open_path(split, s->directory, 1, NULL, NULL), LS_OK);
    ls_sha256_init(&hash);
    for (int i = 0; i < 2; i++) {
        fill(bytes, i);
        ls_sha256_update(&hash, bytes, BYTES);
    }
    ls_sha256_final_hex(&hash, expected);
    assert_string_equal(ls_dataset_describe(split[0])->images_sha256, expected);
    assert_string_equal(ls_dataset_describe(split[0])->labels_sha256, "");
    assert_string_not_equal(ls_dataset_describe(split[1])->images_sha256, expected);
    close_both(split);
}

static void folders_below_the_search_directories_are_tried(void **state)
{
    scratch *s = *state;
    ls_dataset *split[2];
    scratch_directory(s, "one");
    scratch_directory(s, "two");
    scratch_directory(s, "two/cifar-10-batches-bin");
    write_files(s, "two/cifar-10-batches-bin", 0);
    const char *const search[] = {scratch_path(s, "one"), scratch_path(s, "two")};
    const ls_dataset_spec spec = {.name = "small", .search = search, .search_count = 2};
    assert_int_equal(ls_dataset_open_kind(&split[0], &split[1], &small_kind, &spec, NULL, NULL),
                     LS_OK);
    assert_string_equal(ls_dataset_describe(split[0])->source,
                        scratch_path(s, "two/cifar-10-batches-bin"));
    close_both(split);
}

/* The files have the published size. They are sparse, so that they need no disk space. */
static void cifar10_has_six_files_of_ten_thousand_records(void **state)
{
    static const char *const all[6] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                       "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    scratch *s = *state;
    ls_dataset *split[2];
    ls_error err;
    const ls_dataset_spec spec = {.name = "cifar10", .path = s->directory, .limit = 128};
    for (int i = 0; i < 6; i++) {
        scratch_file(s, all[i], "", 0);
        assert_int_equal(truncate(scratch_path(s, all[i]), 30730000), 0);
    }
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_OK);
    assert_int_equal(ls_dataset_describe(split[0])->rows, 128);
    assert_int_equal(ls_dataset_describe(split[1])->rows, 10000);
    close_both(split);
    assert_int_equal(truncate(scratch_path(s, all[3]), 30730000 - RECORD), 0);
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_EDATA);
    char expected[600];
    snprintf(expected, sizeof expected,
             "%s/data_batch_4.bin: expected 10000 records of 3073 bytes, found the end of the "
             "file before byte 30730000; fetch it again",
             s->directory);
    assert_string_equal(err.text, expected);
}

/* ---- missing files ---- */

static void missing_data_is_reported_with_what_to_fetch_and_where_it_goes(void **state)
{
    (void)state;
    ls_dataset *split[2];
    ls_error err;
    static const char *const search[] = {"/nowhere/a", "/nowhere/b"};
    const ls_dataset_spec spec = {.name = "cifar10", .search = search, .search_count = 2};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, NULL, &err), LS_ENOENT);
    assert_string_equal(err.text,
                        "cifar10 not found; fetch cifar-10-binary.tar.gz from "
                        "https://www.cs.toronto.edu/~kriz/cifar.html and unpack it in one of the "
                        "directories below, name the directory of the files with --set "
                        "data.path=DIR, or try --set data.name=synthetic; no data_batch_1.bin[.gz] "
                        "in /nowhere/a, /nowhere/b (each also as DIR/cifar-10-batches-bin and "
                        "DIR/CIFAR10/cifar-10-batches-bin)");
    assert_null(split[0]);
    assert_null(split[1]);
}

/* Expects opening to fail with "DIRECTORY" and then the message. */
static void refuses(scratch *s, uint32_t limit, int status, const char *message)
{
    ls_dataset *split[2];
    ls_error err = {0};
    char expected[1200];
    snprintf(expected, sizeof expected, "%s%s", s->directory, message);
    assert_int_equal(open_path(split, s->directory, limit, NULL, &err), status);
    assert_string_equal(err.text, expected);
    assert_null(split[0]);
    assert_null(split[1]);
}

static void one_missing_file_is_named(void **state)
{
    scratch *s = *state;
    write_files(s, "", 0);
    assert_int_equal(unlink(scratch_path(s, "test_batch.bin")), 0);
    refuses(s, 0, LS_ENOENT,
            ": no test_batch.bin[.gz] beside data_batch_1.bin; the dataset is incomplete, fetch it "
            "again");
}

/* ---- damage ---- */

static void a_label_beyond_the_classes_is_refused(void **state)
{
    scratch *s = *state;
    static content bytes;
    write_files(s, "", 0);
    fill(bytes, 1);
    bytes[2 * RECORD] = 10;
    scratch_file(s, "data_batch_2.bin", bytes, BYTES);
    const char *message = "/data_batch_2.bin: expected a label from 0 to 9 at byte 6146, found 10; "
                          "fetch the file again";
    refuses(s, 0, LS_EDATA, message);
    /* the file is checked even if data.limit leaves the damaged record out */
    refuses(s, 1, LS_EDATA, message);
}

static void trailing_bytes_are_refused(void **state)
{
    scratch *s = *state;
    static uint8_t bytes[BYTES + RECORD];
    for (int gzip = 0; gzip < 2; gzip++) {
        write_files(s, "", gzip);
        if (gzip)
            scratch_gzip(s, "data_batch_1.bin", bytes, BYTES + 1);
        else
            scratch_file(s, "data_batch_1.bin", bytes, BYTES + RECORD);
        refuses(s, 0, LS_EDATA,
                "/data_batch_1.bin: expected the end of the data at byte 9219, found more; fetch "
                "the file again");
    }
}

/* Returns the next length to which a file of `cut` bytes is cut. Builds with a sanitizer try every
 * seventh length, and near the ends of a record every length. */
static long shorter(long cut)
{
    const long in_record = cut % RECORD;
    return cut - (SLOW_BUILD && in_record > 48 && in_record < RECORD - 48 ? 7 : 1);
}

static void a_plain_file_cut_at_any_byte_never_opens(void **state)
{
    scratch *s = *state;
    write_files(s, "", 0);
    for (int i = 0; i < FILES; i++) {
        static content bytes;
        char message[256];
        snprintf(message, sizeof message,
                 "/%s: expected 3 records of 3073 bytes, found the end of the file before byte "
                 "9219; fetch it again",
                 names[i]);
        for (long cut = BYTES - 1; cut > 0; cut = shorter(cut)) {
            assert_int_equal(truncate(scratch_path(s, names[i]), cut), 0);
            refuses(s, 1, LS_EDATA, message);
        }
        fill(bytes, i);
        scratch_file(s, names[i], bytes, BYTES);
        opens(s->directory, 0);
    }
}

static void a_compressed_file_cut_at_any_byte_never_opens(void **state)
{
    scratch *s = *state;
    static uint8_t gz[BYTES];
    write_files(s, "", 1);
    for (int i = 0; i < FILES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.gz", names[i]);
        FILE *f = fopen(scratch_path(s, name), "rb");
        assert_non_null(f);
        size_t n = fread(gz, 1, sizeof gz, f);
        fclose(f);
        assert_true(n > 20 && n < sizeof gz);
        for (size_t cut = n - 1; cut > 0; cut--) {
            ls_dataset *split[2];
            ls_error err = {0};
            assert_int_equal(truncate(scratch_path(s, name), (long)cut), 0);
            assert_int_equal(open_path(split, s->directory, 1, NULL, &err), LS_EDATA);
            assert_non_null(strstr(err.text, name));
        }
        scratch_file(s, name, gz, n);
    }
    opens(s->directory, 0);
}

/* A gzip file without damage that contains only two of three records. */
static void a_compressed_file_with_too_few_records_is_refused(void **state)
{
    scratch *s = *state;
    static content bytes;
    write_files(s, "", 1);
    fill(bytes, 0);
    for (int i = 0; i < BYTES; i++) /* gzip must not make the file too small for three records */
        bytes[i] = (uint8_t)(i % RECORD == 0 ? 1 : (i * 2654435761u) >> 13);
    scratch_gzip(s, "data_batch_1.bin.gz", bytes, 2 * RECORD);
    refuses(s, 0, LS_EDATA,
            "/data_batch_1.bin.gz: expected 3 records of 3073 bytes, found the end of the data at "
            "byte 6146; fetch the file again");
}

static void a_limit_beyond_the_rows_is_refused(void **state)
{
    scratch *s = *state;
    ls_dataset *split[2];
    ls_error err;
    char expected[600];
    write_files(s, "", 0);
    snprintf(expected, sizeof expected,
             "data.limit: expected at most the 6 training rows of %s, found 7; 0 means all",
             s->directory);
    assert_int_equal(open_path(split, s->directory, 7, NULL, &err), LS_ECONFIG);
    assert_string_equal(err.text, expected);
}

/* With labels_only, the files are read and checked, because they contain the labels as well, but no
 * image is stored and no hash is computed. */
static void training_images_that_nobody_asks_for_are_not_kept(void **state)
{
    static const uint8_t none[IMAGE];
    scratch *s = *state;
    ls_dataset_spec spec = {.name = "small", .path = s->directory, .labels_only = true};
    ls_dataset *split[2];
    ls_error err = {0};
    write_files(s, "", 1);
    assert_int_equal(ls_dataset_open_kind(&split[0], &split[1], &small_kind, &spec, NULL, &err),
                     LS_OK);
    for (int r = 0; r < 2 * RECORDS; r++) {
        assert_int_equal(ls_dataset_resident(split[0]).labels[r], r % 10);
        assert_memory_equal(ls_dataset_resident(split[0]).images + r * IMAGE, none, IMAGE);
    }
    assert_string_equal(ls_dataset_describe(split[0])->images_sha256, "");
    holds(split[1], 2, RECORDS);
    assert_int_equal(strlen(ls_dataset_describe(split[1])->images_sha256), 64);
    close_both(split);
}

/* ---- the host ---- */

static void lack_of_memory_is_an_error_that_leaks_nothing(void **state)
{
    scratch *s = *state;
    ration r = {0, 0};
    const ls_host host = {sizeof host, ration_alloc, ration_free, NULL, &r};
    write_files(s, "", 1);
    for (int grants = 0, rc = LS_ENOMEM; rc != LS_OK; grants++) {
        ls_dataset *split[2];
        ls_error err = {0};
        r.grants = grants;
        rc = open_path(split, s->directory, 0, &host, &err);
        close_both(split);
        assert_int_equal(r.blocks, 0);
        assert_true(rc == LS_OK || rc == LS_ENOMEM);
        assert_true(rc == LS_OK || strstr(err.text, "out of memory"));
        assert_true(grants < 200);
    }
}

LS_TESTS(data_cifar, "integration no-tsan")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(plain_and_compressed_files_give_the_same_rows),
        IN_SCRATCH(the_hash_is_that_of_the_files_one_after_another),
        IN_SCRATCH(folders_below_the_search_directories_are_tried),
        IN_SCRATCH(cifar10_has_six_files_of_ten_thousand_records),
        IN_SCRATCH(missing_data_is_reported_with_what_to_fetch_and_where_it_goes),
        IN_SCRATCH(one_missing_file_is_named),
        IN_SCRATCH(of_two_labels_the_second_one_counts),
        IN_SCRATCH(a_label_beyond_the_classes_is_refused),
        IN_SCRATCH(trailing_bytes_are_refused),
        IN_SCRATCH(a_plain_file_cut_at_any_byte_never_opens),
        IN_SCRATCH(a_compressed_file_cut_at_any_byte_never_opens),
        IN_SCRATCH(a_compressed_file_with_too_few_records_is_refused),
        IN_SCRATCH(a_limit_beyond_the_rows_is_refused),
        IN_SCRATCH(training_images_that_nobody_asks_for_are_not_kept),
        IN_SCRATCH(lack_of_memory_is_an_error_that_leaks_nothing),
    };
    return cmocka_run_group_tests_name("data_cifar", tests, NULL, NULL);
}
