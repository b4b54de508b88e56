/* PGM and PPM as the netpbm project's pgm(5) and ppm(5) describe them; PNG by libspng; JPEG by libjpeg. */
#include "data/image.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#define MOST_BYTES ((size_t)256 << 20)
#define MOST_PIXELS 16384   /* in one direction */
#define MOST_AREA (1 << 26) /* in all: a small file may say anything */
#define MOST_KEPT ((size_t)32 << 20)

typedef struct image image;

/* What a kind of files is read by. Pixels are asked of files alone whose header could be
 * read; all are closed. */
typedef struct format {
    const char *magic; /* a file's first bytes */
    int (*read_header)(image *i);
    int (*read_pixels)(image *i, size_t count);
    /* NULL: it has none. What is decoded may be smaller than the file says, and be scaled while it is decoded. */
    void (*shrink)(image *i, int height, int width);
    int (*scale)(image *i, uint8_t *out, int channels, int height, int width);
    void (*close)(const image *i, int status);
} format;

struct image {
    int folder; /* of path; or AT_FDCWD */
    const char *path;
    const uint8_t *bytes; /* the file */
    size_t length, at;
    int width, height, channels; /* as a picture's */
    double across, down;         /* the same */
    int largest;                 /* PNM: the value of white */
    const format *format;        /* NULL: not known as yet, or none */
    void *decoder;               /* PNG's, or JPEG's */
    bool cut_off;                /* it wanted more bytes than there are */
    uint8_t *pixel;
    ls_image_memory *kept;
    const ls_host *host;
    ls_error *err;
};

static int fail_memory(const image *i)
{
    return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for its pixels", i->path);
}

/* At an odd address: libjpeg-turbo writes around the caches where one is even enough, and scaling reads it next. */
static int take_pixels(image *i, size_t bytes)
{
    uint8_t *memory = ls_room_of(&i->kept->pixels, bytes + 2, i->host);
    i->pixel = memory ? memory + 1 : NULL;
    return memory ? LS_OK : fail_memory(i);
}

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

static const format pgm = {"P5", read_pnm_header, read_pnm_pixels, NULL, NULL, NULL};
static const format ppm = {"P6", read_pnm_header, read_pnm_pixels, NULL, NULL, NULL};

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

static void close_png(const image *i, int status)
{
    (void)status;
    spng_ctx_free(i->decoder);
}

static const format png = {"\x89PNG", read_png_header, read_png_pixels, NULL, NULL, close_png};

#else

static int read_png_header(image *i)
{
    return ls_fail(i->err, LS_EUNSUPPORTED,
                   "%.300s: Lockstep was built without libspng and reads no PNG; install Debian's "
                   "libspng-dev and build it again, or convert the image: convert IN OUT.ppm",
                   i->path);
}

static const format png = {.magic = "\x89PNG", .read_header = read_png_header};
#endif

/* ---- JPEG ----------------------------------------------------------------------------------- */

#ifdef LOCKSTEP_WITH_JPEG
#include <setjmp.h>
#include <stdio.h>
/* libjpeg's headers need stdio.h before them. */
#include <jpeglib.h>

#include <jerror.h>

enum {
    MOST_SCANS = 100, /* a progressive image of a thousand scans is meant to keep one busy */
    MOST_TABLES = 64  /* that one decoder has made, and keeps until its end */
};

typedef struct jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    bool scans; /* too many */
    bool is_there;
    int tables; /* that it has made */
    JQUANT_TBL *quantiser[NUM_QUANT_TBLS];
    JHUFF_TBL *huffman[2][NUM_HUFF_TBLS];
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

/* Tables of the image before are none of this one's, which may have forgotten to bring its own. They are marked,
 * and those that still have the mark behind the header are taken away until the next image. A quantiser of zeros is
 * none (T.81 B.2.4.1: 1 and more), so that it is a mark, too. */
static bool has_mark(const JQUANT_TBL *t)
{
    static const UINT16 zeros[DCTSIZE2];
    return memcmp(t->quantval, zeros, sizeof zeros) == 0;
}

static void mark_tables(jpeg *j)
{
    for (int t = 0; t < NUM_QUANT_TBLS; t++) {
        JQUANT_TBL **now = &j->d.quant_tbl_ptrs[t], **own = &j->quantiser[t];
        j->tables += *now && *now != *own;
        *now = *own = *now ? *now : *own;
        if (*own)
            memset((*own)->quantval, 0, sizeof(*own)->quantval);
    }
    for (int t = 0; t < 2 * NUM_HUFF_TBLS; t++) {
        JHUFF_TBL **all = t % 2 ? j->d.ac_huff_tbl_ptrs : j->d.dc_huff_tbl_ptrs;
        JHUFF_TBL **now = &all[t / 2], **own = &j->huffman[t % 2][t / 2];
        j->tables += *now && *now != *own;
        *now = *own = *now ? *now : *own;
        if (*own)
            (*own)->bits[0] = 1; /* nothing reads it, and a table that is read sets it to 0 */
    }
}

static void forget_marked(jpeg *j)
{
    for (int t = 0; t < NUM_QUANT_TBLS; t++)
        if (j->d.quant_tbl_ptrs[t] && has_mark(j->d.quant_tbl_ptrs[t]))
            j->d.quant_tbl_ptrs[t] = NULL;
    for (int t = 0; t < 2 * NUM_HUFF_TBLS; t++) {
        JHUFF_TBL **all = t % 2 ? j->d.ac_huff_tbl_ptrs : j->d.dc_huff_tbl_ptrs;
        if (all[t / 2] && all[t / 2]->bits[0])
            all[t / 2] = NULL;
    }
}

static void drop_decoder(jpeg *j)
{
    if (j->is_there)
        jpeg_destroy_decompress(&j->d);
    memset(j->quantiser, 0, sizeof j->quantiser);
    memset(j->huffman, 0, sizeof j->huffman);
    j->is_there = false;
    j->tables = 0;
}

static void ready_decoder(jpeg *j)
{
    j->scans = false;
    if (j->tables > MOST_TABLES)
        drop_decoder(j);
    if (j->is_there) {
        mark_tables(j);
        return;
    }
    j->is_there = true;
    jpeg_create_decompress(&j->d);
    j->d.client_data = j;
    j->d.progress = &j->progress;
}

static int read_jpeg_header(image *i)
{
    jpeg *j = ls_room_of(&i->kept->jpeg, sizeof *j, i->host);
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
    ready_decoder(j);
    jpeg_mem_src(&j->d, i->bytes, i->length);
    jpeg_read_header(&j->d, TRUE);
    forget_marked(j);
    i->width = j->d.image_width > MOST_PIXELS ? MOST_PIXELS + 1 : (int)j->d.image_width;
    i->height = j->d.image_height > MOST_PIXELS ? MOST_PIXELS + 1 : (int)j->d.image_height;
    i->channels = j->d.num_components == 1 ? 1 : 3;
    if (j->d.num_components > 3)
        return ls_fail(
            i->err, LS_EDATA,
            "%.300s: expected a JPEG file of grey or of three colours, found the four of "
            "print (CMYK); convert it, with ImageMagick: convert IN -colorspace sRGB "
            "OUT.png",
            i->path);
    j->d.out_color_space = i->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    return LS_OK;
}

static bool suffices(int size, int by, int wanted)
{
    return size == by * wanted || 2 * size >= 3 * by * wanted;
}

/* Decoded at a half, a quarter or an eighth, where that is the size that is wanted, or half as large again. */
static void shrink_jpeg(image *i, int height, int width)
{
    jpeg *j = i->decoder;
    int by = 1;
    while (by < 8 && suffices(i->height, 2 * by, height) && suffices(i->width, 2 * by, width))
        by *= 2;
    j->d.scale_num = 1; /* the IJG's library says 8 of 8 */
    j->d.scale_denom = (unsigned)by;
    i->down = (double)i->height / by;
    i->across = (double)i->width / by;
    i->height = (i->height + by - 1) / by;
    i->width = (i->width + by - 1) / by;
}

/* Memory is laid out for the size that was worked out: another library's decoder may have its own idea. */
static void begin_jpeg(const image *i, jpeg *j)
{
    jpeg_start_decompress(&j->d);
    if (j->d.output_width != (unsigned)i->width || j->d.output_height != (unsigned)i->height ||
        j->d.output_components != i->channels)
        ERREXIT1(&j->d, JERR_BAD_DCTSIZE, (int)j->d.scale_denom);
}

static void read_line(jpeg *j, uint8_t *to)
{
    JSAMPROW row = to;
    jpeg_read_scanlines(&j->d, &row, 1);
}

static int read_jpeg_pixels(image *i, size_t count)
{
    jpeg *j = i->decoder;
    (void)count;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    begin_jpeg(i, j);
    for (int y = 0; y < i->height; y++)
        read_line(j, i->pixel + (size_t)y * (size_t)i->width * (size_t)i->channels);
    jpeg_finish_decompress(&j->d);
    return LS_OK;
}

static size_t line_room(const image *i)
{
    return ((size_t)i->width * (size_t)i->channels + 63) / 64 * 64;
}

/* Line y, in the place of the one sixteen before it: what is decoded stays in the nearest cache. */
static const uint8_t *jpeg_line(void *source, int y)
{
    const image *i = source;
    jpeg *j = i->decoder;
    const size_t line = line_room(i);
    while ((int)j->d.output_scanline <= y)
        read_line(j, i->pixel + j->d.output_scanline % 16 * line);
    return i->pixel + (size_t)(y % 16) * line;
}

static int scale_jpeg(image *i, uint8_t *out, int channels, int height, int width)
{
    jpeg *j = i->decoder;
    const ls_picture p = {.width = i->width,
                          .height = i->height,
                          .channels = i->channels,
                          .row = jpeg_line,
                          .source = i,
                          .across = i->across,
                          .down = i->down};
    int status = take_pixels(i, 16 * line_room(i));
    if (status)
        return status;
    if (setjmp(j->failed))
        return fail_decoding(i, j);
    begin_jpeg(i, j);
    if (!ls_picture_scale(out, channels, height, width, &p, &i->kept->scaling, i->host))
        return fail_memory(i);
    jpeg_line(i, i->height - 1); /* damage below what is cut out is damage, too */
    jpeg_finish_decompress(&j->d);
    return LS_OK;
}

static void drop_jpeg(const ls_image_memory *kept)
{
    if (kept->jpeg.memory)
        drop_decoder(kept->jpeg.memory);
}

/* A decoder that has stopped half-way is not used again. */
static void close_jpeg(const image *i, int status)
{
    if (status)
        drop_jpeg(i->kept);
}

static const format jpg = {"\xFF\xD8\xFF", read_jpeg_header, read_jpeg_pixels,
                           shrink_jpeg,    scale_jpeg,       close_jpeg};

#else

static int read_jpeg_header(image *i)
{
    return ls_fail(
        i->err, LS_EUNSUPPORTED,
        "%.300s: Lockstep was built without libjpeg and reads no JPEG; install Debian's "
        "libjpeg62-turbo-dev and build it again, or convert the image: convert IN OUT.ppm",
        i->path);
}

static void drop_jpeg(const ls_image_memory *kept)
{
    (void)kept;
}

static const format jpg = {.magic = "\xFF\xD8\xFF", .read_header = read_jpeg_header};
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
    static const format *const formats[] = {&png, &jpg, &pgm, &ppm};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const size_t n = strlen(formats[f]->magic);
        if (i->length >= n && memcmp(i->bytes, formats[f]->magic, n) == 0) {
            i->format = formats[f];
            return i->format->read_header(i);
        }
    }
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: offset 0: expected a PNG, JPEG, PGM (P5) or PPM (P6) image; convert it, "
        "with ImageMagick: convert IN OUT.png",
        i->path);
}

/* `height` 0: of any size. */
static int open_image(image *i, int height, int width)
{
    ls_room *file = &i->kept->file;
    int status =
        ls_read_plain_file_into(&file->memory, &file->bytes, &i->length, i->folder, i->path,
                                "an image", LS_EDATA, MOST_BYTES, i->host, i->err);
    i->bytes = file->memory;
    if (status == LS_OK)
        status = read_header(i);
    return status ? status : height ? check_size(i, height, width) : check_area(i);
}

static int decode(image *i)
{
    const size_t count = (size_t)i->height * (size_t)i->width * (size_t)i->channels;
    int status = take_pixels(i, count);
    return status ? status : i->format->read_pixels(i, count);
}

static ls_picture picture_of(const image *i)
{
    return (ls_picture){
        .width = i->width, .height = i->height, .channels = i->channels, .pixel = i->pixel};
}

static int scale(image *i, uint8_t *out, int channels, int height, int width)
{
    if (i->format->scale)
        return i->format->scale(i, out, channels, height, width);
    int status = decode(i);
    const ls_picture p = picture_of(i);
    if (status == LS_OK &&
        !ls_picture_scale(out, channels, height, width, &p, &i->kept->scaling, i->host))
        status = fail_memory(i);
    return status;
}

static int convert(image *i, uint8_t *out, int channels)
{
    int status = decode(i);
    const ls_picture p = picture_of(i);
    if (status == LS_OK)
        ls_picture_convert(out, channels, &p);
    return status;
}

static void close_image(const image *i, int status)
{
    ls_room *const room[] = {&i->kept->file, &i->kept->pixels, &i->kept->scaling};
    if (i->format && i->format->close)
        i->format->close(i, status);
    for (size_t r = 0; r < sizeof room / sizeof *room; r++)
        if (room[r]->bytes > MOST_KEPT)
            ls_room_free(room[r], i->host);
}

static int fit(image *i, int status, uint8_t *pixels, int channels, int height, int width)
{
    if (status == LS_OK && i->format->shrink)
        i->format->shrink(i, height, width);
    if (status == LS_OK)
        status = i->height == height && i->width == width
                     ? convert(i, pixels, channels)
                     : scale(i, pixels, channels, height, width);
    close_image(i, status);
    return status;
}

int ls_image_fit(uint8_t *pixels, int channels, int height, int width, int folder, const char *path,
                 ls_image_memory *kept, const ls_host *host, ls_error *err)
{
    image i = {.folder = folder, .path = path, .kept = kept, .host = host, .err = err};
    return fit(&i, open_image(&i, 0, 0), pixels, channels, height, width);
}

int ls_image_fit_bytes(uint8_t *pixels, int channels, int height, int width, const char *name,
                       const void *bytes, size_t count, ls_image_memory *kept, const ls_host *host,
                       ls_error *err)
{
    image i = {
        .path = name, .bytes = bytes, .length = count, .kept = kept, .host = host, .err = err};
    int status = count > MOST_BYTES
                     ? ls_fail(err, LS_EDATA, "%.300s: expected an image of at most %zu bytes",
                               name, MOST_BYTES)
                     : read_header(&i);
    return fit(&i, status ? status : check_area(&i), pixels, channels, height, width);
}

int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err)
{
    ls_image_memory kept = {0};
    image i = {.folder = AT_FDCWD, .path = path, .kept = &kept, .host = host, .err = err};
    if (channels != 1 && channels != 3)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: the model reads images of %d channels; files have 1 or 3", path,
                       channels);
    int status = open_image(&i, height, width);
    if (status == LS_OK)
        status = convert(&i, pixels, channels);
    close_image(&i, status);
    ls_image_memory_free(&kept, host);
    return status;
}

void ls_image_memory_free(ls_image_memory *kept, const ls_host *host)
{
    drop_jpeg(kept);
    ls_room_free(&kept->jpeg, host);
    ls_room_free(&kept->file, host);
    ls_room_free(&kept->pixels, host);
    ls_room_free(&kept->scaling, host);
}
