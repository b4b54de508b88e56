#include "tools/image_file.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"
#include "tools/image.h"

#include <string.h>

#define MOST_BYTES ((size_t)256 << 20)

static int parse(ls_image *out, const char *path, const uint8_t *bytes, size_t length,
                 const ls_shape *shape, const ls_host *host, ls_error *err)
{
    if (length > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6'))
        return ls_pnm_read(out, path, bytes, length, shape, host, err);
    if (length > 4 && memcmp(bytes, "\x89PNG", 4) == 0)
        return ls_png_read(out, path, bytes, length, shape, host, err);
    return ls_fail(err, LS_EDATA,
                   "%.300s: offset 0: expected a PNG, PGM (P5) or PPM (P6) image; convert it, with "
                   "ImageMagick: convert IN OUT.png",
                   path);
}

int ls_image_fits(const ls_image *image, const char *path, const ls_shape *shape, ls_error *err)
{
    if (image->height == shape->h && image->width == shape->w)
        return LS_OK;
    return ls_fail(err, LS_EDATA,
                   "%.300s: %d×%d pixels, but the model reads %d×%d; with ImageMagick: "
                   "convert IN -resize '%dx%d!' OUT.png",
                   path, image->width, image->height, shape->w, shape->h, shape->w, shape->h);
}

static uint8_t grey(const uint8_t *rgb)
{
    return (uint8_t)((299u * rgb[0] + 587u * rgb[1] + 114u * rgb[2] + 500u) / 1000u);
}

static void convert(uint8_t *pixels, int channels, const ls_image *image)
{
    const size_t count = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *p = image->pixel + i * (size_t)image->channels;
        for (int c = 0; c < channels; c++)
            pixels[(size_t)c * count + i] = image->channels == 1 ? p[0]
                                            : channels == 1      ? grey(p)
                                                                 : p[c];
    }
}

int ls_image_read(uint8_t *pixels, const ls_shape *shape, const char *path, const ls_host *host,
                  ls_error *err)
{
    void *bytes;
    size_t length;
    ls_image image = {0};
    if (shape->c != 1 && shape->c != 3)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: the model reads images of %d channels; files have 1 or 3", path,
                       shape->c);
    int status =
        ls_read_plain_file(&bytes, &length, path, "an image", LS_EDATA, MOST_BYTES, host, err);
    if (status)
        return status;
    status = parse(&image, path, bytes, length, shape, host, err);
    ls_free(host, bytes);
    if (status == LS_OK)
        convert(pixels, shape->c, &image);
    ls_free(host, image.pixel);
    return status;
}
