/* SPDX-License-Identifier: MIT */
#ifndef FREE_PORT_H
#define FREE_PORT_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns a port of 127.0.0.1 that no program uses at the moment; −1 if there is none. */
static inline int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const int bound = bind(fd, (struct sockaddr *)&at, bytes) == 0 &&
                      getsockname(fd, (struct sockaddr *)&at, &bytes) == 0;
    close(fd);
    return bound ? ntohs(at.sin_port) : -1;
}

#endif
