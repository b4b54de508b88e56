/* SPDX-License-Identifier: MIT */
/* Tests predictions for new rows. The rows are read from a file of the user. If they are the rows
 * of the evaluation, they must give the same results. */
#include "data/scratch.h"
#include "own_data.h"
#include "runner.h"
#include "train/train_fixture.h"

#include <lockstep/model.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 5

static const char train_csv[] = "mass,island,year,y\n"
                                "4100,Dream,2007,1\n3900,Biscoe,2008,2\n,Dream,2009,1.5\n"
                                "5200,Biscoe,2007,3\n4700,,2008,2.5\n3300,Dream,2009,0.5\n";
static const char test_csv[] = "mass,island,year,y\n"
                               "4000,Biscoe,2008,1.25\n5000,Dream,2007,2\n,Biscoe,2009,0\n"
                               "3500,,2008,1\n6000,Dream,2009,-1\n";
static const float target[ROWS] = {1.25f, 2, 0, 1, -1};
static const float raw[ROWS][4] = {{4000, 1, 0, 2008},
                                   {5000, 0, 1, 2007},
                                   {NAN, 1, 0, 2009},
                                   {3500, 0, 0, 2008},
                                   {6000, 0, 1, 2009}};
static const ls_field fields[ROWS][4] = {
    {{"year", LS_FIELD_NUMBER, NULL, 2008},
     {"island", LS_FIELD_TEXT, "Biscoe", 0},
     {"other", LS_FIELD_TEXT, "?", 0},
     {"mass", LS_FIELD_TEXT, "4e3", 0}},
    {{"mass", LS_FIELD_TEXT, "5000", 0},
     {"island", LS_FIELD_TEXT, "Dream", 0},
     {"year", LS_FIELD_TEXT, "2007", 0},
     {"y", LS_FIELD_TEXT, "2", 0}},
    {{"mass", LS_FIELD_NUMBER, NULL, NAN},
     {"island", LS_FIELD_TEXT, "Biscoe", 0},
     {"year", LS_FIELD_NUMBER, NULL, 2009},
     {"y", LS_FIELD_TEXT, "", 0}},
    {{"mass", LS_FIELD_NUMBER, NULL, 3500},
     {"island", LS_FIELD_TEXT, "", 0},
     {"year", LS_FIELD_NUMBER, NULL, 2008},
     {"y", LS_FIELD_NUMBER, NULL, 1}},
    {{"mass", LS_FIELD_NUMBER, NULL, 6000},
     {"island", LS_FIELD_TEXT, "Dream", 0},
     {"year", LS_FIELD_NUMBER, NULL, 2009},
     {"y", LS_FIELD_NUMBER, NULL, 1}},
};

typedef struct scenario {
    fixture f;
    scratch dir;
    char data[2048];
    const char *path;
    double test_loss;
    ls_model *model;
} scenario;

/* Saves the trainer's model to `path`, closes the trainer, and opens the file. */
static ls_model *save_and_open(fixture *f, ls_trainer *t, const char *path)
{
    ls_model *model;
    const ls_model_options o = {.size = sizeof o, .device = "ref:1", .registry = f->registry};
    if (ls_trainer_save(t, path, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    ls_trainer_close(t, NULL);
    if (ls_model_open(&model, path, &o, &f->err) != LS_OK)
        fail_msg("%s", f->err.text);
    return model;
}

/* Trains on the table, and opens the file of the trained weights. */
static void begin(scenario *s, const char *more)
{
    char test[512];
    fixture_begin(&s->f);
    scratch_begin(&s->dir);
    scratch_file(&s->dir, "train.csv", train_csv, strlen(train_csv));
    scratch_file(&s->dir, "test.csv", test_csv, strlen(test_csv));
    snprintf(test, sizeof test, "%s", scratch_path(&s->dir, "test.csv"));
    snprintf(s->data, sizeof s->data,
             "data={\"name\":\"csv\",\"path\":\"%s\",\"test_path\":\"%s\",\"target\":\"y\","
             "\"labels\":\"values\"%s}",
             scratch_path(&s->dir, "train.csv"), test, more);
    fixture_set(&s->f, s->data);
    fixture_set(&s->f, "batch_size=4");
    fixture_set(&s->f, "shards=2");
    fixture_set(&s->f, "model={\"layers\":[{\"type\":\"dense\",\"out\":6},{\"type\":\"tanh\"},"
                       "{\"type\":\"dense\",\"out\":1}]}");
    ls_trainer *t = fixture_run(&s->f);
    s->test_loss = t->reported.result.test_loss;
    s->path = scratch_path(&s->dir, "model.safetensors");
    remove(scratch_path(&s->dir, "train.csv")); /* the directory contains one file only */
    s->model = save_and_open(&s->f, t, s->path);
}

static void end(scenario *s)
{
    ls_model_release(s->model);
    scratch_end(&s->dir);
    fixture_end(&s->f);
}

static double loss_of(const float *value)
{
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        sum += ((double)value[i] - (double)target[i]) * ((double)value[i] - (double)target[i]);
    return sum / ROWS;
}

static void rows_of_a_table_are_standardised_as_in_the_training(void **state)
{
    (void)state;
    scenario s;
    float value[ROWS], logits[ROWS];
    begin(&s, ",\"standardize\":true,\"missing\":\"mean\"");
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, LS_OUTPUT_PREDICTION, value,
                                      ROOM(value), &s.f.err),
                     LS_OK);
    assert_true(fabs(loss_of(value) - s.test_loss) < 1e-5 * (1 + s.test_loss));
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, LS_OUTPUT_LOGITS, logits,
                                      ROOM(logits), &s.f.err),
                     LS_OK);
    /* if a model predicts values, the logits are the values */
    assert_memory_equal(logits, value, sizeof value);
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, LS_OUTPUT_LOGITS, logits,
                                      ROOM(logits), &s.f.err),
                     LS_OK);
    assert_memory_equal(logits, value, sizeof value);
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, (ls_output)2, logits,
                                      ROOM(logits), &s.f.err),
                     LS_EINVAL);
    end(&s);
}

/* The same table with other separators and columns in another order, as a file: what the library
 * reads for a model in memory are the rows that the program would read. */
static void rows_of_a_file_are_those_of_the_model(void **state)
{
    (void)state;
    scenario s;
    ls_rows *rows;
    float want[ROWS], value[ROWS];
    double fine[ROWS];
    ls_evaluation found = {.size = sizeof found};
    begin(&s, ",\"standardize\":true,\"missing\":\"mean\"");
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, LS_OUTPUT_PREDICTION, want,
                                      ROOM(want), &s.f.err),
                     LS_OK);
    const char *path = scratch_path(&s.dir, "test.csv");
    if (ls_rows_open(&rows, s.model, path, NULL, &s.f.err) != LS_OK)
        fail_msg("%s", s.f.err.text);
    assert_int_equal(ls_rows_count(rows), ROWS);
    assert_null(ls_rows_name(rows, 0));
    assert_null(ls_rows_why(rows, 0));
    assert_int_equal(ls_rows_predict(rows, 0, ROWS, LS_OUTPUT_PREDICTION, value, ROWS, &s.f.err),
                     LS_OK);
    assert_memory_equal(value, want, sizeof want);
    assert_int_equal(ls_rows_predict(rows, 1, ROWS - 1, LS_OUTPUT_LOGITS | LS_OUTPUT_F64, fine,
                                     ROWS - 1, &s.f.err),
                     LS_OK);
    for (int i = 1; i < ROWS; i++)
        assert_true((float)fine[i - 1] == want[i]);
    assert_int_equal(ls_rows_predict(rows, 1, ROWS, LS_OUTPUT_LOGITS, value, ROWS, &s.f.err),
                     LS_EINVAL);
    assert_int_equal(ls_rows_predict(rows, 0, 2, LS_OUTPUT_LOGITS, value, 1, &s.f.err), LS_EINVAL);
    if (ls_model_evaluate(s.model, path, NULL, &found, &s.f.err) != LS_OK)
        fail_msg("%s", s.f.err.text);
    assert_true(found.rows == ROWS && fabs(found.loss - s.test_loss) < 1e-6 * (1 + s.test_loss));
    assert_string_equal(found.metric, "r2");
    /* the rows keep the model */
    ls_model_release(ls_model_retain(s.model));
    ls_rows_close(rows);
    const ls_rows_options two = {.size = sizeof two, .limit = 2};
    assert_int_equal(ls_rows_open(&rows, s.model, path, &two, &s.f.err), LS_OK);
    assert_int_equal(ls_rows_count(rows), 2);
    assert_int_equal(ls_model_evaluate(s.model, path, &two, &found, &s.f.err), LS_OK);
    assert_int_equal(found.rows, 2);
    ls_rows_close(rows);
    assert_int_equal(ls_rows_open(&rows, s.model, "nothing.csv", NULL, &s.f.err), LS_ENOENT);
    assert_null(rows);
    end(&s);
}

static void rows_by_the_names_of_columns_are_the_same(void **state)
{
    (void)state;
    scenario s;
    double row[ROWS][4];
    float value[ROWS], want[ROWS];
    begin(&s, ",\"standardize\":true,\"missing\":\"mean\"");
    for (int i = 0; i < ROWS; i++)
        if (ls_model_row(s.model, fields[i], 4, sizeof(ls_field), row[i], ROOM(row[i]), &s.f.err) !=
            LS_OK)
            fail_msg("row %d: %s", i, s.f.err.text);
    assert_int_equal(ls_model_predict(s.model, row, LS_ROW_F64, ROWS, LS_OUTPUT_PREDICTION, value,
                                      ROOM(value), &s.f.err),
                     LS_OK);
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, LS_OUTPUT_PREDICTION, want,
                                      ROOM(want), &s.f.err),
                     LS_OK);
    assert_memory_equal(value, want, sizeof want);
    assert_non_null(strstr(ls_model_card(s.model), "\"preparation\""));
    end(&s);
}

/* Times in milliseconds differ only beyond the digits of a float. Texts, numbers and whole rows of
 * doubles give what the run's own test table gave; a row of floats has lost the digits. */
static void long_numbers_are_predicted_as_they_are_tested(void **state)
{
    (void)state;
    static const double ms[ROWS] = {1764364143003, 1764364143001, 1764364143005, INFINITY,
                                    1764364143004};
    static const char *const text[ROWS] = {"1764364143003", "1764364143001 ", "1.764364143005e12",
                                           "", "1764364143004.0"};
    float value[ROWS], again[ROWS];
    double by_text[ROWS], by_number[ROWS], sum = 0;
    char data[4096];
    scenario s;
    fixture_begin(&s.f);
    scratch_begin(&s.dir);
    static const char train[] = "ms,y\n1764364143000,0\n1764364143002,2\n1764364143004,4\n"
                                "1764364143006,6\n",
                      test[] = "ms,y\n1764364143003,3\n1764364143001,1\n1764364143005,5\n,3\n"
                               "1764364143004,4\n";
    static const double y[ROWS] = {3, 1, 5, 3, 4};
    scratch_file(&s.dir, "train.csv", train, strlen(train));
    scratch_file(&s.dir, "test.csv", test, strlen(test));
    snprintf(s.data, sizeof s.data, "%s", scratch_path(&s.dir, "test.csv"));
    snprintf(data, sizeof data,
             "data={\"name\":\"csv\",\"path\":\"%s\",\"test_path\":\"%s\",\"target\":\"y\","
             "\"labels\":\"values\",\"standardize\":true,\"missing\":\"mean\"}",
             scratch_path(&s.dir, "train.csv"), s.data);
    fixture_set(&s.f, data);
    fixture_set(&s.f, "batch_size=4");
    fixture_set(&s.f, "epochs=40");
    fixture_set(&s.f, "eval_every=40");
    fixture_set(&s.f, "shards=1");
    fixture_set(&s.f, "optimizer={\"name\":\"sgd\",\"lr\":0.3}");
    fixture_set(&s.f, "model={\"layers\":[{\"type\":\"dense\",\"out\":1}]}");
    ls_trainer *t = fixture_run(&s.f);
    s.test_loss = t->reported.result.test_loss;
    s.model = save_and_open(&s.f, t, scratch_path(&s.dir, "model.safetensors"));
    for (int i = 0; i < ROWS; i++) {
        const ls_field field = {"ms", LS_FIELD_TEXT, text[i], 0},
                       number = {" ms", LS_FIELD_NUMBER, NULL, ms[i]};
        assert_int_equal(
            ls_model_row(s.model, &field, 1, sizeof(ls_field), &by_text[i], 1, &s.f.err), LS_OK);
        assert_int_equal(
            ls_model_row(s.model, &number, 1, sizeof(ls_field), &by_number[i], 1, &s.f.err), LS_OK);
    }
    assert_int_equal(ls_model_predict(s.model, by_text, LS_ROW_F64, ROWS, LS_OUTPUT_LOGITS, value,
                                      ROWS, &s.f.err),
                     LS_OK);
    assert_int_equal(ls_model_predict(s.model, by_number, LS_ROW_F64, ROWS, LS_OUTPUT_LOGITS, again,
                                      ROWS, &s.f.err),
                     LS_OK);
    assert_memory_equal(value, again, sizeof value);
    assert_int_equal(
        ls_model_predict(s.model, ms, LS_ROW_F64, ROWS, LS_OUTPUT_LOGITS, again, ROWS, &s.f.err),
        LS_OK);
    assert_memory_equal(value, again, sizeof value);
    for (int i = 0; i < ROWS; i++)
        sum += (value[i] - y[i]) * (value[i] - y[i]) / ROWS;
    if (!(fabs(sum - s.test_loss) < 1e-6 && sum < 1e-3))
        fail_msg("loss %g in the training, %g of the file", s.test_loss, sum);
    assert_int_equal(
        ls_model_predict(s.model, ms, LS_ROW_U8, ROWS, LS_OUTPUT_LOGITS, again, ROWS, &s.f.err),
        LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "the model reads floats (LS_ROW_F32) or doubles"));
    end(&s);
}

static void refuses(scenario *s, const ls_field *field, size_t count, int status, const char *says)
{
    double row[4];
    ls_error err = {0};
    assert_int_equal(ls_model_row(s->model, field, count, sizeof(ls_field), row, ROOM(row), &err),
                     status);
    if (!strstr(err.text, says))
        fail_msg("expected \"%s\" in: %s", says, err.text);
}

/* An unknown text is no error of the row: its outputs are NaN, and those of the rows beside it are
 * not. More rows than a pass of the predictor has are predicted. */
static void unknown_texts_have_no_outputs(scenario *s)
{
    enum { MANY = 150 };
    double row[MANY][3];
    float value[MANY], alone;
    ls_model_info info = {.size = sizeof info};
    ls_error err = {0};
    assert_int_equal(ls_model_describe(s->model, &info, &err), LS_OK);
    assert_int_equal(info.channels, 3);
    for (int i = 0; i < MANY; i++) {
        const ls_field field[] = {{"island", LS_FIELD_TEXT, i % 7 == 3 ? "Torgersen" : "Dream", 0},
                                  {"year", LS_FIELD_NUMBER, NULL, 2000 + i % 9}};
        assert_int_equal(ls_model_row(s->model, field, 2, sizeof(ls_field), row[i], 3, &err),
                         LS_OK);
    }
    assert_int_equal(
        ls_model_predict(s->model, row, LS_ROW_F64, MANY, LS_OUTPUT_LOGITS, value, MANY, &err),
        LS_OK);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(
            ls_model_predict(s->model, row[i], LS_ROW_F64, 1, LS_OUTPUT_LOGITS, &alone, 1, &err),
            LS_OK);
        assert_true(i % 7 == 3 ? isnan(value[i]) && isnan(alone) : fabsf(value[i] - alone) < 1e-4f);
    }
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    scenario s;
    float value[ROWS];
    static const ls_field unknown[] = {{"mass", LS_FIELD_TEXT, "1", 0},
                                       {"island", LS_FIELD_TEXT, "Torgersen", 0}},
                          twice[] = {{"mass", LS_FIELD_TEXT, "1", 0},
                                     {"mass", LS_FIELD_TEXT, "1", 0}},
                          text[] = {{"mass", LS_FIELD_TEXT, "heavy", 0}},
                          no_text[] = {{"mass", LS_FIELD_TEXT, NULL, 1}},
                          no_kind[] = {{"mass", (ls_field_kind)3, "1", 1}};
    begin(&s, ",\"drop\":\"island\",\"missing\":\"zero\"");
    assert_int_equal(ls_model_column_count(s.model), 2);
    for (int i = -1; i < 3; i++)
        assert_true((ls_model_column_name(s.model, i) != NULL) == (i == 0 || i == 1));
    assert_string_equal(ls_model_column_name(s.model, 0), "mass");
    assert_string_equal(ls_model_column_name(s.model, 1), "year");
    refuses(&s, text, 1, LS_EDATA, "column \"mass\": expected a number, found \"heavy\"");
    refuses(&s, twice, 2, LS_EINVAL, "\"mass\" is there twice");
    refuses(&s, no_text, 1, LS_EINVAL, "the kind is LS_FIELD_TEXT, and there is no text");
    refuses(&s, no_kind, 1, LS_EINVAL, "column \"mass\": kind 3; expected");
    assert_int_equal(ls_model_row(s.model, text, 1, 0, (double[3]){0}, 3, &s.f.err), LS_EINVAL);
    assert_non_null(strstr(s.f.err.text, "ls_field: `size` is not set"));
    refuses(&s, unknown, 2, LS_EDATA, "column \"year\" is missing");
    end(&s);
    begin(&s, ",\"drop\":\"mass\",\"missing\":\"zero\"");
    unknown_texts_have_no_outputs(&s);
    end(&s);
    begin(&s, ",\"drop\":\"mass\",\"missing\":\"zero\",\"unknown\":\"error\"");
    refuses(&s, unknown, 2, LS_EDATA, "expected a text that the model has learnt: Biscoe, Dream");
    end(&s);
    begin(&s, ",\"standardize\":true,\"missing\":\"zero\"");
    assert_int_equal(ls_model_predict(s.model, raw, LS_ROW_F32, ROWS, LS_OUTPUT_PREDICTION, value,
                                      ROOM(value), &s.f.err),
                     LS_OK);
    assert_true(fabs(loss_of(value) - s.test_loss) < 1e-5 * (1 + s.test_loss));
    end(&s);
}

/* Writes a table with the header "NAME0000,NAME0001,…,y". Column i has the value 100 · i + r in row
 * r. */
static void write_wide(scratch *dir, const char *file, int columns, int name_bytes, int rows)
{
    const size_t room = (size_t)columns * (size_t)(name_bytes + 12 * rows + 2) + 64;
    char *text = malloc(room);
    size_t n = 0;
    assert_non_null(text);
    for (int i = 0; i < columns; i++)
        n += (size_t)snprintf(text + n, room - n, "%0*d,", name_bytes, i);
    n += (size_t)snprintf(text + n, room - n, "y\n");
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < columns; i++)
            n += (size_t)snprintf(text + n, room - n, "%d,", 100 * i + r);
        n += (size_t)snprintf(text + n, room - n, "%d\n", r % 2);
    }
    scratch_file(dir, file, text, n);
    free(text);
}

static const char *wide_data(char out[1024], scratch *dir)
{
    const char *path = scratch_path(dir, "wide.csv");
    snprintf(out, 1024,
             "data={\"name\":\"csv\",\"path\":\"%s\",\"test_path\":\"%s\",\"target\":\"y\","
             "\"labels\":\"values\",\"standardize_target\":false}",
             path, path);
    return out;
}

/* Tests a table with very many columns, as tables of genes have. The file of weights contains the
 * scale of each column. */
static void a_wide_table_is_standardised_too(void **state)
{
    enum { WIDE = 17000 };
    (void)state;
    fixture f;
    scratch dir;
    char data[1024];
    float *rows = malloc(2 * WIDE * sizeof *rows), values[2];
    assert_non_null(rows);
    fixture_begin(&f);
    scratch_begin(&dir);
    write_wide(&dir, "wide.csv", WIDE, 5, 2);
    fixture_set(&f, wide_data(data, &dir));
    fixture_set(&f, "batch_size=2");
    fixture_set(&f, "epochs=40");
    fixture_set(&f, "eval_every=40");
    fixture_set(&f, "shards=2");
    fixture_set(&f, "optimizer={\"name\":\"sgd\",\"lr\":0.00001}");
    fixture_set(&f, "model={\"layers\":[{\"type\":\"dense\",\"out\":1}]}");
    ls_trainer *t = fixture_run(&f);
    const double loss = t->reported.result.test_loss; /* loss on the table of the run */
    for (int i = 0; i < 2 * WIDE; i++)
        rows[i] = (float)(100 * (i % WIDE) + i / WIDE);
    ls_model *model = save_and_open(&f, t, scratch_path(&dir, "model.safetensors"));
    assert_int_equal(ls_model_predict(model, rows, LS_ROW_F32, 2, LS_OUTPUT_PREDICTION, values,
                                      ROOM(values), &f.err),
                     LS_OK);
    const double found =
        ((double)values[0] * (double)values[0] + (values[1] - 1.0) * (values[1] - 1.0)) / 2;
    /* a model that has learnt nothing has a loss of 0.5 */
    if (!(loss < 0.4 && fabs(found - loss) < 1e-5))
        fail_msg("loss %g in the training, %g of the file", loss, found);
    ls_model_release(model);
    scratch_end(&dir);
    fixture_end(&f);
    free(rows);
}

/* Writes a table whose targets, around 10⁶, depend linearly on the input. */
static void write_line(fixture *f, scratch *dir, char data[1024])
{
    char text[2048];
    size_t n = (size_t)snprintf(text, sizeof text, "a,y\n");
    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,%d\n", i, 1000000 + 5000 * i);
    scratch_file(dir, "t.csv", text, n);
    const char *path = scratch_path(dir, "t.csv");
    snprintf(data, 1024,
             "data={\"name\":\"csv\",\"path\":\"%s\",\"test_path\":\"%s\",\"target\":\"y\","
             "\"labels\":\"values\"}",
             path, path);
    fixture_set(f, data);
    fixture_set(f, "batch_size=20");
    fixture_set(f, "shards=1");
    fixture_set(f, "epochs=60");
    fixture_set(f, "eval_every=60");
    fixture_set(f, "optimizer={\"name\":\"sgd\",\"lr\":0.3}");
    fixture_set(f, "model={\"layers\":[{\"type\":\"dense\"}]}");
}

/* The model learns the line, and all results are reported in the unit of the target. */
static void a_standardised_target_is_given_back_in_its_unit(void **state)
{
    (void)state;
    fixture f;
    scratch dir;
    char data[1024];
    float rows[20], values[20], again[20];
    double squares = 0;
    ls_evaluation found = {.size = sizeof found};
    fixture_begin(&f);
    scratch_begin(&dir);
    write_line(&f, &dir, data);
    ls_trainer *t = fixture_run(&f);
    for (int i = 0; i < 20; i++)
        rows[i] = (float)i;
    assert_int_equal(own_predict(t, rows, LS_ROW_F32, 20, values, 20, &f.err), LS_OK);
    for (int i = 0; i < 20; i++) {
        const double far = (double)values[i] - (1e6 + 5000.0 * i);
        squares += far * far / 20;
        if (fabs(far) > 100)
            fail_msg("of %d: %g", i, (double)values[i]);
    }
    assert_int_equal(ls_trainer_evaluate(t, &found, &f.err), LS_OK);
    if (!(fabs(found.loss - squares) <= 0.05 * squares + 0.1))
        fail_msg("loss %g, of the predictions %g", found.loss, squares);
    ls_model *model = save_and_open(&f, t, scratch_path(&dir, "model.safetensors"));
    assert_int_equal(
        ls_model_predict(model, rows, LS_ROW_F32, 20, LS_OUTPUT_PREDICTION, again, 20, &f.err),
        LS_OK);
    assert_memory_equal(values, again, sizeof values);
    ls_model_release(model);
    scratch_end(&dir);
    fixture_end(&f);
}

static void more_than_a_file_can_say_is_refused_before_the_run(void **state)
{
    (void)state;
    fixture f;
    scratch dir;
    char data[1024];
    ls_trainer *t = NULL;
    fixture_begin(&f);
    scratch_begin(&dir);
    write_wide(&dir, "wide.csv", 3300, 4000, 1);
    fixture_set(&f, wide_data(data, &dir));
    fixture_set(&f, "model={\"layers\":[{\"type\":\"dense\",\"out\":1}]}");
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_EDATA);
    assert_null(t);
    if (!strstr(f.err.text, "too long for their file: 3300 columns of 3300 numbers") ||
        !strstr(f.err.text, "data.drop"))
        fail_msg("%s", f.err.text);
    scratch_end(&dir);
    fixture_end(&f);
}

/* The reason of an error about data reaches the program that opens a trainer. */
static void a_program_reads_the_reason_not_the_message(void **state)
{
    static const char two[] = "a;b,kind\n1;2,x\n3;4,y\n";
    (void)state;
    fixture f;
    scratch dir;
    char data[1024];
    ls_trainer *t = NULL;
    fixture_begin(&f);
    scratch_begin(&dir);
    scratch_file(&dir, "two.csv", two, sizeof two - 1);
    snprintf(data, sizeof data, "data={\"name\":\"csv\",\"path\":\"%s\",\"target\":\"kind\"}",
             scratch_path(&dir, "two.csv"));
    fixture_set(&f, data);
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_EDATA);
    assert_int_equal(f.err.reason, LS_REASON_SEPARATOR);
    fixture_set(&f, "batch_size=-1");
    assert_int_equal(ls_trainer_open(&t, &f.options, &f.err), LS_ECONFIG);
    assert_int_equal(f.err.reason, LS_REASON_NONE);
    scratch_end(&dir);
    fixture_end(&f);
}

LS_TESTS(train_new_rows, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_table_are_standardised_as_in_the_training),
        cmocka_unit_test(rows_of_a_file_are_those_of_the_model),
        cmocka_unit_test(rows_by_the_names_of_columns_are_the_same),
        cmocka_unit_test(long_numbers_are_predicted_as_they_are_tested),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_wide_table_is_standardised_too),
        cmocka_unit_test(a_standardised_target_is_given_back_in_its_unit),
        cmocka_unit_test(more_than_a_file_can_say_is_refused_before_the_run),
        cmocka_unit_test(a_program_reads_the_reason_not_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
