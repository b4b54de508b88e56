/* SPDX-License-Identifier: MIT */
/* Reads weights and optimizer states back from the workers, for a checkpoint or a model, and
 * compares the replicas. Faults of workers and of other processes meanwhile go to recover.c; any
 * other error is returned as it is. */
#include "base/clock.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/learnt_scales.h"
#include "train/saving.h"

#include <stdio.h>

bool ls_is_fault(const struct ls_trainer *t, int status)
{
    const ls_fault *fault[LS_DEVICES_MAX];
    return status != LS_EDIVERGED && (ls_members_lost(t) || ls_engine_faults(t->engine, fault) > 0);
}

int ls_read_back(struct ls_trainer *t, bool exports, bool all, ls_error *err)
{
    char when[64];
    int status;
    const uint64_t start = ls_now_ns();
    snprintf(when, sizeof when, "reading weights back after step %llu",
             (unsigned long long)t->position.steps);
    for (;;) {
        /* A save that hangs is no fault of a worker or of another process. It is waited for each
         * time, because a recovery can have begun a save. */
        status = exports ? ls_saver_wait(t->dir.saver, err) : LS_OK;
        if (status)
            return status;
        status = ls_copy_replicas(t, exports, err);
        if (status == LS_OK && all)
            status = ls_agreement_compare(t, err);
        if (status == LS_OK && exports)
            status = ls_renew_card(t, err);
        if (status == LS_OK)
            break;
        if (!ls_is_fault(t, status))
            return status;
        status = ls_recover(t, when, err);
        if (status)
            return status;
    }
    ls_trace_span(t->records.trace, LS_TRACK_COORDINATOR,
                  exports ? "read back" : "compare replicas", start, ls_now_ns(), "step",
                  t->position.steps);
    return LS_OK;
}
