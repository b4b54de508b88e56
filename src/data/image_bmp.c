/* SPDX-License-Identifier: MIT */
/* BMP with a BITMAPINFOHEADER or a later header of Microsoft: 1, 4, 8, 16, 24 and 32 bits a pixel,
 * not compressed. All numbers are little-endian. */
#include "data/image_kinds.h"

#include "base/error.h"

#include <string.h>

enum { FILE_HEADER = 14, INFO_HEADER = 40, COLOURS = 0, MASKS = 3, ALPHA_MASKS = 6 };

static uint32_t number(const uint8_t *b, size_t n)
{
    uint32_t v = 0;
    for (size_t k = n; k > 0; k--)
        v = v << 8 | b[k - 1];
    return v;
}

/* The contents of the header, except width and height. */
typedef struct bmp {
    uint32_t pixels, header, bits, packing, colours; /* `pixels`: offset of the first pixel */
    bool downward;                                   /* the first row in the file is the top row */
    uint32_t mask[4]; /* red, green, blue, alpha; the last may be 0 */
} bmp;

static int fail_bmp(const ls_image *i, size_t offset, const char *expected)
{
    return ls_fail(i->err, LS_EDATA, "%.300s: offset %zu: expected %s; the BMP file is damaged",
                   i->path, offset, expected);
}

static int fail_kind(const ls_image *i, const char *what, unsigned number)
{
    return ls_fail(i->err, LS_EUNSUPPORTED,
                   "%.300s: offset 0: a BMP file of %s %u, which is not supported; convert it, "
                   "with ImageMagick: convert IN OUT.png",
                   i->path, what, number);
}

static int read_header(const ls_image *i, bmp *b, int64_t *width, int64_t *height)
{
    const uint8_t *h = i->bytes + FILE_HEADER;
    if (i->length < FILE_HEADER + 4)
        return fail_bmp(i, i->length, "a header of 54 bytes");
    *b = (bmp){.pixels = number(i->bytes + 10, 4), .header = number(h, 4)};
    if (b->header < INFO_HEADER) /* OS/2 header of 12 bytes */
        return fail_kind(i, "a header of the size", b->header);
    if (i->length - FILE_HEADER < b->header)
        return fail_bmp(i, FILE_HEADER, "a header that ends in the file");
    *width = (int32_t)number(h + 4, 4);
    *height = (int32_t)number(h + 8, 4);
    b->downward = *height < 0;
    *height = *height < 0 ? -*height : *height;
    b->bits = number(h + 14, 2);
    b->packing = number(h + 16, 4);
    b->colours = number(h + 32, 4);
    if (*width < 1 || *height < 1)
        return fail_bmp(i, FILE_HEADER + 4, "a width and a height of 1 and more");
    return LS_OK;
}

/* Finds the bits of each colour in a pixel of 16 or 32 bits. The masks follow a header of 40 bytes,
 * and are at the same place in longer headers. */
static int read_masks(const ls_image *i, bmp *b)
{
    static const uint32_t usual[2][4] = {{0x7C00, 0x3E0, 0x1F}, {0xFF0000, 0xFF00, 0xFF}};
    memcpy(b->mask, usual[b->bits == 32], sizeof b->mask);
    if (b->packing == COLOURS)
        return LS_OK;
    if (i->length < FILE_HEADER + INFO_HEADER + 12)
        return fail_bmp(i, FILE_HEADER + INFO_HEADER, "three masks of colours");
    for (size_t c = 0; c < 3; c++)
        b->mask[c] = number(i->bytes + FILE_HEADER + INFO_HEADER + 4 * c, 4);
    for (size_t c = 0; c < 3; c++)
        if (b->mask[c] == 0)
            return fail_bmp(i, FILE_HEADER + INFO_HEADER + 4 * c, "a mask that is not 0");
    if (b->header >= INFO_HEADER + 16 || b->packing == ALPHA_MASKS) /* there is a fourth mask */
        b->mask[3] = i->length >= FILE_HEADER + INFO_HEADER + 16
                         ? number(i->bytes + FILE_HEADER + INFO_HEADER + 12, 4)
                         : 0;
    return LS_OK;
}

static int read_all_headers(ls_image *i, bmp *b)
{
    int64_t width = 0, height = 0;
    int status = read_header(i, b, &width, &height);
    if (status)
        return status;
    const bool wide = b->bits == 16 || b->bits == 32;
    if (b->bits != 1 && b->bits != 4 && b->bits != 8 && b->bits != 24 && !wide)
        return fail_kind(i, "bits a pixel of", b->bits);
    if (b->packing != COLOURS && !(wide && (b->packing == MASKS || b->packing == ALPHA_MASKS)))
        return fail_kind(i, "the compression", b->packing);
    i->width = width > LS_IMAGE_SIDE ? LS_IMAGE_SIDE + 1 : (int)width;
    i->height = height > LS_IMAGE_SIDE ? LS_IMAGE_SIDE + 1 : (int)height;
    status = wide ? read_masks(i, b) : LS_OK;
    i->channels = b->mask[3] ? 4 : 3;
    return status;
}

static int read_bmp_header(ls_image *i)
{
    bmp b;
    return read_all_headers(i, &b);
}

/* Returns the bits under a mask, scaled to 0 … 255. */
static uint8_t sample(uint32_t pixel, uint32_t mask)
{
    const int shift = __builtin_ctz(mask);
    const uint64_t most = mask >> shift;
    return (uint8_t)(((uint64_t)((pixel & mask) >> shift) * 255 + most / 2) / most);
}

/* Converts a row of pixels that are indices into the palette to colours. */
static int read_indices(const ls_image *i, const bmp *b, const uint8_t *row, uint8_t *out)
{
    const size_t at = FILE_HEADER + (size_t)b->header, all = (size_t)1 << b->bits;
    const size_t said = b->colours && b->colours < all ? b->colours : all;
    const size_t there = at < i->length ? (i->length - at) / 4 : 0;
    const size_t colours = said < there ? said : there;
    for (size_t x = 0; x < (size_t)i->width; x++) {
        const size_t bit = x * b->bits;
        const size_t place = (size_t)row[bit / 8] >> (8 - b->bits - bit % 8) & (all - 1);
        if (place >= colours)
            return fail_bmp(i, (size_t)(row - i->bytes) + bit / 8, "a colour of the palette");
        for (size_t c = 0; c < 3; c++)
            out[3 * x + c] = i->bytes[at + 4 * place + 2 - c];
    }
    return LS_OK;
}

static int read_row(const ls_image *i, const bmp *b, const uint8_t *row, uint8_t *out)
{
    if (b->bits <= 8)
        return read_indices(i, b, row, out);
    const size_t step = b->bits / 8;
    const size_t samples = (size_t)i->channels;
    for (size_t x = 0; x < (size_t)i->width; x++)
        for (size_t c = 0; c < samples; c++)
            out[samples * x + c] =
                step == 3 ? row[3 * x + 2 - c] : sample(number(row + step * x, step), b->mask[c]);
    return LS_OK;
}

/* Lays the pixels on white, unless alpha is 0 in all of them: some programs announce alpha and
 * write none. */
static void use_alpha(const ls_image *i, size_t count)
{
    for (size_t k = 3; k < count; k += 4)
        if (i->pixel[k]) {
            ls_image_lay_on_white(i, count / 4);
            return;
        }
}

static int read_bmp_pixels(ls_image *i, size_t count)
{
    bmp b;
    int status = read_all_headers(i, &b);
    if (status)
        return status;
    const size_t pitch = ((size_t)i->width * b.bits + 31) / 32 * 4, rows = (size_t)i->height;
    if (b.pixels > i->length || i->length - b.pixels < pitch * rows)
        return ls_fail(i->err, LS_EDATA,
                       "%.300s: offset %u: expected %zu bytes of pixels, found %zu; the file is "
                       "cut off",
                       i->path, (unsigned)b.pixels, pitch * rows,
                       b.pixels > i->length ? 0 : i->length - b.pixels);
    for (size_t y = 0; status == LS_OK && y < rows; y++)
        status = read_row(i, &b, i->bytes + b.pixels + pitch * (b.downward ? y : rows - 1 - y),
                          i->pixel + y * (size_t)i->channels * (size_t)i->width);
    if (status == LS_OK && i->channels == 4)
        use_alpha(i, count);
    return status;
}

const ls_image_kind ls_image_bmp = {
    .magic = "BM", .read_header = read_bmp_header, .read_pixels = read_bmp_pixels};
