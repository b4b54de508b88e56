/* SPDX-License-Identifier: MIT */
/* CIFAR-10's binary format: the first file is the training split and the second the test split,
 * with one record each. */
#include "data/kinds.h"
#include "fuzz/fuzz_dataset.h"

#include <stdlib.h>

enum { RECORD = 1 + 3 * 32 * 32 };

static fuzz_file file[2];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_pair pair;
    ls_dataset *split[2] = {NULL, NULL};
    ls_error err = {0};
    if (!fuzz_split(&pair, data, size))
        return 0;
    for (int i = 0; i < 2; i++)
        if (file[i].name[0] == '\0')
            fuzz_file_open(&file[i]);
    fuzz_fill_pair(file, &pair);
    const char *names[2] = {file[0].name, file[1].name};
    const ls_cifar_detail detail = {
        .records = {1, 1}, .labels = 1, .files = {names, 2, {"a", "b"}, NULL}};
    const ls_dataset_kind kind = {
        {"fuzz", 3, 32, 32, 10, NULL, NULL, LS_DATA_PUBLIC}, ls_cifar_open, &detail};
    const ls_dataset_spec spec = {.name = "fuzz",
                                  .path = FUZZ_FOLDER,
                                  .limit = pair.switches >> FUZZ_LIMIT_SHIFT & FUZZ_LIMIT_MASK};
    int rc = ls_dataset_open_kind(&split[0], &split[1], &kind, &spec, NULL, &err);
    if (rc != LS_OK) {
        fuzz_check(split[0] == NULL && split[1] == NULL, "a refusal leaves nothing behind");
        fuzz_check_data_refusal(rc, &err, file);
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        const uint8_t *record = fuzz_is_plain(&pair, i) ? pair.data[i] : NULL;
        fuzz_check(ls_dataset_describe(split[i])->rows == 1, "a split has its records");
        fuzz_check(!record || pair.size[i] == RECORD, "no byte is left over");
        fuzz_check_rows(split[i], record ? record + 1 : NULL, RECORD, record, RECORD);
        ls_dataset_close(split[i]);
    }
    return 0;
}
