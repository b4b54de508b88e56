/* Average and maximum pooling by oneDNN, in x's layout wherever it has a good kernel for that. */
#include "cpu/cpu_op.h"

#include "base/error.h"

#include <stdio.h>

#define LIMIT 1000000 /* of every number, so that sums of them fit an int */

typedef struct pool_plan {
    ls_pd forward, backward;
    ls_md x, y;
    int rank;
} pool_plan;

static void plan_fini(pool_plan *plan)
{
    ls_pd_destroy(plan->backward);
    ls_pd_destroy(plan->forward);
    *plan = (pool_plan){0};
}

static int make_plan(pool_plan *plan, const ls_cpu_device *device, const ls_op_desc *desc,
                     const ls_md *x, const ls_md *y_any, ls_error *err)
{
    ls_pass pass = desc->training ? LS_PASS_FORWARD : LS_PASS_INFERENCE;
    *plan = (pool_plan){.x = *x};
    int status = ls_pd_pool(&plan->forward, device, pass, x, y_any, &desc->pool, NULL, err);
    if (status)
        return status;
    plan->y = ls_pd_md(device, plan->forward, dnnl_query_dst_md);
    plan->rank = ls_pd_rank(plan->forward);
    if (!desc->training || !desc->needs_dx)
        return LS_OK;
    status = ls_pd_pool(&plan->backward, device, LS_PASS_BACKWARD_DATA, x, &plan->y, &desc->pool,
                        plan->forward, err);
    if (status)
        plan_fini(plan);
    else if (ls_pd_rank(plan->backward) < plan->rank)
        plan->rank = ls_pd_rank(plan->backward);
    return status;
}

/* x as it is, else channels last: the first of the higher rank. */
static int choose(pool_plan *best, const ls_cpu_device *device, const ls_op_desc *desc,
                  const ls_md *y_any, ls_error *err)
{
    ls_md as_is = ls_md_of(&desc->x);
    ls_md x[2] = {as_is, ls_md_as(&as_is, LS_MD_NHWC)};
    int status = LS_EUNSUPPORTED;
    *best = (pool_plan){0};
    for (int i = 0; i < 2 && !(best->forward && best->rank == 3); i++) {
        pool_plan plan;
        int s = make_plan(&plan, device, desc, &x[i], y_any, err);
        if (s != LS_OK) {
            status = best->forward ? LS_OK : s;
        } else if (!best->forward || plan.rank > best->rank) {
            plan_fini(best);
            *best = plan;
            status = LS_OK;
        } else {
            plan_fini(&plan);
        }
    }
    return status;
}

static void add_steps(ls_cpu_op *op, const pool_plan *plan, const ls_op_desc *desc)
{
    ls_program *p = &op->program;
    ls_md workspace = ls_pd_md(op->device, plan->forward, dnnl_query_workspace_md);
    int has_workspace = ls_md_bytes(&workspace) > 0;
    int x = ls_program_tensor(p, &desc->x, LS_AT_X);
    ls_arg args[3] = {{DNNL_ARG_SRC, ls_program_convert(p, x, &plan->x, LS_AT_TEMP)},
                      {DNNL_ARG_DST, ls_program_value(p, &plan->y, LS_AT_Y)}};
    if (has_workspace)
        args[2] = (ls_arg){DNNL_ARG_WORKSPACE, ls_program_value(p, &workspace, LS_AT_SAVED)};
    ls_program_primitive(p, plan->forward, args, has_workspace ? 3 : 2);
    if (!plan->backward)
        return;
    ls_program_backward(p);
    int dx = ls_program_tensor(p, &desc->x, LS_AT_DX);
    int target = ls_program_target(p, dx, &plan->x);
    ls_arg back[3] = {{DNNL_ARG_DIFF_DST, ls_program_value(p, &plan->y, LS_AT_DY)},
                      {DNNL_ARG_DIFF_SRC, target},
                      args[2]};
    ls_program_primitive(p, plan->backward, back, has_workspace ? 3 : 2);
    ls_program_deliver(p, target, dx);
}

static int check(const ls_tensor *x, const ls_pool2d *k, ls_error *err)
{
    if (k->kh < 1 || k->kw < 1 || k->sh < 1 || k->sw < 1 || k->ph < 0 || k->pw < 0)
        return ls_fail(err, LS_EINVAL,
                       "pool: window %d×%d, stride %d×%d, padding %d×%d: window and stride must "
                       "be at least 1, padding at least 0",
                       k->kh, k->kw, k->sh, k->sw, k->ph, k->pw);
    if (k->kh > LIMIT || k->kw > LIMIT || k->sh > LIMIT || k->sw > LIMIT)
        return ls_fail(err, LS_EINVAL, "pool: a window or a stride of more than %d", LIMIT);
    if (k->ph >= k->kh || k->pw >= k->kw)
        return ls_fail(err, LS_EINVAL,
                       "pool: padding %d×%d must be smaller than the window %d×%d, which would "
                       "hold no pixel else",
                       k->ph, k->pw, k->kh, k->kw);
    if (x->h + 2 * k->ph < k->kh || x->w + 2 * k->pw < k->kw)
        return ls_fail(err, LS_EINVAL,
                       "pool: a window of %d×%d does not fit an input of %d×%d with padding "
                       "%d×%d",
                       k->kh, k->kw, x->h, x->w, k->ph, k->pw);
    return LS_OK;
}

int ls_cpu_pool_create(ls_op **out, ls_cpu_device *device, const ls_op_desc *desc, ls_error *err)
{
    const ls_tensor *x = &desc->x;
    const ls_pool2d *k = &desc->pool;
    ls_error tried = {0}; /* a layout that fails is no failure yet */
    ls_cpu_op *op;
    pool_plan plan;
    *out = NULL;
    int status = check(x, k, err);
    if (status)
        return status;
    int h = (x->h + 2 * k->ph - k->kh) / k->sh + 1, w = (x->w + 2 * k->pw - k->kw) / k->sw + 1;
    ls_md y_any = ls_md_image(x->rows, x->c, h, w, LS_MD_ANY);
    status = choose(&plan, device, desc, &y_any, &tried);
    if (status)
        return ls_fail(err, status, "%s", tried.text);
    status = ls_cpu_op_create(&op, device, desc, "pool", err);
    if (status == LS_OK) {
        ls_cpu_op_set_y(op, x->rows, x->c, h, w, &plan.y);
        snprintf(op->kernel, sizeof op->kernel, "dnnl %s %s", ls_pd_kernel(plan.forward),
                 ls_md_name(&plan.x));
        add_steps(op, &plan, desc);
        status = ls_cpu_op_finish(out, op);
    }
    plan_fini(&plan);
    return status;
}
