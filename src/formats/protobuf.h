/* SPDX-License-Identifier: MIT */
/* Writes and reads protocol buffers. Writing appends fields to a message (a buffer), and whole
 * messages as fields of other messages. Reading goes through the fields of a message in memory.
 *
 *     ls_buffer inner, outer;                 // initialised by the caller
 *     ls_pb_text(&inner, 1, "conv1.weight");
 *     ls_pb_message(&outer, 5, &inner);       // copies and empties inner
 *
 * Source: protobuf.dev/programming-guides/encoding: a field is a varint (number << 3 | wire type)
 * followed by its value. If memory runs out, the buffer is marked as failed (base/buffer.h). */
#ifndef FORMATS_PROTOBUF_H
#define FORMATS_PROTOBUF_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* Appends a number of type int32, int64, bool or enum. A negative number takes ten bytes, as
 * the encoding requires. */
void ls_pb_int(ls_buffer *b, unsigned field, int64_t value);
/* ls_pb_float, ls_pb_double and ls_pb_text append a field of type float, double or string. */
void ls_pb_float(ls_buffer *b, unsigned field, float value);
void ls_pb_double(ls_buffer *b, unsigned field, double value);
void ls_pb_text(ls_buffer *b, unsigned field, const char *text);
/* Appends `message` as a field of `b`, and empties `message`, so that it can be used again. If
 * `message` is marked as failed, `b` is marked as well. */
void ls_pb_message(ls_buffer *b, unsigned field, ls_buffer *message);

/* ---- reading --------------------------------------------------------------------------------- */

/* A position in a message. The caller sets `at` and `end`: the bytes of the message. */
typedef struct ls_pb_reader {
    const uint8_t *at, *end;
    bool broken; /* the message is not a valid protocol buffer at `at` */
    bool cut;    /* it is broken, because it ends within a field */
} ls_pb_reader;

/* A field that was read. */
typedef struct ls_pb_field {
    unsigned number;
    uint64_t value;       /* value of a varint, or the bits of a fixed-size number */
    const uint8_t *bytes; /* contents of a text, message or packed list; NULL: a number */
    size_t length;        /* number of bytes at `bytes` */
} ls_pb_field;

/* Reads the next field. Returns false at the end of the message, and at a field that is damaged or
 * is a group, where it sets r->broken; if the message ends within the field, it sets r->cut too. */
bool ls_pb_next(ls_pb_field *out, ls_pb_reader *r);
/* Reads the next varint of a packed list, whose bytes are those of `r`. Returns false at the end,
 * and where the list is damaged, where it sets r->broken. */
bool ls_pb_next_packed(uint64_t *out, ls_pb_reader *r);

#endif
