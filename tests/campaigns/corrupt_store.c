/* Corrupted weights and bundles. The meaning of weights is their floats, a bundle's the names and
 * the bytes of its files, of which each has a SHA-256 in the manifest: nothing may pass. */
#include "campaigns/corrupt.h"
#include "nn/safetensors.h"
#include "store/bundle.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model_format[] =
    "{\"layers\": [{\"type\": \"conv2d\", \"name\": \"c\", \"out\": 4, \"kernel\": 3},"
    " {\"type\": \"batch_norm\", \"name\": \"n\"}, {\"type\": \"relu\"}, {\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"name\": \"d\", \"out\": %u}, {\"type\": \"relu\"},"
    " {\"type\": \"dense\", \"name\": \"e\", \"out\": 10}]}";

static ls_model *model;
static char folder[64];

/* A new model, and weights of it that the caller frees. */
static float *make_weights(unsigned scale)
{
    char text[512];
    ls_json *doc;
    ls_model_destroy(model, NULL);
    snprintf(text, sizeof text, model_format, 2 * scale);
    must(ls_json_parse(&doc, "model", text, strlen(text), NULL, NULL) == LS_OK &&
             ls_model_parse(&model, doc, ls_json_root(doc), (ls_shape){1, 6, 6}, 10, NULL, NULL) ==
                 LS_OK,
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
    must(ls_safetensors_save(path, model, weights, NULL, NULL) == LS_OK, "save weights");
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

/* The data stand behind the header in the canonical order, as they lie in memory. */
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

/* ---- bundles ---- */

static const char state[] = "{\"schema\": 1, \"epoch\": 3, \"step\": 1200, \"seed\": 7}\n";
static const char *const names[3] = {LS_BUNDLE_MANIFEST, "state.json", "w.safetensors"};

static void make_bundle(family *f, unsigned scale)
{
    ls_bundle *b;
    ls_file_writer *w;
    char path[128];
    float *weights = make_weights(scale);
    const ls_tensors_out group = {"", weights};
    make_folder();
    must(ls_bundle_begin(&b, folder, "step-1", NULL, NULL) == LS_OK &&
             ls_bundle_put(b, names[1], state, sizeof state - 1, NULL) == LS_OK &&
             ls_bundle_open_file(&w, b, names[2], NULL) == LS_OK &&
             ls_safetensors_write(w, model, &group, 1, NULL, NULL) == LS_OK &&
             ls_bundle_commit(b, NULL) == LS_OK,
         "make a bundle");
    ls_bundle_destroy(b);
    free(weights);
    f->files = 3;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/step-1/%s", folder, names[i]);
        subject_on_disk(&f->file[i], path);
        f->file[i].name = "/step-1/"; /* a changed manifest may ask for a file of another name */
    }
}

static int add_members(blob *out, const ls_bundle_reader *r, ls_error *err)
{
    int rc = LS_OK;
    for (size_t i = 0; i < ls_bundle_files(r) && rc == LS_OK; i++) {
        const ls_bundle_file *file = ls_bundle_file_at(r, i);
        char *bytes;
        size_t count;
        rc = ls_bundle_read(&bytes, &count, r, file->name, 1 << 20, err);
        if (rc != LS_OK)
            break;
        blob_add_text(out, file->name);
        blob_add(out, bytes, count);
        corrupt_host.free(NULL, bytes);
    }
    return rc;
}

static int read_bundle(const family *f, blob *out, ls_error *err)
{
    (void)f;
    ls_bundle_reader *r;
    char path[96];
    snprintf(path, sizeof path, "%s/step-1", folder);
    int rc = ls_bundle_open(&r, path, &corrupt_host, err);
    if (rc == LS_OK)
        rc = add_members(out, r, err);
    ls_bundle_close(r);
    return rc;
}

/* Also the line of the manifest that a file disagrees with, and a file that is not there. */
static int names_place(const char *text, const subject *s)
{
    (void)s;
    const char *line = strstr(text, LS_BUNDLE_MANIFEST ":");
    if (line && isdigit((unsigned char)line[sizeof LS_BUNDLE_MANIFEST]))
        return 1;
    return strstr(text, "offset ") || strstr(text, "expected this file, found none");
}

static void remove_bundle(family *f)
{
    char path[96];
    for (int i = 0; i < f->files; i++)
        unlink(f->file[i].path);
    snprintf(path, sizeof path, "%s/step-1", folder);
    rmdir(path);
    rmdir(folder);
}

family corrupt_bundle = {
    .name = "bundle",
    .make = make_bundle,
    .read = read_bundle,
    .names_place = names_place,
    .finish = remove_bundle,
};
