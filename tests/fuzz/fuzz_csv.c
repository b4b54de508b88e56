/* SPDX-License-Identifier: MIT */
/* Tables whose target is the column "y": as classes, and as numbers with missing values filled. */
#include "fuzz/fuzz_dataset.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static ls_dataset *open_as(const fuzz_file *file, ls_data_keys keys)
{
    ls_dataset *train, *test;
    ls_error err = {0};
    const ls_dataset_spec spec = {.name = "csv", .path = file->path, .keys = keys};
    int status = ls_dataset_open(&train, &test, &spec, NULL, &err);
    if (status) {
        fuzz_check(!train && !test, "nothing is left open");
        fuzz_check(status == LS_EDATA || status == LS_ECONFIG, "a refusal is of the data");
        fuzz_check(status == LS_ECONFIG || strstr(err.text, file->name),
                   "a refusal names the file");
        return NULL;
    }
    ls_dataset_close(test);
    return train;
}

static void check_table(const ls_dataset *ds)
{
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    fuzz_check(info->rows > 0 && info->channels > 0, "there are rows and columns");
    fuzz_check_finite(view.values, info->rows * (size_t)info->channels);
    for (size_t r = 0; r < info->rows; r++)
        fuzz_check(info->targets ? isfinite(view.targets[r])
                                 : view.labels[r] >= 0 && view.labels[r] < info->classes,
                   "targets are finite, or classes");
}

/* Neither compressed, nor UTF-16, nor with a line for a spreadsheet. */
static bool is_plain(const uint8_t *data, size_t size)
{
    static const char *const begins[] = {"\x1f\x8b", "\xff\xfe", "\xfe\xff"};
    for (size_t i = 0; i < 3; i++)
        if (size >= 2 && memcmp(data, begins[i], 2) == 0)
            return false;
    for (size_t i = 0; i + 4 <= size; i++)
        if (memcmp(data + i, "sep=", 4) == 0)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_file file;
    static int opened;
    if (!opened)
        fuzz_file_open(&file);
    opened = 1;
    fuzz_file_fill(&file, data, size);
    for (int form = 0; form < 8; form++) {
        ls_dataset *ds = open_as(
            &file, (ls_data_keys){.target.text = "y",
                                  .labels = form & 1 ? LS_LABELS_VALUES : LS_LABELS_AUTO,
                                  .missing = form & 2 ? LS_MISSING_MEAN : LS_MISSING_REFUSED,
                                  .separator = form < 4 ? "," : NULL,
                                  .decimal = form < 6 ? LS_DECIMAL_AUTO : LS_DECIMAL_COMMA,
                                  .latin1 = form == 5,
                                  .standardize = form == 3,
                                  .clip = form == 3 ? 2 : 0});
        if (!ds)
            continue;
        check_table(ds);
        if (form < 4 && is_plain(data, size))
            (void)fuzz_check_commas(data, size);
        ls_dataset_close(ds);
    }
    return 0;
}
