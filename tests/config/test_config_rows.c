/* SPDX-License-Identifier: MIT */
/* Tests the tables of the config's keys and of the records' keys. The tables in the documentation
 * must equal them, and no key may be read or written without them. */
#include "base/host.h"
#include "config/config.h"
#include "data/scratch.h"
#include "records/record.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The documentation's line for a row. Strings stand in backquotes. */
static void write_line(char *out, size_t size, const ls_config_key *row)
{
    char text[32];
    const char *fallback = ls_config_default(text, row), *quote = *fallback == '"' ? "`" : "";
    snprintf(out, size, "| `%s%s%s` | %s%s%s%s| %s |\n", row->object, *row->object ? "." : "",
             row->key, quote, fallback, quote, *fallback ? " " : "", row->help);
}

/* Moves to the line after the head of the table of keys. */
static void find_table(FILE *file)
{
    char line[2048];
    while (fgets(line, sizeof line, file))
        if (strcmp(line, "| key | default | meaning |\n") == 0 && fgets(line, sizeof line, file))
            return;
    fail_msg("%s has no table of the config's keys", CONFIG_MD);
}

static void the_documentation_has_each_key_in_order_and_no_other(void **state)
{
    (void)state;
    char found[2048], expected[2048];
    FILE *file = fopen(CONFIG_MD, "r");
    assert_non_null(file);
    find_table(file);
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        write_line(expected, sizeof expected, row);
        assert_non_null(fgets(found, sizeof found, file));
        assert_string_equal(found, expected);
    }
    assert_non_null(fgets(found, sizeof found, file));
    assert_string_equal(found, "\n");
    fclose(file);
}

static void read_text(ls_config *out, const char *text, const char *assignment)
{
    ls_error err;
    ls_trainer_options options = {
        .config_text = text, .set = &assignment, .set_count = !!assignment};
    if (ls_config_read(out, &options, &err) != LS_OK)
        fail_msg("%s", err.text);
}

static const char minimal[] = "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1}}";

static void defaults_written_and_read_again_are_the_same(void **state)
{
    (void)state;
    ls_config first, again;
    ls_error err;
    char *text = NULL, *text_again = NULL;
    read_text(&first, minimal, NULL);
    assert_int_equal(ls_config_text(&text, &first, NULL, &err), LS_OK);
    read_text(&again, text, NULL);
    assert_int_equal(ls_config_text(&text_again, &again, NULL, &err), LS_OK);
    assert_string_equal(text, text_again);
    ls_free(NULL, text);
    ls_free(NULL, text_again);
    ls_config_fini(&first);
    ls_config_fini(&again);
}

static int shards_of(const char *given)
{
    char text[160];
    ls_config c;
    snprintf(text, sizeof text,
             "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1}, %s \"batch_size\": 32}",
             given);
    read_text(&c, text, NULL);
    const int shards = c.shards;
    ls_config_fini(&c);
    return shards;
}

/* A convolution uses a weight often, a dense layer once a row. */
static void a_shard_has_rows_to_pay_for_its_sum_unless_the_config_says_otherwise(void **state)
{
    /* clang-format off */
    static const int expected[][3] = {
        {1, 1, 1},   {16, 1, 1},  {31, 1, 1},  {32, 2, 1},  {63, 2, 1},  {64, 4, 1},  {127, 4, 1},
        {128, 8, 2}, {255, 8, 2}, {256, 8, 2}, {512, 8, 4}, {4096, 8, 8},
        /* Fewer vectors of sixteen rows are partly empty, and no worker has more of them. */
        {48, 3, 1},  {80, 5, 1},  {96, 6, 1},  {100, 4, 1}, {112, 7, 1}, {144, 5, 2}, {160, 5, 2},
        {192, 6, 2}, {224, 7, 2}, {240, 8, 2}, {320, 7, 2}, {640, 8, 4}};
    /* clang-format on */
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(ls_shards_for(expected[i][0], 8, 100), expected[i][1]);
        assert_int_equal(ls_shards_for(expected[i][0], 1, 100), expected[i][2]);
    }
    /* A dense net of 100,000 weights has two shards if each computes half a million products. */
    assert_int_equal(ls_shards_for(31, 1, 1e5), 1);
    assert_int_equal(ls_shards_for(32, 1, 1e5), 2);
    assert_int_equal(ls_shards_for(48, 1, 1e5), 2);
    assert_int_equal(ls_shards_for(32, 1, 3e4), 1);
    assert_int_equal(ls_shards_for(34, 1, 3e4), 2);
    assert_int_equal(ls_shards_for(256, 1, 1e7), 2);
    assert_int_equal(shards_of(""), -1);
    assert_int_equal(shards_of("\"shards\": 8,"), 8);
    assert_int_equal(shards_of("\"shards\": \"devices\","), 0);
}

/* Every former name is refused in a user's config, with its position, and accepted in a config that
 * a run has written. */
static void a_former_name_is_read_from_a_run_and_refused_from_a_user(void **state)
{
    (void)state;
    int renamed = 0;
    for (const ls_config_key *row = ls_config_keys; row->key; row++) {
        char text[320], wanted[160];
        ls_config c;
        ls_error err;
        ls_json *doc;
        if (!row->former)
            continue;
        assert_int_equal(row->kind == LS_KEY_CHOICE || row->kind == LS_KEY_INT, 1);
        snprintf(
            text, sizeof text,
            "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1},\n%s%s%s \"%s\": %s%s%s}%s",
            *row->object ? "\"" : "", row->object, *row->object ? "\": {" : "", row->former,
            row->choices ? "\"" : "", row->choices ? row->choices[1] : "7",
            row->choices ? "\"" : "", *row->object ? "}" : "");
        ls_trainer_options options = {.config_text = text};
        assert_int_equal(ls_config_read(&c, &options, &err), LS_ECONFIG);
        snprintf(wanted, sizeof wanted, "the key \"%s\" is called \"%s\" now: rename it",
                 row->former, row->key);
        assert_non_null(strstr(err.text, wanted));
        assert_memory_equal(err.text, "config:2:", strlen("config:2:"));
        assert_int_equal(ls_json_parse(&doc, "state", text, strlen(text), NULL, &err), LS_OK);
        if (ls_config_read_recipe(&c, doc, ls_json_root(doc), NULL, &err) != LS_OK)
            fail_msg("%s", err.text);
        assert_true(ls_config_is_set(&c, row));
        ls_config_fini(&c);
        ls_json_destroy(doc);
        renamed++;
    }
    assert_int_equal(renamed, 5);
}

/* Returns checkpoint.every_seconds of a config, whose keys of `checkpoint` are `keys`. */
static double seconds_of(const char *keys, const char *assignment)
{
    char text[200];
    ls_config c;
    snprintf(text, sizeof text,
             "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1}, \"checkpoint\": {%s}}",
             keys);
    read_text(&c, text, assignment);
    const double seconds = c.checkpoint.every_seconds;
    ls_config_fini(&c);
    return seconds;
}

static void checkpoints_wait_unless_the_config_says_when_they_are_saved(void **state)
{
    (void)state;
    assert_true(seconds_of("", NULL) == 10);
    assert_true(seconds_of("\"keep\": 3, \"best\": true", NULL) == 10);
    assert_true(seconds_of("\"every_epochs\": 1", NULL) == 0);
    assert_true(seconds_of("\"every_epochs\": 0", NULL) == 0);
    assert_true(seconds_of("\"every_steps\": 7", NULL) == 0);
    assert_true(seconds_of("", "checkpoint.every_steps=7") == 0);
    assert_true(seconds_of("\"every_steps\": 7, \"every_seconds\": 2.5", NULL) == 2.5);
    assert_true(seconds_of("\"every_seconds\": 2.5, \"every_epochs\": 2", NULL) == 2.5);
    assert_true(seconds_of("\"every_seconds\": 2.5", "checkpoint.every_epochs=2") == 2.5);
    assert_true(seconds_of("", "checkpoint.every_seconds=0") == 0);
}

/* Returns checkpoint.every_seconds of a run that was made with `made` and is resumed with `set`. */
static double seconds_of_resumed(const char *made, const char *set)
{
    scratch files;
    ls_config c;
    ls_error err;
    char *text = NULL;
    read_text(&c, minimal, made);
    assert_int_equal(ls_config_text(&text, &c, NULL, &err), LS_OK);
    ls_config_fini(&c);
    scratch_begin(&files);
    scratch_file(&files, "config.json", text, strlen(text));
    ls_free(NULL, text);
    const ls_trainer_options options = {.set = &set, .set_count = !!set};
    if (ls_config_read_of_run(&c, scratch_path(&files, "config.json"), &options, &err) != LS_OK)
        fail_msg("%s", err.text);
    const double seconds = c.checkpoint.every_seconds;
    ls_config_fini(&c);
    scratch_end(&files);
    return seconds;
}

/* The config.json of a run has all keys; only what is set at the resume counts as the user's. */
static void a_resumed_run_waits_as_before_unless_it_is_told_anew(void **state)
{
    (void)state;
    assert_true(seconds_of_resumed(NULL, NULL) == 10);
    assert_true(seconds_of_resumed(NULL, "checkpoint.every_steps=2") == 0);
    assert_true(seconds_of_resumed(NULL, "checkpoint.every_seconds=4") == 4);
    assert_true(seconds_of_resumed("checkpoint.every_epochs=2", NULL) == 0);
    assert_true(seconds_of_resumed("checkpoint.every_seconds=4", NULL) == 4);
    assert_true(seconds_of_resumed("checkpoint.every_seconds=4", "checkpoint.every_epochs=1") == 0);
}

/* Another value than the default for a row, as --set would take it. */
static const char *other_value(const ls_config_key *row)
{
    static const struct {
        const char *key, *value;
    } of_forms[] = {{"name", "other"},
                    {"target", "2013"},
                    {"categorical", "a,b"},
                    {"drop", "[\"a\", 2013]"},
                    {"mean", "0.5"},
                    {"std", "[0.5, 0.25]"},
                    {"model", "{\"a\": 1}"},
                    {"seed", "7"},
                    {"standardize", "true"}, /* off, where the data has no such key */
                    {"standardize_target", "true"},
                    {"target_mean", "3"},
                    {"target_std", "3"},
                    {"init", "xavier"},
                    {"optimizer", "{\"lr\": 2}"},
                    {"schedule", "cosine"},
                    {"freeze", "conv1.*"},
                    {"lr_factors", "{\"fc.*\": 10}"},
                    {"allreduce", "naive"},
                    {"shards", "3"},
                    {"capacity", "[1, 2]"},
                    {"every_seconds", "3"},
                    {"final", "best"},
                    {"names", "auto"},
                    {"pictures", "imagenet"},
                    {"resize", "[9, 10]"},
                    {"crop", "8"},
                    {"interpolation", "bicubic"},
                    {"class_weights", "balanced"},
                    {"quantiles", "[0.5]"},
                    {"run_dir", "there"}};
    switch (row->kind) {
    case LS_KEY_INT:
    case LS_KEY_NUMBER: return row->fallback == 1 ? "2" : row->max < 1 ? "0.5" : "1";
    case LS_KEY_BOOL: return row->fallback != 0 ? "false" : "true";
    case LS_KEY_TEXT: return row->check ? "mse" : "other"; /* a loss is one of a list */
    case LS_KEY_CHOICE: return row->choices[row->fallback == 0];
    case LS_KEY_CUSTOM: break;
    }
    for (size_t i = 0; i < sizeof of_forms / sizeof *of_forms; i++)
        if (strcmp(of_forms[i].key, row->key) == 0)
            return of_forms[i].value;
    fail_msg("%s: say here what else it may be", row->key);
    return NULL;
}

/* a config with the key that two other keys need */
static const char resized[] = "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1},"
                              " \"data\": {\"resize\": [9, 9]}}";

/* The hash of a state contains a key that does not have its default if steps depend on it. */
static void check_hashed(const ls_config *other, const ls_config_key *row, const char *named,
                         bool expected)
{
    char member[80];
    ls_json_writer w;
    ls_json_writer_init(&w, 0, NULL);
    ls_config_write_hashed(&w, NULL, other, other->shards, ls_config_keys);
    const char *text = ls_json_writer_text(&w, NULL, NULL);
    assert_non_null(text);
    snprintf(member, sizeof member, "\"%s\":", named);
    /* other keys follow from these two, or need what they stand for */
    const bool of_form = strcmp(row->key, "resize") == 0 || row->part == LS_RECIPE_OF_LENGTH;
    if (!of_form && (strstr(text, member) != NULL) != expected)
        fail_msg("%s: %s among the hashed keys %s", named, expected ? "is not" : "is", text);
    ls_json_writer_fini(&w);
}

/* A key of the recipe refuses a resume and is named; any other does not. `cut`: the config
 * `resized`. */
static void check_row(const ls_config *plain, const ls_config *cut, const ls_config_key *row)
{
    const bool rests = row->kind == LS_KEY_CUSTOM &&
                       (strcmp(row->key, "crop") == 0 || strcmp(row->key, "interpolation") == 0);
    char assignment[128], named[64];
    ls_config other;
    ls_error err;
    snprintf(named, sizeof named, "%s%s%s", row->object, *row->object ? "." : "", row->key);
    snprintf(assignment, sizeof assignment, "%s=%s", named, other_value(row));
    read_text(&other, rests ? resized : minimal, assignment);
    const int status = ls_config_same_recipe(&other, other.shards, rests ? cut : plain, &err);
    assert_int_equal(
        status, (row->part == LS_RECIPE || row->part == LS_RECIPE_OF_MODEL) ? LS_ECONFIG : LS_OK);
    if (status && !strstr(err.text, named))
        fail_msg("%s: its message does not name it: %s", named, err.text);
    check_hashed(&other, row, named, status == LS_ECONFIG && !row->begins);
    ls_config_fini(&other);
}

static void exactly_the_keys_of_the_recipe_must_be_the_same_at_a_resume(void **state)
{
    (void)state;
    ls_config plain, cut;
    read_text(&plain, minimal, NULL);
    read_text(&cut, resized, NULL);
    for (const ls_config_key *row = ls_config_keys; row->key; row++)
        check_row(&plain, &cut, row);
    ls_config_fini(&cut);
    ls_config_fini(&plain);
}

static void the_number_of_epochs_counts_where_the_rate_depends_on_it(void **state)
{
    (void)state;
    ls_config ten, three;
    ls_error err;
    read_text(&ten, minimal, "schedule=cosine");
    read_text(&three,
              "{\"model\": {\"layers\": []}, \"optimizer\": {\"lr\": 1}, \"epochs\": 3,"
              " \"schedule\": \"cosine\"}",
              NULL);
    assert_int_equal(ls_config_same_recipe(&three, ten.shards, &ten, &err), LS_ECONFIG);
    assert_non_null(strstr(err.text, "epochs: this run was made with 10, not with 3"));
    ten.schedule.rule = three.schedule.rule = LS_SCHEDULE_CONSTANT;
    assert_int_equal(ls_config_same_recipe(&three, ten.shards, &ten, &err), LS_OK);
    ls_config_fini(&ten);
    ls_config_fini(&three);
}

/* ---- records ---- */

/* Appends the words in backquotes of a line's first cell, each after a space. */
static void add_keys(char *out, size_t size, const char *line)
{
    const char *end = strstr(line + 1, " |");
    for (const char *at = line; end && (at = strchr(at, '`')) && at < end;) {
        const char *close = strchr(at + 1, '`');
        const size_t used = strlen(out);
        snprintf(out + used, size - used, " %.*s", (int)(close - at - 1), at + 1);
        at = close + 1;
    }
}

/* The keys of a section's table in the documentation, whose head begins with `column`. */
static void read_documented(char *out, size_t size, const char *section, const char *column)
{
    char line[2048], head[64];
    int in_table = 0;
    FILE *file = fopen(SCHEMA, "r");
    assert_non_null(file);
    snprintf(head, sizeof head, "### %s\n", section);
    while (fgets(line, sizeof line, file) && strcmp(line, head) != 0)
        ;
    while (fgets(line, sizeof line, file) && strncmp(line, "###", 3) != 0)
        if (in_table && line[0] == '|')
            add_keys(out, size, line);
        else
            in_table = strncmp(line, column, strlen(column)) == 0;
    fclose(file);
}

static int has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return 1;
    return 0;
}

static size_t count_words(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == ' ';
    return n;
}

static void check_table(int type, const char *section, const char *column)
{
    char documented[1024] = "";
    size_t rows = 0;
    read_documented(documented, sizeof documented, section, column);
    for (const ls_record_key *row = ls_record_keys; row->key; row++) {
        if (!(row->in & 1u << type))
            continue;
        rows++;
        if (!has_word(documented, row->key))
            fail_msg("%s, %s: \"%s\" is not among%s", section, column, row->key, documented);
    }
    if (rows != count_words(documented))
        fail_msg("%s, %s: %zu keys are written, but documented are%s", section, column, rows,
                 documented);
}

static void the_schema_has_each_key_of_each_record_and_no_other(void **state)
{
    (void)state;
    for (int type = 0; type < LS_RECORD_TYPES; type++)
        check_table(type, ls_record_names[type], "| key |");
    check_table(LS_PART_DATA, "run_start", "| key in `data` |");
    check_table(LS_PART_WORKER, "step", "| key in `workers` |");
}

/* Other keys of a worker may have a float, too. */
static int is_of_a_phase(const ls_record_key *row)
{
    const size_t first = offsetof(ls_worker_times, seconds);
    return row->in & 1u << LS_PART_WORKER && row->at >= first &&
           row->at < first + sizeof((ls_worker_times *)0)->seconds;
}

static void each_phase_of_a_step_has_a_key_of_its_own(void **state)
{
    int phases = 0;
    (void)state;
    for (const ls_record_key *row = ls_record_keys; row->key; row++)
        if (is_of_a_phase(row)) {
            assert_in_range(phases, 0, LS_PHASES - 1);
            assert_string_equal(row->key, ls_phase_keys[phases]);
            assert_int_equal(row->kind, LS_MEMBER_FLOAT);
            assert_int_equal(row->at, offsetof(ls_worker_times, seconds[phases]));
            phases++;
        }
    assert_int_equal(phases, LS_PHASES);
}

LS_TESTS(config_rows, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_documentation_has_each_key_in_order_and_no_other),
        cmocka_unit_test(defaults_written_and_read_again_are_the_same),
        cmocka_unit_test(checkpoints_wait_unless_the_config_says_when_they_are_saved),
        cmocka_unit_test(a_resumed_run_waits_as_before_unless_it_is_told_anew),
        cmocka_unit_test(a_former_name_is_read_from_a_run_and_refused_from_a_user),
        cmocka_unit_test(a_shard_has_rows_to_pay_for_its_sum_unless_the_config_says_otherwise),
        cmocka_unit_test(exactly_the_keys_of_the_recipe_must_be_the_same_at_a_resume),
        cmocka_unit_test(the_number_of_epochs_counts_where_the_rate_depends_on_it),
        cmocka_unit_test(the_schema_has_each_key_of_each_record_and_no_other),
        cmocka_unit_test(each_phase_of_a_step_has_a_key_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
