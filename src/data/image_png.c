/* PNG files, read by libspng. */
#include "data/image_kinds.h"

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
        i->channels = header.color_type == SPNG_COLOR_TYPE_INDEXED ? 4 : 3;
        i->turn = orientation_of(i);
    }
    return check_png(i, result);
}

/* Sets alpha to 1 in every colour of the palette, as a mark. libspng decodes a pixel whose index is
 * beyond the palette as a black pixel that does not have the mark, so check_marks can find such
 * pixels. */
static int mark_palette(const ls_image *i)
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

static int check_marks(const ls_image *i, size_t count)
{
    for (size_t k = 3; i->channels == 4 && k < count; k += 4)
        if (i->pixel[k] != 1)
            return ls_fail(
                i->err, LS_EDATA,
                "%.300s: before offset %zu: pixel %zu: expected a colour of the palette; "
                "the PNG file is "
                "damaged",
                i->path, i->at, k / 4);
    return LS_OK;
}

/* Decodes the pixels. A grey pixel becomes three equal samples, which ls_picture_convert converts
 * back to the same grey. libspng reports success for a file that ends too early, so i->cut_off is
 * checked. */
static int read_png_pixels(ls_image *i, size_t count)
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

static void close_png(const ls_image *i, int status)
{
    (void)status;
    spng_ctx_free(i->decoder);
}

const ls_image_kind ls_image_png = {.magic = "\x89PNG",
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

const ls_image_kind ls_image_png = {.magic = "\x89PNG", .read_header = read_png_header};
#endif
