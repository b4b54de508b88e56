/* PGM and PPM as the netpbm project's pgm(5) and ppm(5) describe them; PNG by libspng; JPEG by libjpeg. */
#include "data/image.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"

#include <stdbool.h>
#include <string.h>

#define MOST_BYTES ((size_t)256 << 20)
#define MOST_PIXELS 16384   /* in one direction */
#define MOST_AREA (1 << 26) /* in all: a small file may say anything */

typedef struct image {
    const char *path;
    const uint8_t *bytes; /* the file */
    size_t length, at;
    int width, height, channels; /* 1: grey; 3 or 4: red, green, blue, alpha */
    int largest;                 /* PNM: the value of white */
    void *decoder;               /* PNG's */
    bool is_png, is_jpeg;
    bool cut_off;   /* it wanted more bytes than there are */
    uint8_t *pixel; /* [height][width][channels] */
    const ls_host *host;
    ls_error *err;
} image;

/* ---- PNM ------------------------------------------------------------------------------------ */

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A number behind white space and comments. */
static int read_number(image *i, int most, const char *what, int *out)
{
    int value = 0, digits = 0;
    while (i->at < i->length && (is_space(i->bytes[i->at]) || i->bytes[i->at] == '#')) {
        if (i->bytes[i->at] == '#')
            while (i->at < i->length && i->bytes[i->at] != '\n')
                i->at++;
        else
            i->at++;
    }
    const size_t begin = i->at;
    for (; i->at < i->length && i->bytes[i->at] >= '0' && i->bytes[i->at] <= '9' && value <= most;
         i->at++, digits++)
        value = 10 * value + (i->bytes[i->at] - '0');
    *out = value;
    if (digits == 0 || value < 1 || value > most)
        return ls_fail(i->err, LS_EDATA, "%.300s: offset %zu: expected the %s, 1 to %d", i->path,
                       begin, what, most);
    return LS_OK;
}

static int read_pnm_header(image *i)
{
    i->channels = i->bytes[1] == '6' ? 3 : 1;
    i->at = 2;
    int status = read_number(i, MOST_PIXELS, "width", &i->width);
    if (status == LS_OK)
        status = read_number(i, MOST_PIXELS, "height", &i->height);
    if (status == LS_OK)
        status = read_number(i, 255, "largest value", &i->largest);
    i->at++; /* one white space */
    return status;
}

static int read_pnm_pixels(image *i, size_t count)
{
    const size_t left = i->at > i->length ? 0 : i->length - i->at;
    const unsigned largest = (unsigned)i->largest;
    if (left < count)
        return ls_fail(i->err, LS_EDATA,
                       "%.300s: offset %zu: expected %zu bytes of pixels, found %zu; the file is "
                       "cut off",
                       i->path, i->at, count, left);
    for (size_t k = 0; k < count; k++) {
        const uint8_t byte = i->bytes[i->at + k];
        const unsigned v = byte < largest ? byte : largest;
        i->pixel[k] = (uint8_t)((v * 255u + largest / 2) / largest);
    }
    return LS_OK;
}

/* ---- PNG ------------------------------------------------------------------------------------ */

#ifdef LOCKSTEP_WITH_PNG
#include <spng.h>

#define MOST_CHUNK ((size_t)64 << 20) /* beside the pixels: texts, profiles */

static int give_bytes(spng_ctx *decoder, void *user, void *out, size_t count)
{
    image *i = user;
    (void)decoder;
    i->cut_off |= count > i->length - i->at;
    if (i->cut_off)
        return SPNG_IO_EOF;
    memcpy(out, i->bytes + i->at, count);
    i->at += count;
    return 0;
}

static int check_png(const image *i, int result)
{
    if (result == SPNG_OK)
        return LS_OK;
    if (result == SPNG_EMEM || !i->decoder)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for it", i->path);
    return ls_fail(i->err, LS_EDATA,
                   "%.300s: before offset %zu: expected a sound PNG file, found: %s; it is damaged",
                   i->path, i->at, spng_strerror(result));
}

static int read_png_header(image *i)
{
    struct spng_ihdr header;
    int result = SPNG_EMEM;
    i->decoder = spng_ctx_new(0);
    if (i->decoder)
        result = spng_set_crc_action(i->decoder, SPNG_CRC_ERROR, SPNG_CRC_ERROR);
    if (result == SPNG_OK)
        result = spng_set_chunk_limits(i->decoder, MOST_CHUNK, MOST_CHUNK);
    if (result == SPNG_OK)
        result = spng_set_png_stream(i->decoder, give_bytes, i);
    if (result == SPNG_OK)
        result = spng_get_ihdr(i->decoder, &header);
    if (result == SPNG_OK && (header.width > MOST_PIXELS || header.height > MOST_PIXELS))
        result = SPNG_EUSER_WIDTH;
    if (result == SPNG_OK) {
        i->width = (int)header.width;
        i->height = (int)header.height;
        i->channels = header.color_type == SPNG_COLOR_TYPE_INDEXED ? 4 : 3;
    }
    return check_png(i, result);
}

/* libspng takes a colour that the palette lacks for black: so those that it has get a mark, an alpha of 1. */
static int mark_palette(const image *i)
{
    struct spng_plte palette;
    struct spng_trns marks = {0};
    int result = spng_get_plte(i->decoder, &palette);
    if (result != SPNG_OK)
        return result;
    marks.n_type3_entries = palette.n_entries;
    memset(marks.type3_alpha, 1, sizeof marks.type3_alpha);
    return spng_set_trns(i->decoder, &marks);
}

static int check_marks(const image *i, size_t count)
{
    for (size_t k = 3; i->channels == 4 && k < count; k += 4)
        if (i->pixel[k] != 1)
            return ls_fail(
                i->err, LS_EDATA,
                "%.300s: before offset %zu: pixel %zu: expected a colour of the palette; the PNG file is "
                "damaged",
                i->path, i->at, k / 4);
    return LS_OK;
}

/* Grey becomes three equal samples, and those grey again without a loss. An end that is cut off is libspng's
 * success. */
static int read_png_pixels(image *i, size_t count)
{
    const int marked = i->channels == 4;
    int result = marked ? mark_palette(i) : SPNG_OK;
    if (result == SPNG_OK)
        result =
            spng_decode_image(i->decoder, i->pixel, count, marked ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8,
                              marked ? SPNG_DECODE_TRNS : 0);
    if (result == SPNG_OK)
        result = spng_decode_chunks(i->decoder);
    if (result == SPNG_OK && i->cut_off)
        result = SPNG_IO_EOF;
    int status = check_png(i, result);
    return status ? status : check_marks(i, count);
}

static void close_png(const image *i)
{
    spng_ctx_free(i->decoder);
}

#else

static int read_png_header(image *i)
{
    return ls_fail(
        i->err, LS_EUNSUPPORTED,
        "%.300s: this program was built without libspng and reads no PNG; install Debian's "
        "libspng-dev and build it again, or convert the image: convert IN OUT.ppm",
        i->path);
}

static int read_png_pixels(image *i, size_t count)
{
    (void)i;
    (void)count;
    return LS_EUNSUPPORTED;
}

static void close_png(const image *i)
{
    (void)i;
}
#endif

/* ---- JPEG ----------------------------------------------------------------------------------- */

#ifdef LOCKSTEP_WITH_JPEG
#include <setjmp.h>
#include <stdio.h>
/* libjpeg's headers need stdio.h before them. */
#include <jpeglib.h>

#include <jerror.h>

enum { MOST_SCANS = 100 /* a progressive image of a thousand scans is meant to keep one busy */ };

typedef struct jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    bool scans; /* too many */
} jpeg;

static void fail_jpeg(j_common_ptr d)
{
    longjmp(((jpeg *)d->client_data)->failed, 1);
}

/* A warning is damage, but for bytes between markers, which many a camera leaves. */
static void warn_jpeg(j_common_ptr d, int level)
{
    const int code = d->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR &&
        code != JWRN_ADOBE_XFORM)
        fail_jpeg(d);
}

static void watch_scans(j_common_ptr d)
{
    jpeg *j = d->client_data;
    j->scans = j->d.input_scan_number > MOST_SCANS;
    if (j->scans)
        fail_jpeg(d);
}

static int fail_decoding(const image *i, jpeg *j)
{
    char why[JMSG_LENGTH_MAX];
    if (j->d.err->msg_code == JERR_OUT_OF_MEMORY)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for it", i->path);
    j->errors.format_message((j_common_ptr)&j->d, why);
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: before offset %zu: expected a sound JPEG file, found: %.150s; it is damaged",
        i->path, j->d.src ? i->length - j->d.src->bytes_in_buffer : 0,
        j->scans ? "more than 100 scans" : why);
}

static int read_jpeg_header(image *i)
{
    jpeg *j = ls_alloc(i->host, sizeof *j);
    if (!j)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for it", i->path);
    i->decoder = j;
    j->d.err = jpeg_std_error(&j->errors);
    j->d.client_data = j;
    j->errors.error_exit = fail_jpeg;
    j->errors.emit_message = warn_jpeg;
    j->progress.progress_monitor = watch_scans;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    jpeg_create_decompress(&j->d);
    j->d.client_data = j;
    j->d.progress = &j->progress;
    jpeg_mem_src(&j->d, i->bytes, i->length);
    jpeg_read_header(&j->d, TRUE);
    i->width = j->d.image_width > MOST_PIXELS ? MOST_PIXELS + 1 : (int)j->d.image_width;
    i->height = j->d.image_height > MOST_PIXELS ? MOST_PIXELS + 1 : (int)j->d.image_height;
    i->channels = j->d.num_components == 1 ? 1 : 3;
    j->d.out_color_space = i->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    return LS_OK;
}

static int read_jpeg_pixels(image *i)
{
    jpeg *j = i->decoder;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    jpeg_start_decompress(&j->d);
    while (j->d.output_scanline < j->d.output_height) {
        JSAMPROW line =
            i->pixel + (size_t)j->d.output_scanline * (size_t)i->width * (size_t)i->channels;
        jpeg_read_scanlines(&j->d, &line, 1);
    }
    jpeg_finish_decompress(&j->d);
    return LS_OK;
}

static void close_jpeg(const image *i)
{
    jpeg *j = i->decoder;
    if (j)
        jpeg_destroy_decompress(&j->d);
    ls_free(i->host, j);
}

#else

static int read_jpeg_header(image *i)
{
    return ls_fail(
        i->err, LS_EUNSUPPORTED,
        "%.300s: this program was built without libjpeg and reads no JPEG; install Debian's "
        "libjpeg62-turbo-dev and build it again, or convert the image: convert IN OUT.ppm",
        i->path);
}

static int read_jpeg_pixels(image *i)
{
    (void)i;
    return LS_EUNSUPPORTED;
}

static void close_jpeg(const image *i)
{
    (void)i;
}
#endif

/* ---- each --------------------------------------------------------------------------------- */

static int check_size(const image *i, int height, int width)
{
    if (i->height == height && i->width == width)
        return LS_OK;
    return ls_fail(i->err, LS_EDATA,
                   "%.300s: %d×%d pixels, but the model reads %d×%d; with ImageMagick: "
                   "convert IN -resize '%dx%d!' OUT.png",
                   i->path, i->width, i->height, width, height, width, height);
}

static int check_area(const image *i)
{
    if (i->width <= MOST_PIXELS && i->height <= MOST_PIXELS &&
        (int64_t)i->width * i->height <= MOST_AREA)
        return LS_OK;
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: %d×%d pixels; expected at most %d in a side and %d in all; scale it down", i->path,
        i->width, i->height, MOST_PIXELS, MOST_AREA);
}

static int read_header(image *i)
{
    const int pnm = i->length >= 2 && i->bytes[0] == 'P' && strchr("56", i->bytes[1]);
    i->is_png = i->length >= 4 && memcmp(i->bytes, "\x89PNG", 4) == 0;
    i->is_jpeg = i->length >= 3 && memcmp(i->bytes, "\xFF\xD8\xFF", 3) == 0;
    if (i->is_png)
        return read_png_header(i);
    if (i->is_jpeg)
        return read_jpeg_header(i);
    return pnm ? read_pnm_header(i)
               : ls_fail(
                     i->err, LS_EDATA,
                     "%.300s: offset 0: expected a PNG, JPEG, PGM (P5) or PPM (P6) image; convert "
                     "it, with ImageMagick: convert IN OUT.png",
                     i->path);
}

/* `height` 0: of any size. */
static int decode(image *i, int height, int width)
{
    int status = read_header(i);
    if (status == LS_OK)
        status = height ? check_size(i, height, width) : check_area(i);
    if (status)
        return status;
    const size_t count = (size_t)i->height * (size_t)i->width * (size_t)i->channels;
    i->pixel = ls_alloc(i->host, count);
    if (!i->pixel)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for its pixels", i->path);
    return i->is_png    ? read_png_pixels(i, count)
           : i->is_jpeg ? read_jpeg_pixels(i)
                        : read_pnm_pixels(i, count);
}

static uint8_t grey(const uint8_t *rgb)
{
    return (uint8_t)((299u * rgb[0] + 587u * rgb[1] + 114u * rgb[2] + 500u) / 1000u);
}

static void convert(uint8_t *pixels, int channels, const image *i)
{
    const size_t count = (size_t)i->width * (size_t)i->height;
    for (size_t k = 0; k < count; k++) {
        const uint8_t *p = i->pixel + k * (size_t)i->channels;
        for (int c = 0; c < channels; c++)
            pixels[(size_t)c * count + k] = i->channels == 1 ? p[0]
                                            : channels == 1  ? grey(p)
                                                             : p[c];
    }
}

/* Sample `c` of the pixel at `at`, as the reader wants it. */
static float sample(const image *i, size_t at, int c, int channels)
{
    const uint8_t *p = i->pixel + at * (size_t)i->channels;
    return i->channels == 1 ? p[0] : channels == 1 ? grey(p) : p[c];
}

/* What output pixel `o` is made of along one side: pixels from *first on, their weights add up to 1. */
static int weigh(float *weight, int *first, int o, double from, double step, int size)
{
    const double reach = step > 1 ? step : 1, middle = from + (o + 0.5) * step;
    double sum = 0;
    int n = 0;
    *first = (int)(middle - reach > 0 ? middle - reach : 0);
    for (int k = *first; k < size && k < middle + reach; k++, n++) {
        const double far = (k + 0.5 - middle) / reach, w = 1 - (far < 0 ? -far : far);
        weight[n] = (float)(w > 0 ? w : 0);
        sum += (double)weight[n];
    }
    for (int k = 0; k < n; k++)
        weight[k] /= (float)sum;
    return n;
}

/* One side after the other: to `width` columns of all lines that are needed, then to `height` lines. */
static int shrink(uint8_t *pixels, int channels, int height, int width, const image *i)
{
    const double down = (double)i->height / height, across = (double)i->width / width;
    const double step = down < across ? down : across;
    const double top = (i->height - step * height) / 2, left = (i->width - step * width) / 2;
    const size_t longest = (size_t)(i->height > i->width ? i->height : i->width);
    float *line = ls_alloc_array(i->host, (size_t)i->height * (size_t)width, sizeof *line);
    float *weight = ls_alloc_array(i->host, longest + 2, sizeof *weight);
    int status =
        line && weight ? LS_OK : ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory", i->path);
    for (int c = 0; status == LS_OK && c < channels; c++) {
        for (int x = 0, first; x < width; x++) {
            const int n = weigh(weight, &first, x, left, step, i->width);
            for (int y = 0; y < i->height; y++) {
                float sum = 0;
                for (int k = 0; k < n; k++)
                    sum += weight[k] * sample(i, (size_t)y * (size_t)i->width + (size_t)(first + k),
                                              c, channels);
                line[(size_t)y * (size_t)width + (size_t)x] = sum;
            }
        }
        for (int y = 0, first; y < height; y++) {
            const int n = weigh(weight, &first, y, top, step, i->height);
            for (int x = 0; x < width; x++) {
                float sum = 0.5f;
                for (int k = 0; k < n; k++)
                    sum += weight[k] * line[(size_t)(first + k) * (size_t)width + (size_t)x];
                *pixels++ = (uint8_t)(sum < 255 ? sum : 255);
            }
        }
    }
    ls_free(i->host, weight);
    ls_free(i->host, line);
    return status;
}

static void close_image(image *i, void *bytes)
{
    if (i->is_png)
        close_png(i);
    if (i->is_jpeg)
        close_jpeg(i);
    ls_free(i->host, i->pixel);
    ls_free(i->host, bytes);
}

int ls_image_fit(uint8_t *pixels, int channels, int height, int width, const char *path,
                 const ls_host *host, ls_error *err)
{
    image i = {.path = path, .host = host, .err = err};
    void *bytes;
    int status =
        ls_read_plain_file(&bytes, &i.length, path, "an image", LS_EDATA, MOST_BYTES, host, err);
    if (status)
        return status;
    i.bytes = bytes;
    status = decode(&i, 0, 0);
    if (status == LS_OK && i.height == height && i.width == width)
        convert(pixels, channels, &i);
    else if (status == LS_OK)
        status = shrink(pixels, channels, height, width, &i);
    close_image(&i, bytes);
    return status;
}

int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err)
{
    image i = {.path = path, .host = host, .err = err};
    void *bytes;
    if (channels != 1 && channels != 3)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: the model reads images of %d channels; files have 1 or 3", path,
                       channels);
    int status =
        ls_read_plain_file(&bytes, &i.length, path, "an image", LS_EDATA, MOST_BYTES, host, err);
    if (status)
        return status;
    i.bytes = bytes;
    status = decode(&i, height, width);
    if (status == LS_OK)
        convert(pixels, channels, &i);
    close_image(&i, bytes);
    return status;
}
