/* SPDX-License-Identifier: MIT */
/* The smallest program that uses pictures, in C and in C++: a picture in memory becomes a row of a
 * model, which computes its outputs. The model here is not trained; ls_model_open reads a trained
 * one. */
#include <lockstep/model.h>
#include <lockstep/picture.h>
#include <lockstep/trainer.h>
#include <stdio.h>
#include <string.h>

static const char config[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 64}, \"batch_size\": 32, \"run_dir\": null,"
    " \"devices\": \"cpu:1\", \"init\": {\"name\": \"normal\", \"std\": 0.01},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1},"
    " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

static int predict(ls_model *model, const void *bytes, size_t length, ls_error *err)
{
    unsigned char row[3 * 32 * 32];
    float p[10];
    int status = ls_model_picture(model, bytes, length, 0, row, sizeof row, err);
    if (status == LS_OK)
        status = ls_model_predict(model, row, LS_ROW_U8, 1, LS_OUTPUT_PREDICTION, p, 10, err);
    if (status == LS_OK)
        printf("%g\n", (double)p[0]);
    return status;
}

int main(void)
{
    static const char picture[] = "P6 2 2 255\nabcdefghijkl";
    ls_trainer_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.config_text = config;
    ls_trainer *trainer;
    ls_model *model = 0;
    ls_error err;
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK) {
        status = ls_trainer_model(&model, trainer, &err);
        ls_trainer_close(trainer, NULL);
    }
    if (status == LS_OK)
        status = predict(model, picture, sizeof picture - 1, &err);
    if (status == LS_OK && predict(model, "GIF", 3, &err) != LS_EDATA)
        status = LS_EINVAL;
    else if (status != LS_OK)
        fprintf(stderr, "%s\n", err.text);
    ls_model_release(model);
    return status != LS_OK;
}
