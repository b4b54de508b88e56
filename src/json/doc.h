/* The inside of a JSON document, for the files of this room. */
#ifndef JSON_DOC_H
#define JSON_DOC_H

#include "json/strict.h"

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
    ls_json_limits limits; /* without zeros */
    char *name;
    char *text;
    size_t len;
    cJSON *root;
    ls_json_origin *origins;
    uint32_t count;
    uint32_t capacity;
    ls_json_label *labels; /* owns what the origins' labels point to */
};

/* Checks a text and builds its tree, which the caller frees with cJSON_Delete. `places` as for
 * ls_json_scan. */
int ls_json_build(cJSON **root, ls_json_places *places, const char *name, const char *text,
                  size_t len, const ls_json_limits *limits, const ls_host *host, ls_error *err);

/* Refuses a tree in which an object has the same key twice. `places` are the tree's. */
int ls_json_check_keys(const cJSON *root, const ls_json_places *places, const char *name,
                       const char *text, const ls_host *host, ls_error *err);

/* Notes where every node of a tree came from: `places` in the text, or `label` (owned by the
 * document) when it is not NULL. Errors: LS_ENOMEM. */
int ls_json_note_origins(ls_json *doc, const cJSON *root, const ls_json_places *places,
                         const char *label, ls_error *err);

#endif
