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
