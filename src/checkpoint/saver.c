/* The saver: writes checkpoints (checkpoint.h) while a run goes on.
 *
 * While no worker has work, the coordinator (the thread that runs the training) copies the weights
 * out of a replica, a worker's copy of the model. A thread of the saver then writes the copy to the
 * file, and training goes on. The copy belongs to the saver's thread until the save is done. So the
 * coordinator waits for the end of a save (ls_saver_wait) before it makes the next copy.
 */
#include "checkpoint/saver.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/host.h"
#include "pool/pool.h"
#include "store/durable.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Time in nanoseconds after which a save is considered to hang, unless ls_saver_limit sets another
 * time. */
#define LONGEST_SAVE_NS ((uint64_t)600 * 1000000000u)

struct ls_saver {
    ls_saver_desc run;
    ls_pool *pool;       /* the writing thread */
    char *directory;     /* <run>/checkpoints */
    bool busy;           /* a save was begun, and wait_until_idle has not seen its end yet */
    uint64_t longest_ns; /* time after which a save is considered to hang */
    bool hangs; /* a save took longer than `longest_ns`; no function waits for it any more */
    /* Data being saved; the writing thread owns it while `busy` is set. */
    ls_checkpoint_values values;
    ls_json_writer state;
    ls_position position;
    char name[LS_CHECKPOINT_NAME];
    uint32_t data_crc32;
    bool has_crc;
    /* Result of the save. */
    int status;
    ls_error error;
    uint64_t begin_ns, end_ns; /* times of ls_now_ns at which the save began and ended */
    /* Error of a save that was made while training went on, and has failed; status 0: none. The
     * next save clears this field. */
    ls_error unsaved;
    /* The run's standing (ls_standing: position and results) as JSON text. `standing` is the text
     * at the save that was begun last, and `saved` the text at the last save that succeeded. */
    ls_json_writer standing, saved;
    bool saved_any;  /* `saved` is valid */
    char path[4200]; /* path of the last checkpoint that was saved; "": none was */
};

/* ---- the writing thread --------------------------------------------------------------------- */

/* Syncs the metrics file, and then writes the checkpoint. The metrics file is synced first because
 * the checkpoint contains its length. */
static int write_file(const char *path, const ls_saver_desc *run, ls_json_writer *state,
                      const ls_checkpoint_values *values, ls_error *err)
{
    const char *text = ls_json_writer_text(state, NULL, err);
    int status = text ? ls_sinks_sync(run->sinks, err) : LS_ENOMEM;
    return status ? status
                  : ls_checkpoint_write(path, run->model, &run->config->optimizer, values, text,
                                        run->host, err);
}

/* The job of the writing thread: writes the checkpoint and removes old checkpoints. If an old
 * checkpoint cannot be removed, that failure is only logged, and the save is still a success. */
static int save(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    struct ls_saver *s = arg;
    char path[LS_PATH_BYTES];
    ls_error pruning;
    s->begin_ns = ls_now_ns();
    s->status = write_file(ls_path_join(path, s->directory, s->name), &s->run, &s->state,
                           &s->values, &s->error);
    s->end_ns = ls_now_ns();
    const ls_best *best = s->run.config->checkpoint.best ? &s->position.best : NULL;
    if (s->status == LS_OK &&
        ls_checkpoints_prune(s->directory, (size_t)s->run.config->checkpoint.keep, s->name, best,
                             s->run.host, &pruning))
        ls_log(s->run.host, LS_LOG_WARNING, "old checkpoints: %.400s", pruning.text);
    return LS_OK;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Waits until the save in progress, if there is one, has ended. The result of that save is then in
 * s->status and s->error. If no save was in progress, s->status is LS_OK. Errors: LS_ESTALLED (the
 * save hangs). */
static int wait_until_idle(struct ls_saver *s, ls_error *err)
{
    if (!s->busy) {
        s->status = LS_OK;
        return LS_OK;
    }
    s->hangs = s->hangs || ls_pool_wait(s->pool, s->longest_ns, NULL) == LS_ETIMEDOUT;
    if (s->hangs)
        return ls_fail(
            err, LS_ESTALLED,
            "%.300s: writing a checkpoint has taken longer than %.3g s; is the disk there?",
            s->directory, (double)s->longest_ns * 1e-9);
    s->busy = false;
    ls_trace_span(s->run.trace, LS_TRACK_SAVER, "write a checkpoint", s->begin_ns, s->end_ns,
                  "step", s->position.steps);
    if (s->status)
        return LS_OK;
    const ls_json_writer before = s->saved;
    s->saved = s->standing;
    s->standing = before;
    s->saved_any = true;
    snprintf(s->path, sizeof s->path, "%s/%s", s->directory, s->name);
    return LS_OK;
}

int ls_saver_wait(struct ls_saver *s, ls_error *err)
{
    if (!s)
        return LS_OK;
    int status = wait_until_idle(s, err);
    if (status == LS_OK && s->status) {
        s->unsaved = s->error;
        ls_log(s->run.host, LS_LOG_WARNING, "a checkpoint could not be saved: %.400s",
               s->error.text);
    }
    return status;
}

const ls_error *ls_saver_unsaved(const struct ls_saver *s)
{
    return s && s->unsaved.status ? &s->unsaved : NULL;
}

const char *ls_saver_path(const struct ls_saver *s)
{
    return s->path;
}

/* ---- saving --------------------------------------------------------------------------------- */

/* Writes a standing as text for a comparison, without its durations. Durations grow even while
 * nothing is trained; if only durations have changed, no new checkpoint is needed. */
static void write_standing(ls_json_writer *out, const ls_standing *standing)
{
    ls_standing still = *standing;
    still.position.totals.seconds = still.position.trained_s = 0;
    ls_json_writer_reset(out);
    ls_json_open_object(out, NULL);
    ls_standing_write(out, &still);
    ls_json_close(out);
}

/* Sets *same to whether the standing is the same as at the last save that succeeded, durations
 * excepted. Stores the text of the standing in s->standing. Errors: LS_ENOMEM. */
static int compare_with_saved(bool *same, struct ls_saver *s, const ls_standing *standing,
                              ls_error *err)
{
    *same = false;
    write_standing(&s->standing, standing);
    const char *now = ls_json_writer_text(&s->standing, NULL, err);
    if (!now || !s->saved_any)
        return now ? LS_OK : LS_ENOMEM;
    const char *saved = ls_json_writer_text(&s->saved, NULL, err);
    *same = saved && strcmp(saved, now) == 0;
    return saved ? LS_OK : LS_ENOMEM;
}

/* Flushes the records, and writes the run's state as JSON text. The state contains the length of
 * the metrics file after the flush. */
static int write_state(ls_json_writer *out, const ls_saver_desc *run, const ls_state *state,
                       ls_error *err)
{
    ls_state whole = *state;
    int status = ls_sinks_flush(run->sinks, &whole.metrics, err);
    if (status)
        return status;
    ls_json_writer_reset(out);
    ls_state_write(out, &whole, run->config);
    return LS_OK;
}

static int describe(struct ls_saver *s, const ls_state *state, const ls_checkpoint_values *values,
                    ls_error *err)
{
    ls_state whole = *state;
    if (!s->has_crc)
        s->data_crc32 = ls_data_crc32(s->run.data);
    s->has_crc = true;
    whole.data_crc32 = s->data_crc32;
    s->values = *values;
    s->position = state->standing.position;
    return write_state(&s->state, &s->run, &whole, err);
}

int ls_saver_save(struct ls_saver *s, const ls_state *state, const ls_checkpoint_values *values,
                  bool wait, ls_error *err)
{
    bool same = false;
    int status = ls_saver_wait(s, err);
    if (status == LS_OK)
        status = compare_with_saved(&same, s, &state->standing, err);
    if (status == LS_OK)
        s->unsaved = (ls_error){0};
    if (status || same)
        return status;
    status = describe(s, state, values, err);
    ls_checkpoint_name(s->name, state->standing.position.steps);
    if (status == LS_OK)
        status = ls_pool_submit(s->pool, 0, save, s, err);
    if (status)
        return status;
    s->busy = true;
    if (!wait)
        return s->run.config->checkpoint.async ? LS_OK : ls_saver_wait(s, err);
    status = wait_until_idle(s, err);
    if (status)
        return status;
    return s->status ? ls_fail(err, s->status, "%s", s->error.text) : LS_OK;
}

void ls_saver_forget(struct ls_saver *s)
{
    if (s)
        s->saved_any = false;
}

/* ---- saving to a file ----------------------------------------------------------------------- */

int ls_save_to_file(const char *path, const ls_saver_desc *run, const ls_state *state,
                    const ls_checkpoint_values *values, ls_error *err)
{
    char target[LS_PATH_BYTES];
    ls_json_writer text;
    ls_state whole = *state;
    int status = ls_follow_links(target, path, err);
    if (status)
        return status;
    ls_json_writer_init(&text, 0, run->host);
    whole.data_crc32 = ls_data_crc32(run->data);
    status = write_state(&text, run, &whole, err);
    if (status == LS_OK)
        status = write_file(target, run, &text, values, err);
    ls_json_writer_fini(&text);
    return status;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Creates the directory. A symbolic link in its place is refused, because it would redirect
 * checkpoints, and the removal of old ones, to another place. */
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

int ls_saver_create(struct ls_saver **out, const char *run_dir, const ls_saver_desc *run,
                    ls_error *err)
{
    char path[LS_PATH_BYTES];
    struct ls_saver *s = ls_alloc(run->host, sizeof *s);
    if (!s)
        return ls_fail(err, LS_ENOMEM, "out of memory for checkpoints");
    ls_pool_options o = {.size = sizeof o, .workers = 1, .name = "saver", .host = run->host};
    s->run = *run;
    s->longest_ns = LONGEST_SAVE_NS;
    ls_json_writer_init(&s->state, 0, run->host);
    ls_json_writer_init(&s->standing, 0, run->host);
    ls_json_writer_init(&s->saved, 0, run->host);
    int status =
        ls_path_copy(&s->directory, ls_path_join(path, run_dir, "checkpoints"), run->host, err);
    if (status == LS_OK)
        status = make_directory(s->directory, err);
    if (status == LS_OK)
        status = ls_pool_create(&s->pool, &o, err);
    if (status)
        ls_saver_destroy(s);
    else
        *out = s;
    return status;
}

void ls_saver_limit(struct ls_saver *s, uint64_t longest_ns)
{
    s->longest_ns = longest_ns;
}

int ls_saver_stop(struct ls_saver *s)
{
    if (!s || !s->pool)
        return LS_OK;
    ls_saver_wait(s, NULL);
    int status = ls_pool_destroy_within(s->pool, s->hangs ? 0 : s->longest_ns, NULL);
    if (status == LS_OK)
        s->pool = NULL;
    return status;
}

int ls_saver_destroy(struct ls_saver *s)
{
    if (!s)
        return LS_OK;
    int status = ls_saver_stop(s);
    if (status)
        return status;
    ls_json_writer_fini(&s->saved);
    ls_json_writer_fini(&s->standing);
    ls_json_writer_fini(&s->state);
    ls_free(s->run.host, s->directory);
    ls_free(s->run.host, s);
    return LS_OK;
}
