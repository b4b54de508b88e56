/* SPDX-License-Identifier: MIT */
/* Tests that the hashes of states stay the same when a version adds keys, and that the defaults of
 * the recipe change with the kernels only. */
#include "config/config.h"
#include "runner.h"
#ifdef LOCKSTEP_WITH_CPU
#include "train/kernels.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void read_config(ls_config *out, const char *rest)
{
    char text[1000];
    ls_error err;
    snprintf(text, sizeof text, "{\"model\": {\"layers\": []}, \"shards\": 4%s%s}",
             *rest ? ", " : "", rest);
    const ls_trainer_options options = {.config_text = text};
    if (ls_config_read(out, &options, &err) != LS_OK)
        fail_msg("%s", err.text);
}

/* Returns the hashed keys, which the caller frees. */
static char *hashed(const ls_config *config, const ls_config_key *rows)
{
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_config_write_hashed(&w, NULL, config, config->shards, rows);
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    assert_non_null(text);
    char *copy = strdup(text);
    ls_json_writer_fini(&w);
    return copy;
}

static void expect(const char *rest, const char *expected)
{
    ls_config c;
    read_config(&c, rest);
    char *text = hashed(&c, ls_config_keys);
    assert_string_equal(text, expected);
    free(text);
    ls_config_fini(&c);
}

static void only_keys_that_differ_from_their_defaults_are_hashed(void **state)
{
    (void)state;
#define MODEL "\"model\":{\"layers\":[]}"
    expect("\"optimizer\": {\"lr\": 1}", "{" MODEL ",\"optimizer\":{\"lr\":1},\"shards\":4}");
    /* defaults that are written out change nothing */
    expect(
        "\"optimizer\": {\"name\": \"sgd\", \"lr\": 1, \"momentum\": 0, \"clip_norm\": 0},"
        " \"batch_size\": 256, \"schedule\": \"constant\", \"data\": {\"mean\": 0, \"labels\": \"auto\"}",
        "{" MODEL ",\"optimizer\":{\"lr\":1},\"shards\":4}");
    expect("\"schedule\": {\"name\": \"cosine\", \"warmup_epochs\": 0}, \"epochs\": 10,"
           " \"optimizer\": {\"name\": \"adamw\", \"lr\": 1, \"beta1\": 0.75}",
           "{" MODEL ",\"optimizer\":{\"name\":\"adamw\",\"lr\":1,\"beta1\":0.75},"
           "\"schedule\":{\"name\":\"cosine\"},\"shards\":4}");
    /* a default that follows from another key */
    expect(
        "\"optimizer\": {\"lr\": 1}, \"data\": {\"name\": \"csv\", \"target\": \"y\", \"standardize\": true}",
        "{\"data.name\":\"csv\",\"data.target\":\"y\"," MODEL
        ",\"optimizer\":{\"lr\":1},\"shards\":4}");
    expect(
        "\"optimizer\": {\"lr\": 1}, \"data\": {\"name\": \"csv\", \"target\": \"y\", \"standardize\": false}",
        "{\"data.name\":\"csv\",\"data.standardize\":false,\"data.target\":\"y\"," MODEL
        ",\"optimizer\":{\"lr\":1},\"shards\":4}");
}

/* Keys that a later version could add: a flag and a text, in the middle of the table. */
static const ls_config_key added[] = {
    {"augment", "added", LS_KEY_BOOL, LS_RECIPE, offsetof(ls_config, receipt), .help = ""},
    {"", "a_new_text", LS_KEY_TEXT, LS_RECIPE, offsetof(ls_config, name), .text = "run",
     .help = ""},
};

enum { ADDED = sizeof added / sizeof *added, ROWS_MOST = 200 };

static void an_added_key_with_its_default_changes_no_hash(void **state)
{
    static ls_config_key rows[ROWS_MOST];
    ls_config c;
    int count = 0;
    (void)state;
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        if (count == 20)
            for (int i = 0; i < ADDED; i++)
                rows[count++] = added[i];
        assert_true(count < ROWS_MOST - 1);
        rows[count++] = *row;
    }
    read_config(&c, "\"optimizer\": {\"lr\": 1}, \"augment\": {\"crop\": 2, \"flip\": true},"
                    " \"seed\": 5, \"batch_size\": 64");
    char *before = hashed(&c, ls_config_keys), *after = hashed(&c, rows);
    assert_string_equal(after, before);
    free(after);
    c.receipt = 1; /* the value of the first added key, which then differs */
    after = hashed(&c, rows);
    assert_non_null(strstr(after, "{\"augment.added\":true,\"augment.crop\":2,"));
    free(after);
    c.receipt = 0;
    c.name = "other";
    after = hashed(&c, rows);
    assert_non_null(strstr(after, "{\"a_new_text\":\"other\",\"augment.crop\":2,"));
    free(after);
    free(before);
    ls_config_fini(&c);
}

/* ---- the defaults --------------------------------------------------------------------------- */

/* Configs that show all defaults: those of keys, and those within objects. */
static const char *const shown[] = {
    "\"optimizer\": {\"lr\": 1}",
    "\"optimizer\": {\"name\": \"adamw\", \"lr\": 1}",
    "\"optimizer\": {\"lr\": 1}, \"schedule\": {\"name\": \"step\"}",
    "\"optimizer\": {\"lr\": 1}, \"schedule\": {\"name\": \"cosine\"}",
    "\"optimizer\": {\"lr\": 1}, \"schedule\": {\"name\": \"one_cycle\"}",
    "\"optimizer\": {\"lr\": 1}, \"schedule\": {\"name\": \"triangular\"}",
    "\"optimizer\": {\"lr\": 1}, \"schedule\": {\"name\": \"exponential\"}",
    "\"optimizer\": {\"lr\": 1}, \"data\": {\"name\": \"csv\"}",
    "\"optimizer\": {\"lr\": 1}, \"data\": {\"name\": \"folder\", \"resize\": [9, 9]}"};

/* Returns whether a line of the file of defaults is `line`. */
static int is_listed(const char *line)
{
    char found[512];
    int listed = 0;
    FILE *file = fopen(DEFAULTS, "r");
    assert_non_null(file);
    while (!listed && fgets(found, sizeof found, file)) {
        found[strcspn(found, "\n")] = '\0';
        listed = strcmp(found, line) == 0;
    }
    fclose(file);
    return listed;
}

/* Counts and prints the keys whose default in config number `i` is not in the file. Only those are
 * listed for a config after the first that differ from the first one's. */
static int count_missing(size_t i)
{
    ls_config plain, c;
    ls_json_writer w[2];
    char line[600];
    int missing = 0;
    read_config(&plain, shown[0]);
    read_config(&c, shown[i]);
    for (int k = 0; k < 2; k++)
        ls_json_writer_init(&w[k], 0, NULL);
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        const char *text = ls_config_key_text(&w[0], &c, row);
        if (row->begins || row->part == LS_NOT_RECIPE || strcmp(row->key, "model") == 0 ||
            (i > 0 && strcmp(ls_config_key_text(&w[1], &plain, row), text) == 0))
            continue;
        snprintf(line, sizeof line, "%zu %s %s", i, *row->object ? row->object : "-", text);
        if (is_listed(line))
            continue;
        printf("not in %s:\n%s\n", DEFAULTS, line);
        missing++;
    }
    for (int k = 0; k < 2; k++)
        ls_json_writer_fini(&w[k]);
    ls_config_fini(&c);
    ls_config_fini(&plain);
    return missing;
}

static void the_defaults_of_the_recipe_are_those_of_the_kernels(void **state)
{
    int missing = 0;
    (void)state;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        missing += count_missing(i);
    if (missing)
        fail_msg("%d defaults of the recipe are new or changed. Append those of a new key to the "
                 "file. A changed one would make verifications refute honest runs: raise the "
                 "version of the CPU kernels with it, and write the file anew",
                 missing);
}

#ifdef LOCKSTEP_WITH_CPU
/* The first line of the file is the version of the kernels. */
static void the_file_of_defaults_is_that_of_these_kernels(void **state)
{
    const ls_backend_info info = kernels_that_are_meant();
    char line[sizeof info.version];
    (void)state;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(info.version, ","), info.version);
    if (!is_listed(line))
        fail_msg("%s is not that of \"%s\": write it anew", DEFAULTS, line);
}
#endif

LS_TESTS(config_hashed, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_keys_that_differ_from_their_defaults_are_hashed),
        cmocka_unit_test(an_added_key_with_its_default_changes_no_hash),
        cmocka_unit_test(the_defaults_of_the_recipe_are_those_of_the_kernels),
#ifdef LOCKSTEP_WITH_CPU
        cmocka_unit_test(the_file_of_defaults_is_that_of_these_kernels),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
