/* SPDX-License-Identifier: MIT */
/* Writes, reads, lists and removes checkpoint files; state.c has the state as JSON. */
#include "checkpoint/chain.h"

#include "base/error.h"
#include "base/host.h"
#include "store/durable.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one file ------------------------------------------------------------------------------- */

int ls_check_finite(const ls_network *model, const float *weights, ls_error *err)
{
    for (int i = 0; i < model->params + model->stats; i++) {
        const ls_param *p = model->tensor[i];
        for (size_t k = 0; k < p->count; k++)
            if (!isfinite(weights[p->offset + k]))
                return ls_fail(
                    err, LS_ENONFINITE,
                    "\"%s\" is not finite any more (%g): not worth keeping; the training "
                    "has diverged: try a smaller optimizer.lr, or optimizer.clip_norm",
                    p->name, (double)weights[p->offset + k]);
    }
    return LS_OK;
}

void ls_name_state(char out[LS_STATE_PREFIX], const ls_optimizer *optimizer, int state)
{
    snprintf(out, LS_STATE_PREFIX, "optimizer/%s/", ls_optimizer_state_name(optimizer, state));
}

/* Writes the prefixes of all states' tensors. */
static void name_slots(char prefix[LS_STATES][LS_STATE_PREFIX], const ls_optimizer *optimizer)
{
    for (int i = 0; i < ls_optimizer_states(optimizer); i++)
        ls_name_state(prefix[i], optimizer, i);
}

int ls_checkpoint_write(const char *path, const ls_network *model, const ls_optimizer *optimizer,
                        const ls_checkpoint_values *values, const char *state, const ls_host *host,
                        ls_error *err)
{
    ls_file_writer w;
    ls_tensors_out set[1 + LS_STATES] = {{"", values->weights}};
    char prefix[LS_STATES][LS_STATE_PREFIX];
    name_slots(prefix, optimizer);
    for (int i = 0; i < ls_optimizer_states(optimizer); i++)
        set[1 + i] = (ls_tensors_out){prefix[i], values->slot[i]};
    int status = ls_check_finite(model, values->weights, err);
    if (status == LS_OK)
        status = ls_replace_begin(&w, path, host, err);
    if (status)
        return status;
    status =
        ls_safetensors_write(&w, model, set, 1 + ls_optimizer_states(optimizer), state, host, err);
    if (status == LS_OK)
        status = ls_replace_commit(&w, err);
    ls_file_writer_abandon(&w);
    return status;
}

int ls_checkpoint_read(const ls_checkpoint_values *values, const ls_tensor_file *file,
                       const ls_network *model, const ls_optimizer *optimizer, const ls_host *host,
                       ls_error *err)
{
    ls_tensors_in set[1 + LS_STATES] = {{"", values->weights}};
    char prefix[LS_STATES][LS_STATE_PREFIX];
    name_slots(prefix, optimizer);
    for (int i = 0; i < ls_optimizer_states(optimizer); i++)
        set[1 + i] = (ls_tensors_in){prefix[i], values->slot[i]};
    int status =
        ls_safetensors_read_sets(set, 1 + ls_optimizer_states(optimizer), file, model, host, err);
    /* If the saved weights are a moving average, an optimizer state contains the trained weights.
     * Both have the same running statistics (of batch norm), which are in the file only once. */
    for (int i = 0; i < model->stats && ls_optimizer_average(optimizer) >= 0; i++)
        memcpy(values->slot[ls_optimizer_average(optimizer)] + model->stat[i]->offset,
               values->weights + model->stat[i]->offset,
               model->stat[i]->count * sizeof *values->weights);
    return status;
}

/* ---- names ---------------------------------------------------------------------------------- */

void ls_checkpoint_name(char out[LS_CHECKPOINT_NAME], uint64_t steps)
{
    snprintf(out, LS_CHECKPOINT_NAME, "step-%09llu.safetensors", (unsigned long long)steps);
}

/* Writes the name of a checkpoint that was set aside. */
static void write_name_aside(char out[LS_CHECKPOINT_NAME], uint64_t steps)
{
    snprintf(out, LS_CHECKPOINT_NAME, "doubtful-%09llu.safetensors", (unsigned long long)steps);
}

/* Parses a name; accepts only names that ls_checkpoint_name and write_name_aside write. */
static bool read_name(const char *name, bool aside, uint64_t *steps)
{
    char again[LS_CHECKPOINT_NAME];
    unsigned long long n;
    if (sscanf(name, aside ? "doubtful-%20llu.safetensors" : "step-%20llu.safetensors", &n) != 1)
        return false;
    if (aside)
        write_name_aside(again, n);
    else
        ls_checkpoint_name(again, n);
    *steps = n;
    return strcmp(name, again) == 0;
}

bool ls_checkpoint_is_named(const char *path, uint64_t *steps)
{
    const char *slash = strrchr(path, '/');
    return read_name(slash ? slash + 1 : path, false, steps);
}

/* ---- listing -------------------------------------------------------------------------------- */

/* The numbers of steps of a directory's checkpoints, newest first. */
typedef struct listing {
    uint64_t *steps;
    size_t count, capacity;
} listing;

static int newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static int add(listing *l, uint64_t steps, const ls_host *host)
{
    uint64_t *all = ls_grown(host, l->steps, l->count, &l->capacity, sizeof *all);
    if (!all)
        return LS_ENOMEM;
    l->steps = all;
    l->steps[l->count++] = steps;
    return LS_OK;
}

/* Lists the checkpoints of a directory: those that were set aside if `aside`, or the others. If the
 * directory does not exist, the list is empty. */
static int list(listing *out, const char *directory, bool aside, const ls_host *host, ls_error *err)
{
    char why[LS_REASON];
    uint64_t steps;
    int status = LS_OK;
    *out = (listing){NULL, 0, 0};
    DIR *stream = opendir(directory);
    if (!stream && errno == ENOENT)
        return LS_OK;
    errno = stream ? 0 : errno;
    for (const struct dirent *e; stream && status == LS_OK && (e = readdir(stream)); errno = 0)
        if (read_name(e->d_name, aside, &steps))
            status = add(out, steps, host);
    const int error = errno;
    if (stream)
        closedir(stream);
    if (status)
        ls_fail(err, status, "%.300s: out of memory to list it", directory);
    else if (!stream || error)
        status = ls_fail(err, LS_EIO, "%.300s: cannot read the directory: %s", directory,
                         ls_reason(why, error));
    if (out->count > 1)
        qsort(out->steps, out->count, sizeof *out->steps, newest_first);
    return status;
}

bool ls_checkpoints_exist(const char *directory)
{
    uint64_t steps;
    bool found = false;
    DIR *stream = opendir(directory);
    for (const struct dirent *e; stream && !found && (e = readdir(stream));)
        found = read_name(e->d_name, false, &steps) || read_name(e->d_name, true, &steps);
    if (stream)
        closedir(stream);
    return found;
}

/* ---- the newest complete checkpoint --------------------------------------------------------- */

/* Reads the state of a checkpoint and verifies the file's SHA-256. Fails if the file has no state,
 * because then no run has saved it as a checkpoint. */
static int open_one(char **state, const char *path, const ls_host *host, ls_error *err)
{
    int status = ls_safetensors_state(state, path, host, err);
    if (status == LS_OK && !*state)
        status = ls_fail(err, LS_EDATA,
                         "%.300s: offset 8: expected a run's state in its metadata; it is a file "
                         "of weights, or damaged",
                         path);
    return status;
}

/* Called for a directory without checkpoints; returns an error. Versions before 0.2 wrote each
 * checkpoint as a directory, "step-000000469" with a manifest.json. If there are such directories,
 * the message says so. */
static int fail_without_any(const char *directory, ls_error *err)
{
    char old[LS_CHECKPOINT_NAME] = "", path[LS_PATH_BYTES];
    struct stat st;
    DIR *stream = opendir(directory);
    for (const struct dirent *e; stream && !old[0] && (e = readdir(stream));)
        if (strncmp(e->d_name, "step-", 5) == 0 &&
            stat(ls_path_join(path, directory, e->d_name), &st) == 0 && S_ISDIR(st.st_mode))
            snprintf(old, sizeof old, "%.40s", e->d_name);
    if (stream)
        closedir(stream);
    if (!old[0])
        return ls_fail(err, LS_ENOENT, "%.300s: there is nothing saved here", directory);
    return ls_fail(err, LS_EDATA,
                   "%.200s: %s is a directory, as versions before 0.2 saved; this version reads "
                   "one file for each: finish the run with the version that began it, or begin a "
                   "new one with its weights: init.weights, %s/weights.safetensors",
                   directory, old, old);
}

/* Called for a directory in which all checkpoints were set aside; returns an error. */
static int fail_with_doubtful(const char *directory, const listing *aside, ls_error *err)
{
    return ls_fail(err, LS_EDATA,
                   "%.200s: all checkpoints were set aside, because the run's copies of the model "
                   "were no longer equal when they were saved, or it is not known that they were; "
                   "begin the run anew, or continue from one of them all the same: --at %llu",
                   directory, (unsigned long long)aside->steps[aside->count - 1]);
}

/* If a checkpoint that was set aside is newer than the one that is used, warns. */
static void warn_of_doubtful(const listing *aside, uint64_t used, const ls_host *host)
{
    if (aside->count > 0 && aside->steps[0] > used)
        ls_log(host, LS_LOG_WARNING,
               "the checkpoint after step %llu was set aside as doubtful, so the one after step "
               "%llu is used",
               (unsigned long long)aside->steps[0], (unsigned long long)used);
}

int ls_checkpoint_at(char **path, char **state, bool *doubtful, const char *directory,
                     uint64_t steps, const ls_host *host, ls_error *err)
{
    char name[LS_CHECKPOINT_NAME], file[LS_PATH_BYTES];
    *path = *state = NULL;
    *doubtful = false;
    ls_checkpoint_name(name, steps);
    if (access(ls_path_join(file, directory, name), F_OK) != 0) {
        write_name_aside(name, steps);
        *doubtful = access(ls_path_join(file, directory, name), F_OK) == 0;
        if (!*doubtful)
            return ls_fail(err, LS_ENOENT, "%.300s: there is no checkpoint after step %llu",
                           directory, (unsigned long long)steps);
    }
    int status = open_one(state, file, host, err);
    return status ? status : ls_path_copy(path, file, host, err);
}

int ls_checkpoints_latest(char **path, char **state, const char *directory, bool warns,
                          const ls_host *host, ls_error *err)
{
    char name[LS_CHECKPOINT_NAME], file[LS_PATH_BYTES];
    ls_error why = {0};
    listing l, aside = {NULL, 0, 0};
    *path = *state = NULL;
    int status = list(&l, directory, false, host, err);
    if (status == LS_OK)
        status = list(&aside, directory, true, host, err);
    for (size_t i = 0; i < l.count && status == LS_OK && !*state; i++) {
        ls_checkpoint_name(name, l.steps[i]);
        const int found = open_one(state, ls_path_join(file, directory, name), host, &why);
        if (found == LS_ENOMEM)
            status = ls_fail(err, found, "%s", why.text);
        else if (found && warns)
            ls_log(host, LS_LOG_WARNING,
                   "checkpoint %s is damaged, so an older one is used: %.380s", name, why.text);
        else if (warns)
            warn_of_doubtful(&aside, l.steps[i], host);
    }
    if (*state)
        status = ls_path_copy(path, file, host, err);
    if (status && *state) {
        ls_free(host, *state);
        *state = NULL;
    }
    if (status == LS_OK && l.count == 0)
        status = aside.count > 0 ? fail_with_doubtful(directory, &aside, err)
                                 : fail_without_any(directory, err);
    else if (status == LS_OK && !*state)
        status = ls_fail(err, LS_EDATA, "%.200s: no checkpoint is whole; the oldest: %.280s",
                         directory, why.text);
    ls_free(host, aside.steps);
    ls_free(host, l.steps);
    return status;
}

int ls_checkpoints_set_aside(int *count, const char *directory, uint64_t after, const ls_host *host,
                             ls_error *err)
{
    char name[LS_CHECKPOINT_NAME], from[LS_PATH_BYTES], to[LS_PATH_BYTES], why[LS_REASON];
    listing l;
    int status = list(&l, directory, false, host, err);
    *count = 0;
    for (size_t i = 0; i < l.count && l.steps[i] > after && status == LS_OK; i++) {
        ls_checkpoint_name(name, l.steps[i]);
        ls_path_join(from, directory, name);
        write_name_aside(name, l.steps[i]);
        ls_path_join(to, directory, name);
        if (rename(from, to) != 0)
            status = ls_fail(err, LS_EIO, "%.300s: cannot be set aside: %s", from,
                             ls_reason(why, errno));
        else
            ++*count;
    }
    ls_free(host, l.steps);
    return status == LS_OK && *count > 0 ? ls_sync_parent(to, err) : status;
}

/* ---- pruning -------------------------------------------------------------------------------- */

static bool has_steps(const listing *l, uint64_t steps)
{
    bool found = false;
    for (size_t i = 0; i < l->count; i++)
        found |= l->steps[i] == steps;
    return found;
}

/* Removes the checkpoints that were set aside and are not newer than `steps`: the run has done and
 * saved these steps again. */
static int remove_doubtful(const char *directory, uint64_t steps, const ls_host *host,
                           ls_error *err)
{
    char name[LS_CHECKPOINT_NAME], path[LS_PATH_BYTES];
    listing l;
    int status = list(&l, directory, true, host, err);
    for (size_t i = 0; i < l.count && status == LS_OK; i++) {
        write_name_aside(name, l.steps[i]);
        if (l.steps[i] <= steps)
            status = ls_remove_file(ls_path_join(path, directory, name), err);
    }
    ls_free(host, l.steps);
    return status;
}

int ls_checkpoints_prune(const char *directory, size_t keep, const char *saved, const ls_best *best,
                         uint32_t chained, const ls_host *host, ls_error *err)
{
    char name[LS_CHECKPOINT_NAME], path[LS_PATH_BYTES];
    listing l;
    uint64_t newest = 0;
    int status = list(&l, directory, false, host, err);
    const bool spares = best && best->epoch > 0;
    uint64_t spared = 0;
    if (spares)
        spared = has_steps(&l, best->steps) ? best->steps : best->kept;
    for (size_t i = keep; i < l.count; i++) {
        ls_checkpoint_name(name, l.steps[i]);
        if (strcmp(name, saved) == 0 || (spares && l.steps[i] == spared) ||
            (chained > 0 && ls_chain_has(l.steps[i], chained)))
            continue;
        int failed =
            ls_remove_file(ls_path_join(path, directory, name), status == LS_OK ? err : NULL);
        status = status == LS_OK ? failed : status;
    }
    ls_free(host, l.steps);
    if (status == LS_OK && read_name(saved, false, &newest))
        status = remove_doubtful(directory, newest, host, err);
    return status;
}

/* ---- the best ------------------------------------------------------------------------------- */

static int read_best_of(ls_best *out, const char *path, const char *text, const ls_host *host,
                        ls_error *err)
{
    ls_json *doc;
    ls_state state;
    int status = ls_json_parse(&doc, path, text, strlen(text), host, err);
    if (status)
        return status;
    status = ls_state_read(&state, doc, err);
    *out = state.standing.position.best;
    ls_json_destroy(doc);
    return status;
}

bool ls_checkpoint_of_best(char *path, size_t size, const char *run_dir, const ls_best *best)
{
    char name[LS_CHECKPOINT_NAME];
    if (best->epoch == 0)
        return false;
    ls_checkpoint_name(name, best->steps);
    snprintf(path, size, "%s/checkpoints/%s", run_dir, name);
    return access(path, F_OK) == 0;
}

int ls_checkpoints_best(char **path, const char *directory, const ls_host *host, ls_error *err)
{
    char name[LS_CHECKPOINT_NAME], file[LS_PATH_BYTES], *newest, *text;
    ls_best best = {0};
    *path = NULL;
    int status = ls_checkpoints_latest(&newest, &text, directory, false, host, err);
    if (status)
        return status;
    status = read_best_of(&best, newest, text, host, err);
    ls_free(host, newest);
    ls_free(host, text);
    if (status)
        return status;
    if (best.epoch == 0)
        return ls_fail(err, LS_ENOENT, "%.300s: nothing was evaluated before the newest checkpoint",
                       directory);
    ls_checkpoint_name(name, best.steps);
    if (access(ls_path_join(file, directory, name), F_OK) == 0)
        return ls_path_copy(path, file, host, err);
    return ls_fail(err, LS_ENOENT,
                   "%.300s: the best evaluation was after epoch %u, but %s is not kept; keep it "
                   "with checkpoint.best",
                   directory, (unsigned)best.epoch, name);
}
