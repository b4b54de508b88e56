/* SPDX-License-Identifier: MIT */
/* The name with which the user has called the program. Every message begins with it, and every help
 * text and every command that a message shows contains it. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include "base/buffer.h"

/* Stores the name with which the user has called the program, argv[0]. NULL, "" and a name that is
 * longer than a path stand for "trainer", which is also the name before the first call. Must be
 * called before other threads use this file. */
void cli_set_program(const char *called);
/* Returns the stored name as it was given, with its folder: "build/lockstep". */
const char *cli_called(void);
/* Returns the stored name without its folder, for messages and help texts: "lockstep". */
const char *cli_name(void);
/* Returns the stored name as it is typed in a shell, for commands that messages show. */
const char *cli_program(void);

/* Stores the program's arguments, from argv[0] to NULL. Must be called before getopt, which
 * reorders them, and before other threads use this file. */
void cli_set_command(char *const *argv);
/* Returns the command as it is typed in a shell, with the stored name and the stored arguments, cut
 * after 2047 bytes. */
const char *cli_command(void);

/* Appends a word as it is typed in a shell: in quotes if a shell needs them. */
void cli_put_word(ls_buffer *out, const char *word);
/* Appends a command that the user can copy: the program's name, `before` (such as "eval "), `path`
 * and `after`. The name and the path are quoted if a shell needs quotes. */
void cli_put_command(ls_buffer *out, const char *before, const char *path, const char *after);

/* Prints a message on stderr: the program's name, ": ", the formatted text and a newline. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
