#include "learner.h"

#include "affinity.h"
#include "batch.h"
#include "clock.h"
#include "progress.h"
#include "report.h"
#include "saves.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS = 32, IDLE_LOOKS = 4096 /* examples that are looked at in a turn, for damage */ };

struct learner {
    const options *o;
    journal *from;
    board *to;
    pthread_t thread;
    atomic_int stop;
    pthread_mutex_t lock; /* of phase and why */
    pthread_cond_t changed;
    learner_phase phase;
    ls_error why;
    /* The thread's own. */
    ls_data_source examples;
    const ls_data_source *sources[1];
    ls_trainer *trainer;
    batch rows;
    char directory[4096]; /* of the saves */
    uint64_t position;    /* of the journal: what training has seen */
    uint64_t steps, saved_steps, shown_steps;
    double saved_at, shown_at;
    progress told;
};

static void enter(learner *l, learner_phase phase, const ls_error *why)
{
    pthread_mutex_lock(&l->lock);
    l->phase = phase;
    if (why)
        l->why = *why;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int open_trainer(learner *l, ls_error *err)
{
    const options *o = l->o;
    l->examples = (ls_data_source){.size = sizeof l->examples,
                                   .name = "examples",
                                   .channels = o->channels,
                                   .height = o->height,
                                   .width = o->width,
                                   .classes = o->form.classes,
                                   .streamed = 1,
                                   .dtype = o->form.floats ? LS_ROW_F32 : LS_ROW_U8,
                                   .targets = o->form.targets};
    l->sources[0] = &l->examples;
    const ls_trainer_options wanted = {.size = sizeof wanted,
                                       .config_path = o->config,
                                       .set = o->set,
                                       .set_count = o->set_count,
                                       .sources = l->sources,
                                       .source_count = 1,
                                       .host = &service_host};
    return ls_trainer_open(&l->trainer, &wanted, err);
}

static int publish(learner *l, ls_error *err)
{
    ls_snapshot *snapshot;
    int status = ls_trainer_snapshot(l->trainer, &snapshot, err);
    if (status)
        return status;
    board_put(l->to, snapshot);
    l->shown_at = seconds();
    l->shown_steps = l->steps;
    metric_set(l->told.shown, (double)l->steps);
    return LS_OK;
}

/* Goes on where the newest save ends; what came behind it waits in the journal. */
static int take_up(learner *l, ls_error *err)
{
    journal_state state;
    int status = saves_load(l->trainer, l->directory, &l->position, err);
    if (status)
        return status;
    journal_look(l->from, &state);
    journal_set_trained(l->from, l->position);
    l->steps = l->saved_steps = ls_trainer_result(l->trainer)->steps;
    metric_add(l->told.steps, (double)l->steps);
    say(LS_LOG_INFO, "%s on %s: step %llu, %llu examples trained, %llu waiting",
        ls_trainer_summary(l->trainer)->name, ls_trainer_summary(l->trainer)->devices,
        (unsigned long long)l->steps, (unsigned long long)l->position,
        (unsigned long long)(state.durable - l->position));
    return LS_OK;
}

static int begin(learner *l, ls_error *err)
{
    int status = affinity_set(l->o->train_cpu, err);
    if (status == LS_OK)
        status = open_trainer(l, err);
    if (status == LS_OK)
        status = take_up(l, err);
    if (status == LS_OK)
        status = batch_init(&l->rows, (uint32_t)ls_trainer_summary(l->trainer)->batch_size,
                            &l->o->form, err);
    l->saved_at = seconds();
    return status ? status : publish(l, err);
}

/* ---- training ------------------------------------------------------------------------------- */

/* Until there is enough for a first minibatch nothing is trained; from then on as long as an example
 * waits, or has not been seen as often as was asked for. */
static int has_work(const learner *l, const journal_state *j)
{
    const double seen = (double)l->steps * l->rows.rows;
    const uint64_t whole = j->durable - l->rows.damaged;
    return l->o->passes > 0 && whole >= l->rows.rows &&
           (j->durable > j->trained || seen < (double)l->o->passes * (double)whole);
}

static int train(learner *l, ls_error *err)
{
    ls_step_result step;
    uint64_t position = l->position;
    int status = batch_fill(&l->rows, l->from, l->steps, &position, err);
    if (status == LS_EAGAIN) /* of damaged examples it knows more now, and tries again */
        return LS_OK;
    if (status == LS_OK)
        status =
            ls_trainer_step(l->trainer, l->rows.values, l->rows.targets, l->rows.rows, &step, err);
    if (status)
        return status;
    l->position = position;
    l->steps = step.number;
    journal_set_trained(l->from, position);
    progress_step(&l->told, &step, l->rows.rows);
    return LS_OK;
}

/* A save that fails leaves everything as it was: it is told, and tried again later. */
static int save(learner *l, ls_error *err)
{
    l->saved_at = seconds();
    if (l->steps == l->saved_steps)
        return LS_OK;
    int status = saves_write(l->trainer, l->directory, l->position, err);
    metric_add(status ? l->told.failed_saves : l->told.saves, 1);
    if (status)
        say(LS_LOG_ERROR, "saving: %.400s", err->text);
    else
        l->saved_steps = l->steps;
    return status;
}

/* Errors are those that end training. */
static int turn(learner *l, ls_error *err)
{
    journal_state j;
    ls_error saving;
    journal_look(l->from, &j);
    const int work = has_work(l, &j);
    int status = work ? train(l, err) : LS_OK;
    if (status == LS_OK && l->shown_steps != l->steps &&
        (!work || (seconds() - l->shown_at) * 1000 >= (double)l->o->publish_ms))
        status = publish(l, err);
    if (status == LS_OK && seconds() - l->saved_at >= (double)l->o->save_s)
        save(l, &saving);
    const uint32_t looked = batch_look(&l->rows, l->from, work ? LOOKS : IDLE_LOOKS);
    metric_set(l->told.damaged, (double)l->rows.damaged);
    progress_rate(&l->told);
    if (!work && looked == 0)
        journal_wait(l->from, j.durable, 1000);
    return status;
}

static void *learn(void *arg)
{
    learner *l = arg;
    ls_error err = {0}, saving = {0};
    int status = begin(l, &err);
    if (status == LS_OK)
        enter(l, LEARNER_RUNS, NULL);
    while (status == LS_OK && !atomic_load(&l->stop))
        status = turn(l, &err);
    if (status == LS_OK)
        status = save(l, &err);
    else if (l->phase == LEARNER_RUNS) {
        say(LS_LOG_ERROR, "training has ended: %.400s", err.text);
        save(l, &saving); /* what was learnt before is worth keeping */
    }
    metric_set(l->told.rate, 0);
    enter(l, status ? LEARNER_FAILED : LEARNER_STOPPED, &err);
    batch_fini(&l->rows);
    ls_trainer_close(l->trainer);
    return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

int learner_start(learner **out, const options *o, journal *from, board *to, metrics *numbers,
                  ls_error *err)
{
    learner *l = calloc(1, sizeof *l);
    if (!l)
        return fail(err, LS_ENOMEM, "out of memory for the training");
    l->o = o;
    l->from = from;
    l->to = to;
    snprintf(l->directory, sizeof l->directory, "%.3000s/saves", o->state);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    progress_init(&l->told, numbers, o->form.targets == 0);
    if (pthread_create(&l->thread, NULL, learn, l) != 0) {
        free(l);
        return fail(err, LS_ESYSTEM, "no thread for the training");
    }
    *out = l;
    return LS_OK;
}

int learner_wait_open(learner *l, ls_error *err)
{
    pthread_mutex_lock(&l->lock);
    while (l->phase == LEARNER_OPENS)
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return learner_look(l, err) == LEARNER_FAILED ? err->status : LS_OK;
}

learner_phase learner_look(learner *l, ls_error *why)
{
    pthread_mutex_lock(&l->lock);
    const learner_phase phase = l->phase;
    *why = l->why;
    pthread_mutex_unlock(&l->lock);
    return phase;
}

int learner_stop(learner *l, ls_error *err)
{
    atomic_store(&l->stop, 1);
    journal_wake(l->from);
    pthread_join(l->thread, NULL);
    *err = l->why;
    int status = l->phase == LEARNER_FAILED ? l->why.status : LS_OK;
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return status;
}
