/* SPDX-License-Identifier: MIT */
/* The table of the config's keys, one row each: reading and writing a config, the comparison of
 * recipes, `trainer --help config` and docs/config.md use it. */
#ifndef CONFIG_KEYS_H
#define CONFIG_KEYS_H

#include "json/fields.h"
#include "json/writer.h"

struct ls_config;

/* Type of a key's value. To add a key, add a row, a member of ls_config, and the code that uses it.
 * Reading and writing a config, the comparison of recipes, `trainer --help config` and
 * docs/config.md use the rows. */
typedef enum ls_key_kind {
    LS_KEY_INT,    /* int from `min` to `max` */
    LS_KEY_NUMBER, /* double from `min` to `max` */
    LS_KEY_BOOL,   /* an int in ls_config that is 0 or 1, not a bool */
    /* const char *, which belongs to the document; if the key is absent, the row's default `text`,
     * which may be NULL. */
    LS_KEY_TEXT,
    LS_KEY_CHOICE, /* an int in ls_config: the index of the value in `choices` */
    LS_KEY_CUSTOM  /* any other type, which the row's functions `read` and `write` handle */
} ls_key_kind;

/* Whether a key belongs to the recipe, that is, whether the final weights depend on it. */
typedef enum ls_key_part {
    /* no: the key is about devices, output, how often a run evaluates or saves, or failures */
    LS_NOT_RECIPE,
    LS_RECIPE, /* yes */
    /* yes if the schedule depends on the length of the run (cosine or one_cycle), else no */
    LS_RECIPE_OF_LENGTH,
    /* Yes; predictions with the weights depend on it as well, so every file of weights contains the
     * key. */
    LS_RECIPE_OF_MODEL
} ls_key_part;

typedef struct ls_config_key ls_config_key;

/* A key of the config: one row of the table. */
struct ls_config_key {
    const char *object; /* name of the object that contains the key; "": the config itself */
    const char *key;
    ls_key_kind kind;
    ls_key_part part;
    size_t at;       /* offset of the value in ls_config */
    double fallback; /* default of numbers, flags and choices */
    double min, max;
    /* Default of a text; for LS_KEY_CUSTOM, the default as the documentation shows it. */
    const char *text;
    const char *const *choices;
    /* Functions for LS_KEY_CUSTOM. `read` receives the key's value as `node`, NULL if the key is
     * absent, and then sets the default, whatever the value was before. It is not called after an
     * error in an earlier key. */
    void (*read)(struct ls_config *config, ls_fields *fields, const ls_config_key *row,
                 const cJSON *node);
    void (*write)(ls_json_writer *w, const struct ls_config *config, const ls_config_key *row);
    /* LS_KEY_TEXT: checks the key's value `node`, a text; NULL: any text is allowed */
    void (*check)(ls_fields *fields, const ls_config_key *row, const cJSON *node);
    const char *help; /* description in Markdown, one or two sentences */
    /* Name of the key in version 0.2 and before, which the config.json of an old run may contain;
     * NULL: the key had the same name. */
    const char *former;
    /* true: The key names a file, or says how the first weights come about. Such a key of the
     * recipe decides with what the steps begin; no step depends on it otherwise
     * (checkpoint/chain.h). */
    bool begins;
    /* true: The key decides after which epochs and by which metrics the run is evaluated, or when
     * the run ends. A receipt contains such a key, because the evaluations depend on it
     * (train/receipt.h). */
    bool judges;
};

/* All rows. The rows of an object are adjacent. The last row has the key NULL. */
extern const ls_config_key ls_config_keys[];

/* Returns a key's default as it would be written in a config; "required" or "" (none) if it has no
 * default. The result is static text, or `out`. */
const char *ls_config_default(char out[32], const ls_config_key *row);

#endif
