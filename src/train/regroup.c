/* SPDX-License-Identifier: MIT */
/* Regrouping: members are lost, and the remaining members continue the run. cluster/cluster.h
 * explains how the remaining members find each other.
 *
 * The remaining members can have completed different numbers of steps. The numbers differ by at
 * most one: a member completes step n + 1 only with the gradients of step n + 1 from every member,
 * and a member computes these only after it has completed step n. The numbers of completed
 * evaluations differ by at most one as well, because an evaluation ends with an exchange of all
 * members' results.
 *
 * *Levelling* brings all members to the same state. All members first exchange their progress: the
 * numbers of steps and evaluations that each has completed, the report of its last step, the
 * results of its last evaluation, and its standing (ls_standing: the position and results of the
 * run) at that moment. The *newest* member is the one with the most steps, then evaluations, then
 * completed admissions (ls_members.rounds), then the lowest number. (Each number grows along the
 * same sequence of exchanges, and two members differ in at most one of them.) If a member lacks a
 * step, the newest member sends its weights and optimizer states to all. The member that lacks the
 * step loads them, and accounts for the step as if it had run the step itself. If a member lacks an
 * evaluation, it adopts the results of the newest member.
 *
 * A step that no remaining member has applied is repeated, whether or not a lost member has applied
 * it: the sum of gradients depends only on the shards.
 *
 * A member adopts nothing before the last exchange of a levelling has succeeded. After a loss
 * during a levelling, the members therefore still differ by at most one step, and the next
 * levelling brings them to the same state.
 *
 * The first member has the run directory. If the first member is lost, the remaining member with
 * the lowest number becomes the first. It creates the directory RUN_DIR.member-N on its own disk
 * and saves a checkpoint there at once. RUN_DIR is the run directory of the config, and N is the
 * member's number at the start of the run. */
#include "base/error.h"
#include "base/host.h"
#include "base/plural.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/run_files.h"
#include "train/run_records.h"
#include "train/saving.h"

#include <stdio.h>
#include <string.h>

bool ls_members_lost(const struct ls_trainer *t)
{
    return t->members.cluster && ls_cluster_lost(t->members.cluster);
}

const char *ls_members_lost_host(const struct ls_trainer *t)
{
    const int m = t->members.cluster ? ls_cluster_lost_member(t->members.cluster) : -1;
    return m < 0 ? NULL : ls_cluster_host(t->members.cluster, m);
}

/* ---- remaining members ---------------------------------------------------------------------- */

/* Data about a member before the regrouping. After the regrouping the lost members are found by
 * these data. */
typedef struct former_member {
    int origin; /* number of the member at the start of the run */
    char host[LS_MEMBER_NAME];
} former_member;

static bool is_remaining(const struct ls_trainer *t, int origin)
{
    for (int m = 0; m < t->members.count; m++)
        if (ls_cluster_origin(t->members.cluster, m) == origin)
            return true;
    return false;
}

/* Writes the hosts of the lost members to t->members.lost, and logs them. If t->members.unlevelled
 * is set, an earlier loss has not been recorded yet. The hosts of that loss then stay in the list,
 * and the hosts of the new loss are added. */
static void list_lost_hosts(struct ls_trainer *t, const former_member *before, int count,
                            const char *why)
{
    ls_members *m = &t->members;
    size_t used = m->unlevelled ? strlen(m->lost) : 0;
    m->lost[used] = '\0';
    for (int i = 0; i < count && used < sizeof m->lost; i++)
        if (!is_remaining(t, before[i].origin))
            used += (size_t)snprintf(m->lost + used, sizeof m->lost - used, "%s%s",
                                     used ? ", " : "", before[i].host);
    if (used == 0 && ls_cluster_not_admitted(m->cluster)[0])
        return; /* nobody was lost: ls_members_admit says why the newcomer was not admitted */
    ls_log(t->host, LS_LOG_WARNING, "%s%s (%.300s); %d %s", used ? "lost: " : "a connection broke",
           m->lost, why, m->count,
           ls_plural((uint64_t)m->count, "host is left and goes on", "hosts are left and go on"));
}

/* Removes the devices of lost members from the list of devices: of those that are not in the host
 * group, and of the member whose origin is `lost`. */
static void remove_lost_devices(struct ls_trainer *t, int lost)
{
    ls_members *m = &t->members;
    int kept = 0;
    for (int i = 0; i < m->devices; i++) {
        if (m->device[i].origin == lost || !is_remaining(t, m->device[i].origin))
            continue;
        m->own = i == m->own ? kept : m->own;
        m->device[kept++] = m->device[i];
    }
    m->devices = kept;
}

int ls_members_regroup(struct ls_trainer *t, ls_error *err)
{
    ls_members *m = &t->members;
    const int count = m->count;
    ls_error why = {.text = ""};
    former_member *before = ls_alloc_array(t->host, (size_t)count, sizeof *before);
    if (!before)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d hosts", count);
    for (int i = 0; i < count; i++) {
        before[i].origin = ls_cluster_origin(m->cluster, i);
        snprintf(before[i].host, sizeof before[i].host, "%s", ls_cluster_host(m->cluster, i));
    }
    ls_cluster_why(m->cluster, &why);
    int status = ls_cluster_regroup(m->cluster, err);
    if (status == LS_OK) {
        m->member = ls_cluster_member(m->cluster);
        m->count = ls_cluster_members(m->cluster);
        t->reported.summary.member = m->member;
        t->reported.summary.members = m->count;
        m->has_newcomer = ls_cluster_newcomer(m->cluster) > 0;
        if (!m->has_newcomer || m->count <= count) {
            list_lost_hosts(t, before, count, why.text);
            m->unlevelled = true;
        }
        remove_lost_devices(t, -1);
        status = ls_cluster_prepare(m->cluster, ls_engine_shards(t->engine),
                                    ls_engine_floats(t->engine), err);
    }
    ls_free(t->host, before);
    return status;
}

int ls_members_end_by_loss(struct ls_trainer *t, ls_error *err)
{
    ls_members *m = &t->members;
    const char *host = ls_members_lost_host(t);
    if (!host || m->ended_by_loss || t->records.sinks.count == 0)
        return LS_OK;
    ls_fault fault = {.worker = -1, .step = t->position.steps + 1};
    ls_cluster_why(m->cluster, &fault.error);
    snprintf(m->lost, sizeof m->lost, "%s", host);
    remove_lost_devices(t, ls_cluster_origin(m->cluster, ls_cluster_lost_member(m->cluster)));
    m->ended_by_loss = true;
    return ls_record_fault(t, &fault, LS_ACTION_STOP, err);
}

/* ---- comparing progress --------------------------------------------------------------------- */

/* The progress of a member, with all data that another member needs to adopt a step or an
 * evaluation from it. Each member then itself does the work that follows a step or evaluation, such
 * as the record of an epoch. */
typedef struct progress {
    uint64_t steps, evaluations; /* numbers of completed steps and evaluations */
    uint64_t rounds;             /* ls_members.rounds */
    /* position and results of the run immediately after the member's last step or evaluation */
    ls_standing completed;
    ls_report last;           /* report of the member's last step */
    double value[LS_METRICS]; /* [LS_METRICS] results of the member's last evaluation */
    int32_t classes;          /* ls_measured.classes of that evaluation */
    ls_engine_digests digest; /* digests of this member's workers */
} progress;

static void describe_progress(progress *out, const struct ls_trainer *t)
{
    memset(out, 0, sizeof *out);
    out->steps = t->position.steps;
    out->evaluations = t->members.evaluations;
    out->rounds = t->members.rounds;
    out->completed = t->coordination->completed;
    out->last = t->coordination->last;
    out->last.comm.waiting = NULL;
    out->last.comm.user = NULL;
    memcpy(out->value, t->reported.measured.value, sizeof out->value);
    out->classes = t->reported.measured.classes;
    ls_engine_digest(t->engine, &out->digest);
}

static bool has_done_less(const progress *a, const progress *b)
{
    if (a->steps != b->steps)
        return a->steps < b->steps;
    return a->evaluations != b->evaluations ? a->evaluations < b->evaluations
                                            : a->rounds < b->rounds;
}

static int find_newest(const progress *all, int count)
{
    int newest = 0;
    for (int m = 1; m < count; m++)
        if (has_done_less(&all[newest], &all[m]))
            newest = m;
    return newest;
}

static int check_spread(const progress *all, int count, int newest, ls_error *err)
{
    for (int m = 0; m < count; m++)
        if (all[m].steps + 1 < all[newest].steps ||
            all[m].evaluations + 1 < all[newest].evaluations)
            return ls_fail(err, LS_EINTERNAL,
                           "hosts have done %llu and %llu steps, which differ by more than one",
                           (unsigned long long)all[m].steps, (unsigned long long)all[newest].steps);
    return LS_OK;
}

/* Checks that a member that lacks a step of the newest one had the same digest before that step,
 * and that every other member has the same digest. */
static int check_digests(const struct ls_trainer *t, const progress *all, int newest, ls_error *err)
{
    for (int m = 0; m < t->members.count; m++) {
        const bool lacks = all[m].steps < all[newest].steps;
        if (all[m].digest.now != (lacks ? all[newest].digest.before : all[newest].digest.now))
            return ls_fail(err, LS_EDIVERGED,
                           "%s and %s have different copies of the model after a loss",
                           ls_cluster_host(t->members.cluster, m),
                           ls_cluster_host(t->members.cluster, newest));
    }
    return LS_OK;
}

/* ---- levelling ------------------------------------------------------------------------------ */

/* Copies the weights and optimizer states of the newest member to the arrays of ls_engine_weights
 * on every member. Before the copy, waits until no save reads these arrays. */
static int share_state(struct ls_trainer *t, int newest, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    const ls_engine_state *state = ls_engine_weights(t->engine);
    const size_t bytes = t->model->floats * sizeof(float);
    int status = LS_OK;
    if (newest == t->members.member)
        status = ls_copy_replicas(t, true, err);
    else
        status = ls_saver_wait(t->dir.saver, err);
    if (status == LS_OK)
        status = ls_cluster_share_from(c, newest, state->canonical, bytes, err);
    for (int i = 0; i < LS_STATES && status == LS_OK; i++)
        if (state->slot[i])
            status = ls_cluster_share_from(c, newest, state->slot[i], bytes, err);
    return status;
}

static int adopt_progress(struct ls_trainer *t, const progress *mine, const progress *newest,
                          ls_error *err)
{
    ls_standing completed = newest->completed;
    completed.position.best.kept =
        t->position.best.kept; /* `kept` is about this member's own run directory */
    if (mine->steps < newest->steps) {
        int status = ls_engine_load(t->engine, t->position.steps, err);
        ls_engine_set_digest(t->engine, &newest->digest);
        return status ? status : ls_adopt_step(t->coordination, &newest->last, &completed, err);
    }
    if (mine->evaluations < newest->evaluations) {
        ls_take_standing(t, &completed);
        memcpy(t->reported.measured.value, newest->value, sizeof newest->value);
        t->reported.measured.classes = newest->classes;
        t->members.evaluations = newest->evaluations;
        t->members.evaluated = true;
    }
    if (mine->rounds < newest->rounds)
        t->members.rounds = newest->rounds;
    return LS_OK;
}

/* Returns whether this member has become the first one, because the former first member was lost,
 * and take_over has not succeeded on this member yet. */
static bool is_new_first(const struct ls_trainer *t)
{
    return ls_members_first(t) && t->members.origin > 0 && !t->members.took_over;
}

/* Called on the new first member: saves a checkpoint, so that this member's disk has a checkpoint
 * of the run after the loss. */
static int save_as_first(struct ls_trainer *t, ls_error *err)
{
    const ls_due due = ls_checkpoint_due(t, &(ls_moment){.occasion = LS_TAKEN_OVER});
    int status = due == LS_DUE_NOTHING ? LS_OK : ls_copy_replicas(t, true, err);
    t->members.lacks_checkpoint = false;
    return status ? status : ls_save(t, due, err);
}

/* If this member has become the first one, creates its run directory (ls_take_over). */
static int take_over(struct ls_trainer *t, ls_error *err)
{
    if (!is_new_first(t))
        return LS_OK;
    int status = ls_take_over(t, err);
    t->members.took_over = t->members.lacks_checkpoint = status == LS_OK;
    return status;
}

/* Brings all members to the state of the newest member. Every member has the same array `all`, so
 * all members decide on the same transfers. */
static int level_members(struct ls_trainer *t, const progress *all, ls_error *err)
{
    const ls_members *m = &t->members;
    const int count = m->count, newest = find_newest(all, count);
    bool steps = false, evaluations = false;
    int status = check_spread(all, count, newest, err);
    if (status == LS_OK)
        status = check_digests(t, all, newest, err);
    for (int i = 0; i < count; i++) {
        steps |= all[i].steps < all[newest].steps;
        evaluations |= all[i].evaluations < all[newest].evaluations;
    }
    if (status == LS_OK)
        status = take_over(t, err);
    if (status == LS_OK && steps)
        status = share_state(t, newest, err);
    if (status == LS_OK && evaluations && t->reported.measured.confusion) {
        const size_t classes = (size_t)t->model->classes;
        status =
            ls_cluster_share_from(m->cluster, newest, t->reported.measured.confusion,
                                  classes * classes * sizeof *t->reported.measured.confusion, err);
    }
    if (status == LS_OK && evaluations && t->reported.measured.number)
        status = ls_cluster_share_from(
            m->cluster, newest, t->reported.measured.number,
            t->reported.measured.numbers * sizeof *t->reported.measured.number, err);
    return status ? status : adopt_progress(t, &all[m->member], &all[newest], err);
}

/* Checks that all members have the same state. All members call this function after the same number
 * of steps. */
static int compare_states(struct ls_trainer *t, ls_error *err)
{
    t->agreement.levelled = UINT64_MAX;
    int status = ls_copy_replicas(t, false, err);
    if (status == LS_OK)
        status = ls_agreement_compare(t, err);
    if (status == LS_OK)
        t->agreement.levelled = t->position.steps;
    return status;
}

static int record_loss(struct ls_trainer *t, ls_error *err)
{
    ls_fault fault = {.worker = -1, .step = t->position.steps + 1};
    ls_fail(&fault.error, LS_ESTALLED, "the host is lost; the others go on without it");
    return t->members.lost[0] ? ls_record_fault(t, &fault, LS_ACTION_CONTINUE, err) : LS_OK;
}

/* Exchanges the progress of all members, levels the members, and compares their weights. */
static int level_all(struct ls_trainer *t, ls_error *err)
{
    progress own;
    int status = ls_engine_settle(t->engine, t->position.steps, err);
    if (status)
        return status;
    describe_progress(&own, t);
    progress *all = ls_members_gather(&status, t, &own, sizeof own, err);
    if (all)
        status = level_members(t, all, err);
    ls_free(t->host, all);
    return status ? status : compare_states(t, err);
}

int ls_members_level(struct ls_trainer *t, ls_error *err)
{
    ls_members *m = &t->members;
    ls_error why = {0};
    if (!m->unlevelled && !m->has_newcomer)
        return LS_OK;
    int status = m->has_newcomer ? take_over(t, &why) : level_all(t, &why);
    if (status == LS_OK && m->has_newcomer)
        status = ls_members_welcome(t, &why);
    if (status == LS_OK && m->unlevelled) {
        m->unlevelled = false;
        status = record_loss(t, &why);
    }
    if (status == LS_OK && m->lacks_checkpoint)
        status = save_as_first(t, &why);
    if (status == LS_EDIVERGED)
        ls_cluster_end_all(m->cluster, why.text);
    else if (status && !ls_members_lost(t))
        ls_cluster_leave(m->cluster, why.text);
    if (status && err)
        *err = why;
    return status;
}
