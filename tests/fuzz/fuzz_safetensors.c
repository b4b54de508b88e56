/* SPDX-License-Identifier: MIT */
/* Weights: a safetensors file read for a small model, as weights and as gradients, and strictly as
 * the files that Lockstep itself writes: weights, or two groups of tensors. An accepted file has
 * filled every float. */
#include "fuzz/fuzz.h"
#include "nn/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model_text[] =
    "{\"layers\":[{\"type\":\"conv2d\",\"name\":\"c\",\"out\":2,\"kernel\":2},"
    "{\"type\":\"batch_norm\",\"name\":\"n\"},{\"type\":\"flatten\"},"
    "{\"type\":\"dense\",\"name\":\"d\",\"out\":3}]}";

static fuzz_file file;
static ls_network *model;
static ls_json *doc; /* kept: reachable until the process ends */

static void set_up(void)
{
    fuzz_file_open(&file);
    int rc = ls_json_parse(&doc, "model", model_text, strlen(model_text), NULL, NULL);
    if (rc == LS_OK)
        rc = ls_network_parse(&model, doc, ls_json_root(doc), (ls_shape){1, 3, 3}, 3, NULL, NULL);
    fuzz_check(rc == LS_OK, "the model of this target is a model");
}

/* The ways to read a file. */
typedef struct way {
    const char *prefix[2];
    int groups; /* 0: as other people's files are read; else strictly, that many groups */
} way;

static const way ways[] = {{{"", ""}, 0}, {{"grad.", ""}, 0}, {{"", ""}, 1}, {{"m.", "v."}, 2}};

static int load(float *out, const way *w, ls_error *err)
{
    const ls_tensors_in groups[2] = {{w->prefix[0], out}, {w->prefix[1], out + model->floats}};
    if (w->groups == 0)
        return ls_safetensors_load(out, file.path, model, w->prefix[0], NULL, err);
    ls_tensor_file *opened;
    int rc = ls_tensor_file_open(&opened, file.path, NULL, err);
    if (rc == LS_OK)
        rc = ls_safetensors_read_sets(groups, w->groups, opened, model, NULL, err);
    ls_tensor_file_close(opened);
    return rc;
}

/* Two runs over different memory: what differs afterwards was not read from the file. */
static int load_twice(float *const out[2], const way *w, ls_error *err)
{
    int rc[2];
    for (int i = 0; i < 2; i++) {
        memset(out[i], i == 0 ? 0x11 : 0x22, 2 * model->floats * sizeof(float));
        rc[i] = load(out[i], w, err);
    }
    fuzz_check(rc[0] == rc[1], "the same file is read the same way");
    return rc[0];
}

static void check_filled(float *const out[2], size_t from, int with_statistics)
{
    for (int i = 0; i < model->params + (with_statistics ? model->stats : 0); i++) {
        const ls_param *p = i < model->params ? model->param[i] : model->stat[i - model->params];
        size_t at = from + p->offset;
        fuzz_check(memcmp(out[0] + at, out[1] + at, p->count * sizeof(float)) == 0,
                   "every float comes from the file");
    }
}

/* The tensors of a file fill it: read once more, without the reader under test. */
static void check_filling(const uint8_t *data, size_t size)
{
    ls_json *header = NULL;
    uint64_t length = 0;
    double bytes = 0;
    for (int i = 8; i > 0; i--)
        length = length << 8 | data[i - 1];
    fuzz_check(size > 8 && length <= size - 8, "an accepted file holds its header");
    int rc = ls_json_parse(&header, "h", (const char *)data + 8, (size_t)length, NULL, NULL);
    fuzz_check(rc == LS_OK, "an accepted header is JSON");
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ls_json_root(header))
    {
        const cJSON *at = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
        if (strcmp(entry->string, "__metadata__") != 0)
            bytes +=
                cJSON_GetArrayItem(at, 1)->valuedouble - cJSON_GetArrayItem(at, 0)->valuedouble;
    }
    fuzz_check(bytes == (double)(size - 8 - length), "the tensors of an accepted file fill it");
    ls_json_destroy(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_error err = {0};
    if (!model)
        set_up();
    size_t bytes = 2 * model->floats * sizeof(float);
    float *out[2] = {malloc(bytes), malloc(bytes)};
    fuzz_check(out[0] && out[1], "there is memory for the weights");
    fuzz_file_fill(&file, data, size);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const way *w = &ways[i];
        int rc = load_twice(out, w, &err);
        if (rc == LS_OK) {
            check_filled(out, 0, w->prefix[0][0] == '\0');
            if (w->groups == 2)
                check_filled(out, model->floats, 0);
            check_filling(data, size);
            continue;
        }
        fuzz_check_refusal(rc, &err, file.path);
        if (!fuzz_names_place(err.text, file.path))
            fprintf(stderr, "%s\n", err.text);
        fuzz_check(fuzz_names_place(err.text, file.path), "a refusal names an offset");
    }
    free(out[0]);
    free(out[1]);
    return 0;
}
