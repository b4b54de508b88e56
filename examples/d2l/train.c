/* SPDX-License-Identifier: MIT */
/* train(num_gpus, batch_size, lr) of the book: trains LeNet on Fashion-MNIST.
 *
 *     d2l_train [DEVICES [KEY=VALUE …]]           d2l_train cpu:2 batch_size=512 optimizer.lr=0.4
 *
 * DEVICES is "cpu:1", "cpu:2", … or "auto" for all devices; the result is the same with all of
 * them. Assignments to any keys of the config may follow, for example data.name=synthetic if
 * Fashion-MNIST is not installed. */
#include "demo.h"

#include <lockstep/trainer.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_SETTINGS = 32 };

static void on_progress(void *user, const ls_progress *p)
{
    (void)user;
    if (p->epoch_done && p->evaluated)
        printf("epoch %d, test acc %.2f\n", p->epoch, p->metric_value);
    fflush(stdout);
}

static void train(const char *const *settings, int count)
{
    const char *own = getenv("LOCKSTEP_DATA");
    const char *const data_dirs[] = {own ? own : ".", "/usr/share/datasets"};
    ls_error err;
    ls_trainer *trainer;
    const ls_trainer_callbacks callbacks = {.size = sizeof callbacks, .progress = on_progress};
    ls_trainer_options options = {
        .size = sizeof options,
        .config_text = demo_lenet_config,
        .set = settings,
        .set_count = count,
        .data_dirs = data_dirs,
        .data_dir_count = 2,
        .callbacks = &callbacks,
    };
    demo_check(ls_trainer_open(&trainer, &options, &err), &err);
    puts(ls_trainer_summary(trainer)->data);
    demo_check(ls_trainer_run(trainer, &err), &err);
    const ls_result *result = ls_trainer_result(trainer);
    printf("test acc: %.2f, %.1f sec/epoch on %s\n", result->metric_value,
           result->seconds_per_epoch, result->devices);
    ls_trainer_close(trainer, NULL);
}

int main(int argc, char **argv)
{
    char devices[256];
    const char *settings[MOST_SETTINGS] = {devices, "batch_size=256", "optimizer.lr=0.2"};
    int count = 3;
    snprintf(devices, sizeof devices, "devices=%s", argc > 1 ? argv[1] : "cpu:2");
    for (int i = 2; i < argc && count < MOST_SETTINGS; i++)
        settings[count++] = argv[i];
    train(settings, count);
    return EXIT_SUCCESS;
}
