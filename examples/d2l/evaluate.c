/* SPDX-License-Identifier: MIT */
/* evaluate_accuracy_gpus of the book: each device predicts its rows of each test minibatch. The
 * accuracy is the number of correct predictions of all devices, divided by the number of rows. One
 * device alone must have the same accuracy.
 *
 *     d2l_evaluate [DEVICES [KEY=VALUE …]]
 *
 * Before the evaluation the program trains for a short time, on synthetic images unless data.name
 * is set. */
#include "demo.h"

#include <lockstep/trainer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETTINGS = 32 };

typedef struct outcome {
    double loss, accuracy;
    char weights[65];
} outcome;

static outcome train_and_evaluate(const char *devices, int argc, char **argv)
{
    char list[256];
    const char *const data_dirs[] = {"/usr/share/datasets"};
    const char *settings[MOST_SETTINGS] = {list,
                                           "data.name=synthetic",
                                           "data.limit=1920",
                                           "batch_size=64",
                                           "optimizer.momentum=0.9",
                                           "optimizer.lr=0.05",
                                           "init=xavier",
                                           "epochs=2",
                                           "eval_every=0"};
    int count = 9;
    ls_error err;
    ls_trainer *trainer;
    snprintf(list, sizeof list, "devices=%s", devices);
    for (int i = 0; i < argc && count < MOST_SETTINGS; i++)
        settings[count++] = argv[i];
    ls_trainer_options options = {
        .size = sizeof options,
        .config_text = demo_lenet_config,
        .set = settings,
        .set_count = count,
        .data_dirs = data_dirs,
        .data_dir_count = 1,
    };
    demo_check(ls_trainer_open(&trainer, &options, &err), &err);
    demo_check(ls_trainer_run(trainer, &err), &err);
    const ls_result *r = ls_trainer_result(trainer);
    outcome out = {r->test_loss, r->metric_value, ""};
    memcpy(out.weights, r->weights_sha256, sizeof out.weights);
    printf("test acc %.4f, test loss %.4f on %s (%s)\n", out.accuracy, out.loss, r->devices,
           ls_trainer_summary(trainer)->synthetic ? "synthetic data" : "real data");
    ls_trainer_close(trainer, NULL);
    return out;
}

int main(int argc, char **argv)
{
    int settings = argc > 2 ? argc - 2 : 0;
    outcome one = train_and_evaluate("cpu:1", settings, argv + 2);
    outcome all = train_and_evaluate(argc > 1 ? argv[1] : "cpu:2", settings, argv + 2);
    printf("same weights: %s\n", strcmp(one.weights, all.weights) == 0 ? "yes" : "no");
    printf("same accuracy: %s\n", one.accuracy == all.accuracy ? "yes" : "no");
    printf("same loss: %s\n", one.loss == all.loss ? "yes" : "no");
    return EXIT_SUCCESS;
}
