/* SPDX-License-Identifier: MIT */
/* Trains on examples that the program itself draws (bars at one of ten heights), and predicts on
 * another thread with a copy of the model.
 *
 *     embed_trainer [CHECKPOINT]    continues from that file if it exists, and saves to it
 */
#include <lockstep/trainer.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 64, STEPS = 300, PIXELS = 28 * 28, CLASSES = 10 };

static const char config[] =
    "{\"data\": {\"name\": \"bars\"}, \"batch_size\": 64, \"shards\": 8, \"run_dir\": \"\","
    " \"init\": {\"name\": \"normal\", \"std\": 0.01},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 8, \"kernel\": 5, \"stride\": 2},"
    " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

static void draw(unsigned *seed, uint8_t *image, int32_t *label)
{
    *label = rand_r(seed) % CLASSES;
    for (int i = 0; i < PIXELS; i++)
        image[i] = (uint8_t)(rand_r(seed) % 200 + (i / 28 / 3 == *label ? 55 : 0));
}

/* Thread that predicts 100 images with a model and prints how many predictions are right. */
static void *predict(void *model)
{
    uint8_t image[PIXELS];
    int32_t label;
    float scores[CLASSES];
    unsigned seed = 7, right = 0;
    for (int i = 0; i < 100; i++) {
        draw(&seed, image, &label);
        int best = 0;
        if (ls_model_predict(model, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, scores, CLASSES, NULL) !=
            LS_OK)
            break;
        for (int k = 1; k < CLASSES; k++)
            best = scores[k] > scores[best] ? k : best;
        right += best == label;
    }
    ls_model_info about = {.size = sizeof about};
    ls_model_describe(model, &about, NULL);
    printf("after %llu steps %u of 100 predictions are right\n", (unsigned long long)about.steps,
           right);
    ls_model_release(model);
    return NULL;
}

int main(int argc, char **argv)
{
    static uint8_t images[BATCH * PIXELS];
    static int32_t labels[BATCH];
    /* A streamed source of images of 1×28×28: it has no rows, because each step gets its rows from
     * the caller. */
    const ls_data_source bars = {.size = sizeof bars,
                                 .name = "bars",
                                 .channels = 1,
                                 .height = 28,
                                 .width = 28,
                                 .classes = CLASSES,
                                 .streamed = 1,
                                 .row_type = LS_ROW_U8};
    const ls_data_source *const sources[] = {&bars};
    const ls_trainer_options options = {
        .size = sizeof options, .config_text = config, .sources = sources, .source_count = 1};
    const ls_step_rows rows = {sizeof rows, images, labels, LS_ROW_U8, BATCH, NULL};
    unsigned seed = (unsigned)getpid();
    ls_trainer *trainer = NULL;
    ls_error err;
    int status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK && argc > 1 && access(argv[1], F_OK) == 0)
        status = ls_trainer_load(trainer, argv[1], &err);
    for (int step = 1; status == LS_OK && step <= STEPS; step++) {
        ls_model *model;
        pthread_t reader;
        for (int i = 0; i < BATCH; i++)
            draw(&seed, images + i * PIXELS, &labels[i]);
        status = ls_trainer_step(trainer, &rows, NULL, &err);
        if (status == LS_OK && step % 100 == 0)
            if ((status = ls_trainer_model(&model, trainer, &err)) == LS_OK &&
                pthread_create(&reader, NULL, predict, model) == 0)
                pthread_join(reader, NULL); /* a service can go on training instead of waiting */
    }
    if (status == LS_OK && argc > 1)
        status = ls_trainer_save(trainer, argv[1], &err);
    if (status != LS_OK)
        fprintf(stderr, "embed_trainer: %s\n", err.text);
    ls_trainer_close(trainer, NULL);
    return status == LS_OK ? 0 : 1;
}
