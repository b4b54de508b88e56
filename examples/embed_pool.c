/* SPDX-License-Identifier: MIT */
/* Uses Lockstep's worker pool in a program: sums the squares of a million numbers. Each worker (a
 * thread of the pool) sums a part.
 *
 *     cc embed_pool.c $(pkg-config --cflags --libs lockstep-pool) -o embed_pool
 */
#include <lockstep/pool.h>
#include <stdio.h>

enum { NUMBERS = 1000000, WORKERS = 4 };

static double number[NUMBERS], sum[WORKERS];

/* Runs once on each worker, which stores its result in an element of its own. */
static int add_squares(const ls_worker *worker, void *arg, ls_error *err)
{
    const long begin = (long)NUMBERS * worker->index / worker->workers;
    const long end = (long)NUMBERS * (worker->index + 1) / worker->workers;
    (void)arg, (void)err; /* on failure: write err->text, which ls_pool_run returns */
    for (long i = begin; i < end; i++)
        sum[worker->index] += number[i] * number[i];
    return LS_OK;
}

int main(void)
{
    const ls_pool_options options = {.size = sizeof options, .workers = WORKERS};
    ls_error err;
    ls_pool *pool = NULL;
    for (int i = 0; i < NUMBERS; i++)
        number[i] = i % 10;
    int status = ls_pool_create(&pool, &options, &err);
    if (status == LS_OK)
        status = ls_pool_run(pool, add_squares, NULL, LS_FOREVER, &err);
    ls_pool_destroy(pool, LS_FOREVER, NULL); /* NULL is allowed */
    if (status != LS_OK)
        fprintf(stderr, "embed_pool: %s\n", err.text);
    else
        printf("sum of squares: %.0f\n", sum[0] + sum[1] + sum[2] + sum[3]);
    return status != LS_OK || sum[0] + sum[1] + sum[2] + sum[3] != 28500000;
}
