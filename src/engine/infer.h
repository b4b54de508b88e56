/* Inference: the forward pass of a model over rows, on one device. All callers use the same code:
 *
 *     evaluation in a run        shards of every minibatch, by the replicas in training (worker.c)
 *     trainer eval, predict      the same, by replicas made for the purpose (cli/trained.c)
 *     ls_snapshot_predict        images in the caller's memory, by a predictor (train/snapshot.c)
 *
 * Threads: functions with a replica are called on the thread to which its device is bound.
 */
#ifndef ENGINE_INFER_H
#define ENGINE_INFER_H

#include "nn/loss.h"
#include "nn/model.h"
#include "nn/replica.h"

#include <lockstep/host.h>
#include <stdatomic.h>

/* ---- rows of a data set, over any number of workers ------------------------------------------ */

/* Sums over the rows of one shard, or of all. */
typedef struct ls_tally {
    double loss, correct;
} ls_tally;

/* The rows of the test subset, cut as in training: into minibatches of `batch` rows, and each
 * minibatch into shards. The results do not depend on how the shards are distributed to workers. */
typedef struct ls_sharded_rows {
    uint32_t rows, batch, shards;
    uint32_t *row;          /* [rows] the numbers from 0 on */
    ls_tally *tally;        /* [minibatch][shard] */
    float *scores;          /* [rows][classes] input of the loss; NULL: only tallies are wanted */
    int classes;            /* number of scores of a row */
    const atomic_int *stop; /* not 0: end early, the results are void; NULL: never */
} ls_sharded_rows;

/* Returns the number of rows of an evaluation's minibatch, if training uses minibatches of `batch`
 * rows: the same number, but at least LS_EVALUATED rows per shard, so that small minibatches do not
 * make evaluation slow. */
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
 * minibatches of `batch` rows and `shards` shards; at most LS_SHARD_SIZES numbers, none of them
 * twice. `count` is the number of entries before; returns the number after. */
enum { LS_SHARD_SIZES = 4 };
int ls_add_shard_sizes(uint32_t *sizes, int count, uint32_t rows, uint32_t batch, uint32_t shards);

/* ---- meaning of outputs ---------------------------------------------------------------------- */

/* Computes the probabilities of the classes, the softmax of a row's logits. `out` and `logits` may
 * be the same array. */
void ls_softmax(float *out, const float *logits, int classes);
/* Returns the index of the first largest logit, as training counts it, and writes its softmax. */
int ls_best_class(const float *logits, int classes, double *probability);
/* Returns the value of one output of a model of vectors: a probability if the outputs are bits,
 * otherwise the output itself. */
double ls_output_value(const ls_loss *loss, float output);

#endif
