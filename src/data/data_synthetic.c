/* SPDX-License-Identifier: MIT */
/* Synthetic images that a network can learn to classify. They are the same bytes on every machine,
 * because all arithmetic is on integers.
 *
 * Each class has a picture: a few soft round spots. An image is made from its class's picture: it
 * is shifted by up to four pixels, its brightness is scaled to 60 to 100 per cent, and noise is
 * added. The pictures depend on the seed; the test split uses those of the training split. */
#include "base/error.h"
#include "base/host.h"
#include "base/rng.h"
#include "data/kinds.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    SIDE = 28,
    PIXELS = SIDE * SIDE,
    CLASSES = 10,
    SPOTS = 5,
    MAX_SHIFT = 4,
    TRAIN_ROWS = 6000,
    TEST_ROWS = 1000,
    MAX_ROWS = 1000000,
    DRAWS_PER_ROW = 256 /* draws of four words: one for the row, PIXELS / 4 for its noise */
};

/* The purposes of random numbers. The generator has a parameter for the epoch (base/rng.h), which
 * is the purpose in this file. */
enum { DRAW_PICTURES = 0, DRAW_TRAIN = 1, DRAW_TEST = 2 };

/* The picture of each class. */
typedef struct pictures {
    uint8_t of[CLASSES][PIXELS];
} pictures;

/* Adds a spot that is brightest in the middle and 0 at its radius: peak · (1 − d²/r²)². */
static void add_spot(int *sum, const uint32_t draw[4])
{
    int cx = 4 + (int)(draw[0] % (SIDE - 8));
    int cy = 4 + (int)(draw[1] % (SIDE - 8));
    int r2 = 16 + (int)(draw[2] % 48); /* square of the radius, which is 4 to 8 pixels */
    int peak = 140 + (int)(draw[3] % 100);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            int rest = r2 - (x - cx) * (x - cx) - (y - cy) * (y - cy);
            if (rest > 0)
                sum[y * SIDE + x] += peak * rest * rest / (r2 * r2);
        }
    }
}

static void draw_pictures(pictures *out, uint64_t seed)
{
    uint64_t spot = 0;
    for (int c = 0; c < CLASSES; c++) {
        int sum[PIXELS] = {0};
        for (int i = 0; i < SPOTS; i++) {
            uint32_t draw[4];
            ls_rng_words(draw, seed, LS_STREAM_SYNTHETIC, DRAW_PICTURES, spot++);
            add_spot(sum, draw);
        }
        for (int p = 0; p < PIXELS; p++)
            out->of[c][p] = (uint8_t)(sum[p] > 255 ? 255 : sum[p]);
    }
}

/* Returns approximately normal noise from one random word: the sum of its four bytes has mean 510
 * and standard deviation 148; divided by 4, it has mean 0 and deviation 37. */
static int noise(uint32_t word)
{
    int sum =
        (int)(word & 255) + (int)(word >> 8 & 255) + (int)(word >> 16 & 255) + (int)(word >> 24);
    return (sum - 510) / 4;
}

static int clamp(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* Draws one row and returns its label. A row depends only on its own draws, not on the number of
 * rows. */
static int32_t draw_row(uint8_t *image, const pictures *from, uint64_t seed, uint32_t split,
                        uint32_t row)
{
    uint32_t w[4];
    uint64_t base = (uint64_t)row * DRAWS_PER_ROW;
    ls_rng_words(w, seed, LS_STREAM_SYNTHETIC, split, base);
    uint8_t label = (uint8_t)(w[0] % CLASSES);
    int dx = (int)(w[1] % (2 * MAX_SHIFT + 1)) - MAX_SHIFT;
    int dy = (int)(w[2] % (2 * MAX_SHIFT + 1)) - MAX_SHIFT;
    int brightness = 154 + (int)(w[3] % 103); /* in units of 1/256 */
    for (int p = 0; p < PIXELS; p++) {
        int x = p % SIDE - dx;
        int y = p / SIDE - dy;
        int inside = x >= 0 && x < SIDE && y >= 0 && y < SIDE;
        int v = inside ? from->of[label][y * SIDE + x] * brightness / 256 : 0;
        if (p % 4 == 0)
            ls_rng_words(w, seed, LS_STREAM_SYNTHETIC, split, base + 1 + (uint64_t)(p / 4));
        image[p] = (uint8_t)clamp(v + noise(w[p % 4]));
    }
    return label;
}

static int make_split(ls_dataset **out, const pictures *from, int test, const ls_opening *o)
{
    const uint64_t seed = o->spec->seed;
    char source[64];
    snprintf(source, sizeof source, "generated from seed %" PRIu64, seed);
    ls_dataset_info info = ls_dataset_split_info(o, test, source, test ? TEST_ROWS : TRAIN_ROWS);
    ls_resident *data;
    info.synthetic = true;
    int status = ls_resident_create(&data, &info, o);
    if (status)
        return status;
    for (uint32_t row = 0; row < info.rows; row++)
        data->labels[row] = draw_row(data->images + (size_t)row * PIXELS, from, seed,
                                     test ? DRAW_TEST : DRAW_TRAIN, row);
    *out = &data->base;
    return LS_OK;
}

static int open_both(ls_dataset *split[2], const ls_opening *o)
{
    pictures from;
    if (o->spec->limit > MAX_ROWS)
        return ls_dataset_refuse(o, "data.limit",
                                 "expected at most %d synthetic rows, found %u; 0 means %d",
                                 MAX_ROWS, (unsigned)o->spec->limit, TRAIN_ROWS);
    draw_pictures(&from, o->spec->seed);
    int status = LS_OK;
    for (int test = 0; status == LS_OK && test < 2; test++)
        status = make_split(&split[test], &from, test, o);
    return status;
}

const ls_dataset_kind ls_dataset_synthetic = {
    {"synthetic", 1, SIDE, SIDE, CLASSES, NULL, NULL, LS_DATA_GENERATED}, open_both, NULL};
