/* SPDX-License-Identifier: MIT */
#include "base/sized.h"

#include "base/error.h"

#include <string.h>

/* Largest plausible size of a structure in bytes. A larger value means that the caller has not set
 * `size`. */
#define SIZE_MOST 4096

static int check_size(size_t size, const char *type, ls_error *err)
{
    return size >= sizeof size && size <= SIZE_MOST
               ? LS_OK
               : ls_fail(err, LS_EINVAL, "%s: `size` is not set: expected sizeof(%s)", type, type);
}

/* Reads the field `size` of a caller's structure. */
static int read_size(size_t *size, const void *given, const char *type, ls_error *err)
{
    if (!given)
        return ls_fail(err, LS_EINVAL, "%s: the structure is NULL", type);
    memcpy(size, given, sizeof *size);
    return check_size(*size, type, err);
}

static int check_unknown(const void *given, size_t size, size_t known, const char *type,
                         ls_error *err)
{
    const unsigned char *bytes = given;
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return ls_fail(err, LS_EINVAL,
                           "%s: a member is set that this library does not know: the program was "
                           "built with the headers of a newer one",
                           type);
    return LS_OK;
}

int ls_sized_take_element(void *out, size_t known, const void *given, size_t size, const char *type,
                          ls_error *err)
{
    memset(out, 0, known);
    int status = check_size(size, type, err);
    if (status == LS_OK)
        status = check_unknown(given, size, known, type, err);
    if (status == LS_OK)
        memcpy(out, given, size < known ? size : known);
    return status;
}

int ls_sized_take(void *out, size_t known, const void *given, const char *type, ls_error *err)
{
    size_t size = 0;
    memset(out, 0, known);
    int status = read_size(&size, given, type, err);
    return status ? status : ls_sized_take_element(out, known, given, size, type, err);
}

int ls_sized_give(void *out, const void *found, size_t known, const char *type, ls_error *err)
{
    size_t size = 0;
    const size_t head = sizeof size;
    int status = read_size(&size, out, type, err);
    if (status)
        return status;
    const size_t both = size < known ? size : known;
    memset((char *)out + head, 0, size - head);
    memcpy((char *)out + head, (const char *)found + head, both - head);
    return LS_OK;
}

int ls_sized_check(const void *given, size_t known, const char *type, ls_error *err)
{
    size_t size = 0;
    int status = given ? read_size(&size, given, type, err) : LS_OK;
    if (status == LS_OK && given && size < known)
        status =
            ls_fail(err, LS_EINVAL, "%s: `size` is %zu: expected sizeof(%s)", type, size, type);
    return status || !given ? status : check_unknown(given, size, known, type, err);
}

int ls_host_check(const ls_host *host, ls_error *err)
{
    return ls_sized_check(host, sizeof *host, "ls_host", err);
}
