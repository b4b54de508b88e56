/* The kinds of image files, and what they are made of: each is a file image_KIND.c, but PGM and PPM, which are in
 * image.c. */
#ifndef DATA_IMAGE_KINDS_H
#define DATA_IMAGE_KINDS_H

#include "data/image.h"

enum {
    LS_IMAGE_SIDE = 16384,  /* the most pixels in one direction that are decoded */
    LS_IMAGE_AREA = 1 << 26 /* and in all: a small file may say anything */
};

typedef struct ls_image ls_image;

/* What a kind of files is read by. Pixels are asked of files alone whose header could be read; all are closed. */
typedef struct ls_image_kind {
    const char *magic;  /* a file's first bytes, */
    const char *magic8; /* and those from the ninth on; NULL: any */
    int (*read_header)(ls_image *i);
    int (*read_pixels)(ls_image *i, size_t count);
    /* NULL: it has none. What is decoded may be smaller than the file says, and be scaled while it is decoded. */
    void (*shrink)(ls_image *i, int height, int width);
    int (*scale)(ls_image *i, uint8_t *out, int channels, int height, int width);
    void (*close)(const ls_image *i, int status);
    int side;     /* the most pixels in one direction, where it shrinks; 0: LS_IMAGE_SIDE */
    int64_t area; /* the most in all, where it shrinks; 0: LS_IMAGE_AREA */
} ls_image_kind;

struct ls_image {
    int folder; /* of path; or AT_FDCWD */
    const char *path;
    const uint8_t *bytes; /* the file */
    size_t length, at;
    int width, height, channels; /* as a picture's, before it is turned */
    double across, down;         /* the same */
    int turn;                    /* EXIF's orientation, 1 … 8; 0: the same as 1 */
    int largest;                 /* PNM: the value of white */
    const ls_image_kind *kind;   /* NULL: not known as yet, or none */
    void *decoder;               /* PNG's, or JPEG's */
    bool cut_off;                /* it wanted more bytes than there are */
    uint8_t *pixel;
    ls_image_memory *kept;
    const ls_host *host;
    ls_error *err;
};

extern const ls_image_kind ls_image_png, ls_image_jpeg, ls_image_bmp, ls_image_webp;

/* Fails for want of memory. */
int ls_image_no_memory(const ls_image *i);
/* Makes room for the decoded pixels at i->pixel. Errors: LS_ENOMEM. */
int ls_image_take_pixels(ls_image *i, size_t bytes);
/* Frees the decoder that a thread keeps for JPEG. */
void ls_image_drop_jpeg(const ls_image_memory *kept);

/* The orientation in a block of EXIF data, which begins like a TIFF file: 1 … 8; 1 where it does not say. Nothing
 * beyond `count` bytes is read. */
int ls_exif_orientation(const uint8_t *exif, size_t count);

#endif
