#include "tools/line_reader.h"

#include "base/error.h"
#include "base/plain_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CHUNK (1u << 16)
#define MOST (16u << 20)

int ls_line_reader_open(ls_line_reader *r, const char *path, const ls_host *host, ls_error *err)
{
    uint64_t size;
    *r = (ls_line_reader){.path = path};
    ls_buffer_init(&r->text, host);
    return ls_open_to_read(&r->fd, &size, path, "a metrics file", LS_EDATA, err);
}

/* Fetches more, after moving what is left to the front. */
static int fetch(ls_line_reader *r, ls_error *err)
{
    char chunk[CHUNK];
    ssize_t n;
    size_t left = r->text.length - r->next;
    if (r->next > 0)
        memmove(r->text.text, r->text.text + r->next, left);
    r->text.length = left;
    r->next = 0;
    if (left > MOST)
        return ls_fail(err, LS_EDATA,
                       "%.300s:%d:1: a line of more than %u MiB; this is no metrics "
                       "file of a run",
                       r->path, r->number, MOST >> 20);
    do
        n = read(r->fd, chunk, sizeof chunk);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return ls_fail(err, LS_EIO, "%.300s: cannot be read: %s", r->path, strerror(errno));
    r->ended = n == 0;
    ls_buffer_add(&r->text, chunk, (size_t)n);
    return ls_buffer_status(&r->text, err);
}

/* Where the line that begins at `next` ends, fetching until that is known; and whether something
 * follows it. */
static int find_end(ls_line_reader *r, size_t *end, ls_error *err)
{
    size_t scanned = 0;
    for (;;) {
        size_t left = r->text.length - r->next;
        const char *from = r->text.text ? r->text.text + r->next : "";
        const char *newline = memchr(from + scanned, '\n', left - scanned);
        /* The newline's successor, or the file's end, tells whether the line is the last. */
        if (r->ended || (newline && newline + 1 < from + left)) {
            *end = newline ? (size_t)(newline - from) : left;
            r->last = r->ended && (!newline || newline + 1 == from + left);
            return LS_OK;
        }
        scanned = newline ? (size_t)(newline - from) : left;
        int status = fetch(r, err);
        if (status)
            return status;
    }
}

int ls_line_reader_next(ls_line_reader *r, ls_error *err)
{
    size_t end;
    r->line = NULL;
    r->number++;
    int status = find_end(r, &end, err);
    if (status || (r->ended && r->next == r->text.length))
        return status;
    r->line = r->text.text + r->next;
    r->length = end;
    r->next += end;
    if (r->next < r->text.length)
        r->text.text[r->next++] = '\0';
    return LS_OK;
}

void ls_line_reader_close(ls_line_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    ls_buffer_fini(&r->text);
}
