/* Writing error messages: the inside of <lockstep/status.h>. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <lockstep/status.h>
#include <stddef.h>

/* Fills `err` (when not NULL) with `status` and the formatted one-line text; returns `status`, so
 * that a failing function can end with `return ls_fail(err, LS_EINVAL, "…", …);`. */
int ls_fail(ls_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define LS_REASON 128

/* What a number of errno means; strerror may use a buffer that threads share. */
const char *ls_reason(char out[LS_REASON], int error);

/* "Did you mean …?" The candidate that `word` most probably stands for, or NULL when none is near. Near
 * means at most two edits or a third of the word's letters, whichever is more (one edit for words of up to
 * three letters); an edit inserts, drops or replaces a letter or swaps two neighbours, and the case of ASCII
 * letters does not count. The first of equally near candidates wins. Words of more than 63 bytes are near
 * nothing. Any thread; allocates nothing. */
const char *ls_closest(const char *word, const char *const *candidates, size_t count);

#endif
