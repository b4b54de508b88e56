/* SPDX-License-Identifier: MIT */
#include "formats/protobuf.h"

#include <string.h>

enum { VARINT = 0, FIXED_64 = 1, LENGTH = 2, FIXED_32 = 5 };

static void put_varint(ls_buffer *b, uint64_t value)
{
    char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (char)(value | 0x80);
    bytes[n++] = (char)value;
    ls_buffer_add(b, bytes, n);
}

static void put_key(ls_buffer *b, unsigned field, unsigned type)
{
    put_varint(b, (uint64_t)field << 3 | type);
}

void ls_pb_int(ls_buffer *b, unsigned field, int64_t value)
{
    put_key(b, field, VARINT);
    put_varint(b, (uint64_t)value);
}

static void put_little(ls_buffer *b, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++)
        ls_buffer_add(b, &(const char){(char)(bits >> (8 * i))}, 1);
}

void ls_pb_float(ls_buffer *b, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FIXED_32);
    put_little(b, bits, 4);
}

void ls_pb_double(ls_buffer *b, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FIXED_64);
    put_little(b, bits, 8);
}

static void put_bytes(ls_buffer *b, unsigned field, const char *bytes, size_t count)
{
    put_key(b, field, LENGTH);
    put_varint(b, count);
    ls_buffer_add(b, bytes, count);
}

void ls_pb_text(ls_buffer *b, unsigned field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

void ls_pb_message(ls_buffer *b, unsigned field, ls_buffer *message)
{
    put_bytes(b, field, message->text ? message->text : "", message->length);
    b->failed |= message->failed;
    message->length = 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool get_varint(uint64_t *out, ls_pb_reader *r)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const uint8_t byte = *r->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    r->broken = true;
    r->cut = r->at == r->end;
    return false;
}

bool ls_pb_next_packed(uint64_t *out, ls_pb_reader *r)
{
    return r->at < r->end && get_varint(out, r);
}

static bool get_fixed(uint64_t *out, ls_pb_reader *r, int bytes)
{
    *out = 0;
    if (r->end - r->at < bytes) {
        r->broken = r->cut = true;
        return false;
    }
    for (int i = 0; i < bytes; i++)
        *out |= (uint64_t)*r->at++ << (8 * i);
    return true;
}

bool ls_pb_next(ls_pb_field *out, ls_pb_reader *r)
{
    uint64_t key, length;
    *out = (ls_pb_field){0};
    if (r->broken || r->at >= r->end || !get_varint(&key, r))
        return false;
    out->number = key >> 3 <= UINT32_MAX >> 3 ? (unsigned)(key >> 3) : 0;
    switch (key & 7) {
    case VARINT: return get_varint(&out->value, r);
    case FIXED_64: return get_fixed(&out->value, r, 8);
    case FIXED_32: return get_fixed(&out->value, r, 4);
    case LENGTH:
        if (!get_varint(&length, r))
            break;
        r->cut = length > (uint64_t)(r->end - r->at);
        if (r->cut)
            break;
        out->bytes = r->at;
        out->length = (size_t)length;
        r->at += out->length;
        return true;
    default: break; /* groups, which no format has that is read here */
    }
    r->broken = true;
    return false;
}
