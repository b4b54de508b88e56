/* A table's text (RFC 4180): fields between commas, those with a comma, a quote or a line's end in quotes. */
#ifndef DATA_TABLE_H
#define DATA_TABLE_H

#include "data/kinds.h"
#include "formats/arrays.h"
#include "prep/prep.h"

enum { LS_FIELD_BYTES = 4096 };

/* The file, and where in it the reading is. */
typedef struct ls_table {
    const char *path, *text;
    size_t size, at, line;
    char field[LS_FIELD_BYTES]; /* the field that was read, trimmed */
    bool ends_row;              /* it was its row's last */
    ls_array map;
    ls_error *err;
} ls_table;

/* Past a byte order mark, and empty lines: is there another row? */
bool ls_table_has_row(ls_table *t);

/* The next field; t->line is then the line on which it ends. The end of the file ends a row, too. Errors:
 * LS_EDATA with the line. */
int ls_table_field(ls_table *t);

/* Past what ended the field. */
void ls_table_step(ls_table *t);

/* Fails with LS_EDATA, file, line and the text. */
int ls_table_fail(const ls_table *t, const char *text);

#endif
