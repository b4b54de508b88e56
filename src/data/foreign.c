/* SPDX-License-Identifier: MIT */
/* Recognises files of other formats (foreign.h). */
#include "data/foreign.h"

#include "data/picture_starts.h"

#include <stdbool.h>

#define PICTURE                                                                                    \
    "a picture; if pictures are to be learnt, name the folder that has a sub-folder of them for "  \
    "each class"
#define SAVE_AS_CSV ": save it as CSV, in Python with pandas."

/* Formats of files that are no tables of text: how the files begin, what they are, and the cure. */
static const struct {
    size_t offset;
    const char *begins, *what;
} foreign[] = {
    {0, "\x1F\x8B", "gzip's; decompress it before: gunzip"},
    {0, "PK\3\4", "a ZIP archive; if it is the file of a spreadsheet, save the sheet as CSV"},
    {0, "\xD0\xCF\x11\xE0", "the file of an old spreadsheet; save the sheet as CSV"},
    {0, "PAR1", "a Parquet file" SAVE_AS_CSV "read_parquet(…).to_csv(…, index=False)"},
    {0, "ARROW1", "a Feather file" SAVE_AS_CSV "read_feather(…).to_csv(…, index=False)"},
    {0, "\x89HDF", "an HDF5 file" SAVE_AS_CSV "read_hdf(…).to_csv(…, index=False)"},
    {0, "SQLite format 3", "an SQLite database; export its table as CSV"},
    {0, "\x93NUMPY", "a NumPy array; its file's name must end in .npy"},
    {0, LS_STARTS_PNG, PICTURE},
    {0, LS_STARTS_JPEG, PICTURE},
    {8, LS_STARTS_WEBP_8, PICTURE},
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Returns whether the text begins like a JSON object, or a list of objects or lists. */
static bool is_json(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n && is_blank(text[at]))
        at++;
    if (at == n || (text[at] != '{' && text[at] != '['))
        return false;
    const bool object = text[at++] == '{';
    while (at < n && is_blank(text[at]))
        at++;
    return at < n && (object ? text[at] == '"' : text[at] == '{' || text[at] == '[');
}

const char *ls_foreign_format(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (ls_has_at(text, n, foreign[i].offset, foreign[i].begins))
            return foreign[i].what;
    for (size_t i = 0; i < LS_PICTURE_STARTS; i++)
        if (ls_picture_starts[i].distinct &&
            ls_has_at(text, n, ls_picture_starts[i].at, ls_picture_starts[i].bytes))
            return PICTURE;
    return is_json(text, n) ? "JSON" SAVE_AS_CSV "read_json(…).to_csv(…, index=False)" : NULL;
}
