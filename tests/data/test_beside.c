/* SPDX-License-Identifier: MIT */
/* Tests functions that run on another thread while their caller goes on, and hashing on another
 * thread while bytes are written. The results must be those of sequential execution, for all sizes
 * and schedules. With ThreadSanitizer, the test also checks the order of writes and reads. */
#include "data/beside.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 1 << 16 };

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

typedef struct sum {
    int from, to, status;
    long total; /* not atomic: used only by the other thread until ls_beside_end returns */
} sum;

static int add_up(void *arg)
{
    sum *s = arg;
    for (int i = s->from; i < s->to; i++)
        s->total += i;
    return s->status;
}

static void work_beside_is_done_when_it_was_waited_for(void **state)
{
    (void)state;
    for (unsigned round = 0; round < ls_tests_rounds(200, 20000); round++) {
        sum mine = {0, (int)round, 0, 0}, other = {(int)round, 2 * (int)round, -(int)round, 0};
        ls_beside beside;
        ls_beside_begin(&beside, add_up, &other);
        assert_int_equal(add_up(&mine), 0);
        assert_int_equal(ls_beside_end(&beside), -(int)round);
        assert_int_equal(mine.total + other.total, (long)round * (2 * (long)round - 1));
    }
}

static void hash_all(char hex[LS_SHA256_HEX], const uint8_t *bytes, size_t count)
{
    ls_sha256 hash;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, "before", 6);
    ls_sha256_update(&hash, bytes, count);
    ls_sha256_final_hex(&hash, hex);
}

/* Hashes the text "before" on this thread, and then, on another thread, bytes that this thread
 * writes in pieces of random lengths, including 0. */
static void hash_in_pieces(char hex[LS_SHA256_HEX], uint8_t *bytes, size_t count, uint64_t *seed)
{
    const size_t longest = 1 + next(seed) % (count + 1);
    ls_sha256 hash;
    ls_hash_behind behind;
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, "before", 6);
    ls_hash_behind_begin(&behind, &hash, bytes);
    for (size_t at = 0; at < count;) {
        size_t piece = next(seed) % (longest + 1);
        piece = piece < count - at ? piece : count - at;
        for (size_t i = 0; i < piece; i++)
            bytes[at + i] = (uint8_t)next(seed);
        at += piece;
        ls_hash_behind_reach(&behind, at);
    }
    ls_hash_behind_end(&behind);
    ls_sha256_final_hex(&hash, hex);
}

static void a_hash_behind_a_writer_is_that_of_all_bytes(void **state)
{
    uint8_t *bytes = malloc(MOST);
    uint64_t seed = 36;
    char found[LS_SHA256_HEX], wanted[LS_SHA256_HEX];
    (void)state;
    assert_non_null(bytes);
    for (unsigned round = 0; round < ls_tests_rounds(150, 10000); round++) {
        const size_t count = round == 0 ? 0 : next(&seed) % (round % 3 ? 2000 : MOST);
        memset(bytes, 0xEE, count);
        hash_in_pieces(found, bytes, count, &seed);
        hash_all(wanted, bytes, count);
        assert_string_equal(found, wanted);
    }
    free(bytes);
}

LS_TESTS(data_beside, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_beside_is_done_when_it_was_waited_for),
        cmocka_unit_test(a_hash_behind_a_writer_is_that_of_all_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
LS_TESTS_LONG(data_beside, "nightly no-asan")
