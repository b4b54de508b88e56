/* SPDX-License-Identifier: MIT */
/* The table of the functions that decode image files (data/pictures.h). */
#include "data/pictures.h"

const ls_pictures *lockstep_pictures(void)
{
    static const ls_pictures table = {
        .abi = LS_PICTURES_ABI,
        .size = sizeof(ls_pictures),
        .fit = ls_image_fit,
        .fit_bytes = ls_image_fit_bytes,
        .measure = ls_image_measure,
        .memory_free = ls_image_memory_free,
    };
    return &table;
}
