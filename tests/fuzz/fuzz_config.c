/* SPDX-License-Identifier: MIT */
/* Reads a config as a text and as a file, followed by values of --set after zero characters. An
 * accepted config is within its limits, and the resolved config that a run writes reads as
 * itself. */
#include "config/config.h"
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A config may name a file with its model: in FUZZ_FOLDER, this is one. */
enum { MOST_SETS = 8, MODEL_FILE = 99 };

static fuzz_file file;

static void set_up(void)
{
    static const char model[] = "{\"layers\": [{\"type\": \"dense\", \"out\": 10}]}";
    fuzz_file model_file;
    fuzz_file_open(&file);
    fuzz_file_open(&model_file);
    fuzz_file_fill(&model_file, (const uint8_t *)model, strlen(model));
    fuzz_check(dup2(model_file.fd, MODEL_FILE) == MODEL_FILE, "there is room for a descriptor");
}

static char *resolved_text(const ls_config *config)
{
    char *text = NULL;
    ls_json_writer w;
    fuzz_check(ls_config_text(&text, config, NULL, NULL) == LS_OK, "a config can be written");
    ls_json_writer_init(&w, 0, NULL);
    ls_config_write_recipe(&w, NULL, config, 8);
    fuzz_check(ls_json_writer_text(&w, NULL, NULL) != NULL, "a recipe can be written");
    ls_json_writer_fini(&w);
    return text;
}

static void check_resolved(const ls_config *config)
{
    ls_config again;
    ls_error err = {0};
    char *text = resolved_text(config);
    const ls_trainer_options options = {.size = sizeof options, .config_text = text};
    int rc = ls_config_read(&again, &options, &err);
    if (rc != LS_OK)
        fprintf(stderr, "%s\n%s\n", err.text, text);
    fuzz_check(rc == LS_OK, "a resolved config is accepted");
    char *text2 = resolved_text(&again);
    if (strcmp(text, text2) != 0)
        fprintf(stderr, "%s\n%s\n", text, text2);
    fuzz_check(strcmp(text, text2) == 0, "a resolved config reads as itself");
    ls_config_fini(&again);
    free(text2);
    free(text);
}

static void check_limits(const ls_config *c)
{
    fuzz_check(c->batch_size >= 1 && c->epochs >= 1 && c->threads >= 0, "counts are positive");
    /* 0: one per device; -1: the model says how many. */
    fuzz_check(c->shards >= -1 && c->shards <= LS_SHARDS_MAX, "shards are in range");
    fuzz_check(c->capacities >= 0 && c->capacities <= LS_DEVICES_MAX, "capacities fit");
    for (int i = 0; i < c->capacities; i++)
        fuzz_check(c->capacity[i] > 0, "capacities are positive");
    for (int i = 0; i < 4; i++)
        fuzz_check(c->preprocessing.std[i] > 0, "nothing is divided by zero");
    fuzz_check(c->label_smoothing >= 0 && c->label_smoothing <= 1, "label smoothing is a share");
    fuzz_check(c->seed <= UINT64_C(1) << 53, "seeds are counted exactly");
    fuzz_check(c->name && c->name[0] && c->model && c->allreduce, "what must be there is there");
}

static void read_config(const ls_trainer_options *options, const char *name)
{
    ls_config config;
    ls_error err = {0};
    int rc = ls_config_read(&config, options, &err);
    if (rc != LS_OK) {
        /* A value of --set, and a model's file, are named themselves. */
        fuzz_check_refusal(rc, &err, strncmp(err.text, name, strlen(name)) == 0 ? name : "");
        return;
    }
    check_limits(&config);
    check_resolved(&config);
    ls_config_fini(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *set[MOST_SETS];
    if (file.name[0] == '\0')
        set_up();
    char *text = malloc(size + 1);
    fuzz_check(text != NULL, "there is memory for the text");
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    ls_trainer_options options = {.size = sizeof options, .config_text = text, .set = set};
    for (size_t at = strlen(text) + 1; at <= size && options.set_count < MOST_SETS;) {
        set[options.set_count++] = text + at;
        at += strlen(text + at) + 1;
    }
    read_config(&options, "config");
    fuzz_file_fill(&file, (const uint8_t *)text, strlen(text));
    options.config_path = file.path;
    read_config(&options, file.path);
    free(text);
    return 0;
}
