/* Reading one image from a file: PGM, PPM (binary, P5 and P6), PNG and JPEG where libspng and libjpeg were
 * there when this was compiled. The library does not need it: a program that reads images compiles image.c. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

/* Fills `pixels` ([channels][height][width], 0 … 255) from a file that must have that height and width;
 * its header is asked before anything is decoded. Colours become grey (0.299 red + 0.587 green + 0.114
 * blue) where `channels` is 1, and grey becomes three equal channels where it is 3; an alpha channel is
 * ignored, and of 16 bits the upper 8 count. Errors: LS_ENOENT, LS_EIO; LS_EDATA with the offset for a
 * file that is damaged, of another kind or of another size, with the fix; LS_EUNSUPPORTED when
 * `channels` is neither 1 nor 3, and for PNG without libspng; LS_ENOMEM. */
int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err);

/* The same for a file of any size: scaled, by an average over triangles as wide as what they shrink, so that
 * the shorter side fits, and cut to the middle. */
int ls_image_fit(uint8_t *pixels, int channels, int height, int width, const char *path,
                 const ls_host *host, ls_error *err);

#endif
