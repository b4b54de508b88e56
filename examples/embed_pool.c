/* Lockstep's worker pool inside a program of one's own: sums the squares of a million numbers, each worker a part.
 *
 *     cc embed_pool.c $(pkg-config --cflags --libs lockstep-pool) -o embed_pool
 */
#include <lockstep/pool.h>
#include <stdio.h>

enum { NUMBERS = 1000000, MOST_WORKERS = 64 };

static double number[NUMBERS], sum[MOST_WORKERS];

/* Runs once on every worker. Each writes to a place of its own. */
static int add_squares(const ls_worker *worker, void *arg, ls_error *err)
{
    const long begin = (long)NUMBERS * worker->index / worker->workers;
    const long end = (long)NUMBERS * (worker->index + 1) / worker->workers;
    (void)arg;
    for (long i = begin; i < end; i++)
        sum[worker->index] += number[i] * number[i];
    if (sum[worker->index] < 1e300)
        return LS_OK;
    snprintf(err->text, sizeof err->text, "numbers %ld to %ld are too large", begin, end - 1);
    return LS_EDATA; /* ls_pool_run returns it, with this text */
}

int main(void)
{
    const int cpus = ls_allowed_cpus();
    const ls_pool_options options = {.size = sizeof options,
                                     .workers = cpus < MOST_WORKERS ? cpus : MOST_WORKERS};
    double total = 0;
    ls_error err;
    ls_pool *pool;
    for (int i = 0; i < NUMBERS; i++)
        number[i] = i % 10;
    int status = ls_pool_create(&pool, &options, &err);
    if (status == LS_OK) {
        status = ls_pool_run(pool, add_squares, NULL, LS_FOREVER, &err);
        for (int i = 0; i < ls_pool_size(pool); i++)
            total += sum[i];
        printf("sum of squares: %.0f, on %d workers\n", total, ls_pool_size(pool));
        ls_pool_destroy(pool);
    }
    if (status != LS_OK)
        fprintf(stderr, "embed_pool: %s\n", err.text);
    return status != LS_OK || total != 28500000;
}
