/* SPDX-License-Identifier: MIT */
/* Warns if the data of a run have changed since the run, by its first record. */
#include "model/trained.h"

#include "base/host.h"

#include <string.h>

/* Returns whether the run has recorded another text as `key` than `found`. Runs of older versions
 * have recorded none. */
static bool differs(const cJSON *data, const char *key, const char *found)
{
    const char *was = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, key));
    return was && found[0] && strcmp(was, found) != 0;
}

static bool rows_differ(const cJSON *data, const char *key, const ls_dataset *found)
{
    const cJSON *was = cJSON_GetObjectItemCaseSensitive(data, key);
    return cJSON_IsNumber(was) && found && was->valuedouble != (double)ls_dataset_rows(found);
}

void ls_warn_of_changed_data(const ls_trained *t, const char *run_dir)
{
    const ls_dataset *train = t->data[LS_TRAIN], *test = t->data[LS_TEST];
    ls_json *record = NULL;
    const bool known = train && ls_run_first_record(&record, run_dir, t->host, NULL) == LS_OK;
    const cJSON *data =
        known ? cJSON_GetObjectItemCaseSensitive(ls_json_root(record), "data") : NULL;
    const ls_dataset_info *info = train ? ls_dataset_describe(train) : NULL;
    const bool is_folder = t->config.data_keys.packed && t->config.data_path;
    if (data && (rows_differ(data, "train_rows", train) || rows_differ(data, "test_rows", test) ||
                 differs(data, "sha256", info->images_sha256) ||
                 differs(data, "labels_sha256", info->labels_sha256) ||
                 (test && differs(data, "test_sha256", ls_dataset_describe(test)->images_sha256))))
        ls_log(t->host, LS_LOG_WARNING,
               "%.300s: the data have changed since the run, so these are not the run's rows, and "
               "the run may have been trained on some of its test or validation rows; put the data "
               "back, or name other rows with --data",
               is_folder ? t->config.data_path : info->source);
    if (known)
        ls_json_destroy(record);
}
