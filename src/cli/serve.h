/* SPDX-License-Identifier: MIT */
/* --serve: an HTTP server with a page that shows a run in a browser while it trains, and with
 * metrics for a monitoring system. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <lockstep/trainer.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct cli_server cli_server;

typedef struct cli_server_options {
    /* "[ADDR:]PORT"; the default ADDR is 127.0.0.1; PORT 0: the system chooses a port. */
    const char *address;
    /* Host names by which browsers may address the server, besides localhost and the ADDR of
     * `address`. Not copied. */
    const char *const *names;
    int name_count;
    bool quiet; /* do not print the address on stderr */
} cli_server_options;

/* Starts a server that answers GET requests: / (the page, which shows the run and its progress),
 * /records (the page requests new records there), /state.json, /metrics (for Prometheus) and
 * /healthz. The server runs on its own threads, on which signals are blocked. Errors: LS_EINVAL
 * (invalid address), LS_EIO (the address is in use), LS_EUNSUPPORTED (built without libmicrohttpd),
 * LS_ENOMEM. */
int cli_server_start(cli_server **out, const cli_server_options *options, const ls_host *host,
                     ls_error *err);

/* Shows the records that `trainer` writes from now on, until its run ends. The server must outlive
 * the trainer. For a resumed run, the page also shows the earlier records, which are read from the
 * run directory; if they cannot be read, the host's log says why. `server` may be NULL. Errors:
 * LS_EINVAL (too many sinks). */
int cli_server_follow(cli_server *server, ls_trainer *trainer, ls_error *err);

/* Adds lines of JSON, such as those of cli/notes.h, to the records that the page gets. Any
 * thread. */
void cli_server_note(cli_server *server, const char *lines, size_t length);

/* Shows a warning on the page. If there is no memory, the warning is not shown. Any thread;
 * `server` may be NULL. */
void cli_server_warn(cli_server *server, const char *text);

/* Stops the server. If a page has requested records within the last LINGER_S seconds (serve.c), the
 * server first goes on for LINGER_S seconds, so that the page gets the last records. NULL is
 * allowed. */
void cli_server_stop(cli_server *server);

#endif
