/* Saving checkpoints (checkpoint.h) while a run goes on.
 *
 * While no worker is at work the weights are copied out of a replica; a thread of the saver's own then
 * writes them, and training goes on. The copy belongs to that thread until it is done: the next
 * snapshot waits for it.
 */
#include "train/saver.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "train/checkpoint.h"
#include "train/coordinator.h"
#include "train/worker.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONGEST_SAVE_NS ((uint64_t)600 * 1000000000u)

struct ls_saver {
    struct ls_trainer *t;
    ls_pool *pool;   /* the writing thread */
    char *directory; /* <run>/checkpoints */
    bool busy;       /* a save was begun and not looked at since */
    bool hangs;      /* it took too long, and is waited for no more */
    /* What is being saved; the writing thread's while it is busy. */
    const ls_exchange *exchange;
    ls_json_writer state;
    ls_sink_mark metrics;
    ls_position position;
    char name[LS_CHECKPOINT_NAME];
    uint32_t data_crc32;
    bool has_crc;
    /* What came of it. */
    int status;
    ls_error error;
    uint64_t begin_ns, end_ns;
    ls_position saved; /* the last one that succeeded */
    bool saved_any;
};

/* ---- the writing thread --------------------------------------------------------------------- */

/* The records that the checkpoint counts on are on the disk before it is. */
static int write_file(struct ls_saver *s, const char *path, ls_error *err)
{
    const struct ls_trainer *t = s->t;
    const ls_checkpoint_values values = {s->exchange->canonical, s->exchange->slot};
    const char *state = ls_json_writer_text(&s->state, NULL, err);
    int status = state ? ls_sinks_sync(&s->t->records.sinks, err) : LS_ENOMEM;
    return status ? status
                  : ls_checkpoint_write(path, t->model, &t->config.optimizer, &values, state,
                                        t->host, err);
}

/* Old ones that cannot be removed do no harm: the save itself succeeded. */
static int save(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    struct ls_saver *s = arg;
    char path[LS_PATH_BYTES];
    ls_error pruning;
    s->begin_ns = ls_now_ns();
    s->status = write_file(s, ls_path_join(path, s->directory, s->name), &s->error);
    s->end_ns = ls_now_ns();
    const ls_best *best = s->t->config.checkpoint.best ? &s->position.best : NULL;
    if (s->status == LS_OK &&
        ls_checkpoints_prune(s->directory, (size_t)s->t->config.checkpoint.keep, s->name, best,
                             s->t->host, &pruning))
        ls_log(s->t->host, LS_LOG_WARNING, "old checkpoints: %.400s", pruning.text);
    return LS_OK;
}

/* ---- waiting for it ------------------------------------------------------------------------- */

static void note_success(struct ls_saver *s)
{
    struct ls_trainer *t = s->t;
    s->saved = s->position;
    s->saved_any = true;
    snprintf(t->text.checkpoint, sizeof t->text.checkpoint, "%s/%s", s->directory, s->name);
    t->result.checkpoint = t->text.checkpoint;
}

/* Until nothing is being written. s->status, and s->error, are what came of the save that was; LS_OK: there was none. */
static int wait_until_idle(struct ls_saver *s, ls_error *err)
{
    if (!s->busy) {
        s->status = LS_OK;
        return LS_OK;
    }
    s->hangs = s->hangs || ls_pool_wait(s->pool, LONGEST_SAVE_NS, NULL) == LS_ETIMEDOUT;
    if (s->hangs)
        return ls_fail(
            err, LS_ESTALLED,
            "%.300s: writing a checkpoint has taken longer than %d s; is the disk there?",
            s->directory, (int)(LONGEST_SAVE_NS / 1000000000u));
    s->busy = false;
    ls_trace_span(s->t->trace, LS_TRACK_SAVER, "write a checkpoint", s->begin_ns, s->end_ns,
                  s->position.steps);
    if (s->status == LS_OK)
        note_success(s);
    return LS_OK;
}

/* The save under way, if there is one. Where it failed the run goes on, and the next one may succeed. */
static int finish_save(struct ls_saver *s, ls_error *err)
{
    int status = wait_until_idle(s, err);
    if (status == LS_OK && s->status)
        ls_log(s->t->host, LS_LOG_WARNING, "a checkpoint could not be saved: %.400s",
               s->error.text);
    return status;
}

int ls_saver_rest(struct ls_trainer *t)
{
    return t->dir.saver ? finish_save(t->dir.saver, NULL) : LS_OK;
}

/* ---- snapshots ------------------------------------------------------------------------------ */

/* With three or more, the odd one out; with two it cannot be told. */
static int compare_checksums(const struct ls_trainer *t, ls_error *err)
{
    const int first = ls_first_worker(t, LS_LIVE);
    char list[300] = "";
    size_t used = 0;
    bool differ = false;
    for (int w = first; w < t->workers && used < sizeof list; w++) {
        const ls_train_worker *worker = &t->worker[w];
        if (worker->presence != LS_LIVE)
            continue;
        differ |= worker->checksum != t->worker[first].checksum;
        used += (size_t)snprintf(list + used, sizeof list - used, "%sworker %d %08x",
                                 used ? ", " : "", w, (unsigned)worker->checksum);
    }
    if (!differ)
        return LS_OK;
    return ls_fail(
        err, LS_EDIVERGED,
        "after step %llu the replicas are no longer equal (checksums: %s); a device or its "
        "memory is faulty; resume from a checkpoint before that",
        (unsigned long long)t->position.steps, list);
}

int ls_snapshot_replicas(struct ls_trainer *t, bool exports, ls_error *err)
{
    int status = exports && t->dir.saver ? finish_save(t->dir.saver, err) : LS_OK;
    t->exchange->exporter = exports ? ls_first_worker(t, LS_LIVE) : -1;
    t->exchange->steps = t->position.steps;
    if (status == LS_OK)
        status = ls_gang(t, ls_worker_snapshot, err);
    return status ? status : compare_checksums(t, err);
}

/* ---- saving --------------------------------------------------------------------------------- */

static bool same_position(const ls_position *a, const ls_position *b)
{
    return a->steps == b->steps && a->epoch == b->epoch && a->recorded == b->recorded &&
           a->best.epoch == b->best.epoch && a->best.steps == b->best.steps &&
           a->best.waited == b->best.waited;
}

static int describe(struct ls_saver *s, ls_error *err)
{
    struct ls_trainer *t = s->t;
    s->metrics = (ls_sink_mark){0};
    int status = ls_sinks_flush(&t->records.sinks, err);
    if (status == LS_OK && t->dir.metrics)
        status = ls_sink_jsonl_flush(t->dir.metrics, &s->metrics, err);
    if (status)
        return status;
    if (!s->has_crc)
        s->data_crc32 = ls_data_crc32(t);
    s->has_crc = true;
    s->exchange = t->exchange;
    s->position = t->position;
    ls_json_writer_reset(&s->state);
    ls_state_write(&s->state, t, &s->metrics, s->data_crc32);
    return LS_OK;
}

int ls_checkpoint(struct ls_trainer *t, bool wait, ls_error *err)
{
    struct ls_saver *s = t->dir.saver;
    int status = finish_save(s, err);
    if (status || (s->saved_any && same_position(&s->saved, &t->position)))
        return status;
    status = describe(s, err);
    ls_checkpoint_name(s->name, t->position.steps);
    if (status == LS_OK)
        status = ls_pool_submit(s->pool, 0, save, s, err);
    if (status)
        return status;
    s->busy = true;
    if (!wait)
        return t->config.checkpoint.async ? LS_OK : finish_save(s, err);
    status = wait_until_idle(s, err);
    if (status)
        return status;
    return s->status ? ls_fail(err, s->status, "%s", s->error.text) : LS_OK;
}

void ls_saver_forget(struct ls_trainer *t)
{
    if (t->dir.saver)
        t->dir.saver->saved_any = false;
}

const char *ls_saver_best(struct ls_trainer *t)
{
    char name[LS_CHECKPOINT_NAME];
    if (!t->dir.saver || !t->config.checkpoint.best || t->position.best.epoch == 0)
        return NULL;
    ls_checkpoint_name(name, t->position.best.steps);
    snprintf(t->text.best, sizeof t->text.best, "%s/checkpoints/%s", t->dir.path, name);
    return access(t->text.best, F_OK) == 0 ? t->text.best : NULL;
}

int ls_saver_displace_best(struct ls_trainer *t, ls_error *err)
{
    int status = t->dir.saver && t->config.checkpoint.best ? finish_save(t->dir.saver, err) : LS_OK;
    if (status == LS_OK && ls_saver_best(t))
        t->position.best.kept = t->position.best.steps;
    return status;
}

/* ---- elsewhere ------------------------------------------------------------------------------ */

int ls_checkpoint_at(struct ls_trainer *t, const char *path, ls_error *err)
{
    struct stat st;
    struct ls_saver s = {.t = t};
    if (!*path || path[strlen(path) - 1] == '/' || (stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return ls_fail(err, LS_EINVAL,
                       "\"%.300s\": expected the name of a file, such as saves/one.safetensors, "
                       "found a directory's",
                       path);
    ls_json_writer_init(&s.state, 0, t->host);
    int status = describe(&s, err);
    if (status == LS_OK)
        status = write_file(&s, path, err);
    ls_json_writer_fini(&s.state);
    return status;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* A link in the place of the directory would lead checkpoints, and the pruning of old ones, elsewhere. */
static int make_directory(const char *path, ls_error *err)
{
    struct stat st;
    int made;
    if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return ls_fail(err, LS_EIO,
                       "%.300s: is no directory; links are not followed for writing: put the "
                       "directory itself there, or choose another run_dir",
                       path);
    return ls_make_directory(path, &made, err);
}

int ls_saver_create(struct ls_trainer *t, ls_error *err)
{
    char path[LS_PATH_BYTES];
    if (!t->dir.path)
        return LS_OK;
    struct ls_saver *s = ls_alloc(t->host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "out of memory for checkpoints");
    ls_pool_options o = {.size = sizeof o, .workers = 1, .name = "saver", .host = t->host};
    s->t = t;
    ls_json_writer_init(&s->state, 0, t->host);
    int status =
        ls_path_copy(&s->directory, ls_path_join(path, t->dir.path, "checkpoints"), t->host, err);
    if (status == LS_OK)
        status = make_directory(s->directory, err);
    if (status == LS_OK)
        status = ls_pool_create(&s->pool, &o, err);
    if (status)
        ls_saver_destroy(s);
    else
        t->dir.saver = s;
    return status;
}

int ls_saver_destroy(struct ls_saver *s)
{
    if (!s)
        return LS_OK;
    int status = ls_pool_destroy_within(s->pool, s->hangs ? 0 : LONGEST_SAVE_NS, NULL);
    if (status)
        return status;
    ls_json_writer_fini(&s->state);
    ls_free(s->t->host, s->directory);
    ls_free(s->t->host, s);
    return LS_OK;
}
