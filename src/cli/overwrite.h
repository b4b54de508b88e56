/* SPDX-License-Identifier: MIT */
/* No command writes a file that it reads: an output with the name of the user's data would replace
 * them. cli_read_options compares each option of the kind CLI_OUT with the paths on the command
 * line; the functions here also compare it with what a config or a model names. */
#ifndef CLI_OVERWRITE_H
#define CLI_OVERWRITE_H

#include "cli/cli.h"

/* Returns whether the output `to` would replace the file `input`, or a file in the directory
 * `input` that is read. Both may be NULL. */
bool cli_is_read(const char *to, const char *input);
/* Refuses that: returns EXIT_USAGE after a message about the option, or 0. */
int cli_spare(const char *verb, const char *option, const char *to, const char *input);
/* Does the same for all files that the config of `options` names. A config that is not valid names
 * none. */
int cli_spare_config(const char *verb, const char *option, const char *to,
                     const ls_trainer_options *options);

#endif
