/* SPDX-License-Identifier: MIT */
/* The saver: writes checkpoints (checkpoint.h) while a run goes on.
 *
 * While no worker has work, the coordinator copies the weights out of a replica. A thread of the
 * saver then writes the copy to the file, and training goes on. The copy belongs to the saver's
 * thread until the save is done (ls_saver_wait).
 *
 * A checkpoint can also be *kept*: copied to memory of the saver and written later (ls_saver_keep,
 * ls_saver_write_kept). A later one takes its place, and it is dropped when a later state has been
 * saved. If it belongs to the best evaluation, it stays in memory beside the later one, and is
 * written before the next checkpoint, so that a checkpoint on the disk never names a best one that
 * is not there. */
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

/* A checkpoint that is kept in memory. */
typedef struct kept {
    bool full; /* there is one; false: the other members but the arrays mean nothing */
    ls_state state;
    float *weights, *slot[LS_STATES]; /* the saver's own arrays; NULL: it keeps nothing */
} kept;

/* A checkpoint that the writing thread writes. */
typedef struct writing {
    ls_checkpoint_values values;
    ls_json_writer state;
    char name[LS_CHECKPOINT_NAME];
} writing;

struct ls_saver {
    ls_saver_desc run;
    ls_pool *pool;       /* the writing thread */
    char *directory;     /* <run>/checkpoints */
    bool busy;           /* a save was begun, and wait_until_idle has not seen its end yet */
    uint64_t longest_ns; /* time after which a save is considered to hang */
    bool hangs; /* a save took longer than `longest_ns`; no function waits for it any more */
    /* Data being saved; the writing thread owns it while `busy` is set. The last of the files is
     * the newest checkpoint, whose position is `position`. The other one, if there is one, is the
     * checkpoint of the best evaluation. */
    writing file[2];
    int files;
    ls_position position;
    /* the kept checkpoint, and that of the best evaluation, if they are two */
    kept due, best;
    uint32_t data_crc32;
    bool has_crc;
    /* Result of the save. */
    int status;
    ls_error error;
    uint64_t begin_ns, end_ns; /* times of ls_now_ns at which the save began and ended */
    /* Error of a save that was made while training went on, and has failed; status 0: none. The
     * next save clears this field. */
    ls_error unsaved;
    uint64_t unsaved_steps; /* number of steps of the state that could not be saved */
    /* ls_saver_save has returned the error of the last save to its caller, who then need not be
     * told that an older checkpoint that was kept could not be written either */
    bool told;
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

/* Returns the newest of the files that are written. */
static writing *newest(struct ls_saver *s)
{
    return &s->file[s->files - 1];
}

/* The job of the writing thread: writes the checkpoints and removes old checkpoints. If an old
 * checkpoint cannot be removed, that failure is only logged, and the save is still a success. */
static int save(const ls_worker *w, void *arg, ls_error *err)
{
    (void)w;
    (void)err;
    struct ls_saver *s = arg;
    char path[LS_PATH_BYTES];
    ls_error pruning;
    s->begin_ns = ls_now_ns();
    s->status = LS_OK;
    for (writing *f = s->file; f < s->file + s->files && s->status == LS_OK; f++)
        s->status = write_file(ls_path_join(path, s->directory, f->name), &s->run, &f->state,
                               &f->values, &s->error);
    s->end_ns = ls_now_ns();
    const ls_best *best = s->run.config->checkpoint.best ? &s->position.best : NULL;
    if (s->status == LS_OK &&
        ls_checkpoints_prune(s->directory, (size_t)s->run.config->checkpoint.keep, newest(s)->name,
                             best, s->run.config->receipt ? (uint32_t)s->run.config->batch_size : 0,
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
    s->due.full = s->best.full = false;
    snprintf(s->path, sizeof s->path, "%s/%s", s->directory, newest(s)->name);
    return LS_OK;
}

/* Logs that the checkpoint after `steps` steps could not be saved, and stores the error. */
static void note_unsaved(struct ls_saver *s, uint64_t steps, const ls_error *why)
{
    if (!s->told) {
        s->unsaved = *why;
        s->unsaved_steps = steps;
    }
    ls_log(s->run.host, LS_LOG_WARNING, "a checkpoint could not be saved: %.400s", why->text);
}

int ls_saver_wait(struct ls_saver *s, ls_error *err)
{
    if (!s)
        return LS_OK;
    int status = wait_until_idle(s, err);
    if (status == LS_OK && s->status)
        note_unsaved(s, s->position.steps, &s->error);
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

/* Completes a state: flushes the records, and sets the length of the metrics file after the flush
 * and the checksum of the data. */
static int complete(struct ls_saver *s, ls_state *state, ls_error *err)
{
    if (!s->has_crc)
        s->data_crc32 = ls_data_crc32(s->run.data);
    s->has_crc = true;
    state->data_crc32 = s->data_crc32;
    return ls_sinks_flush(s->run.sinks, &state->metrics, err);
}

static void add_file(struct ls_saver *s, const ls_state *state, const ls_checkpoint_values *values)
{
    writing *f = &s->file[s->files++];
    f->values = *values;
    ls_json_writer_reset(&f->state);
    ls_state_write(&f->state, state, s->run.config);
    ls_checkpoint_name(f->name, state->standing.position.steps);
    s->position = state->standing.position;
}

static bool is_after(const kept *k, uint64_t steps)
{
    return k->full && k->state.standing.position.steps == steps;
}

/* Returns the kept checkpoint that must be on the disk beside a checkpoint with this position: that
 * of the best evaluation or, if it has none, the one of ls_best.kept. NULL: none of them is kept.
 */
static kept *find_best(struct ls_saver *s, const ls_position *position)
{
    kept *const both[] = {&s->best, &s->due};
    const uint64_t steps[] = {position->best.steps, position->best.kept};
    if (!s->run.config->checkpoint.best || position->best.epoch == 0 ||
        position->best.steps == position->steps)
        return NULL;
    for (int i = 0; i < 4; i++)
        if (is_after(both[i % 2], steps[i / 2]))
            return both[i % 2];
    return NULL;
}

/* Begins to write a checkpoint, after the one of its best evaluation if that is only kept. */
static int begin_write(struct ls_saver *s, const ls_state *state,
                       const ls_checkpoint_values *values, ls_error *err)
{
    const kept *best = find_best(s, &state->standing.position);
    s->files = 0;
    if (best)
        add_file(s, &best->state, &(ls_checkpoint_values){best->weights, best->slot});
    add_file(s, state, values);
    int status = ls_pool_submit(s->pool, 0, save, s, err);
    s->busy = status == LS_OK;
    return status;
}

int ls_saver_save(struct ls_saver *s, const ls_state *state, const ls_checkpoint_values *values,
                  bool wait, ls_error *err)
{
    bool same = false;
    ls_state whole = *state;
    int status = ls_saver_wait(s, err);
    if (status == LS_OK)
        status = compare_with_saved(&same, s, &state->standing, err);
    if (status == LS_OK)
        s->unsaved = (ls_error){0};
    s->told = false;
    if (status || same)
        return status;
    status = complete(s, &whole, err);
    if (status == LS_OK)
        status = begin_write(s, &whole, values, err);
    if (status)
        return status;
    if (!wait)
        return s->run.config->checkpoint.async ? LS_OK : ls_saver_wait(s, err);
    status = wait_until_idle(s, err);
    if (status)
        return status;
    s->told = s->status != LS_OK;
    return s->told ? ls_fail(err, s->status, "%s", s->error.text) : LS_OK;
}

void ls_saver_forget(struct ls_saver *s)
{
    if (!s)
        return;
    s->saved_any = false;
    s->unsaved_steps = 0;
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* Allocates the arrays of a checkpoint that is kept. */
static int make_room(kept *k, const ls_saver_desc *run, ls_error *err)
{
    const size_t floats = run->model->floats;
    bool made = (k->weights = ls_alloc_array(run->host, floats, sizeof *k->weights)) != NULL;
    for (int i = 0; i < ls_optimizer_states(&run->config->optimizer) && made; i++)
        made = (k->slot[i] = ls_alloc_array(run->host, floats, sizeof *k->slot[i])) != NULL;
    return made ? LS_OK
                : ls_fail(err, LS_ENOMEM,
                          "out of memory for a checkpoint that is kept in memory; set "
                          "checkpoint.every_seconds to 0, which needs none");
}

static void free_room(kept *k, const ls_host *host)
{
    ls_free(host, k->weights);
    for (int i = 0; i < LS_STATES; i++)
        ls_free(host, k->slot[i]);
}

int ls_saver_keep(struct ls_saver *s, const ls_state *state, const ls_checkpoint_values *values,
                  ls_error *err)
{
    const size_t bytes = s->run.model->floats * sizeof *values->weights;
    const ls_position *now = &state->standing.position;
    ls_state whole = *state;
    ls_error why;
    int status = ls_saver_wait(s, err);
    if (status == LS_OK)
        status = complete(s, &whole, err);
    if (status)
        return status;
    if (ls_check_finite(s->run.model, values->weights, &why)) {
        note_unsaved(s, now->steps, &why);
        return LS_OK;
    }
    if (find_best(s, now) == &s->due) {
        const kept before = s->best;
        s->best = s->due;
        s->due = before;
    }
    memcpy(s->due.weights, values->weights, bytes);
    for (int i = 0; i < ls_optimizer_states(&s->run.config->optimizer); i++)
        memcpy(s->due.slot[i], values->slot[i], bytes);
    s->due.state = whole;
    s->due.full = true;
    return LS_OK;
}

bool ls_saver_holds(const struct ls_saver *s, uint64_t steps)
{
    return s && (is_after(&s->due, steps) || is_after(&s->best, steps));
}

bool ls_saver_keeps(const struct ls_saver *s)
{
    return s && s->due.full && !s->busy;
}

int ls_saver_write_kept(struct ls_saver *s, ls_error *err)
{
    if (!ls_saver_keeps(s))
        return LS_OK;
    write_standing(&s->standing, &s->due.state.standing);
    if (s->unsaved_steps <= s->due.state.standing.position.steps)
        s->unsaved = (ls_error){0};
    int status =
        begin_write(s, &s->due.state, &(ls_checkpoint_values){s->due.weights, s->due.slot}, err);
    return status || s->run.config->checkpoint.async ? status : ls_saver_wait(s, err);
}

int ls_saver_settle(struct ls_saver *s, ls_error *err)
{
    int status = ls_saver_wait(s, err);
    if (status == LS_OK)
        status = ls_saver_write_kept(s, err);
    if (status == LS_OK)
        status = ls_saver_wait(s, err);
    if (s && status == LS_OK)
        s->due.full = s->best.full = false;
    return status;
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
    status = ls_sinks_flush(run->sinks, &whole.metrics, err);
    ls_state_write(&text, &whole, run->config);
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
    for (int i = 0; i < 2; i++)
        ls_json_writer_init(&s->file[i].state, 0, run->host);
    ls_json_writer_init(&s->standing, 0, run->host);
    ls_json_writer_init(&s->saved, 0, run->host);
    int status =
        ls_path_copy(&s->directory, ls_path_join(path, run_dir, "checkpoints"), run->host, err);
    if (status == LS_OK)
        status = make_directory(s->directory, err);
    if (status == LS_OK && run->keeps)
        status = make_room(&s->due, run, err);
    if (status == LS_OK && run->keeps && run->config->checkpoint.best)
        status = make_room(&s->best, run, err);
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
    ls_saver_settle(s, NULL);
    int status = ls_pool_destroy(s->pool, s->hangs ? 0 : s->longest_ns, NULL);
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
    for (int i = 0; i < 2; i++)
        ls_json_writer_fini(&s->file[i].state);
    free_room(&s->due, s->run.host);
    free_room(&s->best, s->run.host);
    ls_free(s->run.host, s->directory);
    ls_free(s->run.host, s);
    return LS_OK;
}
