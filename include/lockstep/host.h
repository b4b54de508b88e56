/* SPDX-License-Identifier: MIT */
/* Host hooks: the memory allocator and the log, which the *host program* (the program that uses
 * this library) may replace. In these headers "host" alone means that program, or the memory and
 * CPU side of a device; a machine of a run over several machines is called a machine.
 *
 *     ls_host host = {sizeof host, my_alloc, my_free, my_log, &my_state};
 *
 * Functions that create an object take a `const ls_host *`. NULL selects the C library's allocator
 * and no log. The structure is not copied. The created object reads it through the pointer, so the
 * structure must outlive that object. The library can call the three functions from any thread, and
 * from several threads at the same time.
 */
#ifndef LOCKSTEP_HOST_H
#define LOCKSTEP_HOST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Severity of a log line. */
typedef enum ls_log_level {
    LS_LOG_DEBUG = 0,
    LS_LOG_INFO = 1,
    LS_LOG_WARNING = 2,
    LS_LOG_ERROR = 3
} ls_log_level;

/* The host program's hooks. */
typedef struct ls_host {
    size_t size; /* sizeof(ls_host) (status.h, "Sizes"); at least the size in the first version */
    /* Returns `bytes` bytes aligned to `align`, a power of two, or NULL if there is no memory left.
     * If this field is NULL, the library uses the C library's allocator. */
    void *(*alloc)(void *user, size_t bytes, size_t align);
    /* Frees a block that `alloc` returned; never called with NULL. Set both `alloc` and `free`, or
     * none of them. */
    void (*free)(void *user, void *memory);
    /* Receives one log line, zero-terminated, without a newline. NULL: nothing is logged. */
    void (*log)(void *user, ls_log_level level, const char *text);
    void *user; /* first argument of each of the three functions */
} ls_host;

#ifdef __cplusplus
}
#endif
#endif
