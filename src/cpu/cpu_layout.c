#include "cpu/cpu_layout.h"

const ls_layout ls_layout_lanes = {1};

bool ls_layout_is_lanes(const ls_layout *layout)
{
    return layout == &ls_layout_lanes;
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

static int rows_of_group(int rows, int group)
{
    int left = rows - group * LS_LANES;
    return left < LS_LANES ? left : LS_LANES;
}

#define LINE 16 /* floats of a row that are worked through at a time: a line of cache */

void ls_plain_to_lanes(float *lanes, const float *plain, const ls_tensor *t)
{
    const size_t row = (size_t)t->c * (size_t)t->h * (size_t)t->w;
    for (int first = 0; first < t->rows; first += LS_LANES, lanes += row * LS_LANES) {
        const int rows = rows_of_group(t->rows, first / LS_LANES);
        const float *from = plain + (size_t)first * row;
        for (size_t at = 0; at < row; at += LINE)
            for (int l = 0; l < LS_LANES; l++)
                for (size_t e = at; e < at + LINE && e < row; e++)
                    lanes[e * LS_LANES + (size_t)l] = l < rows ? from[(size_t)l * row + e] : 0;
    }
}

void ls_lanes_to_plain(float *plain, const float *lanes, const ls_tensor *t)
{
    const size_t row = (size_t)t->c * (size_t)t->h * (size_t)t->w;
    for (int first = 0; first < t->rows; first += LS_LANES, lanes += row * LS_LANES) {
        const int rows = rows_of_group(t->rows, first / LS_LANES);
        float *to = plain + (size_t)first * row;
        for (size_t at = 0; at < row; at += LINE)
            for (int l = 0; l < rows; l++)
                for (size_t e = at; e < at + LINE && e < row; e++)
                    to[(size_t)l * row + e] = lanes[e * LS_LANES + (size_t)l];
    }
}
