/* An encoded picture in memory as a model's row, in a library beside liblockstep: liblockstep_picture.
 *
 *     const size_t size = (size_t)info.channels * info.height * info.width;      // ls_snapshot_describe
 *     uint8_t *row = malloc(size);
 *     if (ls_model_picture(model, bytes, length, NULL, row, size, &err) == LS_OK)     // a PNG or JPEG file's bytes
 *         status = ls_model_run(model, row, 1, LS_OUTPUT_PROBABILITIES, p, &err);
 *
 * The library is built where libspng or libjpeg is found, and links them; liblockstep links neither. Link both:
 * lockstep::picture in CMake, lockstep-picture in pkg-config.
 */
#ifndef LOCKSTEP_PICTURE_H
#define LOCKSTEP_PICTURE_H

#include <lockstep/host.h>
#include <lockstep/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ls_picture_options {
    size_t size; /* sizeof(ls_picture_options) */
    const char
        *name; /* what messages call the picture, its file's name, say; NULL: "the picture" */
    const ls_host *host; /* memory for the time of the call; NULL: the defaults */
} ls_picture_options;

/* The `length` bytes of a picture's file (PNG, JPEG, WebP, BMP, PGM or PPM, of any size) → `row`, one row for
 * ls_model_run, which has room for `capacity` bytes: channels × height × width are needed (ls_snapshot_describe).
 * The picture is prepared as `trainer predict` does, and the training of a folder: turned as its EXIF orientation
 * says, which the host's log says, scaled so that its shorter side fits, and cut to the middle; colours become
 * grey where the model reads one channel, and grey becomes three equal channels where it reads three; alpha is
 * ignored, and of 16 bits the upper 8 count. The header is asked first: a picture of more than 16384 pixels in a
 * side or 2^26 in all, of JPEG, which is decoded smaller, 65500 and 2^30, is refused before memory is asked for.
 * After an error the row's contents are undefined. `options` may be NULL. Any thread, any number of them at a
 * time. Errors, which name the picture: LS_EDATA (damaged, cut off, of another kind, or too large; with the
 * offset), LS_EUNSUPPORTED (the model reads floats, or rows of neither 1 nor 3 channels; a picture of another
 * kind, which is named; PNG, JPEG or WebP without the library that reads it), LS_EINVAL (an argument is NULL, too
 * little room, options of another version), LS_ENOMEM. */
int ls_model_picture(const ls_snapshot *model, const void *bytes, size_t length,
                     const ls_picture_options *options, void *row, size_t capacity, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
