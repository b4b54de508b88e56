/* Writes protocol buffers: appends fields to a message (a buffer), and whole messages as fields of
 * other messages.
 *
 *     ls_buffer inner, outer;                 // initialised by the caller
 *     ls_pb_text(&inner, 1, "conv1.weight");
 *     ls_pb_message(&outer, 5, &inner);       // copies and empties inner
 *
 * Source: the encoding's description (protobuf.dev/programming-guides/encoding): a field is a
 * varint (number << 3 | wire type) followed by its value. If memory runs out, the buffer is marked
 * as failed (base/buffer.h). */
#ifndef FORMATS_PROTOBUF_H
#define FORMATS_PROTOBUF_H

#include "base/buffer.h"

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

#endif
