/* What a host program may replace: the allocator and the log.
 *
 *     ls_host host = {sizeof host, my_alloc, my_free, my_log, &my_state};
 *
 * Create functions take a `const ls_host *`; NULL asks for the C library's allocator and no log.
 * The structure is read through the pointer for as long as the created object lives, so it must
 * outlive that object. The three functions may be called from any thread, at the same time.
 */
#ifndef LOCKSTEP_HOST_H
#define LOCKSTEP_HOST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_log_level {
    LS_LOG_DEBUG = 0,
    LS_LOG_INFO = 1,
    LS_LOG_WARNING = 2,
    LS_LOG_ERROR = 3
} ls_log_level;

typedef struct ls_host {
    size_t size; /* sizeof(ls_host), for later versions */
    /* `bytes` bytes aligned to `align` (a power of two), or NULL. NULL here: the C library's. */
    void *(*alloc)(void *user, size_t bytes, size_t align);
    /* Frees what `alloc` returned; never called with NULL. Set both or neither. */
    void (*free)(void *user, void *memory);
    /* One line without a newline. NULL: nothing is logged. */
    void (*log)(void *user, ls_log_level level, const char *text);
    void *user; /* passed back as the first argument of each */
} ls_host;

#ifdef __cplusplus
}
#endif
#endif
