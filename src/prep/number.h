/* SPDX-License-Identifier: MIT */
/* Parses fields of tables in the forms in which spreadsheets, pandas, R and SQL write them:
 * numbers, words for missing values, and other kinds of text. Spaces around a number or a word are
 * ignored. The functions do not depend on the locale, except those that require the "C" locale. Any
 * thread; nothing is allocated. */
#ifndef PREP_NUMBER_H
#define PREP_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Forms of a number. The form of one number can show which decimal separator its whole column
 * uses. */
enum {
    LS_FORM_POINT = 1,          /* 1.5: the point is decimal */
    LS_FORM_POINT_OR_GROUP = 2, /* 1.234: the point is decimal or separates thousands */
    LS_FORM_COMMA = 4,          /* 1,5 or 1.234,5: the comma is decimal */
    LS_FORM_COMMA_OR_GROUP = 8, /* 1,234: the comma is decimal or separates thousands */
    LS_FORM_COMMA_GROUPS =
        16 /* 1,234,567 or 1,234.5: commas separate thousands, and a point is decimal */
};

/* Reads a plain decimal number, such as -1.5e3, at the start of `text`. After it there must be a
 * byte that no number contains, and 7 more bytes of allocated memory, because 8 bytes are loaded at
 * a time. Returns the address after the number; NULL if there is none, or in another form
 * (ls_number_read). *value has the bits of strtod's result. *form becomes 0, LS_FORM_POINT or
 * LS_FORM_POINT_OR_GROUP. */
const char *ls_number_scan(const char *text, double *value, unsigned *form);

/* Reads a number of `n` bytes: plain, with thousands separators or with a decimal comma. Returns
 * false if the text is none of these. `decimal`: the decimal separator if known, '.' or ','; 0:
 * unknown. A number that can be read in two ways is then read as if it were '.', and *form has the
 * bit LS_FORM_POINT_OR_GROUP or LS_FORM_COMMA_OR_GROUP. *value is rounded once, and is infinite if
 * the number is too large. The thread must be in the "C" locale. */
bool ls_number_read(const char *text, size_t n, char decimal, double *value, unsigned *form);

/* Returns the decimal separator that a number of the form `form` must have: '.' or ','; 0 if both
 * are possible. */
char ls_form_decimal(unsigned form);

/* Reads a text if the whole of it is a plain decimal number. Returns false if it is not. The thread
 * must be in the "C" locale. */
bool ls_field_is_number(const char *text, double *value);

/* The exact value of a plain decimal number, without a double: the digits from the first that is
 * not 0 to the last that is not 0, and the power of ten of the first of them. 120.50 has the digits
 * 1205 and the power 2. */
typedef struct ls_digits {
    const char *first, *end; /* in the text of the number; a point may stand between the digits */
    int count;               /* number of digits; 0: the number is 0 */
    int power;               /* 0 if the number is 0 */
    bool minus;              /* false if the number is 0 */
} ls_digits;

/* Reads the digits of a text if the whole of it is a plain decimal number, as ls_field_is_number
 * does. Returns false if it is not, or if its exponent has an absolute value of 100,000 or more. */
bool ls_field_digits(const char *text, ls_digits *out);

/* Returns word number `i`, from 0, of the words that mean a missing value in every column: "", NA,
 * N/A, NaN, NULL, \N and similar. Returns NULL after the last word. */
const char *ls_missing_word(int i);
/* Returns whether a field of `n` bytes is one of the words of ls_missing_word. */
bool ls_field_is_missing(const char *text, size_t n);

/* Returns whether a field of `n` bytes is a word that stands for a missing value if its column is
 * one of numbers, but is an ordinary text if its column is one of texts: -, None, inf and
 * similar. */
bool ls_field_is_missing_number(const char *text, size_t n);

/* For a field of `n` bytes that is not a number: returns what the field looks like, "a percentage",
 * "an amount of money", "a date" or "a time". Returns NULL for any other text. The thread must be
 * in the "C" locale. */
const char *ls_field_looks_like(const char *text, size_t n);

#endif
