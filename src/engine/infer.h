/* Inference: what a model makes of rows, forward alone, on one device. One path for all who ask:
 *
 *     a run's evaluation         shards of every minibatch, by the replicas that are trained (worker.c)
 *     trainer eval, predict      the same, by replicas that are made for it (cli/trained.c)
 *     ls_snapshot_predict        images in the caller's memory, by a predictor (train/snapshot.c)
 *
 * Everything with a replica is called on the thread that its device is bound to.
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

/* Rows of the test subset, cut as training cuts them, so that they go through the same kernels: into
 * minibatches of `batch` rows, and these into shards. Nothing that comes out depends on how many workers
 * share the shards. */
typedef struct ls_sharded_rows {
    uint32_t rows, batch, shards;
    uint32_t *row;   /* 0, 1, 2, … */
    ls_tally *tally; /* [minibatch][shard] */
    float *scores;   /* [rows][classes], what the loss reads; NULL: tallies alone are wanted */
    int classes;     /* of the scores */
    const atomic_int *stop; /* not 0: ends early, the results are void; NULL: never */
} ls_sharded_rows;

/* rows, batch and shards are set: allocates row and tally. Errors: LS_ENOMEM. */
int ls_sharded_rows_init(ls_sharded_rows *rows, const ls_host *host, ls_error *err);
void ls_sharded_rows_fini(ls_sharded_rows *rows, const ls_host *host);

/* Runs shards `lo` … `hi` − 1 of every minibatch: → their tallies, and scores. */
int ls_infer_shards(const ls_sharded_rows *rows, ls_replica *replica, int lo, int hi,
                    ls_error *err);
/* Of all tallies, in row order: the same on any number of workers. */
ls_tally ls_sharded_rows_sum(const ls_sharded_rows *rows);

/* Appends to `sizes`, of which there are `count`, what shards of so many rows can have and is not there
 * yet: LS_SHARD_SIZES at most. Returns how many there are then. */
enum { LS_SHARD_SIZES = 4 };
int ls_add_shard_sizes(uint32_t *sizes, int count, uint32_t rows, uint32_t batch, uint32_t shards);

/* ---- what outputs mean ------------------------------------------------------------------------ */

/* Logits of a row → probabilities of classes: their softmax. Both may be one. */
void ls_softmax(float *out, const float *logits, int classes);
/* The first largest logit, as in training, and its softmax. */
int ls_best_class(const float *logits, int classes, double *probability);
/* One output of a model of vectors → its value; of bits, a probability. */
double ls_output_value(const ls_loss *loss, float output);

#endif
