/* Memory and log through the host's hooks: the inside of <lockstep/host.h>; and threads beside the host's. Any
 * thread. */
#ifndef BASE_HOST_H
#define BASE_HOST_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <pthread.h>
#include <stddef.h>

/* Every block starts on a cache line, so that arenas and vector code may rely on it and two
 * blocks never share a line. */
#define LS_ALIGN 64

/* `bytes` zeroed bytes aligned to LS_ALIGN, or NULL. Zero bytes count as one. `host` may be NULL. */
void *ls_alloc(const ls_host *host, size_t bytes);

/* The same, but nothing is written to it: for large blocks that are filled later. */
void *ls_alloc_unset(const ls_host *host, size_t bytes);

/* An array of `count` zeroed elements of `size` bytes; NULL also when the product overflows. */
void *ls_alloc_array(const ls_host *host, size_t count, size_t size);

/* `list`, of `count` items of `size` bytes in room for *room, with room for one more: itself, or a copy twice as
 * long, and the old one is freed. NULL without memory, and all is as it was. */
void *ls_grown(const ls_host *host, void *list, size_t count, size_t *room, size_t size);

/* A copy of `text` of the host's memory, or NULL. */
char *ls_strdup(const ls_host *host, const char *text);

/* Room for the path of all that the system opens: of a folder, PATH_MAX, and behind it a name, NAME_MAX. */
#define LS_PATH_BYTES (4096 + 256)

/* "folder/name" → `out`, which it returns. A longer one is cut, and the system refuses the rest as it would the
 * whole. */
const char *ls_path_join(char out[LS_PATH_BYTES], const char *folder, const char *name);

/* A copy of a path, which the caller frees. Errors: LS_ENOMEM. */
int ls_path_copy(char **out, const char *path, const ls_host *host, ls_error *err);

/* Frees memory that ls_alloc* returned with the same host; NULL is allowed. */
void ls_free(const ls_host *host, void *memory);

/* Hands one formatted line (cut at 511 bytes) to the host's log, if it has one. */
void ls_log(const ls_host *host, ls_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A thread that runs run(arg). The host's signals are for the host's threads: it takes none but those that a thread
 * raises by its own fault, and the profiler's. Its stack is the process's default (ulimit -s), which may be set low
 * for a service of many threads, and at least what back ends and jobs need. Returns an error number, 0: it runs. */
int ls_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
