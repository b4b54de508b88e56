/* SPDX-License-Identifier: MIT */
#include "onnx_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint64_t varint(pb_reader *r)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        if (r->at == r->end || shift > 63)
            fail_msg("a varint that does not end");
        value |= (uint64_t)(*r->at & 127) << shift;
        if ((*r->at++ & 128) == 0)
            return value;
    }
}

int pb_next(pb_reader *r, pb_field *out)
{
    if (r->at == r->end)
        return 0;
    const uint64_t key = varint(r);
    *out = (pb_field){.number = (unsigned)(key >> 3)};
    assert_true(out->number > 0);
    if ((key & 7) == 0) {
        out->value = varint(r);
        return 1;
    }
    out->length = (key & 7) == 2 ? (size_t)varint(r) : (key & 7) == 1 ? 8 : 4;
    assert_true((key & 7) == 1 || (key & 7) == 2 || (key & 7) == 5);
    assert_true(out->length <= (size_t)(r->end - r->at));
    out->data = r->at;
    r->at += out->length;
    return 1;
}

pb_field pb_find(pb_reader message, unsigned number)
{
    pb_field f;
    while (pb_next(&message, &f))
        if (f.number == number)
            return f;
    fail_msg("there is no field %u", number);
    return f;
}

int pb_count(pb_reader message, unsigned number)
{
    pb_field f;
    int count = 0;
    while (pb_next(&message, &f))
        count += f.number == number;
    return count;
}

pb_reader pb_inside(const pb_field *field)
{
    return (pb_reader){field->data, field->data + field->length};
}

const char *pb_text(char *out, size_t size, const pb_field *field)
{
    const size_t n = field->length < size - 1 ? field->length : size - 1;
    memcpy(out, field->data, n);
    out[n] = '\0';
    return out;
}
