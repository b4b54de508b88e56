/* SPDX-License-Identifier: MIT */
/* Counts what a training step costs besides arithmetic, for the model of many cores in
 * scale_model.py.
 *
 *     bench_team CONFIG [--set KEY=VALUE]…
 *
 * Trains the config without evaluation, and prints one line of JSON: the numbers of a run (workers,
 * threads of a worker, shards, steps, rows of a step, bytes of the weights), and for one step, of
 * all workers together: CPU seconds of the process, jobs of the teams (each has one join), items
 * and parts of these jobs, and context switches. The counts include what opening the run costs,
 * which many steps make small. */
#include "cpu/cpu_device.h"
#include "engine/view.h"
#include "train/trainer.h"

#include <lockstep/trainer.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Returns the counts of the teams of all workers. */
static ls_team_counts counts_of(ls_trainer *t)
{
    ls_team_counts sum = {0};
    for (int w = 0; w < ls_engine_workers(t->engine); w++) {
        const ls_device *device = ls_engine_worker(t->engine, w).device;
        const ls_team_counts one = ls_team_counted(((const ls_cpu_device *)device)->team);
        sum.jobs += one.jobs;
        sum.items += one.items;
    }
    return sum;
}

static void print_counts(ls_trainer *t)
{
    const ls_summary *s = ls_trainer_summary(t);
    const ls_team_counts counts = counts_of(t);
    const double steps = (double)ls_trainer_result(t)->steps;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    const double cpu_s = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                         1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    printf("{\"workers\": %d, \"threads\": %d, \"shards\": %d, \"steps\": %.0f, \"rows\": %d, "
           "\"parameter_bytes\": %zu, \"cpu_s\": %.6f, \"jobs\": %.1f, \"items\": %.1f, "
           "\"switches\": %.1f}\n",
           s->workers, s->threads, s->shards, steps, t->config.batch_size, s->parameter_bytes,
           cpu_s / steps, (double)counts.jobs / steps, (double)counts.items / steps,
           (double)(use.ru_nvcsw + use.ru_nivcsw) / steps);
}

int main(int argc, char **argv)
{
    enum { SET_MOST = 64 };
    const char *set[SET_MOST] = {"run_dir=null", "eval_every=0"};
    ls_trainer_options o = {.size = sizeof o, .set = set, .set_count = 2};
    ls_trainer *trainer = NULL;
    ls_error err;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && o.set_count < SET_MOST)
            set[o.set_count++] = argv[++i];
        else
            o.config_path = argv[i];
    }
    if (!o.config_path) {
        fprintf(stderr, "usage: bench_team CONFIG [--set KEY=VALUE]...\n");
        return 64;
    }
    int status = ls_trainer_open(&trainer, &o, &err);
    if (status == LS_OK)
        status = ls_trainer_run(trainer, &err);
    if (status == LS_OK)
        print_counts(trainer);
    else
        fprintf(stderr, "bench_team: %s\n", err.text);
    ls_trainer_close(trainer, NULL);
    return status == LS_OK ? 0 : 1;
}
