/* SPDX-License-Identifier: MIT */
/* Calls whose success or error needs a special preparation: a thread that is lent to a pool; a
 * model of a table; trainers whose devices stall, diverge or compute NaN, whose records cannot be
 * written, or that have no test rows. */
#include "campaigns/api_world.h"

#include "train/own_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* ---- a thread that is lent ---- */

typedef struct lent {
    ls_pool *pool;
    pthread_t thread;
    int status;
    ls_error err;
} lent;

static void *serve(void *arg)
{
    lent *l = arg;
    l->status = ls_pool_serve(l->pool, 1, &l->err);
    return NULL;
}

static int note_that_it_ran(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)worker;
    (void)err;
    atomic_fetch_add((atomic_int *)arg, 1);
    return LS_OK;
}

static void lend_a_thread(world *w)
{
    const ls_pool_options o = {
        .size = sizeof o, .workers = 2, .borrowed = 1, .host = world_host(w)};
    atomic_int ran = 0;
    lent l = {.status = LS_EABORTED};
    if (world_note(w, "ls_pool_create", ls_pool_create(&l.pool, &o, &w->err)) != LS_OK)
        return;
    world_disarm(w);
    if (pthread_create(&l.thread, NULL, serve, &l) != 0)
        world_problem(w, "no thread");
    w->call = "ls_pool_run";
    const int status = world_note(w, "ls_pool_run",
                                  ls_pool_run(l.pool, note_that_it_ran, &ran, LS_FOREVER, &w->err));
    if (status == LS_OK && atomic_load(&ran) != 2)
        world_problem(w, "ls_pool_run: LS_OK, and %d of 2 workers ran", atomic_load(&ran));
    world_note(w, "ls_pool_serve", ls_pool_serve(l.pool, 1, &w->err)); /* it is served */
    world_note(w, "ls_pool_destroy", ls_pool_destroy(l.pool, LS_FOREVER, &w->err));
    pthread_join(l.thread, NULL);
    w->err = l.err;
    world_note(w, "ls_pool_serve", l.status);
}

/* ---- a model of a table ---- */

static int write_table(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return -1;
    fputs("mass,size,island,y\n4100,1,Dream,1\n3900,2,Biscoe,2\n,3,Dream,1.5\n5200,4,Biscoe,3\n",
          f);
    return fclose(f);
}

static int train_on_table(world *w, const char *csv, const char *file)
{
    char data[1400];
    const char *const set[] = {data, "devices=ref:1"};
    ls_model *s = NULL;
    ls_trainer *t;
    const ls_trainer_options o = {
        .size = sizeof o,
        .config_text = "{\"batch_size\": 4, \"shards\": 1, \"run_dir\": null, \"epochs\": 1,"
                       " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05}, \"loss\": \"mse\","
                       " \"model\": {\"layers\": [{\"type\": \"dense\", \"out\": 1}]}}",
        .set = set,
        .set_count = 2,
        .registry = w->registry};
    snprintf(
        data, sizeof data,
        "data={\"name\":\"csv\",\"path\":\"%s\",\"target\":\"y\",\"labels\":\"values\",\"missing\":\"mean\"}",
        csv);
    int status = ls_trainer_open(&t, &o, &w->err);
    if (status)
        return status;
    status = ls_trainer_run(t, &w->err);
    if (status == LS_OK)
        status = ls_trainer_model(&s, t, &w->err);
    if (status == LS_OK)
        status = ls_model_save(s, file, &w->err);
    ls_model_release(s);
    ls_trainer_close(t, NULL);
    return status;
}

static void read_rows(world *w, ls_model *model, const char *path)
{
    ls_rows *rows;
    float out;
    ls_evaluation found = {.size = sizeof found};
    world_note(w, "ls_model_evaluate", ls_model_evaluate(model, path, NULL, &found, &w->err));
    ls_model_column_name(model, ls_model_column_count(model) - 1);
    world_did(w, "ls_model_column_count");
    world_did(w, "ls_model_column_name");
    const int status = world_note(
        w, "ls_rows_open",
        ls_rows_open(&rows, model, world_chance(w, 4) ? "none.csv" : path, NULL, &w->err));
    if (status != LS_OK)
        return;
    ls_rows_count(rows);
    world_did(w, "ls_rows_count");
    ls_rows_name(rows, world_draw(w, 9));
    world_did(w, "ls_rows_name");
    ls_rows_why(rows, world_draw(w, 9));
    world_did(w, "ls_rows_why");
    world_note(w, "ls_rows_predict",
               ls_rows_predict(rows, world_draw(w, 3), 1, (int)world_draw(w, 3), &out, 1, &w->err));
    ls_rows_close(rows);
    world_did(w, "ls_rows_close");
}

static void read_a_table(world *w)
{
    char csv[600], file[600];
    const ls_field fields[] = {{"mass", LS_FIELD_NUMBER, NULL, 4000},
                               {"size", LS_FIELD_TEXT, "2", 0},
                               {"island", LS_FIELD_TEXT, "Dream", 0},
                               {"other", LS_FIELD_TEXT, "?", 0}};
    const ls_model_options o = {
        .size = sizeof o, .device = "ref:1", .registry = w->registry, .host = world_host(w)};
    float out;
    double row[8];
    ls_model *model;
    snprintf(csv, sizeof csv, "%s/table.csv", w->directory);
    snprintf(file, sizeof file, "%s/table.safetensors", w->directory);
    if (!w->has_table) {
        world_disarm(w);
        if (write_table(csv) || train_on_table(w, csv, file) != LS_OK) {
            world_problem(w, "a table: %s", w->err.text);
            return;
        }
        w->has_table = 1;
    }
    if (world_note(w, "ls_model_open", ls_model_open(&model, file, &o, &w->err)) != LS_OK)
        return;
    const size_t count = 2 + world_draw(w, 3), room = world_chance(w, 4) ? 1 : 8;
    const int status =
        world_note(w, "ls_model_row",
                   ls_model_row(model, fields, count, sizeof(ls_field), row, room, &w->err));
    if (status == LS_OK && world_chance(w, 3))
        row[1] = NAN; /* in a column that was never empty */
    if (status == LS_OK)
        world_note(w, "ls_model_predict",
                   ls_model_predict(model, row, LS_ROW_F64, 1, LS_OUTPUT_LOGITS, &out, 1, &w->err));
    read_rows(w, model, csv);
    ls_model_release(model);
}

/* ---- trainers that break down ---- */

static const char config[] =
    "{\"data\": {\"name\": \"own\"}, \"batch_size\": 16, \"shards\": 2, \"run_dir\": null,"
    " \"epochs\": 1, \"eval_every\": 1, \"deadline_s\": 0.3, \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.04},"
    " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

void world_limit_files(unsigned long bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes ? bytes : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static int record_in_vain(void *user, const char *json, size_t length, ls_error *err)
{
    (void)length;
    if (!*(int *)user || !strstr(json, "\"step\""))
        return LS_OK;
    err->status = LS_EDATA;
    memcpy(err->text, "no more records", sizeof "no more records");
    return LS_EDATA;
}

static void ask_for_all(world *w, ls_trainer *t)
{
    float weights[8000], scores[OWN_CLASSES];
    char path[600];
    ls_model *s;
    snprintf(path, sizeof path, "%s/other.safetensors", w->directory);
    world_note(w, "ls_trainer_evaluate", ls_trainer_evaluate(t, NULL, &w->err));
    world_note(w, "ls_trainer_weights", ls_trainer_weights(t, weights, 8000, &w->err));
    if (world_note(w, "ls_trainer_model", ls_trainer_model(&s, t, &w->err)) == LS_OK)
        ls_model_release(s);
    own_predict(t, w->images, LS_ROW_U8, 1, scores, OWN_CLASSES, &w->err);
    world_note(w, "ls_trainer_save", ls_trainer_save(t, path, &w->err));
    world_note(w, "ls_trainer_load", ls_trainer_load(t, path, &w->err));
    if (w->saved[0]) /* a checkpoint of another recipe */
        world_note(w, "ls_trainer_load", ls_trainer_load(t, w->saved, &w->err));
}

/* A stall costs a second, so they are few. */
static const char *some_fault(world *w)
{
    static const char *const stalls[] = {"worker=0,step=2,kind=stall,seconds=0.6",
                                         "worker=1,step=2,kind=stall,stage=merge,seconds=0.6"};
    static const char *const faults[] = {
        "worker=0,step=2,kind=nan", "worker=1,step=2,kind=corrupt", "worker=0,step=2,kind=fail",
        "worker=1,step=3,kind=fail,stage=evaluate", "worker=0,step=2,kind=fail,stage=export"};
    return world_chance(w, 25) ? stalls[world_draw(w, 2)] : faults[world_draw(w, 5)];
}

/* A second trainer in the directory of one that trains. */
static void open_twice(world *w, const char *run_dir)
{
    const ls_trainer_options o = {
        .size = sizeof o, .resume = run_dir, .registry = w->registry, .host = world_host(w)};
    ls_trainer *second;
    if (world_note(w, "ls_trainer_open", ls_trainer_open(&second, &o, &w->err)) != LS_OK)
        return;
    world_problem(w, "two trainers train in one directory");
    ls_trainer_close(second, NULL);
}

static void break_down(world *w)
{
    int reader_has_enough = 0;
    char run_dir[600];
    const char *fault = some_fault(w);
    const char *set[] = {world_chance(w, 2) ? "devices=ref:1" : "devices=ref:2", run_dir};
    const int streamed = world_chance(w, 2), recorded = world_chance(w, 3);
    ls_data_source data = own_data(streamed);
    const ls_data_source *sources[] = {&data};
    const ls_trainer_sys sys = {.size = sizeof sys,
                                .inject = &fault,
                                .inject_count =
                                    set[0][12] == '1' && strstr(fault, "worker=1") ? 0 : 1};
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .record = record_in_vain, .user = &reader_has_enough};
    const ls_trainer_options o = {.size = sizeof o,
                                  .config_text = config,
                                  .set = set,
                                  .set_count = 1 + recorded,
                                  .sources = sources,
                                  .source_count = 1,
                                  .registry = w->registry,
                                  .callbacks = &callbacks,
                                  .sys = &sys,
                                  .host = world_host(w)};
    ls_trainer *t;
    snprintf(run_dir, sizeof run_dir, "run_dir=%s/broken-%llu-%u", w->directory,
             (unsigned long long)w->number, w->drawn);
    data.test_rows = world_chance(w, 4) ? 0 : 8;
    data.train_rows = streamed ? 0 : 48;
    w->call = "ls_trainer_open of a trainer that breaks down";
    if (world_note(w, "ls_trainer_open", ls_trainer_open(&t, &o, &w->err)) != LS_OK)
        return;
    world_disarm(w);
    w->call = "a trainer that breaks down";
    if (recorded && world_chance(w, 2))
        open_twice(w, run_dir + strlen("run_dir="));
    reader_has_enough = world_chance(w, 6);
    if (recorded && world_chance(w, 2))
        world_limit_files(300);
    if (!streamed)
        world_note(w, "ls_trainer_run", ls_trainer_run(t, &w->err));
    for (int i = 0; streamed && i < 4; i++)
        world_note(w, "ls_trainer_step",
                   own_step(t, w->images, w->labels, WORLD_BATCH, NULL, &w->err));
    world_limit_files(0);
    ask_for_all(w, t);
    w->call = "ls_trainer_close of a trainer that broke down";
    if (strstr(fault, "stall")) /* the abandoned worker comes back */
        nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
    const int status = ls_trainer_close(t, NULL);
    promises_find("ls_trainer_close")->reached[-status]++;
    if (status != LS_OK && !(recorded && status == LS_EIO)) /* a checkpoint beyond the limit */
        world_problem(w, "ls_trainer_close: %s", ls_status_name(status));
}

static void break_down_seldom(world *w)
{
    if (world_chance(w, 2))
        break_down(w);
}

world_call *const rare_calls[] = {lend_a_thread, read_a_table, break_down_seldom, NULL};
