/* SPDX-License-Identifier: MIT */
/* A strict JSON reader that records line and column of every node.
 *
 *     ls_json *doc;
 *     int status = ls_json_read_file(&doc, "examples/x.json", host, &err);
 *     const cJSON *lr = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "lr");
 *     if (!cJSON_IsNumber(lr))
 *         status = ls_json_fail(&err, doc, lr, LS_ECONFIG, "expected a number, found %s",
 *                           ls_json_kind(lr));                // "examples/x.json:4:3: expected …"
 *     ls_json_destroy(doc);
 *
 * The tree consists of cJSON's nodes. This parser, unlike cJSON's own, refuses everything that RFC
 * 8259 does not allow, and also duplicate keys, numbers that are too large for a double, invalid
 * UTF-8, a byte order mark, zero characters, and texts beyond the limits. A number is rounded once
 * to a double. The process's locale has no effect.
 *
 * Memory: the document is allocated by the host's allocator, cJSON's nodes by malloc, because
 * cJSON's allocator can be replaced for the whole process only.
 *
 * Threads: different documents may be used at the same time. Several threads may use one document
 * as long as none calls ls_json_set or ls_json_destroy. */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include "json/writer.h"

#include <cjson/cJSON.h>
#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_json ls_json;

/* Limits of a text. Reading a text that exceeds a limit fails. */
enum {
    LS_JSON_BYTES = 16 << 20, /* size in bytes */
    LS_JSON_DEPTH = 64,       /* nesting of arrays and objects */
    LS_JSON_VALUES = 1000000  /* number of values */
};

/* Parses `len` bytes of `text` and keeps a copy of them. `name`: the text's name in messages, such
 * as the file's name. The caller destroys *out. Errors: LS_ECONFIG "NAME:LINE:COLUMN: expected …,
 * found …; fix", LS_ENOMEM. */
int ls_json_parse(ls_json **out, const char *name, const char *text, size_t len,
                  const ls_host *host, ls_error *err);

/* Does the same as ls_json_parse, for a text that is line number `line` of a file. */
int ls_json_parse_line(ls_json **out, const char *name, const char *text, size_t len, int line,
                       const ls_host *host, ls_error *err);

/* Reads a file. The caller destroys *out. Errors: LS_ENOENT (no such file), LS_EIO (it cannot be
 * read), LS_ECONFIG (it is empty, a directory, too large, or not JSON), LS_ENOMEM. */
int ls_json_read_file(ls_json **out, const char *path, const ls_host *host, ls_error *err);

/* Frees the document and its tree. NULL is allowed. */
void ls_json_destroy(ls_json *doc);

/* Returns the tree. It belongs to the document, and only ls_json_set may change it. */
const cJSON *ls_json_root(const ls_json *doc);

/* Returns the document's name in messages. */
const char *ls_json_name(const ls_json *doc);

/* Copies the text of a member of `object` to `out`, as one line of valid UTF-8, truncated to `size`
 * bytes with the zero. Leaves `out` unchanged if the object has no such text. */
void ls_json_copy_text(char *out, size_t size, const cJSON *object, const char *key);

/* Computes the position of a node in the text: line and column, both from 1, columns counted in
 * characters. With `of_value` it is that of the value, else that of the member's key if the node
 * has one. Returns LS_EINVAL and writes nothing if the node was not read from this document's
 * text. */
int ls_json_where(const ls_json *doc, const cJSON *node, bool of_value, int *line, int *column);

/* Reports an error at a node, with the position of the member's key: "FILE:LINE:COLUMN: message";
 * or "--set a.b=v: message" for a value that ls_json_set has set; or "FILE: message" for a node
 * without a position, such as NULL. Returns `status`. */
int ls_json_fail(ls_error *err, const ls_json *doc, const cJSON *node, int status,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Does the same as ls_json_fail, with the position of the member's value. */
int ls_json_fail_value(ls_error *err, const ls_json *doc, const cJSON *node, int status,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Names the place of a node in the file of another format of which the document was made. Messages
 * about the node, and all that follows it up to the next node with a place, then begin with "FILE:
 * PLACE: ". ls_json_set is not called for such a document. Errors: LS_ENOMEM; LS_EINVAL if the node
 * is not of this document. */
int ls_json_set_place(ls_json *doc, const cJSON *node, const char *place, ls_error *err);

/* Returns the kind of a node for messages: "a string", "a number", "true", "null", "an array", "an
 * object"; "nothing" for NULL. The text is static. */
const char *ls_json_kind(const cJSON *node);

/* Applies the argument of `--set`, such as "a.b=v": replaces the member b of the object a. Objects
 * that are missing on the path a.b are created. A number in the path selects an element of an array
 * ("model.layers.0.units=64"). A value that is valid JSON is read as JSON, any other value as a
 * string; but a value that begins with '{', '[' or '"' must be valid JSON. Errors: LS_EINVAL (no
 * '=', an empty key, too many keys), LS_ECONFIG (the path leads through a value that is neither
 * object nor array, or the value is malformed), LS_ENOMEM. After an error the document is
 * unchanged, except for objects that were created on the path. */
int ls_json_set(ls_json *doc, const char *assignment_text, ls_error *err);

/* Returns whether ls_json_set has set the node, something in it, or an object that contains it.
 * False for NULL. */
bool ls_json_is_set(const ls_json *doc, const cJSON *node);

/* Writes a tree. `key`: as for the writer's other functions. */
void ls_json_put_node(ls_json_writer *w, const char *key, const cJSON *node);

/* Reads the writer's text as a tree, which the caller frees with cJSON_Delete. Returns NULL if
 * memory ran out, and sets `err` to LS_ENOMEM, "out of memory for" followed by `what`. */
cJSON *ls_json_written_tree(ls_json_writer *w, const char *what, ls_error *err);

#endif
