/* SPDX-License-Identifier: MIT */
/* Compares the replicas of all members, and sets doubtful checkpoints aside (agreement.h). */
#include "train/agreement.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "engine/view.h"
#include "train/chaining.h"
#include "train/saving.h"

#include <stdio.h>
#include <string.h>

void ls_agreement_begin(struct ls_trainer *t)
{
    t->agreement.steps = t->position.steps;
    t->agreement.levelled = UINT64_MAX;
}

void ls_agreement_note_step(struct ls_trainer *t, const struct ls_report *r)
{
    const uint64_t lag = (uint64_t)ls_engine_compare_lag(t->engine);
    if (lag > 0 && r->number >= t->agreement.steps + lag)
        t->agreement.steps = r->number - lag;
}

bool ls_agreement_is_due(const struct ls_trainer *t, uint64_t steps)
{
    const ls_agreement *a = &t->agreement;
    return t->members.cluster &&
           (ls_is_multiple(steps, a->save_every) || ls_is_multiple(steps, a->verify_every) ||
            ls_chain_is_due(t, steps));
}

/* ---- comparing members ---------------------------------------------------------------------- */

static const char *name_of_member(void *cluster, int m)
{
    return ls_cluster_host(cluster, m);
}

int ls_agreement_compare(struct ls_trainer *t, ls_error *err)
{
    const ls_members *m = &t->members;
    char why[300];
    int status = LS_OK;
    if (!m->cluster || t->agreement.levelled == t->position.steps)
        return LS_OK;
    const uint64_t own = ls_engine_state_digest(t->engine);
    uint64_t *all = ls_members_gather(&status, t, &own, sizeof own, err);
    if (all && !ls_digests_agree(all, m->count)) {
        ls_digest_explain(why, sizeof why, all, m->count, name_of_member, m->cluster);
        status = ls_fail(err, LS_EDIVERGED, "after step %llu: %s",
                         (unsigned long long)t->position.steps, why);
    }
    ls_free(t->host, all);
    if (status == LS_OK)
        t->agreement.steps = t->position.steps;
    return status;
}

/* ---- when the replicas are not equal -------------------------------------------------------- */

/* Writes what the user can do: names the newest good checkpoint. */
static void advise(char *out, size_t size, struct ls_trainer *t)
{
    char directory[LS_PATH_BYTES], *path = NULL, *state = NULL;
    if (!t->dir.path || !t->dir.saver) {
        snprintf(out, size, "%s",
                 t->members.cluster ? "continue from the checkpoints of the first host"
                                    : "begin anew");
        return;
    }
    ls_path_join(directory, t->dir.path, "checkpoints");
    if (ls_checkpoints_latest(&path, &state, directory, false, t->host, NULL) == LS_OK)
        snprintf(out, size, "--resume continues from %.120s", path + strlen(t->dir.path) + 1);
    else
        snprintf(out, size, "no checkpoint from before is kept: begin the run anew");
    ls_free(t->host, path);
    ls_free(t->host, state);
}

/* Sets the doubtful checkpoints aside, after the save in progress and that of the checkpoint that
 * is kept in memory, which may be the last good one. Returns their number. */
static int set_aside(struct ls_trainer *t)
{
    char directory[LS_PATH_BYTES];
    ls_error why;
    int count = 0;
    if (!t->dir.path || !t->dir.saver || ls_saver_settle(t->dir.saver, NULL))
        return 0;
    ls_path_join(directory, t->dir.path, "checkpoints");
    if (ls_checkpoints_set_aside(&count, directory, t->agreement.steps, t->host, &why))
        ls_log(t->host, LS_LOG_WARNING, "%s", why.text);
    return count;
}

void ls_agreement_lost(struct ls_trainer *t, ls_error *err)
{
    char advice[200], aside[80] = "";
    const ls_error first = *err;
    if (t->diverged)
        return;
    t->diverged = true;
    const int count = set_aside(t);
    if (count > 0)
        snprintf(aside, sizeof aside, "; %d later %s set aside", count,
                 ls_plural((uint64_t)count, "checkpoint was", "checkpoints were"));
    advise(advice, sizeof advice, t);
    ls_fail(err, LS_EDIVERGED,
            "%.200s; %s is faulty; all copies were last known to be equal after step %llu%s; %s",
            first.text,
            t->members.cluster ? "a device, its memory or the network" : "a device or its memory",
            (unsigned long long)t->agreement.steps, aside, advice);
}
