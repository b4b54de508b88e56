/* SPDX-License-Identifier: MIT */
/* Creates a replica: its plans, arenas and data. */
#include "nn/replica_impl.h"

#include "base/error.h"
#include "base/host.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Largest number of rows of a shard. The tail of an arena (replica.h) counts rows in fp32, which is
 * exact up to this number. */
#define MAX_ROWS (1u << 24)

int ls_replica_no_memory(ls_error *err)
{
    return ls_fail(err, LS_ENOMEM, "replica: no memory on the host");
}

void *ls_replica_alloc(ls_replica *r, size_t bytes, size_t *use, int *status, ls_error *err)
{
    void *memory = NULL;
    if (*status == LS_OK)
        *status = r->device->ops->alloc(&memory, r->device, bytes, err);
    if (memory) {
        assert(r->allocations < LS_ALLOCATIONS);
        r->allocation[r->allocations++] = memory;
        *use += bytes;
    }
    return memory;
}

/* ---- the numbers of rows that need a plan ---------------------------------------------------- */

ls_plan *ls_replica_plan_for(const ls_replica *r, uint32_t rows)
{
    for (int i = 0; i < r->plans; i++)
        if ((uint32_t)r->plan[i]->rows == rows)
            return r->plan[i];
    return NULL;
}

uint32_t ls_replica_block_rows(const ls_replica *r, uint32_t n, uint32_t done)
{
    uint32_t block = (uint32_t)r->info.block_rows;
    return block > 0 && n - done > block ? block : n - done;
}

uint32_t ls_replica_most_calls(const ls_replica *r)
{
    return r->optimizer && r->device->ops->record_next ? LS_UNROLLED : 1;
}

/* Returns how many of the first entries of desc->shard_rows can occur in training. If shards are
 * computed in blocks of rows, all entries can occur, because the last block of a shard can have any
 * number of rows. */
static int trained_counts(const ls_replica *r, const ls_replica_desc *desc)
{
    const bool all = r->info.block_rows > 0 || desc->trained_row_counts == 0;
    return all ? desc->shard_row_counts : desc->trained_row_counts;
}

/* Inserts `rows` into a list, unless `rows` is 0 or is in the list already. The entries from index
 * `first` on stay in descending order. */
static void add_count(uint32_t *list, int *count, int first, uint32_t rows)
{
    int i = first;
    for (int k = 0; k < *count; k++)
        if (list[k] == rows)
            return;
    while (i < *count && list[i] > rows)
        i++;
    if (rows == 0)
        return;
    memmove(list + i + 1, list + i, (size_t)(*count - i) * sizeof *list);
    list[i] = rows;
    ++*count;
}

/* Writes the numbers of rows for which plans are created. The numbers that occur in training come
 * first, in descending order, so that the first plan is the largest plan that trains. The numbers
 * that occur in evaluation only come after them, and can be larger. Capacity of `list`:
 * desc->shard_row_counts plus one. */
static void list_counts(uint32_t *list, int *count, const ls_replica *r,
                        const ls_replica_desc *desc)
{
    const uint32_t block = (uint32_t)r->info.block_rows;
    const int trained = trained_counts(r, desc);
    int first = 0;
    for (int i = 0; i < desc->shard_row_counts; i++) {
        const uint32_t rows = desc->shard_rows[i];
        if (i == trained)
            first = *count;
        if (block > 0 && rows >= block)
            add_count(list, count, first, block);
        add_count(list, count, first, block > 0 ? rows % block : rows);
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

/* Returns whether the plan for `rows` rows is for training. The first plan is for training in every
 * replica with an optimizer, because it defines the layout of the arenas. */
static bool trains(const ls_replica *r, const ls_replica_desc *desc, uint32_t rows)
{
    bool found = r->plans == 0 || r->info.block_rows > 0;
    for (int i = 0; i < trained_counts(r, desc); i++)
        found |= desc->shard_rows[i] == rows;
    return r->optimizer && found;
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
            .training = trains(r, desc, counts[i]),
            .constant = r->optimizer == NULL,
            .twin = i > 0 ? r->plan[0] : NULL,
            .loss = desc->loss,
            .smoothing = desc->label_smoothing,
            .vector = desc->vector_loss,
            .weighted = desc->class_weight != NULL,
            .row_weights = desc->data[LS_TRAIN].weights || desc->data[LS_TEST].weights,
            .no_sharing = desc->no_sharing,
            .plain_logits = r->optimizer == NULL,
            .scores = desc->scores && desc->data[LS_TEST].images,
        };
        int status = ls_plan_create(&r->plan[i], &d, err);
        if (status != LS_OK)
            return status;
        r->plans++;
    }
    return LS_OK;
}

static int choose_plans(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    /* + 1 for the rows of a block, + 1 for a zero at the end */
    size_t most = (size_t)desc->shard_row_counts + 2;
    uint32_t *counts = ls_alloc_array(r->host, most, sizeof *counts);
    r->plan = ls_alloc_array(r->host, most, sizeof *r->plan);
    int count = 0;
    int status = counts && r->plan ? LS_OK : ls_replica_no_memory(err);
    if (status == LS_OK) {
        list_counts(counts, &count, r, desc);
        status = make_plans(r, desc, counts, err);
    }
    ls_free(r->host, counts);
    return status;
}

/* ---- programs ------------------------------------------------------------------------------- */

/* Returns how many floats at the start of the gradient are complete after the backward pass of node
 * `k`. The backward pass visits the nodes in descending order. Let `next` be the first node after
 * `k` in that order that has parameters. The complete floats are all floats before the parameters
 * of `next`. */
static size_t complete_after(const ls_replica *r, const ls_plan *plan, int k)
{
    for (int next = k - 1; next >= 0; next--)
        if (plan->node[next].op->params > 0)
            return r->param_at[plan->node[next].form.first * LS_OP_PARAMS];
    return r->tail_at;
}

static void add_segment(ls_program *p, const ls_segment *segment)
{
    p->segment[p->segments++] = *segment;
}

/* Makes the segments of LS_GRADIENT_BY_BUCKETS. A segment ends after each node whose backward pass
 * completes a bucket. */
static void list_buckets(ls_program *p, const ls_replica *r, const ls_plan *plan)
{
    const ls_buckets *b = &r->buckets;
    ls_segment next = {.parts = LS_PART_FORWARD, .first = plan->nodes - 1, .steps = 1};
    int bucket = 0;
    for (int k = plan->nodes - 1; k > 0; k--) {
        next.floats = complete_after(r, plan, k);
        const int complete = ls_buckets_complete(b->end, b->count, next.floats);
        if (complete > bucket) {
            next.last = k;
            add_segment(p, &next);
            next = (ls_segment){.first = k - 1, .steps = 1};
        }
        bucket = complete;
    }
    next.parts |= LS_PART_TAIL;
    next.floats = r->floats;
    next.last = 0;
    add_segment(p, &next);
}

static void list_programs(ls_plan *plan, const ls_replica *r)
{
    ls_segment whole = {.parts = LS_PART_FORWARD | LS_PART_TAIL,
                        .first = plan->nodes - 1,
                        .steps = 1,
                        .floats = r->floats};
    add_segment(&plan->program[LS_GRADIENT], &whole);
    list_buckets(&plan->program[LS_GRADIENT_BY_BUCKETS], r, plan);
    whole.parts = LS_PART_FORWARD | LS_PART_UPDATE;
    add_segment(&plan->program[LS_STEP], &whole);
    whole.steps = LS_UNROLLED;
    add_segment(&plan->program[LS_STEPS], &whole);
}

/* Makes the programs of all plans. The offsets in the arenas must have been computed. */
static void make_programs(ls_replica *r, size_t least)
{
    ls_buckets_cut(&r->buckets, r->param_begin, r->param_begins, r->floats, least);
    for (int i = 0; i < r->plans; i++)
        if (r->plan[i]->training)
            list_programs(r->plan[i], r);
    r->apply = (ls_segment){.parts = LS_PART_APPLY, .first = -1, .steps = 1};
}

/* ---- activations ---------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Allocates activations, scratch memory and some small arrays. After a failure of ls_replica_alloc,
 * its further calls do nothing. */
static int alloc_activations(ls_replica *r, ls_error *err)
{
    size_t activations = 0;
    size_t scratch = r->update_scratch;
    size_t *use = &r->memory.activations;
    for (int i = 0; i < r->plans; i++) {
        const ls_plan *p = r->plan[i];
        activations = larger(activations, p->activation_bytes);
        r->memory.unshared_activations = larger(r->memory.unshared_activations, p->unshared_bytes);
        scratch = larger(scratch, p->scratch_bytes);
        r->memory.kept += p->kept_bytes;
    }
    int status = LS_OK;
    r->activations = ls_replica_alloc(r, activations, use, &status, err);
    if (scratch > 0)
        r->scratch = ls_replica_alloc(r, scratch, use, &status, err);
    r->memory.scratch = scratch;
    r->test_stats = ls_replica_alloc(r, LS_TAIL * sizeof(float), use, &status, err);
    r->skip = ls_replica_alloc(r, sizeof(float), use, &status, err);
    if (r->optimizer && r->info.flags & LS_DEVICE_DIGESTS &&
        !(r->info.flags & LS_DEVICE_HOST_MEMORY))
        r->device_digest = ls_replica_alloc(r, sizeof *r->device_digest, use, &status, err);
    if (r->optimizer && r->optimizer->clip_norm > 0)
        r->clip = ls_replica_alloc(r, LS_CLIP_FLOATS * sizeof(float), use, &status, err);
    return status;
}

/* ---- data ----------------------------------------------------------------------------------- */

static int copy_rows(ls_replica *r, void **out, const void *from, size_t bytes, ls_error *err)
{
    int status = LS_OK;
    *out = ls_replica_alloc(r, bytes, &r->memory.dataset, &status, err);
    return status ? status : r->device->ops->upload(r->device, NULL, *out, from, bytes, err);
}

static int copy_subset(ls_replica *r, int subset, const ls_replica_data *data, ls_error *err)
{
    int status = copy_rows(r, &r->images[subset], data->images, data->rows * r->image_bytes, err);
    if (status == LS_OK)
        status = copy_rows(r, &r->labels[subset], data->labels, data->rows * r->label_bytes, err);
    if (status == LS_OK && data->weights)
        status = copy_rows(r, &r->row_weights[subset], data->weights,
                           data->rows * sizeof *data->weights, err);
    r->data[subset] = (ls_replica_data){.images = r->images[subset],
                                        .labels = r->labels[subset],
                                        .weights = r->row_weights[subset],
                                        .rows = data->rows};
    return status;
}

static int place_class_weights(ls_replica *r, const float *weights, ls_error *err)
{
    const size_t bytes = (size_t)r->model->classes * sizeof *weights;
    void *copy = NULL;
    int status = weights ? copy_rows(r, &copy, weights, bytes, err) : LS_OK;
    r->class_weight = copy;
    return status || !weights ? status : r->device->ops->sync(r->device, NULL, err);
}

int ls_replica_refresh(ls_replica *r, ls_subset subset, uint32_t first, uint32_t n, ls_error *err)
{
    const ls_device_ops *ops = r->device->ops;
    const ls_replica_data *from = &r->host_data[subset];
    if (n == 0 || !r->images[subset])
        return LS_OK;
    if (first > from->rows || n > from->rows - first)
        return ls_fail(err, LS_EINVAL, "replica: rows %u … of %u do not exist", (unsigned)first,
                       (unsigned)from->rows);
    const size_t image = first * r->image_bytes, label = first * r->label_bytes;
    int status = ops->upload(r->device, NULL, (char *)r->images[subset] + image,
                             (const char *)from->images + image, n * r->image_bytes, err);
    if (status == LS_OK)
        status = ops->upload(r->device, NULL, (char *)r->labels[subset] + label,
                             (const char *)from->labels + label, n * r->label_bytes, err);
    if (status || !r->row_weights[subset])
        return status;
    return ops->upload(r->device, NULL, (float *)r->row_weights[subset] + first,
                       from->weights + first, n * sizeof *from->weights, err);
}

static void measure_rows(ls_replica *r, const ls_gather *g)
{
    const ls_shape *in = &r->model->input;
    r->image_bytes =
        (size_t)in->c * (size_t)in->h * (size_t)in->w * (g->floats ? sizeof(float) : 1);
    r->label_bytes = g->targets ? (size_t)g->targets * sizeof(float) : sizeof(int32_t);
}

static int place_data(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    int status = LS_OK;
    const size_t rows_staged = (size_t)r->most_rows * ls_replica_most_calls(r);
    r->staged_rows = ls_alloc_array(r->host, rows_staged, sizeof *r->staged_rows);
    if (!r->staged_rows)
        return ls_replica_no_memory(err);
    measure_rows(r, &desc->normalisation);
    memcpy(r->data, desc->data, sizeof r->data);
    memcpy(r->host_data, desc->data, sizeof r->host_data);
    if (r->info.flags & LS_DEVICE_HOST_MEMORY)
        return desc->copies_training_data ? copy_subset(r, LS_TRAIN, &desc->data[LS_TRAIN], err)
                                          : LS_OK;
    for (int s = 0; s < LS_SUBSETS && status == LS_OK; s++)
        if (s == LS_TEST && desc->data[s].images == desc->data[LS_TRAIN].images)
            /* Both subsets use the same rows, or neither has rows. */
            r->data[s] = r->data[LS_TRAIN];
        else if (desc->data[s].images)
            status = copy_subset(r, s, &desc->data[s], err);
    r->device_rows =
        ls_replica_alloc(r, rows_staged * sizeof(uint32_t), &r->memory.activations, &status, err);
    return status == LS_OK ? r->device->ops->sync(r->device, NULL, err) : status;
}

/* ---- putting the parts together -------------------------------------------------------------- */

static int bind_plan(ls_replica *r, ls_plan *plan, ls_error *err)
{
    ls_plan_memory m = {
        .args = &r->args,
        .images = {r->data[LS_TRAIN].images, r->data[LS_TEST].images},
        .labels = {r->data[LS_TRAIN].labels, r->data[LS_TEST].labels},
        .row_weights = {r->data[LS_TRAIN].weights, r->data[LS_TEST].weights},
        .activations = r->activations,
        .scratch = r->scratch,
        .weights = r->arena[WEIGHTS],
        .gradient = r->arena[GRADIENT],
        .shadow = r->shadow,
        .shadow_grad = r->shadow_grad,
        .shadow_bytes = r->info.shadow_bytes,
        .param_at = r->param_at,
        .stat_at = r->stat_at,
        .class_weight = r->class_weight,
        .heartbeat = r->heartbeat,
    };
    if (r->optimizer)
        m.stats[LS_TRAIN] = r->arena[GRADIENT] + r->tail_at + LS_TAIL_LOSS;
    m.stats[LS_TEST] = r->test_stats;
    return ls_plan_bind(plan, &m, err);
}

int ls_replica_bind_again(ls_replica *r, ls_plan *plan, ls_error *err)
{
    return plan->gradient == r->arena[GRADIENT] ? LS_OK : bind_plan(r, plan, err);
}

static int bind_plans(ls_replica *r, ls_error *err)
{
    int status = LS_OK;
    for (int i = 0; i < r->plans && status == LS_OK; i++)
        status = bind_plan(r, r->plan[i], err);
    return status;
}

int ls_replica_data_at(ls_replica *r, ls_subset subset, const ls_replica_data *data, ls_error *err)
{
    r->host_data[subset] = *data;
    if (!(r->info.flags & LS_DEVICE_HOST_MEMORY) || r->images[subset])
        return LS_OK;
    r->data[subset] = *data;
    return bind_plans(r, err);
}

static int build(ls_replica *r, const ls_replica_desc *desc, ls_error *err)
{
    int status = check_desc(r, desc, err);
    if (status == LS_OK)
        status = choose_plans(r, desc, err);
    if (status == LS_OK)
        status = ls_replica_lay_out(r, err);
    if (status == LS_OK)
        make_programs(r, desc->bucket_floats);
    if (status == LS_OK)
        status = ls_replica_make_updates(r, OF_TOTAL, err);
    if (status == LS_OK)
        status = ls_replica_alloc_arenas(r, desc->total_later, err);
    if (status == LS_OK)
        status = ls_replica_make_unread(r, err);
    if (status == LS_OK)
        status = alloc_activations(r, err);
    if (status == LS_OK)
        status = place_data(r, desc, err);
    if (status == LS_OK)
        status = place_class_weights(r, desc->class_weight, err);
    if (status == LS_OK && r->arena[TOTAL])
        status = ls_replica_bind_updates(r, OF_TOTAL, err);
    if (status == LS_OK)
        status = bind_plans(r, err);
    return status == LS_OK && !desc->no_recording ? ls_replica_record(r, err) : status;
}

/* Returns the number of rows in a block: the device's preferred number `rows`, times a power of two
 * up to 8. Small blocks keep the activations in the caches, but read all weights again. Larger
 * blocks are faster if the weights are larger than a block's activations, as in a perceptron. The
 * bits are the same. */
static int block_rows(const ls_network *model, int rows)
{
    const int most = 8 * rows;
    size_t values = 0;
    for (int i = 0; i < model->layers; i++) {
        const ls_shape *s = &model->layer[i].out;
        values += (size_t)s->c * (size_t)s->h * (size_t)s->w;
    }
    while (rows < most && 2 * (size_t)rows * values <= model->parameters)
        rows *= 2;
    return rows;
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
    r->info.block_rows = r->model->stats > 0
                             ? 0 /* batch norm needs the statistics of the whole shard */
                             : block_rows(r->model, r->info.block_rows);
    int status = build(r, desc, err);
    if (status == LS_OK)
        *out = r;
    else
        ls_replica_destroy(r);
    return status;
}

void ls_replica_destroy(ls_replica *r)
{
    if (!r)
        return;
    if (r->plans > 0)
        /* work that has been enqueued can still use the memory */
        r->device->ops->sync(r->device, NULL, NULL);
    if (r->apply.recording)
        r->device->ops->recording_destroy(r->device, r->apply.recording);
    ls_replica_destroy_updates(r);
    for (int i = r->plans - 1; i >= 0; i--)
        ls_plan_destroy(r->plan[i]);
    if (r->arrived)
        r->device->ops->pinned_free(r->device, r->arrived);
    for (int i = 0; i < r->allocations; i++)
        r->device->ops->free(r->device, r->allocation[i]);
    ls_free(r->host, r->staged_rows);
    ls_free(r->host, r->rate_of);
    ls_free(r->host, r->param_begin);
    ls_free(r->host, r->stat_at);
    ls_free(r->host, r->param_at);
    ls_free(r->host, r->plan);
    ls_free(r->host, r);
}

int ls_replica_sync(ls_replica *replica, ls_error *err)
{
    return replica->device->ops->sync(replica->device, NULL, err);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

void ls_replica_memory_used(const ls_replica *replica, ls_replica_memory *out)
{
    *out = replica->memory;
}

/* The description consists of the lines of all plans, one plan after another, and a last line for
 * the update. */
const char *ls_replica_plan_line(char out[LS_LINE_BYTES], const ls_replica *replica, int line)
{
    const ls_updates *u = &replica->updates[OF_TOTAL];
    for (int i = 0; i < replica->plans && line >= 0; i++) {
        if (ls_plan_line(out, LS_LINE_BYTES, replica->plan[i], line))
            return out;
        /* a line for each node, one for the gather and one for the loss */
        line -= replica->plan[i]->nodes + 2;
    }
    if (line != 0 || u->count == 0)
        return NULL;
    snprintf(out, LS_LINE_BYTES, "%s %zu floats %s", replica->optimizer->type->name,
             replica->tail_at, u->list[0].op->kernel ? u->list[0].op->kernel : "");
    return out;
}

int ls_replica_recordings(const ls_replica *r)
{
    int count = r->apply.recording != NULL;
    for (int i = 0; i < r->plans; i++)
        for (int k = 0; k < LS_PROGRAMS; k++)
            for (int s = 0; s < r->plan[i]->program[k].segments; s++)
                count += r->plan[i]->program[k].segment[s].recording != NULL;
    return count;
}

/* All plans have the same nodes, so the names in the first plan are valid for all. */
int ls_replica_place(char *out, size_t size, const ls_replica *replica, int place)
{
    return ls_plan_position_name(out, size, replica->plan[0], place);
}
