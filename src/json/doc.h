/* The inside of a JSON document, for the files of this room. */
#ifndef JSON_DOC_H
#define JSON_DOC_H

#include "json/json.h"

#define LS_JSON_NO_KEY UINT32_MAX

/* Byte offsets into the text of one value and, in an object, of its key. */
typedef struct ls_json_place {
    uint32_t key; /* LS_JSON_NO_KEY for array elements and the root */
    uint32_t value;
} ls_json_place;

/* Every value of a text in the order in which they begin, which is a tree's pre-order. */
typedef struct ls_json_places {
    ls_json_place *items;
    uint32_t count;
    uint32_t capacity;
} ls_json_places;

/* The strict pass: checks `text` against RFC 8259, all but duplicate keys, and notes its places in `out`,
 * whose items the caller frees with ls_free(host, …), also after a failure. *shortened becomes the text
 * with every number of more than 63 characters written shorter, the same value in the same place, or
 * NULL where there are none; the caller's to free likewise. Must run under ls_c_locale_enter. `line` is
 * what the first line is called. Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_json_scan(ls_json_places *out, char **shortened, const char *name, const char *text,
                 size_t len, int line, const ls_host *host, ls_error *err);

/* Line, from `first`, and column, from 1, of the byte at `offset`. */
void ls_json_line_column(const char *text, size_t offset, int first, int *line, int *column);

/* One node and where it came from. */
typedef struct ls_json_origin {
    const cJSON *node;   /* NULL: the node has been replaced */
    ls_json_place place; /* in the text; meaningless with a label */
    const char *label;   /* "--set a.b=v", or NULL for the text */
} ls_json_origin;

typedef struct ls_json_label {
    struct ls_json_label *next;
    char *text;
} ls_json_label;

struct ls_json {
    const ls_host *host;
    char *name;
    char *text;
    size_t len;
    int line; /* what its first one is called */
    cJSON *root;
    ls_json_origin *origins;
    uint32_t count;
    uint32_t capacity;
    ls_json_label *labels; /* owns what the origins' labels point to */
};

/* Checks a text and builds its tree, which the caller frees with cJSON_Delete. `places` as for
 * ls_json_scan. */
int ls_json_build(cJSON **root, ls_json_places *places, const char *name, const char *text,
                  size_t len, int line, const ls_host *host, ls_error *err);

/* Notes where every node of a tree came from: `places` in the text, or `label` (owned by the
 * document) when it is not NULL. Errors: LS_ENOMEM. */
int ls_json_note_origins(ls_json *doc, const cJSON *root, const ls_json_places *places,
                         const char *label, ls_error *err);

#endif
