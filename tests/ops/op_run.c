/* Running a chain on a device. */
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
    int count; /* ops, the export included */
    ls_op *op[OP_CHAIN + 1];
    ls_tensor x0;                         /* the first op's x */
    void *x, *y[OP_CHAIN + 1];            /* x: the first op's input */
    void *dx, *dy[OP_CHAIN + 1];          /* dy[i]: of op i; dx: of the first op's x */
    float *param[OP_CHAIN][LS_OP_PARAMS]; /* the twin's, if there is one */
    float *grad[OP_CHAIN][LS_OP_PARAMS];
    float *stats;
    uint8_t *labels, *labels_out;
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

/* Every byte 0xFF: NaN as a float, −1 as an index. */
static void poison(op_run *run, void *dst, size_t bytes)
{
    if (!dst || !bytes)
        return;
    void *junk = op_zeros(bytes, 1);
    memset(junk, 0xFF, bytes);
    upload(run, dst, junk, bytes);
    free(junk);
}

static void release(op_run *run, void *pointer)
{
    run->device->ops->free(run->device, pointer);
}

static int has_dx(const op_chain *chain, int i)
{
    if (i == 0)
        return chain->needs_dx;
    return chain->training && chain->op[i - 1].kind != LS_OP_GATHER;
}

/* The description of op i when `x` goes in. */
static ls_op_desc describe(const op_run *run, int i, ls_tensor x)
{
    const op_chain *chain = &run->chain;
    ls_op_desc d = {.kind = LS_OP_EXPORT};
    if (i < chain->count)
        d = chain->op[i];
    d.size = sizeof d;
    d.x = x;
    d.training = chain->training;
    d.needs_dx = has_dx(chain, i);
    d.twin = run->twin ? run->twin->op[i] : NULL;
    d.y_hint = NULL;
    return d;
}

static const ls_layout *hint_for(const op_run *run, int i)
{
    const ls_device_ops *ops = run->device->ops;
    if (!run->chain.hints || !ops->preferred_layout || i + 1 >= run->count)
        return NULL;
    ls_op_desc next = describe(run, i + 1, op_shape_after(&run->chain, i));
    return ops->preferred_layout(run->device, &next);
}

/* LS_OK or LS_EUNSUPPORTED. */
static int create_ops(op_run *run)
{
    ls_tensor x = run->x0;
    for (int i = 0; i < run->count; i++) {
        ls_op_desc d = describe(run, i, x);
        ls_error err = {0};
        d.y_hint = hint_for(run, i);
        int rc = run->device->ops->op_create(&run->op[i], run->device, &d, &err);
        if (rc == LS_EUNSUPPORTED) {
            if (run->op[i] || !err.text[0])
                fail_msg("%s\n    op %d declined, but not cleanly", op_chain_text(&run->chain), i);
            return rc;
        }
        check(run, rc, &err);
        x = run->op[i]->y;
        if (i < run->chain.count && d.kind != LS_OP_SOFTMAX_XENT) {
            ls_tensor want = op_shape_after(&run->chain, i);
            if (x.rows != want.rows || x.c != want.c || x.h != want.h || x.w != want.w ||
                x.bytes < (size_t)x.rows * op_row(&x) * 4)
                fail_msg("%s\n    op %d says y is %d×%d×%d×%d in %zu bytes",
                         op_chain_text(&run->chain), i, x.rows, x.c, x.h, x.w, x.bytes);
        }
    }
    if (!op_ends_in_loss(&run->chain) && x.layout)
        fail_msg("%s\n    export's y is not row-major", op_chain_text(&run->chain));
    return LS_OK;
}

static void create_memory(op_run *run)
{
    size_t x_bytes = run->x0.bytes;
    if (run->x0.dtype == LS_U8)
        x_bytes = OP_DATA_ROWS * op_row(&run->x0);
    run->x = memory(run, x_bytes);
    size_t labels = run->x0.rows > OP_DATA_ROWS ? (size_t)run->x0.rows : OP_DATA_ROWS;
    run->labels = memory(run, labels);
    run->labels_out = memory(run, labels);
    if (has_dx(&run->chain, 0))
        run->dx = memory(run, run->x0.bytes);
    run->stats = run->twin ? run->twin->stats : memory(run, 2 * sizeof(float));
    for (int i = 0; i < run->count; i++) {
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
        }
    }
}

static void bind_ops(op_run *run)
{
    for (int i = 0; i < run->count; i++) {
        int gathered = run->x0.dtype == LS_U8, gather = gathered && i == 0;
        ls_op_buffers b = {
            .args = &run->args,
            .x = i ? run->y[i - 1] : run->x,
            .y = run->y[i],
            .dy = run->dy[i],
            .dx = !has_dx(&run->chain, i) ? NULL
                  : i                     ? run->dy[i - 1]
                                          : run->dx,
            .labels = gathered && !gather ? run->labels_out : run->labels,
            .labels_out = gather ? run->labels_out : NULL,
            .stats = run->stats,
            .saved = run->saved[i],
            .scratch = run->scratch[i],
        };
        ls_error err = {0};
        for (int p = 0; p < run->op[i]->params; p++) {
            b.param[p] = run->param[i][p];
            b.grad[p] = run->chain.training ? run->grad[i][p] : NULL;
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
    release(run, run->labels);
    release(run, run->labels_out);
    free(run);
}

void op_run_params(op_run *run, const op_inputs *in)
{
    for (int i = 0; i < run->chain.count; i++)
        for (int p = 0; p < run->op[i]->params; p++) {
            ls_error err = {0};
            check(run,
                  run->op[i]->impl->import_param(run->op[i], p, run->param[i][p], in->param[i][p],
                                                 &err),
                  &err);
        }
}

static void load(op_run *run, const op_inputs *in, int first)
{
    size_t rows = (size_t)run->x0.rows, from = (size_t)first;
    int last = run->count - 1;
    if (run->x0.dtype == LS_U8) {
        upload(run, run->x, in->images, OP_DATA_ROWS * in->x_row);
        upload(run, run->labels, in->labels, OP_DATA_ROWS);
        run->args.rows = in->rows + first;
    } else {
        upload(run, run->x, in->x + from * in->x_row, run->x0.bytes);
        upload(run, run->labels, in->labels + from, rows);
    }
    for (int i = 0; i < run->count; i++) {
        poison(run, run->y[i], run->op[i]->y.bytes);
        poison(run, run->dy[i], run->dy[i] ? run->op[i]->y.bytes : 0);
        poison(run, run->saved[i], run->op[i]->saved_bytes);
        poison(run, run->scratch[i], run->op[i]->scratch_bytes);
    }
    poison(run, run->dx, run->dx ? run->x0.bytes : 0);
    if (run->dy[last] && !op_ends_in_loss(&run->chain))
        upload(run, run->dy[last], in->dy + from * in->dy_row, run->op[last]->y.bytes);
}

void op_run_step(op_run *run, const op_inputs *in, int first, unsigned flags)
{
    ls_error err = {0};
    load(run, in, first);
    for (int i = 0; i < run->count; i++)
        check(run, run->op[i]->impl->forward(run->op[i], NULL, flags, &err), &err);
    for (int i = run->count - 1; i >= 0 && run->chain.training; i--) {
        poison(run, run->scratch[i], run->op[i]->scratch_bytes);
        if (run->op[i]->impl->backward)
            check(run, run->op[i]->impl->backward(run->op[i], NULL, flags, &err), &err);
    }
    check(run, run->device->ops->sync(run->device, NULL, &err), &err);
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

/* export(gradient), imported again into zeroed memory, must give the gradient's bytes: then
 * whatever import does not write, the padding, is zero. */
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
            char name[24];
            ls_error err = {0};
            snprintf(name, sizeof name, "grad%d.%d", i, p);
            float *out = new_item(r, op_canonical(&run->chain, i, p), name);
            check(run, run->op[i]->impl->export_param(run->op[i], p, out, run->grad[i][p], &err),
                  &err);
            expect_zero_padding(run, i, p, out);
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
    if (run->dx)
        download(run, new_item(r, run->x0.bytes / 4, "dx"), run->dx, run->x0.bytes);
    if (run->chain.op[0].kind == LS_OP_GATHER)
        download(run, r->labels, run->labels_out, (size_t)run->x0.rows);
    if (run->chain.training)
        read_gradients(run, r);
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
