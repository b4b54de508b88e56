/* SPDX-License-Identifier: MIT */
/* Writes JSON, on one line or indented, into a reusable buffer.
 *
 *     ls_json_writer w;
 *     ls_json_writer_init(&w, 0, host);
 *     for (;;) {
 *         ls_json_writer_reset(&w);
 *         ls_json_open_object(&w, NULL);
 *         ls_json_put_string(&w, "type", "step");
 *         ls_json_put_double(&w, "loss", loss);
 *         ls_json_open_array(&w, "workers");
 *         ls_json_close(&w);
 *         ls_json_close(&w);
 *         text = ls_json_writer_text(&w, &length, &err); // {"type":"step","loss":0.5,"workers":[]}
 *     }
 *     ls_json_writer_fini(&w);
 *
 * `key` must be the member's name inside an object, and NULL inside an array and for the outermost
 * value (asserted). Numbers have the fewest digits that read back as the same value, and '.' as
 * decimal separator in every locale. A number that is not finite becomes null. Strings are UTF-8;
 * invalid bytes are replaced by U+FFFD.
 *
 * The functions do not return errors. If memory runs out, the writer records the failure until
 * ls_json_writer_reset, and ls_json_writer_text returns it. Once the buffer is large enough,
 * nothing is allocated. A writer belongs to one thread at a time. */
#ifndef JSON_WRITER_H
#define JSON_WRITER_H

#include "base/buffer.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest number of arrays and objects that can be open at a time. */
#define LS_JSON_WRITER_DEPTH 128

typedef struct ls_json_writer {
    ls_buffer out;
    int indent; /* spaces per level; 0: everything on one line */
    int depth;
    char close[LS_JSON_WRITER_DEPTH]; /* the bracket that closes each open level */
    bool first;                       /* the innermost level is empty */
} ls_json_writer;

/* Initialises the writer; allocates nothing. */
void ls_json_writer_init(ls_json_writer *w, int indent, const ls_host *host);

/* Frees the buffer. */
void ls_json_writer_fini(ls_json_writer *w);

/* Removes the text and keeps the buffer. */
void ls_json_writer_reset(ls_json_writer *w);

/* Returns the text, zero-terminated, and its length in bytes unless `length` is NULL. The text is
 * valid until the next call with this writer. All levels must be closed. Returns NULL and sets
 * `err` to LS_ENOMEM if memory ran out. */
const char *ls_json_writer_text(ls_json_writer *w, size_t *length, ls_error *err);

/* Begins an object. */
void ls_json_open_object(ls_json_writer *w, const char *key);
/* Begins an array. */
void ls_json_open_array(ls_json_writer *w, const char *key);

/* Closes the innermost array or object. */
void ls_json_close(ls_json_writer *w);

/* These functions write a value: a string (or null if `value` is NULL), a number, a boolean or
 * null. */
void ls_json_put_string(ls_json_writer *w, const char *key, const char *value);
void ls_json_put_double(ls_json_writer *w, const char *key, double value);
void ls_json_put_float(ls_json_writer *w, const char *key, float value);
void ls_json_put_int(ls_json_writer *w, const char *key, int64_t value);
void ls_json_put_uint(ls_json_writer *w, const char *key, uint64_t value);
void ls_json_put_bool(ls_json_writer *w, const char *key, bool value);
void ls_json_put_null(ls_json_writer *w, const char *key);

#endif
