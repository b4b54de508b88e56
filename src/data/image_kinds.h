/* SPDX-License-Identifier: MIT */
/* The interface of an image format's decoder, and functions that the decoders share. Each format
 * has a file image_FORMAT.c, except PGM and PPM, which are in image.c. */
#ifndef DATA_IMAGE_KINDS_H
#define DATA_IMAGE_KINDS_H

#include "data/image.h"

enum {
    LS_IMAGE_SIDE = 16384, /* largest width and height in pixels */
    /* largest width × height; a limit is needed because a small file can claim any size */
    LS_IMAGE_AREA = 1 << 26
};

typedef struct ls_image ls_image;

/* The functions of an image format. read_pixels is called only if read_header has succeeded. close
 * is always called. */
typedef struct ls_image_kind {
    const char *magic;  /* first bytes of a file */
    const char *magic8; /* bytes from the ninth on; NULL: any */
    int (*read_header)(ls_image *i);
    int (*read_pixels)(ls_image *i, size_t count);
    /* Chooses a reduced size at which the decoder decodes the image, no smaller than height ×
     * width, and updates i->width and i->height. NULL: the format cannot be decoded at a reduced
     * size. */
    void (*shrink)(ls_image *i, int height, int width);
    /* Decodes and scales the image line by line. NULL: read_pixels decodes the whole image, which
     * is scaled afterwards. */
    int (*scale)(ls_image *i, uint8_t *out, const ls_picture_form *form);
    void (*close)(const ls_image *i, int status);
    /* largest width and height in pixels if `shrink` is given; 0: LS_IMAGE_SIDE */
    int side;
    int64_t area; /* largest width × height if `shrink` is given; 0: LS_IMAGE_AREA */
} ls_image_kind;

/* An image file that is being read. */
struct ls_image {
    int folder; /* directory of `path`, or AT_FDCWD */
    const char *path;
    const uint8_t *bytes;        /* content of the file */
    size_t length, at;           /* number of these bytes; offset of the next byte to read */
    int width, height, channels; /* as in ls_picture, before rotation */
    double across, down;         /* as in ls_picture */
    /* EXIF orientation, 1 … 8; 0: the file has none, and the image is not rotated */
    int turn;
    int white;                 /* ls_picture_form.white; PNM: the value of white */
    const ls_image_kind *kind; /* NULL: the format has not been detected, or is not supported */
    void *decoder;             /* decoder of PNG or JPEG */
    bool cut_off;              /* the decoder asked for bytes after the end of the file */
    uint8_t *pixel;            /* decoded pixels */
    ls_image_memory *kept;     /* memory that is reused between images */
    const ls_host *host;
    ls_error *err;
};

extern const ls_image_kind ls_image_png, ls_image_jpeg, ls_image_bmp, ls_image_webp;

/* Fails with LS_ENOMEM. */
int ls_image_no_memory(const ls_image *i);
/* Allocates `bytes` bytes at i->pixel for the decoded pixels. Errors: LS_ENOMEM. */
int ls_image_take_pixels(ls_image *i, size_t bytes);
/* Returns a sample as a byte: `white` and larger samples become 255. */
static inline uint8_t ls_image_byte(unsigned sample, unsigned white)
{
    return (uint8_t)(((sample < white ? sample : white) * 255u + white / 2) / white);
}
/* Returns a sample that is laid on white: sample · alpha + white · (1 − alpha). */
static inline uint8_t ls_image_on_white(unsigned sample, unsigned alpha)
{
    return (uint8_t)((sample * alpha + 255u * (255u - alpha) + 127u) / 255u);
}
/* Lays the decoded pixels on white. Their fourth sample is alpha. */
void ls_image_lay_on_white(const ls_image *i, size_t pixels);
/* Number of bytes at the start of a PNG file that say how many bits its samples have. */
enum { LS_PNG_START = 25 };
/* Returns whether these bytes are those of a PNG file with 16-bit samples. */
static inline bool ls_image_png_is_long(const uint8_t start[LS_PNG_START])
{
    return start[0] == 0x89 && start[1] == 'P' && start[2] == 'N' && start[3] == 'G' &&
           start[LS_PNG_START - 1] == 16;
}
/* Destroys the JPEG decoder in a thread's memory. */
void ls_image_drop_jpeg(const ls_image_memory *kept);

/* Returns the orientation, 1 … 8, that a block of `count` bytes of EXIF data contains, or 1 if it
 * contains none. The block begins like a TIFF file. Reads nothing beyond `count` bytes. */
int ls_exif_orientation(const uint8_t *exif, size_t count);

#endif
