/* SPDX-License-Identifier: MIT */
/* Measures Lockstep's training rate in rounds. Each line read from stdin starts one round of steps.
 * The answer is one line of JSON. Between rounds the program only waits, so that several programs
 * can take turns on the same machine (bench/peers/run.py).
 *
 *     trainer_rounds CONFIG [--steps N] [--cache FOLDER] [--set KEY=VALUE]…
 *
 * A round is an epoch of N steps (default 60) over the first N minibatches of the data. At the end
 * of a round no worker computes. The first round also warms up. A GPU's back end chooses kernels by
 * timing them, and stores its choices in FOLDER; without --cache it uses the kernels that its
 * library recommends.
 * The answer contains the rate, and the share of a step that the workers spent in each phase,
 * averaged over workers and steps:
 *
 *     {"images_per_s": 35678.0, "shares": {"gather": 0.01, "forward": 0.33, …}} */
#include <lockstep/trainer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The phases of a worker's step, and their keys in the records. */
static const struct part {
    const char *name, *key;
} parts[] = {
    {"gather", "\"gather_s\":"},     {"forward", "\"forward_s\":"},
    {"backward", "\"backward_s\":"}, {"merge", "\"comm_exposed_s\":"},
    {"wait", "\"wait_s\":"},         {"update", "\"apply_s\":"},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

/* The current round. */
typedef struct rounds {
    ls_trainer *trainer;
    char limit[64];        /* assignment "data.limit=…" with the number of rows of a round */
    double spent_s[PARTS]; /* [phase]: time of all workers together, in seconds */
} rounds;

static int wait_for_line(void)
{
    int c;
    while ((c = getchar()) != '\n' && c != EOF)
        continue;
    return c == '\n';
}

/* Returns the sum of the numbers that follow `key` at all its occurrences in the text. */
static double sum_of(const char *json, const char *key)
{
    double sum = 0;
    for (const char *at = json; (at = strstr(at, key)) != NULL;) {
        at += strlen(key);
        sum += strtod(at, NULL);
    }
    return sum;
}

static void answer(const rounds *r, const char *epoch)
{
    double step_s = sum_of(epoch, "\"seconds\":") * ls_trainer_summary(r->trainer)->workers;
    printf("{\"images_per_s\": %.3f, \"shares\": {", sum_of(epoch, "\"images_per_s\":"));
    for (int i = 0; i < PARTS; i++)
        printf("%s\"%s\": %.6f", i ? ", " : "", parts[i].name, r->spent_s[i] / step_s);
    printf("}}\n");
    fflush(stdout);
}

/* Receives the records of the run, on the thread that trains. */
static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    rounds *r = user;
    (void)length;
    (void)err;
    if (strstr(json, "\"type\":\"step\""))
        for (int i = 0; i < PARTS; i++)
            r->spent_s[i] += sum_of(json, parts[i].key);
    if (!strstr(json, "\"type\":\"epoch\""))
        return LS_OK;
    answer(r, json);
    memset(r->spent_s, 0, sizeof r->spent_s);
    if (!wait_for_line())
        ls_trainer_interrupt(r->trainer);
    return LS_OK;
}

/* Stores the batch_size of the config in *out, with the assignments of --set. */
static int batch_size(long *out, const ls_trainer_options *o, ls_error *err)
{
    char *text;
    int status = ls_config_resolve(&text, o, err);
    if (status)
        return status;
    *out = (long)sum_of(text, "\"batch_size\":");
    ls_text_free(text);
    return LS_OK;
}

static int open_trainer(rounds *r, ls_trainer_options *o, const char **set, long steps,
                        ls_error *err)
{
    long batch;
    int status = batch_size(&batch, o, err);
    if (status)
        return status;
    snprintf(r->limit, sizeof r->limit, "data.limit=%ld", steps * batch);
    set[o->set_count++] = r->limit;
    return ls_trainer_open(&r->trainer, o, err);
}

int main(int argc, char **argv)
{
    enum { SET_MOST = 64 };
    const char *set[SET_MOST + 1] = {"run_dir=null", "epochs=100000", "eval_every=0"};
    const char *dirs[] = {"/usr/share/datasets"};
    long steps = 60;
    rounds r = {0};
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .record = on_record, .user = &r};
    ls_trainer_options o = {.size = sizeof o,
                            .set = set,
                            .set_count = 3,
                            .data_dirs = dirs,
                            .data_dir_count = 1,
                            .callbacks = &callbacks};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            steps = strtol(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--cache") == 0 && i + 1 < argc)
            o.cache_dir = argv[++i];
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && o.set_count < SET_MOST)
            set[o.set_count++] = argv[++i];
        else
            o.config_path = argv[i];
    }
    if (!o.config_path || steps < 1) {
        fprintf(stderr, "usage: trainer_rounds CONFIG [--steps N] [--cache FOLDER] "
                        "[--set KEY=VALUE]...\n");
        return 64;
    }
    ls_error err;
    int status = open_trainer(&r, &o, set, steps, &err);
    if (status == LS_OK)
        status = wait_for_line() ? ls_trainer_run(r.trainer, &err) : LS_EINTERRUPTED;
    ls_trainer_close(r.trainer, NULL);
    if (status != LS_EINTERRUPTED)
        fprintf(stderr, "trainer_rounds: %s\n", err.text);
    return status == LS_EINTERRUPTED ? 0 : 1;
}
