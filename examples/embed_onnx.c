/* SPDX-License-Identifier: MIT */
/* Trains a network from an ONNX file on, and writes it back.
 *
 *     cc embed_onnx.c $(pkg-config --cflags --libs lockstep) -o embed_onnx
 *     ./embed_onnx net.onnx trained.onnx
 */
#include <lockstep/model.h>
#include <lockstep/trainer.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char config[4096];
    ls_trainer *trainer = NULL;
    ls_model *model = NULL;
    ls_error err;
    if (argc != 3)
        return fprintf(stderr, "usage: embed_onnx FROM.onnx TO.onnx\n"), 64;
    snprintf(config, sizeof config,
             "{\"data\": {\"name\": \"synthetic\", \"limit\": 2048}, \"epochs\": 1,"
             " \"model\": {\"onnx\": \"%s\"}, \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01},"
             " \"run_dir\": null, \"devices\": \"cpu\"}",
             argv[1]);
    const ls_trainer_options options = {.size = sizeof options, .config_text = config};
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK)
        status = ls_trainer_run(trainer, &err);
    if (status == LS_OK)
        status = ls_trainer_model(&model, trainer, &err);
    if (status == LS_OK)
        status = ls_model_export(model, argv[2], &err);
    if (status == LS_OK)
        printf("test accuracy %.2f\n", ls_trainer_result(trainer)->metric_value);
    else
        fprintf(stderr, "embed_onnx: %s\n", err.text);
    ls_model_release(model);
    ls_trainer_close(trainer, NULL);
    return status != LS_OK;
}
