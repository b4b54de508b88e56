/* SPDX-License-Identifier: MIT */
/* Learns numbers in a program, step by step: y = 2·a − 3·b + 100 from rows that the program makes.
 * The loss "mse" compares numbers; the library learns their scale from the first rows.
 *
 *     cc embed_values.c $(pkg-config --cflags --libs lockstep) -o embed_values
 */
#include <lockstep/trainer.h>
#include <stdio.h>

#define BATCH 64

static const char config[] =
    "{\"data\": {\"name\": \"line\"}, \"loss\": \"mse\", \"batch_size\": 64, \"devices\": \"cpu:1\","
    " \"model\": {\"layers\": [{\"type\": \"dense\", \"out\": 1}]},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.3}}";

/* Makes a row of two numbers and its target. */
static void make(unsigned number, float *row, float *target)
{
    row[0] = (float)(number * 7 % 64) / 32 - 1;
    row[1] = (float)(number * 23 % 64) / 32 - 1;
    *target = 2 * row[0] - 3 * row[1] + 100;
}

static int train(ls_trainer *trainer, ls_error *err)
{
    float rows[BATCH][2], targets[BATCH];
    ls_step_result result = {.size = sizeof result};
    const ls_step_rows given = {
        .size = sizeof given, .rows = rows, .targets = targets, .row_type = LS_ROW_F32, .n = BATCH};
    int status = LS_OK;
    for (unsigned step = 0; status == LS_OK && step < 200; step++) {
        for (unsigned i = 0; i < BATCH; i++)
            make(step * BATCH + i, rows[i], &targets[i]);
        status = ls_trainer_step(trainer, &given, &result, err);
    }
    if (status == LS_OK)
        printf("loss after %d steps: %.4f\n", (int)result.number, result.loss);
    return status;
}

static int predict(ls_trainer *trainer, ls_error *err)
{
    const float row[2] = {0.5f, -0.5f};
    float y;
    ls_model *model;
    int status = ls_trainer_model(&model, trainer, err);
    if (status == LS_OK)
        status = ls_model_predict(model, row, LS_ROW_F32, 1, LS_OUTPUT_PREDICTION, &y, 1, err);
    if (status == LS_OK)
        printf("f(0.5, -0.5) is about %.1f\n", (double)y);
    ls_model_release(model);
    return status;
}

int main(void)
{
    /* There are no rows in the data source, because each step gets its rows from the program. */
    const ls_data_source line = {.size = sizeof line,
                                 .name = "line",
                                 .channels = 2,
                                 .height = 1,
                                 .width = 1,
                                 .row_type = LS_ROW_F32,
                                 .target_count = 1,
                                 .streamed = 1};
    const ls_data_source *const sources[] = {&line};
    const ls_trainer_options options = {
        .size = sizeof options, .config_text = config, .sources = sources, .source_count = 1};
    ls_trainer *trainer;
    ls_error err;
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK)
        status = train(trainer, &err);
    if (status == LS_OK)
        status = predict(trainer, &err);
    const int closed = ls_trainer_close(trainer, status == LS_OK ? &err : NULL);
    if (status == LS_OK)
        status = closed;
    if (status != LS_OK)
        fprintf(stderr, "embed_values: %s\n", err.text);
    return status != LS_OK;
}
