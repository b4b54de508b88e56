/* SPDX-License-Identifier: MIT */
/* The messages that `init` has printed (said.h). */
#include "cli/said.h"

#include <string.h>

void cli_said_init(cli_said *said)
{
    *said = (cli_said){.complete = false};
    pthread_mutex_init(&said->lock, NULL); /* default attributes: this cannot fail */
    ls_buffer_init(&said->lines, NULL);
    ls_buffer_add(&said->lines, "\n", 1);
}

void cli_said_fini(cli_said *said)
{
    ls_buffer_fini(&said->lines);
    pthread_mutex_destroy(&said->lock);
}

/* Returns whether one of the lines is `text`. */
static bool has_line(const char *lines, const char *text)
{
    const size_t n = strlen(text);
    for (const char *at = lines; n > 0 && (at = strstr(at, text)); at++)
        if (at[-1] == '\n' && at[n] == '\n')
            return true;
    return false;
}

bool cli_was_said(cli_said *said, const char *text)
{
    pthread_mutex_lock(&said->lock);
    const bool known = said->lines.text && has_line(said->lines.text, text);
    if (!known && !said->complete) {
        ls_buffer_add(&said->lines, text, strlen(text));
        ls_buffer_add(&said->lines, "\n", 1);
    }
    pthread_mutex_unlock(&said->lock);
    return known;
}
