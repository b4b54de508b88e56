/* SPDX-License-Identifier: MIT */
/* Reads the text of a table once, from front to back. A row is a line, or several if a field in
 * quotes contains line ends. A field that contains a separator, a quote or a line end is in quotes
 * (RFC 4180). The file may be compressed with gzip. Its text is UTF-8, UTF-16 with a byte order
 * mark, or Windows-1252. Used for training data (data_csv.c) and for new rows of a trained model
 * (new_rows.c).
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
    LS_FIELD_BYTES = 4096,    /* a name or a text must be shorter than this, in bytes */
    LS_FIELD_MOST = 16 << 20, /* every field must be shorter than this, in bytes */
    LS_TABLE_COLUMNS = 65536
};

typedef struct ls_table_source ls_table_source;

/* A table that is being read. */
typedef struct ls_table {
    const char *path; /* name of the table in messages */
    size_t line;      /* line on which the last field read ends, from 1 */
    char separator;
    bool latin1; /* the text encoding is Windows-1252 instead of UTF-8 */
    /* The field that was read last, without blanks at its ends and `length` bytes long. It is valid
     * until the next field is read. */
    const char *field;
    size_t length;
    bool ends_row; /* `field` is the last of its row */
    ls_table_source *source;
    ls_error *err;
} ls_table;

/* Opens a file, and detects the separator if `separator` is 0. The first field read is then the
 * first name of the header. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA (empty, not text, or an
 * ambiguous separator; the message then names data.separator). */
int ls_table_open(ls_table **out, const char *path, char separator, const ls_host *host,
                  ls_error *err);
/* Does the same as ls_table_open, for a text of `bytes` bytes in memory. Messages call it `name`.
 * `text` and `name` must outlive the table. */
int ls_table_read(ls_table **out, const char *name, const void *text, size_t bytes, char separator,
                  const ls_host *host, ls_error *err);
void ls_table_close(ls_table *t); /* NULL is allowed */

/* Skips empty lines; sets *more to whether another row follows. Errors: LS_EDATA, LS_EIO,
 * LS_ENOMEM. */
int ls_table_has_row(ls_table *t, bool *more);

/* Stores an upper bound of the number of fields in the next row. Errors: those of
 * ls_table_has_row. */
int ls_table_count(ls_table *t, size_t *fields);

/* Reads the next field. Errors: those of ls_table_has_row, with the line. */
int ls_table_field(ls_table *t);

/* Reads the next field and returns true if it is a plain number. Otherwise returns false and reads
 * nothing. *form: see ls_number_scan (prep/number.h). */
bool ls_table_number(ls_table *t, double *value, unsigned *form);

/* Returns the field that was read last as a NUL-terminated text. If t->latin1 is set, the text is
 * converted from Windows-1252 to UTF-8. The text is valid until the next field is read. `utf8`:
 * true if a text that is not UTF-8 is an error. Errors: LS_EDATA (the text is too long, or is not
 * UTF-8; the message names data.encoding). */
int ls_table_text(ls_table *t, bool utf8, const char **out);

bool ls_table_is_utf8(const ls_table *t); /* returns whether the last field read is valid UTF-8 */

/* Reads a row: calls take(user, i) for each field i, and `take` reads the field. Errors: those of
 * `take`; LS_EDATA for a row that does not have `columns` fields. */
int ls_table_row(ls_table *t, int columns, int (*take)(void *user, int i), void *user);

/* Ends the reading, after the last row. Stores the SHA-256 of the decompressed file. Errors:
 * LS_EDATA (damage after the last row), LS_EIO. */
int ls_table_end(ls_table *t, char sha256[LS_SHA256_HEX]);

/* Returns the name of a separator for messages, such as "a comma". */
const char *ls_separator_name(char separator);

/* Fails with LS_EDATA and a message that begins with file and line. */
int ls_table_fail(const ls_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
