/* SPDX-License-Identifier: MIT */
/* WebP files, read by libwebp. An animation is refused, because it is not a single image. */
#include "data/image_kinds.h"
#include "data/picture_starts.h"

#include "base/error.h"

#ifdef LOCKSTEP_WITH_WEBP
#include <string.h>
#include <webp/decode.h>

static int fail_webp(const ls_image *i, VP8StatusCode code)
{
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return ls_image_no_memory(i);
    if (code == VP8_STATUS_UNSUPPORTED_FEATURE)
        return ls_fail(i->err, LS_EUNSUPPORTED,
                       "%.300s: offset 12: a WebP file of a kind that libwebp does not read; "
                       "convert it, with ImageMagick: convert IN OUT.png",
                       i->path);
    return ls_fail(
        i->err, LS_EDATA, "%.300s: offset 12: expected a sound WebP file, found: %s; it is damaged",
        i->path,
        code == VP8_STATUS_NOT_ENOUGH_DATA ? "the end of the file" : "what is no WebP stream");
}

/* Returns the orientation in the EXIF chunk. A file begins with "RIFF", a size and "WEBP"; then
 * come the chunks. A chunk is a name of four bytes, a size, that many bytes, and a padding byte if
 * the size is odd. */
static int orientation_of(const ls_image *i)
{
    for (size_t at = 12; i->length >= 8 && at <= i->length - 8;) {
        const uint8_t *c = i->bytes + at;
        const size_t left = i->length - at - 8;
        const size_t count =
            (size_t)c[4] | (size_t)c[5] << 8 | (size_t)c[6] << 16 | (size_t)c[7] << 24;
        if (count > left)
            return 1;
        if (memcmp(c, "EXIF", 4) == 0) {
            const size_t skip = count >= 6 && memcmp(c + 8, "Exif\0\0", 6) == 0 ? 6 : 0;
            return ls_exif_orientation(c + 8 + skip, count - skip);
        }
        if (count + (count & 1) > left)
            return 1;
        at += 8 + count + (count & 1);
    }
    return 1;
}

static int read_webp_header(ls_image *i)
{
    WebPBitstreamFeatures found;
    const VP8StatusCode code = WebPGetFeatures(i->bytes, i->length, &found);
    if (code != VP8_STATUS_OK)
        return fail_webp(i, code);
    if (found.has_animation)
        return ls_fail(i->err, LS_EUNSUPPORTED,
                       "%.300s: offset 12: a WebP file of many images, which is not supported; "
                       "take one of them, with ImageMagick: convert 'IN[0]' OUT.png",
                       i->path);
    i->width = found.width;
    i->height = found.height;
    i->channels = found.has_alpha ? 4 : 3;
    i->turn = orientation_of(i);
    return LS_OK;
}

/* Decodes the whole image at once, which is possible because a WebP image has at most 16383 pixels
 * in a side. */
static int read_webp_pixels(ls_image *i, size_t count)
{
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c))
        return fail_webp(i, VP8_STATUS_UNSUPPORTED_FEATURE);
    c.output.colorspace = i->channels == 4 ? MODE_RGBA : MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA.rgba = i->pixel;
    c.output.u.RGBA.stride = i->channels * i->width;
    c.output.u.RGBA.size = count;
    const VP8StatusCode code = WebPDecode(i->bytes, i->length, &c);
    WebPFreeDecBuffer(&c.output);
    if (code == VP8_STATUS_OK && i->channels == 4)
        ls_image_lay_on_white(i, count / 4);
    return code == VP8_STATUS_OK ? LS_OK : fail_webp(i, code);
}

const ls_image_kind ls_image_webp = {.magic = LS_STARTS_WEBP,
                                     .magic8 = LS_STARTS_WEBP_8,
                                     .read_header = read_webp_header,
                                     .read_pixels = read_webp_pixels};

#else

static int read_webp_header(ls_image *i)
{
    return ls_fail(
        i->err, LS_EUNSUPPORTED,
        "%.300s: offset 0: Lockstep was built without libwebp and reads no WebP; install "
        "Debian's libwebp-dev and build it again, or convert the image: convert IN "
        "OUT.png",
        i->path);
}

const ls_image_kind ls_image_webp = {
    .magic = LS_STARTS_WEBP, .magic8 = LS_STARTS_WEBP_8, .read_header = read_webp_header};
#endif
