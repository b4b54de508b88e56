/* SPDX-License-Identifier: MIT */
#include "cluster/scenario.h"
#include "free_port.h"

#include "base/clock.h"
#include "base/error.h"
#include "cluster/progress.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- a transport like TCP whose members can be lost --------------------------------------------
 */

typedef struct mortal_wire {
    ls_wire base;
    ls_wire *inner; /* NULL: killed */
    mortal *mortal;
} mortal_wire;

static const ls_transport wire_mortal;

static int wrap(ls_wire **out, ls_wire *inner, mortal *m)
{
    mortal_wire *w = calloc(1, sizeof *w);
    w->base = *inner;
    w->base.type = &wire_mortal;
    w->inner = inner;
    w->mortal = m;
    *out = &w->base;
    return LS_OK;
}

static void say_mortal(void *user, int level, const char *text)
{
    mortal *m = user;
    if (strstr(text, "has come and is waiting"))
        atomic_fetch_add(&m->scenario->waiting, 1);
    if (m->say)
        m->say(m->user, level, text);
}

static void live_mortal(void *user)
{
    mortal *m = user;
    if (m->alive)
        m->alive(m->user);
}

static int refuses_mortal(void *user, const char *host, const void *print, size_t bytes, char *why,
                          size_t size)
{
    mortal *m = user;
    return m->refuses ? m->refuses(m->user, host, print, bytes, why, size) : 0;
}

/* Makes the newcomer send a fingerprint with another version than the library's. */
static void change_version(ls_wire_options *o, mortal *m)
{
    assert_int_equal(o->fingerprint_bytes, sizeof m->print);
    memcpy(&m->print, o->fingerprint, sizeof m->print);
    snprintf(m->print.version, sizeof m->print.version, "0.0.1");
    o->fingerprint = &m->print;
}

static bool is_newcomer(const process *p)
{
    return p->mortal.scenario && p->member >= p->mortal.scenario->members;
}

static int open_mortal(ls_wire **out, const ls_wire_options *o, ls_error *err)
{
    mortal *m = (mortal *)(uintptr_t)o->place;
    ls_wire_options own = *o;
    ls_wire *inner;
    own.place = &m->place;
    m->say = o->say;
    m->alive = o->alive;
    m->refuses = o->refuses;
    m->user = o->user;
    own.say = say_mortal;
    own.alive = live_mortal;
    own.refuses = refuses_mortal;
    own.user = m;
    if (is_newcomer(m->process) && m->scenario->differs == DIFFERS_VERSION)
        change_version(&own, m);
    int status = ls_transport_tcp()->open(&inner, &own, err);
    if (status)
        return status;
    /* A newcomer keeps its index in the scenario. */
    const int member = inner->admitted ? m->process->member : inner->member;
    m->process->member = member;
    m->fate = m->scenario->loss[member].fate;
    m->deaf = m->scenario->loss[member].deaf;
    m->dies_regrouping = m->scenario->loss[member].regrouping;
    m->process->dies_after_step = m->scenario->loss[member].step;
    m->process->dies_after_posts = m->scenario->loss[member].posts;
    m->process->stop_after_step = member == m->scenario->stopper ? m->scenario->stop_after_step : 0;
    return wrap(out, inner, m);
}

static void die(mortal_wire *w)
{
    atomic_store(&w->mortal->gone, true);
    if (w->mortal->fate == FATE_STOPPED)
        return;
    w->inner->type->abort(w->inner);
    w->inner = NULL;
}

/* Returns whether a transfer is dropped so that the deaf member does not receive it
 * (FATE_KILLED_IN_SUM, FATE_KILLED_IN_GATHER). The member is killed 0.2 s after the first dropped
 * transfer. In this time the other members get further than the deaf member. */
static bool swallows(mortal_wire *w, const ls_transfer *t)
{
    mortal *m = w->mortal;
    const int channel = m->fate == FATE_KILLED_IN_SUM ? LS_ON_SUMS : LS_ON_DATA;
    if (t->incoming || t->peer != m->deaf || t->channel != channel)
        return false;
    m->killed_ns = m->killed_ns ? m->killed_ns : ls_now_ns() + 200000000u;
    return true;
}

static int post_mortal(ls_wire *base, ls_transfer *t, ls_error *err)
{
    mortal_wire *w = (mortal_wire *)base;
    const long dies_at = atomic_load(&w->mortal->dies_at);
    const long number = atomic_fetch_add(&w->mortal->posts, 1);
    if (dies_at != NEVER && number >= dies_at && !atomic_load(&w->mortal->gone)) {
        if (w->mortal->fate <= FATE_STOPPED)
            die(w);
        else if (swallows(w, t))
            return LS_OK;
    }
    return atomic_load(&w->mortal->gone) ? LS_OK : w->inner->type->post(w->inner, t, err);
}

static int poll_mortal(ls_wire *base, ls_transfer **ended, int most, uint64_t timeout_ns,
                       ls_error *err)
{
    mortal_wire *w = (mortal_wire *)base;
    const struct timespec nap = {.tv_nsec = (long)(timeout_ns % 1000000000u)};
    if (w->mortal->killed_ns && ls_now_ns() > w->mortal->killed_ns &&
        !atomic_load(&w->mortal->gone))
        die(w);
    if (!atomic_load(&w->mortal->gone))
        return w->inner->type->poll(w->inner, ended, most, timeout_ns, err);
    if (!w->inner)
        return ls_fail(err, LS_EIO, "killed");
    nanosleep(&nap, NULL);
    return 0;
}

static int abort_mortal(ls_wire *base)
{
    mortal_wire *w = (mortal_wire *)base;
    if (w->inner)
        w->inner->type->abort(w->inner);
    free(w);
    return 0;
}

static void close_mortal(ls_wire *base)
{
    mortal_wire *w = (mortal_wire *)base;
    if (w->inner)
        w->inner->type->close(w->inner);
    free(w);
}

/* A member that was stopped (FATE_STOPPED) continues here. */
static int regroup_mortal(ls_wire **out, ls_wire *base, const ls_regroup *how, ls_error *err)
{
    mortal_wire *w = (mortal_wire *)base;
    ls_wire *inner;
    if (++w->mortal->regroupings == w->mortal->dies_regrouping)
        die(w);
    if (!w->inner)
        return ls_fail(err, LS_ESTALLED, "killed");
    int status = w->inner->type->regroup(&inner, w->inner, how, err);
    return status ? status : wrap(out, inner, w->mortal);
}

static int arrivals_mortal(ls_wire *base, uint64_t round, ls_arrival *out)
{
    mortal_wire *w = (mortal_wire *)base;
    if (w->inner)
        return w->inner->type->arrivals(w->inner, round, out);
    memset(out, 0, sizeof *out);
    return 0;
}

static const ls_transport wire_mortal = {.abi = LS_TRANSPORT_ABI,
                                         .size = sizeof(ls_transport),
                                         .name = "mortal",
                                         .open = open_mortal,
                                         .post = post_mortal,
                                         .poll = poll_mortal,
                                         .close = close_mortal,
                                         .abort = abort_mortal,
                                         .regroup = regroup_mortal,
                                         .arrivals = arrivals_mortal};

/* ---- processes ------------------------------------------------------------------------------- */

/* Called by the first member after a training step: starts the newcomers that come at this step,
 * and blocks until they wait to be admitted. */
static void let_come(scenario *s, uint64_t steps)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int i = 0; i < s->newcomers; i++) {
        if (s->comes[i] != steps || atomic_load(&s->started) > i)
            continue;
        atomic_store(&s->started, i + 1);
        for (int k = 0; k < 20000 && atomic_load(&s->waiting) <= i; k++)
            nanosleep(&nap, NULL);
    }
}

static void on_progress(void *user, const ls_progress *p)
{
    process *mine = user;
    const uint64_t steps = (uint64_t)(p->epoch - 1) * p->steps + p->step;
    if (mine->stop_after_step && steps == mine->stop_after_step && !p->epoch_done)
        ls_trainer_interrupt(mine->trainer);
    if (mine->mortal.scenario && mine->member == 0 && !p->epoch_done)
        let_come(mine->mortal.scenario, steps);
    if (mine->dies_after_step && steps == mine->dies_after_step && !p->epoch_done)
        atomic_store(&mine->mortal.dies_at,
                     atomic_load(&mine->mortal.posts) + mine->dies_after_posts);
}

/* Stores which training step a record reports, and counts records of other types. Sets first_step
 * to UINT64_MAX if the step does not follow the last recorded step. */
static void note_record(process *mine, const char *json)
{
    const char *step = strstr(json, "\"step\":");
    mine->faults += strstr(json, "{\"type\":\"fault\"") == json;
    mine->arrivals += strstr(json, "{\"type\":\"arrival\"") == json;
    if (strstr(json, "{\"type\":\"failed_arrival\"") == json) {
        mine->failed_arrivals++;
        snprintf(mine->failed_arrival, sizeof mine->failed_arrival, "%s", json);
    }
    if (strstr(json, "{\"type\":\"eval\"") == json) {
        mine->evaluations++;
        snprintf(mine->evaluated, sizeof mine->evaluated, "%.*s",
                 (int)(strstr(json, ",\"seconds\"") - json), json);
    }
    if (strstr(json, "{\"type\":\"step\",") != json || !step)
        return;
    const uint64_t number = strtoull(step + 7, NULL, 10);
    if (mine->first_step == 0)
        mine->first_step = number;
    else if (number != mine->last_step + 1)
        mine->first_step = UINT64_MAX;
    mine->last_step = number;
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    process *mine = user;
    (void)err;
    if (mine->records++ == 0)
        snprintf(mine->started, sizeof mine->started, "%.*s", (int)length, json);
    note_record(mine, json);
    return LS_OK;
}

/* Fills rows of own_data whose targets are vectors: a number that depends on the row, plus 1 at the
 * index of the label. */
static int read_values(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                       void *targets, ls_error *err)
{
    (void)user;
    (void)err;
    for (uint32_t i = 0; i < count; i++) {
        int32_t label;
        float *target = (float *)targets + (size_t)i * OWN_CLASSES;
        own_row(test, rows[i], (uint8_t *)values + (size_t)i * OWN_PIXELS, &label);
        for (int k = 0; k < OWN_CLASSES; k++)
            target[k] = (k == label ? 1.0f : 0.0f) + (float)(rows[i] % 7) / 16;
    }
    return LS_OK;
}

/* Works like read_values, but one value of each row differs. */
static int read_other_values(void *user, int test, const uint32_t *rows, uint32_t count,
                             void *values, void *targets, ls_error *err)
{
    int status = read_values(user, test, rows, count, values, targets, err);
    for (uint32_t i = 0; i < count; i++)
        ((uint8_t *)values)[(size_t)i * OWN_PIXELS] ^= 1;
    return status;
}

/* Fills rows of doubles. The targets of a row have different means and deviations. */
static int read_doubles(void *user, int test, const uint32_t *rows, uint32_t count, void *values,
                        void *targets, ls_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t pixels[OWN_PIXELS];
        float target[OWN_CLASSES];
        double *value = (double *)values + (size_t)i * OWN_PIXELS;
        read_values(user, test, &rows[i], 1, pixels, target, err);
        for (int k = 0; k < OWN_PIXELS; k++)
            value[k] = 1.7e9 + 0.01 * (double)pixels[k];
        for (int k = 0; k < OWN_CLASSES; k++)
            ((double *)targets)[(size_t)i * OWN_CLASSES + (size_t)k] =
                1e9 * k + (k + 1) * (double)target[k];
    }
    return LS_OK;
}

static void use_values(process *p, bool others, bool streamed)
{
    p->data = own_data(streamed);
    p->data.name = "values";
    p->data.classes = 0;
    p->data.target_count = OWN_CLASSES;
    p->data.row_type = streamed ? LS_ROW_F64 : LS_ROW_U8;
    p->data.read = streamed ? read_doubles : others ? read_other_values : read_values;
    fixture_use_source(&p->f, &p->data, p->sources);
    fixture_set(&p->f, "loss=mse");
}

static void use_weights(process *p)
{
    for (int i = 0; i < OWN_TRAIN; i++)
        p->train_weights[i] = 0.1f * (float)(i % 7);
    for (int i = 0; i < OWN_TEST; i++)
        p->test_weights[i] = 0.3f * (float)(i % 5);
    p->data.weighted = 1;
    p->data.train_weights = p->train_weights;
    p->data.test_weights = p->test_weights;
}

/* Prepares member m. The config has momentum, batch norm, augmentation, dropout and a schedule, so
 * that a training step depends on every kind of state that a run has. */
static void prepare(scenario *s, int m)
{
    process *p = &s->process[m];
    fixture_begin(&p->f);
    snprintf(p->devices, sizeof p->devices, "devices=ref:%d", s->workers);
    if (s->shards > 0)
        snprintf(p->shards, sizeof p->shards, "shards=%d", s->shards);
    else
        snprintf(p->shards, sizeof p->shards, "shards=\"devices\"");
    fixture_set(&p->f, "epochs=3");
    fixture_set(&p->f, p->devices);
    fixture_set(&p->f, p->shards);
    fixture_set(&p->f, "cluster.deadline_s=0.6");
    fixture_set(&p->f,
                "model={\"layers\":[{\"type\":\"conv2d\",\"out\":4,\"kernel\":5,\"stride\":3},"
                "{\"type\":\"batch_norm\"},{\"type\":\"relu\"},{\"type\":\"flatten\"},"
                "{\"type\":\"dropout\",\"p\":0.25},{\"type\":\"dense\",\"out\":10}]}");
    fixture_set(&p->f, "augment={\"crop\":2,\"flip\":true}");
    fixture_set(&p->f, "schedule={\"name\":\"cosine\",\"warmup_epochs\":1}");
    snprintf(p->run_dir, sizeof p->run_dir, "run_dir=%s", s->run_dir ? s->run_dir : "");
    if (s->run_dir)
        fixture_set(&p->f, p->run_dir);
    if (s->values)
        use_values(p, m >= s->members && s->differs == DIFFERS_DATA, s->streamed);
    if (s->weighted)
        use_weights(p);
    if (s->tcp)
        fixture_set(&p->f, "cluster.on_host_loss=\"continue\"");
    if (s->newcomers > 0)
        fixture_set(&p->f, "cluster.on_arrival=\"admit\"");
    for (size_t i = 0; i < ROOM(s->recipe) && s->recipe[i]; i++)
        fixture_set(&p->f, s->recipe[i]);
    if (s->set[m])
        fixture_set(&p->f, s->set[m]);
    if (m >= s->members && s->newcomer_set[m - s->members])
        fixture_set(&p->f, s->newcomer_set[m - s->members]);
    p->lr = s->lr[m];
    p->stop_after_step = s->stop_after_step && m == s->stopper ? s->stop_after_step : 0;
    p->f.callbacks.progress = on_progress;
    p->f.callbacks.record = on_record;
    p->f.callbacks.user = p;
    p->f.options.resume = s->resume[m];
    p->f.sys.clock = s->clock[m];
    p->inject[0] = s->nan[m];
    p->inject[1] = s->stall;
    p->f.sys.failed = m == s->members - 1 ? s->failed : NULL;
    p->f.sys.inject = p->inject;
    p->f.sys.inject_count = (s->nan[m] != NULL) + (s->nan[m] && s->stall);
}

/* Waits until it is the newcomer's time to come. */
static void await_turn(const process *p)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    const scenario *s = p->mortal.scenario;
    for (int k = 0; is_newcomer(p) && k < 60000; k++) {
        if (atomic_load(&s->started) > p->member - s->members)
            return;
        nanosleep(&nap, NULL);
    }
}

static void *run_process(void *arg)
{
    process *p = arg;
    await_turn(p);
    p->status = ls_trainer_open(&p->trainer, &p->f.options, &p->err);
    if (p->status) {
        if (is_newcomer(p) && p->mortal.scenario->refused)
            atomic_fetch_add(&p->mortal.scenario->waiting, 1);
        return NULL;
    }
    if (p->mortal.scenario && p->mortal.scenario->marked)
        p->trainer->position.trained_s = (double)p->member * MARK;
    if (p->lr > 0)
        p->status = ls_trainer_set_lr(p->trainer, p->lr, &p->err);
    if (p->status == LS_OK)
        p->status = ls_trainer_run(p->trainer, &p->err);
    p->trained_s = p->trainer->position.trained_s;
    p->result = *ls_trainer_result(p->trainer);
    p->test_loss = p->result.test_loss;
    memcpy(p->hash, p->result.weights_sha256, sizeof p->hash);
    snprintf(p->devices_left, sizeof p->devices_left, "%s", p->result.devices);
    snprintf(p->own_dir, sizeof p->own_dir, "%s", ls_trainer_summary(p->trainer)->run_dir);
    ls_trainer_close(p->trainer, NULL);
    return NULL;
}

/* Time limits of a newcomer: NEWCOMER_WAITS_NS normally, REFUSED_WAITS_NS if the run refuses it.
 * REFUSED_WAITS_NS is longer than the time that a newcomer gives a previous run to end (ENDING_NS
 * in src/tcp/meet.c). */
#define NEWCOMER_WAITS_NS UINT64_C(1000000000)
#define REFUSED_WAITS_NS UINT64_C(20000000000)

static void prepare_tcp(scenario *s, int m, int port)
{
    static const char secret[] = "of this scenario and of no other";
    static const char another[] = "of another scenario than this one";
    process *p = &s->process[m];
    const bool differs = m >= s->members && s->differs == DIFFERS_SECRET;
    snprintf(p->meet, sizeof p->meet, "127.0.0.1:%d", port);
    p->mortal.place = (ls_tcp_place){.size = sizeof p->mortal.place,
                                     .meet = m > 0 ? p->meet : NULL,
                                     .listen = m > 0 ? "127.0.0.1:0" : p->meet,
                                     .secret = differs ? another : secret,
                                     .secret_bytes = differs ? sizeof another : sizeof secret,
                                     .timeout = m < s->members ? 0
                                                : s->refused   ? REFUSED_WAITS_NS
                                                               : NEWCOMER_WAITS_NS,
                                     .members = s->members,
                                     .advertise = s->advertise[m]};
    atomic_store(&p->mortal.dies_at,
                 m == s->members && s->newcomer_dies_at ? s->newcomer_dies_at : NEVER);
    p->mortal.process = p;
    p->mortal.scenario = s;
    p->member = m;
    p->f.cluster.transport = &wire_mortal;
    p->f.cluster.place = &p->mortal;
}

static void start_over_tcp(scenario *s)
{
    const int port = free_port();
    for (int m = 0; m < s->members + s->newcomers; m++) {
        process *p = &s->process[m];
        prepare_tcp(s, m, port);
        assert_int_equal(pthread_create(&p->thread, NULL, run_process, p), 0);
    }
}

static void sort_by_number(scenario *s)
{
    for (int m = 0; m < s->members; m++)
        for (int at; (at = s->process[m].member) != m && s->process[at].member != at;) {
            const process p = s->process[at];
            s->process[at] = s->process[m];
            s->process[m] = p;
        }
}

void run_scenario(scenario *s)
{
    wire_world *world = s->members > 1 && !s->tcp ? wire_world_create(s->members) : NULL;
    if (world)
        wire_world_delay(world, 300000, (unsigned)(s->members * 10 + s->workers));
    if (s->kill_at)
        wire_world_kill_at(world, s->victim, s->kill_at);
    if (s->break_at)
        wire_world_break_at(world, s->victim, s->break_at);
    for (int m = 0; m < s->members + s->newcomers; m++) {
        process *p = &s->process[m];
        memset(p, 0, sizeof *p);
        prepare(s, m);
        p->place = (wire_place){world, m};
        p->f.cluster.transport = world ? &wire_double : NULL;
        p->f.cluster.place = world ? &p->place : NULL;
        p->f.cluster.launched = s->launched ? s->members : 0;
        if (!s->tcp)
            assert_int_equal(pthread_create(&p->thread, NULL, run_process, p), 0);
    }
    if (s->tcp)
        start_over_tcp(s);
    for (int m = 0; m < s->members + s->newcomers; m++) {
        pthread_join(s->process[m].thread, NULL);
        fixture_end(&s->process[m].f);
    }
    if (s->tcp)
        sort_by_number(s);
    if (world) {
        s->posts = wire_world_posts(world, s->victim);
        wire_world_destroy(world);
    }
}

void all_ended_with(const scenario *s, const char *hash, double test_loss)
{
    for (int m = 0; m < s->members; m++) {
        const process *p = &s->process[m];
        if (p->status)
            fail_msg("%d × %d, %d shards, member %d: %s", s->members, s->workers, s->shards, m,
                     p->err.text);
        assert_string_equal(p->hash, hash);
        assert_true(p->test_loss == test_loss);
        assert_int_equal(p->records > 0, m == 0);
    }
}

int hosts_of(const char *devices)
{
    int hosts = 1;
    for (const char *at = devices; (at = strchr(at, ';')) != NULL; at++)
        hosts++;
    return hosts;
}

void run_in_one_process(scenario *s, int shards)
{
    *s = (scenario){.members = 1, .workers = 2, .shards = shards};
    run_scenario(s);
    assert_int_equal(s->process[0].status, LS_OK);
}
