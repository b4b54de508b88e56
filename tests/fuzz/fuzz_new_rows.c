/* Tables of new rows, for a model of three columns, with its classes and without. */
#include "data/new_rows.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static const char name[] = "rows.csv";
static const char description[] = "{\"version\":1,\"rows\":\"table\",\"target\":\"y\",\"columns\":["
                                  "{\"name\":\"a\",\"mean\":4.1,\"deviation\":0.7,\"missing\":4},"
                                  "{\"name\":\"b\",\"levels\":[\"9\",\"x\"]},{\"name\":\"c\"}]}";

/* Without quotes, every row has as many commas as the first line. */
static void check_commas(const uint8_t *data, size_t size, uint32_t rows)
{
    size_t first = 0, commas = 0, lines = 0, bytes = 0;
    if (memchr(data, '"', size))
        return;
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
    fuzz_check(lines == (size_t)rows + 1, "every line is a row");
}

static void read_rows(const ls_prep *prep, bool labelled, const uint8_t *data, size_t size)
{
    static const char *const classes[] = {"no", "yes"};
    const ls_new_rows of = {.prep = prep,
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
    for (size_t i = 0; i < info->rows * (size_t)4; i++)
        fuzz_check(isfinite(view.values[i]), "values are finite");
    for (size_t r = 0; r < info->rows; r++) {
        const float *b = view.values + r * 4 + 1;
        fuzz_check(b[0] + b[1] == 1 && b[0] * b[1] == 0, "one level is 1");
        fuzz_check(view.labels[r] >= 0 && view.labels[r] < 2, "labels are classes");
    }
    check_commas(data, size, info->rows);
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
