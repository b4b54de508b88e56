/* Snapshots: copies of a model's weights after some training step, for prediction on any thread.
 *
 *     ls_snapshot *snapshot;
 *     ls_trainer_snapshot(trainer, &snapshot, &err);         // the trainer's owner, between steps
 *     …
 *     // any thread, while training continues:
 *     ls_snapshot_predict(snapshot, images, n, scores, capacity, &err);
 *     ls_snapshot_release(snapshot);
 *
 * A snapshot never changes, and is reference-counted. It begins with one reference and stays valid
 * after its trainer is closed. A thread that gives a snapshot to other threads calls
 * ls_snapshot_retain for them before they can see it.
 *
 * A prediction runs on a device of the kind that the trainer uses. Each of the threads that predict
 * at the same time gets an ls_device of its own; several of them can use the same GPU. The library
 * opens these devices, and allocates their memory, when a prediction first needs them. All
 * snapshots of a trainer share the devices, and later callers reuse them. They are freed together
 * with the last snapshot.
 *
 * On the library's own CPU back end (the code for CPUs) a prediction runs on the calling thread,
 * which needs a stack of 256 KiB. With any other back end a prediction runs on a thread of the
 * library while the caller waits.
 *
 * Batching: on the CPU, n ≤ 8 rows take n times as long as one row, and 9 to 15 rows take as long
 * as 16. More rows are computed 16 or 64 at a time. 16 rows in one call take less time than 16
 * calls with one row. Therefore pass the rows of requests that arrive together in one call.
 * Fork: in a child process that fork has created, prediction fails with LS_EINVAL.
 */
#ifndef LOCKSTEP_SNAPSHOT_H
#define LOCKSTEP_SNAPSHOT_H

#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ls_snapshot ls_snapshot;

/* Description of a snapshot's model. */
typedef struct ls_snapshot_info {
    uint64_t steps;              /* number of training steps before the snapshot */
    int channels, height, width; /* shape of an input row */
    int classes;                 /* number of the model's outputs for each row */
    size_t parameters;           /* number of learned floats (weights and biases) */
    int floats;                  /* flag. Non-zero: the values of an input row are floats; zero:
                                  * bytes */
    int targets;                 /* flag. Zero: the outputs of a row are the scores of classes, one
                                  * for each class. Non-zero: they are independent values, such as
                                  * predicted quantities or yes/no labels */
} ls_snapshot_info;

/* Describes the model of the snapshot in `out`, which is zeroed if `snapshot` is NULL. Any
 * thread. */
void ls_snapshot_describe(const ls_snapshot *snapshot, ls_snapshot_info *out);
/* Adds a reference and returns its argument. NULL is allowed. Any thread. */
ls_snapshot *ls_snapshot_retain(ls_snapshot *snapshot);
/* Drops a reference; the last one frees the snapshot. NULL is allowed. Any thread. */
void ls_snapshot_release(ls_snapshot *snapshot);

/* Predicts `n` rows.
 *
 * - images: [n][channels][height][width], floats if ls_snapshot_info.floats is set, else bytes,
 *   with the values of the user's data. The function preprocesses them as in training, but does not
 *   augment them.
 * - scores, capacity: output buffer [n][classes], and its size in floats. If the model predicts
 *   classes, a row's scores are the logits of the classes: the class with the largest score is the
 *   prediction, and the softmax of the scores gives the probabilities. With the loss "bce" each
 *   score is the logit of one yes/no label. With the loss "poisson" each
 *   score is the logarithm of a count. With the other losses each score is a predicted value; with
 *   the loss "quantile" score q·T + k is that of quantile number q of target k of T.
 *
 * On the CPU, the other rows of the call do not influence a row's scores in any bit. On a GPU the
 * scores can differ by rounding if n differs. The function allocates memory only when more threads
 * predict at the same time than ever before.
 * Errors: LS_EINVAL (for example if `capacity` is too small), LS_EDATA (NaN in a table column that
 * had a value in every training row), LS_ENOMEM, LS_ESYSTEM (no thread could be started),
 * LS_EDEVICE, LS_EUNSUPPORTED.
 * Threads: any thread, and any number of threads at the same time. */
int ls_snapshot_predict(ls_snapshot *snapshot, const void *images, uint32_t n, float *scores,
                        size_t capacity, ls_error *err);

/* Writes the weights to `path` as a safetensors file with PyTorch's names of parameters. The file
 * appears completely or not at all. If `path` is a symbolic link, the file to which it leads is
 * created or replaced, and the link stays. Any thread. Errors: LS_EINVAL (no snapshot or no path,
 * or the path leads to a device, a pipe, a socket or a directory, which is not replaced), LS_EIO,
 * LS_ENOMEM. */
int ls_snapshot_save(const ls_snapshot *snapshot, const char *path, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
