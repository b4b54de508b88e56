/* The trainer: a whole data-parallel training run behind six functions.
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
 * Threads: open, run, result and close are called by one thread, which becomes the coordinator;
 * ls_trainer_interrupt may be called from any thread, and from a signal handler. The callbacks run
 * on the coordinator. Several trainers may exist at once.
 */
#ifndef LOCKSTEP_TRAINER_H
#define LOCKSTEP_TRAINER_H

#include <lockstep/device_pool.h>

#ifdef __cplusplus
extern "C" {
#endif

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
} ls_progress;

/* What a run starts with; texts belong to the trainer. */
typedef struct ls_summary {
    const char *name;
    const char *data;    /* "fashion_mnist: 60000 training and 10000 test images of 1×28×28" */
    int synthetic;       /* non-zero: the data was made up */
    const char *devices; /* "[cpu(0), cpu(1)]" */
    const char *device_model, *isa, *library;
    int workers, threads, shards;
    int batch_size;       /* global */
    int batch_per_device; /* of the largest share */
    size_t parameters, parameter_bytes;
    size_t device_bytes; /* per device: arenas and activations */
    const char *run_dir; /* "" when there is none */
    int epochs;
    const char *resumed_from; /* the checkpoint's directory; "": a new run */
    uint64_t resumed_steps;   /* that were done then */
} ls_summary;

typedef struct ls_result {
    int epochs; /* finished */
    uint64_t steps;
    double test_loss, test_accuracy; /* of the last evaluation; NaN when there was none */
    double
        seconds_per_epoch;   /* mean over finished epochs, training only; NaN when there was none */
    const char *devices;     /* "[cpu(0), cpu(1)]" */
    char weights_sha256[65]; /* "" when they could not be had */
    const char *checkpoint;  /* directory of the newest one that was saved; "": none */
    int saved;               /* non-zero: that one holds the run as it ended: resume from it */
    int interrupted;
} ls_result;

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
    /* Faults on purpose, such as "worker=1,step=120,kind=fail": see src/train/inject.h. */
    const char *const *inject;
    int inject_count;
    const ls_registry *registry; /* back ends; NULL: every one that was built in */
    /* Every metrics record, one JSON object without a newline. A negative status stops the run with
     * that error. Optional. */
    int (*record)(void *user, const char *json, size_t length, ls_error *err);
    void (*progress)(void *user, const ls_progress *progress); /* optional */
    void *user;
    const ls_host *host; /* outlives the trainer; NULL: the defaults */
} ls_trainer_options;

/* Reads the config, opens the data and the devices, builds a replica on each and makes the run
 * directory. Errors: LS_ECONFIG, LS_ENOENT, LS_EDATA, LS_EIO, LS_EDEVICE, LS_ENOMEM …, with a
 * message that names file and line; nothing is left behind. */
int ls_trainer_open(ls_trainer **out, const ls_trainer_options *options, ls_error *err);

/* What will be run. Valid until close. */
const ls_summary *ls_trainer_summary(const ls_trainer *trainer);

/* Trains for the configured epochs, evaluates, and writes the weights. May be called once.
 * Errors: LS_EINTERRUPTED after ls_trainer_interrupt (the step was finished and the weights are
 * written), LS_ENONFINITE, LS_EIO, LS_EDEVICE, or the record callback's. */
int ls_trainer_run(ls_trainer *trainer, ls_error *err);

/* Asks a run to stop after the step under way. Safe in a signal handler. */
void ls_trainer_interrupt(ls_trainer *trainer);

/* What came out, also after an interrupted run. Valid until close. */
const ls_result *ls_trainer_result(const ls_trainer *trainer);

/* Copies the weights, one parameter after another in model order, row-major, into `out`
 * (parameters floats: see ls_summary). Errors: LS_EDEVICE. */
int ls_trainer_weights(ls_trainer *trainer, float *out, ls_error *err);

/* NULL is allowed. Returns LS_OK, or LS_ESTALLED when a worker that was left behind has still not come
 * back: then its thread stays, with the memory it may still use. */
int ls_trainer_close(ls_trainer *trainer);

/* The resolved config (defaults and `set` applied) as indented JSON, without opening data or
 * devices; the caller frees it with ls_text_free. Errors: LS_ECONFIG, LS_ENOENT, LS_EIO, LS_ENOMEM. */
int ls_config_resolve(char **out, const ls_trainer_options *options, ls_error *err);
void ls_text_free(char *text, const ls_host *host); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
