/* SPDX-License-Identifier: MIT */
/* Tests the warnings about a run's data. Data that look like a mistake cause a warning, which names
 * the config key to change; other data cause no warning. */
#include "data/npy.h"
#include "data/scratch.h"
#include "runner.h"
#include "train/doubts.h"

#include <math.h>
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
    tell(&s, "at,y,a", "1%02d00,%d,1.5", 60, of_y);
    warns(&s, "column \"at\" goes up evenly from row to row");
    tell(&s, "at,y,a", "-%d,%d,1.5", 60, of_y);
    warns(&s, "column \"at\" goes down evenly from row to row");
    tell(&s, "at,y", "1%02d00,%d", 60,
         of_y); /* no warning: there is no other column to learn from */
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

enum { FAR_ROWS = 40 };

/* Writes an array [FAR_ROWS][2] whose column k is offset[k] + step · row. */
static void put_far(scratch *dir, const char *name, bool wide, const double offset[2], double step)
{
    char dictionary[80];
    double value[2 * FAR_ROWS];
    float floats[2 * FAR_ROWS];
    for (int i = 0; i < 2 * FAR_ROWS; i++) {
        value[i] = offset[i % 2] + step * (i / 2 * 7 % FAR_ROWS);
        floats[i] = (float)value[i];
    }
    snprintf(dictionary, sizeof dictionary,
             "{'descr': '<f%d', 'fortran_order': False, 'shape': (%d, 2), }", wide ? 8 : 4,
             FAR_ROWS);
    bytes_put(
        dir, name,
        bytes_npy(dictionary, wide ? (void *)value : floats, wide ? sizeof value : sizeof floats));
}

/* Collects the messages about arrays of floats or doubles, x and y, with these offsets. */
static void tell_far(said *s, bool wide, const double x[2], const double y[2], double step)
{
    scratch dir;
    ls_error err;
    ls_dataset *split[2];
    const ls_config c = {.eval_every = 1, .loss = ls_loss_find(NULL, true)};
    const ls_host host = {.size = sizeof host, .log = keep, .user = s};
    memset(s, 0, sizeof *s);
    scratch_begin(&dir);
    put_far(&dir, "x.npy", wide, x, step);
    put_far(&dir, "y.npy", wide, y, step);
    const ls_dataset_spec spec = {
        .name = "npy",
        .path = dir.directory,
        .keys = {.x = "x.npy", .y = "y.npy", .standardize = 1, .standardize_target = 1}};
    if (ls_dataset_open(&split[0], &split[1], &spec, &host, &err) != LS_OK)
        fail_msg("%s", err.text);
    ls_log_data_doubts(&c, split[0], split[1], &host);
    close_splits(split);
    scratch_end(&dir);
}

/* Fails unless there is one warning about floats, with this text; NULL: none. */
static void warns_once_of_floats(const said *s, const char *what)
{
    const char *first = strstr(s->warnings, "floats near");
    if (!what && first)
        fail_msg("unexpected: %s", s->warnings);
    if (!what)
        return;
    warns(s, what);
    if (strstr(first + 1, "floats near"))
        fail_msg("more than one: %s", s->warnings);
}

/* Numbers near an offset at which floats are too far apart, in tables and arrays. Rows and columns
 * of doubles lose nothing, and targets of doubles lose digits in some predictions only. */
static void an_offset_that_floats_do_not_bear_is_named(void **state)
{
    static const double none[2] = {0, 0}, second[2] = {0, 1.7e9}, both[2] = {-1.7e9, 3e9};
    said s;
    ls_data_keys keys = of_y;
    (void)state;
    keys.labels = LS_LABELS_VALUES;
    keys.standardize_target = 1;
    tell(&s, "a,y", "1.5,17000000%02d", 60, keys);
    warns_once_of_floats(
        &s,
        "targets: predictions of ONNX, and of C without LS_OUTPUT_F64: floats near 1.70000003e+09 "
        "are 128 apart, and the deviation is 17.32: subtract 1.70000003e+09 before");
    tell(&s, "a,y", "1.5,%02d", 60, keys);
    warns_once_of_floats(&s, NULL);
    tell(&s, "a,b,y", "1700000000%02d,7,%d", 60, of_y);
    warns_once_of_floats(&s, NULL);
    tell_far(&s, false, none, second, 128);
    warns_once_of_floats(&s, "targets: floats near 1.7000025e+09 are 128 apart, and the "
                             "deviation is 1478: subtract 1.7000025e+09 before");
    tell_far(&s, false, second, none, 128);
    warns_once_of_floats(&s, "rows: floats near 1.7000025e+09 are 128 apart");
    tell_far(&s, true, second, none, 1);
    warns_once_of_floats(&s, NULL);
    tell_far(&s, true, both, second, 1);
    warns_once_of_floats(&s, "C without LS_OUTPUT_F64: floats near 1.70000002e+09 are 128 "
                             "apart, and the deviation is 11.54: subtract 1.70000002e+09");
    tell_far(&s, false, none, none, 1);
    warns_once_of_floats(&s, NULL);
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
    tell(&s, "a,y", "%1$d.5,%1$d", 80, keys); /* no warning: all targets are different numbers */
    assert_string_equal(s.warnings, "");
    tell(&s, "y,a", "%d,%d.5", 80, of_y); /* each row has another target */
    warns(&s, "taken for 80 classes of 80 rows");
}

/* Judges the last result of a model of the rows of a table. */
static void judge_table(said *s, const char *text, ls_data_keys keys, ls_config c,
                        ls_last_result last)
{
    scratch dir;
    ls_error err;
    ls_dataset *split[2];
    const ls_host host = {.size = sizeof host, .log = keep, .user = s};
    memset(s, 0, sizeof *s);
    c.loss = ls_loss_find(NULL, keys.labels == LS_LABELS_VALUES);
    c.data_keys = keys;
    for (int i = 0; i < 4; i++)
        c.preprocessing.std[i] = 1;
    scratch_begin(&dir);
    scratch_file(&dir, "t.csv", text, strlen(text));
    const ls_dataset_spec spec = {.name = "csv", .path = scratch_path(&dir, "t.csv"), .keys = keys};
    if (ls_dataset_open(&split[0], &split[1], &spec, &host, &err) != LS_OK)
        fail_msg("%s", err.text);
    ls_log_result_doubts(&c, split[0], &last, &host);
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
    scratch_end(&dir);
}

/* Texts of 60 rows, of which the last `others` are of the class v: a table with a column that is
 * not scaled, or is. */
static void judge(said *s, int others, bool values, ls_config c, bool scaled, ls_last_result last)
{
    char text[2048] = "a,y\n";
    const ls_data_keys keys = {.target = {.text = "y"},
                               .standardize = scaled,
                               .labels = values ? LS_LABELS_VALUES : LS_LABELS_CLASSES};
    size_t n = strlen(text);
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, values ? "%d.5,%d\n" : "%d.5,%c\n", i,
                              values            ? i * i
                              : i < 60 - others ? 'u'
                                                : 'v');
    judge_table(s, text, keys, c, last);
}

static void lacks(const said *s, const char *what)
{
    if (strstr(s->warnings, what))
        fail_msg("expected no \"%s\" in: %s", what, s->warnings);
}

/* The last evaluation after epoch 9. */
static ls_last_result result(double accuracy, double loss, double least, uint32_t least_epoch)
{
    return (ls_last_result){.loss = loss,
                            .accuracy = accuracy,
                            .r2 = NAN,
                            .auc = NAN,
                            .least_loss = least,
                            .train_loss = NAN,
                            .epoch = 9,
                            .least_epoch = least_epoch};
}

static void an_accuracy_of_the_commonest_class_has_its_cause(void **state)
{
    said s;
    ls_config c = {0};
    (void)state;
    judge(&s, 18, false, c, false, result(0.71, 0.5, 0.5, 9));
    assert_string_equal(s.warnings, "");
    /* nothing is learnt */
    judge(&s, 18, false, c, false, result(0.7, 0.61, 0.61, 9));
    warns(&s, "an accuracy of 0.7000 is no better than always answering the most common class of "
              "the 60 train rows (0.7000): try another optimizer.lr (the verb find-lr), more "
              "epochs, or scaled inputs (data.standardize, data.mean, data.std)\n");
    judge(&s, 18, false, c, true, result(0.7, 0.61, 0.61, 9));
    warns(&s, "more epochs\n");
    /* the loss has not fallen since epoch 8: more epochs are no cure */
    judge(&s, 18, false, c, true, result(0.7, 0.61, 0.609, 8));
    warns(&s, "try another optimizer.lr (the verb find-lr)\n");
    /* the loss has risen */
    judge(&s, 18, false, c, true, result(0.68, 0.64, 0.61, 5));
    warns(&s, "the loss was lowest after epoch 5 (0.61) and is 0.64 now, so the model is "
              "overfitted: fewer epochs, patience, or checkpoint.best");
    lacks(&s, "more epochs");
    judge(&s, 18, false, c, true, result(0.68, 0.8, 0.62, 5));
    warns(&s, "and is 0.8 now, but was never below that of a guess (0.6109)");
    lacks(&s, "more epochs");
    /* there are few rows of the other class */
    judge(&s, 3, false, c, true, result(0.95, 0.1, 0.1, 9));
    warns(&s, "only 3 rows are of another class, so the accuracy tells little");
    lacks(&s, "optimizer.lr");
    judge(&s, 18, false, c, true, result(0.7, 0.61, 0.61, 9));
    lacks(&s, "rows are of another class");
    /* all rows are of one class; class weights are set */
    judge(&s, 0, true, c, true, result(NAN, 1, 1, 9));
    assert_string_equal(s.warnings, "");
    cJSON *weights = cJSON_CreateString("balanced");
    c.class_weights = weights;
    judge(&s, 3, false, c, true, result(0.9, 0.2, 0.2, 9));
    assert_string_equal(s.warnings, "");
    cJSON_Delete(weights);
}

/* Of 60 rows 57 are of the class u, with a weight of 1, and 3 of the class v, with a weight of 38.
 * So v has two thirds of the weight, and is the most common class. */
static void the_commonest_class_is_that_of_the_weights(void **state)
{
    said s;
    const ls_config c = {0};
    const ls_data_keys keys = {.target = {.text = "y"}, .weight = "w", .standardize = true};
    char text[2048] = "a,y,w\n";
    (void)state;
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%d.5,%s\n", i,
                 i < 57 ? "u,1" : "v,38");
    judge_table(&s, text, keys, c, result(0.67, 0.5, 0.5, 9));
    assert_string_equal(s.warnings, "");
    judge_table(&s, text, keys, c, result(0.66, 0.5, 0.5, 9));
    warns(&s, "an accuracy of 0.6600 is no better than always answering the most common class of "
              "the 60 train rows (0.6667)");
}

/* The loss of a guess is 0.6109, for values 0.5. */
static void a_model_that_knows_its_training_rows_only_is_said_to_memorise(void **state)
{
    said s;
    const ls_config c = {0};
    ls_last_result r = result(0.7, 0.9, 0.9, 9);
    (void)state;
    r.train_loss = 0.0003;
    judge(&s, 18, false, c, true, r);
    warns(&s, "(0.7000): the loss of the training rows is 0.0003, but that of these rows was never "
              "below a guess's (0.6109), so the model memorises: more rows, dropout or a smaller "
              "model, or inputs that say more about the target\n");
    lacks(&s, "more epochs");
    r.least_loss = 0.7; /* the loss has risen: a large optimizer.lr is not the cause */
    r.least_epoch = 2;
    judge(&s, 18, false, c, true, r);
    warns(&s, "so the model memorises");
    lacks(&s, "optimizer.lr");
    r.least_loss = 0.6; /* it was below that of a guess: to end earlier helps */
    judge(&s, 18, false, c, true, r);
    warns(&s, "overfitted: fewer epochs, patience, or checkpoint.best");
    r = result(0.7, 0.9, 0.9, 9);
    r.train_loss = 0.5; /* the training rows are not learnt either */
    judge(&s, 18, false, c, true, r);
    warns(&s, "more epochs\n");
    r = result(NAN, 1, 1, 9);
    r.train_loss = 0.0003;
    r.r2 = -1;
    judge(&s, 0, true, c, true, r);
    warns(&s,
          "(0): the loss of the training rows is 0.0003, but that of these rows was never below "
          "a guess's (0.5), so the model memorises");
}

static void a_loss_that_has_risen_is_said(void **state)
{
    said s;
    ls_config c = {0};
    (void)state;
    judge(&s, 18, false, c, true, result(0.8, 0.6, 0.4, 4));
    warns(&s, "the loss on the train rows was lowest after epoch 4 (0.4) and is 0.6 now, so the "
              "model is overfitted: fewer epochs, patience, or checkpoint.best");
    judge(&s, 18, false, c, true, result(0.8, 0.42, 0.4, 4)); /* a little */
    assert_string_equal(s.warnings, "");
    judge(&s, 18, false, c, true, result(1, 0.0009, 0.0003, 4)); /* three times nothing */
    assert_string_equal(s.warnings, "");
    c.checkpoint.best = 1;
    judge(&s, 18, false, c, true, result(0.8, 0.6, 0.4, 4));
    assert_string_equal(s.warnings, "");
    c = (ls_config){.patience = 3};
    judge(&s, 18, false, c, true, result(0.8, 0.6, 0.4, 4));
    assert_string_equal(s.warnings, "");
}

static void values_no_better_than_their_mean_are_said(void **state)
{
    said s;
    ls_config c = {0};
    ls_last_result r = result(NAN, 10, 10, 9);
    (void)state;
    r.r2 = -12.6;
    judge(&s, 0, true, c, true, r);
    warns(&s, "an r2 of -12.6 is no better than always answering the mean of the 60 train rows "
              "(0): try another optimizer.lr (the verb find-lr), more epochs\n");
    r.least_loss = 8;
    r.least_epoch = 2; /* the loss of a guess is 0.7, so the model has never been better */
    judge(&s, 0, true, c, true, r);
    warns(&s, "the loss was lowest after epoch 2 (8) and is 10 now, but was never below that of a "
              "guess (0.7353): optimizer.lr is too large");
    lacks(&s, "overfitted");
    r.r2 = 0;
    judge(&s, 0, true, c, true, r);
    warns(&s, "the loss was lowest after epoch 2 (8) and is 10 now, so the model is overfitted");
    r.r2 = 0.5; /* a guess has the loss 20, and 2 is a tenth of that */
    judge(&s, 0, true, c, true, r);
    assert_string_equal(s.warnings, "");
    r.least_loss = 7;
    judge(&s, 0, true, c, true, r);
    warns(&s, "the loss on the train rows was lowest after epoch 2 (7) and is 10 now");
    r = result(NAN, 0.7, 0.69, 9);
    r.auc = 0.5;
    judge(&s, 0, true, c, true, r);
    warns(&s, "an auc of 0.5 on the 60 train rows is no better than guessing (0.5)");
    r.auc = 0.51;
    judge(&s, 0, true, c, true, r);
    assert_string_equal(s.warnings, "");
}

/* Each sentence about targets and columns is absent where it would be false. */
static void sentences_are_absent_where_they_would_be_false(void **state)
{
    said s;
    ls_data_keys keys = of_y;
    (void)state;
    tell(&s, "y,a", "name%d,%d.5", 80, keys); /* names are no values */
    lacks(&s, "if they are values");
    keys.labels = LS_LABELS_VALUES;
    tell(&s, "a,y", "%d.5,7", 80, keys);
    warns(&s, "the target of every training row is 7, so there is nothing to learn");
    lacks(&s, "different whole numbers");
    keys.weight = "w";
    tell(&s, "a,y,w", "%d.5,%d.5,0", 80, keys);
    warns(&s, "the weight of every training row is 0, so there is nothing to learn");
    tell(&s, "a,w,y", "%d.5,%d,5.5", 80, keys);
    lacks(&s, "weight");
    keys.weight = NULL;
    tell(&s, "a,y", "%d.5,100000000%d", 80, keys); /* a float does not hold them */
    lacks(&s, "whole numbers");
    keys = of_y;
    keys.validation = 0.5; /* the texts of all rows are counted, those that are held out as well */
    tell(&s, "who,y", "name %d,%d", 60, keys);
    warns(&s, "column \"who\" has 60 different texts in 60 rows, so it tells little");
}

LS_TESTS(train_doubts, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ordinary_table_is_told_and_not_doubted),
        cmocka_unit_test(columns_that_say_nothing_are_named),
        cmocka_unit_test(times_a_minute_apart_are_named),
        cmocka_unit_test(an_offset_that_floats_do_not_bear_is_named),
        cmocka_unit_test(an_accuracy_of_the_commonest_class_has_its_cause),
        cmocka_unit_test(the_commonest_class_is_that_of_the_weights),
        cmocka_unit_test(a_model_that_knows_its_training_rows_only_is_said_to_memorise),
        cmocka_unit_test(a_loss_that_has_risen_is_said),
        cmocka_unit_test(values_no_better_than_their_mean_are_said),
        cmocka_unit_test(sentences_are_absent_where_they_would_be_false),
        cmocka_unit_test(inputs_and_targets_that_look_wrong_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
