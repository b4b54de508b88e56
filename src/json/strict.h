/* The strict pass: checks a text against RFC 8259 and notes where its keys and values stand. */
#ifndef JSON_STRICT_H
#define JSON_STRICT_H

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

/* Checks `text` and fills `out`, whose items the caller frees with ls_free(host, …), also after a
 * failure. *shortened becomes the text with every number of more than 63 characters written shorter,
 * the same value in the same place, or NULL where there are none; the caller's to free likewise.
 * Everything is checked here but duplicate keys. Must run under ls_c_locale_enter.
 * `limits` has no zeros left. Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_json_scan(ls_json_places *out, char **shortened, const char *name, const char *text,
                 size_t len, const ls_json_limits *limits, const ls_host *host, ls_error *err);

/* Line and column, from 1, of the byte at `offset`. */
void ls_json_line_column(const char *text, size_t offset, int *line, int *column);

#endif
