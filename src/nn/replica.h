/* SPDX-License-Identifier: MIT */
/* A replica: one device's copy of the model, with all memory that a step needs.
 *
 * Threads: all functions are called on the device's worker thread unless they say otherwise. After
 * ls_replica_create no function allocates, except those that prepare further recordings of a step
 * (ls_replica_on_ready, ls_replica_record_whole_steps), ls_replica_total_at,
 * ls_replica_renew_gradient and ls_replica_prepare_pieces.
 *
 * Plans. A plan (plan.h) is the list of ops that compute the model for a fixed number of rows. Some
 * devices prefer to compute a shard in several *blocks* of rows, one after another
 * (ls_device_info.block_rows). A replica has one plan for each number of rows that a shard or a
 * block can have. The first op of a plan is the *gather*, which copies and normalises the rows.
 *
 * To *bind* an op is to set the pointers to its buffers. A device with the flag LS_DEVICE_REBINDS
 * allows that an op is bound again later, to other buffers.
 *
 * Recordings. A recording is a list of ops that the device has captured, and that one *launch*
 * enqueues (a graph in CUDA). If the device supports recordings, ls_replica_create records each
 * plan's gather, forward and backward in a replica that trains. It also records the update if the
 * update has several ops. ls_replica_gradient and ls_replica_apply then launch the recordings. If
 * the device refuses to record a list of ops, the replica enqueues these ops one by one and logs a
 * warning. The results have the same bits with and without recordings.
 *
 * Arenas. Weights, gradients and the optimizer's states are arenas with the same layout. (The arena
 * of an optimizer's state is called a *slot*. A *result slot* is something else, see whole steps
 * below.) The parameters are in *reverse* layer order. Gradients become complete in that order, so
 * the complete part of a gradient is always contiguous from the start. Each parameter starts at a
 * multiple of 16 floats, in the layout that its op prefers. After the parameters comes the *tail*:
 * LS_TAIL floats with the other numbers that a step must sum over the shards (loss, number of
 * correct rows, number of rows). After the tail comes a section for running statistics, which is
 * empty in a model without batch norm:
 *
 *     [parameters][tail][running statistics]
 *
 * In the weights, this section contains the statistics themselves (mean and variance of each
 * layer). In a gradient, the section contains the *contribution* of the shard: the shard's
 * statistics times its number of rows. The total's section, divided by the minibatch's number of
 * rows, is therefore the mean over the shards, weighted by rows, and an empty shard adds nothing.
 * The variance in a contribution is multiplied by n/(n − 1), with n = rows · height · width of the
 * shard. In a slot, the section is unused.
 *
 *     gradient   of one shard, a leaf of the tree in merge/tree.h    by ls_replica_gradient
 *     total      gradient of the whole minibatch                     by the merge of all workers
 *     weights    updated from the total                              by ls_replica_apply */
#ifndef NN_REPLICA_H
#define NN_REPLICA_H

#include "merge/tree.h"
#include "nn/network.h"
#include "nn/optimizer.h"
#include "sync/heartbeat.h"

#include <stdbool.h>

/* Offsets of the numbers in the tail of an arena, in floats. Counts are exact in fp32 up to 2²⁴. */
enum {
    LS_TAIL_LOSS = 0,    /* loss, summed over rows */
    LS_TAIL_CORRECT = 1, /* number of correct rows; with cross-entropy, a row is correct if its
                          * largest logit is that of its label */
    LS_TAIL_ROWS = 2,    /* number of rows */
    LS_TAIL = 16         /* length of the tail; its other floats are zero */
};

typedef enum ls_subset { LS_TRAIN = 0, LS_TEST = 1, LS_SUBSETS = 2 } ls_subset;

/* Rows in host memory: images [rows][c][h][w] of bytes or floats, and labels int32_t [rows] or
 * targets float [rows][targets]; ls_replica_desc.normalisation says which. A row's weight
 * multiplies its loss. The rows are a dataset that never changes, or a buffer; after a change in
 * the buffer, ls_replica_refresh must be called before the changed rows are used. */
typedef struct ls_replica_data {
    union {
        const uint8_t *images;
        const float *values;
    };
    union {
        const int32_t *labels;
        const float *targets;
    };
    const float *weights; /* [rows] ≥ 0; NULL: all are 1 */
    uint32_t rows;
} ls_replica_data;

typedef struct ls_replica_desc {
    ls_device *device;             /* the device of the calling thread; ls_device_ops.bind was
                                    * called on this thread */
    const ls_network *model;       /* model, optimizer and host must outlive the replica */
    const ls_optimizer *optimizer; /* NULL: the replica is never trained */
    /* how the gather converts rows. Its random changes of images, such as crop and flip, apply to
     * training rows only, and only if there is an optimizer */
    ls_gather normalisation;
    const struct ls_loss *loss; /* NULL: cross-entropy */
    float label_smoothing;      /* 0: none */
    ls_vector_loss vector_loss; /* parameters of a loss of vectors; its rule is not used */
    /* [classes] factor of each class's rows in the loss, for cross-entropy; NULL: 1 for all
     * classes */
    const float *class_weight;
    bool scores; /* ls_replica_evaluate will be called with `scores` */
    /* Training and test data, which must outlive the replica. They are copied to the device unless
     * the device reads host memory. images NULL: the subset is never used. */
    ls_replica_data data[LS_SUBSETS];
    /* The training data are copied even if the device reads host memory. The ops then read the
     * copy, so ls_replica_data_at need not bind the ops again when the rows move in host memory. */
    bool copies_training_data;
    const uint32_t *shard_rows; /* [shard_row_counts] all numbers of rows that calls will pass */
    int shard_row_counts;
    /* the first `trained_row_counts` entries of shard_rows occur in training, the others in
     * evaluation only; 0: all occur in training */
    int trained_row_counts;
    uint64_t seed; /* seed of dropout and augmentation */
    /* heartbeat of the worker (sync/heartbeat.h). The replica calls ls_beat before each op, with a
     * place that ls_replica_place explains; NULL: no beats */
    ls_heartbeat *heartbeat;
    bool no_sharing;   /* activations do not share memory; for comparison in tests */
    bool no_recording; /* everything is enqueued op by op; for comparison in tests */
    /* no total arena is allocated; the caller must set the total arena before the first update
     * (ls_replica_total_at) */
    bool total_later;
    /* smallest size of a bucket (merge/tree.h) in floats; 0: LS_BUCKET_FLOATS */
    size_t bucket_floats;
    const ls_host *host;
} ls_replica_desc;

typedef struct ls_replica ls_replica;

/* Durations in seconds. Each call adds its durations; the caller sets them to zero before. The time
 * for launching a recording counts as `forward`. */
typedef struct ls_replica_times {
    double gather, forward, backward, apply; /* apply: the update */
} ls_replica_times;

/* Creates a replica with its plans, arenas and recordings. Weights and optimizer states are zero.
 * The caller destroys *out. Errors: LS_EINVAL (contradictions in the description), those of the
 * back end, LS_ENOMEM. */
int ls_replica_create(ls_replica **out, const ls_replica_desc *desc, ls_error *err);
/* Waits for the device and frees all memory of the replica. NULL is allowed. */
void ls_replica_destroy(ls_replica *replica);

/* Returns the length of an arena in floats, a multiple of 16. */
size_t ls_replica_floats(const ls_replica *replica);
/* Returns the offset of the tail in floats, a multiple of 16. */
size_t ls_replica_tail_offset(const ls_replica *replica);
/* Returns the present gradient arena: the arena that ls_replica_gradient_at has set, or the arena
 * that the replica has allocated (its *own* arena). */
float *ls_replica_gradient_arena(ls_replica *replica);
/* Returns the present total arena: the arena that ls_replica_total_at has set, or the replica's own
 * arena; NULL: there is no total arena. */
float *ls_replica_total_arena(ls_replica *replica);
/* Returns the weight arena. */
float *ls_replica_weight_arena(ls_replica *replica);
/* Sets the gradient arena. `gradient`: an arena of the caller, which must be zeroed before its
 * first use; NULL: the replica's own arena. The device must allow ops to be bound again
 * (LS_DEVICE_REBINDS). */
void ls_replica_gradient_at(ls_replica *replica, float *gradient);
/* Sets the arena from which updates read the total. `total`: an arena of the caller; NULL: the
 * replica's own arena, which is allocated if there is none. Must not be called during a step, nor
 * if updates are recorded or the optimizer keeps a moving average. Errors: LS_ENOMEM. */
int ls_replica_total_at(ls_replica *replica, float *total, ls_error *err);
/* Goes back to the replica's own gradient and total arenas, and drops the caller's. Until
 * ls_replica_gradient_at and ls_replica_total_at are called again, only functions that use neither
 * arena may be called. */
void ls_replica_own_arenas(ls_replica *replica);
/* Replaces the replica's own gradient arena with a new one, because another thread is possibly
 * still reading the old one. The old arena is freed together with the replica. May be called only
 * after ls_replica_own_arenas. The device must have LS_DEVICE_REBINDS. Errors: LS_ENOMEM. */
int ls_replica_renew_gradient(ls_replica *replica, ls_error *err);
/* Returns the arena of the optimizer's state number `slot` (ls_optimizer_states), or NULL if the
 * optimizer has no such state. */
float *ls_replica_slot_arena(ls_replica *replica, int slot);

/* Returns an array of *count + 1 ascending offsets in floats: the offset of each parameter in an
 * arena, the offset of the tail, and the length of the arena. The offsets cut an arena into *count
 * parts, the last of which is the tail with the running statistics. The array belongs to the
 * replica. */
const size_t *ls_replica_param_offsets(const ls_replica *replica, int *count);
/* Returns the buckets into which an arena is cut when it is merged during the backward pass. The
 * result belongs to the replica. */
const ls_buckets *ls_replica_buckets(const ls_replica *replica);

/* Device memory of a replica in bytes, by use. */
typedef struct ls_replica_memory {
    size_t arenas, activations, dataset; /* dataset: the device's copy of the rows */
    size_t scratch;              /* the part of `activations` that is working memory within one call
                                  * of an op */
    size_t unshared_activations; /* size of `activations` if buffers did not share memory */
    size_t kept; /* data that ops derive from the weights and keep, such as transformed weights */
} ls_replica_memory;
/* Copies the memory use of the replica. */
void ls_replica_memory_used(const ls_replica *replica, ls_replica_memory *out);

/* Returns the number of recordings; 0: all ops are enqueued one by one. The recordings are:
 * - of each plan that trains, one of the gradient;
 * - of each such plan, one per bucket if gradients are computed by buckets (ls_replica_on_ready);
 * - of each such plan, one of a whole step if whole steps are recorded
 *   (ls_replica_record_whole_steps);
 * - of the largest such plan, one of LS_UNROLLED whole steps if these are recorded and the model is
 *   small;
 * - one of the update if the update has several ops. */
int ls_replica_recordings(const ls_replica *replica);

/* Writes line number `line` of the description of all plans. A line describes one op, such as
 * "conv1+relu 32×1×28×28 → 32×20×26×26 lanes:avx512": name, shapes of input and output, and name of
 * the chosen kernel. Returns `out`, or NULL if there is no such line. */
enum { LS_LINE_BYTES = 192 };
const char *ls_replica_plan_line(char out[LS_LINE_BYTES], const ls_replica *replica, int line);

/* Places in a worker's heartbeat (sync/heartbeat.h) while the worker runs no op of its replica. */
enum {
    LS_PLACE_IDLE,
    LS_PLACE_MERGE,
    LS_PLACE_APPLY,
    LS_PLACE_OPEN,
    LS_PLACE_EXPORT,
    LS_PLACE_STEP, /* at the beginning of a step */
    LS_PLACE_ADD,  /* adding a shard's gradient to the gradients of earlier shards */
    LS_PLACE_WAIT  /* waiting for the other workers in a merge */
};

/* The kind of work that a place in a heartbeat stands for; LS_PHASE_NONE if the place does not
 * belong to an op of a replica. */
typedef enum ls_phase {
    LS_PHASE_NONE,
    LS_PHASE_GATHER,
    LS_PHASE_FORWARD, /* includes the loss */
    LS_PHASE_BACKWARD,
    LS_PHASE_RECORDED /* gather, forward and backward as one recording */
} ls_phase;
ls_phase ls_replica_phase(int place);

/* Writes the name of the op that a place in a heartbeat stands for, such as "backward of
 * conv2+relu". Returns 0 if the place does not belong to an op of this replica. Any thread, because
 * the function reads only data that do not change. */
int ls_replica_place(char *out, size_t size, const ls_replica *replica, int place);

/* If `on` is true, copies the weights to the total arena, and then replaces them by their moving
 * average. If `on` is false, copies the weights back from the total arena. Must be called between
 * steps. Does nothing if the optimizer keeps no average. Waits for the device. */
int ls_replica_use_average(ls_replica *replica, bool on, ls_error *err);
/* Copies the host array `canonical`, [model->floats] in canonical layout (model.h), to `arena`: the
 * weights, a gradient or a slot, which all have the same layout. The tail of the arena stays as it
 * is. The running statistics of the canonical array are copied to the section for running
 * statistics, also in a gradient or a slot. Waits for the device. */
int ls_replica_import(ls_replica *replica, float *arena, const float *canonical, ls_error *err);
/* Copies `arena` to the host array `canonical`, [model->floats] in canonical layout. The tail is
 * not copied. The section for running statistics is copied to the positions of the running
 * statistics, also from a gradient or a slot. Waits for the device. */
int ls_replica_export(ls_replica *replica, float *canonical, const float *arena, ls_error *err);

/* Computes the gradient of one shard, tail included: enqueues gather, forward, loss and backward.
 * `rows`: [n] indices of training rows, read before the return. n must be an entry of shard_rows or
 * 0; an empty shard has the gradient zero. The random numbers of the rows (augmentation, dropout)
 * depend on `epoch`. `times` may be NULL. */
int ls_replica_gradient(ls_replica *replica, const uint32_t *rows, uint32_t n, uint32_t epoch,
                        ls_replica_times *times, ls_error *err);

/* Promises, for the next call of ls_replica_gradient only, that no thread has written the weights
 * since the last one, for example between two shards of a step. In that call, ops use again what
 * they have computed from the weights and kept, such as transformed weights (LS_RUN_SAME). A
 * function that writes weights need not tell the replica. */
void ls_replica_promise_same_weights(ls_replica *replica);

/* ---- a backward pass by buckets ------------------------------------------------------------- */

/* Gradients become complete from the start of the arena on, so the complete part can be merged
 * while the rest is computed, bucket by bucket (merge/tree.h). The backward pass runs until the
 * next bucket is complete, calls the function `ready` of ls_replica_on_ready, and continues. The
 * buckets depend only on the model and on the back end's layouts. */

/* Called by ls_replica_gradient, on the same thread, after each bucket but the last. The first
 * `floats` floats of the gradient arena are complete, and stay unchanged, when the work that has
 * been enqueued so far is done. `floats` ascends. ls_replica_gradient returns the function's
 * error. */
typedef int ls_ready_fn(void *user, size_t floats, ls_error *err);

/* Sets the function that is called after each bucket; NULL: no function is called, and the backward
 * pass is not cut. The function is called for the gradient of an empty shard as well. Must not be
 * called during a step, because it makes recordings if the replica has recordings. Errors:
 * LS_ENOMEM. */
int ls_replica_on_ready(ls_replica *replica, ls_ready_fn *ready, void *user, ls_error *err);

/* ---- whole steps ----------------------------------------------------------------------------- */

/* If a minibatch has one shard, the gradient of the shard is the total. The replica can then run a
 * *whole step*: gather, forward, backward and update are one recording. The update copies the loss
 * and the number of correct rows to a *result slot*, one of LS_RESULT_SLOTS arrays in host memory.
 * The next step can be enqueued, with the other result slot, before the result of this step is
 * known. After a step whose loss is not finite no step changes weights until
 * ls_replica_resume_updates is called. The results have the same bits as those of
 * ls_replica_gradient and ls_replica_apply.
 *
 * If a step takes less time than enqueueing the next one, LS_UNROLLED steps are one recording: a
 * model is *small* if its arenas and activations take at most LS_UNROLL_BYTES. */
enum { LS_RESULT_SLOTS = 2, LS_UNROLLED = 8, LS_UNROLL_BYTES = 64 << 20 };

typedef struct ls_replica_step {
    float lr;    /* learning rate */
    float scale; /* factor by which the update multiplies the total, such as 1 / number of rows */
    /* number of rows of the minibatch, over which running statistics are averaged */
    uint32_t rows;
    uint64_t number; /* number of the step, from 1 */
} ls_replica_step;

/* Records whole steps, if the device supports that. A second call has no effect. Must not be called
 * during a step. Errors: LS_ENOMEM. */
int ls_replica_record_whole_steps(ls_replica *replica, ls_error *err);
/* Returns the largest number of whole steps of n rows that one launch can run: 0 (whole steps are
 * not recorded), 1 or LS_UNROLLED. */
int ls_replica_most_whole_steps(const ls_replica *replica, uint32_t n);

/* Enqueues `count` whole steps as one launch. `count` is 1 or the result of
 * ls_replica_most_whole_steps. All steps have the same number of rows. `rows`: the row indices of
 * the steps, one step after another. `slot`: number of the result slot; the steps of an earlier
 * launch with this result slot must be done. After LS_EDEVICE it is unknown whether steps have been
 * enqueued. After any other error no step has been enqueued. */
int ls_replica_run_whole_steps(ls_replica *replica, const uint32_t *rows, uint32_t epoch,
                               const ls_replica_step *step, int count, int slot,
                               ls_replica_times *times, ls_error *err);
/* Sets *arrived to whether the steps of a result slot are done. Does not wait. Errors: LS_EDATA (a
 * row has an invalid label or target; later steps are then skipped, as after a loss that is not
 * finite), LS_EDEVICE. */
int ls_replica_arrived(bool *arrived, ls_replica *replica, int slot, ls_error *err);
/* Returns the tail of step number k, from 0, of the launch that used result slot `slot`. The tail
 * is valid from the time when the steps of the launch are done until the result slot is used
 * again. */
const float *ls_replica_arrived_tail(const ls_replica *replica, int slot, int k);
/* Ends the state in which all updates are skipped because a loss was not finite. Steps that are
 * enqueued after the call change the weights again. */
int ls_replica_resume_updates(ls_replica *replica, ls_error *err);

/* ---- results -------------------------------------------------------------------------------- */

/* Evaluates `n` rows of a subset: runs forward and loss. Sets *loss to the loss summed over the
 * rows, and *correct to the number of correct rows. `scores` receives the logits [n][classes];
 * NULL: they are not needed. n must be an entry of shard_rows or 0. Waits for the device. */
int ls_replica_evaluate(ls_replica *replica, ls_subset subset, const uint32_t *rows, uint32_t n,
                        double *loss, double *correct, float *scores, ls_error *err);

/* Copies the rows first … first + n − 1 of a subset to the device. It is called after the caller
 * has changed them in host memory, where it must not change them again until the copy is complete,
 * for example until a later step that uses them is done. Does nothing if the device reads rows in
 * host memory. Errors: LS_EINVAL if there are no such rows. */
int ls_replica_refresh(ls_replica *replica, ls_subset subset, uint32_t first, uint32_t n,
                       ls_error *err);

/* Sets new host memory for the rows of a subset; the number of rows must be the same as before. A
 * copy on the device stays as it is until ls_replica_refresh. Ops that read the rows in host memory
 * are bound again: the device must have LS_DEVICE_REBINDS, and the replica no recordings. Errors:
 * those of an op's bind. */
int ls_replica_data_at(ls_replica *replica, ls_subset subset, const ls_replica_data *data,
                       ls_error *err);

/* Computes the logits [n][classes] of `n` rows of the test subset. The replica must have no
 * optimizer. n must be an entry of shard_rows or 0. Waits for the device. Errors: LS_EINVAL,
 * LS_EUNSUPPORTED (the model has no layer with an op; a flatten layer, for example, has none). */
int ls_replica_predict(ls_replica *replica, const uint32_t *rows, uint32_t n, float *logits,
                       ls_error *err);

/* Enqueues one update of the weights and of the running statistics, which reads the total arena. If
 * the loss in the total is not finite when the update runs, the update changes nothing, and neither
 * does any later update until ls_replica_resume_updates is called. `times` may be NULL. */
int ls_replica_apply(ls_replica *replica, const ls_replica_step *step, ls_replica_times *times,
                     ls_error *err);

/* Sets whether updates sum a digest (base/digest.h). Returns whether the device can do so; if it
 * cannot, the call has no effect. */
bool ls_replica_set_digests(ls_replica *replica, bool on);
/* Returns whether the sum of an update is known only after the next wait for the device: the device
 * does not compute in host memory. */
bool ls_replica_digest_is_late(const ls_replica *replica);
/* Returns the sum of the last update over the replica's state as it was before that update; 0 if
 * updates sum no digest. If the sum is late, the device must have been waited for since that
 * update, and must be waited for before the next one. */
uint64_t ls_replica_digest(const ls_replica *replica);

/* Sets *norm to the norm, before clipping, of the gradient that the last ls_replica_apply has
 * applied; frozen parameters do not count. Sets *norm to NaN in two cases: if gradients are not
 * clipped, because the norm is not computed then; and if the device does not compute in host
 * memory, because reading the norm would need a wait for the update. The function must not be
 * called if the last ls_replica_apply changed nothing because of its loss. Errors: LS_EDEVICE. */
int ls_replica_gradient_norm(float *norm, ls_replica *replica, ls_error *err);

/* Waits for the device and returns the first error of enqueued work. */
int ls_replica_sync(ls_replica *replica, ls_error *err);

/* ---- updates by pieces ---------------------------------------------------------------------- */

/* An update by pieces needs no array with the whole total. It calls a function that computes one
 * piece of the total, updates the weights of this piece, and continues with the next piece. The
 * weights get the same bits as from ls_replica_apply. */

/* Computes the floats first … first + count − 1 of the total and writes them to out[0 … count −
 * 1]. */
typedef void ls_piece_fn(void *user, float *out, size_t first, size_t count);

/* Returns whether the replica can update by pieces. This requires that its ops can be bound again,
 * that nothing is recorded, and that only the optimizer reads the total (no clipping, no moving
 * average, no running statistics). */
bool ls_replica_takes_pieces(const ls_replica *replica);
/* Prepares updates by pieces. A second call does nothing. Must not be called during a step. Errors:
 * LS_ENOMEM, those of the back end. */
int ls_replica_prepare_pieces(ls_replica *replica, ls_error *err);
/* Runs one update as ls_replica_apply does, with two differences. The function `sum` computes the
 * total piece by piece. The loss is not checked, so the caller must call the function only for a
 * step whose loss is finite. */
int ls_replica_apply_pieces(ls_replica *replica, const ls_replica_step *step, ls_piece_fn *sum,
                            void *user, ls_replica_times *times, ls_error *err);

#endif
