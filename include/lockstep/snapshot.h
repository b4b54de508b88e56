/* A snapshot: the model as it was after some step, for prediction on any thread.
 *
 *     ls_snapshot *snapshot;
 *     ls_trainer_snapshot(trainer, &snapshot, &err);         // the trainer's owner, between steps
 *     …
 *     ls_snapshot_predict(snapshot, images, n, scores, capacity, &err); // any thread, while training goes on
 *     ls_snapshot_release(snapshot);
 *
 * A snapshot never changes, and is counted: it begins with one reference, and lives on when its
 * trainer is closed. To publish a new one, retain it for the readers before they can see it.
 *
 * Predictions run on a device of the kind that the trainer uses, one for each thread that predicts at the
 * same time: with the built-in CPU back end in that thread itself, which wants a stack of 256 KiB, else on one of
 * the library's own for which the caller waits. Devices and their memory are made when they are first needed, are
 * shared by all snapshots of a trainer, serve other callers later, and go with the last snapshot. Few
 * rows cost what they are, on the CPU; nine to sixteen cost as much as sixteen, which are cheaper than sixteen times
 * one: requests that come together are best asked together. In a child process after fork a snapshot predicts
 * nothing (LS_EINVAL).
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

typedef struct ls_snapshot_info {
    uint64_t steps; /* trained so far */
    int channels, height, width;
    int classes;
    size_t parameters;
    int floats; /* non-zero: rows are floats, else bytes */
    int targets; /* non-zero: the outputs are so many numbers, of which `classes` then says how many */
} ls_snapshot_info;

/* Any thread: everything in this header. */
void ls_snapshot_describe(const ls_snapshot *snapshot, ls_snapshot_info *out);
ls_snapshot *ls_snapshot_retain(ls_snapshot *snapshot); /* returns its argument */
void ls_snapshot_release(ls_snapshot *snapshot);        /* NULL is allowed */

/* `images` [n][channels][height][width], bytes or, where info.floats is set, floats, as they are in the user's data,
 * which are preprocessed as in training but not augmented → `scores` [n][classes], which has room for `capacity`
 * floats: logits of classes, whose largest is the prediction and whose softmax are probabilities, logits of bits
 * (bce), or the values (mse). On the CPU a row's scores have the same bits whatever rows come with it, and however
 * many; on a GPU they may differ in their last bits with n. Allocates nothing once as many threads have predicted
 * at the same time before. Errors: LS_EINVAL (also: too little room), LS_EDATA (NaN in a column of a table that had a value
 * in all training rows), LS_ENOMEM, LS_ESYSTEM (no thread), LS_EDEVICE, LS_EUNSUPPORTED. */
int ls_snapshot_predict(ls_snapshot *snapshot, const void *images, uint32_t n, float *scores,
                        size_t capacity, ls_error *err);

/* Writes the weights as safetensors, under PyTorch's names; whole at the return, or not there.
 * Errors: LS_EINVAL (no snapshot, no path), LS_EIO, LS_ENOMEM. */
int ls_snapshot_save(const ls_snapshot *snapshot, const char *path, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
