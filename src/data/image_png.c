/* SPDX-License-Identifier: MIT */
/* PNG files, read by libspng. */
#include "data/image_kinds.h"
#include "data/picture_starts.h"

#include "base/error.h"

#include <string.h>

#ifdef LOCKSTEP_WITH_PNG
#include <spng.h>

#define MOST_CHUNK ((size_t)64 << 20) /* limit of a chunk other than pixels: texts, profiles */

static int give_bytes(spng_ctx *decoder, void *user, void *out, size_t count)
{
    ls_image *i = user;
    (void)decoder;
    i->cut_off |= count > i->length - i->at;
    if (i->cut_off)
        return SPNG_IO_EOF;
    memcpy(out, i->bytes + i->at, count);
    i->at += count;
    return 0;
}

static int check_png(const ls_image *i, int result)
{
    if (result == SPNG_OK)
        return LS_OK;
    if (result == SPNG_EMEM || !i->decoder)
        return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for it", i->path);
    return ls_fail(i->err, LS_EDATA,
                   "%.300s: before offset %zu: expected a sound PNG file, found: %s; it is damaged",
                   i->path, i->at, spng_strerror(result));
}

/* Returns the EXIF orientation, which must be in a chunk before the pixels. */
static int orientation_of(const ls_image *i)
{
    struct spng_exif exif;
    return spng_get_exif(i->decoder, &exif) == SPNG_OK
               ? ls_exif_orientation((const uint8_t *)exif.data, exif.length)
               : 1;
}

/* Returns whether the pixels are decoded with a fourth sample: alpha, or the mark of a palette. */
static bool has_fourth(const ls_image *i, int colour_type)
{
    struct spng_trns transparent;
    return colour_type == SPNG_COLOR_TYPE_INDEXED ||
           colour_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
           colour_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA ||
           spng_get_trns(i->decoder, &transparent) == SPNG_OK;
}

static int read_png_header(ls_image *i)
{
    struct spng_ihdr header;
    int result = SPNG_EMEM;
    i->decoder = spng_ctx_new(0);
    if (i->decoder)
        result = spng_set_crc_action(i->decoder, SPNG_CRC_ERROR, SPNG_CRC_DISCARD);
    if (result == SPNG_OK)
        result = spng_set_chunk_limits(i->decoder, MOST_CHUNK, MOST_CHUNK);
    if (result == SPNG_OK)
        result = spng_set_png_stream(i->decoder, give_bytes, i);
    if (result == SPNG_OK)
        result = spng_get_ihdr(i->decoder, &header);
    if (result == SPNG_OK && (header.width > LS_IMAGE_SIDE || header.height > LS_IMAGE_SIDE))
        result = SPNG_EUSER_WIDTH;
    if (result == SPNG_OK) {
        i->width = (int)header.width;
        i->height = (int)header.height;
        i->channels = has_fourth(i, header.color_type) ? 4 : 3;
        i->turn = orientation_of(i);
    }
    return check_png(i, result);
}

/* The marks of a palette's colours, in place of alpha. libspng decodes a pixel whose index is
 * beyond the palette as a black pixel without a mark, so use_marks can find such pixels. */
enum { OPAQUE = 1, LAID = 2 };

/* Lays the colours of the palette on white, and marks them. */
static int mark_palette(const ls_image *i)
{
    struct spng_plte palette;
    struct spng_trns marks = {0};
    int result = spng_get_plte(i->decoder, &palette);
    if (result != SPNG_OK)
        return result;
    spng_get_trns(i->decoder, &marks);
    for (uint32_t k = 0; k < palette.n_entries; k++) {
        const unsigned alpha = k < marks.n_type3_entries ? marks.type3_alpha[k] : 255;
        struct spng_plte_entry *c = &palette.entries[k];
        c->red = ls_image_on_white(c->red, alpha);
        c->green = ls_image_on_white(c->green, alpha);
        c->blue = ls_image_on_white(c->blue, alpha);
        marks.type3_alpha[k] = alpha < 255 ? LAID : OPAQUE;
    }
    marks.n_type3_entries = palette.n_entries;
    result = spng_set_plte(i->decoder, &palette);
    return result == SPNG_OK ? spng_set_trns(i->decoder, &marks) : result;
}

static int use_marks(const ls_image *i, size_t count)
{
    for (size_t k = 3; k < count; k += 4) {
        i->kept->laid |= i->pixel[k] == LAID;
        if (i->pixel[k] != OPAQUE && i->pixel[k] != LAID)
            return ls_fail(
                i->err, LS_EDATA,
                "%.300s: before offset %zu: pixel %zu: expected a colour of the palette; "
                "the PNG file is "
                "damaged",
                i->path, i->at, k / 4);
    }
    return LS_OK;
}

/* Converts pixels of four 16-bit samples to pixels of i->channels bytes. Alpha becomes its upper 8
 * bits. Stores the largest sample of a pixel that is not fully transparent. */
static void shorten(const ls_image *i, size_t pixels)
{
    const int channels = i->channels;
    const uint8_t *from = i->pixel; /* a pixel becomes shorter, so it can be stored here too */
    uint8_t *to = i->pixel;
    for (size_t k = 0; k < pixels; k++, from += sizeof(uint16_t[4]), to += channels) {
        uint16_t sample[4];
        memcpy(sample, from, sizeof sample);
        for (int c = 0; c < 3; c++) {
            to[c] =
                i->white ? ls_image_byte(sample[c], (unsigned)i->white) : (uint8_t)(sample[c] >> 8);
            if (sample[3] && sample[c] > i->kept->largest)
                i->kept->largest = sample[c];
        }
        if (channels == 4)
            to[3] = (uint8_t)(sample[3] >> 8);
    }
}

/* Decodes 16-bit samples. Returns a status, or the decoder's result in *result. */
static int read_long(ls_image *i, size_t pixels, int *result)
{
    const size_t bytes = pixels * sizeof(uint16_t[4]);
    const int status = ls_image_take_pixels(i, bytes);
    if (status == LS_OK)
        *result = spng_decode_image(i->decoder, i->pixel, bytes, SPNG_FMT_RGBA16,
                                    i->channels == 4 ? SPNG_DECODE_TRNS : 0);
    return status;
}

/* Decodes the pixels. A grey pixel becomes three equal samples, which ls_picture_convert converts
 * back to the same grey. libspng reports success for a file that ends too early, so i->cut_off is
 * checked. */
static int read_png_pixels(ls_image *i, size_t count)
{
    struct spng_ihdr header;
    int result = spng_get_ihdr(i->decoder, &header);
    const bool fourth = i->channels == 4;
    const bool marked = result == SPNG_OK && header.color_type == SPNG_COLOR_TYPE_INDEXED;
    const bool is_long = result == SPNG_OK && header.bit_depth == 16;
    const size_t pixels = count / (size_t)i->channels;
    int status = LS_OK;
    if (result == SPNG_OK && marked)
        result = mark_palette(i);
    if (result == SPNG_OK && is_long)
        status = read_long(i, pixels, &result);
    else if (result == SPNG_OK)
        result =
            spng_decode_image(i->decoder, i->pixel, count, fourth ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8,
                              fourth ? SPNG_DECODE_TRNS : 0);
    if (status)
        return status;
    if (result == SPNG_OK)
        result = spng_decode_chunks(i->decoder);
    if (result == SPNG_OK && i->cut_off)
        result = SPNG_IO_EOF;
    status = check_png(i, result);
    if (status == LS_OK && is_long)
        shorten(i, pixels);
    if (status == LS_OK && marked)
        status = use_marks(i, count);
    else if (status == LS_OK && fourth)
        ls_image_lay_on_white(i, count / 4);
    return status;
}

static void close_png(const ls_image *i, int status)
{
    (void)status;
    spng_ctx_free(i->decoder);
}

const ls_image_kind ls_image_png = {.magic = LS_STARTS_PNG,
                                    .read_header = read_png_header,
                                    .read_pixels = read_png_pixels,
                                    .close = close_png};

#else

static int read_png_header(ls_image *i)
{
    return ls_fail(i->err, LS_EUNSUPPORTED,
                   "%.300s: Lockstep was built without libspng and reads no PNG; install Debian's "
                   "libspng-dev and build it again, or convert the image: convert IN OUT.ppm",
                   i->path);
}

const ls_image_kind ls_image_png = {.magic = LS_STARTS_PNG, .read_header = read_png_header};
#endif
