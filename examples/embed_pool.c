/* Lockstep's worker pool inside a program of one's own: sums the squares of a million numbers, each
 * worker a part, on as many workers as there are CPUs. The caller is one of them.
 *
 *     cc embed_pool.c $(pkg-config --cflags --libs lockstep-pool) -o embed_pool
 */
#include <lockstep/pool.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBERS 1000000

struct task {
    const double *number;
    double *sum; /* one for each worker: nobody writes where another one does */
};

static int add_squares(const ls_worker *worker, void *arg, ls_error *err)
{
    const struct task *task = arg;
    long begin = (long)NUMBERS * worker->index / worker->workers;
    long end = (long)NUMBERS * (worker->index + 1) / worker->workers;
    double sum = 0;
    for (long i = begin; i < end; i++)
        sum += task->number[i] * task->number[i];
    if (!(sum < 1e300)) {
        snprintf(err->text, sizeof err->text, "numbers %ld to %ld are too large", begin, end - 1);
        return LS_EDATA; /* ls_pool_run returns it, with this text */
    }
    task->sum[worker->index] = sum;
    return LS_OK;
}

int main(void)
{
    ls_error err;
    ls_pool *pool;
    ls_pool_options options = {
        .size = sizeof options, .workers = ls_allowed_cpus(), .caller_works = 1, .name = "squares"};
    if (ls_pool_create(&pool, &options, &err) != LS_OK) {
        fprintf(stderr, "embed_pool: %s\n", err.text);
        return 1;
    }
    double *number = malloc(NUMBERS * sizeof *number);
    struct task task = {number, calloc((size_t)ls_pool_size(pool), sizeof(double))};
    for (int i = 0; number && i < NUMBERS; i++)
        number[i] = i % 10;
    int status = LS_ENOMEM;
    if (number && task.sum)
        status = ls_pool_run(pool, add_squares, &task, LS_FOREVER, &err);
    double total = 0;
    for (int i = 0; status == LS_OK && i < ls_pool_size(pool); i++)
        total += task.sum[i];
    printf("sum of squares: %.0f, on %d workers\n", total, ls_pool_size(pool));
    free(task.sum);
    free(number);
    return ls_pool_destroy(pool) != LS_OK || total != 28500000;
}
