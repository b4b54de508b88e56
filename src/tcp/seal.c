/* SPDX-License-Identifier: MIT */
/* Sealed messages; seal.h describes them. */
#include "tcp/seal.h"
#include "hash/hash.h"
#include "tcp/join.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- keys ------------------------------------------------------------------------------------ */

void ls_tcp_derive(uint8_t out[32], const void *secret, size_t secret_bytes, char letter,
                   const void *claim, size_t claim_bytes)
{
    uint8_t text[1 + sizeof(hello) + NONCE] = {(uint8_t)letter};
    memcpy(text + 1, claim, claim_bytes);
    ls_hmac_sha256(out, secret, secret_bytes, text, 1 + claim_bytes);
}

void ls_tcp_set_keys(ls_tcp_link *link, const void *secret, size_t secret_bytes, const void *claim,
                     size_t claim_bytes, bool calls)
{
    uint8_t caller[32], listener[32];
    ls_tcp_derive(caller, secret, secret_bytes, TCP_KEY_CALLER, claim, claim_bytes);
    ls_tcp_derive(listener, secret, secret_bytes, TCP_KEY_LISTENER, claim, claim_bytes);
    link->out.number = link->in.number = 0;
    memcpy(link->out.key, calls ? caller : listener, LS_MAC_KEY);
    memcpy(link->in.key, calls ? listener : caller, LS_MAC_KEY);
}

/* ---- tags ------------------------------------------------------------------------------------ */

void ls_tcp_seal(uint8_t tag[TCP_TAG], ls_tcp_way *way, const void *data, size_t bytes)
{
    ls_mac mac;
    ls_mac_init(&mac, way->key);
    ls_mac_begin(&mac, way->number++);
    ls_mac_update(&mac, data, bytes);
    ls_mac_end(&mac, tag);
}

bool ls_tcp_is_sealed(ls_tcp_way *way, const void *data, size_t bytes, const uint8_t tag[TCP_TAG])
{
    uint8_t own[TCP_TAG];
    ls_tcp_seal(own, way, data, bytes);
    return ls_equal_secrets(own, tag, TCP_TAG);
}

/* ---- messages -------------------------------------------------------------------------------- */

int ls_tcp_send(ls_tcp_link *link, const void *data, size_t bytes, uint64_t until_ns)
{
    uint8_t tag[TCP_TAG];
    struct iovec part[2] = {{(void *)data, bytes}, {tag, sizeof tag}};
    ls_tcp_seal(tag, &link->out, data, bytes);
    return ls_tcp_move_parts(link->fd, part, true, until_ns);
}

int ls_tcp_send_now(ls_tcp_link *link, const void *data, size_t bytes)
{
    uint8_t tag[TCP_TAG];
    struct iovec part[2] = {{(void *)data, bytes}, {tag, sizeof tag}};
    const struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};
    const ls_tcp_way before = link->out;
    ls_tcp_seal(tag, &link->out, data, bytes);
    const ssize_t n = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)(bytes + sizeof tag))
        return 0;
    if (n >= 0)
        return EMSGSIZE;
    if (errno == EAGAIN || errno == EINTR) {
        link->out = before; /* the number was not used */
        return EAGAIN;
    }
    return errno;
}

int ls_tcp_receive(ls_tcp_link *link, void *data, size_t bytes, uint64_t until_ns)
{
    uint8_t tag[TCP_TAG];
    struct iovec part[2] = {{data, bytes}, {tag, sizeof tag}};
    const int error = ls_tcp_move_parts(link->fd, part, false, until_ns);
    return error ? error : ls_tcp_is_sealed(&link->in, data, bytes, tag) ? 0 : EBADMSG;
}

void ls_tcp_hang_up_link(ls_tcp_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

const char ls_tcp_changed[] =
    "a message was changed on the way: by the network, by a device between "
    "the hosts, or by somebody";

const char *ls_tcp_reason(char out[LS_REASON], int error)
{
    return error == EBADMSG ? ls_tcp_changed : ls_reason(out, error);
}
