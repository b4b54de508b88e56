/* SPDX-License-Identifier: MIT */
/* The keys of `data` that the user sets before there is a config: `trainer init PATH --set
 * data.target=y` looks at the data with these keys, as a run would. A loss of values says that the
 * targets are values. */
#ifndef CONFIG_GIVEN_H
#define CONFIG_GIVEN_H

#include "data/inspect.h"

typedef struct ls_given_data ls_given_data;

/* Reads those of the `count` assignments "KEY=VALUE" that are about `data`, and the loss, and
 * stores their values in look->given. The caller frees *out with ls_given_data_free when `look` is
 * no longer used, also after a failure. Errors: those of a config with these assignments;
 * LS_ENOMEM. */
int ls_given_data_read(ls_given_data **out, ls_inspection *look, const char *const *set, int count,
                       ls_error *err);
/* Frees the values. NULL is allowed. */
void ls_given_data_free(ls_given_data *given);

#endif
