/* Fields of tables as spreadsheets, pandas, R and SQL write them: numbers, words for what is missing, and what a text
 * looks like. Blanks around a number or a word do not count. None of it depends on the locale but where it says so. Any thread; nothing is allocated. */
#ifndef PREP_NUMBER_H
#define PREP_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* How a number is written, and what that says of its column. */
enum {
    LS_FORM_POINT = 1,          /* 1.5: the point is decimal */
    LS_FORM_POINT_OR_GROUP = 2, /* 1.234: it may also divide thousands */
    LS_FORM_COMMA = 4,          /* 1,5 or 1.234,5: the comma is decimal */
    LS_FORM_COMMA_OR_GROUP = 8, /* 1,234: it may also divide thousands */
    LS_FORM_COMMA_GROUPS =
        16 /* 1,234,567 or 1,234.5: commas divide thousands, and a point is decimal */
};

/* Reads a plain decimal number, such as -1.5e3, that begins at `text`. A byte ends it that is part of no number, and 7
 * bytes behind that one can be read. Returns the byte that ends it; NULL: there is no number, or
 * ls_number_read must read it. *value is what (float)strtod gives, to the last bit; one that is too large is infinite.
 * *form is 0, or one of the first two. */
const char *ls_number_scan(const char *text, float *value, unsigned *form);

/* Is `text`, of `n` bytes, a number: a plain one, one whose thousands are divided, one with a decimal comma? `decimal` is the
 * decimal mark, where that is known: '.' or ','; 0: not known, and then a form that may be read both ways is
 * read as if it were '.', and *form says so. *value is rounded once; one that is too large is infinite. In the C locale.
 * */
bool ls_number_read(const char *text, size_t n, char decimal, double *value, unsigned *form);

/* The decimal mark of which a form is evidence: '.', ',' or 0. */
char ls_form_decimal(unsigned form);

/* A plain decimal number, and nothing else. In the C locale. */
bool ls_field_is_number(const char *text, double *value);

/* Words that stand for a missing value in every column: "", NA, N/A, NaN, NULL, \N and their like. Number `i`, from 0
 * on; NULL: there are no more. */
const char *ls_missing_word(int i);
bool ls_field_is_missing(const char *text, size_t n);
/* Words that do so in a column of numbers, and are texts in one of texts: -, None, inf and their like. */
bool ls_field_is_no_number(const char *text, size_t n);

/* What a text that is no number looks like: "a percentage", "an amount of money", "a date", "a time"; NULL: nothing of that
 * kind. In the C locale. */
const char *ls_field_looks_like(const char *text, size_t n);

#endif
