/* SPDX-License-Identifier: MIT */
/* A growing buffer of text or bytes.
 *
 * If memory runs out, later calls that add to the buffer do nothing, and ls_buffer_status reports
 * the failure. Therefore callers need to check for errors only once, at the end. Formatted numbers
 * follow the calling thread's locale; use ls_c_locale_enter (base/thread_state.h) for a decimal
 * point. One thread at a time uses a buffer.
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ls_buffer {
    const ls_host *host;
    char *text;              /* contents, zero-terminated; NULL until something was added */
    size_t length, capacity; /* number of bytes used; number of bytes allocated */
    bool failed;             /* memory has run out */
    size_t lacking;          /* bytes that could not be allocated; 0: not known */
} ls_buffer;

/* Initialises an empty buffer. `host` may be NULL; it must outlive the buffer. */
void ls_buffer_init(ls_buffer *b, const ls_host *host);

/* Frees the contents. Afterwards the buffer is empty and can be used again. */
void ls_buffer_fini(ls_buffer *b);

/* Returns LS_OK, or LS_ENOMEM if memory ran out and the contents are incomplete. */
int ls_buffer_status(const ls_buffer *b, ls_error *err);

/* Appends `length` bytes. */
void ls_buffer_add(ls_buffer *b, const char *text, size_t length);

/* Returns room for `most` bytes after the contents, or NULL if memory ran out. The caller fills the
 * room, and then calls ls_buffer_keep to append the bytes that it has written. */
char *ls_buffer_room(ls_buffer *b, size_t most);

/* Appends the first `length` bytes of the room that ls_buffer_room has returned. */
void ls_buffer_keep(ls_buffer *b, size_t length);

/* Appends a zero-terminated text. */
void ls_buffer_put(ls_buffer *b, const char *text);

/* Appends formatted text, as printf does. */
void ls_buffer_format(ls_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
