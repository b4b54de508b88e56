/* Writing JSON, on one line or indented, into a buffer that is used again and again.
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
 * `key` is the member's name inside an object, and NULL inside an array and for the outermost
 * value; mixing them up is a programmer's error (asserted). Numbers have the fewest digits that
 * read back as the same value, and a '.' whatever the locale; what is not finite becomes null.
 * Strings are UTF-8; bytes that are not are replaced by U+FFFD.
 *
 * Lack of memory does not stop the calls: it is remembered until reset, and ls_json_writer_text
 * reports it. A steady state does not allocate. A writer belongs to one thread at a time.
 */
#ifndef JSON_WRITER_H
#define JSON_WRITER_H

#include "base/buffer.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arrays and objects in each other that a writer can have open. */
#define LS_JSON_WRITER_DEPTH 128

typedef struct ls_json_writer {
    ls_buffer out;
    int indent; /* spaces per level, 0: everything on one line */
    int depth;
    char close[LS_JSON_WRITER_DEPTH]; /* the bracket that ends each open level */
    bool first;                       /* nothing yet in the innermost level */
} ls_json_writer;

/* Prepares the caller's memory; allocates nothing yet. */
void ls_json_writer_init(ls_json_writer *w, int indent, const ls_host *host);

/* Frees the buffer. */
void ls_json_writer_fini(ls_json_writer *w);

/* Forgets what was written and keeps the buffer. */
void ls_json_writer_reset(ls_json_writer *w);

/* The text, ended by a zero, and (when not NULL) its length; valid until the next call with this
 * writer. Every level must be closed. NULL, and LS_ENOMEM in `err`, when memory ran out. */
const char *ls_json_writer_text(ls_json_writer *w, size_t *length, ls_error *err);

void ls_json_open_object(ls_json_writer *w, const char *key);
void ls_json_open_array(ls_json_writer *w, const char *key);

/* Ends the innermost array or object. */
void ls_json_close(ls_json_writer *w);

void ls_json_put_string(ls_json_writer *w, const char *key, const char *value); /* NULL: null */
void ls_json_put_double(ls_json_writer *w, const char *key, double value);
void ls_json_put_float(ls_json_writer *w, const char *key, float value);
void ls_json_put_int(ls_json_writer *w, const char *key, int64_t value);
void ls_json_put_uint(ls_json_writer *w, const char *key, uint64_t value);
void ls_json_put_bool(ls_json_writer *w, const char *key, bool value);
void ls_json_put_null(ls_json_writer *w, const char *key);

/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */

/* How many bytes the UTF-8 character at `text` has (1 … 4), or 0 when it is not valid. */
size_t ls_json_utf8_length(const unsigned char *p, size_t available);

/* Puts '?' for every byte that is a control character or no UTF-8: messages that quote input are
 * one line of UTF-8, wherever they were cut. */
void ls_json_tidy(char *text);

/* Does so with what `err` (when not NULL) says of a failure, and returns its status. */
int ls_json_tidied(int status, ls_error *err);

#endif
