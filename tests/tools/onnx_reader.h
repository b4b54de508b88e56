/* SPDX-License-Identifier: MIT */
/* A minimal reader of protocol buffers for ONNX files. It shares no code with the writer. */
#ifndef TESTS_ONNX_READER_H
#define TESTS_ONNX_READER_H

#include <stddef.h>
#include <stdint.h>

/* A field: a number, or `length` bytes at `data`. */
typedef struct pb_field {
    unsigned number;
    uint64_t value;
    const uint8_t *data;
    size_t length;
} pb_field;

typedef struct pb_reader {
    const uint8_t *at, *end;
} pb_reader;

/* Reads the next field; returns 0 at the end. A malformed message fails the test. */
int pb_next(pb_reader *r, pb_field *out);

/* Returns the first field of that number; fails the test if there is none. */
pb_field pb_find(pb_reader message, unsigned number);
int pb_count(pb_reader message, unsigned number);
pb_reader pb_inside(const pb_field *field);

/* Returns the field's bytes as a text, truncated to `size`. */
const char *pb_text(char *out, size_t size, const pb_field *field);

#endif
