/* SPDX-License-Identifier: MIT */
#include "train/own_data.h"

#include <stdio.h>

/* The image has noise and a bright bar, whose position depends on the label. */
void own_row(int test, uint32_t row, uint8_t *image, int32_t *label)
{
    uint32_t state = (row + 1) * 2654435761u + (uint32_t)test * 97u;
    *label = (int32_t)(row % OWN_CLASSES);
    for (int i = 0; i < OWN_PIXELS; i++) {
        state = state * 1664525u + 1013904223u;
        image[i] = (uint8_t)((state >> 24) / 4);
        if (i / 28 / 3 == *label && i % 28 > 4)
            image[i] = (uint8_t)(image[i] + 160);
    }
}

static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    uint8_t *images = values;
    int32_t *labels = targets;
    int *until_failure = user;
    if (until_failure && --*until_failure == 0) {
        snprintf(err->text, sizeof err->text, "the store is closed");
        return LS_EIO;
    }
    for (uint32_t i = 0; i < count; i++)
        own_row(test, rows[i], images + (size_t)i * OWN_PIXELS, &labels[i]);
    return LS_OK;
}

ls_data_source own_data(int streamed)
{
    return (ls_data_source){.size = sizeof(ls_data_source),
                            .name = "own",
                            .channels = 1,
                            .height = 28,
                            .width = 28,
                            .row_type = LS_ROW_U8,
                            .classes = OWN_CLASSES,
                            .train_rows = OWN_TRAIN,
                            .test_rows = OWN_TEST,
                            .streamed = streamed,
                            .read = read_rows};
}

int own_step(ls_trainer *trainer, const void *images, const void *labels, uint32_t n,
             ls_step_result *out, ls_error *err)
{
    const ls_step_rows rows = {sizeof rows, images, labels, LS_ROW_U8, n, NULL};
    return ls_trainer_step(trainer, &rows, out, err);
}

int own_predict(ls_trainer *trainer, const void *rows, ls_row_type type, uint32_t n, float *outputs,
                size_t capacity, ls_error *err)
{
    ls_model *model;
    int status = ls_trainer_model(&model, trainer, err);
    if (status)
        return status;
    status = ls_model_predict(model, rows, type, n, LS_OUTPUT_LOGITS, outputs, capacity, err);
    ls_model_release(model);
    return status;
}
