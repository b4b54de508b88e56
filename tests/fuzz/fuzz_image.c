/* SPDX-License-Identifier: MIT */
/* Images: a file read as 3×2 pixels, in grey and in colours; as it is and, if it is a PNG, with
 * correct checksums of its chunks, because otherwise hardly any mutant would pass them. */
#include "data/image.h"
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 3, HEIGHT = 2, PIXELS = WIDTH * HEIGHT };

static void check_refusal(int status, const ls_error *err, const char *name)
{
    fuzz_check_refusal(status, err, name);
    fuzz_check(fuzz_names_place(err->text, name) || strstr(err->text, "pixels, but") ||
                   strstr(err->text, "found an empty file"),
               "a refusal names a place");
}

/* Twice over different memory: what differs afterwards was not read from the file. */
static void read_as(int channels, const fuzz_file *file, const uint8_t *data, size_t size)
{
    ls_error err = {0};
    uint8_t out[2][3 * PIXELS];
    int status[2];
    for (int i = 0; i < 2; i++) {
        memset(out[i], i == 0 ? 0x11 : 0x22, sizeof out[i]);
        status[i] = ls_image_read(out[i], channels, HEIGHT, WIDTH, file->path, NULL, &err);
    }
    fuzz_check(status[0] == status[1], "the same file is read the same way");
    if (status[0]) {
        check_refusal(status[0], &err, file->path);
        return;
    }
    const size_t bytes = (size_t)channels * PIXELS;
    fuzz_check(memcmp(out[0], out[1], bytes) == 0, "every pixel comes from the file");
    fuzz_check(size >= 8 + (data[1] == '6' ? 3 * PIXELS : PIXELS),
               "an accepted file has a header and its pixels");
}

/* Any size, cropped and shrunk to the 2×2 of `form`: small files that claim a large size must not
 * take long. Alone, and after all files before. */
static void fit(const fuzz_file *file, const uint8_t *data, size_t size,
                const ls_picture_form *form)
{
    static ls_image_memory kept;
    ls_image_memory none = {0}, *const memory[2] = {&kept, &none};
    ls_error err = {0};
    uint8_t out[2][12];
    int status[2];
    for (int i = 0; i < 2; i++) {
        memset(out[i], i == 0 ? 0x11 : 0x22, sizeof out[i]);
        status[i] = ls_image_fit(out[i], form, AT_FDCWD, file->path, memory[i], NULL, &err);
    }
    fuzz_check(status[0] == status[1], "the same file is read the same way");
    fuzz_check(status[0] || memcmp(out[0], out[1], sizeof out[0]) == 0,
               "every pixel comes from the file");
    fuzz_check(!status[0] || strlen(err.text) > 0, "a refusal says why");
    uint8_t same[12];
    memset(same, 0x33, sizeof same);
    int again = size ? ls_image_fit_bytes(same, form, file->path, data, size, &none, NULL, &err)
                     : status[0];
    fuzz_check(again == status[0], "in memory it is read the same way");
    fuzz_check(again || memcmp(out[0], same, sizeof same) == 0, "and is the same");
    ls_image_memory_free(&none, NULL);
}

static void read_file(const uint8_t *data, size_t size)
{
    static fuzz_file file;
    static int opened;
    if (!opened)
        fuzz_file_open(&file);
    opened = 1;
    fuzz_file_fill(&file, data, size);
    read_as(1, &file, data, size);
    read_as(3, &file, data, size);
    fit(&file, data, size, &(ls_picture_form){3, 2, 2, {0}, 0});
    fit(&file, data, size, &(ls_picture_form){3, 2, 2, {3, 0, LS_PREP_BICUBIC}, 306});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    uint8_t *mended = malloc(size + 1);
    fuzz_check(mended != NULL, "there is memory for a copy");
    memcpy(mended, data, size);
    fuzz_mend_png(mended, size);
    if (memcmp(mended, data, size) != 0)
        read_file(mended, size);
    free(mended);
    return 0;
}
