/* The lines of a file, one after another, without reading the whole of it into memory. */
#ifndef TOOLS_LINE_READER_H
#define TOOLS_LINE_READER_H

#include "tools/buffer.h"

typedef struct ls_line_reader {
    const char *path; /* the caller's */
    const char *line; /* without its newline, ended by a zero; NULL: there are no more */
    size_t length;
    int number; /* of the line, from 1 */
    int last;   /* nothing follows it */
    int fd;
    ls_buffer text; /* what was read and not handed out yet starts at `next` */
    size_t next;
    int ended;
} ls_line_reader;

/* Errors: LS_ENOENT, LS_EIO. */
int ls_line_reader_open(ls_line_reader *r, const char *path, const ls_host *host, ls_error *err);

/* Moves on to the next line, which is valid until the next call. Errors: LS_EIO, LS_ENOMEM,
 * LS_EDATA (a line of more than 16 MiB). */
int ls_line_reader_next(ls_line_reader *r, ls_error *err);

void ls_line_reader_close(ls_line_reader *r);

#endif
