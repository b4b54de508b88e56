/* SPDX-License-Identifier: MIT */
/* Internal part of <lockstep/host.h>: memory and log through the hooks of the *host*, the program
 * that embeds the library. Also paths, and threads that the library starts in the host's process.
 * All functions may be called from any thread. `host` may be NULL everywhere. */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Alignment of every block in bytes: a cache line. Arenas and vector code rely on it, and no two
 * blocks share a cache line. */
#define LS_ALIGN 64

/* Returns `bytes` zeroed bytes aligned to LS_ALIGN, or NULL if memory ran out. If `bytes` is 0, one
 * byte is allocated. */
void *ls_alloc(const ls_host *host, size_t bytes);

/* Does the same as ls_alloc without zeroing the memory, for large blocks that are filled later. */
void *ls_alloc_unset(const ls_host *host, size_t bytes);

/* Returns a zeroed array of `count` elements of `size` bytes, or NULL if memory ran out or the
 * product overflows. */
void *ls_alloc_array(const ls_host *host, size_t count, size_t size);

/* Makes room for one more item in `list`, which has `count` items of `size` bytes and a capacity of
 * *room items. Returns `list` itself, or a copy with twice the capacity, in which case it frees the
 * old list and updates *room. Returns NULL if memory ran out; `list` is unchanged then. */
void *ls_grown(const ls_host *host, void *list, size_t count, size_t *room, size_t size);

/* Returns a copy of `text`, which the caller frees with ls_free, or NULL if memory ran out. */
char *ls_strdup(const ls_host *host, const char *text);

/* Size in bytes of a buffer for any path that the system can open: a folder of PATH_MAX bytes and a
 * name of NAME_MAX bytes in it. */
#define LS_PATH_BYTES (4096 + 256)

/* Writes "folder/name" to `out` and returns `out`. A path that is too long is truncated, but stays
 * longer than PATH_MAX, so the system refuses it. */
const char *ls_path_join(char out[LS_PATH_BYTES], const char *folder, const char *name);

/* Returns whether a path ends with `ending` (".csv"), whatever the case, and has a name before
 * it. */
bool ls_path_ends_with(const char *path, const char *ending);

/* Copies a path to *out, which the caller frees with ls_free. Errors: LS_ENOMEM. */
int ls_path_copy(char **out, const char *path, const ls_host *host, ls_error *err);

/* Frees memory that a function of this header returned with the same host. NULL is allowed. */
void ls_free(const ls_host *host, void *memory);

/* Passes one formatted line, truncated to 511 bytes, to the host's log, if it has one. The line is
 * valid UTF-8 (ls_utf8_tidy). */
void ls_log(const ls_host *host, ls_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Starts a thread that runs run(arg). It blocks all signals except those that its own faults raise,
 * and SIGPROF of profilers, because the host's threads handle the host's signals. Its stack has the
 * default size (ulimit -s), but at least 1 MiB, which back ends and jobs need. Returns 0, or an
 * errno value if there is no thread. */
int ls_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#define LS_THREAD_REASON 320 /* size of a text of ls_thread_reason in bytes */

/* Writes why ls_thread_start returned `error`, and returns `out`. The system gives the same error
 * number for several limits, so the text names those that are set. */
const char *ls_thread_reason(char out[LS_THREAD_REASON], int error);

#define LS_MEMORY_LIMITS LS_THREAD_REASON /* size of a text of ls_memory_limits in bytes */

/* Writes the limits of this process's memory that are set, such as "ulimit -v is 20480 KiB", and
 * returns `out`; "" if there is none. */
const char *ls_memory_limits(char out[LS_MEMORY_LIMITS]);

#endif
