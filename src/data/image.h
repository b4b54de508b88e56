/* Reading one image from a file: PGM, PPM (binary, P5 and P6), BMP; PNG, JPEG and WebP where libspng, libjpeg and
 * libwebp were there when this was compiled. The library does without it: it is compiled into src/picture. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- pixels that are decoded, as a model reads them (picture.c) ---------------------------------- */

/* One byte behind the last sample of a row can be read, too. Pixels lie in memory, or come by rows: row(source, y) is
 * asked for lines from the first to the last, each of them lives until the sixteenth behind it is asked for. */
typedef struct ls_picture {
    int width, height, channels; /* 1: grey; 3 or 4: red, green, blue, alpha */
    const uint8_t *pixel;        /* [height][width][channels] */
    const uint8_t *(*row)(void *source, int y);
    void *source;
    /* Of width and height, if not all: the last pixels may be partly outside. */
    double across, down;
} ls_picture;

/* Memory that is asked for once, and again where more is needed; zeroed to begin with. */
typedef struct ls_room {
    void *memory;
    size_t bytes;
} ls_room;

/* At least so many bytes, whatever is in them; NULL where there is no memory for them. */
void *ls_room_of(ls_room *room, size_t bytes, const ls_host *host);
void ls_room_free(ls_room *room, const ls_host *host);

/* → out [channels][height][width]. Colours become grey (0.299 red + 0.587 green + 0.114 blue) where `channels` is
 * 1, and grey becomes three equal channels where it is 3; alpha is ignored. */
void ls_picture_convert(uint8_t *out, int channels, const ls_picture *p);

/* The same, scaled to height × width by an average over triangles as wide as what they shrink, so that the shorter
 * side fits, and cut to the middle. False: no memory. */
bool ls_picture_scale(uint8_t *out, int channels, int height, int width, const ls_picture *p,
                      ls_room *room, const ls_host *host);

/* → out: `in` [channels][height][width], turned and mirrored as EXIF's orientation 1 … 8 says; from 5 on it is
 * [channels][width][height]. The two do not overlap. */
void ls_picture_turn(uint8_t *out, const uint8_t *in, int channels, int height, int width,
                     int orientation);

/* ---- files -------------------------------------------------------------------------------------- */

/* Fills `pixels` ([channels][height][width], 0 … 255) from a file that must have that height and width once it is turned
 * as EXIF's orientation in a JPEG, PNG or WebP file says; its header is asked before anything is decoded. The four colours
 * of print in a JPEG file become three, each times black, as they are stored by Adobe's programs: 255 is no ink. A JPEG
 * file may lack its end, and ancillary chunks of a PNG file their checksums. Colours become grey (0.299 red + 0.587 green + 0.114
 * blue) where `channels` is 1, and grey becomes three equal channels where it is 3; an alpha channel is
 * ignored, and of 16 bits the upper 8 count. Errors: LS_ENOENT, LS_EIO; LS_EDATA with the offset for a
 * file that is damaged, is none or is of another size, with the fix; LS_EUNSUPPORTED when `channels` is neither 1 nor 3,
 * for files of other kinds, which are named, and for those whose library is not there; LS_ENOMEM. */
int ls_image_read(uint8_t *pixels, int channels, int height, int width, const char *path,
                  const ls_host *host, ls_error *err);

/* What one thread keeps from an image to the next: memory, and a decoder. Zeroed to begin with. */
typedef struct ls_image_memory {
    ls_room file, pixels, scaling, turning, jpeg;
    bool turned; /* the image that was read last, as its EXIF orientation says */
} ls_image_memory;

void ls_image_memory_free(ls_image_memory *kept, const ls_host *host);

/* The same for a file of any size, as ls_picture_scale does. A JPEG file may have 65500 pixels in a side and 2³⁰ in all,
 * as it is decoded at a half, a quarter or an eighth where it is large; others 16384 and 2²⁶. What was read before with the
 * same memory changes nothing but `turned`. `folder`: the directory of `path`, open, where that is known to be a plain file,
 * which saves some calls; or AT_FDCWD. */
int ls_image_fit(uint8_t *pixels, int channels, int height, int width, int folder, const char *path,
                 ls_image_memory *kept, const ls_host *host, ls_error *err);

/* The same for a file's `count` bytes in memory, which messages call `name`. */
int ls_image_fit_bytes(uint8_t *pixels, int channels, int height, int width, const char *name,
                       const void *bytes, size_t count, ls_image_memory *kept, const ls_host *host,
                       ls_error *err);

#endif
