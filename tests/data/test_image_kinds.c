/* SPDX-License-Identifier: MIT */
/* Tests BMP and WebP files, and formats that are recognised but not supported. */
#include "data/images.h"
#include "runner.h"

#include <stdlib.h>

/* ---- other kinds ----------------------------------------------------------------------------- */

static void other_kinds_of_images_are_named(void **state)
{
    static const struct {
        const char *bytes, *name;
    } kinds[] = {{"GIF89a......", "a GIF image"},   {"II*.........", "a TIFF image"},
                 {"....ftypavif", "an AVIF image"}, {"....ftypheic", "a HEIF image (HEIC)"},
                 {"<!DOCTYPE ht", "a web page"},    {"P3 1 1 255 0", "a PPM image in text (P3)"}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char want[300];
        uint8_t out[6];
        ls_error err = {0};
        snprintf(want, sizeof want,
                 "image: offset 0: %s, which is not supported; convert it, with ImageMagick: "
                 "convert IN OUT.png",
                 kinds[i].name);
        assert_int_equal(read_bytes(out, &grey_2x3, kinds[i].bytes, 12, &err), LS_EUNSUPPORTED);
        assert_string_equal(err.text, want);
    }
}

/* Creates a BMP file: a header of 40 bytes, then a palette or masks if there are any, then the
 * rows. */
static size_t make_bmp(uint8_t out[256], int width, int height, int bits, int packing,
                       const void *rest, size_t count)
{
    const size_t rows = (size_t)((width * bits + 31) / 32 * 4 * abs(height));
    memset(out, 0, 54);
    memcpy(out, "BM", 2);
    out[10] = (uint8_t)(54 + count - rows);
    out[14] = 40;
    memcpy(out + 18, &width, 4);
    memcpy(out + 22, &height, 4);
    out[26] = 1;
    out[28] = (uint8_t)bits;
    out[30] = (uint8_t)packing;
    memcpy(out + 54, rest, count);
    return 54 + count;
}

static void bmp_of_each_depth_is_read(void **state)
{
    static const struct {
        int height, bits, packing;
        const char *rest;
        size_t count;
    } forms[] = {
        {2, 24, 0, "uDdvEewFf...xAayBbzCc...", 24},
        {-2, 24, 0, "xAayBbzCc...uDdvEewFf...", 24},
        {2, 32, 0, "uDd.vEe.wFf.xAa.yBb.zCc.", 24},
        {2, 32, 3, "\0\0\0\xff\0\0\xff\0\0\xff\0\0.uDd.vEe.wFf.xAa.yBb.zCc", 36},
        {2, 8, 0, "uDd.vEe.wFf.xAa.yBb.zCc.\0\1\2.\3\4\5.", 32},
        {2, 4, 0, "uDd.vEe.wFf.xAa.yBb.zCc.\x01\x20..\x34\x50..", 32},
    };
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        uint8_t file[256], out[18];
        ls_error err = {0};
        size_t count = make_bmp(file, 3, forms[i].height, forms[i].bits, forms[i].packing,
                                forms[i].rest, forms[i].count);
        if (forms[i].bits <= 8)
            file[46] = 6; /* number of colours in the palette */
        if (read_bytes(out, &colour_2x3, file, count, &err) != LS_OK)
            fail_msg("%zu: %s", i, err.text);
        /* the first three colours of the palette are those of the lower row */
        assert_memory_equal(out, i == 3 ? "aAxbBy" : "abcdef", i == 3 ? 0 : 6);
        if (i != 3)
            assert_memory_equal(out, "abcdefABCDEFxyzuvw", 18);
        for (size_t cut = 2; cut < count; cut++)
            assert_int_not_equal(read_bytes(out, &colour_2x3, file, cut, &err), LS_OK);
    }
    uint8_t file[256], out[18];
    ls_error err = {0};
    const size_t count = make_bmp(file, 3, 2, 8, 1, "uDd.vEe.wFf.xAa.........", 24);
    assert_int_equal(read_bytes(out, &colour_2x3, file, count, &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "a BMP file of the compression 1, which is not supported"));
}

/* The fourth mask is that of alpha. Alpha that is 0 everywhere is none. */
static void bmp_with_alpha_is_laid_on_white(void **state)
{
    static const char masks[] = "\0\0\xff\0\0\xff\0\0\xff\0\0\0\0\0\0\xff";
    (void)state;
    for (int alpha = 0; alpha <= 51; alpha += 51) {
        uint8_t file[256], rest[16 + 24], out[18];
        ls_error err = {0};
        memcpy(rest, masks, 16);
        memcpy(rest + 16, "uDd.vEe.wFf.xAa.yBb.zCc.", 24);
        for (int k = 0; k < 6; k++)
            rest[16 + 4 * k + 3] = (uint8_t)alpha;
        const size_t count = make_bmp(file, 3, 2, 32, 6, rest, sizeof rest);
        if (read_bytes(out, &colour_2x3, file, count, &err) != LS_OK)
            fail_msg("%s", err.text);
        for (int k = 0; k < 18; k++) {
            const int sample = "abcdefABCDEFxyzuvw"[k];
            assert_int_equal(out[k], alpha ? (int)(sample * 0.2 + 255 * 0.8 + 0.5) : sample);
        }
    }
}

#ifdef LOCKSTEP_WITH_WEBP
/* A lossless WebP file of libwebp with 3 × 2 pixels: red, green, blue above black, grey, white. */
static const uint8_t six_pixels[] = {
    0x52, 0x49, 0x46, 0x46, 0x3a, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50,
    0x38, 0x4c, 0x2d, 0x00, 0x00, 0x00, 0x2f, 0x02, 0x40, 0x00, 0x00, 0x2f, 0x20, 0x10,
    0x20, 0x48, 0x57, 0x6e, 0x43, 0x40, 0x50, 0x74, 0xdd, 0x72, 0x02, 0x01, 0x82, 0x74,
    0xe5, 0xe6, 0x3f, 0x40, 0x6c, 0x72, 0x6c, 0x15, 0x28, 0x64, 0x1b, 0x01, 0x4e, 0xed,
    0x1e, 0x93, 0x13, 0xba, 0x88, 0xfe, 0xc7, 0xf4, 0x02, 0x00};
/* The same form, six colours with the alpha 0, 1, 127, 128, 254 and 255. */
static const uint8_t six_alphas[] = {
    0x52, 0x49, 0x46, 0x46, 0x4a, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50,
    0x38, 0x4c, 0x3e, 0x00, 0x00, 0x00, 0x2f, 0x02, 0x40, 0x00, 0x10, 0x2f, 0x40, 0x20,
    0x40, 0x11, 0x96, 0xfa, 0xff, 0x81, 0x1b, 0x04, 0x02, 0x14, 0x61, 0x99, 0xff, 0x9f,
    0x50, 0xd0, 0xb6, 0x0d, 0xd3, 0xcb, 0xb9, 0xe4, 0x37, 0x11, 0x4c, 0xd2, 0xd4, 0xe9,
    0x1d, 0x3e, 0x16, 0xed, 0x90, 0x68, 0x72, 0x93, 0xe8, 0xf6, 0xfd, 0x3d, 0xd4, 0xb4,
    0x6d, 0xc0, 0x86, 0x3a, 0xff, 0x82, 0x68, 0x44, 0xff, 0x63, 0xbd, 0x01};

static void webp_with_alpha_is_laid_on_white(void **state)
{
    static const uint8_t alpha[6] = {0, 1, 127, 128, 254, 255};
    (void)state;
    uint8_t out[18];
    ls_error err = {0};
    if (read_bytes(out, &colour_2x3, six_alphas, sizeof six_alphas, &err) != LS_OK)
        fail_msg("%s", err.text);
    for (int k = 0; k < 18; k++) {
        const int a = alpha[k % 6], sample = "ABCDEFabcdefxyzuvw"[k];
        assert_int_equal(out[k], (int)(sample * a / 255.0 + 255 - a + 0.5));
    }
}
#endif

static void webp_is_read_where_libwebp_is(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err = {0};
#ifdef LOCKSTEP_WITH_WEBP
    if (read_bytes(out, &colour_2x3, six_pixels, sizeof six_pixels, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(out,
                        "\xff\0\0\0\x80\xff"
                        "\0\xff\0\0\x80\xff"
                        "\0\0\xff\0\x80\xff",
                        18);
    for (size_t cut = 12; cut + 1 < sizeof six_pixels; cut++)
        assert_int_not_equal(read_bytes(out, &colour_2x3, six_pixels, cut, &err), LS_OK);
#else
    assert_int_equal(READ(out, &colour_2x3, "RIFF....WEBP", &err), LS_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "Debian's libwebp-dev"));
#endif
}

LS_TESTS(data_image_kinds, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_kinds_of_images_are_named),
        cmocka_unit_test(bmp_of_each_depth_is_read),
        cmocka_unit_test(bmp_with_alpha_is_laid_on_white),
        cmocka_unit_test(webp_is_read_where_libwebp_is),
#ifdef LOCKSTEP_WITH_WEBP
        cmocka_unit_test(webp_with_alpha_is_laid_on_white),
#endif
    };
    return cmocka_run_group_tests_name("data_image_kinds", tests, enter, leave);
}
