/* Preparation of rows: how a user's row becomes the floats that a network reads. Training,
 * evaluation, prediction and export use the same description. It is stored with the weights, as
 * `preparation` in the model's metadata (config/card.h):
 *
 *     {"version": 1, "rows": "table", "target": "species", "columns": [
 *         {"name": "mass", "mean": 4207.1, "deviation": 803.4, "clip": 10, "missing": 4207.1,
 *          "decimal": ","},
 *         {"name": "island", "levels": ["Biscoe", "Dream"], "missing": 0}]}
 *     {"version": 1, "rows": "images", "fit": "cover"}
 *     {"version": 1, "rows": "array", "type": "f32", "divisor": 1, "layout": "channels_last",
 *      "missing": 0}
 *
 * With `target_mean` and `target_deviation` the network has learnt (target − mean) / deviation of
 * its only target. Its outputs and their errors are converted back to the target's own unit.
 *
 * A row of a table consists of the floats of its columns, in order. A column of numbers has one
 * float. A column of texts has one float for each level: 1 for the level of the row, 0 for the
 * others. A *raw* row has the numbers of the user's file, NaN where one is missing. A *ready* row
 * is what the network reads. Rows of images and arrays have the length of the model's input and are
 * ready except for missing numbers. */
#ifndef PREP_PREP_H
#define PREP_PREP_H

#include "prep/number.h"
#include "json/json.h"

#include <stdbool.h>

enum {
    LS_PREP_COLUMNS = 65536,
    LS_PREP_FEATURES = 1 << 24 /* floats of a row */
};

typedef enum ls_prep_kind { LS_PREP_ARRAY, LS_PREP_TABLE, LS_PREP_IMAGES } ls_prep_kind;

/* A name and the index of what it names. */
typedef struct ls_prep_name {
    const char *text;
    int place;
} ls_prep_name;

typedef struct ls_prep_column {
    char *name;
    int levels;             /* 0: a column of numbers */
    char **level;           /* [levels]: the texts, in the order of their floats */
    ls_prep_name *sorted;   /* [levels]: sorted by text */
    int first;              /* index of its first float in a row */
    bool fills;             /* a missing value becomes `missing` (levels: all 0);
                               false: it is refused */
    float missing;          /* value before scaling */
    bool scaled;            /* a number becomes (number − mean) / deviation */
    double mean, deviation; /* 0 and 1 if not scaled */
    double clip;            /* a scaled number is limited to −clip … clip; 0: it is not */
    char decimal;           /* decimal separator in the training table: '.' or ','; 0: not known */
} ls_prep_column;

typedef struct ls_prep {
    const ls_host *host;
    ls_prep_kind kind;
    /* Fields of tables. */
    ls_prep_column *column;
    int columns;
    ls_prep_name *sorted; /* [columns]: sorted by name */
    int features;         /* floats of a row */
    char *target;         /* name of the target column; NULL: not known */
    char target_decimal;  /* decimal separator of the target, as in ls_prep_column */
    bool latin1;          /* files that are not UTF-8 are read as Windows-1252 */
    /* Scaling of the target: 0 and 1 if not scaled. */
    bool target_scaled;
    double target_mean, target_deviation;
    /* Fields of arrays. */
    char type[16];      /* type of the numbers in the file: "u8", "f32"; "": not known */
    int divisor;        /* divisor of the numbers: 255 for bytes, else 1 */
    bool channels_last; /* rows in the file are [height][width][channels] */
    float *fill;        /* [fills]: replacements for missing numbers */
    /* 1: one replacement for all; the length of a row: one for each of its numbers; 0: missing
     * numbers are refused */
    int fills;
} ls_prep;

/* ---- creating -------------------------------------------------------------------------------- */

/* Creates a description without columns and with divisor 1. The caller frees
 * *out. Errors: LS_ENOMEM. */
int ls_prep_create(ls_prep **out, ls_prep_kind kind, const ls_host *host, ls_error *err);
void ls_prep_free(ls_prep *prep); /* NULL is allowed */

/* Adds a column of numbers (levels 0), which the caller may then scale or fill, or a column of
 * `levels` texts. Texts are copied; their bytes that are invalid UTF-8 become U+FFFD, as in
 * files. Errors: LS_ENOMEM. */
int ls_prep_add(ls_prep *prep, const char *name, const char *const *level, int levels,
                ls_error *err);
/* Finishes a description after its last column: sorts the names and computes the columns'
 * places in a row. Errors: LS_EDATA (two columns with one name, two equal levels, too many
 * floats), LS_ENOMEM. */
int ls_prep_finish(ls_prep *prep, ls_error *err);

/* Checks that names differ, also after bytes that are invalid UTF-8 have become U+FFFD, as in
 * files. `what`: what they name, for messages: "class". Errors: LS_EDATA, LS_ENOMEM. */
int ls_prep_check_names(const char *const *name, int count, const char *what, const ls_host *host,
                        ls_error *err);
/* Returns whether `text` equals `name`, in which U+FFFD stands for bytes that are invalid
 * UTF-8. The two may be in different Unicode normal forms: an é may be one character, or an e
 * and a combining accent. */
bool ls_prep_is_name(const char *name, const char *text);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Returns an upper bound of the number of JSON values that ls_prep_write writes. */
size_t ls_prep_values(const ls_prep *prep);
/* Writes the description as a member `key`. */
void ls_prep_write(ls_json_writer *w, const char *key, const ls_prep *prep);

/* Reads a description for rows of `input` numbers: floats if `floats`, else bytes. The caller frees
 * *out. Errors: LS_ECONFIG with line and column, LS_ENOMEM. */
int ls_prep_read(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input, bool floats,
                 const ls_host *host, ls_error *err);
/* Reads the description of a table that older versions wrote: an array with an object for each
 * float of a row, {"column": TEXT, "is": TEXT}, {"column": TEXT} or {"column": TEXT, "mean": N,
 * "deviation": N}. The caller frees *out. Errors: those of ls_prep_read. */
int ls_prep_read_features(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input,
                          const ls_host *host, ls_error *err);

/* ---- applying -------------------------------------------------------------------------------- */

/* ls_prep_find returns the column with the name, or −1. ls_prep_level returns the index of a text
 * among the column's levels: that of the text itself, in any Unicode normal form, or of the only
 * level that is the same number; or −1. */
int ls_prep_find(const ls_prep *prep, const char *name);
int ls_prep_level(const ls_prep_column *column, const char *text);

/* Converts a column's raw number, NaN if missing, to what the network reads. Returns false if it is
 * missing and the column refuses that. */
bool ls_prep_number(const ls_prep_column *column, float raw, float *ready);

/* Writes a column's value to a raw row: `text` as in a user's file or, if it is NULL, `number`. The
 * thread must be in the "C" locale. Errors: LS_EDATA "PLACEcolumn "NAME": expected …, found …",
 * where `place` is "FILE:LINE: " or "". */
int ls_prep_put(const ls_prep *prep, int column, const char *text, double number, float *row,
                const char *place, ls_error *err);

/* Returns whether ls_prep_ready changes anything. */
bool ls_prep_acts(const ls_prep *prep);
/* Converts a raw row of `count` floats to a ready one; both may be the same array. Errors:
 * LS_EDATA, naming the column. */
int ls_prep_ready(const ls_prep *prep, const float *raw, float *ready, size_t count, ls_error *err);

/* Returns the column that float `i` of a row of a table belongs to. */
const ls_prep_column *ls_prep_feature(const ls_prep *prep, int i);

/* ---- targets; `prep` may be NULL, and then nothing is scaled --------------------------------- */

/* Converts a target in its own unit to what the network learns. */
float ls_prep_target(const ls_prep *prep, float value);
/* Converts outputs of the network to the target's unit, in place. */
void ls_prep_give_back(const ls_prep *prep, float *outputs, size_t count);
/* Convert a mean error of the network's outputs to the target's unit: a mean of squared errors, and
 * one of absolute errors. */
double ls_prep_squared_error(const ls_prep *prep, double error);
double ls_prep_absolute_error(const ls_prep *prep, double error);

#endif
