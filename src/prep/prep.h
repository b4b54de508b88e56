/* SPDX-License-Identifier: MIT */
/* Preparation of rows: how a row of the user's data becomes the floats that a network reads.
 *
 * An ls_prep describes a preparation. Training, evaluation, prediction and export use the same
 * description, so that all of them prepare rows in the same way. It is stored with the weights, as
 * `preparation` in the model's metadata (config/card.h):
 *
 *     {"version": 2, "rows": "table", "target": "species", "columns": [
 *         {"name": "mass", "mean": 4207.1, "deviation": 803.4, "clip": 10, "missing": 4207.1,
 *          "decimal": ","},
 *         {"name": "time", "type": "f64", "mean": 1764364143000, "deviation": 17320.5},
 *         {"name": "island", "levels": ["Biscoe", "Dream"], "missing": 0},
 *         {"name": "zip", "levels": ["01234", "10001"], "compare": "codes"},
 *         {"name": "day", "date": "dmy", "since": 14975, "parts": [
 *             {"part": "month", "mean": 6.5, "deviation": 3.4, "clip": 10},
 *             {"part": "days", "mean": 364.5, "deviation": 210.4, "clip": 10}]}],
 *      "unknown": "zeros"}
 *     {"version": 2, "rows": "images", "fit": "cover"}
 *     {"version": 4, "rows": "images", "fit": "resize", "resize": 256,
 *      "interpolation": "bilinear"}
 *     {"version": 2, "rows": "array", "type": "f32", "divisor": 1, "layout": "channels_last",
 *      "missing": 0}
 *     {"version": 7, "rows": "array", "type": "f64", "divisor": 1, "mean": [4207.1, 6.5],
 *      "deviation": [803.4, 3.4], "clip": 10}
 *
 * `compare` (and `target_compare`, for the classes) says how levels are compared (prep/level.h):
 * "codes" or "digits". Columns without codes and without numbers of 16 or more digits do not have
 * it.
 *
 * `type` is "f64" if floats do not hold the numbers of a column in the training table closely
 * enough (LS_PREP_CLOSE). The numbers of such a column are doubles until they are scaled; those of
 * other columns are rounded to floats first. `target_type` says the same of the targets.
 *
 * A column of dates is taken apart into numbers (prep/date.h), its `parts`: those that differ among
 * the training rows. `date` says how its dates are written, and `since` is the day of the earliest
 * training date, from which days are counted. A description with such a column has version 3.
 *
 * `fit` says how a picture becomes an image of the size of the model's input. "cover": it is scaled
 * until it just covers that size, and the longer side is cut equally at both ends. "resize": it is
 * resized to `resize`, the size of the shorter side or [height, width], and its centre is cut out
 * (ls_prep_resize). A description with "resize" has version 4. `white`: the 16-bit sample that
 * becomes 255; the largest sample of the training pictures. A description with it has version 6.
 * Without it the upper 8 bits of 16-bit samples are used. Any other description has version
 * 2, which older programs read.
 *
 * If the description has `target_mean` and `target_deviation`, the network has learnt the scaled
 * target (target − mean) / deviation. They are numbers, or lists with a number for each target of a
 * row. The network's outputs, and the mean errors of these outputs, are converted back to the unit
 * of the target.
 *
 * A row of a table consists of the floats of its columns, in order. A column of numbers has one
 * float. A column of texts has one float for each of its *levels*, the different texts that the
 * column has in the training table: 1 for the level of the row, 0 for the others. A column of dates
 * has one float for each of its parts. A *raw* row has the numbers as they are in the user's file,
 * and the parts of dates. A number that is NaN, inf or −inf is missing. A
 * *ready* row has the numbers that the network reads: missing numbers are replaced, and numbers are
 * scaled.
 *
 * A value of a table is *unknown* to the model if it is
 *
 * - a text that is no level of its column
 * - a missing number or text in a column in which every row of the training table had a value
 * - a number that a float does not hold, before or after it is scaled
 * - a text in a column of dates that is no date, such as 2023-02-29, or is written in another form
 *
 * A value of an array is unknown if it is NaN and has no replacement, if it is infinite, or if a
 * float does not hold it, before or after it is scaled.
 *
 * `unknown` says what becomes of a row with such a value. In a raw row, NaN in the floats of a
 * column of texts stands for an unknown text, and a number that no float holds for itself or for an
 * unknown date. So a caller who prepares a row in one call and predicts it in another has no more
 * to pass on.
 *
 * Rows of images and of arrays have as many numbers as the model's input. Missing numbers are
 * replaced. If the description of an array has `mean` and `deviation`, lists with a number for each
 * channel of a row, each value becomes (value − mean) / deviation of its channel. (Each feature of
 * a row without height and width is a channel.) `scale_type` "f64": the values are doubles until
 * they are scaled. Values that `clip` limits are those of rows without height and width; a
 * description of an array with it has version 7. `scale_rows` is the number of streamed rows from
 * which means and deviations were learnt. A deviation of 0, of rows that were all equal so far,
 * counts as 1.
 *
 * The deviation of a *constant* column or channel, of which all training rows had the same number
 * or none, is infinite, null in the description: the network reads 0, also for another number in
 * a new row, because it cannot have learnt what that would mean. A description with null has
 * version 5. */
#ifndef PREP_PREP_H
#define PREP_PREP_H

#include "prep/date.h"
#include "prep/level.h"
#include "prep/number.h"
#include "prep/resize.h"
#include "json/json.h"

#include <stdbool.h>

enum {
    LS_PREP_COLUMNS = 65536,    /* largest number of columns in a table */
    LS_PREP_FEATURES = 1 << 24, /* largest number of floats in a row */
    LS_PREP_TARGETS = 1 << 14,  /* largest number of targets of a row */
    LS_PREP_WHITE = 65535       /* largest 16-bit sample */
};

typedef enum ls_prep_kind { LS_PREP_ARRAY, LS_PREP_TABLE, LS_PREP_IMAGES } ls_prep_kind;

/* Treatment of a row of a table with an unknown value. */
typedef enum ls_prep_unknown {
    LS_UNKNOWN_EMPTY, /* its outputs are empty, or NaN; if rows are evaluated, it is left out */
    /* All floats of an unknown or missing text are 0, and the row is predicted. With an unknown
     * number the outputs are empty. */
    LS_UNKNOWN_ZEROS,
    LS_UNKNOWN_ERROR /* it is an error */
} ls_prep_unknown;

/* The values of `unknown` in a description and in the config, by ls_prep_unknown. The last entry is
 * NULL. */
extern const char *const ls_prep_unknown_names[];

/* The worst value found in a row. The functions that report it only ever raise it. */
typedef enum ls_prep_found {
    LS_PREP_KNOWN,  /* the model knows all values */
    LS_PREP_ZEROED, /* an unknown text was replaced by zeros */
    LS_PREP_UNKNOWN /* the row cannot be predicted */
} ls_prep_found;

/* Largest distance between a number of a training table and the nearest float, in deviations of its
 * column, at which the column still counts as one of floats. */
#define LS_PREP_CLOSE 1e-5

/* An entry of a sorted list of names: the name of a column or level, and its index. */
typedef struct ls_prep_name {
    const char *text;
    int index; /* index of the column in ls_prep.column, or of the level in its column */
} ls_prep_name;

typedef struct ls_prep_column ls_prep_column;

/* Preparation of a column of a table, or of a part of a column of dates. */
struct ls_prep_column {
    char *name;
    int levels;           /* 0: a column of numbers or of dates */
    char **level;         /* [levels] the texts, in the order of their floats in a row */
    ls_prep_name *sorted; /* [levels] the levels, sorted by text */
    ls_level_rule rule;   /* how the levels are compared */
    int first;            /* index of the column's first float in a row */
    /* true: a value of this column may be missing: a missing number is replaced by `missing`, and
     * for a missing text all floats of the column are 0. false: a missing value is an error. */
    bool allows_missing;
    double missing;         /* replacement for a missing number, before scaling */
    bool wide;              /* its numbers are doubles until they are scaled */
    bool scaled;            /* a number becomes (number − mean) / deviation */
    double mean, deviation; /* 0 and 1 if not scaled; INFINITY: the column is constant */
    double clip;            /* scaled numbers are limited to −clip … clip; 0: no limit */
    char decimal;           /* decimal separator in the training table: '.' or ','; 0: not known */
    ls_date_form date;      /* form of its dates; LS_DATE_NONE: it is no column of dates */
    double since;           /* day from which its days are counted, in days since 1970-01-01 */
    /* [parts] the numbers of a column of dates, each with its own scale. The name of a part is that
     * of the column, "_" and that of the part. NULL if `parts` is 0. */
    ls_prep_column *part;
    int parts;
    ls_date_part is; /* the part, if the column is one */
};

/* Description of a preparation. */
typedef struct ls_prep {
    const ls_host *host;
    ls_prep_kind kind;
    /* Fields of tables. */
    ls_prep_column *column;
    int columns;
    ls_prep_name *sorted; /* [columns] the columns, sorted by name */
    int features;         /* number of floats in a row */
    char *target;         /* name of the target column; NULL: not known */
    /* how the names of the classes are compared, which are the levels of the target column */
    ls_level_rule target_rule;
    char target_decimal; /* decimal separator of the target column, as in ls_prep_column */
    /* a table that is not UTF-8 is read as Windows-1252, an extension of Latin-1 */
    bool latin1;
    ls_prep_unknown unknown;
    /* Scaling of the targets, with a mean and a deviation for each target of a row. */
    int targets;                            /* 0: the targets are not scaled */
    double *target_mean, *target_deviation; /* [targets], in one allocation; NULL if 0 */
    bool target_wide;                       /* the targets are doubles until they are scaled */
    long scale_rows; /* number of streamed rows from which scales were learnt; 0: none */
    /* Fields of images. */
    ls_prep_resize resize; /* how a picture is resized; all 0: it covers the model's input */
    int white; /* 16-bit sample that becomes 255; 0: the upper 8 bits of such samples are used */
    /* Fields of arrays. */
    char type[16];      /* type of the numbers in the file: "u8", "f32"; "": not known */
    int divisor;        /* divisor of the numbers in the file: 255 for bytes, else 1 */
    bool channels_last; /* rows in the file are [height][width][channels] */
    float *fill;        /* [fills]: replacements for missing numbers */
    /* Number of replacements. 1: the same for all numbers; the number of values in a row: one for
     * each value; 0: a missing number is an error. */
    int fills;
    /* Scaling of the values of a row, with a mean and a deviation for each channel. */
    int scales;               /* number of channels; 0: the values are not scaled */
    double *mean, *deviation; /* [scales], in one allocation; NULL if 0; INFINITY: constant */
    bool wide;                /* the values are doubles until they are scaled */
    double clip;              /* scaled values are limited to −clip … clip; 0: no limit */
} ls_prep;

/* ---- creating -------------------------------------------------------------------------------- */

/* Creates a description without columns and with divisor 1. The caller frees *out with
 * ls_prep_free. Errors: LS_ENOMEM. */
int ls_prep_create(ls_prep **out, ls_prep_kind kind, const ls_host *host, ls_error *err);
void ls_prep_free(ls_prep *prep); /* NULL is allowed */

/* Adds a column. If `levels` is 0, the column is one of numbers, and the caller may afterwards set
 * its fields for scaling and for missing values. Otherwise the column is one of texts, with the
 * levels `level` [levels]. The texts are copied, with U+FFFD for each byte that is invalid UTF-8.
 * Errors: LS_ENOMEM. */
int ls_prep_add(ls_prep *prep, const char *name, const char *const *level, int levels,
                ls_error *err);
/* Adds a column of dates of the form `form`, whose days are counted from the day `since`, with the
 * parts `part` [parts]. The caller may afterwards set the fields of the column and of its parts for
 * scaling and for missing values. Errors: LS_ENOMEM. */
int ls_prep_add_dates(ls_prep *prep, const char *name, ls_date_form form, double since,
                      const ls_date_part *part, int parts, ls_error *err);
/* Finishes a description after its last column was added: sorts the names, and computes the index
 * of each column's first float in a row. Errors: LS_EDATA (two columns with one name, two equal
 * levels, too many floats), LS_ENOMEM. */
int ls_prep_finish(ls_prep *prep, ls_error *err);

/* Checks that all names are different after bytes that are invalid UTF-8 have been replaced by
 * U+FFFD. `what`: the kind of thing that has these names, for messages, such as "class". Errors:
 * LS_EDATA, LS_ENOMEM. */
int ls_prep_check_names(const char *const *name, int count, const char *what, const ls_host *host,
                        ls_error *err);
/* Returns whether `text`, as it is in a user's file, is the name `name`, as it is in a description.
 * Descriptions have U+FFFD in place of each byte that is invalid UTF-8, so an invalid byte of
 * `text` equals U+FFFD in `name`. The two may be in different Unicode normal forms
 * (prep/level.h). */
bool ls_prep_is_name(const char *name, const char *text);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Returns an upper bound of the number of JSON values that ls_prep_write writes. */
size_t ls_prep_values(const ls_prep *prep);
/* Writes the description as the JSON member `key`. */
void ls_prep_write(ls_json_writer *w, const char *key, const ls_prep *prep);

/* Reads a description from JSON, and checks that it fits a model whose input is `input` numbers:
 * floats if `floats` is true, else bytes. The caller frees *out. Errors: LS_ECONFIG with line and
 * column, LS_ENOMEM. */
int ls_prep_read(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input, bool floats,
                 const ls_host *host, ls_error *err);
/* Reads the description of a table that older versions wrote: an array with an object for each
 * float of a row, {"column": TEXT, "is": TEXT}, {"column": TEXT} or {"column": TEXT, "mean": N,
 * "deviation": N}. The caller frees *out. Errors: those of ls_prep_read. */
int ls_prep_read_features(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input,
                          const ls_host *host, ls_error *err);

/* ---- applying -------------------------------------------------------------------------------- */

/* Returns the index of the column called `name`, or −1. */
int ls_prep_find(const ls_prep *prep, const char *name);
/* Returns the index of the level of `text` (prep/level.h). Returns −1 if there is none. Also
 * returns −1 if no level has the bytes of `text`, and there is more than one with the same number,
 * as older versions could write. */
int ls_prep_level(const ls_prep_column *column, const char *text);

/* Returns whether a column of the training table, or its target, had decimal commas. */
bool ls_prep_has_commas(const ls_prep *prep);
/* Returns the number of floats that a column has in a row. */
int ls_prep_width(const ls_prep_column *column);
/* Converts a raw number of a column, or of a part of one, to the number that the network reads. A
 * `raw` that is NaN or infinite is missing. Returns false if the number is unknown. */
bool ls_prep_number(const ls_prep_column *column, double raw, float *ready);

/* Writes the value of a column to the column's numbers in the raw row `row`. The value is `text`,
 * as it is in a user's file, or `number` if `text` is NULL. The thread must be in the "C" locale.
 * If the value is unknown, raises *found and writes a message to *err, but is an error only if
 * prep->unknown says so. Errors: LS_EDATA; the message begins with `prefix` ("FILE:LINE: " or ""),
 * followed by: column "NAME": expected …, found …. */
int ls_prep_put(const ls_prep *prep, int column, const char *text, double number, double *row,
                const char *prefix, ls_prep_found *found, ls_error *err);

/* Converts a raw row of `count` numbers, which are doubles if `wide` is set and else floats, to a
 * ready row. If they are floats, `raw` and `ready` may be the same array. `prep` NULL: nothing is
 * replaced or scaled. If a value is unknown, raises *found, and all numbers of `ready` are 0 if the
 * row cannot be predicted, so that no number that is not finite reaches a network; *err has the
 * message about the first such value. Errors: LS_EDATA (an unknown value, if prep->unknown says so;
 * the message names the column). */
int ls_prep_ready(const ls_prep *prep, const void *raw, bool wide, float *ready, size_t count,
                  ls_prep_found *found, ls_error *err);

/* Converts value number `i` of a raw row of an array, which has `count` values, to the number that
 * the network reads. `prep` NULL: nothing is replaced or scaled. Returns false if the value is
 * unknown: NaN without a replacement, infinite, or not held by a float, as it is or once it is
 * scaled. */
bool ls_prep_value(const ls_prep *prep, double raw, size_t i, size_t count, float *ready);

/* Returns the column to which float `i` of a row of a table belongs, or, of a column of dates, its
 * part. */
const ls_prep_column *ls_prep_feature(const ls_prep *prep, int i);

/* Returns the divisor of a scale. A deviation of 0 is that of equal rows. */
static inline double ls_prep_divisor(double deviation)
{
    return deviation > 0 ? deviation : 1;
}

/* Sets the scale of a row's values in `count` channels, whose means and deviations are copied.
 * Errors: LS_ENOMEM. */
int ls_prep_scale_values(ls_prep *prep, const double *mean, const double *deviation, int count,
                         ls_error *err);

/* ---- targets; if `prep` is NULL, nothing is scaled ------------------------------------------ */

/* Sets the scale of the `count` targets of a row, whose means and deviations are copied. Errors:
 * LS_ENOMEM. */
int ls_prep_scale_targets(ls_prep *prep, const double *mean, const double *deviation, int count,
                          ls_error *err);
/* Converts target number `i` of a row from its own unit to the scaled value that the network
 * learns. `i` may also be the index of the target among those of several rows. */
float ls_prep_target(const ls_prep *prep, size_t i, double value);
/* Converts output number `i` of a row from the scaled value to the unit of the target. */
double ls_prep_output(const ls_prep *prep, size_t i, float value);
/* Returns the factor by which the mean of the absolute errors of scaled outputs becomes one in the
 * unit of the targets. It is 1 if several targets have different deviations; the mean error is then
 * one of the scaled targets. */
double ls_prep_error_unit(const ls_prep *prep);

#endif
