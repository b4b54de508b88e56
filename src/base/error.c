/* SPDX-License-Identifier: MIT */
#include "base/error.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char unknown_status[] = "unknown status";

_Static_assert(sizeof(ls_error) == 512, "the size is part of the ABI (status.h)");

int ls_fail(ls_error *err, int status, const char *format, ...)
{
    if (!err)
        return status;
    err->status = status;
    err->reason = LS_REASON_NONE;
    memset(err->reserved, 0, sizeof err->reserved);
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    ls_utf8_tidy(err->text);
    return status;
}

int ls_because(ls_error *err, int status, ls_error_reason reason)
{
    if (err)
        err->reason = (int)reason;
    return status;
}

int ls_callback_result(ls_error *err, int status, const ls_error *told, const char *callback)
{
    char text[sizeof told->text + 1] = ""; /* one byte more, for the zero that may be missing */
    if (status == LS_OK)
        return LS_OK;
    const char *name = ls_status_name(status);
    memcpy(text, told->text, sizeof told->text);
    if (status > 0 || name == unknown_status)
        return ls_fail(err, LS_EINVAL,
                       "%s returned %d; expected LS_OK (0) or a negative ls_status%s%s", callback,
                       status, text[0] ? "; it said: " : "", text);
    if (text[0] == '\0')
        return ls_fail(err, status, "%s failed with %s and gave no message", callback, name);
    return ls_fail(err, status, "%s", text);
}

/* Error number that some network file systems return instead of EOPNOTSUPP. The C library has no
 * text for it. */
#define LINUX_ENOTSUPP 524

const char *ls_reason(char out[LS_REASON], int error)
{
    if (error == LINUX_ENOTSUPP)
        snprintf(out, LS_REASON, "not supported by the file system (error %d)", error);
    else if (strerror_r(error, out, LS_REASON) != 0)
        snprintf(out, LS_REASON, "error %d", error);
    return out;
}

const char *ls_status_name(int status)
{
    switch ((ls_status)status) {
    case LS_OK: return "LS_OK";
    case LS_EINVAL: return "LS_EINVAL";
    case LS_ENOMEM: return "LS_ENOMEM";
    case LS_ENOENT: return "LS_ENOENT";
    case LS_EIO: return "LS_EIO";
    case LS_EDATA: return "LS_EDATA";
    case LS_ECONFIG: return "LS_ECONFIG";
    case LS_EUNSUPPORTED: return "LS_EUNSUPPORTED";
    case LS_EDEVICE: return "LS_EDEVICE";
    case LS_EABORTED: return "LS_EABORTED";
    case LS_ETIMEDOUT: return "LS_ETIMEDOUT";
    case LS_ESTALLED: return "LS_ESTALLED";
    case LS_ECANCELED: return "LS_ECANCELED";
    case LS_EINTERRUPTED: return "LS_EINTERRUPTED";
    case LS_EAGAIN: return "LS_EAGAIN";
    case LS_ECLOSED: return "LS_ECLOSED";
    case LS_ENONFINITE: return "LS_ENONFINITE";
    case LS_ESYSTEM: return "LS_ESYSTEM";
    case LS_EINTERNAL: return "LS_EINTERNAL";
    case LS_EDIVERGED: return "LS_EDIVERGED";
    }
    return unknown_status;
}

enum { MAX_WORD = 63 }; /* longest word in bytes that ls_closest compares */

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the restricted Damerau-Levenshtein distance of two words of at most MAX_WORD bytes. Only
 * three rows of the usual table are kept, because each row depends only on the two rows before
 * it. */
static size_t edits(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][MAX_WORD + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *now = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        const size_t *above2 = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned char x = lower(a[i - 1]);
            unsigned char y = lower(b[j - 1]);
            size_t best = min_of(above[j], now[j - 1]) + 1;
            best = min_of(best, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y)
                best = min_of(best, above2[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[a_len % 3][b_len];
}

const char *ls_closest(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strlen(word);
    if (length == 0 || length > MAX_WORD)
        return NULL;
    size_t allowed = length <= 3 ? 1 : length < 9 ? 2 : length / 3;
    const char *closest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        if (other > MAX_WORD)
            continue;
        size_t distance = edits(word, length, candidates[i], other);
        if (distance <= allowed) {
            closest = candidates[i];
            if (distance == 0)
                break;
            allowed = distance - 1;
        }
    }
    return closest;
}
