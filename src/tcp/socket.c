/* Sockets, whose calls all have a time limit, and random bytes. */
#include "base/clock.h"
#include "base/error.h"
#include "tcp/join.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

bool tcp_ready(int fd, short events, uint64_t until_ns)
{
    struct pollfd watch = {.fd = fd, .events = events};
    for (;;) {
        const uint64_t now = ls_now_ns();
        const int n = now < until_ns ? poll(&watch, 1, tcp_milliseconds(until_ns - now)) : 0;
        if (n >= 0 || errno != EINTR)
            return n > 0;
    }
}

int tcp_move_all(int fd, void *data, size_t bytes, bool out, uint64_t until_ns)
{
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        const ssize_t n =
            out ? send(fd, at, bytes - done, MSG_NOSIGNAL) : recv(fd, at, bytes - done, 0);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return ECONNRESET;
        else if (errno == EAGAIN && !tcp_ready(fd, out ? POLLOUT : POLLIN, until_ns))
            return ETIMEDOUT;
        else if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
    return 0;
}

int tcp_draw(void *out, size_t bytes, ls_error *err)
{
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, out, bytes) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)bytes ? LS_OK : ls_fail(err, LS_ESYSTEM, "cannot read /dev/urandom");
}

void tcp_set_up(int fd)
{
    const int on = 1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
