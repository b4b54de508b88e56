/* Parses fields of tables as spreadsheets, pandas, R and SQL write them: numbers, words for missing
 * values, and other kinds of text. Spaces around a number or a word are ignored. Nothing depends on
 * the locale, except where a comment says so. Any thread; nothing is allocated. */
#ifndef PREP_NUMBER_H
#define PREP_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* The form of a number, which is evidence of the decimal separator in its column. */
enum {
    LS_FORM_POINT = 1,          /* 1.5: the point is decimal */
    LS_FORM_POINT_OR_GROUP = 2, /* 1.234: the point may also separate thousands */
    LS_FORM_COMMA = 4,          /* 1,5 or 1.234,5: the comma is decimal */
    LS_FORM_COMMA_OR_GROUP = 8, /* 1,234: the comma may also separate thousands */
    LS_FORM_COMMA_GROUPS =
        16 /* 1,234,567 or 1,234.5: commas separate thousands, and a point is decimal */
};

/* Reads a plain decimal number, such as -1.5e3, at the start of `text`. A byte that no number
 * contains must follow, and 7 more bytes must be readable. Returns the byte after the number; NULL
 * if there is no number or ls_number_read must read it. *value: the same bits as (float)strtod;
 * infinite if the number is too large. *form: 0, LS_FORM_POINT or LS_FORM_POINT_OR_GROUP. */
const char *ls_number_scan(const char *text, float *value, unsigned *form);

/* Reads a number of `n` bytes: plain, with thousands separators or with a decimal comma. Returns
 * false if it is none of these. `decimal`: the decimal separator if known, '.' or ','; 0:
 * unknown. If it is unknown, a form that can be read in two ways is read as if it were '.', and
 * *form tells so. *value is rounded once and infinite if the number is too large. The thread must
 * be in the "C" locale. */
bool ls_number_read(const char *text, size_t n, char decimal, double *value, unsigned *form);

/* Returns the decimal separator of which a form is evidence: '.', ',' or 0. */
char ls_form_decimal(unsigned form);

/* Reads a text that is a plain decimal number as a whole; returns false for any other. The thread
 * must be in the "C" locale. */
bool ls_field_is_number(const char *text, double *value);

/* ls_missing_word returns word `i`, counted from 0, of those that stand for a missing value in
 * every column: "", NA, N/A, NaN, NULL, \N and similar; NULL after the last. ls_field_is_missing
 * returns whether a field of `n` bytes is such a word. */
const char *ls_missing_word(int i);
bool ls_field_is_missing(const char *text, size_t n);
/* Returns whether a field is a word that stands for a missing value in a column of numbers only: -,
 * None, inf and similar. In a column of texts these are texts. */
bool ls_field_is_no_number(const char *text, size_t n);

/* Returns the kind of a text that is not a number: "a percentage", "an amount of money", "a date",
 * "a time"; NULL: none of these. The thread must be in the "C" locale. */
const char *ls_field_looks_like(const char *text, size_t n);

#endif
