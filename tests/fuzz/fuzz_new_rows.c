/* SPDX-License-Identifier: MIT */
/* Tables of new rows, for a model of three columns, with and without its classes. */
#include "data/new_rows.h"
#include "fuzz/fuzz_dataset.h"

#include <string.h>

static const char name[] = "rows.csv";
static const char description[] =
    "{\"version\":1,\"rows\":\"table\",\"target\":\"y\",\"columns\":["
    "{\"name\":\"a\",\"mean\":4.1,\"deviation\":0.7,\"missing\":4},"
    "{\"name\":\"b\",\"levels\":[\"9\",\"x\"]},{\"name\":\"c\",\"decimal\":\",\"}],\"encoding\":\"latin-1\"}";

static void read_rows(const ls_prep *prep, bool labelled, const uint8_t *data, size_t size)
{
    static const char *const classes[] = {"no", "yes"};
    const ls_input_format of = {.prep = prep,
                                .channels = 4,
                                .height = 1,
                                .width = 1,
                                .floats = true,
                                .classes = 2,
                                .class_name = classes,
                                .labelled = labelled,
                                .split = "test"};
    ls_dataset *ds;
    ls_error err = {0};
    int status = ls_new_rows_read_csv(&ds, &of, name, (const char *)data, size, &err);
    if (status) {
        fuzz_check(!ds, "nothing is left open");
        fuzz_check_refusal(status, &err, name);
        return;
    }
    const ls_dataset_info *info = ls_dataset_describe(ds);
    const ls_dataset_view view = ls_dataset_resident(ds);
    fuzz_check_finite(view.values, info->rows * (size_t)4);
    const ls_unknown_rows *unknown = info->unknown;
    fuzz_check(!labelled || !unknown, "a row with a target is known, or is left out");
    for (size_t r = 0, next = 0; r < info->rows; r++) {
        const float *b = view.values + r * 4 + 1;
        const bool known = !unknown || next == unknown->count || unknown->row[next].row != r;
        next += !known;
        fuzz_check(b[0] + b[1] == (float)known && b[0] * b[1] == 0,
                   "one level is 1 in a row that is known");
        fuzz_check(view.labels[r] >= 0 && view.labels[r] < 2, "labels are classes");
    }
    /* With commas alone, the rows can be counted. */
    bool plain = memchr(data, ',', size) && !(size >= 2 && (data[0] | data[1]) >= 0xfe);
    for (const char *c = ";\t|"; *c; c++)
        plain &= !memchr(data, *c, size);
    const size_t lines = plain ? fuzz_check_commas(data, size) : 0;
    fuzz_check(lines == 0 || lines == (size_t)info->rows + info->left_out + 1,
               "every line is a row, or is left out");
    ls_dataset_close(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_json *doc;
    ls_prep *prep;
    if (ls_json_parse(&doc, "card", description, sizeof description - 1, NULL, NULL) != LS_OK)
        return 0;
    fuzz_check(ls_prep_read(&prep, doc, ls_json_root(doc), 4, true, NULL, NULL) == LS_OK,
               "the description is sound");
    read_rows(prep, false, data, size);
    read_rows(prep, true, data, size);
    ls_prep_free(prep);
    ls_json_destroy(doc);
    return 0;
}
