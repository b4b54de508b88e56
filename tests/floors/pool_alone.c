/* SPDX-License-Identifier: MIT */
#include <lockstep/pool.h>

static int write_index(const ls_worker *worker, void *arg, ls_error *err)
{
    (void)err;
    int *seen = arg;
    seen[worker->index] = worker->index + 1;
    return LS_OK;
}

int main(void)
{
    int seen[2] = {0, 0};
    ls_pool_options options = {.size = sizeof options, .workers = 2};
    ls_pool *pool;
    if (ls_pool_create(&pool, &options, NULL) != LS_OK)
        return 1;
    int status = ls_pool_run(pool, write_index, seen, LS_FOREVER, NULL);
    ls_pool_destroy(pool, LS_FOREVER, NULL);
    return status == LS_OK && seen[0] == 1 && seen[1] == 2 ? 0 : 1;
}
