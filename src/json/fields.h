/* SPDX-License-Identifier: MIT */
/* Reads the members of a JSON object. Every error has a position.
 *
 *     ls_fields f;
 *     ls_fields_begin(&f, doc, object, "layer 'conv1'", err);
 *     ls_field_int(&f, "out", 1, 1 << 20, NULL, &out);       // required: no default
 *     ls_field_int(&f, "padding", 0, 64, &zero, &padding);   // optional
 *     status = ls_fields_end(&f);                            // unknown keys, first error
 *
 * After the first failure every further call only marks its key as known (a key that the object may
 * have). A caller may therefore read all fields and check the status once, in ls_fields_end. The
 * functions that read a member always write *out: after a failure they write the fallback, or zero
 * if there is none. All errors are LS_ECONFIG, and the messages begin with the position,
 * "FILE:LINE:COLUMN: ". Texts that are returned belong to the document.
 *
 * Threads: one thread at a time uses an ls_fields. */
#ifndef JSON_FIELDS_H
#define JSON_FIELDS_H

#include "json/json.h"

#define LS_FIELDS_MAX 48

/* Message about a file that a newer version has written: the name of the file's version (%s), that
 * version (%.0f) and the newest one that this program reads (%ld). */
#define LS_NEWER_VERSION                                                                           \
    "written by a newer version of Lockstep (%s %.0f; this one reads up to %ld): update "          \
    "Lockstep, or use a file of this version"

typedef struct ls_fields {
    const ls_json *doc;
    const cJSON *object;
    const char *what; /* description of the object for messages: "layer 'conv1'" */
    const char *known[LS_FIELDS_MAX];
    int count;
    const char *missing; /* the first required key that is absent; reported by ls_fields_end */
    int status;
    ls_error *err;
} ls_fields;

/* Begins to read `object`. If `object` is not a JSON object, ls_fields_end returns an error. `what`
 * and `err` must outlive `f`. `doc` NULL: the object is a copy without a position, and the messages
 * have none. */
void ls_fields_begin(ls_fields *f, const ls_json *doc, const cJSON *object, const char *what,
                     ls_error *err);

/* These functions read a member: a number from `min` to `max`, a boolean or a text. `fallback`
 * NULL: the member is required. They return true if the member is present and valid. If the member
 * is absent, *out becomes the fallback. */
bool ls_field_int(ls_fields *f, const char *key, long min, long max, const long *fallback,
                  long *out);
/* Reads the version of a file's form, a number from `min` to `newest`. A greater number is that of
 * a newer program, and the message says so. */
bool ls_field_version(ls_fields *f, const char *key, long min, long newest, long *out);
bool ls_field_double(ls_fields *f, const char *key, double min, double max, const double *fallback,
                     double *out);
bool ls_field_bool(ls_fields *f, const char *key, const int *fallback, int *out);
bool ls_field_text(ls_fields *f, const char *key, const char *const *fallback, const char **out);

/* Reads a text that is one of `choices` (NULL-terminated); *out becomes the index of the choice.
 * The message for any other text has "did you mean" or the list of choices. */
bool ls_field_choice(ls_fields *f, const char *key, const char *const *choices, const int *fallback,
                     int *out);
/* Finds a text, the value of the member `key`, among `choices`, as ls_field_choice does. */
bool ls_field_is_choice(ls_fields *f, const char *key, const cJSON *node,
                        const char *const *choices, int *out);

/* Reads an array of two integers, [height, width], or one integer for height and width. `fallback`
 * is the default of height and of width. */
bool ls_field_pair(ls_fields *f, const char *key, long min, long max, const long *fallback,
                   int out[2]);

/* As ls_field_pair with the default 0; also reads an array of four integers, [top, left, bottom,
 * right]. Stores the numbers at the top and the left to `out`, and those at the bottom and the
 * right to `end`. */
bool ls_field_sides(ls_fields *f, const char *key, long min, long max, int out[2], int end[2]);

/* Returns whether `node` is an integer from `min` to `max`, and records a failure if it is not.
 * `node` is the value of the member `key`, or a part of that value. */
bool ls_field_is_int(ls_fields *f, const char *key, const cJSON *node, long min, long max);

/* Returns the member's value, or NULL if it is absent; marks the key as known. */
const cJSON *ls_field_any(ls_fields *f, const char *key);
/* Returns whether an earlier call has marked the key as known. */
bool ls_fields_know(const ls_fields *f, const char *key);

/* Records an error with the position of `node` (of the object if `node` is NULL). Has no effect
 * after an earlier failure. */
void ls_fields_fail(ls_fields *f, const cJSON *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Does the same as ls_fields_fail, with the position of the key of `member`. */
void ls_fields_fail_key(ls_fields *f, const cJSON *member, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns LS_OK or the first failure. An unknown member is a failure, whose message has "did you
 * mean". If a required member is missing too, only the unknown member is reported, because usually
 * its key is a misspelling of the missing key. */
int ls_fields_end(ls_fields *f);

#endif
