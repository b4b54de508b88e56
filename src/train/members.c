#include "train/members.h"
#include "base/error.h"
#include "base/host.h"
#include "hash/hash.h"
#include "train/checkpoint.h"
#include "train/coordinator.h"
#include "train/worker.h"

#include <fcntl.h>
#include <lockstep/split.h>
#include <lockstep/version.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SILENCE_S 30          /* cluster.deadline_s 0 */
#define OPEN_NS 120000000000u /* for the others to come */

/* ---- joining -------------------------------------------------------------------------------- */

/* NULL: this process is alone. */
static int choose_engine(const ls_wire_type **out, const struct ls_trainer *t, ls_error *err)
{
    const ls_trainer_options *o = &t->options;
    const char *names[] = {NULL, NULL, "mpi"}; /* as in ls_cluster_engine */
    ls_error why;
    *out = o->wire;
    if (o->wire)
        return LS_OK;
    const char *name = names[t->config.cluster.engine];
    if (t->config.cluster.engine == LS_ENGINE_AUTO && (o->comm || o->launched > 1))
        name = "mpi";
    if (!name)
        return LS_OK;
    int status = ls_wire_load(out, name, &why);
    if (status && o->launched > 1)
        return ls_fail(err, LS_EUNSUPPORTED,
                       "started as %d processes, which would train each for itself: %.300s (%s); "
                       "build with -D LOCKSTEP_MPI=ON, or say --set cluster.engine=none if that is "
                       "meant",
                       o->launched, why.text, status == LS_ENOENT ? "absent" : "broken");
    if (status && err)
        *err = why;
    return status;
}

int ls_members_open(struct ls_trainer *t, ls_error *err)
{
    const double silence_s =
        t->config.cluster.deadline_s > 0 ? t->config.cluster.deadline_s : SILENCE_S;
    ls_cluster_options o = {.comm = t->options.comm,
                            .deadline_ns = (uint64_t)(silence_s * 1e9),
                            .open_ns = OPEN_NS,
                            .asks = &t->stop,
                            .host = t->host};
    ls_members *m = &t->members;
    *m = (ls_members){.count = 1, .stop_behind = UINT64_MAX};
    int status = choose_engine(&o.type, t, err);
    if (status || !o.type)
        return status;
    status = ls_cluster_open(&m->cluster, &o, err);
    if (status)
        return status;
    m->member = ls_cluster_member(m->cluster);
    m->count = ls_cluster_members(m->cluster);
    if (m->count > 1)
        return LS_OK;
    ls_cluster_close(m->cluster); /* one process, whoever started it */
    m->cluster = NULL;
    if (t->options.launched > 1)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "started as %d processes that do not find each other, and would train each for "
            "itself: start them with the mpirun of the MPI that liblockstep-mpi.so was built "
            "with, or with srun --mpi=pmix; or say --set cluster.engine=none if that is meant",
            t->options.launched);
    return LS_OK;
}

int ls_members_close(struct ls_trainer *t)
{
    if (!t->members.cluster)
        return LS_OK;
    if (t->life == LS_OPENED)
        ls_cluster_leave(t->members.cluster, "it did not start");
    ls_free(t->host, t->members.device);
    t->members.device = NULL;
    t->members.devices = 0;
    return ls_cluster_close(t->members.cluster);
}

bool ls_members_first(const struct ls_trainer *t)
{
    return t->members.member == 0;
}

void ls_members_span(const struct ls_trainer *t, int *lo, int *hi)
{
    *lo = 0;
    *hi = t->shards;
    if (t->members.cluster)
        ls_cluster_span(t->members.cluster, t->shards, t->members.member, lo, hi);
}

int ls_members_shards(const struct ls_trainer *t, int shards)
{
    int lo = 0, hi = shards;
    if (t->members.cluster)
        ls_cluster_span(t->members.cluster, shards, t->members.member, &lo, &hi);
    return hi > lo ? hi - lo : 1;
}

/* ---- the start ------------------------------------------------------------------------------ */

int ls_members_share_text(char **text, struct ls_trainer *t, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    uint64_t bytes = *text ? strlen(*text) : 0;
    int status = ls_cluster_share(c, &bytes, sizeof bytes, err);
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
    char text[160];
    if (!t->members.cluster)
        return LS_OK;
    int status = ls_cluster_share(t->members.cluster, &shards, sizeof shards, err);
    if (status == LS_OK && t->config.shards <= 0)
        t->config.shards = shards;
    if (status || t->config.shards >= t->members.count)
        return status;
    snprintf(text, sizeof text, "%d hosts need a shard each: set shards to at least %d%s",
             t->members.count, t->members.count,
             t->config.shards == 0 ? "; \"devices\" is for one host" : "");
    return ls_config_fail(err, &t->config, "shards", LS_ECONFIG, text);
}

typedef struct beginning {
    ls_position position;
    uint64_t steps;
    int epochs, goes_on;
    double test_loss, test_accuracy, seconds_per_epoch;
} beginning;

int ls_members_share_start(struct ls_trainer *t, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    const size_t bytes = t->model->floats * sizeof(float);
    ls_result *r = &t->result;
    beginning b = {0};
    if (!c)
        return LS_OK;
    b = (beginning){.position = t->position,
                    .steps = r->steps,
                    .epochs = r->epochs,
                    .goes_on = t->dir.resumed != NULL,
                    .test_loss = r->test_loss,
                    .test_accuracy = r->test_accuracy,
                    .seconds_per_epoch = r->seconds_per_epoch};
    int status = ls_cluster_share(c, &b, sizeof b, err);
    if (status == LS_OK)
        status = ls_cluster_share(c, t->exchange->canonical, bytes, err);
    for (int i = 0; status == LS_OK && b.goes_on && i < LS_STATES; i++)
        if (t->exchange->slot[i])
            status = ls_cluster_share(c, t->exchange->slot[i], bytes, err);
    t->members.goes_on = b.goes_on;
    t->position = b.position;
    r->steps = b.steps;
    r->epochs = b.epochs;
    r->test_loss = b.test_loss;
    r->test_accuracy = b.test_accuracy;
    r->seconds_per_epoch = b.seconds_per_epoch;
    return status;
}

/* ---- the start-up check --------------------------------------------------------------------- */

/* What a member says of its run … */
typedef struct likeness {
    char version[16];
    uint64_t train_rows, test_rows;
    uint32_t data_crc32, recipe_crc32;
} likeness;

/* … and of itself. */
typedef struct card {
    char isa[48], library[160], devices[1024], machine[128];
    uint32_t gradient_crc32;
    int32_t chosen, threads;
} card;

/* What the members have to have alike: what the weights depend on, how often all meet otherwise, what they then
 * send, and when all stop. */
static int hash_recipe(uint32_t *out, const struct ls_trainer *t, ls_error *err)
{
    const ls_config *c = &t->config;
    const int32_t common[] = {c->epochs,   c->eval_every, c->verify_every_steps,
                              c->patience, c->monitor,    (int32_t)c->metrics};
    size_t length = 0;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, t->host);
    ls_config_write_recipe(&w, NULL, c, t->shards);
    const char *text = ls_json_writer_text(&w, &length, err);
    *out = text ? ls_crc32(ls_crc32(0, common, sizeof common), text, length) : 0;
    ls_json_writer_fini(&w);
    return text ? LS_OK : LS_ENOMEM;
}

/* What of member m's is another's than the first's, the likelier cause first. */
static int compare_likeness(const struct ls_trainer *t, const likeness *all, int m, ls_error *err)
{
    const likeness *a = &all[0], *b = &all[m];
    const char *first = ls_cluster_host(t->members.cluster, 0);
    const char *host = ls_cluster_host(t->members.cluster, m);
    if (strcmp(a->version, b->version) != 0)
        return ls_fail(err, LS_EUNSUPPORTED, "host %s has Lockstep %s, host %s %s: install one",
                       host, b->version, first, a->version);
    if (a->recipe_crc32 != b->recipe_crc32)
        return ls_fail(err, LS_ECONFIG,
                       "host %s has another recipe than host %s (or other epochs, eval_every, "
                       "verify_every_steps, patience, monitor or metrics.names): give all the same "
                       "config",
                       host, first);
    if (a->train_rows != b->train_rows || a->test_rows != b->test_rows ||
        a->data_crc32 != b->data_crc32)
        return ls_fail(
            err, LS_EDATA,
            "host %s has other data than host %s: %llu and %llu images, checksum %08x, not "
            "%llu and %llu, %08x; copy it from one to the other",
            host, first, (unsigned long long)b->train_rows, (unsigned long long)b->test_rows,
            (unsigned)b->data_crc32, (unsigned long long)a->train_rows,
            (unsigned long long)a->test_rows, (unsigned)a->data_crc32);
    return LS_OK;
}

static int compare_all(struct ls_trainer *t, likeness *all, ls_error *err)
{
    likeness *mine = &all[t->members.member];
    snprintf(mine->version, sizeof mine->version, "%s", LS_VERSION);
    mine->train_rows = ls_subset_rows(t, LS_TRAIN);
    mine->test_rows = ls_subset_rows(t, LS_TEST);
    mine->data_crc32 = ls_data_crc32(t);
    int status = hash_recipe(&mine->recipe_crc32, t, err);
    if (status == LS_OK)
        status = ls_cluster_gather(t->members.cluster, all, sizeof *all, err);
    for (int m = 1; m < t->members.count && status == LS_OK; m++)
        status = compare_likeness(t, all, m, err);
    return status;
}

int ls_members_compare(struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster)
        return LS_OK;
    likeness *all = ls_alloc_array(t->host, (size_t)t->members.count, sizeof *all);
    int status = all ? compare_all(t, all, err)
                     : ls_fail(err, LS_ENOMEM, "out of memory for the start-up check");
    ls_free(t->host, all);
    return status;
}

static void list_devices(char *out, size_t size, const struct ls_trainer *t)
{
    size_t used = 0;
    for (int w = 0; w < t->workers && used < size; w++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", w ? ", " : "",
                                 t->worker[w].info.name);
}

/* Its name, and what tells two of one name apart: the number that the kernel drew when it booted. */
static void read_machine(char *out, size_t size)
{
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char boot[40] = "";
    if (file >= 0 && read(file, boot, sizeof boot - 1) < 0)
        boot[0] = '\0';
    if (file >= 0)
        close(file);
    gethostname(out, size / 2);
    out[size / 2 - 1] = '\0';
    strcat(out, boot);
}

static int fill_card(card *mine, struct ls_trainer *t, ls_error *err)
{
    memset(mine, 0, sizeof *mine);
    const ls_device_info *info = &t->worker[0].info;
    /* Where bits depend on none, the model's name still says which there is. */
    const char *named = strrchr(info->model, ',');
    snprintf(mine->isa, sizeof mine->isa, "%s", info->isa[0] || !named ? info->isa : named + 2);
    snprintf(mine->library, sizeof mine->library, "%s", info->library);
    list_devices(mine->devices, sizeof mine->devices, t);
    read_machine(mine->machine, sizeof mine->machine);
    mine->threads = info->threads;
    mine->chosen = t->options.pool || strcmp(t->config.devices, "auto") != 0;
    int status = ls_gang(t, ls_worker_probe, err);
    mine->gradient_crc32 = t->worker[0].checksum;
    return status;
}

static int compare_gradients(const struct ls_trainer *t, const card *all, int m, ls_error *err)
{
    const card *a = &all[0], *b = &all[m];
    if (a->gradient_crc32 == b->gradient_crc32)
        return LS_OK;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "host %s computed shard 0 as %08x, host %s as %08x: %s (%s, %d threads) and %s "
                   "(%s, %d threads); their bits differ",
                   ls_cluster_host(t->members.cluster, m), (unsigned)b->gradient_crc32,
                   ls_cluster_host(t->members.cluster, 0), (unsigned)a->gradient_crc32, b->isa,
                   b->library, (int)b->threads, a->isa, a->library, (int)a->threads);
}

/* Two processes of one machine would take the same CPUs, unless they were told which. */
static int check_places(const struct ls_trainer *t, const card *all, ls_error *err)
{
    const struct ls_cluster *c = t->members.cluster;
    for (int m = 0; m < t->members.count; m++)
        for (int k = 0; k < m; k++)
            if (strcmp(all[m].machine, all[k].machine) == 0 && (!all[m].chosen || !all[k].chosen))
                return ls_fail(
                    err, LS_EUNSUPPORTED,
                    "two processes on host %s: start one per host (mpirun -N 1), or give "
                    "each its --devices",
                    ls_cluster_host(c, k));
    return LS_OK;
}

static void say_devices(struct ls_trainer *t, const card *all)
{
    char *out = t->text.devices;
    size_t used = 0, size = sizeof t->text.devices;
    for (int m = 0; m < t->members.count && used < size; m++)
        used += (size_t)snprintf(out + used, size - used, "%s%s: %s", m ? "; " : "[",
                                 ls_cluster_host(t->members.cluster, m), all[m].devices);
    snprintf(out + (used < size - 2 ? used : size - 2), 2, "]");
}

/* How many names, "cpu(0), cpu(1)", and, with `out`, each of them. */
static int split_names(char (*out)[LS_MEMBER_NAME + 64], const char *host, const char *names)
{
    int count = 0;
    for (const char *at = names; *at; count++) {
        const size_t length = strcspn(at, ",");
        if (out)
            snprintf(out[count], sizeof *out, "%s: %.*s", host, length < 60 ? (int)length : 60, at);
        at += length + strspn(at + length, ", ");
    }
    return count;
}

static int list_all(struct ls_trainer *t, const card *all, ls_error *err)
{
    ls_members *m = &t->members;
    int count = 0;
    for (int i = 0; i < m->count; i++)
        count += split_names(NULL, "", all[i].devices);
    m->device = ls_alloc_array(t->host, (size_t)count, sizeof *m->device);
    ls_free(t->host, t->records.device);
    t->records.device = ls_alloc_array(t->host, (size_t)count, sizeof *t->records.device);
    if (!m->device || !t->records.device)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d names", count);
    for (int i = 0; i < m->count; i++) {
        m->own = i == m->member ? m->devices : m->own;
        m->devices +=
            split_names(m->device + m->devices, ls_cluster_host(m->cluster, i), all[i].devices);
    }
    return LS_OK;
}

static int check_all(struct ls_trainer *t, card *all, ls_error *err)
{
    int status = fill_card(&all[t->members.member], t, err);
    if (status == LS_OK)
        status = ls_cluster_gather(t->members.cluster, all, sizeof *all, err);
    if (status == LS_OK)
        status = check_places(t, all, err);
    for (int m = 1; m < t->members.count && status == LS_OK; m++)
        status = compare_gradients(t, all, m, err);
    if (status)
        return status;
    say_devices(t, all);
    return list_all(t, all, err);
}

/* How much more than needed goes over the network. */
static void warn(const struct ls_trainer *t)
{
    const double factor = ls_cluster_bytes_factor(t->members.cluster);
    int better = t->members.count;
    while (better < t->shards)
        better *= 2;
    if (factor > 1 && ls_members_first(t))
        ls_log(t->host, LS_LOG_INFO,
               "%d shards over %d hosts send %.2f times the bytes of a ring; shards: %d would send "
               "1.00 times",
               t->shards, t->members.count, factor, better);
}

/* Open MPI confines each process of a few to one CPU, unless it is told not to. */
static void warn_of_binding(const struct ls_trainer *t)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (ls_allowed_cpus() == 1 && cpus > 1)
        ls_log(t->host, LS_LOG_WARNING,
               "this process may use 1 of %ld CPUs: if mpirun bound it, add --bind-to none", cpus);
}

int ls_members_check(struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster)
        return LS_OK;
    card *all = ls_alloc_array(t->host, (size_t)t->members.count, sizeof *all);
    int status = all ? check_all(t, all, err)
                     : ls_fail(err, LS_ENOMEM, "out of memory for the start-up check");
    ls_free(t->host, all);
    if (status == LS_OK && !t->merge->over_members) {
        char text[200];
        snprintf(text, sizeof text,
                 "'%.60s' works within one host; over several use \"ordered\", on CPUs",
                 t->config.allreduce);
        return ls_config_fail(err, &t->config, "allreduce", LS_ECONFIG, text);
    }
    if (status == LS_OK)
        status = ls_cluster_prepare(t->members.cluster, t->shards,
                                    ls_replica_floats(t->worker[0].replica), err);
    if (status == LS_OK)
        warn(t);
    warn_of_binding(t);
    return status;
}

/* ---- on the way ----------------------------------------------------------------------------- */

int ls_members_share_bad(ls_bad_shard *bad, struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster)
        return LS_OK;
    ls_bad_shard *all = ls_alloc_array(t->host, (size_t)t->members.count, sizeof *all);
    if (!all)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d hosts", t->members.count);
    all[t->members.member] = *bad;
    int status = ls_cluster_gather(t->members.cluster, all, sizeof *all, err);
    for (int m = t->members.count - 1; m >= 0 && status == LS_OK; m--)
        *bad = all[m].shard >= 0 ? all[m] : *bad;
    ls_free(t->host, all);
    return status;
}

void ls_members_heed(struct ls_trainer *t, const struct ls_report *r)
{
    if (r->comm.asked && t->members.stop_behind == UINT64_MAX)
        t->members.stop_behind = r->step + 2; /* the step behind this one may be under way */
}

/* What a minibatch's shards `lo` … `hi` − 1 have brought to an evaluation. */
typedef struct brought {
    ls_tally *tally;
    float *scores;          /* NULL: not wanted */
    size_t tallies, scored; /* how many bytes */
} brought;

static brought brought_by(const ls_sharded_rows *r, uint64_t minibatch, int lo, int hi)
{
    const uint64_t begin = minibatch * r->batch, left = r->rows - begin;
    const uint32_t n = left < r->batch ? (uint32_t)left : r->batch;
    uint32_t first, last, count;
    ls_split(n, r->shards, (uint32_t)lo, &first, &count);
    ls_split(n, r->shards, (uint32_t)(hi - 1), &last, &count);
    const size_t classes = (size_t)r->classes;
    return (brought){.tally = r->tally + minibatch * r->shards + lo,
                     .scores = r->scores ? r->scores + (begin + first) * classes : NULL,
                     .tallies = (size_t)(hi - lo) * sizeof *r->tally,
                     .scored = r->scores ? (last + count - first) * classes * sizeof(float) : 0};
}

static void move(void *own, char *packed, size_t bytes, bool unpack)
{
    if (bytes > 0)
        memcpy(unpack ? own : packed, unpack ? packed : own, bytes);
}

/* What a member's shards have brought lies side by side on its way, minibatch by minibatch. `packed` NULL: nothing
 * is moved. Returns its bytes. */
static size_t pack(const ls_sharded_rows *r, char *packed, int lo, int hi, bool unpack)
{
    const uint64_t minibatches = ((uint64_t)r->rows + r->batch - 1) / r->batch;
    size_t bytes = 0;
    for (uint64_t b = 0; b < minibatches && hi > lo; b++) {
        const brought m = brought_by(r, b, lo, hi);
        if (packed) {
            move(m.tally, packed + bytes, m.tallies, unpack);
            move(m.scores, packed + bytes + m.tallies, m.scored, unpack);
        }
        bytes += m.tallies + m.scored;
    }
    return bytes;
}

static int gather_packed(struct ls_trainer *t, char *all, void **part, size_t *bytes, ls_error *err)
{
    const ls_sharded_rows *r = &t->exchange->test;
    int lo, hi;
    for (int m = 0; m < t->members.count; m++) {
        ls_cluster_span(t->members.cluster, t->shards, m, &lo, &hi);
        part[m] = all;
        bytes[m] = pack(r, NULL, lo, hi, false);
        all += bytes[m];
        if (m == t->members.member)
            pack(r, part[m], lo, hi, false);
    }
    int status = ls_cluster_gather_parts(t->members.cluster, part, bytes, err);
    for (int m = 0; m < t->members.count && status == LS_OK; m++) {
        ls_cluster_span(t->members.cluster, t->shards, m, &lo, &hi);
        pack(r, part[m], lo, hi, true);
    }
    return status;
}

int ls_members_gather_evaluation(struct ls_trainer *t, ls_error *err)
{
    const ls_sharded_rows *r = &t->exchange->test;
    const size_t count = (size_t)t->members.count;
    if (!t->members.cluster)
        return LS_OK;
    char *all = ls_alloc(t->host, pack(r, NULL, 0, t->shards, false) + 1);
    void **part = ls_alloc_array(t->host, count, sizeof *part);
    size_t *bytes = ls_alloc_array(t->host, count, sizeof *bytes);
    int status = all && part && bytes ? gather_packed(t, all, part, bytes, err)
                                      : ls_fail(err, LS_ENOMEM, "out of memory for an evaluation");
    ls_free(t->host, bytes);
    ls_free(t->host, part);
    ls_free(t->host, all);
    return status;
}

/* ---- the end -------------------------------------------------------------------------------- */

typedef struct ending {
    char weights[LS_SHA256_HEX];
    int32_t saved;
} ending;

static int compare_endings(struct ls_trainer *t, const ending *all, ls_error *err)
{
    for (int m = 1; m < t->members.count; m++)
        if (strcmp(all[m].weights, all[0].weights) != 0)
            return ls_fail(
                err, LS_EDIVERGED,
                "host %s ends with other weights than host %s (%.8s…, %.8s…): a device or "
                "its memory is faulty; resume from an older checkpoint",
                ls_cluster_host(t->members.cluster, m), ls_cluster_host(t->members.cluster, 0),
                all[m].weights, all[0].weights);
    t->result.saved = all[0].saved;
    return LS_OK;
}

/* All have ended alike, behind the same step, or this one leaves. */
int ls_members_end(struct ls_trainer *t, int status, ls_error *err)
{
    struct ls_cluster *c = t->members.cluster;
    if (!c)
        return LS_OK;
    if (status != LS_OK && status != LS_EINTERRUPTED && status != LS_ENONFINITE) {
        ls_cluster_leave(c, err->text);
        return LS_OK;
    }
    ending *all = ls_alloc_array(t->host, (size_t)t->members.count, sizeof *all);
    if (!all)
        return ls_fail(err, LS_ENOMEM, "out of memory for the end");
    ending *mine = &all[t->members.member];
    memcpy(mine->weights, t->result.weights_sha256, sizeof mine->weights);
    mine->saved = t->result.saved;
    int ended = ls_cluster_gather(c, all, sizeof *all, err);
    if (ended == LS_OK)
        ended = compare_endings(t, all, err);
    ls_free(t->host, all);
    return ended;
}
