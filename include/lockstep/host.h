/* Host hooks: the memory allocator and the log, which the embedding program may replace.
 *
 *     ls_host host = {sizeof host, my_alloc, my_free, my_log, &my_state};
 *
 * Create functions take a `const ls_host *`. NULL selects the C library's allocator and no log. The
 * structure is not copied: it is read through the pointer for as long as the created object lives,
 * so it must outlive that object. The library may call the three functions from any thread, and
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
    size_t size; /* sizeof(ls_host); tells later versions which fields the caller has */
    /* Returns `bytes` bytes aligned to `align`, a power of two, or NULL if memory ran out. If this
     * field is NULL, the C library's allocator is used. */
    void *(*alloc)(void *user, size_t bytes, size_t align);
    /* Frees a block that `alloc` returned; never called with NULL. Set alloc and free, or
     * neither. */
    void (*free)(void *user, void *memory);
    /* Receives one log line, zero-terminated, without a newline. NULL: nothing is logged. */
    void (*log)(void *user, ls_log_level level, const char *text);
    void *user; /* first argument of each of the three functions */
} ls_host;

#ifdef __cplusplus
}
#endif
#endif
