/* SPDX-License-Identifier: MIT */
/* Inference: the forward pass of a model over rows, on one device. All callers use the same code:
 *
 *     evaluation in a run        all test rows, by the replicas that are trained (worker.c)
 *     trainer eval, predict      all rows, by replicas that are never trained (model/predict.c)
 *     ls_model_predict        rows in the caller's memory, by a predictor (model/model.c)
 *
 * Threads: functions with a replica are called on the thread to which its device is bound.
 */
#ifndef ENGINE_INFER_H
#define ENGINE_INFER_H

#include "nn/network.h"
#include "nn/replica.h"

#include <lockstep/host.h>
#include <stdatomic.h>

/* ---- rows of a data set, over any number of workers ------------------------------------------ */

/* Sums over the rows of one shard, or over all rows. */
typedef struct ls_tally {
    double loss, /* sum of the rows' losses */
        correct; /* number of correct rows */
} ls_tally;

/* The rows of the test subset, and the results of their evaluation. The rows are cut as in
 * training: into minibatches of `batch` rows, and each minibatch into `shards` shards. The results
 * do not depend on which worker evaluates which shard. */
typedef struct ls_sharded_rows {
    uint32_t rows,   /* number of all rows */
        batch,       /* number of rows of a minibatch */
        shards;      /* number of shards of a minibatch */
    uint32_t *row;   /* [rows] indices of the rows, from 0 to rows − 1 */
    ls_tally *tally; /* [minibatch][shard] results of the shards */
    /* [rows][classes] outputs of the model, before the loss; NULL: outputs are not stored */
    float *scores;
    int classes; /* number of scores of a row */
    /* if *stop is not 0, the evaluation ends early and its results are invalid; NULL: it never
     * does */
    const atomic_int *stop;
} ls_sharded_rows;

/* Returns the number of rows of a minibatch in an evaluation, if training uses minibatches of
 * `batch` rows. The number is `batch`, but at least LS_EVALUATED rows per shard, because small
 * minibatches make an evaluation slow. */
enum { LS_EVALUATED = 64 };
uint32_t ls_evaluation_batch(uint32_t batch, uint32_t shards);

/* Allocates `row` and `tally` of a struct whose rows, batch and shards are set. Errors:
 * LS_ENOMEM. */
int ls_sharded_rows_init(ls_sharded_rows *rows, const ls_host *host, ls_error *err);
/* Frees `row` and `tally`. */
void ls_sharded_rows_fini(ls_sharded_rows *rows, const ls_host *host);

/* Evaluates shards lo … hi − 1 of every minibatch, and writes their tallies and scores. Returns
 * early with LS_OK if *stop is not 0. Errors: those of ls_replica_evaluate. */
int ls_infer_shards(const ls_sharded_rows *rows, ls_replica *replica, int lo, int hi,
                    ls_error *err);
/* Returns the sum of all tallies in row order, which is the same for any number of workers. */
ls_tally ls_sharded_rows_sum(const ls_sharded_rows *rows);

/* Appends to `sizes` each number of rows that a shard can have, if `rows` rows are cut into
 * minibatches of `batch` rows, and each minibatch into `shards` shards. Appends at most
 * LS_SHARD_SIZES numbers, and none that `sizes` contains already. `count` is the number of entries
 * before the call. Returns the number of entries after the call. */
enum { LS_SHARD_SIZES = 4 };
int ls_add_shard_sizes(uint32_t *sizes, int count, uint32_t rows, uint32_t batch, uint32_t shards);

#endif
