/* SPDX-License-Identifier: MIT */
/* The state of a checkpoint and the recipe in it: an accepted state means what its text says, and a
 * run with the same recipe is recognised. */
#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "fuzz/fuzz.h"

#include <string.h>

static const char name[] = "state";

static double number(const cJSON *object, const char *key)
{
    const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, key);
    fuzz_check(cJSON_IsNumber(node), "what was read as a number is one");
    return node->valuedouble;
}

/* Whether a metric is the one that the text names; checkpoints of before it was told name none. */
static bool is_named(const cJSON *object, ls_metric metric)
{
    const cJSON *named = cJSON_GetObjectItemCaseSensitive(object, "metric");
    return named ? strcmp(named->valuestring, ls_metric_names[metric]) == 0
                 : metric == LS_METRIC_CONFUSION;
}

static void check_state(const ls_state *s, const cJSON *root)
{
    const cJSON *position = cJSON_GetObjectItemCaseSensitive(root, "position");
    const cJSON *metrics = cJSON_GetObjectItemCaseSensitive(root, "metrics");
    fuzz_check(number(position, "steps") == (double)s->standing.position.steps &&
                   number(position, "epoch") == s->standing.position.epoch &&
                   number(position, "step") == s->standing.position.step &&
                   number(position, "rows") == s->standing.position.totals.rows,
               "the position is the text's");
    fuzz_check(number(metrics, "bytes") == (double)s->metrics.bytes &&
                   number(metrics, "lines") == (double)s->metrics.sums.lines,
               "what counts of the records is the text's");
    fuzz_check(number(root, "shards") == s->shards && s->shards >= 1, "there are shards");
    fuzz_check(number(root, "train_rows") == (double)s->train_rows &&
                   number(root, "data_crc32") == s->data_crc32,
               "the data is the text's");
    fuzz_check(s->isa && s->library, "where it was computed is said");
    fuzz_check(is_named(root, s->standing.metric), "the metric that is told is the text's");
    const cJSON *best = cJSON_GetObjectItemCaseSensitive(position, "best");
    if (best && !cJSON_IsNull(best))
        fuzz_check(is_named(best, s->standing.position.best.metric) &&
                       number(best, "value") == s->standing.position.best.value &&
                       number(best, "steps") == (double)s->standing.position.best.steps,
                   "the best is the text's");
}

static void check_recipe(ls_json *doc, const ls_state *s)
{
    ls_config recipe;
    ls_error err = {0};
    int rc = ls_config_read_recipe(&recipe, doc, s->recipe, NULL, &err);
    if (rc != LS_OK) {
        fuzz_check_refusal(rc, &err, name);
        return;
    }
    fuzz_check(ls_config_same_recipe(&recipe, recipe.shards, &recipe, &err) == LS_OK,
               "a recipe is the same as itself");
    recipe.seed ^= 1;
    recipe.doc = doc; /* messages look up the key in it */
    ls_config other;
    fuzz_check(ls_config_read_recipe(&other, doc, s->recipe, NULL, NULL) == LS_OK,
               "a recipe is read the same way again");
    fuzz_check(ls_config_same_recipe(&recipe, recipe.shards, &other, &err) == LS_ECONFIG,
               "another seed is another recipe");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_json *doc;
    ls_state s;
    ls_error err = {0};
    if (ls_json_parse(&doc, name, (const char *)data, size, NULL, &err) != LS_OK)
        return 0;
    int rc = ls_state_read(&s, doc, &err);
    if (rc == LS_OK) {
        check_state(&s, ls_json_root(doc));
        check_recipe(doc, &s);
    } else {
        fuzz_check_refusal(rc, &err, name);
        fuzz_check(fuzz_names_place(err.text, name), "a refusal names line and column");
    }
    ls_json_destroy(doc);
    return 0;
}
