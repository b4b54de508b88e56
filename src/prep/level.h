/* SPDX-License-Identifier: MIT */
/* Says which texts are the same level of a column, or the same class. Training, new rows and
 * targets ask these functions.
 *
 * Two texts are the same level if they are
 *
 * - the same text: the same bytes, or the same characters in different Unicode normal forms (an é
 *   may be one character, or an e and a combining accent; several accents of a letter may be in
 *   any order that Unicode calls the same),
 * - the same word of logic in upper or lower case: TRUE, True and true are one level, and so are
 *   FALSE, False and false; or
 * - the same decimal number, digit by digit: 1, 1.0, 01, +1, 1e0 and 10e-1 are one level, and two
 *   numbers of 17 digits that differ in the last digit are two. No number is rounded.
 *
 * In a column of *codes*, only the same texts are the same level: 7 and 007 are two. A column of
 * texts in whose training table a text begins with 0 and another digit has codes. */
#ifndef PREP_LEVEL_H
#define PREP_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

/* How the levels of a column are compared, as it is stored in a description (prep.h). */
typedef enum ls_level_rule {
    /* Numbers by their digits. A description that does not say more may come from an older version,
     * which compared numbers of up to 17 bytes as doubles (ls_level_was_rounded). */
    LS_LEVELS_NUMBERS,
    LS_LEVELS_DIGITS, /* numbers by their digits, in training too */
    LS_LEVELS_CODES   /* codes: no text is a number */
} ls_level_rule;

/* Returns whether two texts are the same level. A byte that is invalid UTF-8 equals only itself. */
bool ls_level_is_same(const char *a, const char *b, bool codes);
/* Returns a hash that is the same for all texts that are the same level. */
uint64_t ls_level_hash(const char *text, bool codes);
/* Compares two texts for qsort: first the numbers in the order of their values, equal numbers in
 * the order of their bytes; then the other texts in the order of their bytes. */
int ls_level_order(const char *a, const char *b);

/* Returns whether the text is a word of logic: true or false, in upper or lower case. */
bool ls_level_is_logical(const char *text);
/* Returns whether a text in a training table shows that its column has codes: it begins with 0 and
 * another digit. */
bool ls_level_is_code(const char *text);
/* Returns whether an older version, which compared numbers of up to 17 bytes as doubles, may have
 * taken this level and other numbers for one level: doubles do not hold all of its digits, or it is
 * too large or too small for a double. */
bool ls_level_was_rounded(const char *text);

/* Returns whether two texts have the same characters. A byte that is invalid UTF-8 equals only
 * itself. */
bool ls_text_is_same(const char *a, const char *b);
/* Returns a hash that is the same for all texts that have the same characters. */
uint64_t ls_text_hash(const char *text);
/* Returns true for most texts that have the same characters as no other text. They are ASCII; of
 * that, only ; and K and ` have other forms, which Unicode calls the Greek question mark, the
 * kelvin sign and the Greek varia. */
bool ls_text_has_one_form(const char *text);

#endif
