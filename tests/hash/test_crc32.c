/* SPDX-License-Identifier: MIT */
/* Tests CRC-32: known values, and that a text in pieces has the same checksum as the whole text. */
#include "hash/hash.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* By the definition: reflected, polynomial 0x04c11db7, start and end inverted. */
static uint32_t bit_by_bit(const unsigned char *bytes, size_t count)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

static void known_values_come_out(void **state)
{
    (void)state;
    assert_int_equal(ls_crc32(0, "", 0), 0);
    assert_int_equal(ls_crc32(0, NULL, 0), 0);
    assert_int_equal(ls_crc32(0, "123456789", 9), 0xcbf43926u); /* the usual check value */
    assert_int_equal(ls_crc32(0, "\0\0\0\0", 4), 0x2144df1cu);
}

static void pieces_add_up_to_the_whole(void **state)
{
    (void)state;
    enum { SIZE = 1000 };
    unsigned char bytes[SIZE];
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * i * 31 + 7);
    uint32_t whole = bit_by_bit(bytes, SIZE);
    for (size_t cut = 0; cut <= SIZE; cut++) {
        uint32_t first = ls_crc32(0, bytes, cut);
        assert_int_equal(first, bit_by_bit(bytes, cut));
        assert_int_equal(ls_crc32(first, bytes + cut, SIZE - cut), whole);
    }
}

static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    unsigned char bytes[64] = {0};
    uint32_t sound = ls_crc32(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(ls_crc32(0, bytes, sizeof bytes), sound);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

LS_TESTS(hash_crc32, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_come_out),
        cmocka_unit_test(pieces_add_up_to_the_whole),
        cmocka_unit_test(every_flipped_bit_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
