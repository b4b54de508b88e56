/* SPDX-License-Identifier: MIT */
/* trainer init DATA: describes the data that were looked at. */
#ifndef CLI_INIT_DATA_H
#define CLI_INIT_DATA_H

#include "data/inspect.h"
#include "json/json.h"

#include <stdio.h>

/* A folder with fewer training pictures than this is one of few pictures. */
enum { FEW_PICTURES = 1000 };

/* Prints what the data is, and what happens to it as the config says. `trained`: the network is
 * already trained. */
void init_data_print(const ls_inspection *l, const cJSON *config, bool trained, FILE *stream);

#endif
