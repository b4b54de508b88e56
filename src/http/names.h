/* By which names a server may be asked: its Host, and the Origin of the page that asks. A web page may give the
 * server's address a name of its own (DNS rebinding), and a browser then lets it read and write there. */
#ifndef HTTP_NAMES_H
#define HTTP_NAMES_H

#include <microhttpd.h>
#include <stddef.h>

typedef struct http_names {
    const char *const *given; /* besides loopback's names and the address that the client reached */
    int count;
    const char *option; /* which adds one; for the message */
} http_names;

/* 0, or 403, and a line that says why. A request without a Host is no browser's. */
unsigned http_names_check(const http_names *names, struct MHD_Connection *c, char *why,
                          size_t room);

#endif
