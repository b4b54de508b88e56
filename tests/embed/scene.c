/* SPDX-License-Identifier: MIT */
#include "embed/scene.h"

#include "ref/ref.h"
#include "train/own_data.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 16

static const char config[] =
    "{\"data\": {\"name\": \"own\"}, \"batch_size\": 16, \"shards\": 2, \"run_dir\": \"\","
    " \"init\": {\"name\": \"normal\", \"std\": 0.01},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 5, \"stride\": 3},"
    " {\"type\": \"batch_norm\"}, {\"type\": \"relu\"}, {\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"out\": 10}]}}";

ls_registry *scene_registry(void)
{
    ls_registry *registry;
    if (ls_registry_create(&registry, NULL, NULL) != LS_OK ||
        ls_registry_add(registry, ls_ref_backend(), NULL) != LS_OK)
        abort();
    return registry;
}

static int train(const scene *s, ls_trainer *t, ls_error *err)
{
    uint8_t images[BATCH * OWN_PIXELS];
    int32_t labels[BATCH];
    int status = LS_OK;
    for (uint32_t i = 0; i < BATCH; i++)
        own_row(0, i, images + (size_t)i * OWN_PIXELS, &labels[i]);
    for (int i = 0; status == LS_OK && i < (s->steps ? s->steps : 2); i++) {
        status = own_step(t, images, labels, BATCH, NULL, err);
        if (s->between)
            s->between(s->user);
    }
    return status;
}

static int predict(ls_trainer *t, ls_error *err)
{
    uint8_t image[OWN_PIXELS];
    int32_t label;
    float scores[OWN_CLASSES];
    own_row(1, 0, image, &label);
    return own_predict(t, image, LS_ROW_U8, 1, scores, OWN_CLASSES, err);
}

int scene_play(const scene *s, int *closed, ls_error *err)
{
    ls_data_source data = own_data(1);
    const ls_data_source *const sources[] = {&data};
    char devices[64];
    snprintf(devices, sizeof devices, "devices=%s", s->devices);
    const char *const set[] = {devices};
    ls_trainer_options o = {
        .size = sizeof o,
        .config_text = config,
        .set = set,
        .set_count = 1,
        .sources = sources,
        .source_count = 1,
        .registry = s->registry,
        .host = s->host,
    };
    ls_trainer *t = NULL;
    data.test_rows = 8;
    int status = ls_trainer_open(&t, &o, err);
    if (status == LS_OK)
        status = train(s, t, err);
    if (status == LS_OK)
        status = ls_trainer_evaluate(t, NULL, err);
    if (status == LS_OK)
        status = predict(t, err);
    if (status == LS_OK && s->save)
        status = ls_trainer_save(t, s->save, err);
    const int end = ls_trainer_close(t, NULL);
    if (closed)
        *closed = end;
    return status;
}

/* ---- the process ---- */

static int entries(const char *path)
{
    int count = -3; /* ".", ".." and the directory's own descriptor, or one thread */
    DIR *d = opendir(path);
    while (d && readdir(d))
        count++;
    if (d)
        closedir(d);
    return count;
}

int process_threads(int expected)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    int threads = entries("/proc/self/task") + 1;
    for (int i = 0; i < 1000 && threads > expected; i++) {
        nanosleep(&moment, NULL);
        threads = entries("/proc/self/task") + 1;
    }
    return threads;
}

int process_descriptors(void)
{
    return entries("/proc/self/fd");
}

long process_resident_kb(void)
{
    char line[128];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}
