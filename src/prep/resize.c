/* SPDX-License-Identifier: MIT */
/* Writes and reads how pictures are resized (resize.h). */
#include "prep/resize.h"

enum { LARGEST_SIDE = 4096 };

const char *const ls_interpolation_names[] = {"bilinear", "bicubic", NULL};

void ls_prep_write_sides(ls_json_writer *w, const char *key, int height, int width)
{
    if (!width) {
        ls_json_put_int(w, key, height);
        return;
    }
    ls_json_open_array(w, key);
    ls_json_put_int(w, NULL, height);
    ls_json_put_int(w, NULL, width);
    ls_json_close(w);
}

void ls_prep_write_resize(ls_json_writer *w, const ls_prep_resize *r)
{
    if (!r->height)
        return;
    ls_prep_write_sides(w, "resize", r->height, r->width);
    ls_json_put_string(w, "interpolation", ls_interpolation_names[r->interpolation]);
}

void ls_prep_read_sides(ls_fields *f, const char *key, const cJSON *node, int side[2])
{
    const bool pair = cJSON_IsArray(node) && cJSON_GetArraySize(node) == 2;
    const cJSON *item = pair ? node->child : node;
    for (int i = 0; i < (pair ? 2 : 1); i++, item = item->next) {
        if (!cJSON_IsNumber(item) || item->valuedouble < 1 || item->valuedouble > LARGEST_SIDE ||
            item->valuedouble != (int)item->valuedouble) {
            ls_fields_fail(f, node,
                           "%s: expected an integer from 1 to %d, or [height, width], two of them",
                           key, LARGEST_SIDE);
            return;
        }
        side[i] = (int)item->valuedouble;
    }
    if (!pair)
        side[1] = 0;
}

void ls_prep_read_resize(ls_fields *f, ls_prep_resize *r)
{
    const cJSON *node = ls_field_any(f, "resize");
    int side[2] = {0};
    if (!node)
        ls_fields_fail(f, NULL, "expected \"resize\", the size of pictures");
    else
        ls_prep_read_sides(f, "resize", node, side);
    r->height = side[0];
    r->width = side[1];
    ls_field_choice(f, "interpolation", ls_interpolation_names, NULL, &r->interpolation);
}

bool ls_prep_covers(const ls_prep_resize *r, int height, int width)
{
    return r->height >= height && (r->width ? r->width : r->height) >= width;
}
