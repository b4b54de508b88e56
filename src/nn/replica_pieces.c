/* A backward pass in pieces: what is finished of the gradient can be merged while the rest runs. */
#include "nn/replica_impl.h"

/* ---- where it is cut ------------------------------------------------------------------------ */

/* What is complete behind the backward pass of node `k`: all before the next node's parameters. */
static size_t complete_behind(const ls_replica *r, int k)
{
    const ls_plan *plan = r->plan[0]; /* all plans have the same nodes */
    for (int next = k - 1; next >= 0; next--)
        if (plan->node[next].op->params > 0)
            return r->param_at[plan->node[next].form.first * LS_OP_PARAMS];
    return r->tail_at;
}

void ls_replica_cut(ls_replica *r, size_t least)
{
    int bucket = 0;
    ls_buckets_cut(&r->buckets, r->segment, r->segments, r->floats, least);
    r->pieces = 0;
    for (int k = r->plan[0]->nodes - 1; r->optimizer && k > 0; k--) {
        const size_t floats = complete_behind(r, k);
        const int complete = ls_buckets_complete(r->buckets.end, r->buckets.count, floats);
        if (complete > bucket)
            r->piece[r->pieces++] = (ls_piece){k, floats};
        bucket = complete;
    }
    r->piece[r->pieces++] = (ls_piece){0, r->floats};
}

int ls_replica_piece_begin(const ls_replica *r, int p)
{
    return p > 0 ? r->piece[p - 1].node - 1 : r->plan[0]->nodes - 1;
}

/* ---- telling -------------------------------------------------------------------------------- */

int ls_replica_on_ready(ls_replica *replica, ls_ready_fn *ready, void *user, ls_error *err)
{
    replica->ready = ready;
    replica->ready_user = user;
    return ls_replica_in_pieces(replica) ? ls_replica_record_pieces(replica, err) : LS_OK;
}

int ls_replica_in_pieces(const ls_replica *r)
{
    return r->ready && r->pieces > 1;
}

int ls_replica_tell(ls_replica *r, int p, ls_error *err)
{
    if (!r->ready || p == r->pieces - 1)
        return LS_OK;
    return r->ready(r->ready_user, r->piece[p].floats, err);
}

int ls_replica_backward(ls_replica *r, ls_plan *plan, unsigned flags, int last, ls_error *err)
{
    int rc = LS_OK;
    if (!last || !ls_replica_in_pieces(r))
        return ls_plan_backward(plan, flags, err);
    for (int p = 0; p < r->pieces && rc == LS_OK; p++) {
        rc =
            ls_plan_backward_part(plan, ls_replica_piece_begin(r, p), r->piece[p].node, flags, err);
        if (rc == LS_OK)
            rc = ls_replica_tell(r, p, err);
    }
    return rc;
}
