/* SPDX-License-Identifier: MIT */
/* Pictures in memory as rows of models, in grey and in colours; as they are and, if they are PNG,
 * with correct checksums of their chunks. A row must be what training reads from the same bytes. */
#include "data/image.h"
#include "fuzz/fuzz.h"
#include "picture/new_model.h"

#include <lockstep/picture.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 5, HEIGHT = 4, PIXELS = WIDTH * HEIGHT };

static const char name[] = "picture.bin";

/* Twice over different memory, which ends where the row does. */
static void read_as(int channels, const ls_model *model, const uint8_t *data, size_t size)
{
    const ls_picture_options o = {.size = sizeof o, .name = name};
    const size_t bytes = (size_t)channels * PIXELS;
    uint8_t *row[2], same[3 * PIXELS];
    ls_error err = {0};
    int status[2];
    for (int i = 0; i < 2; i++) {
        row[i] = malloc(bytes);
        fuzz_check(row[i] != NULL, "there is memory for a row");
        memset(row[i], i == 0 ? 0x11 : 0x22, bytes);
        status[i] = ls_model_picture(model, data, size, &o, row[i], bytes, &err);
    }
    fuzz_check(status[0] == status[1], "the same bytes are read the same way");
    fuzz_check(status[0] || memcmp(row[0], row[1], bytes) == 0, "every pixel comes from the bytes");
    if (status[0]) {
        fuzz_check_refusal(status[0], &err, name);
        fuzz_check(fuzz_names_place(err.text, name) || strstr(err.text, "pixels; expected") ||
                       strstr(err.text, "CMYK"),
                   "a refusal names a place, or what it is");
    }
    ls_image_memory none = {0};
    const int again = ls_image_fit_bytes(same, &(ls_picture_form){channels, HEIGHT, WIDTH, {0}, 0},
                                         name, data, size, &none, NULL, &err);
    ls_image_memory_free(&none, NULL);
    fuzz_check(again == status[0], "training reads it the same way");
    fuzz_check(again || memcmp(row[0], same, bytes) == 0, "the row is that of the training");
    free(row[0]);
    free(row[1]);
}

static void read_both(const uint8_t *data, size_t size)
{
    static ls_model *grey, *colours;
    ls_error err;
    if (!grey) {
        grey = new_model(1, HEIGHT, WIDTH, 0, &err);
        colours = new_model(3, HEIGHT, WIDTH, 0, &err);
        fuzz_check(grey && colours, "there are models");
    }
    read_as(1, grey, data, size);
    read_as(3, colours, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1); /* `data` may be NULL where there is nothing */
    fuzz_check(copy != NULL, "there is memory for a copy");
    if (size)
        memcpy(copy, data, size);
    read_both(size ? data : copy, size);
    fuzz_mend_png(copy, size);
    if (size && memcmp(copy, data, size) != 0)
        read_both(copy, size);
    free(copy);
    return 0;
}
