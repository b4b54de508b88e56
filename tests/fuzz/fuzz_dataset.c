/* SPDX-License-Identifier: MIT */
#include "fuzz/fuzz_dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_fill_pair(const fuzz_file file[2], const fuzz_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (pair->switches & (i == 0 ? FUZZ_GZIP_FIRST : FUZZ_GZIP_SECOND))
            fuzz_file_fill_gzip(&file[i], pair->data[i], pair->size[i]);
        else
            fuzz_file_fill(&file[i], pair->data[i], pair->size[i]);
    }
}

int fuzz_is_plain(const fuzz_pair *pair, int i)
{
    if (pair->switches & (i == 0 ? FUZZ_GZIP_FIRST : FUZZ_GZIP_SECOND))
        return 1;
    return pair->size[i] < 2 || pair->data[i][0] != 0x1F || pair->data[i][1] != 0x8B;
}

void fuzz_check_data_refusal(int status, const ls_error *err, const fuzz_file file[2])
{
    if (status == LS_ECONFIG) {
        fuzz_check_refusal(status, err, "data.limit: ");
        return;
    }
    size_t n = strlen(file[0].path);
    int first = strncmp(err->text, file[0].path, n) == 0 && err->text[n] == ':';
    fuzz_check_refusal(status, err, file[!first].path);
    if (strstr(err->text, "found an empty file"))
        return;
    if (!fuzz_names_place(err->text, file[!first].path))
        fprintf(stderr, "%s\n", err->text);
    fuzz_check(fuzz_names_place(err->text, file[!first].path), "a refusal names a byte");
}

void fuzz_check_rows(const ls_dataset *ds, const uint8_t *images, size_t image_step,
                     const uint8_t *labels, size_t label_step)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    size_t bytes = ls_dataset_image_bytes(ds);
    uint8_t *image = malloc(bytes);
    int32_t label;
    fuzz_check(image != NULL, "there is memory for an image");
    fuzz_check(info->rows > 0 && bytes > 0, "a dataset is not empty");
    for (uint32_t row = 0; row < info->rows; row++) {
        fuzz_check(ls_dataset_read(ds, &row, 1, image, &label, NULL) == LS_OK, "rows can be read");
        fuzz_check(label >= 0 && label < info->classes, "labels are classes");
        if (images)
            fuzz_check(memcmp(image, images + row * image_step, bytes) == 0,
                       "an image is the bytes of the file");
        if (labels)
            fuzz_check(label == labels[row * label_step], "a label is the byte of the file");
    }
    free(image);
}

size_t fuzz_check_commas(const uint8_t *data, size_t size)
{
    size_t first = 0, commas = 0, lines = 0, bytes = 0;
    if (memchr(data, '"', size))
        return 0;
    for (size_t i = size >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; i <= size; i++) {
        if (i < size && data[i] != '\n') {
            commas += data[i] == ',';
            bytes += data[i] != '\r';
            continue;
        }
        if (bytes > 0 || commas > 0) {
            first = lines++ == 0 ? commas : first;
            fuzz_check(commas == first, "every row has the header's fields");
        }
        commas = bytes = 0;
    }
    return lines;
}

void fuzz_check_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fuzz_check(isfinite(values[i]), "values are finite");
}
