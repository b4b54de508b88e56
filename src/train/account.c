/* SPDX-License-Identifier: MIT */
/* Accounting for a completed step: updates the position and totals of the run, and emits the step's
 * record. In a run of several processes the members (the processes) also exchange which shard had a
 * loss that is not finite. */
#include "train/coordinator.h"

#include "base/error.h"
#include "engine/view.h"
#include "train/run_records.h"
#include "train/saving.h"

/* Records a step whose loss was not finite. If the run ends because of this step, no other step is
 * in progress, and the processes exchange which of their shards was bad. If the run goes on
 * (skip_nonfinite), the processes exchange nothing, and the record names a bad shard of this
 * process only. */
static int account_skipped(struct ls_trainer *t, const ls_outcome *o, ls_error *err)
{
    ls_bad_shard bad = {o->bad_shard < 0 ? -1 : t->members.member, o->bad_worker, o->bad_shard};
    const unsigned long long number = t->position.steps + 1;
    const char *host = "";
    int status = t->config.skip_nonfinite ? LS_OK : ls_members_share_bad(&bad, t, err);
    if (status == LS_OK)
        status = ls_record_nonfinite(t, bad.worker, bad.shard, err);
    if (status || t->config.skip_nonfinite)
        return status;
    if (bad.shard < 0)
        return ls_fail(
            err, LS_ENONFINITE,
            "step %llu: the loss was not finite, but computed again it is: some device%s is "
            "faulty; the step was not applied",
            number, t->members.cluster ? " or the network" : "");
    if (t->members.cluster)
        host = ls_cluster_host(t->members.cluster, bad.member);
    return ls_fail(
        err, LS_ENONFINITE,
        "step %llu: the loss of shard %d, on worker %d%s%s, is not finite any more; the step "
        "was not applied; try a smaller optimizer.lr",
        number, bad.shard, bad.worker, host[0] ? " of host " : "", host);
}

void ls_note_completed(struct ls_trainer *t)
{
    if (t->members.cluster)
        ls_standing_of(&t->coordination->completed, t);
}

void ls_count_step(ls_coordination *c, const ls_report *r)
{
    struct ls_trainer *t = c->t;
    t->position.steps++;
    t->position.step++;
    if (r->skipped) {
        t->position.skipped++;
    } else {
        t->position.totals.loss += ls_loss_of_run(t, (double)r->loss);
        t->position.totals.correct += (double)r->correct;
        t->position.totals.rows += (double)r->rows;
        t->position.totals.weight += (double)r->weight;
    }
    t->reported.result.steps = t->position.steps;
    c->last = *r;
    ls_agreement_note_step(t, r);
    ls_note_completed(t);
}

/* Emits the record of a step that has been counted, and reports the progress to the caller. */
static int tell_step(ls_coordination *c, const ls_report *r, double seconds, ls_error *err)
{
    struct ls_trainer *t = c->t;
    ls_members_note_stop(t, r);
    int status = ls_record_step(t, (double)r->rows / seconds, r, err);
    if (t->records.trace)
        ls_trace_rate(t->records.trace, ls_now_ns(), (double)r->rows / seconds);
    ls_report_progress(c, false, false);
    return status;
}

int ls_account_step(ls_coordination *c, const ls_outcome *o, ls_error *err)
{
    struct ls_trainer *t = c->t;
    const ls_report *r = o->report;
    /* the end of the step on the clock ls_engine_ns: from the report, which has it if the step
     * ended earlier than the report was sent; otherwise now */
    const uint64_t end = r->ended_ns > 0 ? ls_engine_ns_at(t->engine, r->ended_ns) : 0;
    const uint64_t now = end > c->last_ns ? end : ls_engine_ns(t->engine);
    const uint64_t share = (now - c->last_ns) / (uint64_t)r->steps_left;
    const double seconds = (double)share * 1e-9;
    c->last_ns += share;
    t->position.totals.seconds = (double)(c->last_ns - c->start_ns) * 1e-9;
    if (seconds > c->longest_s) {
        c->longest_s = seconds;
        ls_engine_set_deadline(t->engine, seconds);
    }
    int status = r->skipped ? account_skipped(t, o, err) : LS_OK;
    if (status)
        return status;
    ls_count_step(c, r);
    return tell_step(c, r, seconds, err);
}

int ls_adopt_step(ls_coordination *c, const ls_report *r, const ls_standing *standing,
                  ls_error *err)
{
    struct ls_trainer *t = c->t;
    const double seconds = (double)(ls_engine_ns(t->engine) - c->last_ns + 1) * 1e-9;
    int status = r->skipped ? ls_record_nonfinite(t, -1, -1, err) : LS_OK;
    if (status)
        return status;
    ls_take_standing(t, standing);
    c->last = *r;
    ls_note_completed(t);
    return tell_step(c, r, seconds, err);
}
