/* SPDX-License-Identifier: MIT */
/* The files that a verification reads, and whether the verifier has named them (verification.h). */
#include "train/verification.h"

#include "base/error.h"
#include "base/host.h"

#include <string.h>
#include <unistd.h>

/* The keys of a config that name files. The file of an ONNX model is not among them: config.json
 * has its layers instead, so the verifier always names it. */
static const struct {
    const char *object, *key, *name, *what;
} keys[] = {
    {"data", "path", "data.path", "the rows"},
    {"data", "test_path", "data.test_path", "the test rows"},
    {"data", "x", "data.x", "the training rows"},
    {"data", "y", "data.y", "the targets of the training rows"},
    {"data", "test_x", "data.test_x", "the test rows"},
    {"data", "test_y", "data.test_y", "the targets of the test rows"},
    {"init", "weights", "init.weights", "the first weights"},
};
_Static_assert(sizeof keys / sizeof *keys == LS_VERIFY_FILES, "one place for each key");

/* Returns whether the key's value is the path of a file. The four keys of arrays name files in
 * data.path, which counts for them, unless their paths lead elsewhere. */
static bool is_path(const ls_config *config, const char *key, const char *value)
{
    if (strncmp(key, "data.", 5) != 0 || strstr(key, "path"))
        return true;
    return ls_dataset_form_of(config->data_name) == LS_DATA_ARRAYS &&
           (!config->data_path || value[0] == '/' || strstr(value, ".."));
}

int ls_verify_files(ls_verify_file out[LS_VERIFY_FILES], const ls_config *config)
{
    int count = 0;
    for (size_t i = 0; i < LS_VERIFY_FILES; i++) {
        const cJSON *node = member(member(ls_json_root(config->doc), keys[i].object), keys[i].key);
        const char *path = cJSON_GetStringValue(node);
        if (path && is_path(config, keys[i].name, path))
            out[count++] = (ls_verify_file){.key = keys[i].name,
                                            .what = keys[i].what,
                                            .path = path,
                                            .named = ls_json_is_set(config->doc, node)};
    }
    for (int i = 1; i < count; i++)
        if (strcmp(out[0].key, "data.path") == 0 && strcmp(out[i].key, "data.test_path") == 0)
            out[0].what = "the training rows";
    return count;
}

/* Appends a line to the files of the prover, with at most `most` bytes of the path. Control
 * characters become '?', so that a path cannot look like two lines. */
static void add_line(char *text, size_t size, const ls_verify_file *f, int most)
{
    size_t used = strlen(text);
    const size_t start = used + (used > 0);
    snprintf(text + used, size - used, "%s%s=%.*s", used > 0 ? "\n" : "", f->key, most, f->path);
    for (used = start; text[used]; used++)
        if ((unsigned char)text[used] < ' ')
            text[used] = '?';
}

void ls_verify_list_files(verification *v)
{
    ls_verify_file file[LS_VERIFY_FILES];
    const int count = ls_verify_files(file, &v->trainer->config);
    for (int i = 0; i < count; i++)
        if (!file[i].named)
            add_line(v->verdict.prover_files, sizeof v->verdict.prover_files, &file[i],
                     count > 3 ? 250 : 500);
}

/* ---- files that are not there ---------------------------------------------------------------- */

/* Returns the key with which the verifier names the file that could not be opened; NULL: none of
 * them is missing. */
static const char *find_missing(const ls_config *config)
{
    ls_verify_file file[LS_VERIFY_FILES];
    const int count = ls_verify_files(file, config);
    for (int i = 0; i < count; i++)
        if (access(file[i].path, F_OK) != 0)
            return file[i].key;
    return NULL;
}

/* Returns whether a receipt alone lacks the path of the user's own data. */
static bool lacks_data(const verification *v, const ls_config *config)
{
    const ls_dataset_form form = ls_dataset_form_of(config->data_name);
    return !v->claim.run[0] && !config->data_path && form != LS_DATA_PUBLIC &&
           form != LS_DATA_GENERATED;
}

/* Returns whether training began with the weights of an ONNX file that nobody has named. */
static bool lacks_network(const ls_config *config)
{
    return !config->onnx && !config->init_weights && member(config->model, "source");
}

int ls_verify_say_missing(const verification *v, const ls_trainer_options *replay, int status,
                          ls_error *err)
{
    const ls_error why = *err;
    ls_config config;
    ls_error unread;
    if (ls_config_read(&config, replay, &unread) != LS_OK)
        return status;
    const char *key = status == LS_ENOENT ? find_missing(&config) : NULL,
               *what = ls_dataset_form_of(config.data_name) == LS_DATA_FOLDER ? "FOLDER" : "FILE";
    if (key)
        what = strcmp(key, "init.weights") == 0 ? "FILE" : what;
    if (status == LS_ECONFIG && lacks_network(&config))
        status = ls_fail(err, status,
                         "%.300s: the first weights were in an ONNX file; name your copy: --set "
                         "'model={\"onnx\": \"FILE\"}', with the other keys of the config's "
                         "model, such as head",
                         v->claim.doc ? v->claim.receipt : v->claim.run);
    else if (!key && lacks_data(v, &config))
        status = ls_fail(err, status,
                         "%.300s: a receipt does not say where the data are; name your copy: "
                         "--set data.path=%s, and if test rows have one of their own, --set "
                         "data.test_path=%s",
                         v->claim.receipt, what, what);
    else if (status == LS_ENOENT)
        status = ls_fail(err, status, "%.600s; name your copy: --set %s=%s", why.text,
                         key ? key : "data.path", what);
    ls_config_fini(&config);
    return status;
}
