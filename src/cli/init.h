/* `trainer init`: inspects the data at a path and writes a config that trains on it. */
#ifndef CLI_INIT_H
#define CLI_INIT_H

#include "cli/cli.h"
#include "data/dataset.h"

/* The properties of the data that `trainer init` has found. */
typedef struct cli_inspection {
    /* the path, and the target column, as the user gave them; target NULL: the program chooses the
     * target */
    const char *path, *target;
    /* Values of data.decimal, data.separator and data.encoding as the user gave them; NULL: detect
     * them. */
    const char *decimal, *separator, *encoding;
    const ls_host *host;
    const char *kind; /* kind of data, such as "csv", "folder", "npy", "safetensors", "mnist" */
    bool known;       /* the data is a public dataset, recognised by the names of its files */
    /* ---- arrays: files below `folder`, which may be "" --------------------------------------- */
    char folder[4096], x[256], y[256], test_x[256], test_y[256];
    bool last;      /* rows are [height][width][channels] */
    ls_host silent; /* the host without its log, for a first look */
    /* ---- tables ------------------------------------------------------------------------------ */
    cJSON *drop;   /* array of the names of the columns that are left out */
    bool commas;   /* a name in `drop` contains a comma */
    ls_buffer why; /* a line with the reason for each column in `drop` */
    bool values;   /* the target is a number; false: a class */
    /* `values` was chosen by the program: the target's column has numbers with fractions, or too
     * many different numbers for classes */
    bool values_why;
    bool fills; /* some values are missing */
    ls_dataset *split[2];
    /* ---- pictures ---------------------------------------------------------------------------- */
    ls_folder_desc pack;
    ls_folder listed;
    bool grey; /* no picture that was decoded has colours */
    /* ---- all kinds --------------------------------------------------------------------------- */
    uint32_t rows, test_rows;
    int classes, targets, channels, height, width;
    bool floats;
    double mean, deviation; /* statistics of a row's values; bytes are divided by 255 */
} cli_inspection;

/* Inspects the data at look->path and fills *look. The caller calls cli_inspect_end afterwards,
 * even after a failure. Errors: those of opening the data; LS_ENOENT, LS_EDATA and LS_EINVAL with
 * what was expected. */
int cli_inspect(cli_inspection *look, ls_error *err);
/* Closes what cli_inspect has opened and frees its memory. */
void cli_inspect_end(cli_inspection *look);

/* Prints a description of the data to `stream`. */
void cli_inspect_print(const cli_inspection *look, FILE *stream);

/* Writes a config that trains on the data. */
void cli_inspect_write(ls_json_writer *w, const cli_inspection *look);

#endif
