/* SPDX-License-Identifier: MIT */
/* IDX files, plain and compressed: the first file has the images and the second the labels, of the
 * training split and of the test split. */
#include "data/kinds.h"
#include "fuzz/fuzz_dataset.h"

#include <stdio.h>
#include <stdlib.h>

enum { IMAGES_HEADER = 16, LABELS_HEADER = 8 };

static fuzz_file file[2];

static uint32_t promised_rows(const uint8_t *header)
{
    return (uint32_t)header[4] << 24 | (uint32_t)header[5] << 16 | (uint32_t)header[6] << 8 |
           header[7];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const published[4] = {"0", "1", "2", "3"};
    fuzz_pair pair;
    ls_dataset *train = NULL;
    ls_dataset *test = NULL;
    ls_error err = {0};
    if (!fuzz_split(&pair, data, size))
        return 0;
    for (int i = 0; i < 2; i++)
        if (file[i].name[0] == '\0')
            fuzz_file_open(&file[i]);
    fuzz_fill_pair(file, &pair);
    const char *names[4] = {file[0].name, file[1].name, file[0].name, file[1].name};
    const ls_idx_detail detail = {.files = {names, 4, {"a", "b"}, NULL}, .published = published};
    const ls_dataset_kind kind = {
        {"fuzz", 1, 28, 28, 10, NULL, NULL, LS_DATA_PUBLIC}, ls_idx_open, &detail};
    const ls_dataset_spec spec = {.name = "fuzz",
                                  .path = FUZZ_FOLDER,
                                  .limit = pair.switches >> FUZZ_LIMIT_SHIFT & FUZZ_LIMIT_MASK};
    int rc = ls_dataset_open_kind(&train, &test, &kind, &spec, NULL, &err);
    if (rc != LS_OK) {
        fuzz_check(train == NULL && test == NULL, "a refusal leaves nothing behind");
        fuzz_check_data_refusal(rc, &err, file);
        return 0;
    }
    const uint8_t *images = fuzz_is_plain(&pair, 0) ? pair.data[0] + IMAGES_HEADER : NULL;
    const uint8_t *labels = fuzz_is_plain(&pair, 1) ? pair.data[1] + LABELS_HEADER : NULL;
    size_t bytes = ls_dataset_image_bytes(test);
    uint32_t rows = ls_dataset_describe(test)->rows;
    fuzz_check(ls_dataset_describe(train)->rows == (spec.limit > 0 ? spec.limit : rows),
               "the limit is the number of training rows");
    fuzz_check(!images || pair.size[0] == IMAGES_HEADER + rows * bytes, "no byte is left over");
    fuzz_check(!labels || pair.size[1] == LABELS_HEADER + rows, "no byte is left over");
    fuzz_check(!images || promised_rows(pair.data[0]) == rows, "a header's count is true");
    fuzz_check(!labels || promised_rows(pair.data[1]) == rows, "a header's count is true");
    fuzz_check_rows(train, images, bytes, labels, 1);
    fuzz_check_rows(test, images, bytes, labels, 1);
    ls_dataset_close(train);
    ls_dataset_close(test);
    return 0;
}
