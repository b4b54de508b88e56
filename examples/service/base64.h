#ifndef SERVICE_BASE64_H
#define SERVICE_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Decodes text of the usual alphabet, padded with '=' or not, into exactly `count` bytes. Returns 0
 * where it is something else. */
int base64_decode(uint8_t *out, size_t count, const char *text);

#endif
