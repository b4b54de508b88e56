/* The loss that CONTRIBUTING.md adds: what it loses, and that both back ends learn by it alike. */
#include "train/train_fixture.h"

#include <math.h>
#include <stdio.h>

enum { VALUES = 6, TARGETS = 2, TEST = 24 };

static float value_of(uint32_t row, uint32_t k)
{
    return (float)((row * 7 + k * 5) % 13) / 13;
}

static float target_of(uint32_t row, uint32_t k)
{
    return value_of(row, k) - 2 * value_of(row, k + 1);
}

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    (void)user;
    (void)test;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < VALUES; k++)
            ((float *)values)[i * VALUES + k] = value_of(rows[i], k);
        for (uint32_t k = 0; k < TARGETS; k++)
            ((float *)targets)[i * TARGETS + k] = target_of(rows[i], k);
    }
    return LS_OK;
}

/* The mean over rows of the mean over outputs. */
static double mean_error(ls_trainer *t)
{
    float rows[TEST * VALUES], outputs[TEST * TARGETS];
    double sum = 0;
    ls_error err;
    for (uint32_t i = 0; i < TEST * VALUES; i++)
        rows[i] = value_of(i / VALUES, i % VALUES);
    if (ls_trainer_predict(t, rows, TEST, outputs, &err) != LS_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < TEST * TARGETS; i++)
        sum += fabs((double)outputs[i] - (double)target_of(i / TARGETS, i % TARGETS));
    return sum / (TEST * TARGETS);
}

static double learn(const char *devices)
{
    static const ls_data_source table = {.size = sizeof table,
                                         .name = "table",
                                         .channels = VALUES,
                                         .height = 1,
                                         .width = 1,
                                         .targets = TARGETS,
                                         .dtype = LS_ROW_F32,
                                         .train_rows = 320,
                                         .test_rows = TEST,
                                         .read = read_rows};
    const ls_data_source *sources[1];
    fixture f;
    fixture_begin(&f);
    fixture_use_source(&f, &table, sources);
    fixture_set(&f, devices);
    fixture_set(&f, "loss=mae");
    fixture_set(&f, "epochs=60");
    fixture_set(&f, "batch_size=32");
    fixture_set(&f, "optimizer={\"name\":\"sgd\",\"lr\":0.1}");
    fixture_set(&f, "model={\"layers\":[{\"type\":\"dense\",\"out\":2}]}");
    ls_trainer *t = fixture_run(&f);
    const double loss = ls_trainer_result(t)->test_loss;
    assert_true(fabs(mean_error(t) - loss) < 1e-6);
    if (!(loss < 0.15)) /* far more before the first step */
        fail_msg("%s: %g", devices, loss);
    ls_trainer_close(t);
    fixture_end(&f);
    return loss;
}

static void the_new_loss_is_learnt_by_on_each_back_end_alike(void **state)
{
    (void)state;
    const double reference = learn("devices=ref:2");
    if (has_backend("cpu"))
        assert_true(fabs(learn("devices=cpu:2") - reference) < 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_new_loss_is_learnt_by_on_each_back_end_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
