/* What the safetensors reader and writer share. */
#ifndef NN_SAFETENSORS_FORMAT_H
#define NN_SAFETENSORS_FORMAT_H

#include "nn/model.h"

enum {
    PREFACE = 8,      /* bytes: the header's length */
    CHUNK = 4096,     /* floats at a time */
    TENSOR_NAME = 160 /* bytes of a prefix and a parameter's name, the zero included */
};

/* The format's own limit is 100 MB; a header of ours has a few kilobytes. */
#define MAX_HEADER ((size_t)16 << 20)

/* What a file with a state begins with behind the preface, and where the digits of its hash lie. */
#define LS_WHOLE_START "{\"__metadata__\":{\"sha256\":\""
#define LS_WHOLE_ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
enum { LS_WHOLE_AT = PREFACE + sizeof LS_WHOLE_START - 1 };

/* The tensors of a group: the weights' prefix "" stands for running statistics too. Returns how many. */
static inline int tensors_of(const ls_param *const **list, const ls_model *model,
                             const char *prefix)
{
    const bool weights = prefix[0] == '\0';
    *list = weights ? model->tensor : model->param;
    return weights ? model->params + model->stats : model->params;
}

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
