/* SPDX-License-Identifier: MIT */
/* Saves checkpoints with known contents, and reports what is left of them. store_faults.py runs it.
 *
 *     save_driver save DIRECTORY GENERATION same|numbered
 *         saves one checkpoint, called "only" or named after step GENERATION, keeps the newest two,
 *         and replaces the file "note". Prints "saved" once it exists and "done" at the end. Exits
 *         with 1 and a message after a failure.
 *     save_driver check DIRECTORY
 *         prints "GENERATION BROKEN NOTE HIDDEN": the generation of the newest complete checkpoint
 *         (0: none), the number of broken ones, the note's generation (0: none, −1: damaged), and
 *         the number of names in the directory that should not be there. A checkpoint whose hash is
 *         right but which is not what a save writes counts as broken.
 *     save_driver recover DIRECTORY GENERATION same|numbered
 *         check, save, check: prints four numbers, "1" or "0" for the save, and four numbers. */
#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"

enum { PATH = 4096 };

static const char recipe[] =
    "{\"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"name\": \"a\", \"out\": 64},"
    " {\"type\": \"dense\", \"name\": \"b\", \"out\": 10}]},"
    " \"optimizer\": {\"lr\": 1, \"momentum\": 0.5}}";

/* The saved model: some 20,000 floats, half of them an optimizer's. */
static ls_network *model;
static ls_optimizer optimizer;
static float *weights, *momentum;

static void set_up(void)
{
    ls_json *doc;
    int rc = ls_json_parse(&doc, "recipe", recipe, sizeof recipe - 1, NULL, NULL);
    if (rc == LS_OK)
        rc = ls_network_parse(&model, doc,
                              cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "model"),
                              (ls_shape){1, 12, 12}, 10, NULL, NULL);
    if (rc == LS_OK)
        rc = ls_optimizer_parse(&optimizer, doc,
                                cJSON_GetObjectItemCaseSensitive(ls_json_root(doc), "optimizer"),
                                NULL);
    weights = rc == LS_OK ? calloc(2 * model->floats, sizeof *weights) : NULL;
    if (!weights)
        exit(2);
    momentum = weights + model->floats;
    ls_json_destroy(doc);
}

/* One generation differs from another in every float. */
static float value(size_t i, int generation)
{
    return (float)(i * 31 % 1009) + (float)generation * 0.125f;
}

static int print_text(char out[64], int generation)
{
    return snprintf(out, 64, "{\"generation\": %d}\n", generation);
}

static const char *note_path(char out[PATH], const char *directory)
{
    snprintf(out, PATH, "%s/note", directory);
    return out;
}

/* ---- saving --------------------------------------------------------------------------------- */

static void name_it(char out[LS_CHECKPOINT_NAME], int generation, const char *naming)
{
    if (strcmp(naming, "numbered") == 0)
        ls_checkpoint_name(out, (uint64_t)generation);
    else
        snprintf(out, LS_CHECKPOINT_NAME, "only");
}

static int save(const char *directory, int generation, const char *naming, int talk, ls_error *err)
{
    char text[64], path[PATH], name[LS_CHECKPOINT_NAME];
    const ls_checkpoint_values values = {weights, &momentum};
    int length = print_text(text, generation);
    name_it(name, generation, naming);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (size_t i = 0; i < 2 * model->floats; i++)
        weights[i] = value(i, generation);
    int rc = ls_checkpoint_write(path, model, &optimizer, &values, text, NULL, err);
    if (rc == LS_OK && talk) {
        puts("saved");
        fflush(stdout);
    }
    if (rc == LS_OK)
        rc = ls_checkpoints_prune(directory, 2, name, NULL, 0, NULL, err);
    if (rc == LS_OK)
        rc = ls_replace_file(note_path(path, directory), text, (size_t)length, NULL, err);
    if (rc == LS_OK && talk)
        puts("done");
    return rc;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* The generation whose contents the file has, or −1. */
static int generation_of(const char *path, ls_error *why)
{
    char text[64];
    ls_tensor_file *file;
    int generation = -1;
    const ls_checkpoint_values values = {weights, &momentum};
    if (ls_tensor_file_open(&file, path, NULL, why) != LS_OK)
        return -1;
    const char *state = ls_tensor_file_state(file);
    if (!state || sscanf(state, "{\"generation\": %d}", &generation) != 1 ||
        (size_t)print_text(text, generation) != strlen(state) || strcmp(text, state) != 0 ||
        ls_checkpoint_read(&values, file, model, &optimizer, NULL, why) != LS_OK)
        generation = -1;
    for (int i = 0; i < model->params && generation >= 0; i++)
        for (size_t k = 0; k < model->param[i]->count; k++) {
            const size_t at = model->param[i]->offset + k;
            if (weights[at] != value(at, generation) ||
                momentum[at] != value(model->floats + at, generation))
                generation = -1;
        }
    ls_tensor_file_close(file);
    return generation;
}

static int note_generation(const char *directory)
{
    char path[PATH], text[64], want[64];
    int generation = -1;
    FILE *f = fopen(note_path(path, directory), "rb");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    if (sscanf(text, "{\"generation\": %d}", &generation) != 1 ||
        (size_t)print_text(want, generation) != n || memcmp(text, want, n) != 0)
        return -1;
    return generation;
}

/* Looks at every name: checkpoints, and what should not be there. */
static void check(const char *directory)
{
    int newest = 0, broken = 0, hidden = 0;
    DIR *stream = opendir(directory);
    for (const struct dirent *e; stream && (e = readdir(stream)) != NULL;) {
        char path[PATH];
        ls_error why = {0};
        uint64_t steps;
        const char *name = e->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "note") == 0)
            continue;
        if (strcmp(name, "only") != 0 && !ls_checkpoint_is_named(name, &steps)) {
            hidden++;
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", directory, name);
        const int generation = generation_of(path, &why);
        if (generation < 0)
            fprintf(stderr, "%s: %s\n", name, why.text);
        broken += generation < 0;
        newest = generation > newest ? generation : newest;
    }
    if (stream)
        closedir(stream);
    printf("%d %d %d %d\n", newest, broken, note_generation(directory), stream ? hidden : -1);
}

int main(int argc, char **argv)
{
    ls_error err = {0};
    set_up();
    if (argc == 3 && strcmp(argv[1], "check") == 0) {
        check(argv[2]);
        return 0;
    }
    if (argc != 5)
        return 2;
    if (strcmp(argv[1], "recover") == 0) {
        check(argv[2]);
        int rc = save(argv[2], atoi(argv[3]), argv[4], 0, &err);
        printf("%d\n", rc == LS_OK);
        if (rc != LS_OK)
            fprintf(stderr, "%s\n", err.text);
        check(argv[2]);
        return 0;
    }
    if (save(argv[2], atoi(argv[3]), argv[4], 1, &err) == LS_OK)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return 1;
}
