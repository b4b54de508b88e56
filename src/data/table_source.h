/* SPDX-License-Identifier: MIT */
/* Internals of the reader of tables (table.h): the source of the text, which table_open.c and
 * table.c share, and what opening a table needs of the functions that read it (table.c). */
#ifndef DATA_TABLE_SOURCE_H
#define DATA_TABLE_SOURCE_H

#include "data/read_ahead.h"
#include "data/table.h"

enum { LS_TABLE_CHUNK = 64 << 10 }; /* number of bytes that are read at a time */

/* The separators that are searched in a header; a blank is one only if there is no other. */
#define LS_SEPARATOR_CANDIDATES ",;\t|"

typedef enum ls_table_coding {
    LS_TABLE_PLAIN, /* the bytes are not converted when they are read: UTF-8 or Windows-1252 */
    LS_TABLE_UTF16_LITTLE,
    LS_TABLE_UTF16_BIG
} ls_table_coding;

/* The source of the text, and the *window*: the part of the text in memory, with the current
 * field. */
struct ls_table_source {
    const ls_host *host;
    ls_read_ahead *file;   /* the file; NULL: the text is in memory */
    const uint8_t *memory; /* unread part of a text in memory, `left` bytes */
    size_t left;
    ls_sha256 hash; /* SHA-256 of a text in memory */
    ls_table_coding coding;
    uint8_t odd[2]; /* UTF-16: incomplete character at the last chunk's end, `odds` bytes */
    size_t odds;
    unsigned high; /* first half of a surrogate pair; 0: none */
    char *window;  /* [capacity]: the window: `size` bytes of text, followed by a NUL */
    size_t capacity, size;
    /* index in `window` of the field that is being read; the text before that field is no longer
     * needed */
    size_t from;
    /* index in `window` of the beginning of the row that is being read, or of what the window still
     * has of it */
    size_t row;
    char other; /* another separator that the header has as well; 0: none */
    size_t at;
    bool ended; /* the window contains the end of the text */
    size_t next_line;
    bool stop[256]; /* [byte]: a field without quotes can end at this byte */
    char text[3 * LS_FIELD_BYTES];
    uint8_t raw[LS_TABLE_CHUNK];
};

/* Fails with LS_ENOMEM. */
int ls_table_no_memory(const ls_table *t);

/* Appends another chunk of text to the window. At the end of the text, sets source->ended instead.
 * Errors: LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_table_fill(ls_table *t);

/* Converts `count` bytes of UTF-16 to UTF-8, and returns the number of bytes written: at most three
 * for every two. An unpaired surrogate becomes U+FFFD. */
size_t ls_table_decode(ls_table_source *s, char *to, const uint8_t *raw, size_t count);

/* Returns the number of fields in the row at offset *at, and moves *at to the next row. Returns 0
 * if the row does not end within `size` bytes. */
size_t ls_count_fields(const char *text, size_t size, char separator, size_t *at);

#endif
