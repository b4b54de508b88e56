/* SPDX-License-Identifier: MIT */
/* The messages that `init` has printed. It reads the same data several times, and with --train the
 * run reads them once more; each message is printed once. */
#ifndef CLI_SAID_H
#define CLI_SAID_H

#include "base/buffer.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct cli_said {
    pthread_mutex_t lock;
    ls_buffer lines; /* each message between two line feeds; protected by `lock` */
    bool complete;   /* no further messages are added: the run begins, which may repeat its own */
} cli_said;

void cli_said_init(cli_said *said);
void cli_said_fini(cli_said *said);

/* Returns whether a message was printed before. If not, adds it, unless the list is complete. */
bool cli_was_said(cli_said *said, const char *text);

#endif
