/* SPDX-License-Identifier: MIT */
/* An all-reduce of one's own: 1, 2, 4 and 8 workers add the gradients of eight shards (parts of a
 * minibatch), in a line and as a tree. Only the tree gives all of them the same bits.
 *
 *     cc own_allreduce.c $(pkg-config --cflags --libs lockstep-pool) -o own_allreduce
 */
#include <lockstep/pool.h>
#include <stdio.h>

enum { SHARDS = 8, FLOATS = 100000 };
typedef float row[FLOATS];
typedef float rule(row *x, int n, int i); /* returns the sum of x[0][i] … x[n - 1][i] */
static row shard[SHARDS], partial[SHARDS], total;
static rule *add;

static float line(row *x, int n, int i)
{
    return n == 1 ? x[0][i] : line(x, n - 1, i) + x[n - 1][i];
}

static float tree(row *x, int n, int i)
{
    return n == 1 ? x[0][i] : tree(x, n / 2, i) + tree(x + n / 2, n / 2, i);
}

/* Adds the gradients of the worker's own shards. */
static int add_own(const ls_worker *w, void *arg, ls_error *err)
{
    const int count = SHARDS / w->workers;
    for (int i = 0; i < FLOATS; i++)
        partial[w->index][i] = add(shard + count * w->index, count, i);
    return (void)arg, (void)err, LS_OK;
}

/* Adds the partial sums of all workers in the worker's part of the floats. */
static int add_all(const ls_worker *w, void *arg, ls_error *err)
{
    const int count = FLOATS / w->workers, first = count * w->index;
    for (int i = first; i < first + count; i++)
        total[i] = add(partial, w->workers, i);
    return (void)arg, (void)err, LS_OK;
}

int main(void)
{
    unsigned random = 1, hash[SHARDS + 1];
    int status = LS_OK;
    ls_error err;
    for (int i = 0; i < SHARDS * FLOATS; i++)
        shard[i / FLOATS][i % FLOATS] = (float)((random = random * 1664525 + 1013904223) >> 8);
    for (int r = 0; r < 2; r++)
        for (int n = 1; n <= SHARDS && status == LS_OK; n *= 2) {
            const ls_pool_options options = {.size = sizeof options, .workers = n};
            ls_pool *pool = NULL;
            add = r ? tree : line;
            status = ls_pool_create(&pool, &options, &err);
            status = status ? status : ls_pool_run(pool, add_own, NULL, LS_FOREVER, &err);
            /* every worker has returned, so all partial sums are there */
            status = status ? status : ls_pool_run(pool, add_all, NULL, LS_FOREVER, &err);
            ls_pool_destroy(pool, LS_FOREVER, NULL);
            hash[n] = 0;
            for (int i = 0; i < FLOATS; i++)
                hash[n] = hash[n] * 31 + (unsigned)total[i];
            printf("%s, workers %d: %08x\n", r ? "tree" : "line", n, hash[n]);
        }
    if (status)
        fprintf(stderr, "own_allreduce: %s\n", err.text);
    return status || hash[2] != hash[1] || hash[4] != hash[1] || hash[8] != hash[1];
}
