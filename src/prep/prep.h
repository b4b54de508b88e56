/* How a user's row becomes the floats that a network reads: one description for training, evaluation,
 * prediction and export, kept with the weights as `preparation` in the model's card (config/card.h):
 *
 *     {"version": 1, "rows": "table", "target": "species", "columns": [
 *         {"name": "mass", "mean": 4207.1, "deviation": 803.4, "missing": 4207.1, "decimal": ","},
 *         {"name": "island", "levels": ["Biscoe", "Dream"], "missing": 0}]}
 *     {"version": 1, "rows": "images", "fit": "cover"}
 *     {"version": 1, "rows": "array", "type": "f32", "divisor": 1, "layout": "channels_last", "missing": 0}
 *
 * With `target_mean` and `target_deviation` the network has learnt (target − mean) / deviation of its one target. What it
 * gives, and errors of it, are given back in the target's own unit.
 *
 * A row of a table has the floats of its columns in their order: one for a column of numbers, one for each level
 * of a column of texts, of which the level's own is 1 and the others are 0. A *raw* row has numbers as they are
 * in the user's file, NaN where one is missing; a *ready* row is what the network reads. Rows of images and of
 * arrays are as long as the model's input says, and ready but for what is missing.
 */
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

/* A name, and the place of what it names. */
typedef struct ls_prep_name {
    const char *text;
    int place;
} ls_prep_name;

typedef struct ls_prep_column {
    char *name;
    int levels;           /* 0: its values are numbers */
    char **level;         /* [levels]: the texts, in the order of their floats */
    ls_prep_name *sorted; /* [levels]: by text */
    int first;            /* its first float in a row */
    bool fills;    /* a missing value becomes `missing`, of levels all 0; else it is refused */
    float missing; /* before it is scaled */
    bool scaled;   /* a number becomes (number − mean) / deviation */
    double mean, deviation; /* 0 and 1 where it is not scaled */
    char decimal; /* of its numbers, where the training table told: '.' or ','; 0: it did not */
} ls_prep_column;

typedef struct ls_prep {
    const ls_host *host;
    ls_prep_kind kind;
    /* ---- of a table */
    ls_prep_column *column;
    int columns;
    ls_prep_name *sorted; /* [columns]: by name */
    int features;         /* floats of a row */
    char *target;         /* the column that was learnt; NULL: not known */
    char target_decimal;  /* of its numbers, as above */
    bool latin1;          /* texts of files that are not UTF-8 are Windows-1252 */
    /* ---- of what is learnt: 0 and 1 where it is not scaled */
    bool target_scaled;
    double target_mean, target_deviation;
    /* ---- of an array */
    char type[16];      /* of its numbers, as in its file: "u8", "f32"; "": not known */
    int divisor;        /* of its numbers: 255 for bytes, else 1 */
    bool channels_last; /* rows are [height][width][channels] in its file */
    float *
        fill; /* [fills]: what missing numbers become: all the same, or one for each place of a row */
    int fills; /* 0: they are refused */
} ls_prep;

/* ---- making --------------------------------------------------------------------------------------- */

/* A description without columns, of divisor 1. Errors: LS_ENOMEM. */
int ls_prep_create(ls_prep **out, ls_prep_kind kind, const ls_host *host, ls_error *err);
void ls_prep_free(ls_prep *prep); /* NULL is allowed */

/* Adds a column of numbers, which the caller may scale or fill, or of `levels` texts. Texts are copied; bytes of
 * them that are no UTF-8 become U+FFFD, as in files. Errors: LS_ENOMEM. */
int ls_prep_add(ls_prep *prep, const char *name, const char *const *level, int levels,
                ls_error *err);
/* Behind the last column: finds names, and where each column's floats are. Errors: LS_EDATA (two columns of one
 * name, two equal levels, too many floats), LS_ENOMEM. */
int ls_prep_finish(ls_prep *prep, ls_error *err);

/* Whether names differ once bytes of them that are no UTF-8 have become U+FFFD, as in files. `what` they name is
 * for the message: "class". Errors: LS_EDATA, LS_ENOMEM. */
int ls_prep_check_names(const char *const *name, int count, const char *what, const ls_host *host,
                        ls_error *err);
/* Whether `text` is `name`, in which U+FFFD stands for bytes that are no UTF-8, in whatever form of Unicode each is: an é
 * may be one character, or an e and its accent. */
bool ls_prep_is_name(const char *name, const char *text);

/* ---- in a file ------------------------------------------------------------------------------------ */

/* How many values of JSON it has, at the most. */
size_t ls_prep_values(const ls_prep *prep);
/* Writes it as a member `key`. */
void ls_prep_write(ls_json_writer *w, const char *key, const ls_prep *prep);

/* Reads one for rows of `input` numbers, floats or bytes. Errors: LS_ECONFIG with line and column, LS_ENOMEM. */
int ls_prep_read(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input, bool floats,
                 const ls_host *host, ls_error *err);
/* What files of older versions say of a table: an array of an object for each float of a row,
 * {"column": TEXT, "is": TEXT}, {"column": TEXT} or {"column": TEXT, "mean": N, "deviation": N}. Errors: as above. */
int ls_prep_read_features(ls_prep **out, const ls_json *doc, const cJSON *node, size_t input,
                          const ls_host *host, ls_error *err);

/* ---- applying ------------------------------------------------------------------------------------- */

/* The column of that name, or −1. Of `levels`, the place of a text: the text itself, in whatever form of Unicode, or the
 * only one that is the same number; or −1. */
int ls_prep_find(const ls_prep *prep, const char *name);
int ls_prep_level(const ls_prep_column *column, const char *text);

/* A column's number → what the network reads, NaN being what is missing. False: it is missing, and nothing fills it. */
bool ls_prep_number(const ls_prep_column *column, float raw, float *ready);

/* Puts a column's value into a raw row: a text (or, where that is NULL, a number) as it is in a user's file.
 * Errors: LS_EDATA with "column "NAME": expected …, found …" behind `place` ("FILE:LINE: "). In the C locale. */
int ls_prep_put(const ls_prep *prep, int column, const char *text, double number, float *row,
                const char *place, ls_error *err);

/* Whether ls_prep_ready does anything. */
bool ls_prep_acts(const ls_prep *prep);
/* A raw row of floats → a ready one, of `count` floats; both may be one. Errors: LS_EDATA, naming the column. */
int ls_prep_ready(const ls_prep *prep, const float *raw, float *ready, size_t count, ls_error *err);

/* Of float `i` of a row: ready = (raw − *mean) / *deviation. 0 and 1 where it is as it is. */
void ls_prep_feature(const ls_prep *prep, int i, double *mean, double *deviation);

/* ---- targets: `prep` may be NULL, and then nothing is scaled --------------------------------------- */

/* A target in its own unit → what the network learns. */
float ls_prep_target(const ls_prep *prep, float value);
/* What the network gives → values in the target's unit, in place. */
void ls_prep_give_back(const ls_prep *prep, float *outputs, size_t count);
/* A mean error of the network's outputs → that of the values: a mean of squares, or of absolute errors. */
double ls_prep_squared_error(const ls_prep *prep, double error);
double ls_prep_absolute_error(const ls_prep *prep, double error);

#endif
