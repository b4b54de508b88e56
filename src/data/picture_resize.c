/* SPDX-License-Identifier: MIT */
/* Resizes decoded pictures as Pillow's Image.resize does, to the byte, and cuts out their centre as
 * torchvision's CenterCrop does (image.h). The shares of the samples are rounded to fixed point,
 * and the sums are sums of integers. So the results are bit-identical with all instruction sets. */
#include "data/image.h"

#include <string.h>

enum {
    PRECISION = 32 - 8 - 2, /* bits after the binary point of a share */
    HALF = 1 << (PRECISION - 1),
    SOME = 64 /* number of sums that are computed side by side */
};

/* A side of the picture, and the shares of its samples in the outputs that are kept. Output i is
 * the weighted sum of count[i] samples, from sample first[i] on. */
typedef struct side {
    int interpolation;
    int outputs, size, cut; /* number of outputs and of samples; outputs that are cut off before */
    double step;            /* number of samples for each output */
    int *first, *count, most; /* [outputs] both; capacity for the shares of one output */
    int32_t *share;           /* [outputs][most], in units of 2⁻²² */
    double *exact;            /* [most]: the shares of one output before they are rounded */
} side;

/* State of resizing a picture. */
typedef struct resizing {
    const ls_picture *from;
    int height, width, channels; /* size of the result; channels that are resized */
    side rows, columns;
    /* The columns are resized first, as by Pillow 13 if this is much less work. Otherwise the lines
     * are. The samples are rounded to bytes in between, so the order matters. */
    bool down_first;
    uint8_t *whole;  /* [channels][width of the picture]: a line that is not resized */
    int wide;        /* number of samples in the lines below */
    uint8_t *lines;  /* [needed][channels][wide]: the result of the first half */
    int top, needed; /* the first line of the picture that is needed, and the number of lines */
} resizing;

/* Returns the height of the filter `x` from its middle. */
static double filter(int interpolation, double x)
{
    const double a = -0.5;
    x = x < 0 ? -x : x;
    if (interpolation == LS_PREP_BILINEAR)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* Returns how far the filter reaches on both sides of its middle, in samples. */
static double reach_of(const side *s)
{
    return (s->interpolation == LS_PREP_BICUBIC ? 2 : 1) * (s->step < 1 ? 1 : s->step);
}

static double middle_of(const side *s, int o)
{
    return (o + s->cut + 0.5) * s->step;
}

/* Returns the first sample of output `o`. The end of its samples is *end. */
static int samples_of(const side *s, int o, int *end)
{
    const double middle = middle_of(s, o), reach = reach_of(s);
    const int begin = (int)(middle - reach + 0.5);
    *end = (int)(middle + reach + 0.5);
    *end = *end > s->size ? s->size : *end;
    return begin < 0 ? 0 : begin;
}

/* Computes the shares of output `o`. The order of operations is that of Pillow. */
static void share_out(const side *s, int o)
{
    const double middle = middle_of(s, o), narrow = 1 / (s->step < 1 ? 1 : s->step);
    int32_t *share = s->share + (ptrdiff_t)o * s->most;
    double sum = 0;
    int end;
    const int first = samples_of(s, o, &end), count = end - first;
    for (int k = 0; k < count; k++) {
        s->exact[k] = filter(s->interpolation, (k + first - middle + 0.5) * narrow);
        sum += s->exact[k];
    }
    for (int k = 0; k < count; k++) {
        const double part = (sum != 0 ? s->exact[k] / sum : s->exact[k]) * (1 << PRECISION);
        share[k] = (int32_t)(part < 0 ? part - 0.5 : part + 0.5);
    }
    s->first[o] = first;
    s->count[o] = count;
}

/* Describes a side of `size` samples that becomes `whole` outputs, of which the `outputs` in the
 * middle are kept. Half of an odd number that is cut off is rounded to the even number, as by
 * torchvision. */
static side side_of(int interpolation, int outputs, int whole, int size)
{
    const int off = whole - outputs;
    return (side){.interpolation = interpolation,
                  .outputs = outputs,
                  .size = size,
                  .cut = off / 2 + (off % 2 && off / 2 % 2),
                  .step = (double)size / whole};
}

static void lay_side(side *s, char *memory, size_t *at)
{
    const size_t n = (size_t)s->outputs;
    s->most = 2 * ((int)reach_of(s) + 1) + 1;
    s->exact = ls_scratch_take(memory, at, (size_t)s->most * sizeof *s->exact);
    s->first = ls_scratch_take(memory, at, n * sizeof *s->first);
    s->count = ls_scratch_take(memory, at, n * sizeof *s->count);
    s->share = ls_scratch_take(memory, at, n * (size_t)s->most * sizeof *s->share);
}

void ls_picture_grey(uint8_t *restrict to, const uint8_t *rgb, size_t count, int step)
{
    for (size_t x = 0; x < count; x++, rgb += step)
        to[x] = (uint8_t)((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

static uint8_t byte_of(int32_t sum)
{
    const int32_t whole = sum < 0 ? 0 : sum >> PRECISION;
    return (uint8_t)(whole > 255 ? 255 : whole);
}

/* Copies line y of the picture to `to` [channels][width of the picture]. */
static void lay_line(const resizing *r, uint8_t *restrict to, int y)
{
    const uint8_t *from = ls_picture_line(r->from, y);
    const int step = r->from->channels, width = r->from->width;
    if (step > 1 && r->channels == 1)
        ls_picture_grey(to, from, (size_t)width, step);
    for (int c = 0; c < r->channels && !(step > 1 && r->channels == 1); c++)
        for (int x = 0; x < width; x++)
            to[(ptrdiff_t)c * width + x] = from[x * step + c];
}

/* Resizes the line `from` [channels][width of the picture] to the columns that are kept. Those of a
 * channel are written to `to`, the channels `pitch` bytes apart. */
static void resize_across(const resizing *r, uint8_t *to, size_t pitch, const uint8_t *from)
{
    const side *s = &r->columns;
    for (int c = 0; c < r->channels; c++, to += pitch, from += r->from->width)
        for (int x = 0; x < r->width; x++) {
            const uint8_t *sample = from + s->first[x];
            const int32_t *share = s->share + (ptrdiff_t)x * s->most;
            int32_t sum = HALF;
            for (int k = 0; k < s->count[x]; k++)
                sum += sample[k] * share[k];
            to[x] = byte_of(sum);
        }
}

/* Computes line y of the result from r->lines. The samples of a channel are written to `to`, the
 * channels `pitch` bytes apart. */
static void resize_down(const resizing *r, uint8_t *to, size_t pitch, int y)
{
    const side *s = &r->rows;
    const int32_t *share = s->share + (ptrdiff_t)y * s->most;
    const size_t line = (size_t)r->channels * (size_t)r->wide;
    const uint8_t *begin = r->lines + (size_t)(s->first[y] - r->top) * line;
    for (int c = 0; c < r->channels; c++, begin += r->wide, to += pitch)
        for (int x = 0; x < r->wide; x += SOME) {
            const int n = r->wide - x < SOME ? r->wide - x : SOME;
            int32_t sum[SOME];
            for (int k = 0; k < n; k++)
                sum[k] = HALF;
            for (int i = 0; i < s->count[y]; i++) {
                const uint8_t *from = begin + (size_t)i * line + x;
                for (int k = 0; k < n; k++)
                    sum[k] += from[k] * share[i];
            }
            for (int k = 0; k < n; k++)
                to[x + k] = byte_of(sum[k]);
        }
}

static void resize_both(const resizing *r, uint8_t *out)
{
    const size_t area = (size_t)r->height * (size_t)r->width, width = (size_t)r->from->width,
                 line = (size_t)r->channels * (size_t)r->wide;
    for (int y = 0; y < r->needed; y++) {
        uint8_t *to = r->lines + (size_t)y * line;
        lay_line(r, r->down_first ? to : r->whole, r->top + y);
        if (!r->down_first)
            resize_across(r, to, (size_t)r->wide, r->whole);
    }
    for (int y = 0; y < r->height; y++, out += r->width) {
        resize_down(r, r->down_first ? r->whole : out, r->down_first ? width : area, y);
        if (r->down_first)
            resize_across(r, out, area, r->whole);
    }
}

/* Sets the size of the whole picture once it is resized. */
static void size_of(int *height, int *width, const ls_prep_resize *to, const ls_picture *p)
{
    const int64_t shorter = to->height;
    const bool upright = p->width <= p->height;
    *height = to->height;
    *width = to->width;
    if (to->width)
        return;
    *height = upright ? (int)(shorter * p->height / p->width) : to->height;
    *width = upright ? to->height : (int)(shorter * p->width / p->height);
}

/* Lays out the memory; `memory` NULL: only returns its size in bytes. */
static size_t lay_out(resizing *r, char *memory)
{
    size_t at = 0;
    int end;
    lay_side(&r->rows, memory, &at);
    lay_side(&r->columns, memory, &at);
    r->top = samples_of(&r->rows, 0, &end);
    samples_of(&r->rows, r->height - 1, &end);
    r->needed = end - r->top;
    r->whole = ls_scratch_take(memory, &at, (size_t)r->channels * (size_t)r->from->width);
    r->lines =
        ls_scratch_take(memory, &at, (size_t)r->needed * (size_t)r->channels * (size_t)r->wide);
    return at;
}

bool ls_picture_resize_to(uint8_t *out, const ls_picture_form *f, const ls_picture *p,
                          ls_scratch *scratch, const ls_host *host)
{
    const int interpolation = f->resize.interpolation;
    const size_t area = (size_t)f->height * (size_t)f->width;
    int high, wide;
    resizing r = {.from = p, .height = f->height, .width = f->width};
    r.channels = p->channels > 1 && f->channels > 1 ? 3 : 1;
    size_of(&high, &wide, &f->resize, p);
    const int lower = p->height - high, narrower = p->width - wide;
    r.down_first = lower > 0 && lower > 2 * (int64_t)narrower;
    r.wide = r.down_first ? p->width : r.width;
    r.rows = side_of(interpolation, r.height, high, p->height);
    r.columns = side_of(interpolation, r.width, wide, p->width);
    char *memory = ls_scratch_get(scratch, lay_out(&r, NULL), host);
    if (!memory)
        return false;
    lay_out(&r, memory);
    for (int y = 0; y < r.height; y++)
        share_out(&r.rows, y);
    for (int x = 0; x < r.width; x++)
        share_out(&r.columns, x);
    resize_both(&r, out);
    for (size_t c = 1; c < (size_t)f->channels && r.channels == 1; c++)
        memcpy(out + c * area, out, area);
    return true;
}
