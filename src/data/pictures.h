/* SPDX-License-Identifier: MIT */
/* The functions that decode image files, as a table. liblockstep links no image library: the
 * functions of data/image.h are compiled into the room picture, a part of the program and of
 * liblockstep_picture. The program passes its own table (ls_trainer_sys.pictures). Without one,
 * liblockstep_picture is loaded when the first image is decoded (device/registry.h). */
#ifndef DATA_PICTURES_H
#define DATA_PICTURES_H

#include "data/image.h"

/* Version of this table, of ls_image_memory and of ls_picture_form. */
enum { LS_PICTURES_ABI = 5 };

/* The function of liblockstep_picture that returns its table. */
#define LS_PICTURES_ENTRY "lockstep_pictures"

typedef struct ls_pictures {
    uint32_t abi; /* LS_PICTURES_ABI */
    size_t size;  /* sizeof(ls_pictures) */
    /* ls_image_fit, ls_image_fit_bytes, ls_image_measure and ls_image_memory_free (data/image.h) */
    int (*fit)(uint8_t *pixels, const ls_picture_form *form, int folder, const char *path,
               ls_image_memory *kept, const ls_host *host, ls_error *err);
    int (*fit_bytes)(uint8_t *pixels, const ls_picture_form *form, const char *name,
                     const void *bytes, size_t count, ls_image_memory *kept, const ls_host *host,
                     ls_error *err);
    int (*measure)(int folder, const char *path, ls_image_memory *kept, const ls_host *host,
                   ls_error *err);
    void (*memory_free)(ls_image_memory *kept, const ls_host *host);
} ls_pictures;

typedef const ls_pictures *ls_pictures_entry_fn(void);

/* Returns the table of this build's own functions. It is defined in the room picture, and exported
 * by liblockstep_picture. */
__attribute__((visibility("default"))) const ls_pictures *lockstep_pictures(void);

/* Finds the table: `given`, or the table of liblockstep_picture if `given` is NULL. Any thread.
 * Errors: LS_EUNSUPPORTED (the library is missing or was built for another version; the message
 * names the package). */
int ls_pictures_find(const ls_pictures **out, const ls_pictures *given, ls_error *err);

#endif
