/* Reading JSON strictly, with a line and a column for everything that is in it.
 *
 *     ls_json *doc;
 *     int status = ls_json_read_file(&doc, "examples/x.json", host, &err);
 *     const cJSON *lr = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "lr");
 *     if (!cJSON_IsNumber(lr))
 *         status = ls_json_fail(&err, doc, lr, LS_ECONFIG, "expected a number, found %s",
 *                           ls_json_kind(lr));                // "examples/x.json:4:3: expected …"
 *     ls_json_destroy(doc);
 *
 * The tree is made of cJSON's nodes. cJSON's own reader is lenient; this one refuses whatever RFC 8259
 * does not allow, and besides: duplicate keys, numbers that a double cannot hold, invalid UTF-8, a byte
 * order mark, zero characters, and texts beyond the limits. Numbers may have any number of digits, are
 * rounded once, and do not depend on the process's locale.
 *
 * Memory: the document comes from the host; cJSON's nodes come from malloc, because its allocator
 * can only be replaced for the whole process.
 * Threads: different documents may be used at the same time; one document by many threads as long
 * as no thread calls ls_json_set or ls_json_destroy.
 */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include "json/writer.h"

#include <cjson/cJSON.h>
#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_json ls_json;

/* Where reading stops with an error. */
enum {
    LS_JSON_BYTES = 16 << 20, /* of text */
    LS_JSON_DEPTH = 64,       /* arrays and objects in each other */
    LS_JSON_VALUES = 1000000  /* in all */
};

/* Reads `len` bytes of `text`, of which a copy is kept. `name` is what messages call it: its
 * file's name. Errors: LS_ECONFIG "NAME:LINE:COLUMN: expected …, found …; fix", LS_ENOMEM. */
int ls_json_parse(ls_json **out, const char *name, const char *text, size_t len,
                  const ls_host *host, ls_error *err);

/* Reads a text that is a line of a file: messages call it `line`. */
int ls_json_parse_line(ls_json **out, const char *name, const char *text, size_t len, int line,
                       const ls_host *host, ls_error *err);

/* Reads a file. Errors: LS_ENOENT (no such file), LS_EIO (it cannot be read), LS_ECONFIG (it is
 * empty, a directory, too large, or not JSON), LS_ENOMEM. */
int ls_json_read_file(ls_json **out, const char *path, const ls_host *host, ls_error *err);

/* Frees the document and its tree. NULL is allowed. */
void ls_json_destroy(ls_json *doc);

/* The tree. It belongs to the document and must not be changed but by ls_json_set. */
const cJSON *ls_json_root(const ls_json *doc);

/* The name that messages use. */
const char *ls_json_name(const ls_json *doc);

/* Where a node stands, line and column counted from 1, columns in characters: its value, or, unless
 * `of_value`, the key of an object's member. LS_EINVAL, and nothing written, for a node that is not
 * of this document or did not come from its text. */
int ls_json_where(const ls_json *doc, const cJSON *node, bool of_value, int *line, int *column);

/* Fails with "FILE:LINE:COLUMN: message", or "--set a.b=v: message" for a value that
 * ls_json_set put there, or "FILE: message" for a node without a place (NULL, say).
 * ls_json_fail points at a member's key, ls_json_fail_value at its value. Both return `status`. */
int ls_json_fail(ls_error *err, const ls_json *doc, const cJSON *node, int status,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
int ls_json_fail_value(ls_error *err, const ls_json *doc, const cJSON *node, int status,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What a node is, for messages: "a string", "a number", "true", "null", "an array", "an object",
 * "nothing" for NULL. Static text. */
const char *ls_json_kind(const cJSON *node);

/* Carries out `--set` with "a.b=v": replaces the member b of the object a, making what is
 * missing on the way; a number steps into an array ("model.layers.0.units=64"). A value that is
 * JSON is taken as JSON, any other as a string; one that begins with '{', '[' or '"' must be
 * JSON. Errors: LS_EINVAL (no '=', an empty key), LS_ECONFIG (the way leads through something
 * that is neither object nor array, or the value is malformed), LS_ENOMEM. The document is
 * unchanged then, but for objects made on the way. */
int ls_json_set(ls_json *doc, const char *assignment_text, ls_error *err);

/* Writes a tree; `key` as for the writer's other calls. */
void ls_json_put_node(ls_json_writer *w, const char *key, const cJSON *node);

#endif
