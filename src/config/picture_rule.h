/* SPDX-License-Identifier: MIT */
/* The values of data.pictures: each is a name for a size and scales of pictures, by which they
 * become the rows of a network. */
#ifndef CONFIG_PICTURE_RULE_H
#define CONFIG_PICTURE_RULE_H

#include "nn/network.h"
#include "prep/resize.h"

typedef struct ls_picture_rule {
    const char *name;
    ls_prep_resize resize;
    int crop, channels;
    float mean[4], std[4];
} ls_picture_rule;

/* "imagenet": the rule of torchvision's networks for ImageNet, ImageClassification() */
extern const ls_picture_rule ls_imagenet_rule;

/* Returns the rule with this name; NULL: there is none, or `name` is NULL. */
const ls_picture_rule *ls_picture_rule_named(const char *name);
/* Returns the rule by which pictures become rows of the shape `row` with these scales; NULL: there
 * is none. */
const ls_picture_rule *ls_picture_rule_of(const ls_shape *row, const ls_prep_resize *resize,
                                          const float *mean, const float *std);

#endif
