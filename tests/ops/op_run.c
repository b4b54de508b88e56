/* SPDX-License-Identifier: MIT */
/* Runs a chain on a device. */
#include "ops/op_chain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- runs ----------------------------------------------------------------------------------- */

struct op_run {
    ls_device *device;
    op_chain chain;
    op_run *twin;
    int count; /* number of ops, the export included */
    ls_op *op[OP_CHAIN + 1];
    ls_tensor x0;                   /* the first op's x */
    void *x, *x2, *y[OP_CHAIN + 1]; /* x, x2: the chain's inputs */
    /* dy[i]: gradient of op i's output; dx, dx2: gradients of the chain's inputs */
    void *dx, *dx2, *dy[OP_CHAIN + 1];
    float *param[OP_CHAIN][LS_OP_PARAMS]; /* the twin's parameters, if there is a twin */
    float *grad[OP_CHAIN][LS_OP_PARAMS];
    void *shadow[OP_CHAIN][LS_OP_PARAMS], *shadow_grad[OP_CHAIN][LS_OP_PARAMS]; /* or NULL */
    size_t shadow_bytes;
    /* contribution: the twin's, if there is a twin */
    float *running[OP_CHAIN], *contribution[OP_CHAIN];
    float *stats;
    int32_t *labels, *labels_out;
    float *class_weight; /* NULL: the loss is not weighted */
    /* weights of the rows, and the gather's copy of them; NULL: rows have no weights */
    float *weights, *weights_out;
    uint32_t *rows; /* a copy of the inputs' rows; NULL: the device reads the host's */
    void *saved[OP_CHAIN + 1], *scratch[OP_CHAIN + 1];
    ls_step_args args;
};

static void check(const op_run *run, int rc, const ls_error *err)
{
    if (rc != LS_OK)
        fail_msg("%s\n    %s: %s", op_chain_text(&run->chain), ls_status_name(rc), err->text);
}

static void *memory(op_run *run, size_t bytes)
{
    void *out = NULL;
    ls_error err = {0};
    check(run, run->device->ops->alloc(&out, run->device, bytes, &err), &err);
    return out;
}

static void upload(op_run *run, void *dst, const void *src, size_t bytes)
{
    ls_error err = {0};
    check(run, run->device->ops->upload(run->device, NULL, dst, src, bytes, &err), &err);
}

static void download(op_run *run, void *dst, const void *src, size_t bytes)
{
    ls_error err = {0};
    check(run, run->device->ops->download(run->device, NULL, dst, src, bytes, &err), &err);
    check(run, run->device->ops->sync(run->device, NULL, &err), &err);
}

/* Fills memory with bytes 0xFF: NaN as a float, −1 as an index. */
static void poison(op_run *run, void *dst, size_t bytes)
{
    if (!dst || !bytes)
        return;
    static char junk[1 << 16];
    memset(junk, 0xFF, sizeof junk);
    for (size_t at = 0; at < bytes; at += sizeof junk)
        upload(run, (char *)dst + at, junk, bytes - at < sizeof junk ? bytes - at : sizeof junk);
}

static void release(op_run *run, void *pointer)
{
    run->device->ops->free(run->device, pointer);
}

/* Returns the number of the op whose output is x of op i. For the export, which is the last op,
 * this is the previous op. */
static int source(const op_run *run, int i)
{
    return i < run->chain.count ? op_source(&run->chain, i) : i - 1;
}

static int takes_x2(const op_run *run, int i)
{
    return i < run->chain.count && op_has_x2(&run->chain.op[i]);
}

/* Returns whether the output of op k has a gradient. k is −1 for an input of the chain. */
static int is_learned(const op_chain *chain, int k)
{
    if (k < 0)
        return chain->needs_dx;
    return chain->training && chain->op[k].kind != LS_OP_GATHER;
}

static int has_dx(const op_run *run, int i)
{
    return is_learned(&run->chain, source(run, i)) ||
           (takes_x2(run, i) && is_learned(&run->chain, op_source2(&run->chain, i)));
}

/* Returns the chain's second input as a tensor. */
static ls_tensor second(const op_run *run)
{
    ls_tensor x2 = run->chain.x2;
    x2.dtype = LS_F32;
    x2.bytes = (size_t)x2.rows * op_row(&x2) * sizeof(float);
    return x2;
}

/* Returns the description of op i with the inputs `x` and `x2`. */
static ls_op_desc describe(const op_run *run, int i, ls_tensor x, ls_tensor x2)
{
    const op_chain *chain = &run->chain;
    ls_op_desc d = {.kind = LS_OP_EXPORT};
    if (i < chain->count)
        d = chain->op[i];
    d.size = sizeof d;
    d.x = x;
    d.x2 = x2;
    d.training = chain->training;
    d.needs_dx = has_dx(run, i);
    d.twin = run->twin ? run->twin->op[i] : NULL;
    d.y_hint = NULL;
    return d;
}

static const ls_layout *hint_for(const op_run *run, int i)
{
    const ls_device_ops *ops = run->device->ops;
    ls_tensor none = {0};
    if (!run->chain.hints || !ops->preferred_layout)
        return NULL;
    /* finds the first op that reads the output, as x or as x2 */
    for (int k = i + 1; k < run->count; k++) {
        int as_x2 = takes_x2(run, k) && op_source2(&run->chain, k) == i;
        if (source(run, k) != i && !as_x2)
            continue;
        ls_tensor y = op_shape_after(&run->chain, i);
        ls_op_desc next = describe(run, k, y, takes_x2(run, k) ? y : none);
        return ops->preferred_layout(run->device, &next);
    }
    return NULL;
}

static void check_y(const op_run *run, int i)
{
    ls_tensor y = run->op[i]->y, want = op_shape_after(&run->chain, i);
    if (y.rows != want.rows || y.c != want.c || y.h != want.h || y.w != want.w ||
        y.bytes < want.bytes / (y.layout ? 2 : 1)) /* a layout can have 16-bit numbers */
        fail_msg("%s\n    op %d says y is %d×%d×%d×%d in %zu bytes", op_chain_text(&run->chain), i,
                 y.rows, y.c, y.h, y.w, y.bytes);
}

static void check_contribution(const op_run *run, int i)
{
    int norm = i < run->chain.count && run->chain.op[i].kind == LS_OP_BATCHNORM;
    size_t want = norm ? 2 * op_canonical(&run->chain, i, 0) : 0;
    if (run->op[i]->contribution_floats != want)
        fail_msg("%s\n    op %d contributes %zu floats, not %zu", op_chain_text(&run->chain), i,
                 run->op[i]->contribution_floats, want);
}

static ls_tensor input_tensor(const op_run *run, int from)
{
    return from >= 0 ? run->op[from]->y : from == OP_SECOND ? second(run) : run->x0;
}

/* Creates the ops. Returns LS_OK or LS_EUNSUPPORTED. */
static int create_ops(op_run *run)
{
    for (int i = 0; i < run->count; i++) {
        ls_tensor x = input_tensor(run, source(run, i)), x2 = {0};
        if (takes_x2(run, i))
            x2 = input_tensor(run, op_source2(&run->chain, i));
        ls_op_desc d = describe(run, i, x, x2);
        ls_error err = {0};
        d.y_hint = hint_for(run, i);
        int rc = run->device->ops->op_create(&run->op[i], run->device, &d, &err);
        if (rc == LS_EUNSUPPORTED) {
            if (run->op[i] || !err.text[0])
                fail_msg("%s\n    op %d declined, but not cleanly", op_chain_text(&run->chain), i);
            return rc;
        }
        check(run, rc, &err);
        if (i < run->chain.count && !op_is_loss((int)d.kind))
            check_y(run, i);
        check_contribution(run, i);
    }
    if (!op_ends_in_loss(&run->chain) && run->op[run->count - 1]->y.layout)
        fail_msg("%s\n    export's y is not row-major", op_chain_text(&run->chain));
    return LS_OK;
}

static void create_op_memory(op_run *run, int i)
{
    const ls_op *op = run->op[i];
    run->y[i] = op->y.bytes ? memory(run, op->y.bytes) : NULL;
    run->dy[i] = op->y.bytes && run->chain.training ? memory(run, op->y.bytes) : NULL;
    run->saved[i] = op->saved_bytes ? memory(run, op->saved_bytes) : NULL;
    run->scratch[i] = op->scratch_bytes ? memory(run, op->scratch_bytes) : NULL;
    for (int p = 0; p < op->params; p++) {
        size_t bytes = op->param_floats[p] * sizeof(float);
        if (run->twin && op->param_floats[p] != run->twin->op[i]->param_floats[p])
            fail_msg("%s\n    a twin's parameter has another size", op_chain_text(&run->chain));
        run->param[i][p] = run->twin ? run->twin->param[i][p] : memory(run, bytes);
        run->grad[i][p] = run->twin ? run->twin->grad[i][p] : memory(run, bytes);
        const size_t shadow = op->param_floats[p] * run->shadow_bytes;
        if (shadow > 0) {
            run->shadow[i][p] = run->twin ? run->twin->shadow[i][p] : memory(run, shadow);
            run->shadow_grad[i][p] = run->twin ? run->twin->shadow_grad[i][p] : memory(run, shadow);
        }
    }
    if (op->contribution_floats) {
        size_t bytes = op->contribution_floats * sizeof(float);
        run->running[i] = run->twin ? run->twin->running[i] : memory(run, bytes);
        run->contribution[i] = run->twin ? run->twin->contribution[i] : memory(run, bytes);
    }
}

static void weigh_classes(op_run *run)
{
    const ls_op_desc *last = &run->chain.op[run->chain.count - 1];
    const ls_tensor x = op_x_of(&run->chain, run->chain.count - 1);
    const size_t classes = op_row(&x);
    if (last->kind != LS_OP_SOFTMAX_XENT || !last->u.softmax_xent.weighted)
        return;
    float *weight = op_zeros(classes, sizeof *weight);
    for (size_t k = 0; k < classes; k++)
        weight[k] = op_class_weight((int)k);
    run->class_weight = memory(run, classes * sizeof *weight);
    upload(run, run->class_weight, weight, classes * sizeof *weight);
    free(weight);
}

static void create_memory(op_run *run)
{
    size_t x_bytes = run->x0.bytes;
    if (run->x0.dtype == LS_U8)
        x_bytes = OP_DATA_ROWS * op_row(&run->x0);
    run->x = memory(run, x_bytes);
    size_t labels = run->x0.rows > OP_DATA_ROWS ? (size_t)run->x0.rows : OP_DATA_ROWS;
    if (run->chain.row_weights) {
        run->weights = memory(run, labels * sizeof *run->weights);
        run->weights_out = memory(run, labels * sizeof *run->weights);
    }
    labels *= op_label_words(&run->chain);
    run->labels = memory(run, labels * sizeof *run->labels);
    run->labels_out = memory(run, labels * sizeof *run->labels);
    run->x2 = run->chain.x2.rows ? memory(run, second(run).bytes) : NULL;
    /* The memory is also needed if only the second input of an op has a gradient, because the op
     * writes the gradients of both inputs. */
    if (has_dx(run, 0))
        run->dx = memory(run, run->x0.bytes);
    if (run->x2 && run->chain.training)
        run->dx2 = memory(run, second(run).bytes);
    run->stats = run->twin ? run->twin->stats : memory(run, 2 * sizeof(float));
    ls_device_info info;
    run->device->ops->describe(run->device, &info);
    run->shadow_bytes = (size_t)info.shadow_bytes;
    if (!(info.flags & LS_DEVICE_HOST_MEMORY))
        run->rows = memory(run, op_shard_rows(&run->chain) * sizeof *run->rows);
    for (int i = 0; i < run->count; i++)
        create_op_memory(run, i);
}

static const void *input_of(const op_run *run, int from)
{
    return from >= 0 ? run->y[from] : from == OP_SECOND ? run->x2 : run->x;
}

/* Returns the memory of the gradient of an input of op i. */
static void *gradient_of(const op_run *run, int i, int from)
{
    if (!has_dx(run, i))
        return NULL;
    return from >= 0 ? run->dy[from] : from == OP_SECOND ? run->dx2 : run->dx;
}

static void bind_ops(op_run *run)
{
    for (int i = 0; i < run->count; i++) {
        int gathered = run->x0.dtype == LS_U8, gather = gathered && i == 0;
        int from = source(run, i);
        int from2 = takes_x2(run, i) ? op_source2(&run->chain, i) : 0;
        ls_op_buffers b = {
            .args = &run->args,
            .x = input_of(run, from),
            .x2 = takes_x2(run, i) ? input_of(run, from2) : NULL,
            .y = run->y[i],
            .dy = run->dy[i],
            .dx = gradient_of(run, i, from),
            .dx2 = takes_x2(run, i) ? gradient_of(run, i, from2) : NULL,
            .running = run->running[i],
            .contribution = run->chain.training ? run->contribution[i] : NULL,
            .labels = gathered && !gather ? run->labels_out : run->labels,
            .labels_out = gather ? run->labels_out : NULL,
            .weights = gathered && !gather ? run->weights_out : run->weights,
            .weights_out = gather ? run->weights_out : NULL,
            .stats = run->stats,
            .class_weight = run->class_weight,
            .saved = run->saved[i],
            .scratch = run->scratch[i],
        };
        ls_error err = {0};
        for (int p = 0; p < run->op[i]->params; p++) {
            b.param[p] = run->param[i][p];
            b.grad[p] = run->chain.training ? run->grad[i][p] : NULL;
            b.shadow[p] = run->shadow[i][p];
            b.shadow_grad[p] = run->chain.training ? run->shadow_grad[i][p] : NULL;
        }
        check(run, run->op[i]->impl->bind(run->op[i], &b, &err), &err);
    }
}

op_run *op_run_open(ls_device *device, const op_chain *chain, op_run *twin)
{
    op_run *run = op_zeros(1, sizeof *run);
    run->device = device;
    run->chain = *chain;
    run->twin = twin;
    run->count = chain->count + !op_ends_in_loss(chain);
    run->x0 = chain->op[0].x;
    run->x0.dtype = chain->op[0].kind == LS_OP_GATHER ? LS_U8 : LS_F32;
    run->x0.layout = NULL;
    run->x0.bytes = (size_t)run->x0.rows * op_row(&run->x0) * (run->x0.dtype == LS_U8 ? 1 : 4);
    if (create_ops(run) != LS_OK) {
        op_run_close(run);
        return NULL;
    }
    create_memory(run);
    weigh_classes(run);
    bind_ops(run);
    return run;
}

void op_run_close(op_run *run)
{
    if (!run)
        return;
    for (int i = run->count - 1; i >= 0; i--) {
        for (int p = 0; !run->twin && p < LS_OP_PARAMS && i < OP_CHAIN; p++) {
            release(run, run->param[i][p]);
            release(run, run->grad[i][p]);
            release(run, run->shadow[i][p]);
            release(run, run->shadow_grad[i][p]);
        }
        if (!run->twin) {
            release(run, run->running[i]);
            release(run, run->contribution[i]);
        }
        release(run, run->y[i]);
        release(run, run->dy[i]);
        release(run, run->saved[i]);
        release(run, run->scratch[i]);
        if (run->op[i])
            run->op[i]->impl->destroy(run->op[i]);
    }
    if (!run->twin)
        release(run, run->stats);
    release(run, run->x);
    release(run, run->dx);
    release(run, run->x2);
    release(run, run->dx2);
    release(run, run->labels);
    release(run, run->labels_out);
    release(run, run->class_weight);
    release(run, run->weights);
    release(run, run->weights_out);
    release(run, run->rows);
    free(run);
}

void op_run_params(op_run *run, const op_inputs *in)
{
    for (int i = 0; i < run->chain.count; i++) {
        if (run->running[i])
            upload(run, run->running[i], in->running[i],
                   run->op[i]->contribution_floats * sizeof(float));
        for (int p = 0; p < run->op[i]->params; p++) {
            ls_error err = {0};
            check(run,
                  run->op[i]->impl->import_param(run->op[i], p, run->param[i][p], in->param[i][p],
                                                 &err),
                  &err);
            if (run->shadow[i][p])
                check(run,
                      run->device->ops->shadow(run->device, NULL, run->shadow[i][p],
                                               run->param[i][p], run->op[i]->param_floats[p], &err),
                      &err);
        }
    }
}

static void load_weights(op_run *run, size_t first)
{
    const int gathered = run->x0.dtype == LS_U8;
    const size_t n = gathered ? OP_DATA_ROWS : (size_t)run->x0.rows;
    float *weight = op_zeros(n, sizeof *weight);
    for (size_t i = 0; i < n; i++)
        weight[i] = op_row_weight((gathered ? 0 : first) + i);
    upload(run, run->weights, weight, n * sizeof *weight);
    free(weight);
}

static void load(op_run *run, const op_inputs *in, int first)
{
    size_t rows = (size_t)run->x0.rows, from = (size_t)first;
    int last = run->count - 1;
    if (run->weights)
        load_weights(run, from);
    if (run->x0.dtype == LS_U8) {
        upload(run, run->x, in->images, OP_DATA_ROWS * in->x_row);
        upload(run, run->labels, in->labels, OP_DATA_ROWS * sizeof *in->labels);
    } else {
        upload(run, run->x, in->x + from * in->x_row, run->x0.bytes);
        upload(run, run->labels, in->labels + from * in->label_words,
               rows * in->label_words * sizeof *in->labels);
    }
    if (run->x2)
        upload(run, run->x2, in->x2 + from * in->x2_row, second(run).bytes);
    run->args.rows_before = (uint32_t)run->chain.before;
    run->args.rows_after = (uint32_t)run->chain.behind;
    run->args.rows = (run->rows ? run->rows : in->rows + first) + run->chain.before;
    if (run->rows)
        upload(run, run->rows, in->rows + first, op_shard_rows(&run->chain) * sizeof *run->rows);
    run->args.seed = in->seed;
    run->args.epoch = in->epoch;
    for (int i = 0; i < run->count; i++) {
        poison(run, run->y[i], run->op[i]->y.bytes);
        poison(run, run->dy[i], run->dy[i] ? run->op[i]->y.bytes : 0);
        poison(run, run->saved[i], run->op[i]->saved_bytes);
        poison(run, run->scratch[i], run->op[i]->scratch_bytes);
    }
    poison(run, run->dx, run->dx ? run->x0.bytes : 0);
    poison(run, run->dx2, run->dx2 ? second(run).bytes : 0);
    if (run->dy[last] && !op_ends_in_loss(&run->chain))
        upload(run, run->dy[last], in->dy + from * in->dy_row, run->op[last]->y.bytes);
}

static void forward(op_run *run, unsigned flags)
{
    ls_error err = {0};
    for (int i = 0; i < run->chain.count; i++)
        if (run->contribution[i] && !(flags & LS_RUN_ACCUMULATE))
            poison(run, run->contribution[i], run->op[i]->contribution_floats * sizeof(float));
    for (int i = 0; i < run->count; i++)
        check(run, run->op[i]->impl->forward(run->op[i], NULL, flags, &err), &err);
}

static void backward(op_run *run, unsigned flags)
{
    ls_error err = {0};
    for (int i = run->count - 1; i >= 0; i--) {
        poison(run, run->scratch[i], run->op[i]->scratch_bytes);
        if (run->op[i]->impl->backward)
            check(run, run->op[i]->impl->backward(run->op[i], NULL, flags, &err), &err);
    }
}

static void finish(op_run *run)
{
    ls_error err = {0};
    check(run, run->device->ops->sync(run->device, NULL, &err), &err);
}

void op_run_evaluate(op_run *run, const op_inputs *in, int first, unsigned flags)
{
    load(run, in, first);
    forward(run, flags | LS_RUN_EVALUATE);
    finish(run);
}

void op_run_step(op_run *run, const op_inputs *in, int first, unsigned flags)
{
    if (!run->chain.training || run->chain.evaluate) {
        op_run_evaluate(run, in, first, flags);
        return;
    }
    load(run, in, first);
    forward(run, flags);
    backward(run, flags);
    finish(run);
}

/* ---- results -------------------------------------------------------------------------------- */

static float *new_item(op_result *r, size_t n, const char *what)
{
    op_item *item = &r->item[r->items++];
    snprintf(item->name, sizeof item->name, "%s", what);
    item->n = n;
    item->data = op_zeros(n, sizeof(float));
    return item->data;
}

/* Checks that the padding of a gradient is zero. Exports the gradient, and imports it again into
 * zeroed memory. Import does not write the padding, so the result equals the gradient byte by byte
 * only if the gradient's padding is zero. */
static void expect_zero_padding(op_run *run, int i, int p, const float *canon)
{
    size_t bytes = run->op[i]->param_floats[p] * sizeof(float);
    void *again = memory(run, bytes);
    char *a = op_zeros(bytes, 1), *b = op_zeros(bytes, 1);
    ls_error err = {0};
    check(run, run->op[i]->impl->import_param(run->op[i], p, again, canon, &err), &err);
    download(run, a, again, bytes);
    download(run, b, run->grad[i][p], bytes);
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s\n    gradient %d.%d: the padding is not zero", op_chain_text(&run->chain), i,
                 p);
    release(run, again);
    free(a);
    free(b);
}

static void read_gradients(op_run *run, op_result *r)
{
    for (int i = 0; i < run->chain.count; i++)
        for (int p = 0; p < run->op[i]->params; p++) {
            char name[32];
            ls_error err = {0};
            snprintf(name, sizeof name, "grad%d.%d", i, p);
            float *out = new_item(r, op_canonical(&run->chain, i, p), name);
            check(run, run->op[i]->impl->export_param(run->op[i], p, out, run->grad[i][p], &err),
                  &err);
            expect_zero_padding(run, i, p, out);
        }
}

static void read_contributions(op_run *run, op_result *r)
{
    for (int i = 0; i < run->chain.count; i++)
        if (run->contribution[i]) {
            char name[32];
            size_t n = run->op[i]->contribution_floats;
            snprintf(name, sizeof name, "contribution%d", i);
            download(run, new_item(r, n, name), run->contribution[i], n * sizeof(float));
        }
}

op_result *op_run_read(op_run *run)
{
    op_result *r = op_zeros(1, sizeof *r);
    int last = run->count - 1;
    const ls_tensor *y = &run->op[last]->y;
    r->has_stats = op_ends_in_loss(&run->chain);
    if (r->has_stats)
        download(run, r->stats, run->stats, sizeof r->stats);
    else
        download(run, new_item(r, (size_t)y->rows * op_row(y), "y"), run->y[last], y->bytes);
    int stepped = run->chain.training && !run->chain.evaluate;
    if (run->dx && stepped)
        download(run, new_item(r, run->x0.bytes / 4, "dx"), run->dx, run->x0.bytes);
    if (run->dx2 && run->chain.needs_dx && stepped)
        download(run, new_item(r, second(run).bytes / 4, "dx2"), run->dx2, second(run).bytes);
    if (run->chain.op[0].kind == LS_OP_GATHER)
        download(run, r->labels, run->labels_out, (size_t)run->x0.rows * sizeof *r->labels);
    if (stepped) {
        read_gradients(run, r);
        read_contributions(run, r);
    }
    return r;
}

op_result *op_once(ls_device *device, const op_chain *chain, const op_inputs *in)
{
    op_run *run = op_run_open(device, chain, NULL);
    if (!run)
        return NULL;
    op_run_params(run, in);
    op_run_step(run, in, 0, 0);
    op_result *r = op_run_read(run);
    op_run_close(run);
    return r;
}

void op_expect_accumulates(const char *who, ls_device *device, const op_chain *chain)
{
    op_inputs *in = op_inputs_create(chain, chain->seed);
    op_run *run = op_run_open(device, chain, NULL);
    op_run_params(run, in);
    op_run_step(run, in, 0, 0);
    op_result *once = op_run_read(run);
    op_run_step(run, in, 0, LS_RUN_ACCUMULATE);
    op_result *twice = op_run_read(run);
    for (int i = 0; i < once->items; i++)
        for (size_t k = 0; once->item[i].name[0] == 'g' && k < once->item[i].n; k++)
            once->item[i].data[k] *= 2;
    op_expect_near(who, chain, twice, once, 1e-5);
    op_result_destroy(once);
    op_result_destroy(twice);
    op_run_close(run);
    op_inputs_destroy(in);
}
