/* SPDX-License-Identifier: MIT */
/* Corrupted weights and checkpoints. The compared data of weights is their floats. A checkpoint
 * also has a state and a SHA-256 of the whole, so every change must be refused. */
#include "campaigns/corrupt.h"
#include "nn/safetensors.h"
#include "store/durable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model_format[] =
    "{\"layers\": [{\"type\": \"conv2d\", \"name\": \"c\", \"out\": 4, \"kernel\": 3},"
    " {\"type\": \"batch_norm\", \"name\": \"n\"}, {\"type\": \"relu\"}, {\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"name\": \"d\", \"out\": %u}, {\"type\": \"relu\"},"
    " {\"type\": \"dense\", \"name\": \"e\", \"out\": 10}]}";

static ls_network *model;
static char folder[64];

/* A new model, and weights of it that the caller frees. */
static float *make_weights(unsigned scale)
{
    char text[512];
    ls_json *doc;
    ls_network_destroy(model, NULL);
    snprintf(text, sizeof text, model_format, 2 * scale);
    must(ls_json_parse(&doc, "model", text, strlen(text), NULL, NULL) == LS_OK &&
             ls_network_parse(&model, doc, ls_json_root(doc), (ls_shape){1, 6, 6}, 10, NULL,
                              NULL) == LS_OK,
         "make a model");
    ls_json_destroy(doc);
    float *weights = malloc(model->floats * sizeof *weights);
    must(weights != NULL, "get memory");
    random_bytes((uint8_t *)weights, model->floats * sizeof *weights, 9);
    return weights;
}

static void make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/corrupt-XXXXXX", parent ? parent : "/tmp");
    must(mkdtemp(folder) != NULL, "make a directory");
}

/* ---- weights ---- */

static void make_safetensors(family *f, unsigned scale)
{
    char path[96];
    float *weights = make_weights(scale);
    make_folder();
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    must(ls_safetensors_save(path, model, weights, LS_STEPS_UNKNOWN, NULL, NULL) == LS_OK,
         "save weights");
    free(weights);
    f->files = 1;
    subject_on_disk(&f->file[0], path);
    unlink(path);
    rmdir(folder);
    /* From now on it is read through its descriptor. */
    snprintf(f->file[0].path, sizeof f->file[0].path, "/proc/self/fd/%d", f->file[0].fd);
}

static int read_safetensors(const family *f, blob *out, ls_error *err)
{
    float *weights = calloc(model->floats, sizeof *weights);
    must(weights != NULL, "get memory");
    int rc = ls_safetensors_load(weights, f->file[0].path, model, "", &corrupt_host, err);
    if (rc == LS_OK)
        blob_add(out, weights, model->floats * sizeof *weights);
    free(weights);
    return rc;
}

/* The data follows the header in the canonical order, as it is in memory. */
static int explains_safetensors(const family *f, const change *c, const blob *before,
                                const blob *now)
{
    size_t data = f->file[0].size - before->size;
    if (c->byte < data || now->size != before->size)
        return 0;
    size_t at = c->byte - data;
    before->data[at] ^= (uint8_t)(1u << c->bit);
    int is = memcmp(before->data, now->data, now->size) == 0;
    before->data[at] ^= (uint8_t)(1u << c->bit);
    return is;
}

family corrupt_safetensors = {.name = "safetensors",
                              .make = make_safetensors,
                              .read = read_safetensors,
                              .explains = explains_safetensors};

/* ---- checkpoints ---- */

static const char state[] = "{\"schema\": 1, \"epoch\": 3, \"step\": 1200, \"seed\": 7}";

/* Weights, and one slot of an optimizer. */
static void make_checkpoint(family *f, unsigned scale)
{
    ls_file_writer w;
    char path[96];
    float *weights = make_weights(scale);
    const ls_tensors_out group[] = {{"", weights}, {"optimizer/momentum_buffer/", weights}};
    make_folder();
    snprintf(path, sizeof path, "%s/c.safetensors", folder);
    must(ls_replace_begin(&w, path, NULL, NULL) == LS_OK &&
             ls_safetensors_write(&w, model, group, 2, state, NULL, NULL) == LS_OK &&
             ls_replace_commit(&w, NULL) == LS_OK,
         "make a checkpoint");
    free(weights);
    f->files = 1;
    subject_on_disk(&f->file[0], path);
    unlink(path);
    rmdir(folder);
    snprintf(f->file[0].path, sizeof f->file[0].path, "/proc/self/fd/%d", f->file[0].fd);
}

static int read_checkpoint(const family *f, blob *out, ls_error *err)
{
    ls_tensor_file *file;
    int rc = ls_tensor_file_open(&file, f->file[0].path, &corrupt_host, err);
    if (rc != LS_OK)
        return rc;
    if (ls_tensor_file_state(file))
        blob_add_text(out, ls_tensor_file_state(file));
    float *weights = calloc(2 * model->floats, sizeof *weights);
    must(weights != NULL, "get memory");
    const ls_tensors_in group[] = {{"", weights},
                                   {"optimizer/momentum_buffer/", weights + model->floats}};
    rc = ls_safetensors_read_sets(group, 2, file, model, &corrupt_host, err);
    ls_tensor_file_close(file);
    if (rc == LS_OK)
        blob_add(out, weights, 2 * model->floats * sizeof *weights);
    free(weights);
    return rc;
}

/* A hash over the whole: nothing may pass. */
family corrupt_checkpoint = {
    .name = "checkpoint", .make = make_checkpoint, .read = read_checkpoint};
