/* SPDX-License-Identifier: MIT */
/* Converts encoded pictures to rows of a model. This file uses only public functions of the library
 * that contains the model, so that it can be built as a library of its own. */
#include "base/error.h"
#include "base/host.h"
#include "base/sized.h"
#include "base/stack.h"
#include "base/thread_state.h"
#include "data/image.h"

#include <lockstep/picture.h>

static int check_model(const ls_model_info *info, const char *name, ls_error *err)
{
    if (info->row_type != LS_ROW_U8)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: the model reads rows of %d×%d×%d floats, not pictures; pass whole "
                       "rows to ls_model_predict, and those of a table by ls_model_row",
                       name, info->channels, info->height, info->width);
    if (info->channels != 1 && info->channels != 3)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "%.300s: the model reads rows of %d channels, and pictures have 1 or 3; "
                       "pass whole rows to ls_model_predict",
                       name, info->channels);
    return LS_OK;
}

int ls_model_picture(const ls_model *model, const void *bytes, size_t length,
                     const ls_picture_options *options, void *row, size_t capacity, ls_error *err)
{
    LS_OWN_ARITHMETIC;
    ls_picture_options o = {.size = sizeof o};
    ls_image_memory kept = {0};
    ls_model_info info = {.size = sizeof info};
    if (!model || !bytes || !row)
        return ls_fail(err, LS_EINVAL, "ls_model_picture: no model, bytes or row");
    int status = options ? ls_sized_take(&o, sizeof o, options, "ls_picture_options", err) : LS_OK;
    if (status == LS_OK)
        status = ls_host_check(o.host, err);
    if (status == LS_OK)
        status = ls_stack_check(LS_CALL_STACK_BYTES, "ls_model_picture", err);
    if (status)
        return status;
    const char *name = o.name ? o.name : "the picture";
    ls_model_describe(model, &info, NULL);
    const size_t needed = (size_t)info.channels * (size_t)info.height * (size_t)info.width;
    status = check_model(&info, name, err);
    if (status == LS_OK && capacity < needed)
        return ls_fail(err, LS_EINVAL, "%.300s: room for %zu bytes, %zu are needed", name, capacity,
                       needed);
    if (status)
        return status;
    const ls_prep_resize resize = {info.resize.height, info.resize.width,
                                   info.resize.interpolation};
    const ls_picture_form form = {info.channels, info.height, info.width, resize, info.white};
    status = ls_image_fit_bytes(row, &form, name, bytes, length, &kept, o.host, err);
    if (kept.turned)
        ls_log(o.host, LS_LOG_INFO, "%.300s: turned as its EXIF orientation says", name);
    ls_image_memory_free(&kept, o.host);
    return status;
}
