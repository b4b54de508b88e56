/* Back ends in shared libraries of their own: liblockstep-NAME.so.
 *
 * A library is looked for at an explicit path; without one, around liblockstep.so, then around the
 * running program (each time in the folder itself, in lockstep/ below it, and where an installation
 * has its plugins as seen from bin/), and in the folder that installations were configured with;
 * never in the working directory. The first that exists is the one; it is loaded with all of its symbols resolved and visible to
 * nobody else, and stays until the program ends. Not being there (absent) and being there but
 * unusable (broken) are told apart. Any thread.
 */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include <lockstep/plugin.h>

/* Loads the back end `name`: from `path`, unless that is NULL. May be called again at no cost.
 * Errors: LS_ENOENT, absent: says where it was looked for. LS_EDEVICE, broken: a library that does not
 * load, has no entry, was built for another ABI or holds another back end. */
int ls_plugin_load(const ls_backend **out, const char *name, const char *path, ls_error *err);

/* The back end "cuda" as a row of a registry. Its library is loaded when it is first probed or
 * opened, so that a program that never asks for it does not pay for it. Static, constant. */
const ls_backend *ls_plugin_cuda(void);

#endif
