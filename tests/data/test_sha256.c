/* SPDX-License-Identifier: MIT */
/* Tests SHA-256 with the examples of FIPS 180-4. */
#include "hash/hash.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void known_texts_have_their_known_digests(void **state)
{
    (void)state;
    static const char *const known[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < 3; i++) {
        ls_sha256 hash;
        char hex[LS_SHA256_HEX];
        ls_sha256_init(&hash);
        ls_sha256_update(&hash, known[i][0], strlen(known[i][0]));
        ls_sha256_final_hex(&hash, hex);
        assert_string_equal(hex, known[i][1]);
    }
}

static void pieces_give_the_digest_of_the_whole(void **state)
{
    (void)state;
    uint8_t bytes[1000];
    uint8_t whole[32];
    uint8_t pieces[32];
    ls_sha256 hash;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    ls_sha256_init(&hash);
    ls_sha256_update(&hash, bytes, sizeof bytes);
    ls_sha256_final(&hash, whole);
    /* The context was initialised again by ls_sha256_final_hex. */
    for (size_t at = 0, n = 1; at < sizeof bytes; at += n, n = n * 2 + 1) {
        n = n < sizeof bytes - at ? n : sizeof bytes - at;
        ls_sha256_update(&hash, bytes + at, n);
    }
    ls_sha256_final(&hash, pieces);
    assert_memory_equal(whole, pieces, 32);
}

LS_TESTS(sha256, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_their_known_digests),
        cmocka_unit_test(pieces_give_the_digest_of_the_whole),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
