/* SPDX-License-Identifier: MIT */
/* Tests files that are read while another thread reads the following bytes: the bytes, the hash,
 * and the offset at which damage is reported, for file sizes around the size of a block. With
 * ThreadSanitizer, the test also checks the exchange of the blocks. */
#include "data/read_ahead.h"
#include "data/scratch.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST = 64 << 10, BLOCK = 1 << 20, MOST = 3 * BLOCK + FIRST };

static uint8_t *some_bytes(void)
{
    uint8_t *bytes = malloc(MOST);
    uint64_t state = 1;
    for (size_t i = 0; bytes && i < MOST; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 56);
    }
    assert_non_null(bytes);
    return bytes;
}

/* Reads the file in steps of `step` bytes and compares it with `bytes`. Returns the status of the
 * last call, and sets *count to the number of bytes read. Sets `sha256` only if the whole file was
 * read. */
static int read_file(const char *path, const uint8_t *bytes, size_t step, size_t *count,
                     char sha256[LS_SHA256_HEX], ls_error *err)
{
    ls_read_ahead *r;
    uint8_t *out = malloc(step);
    size_t got = 1;
    *count = 0;
    int status = ls_read_ahead_open(&r, path, NULL, err);
    while (status == LS_OK && got > 0) {
        status = ls_read_ahead_some(r, out, step, &got, err);
        if (status)
            break;
        assert_memory_equal(out, bytes + *count, got);
        *count += got;
    }
    if (status == LS_OK) {
        strcpy(sha256, "end");
        status = ls_read_ahead_end(r, sha256, err);
    }
    ls_read_ahead_close(r);
    free(out);
    return status;
}

static void every_byte_is_read_once_and_hashed(void **state)
{
    static const size_t size[] = {1, FIRST - 1, FIRST, FIRST + 1, FIRST + BLOCK, MOST};
    static const size_t step[] = {4099, 2 * BLOCK};
    uint8_t *bytes = some_bytes();
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char wanted[LS_SHA256_HEX], found[LS_SHA256_HEX];
        ls_sha256 hash;
        ls_error err;
        size_t count;
        ls_sha256_init(&hash);
        ls_sha256_update(&hash, bytes, size[i]);
        ls_sha256_final_hex(&hash, wanted);
        scratch_file(*state, "plain", bytes, size[i]);
        scratch_gzip(*state, "packed", bytes, size[i]);
        for (size_t k = 0; k < 2 * sizeof step / sizeof *step; k++) {
            const char *path = scratch_path(*state, k % 2 ? "packed" : "plain");
            if (read_file(path, bytes, step[k / 2], &count, found, &err) != LS_OK)
                fail_msg("%s", err.text);
            assert_int_equal(count, size[i]);
            assert_string_equal(found, wanted);
        }
    }
    free(bytes);
}

/* The bytes before the damage are still read, and the caller, not the other thread, gets the
 * error. */
static void damage_is_reported_after_the_bytes_before_it(void **state)
{
    uint8_t *bytes = some_bytes(), *packed = malloc(MOST);
    char found[LS_SHA256_HEX] = "";
    size_t count;
    ls_error err = {0};
    scratch_gzip(*state, "packed", bytes, MOST);
    const char *path = scratch_path(*state, "packed");
    FILE *file = fopen(path, "rb");
    assert_true(packed && file);
    const size_t size = fread(packed, 1, MOST, file);
    fclose(file);
    scratch_file(*state, "cut", packed, size / 2);
    free(packed);
    assert_int_equal(read_file(scratch_path(*state, "cut"), bytes, FIRST, &count, found, &err),
                     LS_EDATA);
    assert_true(count > BLOCK && count < MOST);
    assert_non_null(strstr(err.text, "cut"));
    assert_string_equal(found, ""); /* reading failed, not ls_read_ahead_end */
    assert_int_equal(read_file(scratch_path(*state, "absent"), bytes, FIRST, &count, found, &err),
                     LS_ENOENT);
    free(bytes);
}

/* Closing a reader before the end of the file waits for the other thread. */
static void a_reader_is_closed_at_any_place(void **state)
{
    uint8_t *bytes = some_bytes(), page[4096];
    scratch_file(*state, "plain", bytes, MOST);
    free(bytes);
    const char *path = scratch_path(*state, "plain");
    for (size_t skip = 0; skip < MOST; skip += MOST / 7) {
        ls_read_ahead *r;
        ls_error err;
        size_t got = 1;
        assert_int_equal(ls_read_ahead_open(&r, path, NULL, &err), LS_OK);
        for (size_t i = 0; i < skip; i += sizeof page)
            assert_int_equal(ls_read_ahead_some(r, page, sizeof page, &got, &err), LS_OK);
        ls_read_ahead_close(r);
    }
    ls_read_ahead_close(NULL);
}

LS_TESTS(data_read_ahead, "unit")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(every_byte_is_read_once_and_hashed),
        IN_SCRATCH(damage_is_reported_after_the_bytes_before_it),
        IN_SCRATCH(a_reader_is_closed_at_any_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
