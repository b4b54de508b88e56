#include "base/sized.h"

#include "base/error.h"

#include <string.h>

/* Largest plausible size of a structure in bytes. A larger value means that the caller has not set
 * `size`. */
#define SIZE_MOST 4096

int ls_sized_take(void *out, size_t known, const void *given, const char *type, ls_error *err)
{
    const unsigned char *bytes = given;
    size_t size = 0;
    memset(out, 0, known);
    if (!given)
        return ls_fail(err, LS_EINVAL, "%s: the structure is NULL", type);
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > SIZE_MOST)
        return ls_fail(err, LS_EINVAL, "%s: `size` is not set: expected sizeof(%s)", type, type);
    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return ls_fail(err, LS_EINVAL,
                           "%s: a member is set that this library does not know: the program was "
                           "built with the headers of a newer one",
                           type);
    memcpy(out, given, size < known ? size : known);
    return LS_OK;
}
