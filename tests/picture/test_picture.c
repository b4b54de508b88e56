/* SPDX-License-Identifier: MIT */
/* Tests the conversion of pictures in memory to rows of a model: the pixels, and every kind of
 * error. */
#include "data/png.h"
#include "picture/jpeg.h"
#include "picture/new_model.h"
#include "runner.h"

#include <fenv.h>
#include <lockstep/picture.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GREY, COLOURS, MODELS };
static ls_model *model[MODELS]; /* both of 2×3 pixels */

static int enter(void **state)
{
    (void)state;
    ls_error err = {0};
    model[GREY] = new_model(1, 2, 3, 0, &err);
    model[COLOURS] = new_model(3, 2, 3, 0, &err);
    if (!model[GREY] || !model[COLOURS])
        fprintf(stderr, "%s\n", err.text);
    return !model[GREY] || !model[COLOURS];
}

static int leave(void **state)
{
    (void)state;
    ls_model_release(model[GREY]);
    ls_model_release(model[COLOURS]);
    return 0;
}

/* Reads from memory that ends where the picture does. The byte after the row must not change. */
static int read_row(char row[18], int of, const void *bytes, size_t count,
                    const ls_picture_options *options, ls_error *err)
{
    uint8_t out[19];
    void *copy = malloc(count ? count : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, count);
    memset(out, 0x5a, sizeof out);
    memset(err, 0, sizeof *err);
    int status = ls_model_picture(model[of], copy, count, options, out, of == GREY ? 6 : 18, err);
    free(copy);
    assert_int_equal(out[of == GREY ? 6 : 18], 0x5a);
    memcpy(row, out, 18);
    return status;
}

static void gives(int of, const char *want, const void *bytes, size_t count)
{
    char row[18];
    ls_error err;
    if (read_row(row, of, bytes, count, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(row, want, of == GREY ? 6 : 18);
}

static void png_gives(int of, const char *want, int depth, int type, const void *rows, size_t count,
                      const char *palette)
{
    const png_bytes p = png_make(3, 2, depth, type, 0, rows, count, palette);
    gives(of, want, p.bytes, p.count);
}

/* ---- valid pictures ------------------------------------------------------------------------- */

static void a_picture_of_the_models_size_is_its_row(void **state)
{
    (void)state;
    gives(GREY, "abcdef", "P5 3 2 255\nabcdef", 17);
    gives(COLOURS, "abcdefabcdefabcdef", "P5 3 2 255\nabcdef", 17);
    gives(COLOURS, "ABCDEFabcdefxyzuvw", "P6 3 2 255\nAaxBbyCczDduEevFfw", 29);
    png_gives(GREY, "abcdef", 8, 0, "\0abc\0def", 8, NULL);
    png_gives(COLOURS, "abcdefabcdefabcdef", 8, 0, "\0abc\0def", 8, NULL);
    png_gives(COLOURS, "ABCDEFabcdefxyzuvw", 8, 2, "\0AaxBbyCcz\0DduEevFfw", 20, NULL);
}

static void alpha_palettes_and_depths_come_to_eight_bits(void **state)
{
    (void)state;
    /* "." is an alpha of 46 of 255; the pixels are laid on white. */
    png_gives(COLOURS,
              "\xdd\xdd\xdd\xdd\xdd\xde"
              "\xe2\xe3\xe3\xe3\xe3\xe3"
              "\xe7\xe7\xe7\xe6\xe6\xe6",
              8, 6, "\0Aax.Bby.Ccz.\0Ddu.Eev.Ffw.", 26, NULL);
    png_gives(GREY, "\xe2\xe3\xe3\xe3\xe3\xe3", 8, 4, "\0a.b.c.\0d.e.f.", 14, NULL);
    png_gives(COLOURS, "ABBBBAabbbbaxyyyyx", 8, 3, "\0\0\1\1\0\1\1\0", 8, "AaxBby");
    png_gives(GREY, "abcdef", 16, 0, "\0a.b.c.\0d.e.f.", 14, NULL);
    png_gives(GREY, "\xff\0\xff\0\xff\0", 1, 0, "\0\xa0\0\x40", 4, NULL);
}

static void one_pixel_fills_the_row(void **state)
{
    (void)state;
    gives(COLOURS, "RRRRRRggggggbbbbbb", "P6 1 1 255\nRgb", 14);
    const png_bytes p = png_make(1, 1, 8, 0, 0, "\0m", 2, NULL);
    gives(GREY, "mmmmmm", p.bytes, p.count);
}

/* The shorter side fits as it is: two lines above and two below are cut off. */
static void a_larger_one_is_cut_to_the_middle(void **state)
{
    (void)state;
    static const char bars[] = "P5 3 6 255\nxxxxxxabcdefyyyyyy";
    gives(GREY, "abcdef", bars, sizeof bars - 1);
}

static void a_jpeg_is_read_grey_and_in_colours(void **state)
{
    (void)state;
#ifdef LOCKSTEP_WITH_JPEG
    for (int channels = 1; channels <= 3; channels += 2) {
        size_t count;
        char row[18];
        ls_error err;
        unsigned char *bytes = jpeg_make(40, 30, channels, &count);
        assert_int_equal(read_row(row, COLOURS, bytes, count, NULL, &err), LS_OK);
        assert_int_equal(memcmp(row, row + 6, 6) == 0, channels == 1);
        for (size_t n = 0; n < count - 2; n++)
            assert_int_equal(read_row(row, COLOURS, bytes, n, NULL, &err), LS_EDATA);
        free(bytes);
    }
#else
    skip();
#endif
}

/* The left and the right half have neighbouring values: the middle of the row is exactly between
 * them. */
static void the_hosts_rounding_changes_nothing(void **state)
{
    (void)state;
    char want[18], row[18];
    ls_error err;
    uint8_t file[13 + 18 * 12] = "P5 18 12 255\n";
    for (int v = 0; v < 255; v++) {
        for (size_t i = 0; i < 18 * 12; i++)
            file[13 + i] = (uint8_t)(v + (i % 18 >= 9));
        assert_int_equal(read_row(want, GREY, file, sizeof file, NULL, &err), LS_OK);
        for (int up = 0; up < 2; up++) {
            fesetround(up ? FE_UPWARD : FE_DOWNWARD);
            const int status = read_row(row, GREY, file, sizeof file, NULL, &err);
            const int rounding = fegetround();
            fesetround(FE_TONEAREST);
            assert_int_equal(status, LS_OK);
            assert_int_equal(rounding, up ? FE_UPWARD : FE_DOWNWARD);
            assert_memory_equal(row, want, 6);
        }
    }
}

/* ---- refused pictures ----------------------------------------------------------------------- */

static void refuses(int of, const void *bytes, size_t count, int status, const char *says)
{
    char row[18];
    ls_error err;
    assert_int_equal(read_row(row, of, bytes, count, NULL, &err), status);
    if (!strstr(err.text, says))
        fail_msg("expected \"%s\" in: %s", says, err.text);
}

static void what_is_no_picture_is_named_with_what_was_expected(void **state)
{
    (void)state;
    char row[18];
    ls_error err;
    const ls_picture_options o = {.size = sizeof o, .name = "upload 7"};
    refuses(GREY, "GIF89a", 6, LS_EUNSUPPORTED,
            "the picture: offset 0: a GIF image, which is not supported; convert it");
    refuses(GREY, "abcdef", 6, LS_EDATA, "the picture: offset 0: expected a PNG, JPEG");
    refuses(GREY, "", 0, LS_EDATA, "the picture: offset 0: expected a PNG, JPEG");
    assert_int_equal(read_row(row, GREY, "GIF89a", 6, &o, &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "upload 7: offset 0: "));
}

static void every_cut_of_a_png_is_refused(void **state)
{
    (void)state;
    char row[18];
    ls_error err;
    const png_bytes p = png_make(3, 2, 8, 0, 0, "\0abc\0def", 8, NULL);
    for (size_t n = 0; n < p.count; n++)
        assert_int_equal(read_row(row, GREY, p.bytes, n, NULL, &err), LS_EDATA);
}

static void colours_of_print_are_read(void **state)
{
    (void)state;
#ifdef LOCKSTEP_WITH_JPEG
    size_t count;
    unsigned char *bytes = jpeg_make(8, 8, 4, &count);
    char row[18];
    ls_error err;
    assert_int_equal(read_row(row, COLOURS, bytes, count, NULL, &err), LS_OK);
    free(bytes);
#else
    skip();
#endif
}

typedef struct counts {
    size_t largest, held;
} counts;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    counts *c = user;
    c->largest = bytes > c->largest ? bytes : c->largest;
    c->held++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void count_free(void *user, void *memory)
{
    ((counts *)user)->held--;
    free(memory);
}

static void expect_small(const void *bytes, size_t count)
{
    char row[18];
    ls_error err;
    counts c = {0};
    const ls_host host = {
        .size = sizeof host, .alloc = count_alloc, .free = count_free, .user = &c};
    const ls_picture_options o = {.size = sizeof o, .host = &host};
    assert_int_equal(read_row(row, COLOURS, bytes, count, &o, &err), LS_EDATA);
    assert_in_range(c.largest, 0, 16384);
    assert_int_equal(c.held, 0);
}

/* A small file may say anything: memory for its pixels is never asked for. */
static void a_header_that_promises_too_much_takes_no_memory(void **state)
{
    (void)state;
    static const uint32_t side[][2] = {
        {16384, 16384}, {1 << 30, 1}, {0x7fffffff, 0x7fffffff}, {1, 16385}, {0, 1}};
    for (size_t i = 0; i < sizeof side / sizeof *side; i++) {
        png_bytes p = png_begin(side[i][0], side[i][1], 8, 2, 0);
        png_put_chunk(&p, "IDAT", "no pixels", 9);
        png_put_chunk(&p, "IEND", "", 0);
        expect_small(p.bytes, p.count);
    }
    expect_small("P6 16384 16384 255\n...", 22);
    expect_small("P6 99999999999999999999 1 255\n...", 33);
#ifdef LOCKSTEP_WITH_JPEG
    size_t count;
    unsigned char *bytes = jpeg_make(8, 8, 3, &count);
    for (size_t i = 0; i + 9 < count; i++)
        if (bytes[i] == 0xff && bytes[i + 1] == 0xc0)
            memset(bytes + i + 5, 0xff, 4); /* height and width */
    expect_small(bytes, count);
    free(bytes);
#endif
}

static void memory_is_the_hosts_and_is_given_back(void **state)
{
    (void)state;
    char row[18];
    ls_error err;
    counts c = {0};
    const ls_host host = {
        .size = sizeof host, .alloc = count_alloc, .free = count_free, .user = &c};
    const ls_picture_options o = {.size = sizeof o, .host = &host};
    assert_int_equal(read_row(row, COLOURS, "P6 1 1 255\nRgb", 14, &o, &err), LS_OK);
    assert_true(c.largest > 0);
    assert_int_equal(c.held, 0);
}

static void models_of_other_rows_and_missing_arguments_are_refused(void **state)
{
    (void)state;
    uint8_t row[64];
    ls_error err = {0};
    static const char file[] = "P5 3 2 255\nabcdef";
    const size_t n = sizeof file - 1;
    ls_model *floats = new_model(4, 1, 1, 1, &err), *two = new_model(2, 2, 3, 0, &err);
    const ls_picture_options older = {.size = sizeof older.size - 1};
    const struct {
        ls_picture_options known;
        const char *more;
    } newer = {{.size = sizeof newer}, "a member of a later version"};
    assert_non_null(floats);
    assert_non_null(two);
    assert_int_equal(ls_model_picture(floats, file, n, NULL, row, sizeof row, &err),
                     LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "the picture: the model reads rows of 4×1×1 floats, not "
                                     "pictures; pass whole rows to ls_model_predict"));
    assert_int_equal(ls_model_picture(two, file, n, NULL, row, sizeof row, &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "2 channels"));
    assert_int_equal(ls_model_picture(NULL, file, n, NULL, row, sizeof row, &err), LS_EINVAL);
    assert_int_equal(ls_model_picture(model[GREY], NULL, n, NULL, row, sizeof row, &err),
                     LS_EINVAL);
    assert_int_equal(ls_model_picture(model[GREY], file, n, NULL, NULL, 0, &err), LS_EINVAL);
    assert_int_equal(ls_model_picture(model[GREY], file, n, &older, row, sizeof row, &err),
                     LS_EINVAL);
    assert_int_equal(ls_model_picture(model[GREY], file, n, &newer.known, row, sizeof row, &err),
                     LS_EINVAL);
    assert_int_equal(ls_model_picture(model[GREY], file, n, NULL, row, 5, &err), LS_EINVAL);
    assert_non_null(strstr(err.text, "the picture: room for 5 bytes, 6 are needed"));
    assert_int_equal(ls_model_picture(model[GREY], file, n, NULL, row, 6, NULL), LS_OK);
    ls_model_release(floats);
    ls_model_release(two);
}

LS_TESTS(picture, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_of_the_models_size_is_its_row),
        cmocka_unit_test(alpha_palettes_and_depths_come_to_eight_bits),
        cmocka_unit_test(one_pixel_fills_the_row),
        cmocka_unit_test(a_larger_one_is_cut_to_the_middle),
        cmocka_unit_test(a_jpeg_is_read_grey_and_in_colours),
        cmocka_unit_test(the_hosts_rounding_changes_nothing),
        cmocka_unit_test(what_is_no_picture_is_named_with_what_was_expected),
        cmocka_unit_test(every_cut_of_a_png_is_refused),
        cmocka_unit_test(colours_of_print_are_read),
        cmocka_unit_test(a_header_that_promises_too_much_takes_no_memory),
        cmocka_unit_test(memory_is_the_hosts_and_is_given_back),
        cmocka_unit_test(models_of_other_rows_and_missing_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
