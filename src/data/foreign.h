/* SPDX-License-Identifier: MIT */
/* Recognises files of other formats, in which users have tables and pictures, by how they begin. */
#ifndef DATA_FOREIGN_H
#define DATA_FOREIGN_H

#include <stddef.h>

/* Returns what a file that begins with the `n` bytes `text` is, and how it becomes a table of text,
 * for messages: "a Parquet file: save it as CSV, …". NULL: it may be text. */
const char *ls_foreign_format(const char *text, size_t n);

#endif
