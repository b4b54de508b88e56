/* trainer init: what lies at a path, and a config that trains on it. */
#ifndef CLI_INIT_H
#define CLI_INIT_H

#include "cli/pack.h"
#include "data/dataset.h"

typedef struct cli_look {
    const char *path, *target; /* as the user gave them; target NULL: the program chooses */
    const char *decimal, *separator,
        *encoding; /* as data.decimal and so on, as the user gave them; NULL: found */
    const ls_host *host;
    const char *kind; /* of data: "csv", "folder", "npy", "safetensors", "mnist", … */
    bool known;       /* a data set whose files have names of their own */
    /* ---- of arrays: files below `folder`, "" where there is none */
    char folder[4096], x[256], y[256], test_x[256], test_y[256];
    bool last;      /* rows are [height][width][channels] */
    ls_host silent; /* the host without its log, for a first look */
    /* ---- of a table */
    cJSON *drop;     /* a list of columns that are left out */
    bool commas;     /* one of them has a comma in its name */
    ls_buffer why;   /* a line for each of them */
    bool values;     /* the target is a number, else a class */
    bool values_why; /* its texts are numbers, which are too many for classes, or no whole ones */
    bool fills;      /* values are missing */
    ls_dataset *split[2];
    /* ---- of pictures */
    cli_pack pack;
    cli_packing listed;
    bool grey;
    /* ---- of all of them */
    uint32_t rows, test_rows;
    int classes, targets, channels, height, width;
    bool floats;
    double mean, deviation; /* of the values of a row, bytes divided by 255 */
} cli_look;

/* Looks at look->path. What it has opened, cli_look_end closes, also after a failure. Errors: those of the data, and
 * LS_ENOENT, LS_EDATA with what was expected. */
int cli_look_at(cli_look *look, ls_error *err);
void cli_look_end(cli_look *look);

/* Prints what was seen. */
void cli_look_print(const cli_look *look, FILE *stream);

/* The config, as indented JSON. */
void cli_look_write(ls_json_writer *w, const cli_look *look);

#endif
