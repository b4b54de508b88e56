/* SPDX-License-Identifier: MIT */
/* Decoding of a *picture*, an image file in memory, into an *image*, an input row of a model.
 *
 *     ls_model_info info = {.size = sizeof info};
 *     ls_model_describe(model, &info, &err);
 *     const size_t size = (size_t)info.channels * info.height * info.width;
 *     uint8_t *row = malloc(size);
 *     // bytes, length: the contents of a PNG or JPEG file
 *     if (ls_model_picture(model, bytes, length, NULL, row, size, &err) == LS_OK)
 *         status = ls_model_predict(model, row, LS_ROW_U8, 1, LS_OUTPUT_PREDICTION, p, 10,
 *                                   &err);
 *
 * This header belongs to a library of its own, liblockstep_picture. The library is built if libspng
 * or libjpeg is found. It links those of libspng, libjpeg and libwebp that are found. liblockstep
 * itself links none of the three. A program links liblockstep_picture and liblockstep:
 * lockstep::picture in CMake, lockstep-picture in pkg-config.
 */
#ifndef LOCKSTEP_PICTURE_H
#define LOCKSTEP_PICTURE_H

#include <lockstep/host.h>
#include <lockstep/model.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Options of ls_model_picture. */
typedef struct ls_picture_options {
    size_t size;         /* sizeof(ls_picture_options) */
    const char *name;    /* name of the image in messages, such as its file name; NULL: "the
                          * picture" */
    const ls_host *host; /* allocator and log, used during the call only; NULL: malloc, no log */
} ls_picture_options;

/* Decodes the image file in `bytes` and writes one row for ls_model_predict.
 *
 * - model: a loaded model (model.h); `row` is an input row for it
 * - bytes, length: the contents of a PNG, JPEG, WebP, BMP, PGM or PPM file and their size in bytes
 * - options: may be NULL
 * - row, capacity: output buffer and its size in bytes. channels × height × width bytes are needed,
 *   as ls_model_describe reports them. After an error the contents of `row` are undefined.
 *
 * The image is prepared exactly as by `trainer predict` and by training on a folder of images:
 *
 * - It is rotated as its EXIF orientation says, and the host's log reports the rotation.
 * - If the training pictures were resized (ls_model_info.resize), it is resized as they were, with
 *   the bytes of Pillow's Image.resize, and its centre is cut out. Otherwise it is scaled, with its
 *   proportions, to the smallest size that covers the model's height and width. The part of its
 *   longer side that sticks out is then cut off, equally at both ends.
 * - Colour becomes grey if the model reads one channel. Grey becomes three equal channels if the
 *   model reads three.
 * - Transparent pixels are laid on white, and of 16-bit samples the upper 8 bits are used. If the
 *   training pictures had 16-bit samples, they are scaled instead: the largest sample of the
 *   training pictures (ls_model_info.white) and larger ones become 255.
 *
 * Limits: the dimensions in the file's header are checked before any memory is allocated. An image
 * may have at most 16384 pixels per side and 2^26 pixels in total. A JPEG may have 65500 pixels per
 * side and 2^30 in total, because it is decoded at a reduced size if it is large.
 * Errors: all messages name the image. LS_EDATA (damaged, truncated, not an image, or too large;
 * the message has the offset), LS_EUNSUPPORTED (the model does not read bytes with 1 or 3 channels;
 * the image's format, which the message names, is not supported; or this build lacks the library
 * that decodes PNG, JPEG or WebP), LS_EINVAL (an argument is NULL, `capacity` is too small, or
 * `options` is of another version), LS_ENOMEM.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_picture(const ls_model *model, const void *bytes, size_t length,
                     const ls_picture_options *options, void *row, size_t capacity, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
