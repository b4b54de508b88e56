/* SPDX-License-Identifier: MIT */
/* Converts decoded pictures to the rows of a model: scales, cuts and rotates them (image.h). */
#include "data/image.h"

#include "base/host.h"

#include <string.h>

/* ---- memory --------------------------------------------------------------------------------- */

void *ls_scratch_get(ls_scratch *scratch, size_t bytes, const ls_host *host)
{
    if (scratch->bytes >= bytes)
        return scratch->memory;
    ls_scratch_free(scratch, host);
    scratch->memory = ls_alloc(host, bytes + bytes / 4);
    scratch->bytes = scratch->memory ? bytes + bytes / 4 : 0;
    return scratch->memory;
}

void ls_scratch_free(ls_scratch *scratch, const ls_host *host)
{
    ls_free(host, scratch->memory);
    *scratch = (ls_scratch){NULL, 0};
}

void *ls_scratch_take(char *memory, size_t *at, size_t bytes)
{
    char *out = memory ? memory + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return out;
}

/* ---- conversion without scaling -------------------------------------------------------------- */

static inline uint8_t grey(const uint8_t *rgb)
{
    return (uint8_t)((299u * rgb[0] + 587u * rgb[1] + 114u * rgb[2] + 500u) / 1000u);
}

static void to_grey(uint8_t *restrict out, const ls_picture *p)
{
    const size_t count = (size_t)p->width * (size_t)p->height, step = (size_t)p->channels;
    for (size_t k = 0; k < count; k++)
        out[k] = grey(p->pixel + k * step);
}

static void to_planes(uint8_t *restrict out, const ls_picture *p)
{
    const size_t count = (size_t)p->width * (size_t)p->height, step = (size_t)p->channels;
    const uint8_t *rgb = p->pixel;
    for (size_t k = 0; k < count; k++, rgb += step) {
        out[k] = rgb[0];
        out[count + k] = rgb[1];
        out[2 * count + k] = rgb[2];
    }
}

void ls_picture_convert(uint8_t *out, int channels, const ls_picture *p)
{
    const size_t count = (size_t)p->width * (size_t)p->height;
    if (p->channels > 1 && channels == 1)
        to_grey(out, p);
    else if (p->channels > 1)
        to_planes(out, p);
    for (int c = 0; p->channels == 1 && c < channels; c++)
        memcpy(out + (size_t)c * count, p->pixel, count);
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* The loop runs over the output pixels and computes the input pixel of each. For orientations above
 * 4, rows of the input become columns of the output. */
void ls_picture_turn(uint8_t *out, const uint8_t *in, int channels, int height, int width,
                     int orientation)
{
    const size_t h = (size_t)height, w = (size_t)width;
    const bool lies = orientation > 4;
    const bool upward =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool leftward =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const size_t high = lies ? w : h, wide = lies ? h : w;
    for (size_t c = 0; c < (size_t)channels; c++, in += h * w)
        for (size_t y = 0; y < high; y++)
            for (size_t x = 0; x < wide; x++) {
                const size_t row = lies ? x : y, column = lies ? y : x;
                *out++ =
                    in[(upward ? h - 1 - row : row) * w + (leftward ? w - 1 - column : column)];
            }
}

/* ---- scaling ------------------------------------------------------------------------------------
 *
 * A picture is scaled in one direction after the other: first all needed lines to `width` columns,
 * then the columns to `height` lines. 16 samples (LANES) are processed at a time: the 4 samples of
 * a pixel (the fourth is not used) in each of 4 lines of the picture, or the single grey sample in
 * each of 16 lines. The samples of one column in these lines form an entry of the *tile*. */

enum { LANES = 16 };

/* Weights for scaling in one direction. Output i is the weighted sum of count[i] pixels, from pixel
 * first[i] on; the weights add up to 1. */
typedef struct side {
    int *first, *count, most; /* [outputs] both; capacity for the weights of one output */
    float *weight;            /* [outputs][most] */
} side;

/* State of scaling a picture. */
typedef struct scaling {
    const ls_picture *from;
    int height, width, lanes; /* lanes: number of samples of a pixel in the tile, 4 or 1 */
    side rows, columns;
    size_t pitch;
    uint8_t (*tile)[LANES]; /* [width of the picture]: the pixels of a column in several lines */
    float (*wide)[LANES];   /* the values of `tile` as floats */
    /* [height of the picture][pitch]: the lines, scaled to `width` columns */
    float *line;
} scaling;

static int weigh(float *weight, int *first, int o, double from, double step, int size)
{
    const double reach = step > 1 ? step : 1, middle = from + (o + 0.5) * step;
    double sum = 0;
    int n = 0;
    *first = (int)(middle - reach > 0 ? middle - reach : 0);
    for (int k = *first; k < size && k < middle + reach; k++, n++) {
        const double far = (k + 0.5 - middle) / reach, w = 1 - (far < 0 ? -far : far);
        weight[n] = (float)(w > 0 ? w : 0);
        sum += (double)weight[n];
    }
    for (int k = 0; k < n; k++)
        weight[k] /= (float)sum;
    return n;
}

static void weigh_side(side *s, int outputs, double step, int size, double extent)
{
    const double from = (extent - step * outputs) / 2;
    for (int o = 0; o < outputs; o++)
        s->count[o] = weigh(s->weight + (ptrdiff_t)o * s->most, &s->first[o], o, from, step, size);
}

static int end_of(const side *s, int outputs)
{
    int end = 0;
    for (int o = 0; o < outputs; o++)
        end = s->first[o] + s->count[o] > end ? s->first[o] + s->count[o] : end;
    return end;
}

/* Copies lines of the picture to the tile, from line y on, interleaved by columns: 4 lines of 4
 * samples or 16 lines of 1 sample. Line `end` and later lines are replaced by the last line before
 * them. */
static void lay_rows(const scaling *s, int y, int end, int left, int right)
{
    const size_t step = (size_t)s->from->channels;
    const uint8_t *row[LANES] = {NULL}, *last = NULL;
    uint8_t(*restrict tile)[LANES] = s->tile;
    for (int r = 0; r < LANES / s->lanes; r++) {
        last = y + r < end ? ls_picture_line(s->from, y + r) : last;
        row[r] = last;
    }
    for (size_t x = (size_t)left; s->lanes == 4 && x < (size_t)right; x++)
        for (int r = 0; r < LANES / 4; r++)
            memcpy(tile[x] + 4 * r, row[r] + x * step, 4);
    for (size_t x = (size_t)left; s->lanes == 1 && x < (size_t)right; x++)
        for (int r = 0; r < LANES; r++)
            tile[x][r] = step == 1 ? row[r][x] : grey(row[r] + x * step);
}

static inline void store_columns(const scaling *s, const float sum[LANES], int y, int rows, int x)
{
    float *to = s->line + (size_t)y * s->pitch + (size_t)x * (size_t)s->lanes;
    if (s->lanes == 4 && rows == 4)
        for (size_t r = 0; r < 4; r++)
            memcpy(to + r * s->pitch, sum + 4 * r, 4 * sizeof *sum);
    else if (s->lanes == 4)
        for (size_t r = 0; r < (size_t)rows; r++)
            memcpy(to + r * s->pitch, sum + 4 * r, 4 * sizeof *sum);
    else
        for (size_t r = 0; r < (size_t)rows; r++)
            to[r * s->pitch] = sum[r];
}

/* The inner loops for an instruction set. */
typedef struct scaler {
    void (*columns)(const scaling *s, int y, int rows, int left, int right);
    void (*rows)(const scaling *s, int32_t sample[LANES], int y, size_t at);
} scaler;

#define SCALE_SET plain
#define SCALE_VEC 4
#define SCALE_TARGET
#include "data/picture_kernel.inc"
#if defined(__x86_64__)
/* Clang knows the vectors' preferred width as an option of the command line only. */
#ifdef __clang__
#define SCALE_WIDTH
#else
#define SCALE_WIDTH ",prefer-vector-width=512"
#endif
#define SCALE_SET avx2
#define SCALE_VEC 8
#define SCALE_TARGET __attribute__((target("avx2")))
#include "data/picture_kernel.inc"
#define SCALE_SET avx512
#define SCALE_VEC 16
#define SCALE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq" SCALE_WIDTH)))
#include "data/picture_kernel.inc"
#endif

static const scaler *best_scaler(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &scaler_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &scaler_avx2;
#endif
    return &scaler_plain;
}

static void write_row(const scaling *s, const scaler *by, uint8_t *out, int y)
{
    const size_t area = (size_t)s->height * (size_t)s->width,
                 samples = (size_t)s->width * (size_t)s->lanes;
    out += (size_t)y * (size_t)s->width;
    for (size_t at = 0; at < samples; at += LANES) {
        int32_t sample[LANES];
        const size_t left = samples - at, n = left < LANES ? left : LANES;
        by->rows(s, sample, y, at);
        for (size_t k = 0; s->lanes == 1 && k < n; k++)
            out[at + k] = (uint8_t)sample[k];
        for (size_t k = 0; s->lanes == 4 && k < n / 4; k++) {
            uint8_t *to = out + at / 4 + k;
            to[0] = (uint8_t)sample[4 * k];
            to[area] = (uint8_t)sample[4 * k + 1];
            to[2 * area] = (uint8_t)sample[4 * k + 2];
        }
    }
}

static void scale(const scaling *s, uint8_t *out)
{
    const int bottom = end_of(&s->rows, s->height), right = end_of(&s->columns, s->width);
    const int some = LANES / s->lanes;
    const scaler *by = best_scaler();
    for (int y = s->rows.first[0]; y < bottom; y += some) {
        lay_rows(s, y, bottom, s->columns.first[0], right);
        by->columns(s, y, bottom - y < some ? bottom - y : some, s->columns.first[0], right);
    }
    for (int y = 0; y < s->height; y++)
        write_row(s, by, out, y);
}

static void lay_side(side *s, int outputs, double step, char *memory, size_t *at)
{
    const size_t n = (size_t)outputs;
    s->most = (int)(2 * (step > 1 ? step : 1)) + 3;
    s->first = ls_scratch_take(memory, at, n * sizeof *s->first);
    s->count = ls_scratch_take(memory, at, n * sizeof *s->count);
    s->weight = ls_scratch_take(memory, at, n * (size_t)s->most * sizeof *s->weight);
}

static size_t lay_out(scaling *s, double step, char *memory)
{
    const ls_picture *p = s->from;
    size_t at = 0;
    lay_side(&s->rows, s->height, step, memory, &at);
    lay_side(&s->columns, s->width, step, memory, &at);
    s->pitch = ((size_t)s->width * (size_t)s->lanes + LANES - 1) / LANES * LANES;
    s->tile = ls_scratch_take(memory, &at, (size_t)p->width * sizeof *s->tile);
    s->wide = ls_scratch_take(memory, &at, (size_t)p->width * sizeof *s->wide);
    s->line = ls_scratch_take(memory, &at, (size_t)p->height * s->pitch * sizeof *s->line);
    return at;
}

bool ls_picture_scale(uint8_t *out, const ls_picture_form *f, const ls_picture *p,
                      ls_scratch *scratch, const ls_host *host)
{
    const int channels = f->channels, height = f->height, width = f->width;
    if (f->resize.height)
        return ls_picture_resize_to(out, f, p, scratch, host);
    const double high = p->down > 0 ? p->down : p->height,
                 wide = p->across > 0 ? p->across : p->width;
    const double down = high / height, across = wide / width, step = down < across ? down : across;
    const size_t area = (size_t)height * (size_t)width;
    scaling s = {.from = p, .height = height, .width = width};
    s.lanes = p->channels > 1 && channels > 1 ? 4 : 1;
    char *memory = ls_scratch_get(scratch, lay_out(&s, step, NULL), host);
    if (!memory)
        return false;
    lay_out(&s, step, memory);
    weigh_side(&s.rows, height, step, p->height, high);
    if (height == width && p->height == p->width && high == wide)
        s.columns = s.rows;
    else
        weigh_side(&s.columns, width, step, p->width, wide);
    scale(&s, out);
    for (size_t c = 1; c < (size_t)channels && s.lanes == 1; c++)
        memcpy(out + c * area, out, area);
    return true;
}
