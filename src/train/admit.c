/* SPDX-License-Identifier: MIT */
/* Admission of hosts to a run that has begun (docs/faults.md, "A host that comes"; the model is
 * tests/models/admission.pml).
 *
 * A newcomer *waits at* a member if it has connected to that member. The *old* members are the
 * members before the admission.
 *
 * At the end of an epoch the members make an exchange, in which each member tells all others how
 * many newcomers wait at it. If a newcomer waits, all members end their host group
 * (ls_cluster_admit). They then form one with the newcomer, as the remaining members do after a
 * loss (ls_recover). The old members, which are all at the end of the same epoch, and the newcomer
 * repeat the exchanges of the start of a run. The newcomer opens its run as a host of a resumed run
 * does.
 *
 * If a member is lost during these exchanges, the next host group has no newcomer. The newcomer
 * notices the loss too. It votes on the next host group with the others, and then leaves, because
 * it can lack a part of the state. After the last exchange, that of ls_members_begin, the newcomer
 * is a member like the others.
 *
 * After an exchange all members must do the same. So they decide only by data that all of them
 * have: the table that the exchange has gathered, and the host group, which says which of its
 * members is new. If a member is lost, the last exchange of an admission can succeed on some
 * members and fail on others. A member on which the exchange failed then takes part in a recovery
 * (ls_recover). There it takes over a number from the others: for how many ends of epochs the
 * admissions are over (ls_members.rounds). If this number includes the present end of an epoch, the
 * member makes no further admission. */
#include "base/error.h"
#include "base/host.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/run_records.h"

#include <stdio.h>
#include <string.h>

enum { TRIES = 4 }; /* largest number of failed admissions at one end of an epoch */

/* A member's data for an admission: the newcomers that wait at it, and the failed admissions. */
typedef struct admission_table {
    ls_arrival arrival; /* the newcomer that has waited longest at this member */
    int32_t waiting,    /* number of newcomers that wait at this member */
        tries;          /* number of failed admissions at this end of an epoch */
} admission_table;

/* Chooses the newcomer to admit from the tables of all members, and gives it a number that no host
 * of the run has had. Returns false if no newcomer is to be admitted. */
static bool choose_newcomer(ls_arrival *out, const struct ls_trainer *t, const admission_table *all)
{
    const int count = t->members.count;
    int64_t number = 0;
    int32_t tries = 0;
    bool any = false;
    for (int m = 0; m < count; m++) {
        number = all[m].arrival.number > number ? all[m].arrival.number : number;
        tries = all[m].tries > tries ? all[m].tries : tries;
        if (!any && all[m].waiting > 0) {
            *out = all[m].arrival;
            any = true;
        }
    }
    out->number = number;
    return any && tries < TRIES && number < LS_MEMBERS_MAX && count < ls_engine_shards(t->engine);
}

/* Gathers the tables of all members. *any becomes whether a newcomer is to be admitted; *out
 * becomes that newcomer. */
static int exchange_tables(bool *any, ls_arrival *out, struct ls_trainer *t, int tries,
                           ls_error *err)
{
    admission_table own;
    int count = 0;
    memset(&own, 0, sizeof own); /* zeroes the padding, which is sent too */
    int status =
        ls_cluster_arrivals(t->members.cluster, t->members.rounds, &own.arrival, &count, err);
    own.waiting = count;
    own.tries = tries;
    admission_table *all = status ? NULL : ls_members_gather(&status, t, &own, sizeof own, err);
    *any = all && choose_newcomer(out, t, all);
    ls_free(t->host, all);
    return status;
}

/* Called after the host group with or without the newcomer was formed. If the newcomer is not in
 * it, logs and records the reason, and counts a failed admission in *tries. */
static int note_result(struct ls_trainer *t, const ls_arrival *arrival, int *tries, ls_error *err)
{
    const struct ls_cluster *c = t->members.cluster;
    const char *why = ls_cluster_not_admitted(c);
    for (int m = 0; m < t->members.count; m++)
        if (ls_cluster_origin(c, m) == (int)arrival->number)
            return LS_OK;
    ++*tries;
    why = why[0] ? why : "it was lost during its admission";
    ls_log(t->host, LS_LOG_WARNING, "host %.63s is not admitted: %s", arrival->host, why);
    return ls_record_failed_arrival(t, arrival->host, why, err);
}

int ls_members_admit(struct ls_trainer *t, ls_error *err)
{
    ls_members *m = &t->members;
    const uint64_t rounds = m->rounds;
    char when[64];
    int tries = 0;
    if (!m->cluster || !t->config.cluster.admits || ls_stopping(t) || m->stop_after != UINT64_MAX)
        return LS_OK;
    snprintf(when, sizeof when, "the end of epoch %u", (unsigned)t->position.epoch);
    while (m->rounds == rounds) {
        ls_arrival arrival = {.number = 0};
        bool any = false;
        int status = exchange_tables(&any, &arrival, t, tries, err);
        if (status == LS_OK && !any) {
            m->rounds++;
            return LS_OK;
        }
        if (status == LS_OK)
            status = ls_cluster_admit(m->cluster, &arrival, err);
        if (!ls_members_lost(t))
            return status;
        status = ls_recover(t, when, err);
        if (status == LS_OK && any)
            status = note_result(t, &arrival, &tries, err);
        if (status)
            return status;
    }
    return LS_OK;
}

/* ---- welcoming ------------------------------------------------------------------------------ */

/* Returns whether the error means that the newcomer's run differs from the run of the old members.
 * The newcomer has gathered the same tables, so it finds the same error, and leaves. The next
 * exchange then fails, and the old members continue without the newcomer. */
static bool newcomer_differs(const struct ls_trainer *t, int status, const ls_error *why)
{
    if (ls_members_lost(t) ||
        (status != LS_ECONFIG && status != LS_EDATA && status != LS_EUNSUPPORTED))
        return false;
    ls_log(t->host, LS_LOG_WARNING, "a host is not admitted: %s", why->text);
    return true;
}

/* Repeats the exchanges of the start of a run, in the order in which the newcomer makes them
 * (open.c). */
static int exchange_start(struct ls_trainer *t, ls_error *err)
{
    int status = ls_members_share_shards(t, err);
    if (status == LS_OK)
        status = ls_members_compare(t, err);
    if (status == LS_OK)
        status = ls_members_share_start(t, err);
    if (status == LS_OK)
        status = ls_members_welcome_devices(t, err);
    if (status == LS_OK)
        status = ls_members_compare_hosts(t, err);
    if (status == LS_OK)
        status = ls_cluster_share(t->members.cluster, NULL, 0,
                                  err); /* the exchange of ls_members_begin */
    return status;
}

int ls_members_welcome(struct ls_trainer *t, ls_error *err)
{
    ls_members *m = &t->members;
    ls_error why = {0};
    const char *host = ls_cluster_host(m->cluster, ls_cluster_newcomer(m->cluster));
    int status = exchange_start(t, &why);
    if (status && newcomer_differs(t, status, &why)) {
        /* this exchange fails when the newcomer has left */
        const int left = ls_cluster_share(m->cluster, NULL, 0, &why);
        status = left ? left : LS_EINTERNAL;
    }
    if (status) {
        if (err)
            *err = why;
        return status;
    }
    m->has_newcomer = false;
    ls_log(t->host, LS_LOG_INFO, "host %s has been admitted: %d hosts go on", host, m->count);
    return ls_record_arrival(t, host, err);
}
