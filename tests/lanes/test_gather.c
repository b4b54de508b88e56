/* Tests the conversion of image bytes to lanes, the layout in which the CPU back end computes 16
 * images side by side. The kernel of each instruction set is compared with the formula, on images
 * that differ in every byte, for usual means and deviations. */
#include "base/rng.h"
#include "cpu/cpu_device.h"
#include "cpu/lanes_kernels.h"
#include "runner.h"

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

LS_TESTS(lanes_gather, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_gather_what_the_formula_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
