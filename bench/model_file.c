/* SPDX-License-Identifier: MIT */
/* Measures a model that is opened from its file: the time until its first prediction, and the rate
 * at which several threads predict.
 *
 *     bench_model weights.safetensors [ROUNDS]
 *
 * Prints one JSON object. It has the time in milliseconds from the opening of the file until the
 * probabilities of the first image are known, and the images per second that 1, 2 and 8 threads
 * predict. Each thread predicts one image at a time. The three numbers of threads are measured in
 * turns. "cpu_s" is the CPU time for a thousand images in seconds, which other programs on the
 * machine hardly affect. */
#include "measure.h"

#include <lockstep/model.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 8, MOST_ROUNDS = 51, SECONDS_10 = 3 };

typedef struct crew {
    ls_model *model;
    const void *row;
    float *outputs; /* [MOST_THREADS][outputs] */
    int width;
    atomic_int stop;
    atomic_long done;
} crew;

typedef struct member {
    crew *crew;
    int index;
} member;

static void die(const char *what)
{
    fprintf(stderr, "bench_model: %s\n", what);
    exit(1);
}

static double median(double *values, int n)
{
    sort_values(values, n);
    return values[n / 2];
}

static void *ask(void *arg)
{
    const member *m = arg;
    crew *c = m->crew;
    ls_error err;
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        if (ls_model_predict(c->model, c->row, LS_ROW_U8, 1, LS_OUTPUT_PREDICTION,
                             c->outputs + m->index * c->width, c->width, &err) != LS_OK)
            die(err.text);
        atomic_fetch_add_explicit(&c->done, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Measures `threads` threads. Returns images per second, and stores the CPU time for one image in
 * seconds in *cpu. */
static double rate(crew *c, int threads, double *cpu)
{
    pthread_t thread[MOST_THREADS];
    member m[MOST_THREADS];
    const struct timespec rest = {0, SECONDS_10 * 100000000L};
    atomic_store(&c->stop, 0);
    atomic_store(&c->done, 0);
    const double begin = seconds_of(CLOCK_MONOTONIC),
                 cpu_begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < threads; i++) {
        m[i] = (member){c, i};
        if (pthread_create(&thread[i], NULL, ask, &m[i]) != 0)
            die("no thread");
    }
    nanosleep(&rest, NULL);
    atomic_store(&c->stop, 1);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    const double done = (double)atomic_load(&c->done);
    *cpu = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin) / done;
    return done / (seconds_of(CLOCK_MONOTONIC) - begin);
}

/* Opens the model and predicts one row. Returns the time in milliseconds. */
static double first(const char *path, const void *row, float *outputs, size_t width)
{
    ls_model *model;
    ls_error err;
    const double begin = seconds_of(CLOCK_MONOTONIC);
    if (ls_model_open(&model, path, NULL, &err) != LS_OK ||
        ls_model_predict(model, row, LS_ROW_U8, 1, LS_OUTPUT_PREDICTION, outputs, width, &err) !=
            LS_OK)
        die(err.text);
    const double ms = 1e3 * (seconds_of(CLOCK_MONOTONIC) - begin);
    ls_model_release(model);
    return ms;
}

int main(int argc, char **argv)
{
    static const int threads[] = {1, 2, 8};
    double open_ms[MOST_ROUNDS], rates[3][MOST_ROUNDS], cpu[3][MOST_ROUNDS];
    const int wanted = argc > 2 ? atoi(argv[2]) : 11;
    const int rounds = wanted < 1 ? 1 : wanted > MOST_ROUNDS ? MOST_ROUNDS : wanted;
    ls_model_info info = {.size = sizeof info};
    ls_error err;
    crew c = {0};
    if (argc < 2)
        die("usage: bench_model weights.safetensors [ROUNDS]");
    if (ls_model_open(&c.model, argv[1], NULL, &err) != LS_OK)
        die(err.text);
    ls_model_describe(c.model, &info, NULL);
    c.width = info.outputs;
    c.row = calloc((size_t)info.channels * (size_t)info.height * (size_t)info.width, sizeof(float));
    c.outputs = calloc(MOST_THREADS * (size_t)c.width, sizeof(float));
    if (!c.row || !c.outputs)
        die("out of memory");
    for (int r = 0; r < rounds; r++) {
        open_ms[r] = first(argv[1], c.row, c.outputs, c.width);
        for (int k = 0; k < 3; k++)
            rates[k][r] = rate(&c, threads[k], &cpu[k][r]);
    }
    ls_model_release(c.model);
    printf("{\"rounds\":%d,\"first_ms\":%.2f", rounds, median(open_ms, rounds));
    for (int k = 0; k < 3; k++)
        printf(",\"images_per_s_%d\":%.0f,\"cpu_s_%d\":%.4f", threads[k], median(rates[k], rounds),
               threads[k], 1e3 * median(cpu[k], rounds));
    puts("}");
    free((void *)c.row);
    free(c.outputs);
    return 0;
}
