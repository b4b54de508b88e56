/* SPDX-License-Identifier: MIT */
/* Tests the message authentication code: known tags, pieces of any length, and that the key, the
 * number and each bit of the message count. */
#include "hash/mac.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t key[LS_MAC_KEY] = "0123456789abcdef";

static void tag_of(uint8_t tag[LS_MAC_TAG], const uint8_t *with, uint64_t number, const void *bytes,
                   size_t count)
{
    ls_mac mac;
    ls_mac_init(&mac, with);
    ls_mac_begin(&mac, number);
    ls_mac_update(&mac, bytes, count);
    ls_mac_end(&mac, tag);
}

/* The tags of RFC 4418, appendix, with 128 bits, for the key "abcdefghijklmnop" and the nonce
 * "bcdefghi". */
static void known_tags_come_out(void **state)
{
    static const struct {
        size_t count;
        const char *tag;
    } known[] = {{0, "32fedb100c79ad58f07ff7643cc60465"},
                 {3, "185e4fe905cba7bd85e4c2dc3d117d8d"},
                 {1 << 10, "7a54abe04af82d60fb298c3cbd195bcb"},
                 {1 << 15, "7b136bd911e4b734286ef2be501f2c3c"},
                 {1 << 20, "f8acfa3ac31cfeea047f7b115b03bef5"}};
    const uint64_t nonce = UINT64_C(0x6263646566676869);
    char *text = malloc(1 << 20);
    (void)state;
    memset(text, 'a', 1 << 20);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint8_t tag[LS_MAC_TAG];
        char hex[2 * LS_MAC_TAG + 1];
        tag_of(tag, (const uint8_t *)"abcdefghijklmnop", nonce, text, known[i].count);
        for (int k = 0; k < LS_MAC_TAG; k++)
            snprintf(hex + 2 * k, 3, "%02x", tag[k]);
        assert_string_equal(hex, known[i].tag);
    }
    free(text);
}

static void pieces_make_the_same_tag_as_the_whole(void **state)
{
    enum { SIZE = 5000 };
    uint8_t bytes[SIZE], whole[LS_MAC_TAG], tag[LS_MAC_TAG];
    ls_mac mac;
    (void)state;
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * i * 31 + 7);
    tag_of(whole, key, 5, bytes, SIZE);
    ls_mac_init(&mac, key);
    for (size_t cut = 0; cut <= SIZE; cut += 7) {
        ls_mac_begin(&mac, 5);
        ls_mac_update(&mac, bytes, cut / 3);
        ls_mac_update(&mac, bytes + cut / 3, cut - cut / 3);
        ls_mac_update(&mac, bytes + cut, SIZE - cut);
        ls_mac_end(&mac, tag);
        assert_memory_equal(tag, whole, sizeof tag);
    }
}

static void key_number_length_and_each_bit_count(void **state)
{
    uint8_t bytes[64] = {0}, other[LS_MAC_KEY], tag[LS_MAC_TAG], sound[LS_MAC_TAG];
    (void)state;
    tag_of(sound, key, 7, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        tag_of(tag, key, 7, bytes, sizeof bytes);
        assert_memory_not_equal(tag, sound, sizeof tag);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (int bit = 0; bit < 64; bit++) {
        tag_of(tag, key, 7 ^ UINT64_C(1) << bit, bytes, sizeof bytes);
        assert_memory_not_equal(tag, sound, sizeof tag);
    }
    for (size_t count = 0; count < sizeof bytes; count++) {
        tag_of(tag, key, 7, bytes, count); /* all bytes are 0 */
        assert_memory_not_equal(tag, sound, sizeof tag);
    }
    for (size_t bit = 0; bit < 8 * sizeof other; bit++) {
        memcpy(other, key, sizeof other);
        other[bit / 8] ^= (uint8_t)(1u << bit % 8);
        tag_of(tag, other, 7, bytes, sizeof bytes);
        assert_memory_not_equal(tag, sound, sizeof tag);
    }
}

static void secrets_are_equal_only_in_all_bytes(void **state)
{
    uint8_t a[32] = {1}, b[32] = {1};
    (void)state;
    assert_true(ls_equal_secrets(a, b, sizeof a));
    for (size_t bit = 0; bit < 8 * sizeof a; bit++) {
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(ls_equal_secrets(a, b, sizeof a));
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

LS_TESTS(hash_mac, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_tags_come_out),
        cmocka_unit_test(pieces_make_the_same_tag_as_the_whole),
        cmocka_unit_test(key_number_length_and_each_bit_count),
        cmocka_unit_test(secrets_are_equal_only_in_all_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
