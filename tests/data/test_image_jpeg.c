/* SPDX-License-Identifier: MIT */
/* Tests JPEG files: the pixels, the size at which an image is decoded, and every kind of error. */
#include "data/image_jpegs.h"

/* Returns the factor by which a JPEG is shrunk while it is decoded: exactly to the wanted size, or
 * to at least 1.5 times that. */
static int shrinks_by(int w, int h, int wide, int high)
{
    for (int by = 8; by > 1; by /= 2) {
        const double across = (double)w / wide / by, down = (double)h / high / by;
        if ((across == 1 || across >= 1.5) && (down == 1 || down >= 1.5))
            return by;
    }
    return 1;
}

/* Decodes a JPEG at 1/by of its size, with libjpeg alone. */
static void decode_plainly(uint8_t *out, int *w, int *h, const unsigned char *bytes, size_t count,
                           int by)
{
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    d.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, bytes, count);
    jpeg_read_header(&d, TRUE);
    d.scale_denom = (unsigned)by;
    jpeg_start_decompress(&d);
    *w = (int)d.output_width;
    *h = (int)d.output_height;
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = out + d.output_scanline * d.output_width * (unsigned)d.output_components;
        jpeg_read_scanlines(&d, &row, 1);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
}

static void a_jpeg_is_decoded_smaller_and_scaled_line_by_line(void **state)
{
    uint32_t seed = 9;
    int seen[9] = {0};
    (void)state;
    ls_scratch memory = {NULL, 0};
    for (int i = 0; i < 200; i++) {
        static uint8_t whole[3 * 200 * 200 + 1], out[3 * 900], want[3 * 900];
        unsigned char *bytes;
        ls_error err = {0};
        const int high = 1 + draw(&seed) % 30, wide = 1 + draw(&seed) % 30;
        const bool exactly = i % 5 == 0;
        const int w = exactly ? wide << i % 3 : 20 + draw(&seed) % 180,
                  h = exactly ? high << i % 3 : 20 + draw(&seed) % 180;
        const int colours = i & 1, channels = i & 2 ? 1 : 3, by = shrinks_by(w, h, wide, high);
        const size_t count = make_jpeg_of(&bytes, w, h, colours, i & 4);
        ls_picture p = {.channels = colours ? 3 : 1,
                        .pixel = whole,
                        .across = (double)w / by,
                        .down = (double)h / by};
        decode_plainly(whole, &p.width, &p.height, bytes, count, by);
        assert_true(ls_picture_scale(want, &(ls_picture_form){channels, high, wide, {0}, 0}, &p,
                                     &memory, NULL));
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(out, &(ls_picture_form){channels, high, wide, {0}, 0},
                                      AT_FDCWD, path, &kept, NULL, &err),
                         LS_OK);
        if (memcmp(out, want, (size_t)(channels * high * wide)) != 0)
            fail_msg("%d×%d to %d×%d, 1/%d", w, h, wide, high, by);
        seen[by]++;
        free(bytes);
    }
    for (int by = 1; by <= 8; by *= 2)
        assert_in_range(seen[by], 5, 200);
    ls_scratch_free(&memory, NULL);
}

static uint8_t slope(int x, int y, int k)
{
    (void)k;
    return (uint8_t)(x + y / 4);
}

/* A brightness that rises linearly has the same values after scaling, for each size of the last
 * JPEG block. A shift by half a pixel of the image that is decoded at an eighth changes the values
 * by 4 of 255. */
static void what_is_decoded_smaller_stays_in_its_place(void **state)
{
    (void)state;
    for (int side = 150; side < 200; side++) {
        uint8_t out[64];
        unsigned char *bytes;
        ls_error err = {0};
        const size_t count = write_jpeg(&bytes, slope, side, side, 0, 0);
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(out, &(ls_picture_form){1, 8, 8, {0}, 0}, AT_FDCWD, path,
                                      &kept, NULL, &err),
                         LS_OK);
        for (int i = 8; i < 56; i++) {
            const double x = side * (i % 8 + 0.5) / 8 - 0.5, y = side * (i / 8 + 0.5) / 8 - 0.5;
            if (i % 8 > 0 && i % 8 < 7 && fabs(out[i] - (x + y / 4)) > 1.5)
                fail_msg("side %d, pixel %d: %d, expected %.1f", side, i, out[i], x + y / 4);
        }
        free(bytes);
    }
}

/* Truncation is also an error if it affects only lines below the part of the image that is used. */
static void every_cut_of_a_jpeg_that_is_scaled_is_refused(void **state)
{
    (void)state;
    unsigned char *bytes;
    const size_t count = make_jpeg_of(&bytes, 20, 90, 1, 0);
    for (size_t cut = count / 2; cut < count - 2; cut += 3) {
        uint8_t out[3 * 16];
        ls_error err = {0};
        write_file(bytes, cut);
        assert_int_equal(ls_image_fit(out, &(ls_picture_form){3, 4, 4, {0}, 0}, AT_FDCWD, path,
                                      &kept, NULL, &err),
                         LS_EDATA);
        assert_non_null(strstr(err.text, "image: before offset"));
    }
    free(bytes);
}

static void jpeg_is_read_grey_and_in_colours_baseline_and_progressive(void **state)
{
    (void)state;
    const shape grey = {1, 8, 16}, colours = {3, 8, 16};
    ls_error err;
    for (int form = 0; form < 4; form++) {
        uint8_t out[3 * 128];
        unsigned char *bytes;
        const size_t count = make_jpeg(&bytes, form & 1, form & 2);
        const shape *s = form & 1 ? &colours : &grey;
        if (read_bytes(out, s, bytes, count, &err) != LS_OK)
            fail_msg("%s", err.text);
        for (int c = 0; c < s->c; c++) {
            assert_in_range(out[c * 128], 36 + 60 * c, 44 + 60 * c);
            assert_in_range(out[c * 128 + 127], 196 - 50 * c, 204 - 50 * c);
        }
        free(bytes);
    }
}

static void every_cut_of_a_jpeg_is_refused(void **state)
{
    (void)state;
    const shape s = {1, 8, 16};
    for (int progressive = 0; progressive < 2; progressive++) {
        unsigned char *bytes;
        const size_t count = make_jpeg(&bytes, 0, progressive);
        for (size_t cut = 3; cut < count - 2; cut++) {
            uint8_t out[128];
            ls_error err = {0};
            assert_int_equal(read_bytes(out, &s, bytes, cut, &err), LS_EDATA);
            assert_non_null(strstr(err.text, "image: before offset"));
        }
        free(bytes);
    }
}

/* Removes the segments with the marker FF `marker`, and returns the new size. */
static size_t without(unsigned char *bytes, size_t count, int marker)
{
    for (size_t i = 2; i + 4 < count && bytes[i] == 0xFF && bytes[i + 1] != 0xDA;) {
        const size_t length = 2 + (size_t)bytes[i + 2] * 256 + bytes[i + 3];
        if (bytes[i + 1] != marker) {
            i += length;
            continue;
        }
        memmove(bytes + i, bytes + i + length, count - i - length);
        count -= length;
    }
    return count;
}

/* Decodes 200 images, so that the decoder is also created anew (MOST_TABLES). */
static void tables_of_one_jpeg_are_not_those_of_the_next(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        unsigned char *bytes;
        uint8_t alone[3 * 128], after[3 * 128];
        ls_error err = {0};
        ls_image_memory none = {0};
        const int form = i % 4;
        size_t count = make_jpeg(&bytes, form & 1, form & 2);
        if (i % 3 == 1)
            count = without(bytes, count, 0xDB);
        if (i % 7 == 1)
            count = without(bytes, count, 0xC4);
        write_file(bytes, count);
        const int status = ls_image_fit(alone, &(ls_picture_form){3, 8, 16, {0}, 0}, AT_FDCWD, path,
                                        &none, NULL, &err);
        assert_int_equal(ls_image_fit(after, &(ls_picture_form){3, 8, 16, {0}, 0}, AT_FDCWD, path,
                                      &kept, NULL, &err),
                         status);
        if (i % 3 == 1)
            assert_int_equal(status, LS_EDATA);
        if (status == LS_OK)
            assert_memory_equal(alone, after, sizeof alone);
        ls_image_memory_free(&none, NULL);
        free(bytes);
    }
}

/* Replaces the quantiser table of a grey image by one with 16-bit elements that all have the value
 * `value`. Returns the new size. */
static size_t with_quantiser(unsigned char *bytes, size_t count, int value)
{
    size_t i = 2;
    while (bytes[i + 1] != 0xDB)
        i += 2 + (size_t)bytes[i + 2] * 256 + bytes[i + 3];
    assert_int_equal(bytes[i + 3], 67);
    memmove(bytes + i + 133, bytes + i + 69, count - i - 69);
    bytes[i + 3] = 131;
    bytes[i + 4] = 0x10; /* 16-bit elements, table 0 */
    for (int k = 0; k < 64; k++) {
        bytes[i + 5 + 2 * k] = (unsigned char)(value >> 8);
        bytes[i + 6 + 2 * k] = (unsigned char)value;
    }
    return count + 64;
}

static void any_quantiser_but_zeros_is_one(void **state)
{
    static const int values[] = {1, 0xA5A5, 0, 0xFFFF, 0};
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        unsigned char *bytes;
        uint8_t out[128], room_for_more[4096];
        ls_error err = {0};
        size_t count = make_jpeg(&bytes, 0, 1);
        assert_in_range(count, 1, sizeof room_for_more - 64);
        memcpy(room_for_more, bytes, count);
        write_file(room_for_more, with_quantiser(room_for_more, count, values[i]));
        const int status = ls_image_fit(out, &(ls_picture_form){1, 8, 16, {0}, 0}, AT_FDCWD, path,
                                        &kept, NULL, &err);
        if (status != (values[i] ? LS_OK : LS_EDATA))
            fail_msg("quantiser %d: %d, %s", values[i], status, err.text);
        free(bytes);
    }
}

/* The header of a file of a few hundred bytes says 65000 × 65000 pixels. */
static void a_jpeg_that_promises_too_much_is_refused(void **state)
{
    (void)state;
    unsigned char *bytes;
    uint8_t out[4];
    ls_error err;
    const size_t count = make_jpeg(&bytes, 0, 0);
    for (size_t i = 0; i + 8 < count; i++)
        if (bytes[i] == 0xFF && bytes[i + 1] == 0xC0)
            memcpy(bytes + i + 5, "\xFD\xE8\xFD\xE8", 4);
    write_file(bytes, count);
    assert_int_equal(
        ls_image_fit(out, &(ls_picture_form){1, 2, 2, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err),
        LS_EDATA);
    assert_string_equal(err.text, "image: 65000×65000 pixels; expected at most 65500 in a side and "
                                  "1073741824 in all; scale it down");
    free(bytes);
}

LS_TESTS(data_image_jpeg, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpeg_is_read_grey_and_in_colours_baseline_and_progressive),
        cmocka_unit_test(every_cut_of_a_jpeg_is_refused),
        cmocka_unit_test(every_cut_of_a_jpeg_that_is_scaled_is_refused),
        cmocka_unit_test(a_jpeg_is_decoded_smaller_and_scaled_line_by_line),
        cmocka_unit_test(what_is_decoded_smaller_stays_in_its_place),
        cmocka_unit_test(any_quantiser_but_zeros_is_one),
        cmocka_unit_test(tables_of_one_jpeg_are_not_those_of_the_next),
        cmocka_unit_test(a_jpeg_that_promises_too_much_is_refused),
    };
    return cmocka_run_group_tests_name("data_image_jpeg", tests, enter, leave);
}
