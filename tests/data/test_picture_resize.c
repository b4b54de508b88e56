/* SPDX-License-Identifier: MIT */
/* Tests that pictures are resized and cut as by Pillow, with tables that Pillow has made. */
#include "data/image.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 200 * 200 * 3, MOST_ROW = 128 };

typedef struct pillow_table {
    int height, width, channels; /* of the picture */
    ls_picture_form form;        /* of the row */
    uint8_t row[MOST_ROW];
} pillow_table;

#include "data/pillow_tables.h"

enum { TABLES = sizeof tables / sizeof *tables };

/* Makes the picture of table number `number`, with `step` bytes for each pixel. */
static ls_picture make(uint8_t *pixel, int number, int step)
{
    const pillow_table *t = &tables[number];
    uint32_t state = (uint32_t)number + 1;
    for (int k = 0; k < t->height * t->width; k++)
        for (int c = 0; c < t->channels; c++) {
            state = state * 1664525 + 1013904223;
            pixel[k * step + c] = (uint8_t)(state >> 24);
        }
    return (ls_picture){.width = t->width, .height = t->height, .channels = step, .pixel = pixel};
}

static void pictures_are_resized_to_the_bytes_of_pillow(void **state)
{
    static uint8_t pixel[MOST / 3 * 4 + 1];
    uint8_t row[MOST_ROW];
    ls_scratch memory = {NULL, 0};
    (void)state;
    for (int i = 0; i < TABLES; i++) {
        const ls_picture_form *f = &tables[i].form;
        const int values = f->channels * f->height * f->width, grey = tables[i].channels == 1;
        assert_in_range(values, 1, MOST_ROW);
        for (int step = tables[i].channels; step <= (grey ? 1 : 4); step++) {
            const ls_picture p = make(pixel, i, step);
            assert_true(ls_picture_scale(row, f, &p, &memory, NULL));
            for (int k = 0; k < values; k++)
                if (row[k] != tables[i].row[k])
                    fail_msg("table %d, %d bytes a pixel, sample %d: %d, expected %d", i, step, k,
                             row[k], tables[i].row[k]);
        }
    }
    ls_scratch_free(&memory, NULL);
}

LS_TESTS(data_picture_resize, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_resized_to_the_bytes_of_pillow),
    };
    return cmocka_run_group_tests_name("picture_resize", tests, NULL, NULL);
}
