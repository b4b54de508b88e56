/* Reading one image from a file: PGM, PPM (binary, P5 and P6), PNG and JPEG where libspng and libjpeg were
 * there when this was compiled. The library does not need it: a program that reads images compiles image.c and picture.c. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include "data/picture.h"

#include <lockstep/status.h>

/* Fills `pixels` ([channels][height][width], 0 … 255) from a file that must have that height and width;
 * its header is asked before anything is decoded. Colours become grey (0.299 red + 0.587 green + 0.114
 * blue) where `channels` is 1, and grey becomes three equal channels where it is 3; an alpha channel is
 * ignored, and of 16 bits the upper 8 count. Errors: LS_ENOENT, LS_EIO; LS_EDATA with the offset for a
 * file that is damaged, of another kind or of another size, with the fix; LS_EUNSUPPORTED when
 * `channels` is neither 1 nor 3, and for PNG without libspng; LS_ENOMEM. */
int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err);

/* What one thread keeps from an image to the next: memory, and a decoder. Zeroed to begin with. */
typedef struct ls_image_memory {
    ls_room file, pixels, scaling, jpeg;
} ls_image_memory;

void ls_image_memory_free(ls_image_memory *kept, const ls_host *host);

/* The same for a file of any size, as ls_picture_scale does. What was read before with the same memory changes
 * nothing. */
int ls_image_fit(uint8_t *pixels, int channels, int height, int width, const char *path,
                 ls_image_memory *kept, const ls_host *host, ls_error *err);

#endif
