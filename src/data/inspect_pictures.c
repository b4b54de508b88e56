/* SPDX-License-Identifier: MIT */
/* Inspects a folder of pictures: decides, from some that are decoded, the size to which they are
 * resized, and whether they have colours. */
#include "data/inspect_parts.h"

#include "data/pictures.h"

#include <fcntl.h>
#include <stdlib.h>

enum {
    /* largest number of pictures that are decoded to find out their size and whether they have
     * colours */
    PICTURES = 24,
    /* Pictures become squares of the median of their shorter sides in pixels, at most this. */
    LARGEST_SIDE = 64
};

static int by_size(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Decodes up to PICTURES pictures, spread over the list. Finds out whether one of them has colours,
 * and stores the median of their shorter sides in *side. */
static int look_at_some(ls_inspection *l, int *side, ls_error *err)
{
    enum { SIDE = 16, ALL = SIDE * SIDE };
    const ls_picture_form small = {3, SIDE, SIDE, {0}, 0};
    uint8_t pixel[3 * ALL];
    int shorter[PICTURES], count = 0;
    ls_image_memory kept = {0};
    const ls_folder_listing *list = &l->listed.split[0];
    const ls_pictures *pictures;
    int status = ls_pictures_find(&pictures, l->pack.pictures, err);
    if (status)
        return status;
    l->grey = true;
    for (size_t i = 0; i < PICTURES && i < list->count; i++) {
        const size_t at = list->count <= PICTURES ? i : i * list->count / PICTURES;
        status = pictures->fit(pixel, &small, AT_FDCWD, list->entry[at].path, &kept, l->host, err);
        if (status)
            continue; /* a run reports such pictures */
        shorter[count++] = kept.width < kept.height ? kept.width : kept.height;
        for (int k = 0; k < ALL; k++)
            l->grey = l->grey && pixel[k] == pixel[k + ALL] && pixel[k] == pixel[k + 2 * ALL];
    }
    pictures->memory_free(&kept, l->host);
    if (count == 0)
        return status;
    qsort(shorter, (size_t)count, sizeof *shorter, by_size);
    *side = shorter[count / 2];
    return LS_OK;
}

int ls_inspect_folder(ls_inspection *l, ls_error *err)
{
    const ls_data_keys *k = &l->given.keys;
    int side = LARGEST_SIDE;
    l->pack.folder = l->path;
    l->pack.test_folder = k->test_path;
    l->listed = (ls_folder){.p = &l->pack, .host = l->host, .err = err};
    int status = ls_folder_list(&l->listed);
    if (status == LS_OK)
        status = look_at_some(l, &side, err);
    l->rows = (uint32_t)l->listed.split[0].count;
    if (l->given.limit && l->given.limit < l->rows)
        l->rows = l->given.limit;
    l->test_rows = (uint32_t)l->listed.split[1].count;
    l->classes = (int)l->listed.classes.count;
    l->channels = ls_inspect_is_given(l, "channels") || k->pictures ? k->channels : l->grey ? 1 : 3;
    l->grey = l->channels == 1;
    l->resize = k->resize;
    l->pictures = k->pictures;
    ls_data_keys keys = *k;
    if (!ls_inspect_is_given(l, "image_size"))
        keys.image_size = side < LARGEST_SIDE ? side : LARGEST_SIDE;
    const ls_picture_form form = ls_form_of_keys(&keys);
    l->height = form.height;
    l->width = form.width;
    l->mean = 0.5;
    l->deviation = 0.25;
    l->listed.form = form;
    l->listed.form.channels = l->channels;
    return status == LS_OK ? ls_folder_check_differ(&l->listed) : status;
}
