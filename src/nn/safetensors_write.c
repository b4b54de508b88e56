#include "nn/safetensors.h"

#include "base/error.h"
#include "nn/safetensors_format.h"
#include "json/writer.h"

#include <stdio.h>
#include <string.h>

/* Up to CHUNK floats as little-endian bytes. */
static size_t encode(uint8_t *out, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        put_u32(out + 4 * i, bits);
    }
    return 4 * count;
}

void ls_weights_sha256(char out[65], const ls_model *model, const float *canonical)
{
    uint8_t bytes[4 * CHUNK];
    ls_sha256 hash;
    ls_sha256_init(&hash);
    for (size_t done = 0; done < model->floats;) {
        size_t count = model->floats - done < CHUNK ? model->floats - done : CHUNK;
        ls_sha256_update(&hash, bytes, encode(bytes, canonical + done, count));
        done += count;
    }
    ls_sha256_final_hex(&hash, out);
}

/* A group's tensors: the weights' prefix "" stands for running statistics too. */
static int tensors(const ls_model *model, const ls_tensors_out *group, const ls_param *const **list)
{
    int weights = group->prefix[0] == '\0';
    *list = weights ? model->tensor : model->param;
    return weights ? model->params + model->stats : model->params;
}

/* `at` is where the tensor's bytes begin; moved behind them. */
static void write_entry(ls_json_writer *w, const ls_param *p, const char *prefix, uint64_t *at)
{
    char name[TENSOR_NAME];
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    ls_json_open_object(w, name);
    ls_json_put_string(w, "dtype", "F32");
    ls_json_open_array(w, "shape");
    for (int i = 0; i < p->rank; i++)
        ls_json_put_int(w, NULL, p->dim[i]);
    ls_json_close(w);
    ls_json_open_array(w, "data_offsets");
    ls_json_put_uint(w, NULL, *at);
    *at += 4 * (uint64_t)p->count;
    ls_json_put_uint(w, NULL, *at);
    ls_json_close(w);
    ls_json_close(w);
}

static void write_header(ls_json_writer *w, const ls_model *model, const ls_tensors_out *groups,
                         int count)
{
    uint64_t at = 0;
    const ls_param *const *list;
    ls_json_open_object(w, NULL);
    ls_json_open_object(w, "__metadata__");
    ls_json_put_string(w, "format", "pt");
    ls_json_close(w);
    for (int g = 0; g < count; g++) {
        int n = tensors(model, &groups[g], &list);
        for (int i = 0; i < n; i++)
            write_entry(w, list[i], groups[g].prefix, &at);
    }
    ls_json_close(w);
}

static int write_floats(ls_file_writer *w, const float *values, size_t count, ls_error *err)
{
    uint8_t bytes[4 * CHUNK];
    int rc = LS_OK;
    for (size_t done = 0; done < count && rc == LS_OK;) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        rc = ls_file_writer_write(w, bytes, encode(bytes, values + done, n), err);
        done += n;
    }
    return rc;
}

/* A block of layers called as a prefix could give two tensors one name. */
static int check_names(const ls_model *model, const char *prefix, ls_error *err)
{
    size_t n = strlen(prefix);
    for (int i = 0; i < model->params + model->stats && n > 0; i++)
        for (int j = 0; j < model->params; j++)
            if (strncmp(model->tensor[i]->name, prefix, n) == 0 &&
                strcmp(model->tensor[i]->name + n, model->param[j]->name) == 0)
                return ls_fail(err, LS_EINVAL,
                               "tensor \"%s\": \"%s\" also stands for what belongs to another "
                               "tensor; write them to different files",
                               model->tensor[i]->name, prefix);
    return LS_OK;
}

/* Are the weights among the groups? */
static int has_weights(const ls_tensors_out *groups, int count)
{
    for (int g = 0; g < count; g++)
        if (groups[g].prefix[0] == '\0')
            return 1;
    return 0;
}

/* Spaces behind the header bring the data to a multiple of 8. */
static int write_text(ls_file_writer *w, const char *header, size_t length, ls_error *err)
{
    static const char spaces[8] = "        ";
    uint8_t preface[PREFACE];
    size_t padding = (8 - length % 8) % 8;
    if (length > UINT32_MAX - 8)
        return ls_fail(err, LS_EIO, "%.300s: cannot write: too many tensors", w->path);
    put_u32(preface, (uint32_t)(length + padding));
    put_u32(preface + 4, 0);
    int rc = ls_file_writer_write(w, preface, sizeof preface, err);
    if (rc == LS_OK)
        rc = ls_file_writer_write(w, header, length, err);
    return rc == LS_OK ? ls_file_writer_write(w, spaces, padding, err) : rc;
}

static int write_data(ls_file_writer *w, const ls_model *model, const ls_tensors_out *groups,
                      int count, ls_error *err)
{
    int rc = LS_OK;
    const ls_param *const *list;
    for (int g = 0; g < count; g++) {
        int n = tensors(model, &groups[g], &list);
        for (int i = 0; i < n && rc == LS_OK; i++)
            rc = write_floats(w, groups[g].values + list[i]->offset, list[i]->count, err);
    }
    return rc;
}

int ls_safetensors_write(ls_file_writer *w, const ls_model *model, const ls_tensors_out *groups,
                         int count, const ls_host *host, ls_error *err)
{
    ls_json_writer text;
    size_t length;
    for (int g = 0; g < count && has_weights(groups, count); g++) {
        int clash = check_names(model, groups[g].prefix, err);
        if (clash != LS_OK)
            return clash;
    }
    ls_json_writer_init(&text, 0, host);
    write_header(&text, model, groups, count);
    const char *header = ls_json_writer_text(&text, &length, err);
    int rc = header ? write_text(w, header, length, err) : LS_ENOMEM;
    ls_json_writer_fini(&text);
    return rc == LS_OK ? write_data(w, model, groups, count, err) : rc;
}

int ls_safetensors_save(const char *path, const ls_model *model, const float *canonical,
                        const ls_host *host, ls_error *err)
{
    const ls_tensors_out weights = {"", canonical};
    ls_file_writer w;
    int rc = ls_replace_begin(&w, path, host, err);
    if (rc == LS_OK)
        rc = ls_safetensors_write(&w, model, &weights, 1, host, err);
    if (rc == LS_OK)
        rc = ls_replace_commit(&w, err);
    ls_file_writer_abandon(&w);
    return rc;
}
