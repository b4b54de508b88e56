/* SPDX-License-Identifier: MIT */
/* Warnings about the settings of a run that has been opened: shards, batch size, workers and
 * devices that are slower, or learn less, than others would. doubts.c has the warnings about data
 * and results. */
#include "base/host.h"
#include "base/plural.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/doubts.h"
#include "train/receipt.h"

#include <stdio.h>
#include <string.h>

/* Warns if the number of shards is larger than the default, and shards have fewer than
 * LS_SHARD_ROWS rows: adding their gradients then takes more time than more shards save. On CPUs,
 * also warns if the rows of a shard use less than three quarters of the vector units, unless there
 * are too few training rows for a larger minibatch. */
static void warn_of_rows(const struct ls_trainer *t, bool on_host)
{
    const int rows = t->config.batch_size, shards = ls_engine_shards(t->engine);
    const int best = ls_shards_of(rows, t->model);
    const int most = (rows + shards - 1) / shards; /* number of rows of the largest shard */
    const int places = (most + LS_SHARD_ROWS - 1) / LS_SHARD_ROWS * LS_SHARD_ROWS;
    const uint32_t all = ls_dataset_rows(t->data[LS_TRAIN]), full = (uint32_t)(places * shards);
    if (rows / shards < LS_SHARD_ROWS && shards > best)
        ls_log(
            t->host, LS_LOG_WARNING,
            "shards: %d rows in %d shards are fewer than %d rows each, which is slow; the default "
            "is %d shards",
            rows, shards, LS_SHARD_ROWS, best);
    else if (on_host && 4 * (places - most) > places && (rows >= LS_SHARD_ROWS || all >= full))
        ls_log(t->host, LS_LOG_WARNING,
               "batch_size: a shard of %d %s takes as long as one of %d, a multiple of %d; a step "
               "with a batch_size of %u takes the same time",
               most, ls_plural((uint64_t)most, "row", "rows"), places, LS_SHARD_ROWS,
               (unsigned)full);
}

/* Warns of workers without a shard. Such a worker computes no gradients. It only adds a part of the
 * sum of gradients, and it can get shards when a device is lost. */
static void warn_of_idle(const struct ls_trainer *t)
{
    const int workers = ls_engine_workers(t->engine), shards = ls_engine_shards(t->engine);
    if (workers > shards)
        ls_log(t->host, LS_LOG_WARNING,
               "%d of %d workers %s no shard: a minibatch has %d %s, and more workers than that do "
               "not make a step faster; set devices to \"auto\" or to fewer, or increase shards, "
               "which trains other weights",
               workers - shards, workers, ls_plural((uint64_t)(workers - shards), "has", "have"),
               shards, ls_plural((uint64_t)shards, "shard", "shards"));
}

/* Returns the first batch norm with one value per channel and row (height and width 1) that has
 * trained parameters, or follows a layer with trained parameters. NULL: there is none. */
static const ls_layer *find_norm_of_vectors(const ls_network *model)
{
    bool learns = false;
    for (int i = 0; i < model->layers; i++) {
        const ls_layer *layer = &model->layer[i];
        learns = learns || ls_layer_learns(layer);
        if (learns && layer->op.kind == LS_OP_BATCHNORM && layer->in.h * layer->in.w == 1)
            return layer;
    }
    return NULL;
}

/* Returns whether a minibatch of `rows` rows has a shard of a single row. */
static bool has_single_row(uint32_t rows, int shards)
{
    return rows > 0 && rows < 2 * (uint32_t)shards;
}

/* Writes an advice: a smaller batch_size with which the last minibatch of an epoch has no shard of
 * a single row. Writes "" if the search finds no such batch_size. */
static void advise_batch_size(char *text, size_t size, uint32_t rows, uint32_t batch, int shards)
{
    uint32_t other = batch;
    while (other > 2 * (uint32_t)shards && has_single_row(rows % other, shards))
        other--;
    text[0] = '\0';
    if (!has_single_row(rows % other, shards))
        snprintf(text, size, "; with a batch_size of %u no shard has a single row",
                 (unsigned)other);
}

/* Warns if a batch norm with one value per channel gets shards of a single row. (ls_batchnorm in
 * plugin.h explains what a batch norm does with such shards.) */
static void warn_of_single_rows(const struct ls_trainer *t)
{
    const ls_layer *norm = find_norm_of_vectors(t->model);
    const uint32_t all = ls_dataset_rows(t->data[LS_TRAIN]), batch = (uint32_t)t->config.batch_size;
    const uint32_t whole = all > 0 && all < batch ? all : batch, left = all > 0 ? all % whole : 0;
    const int shards = ls_engine_shards(t->engine);
    char cure[160] = "";
    if (!norm)
        return;
    if (has_single_row(whole, shards) && whole > 1)
        snprintf(cure, sizeof cure,
                 "shards: %d shards divide minibatches of %u rows; set shards to at most %u",
                 shards, (unsigned)whole, (unsigned)whole / 2);
    else if (has_single_row(whole, shards))
        snprintf(cure, sizeof cure,
                 "batch_size: a minibatch has one row; set batch_size to at least 2");
    else if (has_single_row(left, shards)) {
        char other[64];
        advise_batch_size(other, sizeof other, all, batch, shards);
        snprintf(cure, sizeof cure, "batch_size: %u leaves %u %s for the last minibatch%s",
                 (unsigned)batch, (unsigned)left, ls_plural(left, "row", "rows"), other);
    }
    if (cure[0])
        ls_log(t->host, LS_LOG_WARNING,
               "layer \"%s\": batch norm over a shard of one row has no variance: the row is not "
               "learned from, and the running statistics do not change; %s",
               norm->name, cure);
}

void ls_warn_of_settings(struct ls_trainer *t)
{
    const ls_config *c = &t->config;
    const int cpus = ls_allowed_cpus(), workers = ls_engine_workers(t->engine);
    const ls_device_info *info = ls_engine_worker(t->engine, 0).info;
    const int team = info->threads;
    int on_host = (info->flags & LS_DEVICE_HOST_MEMORY) != 0;
    char threads[32] = "";
    if (team > 1)
        snprintf(threads, sizeof threads, " of %d threads", team);
    if (on_host && workers * team > cpus)
        ls_log(t->host, LS_LOG_WARNING, "%d %s%s share %d allowed %s: slower than fewer workers",
               workers, ls_plural((uint64_t)workers, "worker", "workers"), threads, cpus,
               ls_plural((uint64_t)cpus, "CPU", "CPUs"));
    if (on_host && c->precision != LS_PRECISION_FP32)
        ls_log(t->host, LS_LOG_WARNING, "precision: %s computes in fp32 for any value of precision",
               info->name);
    if (on_host && workers == c->shards && workers < cpus && strcmp(c->devices, "auto") == 0)
        ls_log(t->host, LS_LOG_INFO,
               "devices: auto starts %d %s, one for each shard, with %d of the %d CPUs each",
               workers, ls_plural((uint64_t)workers, "worker", "workers"), team, cpus);
    if (ls_members_first(t) && !t->dir.resumed)
        ls_log_data_doubts(c, t->data[LS_TRAIN], t->data[LS_TEST], t->host);
    ls_members_warn_of_kinds(t);
    warn_of_rows(t, on_host);
    warn_of_idle(t);
    warn_of_single_rows(t);
    ls_tell_receipt(t);
}
