/* SPDX-License-Identifier: MIT */
/* Draws random recipes: data, and every key of the config. */
#include "base/rng.h"
#include "campaigns/swarm.h"
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- draws ---------------------------------------------------------------------------------- */

uint32_t draw(draws *d, uint32_t below)
{
    uint32_t words[4];
    ls_rng_words(words, d->seed, d->number, 0, d->index++);
    return words[0] % below;
}

int one_in(draws *d, uint32_t of)
{
    return draw(d, of) == 0;
}

int draw_from(draws *d, int first, int last)
{
    return first >= last ? first : first + (int)draw(d, (uint32_t)(last - first) + 1);
}

/* In thousandths of the way, so that a config can be read. */
double draw_between(draws *d, double first, double last)
{
    return first + (last - first) * (double)draw(d, 1001) / 1000;
}

const char *draw_word(draws *d, const char *const *words)
{
    uint32_t count = 0;
    while (words[count])
        count++;
    return words[draw(d, count)];
}

/* ---- data ----------------------------------------------------------------------------------- */

/* Stripes that lean with the label, under noise: something to learn, and no two images alike. */
static int read_rows(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                     void *targets, ls_error *err)
{
    uint8_t *images = values;
    int32_t *labels = targets;
    const swarm_case *c = user;
    const int pixels = c->data.channels * c->data.height * c->data.width;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t words[4];
        ls_rng_words(words, c->seed, c->number, (uint32_t)test, rows[i]);
        labels[i] = (int32_t)(words[0] % (uint32_t)c->data.classes);
        uint32_t noise = words[1];
        for (int p = 0; p < pixels; p++) {
            noise = noise * 1664525u + 1013904223u;
            const int stripe = (p % c->data.width + p / c->data.width * labels[i]) % 3 == 0;
            images[(size_t)i * (size_t)pixels + (size_t)p] =
                (uint8_t)((noise >> 26) + (stripe ? 160 : 20));
        }
    }
    return LS_OK;
}

static void draw_data(swarm_case *c, draws *d)
{
    const int table = one_in(d, 10);
    snprintf(c->data_name, sizeof c->data_name, "drawn%u", (unsigned)c->number);
    c->data = (ls_data_source){.size = sizeof c->data,
                               .name = c->data_name,
                               .channels = draw_from(d, 1, table || one_in(d, 4) ? 6 : 3),
                               .height = table ? 1 : draw_from(d, 3, 12),
                               .width = table ? 1 : draw_from(d, 3, 12),
                               .row_type = LS_ROW_U8,
                               .classes = draw_from(d, 2, 12),
                               .train_rows = (uint32_t)draw_from(d, 4, 90),
                               .test_rows = (uint32_t)draw_from(d, 1, 70),
                               .streamed = one_in(d, 5),
                               .read = read_rows,
                               .user = c};
}

/* A number for all channels, or some of them with one each. */
static void add_channels(draws *d, cJSON *data, const char *key, double first, double last)
{
    const int count = draw_from(d, 0, 4);
    if (count == 0) {
        cJSON_AddNumberToObject(data, key, draw_between(d, first, last));
        return;
    }
    cJSON *list = cJSON_AddArrayToObject(data, key);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(draw_between(d, first, last)));
}

static void add_data(swarm_case *c, draws *d)
{
    cJSON *data = cJSON_AddObjectToObject(c->config, "data");
    swarm_place(c, d, data);
    /* data.pictures has values for these keys */
    if (one_in(d, 3) && !cJSON_HasObjectItem(data, "pictures")) {
        add_channels(d, data, "mean", 0, 1);
        add_channels(d, data, "std", 0.2, 1.5);
    }
    if (one_in(d, 2)) {
        cJSON *augment = cJSON_AddObjectToObject(c->config, "augment");
        const int image = c->data.height > 1;
        if (draw(d, 3) && image)
            cJSON_AddNumberToObject(augment, "crop", draw_from(d, 0, 5));
        if (draw(d, 3) && image)
            cJSON_AddBoolToObject(augment, "flip", (int)draw(d, 3) > 0);
        if (one_in(d, 4) && image)
            cJSON_AddNumberToObject(augment, "rotate", draw_from(d, 0, 45));
        if (one_in(d, 4) && image)
            cJSON_AddNumberToObject(augment, "erase", draw_from(d, 0, 14));
        if (one_in(d, 4) && image)
            cJSON_AddNumberToObject(augment, "brightness", draw_between(d, 0, 1));
        if (one_in(d, 4) && image)
            cJSON_AddNumberToObject(augment, "resized_crop", draw_between(d, 0, 1));
        if (one_in(d, 3))
            cJSON_AddNumberToObject(augment, "mixup", draw_between(d, 0, 0.5));
    }
}

/* ---- the recipe ----------------------------------------------------------------------------- */

static void add_optimizer(swarm_case *c, draws *d)
{
    cJSON *o = cJSON_AddObjectToObject(c->config, "optimizer");
    const int adamw = one_in(d, 3);
    cJSON_AddStringToObject(o, "name", adamw ? "adamw" : "sgd");
    cJSON_AddNumberToObject(o, "lr",
                            draw_between(d, 0.001,
                                         adamw           ? 0.02
                                         : one_in(d, 12) ? 50
                                                         : 0.2));
    if (draw(d, 2))
        cJSON_AddNumberToObject(o, "weight_decay", draw_between(d, 0, 0.1));
    if (one_in(d, 4))
        cJSON_AddNumberToObject(o, "clip_norm", draw_between(d, 0, 2));
    if (one_in(d, 5))
        cJSON_AddNumberToObject(c->config, "ema", draw_between(d, 0, 0.99));
    if (one_in(d, 6)) /* each model has some of the one or the other */
        cJSON_AddNumberToObject(cJSON_AddObjectToObject(c->config, "lr_factors"), "*weight",
                                draw_between(d, 0.1, 4));
    if (one_in(d, 8)) /* a pattern might be that of all, or of none */
        cJSON_AddArrayToObject(c->config, "freeze");
    if (adamw && draw(d, 2)) {
        cJSON_AddNumberToObject(o, "beta1", draw_between(d, 0, 0.95));
        cJSON_AddNumberToObject(o, "beta2", draw_between(d, 0.5, 0.999));
        cJSON_AddNumberToObject(o, "epsilon", draw_between(d, 1e-8, 1e-3));
    }
    if (!adamw && draw(d, 2)) {
        cJSON_AddNumberToObject(o, "momentum", draw_between(d, 0.1, 0.95));
        if (draw(d, 2))
            cJSON_AddBoolToObject(o, "nesterov", (int)draw(d, 2));
    }
}

static void add_schedule(swarm_case *c, draws *d)
{
    static const char *const names[] = {"constant",   "step",        "cosine", "one_cycle",
                                        "triangular", "exponential", NULL};
    const char *name = draw_word(d, names);
    if (one_in(d, 3))
        return;
    if (one_in(d, 4)) {
        cJSON_AddStringToObject(c->config, "schedule", name);
        return;
    }
    cJSON *s = cJSON_AddObjectToObject(c->config, "schedule");
    cJSON_AddStringToObject(s, "name", name);
    const int cycle = strcmp(name, "one_cycle") == 0, triangle = strcmp(name, "triangular") == 0;
    const int exponential = strcmp(name, "exponential") == 0;
    if (draw(d, 2) && !cycle && !triangle && !exponential)
        cJSON_AddNumberToObject(s, "warmup_epochs", draw_between(d, 0, 2));
    if (cycle) {
        cJSON_AddNumberToObject(s, "peak", draw_between(d, 0, 1));
        cJSON_AddNumberToObject(s, "start", draw_between(d, 0, 0.5));
    }
    if (triangle)
        cJSON_AddNumberToObject(s, "every_epochs", draw_between(d, 0.2, 2));
    if (strcmp(name, "step") == 0) {
        cJSON_AddNumberToObject(s, "every_epochs", draw_between(d, 0.2, 2));
        cJSON_AddNumberToObject(s, "gamma", draw_between(d, 0.1, 1));
    }
    if (strcmp(name, "cosine") == 0 || cycle || triangle)
        cJSON_AddNumberToObject(s, "minimum", draw_between(d, 0, 0.5));
    if (exponential) {
        cJSON_AddNumberToObject(s, "minimum", draw_between(d, 1e-6, 1));
        cJSON_AddNumberToObject(s, "steps", 2 + (double)draw(d, 30));
    } else if (draw(d, 2)) {
        cJSON_AddNumberToObject(s, "epoch_steps", 2 + (double)draw(d, 30));
    }
}

static void add_init(swarm_case *c, draws *d)
{
    static const char *const names[] = {"normal", "xavier", "kaiming", "glorot", "he", NULL};
    const char *name = draw_word(d, names);
    if (one_in(d, 6)) {
        cJSON_AddStringToObject(c->config, "init", name);
        return;
    }
    cJSON *init = cJSON_AddObjectToObject(c->config, "init");
    cJSON_AddStringToObject(init, "name", name);
    if (strcmp(name, "normal") == 0)
        cJSON_AddNumberToObject(init, "std", draw_between(d, 0.05, 0.5));
}

/* In the config, or in a file of its own. Not {"onnx": FILE}: an ONNX file becomes such a list of
 * layers when the config is read (tests/tools/test_onnx_import.c). */
static void add_model(swarm_case *c, draws *d)
{
    cJSON *model = swarm_model(d, &c->data, c->data.classes * c->parts);
    if (draw(d, 12)) {
        cJSON_AddItemToObject(c->config, "model", model);
        return;
    }
    char path[600];
    snprintf(path, sizeof path, "%s/model.json", c->directory);
    char *text = cJSON_PrintUnformatted(model);
    FILE *file = fopen(path, "w");
    if (file) {
        fputs(text, file);
        fclose(file);
    }
    free(text);
    cJSON_Delete(model);
    cJSON_AddStringToObject(c->config, "model", path);
}

/* ---- how it is run -------------------------------------------------------------------------- */

static void add_word(swarm_case *c, draws *d, const char *key, const char *const *words)
{
    if (one_in(d, 3))
        cJSON_AddStringToObject(c->config, key, draw_word(d, words));
}

static void add_shards(swarm_case *c, draws *d)
{
    static const char *const kinds[] = {"naive", "nccl", "local", NULL};
    const int shards = one_in(d, 4) ? draw_from(d, 1, 20) : draw_from(d, 2, 8);
    c->most_workers = shards < SWARM_WORKERS ? shards : SWARM_WORKERS;
    if (one_in(d, 10)) {
        cJSON_AddStringToObject(c->config, "shards", "devices");
        c->same_count = 1;
        c->most_workers = 4;
    } else if (shards == 8 && draw(d, 2)) /* without the key */
        c->most_workers = ls_shards_for(
            (int)cJSON_GetObjectItemCaseSensitive(c->config, "batch_size")->valuedouble, 1, 0);
    else
        cJSON_AddNumberToObject(c->config, "shards", shards);
    if (one_in(d, 10)) {
        const char *kind = draw_word(d, kinds);
        cJSON_AddStringToObject(c->config, "allreduce", kind);
        c->same_count = 1; /* naive: the order of the sums is the workers' */
        c->refused = strcmp(kind, "naive") != 0;
    } else if (one_in(d, 4))
        cJSON_AddStringToObject(c->config, "allreduce", "ordered");
}

static void add_class_weights(swarm_case *c, draws *d)
{
    cJSON *list = cJSON_AddArrayToObject(c->config, "class_weights");
    for (int k = 0; k < c->data.classes; k++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(draw_between(d, 0.1, 3)));
}

static void add_loss_of_vectors(swarm_case *c, draws *d)
{
    static const char *const losses[] = {"auto",  "mse",      "bce",     "mae",
                                         "huber", "quantile", "poisson", NULL};
    const char *loss = draw_word(d, losses);
    cJSON_AddStringToObject(c->config, "loss", loss);
    if (strcmp(loss, "huber") == 0)
        cJSON_AddNumberToObject(c->config, "huber_delta", draw_between(d, 0.1, 2));
    if (strcmp(loss, "quantile") != 0)
        return;
    cJSON *list = cJSON_AddArrayToObject(c->config, "quantiles");
    c->parts = draw_from(d, 1, 3);
    for (int q = 0; q < c->parts; q++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((q + draw_between(d, 0.1, 0.9)) / c->parts));
}

/* Adds fixed or learnt scales of targets that are values. */
static void add_scales(swarm_case *c, draws *d)
{
    cJSON *data = cJSON_GetObjectItemCaseSensitive(c->config, "data");
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(c->config, "loss"),
                *name = cJSON_GetObjectItemCaseSensitive(data, "name");
    if (!c->vectors || !ls_loss_find(loss->valuestring, true)->scales)
        return;
    if (one_in(d, 3))
        cJSON_AddNumberToObject(data, "target_mean", draw_between(d, -2, 2));
    if (one_in(d, 3))
        cJSON_AddItemToArray(cJSON_AddArrayToObject(data, "target_std"),
                             cJSON_CreateNumber(draw_between(d, 0.5, 2)));
    if (one_in(d, 2) && strcmp(name->valuestring, c->data_name) == 0)
        cJSON_AddNumberToObject(data, "scale_rows", draw_from(d, 1, 200));
}

static void add_numerics(swarm_case *c, draws *d)
{
    static const char *const precisions[] = {"fp32", "tf32", "bf16", NULL};
    static const char *const scaling[] = {"none", "linear", NULL};
    static const char *const divisors[] = {"batch", "nominal", NULL};
    static const char *const losses[] = {"auto", "cross_entropy", NULL};
    add_word(c, d, "precision", precisions);
    add_word(c, d, "lr_scaling", scaling);
    add_word(c, d, "gradient_scale", divisors);
    if (c->vectors)
        add_loss_of_vectors(c, d);
    else
        add_word(c, d, "loss", losses);
    add_scales(c, d);
    if (one_in(d, 4) && !c->vectors)
        cJSON_AddNumberToObject(c->config, "label_smoothing", draw_between(d, 0, 0.5));
    if (one_in(d, 6) && !c->vectors)
        add_class_weights(c, d);
    if (one_in(d, 2))
        cJSON_AddNumberToObject(c->config, "seed", draw(d, 1000000));
    if (one_in(d, 12)) {
        cJSON_AddNumberToObject(c->config, "threads", 2);
        c->most_workers = c->most_workers < 3 ? c->most_workers : 3;
    }
}

/* Faults on purpose, at a step that the run may have. */
static void add_faults(swarm_case *c, draws *d, int steps)
{
    static const char *const nonfinite[] = {"stop", "skip", "skip", NULL};
    static const char *const loss[] = {"continue", "stop", NULL};
    add_word(c, d, "on_nonfinite", nonfinite);
    const char *word = draw_word(d, loss);
    const int stops = strcmp(word, "stop") == 0;
    if (one_in(d, 3))
        cJSON_AddStringToObject(c->config, "on_device_loss", word);
    if (one_in(d, 10))
        snprintf(c->inject, sizeof c->inject, "worker=0,step=%d,kind=nan", draw_from(d, 1, steps));
    else if (one_in(d, 8) && !c->same_count &&
             !(stops && cJSON_HasObjectItem(c->config, "on_device_loss")))
        snprintf(c->lose, sizeof c->lose, "worker=1,step=%d,kind=fail", draw_from(d, 1, steps));
    if (one_in(d, 4))
        cJSON_AddNumberToObject(c->config, "verify_every_steps", draw_from(d, 0, 3));
    if (one_in(d, 4))
        cJSON_AddNumberToObject(c->config, "deadline_s", draw_from(d, 0, 1) * 60);
    if (one_in(d, 4)) { /* alone */
        static const char *const transport[] = {"auto", "none", "mpi", NULL};
        cJSON *cluster = cJSON_AddObjectToObject(c->config, "cluster");
        cJSON_AddStringToObject(cluster, "transport", draw_word(d, transport));
        cJSON_AddNumberToObject(cluster, "deadline_s", draw_from(d, 0, 60));
        const bool survives = one_in(d, 2);
        cJSON_AddStringToObject(cluster, "on_host_loss", survives ? "continue" : "stop");
        cJSON_AddStringToObject(cluster, "on_arrival",
                                survives && one_in(d, 2) ? "admit" : "refuse");
    }
}

static void add_files(swarm_case *c, draws *d)
{
    c->on_disk = one_in(d, 6);
    if (one_in(d, 3)) {
        cJSON *checkpoint = cJSON_AddObjectToObject(c->config, "checkpoint");
        if (one_in(d, 2)) {
            cJSON_AddNumberToObject(checkpoint, "every_steps", draw_from(d, 0, 4));
            cJSON_AddNumberToObject(checkpoint, "every_epochs", draw_from(d, 0, 2));
        }
        if (one_in(d, 2)) /* from some steps to more than the run */
            cJSON_AddNumberToObject(checkpoint, "every_seconds", draw_between(d, 0, 0.02));
        cJSON_AddNumberToObject(checkpoint, "keep", draw_from(d, 1, 3));
        cJSON_AddBoolToObject(checkpoint, "async", (int)draw(d, 2));
        if (c->evaluates && one_in(d, 3))
            cJSON_AddStringToObject(checkpoint, "final", one_in(d, 2) ? "best" : "last");
        else if (c->evaluates)
            cJSON_AddBoolToObject(checkpoint, "best", (int)draw(d, 2));
    }
    if (one_in(d, 6))
        cJSON_AddBoolToObject(c->config, "receipt", (int)draw(d, 2));
    if (one_in(d, 6)) {
        static const char *const names[] = {"loss", "accuracy", "confusion", "top5"};
        cJSON *metrics = cJSON_AddObjectToObject(c->config, "metrics");
        cJSON_AddBoolToObject(metrics, "tensorboard", (int)draw(d, 2));
        if (draw(d, 2))
            cJSON_AddItemToObject(
                metrics, "names",
                cJSON_CreateStringArray(names, c->vectors ? 1 : 1 + (int)draw(d, 3)));
    }
}

void swarm_draw(swarm_case *c, uint64_t seed, uint32_t number, const char *directory)
{
    draws d = {seed, number, 0};
    *c = (swarm_case){.seed = seed, .number = number, .parts = 1, .directory = directory};
    c->config = cJSON_CreateObject();
    draw_data(c, &d);
    if (one_in(&d, 3))
        cJSON_AddStringToObject(c->config, "name", "swarm");
    const int batch = draw_from(&d, 1, 48), epochs = draw_from(&d, 1, 2);
    cJSON_AddNumberToObject(c->config, "batch_size", batch);
    cJSON_AddNumberToObject(c->config, "epochs", epochs);
    if (one_in(&d, 3))
        cJSON_AddNumberToObject(c->config, "eval_every", draw_from(&d, 0, 2));
    const cJSON *every = cJSON_GetObjectItem(c->config, "eval_every");
    c->evaluates = !every || every->valueint > 0;
    add_data(c, &d);
    add_optimizer(c, &d);
    add_schedule(c, &d);
    add_init(c, &d);
    add_shards(c, &d);
    add_numerics(c, &d);
    add_faults(c, &d, epochs * (((int)c->data.train_rows + batch - 1) / batch));
    add_files(c, &d);
    if (one_in(&d, 4))
        cJSON_AddStringToObject(c->config, "monitor",
                                c->vectors || draw(&d, 2) ? "loss" : "accuracy");
    if (c->evaluates && one_in(&d, 4))
        cJSON_AddNumberToObject(c->config, "patience", draw_from(&d, 0, 2));
    c->unequal = one_in(&d, 5);
    add_model(c, &d);
}

void swarm_fini(swarm_case *c)
{
    cJSON_Delete(c->config);
}
