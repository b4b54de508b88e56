/* A replica: one device's copy of the model, with everything that a step needs, allocated once.
 *
 * Threads: all functions are called on the device's worker thread unless they say otherwise. After
 * ls_replica_create nothing allocates, except the functions that prepare further recordings of a
 * step (ls_replica_on_ready, ls_replica_record_whole_steps), ls_replica_total_at,
 * ls_replica_renew_gradient and ls_replica_prepare_pieces.
 *
 * Recordings. If the device supports recordings, a replica that trains records each plan's
 * gather, forward and backward when it is created, and also the update if that has several
 * ops. ls_replica_gradient and ls_replica_apply then enqueue the recordings. What the device
 * refuses to record is enqueued op by op, and the host's log gets a warning. The results have
 * the same bits either way.
 *
 * Arenas. Weights, gradients and optimizer slots are arenas of the same layout. Parameters are in
 * *reverse* layer order: gradients become complete in that order, so the complete part is always
 * contiguous from the start. Each parameter starts at a multiple of 16 floats, in the layout that
 * its op prefers. After the parameters comes the tail of LS_TAIL floats, the other numbers that a
 * step must reduce. After the tail comes a section for running statistics, which is empty in a
 * model without batch norm:
 *
 *     [parameters][tail][running statistics]
 *
 * In the weights, the section holds the statistics themselves (mean and variance of each layer). In
 * a gradient, it holds the shard's contribution: the shard's statistics times its number of rows.
 * The total's section divided by the minibatch's rows is therefore the mean over the shards,
 * weighted by rows, and an empty shard adds nothing. The variance is multiplied by n/(n − 1), where
 * n is the number of values in one shard. In a slot, the section is unused.
 *
 *     gradient   of one shard, a leaf of the reduction tree       written by ls_replica_gradient
 *     total      of the whole minibatch                           written by the communicator
 *     weights    updated from the total                           by ls_replica_apply */
#ifndef NN_REPLICA_H
#define NN_REPLICA_H

#include "merge/tree.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "sync/heartbeat.h"

#include <stdbool.h>

/* Offsets of the numbers in an arena's tail. Counts are exact in fp32 up to 2²⁴. */
enum {
    LS_TAIL_LOSS = 0,    /* loss, summed over rows */
    LS_TAIL_CORRECT = 1, /* number of rows whose largest logit is the label's */
    LS_TAIL_ROWS = 2,    /* number of rows */
    LS_TAIL = 16         /* length of the tail; the rest is zero */
};

typedef enum ls_subset { LS_TRAIN = 0, LS_TEST = 1, LS_SUBSETS = 2 } ls_subset;

/* Rows in host memory: images [rows][c][h][w] of bytes or floats, and labels int32_t [rows] or
 * targets float [rows][targets], as the normalisation says. The rows are either a dataset that
 * never changes, or a buffer whose contents change; then ls_replica_refresh must be called before
 * changed rows are used. */
typedef struct ls_replica_data {
    union {
        const uint8_t *images;
        const float *values;
    };
    union {
        const int32_t *labels;
        const float *targets;
    };
    uint32_t rows;
} ls_replica_data;

typedef struct ls_replica_desc {
    ls_device *device;             /* bound to the calling thread */
    const ls_model *model;         /* model, optimizer and host must outlive the replica */
    const ls_optimizer *optimizer; /* NULL: the replica is never trained */
    ls_gather normalisation;       /* crop and flip apply to training rows, if
                                      there is an optimizer */
    const struct ls_loss *loss;    /* NULL: cross-entropy */
    float label_smoothing;         /* 0: none */
    /* [classes], for cross-entropy; NULL: all classes have the same weight */
    const float *class_weight;
    bool scores; /* ls_replica_evaluate will be asked for scores */
    /* Training and test data. They must outlive the replica; they are copied to the device unless
     * it reads host memory. images NULL: the subset is never used. */
    ls_replica_data data[LS_SUBSETS];
    /* The training data are copied even if the device reads host memory, so that
     * ls_replica_data_at need not bind its ops again. */
    bool copies_training_data;
    const uint32_t *shard_rows; /* [shard_row_counts] all numbers of rows that calls will have */
    int shard_row_counts;
    /* number of first entries of shard_rows that are used in training; the others are evaluated
     * only; 0: all are used in training */
    int trained_row_counts;
    uint64_t seed;
    ls_heartbeat *heartbeat; /* beats before each op, see ls_replica_place; NULL: none */
    bool no_sharing;         /* activations do not share memory; for comparison */
    bool no_recording;       /* everything is enqueued op by op; for comparison */
    bool total_later;        /* no total arena is allocated: the caller sets one before the first
                              * update (ls_replica_total_at) */
    size_t bucket_floats;    /* least size of a bucket in floats; 0: LS_BUCKET_FLOATS */
    const ls_host *host;
} ls_replica_desc;

typedef struct ls_replica ls_replica;

/* Durations in seconds. Each call adds to them; the caller sets them to zero. The enqueueing of a
 * recording counts as forward. */
typedef struct ls_replica_times {
    double gather, forward, backward, apply;
} ls_replica_times;

/* Creates a replica with its plans, arenas and recordings. Weights and optimizer states are
 * zero. The caller destroys *out. Errors: LS_EINVAL (the description makes no sense), those of
 * the back end, LS_ENOMEM. */
int ls_replica_create(ls_replica **out, const ls_replica_desc *desc, ls_error *err);
/* Waits for the device and frees everything of the replica. NULL is allowed. */
void ls_replica_destroy(ls_replica *replica);

/* Returns the length of an arena in floats, a multiple of 16. */
size_t ls_replica_floats(const ls_replica *replica);
/* Returns the offset of the tail in floats, a multiple of 16. */
size_t ls_replica_tail_offset(const ls_replica *replica);
/* Returns the gradient arena: the replica's own, or the caller's that
 * ls_replica_gradient_at has set. */
float *ls_replica_gradient_arena(ls_replica *replica);
/* Returns the total arena: the replica's own, or the caller's that ls_replica_total_at
 * has set; NULL: none. */
float *ls_replica_total_arena(ls_replica *replica);
/* Returns the weight arena. */
float *ls_replica_weight_arena(ls_replica *replica);
/* Sets the memory for gradients: `gradient`, an arena of the caller's, zeroed before its first use;
 * NULL: the replica's own arena. The device must allow ops to be bound again
 * (LS_DEVICE_REBINDS). */
void ls_replica_gradient_at(ls_replica *replica, float *gradient);
/* Sets the memory from which updates read the total: `total`, an arena of the caller's; NULL: an
 * arena of the replica's own, which is allocated if there is none. Not for use within a step, nor
 * if updates are recorded or keep a moving average. Errors: LS_ENOMEM. */
int ls_replica_total_at(ls_replica *replica, float *total, ls_error *err);
/* Drops the caller-provided gradient and total arenas. Until they are set again, only functions
 * that use neither may be called. */
void ls_replica_own_arenas(ls_replica *replica);
/* Replaces the replica's own gradient arena with a new one, because another thread may still read
 * the old one, which is freed with the replica. Only after ls_replica_own_arenas. The device must
 * have LS_DEVICE_REBINDS. Errors: LS_ENOMEM. */
int ls_replica_renew_gradient(ls_replica *replica, ls_error *err);
/* Returns the arena of state `slot` (ls_optimizer_states); NULL if the
 * optimizer does not have it. */
float *ls_replica_slot_arena(ls_replica *replica, int slot);

/* Returns the offset in floats of each parameter in an arena, ascending, then that of the
 * tail, then the arena's length. *count becomes the number of segments between them, the last
 * of which is the tail with the running statistics; the array has *count + 1 entries and
 * belongs to the replica. */
const size_t *ls_replica_param_offsets(const ls_replica *replica, int *count);
/* Returns the buckets into which an arena is cut when it is merged during the backward pass. The
 * result belongs to the replica. */
const ls_buckets *ls_replica_buckets(const ls_replica *replica);

/* Device memory of a replica in bytes, by use. */
typedef struct ls_replica_memory {
    size_t arenas, activations, dataset;
    size_t scratch;              /* the part of `activations` that is scratch memory of ops */
    size_t unshared_activations; /* size of `activations` if none shared memory */
    size_t kept; /* data that ops derive from the weights and keep, such as transformed weights */
} ls_replica_memory;
/* Copies the memory use of the replica. */
void ls_replica_memory_used(const ls_replica *replica, ls_replica_memory *out);

/* Returns the number of recordings: one for each plan, and one of the update if it has several ops;
 * 0: everything runs op by op. A plan that runs by buckets (ls_replica_on_ready) has one more for
 * each bucket, a plan for whole steps (ls_replica_record_whole_steps) one more, and the largest
 * plan of a small model one of several steps. */
int ls_replica_recordings(const ls_replica *replica);

/* Writes the description of an op, such as "conv1+relu 32×1×28×28 → 32×20×26×26 lanes:avx512".
 * Returns `out`, or NULL past the last line. */
enum { LS_LINE_BYTES = 192 };
const char *ls_replica_plan_line(char out[LS_LINE_BYTES], const ls_replica *replica, int line);

/* Heartbeat positions of a worker outside its replica's ops. */
enum {
    LS_PLACE_IDLE,
    LS_PLACE_MERGE,
    LS_PLACE_APPLY,
    LS_PLACE_OPEN,
    LS_PLACE_EXPORT,
    LS_PLACE_STEP, /* at the beginning of a step */
    LS_PLACE_ADD,  /* adding a shard's gradient to those before it */
    LS_PLACE_WAIT  /* waiting for the other workers in a merge */
};

/* The kind of work that a heartbeat's position stands for; LS_PHASE_NONE if no replica wrote the
 * position. Any thread. */
typedef enum ls_phase {
    LS_PHASE_NONE,
    LS_PHASE_GATHER,
    LS_PHASE_FORWARD, /* includes the loss */
    LS_PHASE_BACKWARD,
    LS_PHASE_RECORDED /* all of these, as one recording */
} ls_phase;
ls_phase ls_replica_phase(int place);

/* Writes the op that a heartbeat's position stands for, such as "backward of conv2+relu".
 * Returns 0 if no replica of this model wrote the position. Any thread: it reads only
 * what does not change. */
int ls_replica_place(char *out, size_t size, const ls_replica *replica, int place);

/* If `on` is true, replaces the weights by their moving average, and keeps a copy of the weights in
 * the total arena; otherwise copies the weights back. For use between steps. Does nothing if the
 * optimizer keeps no average. Waits for the device. */
int ls_replica_use_average(ls_replica *replica, bool on, ls_error *err);
/* Copies a canonical host array (model->floats floats) to an arena in this replica's layout, and
 * back. `arena` may be the weights, a gradient or a slot: all have the same layout. The tail is not
 * copied. The running statistics of the canonical array correspond to the arena's section, whatever
 * it contains in this arena. Waits for the device. */
int ls_replica_import(ls_replica *replica, float *arena, const float *canonical, ls_error *err);
int ls_replica_export(ls_replica *replica, float *canonical, const float *arena, ls_error *err);

/* Computes the gradient of one shard into the gradient arena, tail included: gather, forward, loss
 * and backward. `rows`: n indices of training rows, read before the function returns. n must be one
 * of shard_rows or 0; an empty shard has the gradient zero. `times` may be NULL. */
int ls_replica_gradient(ls_replica *replica, const uint32_t *rows, uint32_t n, uint32_t epoch,
                        ls_replica_times *times, ls_error *err);

/* Promises that nothing has written the weights since the last call of ls_replica_gradient, as
 * between the shards of a step. The promise holds for the next call of ls_replica_gradient and for
 * no other. Ops then use again what they have derived from the weights (LS_RUN_SAME). Without the
 * promise they derive it anew, so functions that write weights need do nothing about it. */
void ls_replica_promise_same_weights(ls_replica *replica);

/* ---- a backward pass by buckets ------------------------------------------------------------- */

/* Gradients become complete from the start of the arena on, so the complete part can be merged
 * while the rest is computed. The arena is cut into buckets (merge/tree.h). The backward pass runs
 * up to the point where the next bucket is complete, and then calls `ready`. The buckets depend
 * only on the model and on the back end's layouts. The gradient has the same bits either way. */

/* Reports that the first `floats` floats of the gradient arena are complete once the work that has
 * been enqueued is done; no later work of this call changes them. It is called by
 * ls_replica_gradient, on the same thread, after each bucket but the last, with ascending `floats`.
 * If it returns an error, ls_replica_gradient returns that error. */
typedef int ls_ready_fn(void *user, size_t floats, ls_error *err);

/* Sets the function that is called after each bucket; NULL: none, and the backward pass is one
 * segment. It is called for an empty shard's gradient as well. Not for use within a step, because
 * recordings are created if the replica has any. Errors: LS_ENOMEM. */
int ls_replica_on_ready(ls_replica *replica, ls_ready_fn *ready, void *user, ls_error *err);

/* ---- whole steps ----------------------------------------------------------------------------- */

/* If the gradient of one shard is the whole sum, the replica can take a step without other workers:
 * gather, forward, backward and update are one recording. Its update writes the results that the
 * host needs into one of LS_RESULT_SLOTS slots in host memory. No thread waits: the next step can
 * be enqueued, with the other slot, before the result of this one is known. A step whose loss is
 * not finite changes nothing, and neither does any later step until ls_replica_resume_updates is
 * called. The results have the same bits as if ls_replica_gradient were called, the gradient were
 * copied to the total, and ls_replica_apply were called.
 *
 * A step of a small model ends before the next step has been enqueued. LS_UNROLLED steps of such a
 * model are therefore one recording. A model is small if it needs at most LS_UNROLL_BYTES for
 * arenas and activations, scratch excluded. */
enum { LS_RESULT_SLOTS = 2, LS_UNROLLED = 8, LS_UNROLL_BYTES = 64 << 20 };

typedef struct ls_replica_step {
    float lr;
    float scale;     /* factor of the sum of gradients */
    uint32_t rows;   /* rows of the minibatch: running statistics are a mean over them */
    uint64_t number; /* number of the step, from 1 */
} ls_replica_step;

/* Records whole steps, if the device supports that. One call is enough; a further call records
 * nothing more. Not for use within a step. Errors: LS_ENOMEM. */
int ls_replica_record_whole_steps(ls_replica *replica, ls_error *err);
/* Returns the largest number of whole steps of n rows that one launch can run: 0 (none has been
 * recorded), 1 or LS_UNROLLED. */
int ls_replica_most_whole_steps(const ls_replica *replica, uint32_t n);

/* Enqueues `count` whole steps: one, or as many as ls_replica_most_whole_steps returns. Each has
 * the same number of rows. `rows` holds the row indices of the steps one after another, as in
 * ls_replica_gradient. `slot` must not be in use. After an error no step has been enqueued; after
 * LS_EDEVICE that is unknown. */
int ls_replica_run_whole_steps(ls_replica *replica, const uint32_t *rows, uint32_t epoch,
                               const ls_replica_step *step, int count, int slot,
                               ls_replica_times *times, ls_error *err);
/* Sets *arrived to whether the steps of a slot are done. It does not wait. Errors: LS_EDATA (a row
 * has an invalid label or target; later steps are then skipped, as after a loss that is not
 * finite), LS_EDEVICE. */
int ls_replica_arrived(bool *arrived, ls_replica *replica, int slot, ls_error *err);
/* Returns the tail of the k-th step of a slot. It is valid once the steps have arrived, until the
 * slot is used again. */
const float *ls_replica_arrived_tail(const ls_replica *replica, int slot, int k);
/* Ends the state in which all updates are skipped because a loss was not finite: steps that are
 * enqueued from now on change the weights again. */
int ls_replica_resume_updates(ls_replica *replica, ls_error *err);

/* ---- results -------------------------------------------------------------------------------- */

/* Evaluates `n` rows of a subset: runs forward and loss. *loss becomes the loss summed over the
 * rows, *correct the number of correct rows. `scores` gets the logits [n][classes]; NULL: not
 * needed. n must be one of shard_rows or 0. Waits for the device. */
int ls_replica_evaluate(ls_replica *replica, ls_subset subset, const uint32_t *rows, uint32_t n,
                        double *loss, double *correct, float *scores, ls_error *err);

/* Copies rows `first` to first + n − 1 of a subset to the device after the caller has changed
 * them in host memory. The caller must keep them unchanged until the device has completed the
 * work that is enqueued next. Does nothing if the device reads them in host memory. Errors:
 * LS_EINVAL if there are no such rows. */
int ls_replica_refresh(ls_replica *replica, ls_subset subset, uint32_t first, uint32_t n,
                       ls_error *err);

/* Sets new host memory for the rows of a subset, as many as before. If the device reads them in
 * host memory, its ops are bound again: it must have LS_DEVICE_REBINDS, and nothing may have been
 * recorded. Otherwise the device keeps its copy until ls_replica_refresh. Errors: those of an
 * op's bind. */
int ls_replica_data_at(ls_replica *replica, ls_subset subset, const ls_replica_data *data,
                       ls_error *err);

/* Computes the logits [n][classes] of `n` rows of the test subset. The replica must have no
 * optimizer. n must be one of shard_rows or 0. Waits for the device. Errors: LS_EINVAL,
 * LS_EUNSUPPORTED if no layer of the model computes anything. */
int ls_replica_predict(ls_replica *replica, const uint32_t *rows, uint32_t n, float *logits,
                       ls_error *err);

/* Enqueues one update of the weights and of the running statistics from the total arena. If the
 * total's loss is not finite when the update runs, it changes nothing, and neither does any later
 * step until ls_replica_resume_updates. `times` may be NULL. */
int ls_replica_apply(ls_replica *replica, const ls_replica_step *step, ls_replica_times *times,
                     ls_error *err);

/* Sets *norm to the norm of the gradient of the last ls_replica_apply before it was clipped, frozen
 * parameters excluded. Sets it to NaN if gradients are not clipped, because the norm is not
 * computed then, or if the device has memory of its own, from which it could be read only by
 * waiting for the update. The update must not have been skipped. Errors: LS_EDEVICE. */
int ls_replica_gradient_norm(float *norm, ls_replica *replica, ls_error *err);

/* Waits for the device and returns the first error of enqueued work. */
int ls_replica_sync(ls_replica *replica, ls_error *err);

/* ---- updates by pieces ---------------------------------------------------------------------- */

/* An update by pieces needs no total in memory: it requests one piece of the sum after another and
 * applies each at once. The weights get the same bits as from ls_replica_apply. */

/* Writes the floats first … first + count − 1 of the sum to `out`. */
typedef void ls_piece_fn(void *user, float *out, size_t first, size_t count);

/* Returns whether the replica can update by pieces: its ops can be bound again, nothing is
 * recorded, and nothing but the optimizer reads the sum (no clipping, no moving average, no running
 * statistics). */
bool ls_replica_takes_pieces(const ls_replica *replica);
/* Prepares updates by pieces. A second call does nothing. Not during a step. Errors: LS_ENOMEM,
 * those of the back end. */
int ls_replica_prepare_pieces(ls_replica *replica, ls_error *err);
/* Does the same as ls_replica_apply, with the sum that the function `sum` computes. */
int ls_replica_apply_pieces(ls_replica *replica, const ls_replica_step *step, ls_piece_fn *sum,
                            void *user, ls_replica_times *times, ls_error *err);

#endif
