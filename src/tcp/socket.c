/* SPDX-License-Identifier: MIT */
/* Socket functions, all with a time limit, and random bytes. */
#include "base/clock.h"
#include "base/error.h"
#include "tcp/join.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

bool ls_tcp_ready(int fd, short events, uint64_t until_ns)
{
    struct pollfd watch = {.fd = fd, .events = events};
    for (;;) {
        const uint64_t now = ls_now_ns();
        /* poll() is called at least once, so that a thread that had no CPU until `until_ns` still
         * sees the event. */
        const int n = poll(&watch, 1, now < until_ns ? ls_tcp_milliseconds(until_ns - now) : 0);
        if (n >= 0 || errno != EINTR)
            return n > 0;
    }
}

bool ls_tcp_is_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Removes `bytes` bytes at the beginning of the parts. */
static void advance(struct iovec part[2], size_t bytes)
{
    for (int i = 0; i < 2; i++) {
        const size_t taken = bytes < part[i].iov_len ? bytes : part[i].iov_len;
        part[i].iov_base = (char *)part[i].iov_base + taken;
        part[i].iov_len -= taken;
        bytes -= taken;
    }
}

int ls_tcp_move_parts(int fd, struct iovec part[2], bool out, uint64_t until_ns)
{
    struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};
    while (part[0].iov_len + part[1].iov_len > 0) {
        const ssize_t n = out ? sendmsg(fd, &message, MSG_NOSIGNAL) : recvmsg(fd, &message, 0);
        if (n > 0)
            advance(part, (size_t)n);
        else if (n == 0)
            return ECONNRESET;
        else if (errno == EAGAIN && !ls_tcp_ready(fd, out ? POLLOUT : POLLIN, until_ns))
            return ETIMEDOUT;
        else if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
    return 0;
}

int ls_tcp_move_all(int fd, void *data, size_t bytes, bool out, uint64_t until_ns)
{
    struct iovec part[2] = {{data, bytes}, {NULL, 0}};
    return ls_tcp_move_parts(fd, part, out, until_ns);
}

int ls_tcp_draw(void *out, size_t bytes, ls_error *err)
{
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, out, bytes) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)bytes ? LS_OK : ls_fail(err, LS_ESYSTEM, "cannot read /dev/urandom");
}

void ls_tcp_set_up(int fd)
{
    const int on = 1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int ls_tcp_listen(joining *j, const struct sockaddr *at, socklen_t bytes, bool both_families)
{
    const int on = 1, off = 0;
    j->listen_fd = socket(at->sa_family, SOCK_STREAM, 0);
    if (j->listen_fd < 0)
        return errno;
    ls_tcp_set_up(j->listen_fd);
    setsockopt(j->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (both_families)
        setsockopt(j->listen_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(j->listen_fd, at, bytes) == 0 && listen(j->listen_fd, SOMAXCONN) == 0)
        return 0;
    const int error = errno;
    close(j->listen_fd);
    j->listen_fd = -1;
    return error;
}

void ls_tcp_begin_dial(int *fd, int *error, const struct sockaddr *at, socklen_t bytes)
{
    *fd = socket(at->sa_family, SOCK_STREAM, 0);
    *error = errno;
    if (*fd < 0)
        return;
    ls_tcp_set_up(*fd);
    *error = connect(*fd, at, bytes) ? errno : 0;
    if (*error == EINTR)
        *error = EINPROGRESS;
    if (*error && *error != EINPROGRESS) {
        close(*fd);
        *fd = -1;
    }
}

int ls_tcp_dialled(int fd, uint64_t until_ns)
{
    int error = EINPROGRESS;
    socklen_t size = sizeof error;
    if (ls_tcp_ready(fd, POLLOUT, until_ns) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
        error = errno;
    return error;
}

void ls_tcp_dial(int *fd, int *error, const struct sockaddr *at, socklen_t bytes, uint64_t until_ns)
{
    ls_tcp_begin_dial(fd, error, at, bytes);
    if (*fd >= 0 && *error == EINPROGRESS)
        *error = ls_tcp_dialled(*fd, until_ns);
    if (*error == EINPROGRESS)
        *error = ETIMEDOUT;
    if (*error && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void ls_tcp_pause(const joining *j)
{
    /* With the descriptor −1, ls_tcp_ready only sleeps. */
    (void)ls_tcp_ready(-1, 0, ls_tcp_sooner(ls_now_ns() + TCP_AGAIN_NS, j->until_ns));
    ls_tcp_beat(j);
}
