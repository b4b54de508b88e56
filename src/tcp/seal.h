/* SPDX-License-Identifier: MIT */
/* Messages that cannot be changed on the way.
 *
 * Both ends of a connection derive two keys at the end of the handshake (greet.c), one for each
 * direction: the HMAC-SHA-256, with the run's secret as its key, of a letter for the direction, the
 * caller's hello and the listener's nonce. The hello contains the caller's nonce, the run, the host
 * group and the channel. Both nonces are drawn anew for each connection. Therefore every
 * connection, channel and direction has a key of its own, also after a reconnect.
 *
 * Each message after the handshake is *sealed*: its bytes are followed by a *tag*, the UMAC-128
 * (hash/mac.h) of the bytes under the key of the direction and the message's number. Each end
 * counts the messages of each direction from 0, in 64 bits; the numbers are not sent. A number is
 * never used twice with a key, because a new connection has new keys. A receiver uses a message
 * only if the tag matches. So it finds out if
 *
 * - a bit of the message or of the tag was changed, or bytes were added or left out;
 * - a message was left out, repeated, or came in another place: the number differs;
 * - a message comes from another connection, channel or run, or is the receiver's own: the key
 *   differs.
 *
 * The kinds of messages:
 *
 *     verdict, note, message of the vote    sealed; the length is fixed
 *     entries, invitation                   sealed; a note says that they follow, and how many
 *     transfer (lines.c)                    two sealed messages: the length, and the data
 *
 * Messages are not encrypted. Nothing tells a receiver that messages are held back for a time or
 * that the connection is cut; against that there are deadlines (src/cluster/watch.c). */
#ifndef TCP_SEAL_H
#define TCP_SEAL_H

#include "base/error.h"
#include "hash/mac.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TCP_TAG = LS_MAC_TAG };

/* One direction of a connection. */
typedef struct ls_tcp_way {
    uint8_t key[LS_MAC_KEY];
    uint64_t number; /* number of the next message */
} ls_tcp_way;

/* A connection. The keys are set when the handshake is complete. */
typedef struct ls_tcp_link {
    int fd; /* −1: none */
    ls_tcp_way out, in;
} ls_tcp_link;

/* Derives 32 bytes from the secret: the HMAC-SHA-256 of a letter and the claim, which has at most
 * the size of a hello and a nonce. Each use of the secret has its own letter (ls_tcp_letter). */
void ls_tcp_derive(uint8_t out[32], const void *secret, size_t secret_bytes, char letter,
                   const void *claim, size_t claim_bytes);

/* Command that makes a secret, for messages. */
#define TCP_MAKE_SECRET "head -c 32 /dev/urandom > FILE"

/* Uses of the secret. */
typedef enum ls_tcp_letter {
    TCP_PROOF_LISTENER = 'a', /* proof that the listener knows the secret */
    TCP_PROOF_CALLER = 'c',   /* proof that the caller knows the secret */
    TCP_KEY_LISTENER = 'A',   /* key of the messages that the listener sends */
    TCP_KEY_CALLER = 'C'      /* key of the messages that the caller sends */
} ls_tcp_letter;

/* Sets the keys of a connection, and starts its numbers at 0. `claim`: the hello and the listener's
 * nonce. `calls`: this process is the caller. */
void ls_tcp_set_keys(ls_tcp_link *link, const void *secret, size_t secret_bytes, const void *claim,
                     size_t claim_bytes, bool calls);

/* Computes the tag of the next message of a direction. */
void ls_tcp_seal(uint8_t tag[TCP_TAG], ls_tcp_way *way, const void *data, size_t bytes);
/* Returns whether the tag is that of the next message of a direction. */
bool ls_tcp_is_sealed(ls_tcp_way *way, const void *data, size_t bytes, const uint8_t tag[TCP_TAG]);

/* Seals and sends a message. Returns 0 or an errno, as ls_tcp_move_all (join.h) does. */
int ls_tcp_send(ls_tcp_link *link, const void *data, size_t bytes, uint64_t until_ns);
/* Seals and sends a message if it can be sent at once. Returns 0, or EAGAIN if nothing was sent, or
 * the errno of a connection that is of no use any more, because it is broken or a part of the
 * message was sent. */
int ls_tcp_send_now(ls_tcp_link *link, const void *data, size_t bytes);
/* Receives a message. Returns 0 or an errno, as ls_tcp_move_all does; EBADMSG: the tag does not
 * match. */
int ls_tcp_receive(ls_tcp_link *link, void *data, size_t bytes, uint64_t until_ns);

/* Closes the connection, if there is one. */
void ls_tcp_hang_up_link(ls_tcp_link *link);

/* Text for EBADMSG in error messages: "a message was changed on the way: …". */
extern const char ls_tcp_changed[];
/* Returns the reason for a failed call, as ls_reason (base/error.h) does; ls_tcp_changed for
 * EBADMSG. */
const char *ls_tcp_reason(char out[LS_REASON], int error);

#endif
