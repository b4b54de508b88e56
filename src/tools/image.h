/* An image as its file has it, for the readers of the formats. */
#ifndef TOOLS_IMAGE_H
#define TOOLS_IMAGE_H

#include "nn/model.h"

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#define LS_IMAGE_MOST 16384 /* pixels in one direction */

typedef struct ls_image {
    int width, height, channels; /* 1: grey, 3: red, green, blue */
    uint8_t *pixel;              /* [height][width][channels]; the caller's to ls_free */
} ls_image;

/* Refuses an image that is not as large as the model reads. Errors: LS_EDATA with the fix. */
int ls_image_fits(const ls_image *image, const char *path, const ls_shape *shape, ls_error *err);

/* Reads the `length` bytes of a file; its header decides whether the image fits `shape`, before
 * anything is decoded. Errors: LS_EDATA with file and offset, LS_ENOMEM. */
int ls_pnm_read(ls_image *out, const char *path, const uint8_t *bytes, size_t length,
                const ls_shape *shape, const ls_host *host, ls_error *err);
int ls_png_read(ls_image *out, const char *path, const uint8_t *bytes, size_t length,
                const ls_shape *shape, const ls_host *host, ls_error *err);

#endif
