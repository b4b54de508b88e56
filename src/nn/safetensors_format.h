/* What the safetensors reader and writer share. */
#ifndef NN_SAFETENSORS_FORMAT_H
#define NN_SAFETENSORS_FORMAT_H

#include <stdint.h>

enum {
    PREFACE = 8,      /* bytes: the header's length */
    CHUNK = 4096,     /* floats at a time */
    TENSOR_NAME = 160 /* bytes of a prefix and a parameter's name, the zero included */
};

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
