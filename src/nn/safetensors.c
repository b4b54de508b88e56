/* SPDX-License-Identifier: MIT */
/* Writes and reads the tensors of a model as sets of tensors of a safetensors file. */
#include "nn/safetensors.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <stdlib.h>

/* Writes the tensors of the set with this prefix to *out. The prefix "" stands for the weights
 * and includes running statistics. The caller frees the entries of the set; their names belong to
 * the model. Errors: LS_ENOMEM. */
static int list_tensors(ls_tensor_set *out, const ls_network *model, const char *prefix,
                        const ls_host *host, ls_error *err)
{
    const bool weights = prefix[0] == '\0';
    const ls_param *const *list = weights ? model->tensor : model->param;
    const int n = weights ? model->params + model->stats : model->params;
    ls_tensor_entry *entry = ls_alloc_array(host, (size_t)n, sizeof *entry);
    *out = (ls_tensor_set){.prefix = prefix, .entry = entry, .entries = n};
    if (!entry)
        return ls_fail(err, LS_ENOMEM, "no memory for the names of %d tensors", n);
    for (int i = 0; i < n; i++) {
        const ls_param *p = list[i];
        entry[i] = (ls_tensor_entry){.name = p->name,
                                     .rank = p->rank,
                                     .dim = {p->dim[0], p->dim[1], p->dim[2], p->dim[3]},
                                     .count = p->count,
                                     .offset = p->offset};
    }
    return LS_OK;
}

/* Frees sets that list_tensors has made. NULL is allowed. */
static void free_sets(ls_tensor_set *sets, int count, const ls_host *host)
{
    for (int g = 0; sets && g < count; g++)
        ls_free(host, (void *)sets[g].entry);
    ls_free(host, sets);
}

static int new_sets(ls_tensor_set **out, int count, const ls_host *host, ls_error *err)
{
    *out = ls_alloc_array(host, (size_t)count, sizeof **out);
    return *out ? LS_OK : ls_fail(err, LS_ENOMEM, "no memory for %d groups of tensors", count);
}

/* ---- saving --------------------------------------------------------------------------------- */

/* Writes the sets to `w`, or stores the SHA-256 of the file in `hex`; the other one is NULL. */
static int write_sets(ls_file_writer *w, char *hex, const ls_network *model,
                      const ls_tensors_out *sets, int count, const ls_tensor_notes *notes,
                      const ls_host *host, ls_error *err)
{
    ls_tensor_set *list;
    int status = new_sets(&list, count, host, err);
    for (int g = 0; g < count && status == LS_OK; g++) {
        status = list_tensors(&list[g], model, sets[g].prefix, host, err);
        list[g].from = sets[g].values;
    }
    if (status == LS_OK)
        status = w ? ls_tensor_file_write(w, list, count, notes, host, err)
                   : ls_tensor_file_sha256(hex, list, count, notes, host, err);
    free_sets(list, count, host);
    return status;
}

int ls_safetensors_write(ls_file_writer *w, const ls_network *model, const ls_tensors_out *sets,
                         int count, const char *state, const ls_host *host, ls_error *err)
{
    const ls_tensor_notes notes = {.state = state, .card = model->card};
    return write_sets(w, NULL, model, sets, count, &notes, host, err);
}

#define STEPS_DIGITS 24

/* Returns the notes of a file of weights. `number`: memory for the number of steps. */
static ls_tensor_notes notes_of_weights(const ls_network *model, uint64_t steps, bool checksum,
                                        char number[STEPS_DIGITS])
{
    snprintf(number, STEPS_DIGITS, "%llu", (unsigned long long)steps);
    return (ls_tensor_notes){.checksum = checksum,
                             .card = model->card,
                             .steps = steps == LS_STEPS_UNKNOWN ? NULL : number};
}

int ls_safetensors_save(const char *path, const ls_network *model, const float *canonical,
                        uint64_t steps, const ls_host *host, ls_error *err)
{
    const ls_tensors_out weights = {"", canonical};
    char number[STEPS_DIGITS];
    const ls_tensor_notes notes = notes_of_weights(model, steps, true, number);
    ls_file_writer w;
    int status = ls_replace_begin(&w, path, host, err);
    if (status == LS_OK)
        status = write_sets(&w, NULL, model, &weights, 1, &notes, host, err);
    if (status == LS_OK)
        status = ls_replace_commit(&w, err);
    ls_file_writer_abandon(&w);
    return status;
}

int ls_safetensors_sha256(char out[65], const ls_network *model, const float *canonical,
                          uint64_t steps, bool checksum, const ls_host *host, ls_error *err)
{
    const ls_tensors_out weights = {"", canonical};
    char number[STEPS_DIGITS];
    const ls_tensor_notes notes = notes_of_weights(model, steps, checksum, number);
    return write_sets(NULL, out, model, &weights, 1, &notes, host, err);
}

void ls_weights_sha256(char out[65], const ls_network *model, const float *canonical)
{
    ls_floats_sha256(out, canonical, model->floats);
}

/* ---- loading -------------------------------------------------------------------------------- */

int ls_safetensors_read_steps(uint64_t *steps, const ls_tensor_file *file, ls_error *err)
{
    char *end;
    const char *text = ls_tensor_file_steps(file);
    *steps = LS_STEPS_UNKNOWN;
    if (!text)
        return LS_OK;
    const unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || number == UINT64_MAX)
        return ls_fail(err, LS_EDATA,
                       "%.300s: lockstep_steps in its metadata is \"%.40s\"; expected a number of "
                       "training steps",
                       ls_tensor_file_path(file), text);
    *steps = number;
    return LS_OK;
}

int ls_safetensors_read_sets(const ls_tensors_in *sets, int count, const ls_tensor_file *file,
                             const ls_network *model, const ls_host *host, ls_error *err)
{
    ls_tensor_set *list;
    int status = new_sets(&list, count, host, err);
    for (int g = 0; g < count && status == LS_OK; g++) {
        status = list_tensors(&list[g], model, sets[g].prefix, host, err);
        list[g].to = sets[g].values;
    }
    if (status == LS_OK)
        status = ls_tensor_file_load_sets(list, count, file, err);
    free_sets(list, count, host);
    return status;
}

int ls_safetensors_read(float *canonical, const ls_tensor_file *file, const ls_network *model,
                        const char *prefix, const ls_host *host, ls_error *err)
{
    ls_tensor_set set;
    int status = list_tensors(&set, model, prefix, host, err);
    set.to = canonical;
    if (status == LS_OK)
        status = ls_tensor_file_load(&set, file, err);
    ls_free(host, (void *)set.entry);
    return status;
}

int ls_safetensors_load(float *canonical, const char *path, const ls_network *model,
                        const char *prefix, const ls_host *host, ls_error *err)
{
    ls_tensor_file *file;
    int status = ls_tensor_file_open(&file, path, host, err);
    if (status == LS_OK)
        status = ls_safetensors_read(canonical, file, model, prefix, host, err);
    ls_tensor_file_close(file);
    return status;
}

int ls_safetensors_read_fitting(float *canonical, const ls_tensor_file *file,
                                const ls_network *model, const ls_host *host, ls_error *err)
{
    ls_tensor_set set;
    int status = list_tensors(&set, model, "", host, err);
    set.to = canonical;
    if (status == LS_OK)
        status = ls_tensor_file_load_fitting(&set, file, err);
    ls_free(host, (void *)set.entry);
    return status;
}
