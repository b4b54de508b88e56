/* SPDX-License-Identifier: MIT */
/* Updates by pieces (replica.h). The caller's function writes a piece of the total to a small
 * array. An op of the optimizer then updates the weights of this piece, before the next piece is
 * computed. */
#include "nn/replica_impl.h"

#include "base/clock.h"
#include "base/host.h"

/* Number of floats of a piece. A piece takes 16 KiB, so it stays in the first-level cache together
 * with as many weights. */
enum { PIECE = 4096 };

bool ls_replica_takes_pieces(const ls_replica *r)
{
    const unsigned both = LS_DEVICE_HOST_MEMORY | LS_DEVICE_REBINDS;
    return (r->info.flags & both) == both && !r->device->ops->record_begin && !r->shadow &&
           r->optimizer && r->optimizer->clip_norm == 0 && r->optimizer->ema == 0 &&
           r->model->stats == 0 && r->update_scratch == 0;
}

static int make_op(ls_op **out, ls_replica *r, size_t count, float rate, ls_error *err)
{
    ls_op_desc desc = r->optimizer->op;
    desc.count = count;
    desc.rate = rate;
    return count > 0 ? r->device->ops->op_create(out, r->device, &desc, err) : LS_OK;
}

int ls_replica_prepare_pieces(ls_replica *r, ls_error *err)
{
    int status = LS_OK;
    if (r->pieces)
        return LS_OK;
    if (!r->piece) /* r->piece can be left from an earlier call that failed after the allocation */
        r->piece = ls_replica_alloc(r, PIECE * sizeof(float), &r->memory.arenas, &status, err);
    if (status)
        return status;
    r->pieces = ls_alloc_array(r->host, (size_t)r->param_begins, sizeof *r->pieces);
    if (!r->pieces)
        return ls_replica_no_memory(err);
    for (ls_arena_range s = {0}; status == LS_OK && ls_replica_next_params(&s, r);) {
        ls_piece_update *u = &r->pieces[r->piece_updates++];
        const size_t floats = s.end - s.at;
        u->at = s.at;
        u->end = s.end;
        status = make_op(&u->op[0], r, floats < PIECE ? 0 : PIECE, s.rate, err);
        if (status == LS_OK)
            status = make_op(&u->op[1], r, floats % PIECE, s.rate, err);
    }
    if (status)
        ls_replica_destroy_piece_updates(r);
    return status;
}

/* Updates the parameters from float `at` of the arenas on with the piece of the total in
 * r->piece. */
static int update_piece(ls_replica *r, ls_op *op, size_t at, ls_error *err)
{
    ls_op_buffers b = {.args = &r->args, .param[0] = r->arena[WEIGHTS] + at, .grad[0] = r->piece};
    b.digest_at[0] = ls_replica_digest_at(r, WEIGHTS, at);
    for (int i = 0; i < r->optimizer->slots; i++) {
        b.slot[i] = r->arena[SLOT + i] + at;
        b.digest_at[1 + i] = ls_replica_digest_at(r, SLOT + i, at);
    }
    int status = op->impl->bind(op, &b, err);
    return status ? status : op->impl->forward(op, NULL, 0, err);
}

int ls_replica_apply_pieces(ls_replica *r, const ls_replica_step *step, ls_piece_fn *sum,
                            void *user, ls_replica_times *times, ls_error *err)
{
    const uint64_t start = ls_now_ns();
    int status = LS_OK;
    ls_replica_set_step(&r->args, step);
    ls_replica_begin_digest(r);
    for (int i = 0; i < r->piece_updates; i++) {
        const ls_piece_update *u = &r->pieces[i];
        for (size_t at = u->at, count; status == LS_OK && at < u->end; at += count) {
            count = u->end - at < PIECE ? u->end - at : PIECE;
            sum(user, r->piece, at, count);
            status = update_piece(r, u->op[count < PIECE], at, err);
        }
    }
    if (status == LS_OK)
        status = ls_replica_end_digest(r, err);
    if (times)
        times->apply += (double)(ls_now_ns() - start) * 1e-9;
    return status;
}
