/* SPDX-License-Identifier: MIT */
/* Computes the expected results of a cell of bench_overlap with one worker, for comparison:
 * gradients and weights must be bit-identical. */
#include "base/error.h"
#include "base/host.h"
#include "hash/hash.h"
#include "merge/group.h"
#include "overlap.h"

#include <string.h>

enum { SPIN_FLOATS = 4096 };

/* Computes the expected result for spin kernels. The weights are sums of small whole numbers, which
 * have no rounding error, whatever the order of addition. */
static int spin_run(outcome *out, const cell *c, ls_error *err)
{
    float *leaf = ls_alloc_array(NULL, 2 * SPIN_FLOATS, sizeof *leaf), *weights = NULL;
    if (!leaf)
        return ls_fail(err, LS_ENOMEM, "out of memory for the reference");
    weights = leaf + SPIN_FLOATS;
    for (uint64_t step = 0; step < CHECK_STEPS; step++) {
        for (int s = 0; s < c->desc.work->shards; s++) {
            spin_gradient(leaf, SPIN_FLOATS, spin_shard(c->desc.work, step, s));
            out->leaf[s] = ls_crc32(0, leaf, SPIN_FLOATS * sizeof *leaf);
            for (size_t i = 0; c->desc.merge && i < SPIN_FLOATS; i++)
                weights[i] += leaf[i];
        }
    }
    out->weights = ls_crc32(0, weights, SPIN_FLOATS * sizeof *weights);
    ls_free(NULL, leaf);
    return LS_OK;
}

static int one_step(outcome *out, const cell *c, ls_replica *r, ls_fold *fold, ls_comm *comm,
                    ls_device *device, uint64_t step, ls_error *err)
{
    const uint32_t batch = (uint32_t)c->desc.work->batch;
    const uint32_t shards = (uint32_t)c->desc.work->shards, each = batch / shards;
    uint32_t rows[DATA_ROWS];
    ls_comm_times times = {0};
    int status = LS_OK;
    ls_fold_begin(fold);
    for (uint32_t i = 0; i < batch; i++)
        rows[i] = (uint32_t)((step * batch + i) % DATA_ROWS);
    for (uint32_t s = 0; status == LS_OK && s < shards; s++) {
        status = ls_replica_gradient(r, rows + s * each, each, 0, NULL, err);
        out->leaf[s] = device_crc(device, ls_replica_gradient_arena(r), ls_replica_floats(r));
        if (status == LS_OK)
            status = ls_fold_push(fold, err);
    }
    if (status || !c->desc.merge)
        return status;
    status = comm->group->type->all_reduce(comm, NULL, fold->stack, fold->depth,
                                           ls_replica_total_arena(r), &times, err);
    const ls_replica_step s = {.lr = (float)c->optimizer->lr,
                               .scale = 1.0f / (float)batch,
                               .rows = batch,
                               .number = step + 1};
    return status ? status : ls_replica_apply(r, &s, NULL, err);
}

const ls_comm_type *merging_of(const ls_device *device)
{
    const ls_comm_type *const *types =
        device->ops->communicators ? device->ops->communicators() : NULL;
    for (int i = 0; types && types[i]; i++)
        if (strcmp(types[i]->name, "local") == 0)
            return types[i];
    return types ? types[0] : &ls_comm_ordered;
}

static int steps(outcome *out, const cell *c, ls_replica *r, ls_device *device, ls_error *err)
{
    const int shards = c->desc.work->shards;
    ls_fold fold = {0};
    ls_comm_group *group = NULL;
    ls_comm *comm = NULL;
    int params;
    const size_t *param_offsets = ls_replica_param_offsets(r, &params);
    const ls_comm_group_desc desc = {.type = merging_of(device),
                                     .ranks = 1,
                                     .shards = shards,
                                     .floats = ls_replica_floats(r),
                                     .param_offsets = param_offsets,
                                     .param_count = params,
                                     .timeout_ns = DEADLINE_NS};
    int status = ls_fold_init(&fold, device, ls_replica_gradient_arena(r), ls_replica_floats(r),
                              shards, 0, shards, err);
    if (status == LS_OK)
        status = desc.type->group_create(&group, &desc, err);
    if (status == LS_OK)
        status = desc.type->join(&comm, group, 0, device, err);
    if (status == LS_OK)
        status = ls_merge_check_group(&(ls_merge_check){.comm = comm,
                                                        .device = device,
                                                        .shards = shards,
                                                        .floats = desc.floats,
                                                        .scratch = ls_replica_gradient_arena(r),
                                                        .total = ls_replica_total_arena(r)},
                                      err);
    for (uint64_t step = 0; status == LS_OK && step < CHECK_STEPS; step++)
        status = one_step(out, c, r, &fold, comm, device, step, err);
    out->weights = device_crc(device, ls_replica_weight_arena(r), ls_replica_tail_offset(r));
    if (comm)
        desc.type->leave(comm);
    if (group)
        desc.type->group_destroy(group);
    ls_fold_fini(&fold);
    return status;
}

static int network_run(outcome *out, const cell *c, ls_device *device, ls_error *err)
{
    ls_replica *r;
    const uint32_t rows = (uint32_t)c->desc.work->batch / (uint32_t)c->desc.work->shards;
    const ls_replica_desc desc = {.device = device,
                                  .model = c->model,
                                  .optimizer = c->optimizer,
                                  .normalisation = {.std = {1, 1, 1, 1}},
                                  .data[LS_TRAIN] = c->data,
                                  .shard_rows = &rows,
                                  .shard_row_counts = 1};
    int status = ls_replica_create(&r, &desc, err);
    if (status)
        return status;
    status = ls_replica_import(r, ls_replica_weight_arena(r), c->first_weights, err);
    if (status == LS_OK)
        status = steps(out, c, r, device, err);
    ls_replica_destroy(r);
    return status;
}

int reference_run(outcome *out, const cell *c, ls_error *err)
{
    ls_device *device;
    const ls_device_request request = {.size = sizeof request,
                                       .index = c->device ? c->device[0] : 0,
                                       .threads = 1,
                                       .precision = c->precision,
                                       .cache_dir = c->cache_dir};
    int status = c->backend->open(&device, &request, err);
    if (status)
        return status;
    status = device->ops->bind(device, err);
    memset(out, 0, sizeof *out);
    if (status == LS_OK)
        status = c->desc.work->batch ? network_run(out, c, device, err) : spin_run(out, c, err);
    device->ops->close(device);
    return status;
}
