/* SPDX-License-Identifier: MIT */
/* The smallest program that uses the trainer, in C and in C++: one epoch on synthetic data. */
#include <lockstep/trainer.h>
#include <stdio.h>
#include <string.h>

static const char config[] =
    "{\"name\": \"consumer\", \"data\": {\"name\": \"synthetic\", \"limit\": 64},"
    " \"model\": {\"name\": \"one\", \"layers\": [{\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"out\": 10}]},"
    " \"devices\": \"cpu:2\", \"batch_size\": 32, \"epochs\": 1, \"run_dir\": null,"
    " \"init\": {\"name\": \"normal\", \"std\": 0.01},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1}}";

int main(void)
{
    ls_trainer_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.config_text = config;
    ls_trainer *trainer;
    ls_error err;
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK) {
        status = ls_trainer_run(trainer, &err);
        if (status == LS_OK)
            printf("%s\n", ls_trainer_result(trainer)->weights_sha256);
        ls_trainer_close(trainer, NULL);
    }
    if (status != LS_OK)
        fprintf(stderr, "%s\n", err.text);
    return status != LS_OK;
}
