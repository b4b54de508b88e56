/* Images from files: what is in them, and everything that can be wrong with them. */
#include "data/image.h"
#include "data/png.h"
#include "data/scratch.h"
#include "runner.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#ifdef LOCKSTEP_WITH_JPEG
#include <jpeglib.h>
#endif

static scratch room;
typedef struct shape {
    int c, h, w;
} shape;
static const shape grey_2x3 = {1, 2, 3}, colour_2x3 = {3, 2, 3};
static const char *path = "image";
static ls_image_memory kept; /* from each test to the next */

static int enter(void **state)
{
    (void)state;
    scratch_begin(&room);
    return chdir(room.directory);
}

static int leave(void **state)
{
    (void)state;
    scratch_end(&room);
    ls_image_memory_free(&kept, NULL);
    return chdir("/");
}

static void write_file(const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static int read_bytes(uint8_t *out, const shape *s, const void *bytes, size_t count, ls_error *err)
{
    write_file(bytes, count);
    return ls_image_read(out, s->c, s->h, s->w, path, NULL, err);
}

#define READ(out, shape, literal, err) read_bytes(out, shape, literal, sizeof(literal) - 1, err)

/* ---- what is read --------------------------------------------------------------------------- */

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

/* ---- what is refused ------------------------------------------------------------------------ */

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

/* The same six pixels behind each filter: 10 20 40 / 15 30 60. */
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
    p = make_png(3, 2, 6, "\0Aax.Bby.Ccz.\0Ddu.Eev.Ffw.", 26, NULL);
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "ABCDEFabcdefxyzuvw", 18);
    p = make_png(3, 2, 3, "\0\0\1\1\0\1\1\0", 8, "AaxBby");
    assert_int_equal(read_bytes(out, &colour_2x3, p.bytes, p.count, &err), LS_OK);
    assert_memory_equal(out, "ABBBBAabbbbaxyyyyx", 18);
    p = make_png(3, 2, 4, "\0a.b.c.\0d.e.f.", 14, NULL);
    assert_int_equal(read_bytes(out, &grey_2x3, p.bytes, p.count, &err), LS_OK);
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

/* A header of 16384×16384 pixels behind which there are none: a gigabyte that is never asked for. */
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

/* Its own transparency is ignored. */
static void a_palette_with_transparent_colours_is_read(void **state)
{
    (void)state;
    uint8_t out[18];
    ls_error err;
    png_bytes p = make_png(3, 2, 3, "\0\0\1\1\0\1\1\0", 8, "AaxBby"), q = {.count = 0};
    const size_t before = 8 + 12 + 13 + 12 + 6; /* signature, header, palette */
    png_put(&q, p.bytes, before);
    png_put_chunk(&q, "tRNS", "\0\x80", 2);
    png_put(&q, p.bytes + before, p.count - before);
    assert_int_equal(read_bytes(out, &colour_2x3, q.bytes, q.count, &err), LS_OK);
    assert_memory_equal(out, "ABBBBAabbbbaxyyyyx", 18);
}

/* Whatever was changed in a PNG file, its checksums notice. */
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

/* A text, a profile, a time: what is not needed for the pixels. */
static void a_chunk_that_no_pixel_needs_may_be_damaged(void **state)
{
    (void)state;
    for (int form = 0; form < 8; form++) {
        uint8_t out[6];
        ls_error err = {0};
        const png_bytes p = make_png(3, 2, 0, "\0abc\0def", 8, NULL);
        const size_t at = form & 1 ? p.count - 12 : 8 + 25; /* behind the pixels, or before them */
        png_bytes q = {.count = 0};
        png_put(&q, p.bytes, at);
        png_put_chunk(&q, form & 2 ? "iCCP" : "tEXt", "Title\0words", 11);
        q.bytes[q.count - 1] ^= form & 4 ? 0 : 1; /* no profile begins so, whatever its checksum */
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

/* ---- of any size ------------------------------------------------------------------------------ */

static void an_image_is_cut_to_the_middle_and_shrunk_by_averages(void **state)
{
    (void)state;
    uint8_t out[4];
    ls_error err;
    /* 6 × 2, of which the middle 2 × 2 stays as it is. */
    const char wide[] = "P5 6 2 255\n"
                        "abPQcdefRSgh";
    write_file(wide, sizeof wide - 1);
    assert_int_equal(ls_image_fit(out, 1, 2, 2, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
    assert_memory_equal(out, "PQRS", 4);
    /* One pixel of 2 × 2: triangles weigh all four alike. */
    const char four[] = "P5 2 2 255\n\x10\x20\x30\x50";
    write_file(four, sizeof four - 1);
    assert_int_equal(ls_image_fit(out, 1, 1, 1, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
    assert_int_equal(out[0], (0x10 + 0x20 + 0x30 + 0x50) / 4);
    /* Grown to 4 × 4, corners stay. */
    uint8_t grown[48];
    assert_int_equal(ls_image_fit(grown, 3, 4, 4, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
    assert_int_equal(grown[0], 0x10);
    assert_int_equal(grown[3], 0x20);
    assert_int_equal(grown[15], 0x50);
    assert_memory_equal(grown, grown + 32, 16);
}

/* One side's weights, as documented: triangles as wide as what they shrink. */
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

static int draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (int)(*seed >> 8);
}

static void scaling_gives_the_bits_of_plain_sums(void **state)
{
    (void)state;
    static uint8_t pixel[90 * 90 * 4 + 1], out[3 * 40 * 40];
    ls_room memory = {NULL, 0};
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
        assert_true(ls_picture_scale(out, channels, h, w, &p, &memory, NULL));
        for (int i = 0; i < channels * h * w; i++) {
            const uint8_t want = plain_pixel(&p, channels, h, w, i / (h * w), i / w % h, i % w);
            if (out[i] != want)
                fail_msg("%d×%d×%d to %d×%d×%d, sample %d: %d, expected %d", p.channels, p.height,
                         p.width, channels, h, w, i, out[i], want);
        }
    }
    ls_room_free(&memory, NULL);
}

static void a_header_that_promises_too_much_is_refused_before_memory_is_asked_for(void **state)
{
    (void)state;
    uint8_t out[4];
    ls_error err;
    const char bomb[] = "P5 16000 16000 255\n";
    write_file(bomb, sizeof bomb - 1);
    assert_int_equal(ls_image_fit(out, 1, 2, 2, AT_FDCWD, path, &kept, NULL, &err), LS_EDATA);
    assert_non_null(
        strstr(err.text, "16000×16000 pixels; expected at most 16384 in a side and 67108864"));
}

#ifdef LOCKSTEP_WITH_JPEG
typedef uint8_t sample_at(int x, int y, int k);

static uint8_t edges(int x, int y, int k)
{
    return (uint8_t)((x < 8 ? 40 + 60 * k : 200 - 50 * k) + x / 16 * 7 + y / 8 * 11);
}

/* jpeg_write_scanlines of pixels, grey or colours, progressive or not. */
static size_t write_jpeg(unsigned char **bytes, sample_at *of, int width, int height, int colours,
                         int progressive)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned long count = 0;
    uint8_t line[3 * 200];
    JSAMPROW row = line;
    *bytes = NULL;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, bytes, &count);
    c.image_width = (unsigned)width;
    c.image_height = (unsigned)height;
    c.input_components = colours ? 3 : 1;
    c.in_color_space = colours ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 100, TRUE);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            for (int k = 0; k < c.input_components; k++)
                line[x * c.input_components + k] = of(x, y, k);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return count;
}

static size_t make_jpeg_of(unsigned char **bytes, int width, int height, int colours,
                           int progressive)
{
    return write_jpeg(bytes, edges, width, height, colours, progressive);
}

static size_t make_jpeg(unsigned char **bytes, int colours, int progressive)
{
    return make_jpeg_of(bytes, 16, 8, colours, progressive);
}

/* By how much a JPEG is decoded smaller: exactly to what is wanted, or to half as large again and more. */
static int shrinks_by(int w, int h, int wide, int high)
{
    for (int by = 8; by > 1; by /= 2) {
        const double across = (double)w / wide / by, down = (double)h / high / by;
        if ((across == 1 || across >= 1.5) && (down == 1 || down >= 1.5))
            return by;
    }
    return 1;
}

/* By libjpeg alone, at 1/by. */
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
    ls_room memory = {NULL, 0};
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
        assert_true(ls_picture_scale(want, channels, high, wide, &p, &memory, NULL));
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(out, channels, high, wide, AT_FDCWD, path, &kept, NULL, &err),
                         LS_OK);
        if (memcmp(out, want, (size_t)(channels * high * wide)) != 0)
            fail_msg("%d×%d to %d×%d, 1/%d", w, h, wide, high, by);
        seen[by]++;
        free(bytes);
    }
    for (int by = 1; by <= 8; by *= 2)
        assert_in_range(seen[by], 5, 200);
    ls_room_free(&memory, NULL);
}

static uint8_t slope(int x, int y, int k)
{
    (void)k;
    return (uint8_t)(x + y / 4);
}

/* A slope stays where it is, whatever is left of the last block: half a pixel beside it would be 4 of 255. */
static void what_is_decoded_smaller_stays_in_its_place(void **state)
{
    (void)state;
    for (int side = 150; side < 200; side++) {
        uint8_t out[64];
        unsigned char *bytes;
        ls_error err = {0};
        const size_t count = write_jpeg(&bytes, slope, side, side, 0, 0);
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(out, 1, 8, 8, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
        for (int i = 8; i < 56; i++) {
            const double x = side * (i % 8 + 0.5) / 8 - 0.5, y = side * (i / 8 + 0.5) / 8 - 0.5;
            if (i % 8 > 0 && i % 8 < 7 && fabs(out[i] - (x + y / 4)) > 1.5)
                fail_msg("side %d, pixel %d: %d, expected %.1f", side, i, out[i], x + y / 4);
        }
        free(bytes);
    }
}

/* Also below what is cut out of it. */
static void every_cut_of_a_jpeg_that_is_scaled_is_refused(void **state)
{
    (void)state;
    unsigned char *bytes;
    const size_t count = make_jpeg_of(&bytes, 20, 90, 1, 0);
    for (size_t cut = count / 2; cut < count - 2; cut += 3) {
        uint8_t out[3 * 16];
        ls_error err = {0};
        write_file(bytes, cut);
        assert_int_equal(ls_image_fit(out, 3, 4, 4, AT_FDCWD, path, &kept, NULL, &err), LS_EDATA);
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

/* The segment FF `marker` taken out. */
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

/* 200 images, so that the decoder is made anew on the way. */
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
        const int status = ls_image_fit(alone, 3, 8, 16, AT_FDCWD, path, &none, NULL, &err);
        assert_int_equal(ls_image_fit(after, 3, 8, 16, AT_FDCWD, path, &kept, NULL, &err), status);
        if (i % 3 == 1)
            assert_int_equal(status, LS_EDATA);
        if (status == LS_OK)
            assert_memory_equal(alone, after, sizeof alone);
        ls_image_memory_free(&none, NULL);
        free(bytes);
    }
}

/* The one table of a grey image, 16 bits an element and the same in all. */
static size_t with_quantiser(unsigned char *bytes, size_t count, int value)
{
    size_t i = 2;
    while (bytes[i + 1] != 0xDB)
        i += 2 + (size_t)bytes[i + 2] * 256 + bytes[i + 3];
    assert_int_equal(bytes[i + 3], 67);
    memmove(bytes + i + 133, bytes + i + 69, count - i - 69);
    bytes[i + 3] = 131;
    bytes[i + 4] = 0x10; /* table 0 */
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
        const int status = ls_image_fit(out, 1, 8, 16, AT_FDCWD, path, &kept, NULL, &err);
        if (status != (values[i] ? LS_OK : LS_EDATA))
            fail_msg("quantiser %d: %d, %s", values[i], status, err.text);
        free(bytes);
    }
}

/* 65000 × 65000 in a few hundred bytes. */
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
    assert_int_equal(ls_image_fit(out, 1, 2, 2, AT_FDCWD, path, &kept, NULL, &err), LS_EDATA);
    assert_string_equal(err.text, "image: 65000×65000 pixels; expected at most 65500 in a side and "
                                  "1073741824 in all; scale it down");
    free(bytes);
}

/* `more` behind the first two bytes, the mark of the beginning. */
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

/* EXIF that says how the camera was held, in either order of bytes. */
#define EXIF(n)                                                                                    \
    "\xFF\xE1\0\x22"                                                                               \
    "Exif\0\0"                                                                                     \
    "II*\0\x08\0\0\0\x01\0\x12\1\3\0\1\0\0\0" n "\0\0\0\0\0\0\0"
#define EXIF_BIG(n)                                                                                \
    "\xFF\xE1\0\x22"                                                                               \
    "Exif\0\0"                                                                                     \
    "MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0" n "\0\0\0\0\0\0"

/* Quarters of an image: each of its own brightness. */
static uint8_t quarters(int x, int y, int k)
{
    (void)k;
    return (uint8_t)((x < 32 ? 40 : 100) + (y < 16 ? 0 : 120));
}

/* What is at the corners, from the left above to the right below. */
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

/* 64 × 32 pixels, a b above c d. */
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
            assert_int_equal(
                ls_image_fit(out, 1, whole.h / 4, whole.w / 4, AT_FDCWD, path, &kept, NULL, &err),
                LS_OK);
            check_corners(out, whole.h / 4, whole.w / 4, corners[n]);
            assert_int_equal(kept.turned, n > 1);
            free(bytes);
        }
}

/* Whatever is said of it, the image is read. */
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
        assert_int_equal(ls_image_fit(out, 1, 8, 8, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
        assert_int_equal(kept.turned, cut >= 20);
        free(bytes);
    }
}

static uint8_t inks(int x, int y, int k)
{
    (void)y;
    return (uint8_t)(k == 3 ? 200 : x < 32 ? 255 - 80 * k : 40 * k);
}

/* What is left of the light, of each ink and of black: with Adobe's mark and without. */
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
        if (ls_image_fit(out, 3, 8, 8, AT_FDCWD, path, &kept, NULL, &err) != LS_OK)
            fail_msg("%s", err.text);
        for (int k = 0; k < 3; k++) {
            const int left = inks(0, 0, k) * 200 / 255, right = inks(63, 0, k) * 200 / 255;
            assert_in_range(out[64 * k] + 6, left, left + 12);
            assert_in_range(out[64 * k + 7] + 6, right, right + 12);
        }
        free(bytes);
    }
}

/* The place of the segment FF `marker`. */
static size_t find(const unsigned char *bytes, int marker)
{
    size_t i = 2;
    while (bytes[i + 1] != marker)
        i += 2 + (size_t)bytes[i + 2] * 256 + bytes[i + 3];
    return i;
}

/* Whole images whose last bytes are missing, or whose header of the scan says what it need not. */
static void warnings_that_leave_every_pixel_are_no_damage(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        unsigned char *bytes;
        uint8_t out[64], want[64];
        ls_error err = {0};
        const size_t count = make_jpeg(&bytes, 0, form == 2);
        write_file(bytes, count);
        assert_int_equal(ls_image_fit(want, 1, 8, 8, AT_FDCWD, path, &kept, NULL, &err), LS_OK);
        if (form == 0)
            bytes[find(bytes, 0xDA) + 8] = 0; /* the last coefficient, 63 */
        write_file(bytes, form == 0 ? count : count - 2);
        const int status = ls_image_fit(out, 1, 8, 8, AT_FDCWD, path, &kept, NULL, &err);
        assert_int_equal(status, form == 2 ? LS_EDATA : LS_OK); /* more scans could be missing */
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
        assert_int_equal(ls_image_fit(out, 1, 8, 8, AT_FDCWD, path, &kept, NULL, &err),
                         LS_EUNSUPPORTED);
        assert_non_null(strstr(err.text, "it need not be damaged: convert it to PNG"));
        assert_non_null(strstr(err.text, kinds[k].says));
        free(bytes);
    }
}

/* Wider than any image that is decoded whole: no line of it is longer than a half of it. */
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
    if (ls_image_fit(out, 1, 4, 4, AT_FDCWD, path, &kept, NULL, &err) != LS_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 16; i++)
        assert_in_range(out[i], 0x3e, 0x42);
    free(bytes);
}
#endif

/* ---- other kinds ------------------------------------------------------------------------------ */

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

/* A header of 40 bytes, then what there is of a palette, masks and rows. */
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
            file[46] = 6; /* colours of the palette */
        if (read_bytes(out, &colour_2x3, file, count, &err) != LS_OK)
            fail_msg("%zu: %s", i, err.text);
        /* the palette's first three are the row below */
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

#ifdef LOCKSTEP_WITH_WEBP
/* 3 × 2 pixels without a loss, by libwebp: red, green, blue above black, grey, white. */
static const uint8_t six_pixels[] = {
    0x52, 0x49, 0x46, 0x46, 0x3a, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50,
    0x38, 0x4c, 0x2d, 0x00, 0x00, 0x00, 0x2f, 0x02, 0x40, 0x00, 0x00, 0x2f, 0x20, 0x10,
    0x20, 0x48, 0x57, 0x6e, 0x43, 0x40, 0x50, 0x74, 0xdd, 0x72, 0x02, 0x01, 0x82, 0x74,
    0xe5, 0xe6, 0x3f, 0x40, 0x6c, 0x72, 0x6c, 0x15, 0x28, 0x64, 0x1b, 0x01, 0x4e, 0xed,
    0x1e, 0x93, 0x13, 0xba, 0x88, 0xfe, 0xc7, 0xf4, 0x02, 0x00};
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

LS_TESTS(data_image, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_is_cut_to_the_middle_and_shrunk_by_averages),
        cmocka_unit_test(scaling_gives_the_bits_of_plain_sums),
        cmocka_unit_test(a_header_that_promises_too_much_is_refused_before_memory_is_asked_for),
#ifdef LOCKSTEP_WITH_JPEG
        cmocka_unit_test(jpeg_is_read_grey_and_in_colours_baseline_and_progressive),
        cmocka_unit_test(every_cut_of_a_jpeg_is_refused),
        cmocka_unit_test(every_cut_of_a_jpeg_that_is_scaled_is_refused),
        cmocka_unit_test(a_jpeg_is_decoded_smaller_and_scaled_line_by_line),
        cmocka_unit_test(what_is_decoded_smaller_stays_in_its_place),
        cmocka_unit_test(any_quantiser_but_zeros_is_one),
        cmocka_unit_test(tables_of_one_jpeg_are_not_those_of_the_next),
        cmocka_unit_test(a_jpeg_that_promises_too_much_is_refused),
        cmocka_unit_test(a_jpeg_is_turned_as_its_camera_was_held),
        cmocka_unit_test(exif_that_is_cut_or_lies_says_nothing),
        cmocka_unit_test(the_four_colours_of_print_become_three),
        cmocka_unit_test(warnings_that_leave_every_pixel_are_no_damage),
        cmocka_unit_test(what_libjpeg_does_not_read_is_not_called_damaged),
        cmocka_unit_test(a_very_large_jpeg_is_decoded_at_its_reduced_size),
#endif
        cmocka_unit_test(other_kinds_of_images_are_named),
        cmocka_unit_test(bmp_of_each_depth_is_read),
        cmocka_unit_test(webp_is_read_where_libwebp_is),
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
        cmocka_unit_test(a_palette_with_transparent_colours_is_read),
        cmocka_unit_test(every_cut_and_every_flipped_bit_of_a_png_is_refused),
        cmocka_unit_test(a_chunk_that_no_pixel_needs_may_be_damaged),
        cmocka_unit_test(a_png_is_turned_as_its_exif_says),
#else
        cmocka_unit_test(a_program_without_libspng_says_so),
#endif
    };
    return cmocka_run_group_tests_name("image", tests, enter, leave);
}
