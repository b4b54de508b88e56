/* The keys of a config: one row each. Reading, the resolved config, the comparison at a resume,
 * `trainer --help config` and the table in the documentation come from this list. A new key is a row
 * here, a member of ls_config, and its use. */
#ifndef TRAIN_CONFIG_ROWS_H
#define TRAIN_CONFIG_ROWS_H

#include "train/config.h"
#include "json/fields.h"

typedef enum ls_key_kind {
    LS_KEY_INT,    /* an int, from `min` to `max` */
    LS_KEY_NUMBER, /* a double, from `min` to `max` */
    LS_KEY_BOOL,   /* an int */
    LS_KEY_TEXT,   /* a const char *, of the document; absent: `text`, which may be NULL */
    LS_KEY_CHOICE, /* an int, the index of a word in `choices` */
    LS_KEY_FORM    /* `form` reads and writes it */
} ls_key_kind;

/* Whether the weights that come out depend on it: a run that goes on must have the same recipe. */
typedef enum ls_key_part {
    LS_PLACEMENT,    /* no: it says where, how often, how it is watched */
    LS_RECIPE,       /* yes */
    LS_RECIPE_OF_END /* where the learning rate depends on how long the run is */
} ls_key_part;

typedef struct ls_config_key ls_config_key;

/* A key whose value has a form of its own. */
typedef struct ls_config_form {
    void (*read)(ls_config *config, ls_fields *fields, const ls_config_key *row);
    void (*write)(ls_json_writer *w, const ls_config *config, const ls_config_key *row);
} ls_config_form;

struct ls_config_key {
    const char *group; /* the object that it is in; "": the config itself */
    const char *key;
    ls_key_kind kind;
    ls_key_part part;
    size_t at;       /* where its value lies in ls_config */
    double fallback; /* of numbers, flags and choices */
    double min, max;
    const char *text; /* the default of a text; of a form, how the documentation shows it */
    const char *const *choices;
    const ls_config_form *form;
    const char *help; /* a sentence or two, in Markdown */
};

/* The rows, those of a group one behind the other; ends with a row whose key is NULL. */
extern const ls_config_key ls_config_keys[];

/* A key's default as it would stand in a config; "required" or "" (none) where there is none. Static
 * text, or `out`. */
const char *ls_config_default(char out[32], const ls_config_key *row);

#endif
