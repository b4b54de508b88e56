/* Metrics records onto a stream of the program's own choosing (--metrics). */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *stream; /* NULL: none wanted, or the reader of a pipe has gone */
    const char *path;
} cli_output;

/* `path` NULL: none; "-": stdout. Errors: LS_EIO. */
int cli_output_open(cli_output *out, const char *path, ls_error *err);
/* One line. A reader that closed its pipe is no error: the run goes on without it. */
int cli_output_line(cli_output *out, const char *text, size_t length, ls_error *err);
int cli_output_close(cli_output *out, ls_error *err);

#endif
