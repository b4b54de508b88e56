/* `trainer init`: inspects the data at a path and writes a config that trains on it. */
#ifndef CLI_INIT_H
#define CLI_INIT_H

#include "cli/cli.h"
#include "data/inspect.h"

/* Prints a description of the data to `stream`. */
void cli_inspect_print(const ls_inspection *look, FILE *stream);

/* Writes a config that trains on the data. */
void cli_inspect_write(ls_json_writer *w, const ls_inspection *look);

#endif
