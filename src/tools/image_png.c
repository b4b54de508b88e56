/* PNG with 8 bits a sample, not interlaced. Source: the PNG specification (W3C, third edition):
 * chunks (5), colour types (6.1), filters (9). */
#include "base/error.h"
#include "base/host.h"
#include "tools/image.h"

#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

enum { SIGNATURE = 8, CHUNK_AROUND = 12, HEADER = 13 };
enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

typedef struct png {
    const char *path;
    const uint8_t *bytes;
    size_t length;
    const ls_shape *shape; /* that it must have */
    const ls_host *host;
    ls_error *err;
    uint32_t width, height;
    int type, samples;      /* samples of a pixel as it is stored */
    const uint8_t *palette; /* colours of three bytes */
    size_t colours;
    uint8_t *rows; /* [height][1 + width · samples]: each begins with its filter */
    size_t row_bytes, filled;
    z_stream z;
} png;

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int damaged(const png *p, size_t at, const char *expected)
{
    return ls_fail(p->err, LS_EDATA, "%.300s: offset %zu: expected %s; the PNG file is damaged",
                   p->path, at, expected);
}

/* ---- chunks --------------------------------------------------------------------------------- */

static int read_header(png *p, const uint8_t *data, size_t count)
{
    static const int samples[7] = {1, 0, 3, 1, 2, 0, 4};
    if (count != HEADER)
        return damaged(p, SIGNATURE, "a header of 13 bytes");
    p->width = big_endian(data);
    p->height = big_endian(data + 4);
    p->type = data[9];
    p->samples = p->type <= RGB_ALPHA ? samples[p->type] : 0;
    if (p->width < 1 || p->height < 1 || p->width > LS_IMAGE_MOST || p->height > LS_IMAGE_MOST)
        return damaged(p, SIGNATURE + 8, "a width and a height of 1 to 16384");
    if (data[8] != 8 || data[12] != 0 || p->samples == 0)
        return ls_fail(p->err, LS_EDATA,
                       "%.300s: offset 24: expected 8 bits a sample and no interlacing; with "
                       "ImageMagick: convert IN -interlace none PNG8:OUT.png",
                       p->path);
    const ls_image image = {.width = (int)p->width, .height = (int)p->height};
    int status = ls_image_fits(&image, p->path, p->shape, p->err);
    if (status)
        return status;
    p->row_bytes = 1 + (size_t)p->width * (size_t)p->samples;
    p->rows = ls_alloc_array(p->host, p->height, p->row_bytes);
    return p->rows ? LS_OK : ls_fail(p->err, LS_ENOMEM, "%.300s: out of memory for it", p->path);
}

static int inflate_more(png *p, const uint8_t *data, size_t count, size_t at)
{
    const size_t all = p->row_bytes * p->height;
    p->z.next_in = data;
    p->z.avail_in = (uInt)count;
    while (p->z.avail_in > 0) {
        p->z.next_out = p->rows + p->filled;
        p->z.avail_out =
            (uInt)(all - p->filled > UINT32_MAX / 2 ? UINT32_MAX / 2 : all - p->filled);
        const uInt room = p->z.avail_out;
        const int rc = inflate(&p->z, Z_NO_FLUSH);
        p->filled += room - p->z.avail_out;
        if (rc == Z_STREAM_END || (room == 0 && rc == Z_BUF_ERROR))
            return LS_OK;
        if (rc != Z_OK)
            return damaged(p, at, "compressed pixels");
    }
    return LS_OK;
}

static int read_chunk(png *p, const uint8_t *type, const uint8_t *data, size_t count, size_t at)
{
    if (memcmp(type, "IHDR", 4) == 0)
        return p->rows ? damaged(p, at, "one header") : read_header(p, data, count);
    if (!p->rows)
        return damaged(p, at, "the header, IHDR, first");
    if (memcmp(type, "PLTE", 4) == 0) {
        p->palette = data;
        p->colours = count / 3;
    }
    return memcmp(type, "IDAT", 4) == 0 ? inflate_more(p, data, count, at) : LS_OK;
}

static int read_chunks(png *p)
{
    size_t at = SIGNATURE;
    int status = LS_OK;
    while (status == LS_OK) {
        if (p->length - at < CHUNK_AROUND)
            return damaged(p, at, "another chunk");
        const size_t count = big_endian(p->bytes + at);
        const uint8_t *type = p->bytes + at + 4, *data = type + 4;
        if (count > p->length - at - CHUNK_AROUND)
            return damaged(p, at, "a chunk that fits into the file");
        if ((uint32_t)crc32(0, type, (uInt)count + 4) != big_endian(data + count))
            return damaged(p, at, "a chunk whose checksum is right");
        if (memcmp(type, "IEND", 4) == 0)
            break;
        status = read_chunk(p, type, data, count, at);
        at += count + CHUNK_AROUND;
    }
    if (status == LS_OK && (!p->rows || p->filled < p->row_bytes * p->height))
        return damaged(p, at, "more pixels");
    return status;
}

/* ---- filters -------------------------------------------------------------------------------- */

/* a left, b above, c above left: whichever is nearest to a + b − c. */
static int paeth(int a, int b, int c)
{
    const int pa = b > c ? b - c : c - b, pb = a > c ? a - c : c - a;
    const int pc = a + b - 2 * c > 0 ? a + b - 2 * c : 2 * c - a - b;
    return pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
}

static int unfilter(png *p)
{
    const size_t step = (size_t)p->samples, n = p->row_bytes - 1;
    for (uint32_t y = 0; y < p->height; y++) {
        uint8_t *row = p->rows + y * p->row_bytes + 1;
        const uint8_t *above = y > 0 ? row - p->row_bytes : NULL;
        if (row[-1] > 4)
            return damaged(p, SIGNATURE, "rows with a filter of 0 to 4");
        for (size_t i = 0; i < n; i++) {
            const int a = i >= step ? row[i - step] : 0, b = above ? above[i] : 0;
            const int c = above && i >= step ? above[i - step] : 0;
            const int add[5] = {0, a, b, (a + b) / 2, paeth(a, b, c)};
            row[i] = (uint8_t)(row[i] + add[row[-1]]);
        }
    }
    return LS_OK;
}

/* ---- pixels --------------------------------------------------------------------------------- */

static int copy_pixels(ls_image *out, const png *p)
{
    const int grey = p->type == GREY || p->type == GREY_ALPHA;
    *out = (ls_image){(int)p->width, (int)p->height, grey ? 1 : 3, NULL};
    out->pixel = ls_alloc_array(p->host, (size_t)p->width * p->height, (size_t)out->channels);
    if (!out->pixel)
        return ls_fail(p->err, LS_ENOMEM, "%.300s: out of memory for its pixels", p->path);
    uint8_t *to = out->pixel;
    for (uint32_t y = 0; y < p->height; y++) {
        const uint8_t *from = p->rows + y * p->row_bytes + 1;
        for (uint32_t x = 0; x < p->width; x++, from += p->samples, to += out->channels) {
            const uint8_t *colour = from;
            if (p->type == PALETTE && from[0] >= p->colours)
                return damaged(p, SIGNATURE, "pixels whose colour is in the palette");
            if (p->type == PALETTE)
                colour = p->palette + 3 * (size_t)from[0];
            memcpy(to, colour, (size_t)out->channels);
        }
    }
    return LS_OK;
}

int ls_png_read(ls_image *out, const char *path, const uint8_t *bytes, size_t length,
                const ls_shape *shape, const ls_host *host, ls_error *err)
{
    static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    png p = {
        .path = path, .bytes = bytes, .length = length, .shape = shape, .host = host, .err = err};
    *out = (ls_image){0};
    if (length < SIGNATURE || memcmp(bytes, signature, SIGNATURE) != 0)
        return damaged(&p, 0, "PNG's signature");
    if (inflateInit(&p.z) != Z_OK)
        return ls_fail(err, LS_ENOMEM, "%.300s: out of memory for it", path);
    int status = read_chunks(&p);
    if (status == LS_OK)
        status = unfilter(&p);
    if (status == LS_OK)
        status = copy_pixels(out, &p);
    inflateEnd(&p.z);
    ls_free(host, p.rows);
    if (status) {
        ls_free(host, out->pixel);
        out->pixel = NULL;
    }
    return status;
}
