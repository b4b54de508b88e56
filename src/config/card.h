/* SPDX-License-Identifier: MIT */
/* The *card* of a model: a JSON text that describes the model, in the metadata of every safetensors
 * file that a run writes. A prediction therefore needs only that file:
 *
 *     {"schema": 1, "input": [1, 28, 28], "floats": false, "classes": 10, "targets": false,
 *      "class_names": […], "features": […], "preparation": {…}, "recipe": {…}}
 *
 * `input` is the shape of a row. `floats`: rows are floats instead of bytes. `targets`: the outputs
 * are values instead of classes; `classes` is then the number of values. `preparation`: how a
 * user's rows become rows of the network (prep/prep.h). `recipe`: the keys of the config on which a
 * prediction depends: model, preprocessing, loss. A card to which a threshold was added also has
 * `threshold`, the probability from which a row is predicted positive (the second of two classes,
 * yes).
 */
#ifndef CONFIG_CARD_H
#define CONFIG_CARD_H

#include "config/config.h"
#include "formats/safetensors.h"
#include "nn/network.h"

/* Writes the card to model->card. Files of the model's weights that are written afterwards contain
 * it. `class_name` as in ls_dataset_about, `features` and `prep` as in ls_dataset_info. Errors:
 * LS_EDATA (two classes have the same name; the card is too long for a file), LS_ENOMEM. */
int ls_card_write(ls_network *model, const ls_config *config, const char *const *class_name,
                  const char *features, const ls_prep *prep, const ls_host *host, ls_error *err);

/* The contents of a card. */
typedef struct ls_card {
    /* the keys in `recipe`, and the values that depend on the data (ls_config_fit_data); all other
     * keys have their defaults */
    ls_config config;
    ls_shape input;        /* shape of a row */
    int classes;           /* number of classes, or of values if the outputs are values */
    const cJSON *names;    /* names of the classes: array of `classes` texts, or NULL */
    const cJSON *features; /* names of the features: array, or NULL */
    double threshold;      /* 0: the card has none, and the most probable class is predicted */
    /* Preparation of rows. If the card has no `preparation`, as in files of older versions, it is
     * inferred: rows of floats with feature names are taken for a table, rows of bytes with height
     * and width for images, and all others for arrays. */
    ls_prep *prep;
    bool has_preparation; /* true: the card has the key `preparation`; false: `prep` was inferred */
} ls_card;

/* Reads the card of a file. Logs a warning for each column of texts that an older version may have
 * trained with several numbers as one level (ls_level_was_rounded). Errors: LS_ENOMEM;
 * LS_EDATA if the file has no card or one that cannot be read. */
int ls_card_read(ls_card *out, const ls_tensor_file *file, const ls_host *host, ls_error *err);
/* Reads a card from a text, which messages call `name`. Errors: LS_EDATA, LS_ENOMEM. */
int ls_card_parse(ls_card *out, const char *name, const char *text, const ls_host *host,
                  ls_error *err);
/* Returns the text of a card with another threshold, or NULL if memory ran out or `card` is no JSON
 * object. The caller frees it. */
char *ls_card_with_threshold(const char *card, double threshold, const ls_host *host);
/* Frees the contents. A zeroed card is allowed. */
void ls_card_fini(ls_card *card);

/* Creates the model that the card describes, and reads its weights from the file from which
 * the card was read. The caller frees both. Errors: those of ls_card_read, LS_EIO. */
int ls_card_load(ls_network **model, float **weights, const ls_card *card,
                 const ls_tensor_file *file, ls_error *err);

/* Copies the card of a file to model->card, which becomes NULL if the file has none. Errors:
 * LS_ENOMEM. */
int ls_card_keep(ls_network *model, const ls_tensor_file *file, const ls_host *host, ls_error *err);

/* Returns the name of class `label`; NULL: it has none. */
const char *ls_card_class_name(const ls_card *card, int label);

#endif
