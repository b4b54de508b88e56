/* Text put together piece by piece.
 *
 * Lack of memory does not stop the calls: it is remembered, and ls_buffer_status reports it. Numbers
 * follow the thread's locale: whoever wants '.' enters json/c_locale.h. One thread at a time.
 */
#ifndef TOOLS_BUFFER_H
#define TOOLS_BUFFER_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>

typedef struct ls_buffer {
    const ls_host *host;
    char *text; /* ends with a zero; NULL until something was added */
    size_t length, capacity;
    int failed; /* memory ran out */
} ls_buffer;

void ls_buffer_init(ls_buffer *b, const ls_host *host);
void ls_buffer_fini(ls_buffer *b);

/* LS_OK, or LS_ENOMEM when something is missing. */
int ls_buffer_status(const ls_buffer *b, ls_error *err);

void ls_buffer_add(ls_buffer *b, const char *text, size_t length);
void ls_buffer_put(ls_buffer *b, const char *text);
void ls_buffer_format(ls_buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For HTML and SVG, in text and in quoted attributes alike: & < > " ' become entities; control
 * characters, and bytes that are no UTF-8, become U+FFFD. */
void ls_buffer_escape(ls_buffer *b, const char *text);

/* With `digits` decimals and commas between thousands: 60,000.5; a dash for what is not finite. */
void ls_buffer_number(ls_buffer *b, double value, int digits);

#endif
