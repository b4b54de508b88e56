/* SPDX-License-Identifier: MIT */
/* Uses Lockstep's trainer in a program: trains a small network for three epochs, prints the result.
 *
 *     cc embed_run.c $(pkg-config --cflags --libs lockstep) -o embed_run
 */
#include <lockstep/trainer.h>
#include <stdio.h>

static const char config[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 2048}, \"epochs\": 3, \"run_dir\": null,"
    " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05}, \"devices\": \"cpu\"}";

/* Progress callback: called on the thread of ls_trainer_run, after each step. */
static void on_progress(void *user, const ls_progress *p)
{
    FILE *out = user;
    if (p->epoch_done && p->evaluated)
        fprintf(out, "epoch %d of %d: loss %.3f, test %s %.2f\n", p->epoch, p->epochs, p->loss,
                p->metric, p->metric_value);
}

int main(void)
{
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .user = stdout};
    const ls_trainer_options options = {
        .size = sizeof options, .config_text = config, .callbacks = &callbacks};
    ls_trainer *trainer = NULL;
    ls_error err;
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK)
        status = ls_trainer_run(trainer, &err);
    if (status == LS_OK)
        printf("weights %s, on %s\n", ls_trainer_result(trainer)->weights_sha256,
               ls_trainer_result(trainer)->devices);
    else
        fprintf(stderr, "embed_run: %s\n", err.text);
    if (ls_trainer_close(trainer, &err) != LS_OK) {
        fprintf(stderr, "embed_run: %s\n", err.text);
        return 1;
    }
    return status != LS_OK;
}
