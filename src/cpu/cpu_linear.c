#include "cpu/cpu_linear.h"

#include "base/error.h"
#include "base/host.h"
#include "cpu/cpu_isa.h"

#include <limits.h>
#include <stdio.h>

/* The kernels of one candidate; descriptors that are not needed are NULL. */
typedef struct linear_plan {
    ls_pd forward, weights, data;
    ls_linear_mds mds; /* as forward settled them */
    bool made;         /* this is a plan */
    int rank;          /* of the worst of the three */
    bool own_bias;     /* the bias's gradient is summed in double, by us */
} linear_plan;

typedef struct linear_builder {
    const ls_cpu_device *device;
    const ls_op_desc *desc;
    const ls_linear *linear;
    ls_error *err;
} linear_builder;

static void plan_fini(linear_plan *plan)
{
    ls_pd_destroy(plan->data);
    ls_pd_destroy(plan->weights);
    ls_pd_destroy(plan->forward);
    *plan = (linear_plan){0};
}

/* Where a batch norm may follow, the bias's gradient is a sum of many numbers that nearly cancel, and
 * oneDNN's, in one float, is not good enough. A batch norm follows no fused relu. */
static bool has_own_bias_sum(const ls_op_desc *desc)
{
    return !desc->fuse_relu;
}

static int make(const linear_builder *b, ls_pd *out, ls_pass pass, const ls_linear_mds *mds,
                ls_pd hint)
{
    ls_linear_mds used = *mds;
    if (pass == LS_PASS_BACKWARD_WEIGHTS && has_own_bias_sum(b->desc))
        used.has_bias = 0;
    return b->linear->make(out, b->device, b->desc, pass, &used, hint, b->err);
}

/* A backward kernel: with the tensors as forward has them where a good kernel takes that, else
 * with the weights, and at last everything, as oneDNN prefers. What then differs is converted. */
static int make_backward(const linear_builder *b, ls_pd *out, ls_pass pass, const linear_plan *plan)
{
    ls_linear_mds mds = plan->mds;
    int best = -1, status = LS_EUNSUPPORTED;
    *out = NULL;
    for (int freedom = 0; freedom < 3 && best < 3; freedom++) {
        ls_pd pd = NULL;
        if (freedom >= 1)
            mds.weight = ls_md_as(&mds.weight, LS_MD_ANY);
        if (freedom == 2) {
            mds.x = ls_md_as(&mds.x, LS_MD_ANY);
            mds.y = ls_md_as(&mds.y, LS_MD_ANY);
        }
        int s = make(b, &pd, pass, &mds, plan->forward);
        if (s == LS_OK && ls_pd_rank(pd) > best) {
            ls_pd_destroy(*out);
            *out = pd;
            best = ls_pd_rank(pd);
            status = LS_OK;
        } else if (s == LS_OK) {
            ls_pd_destroy(pd);
        } else if (s != LS_EUNSUPPORTED && status != LS_OK) {
            status = s;
        }
    }
    return status;
}

static void lower_rank(int *rank, ls_pd pd)
{
    if (pd && ls_pd_rank(pd) < *rank)
        *rank = ls_pd_rank(pd);
}

static int make_plan(const linear_builder *b, linear_plan *plan, const ls_linear_candidate *c,
                     const ls_md *weight)
{
    const ls_op_desc *desc = b->desc;
    ls_linear_mds mds = b->linear->plain;
    ls_md x = ls_md_of(&desc->x);
    mds.x = c->x_as_is ? x : ls_md_as(&mds.x, c->x);
    mds.y = ls_md_as(&mds.y, c->y);
    mds.weight = weight ? *weight : ls_md_as(&mds.weight, LS_MD_ANY);
    *plan = (linear_plan){.made = 1};
    int status = make(b, &plan->forward, LS_PASS_FORWARD, &mds, NULL);
    if (status)
        return status;
    mds.x = ls_pd_md(b->device, plan->forward, dnnl_query_src_md);
    mds.weight = ls_pd_md(b->device, plan->forward, dnnl_query_weights_md);
    mds.y = ls_pd_md(b->device, plan->forward, dnnl_query_dst_md);
    plan->mds = mds;
    plan->own_bias = mds.has_bias && has_own_bias_sum(desc);
    if (desc->training)
        status = make_backward(b, &plan->weights, LS_PASS_BACKWARD_WEIGHTS, plan);
    if (status == LS_OK && desc->training && desc->needs_dx)
        status = make_backward(b, &plan->data, LS_PASS_BACKWARD_DATA, plan);
    plan->rank = ls_pd_rank(plan->forward);
    lower_rank(&plan->rank, plan->weights);
    lower_rank(&plan->rank, plan->data);
    if (status)
        plan_fini(plan);
    return status;
}

/* Takes the plan when it is better than `best`; returns whether none can be better still. */
static int consider(const linear_builder *b, linear_plan *best, int *choice, int candidate,
                    const ls_md *weight, int *failure)
{
    linear_plan plan;
    int status = make_plan(b, &plan, &b->linear->candidates[candidate], weight);
    if (status != LS_OK) {
        if (status != LS_EUNSUPPORTED)
            *failure = status;
        return 0;
    }
    if (best->made && plan.rank <= best->rank) {
        plan_fini(&plan);
        return 0;
    }
    plan_fini(best);
    *best = plan;
    *choice = candidate;
    return plan.rank == 3;
}

/* With a twin, its candidate comes first and its arrangement of the weights is kept; only when no
 * good kernel takes that does a kernel with other weights serve, which converts them each time. */
static int choose(const linear_builder *b, linear_plan *best, int *choice, const ls_cpu_op *twin)
{
    int failure = LS_EUNSUPPORTED, n = b->linear->count;
    *best = (linear_plan){0};
    for (int fixed = twin != NULL; fixed >= 0; fixed--) {
        const ls_md *weight = fixed ? &twin->param[0] : NULL;
        if (twin && consider(b, best, choice, twin->choice, weight, &failure))
            return LS_OK;
        for (int i = 0; i < n; i++)
            if (consider(b, best, choice, i, weight, &failure))
                return LS_OK;
        if (best->made && best->rank > 0)
            return LS_OK;
    }
    if (best->made)
        return LS_OK;
    if (failure != LS_EUNSUPPORTED)
        return failure; /* its message stands */
    return ls_fail(b->err, LS_EUNSUPPORTED, "oneDNN has no kernel for this %s", b->linear->name);
}

/* ---- the gradient of a bias ------------------------------------------------------------------ */

/* The gradient of a bias: dy summed over rows and pixels, channel by channel.
 *
 * oneDNN adds each channel up in one float. In front of batch norm, where thousands of values of
 * either sign cancel to nothing, what that leaves is far from zero. This sums in double, as batch
 * norm does. */
typedef struct bias_state {
    ls_cpu_op *op;
    const ls_cpu_kernels *kernels;
    ls_pieces pieces;
    int channels;
    const float *dy;
    double *sum; /* [parts][16] */
} bias_state;

static void visit_bias(void *self, const ls_piece *piece)
{
    const bias_state *s = self;
    double *sum = s->sum + (size_t)piece->part * LS_RUN_LANES;
    s->kernels->sum(&piece->run, s->dy + piece->at, sum);
    if (piece->tail.count)
        s->kernels->sum(&piece->tail, s->dy + piece->tail_at, sum);
}

/* Where a part is one channel, its sum is that of the lanes. */
static void settle_bias(const bias_state *s, int part, unsigned flags)
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

static void sum_bias_parts(void *self, int part, int end, unsigned flags)
{
    bias_state *s = self;
    for (int i = part * LS_RUN_LANES; i < end * LS_RUN_LANES; i++)
        s->sum[i] = 0;
    ls_pieces_walk(&s->pieces, part, end, s, visit_bias);
    for (int i = part; i < end; i++)
        settle_bias(s, i, flags);
}

static int run_bias(void *self, float *dy, float *unused, unsigned flags, ls_error *err)
{
    bias_state *s = ((ls_cpu_op *)self)->own;
    (void)unused;
    (void)err;
    s->dy = dy;
    ls_pieces_share(&s->pieces, s, flags, sum_bias_parts);
    return LS_OK;
}

/* Rows of plain numbers are images of one pixel. Where dy's arrangement is none of ours, channels
 * last. Returns the value to read. */
static int bias_planes(ls_planes *out, ls_program *p, int dy)
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

static bias_state *new_bias_state(ls_cpu_op *op, const ls_planes *planes)
{
    size_t head = (sizeof(bias_state) + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
    size_t sums = (size_t)planes->parts * LS_RUN_LANES * sizeof(double);
    char *memory = ls_alloc(op->device->host, head + sums);
    bias_state *s = (bias_state *)(void *)memory;
    if (!s)
        return NULL;
    s->op = op;
    s->kernels = &ls_cpu_isa_at(0)->kernels;
    s->pieces = ls_pieces_of(planes, op->device->threads);
    s->sum = (double *)(void *)(memory + head);
    return s;
}

/* Appends the step: the gradient of parameter 1, the bias, from the value `dy`, an image of any layout or
 * rows of plain numbers. Takes op->own. */
static void add_bias_gradient(ls_cpu_op *op, int dy)
{
    ls_program *p = &op->program;
    ls_planes planes;
    if (p->status)
        return;
    int from = bias_planes(&planes, p, dy);
    if (p->status)
        return;
    bias_state *s = op->own = new_bias_state(op, &planes);
    if (!s) {
        p->status = ls_fail(p->err, LS_ENOMEM, "out of memory for an op of %s", p->op);
        return;
    }
    s->channels = ls_md_dim(&op->param[1], 0);
    ls_program_call(p, run_bias, op, from, from);
}

/* ---- the program ----------------------------------------------------------------------------- */

typedef struct linear_values {
    int x, kernel_x, weight, bias, y;
} linear_values;

static void add_forward(ls_cpu_op *op, const ls_linear *linear, const linear_plan *plan,
                        const ls_op_desc *desc, linear_values *v)
{
    ls_program *p = &op->program;
    v->x = ls_program_tensor(p, &desc->x, LS_AT_X);
    v->weight = ls_program_value(p, &op->param[0], LS_AT_PARAM);
    v->y = ls_program_value(p, &plan->mds.y, LS_AT_Y);
    v->kernel_x =
        ls_program_convert(p, v->x, &plan->mds.x, desc->training ? LS_AT_SAVED : LS_AT_TEMP);
    int weight = ls_program_convert(p, v->weight, &plan->mds.weight, LS_AT_TEMP);
    ls_arg args[4] = {
        {DNNL_ARG_SRC, v->kernel_x}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, v->y}};
    int n = 3;
    if (plan->mds.has_bias) {
        v->bias = ls_program_value(p, &op->param[1], (ls_place)(LS_AT_PARAM + 1));
        args[n++] = (ls_arg){DNNL_ARG_BIAS, v->bias};
    }
    if (linear->head)
        ls_cpu_head_forward(op, &linear->plain.x, v->x, v->weight, v->y);
    else
        ls_program_primitive(p, plan->forward, args, n);
}

/* dy where y > 0, else 0. Element-wise, so that any arrangement serves. */
static int add_relu_backward(ls_cpu_op *op, const linear_values *v, int dy)
{
    ls_program *p = &op->program;
    ls_md flat = ls_md_flat(&op->y_md);
    ls_pd forward = NULL, backward = NULL;
    int masked = ls_program_value(p, &op->y_md, LS_AT_TEMP);
    if (!p->status)
        p->status = ls_pd_relu(&forward, op->device, LS_PASS_FORWARD, &flat, NULL, p->err);
    if (!p->status)
        p->status =
            ls_pd_relu(&backward, op->device, LS_PASS_BACKWARD_DATA, &flat, forward, p->err);
    if (!p->status) {
        ls_arg args[] = {{DNNL_ARG_DST, ls_program_alias(p, v->y, &flat)},
                         {DNNL_ARG_DIFF_DST, ls_program_alias(p, dy, &flat)},
                         {DNNL_ARG_DIFF_SRC, ls_program_alias(p, masked, &flat)}};
        ls_program_primitive(p, backward, args, 3);
    }
    ls_pd_destroy(backward);
    ls_pd_destroy(forward);
    return masked;
}

static void add_backward_weights(ls_cpu_op *op, const linear_plan *plan, const linear_values *v,
                                 int dy)
{
    ls_program *p = &op->program;
    ls_pd pd = plan->weights;
    ls_md want_x = ls_pd_md(op->device, pd, dnnl_query_src_md);
    ls_md want_dy = ls_pd_md(op->device, pd, dnnl_query_diff_dst_md);
    ls_md gives = ls_pd_md(op->device, pd, dnnl_query_diff_weights_md);
    int gradient = ls_program_gradient(p, &op->param[0], 0);
    int target = ls_program_target(p, gradient, &gives);
    ls_arg args[] = {{DNNL_ARG_SRC, ls_program_convert(p, v->kernel_x, &want_x, LS_AT_TEMP)},
                     {DNNL_ARG_DIFF_DST, ls_program_convert(p, dy, &want_dy, LS_AT_TEMP)},
                     {DNNL_ARG_DIFF_WEIGHTS, target},
                     {0}};
    int n = 3;
    if (plan->mds.has_bias && !plan->own_bias)
        args[n++] = (ls_arg){DNNL_ARG_DIFF_BIAS, ls_program_gradient(p, &op->param[1], 1)};
    ls_program_primitive(p, pd, args, n);
    ls_program_deliver(p, target, gradient);
}

static void add_backward_data(ls_cpu_op *op, const linear_plan *plan, const linear_values *v,
                              const ls_op_desc *desc, int dy)
{
    ls_program *p = &op->program;
    ls_pd pd = plan->data;
    ls_md want_dy = ls_pd_md(op->device, pd, dnnl_query_diff_dst_md);
    ls_md want_weight = ls_pd_md(op->device, pd, dnnl_query_weights_md);
    ls_md gives = ls_pd_md(op->device, pd, dnnl_query_diff_src_md);
    int dx = ls_program_tensor(p, &desc->x, LS_AT_DX);
    int target = ls_program_target(p, dx, &gives);
    ls_arg args[] = {{DNNL_ARG_DIFF_DST, ls_program_convert(p, dy, &want_dy, LS_AT_TEMP)},
                     {DNNL_ARG_WEIGHTS, ls_program_convert(p, v->weight, &want_weight, LS_AT_TEMP)},
                     {DNNL_ARG_DIFF_SRC, target}};
    ls_program_primitive(p, pd, args, 3);
    ls_program_deliver(p, target, dx);
}

static void add_backward(ls_cpu_op *op, const linear_plan *plan, const linear_values *v,
                         const ls_op_desc *desc)
{
    ls_program_backward(&op->program);
    int dy = ls_program_value(&op->program, &plan->mds.y, LS_AT_DY);
    if (desc->fuse_relu)
        dy = add_relu_backward(op, v, dy);
    if (plan->own_bias)
        add_bias_gradient(op, dy);
    add_backward_weights(op, plan, v, dy);
    if (desc->needs_dx)
        add_backward_data(op, plan, v, desc, dy);
}

static void describe(ls_cpu_op *op, const ls_linear *linear, const linear_plan *plan)
{
    const char *forward = linear->head ? "double sums" : ls_pd_kernel(plan->forward);
    int n = snprintf(op->kernel, sizeof op->kernel, "dnnl %s %s→%s", forward,
                     ls_md_name(&plan->mds.x), ls_md_name(&plan->mds.y));
    if (plan->weights && n > 0 && (size_t)n < sizeof op->kernel)
        n += snprintf(op->kernel + n, sizeof op->kernel - (size_t)n, ", dw %s",
                      ls_pd_kernel(plan->weights));
    if (plan->data && n > 0 && (size_t)n < sizeof op->kernel)
        snprintf(op->kernel + n, sizeof op->kernel - (size_t)n, ", dx %s",
                 ls_pd_kernel(plan->data));
}

/* Flat vectors (relu's) count floats in an int. */
static int check_sizes(const ls_linear *linear, const ls_cpu_op *twin, ls_error *err)
{
    size_t limit = (size_t)INT_MAX * sizeof(float);
    if (ls_md_bytes(&linear->plain.y) > limit || ls_md_bytes(&linear->plain.weight) > limit)
        return ls_fail(err, LS_EUNSUPPORTED, "%s: more than %d outputs or weights", linear->name,
                       INT_MAX);
    if (twin && !ls_md_equal(&twin->param_plain[0], &linear->plain.weight))
        return ls_fail(err, LS_EINVAL, "%s: the twin is another layer's", linear->name);
    return LS_OK;
}

int ls_cpu_linear_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc,
                         const ls_linear *linear, ls_error *err)
{
    ls_error tried = {0}; /* a candidate that fails is no failure yet */
    linear_builder b = {device, desc, linear, &tried};
    const ls_cpu_op *twin;
    ls_cpu_op *op = NULL;
    linear_plan plan;
    linear_values v = {0};
    int choice = 0;
    *out = NULL;
    int status = ls_cpu_op_twin(&twin, desc, err);
    if (status == LS_OK)
        status = check_sizes(linear, twin, err);
    if (status)
        return status;
    status = choose(&b, &plan, &choice, twin);
    if (status)
        return ls_fail(err, status, "%s", tried.text);
    status = ls_cpu_op_create(&op, device, desc, linear->name, err);
    if (status)
        goto done;
    op->choice = choice;
    ls_cpu_op_set_param(op, 0, twin ? &twin->param[0] : &plan.mds.weight, &linear->plain.weight);
    if (plan.mds.has_bias)
        ls_cpu_op_set_param(op, 1, &linear->plain.bias, &linear->plain.bias);
    ls_cpu_op_set_y(op, desc->x.rows, linear->c, linear->h, linear->w, &plan.mds.y);
    describe(op, linear, &plan);
    add_forward(op, linear, &plan, desc, &v);
    if (desc->training)
        add_backward(op, &plan, &v, desc);
    status = ls_cpu_op_finish(out, op);
done:
    plan_fini(&plan);
    return status;
}
