/* Writing of error messages: the internal part of <lockstep/status.h>. All functions: any
 * thread. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <lockstep/status.h>
#include <stddef.h>

/* Writes `status` and the formatted one-line text to `err`, unless it is NULL. Returns `status`, so
 * that a function can fail with `return ls_fail(err, LS_EINVAL, "…", …);`. */
int ls_fail(ls_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define LS_REASON 128 /* size of a text of ls_reason in bytes */

/* Writes the meaning of an errno value to `out` and returns `out`. Unlike strerror, the function
 * uses no buffer that threads share. */
const char *ls_reason(char out[LS_REASON], int error);

/* Returns the candidate that is nearest to `word`, for messages such as "did you mean …?", or NULL
 * if no candidate is near. A candidate is *near* if a small number of edits turns `word` into it:
 * at most one edit for a word of up to three letters, two for a word of up to eight, and a third of
 * the letters for a longer word. An *edit* inserts, drops or replaces a letter, or swaps two
 * adjacent letters. The case of ASCII letters is ignored. Of equally near candidates the first is
 * returned. No candidate is near if the candidate or the word has more than 63 bytes. Allocates
 * nothing. */
const char *ls_closest(const char *word, const char *const *candidates, size_t count);

#endif
