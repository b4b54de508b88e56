/* Reads the text of a table once, from front to back. Fields lie between separators; a field with a
 * separator, a quote or a line end is in quotes (RFC 4180). The text is plain or gzip, UTF-8, or
 * UTF-16 with a byte order mark. Used for training rows and for new rows.
 *
 *     ls_table *t;
 *     int status = ls_table_open(&t, path, 0, host, err);
 *     while (status == LS_OK && (status = ls_table_has_row(t, &more)) == LS_OK && more)
 *         status = ls_table_row(t, columns, take, user);
 *     ls_table_close(t); */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "data/kinds.h"

enum {
    LS_FIELD_BYTES = 4096,    /* exclusive size limit of a name or text in bytes */
    LS_FIELD_MOST = 16 << 20, /* exclusive size limit of any field in bytes */
    LS_TABLE_COLUMNS = 65536
};

typedef struct ls_table_source ls_table_source;

typedef struct ls_table {
    const char *path; /* name of the table in messages */
    size_t line;      /* line on which the last field read ends, from 1 */
    char separator;
    bool latin1; /* the text encoding is Windows-1252 instead of UTF-8 */
    /* The last field read, trimmed, of `length` bytes; valid until the next field is read. */
    const char *field;
    size_t length;
    bool ends_row; /* the field was the last of its row */
    ls_table_source *source;
    ls_error *err;
} ls_table;

/* Opens a file, and detects the separator if `separator` is 0. The table is then positioned at the
 * header. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA (empty, not text, or an ambiguous
 * separator; the message then names data.separator). */
int ls_table_open(ls_table **out, const char *path, char separator, const ls_host *host,
                  ls_error *err);
/* Like ls_table_open, for a text in memory. Messages call it `name`. Both must outlive the
 * table. */
int ls_table_read(ls_table **out, const char *name, const void *text, size_t bytes, char separator,
                  const ls_host *host, ls_error *err);
void ls_table_close(ls_table *t); /* NULL is allowed */

/* Skips empty lines; sets *more if another row follows. Errors: LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_table_has_row(ls_table *t, bool *more);

/* Stores an upper bound of the number of fields in the row that follows. Errors: those of
 * ls_table_has_row. */
int ls_table_count(ls_table *t, size_t *fields);

/* Reads the next field. Errors: those of ls_table_has_row, with the line. */
int ls_table_field(ls_table *t);

/* Reads the next field if it is a plain number, and returns true; else reads nothing. `form`: see
 * ls_number_scan. */
bool ls_table_number(ls_table *t, float *value, unsigned *form);

/* Returns the last field read as a NUL-terminated text, converted from Windows-1252 to UTF-8 if
 * latin1 is set. It is valid until the next field is read. Errors: LS_EDATA (too long; not UTF-8
 * although `utf8` is set, and the message names data.encoding). */
int ls_table_text(ls_table *t, bool utf8, const char **out);

bool ls_table_is_utf8(const ls_table *t); /* returns whether the last field read is valid UTF-8 */

/* Reads a row: calls take(user, i) for field i, which reads it. Errors: those of `take`; LS_EDATA
 * for a row that does not have `columns` fields. */
int ls_table_row(ls_table *t, int columns, int (*take)(void *user, int i), void *user);

/* Called after the last row. Returns the SHA-256 of the decompressed file. Errors: LS_EDATA (damage
 * after the last row), LS_EIO. */
int ls_table_end(ls_table *t, char sha256[LS_SHA256_HEX]);

/* Returns the name of a separator for messages, such as "a comma". */
const char *ls_separator_name(char separator);

/* Fails with LS_EDATA and a message that begins with file and line. */
int ls_table_fail(const ls_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
