#include "cpu/cpu_layout.h"

const ls_layout ls_layout_lanes = {LS_CPU_LANES, NULL};

int ls_layout_is_lanes(const ls_layout *layout)
{
    return layout && layout->kind == LS_CPU_LANES;
}

size_t ls_lanes_groups(int rows)
{
    return ((size_t)rows + LS_LANES - 1) / LS_LANES;
}

size_t ls_lanes_bytes(int rows, int c, int h, int w)
{
    return ls_lanes_groups(rows) * LS_LANES * (size_t)c * (size_t)h * (size_t)w * sizeof(float);
}

ls_tensor ls_lanes_tensor(const ls_tensor *like)
{
    ls_tensor t = *like;
    t.layout = &ls_layout_lanes;
    t.bytes = ls_lanes_bytes(t.rows, t.c, t.h, t.w);
    return t;
}

ls_strided ls_strided_plain(int rows, int c, int h, int w)
{
    ls_strided s = {rows, c, h, w, (ptrdiff_t)c * h * w, (ptrdiff_t)h * w, w, 1};
    return s;
}

ls_planes ls_planes_of_lanes(int rows, int c, int h, int w)
{
    size_t pixels = (size_t)h * (size_t)w;
    int groups = (int)ls_lanes_groups(rows);
    return (ls_planes){.rows = groups,
                       .parts = c,
                       .channels = 1,
                       .row = (size_t)c * pixels * LS_LANES,
                       .part = pixels * LS_LANES,
                       .count = pixels,
                       .step = LS_LANES,
                       .width = LS_LANES,
                       .last_width = rows - (groups - 1) * LS_LANES,
                       .lanes = 1};
}

static int rows_of_group(int rows, int group)
{
    int left = rows - group * LS_LANES;
    return left < LS_LANES ? left : LS_LANES;
}

/* One line of pixels of one group. */
static void pack_line(float *lanes, const float *line, const ls_strided *s, int rows)
{
    for (int x = 0; x < s->w; x++, lanes += LS_LANES) {
        const float *pixel = line + x * s->pixel;
        for (int l = 0; l < rows; l++)
            lanes[l] = pixel[l * s->row];
        for (int l = rows; l < LS_LANES; l++)
            lanes[l] = 0;
    }
}

static void unpack_line(float *line, const float *lanes, const ls_strided *s, int rows)
{
    for (int x = 0; x < s->w; x++, lanes += LS_LANES) {
        float *pixel = line + x * s->pixel;
        for (int l = 0; l < rows; l++)
            pixel[l * s->row] = lanes[l];
    }
}

void ls_lanes_pack(float *lanes, const float *strided, const ls_strided *s)
{
    for (int g = 0; g * LS_LANES < s->rows; g++) {
        int rows = rows_of_group(s->rows, g);
        const float *group = strided + (ptrdiff_t)g * LS_LANES * s->row;
        for (int c = 0; c < s->c; c++) {
            for (int y = 0; y < s->h; y++) {
                pack_line(lanes, group + c * s->channel + y * s->line, s, rows);
                lanes += (size_t)s->w * LS_LANES;
            }
        }
    }
}

void ls_lanes_unpack(float *strided, const float *lanes, const ls_strided *s)
{
    for (int g = 0; g * LS_LANES < s->rows; g++) {
        int rows = rows_of_group(s->rows, g);
        float *group = strided + (ptrdiff_t)g * LS_LANES * s->row;
        for (int c = 0; c < s->c; c++) {
            for (int y = 0; y < s->h; y++) {
                unpack_line(group + c * s->channel + y * s->line, lanes, s, rows);
                lanes += (size_t)s->w * LS_LANES;
            }
        }
    }
}
