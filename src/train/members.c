/* SPDX-License-Identifier: MIT */
/* Runs of several members: joining, the data that members exchange, and the end. */
#include "train/members.h"
#include "base/error.h"
#include "base/host.h"
#include "engine/view.h"
#include "train/coordinator.h"
#include "train/learnt_scales.h"
#include "train/saving.h"

#include <lockstep/split.h>
#include <string.h>

/* Time in seconds without a sign of life after which a member counts as lost, if cluster.deadline_s
 * is 0. */
#define SILENCE_S 30
#define OPEN_NS 120000000000u /* time in nanoseconds for the other members to connect */

/* ---- joining -------------------------------------------------------------------------------- */

/* Chooses the transport. Sets *out to NULL if the run has a single process. */
static int choose_transport(const ls_transport **out, const struct ls_trainer *t, ls_error *err)
{
    const ls_trainer_cluster *o = &t->cluster;
    const char *names[] = {NULL, NULL, "mpi"}; /* in the order of ls_process_transport */
    ls_error why;
    if (!!o->transport + !!o->tcp + !!o->mpi_comm > 1)
        return ls_fail(err, LS_EINVAL,
                       "ls_trainer_cluster: set one of tcp, mpi_comm and transport, not several");
    *out = o->tcp ? ls_transport_tcp() : o->transport;
    if (*out)
        return LS_OK;
    const char *name = names[t->config.cluster.transport];
    if (t->config.cluster.transport == LS_PROCESSES_AUTO && o->launched > 1)
        name = "mpi";
    if (o->mpi_comm)
        name = "mpi";
    if (!name)
        return LS_OK;
    int status = ls_transport_load(out, name, &why);
    if (status && o->launched > 1)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "started as %d processes, which would train each for itself: %.300s (%s); "
                       "install the package lockstep-mpi or build with -D LOCKSTEP_MPI=ON, or say "
                       "--set cluster.transport=none if that is meant",
                       o->launched, why.text, status == LS_ENOENT ? "absent" : "broken");
    if (status && err)
        *err = why;
    return status;
}

/* Returns what the transport gets as ls_wire_options.place. */
static const void *place_of(const ls_trainer_cluster *o)
{
    if (o->tcp)
        return o->tcp;
    return o->mpi_comm ? o->mpi_comm : o->place;
}

int ls_members_open(struct ls_trainer *t, ls_error *err)
{
    const double silence_s =
        t->config.cluster.deadline_s > 0 ? t->config.cluster.deadline_s : SILENCE_S;
    ls_cluster_options o = {.place = place_of(&t->cluster),
                            .deadline_ns = (uint64_t)(silence_s * 1e9),
                            .open_ns = OPEN_NS,
                            .asks = &t->stop,
                            /* A member without a config receives the config later. Until then it
                             * assumes that the run can continue after a loss. */
                            .regroups = t->config.cluster.survives_loss || !t->config.doc,
                            .admits = t->config.cluster.admits,
                            .fingerprint = t->members.has_print ? &t->members.print : NULL,
                            .fingerprint_bytes = sizeof t->members.print,
                            .refuses = ls_members_refuse,
                            .user = t,
                            .host = t->host};
    ls_members *m = &t->members;
    m->count = 1;
    m->stop_after = UINT64_MAX;
    int status = choose_transport(&o.type, t, err);
    if (status || !o.type)
        return status;
    status = ls_cluster_open(&m->cluster, &o, err);
    if (status)
        return status;
    m->member = ls_cluster_member(m->cluster);
    m->count = ls_cluster_members(m->cluster);
    m->origin = ls_cluster_origin(m->cluster, m->member);
    m->arrived = ls_cluster_was_admitted(m->cluster);
    if (m->count > 1 || ls_cluster_can_admit(m->cluster))
        return LS_OK;
    ls_cluster_close(m->cluster); /* the transport has found a single process */
    m->cluster = NULL;
    if (t->cluster.launched > 1)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "started as %d processes that do not find each other, and would train each for "
            "itself: start them with the mpirun of the MPI that liblockstep-mpi.so was built "
            "with, or with srun --mpi=pmix; or say --set cluster.transport=none if that is meant",
            t->cluster.launched);
    return LS_OK;
}

void ls_members_join_to_leave(struct ls_trainer *t)
{
    const ls_trainer_cluster *o = &t->cluster;
    if (t->members.count > 0 || o->launched < 2 || o->tcp)
        return;
    if (!t->config.doc && ls_config_trains_alone(&t->options))
        t->config.cluster.transport = LS_PROCESSES_NONE;
    (void)ls_members_open(t, NULL); /* this process has its own error already */
}

int ls_members_close(struct ls_trainer *t, bool used)
{
    ls_members *m = &t->members;
    if (!m->cluster)
        return LS_OK;
    if (t->life == LS_OPENED)
        ls_cluster_leave(m->cluster, "it did not start");
    if (used) {
        ls_cluster_keep_memory(m->cluster);
        return ls_cluster_close(m->cluster);
    }
    ls_free(t->host, m->device);
    m->device = NULL;
    m->devices = 0;
    return ls_cluster_close(m->cluster);
}

bool ls_stopping(const struct ls_trainer *t)
{
    return t->members.cluster ? t->position.steps >= t->members.stop_after
                              : atomic_load_explicit(&t->stop, memory_order_relaxed) != 0;
}

bool ls_members_first(const struct ls_trainer *t)
{
    return t->members.member == 0;
}

void ls_members_span(const struct ls_trainer *t, int shards, int *lo, int *hi)
{
    *lo = 0;
    *hi = shards;
    if (t->members.cluster)
        ls_cluster_span(t->members.cluster, shards, t->members.member, lo, hi);
}

void *ls_members_gather(int *status, struct ls_trainer *t, const void *own, size_t size,
                        ls_error *err)
{
    const ls_members *m = &t->members;
    char *all = ls_alloc_array(t->host, (size_t)m->count, size);
    if (!all) {
        *status = ls_fail(err, LS_ENOMEM, "out of memory for %d hosts", m->count);
        return NULL;
    }
    memcpy(all + (size_t)m->member * size, own, size);
    *status = ls_cluster_gather(m->cluster, all, size, err);
    if (*status == LS_OK)
        return all;
    ls_free(t->host, all);
    return NULL;
}

/* ---- the start ------------------------------------------------------------------------------ */

enum { MOST_TEXT = 1 << 30 };

int ls_members_share_text(char **text, struct ls_trainer *t, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    uint64_t bytes = *text ? strlen(*text) : 0;
    int status = ls_cluster_share(c, &bytes, sizeof bytes, err);
    if (status == LS_OK && bytes > MOST_TEXT)
        status = ls_fail(err, LS_EABORTED, "the first host announced a text of %llu bytes",
                         (unsigned long long)bytes);
    if (status == LS_OK && !ls_members_first(t)) {
        *text = ls_alloc(t->host, (size_t)bytes + 1);
        if (!*text)
            status = ls_fail(err, LS_ENOMEM, "out of memory for a config");
    }
    return status ? status : ls_cluster_share(c, *text, (size_t)bytes, err);
}

int ls_members_share_shards(struct ls_trainer *t, ls_error *err)
{
    int shards = t->config.shards;
    if (!t->members.cluster)
        return LS_OK;
    int status = ls_cluster_share(t->members.cluster, &shards, sizeof shards, err);
    if (status == LS_OK && t->config.shards <= 0)
        t->config.shards = shards;
    if (status || t->config.shards >= t->members.count)
        return status;
    return ls_config_fail(err, &t->config, "shards", LS_ECONFIG,
                          "%d hosts need a shard each: set shards to at least %d%s",
                          t->members.count, t->members.count,
                          t->config.shards == 0 ? "; \"devices\" is for one host" : "");
}

/* State that the first member sends to the others (ls_members_share_start). */
typedef struct beginning {
    ls_standing standing;
    uint64_t evaluations, rounds; /* copies of the fields of ls_members; 0 at the start of a run */
    bool resumed;                 /* the optimizer's states follow the weights */
    ls_engine_digests digest; /* digests of the first member's workers; 0 at the start of a run */
    int64_t save_every, verify_every; /* ls_agreement */
    double save_seconds;              /* ls_agreement */
    bool chained;                     /* ls_agreement; the chain follows the scales */
} beginning;

/* Called during an admission, in a run that has begun. Prepares the arrays of weights and states
 * for their transfer from the first member to the others: waits until no save reads these arrays.
 * The first member also copies its weights and states to them. */
static int prepare_to_share(struct ls_trainer *t, ls_error *err)
{
    if (ls_members_first(t))
        return ls_copy_replicas(t, true, err);
    return ls_saver_wait(t->dir.saver, err);
}

int ls_members_share_start(struct ls_trainer *t, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    const size_t bytes = t->model->floats * sizeof(float);
    ls_engine_state *state = ls_engine_weights(t->engine);
    const bool runs = t->life == LS_BEGUN;
    beginning b;
    if (!c)
        return LS_OK;
    memset(&b, 0, sizeof b); /* also zeroes the padding, because it is sent too */
    ls_standing_of(&b.standing, t);
    b.evaluations = t->members.evaluations;
    b.rounds = t->members.rounds;
    b.resumed = runs || t->dir.resumed != NULL;
    b.save_every = runs ? t->agreement.save_every : t->config.checkpoint.every_steps;
    b.save_seconds = runs ? t->agreement.save_seconds : t->config.checkpoint.every_seconds;
    b.chained = t->agreement.chained;
    b.verify_every = runs ? t->agreement.verify_every : t->config.verify_every_steps;
    int status = runs ? prepare_to_share(t, err) : LS_OK;
    if (runs && status == LS_OK)
        ls_engine_digest(t->engine, &b.digest);
    if (status == LS_OK)
        status = ls_cluster_share(c, &b, sizeof b, err);
    if (status == LS_OK)
        status = ls_cluster_share(c, state->canonical, bytes, err);
    for (int i = 0; status == LS_OK && b.resumed && i < LS_STATES; i++)
        if (state->slot[i])
            status = ls_cluster_share(c, state->slot[i], bytes, err);
    if (status == LS_OK)
        status = ls_share_scales(t, err);
    if (status == LS_OK && b.chained)
        status = ls_cluster_share(c, &t->chain, sizeof t->chain, err);
    if (runs || status)
        return status;
    state->has_slots = b.resumed;
    ls_engine_set_digest(t->engine, &b.digest);
    t->agreement.save_every = b.save_every;
    t->agreement.save_seconds = b.save_seconds;
    t->agreement.chained = b.chained;
    t->agreement.verify_every = b.verify_every;
    t->members.evaluations = b.evaluations;
    t->members.rounds = b.rounds;
    ls_take_standing(t, &b.standing);
    return LS_OK;
}

/* ---- during the run ------------------------------------------------------------------------- */

int ls_members_share_bad(ls_bad_shard *bad, struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster)
        return LS_OK;
    int status;
    ls_bad_shard *all = ls_members_gather(&status, t, bad, sizeof *bad, err);
    for (int m = t->members.count - 1; all && m >= 0; m--)
        *bad = all[m].shard >= 0 ? all[m] : *bad;
    ls_free(t->host, all);
    return status;
}

void ls_members_note_stop(struct ls_trainer *t, const struct ls_report *r)
{
    if (r->comm.asked && t->members.stop_after == UINT64_MAX)
        t->members.stop_after = r->number + 1; /* the next step can already be in progress */
}

/* Copies `bytes` bytes from `own` to `packed`, or from `packed` to `own` if `unpack`. Copies
 * nothing if `packed` is NULL. Returns `bytes`. */
static size_t copy_either_way(void *own, char *packed, size_t bytes, bool unpack)
{
    if (packed && unpack)
        memcpy(own, packed, bytes);
    else if (packed)
        memcpy(packed, own, bytes);
    return bytes;
}

/* Packs the results of the shards lo … hi − 1 of an evaluation into `packed`, or unpacks them from
 * `packed` if `unpack`. For each minibatch the packed form has the tallies of the shards, and then
 * the scores if r->scores is set. Copies nothing if `packed` is NULL. Returns the number of bytes
 * of the packed form. */
static size_t pack_results(const ls_sharded_rows *r, char *packed, int lo, int hi, bool unpack)
{
    const size_t classes = (size_t)r->classes;
    size_t bytes = 0;
    for (uint64_t begin = 0; begin < r->rows && hi > lo; begin += r->batch) {
        ls_tally *tally = r->tally + begin / r->batch * (uint64_t)r->shards + lo;
        const uint64_t left = r->rows - begin;
        const uint32_t n = left < r->batch ? (uint32_t)left : r->batch;
        uint32_t first, last, count;
        ls_split(n, r->shards, (uint32_t)lo, &first, &count);
        ls_split(n, r->shards, (uint32_t)(hi - 1), &last, &count);
        bytes += copy_either_way(tally, packed ? packed + bytes : NULL,
                                 (size_t)(hi - lo) * sizeof *tally, unpack);
        if (r->scores)
            bytes += copy_either_way(r->scores + (begin + first) * classes,
                                     packed ? packed + bytes : NULL,
                                     (last + count - first) * classes * sizeof *r->scores, unpack);
    }
    return bytes;
}

static int gather_packed(struct ls_trainer *t, char *all, void **part, size_t *bytes, ls_error *err)
{
    const ls_sharded_rows *r = ls_engine_test(t->engine);
    int lo, hi;
    for (int m = 0; m < t->members.count; m++) {
        ls_cluster_span(t->members.cluster, ls_engine_shards(t->engine), m, &lo, &hi);
        part[m] = all;
        bytes[m] = pack_results(r, NULL, lo, hi, false);
        all += bytes[m];
        if (m == t->members.member)
            pack_results(r, part[m], lo, hi, false);
    }
    int status = ls_cluster_gather_parts(t->members.cluster, part, bytes, err);
    for (int m = 0; m < t->members.count && status == LS_OK; m++) {
        ls_cluster_span(t->members.cluster, ls_engine_shards(t->engine), m, &lo, &hi);
        pack_results(r, part[m], lo, hi, true);
    }
    return status;
}

int ls_members_begin(struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster || !t->config.cluster.survives_loss || t->life != LS_OPENED ||
        t->members.begun)
        return LS_OK;
    int status = ls_cluster_share(t->members.cluster, NULL, 0, err);
    if (status == LS_OK)
        ls_cluster_regroups(t->members.cluster);
    t->members.begun = status == LS_OK;
    return status;
}

int ls_members_gather_evaluation(struct ls_trainer *t, ls_error *err)
{
    const ls_sharded_rows *r = ls_engine_test(t->engine);
    const size_t count = (size_t)t->members.count;
    if (!t->members.cluster)
        return LS_OK;
    char *all = ls_alloc(t->host, pack_results(r, NULL, 0, ls_engine_shards(t->engine), false) + 1);
    void **part = ls_alloc_array(t->host, count, sizeof *part);
    size_t *bytes = ls_alloc_array(t->host, count, sizeof *bytes);
    int status = all && part && bytes ? gather_packed(t, all, part, bytes, err)
                                      : ls_fail(err, LS_ENOMEM, "out of memory for an evaluation");
    ls_free(t->host, bytes);
    ls_free(t->host, part);
    ls_free(t->host, all);
    if (status == LS_OK)
        t->members.evaluations++;
    return status;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Data that the members compare at the end of a run. */
typedef struct ending {
    char weights[LS_SHA256_HEX]; /* hash of the final weights */
    int32_t saved;               /* ls_result.saved */
} ending;

static int compare_endings(struct ls_trainer *t, const ending *all, ls_error *err)
{
    for (int m = 1; m < t->members.count; m++)
        if (strcmp(all[m].weights, all[0].weights) != 0)
            return ls_fail(err, LS_EDIVERGED,
                           "host %s ends with other weights than host %s (%.8s…, %.8s…)",
                           ls_cluster_host(t->members.cluster, m),
                           ls_cluster_host(t->members.cluster, 0), all[m].weights, all[0].weights);
    t->reported.result.saved = all[0].saved;
    return LS_OK;
}

/* The final weights are compared if the run ended well, was interrupted, or had a loss that is not
 * finite: all members have then stopped after the same step. After any other error this member
 * leaves instead. */
int ls_members_end(struct ls_trainer *t, int status, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    if (!c)
        return LS_OK;
    if (status != LS_OK && status != LS_EINTERRUPTED && status != LS_ENONFINITE) {
        if (status == LS_EDIVERGED)
            ls_cluster_end_all(c, err->text);
        else
            ls_cluster_leave(c, err->text);
        return LS_OK;
    }
    int end_status;
    ending own;
    memset(&own, 0, sizeof own); /* also zeroes the padding, because it is sent too */
    own.saved = t->reported.result.saved;
    memcpy(own.weights, t->reported.result.weights_sha256, sizeof own.weights);
    ending *all = ls_members_gather(&end_status, t, &own, sizeof own, err);
    if (all)
        end_status = compare_endings(t, all, err);
    ls_free(t->host, all);
    return end_status;
}
