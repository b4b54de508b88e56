/* --serve: an HTTP server that shows a run in a browser, and reports it to a monitoring system,
 * while it trains. */
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
    /* Host names that browsers may use, besides those of loopback and the address. Not copied. */
    const char *const *names;
    int name_count;
    bool quiet; /* else the address is printed on stderr */
} cli_server_options;

/* Starts a server that answers GET of / (a page that follows the run), /records (which the page
 * requests), /state.json, /metrics (Prometheus) and /healthz. It runs on threads of its own, on
 * which signals are blocked. Errors: LS_EINVAL (invalid address), LS_EIO (the address is in use),
 * LS_EUNSUPPORTED (built without libmicrohttpd), LS_ENOMEM. */
int cli_server_start(cli_server **out, const cli_server_options *options, const ls_host *host,
                     ls_error *err);

/* Follows the records of `trainer` from now on, until its run ends. The server must outlive the
 * trainer. For a resumed run the page also shows the records in the run directory; if they cannot
 * be read, the host's log says why. `server` may be NULL. Errors: LS_EINVAL (too many sinks). */
int cli_server_follow(cli_server *server, ls_trainer *trainer, ls_error *err);

/* Shows lines of JSON, such as those of cli/notes.h, besides the records. Any thread. */
void cli_server_note(cli_server *server, const char *lines, size_t length);

/* Shows a warning on the page. Any thread; `server` may be NULL. Out of memory, it is not shown. */
void cli_server_warn(cli_server *server, const char *text);

/* Stops the server. If a page asked for records within the last LINGER_S (serve.c), the server
 * first answers for that time, so that the page hears how the run ended. NULL is allowed. */
void cli_server_stop(cli_server *server);

#endif
