/* Writing protocol buffers: fields one after another into a buffer, messages inside messages.
 *
 *     ls_buffer inner, outer;                 // both initialised
 *     ls_pb_text(&inner, 1, "conv1.weight");
 *     ls_pb_message(&outer, 5, &inner);       // copies it, and empties inner
 *
 * Source: the encoding's description (protobuf.dev/programming-guides/encoding): a field is a
 * varint (number << 3 | wire type), then its value. Lack of memory is remembered by the buffer.
 */
#ifndef FORMATS_PROTOBUF_H
#define FORMATS_PROTOBUF_H

#include "base/buffer.h"

#include <stdint.h>

/* A number, of types int32, int64, bool and enum; negative ones take ten bytes, as they must. */
void ls_pb_int(ls_buffer *b, unsigned field, int64_t value);
void ls_pb_float(ls_buffer *b, unsigned field, float value);
void ls_pb_double(ls_buffer *b, unsigned field, double value);
void ls_pb_text(ls_buffer *b, unsigned field, const char *text);
/* `message` as a field; it is empty then, and may be used again. A failure of it becomes b's. */
void ls_pb_message(ls_buffer *b, unsigned field, ls_buffer *message);

#endif
