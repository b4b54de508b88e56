/* SPDX-License-Identifier: MIT */
/* A training run that reports when each of its steps was completed. bench/recovery.py starts it,
 * makes a worker or a process fail, and measures how long recovery takes. For each record of the
 * run it prints a line on standard output: the time at which it received the record, in nanoseconds
 * of CLOCK_MONOTONIC, which is the same for all processes of a machine, and the record.
 *
 *     bench_recovery CONFIG [OPTION VALUE]...
 *
 *     --set KEY=VALUE    sets a key of the config
 *     --inject FAULT     injects a fault
 *     --resume DIR       resumes that run; CONFIG is then ignored
 *     --listen ADDRESS, --join ADDRESS, --members N, --secret TEXT
 *                        as for trainer; the secret is the text itself
 *
 * Exit codes: 0; 75 if the run was saved and can be resumed; else 71. */
#include <lockstep/cluster.h>
#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 16 };

typedef struct arguments {
    const char *set[MOST], *inject[MOST];
    int sets, injects;
    const char *resume;
    ls_tcp_place place;
} arguments;

static int print_record(void *user, const char *json, size_t length, ls_error *err)
{
    struct timespec t;
    (void)user;
    (void)err;
    clock_gettime(CLOCK_MONOTONIC, &t);
    printf("%lld%09ld %.*s\n", (long long)t.tv_sec, t.tv_nsec, (int)length, json);
    fflush(stdout);
    return LS_OK;
}

static int is(const char *word, const char *option)
{
    return strcmp(word, option) == 0;
}

/* Stores the value of an option. Returns 0 if the option is unknown. */
static int take(arguments *a, const char *option, const char *value)
{
    if (is(option, "--set") && a->sets < MOST)
        a->set[a->sets++] = value;
    else if (is(option, "--inject") && a->injects < MOST)
        a->inject[a->injects++] = value;
    else if (is(option, "--resume"))
        a->resume = value;
    else if (is(option, "--listen"))
        a->place.listen = value;
    else if (is(option, "--join"))
        a->place.meet = value;
    else if (is(option, "--members"))
        a->place.members = atoi(value);
    else if (is(option, "--secret"))
        a->place.secret = value;
    else
        return 0;
    return 1;
}

static int run(const char *config, arguments *a)
{
    ls_trainer *trainer;
    ls_error err;
    const ls_trainer_callbacks callbacks = {.size = sizeof callbacks, .record = print_record};
    const ls_trainer_cluster cluster = {.size = sizeof cluster, .tcp = &a->place};
    const ls_trainer_sys sys = {
        .size = sizeof sys, .inject = a->inject, .inject_count = a->injects};
    const ls_trainer_options options = {.size = sizeof options,
                                        .config_path = a->resume ? NULL : config,
                                        .set = a->set,
                                        .set_count = a->sets,
                                        .resume = a->resume,
                                        .callbacks = &callbacks,
                                        .cluster = a->place.members > 0 ? &cluster : NULL,
                                        .sys = &sys};
    int saved = 0, status = ls_trainer_open(&trainer, &options, &err);
    if (status == LS_OK) {
        status = ls_trainer_run(trainer, &err);
        const ls_result *result = ls_trainer_result(trainer);
        saved = result->saved;
        if (result->saved)
            printf("saved %s\n", result->checkpoint);
        ls_trainer_close(trainer, NULL);
    }
    if (status)
        fprintf(stderr, "bench_recovery: %s\n", err.text);
    return status == LS_OK ? 0 : saved ? 75 : 71;
}

int main(int argc, char **argv)
{
    arguments a = {.place = {.size = sizeof a.place}};
    int good = argc >= 2 && argc % 2 == 0;
    for (int i = 2; good && i + 1 < argc; i += 2)
        good = take(&a, argv[i], argv[i + 1]);
    if (!good) {
        fprintf(stderr, "usage: bench_recovery CONFIG [OPTION VALUE]...\n");
        return 64;
    }
    a.place.secret_bytes = a.place.secret ? strlen(a.place.secret) : 0;
    return run(argv[1], &a);
}
