/* SPDX-License-Identifier: MIT */
/* Campaign: workers that fail or stall, at every stage, in seeded schedules.
 *
 *     worker_faults [--schedules N] [--seed S] [--deadline SECONDS]
 *
 * A schedule draws 2 to 8 workers, and one to three faults on different workers: a kind, a stage
 * and a step each; at least one worker remains. The campaign passes if the final weights have the
 * bits of the undisturbed run, every step has one record, each loss names the right worker, kind
 * and step, and a stall was detected within the deadline and a second. Prints one JSON object.
 * Exits with 1 at the first schedule that does not pass, and names it. */
#include "base/error.h"
#include "base/rng.h"
#include "campaigns/arguments.h"
#include "engine/inject.h"
#include "ref/ref.h"

#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 8
#define STEPS 6 /* two epochs of 3 */

#define CONFIG(norm)                                                                                   \
    "{\"data\": {\"name\": \"synthetic\", \"limit\": 96}, \"batch_size\": 32, \"shards\": 8,"          \
    " \"epochs\": 2, \"eval_every\": 1, \"run_dir\": null, \"init\": {\"name\": \"xavier\"},"          \
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.05, \"momentum\": 0.9},"                            \
    " \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 2, \"kernel\": 5, \"stride\": 3}," norm \
    " {\"type\": \"relu\"}, {\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 10}]}}"

/* Schedules use these recipes in turns: dealt shards with running statistics; one or two workers
 * that compute the sum by pieces; dealt shards of a model without running statistics. */
static const struct {
    const char *config, *shards;
    int workers; /* largest number of workers: each has at least one shard */
} recipes[] = {
    {CONFIG(" {\"type\": \"batch_norm\"},"), "shards=8", WORKERS},
    {CONFIG(""), "shards=2", 2},
    {CONFIG(""), "shards=8", WORKERS},
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static const char *const kinds[] = {"fail", "stall"};
static const char *const stages[] = {"start", "shard", "merge", "apply", "report", "evaluate"};
enum { STAGES = sizeof stages / sizeof *stages, EVALUATE = STAGES - 1 };

/* The fault drawn for one worker. */
typedef struct fault {
    int kind, stage, step;
    int drawn, seen;
} fault;

typedef struct schedule {
    uint64_t number;
    int recipe, workers, faults;
    fault of[WORKERS];
    char text[WORKERS][96];
    const char *inject[WORKERS];
    double deadline_s;
    /* Observations of a run. */
    int steps;
    double latest_s; /* the longest a stall stayed unnoticed */
    char problem[400];
} schedule;

/* Draws of a schedule: a pure function of seed and number. */
static uint32_t draw(uint64_t seed, const schedule *s, uint32_t index, uint32_t below)
{
    uint32_t out[4];
    ls_rng_words(out, seed, (uint32_t)s->number, 0, index);
    return out[0] % below;
}

static void plan(schedule *s, uint64_t seed)
{
    s->workers = 2 + (int)draw(seed, s, 0, (uint32_t)recipes[s->recipe].workers - 1);
    s->faults = 1 + (int)draw(seed, s, 1, 3);
    if (s->faults > s->workers - 1)
        s->faults = s->workers - 1;
    for (int n = 0, index = 2; n < s->faults; index += 4) {
        fault *f = &s->of[draw(seed, s, (uint32_t)index, (uint32_t)s->workers)];
        if (f->drawn)
            continue;
        const int worker = (int)(f - s->of);
        f->drawn = 1;
        f->kind = (int)draw(seed, s, (uint32_t)index + 1, 2);
        f->stage = (int)draw(seed, s, (uint32_t)index + 2, STAGES);
        f->step = 1 + (int)draw(seed, s, (uint32_t)index + 3, STEPS);
        int used = snprintf(s->text[n], sizeof s->text[n], "worker=%d,step=%d,kind=%s,stage=%s",
                            worker, f->step, kinds[f->kind], stages[f->stage]);
        if (f->kind == 1) /* long enough to be noticed, and then it comes back */
            snprintf(s->text[n] + used, sizeof s->text[n] - (size_t)used, ",seconds=%.2f",
                     s->deadline_s * 1.5 + 0.5);
        s->inject[n] = s->text[n];
        n++;
    }
}

/* ---- checking records ----------------------------------------------------------------------- */

static double number_behind(const char *json, const char *key)
{
    const char *at = strstr(json, key);
    return at ? strtod(at + strlen(key), NULL) : -1;
}

static void check_fault(schedule *s, const char *json)
{
    const int worker = (int)number_behind(json, "\"worker\":");
    const int step = (int)number_behind(json, "\"step\":");
    const double after = number_behind(json, "\"detected_after_s\":");
    fault *f = worker >= 0 && worker < s->workers ? &s->of[worker] : NULL;
    if (!f || !f->drawn || f->seen) {
        snprintf(s->problem, sizeof s->problem, "the wrong worker was named: %.300s", json);
        return;
    }
    f->seen = 1;
    const int stalled = strstr(json, "\"kind\":\"stall\"") != NULL;
    if (stalled != (f->kind == 1))
        snprintf(s->problem, sizeof s->problem, "the wrong kind: %.300s", json);
    /* A fault after the commit point may be noticed in the next step. */
    if (f->stage != EVALUATE && step != f->step && step != f->step + 1)
        snprintf(s->problem, sizeof s->problem, "the wrong step: %.300s", json);
    if (stalled && after > s->latest_s)
        s->latest_s = after;
    if (stalled && after > s->deadline_s + 1)
        snprintf(s->problem, sizeof s->problem, "noticed too late: %.300s", json);
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    schedule *s = user;
    char text[2048];
    (void)err;
    snprintf(text, sizeof text, "%.*s", (int)length, json);
    if (strncmp(text, "{\"type\":\"step\"", 14) == 0 &&
        number_behind(text, "\"step\":") != ++s->steps)
        snprintf(s->problem, sizeof s->problem, "a record twice or missing: step %d", s->steps);
    if (strncmp(text, "{\"type\":\"fault\"", 15) == 0)
        check_fault(s, text);
    return LS_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

static int run(schedule *s, const ls_registry *registry, char hash[65])
{
    char devices[32], deadline[40];
    const char *set[] = {devices, deadline, recipes[s->recipe].shards};
    ls_trainer *t;
    ls_error err;
    snprintf(devices, sizeof devices, "devices=ref:%d", s->workers);
    snprintf(deadline, sizeof deadline, "deadline_s=%.3f", s->deadline_s);
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .record = on_record, .user = s};
    const ls_trainer_sys sys = {.size = sizeof sys, .inject = s->inject, .inject_count = s->faults};
    ls_trainer_options o = {
        .size = sizeof o,
        .config_text = recipes[s->recipe].config,
        .set = set,
        .set_count = 3,
        .registry = registry,
        .callbacks = &callbacks,
        .sys = &sys,
    };
    int status = ls_trainer_open(&t, &o, &err);
    if (status == LS_OK) {
        status = ls_trainer_run(t, &err);
        memcpy(hash, ls_trainer_result(t)->weights_sha256, 65);
        if (ls_trainer_close(t, NULL) != LS_OK)
            snprintf(s->problem, sizeof s->problem, "a worker never came back");
    }
    if (status)
        snprintf(s->problem, sizeof s->problem, "%.390s", err.text);
    return status;
}

static void judge(schedule *s, const char *hash, const char *wanted)
{
    if (s->problem[0])
        return;
    if (strcmp(hash, wanted) != 0)
        snprintf(s->problem, sizeof s->problem, "other bits: %.16s, not %.16s", hash, wanted);
    else if (s->steps != STEPS)
        snprintf(s->problem, sizeof s->problem, "%d steps, not %d", s->steps, STEPS);
    for (int w = 0; w < s->workers; w++)
        if (s->of[w].drawn && !s->of[w].seen)
            snprintf(s->problem, sizeof s->problem, "the fault of worker %d was not noticed", w);
}

int main(int argc, char **argv)
{
    const int schedules = (int)number_argument(argc, argv, "--schedules", 300);
    const uint64_t seed = (uint64_t)number_argument(argc, argv, "--seed", 1);
    const double deadline_s = number_argument(argc, argv, "--deadline", 1);
    ls_registry *registry;
    char wanted[RECIPES][65], hash[65];
    int fails = 0, stalls = 0;
    double latest_s = 0;
    if (ls_registry_create(&registry, NULL, NULL) ||
        ls_registry_add(registry, ls_ref_backend(), NULL))
        return 1;
    for (int i = 0; i < RECIPES; i++) {
        schedule undisturbed = {.recipe = i, .workers = 1, .deadline_s = 60};
        if (run(&undisturbed, registry, wanted[i]))
            return 1;
    }
    for (int n = 0; n < schedules; n++) {
        schedule s = {.number = (uint64_t)n, .recipe = n % RECIPES, .deadline_s = deadline_s};
        plan(&s, seed);
        run(&s, registry, hash);
        judge(&s, hash, wanted[s.recipe]);
        if (s.problem[0]) {
            printf("schedule %d of seed %llu, %d workers", n, (unsigned long long)seed, s.workers);
            for (int i = 0; i < s.faults; i++)
                printf(", %s", s.text[i]);
            printf(": %s\n", s.problem);
            return 1;
        }
        for (int w = 0; w < s.workers; w++) {
            fails += s.of[w].seen && s.of[w].kind == 0;
            stalls += s.of[w].seen && s.of[w].kind == 1;
        }
        if (s.latest_s > latest_s)
            latest_s = s.latest_s;
    }
    ls_registry_destroy(registry);
    printf("{\"campaign\":\"worker_faults\",\"seed\":%llu,\"schedules\":%d,\"failures\":%d,"
           "\"stalls\":%d,\"deadline_s\":%g,\"latest_detection_s\":%.3f,\"passed\":true}\n",
           (unsigned long long)seed, schedules, fails, stalls, deadline_s, latest_s);
    return 0;
}
