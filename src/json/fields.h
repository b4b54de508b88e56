/* Reading the members of a JSON object with a position in every error.
 *
 *     ls_fields f;
 *     ls_fields_begin(&f, doc, object, "layer 'conv1'", err);
 *     ls_field_int(&f, "out", 1, 1 << 20, NULL, &out);       // required: no default
 *     ls_field_int(&f, "padding", 0, 64, &zero, &padding);   // optional
 *     status = ls_fields_end(&f);                            // unknown keys, first error
 *
 * After the first failure every further call only notes the key, so a caller may read all fields
 * and look at the status once, in ls_fields_end. Readers always write *out: after a failure the
 * fallback, or zero. All errors are LS_ECONFIG and read "FILE:LINE:COLUMN: …". One thread at a
 * time; texts handed out belong to the document.
 */
#ifndef JSON_FIELDS_H
#define JSON_FIELDS_H

#include "json/json.h"

#define LS_FIELDS_MAX 48

typedef struct ls_fields {
    const ls_json *doc;
    const cJSON *object;
    const char *what; /* what the object describes, for messages: "layer 'conv1'" */
    const char *known[LS_FIELDS_MAX];
    int count;
    const char *missing; /* the first required key that is absent; reported by ls_fields_end */
    int status;
    ls_error *err;
} ls_fields;

/* `object` that is not a JSON object is an error, reported by ls_fields_end. `what` and `err` must
 * outlive `f`. */
void ls_fields_begin(ls_fields *f, const ls_json *doc, const cJSON *object, const char *what,
                     ls_error *err);

/* Each reader: `fallback` NULL means required. Returns true when the member was there and
 * fine; *out is the fallback when it was absent. */
bool ls_field_int(ls_fields *f, const char *key, long min, long max, const long *fallback,
                  long *out);
bool ls_field_double(ls_fields *f, const char *key, double min, double max, const double *fallback,
                     double *out);
bool ls_field_bool(ls_fields *f, const char *key, const int *fallback, int *out);
bool ls_field_text(ls_fields *f, const char *key, const char *const *fallback, const char **out);

/* One of `choices` (NULL-terminated); *out is its index. A wrong word gets "did you mean". */
bool ls_field_choice(ls_fields *f, const char *key, const char *const *choices, const int *fallback,
                     int *out);

/* An integer for both, or an array of two: [height, width]; `fallback` stands for both. */
bool ls_field_pair(ls_fields *f, const char *key, long min, long max, const long *fallback,
                   int out[2]);

/* Whether `node`, of that member, is an integer in range; otherwise that is the failure. */
bool ls_field_is_int(ls_fields *f, const char *key, const cJSON *node, long min, long max);

/* The member as it is, or NULL when absent; marks the key as known. */
const cJSON *ls_field_any(ls_fields *f, const char *key);
/* Whether a reader has marked it so. */
bool ls_fields_know(const ls_fields *f, const char *key);

/* Records an error at a member (or at the object, when `node` is NULL) as the first failure. */
void ls_fields_fail(ls_fields *f, const cJSON *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, at the member's key. */
void ls_fields_fail_key(ls_fields *f, const cJSON *member, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* LS_OK, or the first failure; an unknown member is one, with "did you mean". It goes before a
 * missing one, because it is mostly the missing one misspelt. */
int ls_fields_end(ls_fields *f);

#endif
