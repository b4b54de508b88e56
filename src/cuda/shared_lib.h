/* SPDX-License-Identifier: MIT */
/* Shared libraries that are loaded while the program runs, and the files from which the linked
 * libraries were loaded. Thread: any. */
#ifndef CUDA_SHARED_LIB_H
#define CUDA_SHARED_LIB_H

#include <lockstep/status.h>
#include <stddef.h>

/* Loads the library `name`, which stays loaded until the process ends. If the process has loaded a
 * library of this name already, the loader gives that one. `what`: the library's name in messages.
 * Returns NULL with LS_EUNSUPPORTED in `err` if it does not load. */
void *ls_shared_lib_open(const char *what, const char *name, ls_error *err);

/* Copies the address of the library's function `function` to `out`, a pointer to a pointer to a
 * function. Errors: LS_EUNSUPPORTED, with a text that names `name`. */
int ls_shared_lib_take(void *out, void *library, const char *name, const char *function,
                       ls_error *err);

/* Writes the path of the file that contains a function. `function`: address of a pointer to the
 * function. Writes "" if the loader does not know. */
void ls_shared_lib_path(char *out, size_t size, const void *function);

#endif
