/* Writing error messages: the inside of <lockstep/status.h>. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <lockstep/status.h>

/* Fills `err` (when not NULL) with `status` and the formatted one-line text; returns `status`, so
 * that a failing function can end with `return ls_fail(err, LS_EINVAL, "…", …);`. */
int ls_fail(ls_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define LS_REASON 128

/* What a number of errno means; strerror may use a buffer that threads share. */
const char *ls_reason(char out[LS_REASON], int error);

#endif
