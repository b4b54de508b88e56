/* A replica: one device's copy of the model, with everything a step needs, made once.
 *
 * Everything of a replica is called on its device's worker thread. After ls_replica_create no
 * call allocates, but for those that prepare other recordings of a step (ls_replica_on_ready,
 * ls_replica_prepare_whole).
 *
 * Where the device has recordings, a replica that trains makes one of each plan's gather,
 * forward and backward, and one of the step where that is several ops, when it is created;
 * ls_replica_gradient and ls_replica_apply then enqueue these. What the device refuses to record
 * is enqueued op by op, with a warning in the host's log. The results are the same bits either
 * way.
 *
 * Arenas. Weights, gradients and optimizer slots are arenas of the same layout: parameters in
 * *reverse* layer order (gradients are finished in that order, so what is finished is contiguous
 * from the start), each at a multiple of 16 floats, in the layout its op prefers. Behind them
 * stands the tail of LS_TAIL floats, which carries what else a step must reduce, and behind that a
 * section for running statistics, empty in a model without batch norm:
 *
 *     [parameters][tail][running statistics]
 *
 * In the weights the section holds the statistics themselves (mean, variance of each layer). In
 * a gradient it holds the shard's contribution: its own statistics times its rows; so the
 * total's section divided by the minibatch's rows is their mean over the shards, weighted by
 * rows, and an empty shard adds nothing. The variance counts with n/(n − 1), n the values of one
 * shard. In a slot the section is unused.
 *
 *     gradient   of one shard, the leaf of the reduction tree      written by ls_replica_gradient
 *     total      of the whole minibatch                            written by the communicator
 *     weights    updated from total                                by ls_replica_apply
 */
#ifndef NN_REPLICA_H
#define NN_REPLICA_H

#include "merge/tree.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "sync/heartbeat.h"

#include <stdbool.h>

/* The arena's tail. Counts are exact in fp32 up to 2²⁴. */
enum {
    LS_TAIL_LOSS = 0,    /* summed over rows */
    LS_TAIL_CORRECT = 1, /* rows whose largest logit is the label's */
    LS_TAIL_ROWS = 2,
    LS_TAIL = 16
};

typedef enum ls_subset { LS_TRAIN = 0, LS_TEST = 1, LS_SUBSETS = 2 } ls_subset;

/* Rows in host memory; images [rows][c][h][w], bytes or floats, and labels, int32_t [rows], or targets, float
 * [rows][targets], as the normalisation says. Either a whole dataset, which never changes, or a
 * buffer whose contents do: then ls_replica_refresh comes before they are used. */
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
    const ls_model *model;         /* model, optimizer, host: outlive the replica */
    const ls_optimizer *optimizer; /* NULL: a replica that is never trained */
    ls_gather normalisation;       /* crop and flip: of training rows, unless optimizer is NULL */
    const struct ls_loss *loss;    /* NULL: cross-entropy */
    float label_smoothing;         /* 0: none */
    const float *class_weight;     /* [classes], of cross-entropy; NULL: all count alike */
    bool scores;                   /* ls_replica_evaluate will be asked for them */
    /* Outlive the replica; copied to the device unless it reads host memory. images NULL: the
     * subset is never used. */
    ls_replica_data data[LS_SUBSETS];
    const uint32_t *shard_rows; /* every number of rows that one call will be given */
    int shard_row_counts;
    int trained_row_counts; /* the first so many are trained on, the others evaluated only; 0: all are */
    uint64_t seed;
    ls_heartbeat *heartbeat; /* beats before each op, see ls_replica_place; NULL: none */
    bool no_sharing;         /* no two activations share memory; to compare with */
    bool no_recording;       /* all is enqueued op by op; to compare with */
    bool total_later;        /* ls_replica_total_at comes before the first update */
    size_t bucket_floats;    /* the least of a bucket; 0: LS_BUCKET_FLOATS */
    const ls_host *host;
} ls_replica_desc;

typedef struct ls_replica ls_replica;

/* Seconds, added to by each call; zeroed by the caller. Enqueuing a recording counts as forward. */
typedef struct ls_replica_times {
    double gather, forward, backward, apply;
} ls_replica_times;

int ls_replica_create(ls_replica **out, const ls_replica_desc *desc, ls_error *err);
void ls_replica_destroy(ls_replica *replica); /* NULL is allowed */

/* Floats of an arena, all of it: a multiple of 16. */
size_t ls_replica_floats(const ls_replica *replica);
/* Where the tail begins: behind the parameters. A multiple of 16. */
size_t ls_replica_tail_offset(const ls_replica *replica);
float *ls_replica_gradient_arena(ls_replica *replica);
float *ls_replica_total_arena(ls_replica *replica);
float *ls_replica_weight_arena(ls_replica *replica);
/* Gradients are made in `gradient` from now on, `floats` of the caller's, zeroed before the first time; NULL: in the
 * replica's own arena. On a device that rebinds, of which see LS_DEVICE_REBINDS. */
void ls_replica_gradient_at(ls_replica *replica, float *gradient);
/* Updates read the total at `total` from now on, `floats` of the caller's; NULL: in an arena of the replica's own. Not
 * on the path of a step, nor where updates are recorded, or keep an average. Errors: LS_ENOMEM. */
int ls_replica_total_at(ls_replica *replica, float *total, ls_error *err);
/* Whatever is the caller's of both goes: no call but the two above follows, or those that need neither. */
void ls_replica_own_arenas(ls_replica *replica);
/* State `slot` of ls_optimizer_states; NULL: the optimizer has none. */
float *ls_replica_slot_arena(ls_replica *replica, int slot);

/* First float of each parameter in an arena, ascending, the tail's (whose segment goes on to the
 * end), and then the arena's length: *count segments, *count + 1 numbers. Belongs to the
 * replica. */
const size_t *ls_replica_param_offsets(const ls_replica *replica, int *count);
/* Where an arena is cut for a merge beside the backward pass. Belongs to the replica. */
const ls_buckets *ls_replica_buckets(const ls_replica *replica);

/* Bytes of device memory it holds, by use. */
typedef struct ls_replica_memory {
    size_t arenas, activations, dataset;
    size_t scratch;              /* of activations: what ops work in */
    size_t unshared_activations; /* what activations would be if none shared memory */
} ls_replica_memory;
void ls_replica_memory_used(const ls_replica *replica, ls_replica_memory *out);

/* Recordings it made: one per plan, and one of a step of several ops; 0: all runs op by op. A plan
 * by buckets (ls_replica_on_ready) has one for each bucket besides, and one that steps whole
 * (ls_replica_prepare_whole) has another; a small model's largest has one of several steps, too. */
int ls_replica_recordings(const ls_replica *replica);

/* For people: one line per op, "conv1+relu 32×1×28×28 → 32×20×26×26 lanes:avx512".
 * Returns `out`, or NULL past the last line. */
enum { LS_LINE_BYTES = 192 };
const char *ls_replica_plan_line(char out[LS_LINE_BYTES], const ls_replica *replica, int line);

/* Where a worker is when it is not in one of its replica's ops, as a heartbeat's place. */
enum {
    LS_PLACE_IDLE,
    LS_PLACE_MERGE,
    LS_PLACE_APPLY,
    LS_PLACE_OPEN,
    LS_PLACE_EXPORT,
    LS_PLACE_STEP, /* begins one */
    LS_PLACE_ADD,  /* adds a shard's gradient to those before */
    LS_PLACE_WAIT  /* in a merge, for its peers */
};

/* What a heartbeat's place belongs to; LS_PHASE_NONE where no replica wrote it. Any thread. */
typedef enum ls_phase {
    LS_PHASE_NONE,
    LS_PHASE_GATHER,
    LS_PHASE_FORWARD, /* the loss as well */
    LS_PHASE_BACKWARD,
    LS_PHASE_RECORDED /* all of them, as one launch */
} ls_phase;
ls_phase ls_replica_phase(int place);

/* For people: the op that a heartbeat's place stands for, "backward of conv2+relu". Returns 0 for a
 * place that no replica of this model wrote. Any thread: what it reads does not change. */
int ls_replica_place(char *out, size_t size, const ls_replica *replica, int place);

/* Between steps: with `on` the weights' moving average takes the place of the weights, which lie in the total
 * meanwhile; else they come back. Nothing happens where the optimizer keeps no average. Waits for the device. */
int ls_replica_use_average(ls_replica *replica, bool on, ls_error *err);
/* Canonical host array (model->floats) → an arena in this replica's layouts; and back. Any of the
 * arenas: weights, gradients and slots have the same layout. The tail is left alone; running
 * statistics stand for whatever the arena's section holds. Waits for the device. */
int ls_replica_import(ls_replica *replica, float *arena, const float *canonical, ls_error *err);
int ls_replica_export(ls_replica *replica, float *canonical, const float *arena, ls_error *err);

/* Forward, loss and backward of one shard: `rows` training rows (indices into the dataset, read
 * before return) → the gradient arena, tail included. n must be one of
 * shard_rows, or 0: an empty shard's gradient is zero. */
int ls_replica_gradient(ls_replica *replica, const uint32_t *rows, uint32_t n, uint32_t epoch,
                        ls_replica_times *times, ls_error *err);

/* ---- a backward pass by buckets ------------------------------------------------------------- */

/* Gradients are finished from the arena's start on, so that what is finished can be merged while
 * the rest is computed. The arena is cut into buckets (merge/tree.h); the backward pass runs to
 * where the next bucket is complete, then `ready` is told. The buckets depend on the model and on the
 * back end's layouts alone. The gradient has the same bits either way. */

/* Within ls_replica_gradient, on its thread, once behind each bucket but the last, with ascending
 * `floats`: so many of the gradient arena's floats are complete once the work enqueued so far is
 * done, and no later work of this call changes them. Not LS_OK ends the call with that status. */
typedef int ls_ready_fn(void *user, size_t floats, ls_error *err);

/* What is told from now on; NULL: nothing, and the backward pass is one segment. An empty shard's
 * gradient is told as well. Not on the path of a step: makes recordings where the replica has some.
 * Errors: LS_ENOMEM. */
int ls_replica_on_ready(ls_replica *replica, ls_ready_fn *ready, void *user, ls_error *err);

/* ---- a whole step as one -------------------------------------------------------------------- */

/* A replica whose gradient of one shard is the whole sum can take a step with no other worker in between:
 * gather, forward, backward and the update as one recording, whose update puts what the host wants to
 * know into one of LS_RESULT_SLOTS slots in the host's memory. No thread waits: the next step may be
 * enqueued, for the other slot, before this one's result is known. A step whose loss is not finite
 * changes nothing, and holds up all behind it until ls_replica_release. The bits are those of
 * ls_replica_gradient, a total that is the gradient, and ls_replica_apply.
 *
 * Of a small model, whose step is over before the next one is enqueued, LS_UNROLLED steps are one
 * recording: one that needs at most LS_UNROLL_BYTES for arenas and activations, scratch left out. */
enum { LS_RESULT_SLOTS = 2, LS_UNROLLED = 8, LS_UNROLL_BYTES = 64 << 20 };

typedef struct ls_replica_step {
    float lr;
    float scale;     /* what the sum of gradients is multiplied with */
    uint32_t rows;   /* of the minibatch: running statistics are a mean over them */
    uint64_t number; /* of the step, from 1 */
} ls_replica_step;

/* Makes the recordings of whole steps where the device can record them; once is enough. Not on the
 * path of a step. Errors: LS_ENOMEM. */
int ls_replica_prepare_whole(ls_replica *replica, ls_error *err);
/* How many steps of n rows can be taken so at once: none, 1, or LS_UNROLLED. */
int ls_replica_steps_whole(const ls_replica *replica, uint32_t n);

/* Enqueues `count` steps, one or as many as can be taken at once: of the same number of rows each,
 * which stand one after another in `rows`, as ls_replica_gradient takes them. The slot is not in
 * use. After an error they are not enqueued, but behind LS_EDEVICE that is unknown. */
int ls_replica_step_whole(ls_replica *replica, const uint32_t *rows, uint32_t epoch,
                          const ls_replica_step *step, int count, int slot, ls_replica_times *times,
                          ls_error *err);
/* Whether the steps of a slot are done, *arrived. Never waits. Errors: LS_EDATA (of a row that
 * nothing can be learned from: it holds up as a loss that is not finite), LS_EDEVICE. */
int ls_replica_arrived(bool *arrived, ls_replica *replica, int slot, ls_error *err);
/* The tail of the k-th of them, once they have arrived and until the slot is used again. */
const float *ls_replica_arrived_tail(const ls_replica *replica, int slot, int k);
/* Steps are applied again, from the next that is enqueued on. */
int ls_replica_release(ls_replica *replica, ls_error *err);

/* ---- results -------------------------------------------------------------------------------- */

/* Forward and loss of `n` rows of a subset; adds to nothing: *loss is the sum over the rows and
 * *correct the number of hits; `scores` (NULL: not wanted) gets what the loss has read, [n][classes].
 * n must be one of shard_rows, or 0. Waits for the device. */
int ls_replica_evaluate(ls_replica *replica, ls_subset subset, const uint32_t *rows, uint32_t n,
                        double *loss, double *correct, float *scores, ls_error *err);

/* The caller has changed rows `first` … first + n − 1 of a subset's host memory, and keeps them
 * until the device is done with what it is asked for next. Nothing happens where the device
 * reads host memory. */
int ls_replica_refresh(ls_replica *replica, ls_subset subset, uint32_t first, uint32_t n,
                       ls_error *err);

/* From now on a subset's rows, as many as before, are there. Of a replica that reads host memory the device has
 * LS_DEVICE_REBINDS, and nothing is recorded. Errors: those of an op's bind. */
int ls_replica_data_at(ls_replica *replica, ls_subset subset, const ls_replica_data *data,
                       ls_error *err);

/* Forward of `n` rows of the test subset → `logits` [n][classes], in a replica without an optimizer.
 * n must be one of shard_rows, or 0. Waits for the device. */
int ls_replica_predict(ls_replica *replica, const uint32_t *rows, uint32_t n, float *logits,
                       ls_error *err);

/* One optimizer step, and one of the running statistics, from the total arena. Where the total's
 * loss is not finite as it runs, it changes nothing, nor does any step behind it until
 * ls_replica_release. */
int ls_replica_apply(ls_replica *replica, const ls_replica_step *step, ls_replica_times *times,
                     ls_error *err);

/* Waits for the device and returns the first error of enqueued work. */
int ls_replica_sync(ls_replica *replica, ls_error *err);

#endif
