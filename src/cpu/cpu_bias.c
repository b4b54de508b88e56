#include "cpu/cpu_bias.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu_pieces.h"

typedef struct bias_state {
    ls_cpu_op *op;
    const ls_cpu_kernels *kernels;
    ls_pieces pieces;
    int channels;
    const float *dy;
    double *sum; /* [parts][16] */
} bias_state;

static void visit(void *self, const ls_piece *piece)
{
    const bias_state *s = self;
    double *sum = s->sum + (size_t)piece->part * LS_RUN_LANES;
    s->kernels->sum(&piece->run, s->dy + piece->at, sum);
    if (piece->tail.count)
        s->kernels->sum(&piece->tail, s->dy + piece->tail_at, sum);
}

/* Where a part is one channel, its sum is that of the lanes. */
static void settle(const bias_state *s, int part, unsigned flags)
{
    double *sum = s->sum + (size_t)part * LS_RUN_LANES;
    float *gradient = s->op->buffers.grad[1];
    for (int l = 1; s->pieces.planes.channels == 1 && l < LS_RUN_LANES; l++)
        sum[0] += sum[l];
    for (int l = 0; l < LS_RUN_LANES; l++) {
        int c = ls_pieces_channel(&s->pieces, s->channels, part, l);
        if (c >= 0)
            gradient[c] = (flags & LS_RUN_ACCUMULATE ? gradient[c] : 0.0f) + (float)sum[l];
    }
}

static void sum_parts(void *self, int part, int end, unsigned flags)
{
    bias_state *s = self;
    for (int i = part * LS_RUN_LANES; i < end * LS_RUN_LANES; i++)
        s->sum[i] = 0;
    ls_pieces_walk(&s->pieces, part, end, s, visit);
    for (int i = part; i < end; i++)
        settle(s, i, flags);
}

static int run(void *self, float *dy, float *unused, unsigned flags, ls_error *err)
{
    bias_state *s = ((ls_cpu_op *)self)->own;
    (void)unused;
    (void)err;
    s->dy = dy;
    ls_pieces_share(&s->pieces, s, flags, sum_parts);
    return LS_OK;
}

/* Rows of plain numbers are images of one pixel. Where dy's arrangement is none of ours, channels
 * last. Returns the value to read. */
static int planes_of(ls_planes *out, ls_program *p, int dy)
{
    ls_md md = p->value[dy].md;
    if (ls_md_rank(&md) == 2)
        md = ls_md_image(ls_md_dim(&md, 0), ls_md_dim(&md, 1), 1, 1, LS_MD_PLAIN);
    if (ls_md_planes(out, &md) == LS_OK)
        return dy;
    md = ls_md_as(&md, LS_MD_NHWC);
    p->status = ls_md_planes(out, &md);
    return ls_program_convert(p, dy, &md, LS_AT_TEMP);
}

static bias_state *new_state(ls_cpu_op *op, const ls_planes *planes)
{
    size_t head = (sizeof(bias_state) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    size_t sums = (size_t)planes->parts * LS_RUN_LANES * sizeof(double);
    char *memory = ls_alloc(op->device->host, head + sums);
    bias_state *s = (bias_state *)(void *)memory;
    if (!s)
        return NULL;
    s->op = op;
    s->kernels = ls_cpu_kernels_best();
    s->pieces = ls_pieces_of(planes, op->device->threads);
    s->sum = (double *)(void *)(memory + head);
    return s;
}

void ls_cpu_bias_gradient(ls_cpu_op *op, int dy)
{
    ls_program *p = &op->program;
    ls_planes planes;
    if (p->status)
        return;
    int from = planes_of(&planes, p, dy);
    if (p->status)
        return;
    bias_state *s = op->own = new_state(op, &planes);
    if (!s) {
        p->status = ls_fail(p->err, LS_ENOMEM, "out of memory for an op of %s", p->op);
        return;
    }
    s->channels = ls_md_dim(&op->param[1], 0);
    ls_program_call(p, run, op, from, from);
}
