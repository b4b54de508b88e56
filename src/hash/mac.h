/* SPDX-License-Identifier: MIT */
/* A message authentication code: UMAC with tags of 128 bits (RFC 4418). A message's *tag* tells a
 * receiver who has the key whether somebody who has it has sent exactly these bytes under this
 * number. It is several times as fast as HMAC-SHA-256 (hash.h), but each number may be used only
 * once with a key. A message is passed in pieces:
 *
 *     ls_mac mac;
 *     uint8_t tag[LS_MAC_TAG];
 *     ls_mac_init(&mac, key);
 *     ls_mac_begin(&mac, number);                 // for each message
 *     ls_mac_update(&mac, bytes, count);          // as often as needed
 *     ls_mac_end(&mac, tag);
 *
 * Limits (RFC 4418): an attempt to forge a tag succeeds with a probability of about 2⁻¹²⁰. This
 * holds as long as a message has less than 2⁶⁴ bytes, far fewer than 2⁶⁴ messages are sent with a
 * key, and no number is used twice, which makes the key worthless.
 *
 * The context is the caller's memory, owns nothing that must be freed, may be copied, and belongs
 * to one thread at a time. No function of this header fails or allocates memory. */
#ifndef HASH_MAC_H
#define HASH_MAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_MAC_KEY = 16, /* bytes of a key */
    LS_MAC_TAG = 16  /* bytes of a tag */
};

/* Context of a code: the expanded key, and the message in progress. */
typedef struct ls_mac {
    uint64_t state[352]; /* context of the hash library */
} ls_mac;

/* Expands a key. */
void ls_mac_init(ls_mac *mac, const uint8_t key[LS_MAC_KEY]);
/* Begins the message with the number `number`. */
void ls_mac_begin(ls_mac *mac, uint64_t number);
/* Adds the next `count` bytes to the message. */
void ls_mac_update(ls_mac *mac, const void *bytes, size_t count);
/* Stores the tag of the message, which ends with it. */
void ls_mac_end(ls_mac *mac, uint8_t tag[LS_MAC_TAG]);

/* Compares `count` bytes in constant time, so that the duration does not reveal the position of the
 * first difference. Any thread. */
bool ls_equal_secrets(const void *a, const void *b, size_t count);

#endif
