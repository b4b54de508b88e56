/* Which examples make a minibatch: every one that waits, once and in order, and older ones. */
#include "batch.h"
#include "runner.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { IMAGE = 3, ROWS = 8, RECORD = 1 + IMAGE + JOURNAL_EXTRA, HEADER = 16 };

typedef struct fixture {
    char path[80];
    journal_options options;
    journal *j;
    batch b;
    ls_error err;
    uint64_t held;
} fixture;

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->path, sizeof f->path, "/tmp/lockstep-batch-XXXXXX");
    close(mkstemp(f->path));
    f->options = (journal_options){.path = f->path,
                                   .form = {.row_bytes = IMAGE, .classes = 10},
                                   .most = 100000,
                                   .queue = 100000};
    assert_int_equal(journal_open(&f->j, &f->options, &f->err), LS_OK);
    assert_int_equal(batch_init(&f->b, ROWS, &f->options.form, &f->err), LS_OK);
}

static void end(fixture *f)
{
    batch_fini(&f->b);
    journal_close(f->j);
    unlink(f->path);
}

static void hold(fixture *f, int more)
{
    for (; more > 0; more--, f->held++) {
        const uint8_t example[1 + IMAGE] = {(uint8_t)(f->held % 10), (uint8_t)f->held,
                                            (uint8_t)(f->held >> 8), 77};
        assert_int_equal(journal_append(f->j, example, 1, &f->err), LS_OK);
    }
}

/* The number of the example in a row, whose label is its own. */
static uint64_t number(const fixture *f, int row)
{
    const uint8_t *image = f->b.values + row * IMAGE;
    const uint64_t n = image[0] | (uint64_t)image[1] << 8;
    assert_int_equal(((const int32_t *)f->b.targets)[row], n % 10);
    assert_int_equal(image[2], 77);
    return n;
}

static void every_waiting_example_comes_once_and_in_order(void **state)
{
    (void)state;
    fixture f;
    uint64_t position = 0, step = 0;
    begin(&f);
    hold(&f, 50);
    while (position < f.held) {
        const uint64_t before = position;
        assert_int_equal(batch_fill(&f.b, f.j, step++, &position, &f.err), LS_OK);
        const int fresh = (int)(position - before);
        assert_int_equal(fresh, before == 0 ? ROWS : f.held - before < 4 ? f.held - before : 4);
        for (int row = 0; row < fresh; row++)
            assert_int_equal(number(&f, row), before + (uint64_t)row);
        for (int row = fresh; row < ROWS; row++)
            assert_true(number(&f, row) < position); /* seen before */
    }
    end(&f);
}

static void without_new_ones_all_old_ones_are_replayed(void **state)
{
    (void)state;
    fixture f;
    int seen[20] = {0};
    uint64_t position = 20;
    begin(&f);
    hold(&f, 20);
    for (uint64_t step = 0; step < 100; step++) {
        assert_int_equal(batch_fill(&f.b, f.j, step, &position, &f.err), LS_OK);
        assert_int_equal(position, 20);
        for (int row = 0; row < ROWS; row++)
            seen[number(&f, row)]++;
    }
    for (int i = 0; i < 20; i++)
        assert_in_range(seen[i], 15, 75); /* 40 are expected, 6 are the deviation */
    end(&f);
}

static void the_same_step_draws_the_same(void **state)
{
    (void)state;
    fixture f;
    uint8_t first[ROWS], again[ROWS], next[ROWS];
    uint64_t position = 100;
    begin(&f);
    hold(&f, 100);
    uint8_t *const draws[] = {first, again, next};
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(batch_fill(&f.b, f.j, i == 2 ? 6 : 5, &position, &f.err), LS_OK);
        for (int row = 0; row < ROWS; row++)
            draws[i][row] = (uint8_t)number(&f, row);
    }
    assert_memory_equal(first, again, ROWS);
    assert_memory_not_equal(first, next, ROWS);
    end(&f);
}

static void damaged_examples_are_left_out(void **state)
{
    (void)state;
    fixture f;
    uint64_t position = 0;
    begin(&f);
    hold(&f, 20);
    int fd = open(f.path, O_WRONLY);
    assert_int_equal(pwrite(fd, "?", 1, HEADER + 2 * RECORD + 3), 1);
    assert_int_equal(batch_fill(&f.b, f.j, 0, &position, &f.err), LS_OK);
    assert_int_equal(position, ROWS + 1);
    assert_int_equal(f.b.damaged, 1);
    for (int row = 0; row < ROWS; row++)
        assert_int_equal(number(&f, row), row < 2 ? row : row + 1);
    for (int i = 0; i < 20; i++) /* nothing is left: it does not look for ever */
        assert_int_equal(pwrite(fd, "?", 1, HEADER + i * RECORD + 3), 1);
    assert_int_equal(batch_fill(&f.b, f.j, 1, &position, &f.err), LS_EAGAIN);
    assert_int_equal(position, ROWS + 1);
    assert_int_equal(f.b.damaged, 20);
    close(fd);
    end(&f);
}

/* `runs` are lengths of whole and damaged ones in turn. All that is whole is trained on, once and in order, and
 * each damaged example is counted once. */
static void train_through(const int *runs, int count)
{
    fixture f;
    uint64_t position = 0, step = 0, damaged = 0, next = 0, tries = 0;
    uint8_t *bad = calloc(1, 65536);
    begin(&f);
    for (int i = 0; i < count; i++) {
        uint8_t *examples = calloc((size_t)runs[i] + 1, 1 + IMAGE);
        for (int k = 0; k < runs[i]; k++, f.held++) {
            uint8_t *e = examples + (size_t)k * (1 + IMAGE);
            e[0] = (uint8_t)(f.held % 10);
            e[1] = (uint8_t)f.held;
            e[2] = (uint8_t)(f.held >> 8);
            e[3] = 77;
            bad[f.held] = i % 2;
            damaged += i % 2;
        }
        assert_int_equal(journal_append(f.j, examples, (uint32_t)runs[i], &f.err), LS_OK);
        free(examples);
    }
    int fd = open(f.path, O_WRONLY);
    for (uint64_t i = 0; i < f.held; i++)
        if (bad[i])
            assert_int_equal(pwrite(fd, "?", 1, (off_t)(HEADER + i * RECORD + 3)), 1);
    close(fd);
    while (position < f.held) {
        int status = batch_fill(&f.b, f.j, step, &position, &f.err);
        assert_true(status == LS_OK || status == LS_EAGAIN);
        assert_true(tries++ < 10000); /* it comes to an end */
        for (int row = 0; status == LS_OK && row < ROWS; row++) {
            const uint64_t n = number(&f, row);
            assert_false(bad[n]);
            while (next < f.held && bad[next])
                next++;
            if (n == next)
                next++;
            assert_true(n < next);
        }
        step += status == LS_OK;
    }
    while (next < f.held && bad[next])
        next++;
    assert_int_equal(next, f.held);
    while (batch_look(&f.b, f.j, 1000) > 0)
        continue;
    assert_int_equal(f.b.damaged, damaged);
    free(bad);
    end(&f);
}

static void runs_of_damage_of_any_length_are_passed(void **state)
{
    (void)state;
    const int lengths[] = {1, 7, 8, 9, 1000, 1065, 5000, 10001, 25000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int n = lengths[i];
        train_through((int[]){100, n, 100}, 3);
        train_through((int[]){0, n, 100}, 3);
        train_through((int[]){100, n}, 2);
        train_through((int[]){3, n, 3, n, 30}, 5);
    }
}

static void targets_that_are_floats_come_with_their_rows(void **state)
{
    (void)state;
    fixture f;
    uint64_t position = 0;
    const example_form form = {.row_bytes = 3 * sizeof(float), .floats = 1, .targets = 2};
    begin(&f);
    end(&f);
    f.options.form = form;
    assert_int_equal(journal_open(&f.j, &f.options, &f.err), LS_OK);
    assert_int_equal(batch_init(&f.b, ROWS, &form, &f.err), LS_OK);
    for (int i = 0; i < ROWS; i++) {
        const float example[5] = {(float)i, (float)-i, (float)i + 0.25F, 1, (float)i * i};
        assert_int_equal(journal_append(f.j, (const uint8_t *)example, 1, &f.err), LS_OK);
    }
    assert_int_equal(batch_fill(&f.b, f.j, 0, &position, &f.err), LS_OK);
    for (int i = 0; i < ROWS; i++) {
        const float target[2] = {(float)i, (float)-i}, row[3] = {(float)i + 0.25F, 1, (float)i * i};
        assert_memory_equal((const float *)f.b.targets + 2 * i, target, sizeof target);
        assert_memory_equal(f.b.values + (size_t)i * sizeof row, row, sizeof row);
    }
    end(&f);
}

LS_TESTS(service_batch, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_waiting_example_comes_once_and_in_order),
        cmocka_unit_test(without_new_ones_all_old_ones_are_replayed),
        cmocka_unit_test(the_same_step_draws_the_same),
        cmocka_unit_test(damaged_examples_are_left_out),
        cmocka_unit_test(runs_of_damage_of_any_length_are_passed),
        cmocka_unit_test(targets_that_are_floats_come_with_their_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
