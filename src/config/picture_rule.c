/* SPDX-License-Identifier: MIT */
/* The values of data.pictures (picture_rule.h). */
#include "config/picture_rule.h"

#include <string.h>

const ls_picture_rule ls_imagenet_rule = {.name = "imagenet",
                                          .resize = {256, 0, LS_PREP_BILINEAR},
                                          .crop = 224,
                                          .channels = 3,
                                          .mean = {0.485f, 0.456f, 0.406f, 0.406f},
                                          .std = {0.229f, 0.224f, 0.225f, 0.225f}};

const ls_picture_rule *ls_picture_rule_named(const char *name)
{
    return name && strcmp(name, ls_imagenet_rule.name) == 0 ? &ls_imagenet_rule : NULL;
}

const ls_picture_rule *ls_picture_rule_of(const ls_shape *row, const ls_prep_resize *resize,
                                          const float *mean, const float *std)
{
    const ls_picture_rule *r = &ls_imagenet_rule;
    bool same = row->c == r->channels && row->h == r->crop && row->w == r->crop &&
                resize->height == r->resize.height && resize->width == r->resize.width &&
                resize->interpolation == r->resize.interpolation;
    for (int i = 0; i < r->channels && same; i++)
        same = mean[i] == r->mean[i] && std[i] == r->std[i];
    return same ? r : NULL;
}
