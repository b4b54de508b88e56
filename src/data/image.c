/* SPDX-License-Identifier: MIT */
/* Detects the format of an image file, and converts its pixels. Reads PGM and PPM, as specified in
 * pgm(5) and ppm(5) of the netpbm project. */
#include "data/image_kinds.h"
#include "data/picture_starts.h"

#include "base/error.h"
#include "base/host.h"
#include "base/plain_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#define MOST_BYTES ((size_t)256 << 20)
#define MOST_KEPT ((size_t)32 << 20)

int ls_image_no_memory(const ls_image *i)
{
    return ls_fail(i->err, LS_ENOMEM, "%.300s: out of memory for its pixels", i->path);
}

/* The buffer's address is made odd, so that the pixels stay in the cache for the scaling that
 * follows: to an aligned address, libjpeg-turbo writes with instructions that bypass the caches. */
int ls_image_take_pixels(ls_image *i, size_t bytes)
{
    uint8_t *memory = ls_scratch_get(&i->kept->pixels, bytes + 2, i->host);
    i->pixel = memory ? memory + 1 : NULL;
    return memory ? LS_OK : ls_image_no_memory(i);
}

void ls_image_lay_on_white(const ls_image *i, size_t pixels)
{
    uint8_t *p = i->pixel;
    for (size_t k = 0; k < pixels; k++, p += 4) {
        const unsigned alpha = p[3];
        i->kept->laid |= alpha < 255;
        for (int c = 0; c < 3; c++)
            p[c] = ls_image_on_white(p[c], alpha);
    }
}

/* ---- PNM ------------------------------------------------------------------------------------ */

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads a number after white space and comments. */
static int read_number(ls_image *i, int most, const char *what, int *out)
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

static int read_pnm_header(ls_image *i)
{
    i->channels = i->bytes[1] == '6' ? 3 : 1;
    i->at = 2;
    int status = read_number(i, LS_IMAGE_SIDE, "width", &i->width);
    if (status == LS_OK)
        status = read_number(i, LS_IMAGE_SIDE, "height", &i->height);
    if (status == LS_OK)
        status = read_number(i, 255, "largest value", &i->white);
    i->at++; /* a single white space */
    return status;
}

static int read_pnm_pixels(ls_image *i, size_t count)
{
    const size_t left = i->at > i->length ? 0 : i->length - i->at;
    if (left < count)
        return ls_fail(i->err, LS_EDATA,
                       "%.300s: offset %zu: expected %zu bytes of pixels, found %zu; the file is "
                       "cut off",
                       i->path, i->at, count, left);
    for (size_t k = 0; k < count; k++)
        i->pixel[k] = ls_image_byte(i->bytes[i->at + k], (unsigned)i->white);
    return LS_OK;
}

static const ls_image_kind pgm = {
    .magic = "P5", .read_header = read_pnm_header, .read_pixels = read_pnm_pixels};
static const ls_image_kind ppm = {
    .magic = "P6", .read_header = read_pnm_header, .read_pixels = read_pnm_pixels};

/* ---- all formats ----------------------------------------------------------------------------- */

static int check_size(const ls_image *i, int height, int width)
{
    const int high = i->turn > 4 ? i->width : i->height, wide = i->turn > 4 ? i->height : i->width;
    if (high == height && wide == width)
        return LS_OK;
    return ls_fail(i->err, LS_EDATA,
                   "%.300s: %d×%d pixels, but the model reads %d×%d; with ImageMagick: "
                   "convert IN -resize '%dx%d!' OUT.png",
                   i->path, wide, high, width, height, width, height);
}

static int check_area(const ls_image *i)
{
    const int side = i->kind->side ? i->kind->side : LS_IMAGE_SIDE;
    const int64_t area = i->kind->area ? i->kind->area : LS_IMAGE_AREA;
    if (i->width <= side && i->height <= side && (int64_t)i->width * i->height <= area)
        return LS_OK;
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: %d×%d pixels; expected at most %d in a side and %lld in all; scale it down",
        i->path, i->width, i->height, side, (long long)area);
}

static bool has_at(const ls_image *i, size_t at, const char *magic)
{
    return ls_has_at(i->bytes, i->length, at, magic);
}

static int fail_kind(const ls_image *i)
{
    for (size_t k = 0; k < LS_PICTURE_STARTS; k++)
        if (has_at(i, ls_picture_starts[k].at, ls_picture_starts[k].bytes))
            return ls_fail(i->err, LS_EUNSUPPORTED,
                           "%.300s: offset 0: %s, which is not supported; convert it, with "
                           "ImageMagick: convert IN OUT.png",
                           i->path, ls_picture_starts[k].name);
    return ls_fail(
        i->err, LS_EDATA,
        "%.300s: offset 0: expected a PNG, JPEG, PGM (P5), PPM (P6), BMP or WebP image; convert "
        "it, with ImageMagick: convert IN OUT.png",
        i->path);
}

static int read_header(ls_image *i)
{
    static const ls_image_kind *const kinds[] = {&ls_image_png, &ls_image_jpeg, &pgm,
                                                 &ppm,          &ls_image_webp, &ls_image_bmp};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (has_at(i, 0, kinds[k]->magic) &&
            (!kinds[k]->magic8 || has_at(i, 8, kinds[k]->magic8))) {
            i->kind = kinds[k];
            return i->kind->read_header(i);
        }
    return fail_kind(i);
}

/* Reads the file and its header. `height` 0: any size. */
static int open_image(ls_image *i, int height, int width)
{
    ls_scratch *file = &i->kept->file;
    int status =
        ls_read_plain_file_into(&file->memory, &file->bytes, &i->length, i->folder, i->path,
                                "an image", LS_EDATA, MOST_BYTES, i->host, i->err);
    i->bytes = file->memory;
    if (status == LS_OK)
        status = read_header(i);
    return status ? status : height ? check_size(i, height, width) : check_area(i);
}

static int decode(ls_image *i)
{
    const size_t count = (size_t)i->height * (size_t)i->width * (size_t)i->channels;
    int status = ls_image_take_pixels(i, count);
    return status ? status : i->kind->read_pixels(i, count);
}

static ls_picture picture_of(const ls_image *i)
{
    return (ls_picture){
        .width = i->width, .height = i->height, .channels = i->channels, .pixel = i->pixel};
}

static int scale(ls_image *i, uint8_t *out, const ls_picture_form *form)
{
    if (i->kind->scale)
        return i->kind->scale(i, out, form);
    int status = decode(i);
    const ls_picture p = picture_of(i);
    if (status == LS_OK && !ls_picture_scale(out, form, &p, &i->kept->scaling, i->host))
        status = ls_image_no_memory(i);
    return status;
}

static int convert(ls_image *i, uint8_t *out, int channels)
{
    int status = decode(i);
    const ls_picture p = picture_of(i);
    if (status == LS_OK)
        ls_picture_convert(out, channels, &p);
    return status;
}

static void close_image(const ls_image *i, int status)
{
    ls_scratch *const large[] = {&i->kept->file, &i->kept->pixels, &i->kept->scaling,
                                 &i->kept->turning};
    if (i->kind && i->kind->close)
        i->kind->close(i, status);
    for (size_t r = 0; r < sizeof large / sizeof *large; r++)
        if (large[r]->bytes > MOST_KEPT)
            ls_scratch_free(large[r], i->host);
}

/* Returns the buffer for the pixels before rotation: `out` itself if they are not rotated. */
static uint8_t *before_turn(const ls_image *i, uint8_t *out, int channels, int height, int width)
{
    return i->turn <= 1
               ? out
               : ls_scratch_get(&i->kept->turning,
                                (size_t)channels * (size_t)height * (size_t)width, i->host);
}

/* Scales an image and then rotates the small result, which is cheaper than rotating first. The
 * result is the same, because scaling and cutting treat both ends of a side alike. */
static int cover(ls_image *i, uint8_t *pixels, const ls_picture_form *form)
{
    const bool lies = i->turn > 4;
    const int channels = form->channels, high = lies ? form->width : form->height,
              wide = lies ? form->height : form->width;
    const ls_picture_form before = {channels, high, wide, {0}, form->white};
    uint8_t *out = before_turn(i, pixels, channels, high, wide);
    if (!out)
        return ls_image_no_memory(i);
    if (i->kind->shrink)
        i->kind->shrink(i, high, wide);
    const bool fits = i->height == high && i->width == wide;
    int status = fits ? convert(i, out, channels) : scale(i, out, &before);
    if (status == LS_OK && i->turn > 1)
        ls_picture_turn(pixels, out, channels, high, wide, i->turn);
    return status;
}

/* Rotates a decoded picture and resizes it, one channel after the other. */
static int turn_and_resize(ls_image *i, uint8_t *pixels, const ls_picture_form *form)
{
    const size_t area = (size_t)i->height * (size_t)i->width,
                 row = (size_t)form->height * (size_t)form->width;
    const int channels = i->channels > 1 && form->channels > 1 ? 3 : 1;
    const bool lies = i->turn > 4;
    ls_picture_form one = *form;
    int status = decode(i);
    uint8_t *planes =
        status ? NULL : ls_scratch_get(&i->kept->turning, 2 * (size_t)channels * area, i->host);
    if (!planes)
        return status ? status : ls_image_no_memory(i);
    uint8_t *turned = planes + (size_t)channels * area;
    const ls_picture p = picture_of(i);
    if (channels == 1 && i->channels > 1)
        ls_picture_grey(planes, p.pixel, area, p.channels);
    else
        ls_picture_convert(planes, channels, &p);
    ls_picture_turn(turned, planes, channels, i->height, i->width, i->turn);
    one.channels = channels == 3 ? 1 : form->channels;
    for (int c = 0; status == LS_OK && c < channels; c++) {
        const ls_picture plane = {.width = lies ? i->height : i->width,
                                  .height = lies ? i->width : i->height,
                                  .channels = 1,
                                  .pixel = turned + (size_t)c * area};
        if (!ls_picture_scale(pixels + (size_t)c * row, &one, &plane, &i->kept->scaling, i->host))
            status = ls_image_no_memory(i);
    }
    return status;
}

/* Resizes an image as Pillow does. It is rotated first, because Pillow rounds the samples between
 * resizing one direction and the other, and does not treat both ends of a side alike. */
static int resize(ls_image *i, uint8_t *pixels, const ls_picture_form *form)
{
    if (i->kind->shrink)
        i->kind->shrink(i, i->height, i->width);
    return i->turn > 1 ? turn_and_resize(i, pixels, form) : scale(i, pixels, form);
}

static int fit(ls_image *i, int status, uint8_t *pixels, const ls_picture_form *form)
{
    i->kept->turned = i->kept->laid = false;
    i->kept->largest = 0;
    i->kept->width = i->turn > 4 ? i->height : i->width;
    i->kept->height = i->turn > 4 ? i->width : i->height;
    if (status == LS_OK)
        status = form->resize.height ? resize(i, pixels, form) : cover(i, pixels, form);
    i->kept->turned = status == LS_OK && i->turn > 1;
    close_image(i, status);
    return status;
}

int ls_image_fit(uint8_t *pixels, const ls_picture_form *form, int folder, const char *path,
                 ls_image_memory *kept, const ls_host *host, ls_error *err)
{
    ls_image i = {.folder = folder,
                  .path = path,
                  .white = form->white,
                  .kept = kept,
                  .host = host,
                  .err = err};
    return fit(&i, open_image(&i, 0, 0), pixels, form);
}

int ls_image_measure(int folder, const char *path, ls_image_memory *kept, const ls_host *host,
                     ls_error *err)
{
    uint8_t start[LS_PNG_START];
    ls_image i = {.folder = folder, .path = path, .kept = kept, .host = host, .err = err};
    kept->largest = 0;
    if (ls_read_start_into(start, sizeof start, folder, path) < sizeof start ||
        !ls_image_png_is_long(start))
        return LS_OK;
    int status = open_image(&i, 0, 0);
    if (status == LS_OK)
        status = decode(&i);
    close_image(&i, status);
    return status;
}

int ls_image_fit_bytes(uint8_t *pixels, const ls_picture_form *form, const char *name,
                       const void *bytes, size_t count, ls_image_memory *kept, const ls_host *host,
                       ls_error *err)
{
    ls_image i = {.path = name,
                  .bytes = bytes,
                  .length = count,
                  .white = form->white,
                  .kept = kept,
                  .host = host,
                  .err = err};
    int status = count > MOST_BYTES
                     ? ls_fail(err, LS_EDATA, "%.300s: expected an image of at most %zu bytes",
                               name, MOST_BYTES)
                     : read_header(&i);
    return fit(&i, status ? status : check_area(&i), pixels, form);
}

int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err)
{
    ls_image_memory kept = {0};
    ls_image i = {.folder = AT_FDCWD, .path = path, .kept = &kept, .host = host, .err = err};
    if (channels != 1 && channels != 3)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: the model reads images of %d channels; files have 1 or 3", path,
                       channels);
    const ls_picture_form form = {channels, height, width, {0}, 0};
    const int status = fit(&i, open_image(&i, height, width), pixels, &form);
    ls_image_memory_free(&kept, host);
    return status;
}

void ls_image_memory_free(ls_image_memory *kept, const ls_host *host)
{
    ls_image_drop_jpeg(kept);
    ls_scratch_free(&kept->jpeg, host);
    ls_scratch_free(&kept->turning, host);
    ls_scratch_free(&kept->file, host);
    ls_scratch_free(&kept->pixels, host);
    ls_scratch_free(&kept->scaling, host);
}
