/* SPDX-License-Identifier: MIT */
/* Tests that reading a table needs little more memory than its rows. */
#include "data/dataset.h"
#include "data/scratch.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { ROWS = 200000, COLUMNS = 14 };

static double kilobytes_ever(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_maxrss;
}

static void write_table(const char *path)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("a,b,c,d,e,f,g,h,i,j,k,l,m,y\n", file);
    for (int row = 0; row < ROWS; row++)
        fputs(row % 2 ? "1,2,3,4,5,6,7,8,9,0,1,2,3.5,0\n" : "0,9,8,7,6,5,4,3,2,1,0,9,-8,1\n", file);
    assert_int_equal(fclose(file), 0);
}

static void a_table_needs_half_of_itself_beside_it(void **state)
{
    scratch *s = *state;
    ls_dataset *split[2];
    ls_error err;
    const ls_dataset_spec spec = {.name = "csv",
                                  .path = scratch_path(s, "t.csv"),
                                  .keys = {.target.text = "y", .standardize = 1}};
    write_table(spec.path);
    const double before = kilobytes_ever();
    if (ls_dataset_open(&split[0], &split[1], &spec, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    const double table = ROWS * COLUMNS * sizeof(float) / 1024., more = kilobytes_ever() - before;
    assert_int_equal(ls_dataset_describe(split[0])->rows, ROWS);
    if (more > 1.5 * table)
        fail_msg("%g KiB for a table of %g", more, table);
    ls_dataset_close(split[0]);
    ls_dataset_close(split[1]);
}

LS_TESTS(data_table_memory, "unit no-asan no-tsan")
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_table_needs_half_of_itself_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
