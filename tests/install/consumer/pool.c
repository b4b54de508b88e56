/* SPDX-License-Identifier: MIT */
/* The smallest program that uses the pool, in C and in C++. */
#include <lockstep/pool.h>
#include <string.h>

static int hello(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)err;
    ((int *)arg)[worker->index] = worker->index + 1;
    return LS_OK;
}

int main(void)
{
    int seen[2] = {0, 0};
    ls_pool_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.workers = 2;
    ls_pool *pool;
    if (ls_pool_create(&pool, &options, 0) != LS_OK)
        return 1;
    int status = ls_pool_run(pool, hello, seen, LS_FOREVER, 0);
    return ls_pool_destroy(pool, LS_FOREVER, NULL) != LS_OK || status != LS_OK || seen[0] != 1 ||
           seen[1] != 2;
}
