/* SPDX-License-Identifier: MIT */
/* Measures how long one prediction takes while the trainer of the model trains, and how much memory
 * trainer, model and threads need.
 *
 *     bench_predictions [SECONDS [ROUNDS]]       3 seconds, 7 rounds
 *
 * Two threads predict one row at a time with the newest model, which is replaced every 20 steps.
 * Two networks, each without and with training, with threads that predict without a break ("busy")
 * and with threads that sleep 100 µs between two predictions ("paced"). A round measures each
 * combination once, with training first in every second round. The times are those of the calling
 * thread, by the clock and by its CPU time, and include the access to the newest model. Prints two
 * Markdown tables: percentiles over all rounds, and memory in kB. */
#include "measure.h"

#include <lockstep/trainer.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Bucket i of a histogram has the times from 0.1 µs · 2^(i / 32) to the next bucket. */
enum { THREADS = 2, BATCH = 256, BUCKETS = 32 * 24, MOST_ROUNDS = 51, PERCENTILES = 3 };

typedef struct histogram {
    uint32_t count[BUCKETS];
} histogram;

static const double percentiles[PERCENTILES] = {0.5, 0.99, 0.999};

static const struct net {
    const char *name, *config;
    int channels, size, classes;
    ls_row_type row_type;
} nets[] = {
    {"12-32-2",
     "{\"data\": {\"name\": \"rows\", \"standardize\": true}, \"batch_size\": 256, "
     "\"devices\": \"cpu:1\", \"run_dir\": null, \"model\": {\"layers\": [{\"type\": \"dense\", "
     "\"out\": 32}, {\"type\": \"relu\"}, {\"type\": \"dense\"}]}, "
     "\"optimizer\": {\"name\": \"adamw\", \"lr\": 0.002}}",
     12, 1, 2, LS_ROW_F32},
    {"LeNet",
     "{\"data\": {\"name\": \"rows\"}, \"batch_size\": 256, \"devices\": \"cpu:1\", "
     "\"run_dir\": null, \"model\": {\"layers\": [{\"type\": \"conv2d\", \"out\": 20, \"kernel\": 3}, "
     "{\"type\": \"relu\"}, {\"type\": \"avg_pool\", \"kernel\": 2}, {\"type\": \"conv2d\", "
     "\"out\": 50, \"kernel\": 5}, {\"type\": \"relu\"}, {\"type\": \"avg_pool\", \"kernel\": 2}, "
     "{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 128}, {\"type\": \"relu\"}, "
     "{\"type\": \"dense\"}]}, \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.01}}",
     1, 28, 10, LS_ROW_U8},
};
enum { NETS = sizeof nets / sizeof *nets };

static void die(const char *what)
{
    fprintf(stderr, "bench_predictions: %s\n", what);
    exit(1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static atomic_long live, most; /* bytes */

static void *allocate(void *user, size_t bytes, size_t align)
{
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    (void)user;
    const long now = atomic_fetch_add(&live, (long)malloc_usable_size(memory)) +
                     (long)malloc_usable_size(memory);
    for (long seen = atomic_load(&most); now > seen;)
        if (atomic_compare_exchange_weak(&most, &seen, now))
            break;
    return memory;
}

static void release(void *user, void *memory)
{
    (void)user;
    atomic_fetch_sub(&live, (long)malloc_usable_size(memory));
    free(memory);
}

static const ls_host host = {.size = sizeof host, .alloc = allocate, .free = release};

/* ---- predicting ------------------------------------------------------------------------------ */

static struct learner {
    ls_trainer *trainer;
    pthread_mutex_t lock; /* guards `newest` */
    ls_model *newest;
    void *rows; /* [BATCH] rows */
    size_t row_bytes;
    int32_t classes[BATCH];
    const struct net *net;
} learner = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool stop;

typedef struct asker {
    pthread_t thread;
    long pause_ns;
    histogram clock, cpu;
} asker;

static void add(histogram *h, double seconds)
{
    const double i = 32 * log2(fmax(1, seconds / 1e-7));
    h->count[i < BUCKETS ? (int)i : BUCKETS - 1]++;
}

static ls_model *borrow(void)
{
    pthread_mutex_lock(&learner.lock);
    ls_model *model = ls_model_retain(learner.newest);
    pthread_mutex_unlock(&learner.lock);
    return model;
}

static void *ask(void *arg)
{
    asker *a = arg;
    const struct timespec pause = {0, a->pause_ns};
    float outputs[16];
    ls_error err;
    for (int i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i = (i + 1) % BATCH) {
        const char *row = (const char *)learner.rows + (size_t)i * learner.row_bytes;
        const double cpu = cpu_seconds(), begun = seconds_of(CLOCK_MONOTONIC);
        ls_model *model = borrow();
        if (ls_model_predict(model, row, learner.net->row_type, 1, LS_OUTPUT_PREDICTION, outputs,
                             16, &err) != LS_OK)
            die(err.text);
        ls_model_release(model);
        add(&a->clock, seconds_of(CLOCK_MONOTONIC) - begun);
        add(&a->cpu, cpu_seconds() - cpu);
        if (a->pause_ns > 0)
            nanosleep(&pause, NULL);
    }
    return NULL;
}

static void publish(void)
{
    ls_error err;
    ls_model *fresh, *old;
    if (ls_trainer_model(&fresh, learner.trainer, &err) != LS_OK)
        die(err.text);
    pthread_mutex_lock(&learner.lock);
    old = learner.newest;
    learner.newest = fresh;
    pthread_mutex_unlock(&learner.lock);
    ls_model_release(old);
}

static void step(void)
{
    const ls_step_rows given = {.size = sizeof given,
                                .rows = learner.rows,
                                .targets = learner.classes,
                                .row_type = learner.net->row_type,
                                .n = BATCH};
    ls_step_result result = {.size = sizeof result};
    ls_error err;
    if (ls_trainer_step(learner.trainer, &given, &result, &err) != LS_OK)
        die(err.text);
    if (result.number % 20 == 0)
        publish();
}

static void open_net(const struct net *n)
{
    const size_t values = (size_t)n->channels * (size_t)n->size * (size_t)n->size;
    const ls_data_source source = {.size = sizeof source,
                                   .name = "rows",
                                   .channels = n->channels,
                                   .height = n->size,
                                   .width = n->size,
                                   .classes = n->classes,
                                   .row_type = n->row_type,
                                   .streamed = 1};
    const ls_data_source *const sources[] = {&source};
    const ls_trainer_options options = {.size = sizeof options,
                                        .config_text = n->config,
                                        .sources = sources,
                                        .source_count = 1,
                                        .host = &host};
    ls_error err;
    most = live;
    learner.net = n;
    learner.row_bytes = values * (n->row_type == LS_ROW_F32 ? sizeof(float) : 1);
    learner.rows = malloc(BATCH * learner.row_bytes);
    if (!learner.rows || ls_trainer_open(&learner.trainer, &options, &err) != LS_OK)
        die(learner.rows ? err.text : "out of memory");
    for (size_t i = 0; i < BATCH * values; i++) {
        const unsigned random = (unsigned)i * 2654435761u >> 16;
        if (n->row_type == LS_ROW_F32)
            ((float *)learner.rows)[i] = (float)(random & 1023) / 512 - 1;
        else
            ((uint8_t *)learner.rows)[i] = (uint8_t)random;
    }
    for (int i = 0; i < BATCH; i++)
        learner.classes[i] = i % n->classes;
}

static void close_net(void)
{
    ls_model_release(learner.newest);
    learner.newest = NULL;
    ls_trainer_close(learner.trainer, NULL);
    free(learner.rows);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* What was measured of a network with or without training. */
typedef struct cell {
    histogram clock, cpu; /* of all rounds */
    double by_round[MOST_ROUNDS][PERCENTILES];
    uint64_t steps;
    double seconds;
} cell;

static uint64_t total(const histogram *h)
{
    uint64_t sum = 0;
    for (int i = 0; i < BUCKETS; i++)
        sum += h->count[i];
    return sum;
}

/* Returns a percentile in µs: the middle of its bucket. */
static double percentile(const histogram *h, double share)
{
    const double rank = share * (double)total(h);
    uint64_t sum = 0;
    int i = 0;
    while (i < BUCKETS - 1 && (double)(sum += h->count[i]) < rank)
        i++;
    return 0.1 * exp2((i + 0.5) / 32);
}

static void sum_up(histogram *into, const histogram *h)
{
    for (int i = 0; i < BUCKETS; i++)
        into->count[i] += h->count[i];
}

/* Predicts for some seconds, and trains meanwhile if `trains`. */
static void measure(cell *c, int round, double seconds, long pause_ns, bool trains)
{
    static asker a[THREADS];
    static histogram clock;
    const double begun = seconds_of(CLOCK_MONOTONIC);
    memset(a, 0, sizeof a);
    memset(&clock, 0, sizeof clock);
    stop = false;
    for (int i = 0; i < THREADS; i++) {
        a[i].pause_ns = pause_ns;
        if (pthread_create(&a[i].thread, NULL, ask, &a[i]) != 0)
            die("no thread");
    }
    while (seconds_of(CLOCK_MONOTONIC) - begun < seconds)
        if (trains) {
            step();
            c->steps++;
        } else {
            nanosleep(&(struct timespec){0, 10000000}, NULL);
        }
    c->seconds += seconds_of(CLOCK_MONOTONIC) - begun;
    stop = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(a[i].thread, NULL);
        sum_up(&clock, &a[i].clock);
        sum_up(&c->cpu, &a[i].cpu);
    }
    sum_up(&c->clock, &clock);
    for (int k = 0; k < PERCENTILES; k++)
        c->by_round[round][k] = percentile(&clock, percentiles[k]);
}

static void print_cell(const char *net, const char *threads, const cell *c, const cell *alone,
                       int rounds)
{
    printf("| %s, %s, %s | %llu |", net, threads, c == alone ? "no training" : "training",
           (unsigned long long)total(&c->clock));
    for (int k = 0; k < PERCENTILES; k++)
        printf(" %.3g |", percentile(&c->clock, percentiles[k]));
    for (int k = 0; k < PERCENTILES; k++) {
        double ratio[MOST_ROUNDS];
        for (int i = 0; i < rounds; i++)
            ratio[i] = c->by_round[i][k] / alone->by_round[i][k];
        sort_values(ratio, rounds);
        if (c == alone)
            printf(" 1 |");
        else
            printf(" %.2f (%.2f to %.2f) |", ratio[rounds / 2], ratio[0], ratio[rounds - 1]);
    }
    for (int k = 0; k < PERCENTILES; k++)
        printf(" %.3g |", percentile(&c->cpu, percentiles[k]));
    printf(" %.0f |\n", (double)c->steps / c->seconds);
    fflush(stdout);
}

static void time_net(const struct net *n, double seconds, int rounds)
{
    static const long pauses[] = {0, 100000};
    static cell cells[2][2]; /* [pause][training] */
    memset(cells, 0, sizeof cells);
    open_net(n);
    step();
    publish();
    for (int round = 0; round < rounds; round++)
        for (int p = 0; p < 2; p++)
            for (int k = 0; k < 2; k++)
                measure(&cells[p][(round + k) % 2], round, seconds, pauses[p],
                        (round + k) % 2 != 0);
    close_net();
    for (int p = 0; p < 2; p++)
        for (int k = 0; k < 2; k++)
            print_cell(n->name, p ? "paced" : "busy", &cells[p][k], &cells[p][0], rounds);
}

/* Prints the memory that the library allocates, in kB: of the trainer after steps, of a model, of
 * the first thread that predicts, of a second thread that predicts at the same time, and at most.
 */
static void weigh_net(const struct net *n)
{
    static cell unused;
    float outputs[16];
    ls_error err;
    open_net(n);
    for (int i = 0; i < 3; i++)
        step();
    const long trainer = live;
    publish();
    const long model = live;
    if (ls_model_predict(learner.newest, learner.rows, n->row_type, 1, LS_OUTPUT_PREDICTION,
                         outputs, 16, &err) != LS_OK)
        die(err.text);
    const long first = live;
    measure(&unused, 0, 1, 0, false);
    const long second = live;
    printf("| %s | %zu | %.1f | %.1f | %.1f | %.1f | %.1f |\n", n->name,
           ls_trainer_summary(learner.trainer)->parameters, (double)trainer / 1000,
           (double)(model - trainer) / 1000, (double)(first - model) / 1000,
           (double)(second - first) / 1000, (double)most / 1000);
    close_net();
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 3;
    const int rounds = argc > 2 ? atoi(argv[2]) : 7;
    if (seconds <= 0 || rounds < 1 || rounds > MOST_ROUNDS)
        die("SECONDS must be above 0, and ROUNDS from 1 to 51");
    printf(
        "| | predictions | p50, µs | p99, µs | p99.9, µs | p50, × | p99, × | p99.9, × | p50, µs of "
        "CPU | p99, CPU | p99.9, CPU | steps/s |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < NETS; i++)
        time_net(&nets[i], seconds, rounds);
    printf("\n| kB | parameters | trainer | a model | first thread | second thread | peak |\n"
           "|---|---:|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < NETS; i++)
        weigh_net(&nets[i]);
    return 0;
}
