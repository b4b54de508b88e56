/* What a file of weights says of its model, so that nothing else is needed to predict with it: a JSON text
 * in the metadata of every safetensors file that a run writes,
 *
 *     {"schema": 1, "input": [1, 28, 28], "floats": false, "classes": 10, "targets": false,
 *      "class_names": […], "features": […], "preparation": {…}, "recipe": {…}}
 *
 * in which `floats` says what rows are made of, `targets` that the outputs are numbers and no classes, `preparation` how a user's
 * rows become these (prep/prep.h), and the recipe is what of a config a prediction depends on: model, preprocessing, loss.
 */
#ifndef CONFIG_CARD_H
#define CONFIG_CARD_H

#include "config/config.h"
#include "nn/model.h"

/* Puts what there is to say into `model`, whose files then say it. `class_name` as in ls_dataset_about,
 * `features` and `prep` as in ls_dataset_info. Errors: LS_EDATA (two classes of one name; more than a file can
 * hold), LS_ENOMEM. */
int ls_card_write(ls_model *model, const ls_config *config, const char *const *class_name,
                  const char *features, const ls_prep *prep, const ls_host *host, ls_error *err);

typedef struct ls_card {
    ls_config config; /* the recipe, fitted to the data; what else a config has is the default */
    ls_shape input;
    int classes;
    const cJSON *names;    /* an array of `classes` texts, or NULL */
    const cJSON *features; /* an array, or NULL */
    /* How rows are prepared, also of a file that does not say it: of floats with features as a table, of bytes of
     * images as these, else as an array. */
    ls_prep *prep;
    bool prepared; /* the file does say it */
} ls_card;

/* Reads that of a file. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA when the file is damaged, or has
 * none. */
int ls_card_read(ls_card *out, const char *path, const ls_host *host, ls_error *err);
/* Reads a text, which messages call `name`. Errors: LS_EDATA, LS_ENOMEM. */
int ls_card_parse(ls_card *out, const char *name, const char *text, const ls_host *host,
                  ls_error *err);
void ls_card_fini(ls_card *card); /* a zeroed one is allowed */

/* The model of the file that the card was read from, and its weights, for the caller to free. Errors: as
 * above. */
int ls_card_load(ls_model **model, float **weights, const ls_card *card, const char *path,
                 ls_error *err);

/* Of a model; NULL when it has none. */
const char *ls_card_class_name(const ls_card *card, int label);

#endif
