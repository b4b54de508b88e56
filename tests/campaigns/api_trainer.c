/* SPDX-License-Identifier: MIT */
/* Random calls of trainer.h and model.h. */
#include "campaigns/api_world.h"

#include "train/faulty_backend.h"
#include "train/own_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char config[] =
    "{\"data\": {\"name\": \"own\"}, \"batch_size\": 16, \"shards\": 2, \"run_dir\": null,"
    " \"epochs\": 1, \"eval_every\": 1, \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 2, \"kernel\": 5, \"stride\": 5},"
    " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

/* ---- callbacks of the trainer ---- */

/* Calls that a callback may not make. */
static void call_in(world *w, ls_error *err)
{
    float weights[1];
    int status = LS_EINVAL;
    switch (w->calls_in++ % 5) {
    case 0: status = own_step(w->trainer, w->images, w->labels, WORLD_BATCH, NULL, err); break;
    case 1: status = ls_trainer_weights(w->trainer, weights, 1, err); break;
    case 2: status = ls_trainer_run(w->trainer, err); break;
    case 3: status = ls_trainer_save(w->trainer, "nowhere", err); break;
    default: status = ls_trainer_close(w->trainer, NULL);
    }
    if (status != LS_EINVAL)
        world_problem(w, "a callback that calls in was answered with %s", ls_status_name(status));
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    world *w = user;
    (void)json;
    (void)length;
    if (w->trainer)
        call_in(w, err);
    if (!w->trainer || w->calls_in % 11)
        return LS_OK;
    err->status = LS_EDATA;
    memcpy(err->text, "the records' reader had enough", sizeof "the records' reader had enough");
    return LS_EDATA;
}

static void on_progress(void *user, const ls_progress *progress)
{
    const world *w = user;
    if (progress->step > progress->steps && progress->steps > 0 && w->trainer)
        world_problem(user, "ls_progress: step %llu of %llu", (unsigned long long)progress->step,
                      (unsigned long long)progress->steps);
}

static void on_model(void *user, ls_model *snapshot)
{
    world *w = user;
    if (w->snapshot[0])
        return;
    w->snapshot[0] = ls_model_retain(snapshot);
    world_did(w, "ls_model_retain");
}

/* ---- opening ---- */

static void break_options(world *w, ls_trainer_options *o, const char *set[3], char garbage[1])
{
    static const char *const none[] = {NULL};
    switch (world_draw(w, 26)) {
    case 0: o->size = 0; break;
    case 1: o->config_text = NULL; break;
    case 2: o->config_text = "{\"epochs\": "; break;
    case 3: o->config_path = "there/is/no/such.json"; break;
    case 4: set[1] = NULL; break;
    case 5: o->set = NULL; break;
    case 6: o->set_count = -1; break;
    case 7: set[1] = "optimizer.lrr=1"; break;
    case 8: o->sources = NULL; break;
    case 9: w->sources[0] = NULL; break;
    case 10:
        w->sys = (ls_trainer_sys){.size = sizeof w->sys, .inject = none, .inject_count = 1};
        o->sys = &w->sys;
        break;
    case 11: o->resume = "there/is/no/run"; break;
    case 12: set[1] = "run_dir=/proc/none"; break;
    case 13: o->step_row_count = 9; break;
    case 14: set[1] = "data.name=other"; break;
    case 15: o->trace_path = "/proc/none/trace"; break;
    case 16: w->data.classes = 1; break;
    case 17: o->data_dirs = none, o->data_dir_count = 1; break;
    case 18: garbage[0] = 1; break;
    case 19:
        w->read_that_fails = 1 + (int)world_draw(w, 3);
        w->data.user = &w->read_that_fails;
        break;
    default: break;
    }
}

static const uint32_t fewer_rows[] = {8};

static void open_shadow(world *w, int resident)
{
    const char *set[] = {"devices=ref:1"};
    static ls_data_source data;
    static const ls_data_source *sources[1] = {&data};
    ls_error err;
    data = own_data(!resident);
    data.test_rows = 8;
    data.train_rows = resident ? 48 : 0;
    const ls_trainer_options o = {.size = sizeof o,
                                  .config_text = config,
                                  .set = set,
                                  .set_count = 1,
                                  .sources = sources,
                                  .source_count = 1,
                                  .step_rows = fewer_rows,
                                  .step_row_count = 1,
                                  .registry = w->registry};
    world_disarm(w);
    if (ls_trainer_open(&w->shadow, &o, &err) != LS_OK)
        world_problem(w, "the shadow: %s", err.text);
    w->comparable = 1;
}

static void prepare(world *w, ls_trainer_options *o, const char *set[3])
{
    static const char *const devices[] = {"devices=ref:1", "devices=ref:2", "devices=faulty:2",
                                          "devices=faulty:2", "devices=faulty:1"};
    w->resident = world_chance(w, 3);
    w->data = own_data(!w->resident);
    w->data.test_rows = 8;
    w->data.train_rows = w->resident ? 48 : 0;
    w->sources[0] = &w->data;
    set[0] = devices[world_draw(w, 5)];
    set[1] = "deadline_s=30";
    w->callbacks = (ls_trainer_callbacks){.size = sizeof w->callbacks,
                                          .record = on_record,
                                          .progress = on_progress,
                                          .model = on_model,
                                          .model_every_steps = 2,
                                          .user = w};
    *o = (ls_trainer_options){.size = sizeof *o,
                              .config_text = config,
                              .set = set,
                              .set_count = 2,
                              .sources = w->sources,
                              .source_count = 1,
                              .registry = w->registry,
                              .step_rows = fewer_rows,
                              .step_row_count = 1,
                              .callbacks = &w->callbacks,
                              .host = world_host(w)};
}

static void open_trainer(world *w)
{
    const char *set[3];
    char garbage[1] = {0}, run_dir[600];
    ls_trainer_options o;
    ls_trainer *t = NULL;
    if (w->trainer)
        return;
    prepare(w, &o, set);
    if (world_chance(w, 3)) {
        snprintf(run_dir, sizeof run_dir, "run_dir=%s/run-%llu-%u", w->directory,
                 (unsigned long long)w->number, w->drawn);
        set[1] = run_dir;
    }
    if (w->devices && world_chance(w, 2))
        o.pool = w->devices;
    if (world_chance(w, 3))
        break_options(w, &o, set, garbage);
    if (world_note(w, "ls_trainer_open", ls_trainer_open(garbage[0] ? NULL : &t, &o, &w->err)) !=
        LS_OK)
        return;
    if (w->devices_broken && o.pool)
        world_problem(w, "a pool whose owner works was accepted");
    w->trainer = t;
    w->ran = 0;
    open_shadow(w, w->resident);
}

static void resolve(world *w)
{
    const char *set[3];
    char garbage[1] = {0}, *text;
    ls_trainer_options o;
    if (w->trainer)
        return;
    prepare(w, &o, set);
    if (world_chance(w, 2))
        break_options(w, &o, set, garbage);
    if (world_note(w, "ls_config_resolve", ls_config_resolve(&text, &o, &w->err)) != LS_OK)
        return;
    ls_text_free(text);
    world_did(w, "ls_text_free");
}

/* Verifies a run that is not there: the runs of the swarm have rows of their own, which no verifier
 * has. */
static void verify(world *w)
{
    const ls_trainer_options o = {.size = sizeof o};
    const ls_verify_options v = {
        .size = sizeof v, .run = world_chance(w, 2) ? NULL : "no/such/run", .trainer = &o};
    ls_verdict verdict = {.size = sizeof verdict};
    if (world_note(w, "ls_verify", ls_verify(&verdict, &v, &w->err)) == LS_OK)
        world_problem(w, "ls_verify: verified a run that does not exist");
}

/* ---- training ---- */

static void choose_rows(world *w)
{
    const uint32_t from = world_draw(w, OWN_TRAIN);
    for (uint32_t i = 0; i < WORLD_BATCH; i++)
        own_row(0, (from + i) % OWN_TRAIN, w->images + (size_t)i * OWN_PIXELS, &w->labels[i]);
}

static uint64_t steps_of(ls_trainer *t)
{
    return ls_trainer_result(t)->steps;
}

/* The shadow makes the step that was made. */
static void follow_step(world *w, uint64_t before, uint32_t n)
{
    ls_error err;
    const uint64_t after = steps_of(w->trainer);
    if (after == before || !w->comparable)
        return;
    if (after != before + 1)
        world_problem(w, "one step counted as %llu", (unsigned long long)(after - before));
    else if (own_step(w->shadow, w->images, w->labels, n, NULL, &err) != LS_OK)
        world_problem(w, "the shadow's step: %s", err.text);
}

static void step(world *w)
{
    ls_step_result result = {.size = sizeof result};
    uint32_t n = WORLD_BATCH;
    const void *images = w->images, *labels = w->labels;
    if (!w->trainer)
        return;
    choose_rows(w);
    switch (world_draw(w, 20)) {
    case 0: n = 7; break;
    case 1: images = NULL; break;
    case 2: labels = NULL; break;
    case 3: w->labels[3] = OWN_CLASSES; break;
    case 4:
    case 5: n = 8; break;
    default: break;
    }
    const uint64_t before = steps_of(w->trainer);
    w->call = "ls_trainer_step";
    const int status =
        world_note(w, "ls_trainer_step", own_step(w->trainer, images, labels, n, &result, &w->err));
    if (status == LS_OK && result.number != steps_of(w->trainer))
        world_problem(w, "ls_trainer_step: step %llu of %llu", (unsigned long long)result.number,
                      (unsigned long long)steps_of(w->trainer));
    if (status == LS_EINVAL && steps_of(w->trainer) != before)
        world_problem(w, "ls_trainer_step: LS_EINVAL, and a step was made: %s", w->err.text);
    follow_step(w, before, n);
}

static void run(world *w)
{
    ls_error err;
    if (!w->trainer || !world_chance(w, 4))
        return;
    w->call = "ls_trainer_run";
    const int status = world_note(w, "ls_trainer_run", ls_trainer_run(w->trainer, &w->err));
    w->ran |= status != LS_EINVAL && status != LS_ECANCELED;
    if (status == LS_EINVAL)
        return;
    if (status != LS_OK || !w->comparable)
        w->comparable = 0;
    else if (ls_trainer_run(w->shadow, &err) != LS_OK)
        world_problem(w, "the shadow's run: %s", err.text);
}

static void interrupt(world *w)
{
    if (!w->trainer || !world_chance(w, 6))
        return;
    ls_trainer_interrupt(w->trainer);
    world_did(w, "ls_trainer_interrupt");
}

static void look(world *w)
{
    if (!w->trainer)
        return;
    if (ls_trainer_summary(w->trainer)->parameters > WORLD_PARAMETERS)
        world_problem(w, "the model is larger than it was");
    world_did(w, "ls_trainer_summary");
    if (!ls_trainer_result(w->trainer)->devices)
        world_problem(w, "ls_trainer_result: no devices");
    world_did(w, "ls_trainer_result");
}

/* ---- comparing weights ---- */

static void compare(world *w, const char *name, const float *weights)
{
    static float wanted[WORLD_PARAMETERS];
    ls_error err;
    if (!w->comparable)
        return;
    if (ls_trainer_weights(w->shadow, wanted, WORLD_PARAMETERS, &err) != LS_OK)
        world_problem(w, "the shadow's weights: %s", err.text);
    else if (memcmp(weights, wanted, ls_trainer_summary(w->shadow)->parameters * sizeof *wanted) !=
             0)
        world_problem(w, "%s: LS_OK, and not the weights behind step %llu", name,
                      (unsigned long long)steps_of(w->trainer));
}

static void weights(world *w)
{
    static float out[WORLD_PARAMETERS];
    if (!w->trainer)
        return;
    w->call = "ls_trainer_weights";
    if (world_note(w, "ls_trainer_weights",
                   ls_trainer_weights(w->trainer, world_chance(w, 12) ? NULL : out,
                                      world_chance(w, 12) ? 1 : WORLD_PARAMETERS, &w->err)) ==
        LS_OK)
        compare(w, "ls_trainer_weights", out);
}

static void evaluate(world *w)
{
    ls_evaluation out = {.size = world_chance(w, 8) ? 0 : sizeof out};
    if (!w->trainer)
        return;
    w->call = "ls_trainer_evaluate";
    world_note(w, "ls_trainer_evaluate",
               ls_trainer_evaluate(w->trainer, world_chance(w, 3) ? NULL : &out, &w->err));
}

static void take_model(world *w)
{
    const uint32_t i = world_draw(w, WORLD_MODELS);
    ls_model *s = NULL;
    if (!w->trainer)
        return;
    w->call = "ls_trainer_model";
    if (world_note(w, "ls_trainer_model",
                   ls_trainer_model(world_chance(w, 12) ? NULL : &s, w->trainer, &w->err)) != LS_OK)
        return;
    ls_model_release(w->snapshot[i]);
    world_did(w, "ls_model_release");
    w->snapshot[i] = s;
    pthread_mutex_lock(&w->lock);
    ls_model_release(w->published);
    w->published = ls_model_retain(s);
    pthread_mutex_unlock(&w->lock);
}

/* Returns a size for an array of predictions: all of it, or too little. */
static size_t some_room(world *w)
{
    return world_chance(w, 12) ? world_draw(w, 3) : WORLD_BATCH * OWN_CLASSES;
}

static void predict(world *w)
{
    float scores[WORLD_BATCH * OWN_CLASSES];
    if (!w->trainer)
        return;
    choose_rows(w);
    own_predict(w->trainer, world_chance(w, 12) ? NULL : w->images, LS_ROW_U8,
                world_draw(w, WORLD_BATCH + 1), scores, some_room(w), &w->err);
}

static void use_shown(world *w)
{
    float scores[WORLD_BATCH * OWN_CLASSES];
    char path[600];
    ls_model_info info = {.size = sizeof info};
    ls_model *s = w->snapshot[world_draw(w, WORLD_MODELS)];
    if (!s)
        return;
    choose_rows(w);
    world_note(w, "ls_model_describe", ls_model_describe(s, &info, &w->err));
    world_note(w, "ls_model_predict",
               ls_model_predict(world_chance(w, 16) ? NULL : s, w->images, LS_ROW_U8, WORLD_BATCH,
                                LS_OUTPUT_LOGITS, scores, some_room(w), &w->err));
    snprintf(path, sizeof path, "%s/%s", w->directory,
             world_chance(w, 3) ? "none/weights.safetensors" : "weights.safetensors");
    world_note(w, "ls_model_save", ls_model_save(s, world_chance(w, 16) ? NULL : path, &w->err));
    snprintf(path, sizeof path, "%s/%s", w->directory,
             world_chance(w, 3) ? "none/model.onnx" : "model.onnx");
    world_note(w, "ls_model_export",
               ls_model_export(s, world_chance(w, 16) ? NULL : path, &w->err));
}

/* ---- files ---- */

static void save(world *w)
{
    char path[500];
    const char *where = path;
    if (!w->trainer)
        return;
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", w->directory);
    const uint32_t how = world_draw(w, 10);
    if (how == 0)
        where = NULL;
    else if (how == 1)
        where = w->directory;
    else if (how == 2)
        where = "there/is/no/such/directory";
    if (how == 3)
        world_limit_files(1000);
    w->call = "ls_trainer_save";
    const int status =
        world_note(w, "ls_trainer_save", ls_trainer_save(w->trainer, where, &w->err));
    world_limit_files(0);
    if (status == LS_OK && where == path && w->comparable)
        snprintf(w->saved, sizeof w->saved, "%s", path);
    else if (where == path)
        w->saved[0] = '\0'; /* it may be of weights that are not followed */
}

/* The beginning of the checkpoint, or something else, under another name. */
static void damage(const world *w, char path[600], size_t keep)
{
    char bytes[3000];
    size_t n = 0;
    FILE *f = fopen(w->saved, "rb");
    if (f) {
        n = fread(bytes, 1, keep < sizeof bytes ? keep : sizeof bytes, f);
        fclose(f);
    }
    snprintf(path, 600, "%s/damaged.safetensors", w->directory);
    f = fopen(path, "wb");
    if (!f)
        return;
    fwrite(bytes, 1, n, f);
    fclose(f);
}

/* Loads a file: a part of it (an ls_load_state), or the whole (3). */
static int load_part(ls_trainer *t, const char *from, int part, ls_error *err)
{
    return part == 3 ? ls_trainer_load(t, from, err)
                     : ls_trainer_load_weights(t, from, (ls_load_state)part, err);
}

static void load(world *w)
{
    char path[600];
    const char *from = w->saved;
    ls_error err;
    if (!w->trainer)
        return;
    if (!w->saved[0] || world_chance(w, 3)) {
        damage(w, path, world_draw(w, 4000));
        const char *const others[] = {path, path, "there/is/no/such/file", NULL, w->directory};
        from = others[world_draw(w, 5)];
    }
    const int part = (int)world_draw(w, 4); /* an ls_load_state, or the whole file */
    w->call = part == 3 ? "ls_trainer_load" : "ls_trainer_load_weights";
    const int status = world_note(w, w->call, load_part(w->trainer, from, part, &w->err));
    if (status == LS_OK && w->comparable && load_part(w->shadow, from, part, &err) != LS_OK)
        world_problem(w, "the shadow's load: %s", err.text);
    /* It may have been taken over by some of the devices, which then failed. */
    if (status == LS_EDEVICE || status == LS_ESTALLED || status == LS_ENOMEM || status == LS_EDATA)
        w->comparable &= status == LS_EDATA;
}

static void set_lr(world *w)
{
    const double lr = world_chance(w, 5) ? -1 : 0.001 * (double)(1 + world_draw(w, 100));
    ls_error err;
    if (!w->trainer)
        return;
    const int status =
        world_note(w, "ls_trainer_set_lr", ls_trainer_set_lr(w->trainer, lr, &w->err));
    if (status == LS_OK && w->comparable && ls_trainer_set_lr(w->shadow, lr, &err) != LS_OK)
        world_problem(w, "the shadow's rate: %s", err.text);
}

/* ---- a model from its file ---- */

static void open_model(world *w)
{
    char path[600];
    ls_model_options o = {
        .size = sizeof o, .device = "ref:1", .registry = w->registry, .host = world_host(w)};
    if (w->model) {
        ls_model_release(w->model);
        w->model = NULL;
    }
    snprintf(path, sizeof path, "%s/weights.safetensors", w->directory);
    switch (world_draw(w, 9)) {
    case 0: damage(w, path, world_draw(w, 4000)); break;
    case 1: snprintf(path, sizeof path, "there/is/none"); break;
    case 2: o.size = 1; break;
    case 3: o.device = "nothing"; break;
    case 5:
    case 6: o.device = "faulty:1"; break;
    case 4: o.device = "cuda:0"; break;
    default: break;
    }
    w->call = "ls_model_open";
    if (world_note(w, "ls_model_open",
                   ls_model_open(&w->model, world_chance(w, 20) ? NULL : path, &o, &w->err)) !=
        LS_OK)
        w->model = NULL;
}

static void use_model(world *w)
{
    float out[WORLD_BATCH * OWN_CLASSES];
    double row[WORLD_BATCH * OWN_CLASSES];
    const ls_field field = {"a", LS_FIELD_NUMBER, NULL, 1};
    if (!w->model)
        return;
    choose_rows(w);
    w->call = "ls_model_predict";
    world_note(w, "ls_model_predict",
               ls_model_predict(w->model, w->images, (ls_row_type)world_draw(w, 4),
                                world_draw(w, WORLD_BATCH + 1), (ls_output)world_draw(w, 4), out,
                                some_room(w), &w->err));
    world_note(w, "ls_model_predict",
               ls_model_predict(w->model, world_chance(w, 8) ? NULL : w->images, LS_ROW_U8, 1,
                                LS_OUTPUT_PREDICTION, out, some_room(w), &w->err));
    world_note(w, "ls_model_row",
               ls_model_row(w->model, &field, 1, sizeof(ls_field), world_chance(w, 3) ? NULL : row,
                            some_room(w), &w->err));
    if (!ls_model_card(w->model))
        world_problem(w, "ls_model_card: none");
    world_did(w, "ls_model_card");
    ls_model_class_name(w->model, (int)world_draw(w, 30) - 10);
    world_did(w, "ls_model_class_name");
}

/* ---- another thread ---- */

static void *read_published(void *arg)
{
    world *w = arg;
    float scores[OWN_CLASSES];
    uint8_t image[OWN_PIXELS];
    int32_t label;
    ls_error err;
    own_row(1, 0, image, &label);
    while (!atomic_load(&w->stop)) {
        pthread_mutex_lock(&w->lock);
        ls_model *s = w->published ? ls_model_retain(w->published) : NULL;
        pthread_mutex_unlock(&w->lock);
        if (s)
            ls_model_predict(s, image, LS_ROW_U8, 1, LS_OUTPUT_LOGITS, scores, OWN_CLASSES, &err);
        ls_model_release(s);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return NULL;
}

static void start_reader(world *w)
{
    if (w->reading || !world_chance(w, 3))
        return;
    atomic_store(&w->stop, 0);
    w->reading = pthread_create(&w->reader, NULL, read_published, w) == 0;
}

static void stop_reader(world *w)
{
    atomic_store(&w->stop, 1);
    if (w->reading)
        pthread_join(w->reader, NULL);
    w->reading = 0;
}

/* ---- the end ---- */

static void close_trainer(world *w)
{
    if (!w->trainer)
        return;
    w->call = "ls_trainer_close";
    ls_trainer *t = w->trainer;
    int status = ls_trainer_close(t, NULL);
    promises_find("ls_trainer_close")->reached[-status]++;
    if (status == LS_ECANCELED) {
        world_note(w, "ls_pool_wait", ls_pool_wait(w->devices, LS_FOREVER, &w->err));
        world_note(w, "ls_pool_clear", ls_pool_clear(w->devices, &w->err));
        status = ls_trainer_close(t, NULL);
    }
    if (status != LS_OK)
        world_problem(w, "ls_trainer_close: %s", ls_status_name(status));
    w->trainer = NULL;
    ls_trainer_close(w->shadow, NULL);
    w->shadow = NULL;
    w->comparable = 0;
    fault_reset();
}

static void close_sometimes(world *w)
{
    if (world_chance(w, 5))
        close_trainer(w);
}

void world_end_trainer(world *w)
{
    stop_reader(w);
    close_trainer(w);
    for (int i = 0; i < WORLD_MODELS; i++)
        ls_model_release(w->snapshot[i]);
    ls_model_release(w->published);
    ls_model_release(w->model);
}

world_call *const trainer_calls[] = {
    open_trainer, open_trainer, resolve,         step,       step,
    step,         run,          interrupt,       look,       weights,
    weights,      evaluate,     take_model,      predict,    use_shown,
    save,         load,         set_lr,          open_model, use_model,
    start_reader, verify,       close_sometimes, NULL};
