/* SPDX-License-Identifier: MIT */
/* Opens a trained model: finds the files of its run, reads its config, weights and card
 * (config/card.h), and opens data. */
#include "model/trained.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "checkpoint/checkpoint.h"
#include "data/folder.h"
#include "data/kinds.h"
#include "formats/arrays.h"
#include "nn/safetensors.h"

#include <lockstep/sys/trainer.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- finding the files ----------------------------------------------------------------------- */

int ls_run_find(char **out, const char *name, ls_run_needs needs, const ls_host *host,
                ls_error *err)
{
    struct stat st;
    return strcmp(name, "latest") == 0 && stat(name, &st) != 0
               ? ls_run_latest(out, needs, host, err)
               : ls_path_copy(out, name, host, err);
}

static bool is_newer(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec != b->st_mtim.tv_sec ? a->st_mtim.tv_sec > b->st_mtim.tv_sec
                                                  : a->st_mtim.tv_nsec > b->st_mtim.tv_nsec;
}

/* Replaces *weights by the path of the newest complete checkpoint if that checkpoint is newer than
 * the final weights. `final`: stat() of the final weights; NULL: there are none. */
static int use_checkpoint(char **weights, const char *dir, const struct stat *final,
                          const ls_host *host, ls_error *err)
{
    struct stat st;
    ls_error why;
    char *path, *state, parent[LS_PATH_BYTES];
    int status = ls_checkpoints_latest(&path, &state, ls_path_join(parent, dir, "checkpoints"),
                                       false, host, &why);
    ls_free(host, state);
    if (status && final)
        return LS_OK; /* if there are final weights, a checkpoint that cannot be read is ignored */
    if (status == LS_ENOENT)
        return ls_fail(err, status,
                       "%.300s: the run has neither weights.safetensors nor a checkpoint; it was "
                       "stopped too early, or is still in its first epoch",
                       dir);
    if (status)
        return ls_fail(err, status, "%s", why.text);
    if (final && (stat(path, &st) != 0 || !is_newer(&st, final))) {
        ls_free(host, path);
        return LS_OK;
    }
    ls_free(host, *weights);
    *weights = path;
    return LS_OK;
}

/* Finds the files in the directory of a run, which contains config.json. */
static int find_in_run(char **weights, char **config, const char *dir, bool best,
                       const ls_host *host, ls_error *err)
{
    struct stat st;
    char path[LS_PATH_BYTES];
    int status = ls_path_copy(config, ls_path_join(path, dir, "config.json"), host, err);
    if (status)
        return status;
    if (best)
        return ls_checkpoints_best(weights, ls_path_join(path, dir, "checkpoints"), host, err);
    const bool final = stat(ls_path_join(path, dir, "weights.safetensors"), &st) == 0;
    if (final)
        status = ls_path_copy(weights, path, host, err);
    return status ? status : use_checkpoint(weights, dir, final ? &st : NULL, host, err);
}

/* If `path` is a checkpoint RUN/checkpoints/step-….safetensors, finds the config of the run RUN. */
static void find_run_of(char **config, const char *path, const ls_host *host)
{
    struct stat st;
    uint64_t steps;
    char dir[LS_PATH_BYTES] = ".", file[LS_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
    if (ls_checkpoint_is_named(path, &steps) &&
        stat(ls_path_join(file, dir, "../config.json"), &st) == 0)
        *config = ls_strdup(host, file);
}

/* Returns whether the caller has given a config: a file, or the text from a pipe. */
static bool is_given(const ls_trainer_options *o)
{
    return o->config_path || o->config_text;
}

static int find_files(char **weights, char **config, const ls_trained_options *o, ls_error *err)
{
    struct stat st, unused;
    char config_path[LS_PATH_BYTES];
    const char *path = o->path;
    if (stat(path, &st) != 0)
        return ls_fail(err, LS_ENOENT,
                       "%.300s: no such file or directory; expected a run's directory, such as "
                       "runs/<time>-<name>, or a .safetensors file",
                       path);
    if (S_ISDIR(st.st_mode) && stat(ls_path_join(config_path, path, "config.json"), &unused) == 0)
        return find_in_run(weights, config, path, o->best, o->trainer.host, err);
    if (S_ISDIR(st.st_mode))
        return ls_fail(err, LS_ENOENT,
                       "%.300s: expected a run's directory, but it has no config.json; runs lie in "
                       "runs/<time>-<name>",
                       path);
    if (o->best)
        return ls_fail(err, LS_EINVAL,
                       "%.300s: --best chooses among a run's checkpoints: name its directory",
                       path);
    if (!is_given(&o->trainer))
        find_run_of(config, path, o->trainer.host);
    return ls_path_copy(weights, path, o->trainer.host, err);
}

/* ---- opening -------------------------------------------------------------------------------- */

static const char *show_rows(char out[96], const ls_dataset_info *i)
{
    snprintf(out, 96, "%d×%d×%d %s with %d %s", i->channels, i->height, i->width,
             i->row_type == LS_ROW_F32 ? "floats" : "bytes", i->targets ? i->targets : i->classes,
             i->targets ? "targets" : "classes");
    return out;
}

/* Returns the description of the rows that the model reads. */
static ls_dataset_info rows_of(const ls_card *c)
{
    const ls_gather *p = &c->config.preprocessing;
    return (ls_dataset_info){.channels = c->input.c,
                             .height = c->input.h,
                             .width = c->input.w,
                             .classes = p->targets ? 0 : c->classes,
                             .targets = p->targets,
                             .row_type = p->floats ? LS_ROW_F32 : LS_ROW_U8};
}

/* Checks that the opened data has rows of the shape and type that the card describes. The check is
 * needed because the devices read the rows as the card says, and the file with the card can contain
 * anything. */
static int check_rows(const ls_trained *t, const char *new_data, ls_error *err)
{
    char mine[96], theirs[96];
    const ls_dataset_info model = rows_of(&t->card);
    for (int s = 0; s < LS_SUBSETS; s++) {
        const ls_dataset_info *data = t->data[s] ? ls_dataset_describe(t->data[s]) : &model;
        if (strcmp(show_rows(mine, &model), show_rows(theirs, data)) != 0)
            return ls_fail(err, LS_EDATA,
                           "%.200s: the model reads rows of %s; the rows of %.200s (%s) are "
                           "%s; %s",
                           t->weights_path, mine, new_data ? new_data : data->name, data->split,
                           theirs,
                           new_data ? "give rows as those that it was trained on"
                                    : "name a config with the model's data: --config CONFIG");
    }
    return LS_OK;
}

/* For weights of another program, which have no card: determines the shape of a row and the
 * classes, from the opened data or from what is known about the dataset by its name. */
static int infer_card(ls_trained *t, ls_network **model, ls_error *err)
{
    const ls_dataset_about *about;
    int status = ls_config_find_data(&about, &t->config, err);
    if (status)
        return status;
    ls_shape input = {about->channels, about->height, about->width};
    int classes = about->classes;
    const char *const *names = about->class_name;
    const ls_dataset_info *train =
        t->data[LS_TRAIN] ? ls_dataset_describe(t->data[LS_TRAIN]) : NULL;
    if (train) {
        input = (ls_shape){train->channels, train->height, train->width};
        classes = ls_config_outputs(&t->config, train);
        names = train->class_name ? train->class_name : names;
    }
    if (train)
        status = ls_config_fit_data(&t->config, train, 0, err);
    if (status == LS_OK)
        status = ls_network_parse(model, ls_config_model_doc(&t->config), t->config.model, input,
                                  classes, t->host, err);
    if (status == LS_OK)
        status = ls_card_write(*model, &t->config, names, train ? train->features : NULL,
                               train ? train->prep : NULL, t->host, err);
    return status ? status : ls_card_parse(&t->card, "card", (*model)->card, t->host, err);
}

/* Creates the model that the config describes, for rows that the card describes. */
static int parse_model(ls_trained *t, ls_error *err)
{
    const ls_dataset_info rows = rows_of(&t->card);
    int status = ls_config_fit_data(&t->config, &rows, 0, err);
    if (status == LS_OK)
        status = ls_network_parse(&t->model, ls_config_model_doc(&t->config), t->config.model,
                                  t->card.input, t->card.classes, t->host, err);
    return status ? status : ls_card_keep(t->model, t->weights_file, t->host, err);
}

static int open_model(ls_trained *t, ls_error *err)
{
    if (t->config_in_card)
        return ls_card_load(&t->model, &t->weights, &t->card, t->weights_file, err);
    int status = t->card.config.doc ? parse_model(t, err) : infer_card(t, &t->model, err);
    /* which layers are fused into one op depends on which are frozen, and with bf16 fusion changes
     * the rounding */
    if (status == LS_OK)
        status = ls_config_set_rates(t->model, &t->config, false, err);
    if (status)
        return status;
    t->weights = ls_alloc_array(t->host, t->model->floats, sizeof *t->weights);
    if (!t->weights)
        return ls_fail(err, LS_ENOMEM, "out of memory for %zu parameters", t->model->floats);
    return ls_safetensors_read(t->weights, t->weights_file, t->model, "", t->host, err);
}

/* Returns whether the user has set the key of `data`, alone or with all of `data`, in addition to
 * the run's config. NULL: any key of `data`. */
static bool sets_data(const ls_trained *t, const char *key)
{
    const ls_json *doc = t->config.doc;
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "data");
    return ls_json_is_set(doc, key ? cJSON_GetObjectItemCaseSensitive(data, key) : data);
}

/* Fills in t->input_format: how the model reads rows. */
static int describe_rows(ls_trained *t, ls_error *err)
{
    const ls_dataset_info rows = rows_of(&t->card);
    t->input_format =
        (ls_input_format){.prep = t->card.prep,
                          .channels = rows.channels,
                          .height = rows.height,
                          .width = rows.width,
                          .floats = rows.row_type == LS_ROW_F32,
                          .classes = rows.classes,
                          .targets = rows.targets,
                          .target = t->config_in_card ? NULL : t->config.data_keys.target.text,
                          .split = "test",
                          .host = t->host};
    if (t->card.prep && sets_data(t, "unknown"))
        t->card.prep->unknown = (ls_prep_unknown)t->config.data_keys.unknown;
    if (!t->card.names || rows.targets)
        return LS_OK;
    t->class_name = ls_alloc_array(t->host, (size_t)rows.classes, sizeof *t->class_name);
    if (!t->class_name)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d classes", rows.classes);
    const cJSON *name = t->card.names->child;
    for (int i = 0; i < rows.classes && name; i++, name = name->next)
        t->class_name[i] = name->valuestring;
    t->input_format.class_name = t->class_name;
    return LS_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Returns the form of the data that the config names. */
static ls_dataset_form form_of(const ls_trained *t)
{
    return ls_dataset_form_of(t->config.data_name);
}

/* Returns whether the shape of the data is known only after it is opened, as for the user's own
 * data. */
static bool is_unknown(const ls_config *c)
{
    const ls_dataset_about *about;
    return ls_config_find_data(&about, c, NULL) == LS_OK && about->channels == 0;
}

/* Sets the data keys so that labels in arrays and tables mean the model's classes, even if not all
 * of these classes occur in the data. */
static void fit_keys(ls_trained *t)
{
    ls_data_keys *k = &t->config.data_keys;
    if (!t->card.config.doc || (form_of(t) != LS_DATA_ARRAYS && form_of(t) != LS_DATA_TENSORS))
        return;
    k->classes = t->input_format.targets ? 0 : t->input_format.classes;
    k->labels = t->input_format.targets ? LS_LABELS_VALUES : LS_LABELS_CLASSES;
    k->layout = t->card.prep && t->card.prep->channels_last ? LS_CHANNELS_LAST : LS_CHANNELS_FIRST;
}

static int open_configured(ls_trained *t, const ls_trained_options *o, ls_error *err)
{
    t->config.data_keys.keep_test = 1;
    t->config.data_keys.origins = 1;
    /* A table is read as rows of the trained model if the model's card has the preparation and the
     * name of the target. */
    const bool table = t->card.prep && t->card.prep->kind == LS_PREP_TABLE &&
                       (t->input_format.target || t->card.prep->target);
    const bool array = t->card.prep && t->card.prep->kind == LS_PREP_ARRAY;
    if (table || array)
        t->config.data_keys.input_format = &t->input_format;
    fit_keys(t);
    return ls_config_open_data(&t->data[LS_TRAIN], &t->data[LS_TEST], &t->config, !o->training_rows,
                               &o->trainer, err);
}

/* Returns how missing numbers in arrays are treated, according to the model's preparation. */
static int filling_of(const ls_prep *p)
{
    if (p->kind != LS_PREP_ARRAY || p->fills == 0)
        return LS_MISSING_REFUSED;
    return p->fills == 1 && p->fill[0] == 0 ? LS_MISSING_ZERO : LS_MISSING_MEAN;
}

/* Chooses the names of the arrays in new data: those in the run's config if the new files are of
 * the same kind, else the default names. */
static void name_arrays(ls_trained *t, const char *new_data)
{
    ls_data_keys *k = &t->config.data_keys;
    const bool tensors = ls_path_ends_with(new_data, ".safetensors"),
               archive = ls_path_is_npz(new_data);
    const bool npy = !t->config_in_card && form_of(t) == LS_DATA_ARRAYS;
    const bool same =
        npy && archive == (t->config.data_path && ls_path_is_npz(t->config.data_path));
    if (!t->config_in_card && form_of(t) == LS_DATA_TENSORS)
        return;
    if (!npy)
        t->config.data_name =
            tensors ? ls_dataset_safetensors.about.name : ls_dataset_npy.about.name;
    if (!same)
        k->x = k->y = k->test_x = k->test_y = NULL;
    if (!same && !archive && form_of(t) != LS_DATA_TENSORS) {
        k->x = "x.npy";
        k->y = "y.npy";
    }
}

/* Opens new arrays or tensors. All rows become test rows, unless the data has test rows of its
 * own. */
static int open_new_arrays(ls_trained *t, const ls_trained_options *o, ls_error *err)
{
    ls_data_keys *k = &t->config.data_keys;
    name_arrays(t, o->new_data);
    k->missing = filling_of(t->card.prep);
    k->validation = 0;
    t->config.data_limit = (int)t->input_format.limit;
    t->config.data_path = o->new_data;
    int status = open_configured(t, o, err);
    if (status || o->training_rows || ls_dataset_describe(t->data[LS_TEST])->rows > 0)
        return status;
    ls_dataset *all = t->data[LS_TRAIN];
    t->data[LS_TRAIN] = t->data[LS_TEST];
    t->data[LS_TEST] = all;
    return LS_OK;
}

static int open_new_table(ls_dataset **out, const ls_trained *t, const char *path, ls_error *err)
{
    ls_input_format format = t->input_format;
    format.weight = t->config.data_keys.weight;
    format.may_lack_weight = true;
    int status = ls_new_rows_open_csv(out, &format, path, err);
    if (status == LS_OK)
        status = ls_dataset_scale_targets(*out, t->card.prep, t->host, err);
    return status;
}

static int open_new_data(ls_trained *t, const ls_trained_options *o, ls_error *err)
{
    const ls_dataset_about *about;
    const bool own = t->config_in_card || (ls_config_find_data(&about, &t->config, NULL) == LS_OK &&
                                           about->channels == 0);
    t->input_format.labelled = true;
    if (form_of(t) == LS_DATA_GENERATED)
        return ls_fail(err, LS_EINVAL,
                       "%.300s: the run's data are generated, so no file can take their place; "
                       "name a data set that has files: --set data.name=mnist --set "
                       "data.path=DIRECTORY",
                       o->new_data);
    if (!own) { /* a built-in dataset: new_data is the directory of its files */
        t->config.data_path = o->new_data;
        return open_configured(t, o, err);
    }
    ls_dataset **out = &t->data[o->training_rows ? LS_TRAIN : LS_TEST];
    if (t->card.prep->kind == LS_PREP_TABLE)
        return open_new_table(out, t, o->new_data, err);
    if (form_of(t) == LS_DATA_FOLDER || (t->config_in_card && t->input_format.class_name &&
                                         !t->input_format.floats && ls_is_directory(o->new_data))) {
        ls_folder_desc p = t->folder;
        p.folder = o->new_data;
        return ls_folder_read(out, &t->input_format, &p, o->training_rows, t->host, err);
    }
    return open_new_arrays(t, o, err);
}

static int open_own_data(ls_trained *t, const ls_trained_options *o, ls_error *err)
{
    if (form_of(t) == LS_DATA_FOLDER) {
        int status = ls_config_pack_again(&t->config, &o->trainer, &t->input_format,
                                          sets_data(t, "path"), err);
        if (status)
            return status;
    }
    int status = open_configured(t, o, err);
    const char *path = t->config.data_path, *test = t->config.data_keys.test_path;
    const bool of_test = test && path && access(path, F_OK) == 0;
    if (status == LS_ENOENT && path && t->card.prep)
        return ls_fail(err, status,
                       "%.300s: the run's data are not there; name where they are now: --set "
                       "data.%s=WHERE; eval and predict also take other rows: --data WHERE",
                       of_test ? test : path, of_test ? "test_path" : "path");
    return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Reads the config: the one that was given, or that of the run; else the card in the file of
 * weights. */
static int read_config(ls_trained *out, const char *config, const ls_trained_options *o,
                       ls_error *err)
{
    const ls_trainer_options options = o->trainer;
    const bool known = ls_tensor_file_card(out->weights_file);
    int status = known ? ls_card_read(&out->card, out->weights_file, out->host, err) : LS_OK;
    if (status)
        return status;
    if (is_given(&options))
        return ls_config_read(&out->config, &options, err);
    if (config)
        return ls_config_read_of_run(&out->config, config, &options, err);
    if (o->trainer.set_count > 0)
        return ls_fail(err, LS_EINVAL,
                       "%.300s: --set needs a config, which a file of weights does not have; "
                       "name one: --config CONFIG",
                       out->weights_path);
    /* Without a card this call fails, and its error says why there is none. */
    if (!known)
        return ls_card_read(&out->card, out->weights_file, out->host, err);
    out->config_in_card = true;
    out->config = out->card.config;
    return LS_OK;
}

int ls_trained_open(ls_trained *out, const ls_trained_options *o, ls_error *err)
{
    char *config = NULL;
    const ls_host *host = o->trainer.host;
    *out = (ls_trained){
        .host = host, .cache_dir = o->trainer.cache_dir, .is_new = o->new_data != NULL};
    int status = find_files(&out->weights_path, &config, o, err);
    if (status == LS_OK)
        status = ls_tensor_file_open(&out->weights_file, out->weights_path, host, err);
    if (status == LS_OK)
        status = read_config(out, config, o, err);
    if (status == LS_OK && !is_given(&o->trainer))
        ls_config_find_beside(&out->config, config);
    if (status == LS_OK)
        status = ls_config_folder(&out->folder, &out->config, &o->trainer, err);
    const bool unknown = status == LS_OK && !out->card.config.doc && is_unknown(&out->config);
    if (unknown)
        status = open_own_data(out, o, err);
    if (status == LS_OK)
        status = open_model(out, err);
    if (status == LS_OK)
        status = describe_rows(out, err);
    out->folder.skip_broken = out->folder.skip_broken || o->skip_broken;
    out->input_format.skip_broken = o->skip_broken;
    out->input_format.skip_option = o->skip_option;
    for (int s = 0; unknown && o->new_data && s < LS_SUBSETS; s++) {
        ls_dataset_close(out->data[s]);
        out->data[s] = NULL;
    }
    if (status == LS_OK && o->needs_data && o->new_data)
        status = open_new_data(out, o, err);
    else if (status == LS_OK && o->needs_data && !unknown)
        status = open_own_data(out, o, err);
    if (status == LS_OK)
        status = check_rows(out, o->new_data, err);
    if (status == LS_OK && o->needs_data && !o->new_data && !sets_data(out, NULL))
        ls_warn_of_changed_data(out, o->path);
    ls_free(host, config);
    if (status)
        ls_trained_close(out);
    return status;
}

int ls_trained_view(ls_trained *out, const ls_card *card, ls_network *model, float *weights,
                    const ls_host *host, ls_error *err)
{
    const ls_trainer_options o = {.size = sizeof o, .host = host};
    *out = (ls_trained){.host = host,
                        .config = card->config,
                        .card = *card,
                        .config_in_card = true,
                        .model = model,
                        .weights = weights,
                        .is_new = true};
    int status = ls_config_folder(&out->folder, &out->config, &o, err);
    return status ? status : describe_rows(out, err);
}

int ls_trained_view_data(ls_trained *t, const char *path, ls_error *err)
{
    const ls_trained_options o = {.new_data = path,
                                  .trainer = {.size = sizeof o.trainer, .host = t->host}};
    int status = open_new_data(t, &o, err);
    return status ? status : check_rows(t, path, err);
}

void ls_trained_view_end(ls_trained *t)
{
    for (int s = 0; s < LS_SUBSETS; s++)
        ls_dataset_close(t->data[s]);
    ls_free(t->host, t->class_name);
}

void ls_trained_close(ls_trained *t)
{
    for (int s = 0; s < LS_SUBSETS; s++)
        ls_dataset_close(t->data[s]);
    ls_free(t->host, t->weights);
    ls_network_destroy(t->model, t->host);
    if (!t->config_in_card)
        ls_config_fini(&t->config);
    ls_card_fini(&t->card);
    ls_free(t->host, t->class_name);
    ls_free(t->host, t->weights_path);
    ls_tensor_file_close(t->weights_file);
    *t = (ls_trained){.host = t->host};
}

const ls_dataset_info *ls_trained_data(const ls_trained *t, bool train)
{
    const ls_dataset *data = t->data[train ? LS_TRAIN : LS_TEST];
    return data ? ls_dataset_describe(data) : NULL;
}

const char *ls_class_name(const ls_trained *t, int label)
{
    return t->class_name && label >= 0 && label < t->card.classes ? t->class_name[label] : NULL;
}
