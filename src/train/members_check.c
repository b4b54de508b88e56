/* SPDX-License-Identifier: MIT */
/* The comparison of several hosts, before the first step of a run, and when a host is admitted to a
 * run. The members must have the same recipe and the same data. Their devices must be of the same
 * kind if results depend on the kind. One shard must have the same gradient on all hosts. */
#include "base/error.h"
#include "base/host.h"
#include "engine/feed.h"
#include "engine/view.h"
#include "hash/hash.h"
#include "train/coordinator.h"
#include "train/members.h"

#include <fcntl.h>
#include <lockstep/version.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the start-up check --------------------------------------------------------------------- */

/* Data about a member's host that all members receive. Some are compared, the others are listed. */
typedef struct host_facts {
    char isa[48], library[160], devices[1024], machine[128];
    uint32_t gradient_crc32;
    int32_t chosen, /* 1: the config or the caller names the devices */
        threads;    /* threads of one worker */
} host_facts;

/* Computes a checksum of the settings that must be the same on all members. The weights depend on
 * the recipe; the numbers in `common` determine when members exchange which data, and when they
 * stop. */
static int hash_recipe(uint32_t *out, const struct ls_trainer *t, int shards, ls_error *err)
{
    const ls_config *c = &t->config;
    const int32_t common[] = {
        c->epochs,  c->eval_every,       c->verify_every_steps,    c->patience,
        c->monitor, (int32_t)c->metrics, c->cluster.survives_loss, c->cluster.admits};
    size_t length = 0;
    ls_json_writer w;
    ls_json_writer_init(&w, 0, t->host);
    ls_config_write_recipe(&w, NULL, c, shards);
    const char *text = ls_json_writer_text(&w, &length, err);
    *out = text ? ls_crc32(ls_crc32(0, common, sizeof common), text, length) : 0;
    ls_json_writer_fini(&w);
    return text ? LS_OK : LS_ENOMEM;
}

int ls_members_fingerprint(ls_fingerprint *out, const struct ls_trainer *t, int shards,
                           ls_error *err)
{
    memset(out, 0, sizeof *out); /* zeroes the padding, which is sent too */
    snprintf(out->version, sizeof out->version, "%s", LS_VERSION);
    out->train_rows = ls_dataset_rows(t->data[LS_TRAIN]);
    out->test_rows = ls_dataset_rows(t->data[LS_TEST]);
    out->data_crc32 = ls_data_crc32(t->data);
    return hash_recipe(&out->recipe_crc32, t, shards, err);
}

/* Compares the fingerprint `b` of `host` with the fingerprint `a` of the host `first`. Reports only
 * the first difference, in the order version, recipe, data, because a different version can cause
 * the others. */
static int compare_prints(const ls_fingerprint *a, const char *first, const ls_fingerprint *b,
                          const char *host, ls_error *err)
{
    if (strcmp(a->version, b->version) != 0)
        return ls_fail(
            err, LS_EUNSUPPORTED,
            "host %s has Lockstep %s, but host %s has %s: install the same version on all "
            "hosts",
            host, b->version, first, a->version);
    if (a->recipe_crc32 != b->recipe_crc32)
        return ls_fail(err, LS_ECONFIG,
                       "host %s has another recipe than host %s (or other epochs, eval_every, "
                       "verify_every_steps, patience, monitor, metrics.names, "
                       "cluster.on_host_loss or cluster.on_arrival): give all the same config",
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

int ls_members_refuse(void *trainer, const char *host, const void *print, size_t bytes, char *why,
                      size_t size)
{
    const struct ls_trainer *t = trainer;
    ls_fingerprint theirs;
    char own[LS_MEMBER_NAME] = "";
    ls_error err = {.text = "its config and data are not known: start it without --resume"};
    int status = LS_EUNSUPPORTED;
    if (bytes == sizeof theirs) {
        memcpy(&theirs, print, sizeof theirs);
        theirs.version[sizeof theirs.version - 1] = '\0';
        gethostname(own, sizeof own - 1);
        status = compare_prints(&t->members.print, own, &theirs, host, &err);
    }
    if (status)
        snprintf(why, size, "%s", err.text);
    return status != LS_OK;
}

static int compare_all(struct ls_trainer *t, ls_error *err)
{
    const struct ls_cluster *c = t->members.cluster;
    ls_fingerprint own;
    int status = ls_members_fingerprint(&own, t, ls_engine_shards(t->engine), err);
    if (status)
        return status;
    /* The cluster's progress thread reads t->members.print only after ls_cluster_regroups, or after
     * a join before which the print was set (has_print). So no other thread reads the print while
     * it is written here. */
    if (!t->members.has_print)
        t->members.print = own;
    t->members.has_print = true;
    ls_fingerprint *all = ls_members_gather(&status, t, &own, sizeof own, err);
    for (int m = 1; m < t->members.count && status == LS_OK; m++) {
        /* ends the text, because it comes from another process */
        all[m].version[sizeof all->version - 1] = '\0';
        status =
            compare_prints(&all[0], ls_cluster_host(c, 0), &all[m], ls_cluster_host(c, m), err);
    }
    ls_free(t->host, all);
    return status;
}

int ls_members_compare(struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster)
        return LS_OK;
    if (t->config.cluster.admits && !ls_cluster_can_admit(t->members.cluster))
        return ls_config_fail(
            err, &t->config, "cluster.on_arrival", LS_ECONFIG,
            "\"admit\" needs a transport that can admit processes, and the transport of this run "
            "(mpi, whose launcher starts all processes at once, or the caller's own) cannot: start "
            "the processes with --listen and --join, or set it to \"refuse\"");
    if (t->config.cluster.survives_loss && !ls_cluster_can_regroup(t->members.cluster))
        return ls_config_fail(
            err, &t->config, "cluster.on_host_loss", LS_ECONFIG,
            "\"continue\" needs a transport that can regroup, and the transport of this run (mpi, "
            "or the caller's own) cannot: start the processes with --join, or set it to "
            "\"stop\", and continue with --resume after the loss of a host");
    return compare_all(t, err);
}

/* ---- the workers ---------------------------------------------------------------------------- */

static const ls_device_info *info_of(const struct ls_trainer *t, int worker)
{
    return ls_engine_worker(t->engine, worker).info;
}

/* Writes a text with the properties of a device on which results depend. All CPUs get the same
 * text, because their gradients are compared later instead. */
static void describe(char *out, size_t size, const ls_device_info *info)
{
    const bool own = !(info->flags & LS_DEVICE_HOST_MEMORY);
    snprintf(out, size, own ? "%s, %s, %s" : "CPUs", info->model, info->isa, info->library);
}

enum { KIND = 256 };

static int check_own_kind(const struct ls_trainer *t, const char *mine, ls_error *err)
{
    char other[KIND];
    for (int w = 1; w < ls_engine_workers(t->engine); w++) {
        describe(other, sizeof other, info_of(t, w));
        if (strcmp(other, mine) != 0)
            return ls_fail(
                err, LS_EUNSUPPORTED,
                "%s is a %s, but %s is a %s: in a run over several hosts all devices must "
                "be alike",
                info_of(t, 0)->name, mine, info_of(t, w)->name, other);
    }
    return LS_OK;
}

void ls_members_warn_of_kinds(const struct ls_trainer *t)
{
    char first[KIND], other[KIND];
    describe(first, KIND, info_of(t, 0));
    for (int w = 1; w < ls_engine_workers(t->engine); w++) {
        describe(other, KIND, info_of(t, w));
        if (strcmp(other, first) == 0)
            continue;
        ls_log(t->host, LS_LOG_WARNING,
               "devices: %s is a %s, but %s is a %s: they round differently, so the bits of the "
               "weights depend on which of them computes which shard",
               info_of(t, 0)->name, first, info_of(t, w)->name, other);
        return;
    }
}

static int compare_kinds(struct ls_trainer *t, ls_error *err)
{
    char own[KIND] = "";
    describe(own, KIND, info_of(t, 0));
    int status = check_own_kind(t, own, err);
    if (status)
        return status;
    char(*all)[KIND] = ls_members_gather(&status, t, own, sizeof own, err);
    for (int m = 0; m < t->members.count && status == LS_OK; m++) {
        all[m][KIND - 1] = '\0'; /* ends the text, because it comes from another process */
        if (strcmp(all[m], all[0]) != 0)
            status =
                ls_fail(err, LS_EUNSUPPORTED,
                        "host %s computes on %s, host %s on %s: their bits differ; take devices, "
                        "drivers and libraries that are alike",
                        ls_cluster_host(t->members.cluster, m), all[m],
                        ls_cluster_host(t->members.cluster, 0), all[0]);
    }
    ls_free(t->host, all);
    return status;
}

static int open_alike(struct ls_trainer *t, ls_error *err)
{
    const bool first = ls_members_first(t);
    if (!ls_engine_worker(t->engine, 0).device->ops->choices)
        return ls_engine_run_all(t->engine, ls_worker_open, 0, err);
    int status = first ? ls_engine_run_all(t->engine, ls_worker_open, 0, err) : LS_OK;
    if (status == LS_OK && first)
        status = ls_engine_run_all(t->engine, ls_worker_choices, 0, err);
    if (status == LS_OK)
        status = ls_members_share_text(ls_engine_choices(t->engine), t, err);
    return status || first ? status : ls_engine_run_all(t->engine, ls_worker_open, 0, err);
}

int ls_members_welcome_devices(struct ls_trainer *t, ls_error *err)
{
    char *text = NULL; /* the choices of the first member; this member has its own already */
    int status = compare_kinds(t, err);
    if (status || !ls_engine_worker(t->engine, 0).device->ops->choices)
        return status;
    status =
        ls_members_share_text(ls_members_first(t) ? ls_engine_choices(t->engine) : &text, t, err);
    ls_free(t->host, text);
    return status;
}

int ls_members_open_workers(struct ls_trainer *t, ls_error *err)
{
    if (!t->members.cluster)
        return ls_engine_run_all(t->engine, ls_worker_open, 0, err);
    int status = ls_engine_run_all(t->engine, ls_worker_describe, 0, err);
    if (status == LS_OK)
        status = compare_kinds(t, err);
    return status ? status : open_alike(t, err);
}

/* ---- the comparison of one shard ------------------------------------------------------------ */

static void list_devices(char *out, size_t size, const struct ls_trainer *t)
{
    size_t used = 0;
    for (int w = 0; w < ls_engine_workers(t->engine) && used < size; w++)
        used +=
            (size_t)snprintf(out + used, size - used, "%s%s", w ? ", " : "", info_of(t, w)->name);
}

/* Writes the name of the machine, and the random id of the kernel's last boot, which distinguishes
 * machines of the same name. */
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

/* If rows are streamed, the gradient of the feed's rows is compared. At the start of a run these
 * rows are zero; when a host is admitted, this function zeroes them, so that all members compute
 * the gradient of the same rows. No step may be in progress. */
static void clear_feed(struct ls_trainer *t)
{
    ls_feed *feed = ls_engine_feed(t->engine);
    if (!feed)
        return;
    memset(feed->images, 0, feed->batch * feed->image_bytes);
    memset(feed->labels, 0, feed->batch * feed->label_bytes);
    ls_feed_reset_weights(feed);
}

/* Returns the checksum of the gradient that the first live worker has computed
 * (ls_worker_probe). */
static uint32_t probed_checksum(const struct ls_trainer *t)
{
    int w = 0;
    while (w + 1 < ls_engine_workers(t->engine) &&
           ls_engine_worker(t->engine, w).presence != LS_LIVE)
        w++;
    return ls_engine_worker(t->engine, w).checksum;
}

static int describe_host(host_facts *mine, struct ls_trainer *t, ls_error *err)
{
    memset(mine, 0, sizeof *mine);
    const ls_device_info *info = info_of(t, 0);
    /* If results do not depend on the instruction set, info->isa is empty. The instruction set is
     * then taken from the device model's name, where it follows the last comma. */
    const char *named = strrchr(info->model, ',');
    snprintf(mine->isa, sizeof mine->isa, "%s", info->isa[0] || !named ? info->isa : named + 2);
    snprintf(mine->library, sizeof mine->library, "%s", info->library);
    list_devices(mine->devices, sizeof mine->devices, t);
    read_machine(mine->machine, sizeof mine->machine);
    mine->threads = info->threads;
    mine->chosen = t->options.pool || strcmp(t->config.devices, "auto") != 0;
    clear_feed(t);
    int status = ls_engine_run_all(t->engine, ls_worker_probe, 0, err);
    mine->gradient_crc32 = probed_checksum(t);
    return status;
}

static int compare_gradients(const struct ls_trainer *t, const host_facts *all, int m,
                             ls_error *err)
{
    const host_facts *a = &all[0], *b = &all[m];
    if (a->gradient_crc32 == b->gradient_crc32)
        return LS_OK;
    return ls_fail(err, LS_EUNSUPPORTED,
                   "host %s computed shard 0 as %08x, host %s as %08x: %s (%s, %d threads) and %s "
                   "(%s, %d threads); their bits differ",
                   ls_cluster_host(t->members.cluster, m), (unsigned)b->gradient_crc32,
                   ls_cluster_host(t->members.cluster, 0), (unsigned)a->gradient_crc32, b->isa,
                   b->library, (int)b->threads, a->isa, a->library, (int)a->threads);
}

/* Fails if two processes run on one machine and the config of one of them names no devices, because
 * they then use the same CPUs. */
static int check_places(const struct ls_trainer *t, const host_facts *all, ls_error *err)
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

static void say_devices(struct ls_trainer *t, const host_facts *all)
{
    char *out = t->reported.text.devices;
    size_t used = 0, size = sizeof t->reported.text.devices;
    for (int m = 0; m < t->members.count && used < size; m++)
        used += (size_t)snprintf(out + used, size - used, "%s%s: %s", m ? "; " : "[",
                                 ls_cluster_host(t->members.cluster, m), all[m].devices);
    snprintf(out + (used < size - 2 ? used : size - 2), 2, "]");
}

/* Appends a member's devices, given as a text such as "cpu(0), cpu(1)", to the list m->device. If
 * the list is not allocated yet, only counts the devices in m->devices. */
static void add_devices(ls_members *m, int member, const char *names)
{
    for (const char *at = names; *at; m->devices++) {
        const size_t length = strcspn(at, ",");
        if (m->device) {
            ls_member_device *d = &m->device[m->devices];
            snprintf(d->name, sizeof d->name, "%s: %.*s", ls_cluster_host(m->cluster, member),
                     length < 60 ? (int)length : 60, at);
            d->origin = ls_cluster_origin(m->cluster, member);
        }
        at += length + strspn(at + length, ", ");
    }
}

static int list_all(struct ls_trainer *t, const host_facts *all, ls_error *err)
{
    ls_members *m = &t->members;
    ls_free(t->host, m->device); /* the list from before a host was admitted, if there is one */
    m->device = NULL;
    m->devices = 0;
    for (int i = 0; i < m->count; i++)
        add_devices(m, i, all[i].devices);
    const int count = m->devices;
    m->devices = 0;
    m->device = ls_alloc_array(t->host, (size_t)count, sizeof *m->device);
    ls_free(t->host, t->records.device);
    t->records.device = ls_alloc_array(t->host, (size_t)count, sizeof *t->records.device);
    if (!m->device || !t->records.device)
        return ls_fail(err, LS_ENOMEM, "out of memory for %d names", count);
    for (int i = 0; i < m->count; i++) {
        m->own = i == m->member ? m->devices : m->own;
        add_devices(m, i, all[i].devices);
    }
    m->devices_at_start = m->devices;
    return LS_OK;
}

static int check_hosts(struct ls_trainer *t, host_facts *all, ls_error *err)
{
    /* ends each text, because it comes from another process */
    for (host_facts *c = all; c < all + t->members.count; c++)
        c->isa[sizeof c->isa - 1] = c->library[sizeof c->library - 1] =
            c->devices[sizeof c->devices - 1] = c->machine[sizeof c->machine - 1] = '\0';
    int status = check_places(t, all, err);
    for (int m = 1; m < t->members.count && status == LS_OK; m++)
        status = compare_gradients(t, all, m, err);
    if (status)
        return status;
    say_devices(t, all);
    return list_all(t, all, err);
}

/* Logs a better number of shards if the present number makes members send more bytes than
 * necessary. */
static void warn_of_traffic(const struct ls_trainer *t)
{
    const double factor = ls_cluster_bytes_factor(t->members.cluster);
    int better = t->members.count;
    while (better < ls_engine_shards(t->engine))
        better *= 2;
    if (factor > 1 && ls_members_first(t))
        ls_log(t->host, LS_LOG_INFO,
               "with %d shards, %d hosts send %.2f times as many bytes as a ring all-reduce; with "
               "shards set to %d, they would send as many",
               ls_engine_shards(t->engine), t->members.count, factor, better);
}

/* Warns if this process is bound to one CPU. (Open MPI binds each process to one CPU by default if
 * there are few processes.) */
static void warn_of_binding(const struct ls_trainer *t)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (ls_allowed_cpus() == 1 && cpus > 1)
        ls_log(t->host, LS_LOG_WARNING,
               "this process may use 1 of %ld CPUs: if mpirun bound it, add --bind-to none", cpus);
}

/* Logs this member's number, and which host has the run's directory. */
static void log_members(const struct ls_trainer *t)
{
    const ls_members *m = &t->members;
    const char *first = ls_cluster_host(m->cluster, 0);
    if (ls_members_first(t))
        ls_log(t->host, LS_LOG_INFO, "host %s is the first of %d, and keeps the run", first,
               m->count);
    else
        ls_log(t->host, LS_LOG_INFO, "host %s is member %d of %d; host %s keeps the run",
               ls_cluster_host(m->cluster, m->member), m->member, m->count, first);
}

int ls_members_compare_hosts(struct ls_trainer *t, ls_error *err)
{
    host_facts own;
    int status = describe_host(&own, t, err);
    host_facts *all = status ? NULL : ls_members_gather(&status, t, &own, sizeof own, err);
    if (all)
        status = check_hosts(t, all, err);
    ls_free(t->host, all);
    return status;
}

int ls_members_check(struct ls_trainer *t, const ls_comm_type *merge, ls_error *err)
{
    if (!t->members.cluster)
        return LS_OK;
    int status = ls_members_compare_hosts(t, err);
    if (status == LS_OK && !merge->over_members)
        return ls_config_fail(err, &t->config, "allreduce", LS_ECONFIG,
                              "'%.60s' works within one host; over several use \"ordered\"",
                              t->config.allreduce);
    if (status == LS_OK)
        status = ls_cluster_prepare(t->members.cluster, ls_engine_shards(t->engine),
                                    ls_engine_floats(t->engine), err);
    if (status == LS_OK) {
        log_members(t);
        warn_of_traffic(t);
    }
    warn_of_binding(t);
    return status;
}
