/* SPDX-License-Identifier: MIT */
/* The forward pass over rows of the test subset. The rows
 * are cut into minibatches, and each minibatch into shards. A *tally* is the loss and the number
 * of correct rows, summed over the rows of one shard or over all rows. */
#include "engine/infer.h"

#include "base/error.h"
#include "base/host.h"

#include <lockstep/split.h>

static size_t tallies(const ls_sharded_rows *r)
{
    return ((size_t)r->rows + r->batch - 1) / r->batch * r->shards;
}

uint32_t ls_evaluation_batch(uint32_t batch, uint32_t shards)
{
    const uint64_t least = (uint64_t)shards * LS_EVALUATED;
    return batch >= least || least > UINT32_MAX ? batch : (uint32_t)least;
}

int ls_sharded_rows_init(ls_sharded_rows *r, const ls_host *host, ls_error *err)
{
    r->row = ls_alloc_array(host, r->rows, sizeof *r->row);
    r->tally = ls_alloc_array(host, tallies(r), sizeof *r->tally);
    if (!r->row || !r->tally)
        return ls_fail(err, LS_ENOMEM, "out of memory for %u rows", (unsigned)r->rows);
    for (uint32_t i = 0; i < r->rows; i++)
        r->row[i] = i;
    return LS_OK;
}

void ls_sharded_rows_fini(ls_sharded_rows *r, const ls_host *host)
{
    ls_free(host, r->tally);
    ls_free(host, r->row);
}

int ls_infer_shards(const ls_sharded_rows *r, ls_replica *replica, int lo, int hi, ls_error *err)
{
    ls_tally *tally = r->tally;
    for (uint64_t begin = 0; begin < r->rows; begin += r->batch, tally += r->shards) {
        const uint64_t left = r->rows - begin;
        if (r->stop && atomic_load_explicit(r->stop, memory_order_relaxed))
            return LS_OK;
        for (int shard = lo; shard < hi; shard++) {
            uint32_t first, count;
            ls_split(left < r->batch ? (uint32_t)left : r->batch, r->shards, (uint32_t)shard,
                     &first, &count);
            first += (uint32_t)begin;
            int status = ls_replica_evaluate(
                replica, LS_TEST, r->row + first, count, &tally[shard].loss, &tally[shard].correct,
                r->scores ? r->scores + first * (size_t)r->classes : NULL, err);
            if (status)
                return status;
        }
    }
    return LS_OK;
}

ls_tally ls_sharded_rows_sum(const ls_sharded_rows *r)
{
    ls_tally sum = {0, 0};
    for (size_t i = 0; i < tallies(r); i++) {
        sum.loss += r->tally[i].loss;
        sum.correct += r->tally[i].correct;
    }
    return sum;
}

int ls_add_shard_sizes(uint32_t *sizes, int count, uint32_t rows, uint32_t batch, uint32_t shards)
{
    const uint32_t minibatch[2] = {rows < batch ? rows : batch, rows % batch};
    for (int i = 0; i < LS_SHARD_SIZES; i++) {
        const uint32_t size = (minibatch[i / 2] + (i % 2 ? shards - 1 : 0)) / shards;
        bool known = size == 0;
        for (int k = 0; k < count; k++)
            known |= sizes[k] == size;
        if (!known)
            sizes[count++] = size;
    }
    return count;
}
