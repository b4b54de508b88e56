/* SPDX-License-Identifier: MIT */
/* Tests reading image files: the pixels, and every kind of error. */
#include "data/images.h"
#include "data/png.h"
#include "runner.h"

#include <math.h>
#include <stdlib.h>

/* ---- valid files ---------------------------------------------------------------------------- */

static void a_pgm_file_is_read_with_its_comments(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    assert_int_equal(READ(out, &grey_2x3, "P5\n# made by hand\n3 2\n255\nabcdef", &err), LS_OK);
    assert_memory_equal(out, "abcdef", 6);
}

static void a_smaller_largest_value_is_stretched(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    assert_int_equal(READ(out, &grey_2x3, "P5 3 2 15\n\0\1\2\3\16\17", &err), LS_OK);
    assert_memory_equal(out, "\0\x11\x22\x33\xee\xff", 6);
}

static void colours_become_planes_or_grey(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err;
    static const char file[] = "P6 3 2 255\nAaxBbyCczDduEevFfw";
    assert_int_equal(READ(out, &colour_2x3, file, &err), LS_OK);
    assert_memory_equal(out, "ABCDEFabcdefxyzuvw", 18);
    assert_int_equal(READ(out, &grey_2x3, file, &err), LS_OK);
    assert_int_equal(out[0], (299 * 'A' + 587 * 'a' + 114 * 'x' + 500) / 1000);
}

static void grey_becomes_three_equal_planes(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err;
    assert_int_equal(READ(out, &colour_2x3, "P5 3 2 255\nabcdef", &err), LS_OK);
    assert_memory_equal(out, "abcdefabcdefabcdef", 18);
}

/* ---- refused files -------------------------------------------------------------------------- */

static void another_size_is_refused_with_the_one_that_fits(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    assert_int_equal(READ(out, &grey_2x3, "P5 2 3 255\nabcdef", &err), LS_EDATA);
    assert_string_equal(err.text, "image: 2×3 pixels, but the model reads 3×2; with ImageMagick: "
                                  "convert IN -resize '3x2!' OUT.png");
}

static void what_is_no_image_is_named_with_what_was_expected(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    assert_int_equal(READ(out, &grey_2x3, "ABCDEF", &err), LS_EDATA);
    assert_string_equal(err.text,
                        "image: offset 0: expected a PNG, JPEG, PGM (P5), PPM (P6), BMP or WebP "
                        "image; convert it, with ImageMagick: convert IN OUT.png");
    assert_int_equal(READ(out, &grey_2x3, "", &err), LS_EDATA);
    assert_int_equal(ls_image_read(out, 1, 2, 3, "nowhere.png", NULL, &err), LS_ENOENT);
    const shape five = {5, 2, 3};
    assert_int_equal(READ(out, &five, "P5 3 2 255\nabcdef", &err), LS_EUNSUPPORTED);
}

static void every_cut_of_a_pgm_is_refused(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    static const char file[] = "P5 3 2 255\nabcdef";
    for (size_t n = 0; n < sizeof file - 1; n++)
        assert_int_equal(read_bytes(out, &grey_2x3, file, n, &err), LS_EDATA);
    assert_int_equal(READ(out, &grey_2x3, "P5 99999999999 2 255\nabcdef", &err), LS_EDATA);
    assert_int_equal(READ(out, &grey_2x3, "P5 3 0 255\nabcdef", &err), LS_EDATA);
    assert_int_equal(READ(out, &grey_2x3, "P5 3 2 65535\nabcdefabcdef", &err), LS_EDATA);
}

#ifdef LOCKSTEP_WITH_PNG

/* ---- PNG ------------------------------------------------------------------------------------- */

static png_bytes make_png(int width, int height, int type, const void *rows, size_t count,
                          const char *palette)
{
    return png_make((uint32_t)width, (uint32_t)height, 8, type, 0, rows, count, palette);
}

/* The rows 10 20 40 and 15 30 60, encoded with each of the five filters. */
static void every_png_filter_is_undone(void **state)
{
    (void)state;
    static const uint8_t first[5][4] = {
        {0, 10, 20, 40}, {1, 10, 10, 20}, {2, 10, 20, 40}, {3, 10, 15, 30}, {4, 10, 10, 20}};
    static const uint8_t second[5][4] = {
        {0, 15, 30, 60}, {1, 15, 15, 30}, {2, 5, 10, 20}, {3, 10, 13, 25}, {4, 5, 10, 20}};
    static const uint8_t wanted[6] = {10, 20, 40, 15, 30, 60};
    for (int f = 0; f < 5; f++) {
        uint8_t rows[8], out[6];
        ls_error err = {0};
        memcpy(rows, first[f], 4);
        memcpy(rows + 4, second[f], 4);
        png_bytes p = make_png(3, 2, 0, rows, sizeof rows, NULL);
        assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
        assert_memory_equal(out, wanted, 6);
    }
}

static void png_with_colours_palette_and_alpha_is_read(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err;
    png_bytes p = make_png(3, 2, 2, "\0AaxBbyCcz\0DduEevFfw", 20, NULL);
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "ABCDEFabcdefxyzuvw", 18);
    p = make_png(3, 2, 6,
                 "\0Aax\xff"
                 "Bby\xff"
                 "Ccz\xff\0Ddu\xff"
                 "Eev\xff"
                 "Ffw\xff",
                 26, NULL);
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "ABCDEFabcdefxyzuvw", 18);
    p = make_png(3, 2, 3, "\0\0\1\1\0\1\1\0", 8, "AaxBby");
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "ABBBBAabbbbaxyyyyx", 18);
    p = make_png(3, 2, 4,
                 "\0a\xff"
                 "b\xff"
                 "c\xff\0d\xff"
                 "e\xff"
                 "f\xff",
                 14, NULL);
    assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "abcdef", 6);
}

/* Returns a sample of a transparent pixel that is laid on white. */
static uint8_t on_white(int sample, int alpha)
{
    return (uint8_t)(sample * alpha / 255.0 + 255 - alpha + 0.5);
}

/* Reads `p` in colours, of which each sample must be that of `opaque` laid on white. `alpha`: the
 * alpha of each pixel. */
static void is_laid(const png_bytes *p, const char opaque[18], const uint8_t alpha[6])
{
    uint8_t out[18];
    ls_error err = {0};
    write_file(p->bytes, p->count);
    if (ls_image_fit(out, &(ls_picture_form){3, 2, 3, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err) !=
        LS_OK)
        fail_msg("%s", err.text);
    for (int k = 0; k < 18; k++)
        assert_int_equal(out[k], on_white((uint8_t)opaque[k], alpha[k % 6]));
    assert_true(kept.laid);
    assert_int_equal(kept.width, 3);
    assert_int_equal(kept.height, 2);
}

/* Alpha is that of each pixel, or a colour or a grey that is transparent (tRNS). */
static void transparent_pixels_are_laid_on_white(void **state)
{
    (void)state;
    static const uint8_t alpha[6] = {0, 1, 127, 128, 254, 255},
                         one[6] = {255, 0, 255, 255, 255, 255};
    const size_t header = 8 + 12 + 13;
    uint8_t colours[26] = {0}, greys[14] = {0};
    for (int k = 0; k < 6; k++) {
        uint8_t *colour = colours + 1 + k / 3 + 4 * k, *grey = greys + 1 + k / 3 + 2 * k;
        colour[0] = (uint8_t) "ABCDEF"[k];
        colour[1] = (uint8_t) "abcdef"[k];
        colour[2] = (uint8_t) "xyzuvw"[k];
        grey[0] = (uint8_t) "abcdef"[k];
        colour[3] = grey[1] = alpha[k];
    }
    png_bytes p = make_png(3, 2, 6, colours, sizeof colours, NULL);
    is_laid(&p, "ABCDEFabcdefxyzuvw", alpha);
    p = make_png(3, 2, 4, greys, sizeof greys, NULL);
    is_laid(&p, "abcdefabcdefabcdef", alpha);
    static const struct {
        int depth, type;
        const char *rows, *transparent, *opaque;
        size_t count, bytes;
    } named[] = {
        {8, 0, "\0abc\0def", "\0b", "abcdefabcdefabcdef", 8, 2},
        {8, 2, "\0AaxBbyCcz\0DduEevFfw", "\0B\0b\0y", "ABCDEFabcdefxyzuvw", 20, 6},
        {16, 0, "\0a.b.c.\0d.e.f.", "b.", "abcdefabcdefabcdef", 14, 2},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        png_bytes q = {.count = 0};
        p = png_make(3, 2, named[i].depth, named[i].type, 0, named[i].rows, named[i].count, NULL);
        png_put(&q, p.bytes, header);
        png_put_chunk(&q, "tRNS", named[i].transparent, named[i].bytes);
        png_put(&q, p.bytes + header, p.count - header);
        is_laid(&q, named[i].opaque, one);
    }
    p = make_png(3, 2, 0, "\0abc\0def", 8, NULL);
    uint8_t out[6];
    ls_error err;
    write_file(p.bytes, p.count);
    assert_int_equal(
        ls_image_fit(out, &(ls_picture_form){1, 2, 3, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err),
        LS_OK);
    assert_false(kept.laid);
}

/* Without a white level the upper 8 bits of a sample are used. With one, a sample s becomes
 * 255·s/white, rounded. */
static void samples_of_16_bits_are_scaled_by_white(void **state)
{
    (void)state;
    static const struct {
        int white;
        const char *want;
    } cases[] = {{0, "\0\1\0\0\0\1"},             /* of 1, 306, 2, 3, 4 and 256 */
                 {306, "\1\377\2\3\3\325"},       /* 0.83, 255, 1.67, 2.5, 3.33, 213.33 */
                 {255, "\1\377\2\3\4\377"},       /* what is larger is white as well */
                 {4, "\100\377\200\277\377\377"}, /* 63.75, 127.5, 191.25 */
                 {65535, "\0\1\0\0\0\1"}};
    uint8_t out[6];
    ls_error err;
    png_bytes p = png_make(3, 2, 16, 0, 0, "\0\0\1\1\x32\0\2\0\0\3\0\4\1\0", 14, NULL);
    write_file(p.bytes, p.count);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_picture_form form = {1, 2, 3, {0}, cases[i].white};
        assert_int_equal(ls_image_fit(out, &form, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
        assert_memory_equal(out, cases[i].want, 6);
        assert_int_equal(kept.largest, 306);
    }
    kept.largest = 0;
    assert_int_equal(ls_image_measure(AT_FDCWD, path, &kept, NULL, &err), LS_OK);
    assert_int_equal(kept.largest, 306);
    write_file(p.bytes, p.count - 30);
    assert_int_equal(ls_image_measure(AT_FDCWD, path, &kept, NULL, &err), LS_EDATA);
    p = png_make(3, 2, 8, 0, 0, "\0abc\0def", 8, NULL);
    write_file(p.bytes, p.count);
    assert_int_equal(ls_image_measure(AT_FDCWD, path, &kept, NULL, &err), LS_OK);
    assert_int_equal(kept.largest, 0);
    const ls_picture_form form = {1, 2, 3, {0}, 306};
    assert_int_equal(ls_image_fit(out, &form, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
    assert_memory_equal(out, "abcdef", 6);
}

static void png_of_any_depth_and_interlaced_is_read(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err;
    png_bytes p = png_make(3, 2, 1, 0, 0, "\0\xa0\0\x40", 4, NULL);
    assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "\xff\0\xff\0\xff\0", 6);
    p = png_make(3, 2, 2, 0, 0, "\0\x18\0\xe4", 4, NULL);
    assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "\0\x55\xaa\xff\xaa\x55", 6);
    p = png_make(3, 2, 4, 3, 0, "\0\x01\x10\0\x10\x10", 6, "AaxBby");
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "ABBBABabbbabxyyyxy", 18);
    p = png_make(3, 2, 16, 0, 0, "\0a.b.c.\0d.e.f.", 14, NULL);
    assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "abcdef", 6);
    p = png_make(3, 2, 8, 0, 1, "\0a\0c\0b\0def", 10, NULL);
    assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "abcdef", 6);
}

static void *note_largest(void *user, size_t bytes, size_t align)
{
    size_t *largest = user;
    *largest = bytes > *largest ? bytes : *largest;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* The header says 16384×16384 pixels, and no pixels follow. Memory for them (a gigabyte) must not
 * be allocated. */
static void a_png_of_another_size_is_refused_before_it_is_decoded(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    size_t largest = 0;
    const ls_host host = {
        .size = sizeof host, .alloc = note_largest, .free = give_back, .user = &largest};
    static const uint8_t header[13] = {0, 0, 0x40, 0, 0, 0, 0x40, 0, 8, 6};
    png_bytes p = {.count = 0};
    png_put(&p, "\x89PNG\r\n\x1a\n", 8);
    png_put_chunk(&p, "IHDR", header, sizeof header);
    png_put_chunk(&p, "IDAT", "no pixels", 9);
    png_put_chunk(&p, "IEND", "", 0);
    write_file(p.bytes, p.count);
    assert_int_equal(ls_image_read(out, 1, 2, 3, path, &host, &err), LS_EDATA);
    assert_string_equal(err.text, "image: 16384×16384 pixels, but the model reads 3×2; with "
                                  "ImageMagick: convert IN -resize '3x2!' OUT.png");
    assert_in_range(largest, 1, 1000);
}

static void a_palette_that_lacks_a_colour_is_refused(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err;
    png_bytes p = make_png(3, 2, 3, "\0\0\1\2\0\1\1\0", 8, "AaxBby");
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_EDATA);
}

static void a_palette_with_transparent_colours_is_laid_on_white(void **state)
{
    (void)state;
    static const uint8_t alpha[6] = {128, 255, 255, 255, 255, 128};
    png_bytes p = make_png(3, 2, 3, "\0\0\1\1\0\1\1\0", 8, "AaxBby"), q = {.count = 0};
    const size_t before = 8 + 12 + 13 + 12 + 6; /* signature, header, palette */
    png_put(&q, p.bytes, before);
    png_put_chunk(&q, "tRNS", "\x80", 1);
    png_put(&q, p.bytes + before, p.count - before);
    is_laid(&q, "ABBBBAabbbbaxyyyyx", alpha);
}

/* PNG's checksums detect each change. */
static void every_cut_and_every_flipped_bit_of_a_png_is_refused(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    const png_bytes p = make_png(3, 2, 0, "\0abc\0def", 8, NULL);
    for (size_t n = 0; n < p.count; n++)
        assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, n, &err), LS_EDATA);
    for (size_t bit = 0; bit < 8 * p.count; bit++) {
        png_bytes q = p;
        q.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(read_bytes(out, &grey_2x3, q.bytes, q.count, &err), LS_EDATA);
    }
}

/* Damage in a chunk that is not needed for the pixels, such as a text or a colour profile, is
 * ignored. */
static void a_chunk_that_no_pixel_needs_may_be_damaged(void **state)
{
    (void)state;
    for (int form = 0; form < 8; form++) {
        uint8_t out[6];
        ls_error err = {0};
        const png_bytes p = make_png(3, 2, 0, "\0abc\0def", 8, NULL);
        const size_t at = form & 1 ? p.count - 12 : 8 + 25; /* after the pixels, or before them */
        png_bytes q = {.count = 0};
        png_put(&q, p.bytes, at);
        png_put_chunk(&q, form & 2 ? "iCCP" : "tEXt", "Title\0words", 11);
        /* no valid profile begins with these bytes, even with the right checksum */
        q.bytes[q.count - 1] ^= form & 4 ? 0 : 1;
        png_put(&q, p.bytes + at, p.count - at);
        if (read_bytes(out, &grey_2x3, q.bytes, q.count, &err) != LS_OK)
            fail_msg("%d: %s", form, err.text);
        assert_memory_equal(out, "abcdef", 6);
    }
}

static void a_png_is_turned_as_its_exif_says(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err = {0};
    const shape turned = {1, 3, 2};
    const png_bytes p = make_png(3, 2, 0, "\0abc\0def", 8, NULL);
    png_bytes q = {.count = 0};
    png_put(&q, p.bytes, 8 + 25);
    png_put_chunk(&q, "eXIf", "MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0", 26);
    png_put(&q, p.bytes + 8 + 25, p.count - 8 - 25);
    if (read_bytes(out, &turned, q.bytes, q.count, &err) != LS_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(out, "daebfc", 6);
}

#else

static void a_program_without_libspng_says_so(void **state)
{
    (void)state;
    uint8_t out[6];
    ls_error err;
    assert_int_equal(READ(out, &grey_2x3, "\x89PNG\r\n\x1a\n", &err), LS_EUNSUPPORTED);
    assert_string_equal(err.text, "image: Lockstep was built without libspng and reads no PNG; "
                                  "install Debian's libspng-dev and build it again, or convert "
                                  "the image: convert IN OUT.ppm");
}

#endif

/* ---- images of any size ---------------------------------------------------------------------- */

static void an_image_is_cut_to_the_middle_and_shrunk_by_averages(void **state)
{
    (void)state;
    uint8_t out[4];
    ls_error err;
    /* An image of 6 × 2 is cut to its middle 2 × 2 pixels, which do not change. */
    const char wide[] = "P5 6 2 255\n"
                        "abPQcdefRSgh";
    write_file(wide, sizeof wide - 1);
    assert_int_equal(
        ls_image_fit(out, &(ls_picture_form){1, 2, 2, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err),
        LS_OK);
    assert_memory_equal(out, "PQRS", 4);
    /* An image of 2 × 2 becomes one pixel, in which all four have the same weight. */
    const char four[] = "P5 2 2 255\n\x10\x20\x30\x50";
    write_file(four, sizeof four - 1);
    assert_int_equal(
        ls_image_fit(out, &(ls_picture_form){1, 1, 1, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err),
        LS_OK);
    assert_int_equal(out[0], (0x10 + 0x20 + 0x30 + 0x50) / 4);
    /* Enlarged to 4 × 4, the image keeps its corners. */
    uint8_t grown[48];
    assert_int_equal(
        ls_image_fit(grown, &(ls_picture_form){3, 4, 4, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err),
        LS_OK);
    assert_int_equal(grown[0], 0x10);
    assert_int_equal(grown[3], 0x20);
    assert_int_equal(grown[15], 0x50);
    assert_memory_equal(grown, grown + 32, 16);
}

/* Computes the weights of output `o` in one direction as image.h describes them, in the simplest
 * way. */
static int plain_weights(float *weight, int *first, int o, double from, double step, int size)
{
    const double reach = step > 1 ? step : 1, middle = from + (o + 0.5) * step;
    double sum = 0;
    int n = 0;
    *first = (int)(middle - reach > 0 ? middle - reach : 0);
    for (int k = *first; k < size && k < middle + reach; k++, n++) {
        weight[n] = (float)fmax(1 - fabs((k + 0.5 - middle) / reach), 0);
        sum += (double)weight[n];
    }
    for (int k = 0; k < n; k++)
        weight[k] /= (float)sum;
    return n;
}

static float plain_sample(const ls_picture *p, int y, int x, int c, int channels)
{
    const uint8_t *v = p->pixel + ((size_t)y * (size_t)p->width + (size_t)x) * (size_t)p->channels;
    return p->channels == 1 ? v[0]
           : channels == 1  ? (uint8_t)((299u * v[0] + 587u * v[1] + 114u * v[2] + 500u) / 1000u)
                            : v[c];
}

static uint8_t plain_pixel(const ls_picture *p, int channels, int h, int w, int c, int y, int x)
{
    const double high = p->down > 0 ? p->down : p->height,
                 wide = p->across > 0 ? p->across : p->width, step = fmin(high / h, wide / w);
    float across_weight[200], down_weight[200], sum = 0.5f;
    int left, top;
    const int m = plain_weights(across_weight, &left, x, (wide - step * w) / 2, step, p->width);
    const int n = plain_weights(down_weight, &top, y, (high - step * h) / 2, step, p->height);
    for (int i = 0; i < n; i++) {
        float line = 0;
        for (int k = 0; k < m; k++)
            line += across_weight[k] * plain_sample(p, top + i, left + k, c, channels);
        sum += down_weight[i] * line;
    }
    return (uint8_t)(sum < 255 ? sum : 255);
}

static void scaling_gives_the_bits_of_plain_sums(void **state)
{
    (void)state;
    static uint8_t pixel[90 * 90 * 4 + 1], out[3 * 40 * 40];
    ls_scratch memory = {NULL, 0};
    uint32_t seed = 5;
    for (size_t i = 0; i < sizeof pixel; i++)
        pixel[i] = (uint8_t)(i % 7 ? draw(&seed) : 255 * (draw(&seed) & 1));
    for (int round = 0; round < 300; round++) {
        static const int kinds[] = {1, 3, 4};
        ls_picture p = {.width = 1 + draw(&seed) % 90,
                        .height = 1 + draw(&seed) % 90,
                        .channels = kinds[round % 3],
                        .pixel = pixel};
        p.across = draw(&seed) % 2 ? p.width - draw(&seed) % 8 / 8.0 : 0;
        p.down = draw(&seed) % 2 ? p.height - draw(&seed) % 8 / 8.0 : 0;
        const int channels = draw(&seed) % 2 ? 1 : 3, h = 1 + draw(&seed) % 40,
                  w = 1 + draw(&seed) % 40;
        assert_true(
            ls_picture_scale(out, &(ls_picture_form){channels, h, w, {0}, 0}, &p, &memory, NULL));
        for (int i = 0; i < channels * h * w; i++) {
            const uint8_t want = plain_pixel(&p, channels, h, w, i / (h * w), i / w % h, i % w);
            if (out[i] != want)
                fail_msg("%d×%d×%d to %d×%d×%d, sample %d: %d, expected %d", p.channels, p.height,
                         p.width, channels, h, w, i, out[i], want);
        }
    }
    ls_scratch_free(&memory, NULL);
}

static void a_header_that_promises_too_much_is_refused_before_memory_is_asked_for(void **state)
{
    (void)state;
    uint8_t out[4];
    ls_error err;
    const char bomb[] = "P5 16000 16000 255\n";
    write_file(bomb, sizeof bomb - 1);
    assert_int_equal(
        ls_image_fit(out, &(ls_picture_form){1, 2, 2, {0}, 0}, AT_FDCWD, path, &kept, NULL, &err),
        LS_EDATA);
    assert_non_null(
        strstr(err.text, "16000×16000 pixels; expected at most 16384 in a side and 67108864"));
}

LS_TESTS(data_image, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_is_cut_to_the_middle_and_shrunk_by_averages),
        cmocka_unit_test(scaling_gives_the_bits_of_plain_sums),
        cmocka_unit_test(a_header_that_promises_too_much_is_refused_before_memory_is_asked_for),
        cmocka_unit_test(a_pgm_file_is_read_with_its_comments),
        cmocka_unit_test(a_smaller_largest_value_is_stretched),
        cmocka_unit_test(colours_become_planes_or_grey),
        cmocka_unit_test(grey_becomes_three_equal_planes),
        cmocka_unit_test(another_size_is_refused_with_the_one_that_fits),
        cmocka_unit_test(what_is_no_image_is_named_with_what_was_expected),
        cmocka_unit_test(every_cut_of_a_pgm_is_refused),
#ifdef LOCKSTEP_WITH_PNG
        cmocka_unit_test(every_png_filter_is_undone),
        cmocka_unit_test(png_with_colours_palette_and_alpha_is_read),
        cmocka_unit_test(png_of_any_depth_and_interlaced_is_read),
        cmocka_unit_test(a_png_of_another_size_is_refused_before_it_is_decoded),
        cmocka_unit_test(a_palette_that_lacks_a_colour_is_refused),
        cmocka_unit_test(a_palette_with_transparent_colours_is_laid_on_white),
        cmocka_unit_test(transparent_pixels_are_laid_on_white),
        cmocka_unit_test(samples_of_16_bits_are_scaled_by_white),
        cmocka_unit_test(every_cut_and_every_flipped_bit_of_a_png_is_refused),
        cmocka_unit_test(a_chunk_that_no_pixel_needs_may_be_damaged),
        cmocka_unit_test(a_png_is_turned_as_its_exif_says),
#else
        cmocka_unit_test(a_program_without_libspng_says_so),
#endif
    };
    return cmocka_run_group_tests_name("image", tests, enter, leave);
}
