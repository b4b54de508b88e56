/* Warns if the data of a run have changed since the run, by its first record. */
#include "model/trained.h"

#include "base/host.h"
#include "store/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the first record of the run in the directory `dir`, or NULL. */
static cJSON *first_record(const char *dir)
{
    char path[LS_PATH_BYTES];
    char *line = NULL;
    size_t capacity = 0;
    FILE *f = fopen(ls_path_join(path, dir, "metrics.jsonl"), "r");
    if (!f)
        return NULL;
    const ssize_t n = getline(&line, &capacity, f);
    cJSON *record = n > 0 ? cJSON_ParseWithLength(line, (size_t)n) : NULL;
    free(line);
    fclose(f);
    return record;
}

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
    cJSON *record = train ? first_record(run_dir) : NULL;
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(record, "data");
    const ls_dataset_info *info = train ? ls_dataset_describe(train) : NULL;
    if (data && (rows_differ(data, "train_rows", train) || rows_differ(data, "test_rows", test) ||
                 differs(data, "sha256", info->images_sha256) ||
                 differs(data, "labels_sha256", info->labels_sha256) ||
                 (test && differs(data, "test_sha256", ls_dataset_describe(test)->images_sha256))))
        ls_log(t->host, LS_LOG_WARNING,
               "%.300s: the data have changed since the run, so these are not the run's rows, and "
               "the run may have been trained on some of its test or validation rows; put the data "
               "back, or name other rows with --data",
               info->source);
    cJSON_Delete(record);
}
