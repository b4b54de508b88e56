/* The inside of a JSON document, for the files of this room. */
#ifndef JSON_DOC_H
#define JSON_DOC_H

#include "json/json.h"

#define LS_JSON_NO_KEY UINT32_MAX

/* Line, from `first`, and column, from 1, of the byte at `offset`. */
void ls_json_line_column(const char *text, size_t offset, int first, int *line, int *column);

/* One node and where it came from: byte offsets into the text. */
typedef struct ls_json_origin {
    const cJSON *node;   /* NULL: the node has been replaced */
    const char *label;   /* "--set a.b=v", whose offsets mean nothing; NULL: the document's text */
    uint32_t key, value; /* LS_JSON_NO_KEY: an array's element, or the root */
} ls_json_origin;

typedef struct ls_json_label {
    struct ls_json_label *next;
    char text[];
} ls_json_label;

struct ls_json {
    const ls_host *host;
    char *name;
    char *text;
    int line; /* what its first one is called */
    cJSON *root;
    ls_json_origin *origins;
    uint32_t count;
    size_t capacity;
    ls_json_label *labels; /* owns what the origins' labels point to */
};

/* Checks `text`, which ends with a zero, against RFC 8259, builds its tree, which the caller frees with
 * cJSON_Delete, and notes where its nodes come from. `name` and `line` are what messages call it and its
 * first line; `label` belongs to the document and is NULL for the document's own text. Errors:
 * LS_ECONFIG, LS_ENOMEM; nothing is noted then. */
int ls_json_scan(cJSON **root, ls_json *doc, const char *name, const char *text, size_t len,
                 int line, const char *label, ls_error *err);

/* Notes where a node came from. Errors: LS_ENOMEM. */
int ls_json_note(ls_json *doc, const ls_json_origin *origin, ls_error *err);

#endif
