/* SPDX-License-Identifier: MIT */
/* How pictures are resized before their centre is cut out: the description, and its JSON (prep.h).
 * data/picture_resize.c does it. */
#ifndef PREP_RESIZE_H
#define PREP_RESIZE_H

#include "json/fields.h"
#include "json/writer.h"

#include <stdbool.h>

/* The filters of Pillow, with the numbers of ls_interpolation (<lockstep/model.h>). */
enum { LS_PREP_BILINEAR, LS_PREP_BICUBIC };

/* Size in pixels to which a picture is resized. `width` 0: `height` is the size of the shorter
 * side, and the picture keeps its proportions. Both 0: pictures are not resized in this way. */
typedef struct ls_prep_resize {
    int height, width, interpolation;
} ls_prep_resize;

/* Names of the interpolations, by their numbers. The last entry is NULL. */
extern const char *const ls_interpolation_names[];
/* Writes how pictures are resized as members of the open JSON object: "resize" and "interpolation".
 * Writes nothing if they are not resized. */
void ls_prep_write_resize(ls_json_writer *w, const ls_prep_resize *resize);
/* Reads these members. A missing member "resize" is an error. */
void ls_prep_read_resize(ls_fields *f, ls_prep_resize *resize);
/* Reads the value of a key that is one size in pixels, or [height, width]: stores the size in
 * side[0] and 0 in side[1], or both. */
void ls_prep_read_sides(ls_fields *f, const char *key, const cJSON *node, int side[2]);
/* Writes such a value. */
void ls_prep_write_sides(ls_json_writer *w, const char *key, int height, int width);
/* Returns whether every picture that is resized like this is as large as height × width, so that
 * its centre can be cut out. */
bool ls_prep_covers(const ls_prep_resize *resize, int height, int width);

#endif
