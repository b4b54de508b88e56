/* SPDX-License-Identifier: MIT */
/* Measures the CPU time of predicting a few rows on one thread, in microseconds, for each requested
 * number of rows.
 *
 *     bench_rows weights.safetensors        numbers of rows on standard input, one a line
 *
 * For each number of rows it prints a line with the median over at least seven predictions, which
 * together take at least a tenth of a second of CPU time. bench/peers/rows.py runs this program and
 * ONNX Runtime in turns. */
#include "measure.h"

#include <lockstep/model.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_ROWS = 64, LEAST = 7, MOST = 100000 };

static double median_us(ls_model *model, const void *rows, ls_row_type type, uint32_t n, float *out,
                        size_t capacity)
{
    static double taken[MOST];
    ls_error err;
    int count = 0;
    for (double begun = cpu_seconds();
         count < LEAST || (cpu_seconds() - begun < 0.1 && count < MOST);) {
        const double at = cpu_seconds();
        if (ls_model_predict(model, rows, type, n, LS_OUTPUT_PREDICTION, out, capacity, &err) !=
            LS_OK) {
            fprintf(stderr, "bench_rows: %s\n", err.text);
            exit(1);
        }
        taken[count++] = cpu_seconds() - at;
    }
    sort_values(taken, count);
    return 1e6 * taken[count / 2];
}

int main(int argc, char **argv)
{
    ls_model *model;
    ls_model_info info = {.size = sizeof info};
    ls_error err;
    char line[32];
    if (argc != 2 || ls_model_open(&model, argv[1], NULL, &err) != LS_OK) {
        fprintf(stderr, "bench_rows: %s\n", argc == 2 ? err.text : "a model's file is missing");
        return 1;
    }
    ls_model_describe(model, &info, NULL);
    const size_t values =
        (size_t)info.channels * (size_t)info.height * (size_t)info.width * MOST_ROWS;
    void *rows = malloc(values * sizeof(float));
    const size_t outputs = MOST_ROWS * (size_t)info.outputs;
    float *out = malloc(outputs * sizeof *out);
    for (size_t i = 0; rows && i < values; i++)
        if (info.row_type != LS_ROW_U8)
            ((float *)rows)[i] = (float)(i * 2654435761u >> 16 & 1023) / 512 - 1;
        else
            ((uint8_t *)rows)[i] = (uint8_t)(i * 2654435761u >> 16);
    while (rows && out && fgets(line, sizeof line, stdin)) {
        const int n = atoi(line);
        if (n < 1 || n > MOST_ROWS)
            break;
        printf("%.2f\n", median_us(model, rows, info.row_type, (uint32_t)n, out, outputs));
        fflush(stdout);
    }
    free(out);
    free(rows);
    ls_model_release(model);
    return 0;
}
