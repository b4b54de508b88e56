/* SPDX-License-Identifier: MIT */
/* Augmentation: random changes of training images (ls_gather in <lockstep/sys/plugin.h>). Positions
 * and shares of source pixels are computed with integers, so every back end produces the same
 * pixels. The changes depend only on three blocks of random words, drawn for the image's row of the
 * dataset. All functions are pure; any thread, and CUDA kernels. */
#ifndef BASE_AUGMENT_H
#define BASE_AUGMENT_H

#include <stdint.h>

#ifndef LS_ANYWHERE /* function specifiers; a CUDA source defines its own first */
#define LS_ANYWHERE static inline
#endif

/* Strengths of the changes, as in ls_gather; 0: no change of that kind. */
typedef struct ls_augment {
    int crop, flip, rotate, erase, brightness, mixup, part;
} ls_augment;

/* Returns the dataset row with which row r of a batch is mixed: the next row of the shard, or the
 * first one for the last one. `rows` [count] are the dataset rows of the batch. They lie inside the
 * array of the shard's rows: `before` rows precede rows[0], and `after` rows follow
 * rows[count − 1]. */
LS_ANYWHERE uint32_t ls_mixed_row(const uint32_t *rows, int count, int r, uint32_t before,
                                  uint32_t after)
{
    return r + 1 < count || after > 0 ? rows[r + 1] : *(rows - before);
}

/* The changes of one image of h × w pixels. */
typedef struct ls_change {
    int h, w;                 /* height and width of the image */
    int down, right, mirror;  /* `down` and `right`: offset of the crop in pixels; `mirror`:
                               * non-zero: the columns are mirrored */
    int turned, sine, cosine; /* `turned`: non-zero: the image is rotated; `sine` and `cosine` of
                               * the angle in 65536ths */
    /* the part that is enlarged to the whole image: its top left corner and its size in pixels;
     * part_h 0: the image is not enlarged */
    int part_top, part_left, part_h, part_w;
    int top, left, side;    /* top left corner of the erased square, and length of its side, in
                             * pixels */
    int factor;             /* factor of the brightness in 256ths */
    int other, other_label; /* `other`: share of the mixed-in image in 256ths; `other_label`:
                             * non-zero: the result has the class of the mixed-in image */
} ls_change;

/* Returns non-zero if there are changes other than crop and flip. (For crop and flip alone, back
 * ends have faster code.) */
LS_ANYWHERE int ls_augment_more(const ls_augment *a)
{
    return a->rotate || a->erase || a->brightness || a->mixup || a->part;
}

/* Returns non-zero if the strengths are in their valid ranges. */
LS_ANYWHERE int ls_augment_fits(int rotate, int erase, int brightness, int mixup, int part)
{
    return rotate >= 0 && rotate <= 45 && erase >= 0 && brightness >= 0 && brightness <= 256 &&
           mixup >= 0 && mixup <= 128 && part >= 0 && part <= 65536;
}

/* Sets the rotation to `angle` 256ths of a degree, at most 45 degrees either way. Sine and cosine
 * are computed by their Taylor series in units of 2⁻³⁰. */
LS_ANYWHERE void ls_change_turn(ls_change *c, int angle)
{
    const int64_t x = ((int64_t)angle * 18740330) >> 8, one = (int64_t)1 << 30;
    const int64_t x2 = (x * x) >> 30, x4 = (x2 * x2) >> 30, x6 = (x4 * x2) >> 30;
    const int64_t sine = (x * (one - x2 / 6 + x4 / 120 - x6 / 5040)) >> 30;
    c->turned = angle != 0;
    c->sine = (int)(sine >> 14);
    c->cosine = (int)((one - x2 / 2 + x4 / 24 - x6 / 720) >> 14);
}

/* Returns the square root of `v` < 2⁵⁸, rounded down. */
LS_ANYWHERE int64_t ls_whole_root(int64_t v)
{
    int64_t root = 0;
    for (int64_t bit = (int64_t)1 << 28; bit; bit >>= 1)
        root += (root + bit) * (root + bit) <= v ? bit : 0;
    return root;
}

/* Draws the part of an image of h × w pixels that is enlarged to the whole image. Its share of the
 * area, from `least` 65536ths to 1, and the logarithm of width / height, from −ln(4/3) to ln(4/3),
 * are uniform. A side is at most that of the image. The exponential function is computed by its
 * Taylor series in units of 2⁻³⁰. */
LS_ANYWHERE void ls_change_enlarge(ls_change *c, int least, const uint32_t place[4])
{
    const int64_t one = (int64_t)1 << 30, half = 32768;
    const int64_t share = least + (int64_t)(place[0] % (65537 - (uint32_t)least));
    const int64_t x = (((int64_t)(place[1] >> 1) - one) * 154448137) >> 30; /* ±ln(4/3) / 2 */
    const int64_t x2 = (x * x) >> 30, x3 = (x2 * x) >> 30, x4 = (x2 * x2) >> 30;
    const int64_t stretch = one + x + x2 / 2 + x3 / 6 + x4 / 24;
    const int64_t side = ls_whole_root((share * c->h * c->w) << 16); /* in 65536ths of a pixel */
    const int high = (int)((side * one / stretch + half) >> 16);
    const int wide = (int)((((side * stretch) >> 30) + half) >> 16);
    c->part_h = high < 1 ? 1 : high > c->h ? c->h : high;
    c->part_w = wide < 1 ? 1 : wide > c->w ? c->w : wide;
    c->part_top = (int)(place[2] % ((uint32_t)(c->h - c->part_h) + 1));
    c->part_left = (int)(place[3] % ((uint32_t)(c->w - c->part_w) + 1));
}

/* Draws the changes of an image of h × w pixels. `v`: the dataset row's random words of
 * LS_STREAM_AUGMENT; `more`: those of LS_STREAM_AUGMENT_MORE; `place`: those of
 * LS_STREAM_AUGMENT_PART. */
LS_ANYWHERE void ls_change_draw(ls_change *c, const ls_augment *a, int h, int w,
                                const uint32_t v[4], const uint32_t more[4],
                                const uint32_t place[4])
{
    const uint32_t places = 2 * (uint32_t)a->crop + 1, turns = 512 * (uint32_t)a->rotate + 1;
    const uint32_t factors = 2 * (uint32_t)a->brightness + 1;
    c->h = h;
    c->w = w;
    c->down = (int)(v[0] % places) - a->crop;
    c->right = (int)(v[1] % places) - a->crop;
    c->mirror = a->flip && v[2] % 2;
    ls_change_turn(c, (int)(more[0] % turns) - 256 * a->rotate);
    c->factor = 256 - a->brightness + (int)(more[1] % factors);
    c->side = a->erase;
    c->top = (int)(more[2] % (uint32_t)h) - a->erase / 2;
    c->left = (int)(more[3] % (uint32_t)w) - a->erase / 2;
    c->other = (int)(v[3] % ((uint32_t)a->mixup + 1));
    c->other_label = (int)(v[2] >> 8 & 255) < c->other;
    c->part_top = c->part_left = c->part_h = c->part_w = 0;
    if (a->part)
        ls_change_enlarge(c, a->part, place);
}

/* Converts a place in an enlarged image, of which `size` pixels are `part` pixels from `first` on,
 * to the place in the image, in 65536ths of a pixel. A place that is more than half a pixel outside
 * sets *outside. */
LS_ANYWHERE int64_t ls_enlarged_place(int64_t at, int first, int part, int size, int *outside)
{
    const int64_t from_edge = at + 32768;
    *outside |= from_edge < 0 || from_edge > (int64_t)size * 65536;
    return from_edge * part / size - 32768 + (int64_t)first * 65536;
}

/* Returns the number from `first` to first + count − 1 that is nearest to `i`. */
LS_ANYWHERE int ls_within(int i, int first, int count)
{
    return i < first ? first : i >= first + count ? first + count - 1 : i;
}

/* Writes to `at` the indices of the four source pixels of pixel (i, j), and to `part` their shares
 * in 65536ths. An index is −1 if the source pixel is outside the image, has the share 0, or if
 * pixel (i, j) is erased. */
LS_ANYWHERE void ls_change_taps(int at[4], int part[4], const ls_change *c, int i, int j)
{
    int none = i >= c->top && i < c->top + c->side && j >= c->left && j < c->left + c->side;
    int64_t y = (int64_t)(i + c->down) * 65536, x = (int64_t)(j + c->right) * 65536;
    if (c->turned) {
        const int64_t dy = 2 * (i + c->down) - (c->h - 1), dx = 2 * (j + c->right) - (c->w - 1);
        y = (c->cosine * dy + c->sine * dx + (int64_t)(c->h - 1) * 65536) >> 1;
        x = (c->cosine * dx - c->sine * dy + (int64_t)(c->w - 1) * 65536) >> 1;
    }
    if (c->part_h) {
        y = ls_enlarged_place(y, c->part_top, c->part_h, c->h, &none);
        x = ls_enlarged_place(x, c->part_left, c->part_w, c->w, &none);
    }
    const int top = (int)(y >> 16), left = (int)(x >> 16);
    const int low = (int)(y >> 8 & 255), right = (int)(x >> 8 & 255);
    for (int k = 0; k < 4; k++) {
        int line = top + (k >> 1), column = left + (k & 1);
        if (c->part_h) { /* the pixels at the edges of the part continue outside */
            line = ls_within(line, c->part_top, c->part_h);
            column = ls_within(column, c->part_left, c->part_w);
        }
        part[k] = (k >> 1 ? low : 256 - low) * (k & 1 ? right : 256 - right);
        at[k] = none || !part[k] || line < 0 || line >= c->h || column < 0 || column >= c->w
                    ? -1
                    : line * c->w + (c->mirror ? c->w - 1 - column : column);
    }
}

/* Returns pixel (i, j) of the changed image, for one channel of bytes, before mixing. */
LS_ANYWHERE int ls_changed_byte(const uint8_t *plane, const ls_change *c, int i, int j)
{
    int at[4], part[4], sum = 0;
    ls_change_taps(at, part, c, i, j);
    for (int k = 0; k < 4; k++)
        sum += at[k] < 0 ? 0 : part[k] * plane[at[k]];
    const int value = (((sum + 32768) >> 16) * c->factor + 128) >> 8;
    return value > 255 ? 255 : value;
}

/* Returns pixel (i, j) of the changed image, for one channel of floats, before mixing. */
LS_ANYWHERE float ls_changed_float(const float *plane, const ls_change *c, int i, int j)
{
    int at[4], part[4];
    float sum = 0;
    ls_change_taps(at, part, c, i, j);
    for (int k = 0; k < 4; k++)
        sum += at[k] < 0 ? 0 : (float)part[k] / 65536 * plane[at[k]];
    return sum * ((float)c->factor / 256);
}

/* Mixes two bytes: pixel `a` of the row itself and pixel `b` of the mixed-in row. Rounds the result
 * to a byte. */
LS_ANYWHERE int ls_mixed_byte(int a, int b, const ls_change *c)
{
    return (a * (256 - c->other) + b * c->other + 128) >> 8;
}

/* Mixes two floats, pixels or targets: `a` of the row itself and `b` of the mixed-in row. */
LS_ANYWHERE float ls_mixed_float(float a, float b, const ls_change *c)
{
    return c->other ? a + (b - a) * ((float)c->other / 256) : a;
}

#endif
