#include "cpu/cpu_linear.h"

#include "cpu/cpu_isa.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/wino.h"

#include <limits.h>
#include <stdio.h>

/* A pass and where its third tensor and its working memory are. */
typedef struct wino_step {
    ls_wino wino;
    int other, work; /* values */
} wino_step;

struct ls_wino_op {
    wino_step forward, weights, data;
    int relu;
};

bool ls_wino_op_fits(const ls_op_desc *desc)
{
    const ls_conv2d *k = &desc->u.conv2d;
    return k->kh == 3 && k->kw == 3 && k->sh == 1 && k->sw == 1 && k->ph <= 1 && k->pw <= 1 &&
           desc->x.c % 16 == 0 && k->out % 16 == 0;
}

ls_md ls_wino_op_image(const ls_md *plain)
{
    return ls_md_as(plain, LS_MD_BLOCKS);
}

ls_md ls_wino_op_weight(const ls_md *plain)
{
    return ls_md_as(plain, LS_MD_OUT_LAST);
}

/* ---- running --------------------------------------------------------------------------------- */

static const float *bias_of(const ls_cpu_op *op)
{
    return op->op.params > 1 ? op->buffers.param[1] : NULL;
}

static int run_forward(void *self, float *x, float *y, unsigned flags, ls_error *err)
{
    ls_cpu_op *op = self;
    const wino_step *s = &op->wino->forward;
    (void)flags;
    (void)err;
    ls_wino_conv(&s->wino, y, x, ls_program_memory(&op->program, s->other), LS_WINO_AS_IS,
                 bias_of(op), op->wino->relu, ls_program_memory(&op->program, s->work));
    return LS_OK;
}

static int run_weights(void *self, float *x, float *dw, unsigned flags, ls_error *err)
{
    ls_cpu_op *op = self;
    const wino_step *s = &op->wino->weights;
    (void)flags;
    (void)err;
    ls_wino_gradient(&s->wino, dw, x, ls_program_memory(&op->program, s->other),
                     ls_program_memory(&op->program, s->work));
    return LS_OK;
}

static int run_data(void *self, float *dy, float *dx, unsigned flags, ls_error *err)
{
    ls_cpu_op *op = self;
    const wino_step *s = &op->wino->data;
    (void)flags;
    (void)err;
    ls_wino_conv(&s->wino, dx, dy, ls_program_memory(&op->program, s->other), LS_WINO_TRANSPOSED,
                 NULL, 0, ls_program_memory(&op->program, s->work));
    return LS_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

/* Images of a single tile belong to layers of many weights: F(4×4, 3×3), with more than twice as many
 * transformed weights to go through, is faster from this many rows on, and then by a third. */
#define MANY_ROWS 48

/* What dx is made by, see cpu_linear.h. */
static int size_for_dx(const ls_wino_shape *s)
{
    int products_2 = (s->h + 1) / 2 * ((s->w + 1) / 2) * 16;
    int products_4 = (s->h + 3) / 4 * ((s->w + 3) / 4) * 36;
    int few = s->h <= 4 && s->w <= 4 && s->rows < MANY_ROWS;
    return !few && 3 * products_4 < 2 * products_2 ? LS_WINO_4 : LS_WINO_2;
}

int ls_wino_op_plan(ls_cpu_op *op, const ls_op_desc *desc, ls_error *err)
{
    const ls_conv2d *k = &desc->u.conv2d;
    ls_wino_shape shape = {desc->x.rows, desc->x.c, k->out, desc->x.h, desc->x.w, k->ph, k->pw};
    ls_wino_shape transposed = ls_wino_transposed(&shape);
    const ls_wino_kernels *kernels = &ls_cpu_isa_at(0)->wino;
    int threads = op->device->threads;
    struct ls_wino_op *w = op->wino = ls_alloc(op->device->host, sizeof *w);
    if (!w)
        return ls_fail(err, LS_ENOMEM, "out of memory for an op of %s", op->program.op);
    ls_wino_init(&w->forward.wino, kernels, LS_WINO_2, &shape, threads);
    ls_wino_init(&w->weights.wino, kernels, LS_WINO_4, &shape, threads);
    ls_wino_init(&w->data.wino, kernels, size_for_dx(&shape), &transposed, threads);
    w->relu = desc->fuse_relu;
    return LS_OK;
}

static void add_step(ls_cpu_op *op, wino_step *s, ls_program_fn run, int from, int other, int to)
{
    ls_program *p = &op->program;
    size_t floats = ls_wino_floats(&s->wino);
    if (!p->status && floats > INT_MAX)
        p->status = ls_fail(p->err, LS_EUNSUPPORTED,
                            "%s: %zu floats of working memory are too many", p->op, floats);
    if (p->status)
        return;
    int count = (int)floats;
    ls_md work = ls_md_make(1, &count, LS_MD_PLAIN);
    s->other = other;
    ls_program_call(p, run, op, from, to);
    s->work = ls_program_scratchpad(p, &work);
}

void ls_wino_op_forward(ls_cpu_op *op, int x, int weight, int y)
{
    add_step(op, &op->wino->forward, run_forward, x, weight, y);
}

void ls_wino_op_weights(ls_cpu_op *op, int x, int dy, int dw)
{
    add_step(op, &op->wino->weights, run_weights, x, dy, dw);
}

void ls_wino_op_data(ls_cpu_op *op, int dy, int weight, int dx)
{
    add_step(op, &op->wino->data, run_data, dy, weight, dx);
}

void ls_wino_op_name(const ls_cpu_op *op, char *out, size_t size)
{
    const ls_wino *w = &op->wino->forward.wino;
    snprintf(out, size, "F(%d,3) %s", w->size == LS_WINO_2 ? 2 : 4, w->kernels->name);
}
