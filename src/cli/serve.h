/* --serve: a run seen in a browser, and fetched by a monitoring system, while it goes on. */
#ifndef CLI_SERVE_H
#define CLI_SERVE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <lockstep/trainer.h>
#include <stdbool.h>

typedef struct cli_server cli_server;

typedef struct cli_server_options {
    const char
        *address; /* "[ADDR:]PORT"; ADDR is 127.0.0.1 unless given, PORT 0: the system chooses */
    const char *const
        *names; /* that browsers may ask it by, besides loopback's and the address; not copied */
    int name_count;
    bool quiet; /* else the address is printed, on stderr */
} cli_server_options;

/* Answers GET of / (a page that follows the run), /records (which it asks for), /state.json, /metrics
 * (Prometheus) and /healthz, on threads of its own that take no signals. Errors: LS_EINVAL (an address that
 * cannot be read), LS_EIO (it is taken), LS_EUNSUPPORTED (built without libmicrohttpd), LS_ENOMEM. */
int cli_server_start(cli_server **out, const cli_server_options *options, const ls_host *host,
                     ls_error *err);

/* Takes the trainer's records from now on, until the run ends; the server must outlive it. Of a run that goes on the page
 * shows what its directory says of it, too, or the host's log why not. NULL is allowed. Errors: LS_EINVAL (too many
 * sinks). */
int cli_server_follow(cli_server *server, ls_trainer *trainer, ls_error *err);

void cli_server_stop(cli_server *server); /* NULL is allowed */

#endif
