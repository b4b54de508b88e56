/* The sink that CONTRIBUTING.md adds is one like any other. */
#include "../data/scratch.h"
#include "train_fixture.h"

#include <stdio.h>
#include <string.h>

static void it_gets_the_run_s_evaluations(void **state)
{
    (void)state;
    fixture f;
    scratch files;
    char dir[600], path[700], line[100];
    int lines = 0;
    scratch_begin(&files);
    fixture_begin(&f);
    snprintf(dir, sizeof dir, "run_dir=%s", scratch_path(&files, "run"));
    snprintf(path, sizeof path, "%s/evaluations.csv", dir + strlen("run_dir="));
    fixture_set(&f, dir);
    fixture_set(&f, "epochs=2");
    ls_trainer_close(fixture_run(&f));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (; fgets(line, sizeof line, file); lines++) {
        const char *eval = fixture_record(&f, "eval", lines);
        unsigned epoch;
        double loss, accuracy;
        assert_int_equal(sscanf(line, "%u,%lf,%lf", &epoch, &loss, &accuracy), 3);
        assert_float_equal(loss, record_number(eval, "test_loss"), 1e-4);
        assert_float_equal(accuracy, record_number(eval, "test_accuracy"), 1e-4);
    }
    fclose(file);
    assert_int_equal(lines, 2);
    assert_int_equal(lines, fixture_count(&f, "eval"));
    fixture_end(&f);
    scratch_end(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_gets_the_run_s_evaluations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
