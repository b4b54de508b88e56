/* SPDX-License-Identifier: MIT */
/* Writes notes.jsonl in the run's directory: facts about a run that are not in its records and that
 * the pages of the run show.
 *
 * Each line is a JSON object of one of two types. {"type":"program"} is written at the start of
 * each process that trains the run: "time", "host", "run_dir" (absolute), "command", "input" (shape
 * of a row) and "layers", each with "name", "type", "output" (shape) and "parameters" (their
 * number). {"type":"warning"} is a warning of the run, with "time" and "text". No other part of the
 * program needs the file, so it is not synced to disk. */
#ifndef CLI_NOTES_H
#define CLI_NOTES_H

#include "cli/serve.h"
#include "json/writer.h"

#include <lockstep/trainer.h>
#include <pthread.h>

enum { CLI_WARNINGS = 100 }; /* further warnings are not written */

/* The file notes.jsonl of a run. */
typedef struct cli_notes {
    pthread_mutex_t lock;
    int fd;          /* −1: the file is not open */
    ls_buffer early; /* lines of warnings that came before the file was opened */
    int warnings;
} cli_notes;

void cli_notes_init(cli_notes *notes);
/* Writes a warning to the file, or stores it until the file is open. Any thread. */
void cli_notes_warn(cli_notes *notes, const char *text);
/* Opens the file in the run's directory, and writes the line {"type":"program"} and the stored
 * warnings. Does nothing if the run has no directory; if the file cannot be opened, the run
 * continues without notes. `server`: the live page, which gets the first line as well; NULL:
 * none. */
void cli_notes_open(cli_notes *notes, const ls_trainer *trainer, cli_server *server);
void cli_notes_close(cli_notes *notes);

/* Prints the layers of the trainer's model on stderr. A line describes a layer with parameters and
 * the layers without parameters that follow it: names, output shape, number of parameters. `width`:
 * number of columns of the terminal. */
void cli_print_layers(const ls_trainer *trainer, int width);

#endif
