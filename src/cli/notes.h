/* Facts of a run that its records lack: the file notes.jsonl in the run's directory,
 * for the pages of the run.
 *
 * JSON Lines, of two types. {"type":"program"} is written once for each process that trained:
 * "time", "host", "run_dir" (absolute), "command", "input" (shape of a row) and "layers", each with
 * "name", "type", "output" (shape) and "parameters". {"type":"warning"} is a warning of the run,
 * with "time" and "text". The run does not depend on the file, and it is not synced. */
#ifndef CLI_NOTES_H
#define CLI_NOTES_H

#include "cli/serve.h"
#include "json/writer.h"

#include <lockstep/trainer.h>
#include <pthread.h>

enum { CLI_WARNINGS = 100 }; /* warnings after this number are not kept */

typedef struct cli_notes {
    pthread_mutex_t lock;
    int fd;          /* −1: the file is not open */
    ls_buffer early; /* warnings from before the file was opened */
    int warnings;
} cli_notes;

void cli_notes_init(cli_notes *notes);
/* Keeps a warning. Any thread. */
void cli_notes_warn(cli_notes *notes, const char *text);
/* Opens the file in the directory of the run, if it has one, and writes the first line and the
 * warnings so far. If that fails, the run goes on without notes. `command`: the program's name and
 * arguments. `server` shows the first line as well; NULL: none. */
void cli_notes_open(cli_notes *notes, const ls_trainer *trainer, const char *command,
                    cli_server *server);
void cli_notes_close(cli_notes *notes);

/* Prints the layers of the trainer's model on stderr, a line for each layer with parameters and
 * those without that follow it: names, output shape, number of parameters. `width`: columns. */
void cli_print_layers(const ls_trainer *trainer, int width);

#endif
