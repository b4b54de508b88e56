/* SPDX-License-Identifier: MIT */
/* The learner: the thread that owns the trainer. It takes examples (labelled images) from the
 * queue, trains, publishes a copy of the model for predictions, and saves the weights.
 *
 * The queue is a ring of examples. `received` counts all examples that were ever received, `seen`
 * those of them that have been trained on; the examples between the two wait. The rest of the ring
 * contains the newest examples that have been trained on. They are trained on again, together with
 * new ones, because clients often send examples sorted by class, and a network that sees only new
 * examples forgets the older classes. */
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SHOW_MS = 250, PATH_BYTES = 4096 };

struct learner {
    const options *o;
    numbers *n;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields from here down to `why` */
    pthread_cond_t changed;
    int stop;
    uint8_t *ring; /* [capacity][head_bytes + image_bytes] */
    uint64_t capacity, received, seen;
    double rate; /* learning rate to set before the next step; 0: none */
    ls_model *shown;
    ls_error why; /* error that has ended training; status 0: there is none */
    /* The fields below are used only by the thread, after it was started. */
    ls_data_source source;
    ls_trainer *trainer;
    uint32_t batch;  /* number of rows in a minibatch */
    uint8_t *images; /* [batch][image_bytes] */
    int32_t *labels; /* [batch] */
    float *weights;  /* [batch] weights of the rows; all are 1 if rows are bytes */
    uint64_t steps, begun_at, saved_step, shown_step;
    double saved_at, shown_at;
    int lock_file;
    char save_path[PATH_BYTES];
};

/* ---- the queue ------------------------------------------------------------------------------ */

static size_t example_bytes(const learner *l)
{
    return l->o->head_bytes + l->o->image_bytes;
}

static uint8_t *slot(const learner *l, uint64_t index)
{
    return l->ring + index % l->capacity * example_bytes(l);
}

int learner_give(learner *l, const uint8_t *examples, uint32_t count, ls_error *err)
{
    const size_t bytes = example_bytes(l);
    pthread_mutex_lock(&l->lock);
    const uint64_t waiting = l->received - l->seen;
    int status = LS_OK;
    if (l->why.status)
        status = fail(err, l->why.status, "training has failed: %.400s", l->why.text);
    else if (waiting + count > (uint64_t)l->o->queue)
        status = fail(err, LS_EAGAIN,
                      "%u examples, but %llu wait for training already, and at most %ld may", count,
                      (unsigned long long)waiting, l->o->queue);
    for (uint32_t i = 0; status == LS_OK && i < count; i++)
        memcpy(slot(l, l->received++), examples + i * bytes, bytes);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Returns whether to train another step. The first step needs a whole minibatch of new examples.
 * After it there is work while an example waits, or while fewer rows have been trained on than
 * --passes times the number of received examples. The caller holds the lock. */
static int has_work(const learner *l)
{
    const double rows = (double)(l->steps - l->begun_at) * l->batch;
    return l->o->passes > 0 && l->received >= l->batch &&
           (l->received > l->seen || rows < (double)l->o->passes * (double)l->received);
}

/* The hash function Splitmix64: neighbouring numbers have unrelated hashes. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Fills a minibatch. After the first minibatch, at most half of its rows are new examples, and the
 * others are chosen at random among the older examples in the ring. The caller holds the lock. */
static void fill_batch(learner *l)
{
    const uint64_t oldest = l->received > l->capacity ? l->received - l->capacity : 0;
    const uint64_t waiting = l->received - l->seen, most = l->seen ? (l->batch + 1) / 2 : l->batch;
    const uint64_t fresh = waiting < most ? waiting : most, known = l->seen + fresh - oldest;
    for (uint32_t row = 0; row < l->batch; row++) {
        uint64_t index = l->seen + row;
        if (row >= fresh)
            index = oldest + mix(mix(l->steps) + row) % known;
        const uint8_t *example = slot(l, index);
        l->labels[row] = *example;
        l->weights[row] = 1;
        memcpy(&l->weights[row], example + 1, l->o->head_bytes - 1);
        memcpy(l->images + row * l->o->image_bytes, example + l->o->head_bytes, l->o->image_bytes);
    }
    l->seen += fresh;
}

/* Fills a minibatch; if there is nothing to train on, waits for at most a second. Returns whether a
 * minibatch was filled. Sets *rate to a learning rate that is to be set before, or 0, and *stop to
 * whether the thread must end. */
static int next_batch(learner *l, double *rate, int *stop)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* the clock of `changed` */
    until.tv_sec++;
    pthread_mutex_lock(&l->lock);
    if (!has_work(l) && !l->stop && l->shown_step == l->steps)
        pthread_cond_timedwait(&l->changed, &l->lock, &until);
    const int work = has_work(l) && !l->stop;
    if (work)
        fill_batch(l);
    *rate = work ? l->rate : 0;
    l->rate = work ? 0 : l->rate;
    *stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    return work;
}

/* ---- the state directory -------------------------------------------------------------------- */

/* Creates the state directory, syncs its entry, so that it survives a loss of power, and locks it
 * against other processes. */
static int take_directory(learner *l, ls_error *err)
{
    char path[PATH_BYTES];
    const char *state = l->o->state;
    const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (mkdir(state, 0777) != 0 && errno != EEXIST)
        return fail(err, LS_EIO, "--state %.300s: cannot be made: %s", state, strerror(errno));
    snprintf(path, sizeof path, "%.3000s/..", state);
    const int above = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int synced = above >= 0 && fsync(above) == 0;
    if (above >= 0)
        close(above);
    snprintf(path, sizeof path, "%.3000s/lock", state);
    l->lock_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (!synced || l->lock_file < 0)
        return fail(err, LS_EIO, "--state %.300s: %s", state, strerror(errno));
    if (fcntl(l->lock_file, F_SETLK, &whole) != 0)
        return fail(err, LS_ESYSTEM, "--state %.300s: another process uses it", state);
    snprintf(l->save_path, sizeof l->save_path, "%.3000s/model.safetensors", state);
    return LS_OK;
}

/* Saves the weights if they have changed since the last save. If this fails, the older file is
 * unchanged, the error is logged, and the learner tries again after --save-s seconds. */
static int save(learner *l, ls_error *err)
{
    l->saved_at = seconds_now();
    if (l->steps == l->saved_step)
        return LS_OK;
    const int status = ls_trainer_save(l->trainer, l->save_path, err);
    metric_add(l->n->of[status ? FAILED_SAVES : SAVES], 1);
    if (status) {
        say("saving: %.400s", err->text);
        return status;
    }
    l->saved_step = l->steps;
    say("saved: step %llu", (unsigned long long)l->steps);
    return LS_OK;
}

/* ---- training ------------------------------------------------------------------------------- */

static int show(learner *l, ls_error *err)
{
    ls_model *fresh, *old;
    const int status = ls_trainer_model(&fresh, l->trainer, err);
    if (status)
        return status;
    pthread_mutex_lock(&l->lock);
    old = l->shown;
    l->shown = fresh;
    pthread_mutex_unlock(&l->lock);
    ls_model_release(old); /* freed when the last thread that predicts with it has released it */
    l->shown_at = seconds_now();
    l->shown_step = l->steps;
    metric_set(l->n->of[SHOWN_STEP], (double)l->steps);
    return LS_OK;
}

static int open_trainer(learner *l, ls_error *err)
{
    const options *o = l->o;
    const ls_data_source *const sources[] = {&l->source};
    l->source = (ls_data_source){.size = sizeof l->source,
                                 .name = "examples",
                                 .channels = o->channels,
                                 .height = o->height,
                                 .width = o->width,
                                 .row_type = o->row_type,
                                 .weighted = o->row_type == LS_ROW_F32,
                                 .classes = (int)o->classes,
                                 .streamed = 1};
    const ls_trainer_options wanted = {.size = sizeof wanted,
                                       .config_path = o->config,
                                       .set = o->set,
                                       .set_count = o->set_count,
                                       .sources = sources,
                                       .source_count = 1,
                                       .host = &service_host};
    return ls_trainer_open(&l->trainer, &wanted, err);
}

/* Opens the trainer, and loads the saved weights if there are any. */
static int begin(learner *l, ls_error *err)
{
    int status = take_directory(l, err);
    if (status == LS_OK)
        status = open_trainer(l, err);
    if (status == LS_OK && access(l->save_path, F_OK) == 0)
        status = ls_trainer_load(l->trainer, l->save_path, err);
    if (status)
        return status;
    const ls_summary *summary = ls_trainer_summary(l->trainer);
    l->steps = l->begun_at = l->saved_step = ls_trainer_result(l->trainer)->steps;
    l->saved_at = seconds_now();
    l->batch = (uint32_t)summary->batch_size;
    l->images = malloc(l->batch * l->o->image_bytes);
    l->labels = malloc(l->batch * sizeof *l->labels);
    l->weights = malloc(l->batch * sizeof *l->weights);
    if (!l->images || !l->labels || !l->weights)
        return fail(err, LS_ENOMEM, "out of memory for a minibatch");
    metric_add(l->n->of[STEPS], (double)l->steps);
    say("%s on %s: begins at step %llu", summary->name, summary->devices,
        (unsigned long long)l->steps);
    return show(l, err);
}

static int train(learner *l, ls_error *err)
{
    ls_step_result step = {.size = sizeof step};
    const ls_step_rows rows = {.size = sizeof rows,
                               .rows = l->images,
                               .targets = l->labels,
                               .row_type = l->o->row_type,
                               .n = l->batch,
                               .weights = l->source.weighted ? l->weights : NULL};
    const int status = ls_trainer_step(l->trainer, &rows, &step, err);
    if (status)
        return status;
    l->steps = step.number;
    numbers_step(l->n, &step, l->batch);
    return LS_OK;
}

static int train_until_stopped(learner *l, ls_error *err)
{
    int status = LS_OK, stop = 0;
    double rate;
    ls_error saving;
    while (status == LS_OK && !stop) {
        const int work = next_batch(l, &rate, &stop);
        if (rate > 0)
            status = ls_trainer_set_lr(l->trainer, rate, err);
        if (work && status == LS_OK)
            status = train(l, err);
        const int late = (seconds_now() - l->shown_at) * 1000 >= SHOW_MS;
        if (status == LS_OK && l->shown_step != l->steps && (late || !work))
            status = show(l, err);
        if (status == LS_OK && seconds_now() - l->saved_at >= (double)l->o->save_s)
            save(l, &saving);
    }
    return status;
}

static void *learn(void *arg)
{
    learner *l = arg;
    ls_error err, saving;
    int status = train_until_stopped(l, &err);
    if (status) {
        say("training has ended: %.400s", err.text);
        pthread_mutex_lock(&l->lock); /* publishes the error before the save, which can take long */
        l->why = err;
        pthread_mutex_unlock(&l->lock);
    }
    const int save_status = save(l, &saving);
    pthread_mutex_lock(&l->lock);
    if (status == LS_OK && save_status)
        l->why = saving;
    pthread_mutex_unlock(&l->lock);
    ls_trainer_close(l->trainer, NULL);
    l->trainer = NULL;
    return NULL;
}

/* ---- for other threads ---------------------------------------------------------------------- */

static void destroy(learner *l)
{
    ls_model_release(l->shown);
    ls_trainer_close(l->trainer, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    if (l->lock_file >= 0)
        close(l->lock_file);
    free(l->weights);
    free(l->labels);
    free(l->images);
    free(l->ring);
    free(l);
}

int learner_start(learner **out, const options *o, numbers *n, ls_error *err)
{
    pthread_condattr_t steady;
    learner *l = calloc(1, sizeof *l);
    if (!l)
        return fail(err, LS_ENOMEM, "out of memory for the training");
    l->o = o;
    l->n = n;
    l->lock_file = -1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &steady);
    pthread_condattr_destroy(&steady);
    l->capacity = (uint64_t)o->queue + (uint64_t)o->replay;
    l->ring = calloc(l->capacity, example_bytes(l));
    int status =
        l->ring ? begin(l, err) : fail(err, LS_ENOMEM, "out of memory for --queue and --replay");
    if (status == LS_OK && pthread_create(&l->thread, NULL, learn, l) != 0)
        status = fail(err, LS_ESYSTEM, "the system refused a thread for the training");
    if (status)
        destroy(l);
    else
        *out = l;
    return status;
}

int learner_set_rate(learner *l, double rate, ls_error *err)
{
    if (!(rate > 0 && rate <= 1e6))
        return fail(err, LS_EINVAL, "expected a learning rate above 0 and up to 1e6, found %g",
                    rate);
    pthread_mutex_lock(&l->lock);
    const int status = l->why.status
                           ? fail(err, l->why.status, "training has failed: %.400s", l->why.text)
                           : LS_OK;
    l->rate = status ? l->rate : rate;
    pthread_mutex_unlock(&l->lock);
    return status;
}

ls_model *learner_model(learner *l)
{
    pthread_mutex_lock(&l->lock);
    ls_model *model = ls_model_retain(l->shown);
    pthread_mutex_unlock(&l->lock);
    return model;
}

uint64_t learner_look(learner *l, ls_error *why)
{
    pthread_mutex_lock(&l->lock);
    const uint64_t waiting = l->received - l->seen;
    *why = l->why;
    pthread_mutex_unlock(&l->lock);
    return waiting;
}

int learner_stop(learner *l, ls_error *err)
{
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    if (l->received > l->seen)
        say("%llu examples were not trained on yet, and are gone",
            (unsigned long long)(l->received - l->seen));
    const int status = l->why.status;
    *err = l->why;
    destroy(l);
    return status;
}
