/* SPDX-License-Identifier: MIT */
/* Measures training steps in C. bench/python.py compares them with steps from Python. Each line
 * read from stdin starts a round of STEPS steps, each with ROWS rows that the program passes to the
 * trainer. The answer is a JSON list of the steps' times in microseconds.
 *
 *     bench_python_step CONFIG ROWS STEPS
 *
 * CONFIG is a JSON text. A row is an image of 1×28×28 bytes with one of 10 classes. */
#include <lockstep/trainer.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PIXELS = 28 * 28 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int wait_for_line(void)
{
    int c;
    while ((c = getchar()) != '\n' && c != EOF)
        continue;
    return c == '\n';
}

static int round_of(ls_trainer *trainer, uint32_t n, int steps, ls_error *err)
{
    uint8_t *rows = malloc((size_t)n * PIXELS);
    int32_t *labels = malloc(n * sizeof *labels);
    ls_step_result result = {.size = sizeof result};
    int status = rows && labels ? LS_OK : LS_ENOMEM;
    for (uint32_t i = 0; status == LS_OK && i < n * PIXELS; i++)
        rows[i] = (uint8_t)(i * 7);
    for (uint32_t i = 0; status == LS_OK && i < n; i++)
        labels[i] = (int32_t)(i % 10);
    for (int i = 0; status == LS_OK && i < steps; i++) {
        const ls_step_rows given = {sizeof given, rows, labels, LS_ROW_U8, n, NULL};
        double begun = now_us();
        status = ls_trainer_step(trainer, &given, &result, err);
        printf("%s%.2f", i ? ", " : "[", now_us() - begun);
    }
    puts("]");
    fflush(stdout);
    free(labels);
    free(rows);
    return status;
}

int main(int argc, char **argv)
{
    ls_data_source source = {.size = sizeof source,
                             .name = "python",
                             .channels = 1,
                             .height = 28,
                             .width = 28,
                             .row_type = LS_ROW_U8,
                             .classes = 10,
                             .streamed = 1};
    const ls_data_source *const sources[] = {&source};
    if (argc != 4)
        return 64;
    ls_trainer_options options = {
        .size = sizeof options, .config_text = argv[1], .sources = sources, .source_count = 1};
    ls_trainer *trainer = NULL;
    ls_error err = {0};
    int status = ls_trainer_open(&trainer, &options, &err);
    while (status == LS_OK && wait_for_line())
        status = round_of(trainer, (uint32_t)strtoul(argv[2], NULL, 10), atoi(argv[3]), &err);
    ls_trainer_close(trainer, NULL);
    if (status)
        fprintf(stderr, "bench_python_step: %s\n", err.text);
    return status != LS_OK;
}
