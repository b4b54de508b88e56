/* SPDX-License-Identifier: MIT */
/* The version of this library. Before 1.0.0 every minor version may change the API, and the
 * library's SONAME changes with it; patch versions change nothing that a program sees. Structures
 * can grow in between (status.h, "Sizes").
 *
 *     if (ls_version_number() != LS_VERSION_NUMBER)
 *         …  // the program was compiled with the headers of another version than it runs with
 */
#ifndef LOCKSTEP_VERSION_H
#define LOCKSTEP_VERSION_H

#define LS_VERSION_MAJOR 0
#define LS_VERSION_MINOR 3
#define LS_VERSION_PATCH 0
#define LS_VERSION "0.3.0"

/* The version of these headers as one number, 10203 for 1.2.3. */
#define LS_VERSION_NUMBER (LS_VERSION_MAJOR * 10000 + LS_VERSION_MINOR * 100 + LS_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Returns the version of the library that the program runs with, as a static text such as "1.2.3".
 * Any thread. */
const char *ls_version(void);
/* Returns that version as a number, in the form of LS_VERSION_NUMBER. Any thread. */
int ls_version_number(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
