/* The server: libmicrohttpd with a thread for each connection, around the answers of api.h. Threads are
 * made by the one that calls http_start, and run where it runs. */
#ifndef SERVICE_HTTP_H
#define SERVICE_HTTP_H

#include "api.h"

typedef struct http http;

/* Listens where the options say; *port is the one it got. Errors: LS_EINVAL (the address), LS_ESYSTEM,
 * LS_ENOMEM. */
int http_start(http **out, service *s, int *port, ls_error *err);

/* As http_guard_stop: refuses what is new, ends what was begun, and frees. */
void http_stop(http *h);

#endif
