/* A table's text, read once from the front to the back: fields between separators, those with a separator, a quote or a line's
 * end in quotes (RFC 4180). Plain or compressed with gzip, UTF-8 or UTF-16 with its mark. Training and new rows read by it.
 *
 *     ls_table *t;
 *     int status = ls_table_open(&t, path, 0, host, err);
 *     while (status == LS_OK && (status = ls_table_has_row(t, &more)) == LS_OK && more)
 *         status = ls_table_row(t, columns, take, user);
 *     ls_table_close(t);
 */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "data/kinds.h"

enum {
    LS_FIELD_BYTES = 4096,    /* a name or a text has fewer */
    LS_FIELD_MOST = 16 << 20, /* any field has fewer */
    LS_TABLE_COLUMNS = 65536
};

typedef struct ls_table_source ls_table_source;

typedef struct ls_table {
    const char *path; /* what messages call it */
    size_t line;      /* on which the field ends that was read */
    char separator;
    bool latin1;       /* bytes beyond ASCII are Windows-1252, and not UTF-8 */
    const char *field; /* what was read last, trimmed, of `length` bytes; until the next is read */
    size_t length;
    bool ends_row; /* it was its row's last */
    ls_table_source *source;
    ls_error *err;
} ls_table;

/* Opens a file, and finds the separator unless it is given. At its end the reading stands at the header. Errors: LS_ENOENT,
 * LS_EIO, LS_ENOMEM; LS_EDATA (empty, not text, or no separator can be told; the message names data.separator). */
int ls_table_open(ls_table **out, const char *path, char separator, const ls_host *host,
                  ls_error *err);
/* The same, of a text in memory, which messages call `name` and which outlives the table. */
int ls_table_read(ls_table **out, const char *name, const void *text, size_t bytes, char separator,
                  const ls_host *host, ls_error *err);
void ls_table_close(ls_table *t); /* NULL is allowed */

/* Past empty lines: is there another row? Errors: LS_EDATA, LS_EIO, LS_ENOMEM. */
int ls_table_has_row(ls_table *t, bool *more);

/* How many fields the row that follows has at the most. */
int ls_table_count(ls_table *t, size_t *fields);

/* The next field. Errors: as above, with the line. */
int ls_table_field(ls_table *t);

/* The next field, if it is a plain number; else nothing is read. `form` as of ls_number_scan. */
bool ls_table_number(ls_table *t, float *value, unsigned *form);

/* The field that was read as a text that ends with a zero, in UTF-8 where the table is Windows-1252; until the next
 * is read. Errors: LS_EDATA (it is too long; it is not UTF-8 and `utf8` is true: the message names data.encoding). */
int ls_table_text(ls_table *t, bool utf8, const char **out);

bool ls_table_is_utf8(const ls_table *t); /* the field that was read */

/* Reads a row: take(user, i) reads field `i`. Errors: those of `take`; LS_EDATA for a row of more or fewer than `columns`
 * fields. */
int ls_table_row(ls_table *t, int columns, int (*take)(void *user, int i), void *user);

/* Behind the last row: SHA-256 of the file's bytes, decompressed. Errors: LS_EDATA (damage behind the last row), LS_EIO. */
int ls_table_end(ls_table *t, char sha256[LS_SHA256_HEX]);

/* "a comma", "a tab" … */
const char *ls_separator_name(char separator);

/* Fails with LS_EDATA, file, line and the text. */
int ls_table_fail(const ls_table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
