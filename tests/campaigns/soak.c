/* SPDX-License-Identifier: MIT */
/* Campaign: one process that trains, saves, is interrupted, resumes and loses devices, over and
 * over.
 *
 *     soak --directory DIR [--seconds N] [--seed S]
 *
 * Each round is one run in a directory of its own: it is interrupted at some step, resumed on
 * another number of workers, loses a device by a failure or a stall, and ends. The campaign passes
 * if every round ends with the bits of the undisturbed run, the resident memory grew by at most 1
 * MB from the end of the warm-up (a fifth of the time) to the end, and no descriptor or thread is
 * left. Prints one JSON object. */
#include "base/clock.h"
#include "base/rng.h"
#include "campaigns/arguments.h"
#include "campaigns/remove_tree.h"
#include "ref/ref.h"

#include <dirent.h>
#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char config[] =
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 96}, \"batch_size\": 32, \"shards\": 8,"
    " \"epochs\": 2, \"eval_every\": 1, \"init\": {\"name\": \"xavier\"},"
    " \"checkpoint\": {\"every_steps\": 2}, \"deadline_s\": 0.5,"
    " \"optimizer\": {\"name\": \"adamw\", \"lr\": 0.002},"
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 4, \"kernel\": 5},"
    " {\"type\": \"batch_norm\"}, {\"type\": \"relu\"}, {\"type\": \"avg_pool\", \"kernel\": 2},"
    " {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}";

typedef struct round_state {
    ls_trainer *trainer;
    uint64_t stop_behind;
} round_state;

static void on_progress(void *user, const ls_progress *p)
{
    round_state *r = user;
    if (r->stop_behind && (uint64_t)(p->epoch - 1) * p->steps + p->step >= r->stop_behind)
        ls_trainer_interrupt(r->trainer);
}

static long count_entries(const char *directory)
{
    long count = 0;
    DIR *d = opendir(directory);
    while (d && readdir(d))
        count++;
    if (d)
        closedir(d);
    return count;
}

static long resident_kb(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* One trainer from open to close; returns the run's status. */
static int live_once(const ls_registry *registry, const char *run, int resume, int workers,
                     const char *fault, uint64_t stop_behind, char hash[65])
{
    char devices[32], run_dir[600];
    const char *set[] = {devices, run_dir};
    round_state r = {.stop_behind = stop_behind};
    ls_error err;
    snprintf(devices, sizeof devices, "devices=ref:%d", workers);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", run);
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .progress = on_progress, .user = &r};
    const ls_trainer_sys sys = {
        .size = sizeof sys, .inject = &fault, .inject_count = fault != NULL};
    ls_trainer_options o = {
        .size = sizeof o,
        .config_text = config,
        .set = set,
        .set_count = 2,
        .registry = registry,
        .resume = resume ? run : NULL,
        .callbacks = &callbacks,
        .sys = &sys,
    };
    int status = ls_trainer_open(&r.trainer, &o, &err);
    if (status == LS_OK) {
        status = ls_trainer_run(r.trainer, &err);
        memcpy(hash, ls_trainer_result(r.trainer)->weights_sha256, 65);
        if (ls_trainer_close(r.trainer, NULL) != LS_OK)
            status = LS_ESTALLED;
    }
    if (status && status != LS_EINTERRUPTED)
        fprintf(stderr, "soak: %s\n", err.text);
    return status;
}

static int one_round(const ls_registry *registry, const char *run, uint64_t seed, uint32_t round,
                     char hash[65])
{
    uint32_t draw[4];
    char fault[96];
    ls_rng_words(draw, seed, 1, 0, round);
    const int workers = 2 + (int)(draw[0] % 3);
    const uint64_t stop_behind = 1 + draw[1] % 4;
    snprintf(fault, sizeof fault, "worker=%d,step=%d,kind=%s", (int)(draw[2] % (uint32_t)workers),
             1 + (int)(draw[2] / 8 % 6), draw[3] % 8 ? "fail" : "stall,seconds=1");
    int status = live_once(registry, run, 0, 1 + (int)(draw[3] / 8 % 4), NULL, stop_behind, hash);
    if (status != LS_EINTERRUPTED)
        return 1;
    status = live_once(registry, run, 1, workers, fault, 0, hash);
    remove_tree(run);
    return status != LS_OK;
}

int main(int argc, char **argv)
{
    const char *directory = argument(argc, argv, "--directory", NULL);
    const double seconds = number_argument(argc, argv, "--seconds", 600);
    const uint64_t seed = strtoull(argument(argc, argv, "--seed", "1"), NULL, 10);
    ls_registry *registry;
    char run[512], wanted[65] = "", hash[65];
    if (!directory || ls_registry_create(&registry, NULL, NULL) ||
        ls_registry_add(registry, ls_ref_backend(), NULL))
        return 1;
    snprintf(run, sizeof run, "%s/run", directory);
    remove_tree(run);
    if (live_once(registry, run, 0, 1, NULL, 0, wanted))
        return 1;
    remove_tree(run);
    const uint64_t start = ls_now_ns();
    long warm_kb = 0, warm_descriptors = 0, warm_threads = 0;
    uint32_t round = 0;
    double now = 0;
    while (now < seconds) {
        if (one_round(registry, run, seed, round++, hash) || strcmp(hash, wanted) != 0) {
            printf("round %u of seed %llu: %s\n", (unsigned)round - 1, (unsigned long long)seed,
                   strcmp(hash, wanted) ? "other bits" : "failed");
            return 1;
        }
        if (now < seconds / 5 || warm_kb == 0) {
            warm_kb = resident_kb();
            warm_descriptors = count_entries("/proc/self/fd");
            warm_threads = count_entries("/proc/self/task");
        }
        now = (double)(ls_now_ns() - start) * 1e-9;
    }
    const long grown_kb = resident_kb() - warm_kb;
    const long descriptors = count_entries("/proc/self/fd") - warm_descriptors;
    const long threads = count_entries("/proc/self/task") - warm_threads;
    const int passed = grown_kb <= 1024 && descriptors == 0 && threads == 0;
    ls_registry_destroy(registry);
    printf("{\"campaign\":\"soak\",\"seed\":%llu,\"seconds\":%g,\"rounds\":%u,\"grown_kb\":%ld,"
           "\"descriptors\":%ld,\"threads\":%ld,\"passed\":%s}\n",
           (unsigned long long)seed, seconds, (unsigned)round, grown_kb, descriptors, threads,
           passed ? "true" : "false");
    return !passed;
}
