/* SPDX-License-Identifier: MIT */
/* Definitions shared by the safetensors reader and writer. */
#ifndef FORMATS_SAFETENSORS_FORMAT_H
#define FORMATS_SAFETENSORS_FORMAT_H

#include <stddef.h>
#include <stdint.h>

enum {
    PREFACE = 8,  /* bytes of the header's length at the start of a file */
    CHUNK = 4096, /* number of floats read or written at a time */
    /* largest size of a prefix and a tensor's name together, in bytes, with the NUL */
    TENSOR_NAME = 160
};

/* The format's own limit is 100 MB. Headers written by this library have a few kilobytes. */
#define MAX_HEADER ((size_t)16 << 20)

/* For a file with a checksum: the text with which its header begins, the zeros that stand in place
 * of the hash's digits until the hash is known, and the offset of these digits in the file. */
#define LS_WHOLE_START "{\"__metadata__\":{\"sha256\":\""
#define LS_WHOLE_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
enum { LS_WHOLE_AT = PREFACE + sizeof LS_WHOLE_START - 1 };

static inline void put_u32(uint8_t *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static inline uint32_t get_u32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

#endif
