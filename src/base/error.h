/* SPDX-License-Identifier: MIT */
/* Writing of error messages: the internal part of <lockstep/status.h>. All functions: any
 * thread. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <lockstep/status.h>
#include <stddef.h>

/* Writes `status` and the formatted text to `err`, unless it is NULL. The text becomes one line of
 * valid UTF-8 (ls_utf8_tidy). Returns `status`, so that a function can fail with
 * `return ls_fail(err, LS_EINVAL, "…", …);`. */
int ls_fail(ls_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds a reason to the error that the caller has just written to `err` (ls_fail writes
 * LS_REASON_NONE), unless `err` is NULL. Returns `status`, so that a function can fail with
 * `return ls_because(err, ls_fail(err, LS_EDATA, "…", …), LS_REASON_…);`. A function that decides
 * by an error's cause reads `status` and `reason`, never `text`. */
int ls_because(ls_error *err, int status, ls_error_reason reason);

/* Judges what a *callback*, a function of the caller that returns a status, has returned; every
 * such result passes through here. Returns LS_OK for LS_OK, and a negative ls_status as it is. Any
 * other number becomes LS_EINVAL.
 *
 * - told: the error that the callback was given. Its text may be empty (the message then names the
 *   status), or lack the terminating zero. The caller empties the text before the callback runs.
 * - callback: names the function in the message, such as "worker 3: a job"
 * - err: receives the error; may be `told` */
int ls_callback_result(ls_error *err, int status, const ls_error *told, const char *callback);

#define LS_REASON 128 /* size of a text of ls_reason in bytes */

/* Writes the meaning of an errno value to `out` and returns `out`. Unlike strerror, the function
 * uses no buffer that threads share. */
const char *ls_reason(char out[LS_REASON], int error);

/* Returns the candidate that is nearest to `word`, for messages such as "did you mean …?", or NULL
 * if no candidate is near. A candidate is *near* if few edits turn `word` into it: at most one edit
 * for a word of up to three letters, two for a word of up to eight, and a third of the letters for
 * a longer word. An *edit* inserts, drops or replaces a letter, or swaps two adjacent letters. The
 * case of ASCII letters is ignored. Of equals the first is returned. Words of more than 63 bytes
 * are never near. Allocates nothing. */
const char *ls_closest(const char *word, const char *const *candidates, size_t count);

#endif
