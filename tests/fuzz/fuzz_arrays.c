/* SPDX-License-Identifier: MIT */
/* Arrays: a file as .npy or .npz, or, if it does not begin like these, as safetensors with tensors
 * x and y. */
#include "fuzz/fuzz_dataset.h"

#include <math.h>
#include <string.h>

/* Numbers that are floats are finite, and each row can be read. */
static void check_rows(const ls_dataset *ds)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    const size_t row = (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    for (size_t i = 0; info->row_type == LS_ROW_F32 && i < info->rows * row; i++)
        fuzz_check(isfinite(view.values[i]), "values are finite");
    for (size_t i = 0; i < info->rows * (size_t)(info->targets ? info->targets : 1); i++)
        fuzz_check(info->targets ? isfinite(view.targets[i])
                                 : view.labels[i] >= 0 && view.labels[i] < info->classes,
                   "targets are finite, or classes");
}

/* An .npy file has exactly the bytes that its rows make. */
static void check_bytes(const ls_dataset *ds, const uint8_t *data, size_t size)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const size_t values =
        info->rows * (size_t)info->channels * (size_t)info->height * (size_t)info->width;
    const size_t header = data[6] == 1 ? 10 + (data[8] | (size_t)data[9] << 8)
                                       : 12 + (data[8] | (size_t)data[9] << 8 |
                                               (size_t)data[10] << 16 | (size_t)data[11] << 24);
    fuzz_check(size - header == values || size - header == 2 * values ||
                   size - header == 4 * values || size - header == 8 * values,
               "the file has as many bytes as its rows");
}

static void open_as(const char *kind, const fuzz_file *file, ls_data_keys keys, const uint8_t *data,
                    size_t size)
{
    ls_dataset *train, *test;
    ls_error err = {0};
    const ls_dataset_spec spec = {.name = kind, .path = file->path, .keys = keys};
    int status = ls_dataset_open(&train, &test, &spec, NULL, &err);
    if (status) {
        fuzz_check(!train && !test, "nothing is left open");
        fuzz_check(status == LS_EDATA || status == LS_ECONFIG || status == LS_ENOMEM ||
                       status == LS_EUNSUPPORTED,
                   "a refusal is of the data");
        fuzz_check(strlen(err.text) > 0, "a refusal says why");
        return;
    }
    fuzz_check(ls_dataset_describe(train)->rows > 0, "there are rows");
    check_rows(train);
    check_rows(test);
    if (strcmp(kind, "npy") == 0 && data[0] == 0x93)
        check_bytes(train, data, size);
    ls_dataset_close(train);
    ls_dataset_close(test);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_file file;
    static int opened;
    if (!opened)
        fuzz_file_open(&file);
    opened = 1;
    fuzz_file_fill(&file, data, size);
    const int npy = size > 1 && (data[0] == 0x93 || (data[0] == 'P' && data[1] == 'K'));
    for (int form = 0; form < 8; form++) {
        const ls_data_keys keys = {.x = npy ? file.path : NULL,
                                   .y = npy ? file.path : NULL,
                                   .labels = form & 1 ? LS_LABELS_VALUES : LS_LABELS_AUTO,
                                   .layout = form & 4 ? LS_CHANNELS_LAST : LS_CHANNELS_FIRST,
                                   .missing = form & 2 ? LS_MISSING_MEAN : LS_MISSING_REFUSED};
        open_as(npy ? "npy" : "safetensors", &file, keys, data, size);
    }
    return 0;
}
