/* Bytes put together piece by piece.
 *
 * Lack of memory does not stop the calls: it is remembered, and ls_buffer_status reports it. Formatted
 * numbers follow the thread's locale: whoever wants '.' enters base/thread_state.h. One thread at a time.
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ls_buffer {
    const ls_host *host;
    char *text; /* ends with a zero; NULL until something was added */
    size_t length, capacity;
    bool failed; /* memory ran out */
} ls_buffer;

void ls_buffer_init(ls_buffer *b, const ls_host *host);
void ls_buffer_fini(ls_buffer *b);

/* LS_OK, or LS_ENOMEM when something is missing. */
int ls_buffer_status(const ls_buffer *b, ls_error *err);

void ls_buffer_add(ls_buffer *b, const char *text, size_t length);

/* Room for `most` bytes behind the text, which the caller fills and of which ls_buffer_keep then keeps the first ones;
 * NULL: there is no memory for them. */
char *ls_buffer_room(ls_buffer *b, size_t most);
void ls_buffer_keep(ls_buffer *b, size_t length);
void ls_buffer_put(ls_buffer *b, const char *text);
void ls_buffer_format(ls_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
