/* SPDX-License-Identifier: MIT */
/* Tests the conversion of rows of bytes and of floats to lanes, the layout in which the CPU back
 * end computes 16 rows side by side. The kernels of each instruction set are compared with the
 * formula, on rows that differ in every value, for usual means and deviations. */
#include "base/rng.h"
#include "cpu/cpu_device.h"
#include "cpu/lanes_kernels.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_PIXELS = 70, BEFORE = 37, IMAGE = BEFORE + MOST_PIXELS };

/* The bytes of an image begin at an odd address and end at the end of the allocated memory. */
typedef struct images {
    uint8_t *byte[16];
} images;

static images draw_images(void)
{
    images s;
    for (int l = 0; l < 16; l++) {
        s.byte[l] = malloc(IMAGE);
        assert_non_null(s.byte[l]);
        for (int i = 0; i < IMAGE; i++)
            s.byte[l][i] = (uint8_t)(ls_rng_uniform(36, 5, (uint32_t)l, (uint32_t)i) * 256.0f);
    }
    return s;
}

static void free_images(images *s)
{
    for (int l = 0; l < 16; l++)
        free(s->byte[l]);
}

static void check(const ls_lanes_kernels *set, const images *s, int rows, size_t pixels, float mean,
                  float std)
{
    _Alignas(64) float found[(MOST_PIXELS + 1) * 16];
    const size_t first = IMAGE - pixels;
    ls_lanes_images in = {.rows = rows, .first = first, .pixels = pixels, .mean = mean, .std = std};
    for (int l = 0; l < 16; l++)
        in.image[l] = s->byte[l < rows ? l : 0];
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        found[i] = 77;
    set->gather(&in, found);
    for (size_t i = 0; i < pixels * 16; i++) {
        const int l = (int)(i % 16);
        const float wanted =
            l < rows ? ((float)s->byte[l][first + i / 16] / 255.0f - mean) / std : 0;
        if (memcmp(&found[i], &wanted, sizeof wanted) != 0)
            fail_msg("%s: %d rows, %zu pixels, mean %g, std %g: pixel %zu of row %d is %a, not %a",
                     set->name, rows, pixels, (double)mean, (double)std, i / 16, l,
                     (double)found[i], (double)wanted);
    }
    for (size_t i = pixels * 16; i < sizeof found / sizeof *found; i++)
        assert_true(found[i] == 77);
}

static void kernels_gather_what_the_formula_says(void **state)
{
    static const float rule[][2] = {
        {0, 1},           {0.5f, 0.5f},     {0.2860f, 0.3530f}, {0.1307f, 0.3081f},
        {0.485f, 0.229f}, {0.456f, 0.224f}, {0.406f, 0.225f},   {0.4914f, 0.2470f}};
    images s = draw_images();
    const ls_lanes_kernels *set;
    int tried = 0;
    (void)state;
    for (int i = 0; (set = ls_cpu_isa_at(i)) != NULL; i++) {
        for (size_t r = 0; set->gather && r < sizeof rule / sizeof *rule; r++)
            for (int rows = 1; rows <= 16; rows += r == 0 ? 1 : 5)
                for (size_t pixels = 1; pixels <= MOST_PIXELS; pixels += pixels < 34 ? 1 : 7)
                    check(set, &s, rows, pixels, rule[r][0], rule[r][1]);
        tried += set->gather != NULL;
    }
    free_images(&s);
    if (tried == 0) {
        print_message("skipped: no instruction set of this CPU has the kernel\n");
        skip();
    }
}

/* ---- rows of floats -------------------------------------------------------------------------- */

enum { MOST_VALUES = 40 };

/* Checks `values` floats of `rows` rows that end at the end of the allocated memory. Infinities,
 * NaN and −0 are among the floats. */
static void check_floats(const ls_lanes_kernels *set, int rows, size_t values, float mean,
                         float std)
{
    static const float odd[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f};
    _Alignas(64) float found[(MOST_VALUES + 1) * 16];
    ls_lanes_rows in = {.rows = rows, .values = values, .mean = mean, .std = std};
    float *row[16];
    for (int l = 0; l < rows; l++) {
        row[l] = malloc(values * sizeof *row[l]);
        assert_non_null(row[l]);
        for (size_t i = 0; i < values; i++)
            row[l][i] = (i + (size_t)l) % 11 == 0
                            ? odd[((size_t)l + i / 11) % (sizeof odd / sizeof *odd)]
                            : ls_rng_uniform(37, 5, (uint32_t)l, (uint32_t)i) - 0.5f;
        in.row[l] = row[l];
    }
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        found[i] = 77;
    set->gather_floats(&in, found);
    for (size_t i = 0; i < values * 16; i++) {
        const int l = (int)(i % 16);
        const float given = l < rows ? row[l][i / 16] : 0;
        const float wanted = l >= rows ? 0 : mean == 0 && std == 1 ? given : (given - mean) / std;
        if (memcmp(&found[i], &wanted, sizeof wanted) != 0 && !(isnan(found[i]) && isnan(wanted)))
            fail_msg("%s: %d rows, %zu values, mean %g, std %g: value %zu of row %d is %a, not %a",
                     set->name, rows, values, (double)mean, (double)std, i / 16, l,
                     (double)found[i], (double)wanted);
    }
    for (size_t i = values * 16; i < sizeof found / sizeof *found; i++)
        assert_true(found[i] == 77);
    for (int l = 0; l < rows; l++)
        free(row[l]);
}

static void kernels_gather_floats_as_the_formula_says(void **state)
{
    static const float rule[][2] = {{0, 1}, {0.5f, 0.25f}, {0.2860f, 0.3530f}, {0, 3}};
    const ls_lanes_kernels *set;
    (void)state;
    for (int i = 0; (set = ls_cpu_isa_at(i)) != NULL; i++)
        for (size_t r = 0; r < sizeof rule / sizeof *rule; r++)
            for (int rows = 1; rows <= 16; rows += r == 0 ? 1 : 5)
                for (size_t values = 1; values <= MOST_VALUES; values++)
                    check_floats(set, rows, values, rule[r][0], rule[r][1]);
}

LS_TESTS(lanes_gather, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_gather_what_the_formula_says),
        cmocka_unit_test(kernels_gather_floats_as_the_formula_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
