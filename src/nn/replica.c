/* Making a replica: plans, arenas, data, and everything bound together. */
#include "nn/replica_impl.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

/* Shards beyond this would not be counted exactly in the arena's tail. */
#define MAX_ROWS (1u << 24)

int ls_replica_no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "replica: no memory on the host");
}

int ls_replica_alloc(ls_replica *r, void **out, size_t bytes, size_t *use, ls_error *err)
{
    int rc = r->device->ops->alloc(out, r->device, bytes, err);
    if (rc == LS_OK)
        *use += bytes;
    return rc;
}

/* ---- which numbers of rows need a plan ------------------------------------------------------ */

/* Adds `rows` to a descending list, once. */
static void add_count(uint32_t *list, int *count, uint32_t rows)
{
    int i = 0;
    while (i < *count && list[i] > rows)
        i++;
    if (rows == 0 || (i < *count && list[i] == rows))
        return;
    memmove(list + i + 1, list + i, (size_t)(*count - i) * sizeof *list);
    list[i] = rows;
    ++*count;
}

/* `list` has room for one more than there are shard sizes. */
static void list_counts(uint32_t *list, int *count, const ls_replica *r,
                        const ls_replica_desc *desc)
{
    uint32_t block = (uint32_t)r->info.block_rows;
    for (int i = 0; i < desc->shard_row_counts; i++) {
        uint32_t rows = desc->shard_rows[i];
        if (block > 0 && rows >= block)
            add_count(list, count, block);
        add_count(list, count, block > 0 ? rows % block : rows);
    }
}

static int check_desc(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    for (int i = 0; i < desc->shard_row_counts; i++)
        if (desc->shard_rows[i] > r->most_rows)
            r->most_rows = desc->shard_rows[i];
    if (r->most_rows == 0)
        return ls_fail(err, LS_EINVAL, "replica: no shard has any rows");
    if (r->most_rows > MAX_ROWS)
        return ls_fail(err, LS_EINVAL, "replica: a shard of %u rows; use at most %u",
                       (unsigned)r->most_rows, MAX_ROWS);
    if (!desc->data[LS_TRAIN].images && !desc->data[LS_TEST].images)
        return ls_fail(err, LS_EINVAL, "replica: there is no data to train or test on");
    return LS_OK;
}

static int make_plans(ls_replica *r, const ls_replica_desc *desc, const uint32_t *counts,
                      ls_error *err)
{
    for (int i = 0; counts[i] > 0; i++) {
        ls_plan_desc d = {
            .device = r->device,
            .model = r->model,
            .host = r->host,
            .normalisation = desc->normalisation,
            .uses = {desc->data[LS_TRAIN].images != NULL, desc->data[LS_TEST].images != NULL},
            .rows = (int)counts[i],
            .training = r->optimizer != NULL,
            .twin = i > 0 ? r->plan[0] : NULL,
            .smoothing = desc->label_smoothing,
            .no_sharing = desc->no_sharing,
            .plain_logits = r->optimizer == NULL,
        };
        int rc = ls_plan_create(&r->plan[i], &d, err);
        if (rc != LS_OK)
            return rc;
        r->plans++;
    }
    return LS_OK;
}

static int choose_plans(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    size_t most = (size_t)desc->shard_row_counts + 2; /* a block, and a zero at the end */
    uint32_t *counts = ls_alloc_array(r->host, most, sizeof *counts);
    r->plan = ls_alloc_array(r->host, most, sizeof *r->plan);
    int rc = LS_OK;
    int count = 0;
    if (!counts || !r->plan)
        rc = ls_replica_no_memory(err);
    if (rc == LS_OK) {
        list_counts(counts, &count, r, desc);
        rc = make_plans(r, desc, counts, err);
    }
    ls_free(r->host, counts);
    return rc;
}

/* ---- activations ---------------------------------------------------------------------------- */

static int alloc_activations(ls_replica *r, ls_error *err)
{
    size_t activations = 0;
    const ls_op *update = r->updates[OF_TOTAL].update;
    size_t scratch = update ? update->scratch_bytes : 0;
    void *memory[4] = {NULL, NULL, NULL, NULL};
    size_t *use = &r->memory.activations;
    for (int i = 0; i < r->plans; i++) {
        const ls_plan *p = r->plan[i];
        activations = p->activation_bytes > activations ? p->activation_bytes : activations;
        if (p->unshared_bytes > r->memory.unshared_activations)
            r->memory.unshared_activations = p->unshared_bytes;
        scratch = p->scratch_bytes > scratch ? p->scratch_bytes : scratch;
    }
    int rc = ls_replica_alloc(r, &memory[0], activations, use, err);
    if (rc == LS_OK && scratch > 0)
        rc = ls_replica_alloc(r, &memory[1], scratch, use, err);
    if (rc == LS_OK)
        rc = ls_replica_alloc(r, &memory[2], LS_TAIL * sizeof(float), use, err);
    if (rc == LS_OK)
        rc = ls_replica_alloc(r, &memory[3], sizeof(float), use, err);
    r->activations = memory[0];
    r->scratch = memory[1];
    r->test_stats = memory[2];
    r->held = memory[3];
    return rc;
}

/* ---- data ----------------------------------------------------------------------------------- */

static int copy_subset(ls_replica *r, int subset, const ls_replica_data *data, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const ls_shape *in = &r->model->input;
    size_t bytes = (size_t)data->rows * (size_t)in->c * (size_t)in->h * (size_t)in->w;
    void *images = NULL;
    void *labels = NULL;
    int rc = ls_replica_alloc(r, &images, bytes, &r->memory.dataset, err);
    r->images[subset] = images;
    if (rc == LS_OK)
        rc = ops->upload(r->device, NULL, images, data->images, bytes, err);
    if (rc == LS_OK)
        rc = ls_replica_alloc(r, &labels, data->rows, &r->memory.dataset, err);
    r->labels[subset] = labels;
    if (rc == LS_OK)
        rc = ops->upload(r->device, NULL, labels, data->labels, data->rows, err);
    r->data[subset] = (ls_replica_data){images, labels, data->rows};
    return rc;
}

static int place_data(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    int rc = LS_OK;
    void *rows = NULL;
    const size_t rows_staged = (size_t)r->most_rows * ls_replica_most_calls(r);
    r->staged_rows = ls_alloc_array(r->host, rows_staged, sizeof *r->staged_rows);
    if (!r->staged_rows)
        return ls_replica_no_memory(err);
    memcpy(r->data, desc->data, sizeof r->data);
    memcpy(r->host_data, desc->data, sizeof r->host_data);
    if (r->info.flags & LS_DEVICE_HOST_MEMORY)
        return LS_OK;
    for (int s = 0; s < LS_SUBSETS && rc == LS_OK; s++)
        if (desc->data[s].images)
            rc = copy_subset(r, s, &desc->data[s], err);
    if (rc == LS_OK)
        rc =
            ls_replica_alloc(r, &rows, rows_staged * sizeof(uint32_t), &r->memory.activations, err);
    r->device_rows = rows;
    return rc == LS_OK ? r->device->ops->sync(r->device, NULL, err) : rc;
}

/* ---- putting it together -------------------------------------------------------------------- */

static int bind_plans(ls_replica *r, ls_error *err)
{
    ls_plan_memory m = {
        .args = &r->args,
        .images = {r->data[LS_TRAIN].images, r->data[LS_TEST].images},
        .labels = {r->data[LS_TRAIN].labels, r->data[LS_TEST].labels},
        .activations = r->activations,
        .scratch = r->scratch,
        .weights = r->arena[WEIGHTS],
        .gradient = r->arena[GRADIENT],
        .param_at = r->param_at,
        .stat_at = r->stat_at,
        .heartbeat = r->heartbeat,
    };
    if (r->optimizer)
        m.stats[LS_TRAIN] = r->arena[GRADIENT] + r->tail_at + LS_TAIL_LOSS;
    m.stats[LS_TEST] = r->test_stats;
    int rc = LS_OK;
    for (int i = 0; i < r->plans && rc == LS_OK; i++)
        rc = ls_plan_bind(r->plan[i], &m, err);
    return rc;
}

static int write_lines(ls_replica *r, ls_error *err)
{
    char text[LS_LINE_BYTES];
    int count = 1;
    for (int i = 0; i < r->plans; i++)
        for (int k = 0; ls_plan_line(text, sizeof text, r->plan[i], k); k++)
            count++;
    r->line = ls_alloc_array(r->host, (size_t)count, sizeof *r->line);
    if (!r->line)
        return ls_replica_no_memory(err);
    for (int i = 0; i < r->plans; i++)
        for (int k = 0; ls_plan_line(r->line[r->lines], LS_LINE_BYTES, r->plan[i], k); k++)
            r->lines++;
    const ls_op *update = r->updates[OF_TOTAL].update;
    if (update)
        snprintf(r->line[r->lines++], LS_LINE_BYTES, "%s %zu floats %s", r->optimizer->type->name,
                 r->tail_at, update->kernel ? update->kernel : "");
    return LS_OK;
}

static int build(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    int rc = check_desc(r, desc, err);
    if (rc == LS_OK)
        rc = choose_plans(r, desc, err);
    if (rc == LS_OK)
        rc = ls_replica_lay_out(r, err);
    if (rc == LS_OK)
        ls_replica_cut(r, desc->piece_floats);
    if (rc == LS_OK)
        rc = ls_replica_make_updates(r, OF_TOTAL, err);
    if (rc == LS_OK)
        rc = ls_replica_alloc_arenas(r, err);
    if (rc == LS_OK)
        rc = alloc_activations(r, err);
    if (rc == LS_OK)
        rc = place_data(r, desc, err);
    if (rc == LS_OK)
        rc = ls_replica_bind_updates(r, OF_TOTAL, err);
    if (rc == LS_OK)
        rc = bind_plans(r, err);
    if (rc == LS_OK)
        rc = write_lines(r, err);
    return rc == LS_OK && !desc->no_recording ? ls_replica_record(r, err) : rc;
}

int ls_replica_create(ls_replica **out, const ls_replica_desc *desc, ls_error *err)
{
    ls_replica *r = ls_alloc(desc->host, sizeof *r);
    if (!r)
        return ls_replica_no_memory(err);
    r->device = desc->device;
    r->heartbeat = desc->heartbeat;
    r->model = desc->model;
    r->optimizer = desc->optimizer;
    r->host = desc->host;
    r->args.seed = desc->seed;
    r->device->ops->describe(r->device, &r->info);
    if (r->model->stats > 0)
        r->info.block_rows = 0; /* the statistics are those of the whole shard */
    int rc = build(r, desc, err);
    if (rc == LS_OK)
        *out = r;
    else
        ls_replica_destroy(r);
    return rc;
}

static void device_free(ls_replica *r, void *memory)
{
    if (memory)
        r->device->ops->free(r->device, memory);
}

void ls_replica_destroy(ls_replica *r)
{
    if (!r)
        return;
    if (r->plans > 0)
        r->device->ops->sync(r->device, NULL, NULL); /* work may still use the memory */
    if (r->step)
        r->device->ops->recording_destroy(r->device, r->step);
    ls_replica_destroy_updates(r);
    for (int i = r->plans - 1; i >= 0; i--)
        ls_plan_destroy(r->plan[i]);
    device_free(r, r->device_rows);
    device_free(r, r->row_tails);
    for (int s = 0; s < LS_SUBSETS; s++) {
        device_free(r, r->images[s]);
        device_free(r, r->labels[s]);
    }
    device_free(r, r->test_stats);
    device_free(r, r->held);
    if (r->arrived)
        r->device->ops->pinned_free(r->device, r->arrived);
    device_free(r, r->scratch);
    device_free(r, r->activations);
    for (int a = 0; a < ARENAS; a++)
        device_free(r, r->arena[a]);
    ls_free(r->host, r->line);
    ls_free(r->host, r->staged_rows);
    ls_free(r->host, r->segment);
    ls_free(r->host, r->stat_at);
    ls_free(r->host, r->param_at);
    ls_free(r->host, r->plan);
    ls_free(r->host, r);
}
