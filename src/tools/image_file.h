/* Reading one image from a file: PGM, PPM (binary, P5 and P6) or PNG (8 bits, not interlaced). */
#ifndef TOOLS_IMAGE_FILE_H
#define TOOLS_IMAGE_FILE_H

#include "nn/model.h"

/* Fills `pixels` ([c][h][w], 0 … 255) from a file that must have the height and width of `shape`.
 * Colours become grey (0.299 red + 0.587 green + 0.114 blue) where c is 1, and grey becomes three
 * equal channels where it is 3; an alpha channel is ignored. Errors: LS_ENOENT, LS_EIO; LS_EDATA for
 * a file that is damaged, of another kind or of another size, with the fix; LS_EUNSUPPORTED when c
 * is neither 1 nor 3; LS_ENOMEM. */
int ls_image_read(uint8_t *pixels, const ls_shape *shape, const char *path, const ls_host *host,
                  ls_error *err);

#endif
