/* SPDX-License-Identifier: MIT */
/* Tests JPEG files as cameras and print programs write them. */
#include "data/image_jpegs.h"

/* Inserts the `length` bytes at `more` after the first two bytes, the start marker. Returns the new
 * size. */
static size_t with_segment(unsigned char **bytes, size_t count, const void *more, size_t length)
{
    unsigned char *out = malloc(count + length);
    assert_non_null(out);
    memcpy(out, *bytes, 2);
    memcpy(out + 2, more, length);
    memcpy(out + 2 + length, *bytes + 2, count - 2);
    free(*bytes);
    *bytes = out;
    return count + length;
}

/* Segments with EXIF data of orientation `n`, little-endian and big-endian. */
#define EXIF(n)                                                                                    \
    "\xFF\xE1\0\x22"                                                                               \
    "Exif\0\0"                                                                                     \
    "II*\0\x08\0\0\0\x01\0\x12\1\3\0\1\0\0\0" n "\0\0\0\0\0\0\0"
#define EXIF_BIG(n)                                                                                \
    "\xFF\xE1\0\x22"                                                                               \
    "Exif\0\0"                                                                                     \
    "MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0" n "\0\0\0\0\0\0"

/* Returns the pixels of an image whose four quarters differ in brightness. */
static uint8_t quarters(int x, int y, int k)
{
    (void)k;
    return (uint8_t)((x < 32 ? 40 : 100) + (y < 16 ? 0 : 120));
}

/* Checks the brightness of the four corners: top left, top right, bottom left, bottom right.
 * `corners` names the quarters of the original image, a to d. */
static void check_corners(const uint8_t *pixel, int high, int wide, const char *corners)
{
    const int place[4] = {0, wide - 1, (high - 1) * wide, high * wide - 1};
    for (int i = 0; i < 4; i++) {
        static const int brightness[4] = {40, 100, 160, 220};
        const int want = brightness[corners[i] - 'a'];
        if (pixel[place[i]] < want - 4 || pixel[place[i]] > want + 4)
            fail_msg("%s: corner %d is %d, expected %d", corners, i, pixel[place[i]], want);
    }
}

/* The image has 64 × 32 pixels; the quarters a and b are above c and d. */
static void a_jpeg_is_turned_as_its_camera_was_held(void **state)
{
    static const char *const corners[9] = {NULL,   "abcd", "badc", "dcba", "cdab",
                                           "acbd", "cadb", "dbca", "bdac"};
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int big = 0; big < 2; big++) {
            unsigned char *bytes, exif[36];
            uint8_t out[64 * 32];
            ls_error err = {0};
            const bool lies = n > 4;
            const shape whole = {1, lies ? 64 : 32, lies ? 32 : 64};
            memcpy(exif, big ? EXIF_BIG("\1") : EXIF("\1"), sizeof exif);
            exif[10 + 18 + big] = (uint8_t)n;
            size_t count = write_jpeg(&bytes, quarters, 64, 32, 0, 0);
            count = with_segment(&bytes, count, exif, sizeof exif);
            if (read_bytes(out, &whole, bytes, count, &err) != LS_OK)
                fail_msg("%s", err.text);
            check_corners(out, whole.h, whole.w, corners[n]);
            assert_int_equal(ls_image_fit(out,
                                          &(ls_picture_form){1, whole.h / 4, whole.w / 4, {0}, 0},
                                          AT_FDCWD, path, &kept, NULL, &err),
                             LS_OK);
            check_corners(out, whole.h / 4, whole.w / 4, corners[n]);
            assert_int_equal(kept.turned, n > 1);
            free(bytes);
        }
}

/* An image with truncated EXIF data is read. It is rotated only if the orientation is in the part
 * that exists. */
static void exif_that_is_cut_or_lies_says_nothing(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < 26; cut++) {
        unsigned char *bytes, exif[36] = EXIF("\6");
        uint8_t out[64];
        ls_error err = {0};
        exif[3] = (uint8_t)(2 + 6 + cut);
        size_t count = write_jpeg(&bytes, quarters, 64, 32, 0, 0);
        count = with_segment(&bytes, count, exif, 10 + cut);
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(out, &(ls_picture_form){1, 8, 8, {0}, 0}, AT_FDCWD, path,
                                      &kept, NULL, &err),
                         LS_OK);
        assert_int_equal(kept.turned, cut >= 20);
        free(bytes);
    }
}

static uint8_t inks(int x, int y, int k)
{
    (void)y;
    return (uint8_t)(k == 3 ? 200 : x < 32 ? 255 - 80 * k : 40 * k);
}

/* CMYK samples are stored inverted (255 is no ink), with Adobe's marker and without. */
static void the_four_colours_of_print_become_three(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct jpeg_compress_struct c;
        struct jpeg_error_mgr errors;
        unsigned char *bytes = NULL;
        unsigned long count = 0;
        uint8_t line[4 * 64], out[3 * 64];
        JSAMPROW row = line;
        ls_error err = {0};
        c.err = jpeg_std_error(&errors);
        jpeg_create_compress(&c);
        jpeg_mem_dest(&c, &bytes, &count);
        c.image_width = c.image_height = 64;
        c.input_components = 4;
        c.in_color_space = JCS_CMYK;
        jpeg_set_defaults(&c);
        if (form == 1)
            jpeg_set_colorspace(&c, JCS_YCCK);
        c.write_Adobe_marker = form != 2;
        jpeg_set_quality(&c, 100, TRUE);
        jpeg_start_compress(&c, TRUE);
        for (int y = 0; y < 64; y++) {
            for (int i = 0; i < 256; i++)
                line[i] = inks(i / 4, y, i % 4);
            jpeg_write_scanlines(&c, &row, 1);
        }
        jpeg_finish_compress(&c);
        jpeg_destroy_compress(&c);
        write_file(bytes, count);
        if (ls_image_fit(out, &(ls_picture_form){3, 8, 8, {0}, 0}, AT_FDCWD, path, &kept, NULL,
                         &err) != LS_OK)
            fail_msg("%s", err.text);
        for (int k = 0; k < 3; k++) {
            const int left = inks(0, 0, k) * 200 / 255, right = inks(63, 0, k) * 200 / 255;
            assert_in_range(out[64 * k] + 6, left, left + 12);
            assert_in_range(out[64 * k + 7] + 6, right, right + 12);
        }
        free(bytes);
    }
}

/* Returns the offset of the segment with the marker FF `marker`. */
static size_t find(const unsigned char *bytes, int marker)
{
    size_t i = 2;
    while (bytes[i + 1] != marker)
        i += 2 + (size_t)bytes[i + 2] * 256 + bytes[i + 3];
    return i;
}

/* Two kinds of images are read without an error: those that are complete except for the end marker,
 * and those with an unusual value in a field of the scan header that has no meaning. */
static void warnings_that_leave_every_pixel_are_no_damage(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        unsigned char *bytes;
        uint8_t out[64], want[64];
        ls_error err = {0};
        const size_t count = make_jpeg(&bytes, 0, form == 2);
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(want, &(ls_picture_form){1, 8, 8, {0}, 0}, AT_FDCWD, path,
                                      &kept, NULL, &err),
                         LS_OK);
        if (form == 0)
            bytes[find(bytes, 0xDA) + 8] = 0; /* index of the last coefficient, usually 63 */
        write_file(bytes, form == 0 ? count : count - 2);
        const int status = ls_image_fit(out, &(ls_picture_form){1, 8, 8, {0}, 0}, AT_FDCWD, path,
                                        &kept, NULL, &err);
        /* in a progressive image, further scans could be missing */
        assert_int_equal(status, form == 2 ? LS_EDATA : LS_OK);
        if (status == LS_OK)
            assert_memory_equal(out, want, sizeof out);
        free(bytes);
    }
}

static void what_libjpeg_does_not_read_is_not_called_damaged(void **state)
{
    static const struct {
        int marker, at, value;
        const char *says;
    } kinds[] = {{0xC0, 4, 12, "precision 12"}, {0xC0, 1, 0xC3, "SOF type 0xc3"}};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        unsigned char *bytes;
        uint8_t out[64];
        ls_error err = {0};
        const size_t count = make_jpeg(&bytes, 0, 0);
        bytes[find(bytes, kinds[k].marker) + (size_t)kinds[k].at] = (uint8_t)kinds[k].value;
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(out, &(ls_picture_form){1, 8, 8, {0}, 0}, AT_FDCWD, path,
                                      &kept, NULL, &err),
                         LS_EUNSUPPORTED);
        assert_non_null(strstr(err.text, "it need not be damaged: convert it to PNG"));
        assert_non_null(strstr(err.text, kinds[k].says));
        free(bytes);
    }
}

/* The image is wider than the limit for images that are decoded at full size; it is decoded at a
 * half. */
static void a_very_large_jpeg_is_decoded_at_its_reduced_size(void **state)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long count = 0;
    static uint8_t line[20000], out[16];
    JSAMPROW row = line;
    ls_error err = {0};
    (void)state;
    memset(line, 0x40, sizeof line);
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &bytes, &count);
    c.image_width = sizeof line;
    c.image_height = 16;
    c.input_components = 1;
    c.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < 16; y++)
        jpeg_write_scanlines(&c, &row, 1);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    write_file(bytes, count);
    if (ls_image_fit(out, &(ls_picture_form){1, 4, 4, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err) !=
        LS_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 16; i++)
        assert_in_range(out[i], 0x3e, 0x42);
    free(bytes);
}

LS_TESTS(data_image_photos, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_jpeg_is_turned_as_its_camera_was_held),
        cmocka_unit_test(exif_that_is_cut_or_lies_says_nothing),
        cmocka_unit_test(the_four_colours_of_print_become_three),
        cmocka_unit_test(warnings_that_leave_every_pixel_are_no_damage),
        cmocka_unit_test(what_libjpeg_does_not_read_is_not_called_damaged),
        cmocka_unit_test(a_very_large_jpeg_is_decoded_at_its_reduced_size),
    };
    return cmocka_run_group_tests_name("data_image_photos", tests, enter, leave);
}
