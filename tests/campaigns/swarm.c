/* SPDX-License-Identifier: MIT */
/* Campaign: random models with random configs, on 1 to 8 workers.
 *
 *     swarm --directory DIR [--cases N] [--seconds S] [--seed S] [--case K]
 *
 * A case is run on one worker, twice on another number, and on a third number with ops that are
 * watched for writes outside their buffers (tests/nn/guarded_device.h). Weights, records,
 * evaluations and the way it ends must have the same bits. A run in shards of "devices", or merged
 * by `naive`, is compared with runs on as many workers. Some cases lose a device or a step on the
 * way. Some are also computed by the reference back end, whose first loss and evaluation must be
 * close, and have a run directory: the run is interrupted, resumed on other workers, and its
 * weights are evaluated by trainers that do not know how it was trained. Prints one JSON object,
 * with the number of cases that had each key of the config. It is a failure if no case has a key,
 * or if a case does not pass; that case is named together with the command that repeats it. */
#include "campaigns/swarm.h"
#include "base/clock.h"
#include "base/error.h"
#include "campaigns/arguments.h"
#include "campaigns/remove_tree.h"
#include "config/config.h"
#include "nn/guarded_device.h"
#include "nn/network.h"
#include "records/record.h"
#include "ref/ref.h"

#ifdef LOCKSTEP_WITH_CPU
#include "cpu/cpu_device.h"
#define PLAIN "cpu"
#else
#define PLAIN "ref"
#endif

#include <lockstep/sys/trainer.h>
#include <lockstep/trainer.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEM = 1400 };

/* One run of a case, and what came of it. */
typedef struct leg {
    const swarm_case *c;
    const char *backend;
    int workers;
    const char *run_dir; /* NULL: none */
    const char *weights; /* to begin with, in place of the case's; NULL: none */
    int evaluates;       /* non-zero: trains nothing */
    int resume;          /* non-zero: go on in run_dir */
    uint64_t stop_behind;
    ls_trainer *trainer;
    int status;
    char error[512];
    char hash[65];
    double loss, accuracy; /* results of the last evaluation */
    char *records;
    size_t length;
    int lost; /* devices */
} leg;

typedef struct tally {
    long cases, runs, refused, nonfinite, lost, resumed, references, elsewhere, from_weights;
} tally;

static ls_registry *registry;

/* ---- records -------------------------------------------------------------------------------- */

static int type_of(const char *name)
{
    int type = 0;
    while (type < LS_RECORD_TYPES && strcmp(ls_record_names[type], name) != 0)
        type++;
    return type;
}

/* Leaves the keys whose values depend neither on time nor on where the run was computed. */
static void drop_what_varies(cJSON *record, int type)
{
    for (const ls_record_key *row = ls_record_keys; row->key; row++)
        if (row->varies && row->in & 1u << type)
            cJSON_DeleteItemFromObjectCaseSensitive(record, row->key);
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    leg *l = user;
    cJSON *record = cJSON_ParseWithLength(json, length);
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItem(record, "type"));
    if (!type)
        return ls_fail(err, LS_EINVAL, "swarm: a record without a type: %.200s", json);
    if (type_of(type) == LS_RECORD_FAULT) {
        l->lost++;
        cJSON_Delete(record);
        return LS_OK;
    }
    drop_what_varies(record, type_of(type));
    char *text = cJSON_PrintUnformatted(record);
    const size_t more = strlen(text);
    l->records = realloc(l->records, l->length + more + 2);
    memcpy(l->records + l->length, text, more);
    l->length += more;
    memcpy(l->records + l->length++, "\n", 2);
    free(text);
    cJSON_Delete(record);
    return LS_OK;
}

static int least(size_t a, int b)
{
    return a < (size_t)b ? (int)a : b;
}

/* Returns the first line of the first text in which two texts differ. */
static void first_difference(char out[400], const char *a, const char *b)
{
    size_t line = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n')
            line = i + 1;
    line = i > line + 90 ? i - 90 : line; /* shorten a long line */
    snprintf(out, 400, "%.*s | %.*s", least(strcspn(a + line, "\n"), 180), a + line,
             least(strcspn(b + line, "\n"), 180), b + line);
}

/* The loss of the first step; NaN when there is none. */
static double first_loss(const leg *l)
{
    const char *step = l->records ? strstr(l->records, "{\"type\":\"step\",\"step\":1,") : NULL;
    const char *loss = step ? strstr(step, "\"loss\":") : NULL;
    return loss && loss[7] != 'n' ? strtod(loss + 7, NULL) : NAN;
}

/* ---- one run -------------------------------------------------------------------------------- */

static void on_progress(void *user, const ls_progress *p)
{
    const leg *l = user;
    if (l->stop_behind && (uint64_t)(p->epoch - 1) * p->steps + p->step >= l->stop_behind)
        ls_trainer_interrupt(l->trainer);
}

/* As the worker's number says, so that it is drawn for each leg. */
static void write_capacity(char out[160], const leg *l)
{
    size_t used = (size_t)snprintf(out, 160, "capacity=[");
    for (int w = 0; w < l->workers; w++)
        used += (size_t)snprintf(out + used, 160 - used, "%s%d.%d", w ? ", " : "",
                                 1 + (int)((l->c->number + (uint32_t)w) % 3), w * 3 % 10);
    snprintf(out + used, 160 - used, "]");
}

/* The case's config, perhaps with another beginning. */
static char *text_of(const leg *l)
{
    cJSON *config = cJSON_Duplicate(l->c->config, 1);
    if (l->weights) {
        cJSON *init = cJSON_CreateObject();
        cJSON_AddStringToObject(init, "weights", l->weights);
        cJSON_AddBoolToObject(init, "partial", l->c->number % 2); /* all of it fits */
        cJSON_DeleteItemFromObject(config, "init");
        cJSON_AddItemToObject(config, "init", init);
    }
    if (l->evaluates)
        cJSON_DeleteItemFromObject(config, "augment");
    char *text = cJSON_PrintUnformatted(config);
    cJSON_Delete(config);
    return text;
}

static void evaluate_or_run(leg *l, ls_error *err)
{
    if (l->evaluates) {
        ls_evaluation found = {.size = sizeof found};
        l->status = ls_trainer_evaluate(l->trainer, &found, err);
        l->loss = found.loss;
        l->accuracy = found.metric_value;
        return;
    }
    l->status = ls_trainer_run(l->trainer, err);
    const ls_result *r = ls_trainer_result(l->trainer);
    memcpy(l->hash, r->weights_sha256, sizeof l->hash);
    l->loss = r->test_loss;
    l->accuracy = r->metric_value;
}

static void run(leg *l)
{
    const ls_data_source *const sources[] = {&l->c->data};
    char devices[32], capacity[160], directory[640], *text = text_of(l);
    /* A case that names a transport is read as it is, and run alone. */
    const char *set[4] = {devices, directory, "cluster.transport=none", capacity}, *inject[2];
    ls_error err = {0};
    snprintf(devices, sizeof devices, "devices=%s:%d", l->backend, l->workers);
    snprintf(directory, sizeof directory, "run_dir=%s", l->run_dir ? l->run_dir : "null");
    write_capacity(capacity, l);
    const ls_trainer_callbacks callbacks = {
        .size = sizeof callbacks, .record = on_record, .progress = on_progress, .user = l};
    ls_trainer_sys sys = {.size = sizeof sys, .inject = inject};
    ls_trainer_options o = {.size = sizeof o,
                            .config_text = text,
                            .set = set,
                            .set_count = l->c->unequal ? 4 : 3,
                            .registry = registry,
                            .resume = l->resume ? l->run_dir : NULL,
                            .callbacks = &callbacks,
                            .sys = &sys,
                            .sources = sources,
                            .source_count = 1};
    if (l->c->inject[0] && !l->weights && !l->resume)
        inject[sys.inject_count++] = l->c->inject;
    if (l->c->lose[0] && l->workers > 1 && !l->weights && !l->resume)
        inject[sys.inject_count++] = l->c->lose;
    l->status = ls_trainer_open(&l->trainer, &o, &err);
    if (l->status == LS_OK) {
        evaluate_or_run(l, &err);
        if (ls_trainer_close(l->trainer, NULL) != LS_OK)
            l->status = LS_ESTALLED;
    }
    snprintf(l->error, sizeof l->error, "%s", l->status ? err.text : "");
    free(text);
}

static leg run_on(const swarm_case *c, const char *backend, int workers)
{
    leg l = {.c = c, .backend = backend, .workers = workers, .loss = NAN, .accuracy = NAN};
    run(&l);
    return l;
}

static void leg_fini(leg *l)
{
    free(l->records);
    l->records = NULL;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* NaN, for what was not evaluated, equals itself. */
static int same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static int near(double a, double b)
{
    return isnan(a) || isnan(b) || fabs(a - b) <= 1e-3 * (1 + fabs(a)) || (isinf(a) && isinf(b));
}

/* Writes what is wrong into `problem`; non-zero when something is. */
static int differ(char problem[PROBLEM], const leg *a, const leg *b)
{
    char where[400] = "";
    const char *guard = guarded_finding();
    problem[0] = '\0';
    if (guard[0])
        snprintf(problem, PROBLEM, "%s", guard);
    else if (a->status != b->status)
        snprintf(problem, PROBLEM, "status %d (%s), and %d (%s)", a->status, a->error, b->status,
                 b->error);
    else if (a->status && a->status != LS_ENONFINITE)
        snprintf(problem, PROBLEM, "status %d: %s", a->status, a->error);
    else if (a->records && b->records && strcmp(a->records, b->records) != 0) {
        first_difference(where, a->records, b->records);
        snprintf(problem, PROBLEM, "other records: %s", where);
    } else if (strcmp(a->hash, b->hash) != 0)
        snprintf(problem, PROBLEM, "other weights: %s, and %s", a->hash, b->hash);
    else if (!same_number(a->loss, b->loss) || !same_number(a->accuracy, b->accuracy))
        snprintf(problem, PROBLEM, "other evaluations: %.9g and %.9g, and %.9g and %.9g", a->loss,
                 a->accuracy, b->loss, b->accuracy);
    if (problem[0]) {
        const size_t used = strlen(problem);
        snprintf(problem + used, PROBLEM - used, " [%s:%d, and %s:%d%s]", a->backend, a->workers,
                 b->backend, b->workers, b->resume ? ", resumed" : "");
    }
    return problem[0] != '\0';
}

/* ---- run directories ------------------------------------------------------------------------ */

/* Evaluates the weights with a trainer that did not train them. */
static int judge_weights(char problem[PROBLEM], const leg *first, const char *backend,
                         const char *weights)
{
    leg l = {.c = first->c,
             .backend = backend,
             .workers = first->workers,
             .weights = weights,
             .evaluates = 1};
    run(&l);
    problem[0] = '\0';
    if (l.status != first->status)
        snprintf(problem, PROBLEM, "%s evaluates the weights with status %d: %s", backend, l.status,
                 l.error);
    else if (strcmp(backend, PLAIN) == 0 ? !same_number(l.loss, first->loss)
                                         : !near(l.loss, first->loss))
        snprintf(problem, PROBLEM,
                 "the weights have a loss of %.9g, and %.9g when %s evaluates them", first->loss,
                 l.loss, backend);
    leg_fini(&l);
    return problem[0] != '\0';
}

/* Training that begins with the weights of another run. */
static int train_from(char problem[PROBLEM], const leg *first, const char *weights, draws *d,
                      tally *t)
{
    const swarm_case *c = first->c;
    leg a = {.c = c, .backend = PLAIN, .workers = first->workers, .weights = weights}, b = a;
    b.backend = "guarded";
    b.workers = c->same_count ? first->workers : draw_from(d, 1, c->most_workers);
    run(&a);
    run(&b);
    t->from_weights++;
    int bad = differ(problem, &a, &b);
    leg_fini(&a);
    leg_fini(&b);
    return bad;
}

static int interrupt_and_resume(char problem[PROBLEM], const leg *first, const char *run_dir,
                                draws *d, tally *t)
{
    const swarm_case *c = first->c;
    const int workers = c->same_count ? first->workers : draw_from(d, 1, c->most_workers);
    leg begun = *first, resumed;
    begun.records = NULL, begun.length = 0;
    begun.run_dir = run_dir;
    begun.stop_behind = 1 + draw(d, 4);
    run(&begun);
    leg_fini(&begun);
    if (begun.status != LS_EINTERRUPTED) /* it was over before, which has been compared */
        return 0;
    resumed = begun;
    resumed.workers = workers;
    resumed.resume = 1;
    resumed.stop_behind = 0;
    run(&resumed);
    t->resumed++;
    leg_fini(&resumed);
    return differ(problem, first, &resumed);
}

static int live_on_disk(char problem[PROBLEM], const leg *first, draws *d, tally *t)
{
    char run_dir[600], weights[640];
    snprintf(run_dir, sizeof run_dir, "%s/run", first->c->directory);
    snprintf(weights, sizeof weights, "%s/weights.safetensors", run_dir);
    remove_tree(run_dir);
    leg l = {.c = first->c, .backend = PLAIN, .workers = first->workers, .run_dir = run_dir};
    run(&l);
    int bad = differ(problem, first, &l);
    leg_fini(&l);
    if (!bad && first->status == LS_OK) {
        bad = judge_weights(problem, first, PLAIN, weights) ||
              judge_weights(problem, first, "ref", weights) ||
              train_from(problem, first, weights, d, t);
        t->elsewhere++;
        remove_tree(run_dir);
        /* A fault's step would be another one for the second half. */
        bad = bad || (!first->c->inject[0] && interrupt_and_resume(problem, first, run_dir, d, t));
    }
    remove_tree(run_dir);
    return bad;
}

/* ---- one case ------------------------------------------------------------------------------- */

static int compare_with_reference(char problem[PROBLEM], const leg *first, tally *t)
{
    leg l = run_on(first->c, "ref", first->workers);
    problem[0] = '\0';
    if (!near(first_loss(first), first_loss(&l)))
        snprintf(problem, PROBLEM, "the first step's loss is %.9g, and %.9g of the reference",
                 first_loss(first), first_loss(&l));
    t->references++;
    leg_fini(&l);
    return problem[0] != '\0';
}

static int compare_runs(char problem[PROBLEM], const leg *first, draws *d, tally *t)
{
    const swarm_case *c = first->c;
    const int another = draw_from(d, 1, c->most_workers), third = draw_from(d, 1, c->most_workers);
    const int workers[] = {another, another, third};
    const char *const backends[] = {PLAIN, PLAIN, "guarded"};
    int bad = 0;
    for (int i = 0; i < 3 && !bad; i++) {
        leg l = run_on(c, backends[i], c->same_count ? first->workers : workers[i]);
        bad = differ(problem, first, &l);
        t->lost += l.lost;
        t->runs++;
        leg_fini(&l);
    }
    return bad;
}

static int was_refused(char problem[PROBLEM], const leg *first, tally *t)
{
    t->refused++;
    if (first->status == LS_ECONFIG && strstr(first->error, "does not have"))
        return 0;
    snprintf(problem, PROBLEM, "the CPU has no such allreduce, but status %d: %s", first->status,
             first->error);
    return 1;
}

static int run_case(char problem[PROBLEM], swarm_case *c, tally *t)
{
    draws d = {c->seed, c->number, 1u << 20};
    swarm_keys_count(1);
    leg first = run_on(c, PLAIN, c->same_count ? draw_from(&d, 1, c->most_workers) : 1);
    swarm_keys_count(0);
    t->cases++;
    t->runs++;
    t->nonfinite += first.status == LS_ENONFINITE;
    int bad = c->refused ? was_refused(problem, &first, t) : compare_runs(problem, &first, &d, t);
    if (!bad && !c->refused && one_in(&d, 4))
        bad = compare_with_reference(problem, &first, t);
    if (!bad && !c->refused && c->on_disk)
        bad = live_on_disk(problem, &first, &d, t);
    leg_fini(&first);
    return bad;
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Reads what a case says, without running it. */
static int read_case(const swarm_case *c)
{
    char *text = cJSON_PrintUnformatted(c->config);
    const ls_trainer_options o = {.size = sizeof o, .config_text = text};
    const ls_shape shape = {c->data.channels, c->data.height, c->data.width};
    ls_config config;
    ls_network *model = NULL;
    ls_error err = {0};
    int status = ls_config_read(&config, &o, &err);
    if (status == LS_OK) {
        status = ls_network_parse(&model, ls_config_model_doc(&config), config.model, shape,
                                  c->data.classes * c->parts, NULL, &err);
        ls_network_destroy(model, NULL);
        ls_config_fini(&config);
    }
    if (status)
        fprintf(stderr, "swarm: case %u: %s\n", (unsigned)c->number, err.text);
    free(text);
    return status;
}

/* Keys that are seldom drawn: cases are drawn and read, not run, until one has had each. */
static int find_all_keys(uint64_t seed, uint32_t number, const char *directory)
{
    const char *missing;
    const uint32_t last = number + 4000;
    for (; swarm_keys_missing(&missing) && number < last; number++) {
        swarm_case c;
        swarm_draw(&c, seed, number, directory);
        int status = read_case(&c);
        swarm_fini(&c);
        if (status)
            return 1;
    }
    if (missing)
        printf("no case has %s: the generator must learn it\n", missing);
    return missing != NULL;
}

/* ---- the program ---------------------------------------------------------------------------- */

static int make_registry(void)
{
    int status = ls_registry_create(&registry, NULL, NULL);
#ifdef LOCKSTEP_WITH_CPU
    if (status == LS_OK)
        status = ls_registry_add(registry, guarded_backend(ls_cpu_backend()), NULL);
#else
    if (status == LS_OK)
        status = ls_registry_add(registry, guarded_backend(ls_ref_backend()), NULL);
#endif
    return status ? status : ls_registry_add(registry, ls_ref_backend(), NULL);
}

static void tell(const swarm_case *c, const char *problem)
{
    char *text = cJSON_PrintUnformatted(c->config);
    printf("case %u of seed %llu: %s\n  repeat it with: swarm --directory DIR --seed %llu --case %u"
           "\n  %s %s %s\n",
           (unsigned)c->number, (unsigned long long)c->seed, problem, (unsigned long long)c->seed,
           (unsigned)c->number, text, c->inject, c->lose);
    free(text);
}

int main(int argc, char **argv)
{
    const char *directory = argument(argc, argv, "--directory", NULL);
    const char *one = argument(argc, argv, "--case", NULL);
    const uint64_t seed = strtoull(argument(argc, argv, "--seed", "1"), NULL, 10);
    const double seconds = number_argument(argc, argv, "--seconds", 1e9);
    const long cases = (long)number_argument(argc, argv, "--cases", 1e9);
    const uint64_t start = ls_now_ns();
    uint32_t number = one ? (uint32_t)strtoul(one, NULL, 10) : 0;
    char problem[PROBLEM] = "";
    tally t = {0};
    if (!directory || make_registry() != LS_OK)
        return 2;
    while (t.cases < (one ? 1 : cases) && (double)(ls_now_ns() - start) * 1e-9 < seconds) {
        swarm_case c;
        swarm_draw(&c, seed, number++, directory);
        int bad = run_case(problem, &c, &t);
        if (bad)
            tell(&c, problem);
        swarm_fini(&c);
        if (bad)
            return 1;
    }
    if (!one && find_all_keys(seed, number, directory))
        return 1;
    ls_registry_destroy(registry);
    printf(
        "{\"campaign\":\"swarm\",\"seed\":%llu,\"cases\":%ld,\"runs\":%ld,\"not_finite\":%ld,"
        "\"lost_devices\":%ld,\"resumed\":%ld,\"by_the_reference\":%ld,\"evaluated_elsewhere\":%ld,"
        "\"from_weights\":%ld,\"refused\":%ld,",
        (unsigned long long)seed, t.cases, t.runs, t.nonfinite, t.lost, t.resumed, t.references,
        t.elsewhere, t.from_weights, t.refused);
    swarm_keys_print();
    printf(",\"passed\":true}\n");
    return 0;
}
