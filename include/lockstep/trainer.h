/* The trainer: a whole data-parallel training run behind a few functions.
 *
 * It runs by itself …
 *
 *     ls_trainer_options o = {.size = sizeof o, .config_path = "examples/fashion_mnist.json"};
 *     ls_trainer *trainer;
 *     if (ls_trainer_open(&trainer, &o, &err) == LS_OK) {
 *         status = ls_trainer_run(trainer, &err);
 *         const ls_result *result = ls_trainer_result(trainer);
 *         printf("test acc: %.2f\n", result->test_accuracy);
 *         ls_trainer_close(trainer);
 *     }
 *
 * … or a service drives it, with data of its own (data_source.h), one step at a time, and predicts
 * from any thread while training goes on (snapshot.h):
 *
 *     while (collect(images, labels, 256)) {
 *         status = ls_trainer_step(trainer, images, labels, 256, &step, &err);
 *         if (status == LS_OK && step.number % 50 == 0)
 *             status = ls_trainer_snapshot(trainer, &snapshot, &err);
 *     }
 *
 * Threads: one thread at a time, the *owner*, calls the functions of a trainer; it is the coordinator
 * while they run. ls_trainer_interrupt may be called from any thread, and from a signal handler. The
 * callbacks run on the owner; they may call ls_trainer_interrupt, _summary, _result and the functions of
 * snapshot.h, but no other function of the same trainer. Several trainers may exist at once, each with devices
 * of its own; trainers that share a pool share its owner. A trainer stays with the process that made it: a
 * child made by fork can use and close none of its parent's.
 * The owner's thread needs 128 KiB of stack. Its floating-point environment changes no result: all is
 * computed, and callbacks run, in the one that C programs start with; the owner's is given back.
 * Errors: after one that is not LS_EINVAL (a call that broke the rules: nothing has happened),
 * LS_ENOENT, LS_EDATA, LS_ECONFIG or LS_EIO, a trainer does not train any more: each further step,
 * evaluation and load returns the first error again. What it learnt can be had as long as a device is left.
 * Every function that returns a status does nothing but return LS_EINVAL where it may not be called: in a
 * callback of the trainer or beside another call, in a job of options.pool, in a forked child, or with too
 * little stack; and LS_ECANCELED while options.pool is cancelled (ls_pool_wait, then ls_pool_clear). A cancel in the
 * middle of a call ends the training with LS_ECANCELED. Where a device is lost meanwhile there is a record of it, so
 * that any of them may also return the record callback's error, or LS_EIO where a file of records cannot be written.
 */
#ifndef LOCKSTEP_TRAINER_H
#define LOCKSTEP_TRAINER_H

#include <lockstep/cluster.h>
#include <lockstep/data_source.h>
#include <lockstep/device_pool.h>
#include <lockstep/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ls_trainer ls_trainer;

/* How far a run is. */
typedef struct ls_progress {
    int epoch, epochs;    /* the epoch under way, from 1 */
    uint32_t step, steps; /* finished steps of this epoch, and how many it has */
    double loss;          /* mean over this epoch's rows so far */
    double accuracy;      /* likewise */
    double images_per_s;  /* this epoch so far */
    double remaining_s;   /* estimate for the rest of the run, evaluations not counted */
    int epoch_done;       /* non-zero: the epoch is over, and evaluated where that was due */
    int evaluated;        /* non-zero: the two numbers below are this epoch's */
    double test_loss, test_accuracy;
    /* What tells most of an evaluation, "accuracy" where the loss knows it, else "r2", "mae" or "loss",
     * and this epoch's. */
    const char *metric;
    double test_metric;
} ls_progress;

/* What a run starts with; texts belong to the trainer. */
typedef struct ls_summary {
    const char *name;
    const char *data; /* "mnist: 60000 training and 10000 test images of 1×28×28, bytes / 255" */
    int synthetic;    /* non-zero: the data was made up */
    const char *devices; /* "[cpu(0), cpu(1)]" */
    const char *device_model, *isa, *library;
    int workers, threads, shards;
    int batch_size;       /* global */
    int batch_per_device; /* of the largest share */
    size_t parameters, parameter_bytes;
    size_t device_bytes; /* per device: arenas and activations */
    const char *run_dir; /* "" when there is none */
    int epochs;
    const char *resumed_from; /* the checkpoint's file; "": a new run */
    uint64_t resumed_steps;   /* that were done then */
    int member, members;      /* this process's number of those that train together, from 0 */
    int images;               /* non-zero: rows are bytes, else floats */
    const char *
        judged_by; /* the rows that are evaluated: "test", or "validation" where they are held out */
} ls_summary;

typedef struct ls_result {
    int epochs; /* finished */
    uint64_t steps;
    double test_loss, test_accuracy; /* of the last evaluation; NaN when there was none */
    double
        seconds_per_epoch;   /* mean over finished epochs, training only; NaN when there was none */
    const char *devices;     /* "[cpu(0), cpu(1)]" */
    char weights_sha256[65]; /* "" when they could not be had */
    const char *checkpoint;  /* file of the newest one that was saved; "": none */
    int saved;               /* non-zero: that one holds the run as it ended: resume from it */
    int interrupted;
    const char *metric; /* as in ls_progress */
    double test_metric; /* of the last evaluation; NaN when there was none */
} ls_result;

/* What the caller is told, on the owner's thread. Each is optional. */
typedef struct ls_trainer_callbacks {
    size_t size; /* sizeof(ls_trainer_callbacks) */
    /* Every metrics record, one JSON object without a newline. A negative status stops the run with
     * that error. */
    int (*record)(void *user, const char *json, size_t length, ls_error *err);
    void (*progress)(void *user, const ls_progress *progress);
    /* While ls_trainer_run trains: after every so many steps a snapshot is taken and shown. It is
     * released when the callback returns; ls_snapshot_retain keeps it. */
    void (*snapshot)(void *user, ls_snapshot *snapshot);
    uint32_t snapshot_every_steps; /* 0: never */
    void *user;                    /* the first argument of each */
} ls_trainer_callbacks;

typedef struct ls_trainer_options {
    size_t size;             /* sizeof(ls_trainer_options) */
    const char *config_path; /* a JSON file … */
    const char *config_text; /* … or, when config_path is NULL, the text itself */
    const char *const *set;  /* "a.b=v" assignments applied to the config, in order */
    int set_count;
    const char *const *data_dirs; /* searched, in order, when the config has no data.path */
    int data_dir_count;
    const char
        *cache_dir; /* where devices keep choices of kernels from run to run; NULL: nowhere */
    /* Go on with a run: its directory, or "latest" for the newest in runs/ (of this config's name).
     * The config may be left out: then it is the run's own. NULL: begin a new one. */
    const char *resume;
    /* Back ends; outlives the trainer and its snapshots. NULL: every one that was built in. */
    const ls_registry *registry;
    /* What the caller is told; copied. NULL: nothing. */
    const ls_trainer_callbacks *callbacks;
    /* A timeline of the run, to be opened in Perfetto or chrome://tracing: complete when the run ends, or
     * the trainer is closed. An older file of that name is replaced. NULL: none. */
    const char *trace_path;
    int trace_ops; /* non-zero: each op is shown, not only the phases of a step */
    /* The caller's own datasets, which the config's data.name may name. They, and the array, outlive the
     * trainer. */
    const ls_data_source *const *sources;
    int source_count;
    /* Every number of rows, besides the config's batch_size, that ls_trainer_step will be given: all
     * kernels and all memory for them are prepared while the trainer is opened. At most 8. */
    const uint32_t *step_rows;
    int step_row_count;
    /* Workers that exist already, made by ls_device_pool_create without caller_works: the config's devices, threads and
     * precision are then not looked at. The pool outlives the trainer, and serves the trainers that
     * share it one after another, from one thread. NULL: a pool of the trainer's own. */
    ls_pool *pool;
    /* Outlives the trainer and its snapshots; NULL: the defaults. */
    const ls_host *host;
    /* Several processes train together; copied. NULL: as the config says. */
    const ls_trainer_cluster *cluster;
    /* For tests (<lockstep/sys/trainer.h>); NULL. */
    const struct ls_trainer_sys *sys;
} ls_trainer_options;

/* Reads the config, opens the data and the devices, builds a replica on each and makes the run
 * directory. Errors: LS_ECONFIG, LS_ENOENT, LS_EDATA, LS_EIO, LS_EDEVICE, LS_ENOMEM, LS_EINVAL,
 * LS_EUNSUPPORTED, LS_EAGAIN (another process trains in that directory), LS_ETIMEDOUT, LS_ESTALLED,
 * LS_ESYSTEM, with a message that names file and line; nothing is left behind. */
int ls_trainer_open(ls_trainer **out, const ls_trainer_options *options, ls_error *err);

/* What will be run. Valid until close. */
const ls_summary *ls_trainer_summary(const ls_trainer *trainer);

/* Trains for the configured epochs, from where the trainer stands, evaluates, and writes the
 * weights. May be called once, and nothing is trained behind it.
 * Errors: LS_EINVAL (it has run, or there are no training rows), LS_EINTERRUPTED after
 * ls_trainer_interrupt (the step was finished and the weights are written), LS_ENONFINITE, LS_EIO,
 * LS_EDEVICE, LS_EDIVERGED, LS_ESTALLED, LS_ENOMEM, or the record callback's. */
int ls_trainer_run(ls_trainer *trainer, ls_error *err);

/* Asks a run to stop after the step under way; ls_trainer_step then returns LS_EINTERRUPTED. Safe in a
 * signal handler. */
void ls_trainer_interrupt(ls_trainer *trainer);

/* What came out so far: of a run, also an interrupted one, or of the steps that were driven. Valid until
 * close. */
const ls_result *ls_trainer_result(const ls_trainer *trainer);

/* Copies the weights, one parameter after another in model order, row-major, into `out`, which has room for
 * `capacity` floats (ls_summary.parameters are needed; running statistics are left out). A device that fails
 * meanwhile is left out, as in a step. Errors: LS_EINVAL (too little room), LS_EDIVERGED, LS_EDEVICE (also: no device is
 * left), LS_ESTALLED, LS_ENOMEM. */
int ls_trainer_weights(ls_trainer *trainer, float *out, size_t capacity, ls_error *err);

/* ---- driven by the caller ------------------------------------------------------------------- */

typedef struct ls_step_result {
    uint64_t number; /* of the step, from 1 */
    double loss;     /* mean over its rows */
    double accuracy; /* share of its rows whose largest score was the label's */
    double lr;       /* it was applied with */
    int skipped;     /* non-zero: the loss was not finite, and on_nonfinite is "skip" */
} ls_step_result;

/* Trains one step on `n` rows of the caller's: rows [n][channels][height][width], uint8_t or float, and
 * targets, int32_t [n] or float [n][targets], as the data source says; read before the return. Data must be
 * streamed (data_source.h), n be the config's batch_size or one of options.step_rows. Rate, checkpoints and
 * records are as in a run: an epoch has as many steps as train_rows make. `out` may be NULL. Waits for the
 * step. Errors: LS_EINVAL, LS_EINTERRUPTED, LS_ENONFINITE, LS_EIO, LS_EDEVICE, LS_EDIVERGED, LS_ESTALLED, LS_ENOMEM,
 * or the record callback's. */
int ls_trainer_step(ls_trainer *trainer, const void *rows, const void *targets, uint32_t n,
                    ls_step_result *out, ls_error *err);

/* Mean loss, and the share of hits, on the test rows, with all devices; each may be NULL. Errors:
 * LS_EINVAL (there are no test rows), LS_EINTERRUPTED (before or during it, after ls_trainer_interrupt), LS_ECONFIG
 * (`monitor` has no value on them, but decides), LS_ENONFINITE, LS_EDIVERGED, LS_EDEVICE, LS_ESTALLED, LS_ENOMEM, or the
 * record callback's. */
int ls_trainer_evaluate(ls_trainer *trainer, double *loss, double *accuracy, ls_error *err);

/* The weights as they are now, for any thread to predict with; the caller releases it. Errors:
 * LS_EDIVERGED, LS_EDEVICE, LS_ESTALLED, LS_ENOMEM. */
int ls_trainer_snapshot(ls_trainer *trainer, ls_snapshot **out, ls_error *err);

/* ls_snapshot_predict with the weights as they are now; the snapshot is kept for as long as they do
 * not change. Rows and scores as there. Errors: those of ls_trainer_snapshot and ls_snapshot_predict. */
int ls_trainer_predict(ls_trainer *trainer, const void *images, uint32_t n, float *scores,
                       size_t capacity, ls_error *err);

/* Saves everything that training needs to go on, bit for bit, as one safetensors file; on the disk at
 * the return. `path` is made, or replaced in one step; its directory exists. NULL: among the run
 * directory's checkpoints, where options.resume finds it. Errors: LS_EINVAL (NULL, but there is no run
 * directory; a directory), LS_EIO (nothing has changed on the disk), LS_ENONFINITE, LS_EDIVERGED,
 * LS_EDEVICE, LS_ESTALLED, LS_ENOMEM. */
int ls_trainer_save(ls_trainer *trainer, const char *path, ls_error *err);

/* Goes on from a checkpoint, which must be of the same recipe and data: weights, optimizer, place in the
 * schedule. Or takes over the weights of any other safetensors file: the optimizer's state then begins
 * anew, and the place stays. Nothing is changed unless all could be read. Errors: LS_EINVAL (the run has
 * ended), LS_ENOENT, LS_EDATA, LS_ECONFIG (another recipe), LS_EIO, LS_EDEVICE, LS_ESTALLED, LS_ENOMEM,
 * LS_ENONFINITE and LS_EDIVERGED (the training has ended so). */
int ls_trainer_load(ls_trainer *trainer, const char *path, ls_error *err);

/* Another receiver of the records, from now on: as the callback `record`, with a `user` of its own. Errors:
 * LS_EINVAL (the run has ended, or there are too many), LS_ENOMEM. */
int ls_trainer_add_sink(ls_trainer *trainer,
                        int (*record)(void *user, const char *json, size_t length, ls_error *err),
                        void *user, ls_error *err);

/* ---- the end -------------------------------------------------------------------------------- */

/* NULL is allowed. What was not saved is lost; snapshots stay. Returns LS_OK, or LS_ESTALLED when a worker
 * that was left behind has still not come back: then its thread stays, with the memory it may still use; or LS_EINVAL or
 * LS_ECANCELED, as above: then the trainer is still there. */
int ls_trainer_close(ls_trainer *trainer);

/* The resolved config (defaults and `set` applied) as indented JSON, without opening data or
 * devices; the caller frees it with ls_text_free. Any thread. Errors: LS_EINVAL (no config),
 * LS_ECONFIG, LS_ENOENT, LS_EIO, LS_ENOMEM. */
int ls_config_resolve(char **out, const ls_trainer_options *options, ls_error *err);
/* Gives it back to the host of those options, which outlives the text. NULL is allowed. Any thread. */
void ls_text_free(char *text);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
