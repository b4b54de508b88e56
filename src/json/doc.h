/* SPDX-License-Identifier: MIT */
/* Internals of a JSON document, for the files of this directory. */
#ifndef JSON_DOC_H
#define JSON_DOC_H

#include "json/json.h"

#include <stdbool.h>

#define LS_JSON_NO_KEY UINT32_MAX

/* Computes line and column of the byte at `offset`. The first line of the text has the number
 * `first`, the first column 1. */
void ls_json_line_column(const char *text, size_t offset, int first, int *line, int *column);

/* The origin of a node: the position of its text, for messages. */
typedef struct ls_json_origin {
    const cJSON *node; /* NULL: the node has been replaced */
    /* The assignment "--set a.b=v" that created the node, for which `key` and `value` are not used;
     * in a document with places the place of the node. NULL: the node was read from the document's
     * text. */
    const char *label;
    uint32_t key;   /* byte offset of the member's key; LS_JSON_NO_KEY: an array's element, or the
                     * root */
    uint32_t value; /* byte offset of the value */
} ls_json_origin;

typedef struct ls_json_label {
    struct ls_json_label *next;
    char text[];
} ls_json_label;

struct ls_json {
    const ls_host *host;
    char *name;
    char *text;
    int line; /* number of the first line in messages */
    cJSON *root;
    ls_json_origin *origins;
    uint32_t count;
    size_t capacity;
    bool places;           /* ls_json_set_place was called, and ls_json_set was not */
    ls_json_label *labels; /* owns the texts to which the origins' labels point */
};

/* Checks `text`, which must end with a zero byte, against RFC 8259, builds its tree and records the
 * origins of its nodes. The caller frees *root with cJSON_Delete. `name`, `line`: the text's name,
 * and the number of its first line, in messages. `label`: ls_json_origin.label, owned by the
 * document; NULL for its own text. Errors: LS_ECONFIG, LS_ENOMEM; after an error no origin is
 * recorded. */
int ls_json_scan(cJSON **root, ls_json *doc, const char *name, const char *text, size_t len,
                 int line, const char *label, ls_error *err);

/* Records the origin of a node. Errors: LS_ENOMEM. */
int ls_json_note(ls_json *doc, const ls_json_origin *origin, ls_error *err);

#endif
