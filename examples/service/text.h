/* Text that grows while it is written. */
#ifndef SERVICE_TEXT_H
#define SERVICE_TEXT_H

#include <stddef.h>

typedef struct text {
    char *at; /* zero-terminated once something was put; of malloc */
    size_t length, capacity;
    int lost; /* non-zero: memory ran out, and something is missing */
} text;

/* Zeroed memory is an empty text. */
void text_free(text *t);
__attribute__((format(printf, 2, 3))) void text_put(text *t, const char *format, ...);
void text_put_json(text *t, const char *string); /* in quotes, escaped */

/* Room for `bytes` more; NULL: memory ran out. What is written there counts after t->length is moved. */
char *text_room(text *t, size_t bytes);

#endif
