/* SPDX-License-Identifier: MIT */
/* A user's program, for one_number.py: opens a file of weights and prints its predictions.
 *
 *     one_number MODEL table FILE.csv       by the names of the columns (ls_model_row)
 *     one_number MODEL rows FILE N          N whole rows, bytes or native floats (ls_model_predict)
 *     one_number MODEL doubles FILE N       the same with native doubles
 *
 * Prints a line for each row with its outputs, which are probabilities if the model learnt
 * classes. */
#include <lockstep/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FIELDS = 128, MOST_LINE = 1 << 16 };

static void stop(const char *what, const ls_error *err)
{
    fprintf(stderr, "one_number: %s: %s\n", what, err ? err->text : "");
    exit(1);
}

static void print(ls_model *model, const void *rows, ls_row_type type, uint32_t n)
{
    ls_error err;
    ls_model_info info = {.size = sizeof info};
    ls_model_describe(model, &info, NULL);
    float *out = calloc(n * (size_t)info.outputs, sizeof *out);
    if (!out || ls_model_predict(model, rows, type, n, LS_OUTPUT_PREDICTION, out,
                                 n * (size_t)info.outputs, &err) != LS_OK)
        stop("ls_model_predict", &err);
    for (size_t i = 0; i < n * (size_t)info.outputs; i++)
        printf("%.9g%c", (double)out[i], (i + 1) % (size_t)info.outputs ? ' ' : '\n');
    free(out);
}

/* Fields between commas, without quotes. */
static size_t split(char *line, char **field)
{
    size_t n = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *end; n < MOST_FIELDS; line = end + 1) {
        field[n++] = line;
        end = strchr(line, ',');
        if (!end)
            return n;
        *end = '\0';
    }
    return n;
}

static void print_table(ls_model *model, size_t bytes, const char *path)
{
    static char names[MOST_LINE], line[MOST_LINE];
    char *name[MOST_FIELDS], *text[MOST_FIELDS];
    ls_field field[MOST_FIELDS];
    ls_error err;
    double *row = malloc(2 * bytes); /* `bytes` of floats */
    FILE *f = fopen(path, "r");
    if (!f || !row || !fgets(names, sizeof names, f))
        stop(path, NULL);
    const size_t columns = split(names, name);
    while (fgets(line, sizeof line, f)) {
        if (split(line, text) != columns)
            stop("a row has other fields than the header", NULL);
        for (size_t i = 0; i < columns; i++)
            field[i] = (ls_field){name[i], LS_FIELD_TEXT, text[i], 0};
        if (ls_model_row(model, field, columns, sizeof(ls_field), row, bytes / sizeof(float),
                         &err) != LS_OK)
            stop("ls_model_row", &err);
        print(model, row, LS_ROW_F64, 1);
    }
    fclose(f);
    free(row);
}

static void print_rows(ls_model *model, ls_row_type type, size_t bytes, const char *path,
                       uint32_t n)
{
    void *rows = malloc(n * bytes);
    FILE *f = fopen(path, "rb");
    if (!f || !rows || fread(rows, bytes, n, f) != n)
        stop(path, NULL);
    print(model, rows, type, n);
    fclose(f);
    free(rows);
}

int main(int argc, char **argv)
{
    ls_error err;
    ls_model *model;
    ls_model_info info = {.size = sizeof info};
    if (argc < 4)
        return 64;
    if (ls_model_open(&model, argv[1], NULL, &err) != LS_OK)
        stop("ls_model_open", &err);
    ls_model_describe(model, &info, NULL);
    const size_t bytes = (size_t)info.channels * (size_t)info.height * (size_t)info.width *
                         (info.row_type != LS_ROW_U8 ? sizeof(float) : 1);
    if (strcmp(argv[2], "table") == 0)
        print_table(model, bytes, argv[3]);
    else if (strcmp(argv[2], "doubles") == 0)
        print_rows(model, LS_ROW_F64, 2 * bytes, argv[3],
                   (uint32_t)strtoul(argc > 4 ? argv[4] : "1", NULL, 10));
    else
        print_rows(model, info.row_type != LS_ROW_U8 ? LS_ROW_F32 : LS_ROW_U8, bytes, argv[3],
                   (uint32_t)strtoul(argc > 4 ? argv[4] : "1", NULL, 10));
    ls_model_release(model);
    return 0;
}
