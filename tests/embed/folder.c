/* SPDX-License-Identifier: MIT */
/* folder CONFIG CACHE ONNX: trains with the config file CONFIG through the library, decodes
 * pictures into the directory CACHE, writes the trained model to the file ONNX, and prints the
 * SHA-256 of the weights. */
#include <lockstep/model.h>
#include <lockstep/trainer.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    ls_trainer_options options = {.size = sizeof options};
    ls_trainer *trainer = NULL;
    ls_model *model = NULL;
    ls_error err;
    if (argc != 4)
        return 64;
    options.config_path = argv[1];
    options.cache_dir = argv[2][0] ? argv[2] : NULL;
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK)
        status = ls_trainer_run(trainer, &err);
    if (status == LS_OK)
        status = ls_trainer_model(&model, trainer, &err);
    if (status == LS_OK)
        status = ls_model_export(model, argv[3], &err);
    if (status == LS_OK)
        printf("%s\n", ls_trainer_result(trainer)->weights_sha256);
    else
        fprintf(stderr, "folder: %s\n", err.text);
    ls_model_release(model);
    ls_trainer_close(trainer, NULL);
    return status != LS_OK;
}
