/* SPDX-License-Identifier: MIT */
/* Trains a small run, and reports whether a run that a power cut has left can be used.
 * power_cuts.py runs it.
 *
 *     power_driver train RUN [KEY=VALUE]...
 *         trains RUN, interrupted after step 5 and then resumed to its end. Prints "saved STEPS"
 *         when a checkpoint was reported, and "done" at the end.
 *     power_driver config
 *         prints the config that it trains with
 *     power_driver judge
 *         reads lines "RUN SAVED DONE [KEY=VALUE]": the number of steps that were reported as saved
 *         (-1: none), and whether the run was reported as done. Resumes RUN to its end, or begins
 *         it if there is none. Answers each with a line: "begun", "nothing" (to resume, before
 *         anything was reported), "resumed STEPS", or "VIOLATION …". */
#include "base/error.h"
#include "ref/ref.h"

#include <lockstep/trainer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STOP = 5, PATH = 4096, SETS = 8 };

static const char config[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 96}, \"batch_size\": 16, \"shards\": 4,"
    " \"devices\": \"ref:4\", \"epochs\": 2, \"init\": {\"name\": \"xavier\"},"
    " \"checkpoint\": {\"every_steps\": 4}, \"metrics\": {\"tensorboard\": true},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"
    " \"model\": {\"layers\": [{\"type\": \"avg_pool\", \"kernel\": 4}, {\"type\": \"flatten\"},"
    " {\"type\": \"dense\", \"name\": \"fc\", \"out\": 10}]}}";

typedef struct session {
    ls_registry *registry;
    ls_trainer *trainer;
    int stop, talk;
    char told[PATH]; /* the checkpoint that was spoken of last */
} session;

/* ---- training ------------------------------------------------------------------------------- */

static void tell(session *s)
{
    const char *newest = ls_trainer_result(s->trainer)->checkpoint;
    if (!s->talk || !*newest || strcmp(newest, s->told) == 0)
        return;
    snprintf(s->told, sizeof s->told, "%s", newest);
    printf("saved %d\n", atoi(strrchr(newest, '-') + 1));
}

static void on_progress(void *user, const ls_progress *p)
{
    session *s = user;
    tell(s);
    if (s->stop && p->step >= (uint64_t)s->stop)
        ls_trainer_interrupt(s->trainer);
}

static int open_run(session *s, const char *run, int resume, const char *const *set, int count,
                    ls_error *err)
{
    char run_dir[PATH];
    const char *all[SETS + 1] = {run_dir};
    for (int i = 0; i < count && i < SETS; i++)
        all[i + 1] = set[i];
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .user = s};
    const ls_trainer_options o = {.size = sizeof o,
                                  .config_text = resume ? NULL : config,
                                  .set = resume ? NULL : all,
                                  .set_count = resume ? 0 : count + 1,
                                  .resume = resume ? run : NULL,
                                  .registry = s->registry,
                                  .callbacks = &callbacks};
    return ls_trainer_open(&s->trainer, &o, err);
}

static int run_to_end(session *s, ls_error *err)
{
    int status = ls_trainer_run(s->trainer, err);
    tell(s);
    const int closed = ls_trainer_close(s->trainer, NULL);
    return closed ? closed : status;
}

static int train(session *s, const char *run, const char *const *set, int count)
{
    ls_error err;
    s->stop = STOP;
    s->talk = 1;
    int status = open_run(s, run, 0, set, count, &err);
    if (status == LS_OK)
        status = run_to_end(s, &err);
    s->stop = 0;
    if (status == LS_EINTERRUPTED) {
        status = open_run(s, run, 1, NULL, 0, &err);
        if (status == LS_OK)
            status = run_to_end(s, &err);
    }
    puts(status == LS_OK ? "done" : err.text);
    return status != LS_OK;
}

/* ---- judging -------------------------------------------------------------------------------- */

static int is_there(const char *run, const char *file)
{
    char path[PATH + 40];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", run, file);
    return stat(path, &st) == 0;
}

static void print_violation(const char *what, const ls_error *err)
{
    printf("VIOLATION %s: %s\n", what, err->text);
}

static void begin_anew(session *s, const char *run, const char *set)
{
    ls_error err;
    int status = open_run(s, run, 0, &set, *set != 0, &err);
    if (status == LS_OK)
        status = run_to_end(s, &err);
    if (status)
        print_violation("a clean beginning", &err);
    else
        puts("begun");
}

static void judge(session *s, const char *run, long saved, int done, const char *set)
{
    ls_error err;
    const int said = saved >= 0 || done;
    if (!is_there(run, "config.json") && !is_there(run, "metrics.jsonl") && !said) {
        begin_anew(s, run, set);
        return;
    }
    int status = open_run(s, run, 1, NULL, 0, &err);
    if (status == LS_ENOENT && !said) {
        puts("nothing");
        return;
    }
    if (status) {
        print_violation("resume", &err);
        return;
    }
    const long long steps = (long long)ls_trainer_summary(s->trainer)->resumed_steps;
    ls_trainer_close(s->trainer, NULL);
    if (steps < saved) {
        printf("VIOLATION resumes behind step %lld, but said that it had saved %ld\n", steps,
               saved);
        return;
    }
    status = open_run(s, run, 1, NULL, 0, &err);
    if (status == LS_OK)
        status = run_to_end(s, &err);
    if (status)
        print_violation("resumed, it does not end", &err);
    else
        printf("resumed %lld\n", steps);
}

int main(int argc, char **argv)
{
    static session s;
    char line[2 * PATH], run[PATH], set[PATH];
    ls_error err;
    long saved;
    int done;
    if (ls_registry_create(&s.registry, NULL, &err) != LS_OK ||
        ls_registry_add(s.registry, ls_ref_backend(), &err) != LS_OK)
        return 2;
    if (argc >= 3 && strcmp(argv[1], "train") == 0)
        return train(&s, argv[2], (const char *const *)argv + 3, argc - 3);
    if (argc == 2 && strcmp(argv[1], "config") == 0)
        return puts(config) == EOF;
    if (argc != 2 || strcmp(argv[1], "judge") != 0)
        return 2;
    while (fgets(line, sizeof line, stdin)) {
        set[0] = '\0';
        if (sscanf(line, "%4000s %ld %d %4000s", run, &saved, &done, set) < 3)
            return 2;
        judge(&s, run, saved, done, set);
        fflush(stdout);
    }
    ls_registry_destroy(s.registry);
    return 0;
}
