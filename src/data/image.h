/* SPDX-License-Identifier: MIT */
/* Decodes an image file, and scales it to the width, height and channels of a model's input.
 * Formats: PGM and PPM (binary, P5 and P6) and BMP; PNG, JPEG and WebP if libspng, libjpeg and
 * libwebp were found when Lockstep was compiled. These sources are compiled into the separate
 * library of src/picture. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include "prep/resize.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- decoded pixels, converted to a model's rows (picture.c) --------------------------------- */

/* A decoded picture. Its pixels are either all in memory (`pixel`) or decoded line by line: if
 * `row` is not NULL, row(source, y) returns line y, and `pixel` is not used. Lines are requested in
 * increasing order; line y stays valid until line y + 16 is requested, and one byte after it must
 * be in allocated memory. */
typedef struct ls_picture {
    /* `channels`: 1: grey; 3: red, green, blue; 4: the same and a fourth sample, which is
     * ignored */
    int width, height, channels;
    const uint8_t *pixel; /* [height][width][channels] */
    const uint8_t *(*row)(void *source, int y);
    void *source;
    /* Width and height in pixels before they are rounded up to `width` and `height`. They are
     * fractional if the decoder has reduced the picture: at an eighth of its size a picture of 1001
     * pixels is 125.125 pixels wide, and is decoded into 126 columns. 0: nothing was rounded. */
    double across, down;
} ls_picture;

/* A buffer that is reused for one image after another, and grows when necessary. Must be zeroed
 * before the first use. */
typedef struct ls_scratch {
    void *memory;
    size_t bytes;
} ls_scratch;

/* Returns the buffer's memory, enlarged to at least `bytes` bytes. Its content is undefined.
 * Returns NULL if there is no memory. */
void *ls_scratch_get(ls_scratch *scratch, size_t bytes, const ls_host *host);
/* Frees the buffer and zeroes *scratch. */
void ls_scratch_free(ls_scratch *scratch, const ls_host *host);

/* Returns line y of a picture. */
static inline const uint8_t *ls_picture_line(const ls_picture *p, int y)
{
    return p->row ? p->row(p->source, y)
                  : p->pixel + (size_t)y * (size_t)p->width * (size_t)p->channels;
}

/* The row into which a picture is converted: its form, and how the picture is fitted to it. This
 * is the one answer to the question how a picture becomes a row. */
typedef struct ls_picture_form {
    int channels, height, width; /* 1 (grey) or 3 channels */
    /* Size before the centre is cut out. All 0: the picture is scaled until it just covers height
     * × width (ls_picture_scale), the rule of data.image_size. */
    ls_prep_resize resize;
    /* The 16-bit sample that becomes 255; larger samples become 255 as well. 0: the upper 8 bits of
     * 16-bit samples are used. Samples of 8 bits and less do not depend on it. */
    int white;
} ls_picture_form;

/* Returns the address of `bytes` bytes of `memory` at offset *at, and advances *at. If `memory` is
 * NULL, only advances *at, to compute the total size. */
void *ls_scratch_take(char *memory, size_t *at, size_t bytes);

/* Converts a picture to `out` [channels][height][width]. If `channels` is 1, colours become grey
 * (0.299 red + 0.587 green + 0.114 blue); if it is 3, grey becomes three equal channels. */
void ls_picture_convert(uint8_t *out, int channels, const ls_picture *p);

/* Converts a picture to a row `out` [channels][height][width] of the form `f`.
 *
 * Without f->resize the picture keeps its proportions: it is scaled until it just covers height ×
 * width. Then the longer side is cut equally at both ends. Each output sample is a weighted mean of
 * samples of the picture. Its weights fall linearly from the middle to both sides (a triangle
 * filter); when the picture shrinks by a factor s, the filter is s times as wide. Colours are
 * converted like ls_picture_convert.
 *
 * With f->resize: ls_picture_resize_to. Returns false if there is no memory. */
bool ls_picture_scale(uint8_t *out, const ls_picture_form *f, const ls_picture *p,
                      ls_scratch *scratch, const ls_host *host);

/* Converts `count` pixels of `step` bytes, whose first three are red, green and blue, to grey, with
 * the weights and the rounding of Pillow's convert("L"). Resized pictures become grey in this way.
 */
void ls_picture_grey(uint8_t *out, const uint8_t *rgb, size_t count, int step);

/* Resizes a picture to f->resize, with the bytes of Pillow's Image.resize, and cuts out the centre
 * with the size of the row, as torchvision's CenterCrop does. The resized picture must be at least
 * as large as the row. Returns false if there is no memory. */
bool ls_picture_resize_to(uint8_t *out, const ls_picture_form *f, const ls_picture *p,
                          ls_scratch *scratch, const ls_host *host);

/* Rotates and mirrors `in` [channels][height][width] as the EXIF orientation 1 … 8 says. For the
 * orientations 5 … 8, `out` is [channels][width][height]. `in` and `out` must not overlap. */
void ls_picture_turn(uint8_t *out, const uint8_t *in, int channels, int height, int width,
                     int orientation);

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads an image file into `pixels` [channels][height][width], 0 … 255. The image must have this
 * height and width after it is rotated as the EXIF orientation in a JPEG, PNG or WebP file says.
 * The size is checked in the header before anything is decoded.
 *
 * Colours are converted like ls_picture_convert. CMYK samples of a JPEG file are read in the form
 * in which Adobe's programs store them (255 is no ink); each of the three colours is multiplied by
 * black. A JPEG file may lack its end marker, and the checksums of ancillary PNG chunks may be
 * wrong. Pixels with alpha are laid on white: colour · alpha + white · (1 − alpha). Of 16-bit
 * samples the upper 8 bits are used, unless ls_picture_form.white is set.
 *
 * Errors: LS_ENOENT, LS_EIO; LS_EDATA (the file is damaged, is not an image, or has another size;
 * the message has the byte offset in the file and says what the user can do); LS_EUNSUPPORTED
 * (`channels` is not 1 or 3; or the file has a format that cannot be read, or whose library is
 * missing, and the message names the format); LS_ENOMEM. */
int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err);

/* Buffers and a JPEG decoder that one thread reuses for one image after another. Must be zeroed
 * before the first use. */
typedef struct ls_image_memory {
    ls_scratch file, pixels, scaling, turning, jpeg;
    /* ---- about the last image ---------------------------------------------------------------- */
    bool turned;       /* it was rotated or mirrored, as its EXIF orientation says */
    bool laid;         /* a pixel of it was transparent, and was laid on white */
    int largest;       /* largest visible sample, if it has 16-bit samples; else 0 */
    int width, height; /* size in pixels after the rotation, before scaling */
} ls_image_memory;

/* Frees the buffers and the decoder. A zeroed structure is allowed. */
void ls_image_memory_free(ls_image_memory *kept, const ls_host *host);

/* Reads an image of any size and converts it to a row of the form `form` (ls_picture_scale). A JPEG
 * file may have 65500 pixels in a side and 2³⁰ pixels in all, because a large one is decoded at a
 * half, a quarter or an eighth of its size. Files of other formats may have 16384 pixels in a side
 * and 2²⁶ in all. With form->resize, a JPEG file is decoded at its full size unless it has more
 * pixels than these.
 *
 * - folder: AT_FDCWD; or, to save system calls, the descriptor of the directory that contains
 *   `path`. The file is then opened by the last component of `path` in that directory, and the
 *   caller must know that it is a regular file
 * - kept: memory that is reused between images; its contents do not influence the pixels.
 *   Its facts about the last image are set
 *
 * Errors: those of ls_image_read. One thread for each `kept`. */
int ls_image_fit(uint8_t *pixels, const ls_picture_form *form, int folder, const char *path,
                 ls_image_memory *kept, const ls_host *host, ls_error *err);

/* Sets kept->largest to the largest sample of an image with 16-bit samples, or to 0. Images with
 * fewer bits are not decoded: only their first bytes are read, and they are not checked. `folder`
 * and `path`: as for ls_image_fit. Errors: those of ls_image_fit. */
int ls_image_measure(int folder, const char *path, ls_image_memory *kept, const ls_host *host,
                     ls_error *err);

/* Like ls_image_fit, for the `count` bytes of a file in memory. Messages call it `name`. */
int ls_image_fit_bytes(uint8_t *pixels, const ls_picture_form *form, const char *name,
                       const void *bytes, size_t count, ls_image_memory *kept, const ls_host *host,
                       ls_error *err);

#endif
