/* Tests the warnings about a run's data. Data that look like a mistake cause a warning, which names
 * the config key to change; other data cause no warning. */
#include "data/scratch.h"
#include "runner.h"
#include "train/doubts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct said {
    char warnings[4096], told[8192];
} said;

static void keep(void *user, ls_log_level level, const char *text)
{
    said *s = user;
    char *to = level == LS_LOG_WARNING ? s->warnings : s->told;
    const size_t room = level == LS_LOG_WARNING ? sizeof s->warnings : sizeof s->told;
    strncat(to, text, room - strlen(to) - 2);
    strcat(to, "\n");
}

/* Opens a table of `rows` rows, and collects the messages about the table. `header`: its first
 * line. `line`: format of all other lines. */
static void tell(said *s, const char *header, const char *line, int rows, ls_data_keys keys)
{
    scratch dir;
    ls_error err;
    ls_dataset *split[2];
    ls_config c = {.eval_every = 1, .loss = ls_loss_find(NULL, keys.labels == LS_LABELS_VALUES)};
    const ls_host host = {.size = sizeof host, .log = keep, .user = s};
    char *text = malloc((size_t)rows * 100 + 200);
    size_t n = (size_t)sprintf(text, "%s\n", header);
    for (int i = 0; i < rows; i++) {
        n += (size_t)sprintf(text + n, line, i, i % 2);
        n += (size_t)sprintf(text + n, "\n");
    }
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 4; i++)
        c.preprocessing.std[i] = 1;
    scratch_begin(&dir);
    scratch_file(&dir, "t.csv", text, n);
    const ls_dataset_spec spec = {.name = "csv", .path = scratch_path(&dir, "t.csv"), .keys = keys};
    if (ls_dataset_open(&split[0], &split[1], &spec, &host, &err) != LS_OK)
        fail_msg("%s", err.text);
    ls_log_data_doubts(&c, split[0], split[1], &host);
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
    scratch_end(&dir);
    free(text);
}

static void warns(const said *s, const char *what)
{
    if (!strstr(s->warnings, what))
        fail_msg("expected \"%s\" in: %s", what, s->warnings);
}

static const ls_data_keys of_y = {.target = {.text = "y"}, .standardize = 1};

static void an_ordinary_table_is_told_and_not_doubted(void **state)
{
    said s;
    (void)state;
    tell(&s, "b,y", "%d.5,%d", 60, of_y);
    assert_string_equal(s.warnings, "");
    assert_non_null(strstr(s.told, "column"));
    assert_non_null(strstr(s.told, "data.standardize: 1 column becomes"));
    assert_null(strstr(s.told, "data.clip"));
    assert_non_null(strstr(s.told, "nothing is evaluated"));
    ls_data_keys keys = of_y;
    keys.clip = 2.5;
    tell(&s, "b,y", "%d.5,%d", 60, keys);
    assert_non_null(strstr(s.told, "data.clip: what is beyond 2.5 deviations of"));
}

static void columns_that_say_nothing_are_named(void **state)
{
    said s;
    (void)state;
    tell(&s, "id,y", "%d,%d", 60, of_y);
    warns(&s, "column \"id\" counts the rows");
    tell(&s, "at,y,a", "%d00,%d,1.5", 60, of_y);
    warns(&s, "column \"at\" goes up evenly from row to row");
    tell(&s, "at,y,a", "-%d,%d,1.5", 60, of_y);
    warns(&s, "column \"at\" goes down evenly from row to row");
    tell(&s, "at,y", "%d00,%d", 60, of_y); /* no warning: there is no other column to learn from */
    assert_string_equal(s.warnings, "");
    /* no warning: the numbers are not whole, so the column can be a measured position */
    tell(&s, "at,y,a", "%d.5,%d,1.5", 60, of_y);
    assert_string_equal(s.warnings, "");
    tell(&s, "who,y", "name %d,%d", 60, of_y);
    warns(&s, "column \"who\" has 60 different texts in 60 rows");
    ls_data_keys keys = of_y;
    keys.categorical.text = "a";
    tell(&s, "a,y", "%d,%d", 60, keys); /* the config makes the column categorical */
    assert_string_equal(s.warnings, "");
}

/* Times in seconds since 1970 are so large that floats cannot distinguish times a minute apart. */
static void times_a_minute_apart_are_named(void **state)
{
    said s;
    scratch dir;
    ls_error err;
    ls_dataset *split[2];
    char text[8192] = "time,a,y\n";
    const ls_config c = {.eval_every = 1, .loss = ls_loss_find(NULL, false)};
    const ls_host host = {.size = sizeof host, .log = keep, .user = &s};
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        size_t n = strlen("time,a,y\n");
        for (int i = 0; i < 200; i++)
            n += (size_t)sprintf(text + n, "%d,%d,%d\n",
                                 1700000000 + 60 * i + (broken && i == 150 ? 400 : 0), i * 7 % 11,
                                 i % 2);
        memset(&s, 0, sizeof s);
        scratch_begin(&dir);
        scratch_file(&dir, "t.csv", text, n);
        const ls_dataset_spec spec = {
            .name = "csv", .path = scratch_path(&dir, "t.csv"), .keys = of_y};
        assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, &host, &err), LS_OK);
        ls_log_data_doubts(&c, split[0], split[1], &host);
        if (broken)
            assert_string_equal(s.warnings, "");
        else
            warns(&s, "column \"time\" goes up evenly from row to row");
        ls_dataset_close(split[0]);
        ls_dataset_close(split[1]);
        scratch_end(&dir);
    }
}

static void inputs_and_targets_that_look_wrong_are_said(void **state)
{
    said s;
    ls_data_keys keys = of_y;
    (void)state;
    keys.standardize = 0;
    tell(&s, "a,y", "%d000.5,%d", 60, keys);
    warns(&s, "nothing scales them; data.standardize does");
    keys = of_y;
    keys.labels = LS_LABELS_VALUES;
    tell(&s, "a,y", "%d.5,%d", 80, keys);
    warns(&s, "are 2 different whole numbers, and are learnt as values");
    keys.standardize_target = 1;
    tell(&s, "a,y", "%d.5,%d", 80, keys);
    warns(&s, "are 2 different whole numbers, and are learnt as values");
    tell(&s, "a,y", "1.5,%d", 80, keys); /* no warning: all targets are different numbers */
    assert_string_equal(s.warnings, "");
    tell(&s, "y,a", "%d,%d.5", 80, of_y); /* each row has another target */
    warns(&s, "taken for 80 classes of 80 rows");
}

static void an_accuracy_of_the_commonest_class_is_said(void **state)
{
    static const char text[] = "a,y\n1,u\n2,u\n3,u\n4,u\n5,u\n6,u\n7,u\n8,v\n9,v\n1,v\n";
    said s = {.warnings = ""};
    scratch dir;
    ls_error err;
    ls_dataset *split[2];
    const ls_host host = {.size = sizeof host, .log = keep, .user = &s};
    (void)state;
    scratch_begin(&dir);
    scratch_file(&dir, "t.csv", text, strlen(text));
    const ls_dataset_spec spec = {.name = "csv", .path = scratch_path(&dir, "t.csv"), .keys = of_y};
    assert_int_equal(ls_dataset_open(&split[0], &split[1], &spec, &host, &err), LS_OK);
    ls_warn_of_accuracy(split[0], 0.8, &host);
    assert_string_equal(s.warnings, "");
    ls_warn_of_accuracy(split[0], 0.7, &host);
    warns(&s, "an accuracy of 0.7000 is no better than");
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
    scratch_end(&dir);
}

LS_TESTS(train_doubts, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ordinary_table_is_told_and_not_doubted),
        cmocka_unit_test(columns_that_say_nothing_are_named),
        cmocka_unit_test(times_a_minute_apart_are_named),
        cmocka_unit_test(an_accuracy_of_the_commonest_class_is_said),
        cmocka_unit_test(inputs_and_targets_that_look_wrong_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
