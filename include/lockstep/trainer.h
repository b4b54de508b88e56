/* SPDX-License-Identifier: MIT */
/* The trainer: a complete data-parallel training run as one object.
 *
 * A trainer divides each minibatch (the rows of one training step; a row is one example, such as an
 * image) among *workers*. A worker is a thread with one device (a GPU, or a share of the CPU cores)
 * and a copy of the model (a *replica*). ls_trainer_run trains a whole run:
 *
 *     ls_trainer_options o = {.size = sizeof o, .config_path = "examples/fashion_mnist.json"};
 *     ls_trainer *trainer;
 *     if (ls_trainer_open(&trainer, &o, &err) == LS_OK) {
 *         status = ls_trainer_run(trainer, &err);
 *         const ls_result *result = ls_trainer_result(trainer);
 *         printf("%s: %.2f\n", result->metric, result->metric_value);
 *         status = ls_trainer_close(trainer, &err);
 *     }
 *
 * Alternatively the program trains step by step with rows that it passes (data_source.h). Any
 * thread can predict while training continues (model.h):
 *
 *     while (collect(rows, classes, 256)) {
 *         ls_step_rows given = {sizeof given, rows, classes, LS_ROW_U8, 256};
 *         status = ls_trainer_step(trainer, &given, &step, &err);
 *         if (status == LS_OK && step.number % 50 == 0)
 *             status = ls_trainer_model(&model, trainer, &err);
 *     }
 *
 * The keys of a config are described in docs/config.md, which is installed with the documentation;
 * ls_config_resolve writes a config with all its defaults.
 *
 * Threads: one thread at a time, the *owner*, calls the functions of a trainer. The owner may be
 * another thread in each call, if the program orders the calls (by a mutex or a join), except with
 * options.pool, whose owner is fixed (pool.h). Any thread and any signal handler may call
 * ls_trainer_interrupt until the call of ls_trainer_close begins; the program must rule out that it
 * is called during or after that call. The callbacks run on the owner's thread. A callback
 * may call ls_trainer_interrupt, ls_trainer_summary, ls_trainer_result and the functions of
 * model.h, but no other function of the same trainer. Several trainers may exist at the same
 * time, each with devices of its own. Trainers that share a pool (options.pool) have one owner. A
 * trainer belongs to the process that opened it: a child process made by fork cannot use or close
 * the trainer.
 * Signals: the library installs no signal handler and changes no disposition, that of SIGPIPE
 * included: it writes to sockets with MSG_NOSIGNAL. Its threads block the signals that pool.h
 * lists.
 * Stack: the calling thread needs a stack of 128 KiB. Every function that opens, trains, evaluates,
 * loads, saves or closes checks its stack before it uses it: it refuses a thread with too little
 * with LS_EINVAL. (Functions that need little work on smaller stacks too.)
 * Arithmetic: the owner's floating-point environment (fenv.h) does not affect results. All
 * computation and all callbacks run in the default environment of a C program. Each function
 * restores the owner's environment before it returns.
 * Errors: LS_EINVAL (the call broke a rule, and nothing has happened), LS_ENOENT, LS_EDATA,
 * LS_ECONFIG and LS_EIO leave the trainer usable. So does LS_ENOMEM if a file or a model lacked the
 * memory: in ls_trainer_save, ls_trainer_model, ls_trainer_load and ls_trainer_load_weights. After
 * LS_EINTERRUPTED, further steps and evaluations return LS_EINTERRUPTED as well. After any other
 * error the trainer does not train any more: each further step, evaluation and load returns that
 * same error. That includes LS_ENOMEM in a step or an evaluation, or while any function copies
 * weights from or to the devices; so after LS_ENOMEM the next step says whether training goes on.
 * The weights can still be read and saved as long as at least one device works.
 *
 * Every function of a trainer that returns a status returns LS_EINVAL and does nothing if it is
 * called
 *
 * - in a callback of the trainer,
 * - while another thread is in a call of the same trainer,
 * - in a job of options.pool,
 * - in a forked child process, or
 * - with too little stack.
 *
 * (ls_config_resolve works without a trainer, and only needs the stack.) ls_trainer_close is
 * refused in the same cases, and the trainer stays open. Every function of a trainer returns
 * LS_ECANCELED while options.pool is cancelled (then call ls_pool_wait and ls_pool_clear). If the
 * pool is cancelled in the middle of a call, the training ends with LS_ECANCELED. If a device fails
 * during a call, the trainer emits a metrics record about that device: it calls the `record`
 * callback and writes a line to the metrics file. Therefore each of these functions can also return
 * the record callback's error, or LS_EIO if the metrics file cannot be written.
 */
#ifndef LOCKSTEP_TRAINER_H
#define LOCKSTEP_TRAINER_H

#include <lockstep/cluster.h>
#include <lockstep/data_source.h>
#include <lockstep/device_pool.h>
#include <lockstep/model.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A training run. */
typedef struct ls_trainer ls_trainer;

/* Progress of a run: the argument of the progress callback, valid during the callback. The trainer
 * owns the structure, which grows at its end (status.h). */
typedef struct ls_progress {
    int epoch, epochs; /* current epoch, from 1; number of epochs of the run. A program that calls
                        * ls_trainer_step can train more epochs than that */
    uint64_t step, steps; /* number of finished steps of the current epoch; number of steps of each
                           * epoch, 0 if the data source has no epochs (train_rows 0): then the
                           * current epoch is the first one and does not end */
    double loss;          /* mean loss over this epoch's rows so far; NaN: all its steps were
                           * skipped */
    double accuracy;      /* share of correct predictions among this epoch's rows so far; NaN: the
                           * loss function does not define when a prediction is correct, or all
                           * steps were skipped */
    double rows_per_s;    /* training rows per second in this epoch so far */
    double remaining_s;   /* estimated seconds of training until the end of the last of the epochs;
                           * 0: unknown, because there are no epochs, or that end has passed */
    int epoch_done;       /* non-zero: the epoch has ended, and its evaluation, if one was due, has
                           * ended as well */
    int evaluated;        /* non-zero: test_loss and metric_value are results of this epoch's
                           * evaluation */
    double test_loss;     /* mean loss on the evaluated rows (ls_summary.judged_by) */
    const char *metric;   /* name of the main metric: "accuracy" if the loss function defines when a
                           * prediction is correct, else that of the loss, such as "r2" or
                           * "pinball", or "loss" */
    double metric_value;  /* value of that metric on the evaluated rows */
} ls_progress;

/* Description of a run at its start, which does not change. The trainer owns the texts. */
typedef struct ls_summary {
    const char *name; /* name of the run, from the config */
    const char *data; /* "mnist: 60000 training and 10000 test images of 1×28×28, bytes / 255" */
    int synthetic;    /* non-zero: the library has generated the data instead of reading files */
    const char *devices;                      /* names of the devices: "[cpu(0), cpu(1)]" */
    const char *device_model, *isa, *library; /* as in ls_device_info (sys/plugin.h) */
    /* number of workers; number of threads of each CPU worker; number of *shards*, the parts of a
     * minibatch: each worker computes the gradients of some shards */
    int workers, threads, shards;
    int batch_size;       /* number of rows of a minibatch, over all devices of all processes */
    int batch_per_device; /* largest number of rows of a minibatch that one device computes */
    size_t parameters, parameter_bytes; /* number of learned floats; their size in bytes */
    /* memory of each device, in bytes, for weights, gradients, optimizer state and activations, and
     * for the device's copy of the data if it has one */
    size_t device_bytes;
    const char *run_dir;      /* the directory with the run's files; "": none, which is the default
                               * unless the config or options.set has run_dir (only the program
                               * `trainer` then creates one below runs/) */
    int epochs;               /* number of epochs that the config asks for */
    const char *resumed_from; /* file of the checkpoint that the run continues; "": a new run */
    uint64_t resumed_steps;   /* number of steps that had been done at that checkpoint */
    int member, members;      /* number of this process, from 0; number of processes */
    ls_row_type row_type;     /* type of the rows that the run keeps: LS_ROW_U8 or LS_ROW_F32 */
    const char *judged_by;    /* name of the rows on which the model is evaluated: "test", or
                               * "validation" if the config holds out training rows for
                               * evaluation */
} ls_summary;

/* Result of a run so far. The trainer owns the structure, which its functions change: a program
 * that needs the values of one moment copies them, and the texts. */
typedef struct ls_result {
    int epochs;               /* number of finished epochs */
    uint64_t steps;           /* number of finished steps */
    double test_loss;         /* mean loss in the last evaluation; NaN: none */
    double seconds_per_epoch; /* mean training time of the finished epochs; NaN: none */
    /* names of devices, such as "[cpu(0), cpu(1)]": after ls_trainer_run the devices that still
     * worked at the end of the run; before that the devices of ls_summary */
    const char *devices;
    /* SHA-256 of the last weights in hex, also if checkpoint.final is "best". ls_trainer_run
     * computes it at its end. Before ls_trainer_run, ls_trainer_result computes it (see there). "":
     * ls_trainer_run is under way, or the weights could not be read. */
    char weights_sha256[65];
    const char *checkpoint; /* file of the newest checkpoint that was saved; "": none */
    int saved;              /* non-zero: that checkpoint contains the run's final state */
    int interrupted;        /* non-zero: ls_trainer_interrupt ended the run */
    const char *metric;     /* name of the main metric, as in ls_progress */
    double metric_value;    /* value of that metric in the last evaluation; NaN: none */
} ls_result;

/* Functions that the trainer calls on the owner's thread. Each may be NULL. */
typedef struct ls_trainer_callbacks {
    size_t size; /* sizeof(ls_trainer_callbacks) */
    /* Receives each metrics record: one JSON object of `length` bytes, without a newline. A
     * negative status (status.h, "Callbacks") stops the run with that error. */
    int (*record)(void *user, const char *json, size_t length, ls_error *err);
    /* Receives the progress after each step of ls_trainer_run and of ls_trainer_step, and at the
     * end of each epoch. */
    void (*progress)(void *user, const ls_progress *progress);
    /* Receives a model (model.h) with the current weights after every `model_every_steps` steps of
     * ls_trainer_run and of ls_trainer_step. The trainer releases the model after the callback. A
     * callback that needs the model longer calls ls_model_retain. */
    void (*model)(void *user, ls_model *model);
    uint64_t model_every_steps; /* number of steps between two models; 0: none are taken */
    void *user;                 /* first argument of each callback; what it points to outlives
                                 * the trainer */
} ls_trainer_callbacks;

/* Options of ls_trainer_open, which copies all that the pointers refer to, except where a field
 * says that something outlives the trainer. */
typedef struct ls_trainer_options {
    size_t size;             /* sizeof(ls_trainer_options) */
    const char *config_path; /* path of the config, a JSON file */
    const char *config_text; /* the text of a config; used if config_path is NULL */
    const char *const *set;  /* [set_count] assignments such as "optimizer.lr=0.1", which are
                              * applied to the config in order */
    int set_count;
    /* [data_dir_count] directories in which the trainer looks for the data set, in this order, if
     * the config has no data.path. */
    const char *const *data_dirs;
    int data_dir_count;
    const char *cache_dir; /* directory in which devices keep their choices of kernels (device
                            * functions), and folders of pictures their decoded rows, for later
                            * runs; NULL: none */
    /* The run to continue: its directory, or "latest". NULL: a new run. If a config with the key
     * run_dir is given, "latest" means that directory. Otherwise "latest" means the run below runs/
     * that began last, among the runs that have a checkpoint; if a config is given, only runs with
     * the config's `name` are considered. If no config is given, the trainer uses the config of the
     * run that it continues. */
    const char *resume;
    /* The back ends (device_pool.h) from which devices are chosen; outlives the trainer and its
     * models. NULL: all back ends of this library. */
    const ls_registry *registry;
    const ls_trainer_callbacks *callbacks; /* copied; NULL: none */
    /* File to which the trainer writes a timeline of the run, for https://ui.perfetto.dev. The file
     * is complete when the run has ended or the trainer is closed. The path is treated as the path
     * of ls_trainer_save. NULL: no timeline. */
    const char *trace_path;
    int trace_ops; /* non-zero: the timeline shows each operation of the model, not only the phases
                    * of a step */
    /* [source_count] datasets of the program, which the config's data.name may select; copied. What
     * their callbacks use outlives the trainer. */
    const ls_data_source *const *sources;
    int source_count;
    /* [step_row_count] numbers of rows with which ls_trainer_step will be called, besides the
     * config's batch_size, the largest of them; at most 8 numbers; copied. ls_trainer_open prepares
     * kernels and memory for steps of these sizes. */
    const uint32_t *step_rows;
    int step_row_count;
    /* An existing pool of workers, created by ls_device_pool_create. The pool's option caller_works
     * must be 0, because the owner of a trainer waits for the workers and cannot be a worker as
     * well. With a pool the config's devices, threads and precision are ignored. The pool outlives
     * the trainer. Trainers that share a pool use it one after another, from one thread. NULL: the
     * trainer creates its own pool. */
    ls_pool *pool;
    const ls_host *host; /* allocator and log (host.h); outlives the trainer and its models;
                          * NULL: malloc, no log */
    /* How to find the other processes of the run (cluster.h); copied. NULL: as the config says. */
    const ls_trainer_cluster *cluster;
    const struct ls_trainer_sys *sys; /* faults to cause on purpose, for tests
                                       * (<lockstep/sys/trainer.h>); NULL: none */
    /* Largest total size of the decoded rows of folders of pictures in cache_dir, in bytes. The
     * rows of the folders that were used least recently are removed. 0: 20 GiB. */
    uint64_t cache_bytes;
    /* With `resume`: the run continues from the checkpoint after this number of steps, also if that
     * checkpoint was set aside as doubtful. Later checkpoints are set aside. 0: the run continues
     * from its newest checkpoint that was not set aside. */
    uint64_t resume_at;
} ls_trainer_options;

/* Opens a trainer: reads the config, opens the data and the devices, builds a replica of the model
 * on each device and creates the run directory, if the config has the key run_dir. The calling
 * thread is the owner. After an error nothing stays open. The message names the file and the line
 * if the error has them.
 * Errors: LS_ECONFIG, LS_ENOENT, LS_EDATA, LS_EIO, LS_EDEVICE, LS_ENOMEM, LS_EINVAL,
 * LS_EUNSUPPORTED, LS_EAGAIN (another process trains in the run directory), LS_ETIMEDOUT,
 * LS_ESTALLED, LS_ESYSTEM. */
int ls_trainer_open(ls_trainer **out, const ls_trainer_options *options, ls_error *err);

/* Returns the description of the run, which is valid until the trainer is closed; NULL if `trainer`
 * is NULL. Called by the owner. */
const ls_summary *ls_trainer_summary(const ls_trainer *trainer);

/* Trains from the trainer's current state to the end of the configured epochs, evaluates, and
 * writes the weights. The program may call this function once per trainer, and must not call
 * ls_trainer_step afterwards. Called by the owner.
 * Errors: LS_EINVAL (the trainer has run before, or there are no training rows), LS_EINTERRUPTED
 * (after ls_trainer_interrupt; the steps that had begun were finished, and the weights are
 * written), LS_ENONFINITE, LS_EIO, LS_EDEVICE, LS_EDIVERGED, LS_ESTALLED, LS_ENOMEM, or the record
 * callback's. */
int ls_trainer_run(ls_trainer *trainer, ls_error *err);

/* Asks a run to stop, until the trainer is closed. ls_trainer_run finishes the steps that the
 * workers have already received, and then ends the run. NULL is ignored. A present call of
 * ls_trainer_step finishes its step, or returns LS_EINTERRUPTED if the step has not begun. Every
 * later call of ls_trainer_step returns LS_EINTERRUPTED and does not train. In a run of several
 * processes, all processes stop after the same step. Any thread; async-signal-safe; not during or
 * after ls_trainer_close. */
void ls_trainer_interrupt(ls_trainer *trainer);

/* Returns the result of the training so far, which later calls of the trainer's functions change.
 * The structure is valid until the trainer is closed.
 * Returns NULL if `trainer` is NULL. Called by the owner.
 * Cost: in a trainer that is driven by ls_trainer_step, the first call after a step or a load fills
 * in weights_sha256. It reads the weights back from a device as ls_trainer_weights does, and hashes
 * them, about 1 ms for 200,000 parameters. Steps and further calls cost nothing. In a callback the
 * function does not compute the hash. */
const ls_result *ls_trainer_result(ls_trainer *trainer);

/* Copies the weights to `out`, which has room for `capacity` floats; ls_summary.parameters floats
 * are needed. The parameter tensors follow each other in the order of the model's layers, each
 * row-major. Running statistics of batch norm are not included. If a device fails during the call,
 * the trainer goes on without it, as in a step. Called by the owner.
 * Errors: LS_EINVAL (`capacity` is too small), LS_EDIVERGED, LS_EDEVICE (for example if no device
 * works any more), LS_ESTALLED, LS_ENOMEM. */
int ls_trainer_weights(ls_trainer *trainer, float *out, size_t capacity, ls_error *err);

/* ---- training step by step ------------------------------------------------------------------ */

/* The rows of one step. */
typedef struct ls_step_rows {
    size_t size;          /* sizeof(ls_step_rows) */
    const void *rows;     /* [n][channels][height][width] values of the type row_type */
    const void *targets;  /* int32_t [n] (classes); or [n][k] if the data source's target_count
                           * is k > 0: float or double, as for its `read` */
    ls_row_type row_type; /* type of the values, that of the data source */
    uint32_t n;           /* number of rows: the config's batch_size or one of options.step_rows */
    /* [n] weights of the rows, 0 or from 1e-9 to 1e9, as the data source's `weighted` explains;
     * NULL: all are 1 */
    const float *weights;
} ls_step_rows;

/* Result of one step. */
typedef struct ls_step_result {
    size_t size;     /* sizeof(ls_step_result), set by the caller */
    uint64_t number; /* number of the step, from 1 */
    double loss; /* mean loss over the step's rows, weighted if they have weights, in the unit of
                  * the records (see below) */
    double accuracy; /* share of correct predictions among the step's rows */
    double lr;       /* learning rate of the update, which uses it as a float */
    int skipped;     /* non-zero: the step updated nothing, because the loss was not finite and the
                      * config's on_nonfinite is "skip" */
} ls_step_result;

/* Trains one step on rows that the caller passes, and waits for the end of the step. The config's
 * data must be a streamed data source (data_source.h). `out` receives the result of the step; it
 * may be NULL; the caller sets out->size.
 * The library does not read the rows and targets after the function has returned. Learning rate,
 * checkpoints and records are as in ls_trainer_run. An epoch has train_rows / batch_size steps,
 * rounded up, where train_rows is the field of the data source; if that is 0, there are no epochs.
 * Scales: if the config has data.standardize, or a loss with which targets are standardised, and
 * no scales, the first calls learn them. Each of the first steps uses the scales of all rows so
 * far; after data.scale_rows rows (1000) they never change. Therefore the first minibatches must be
 * like the later ones, shuffled for example. Before the first step a trainer with
 * data.standardize, and a model that was saved then, predicts the same for every row, without an
 * error: no value has a scale yet. A file with scales (the config's init.weights, ls_trainer_load,
 * ls_trainer_load_weights) brings its own in place of those that would be learnt; steps change
 * them only if they were learnt from fewer than data.scale_rows rows of ls_trainer_step.
 * Units: the loss is that of the run's records: it is computed in the unit of the target, also if
 * targets are standardised (mse: its square); only the loss of several targets with different
 * deviations is that of the standardised targets. Called by the owner.
 * Errors: LS_EINVAL (for example if n is 0, row_type is not set or not that of the data source, a
 * value or target is NaN or infinite, or a class does not exist), LS_EINTERRUPTED
 * (ls_trainer_interrupt was called; the rows were not trained on), LS_ENONFINITE, LS_EIO,
 * LS_EDEVICE, LS_EDIVERGED, LS_ESTALLED, LS_ENOMEM, or the record callback's. */
int ls_trainer_step(ls_trainer *trainer, const ls_step_rows *rows, ls_step_result *out,
                    ls_error *err);

/* Sets the full learning rate, from the next step on: the config's schedule multiplies `lr` in
 * place of optimizer.lr (and of linear_scaling's factor). `lr`: above 0, also as a float, and at
 * most 1e6. The records and results of steps have the rate of each step, and a checkpoint has the
 * full rate, with which a resumed run continues. In a run of several processes each process sets
 * the same rate before the same step; the step after one with different rates ends the run with
 * LS_EDIVERGED, because the comparison of all replicas finds different weights. Called by the
 * owner, between steps or before ls_trainer_run.
 * The run has ended as soon as ls_trainer_run was called. After ls_trainer_interrupt or a failed
 * step the rate can still be set, and a checkpoint has it.
 * Errors: LS_EINVAL (another `lr`, or the run has ended). */
int ls_trainer_set_lr(ls_trainer *trainer, double lr, ls_error *err);

/* Evaluates the model on the test rows, on all devices. `out` receives the result; it may be NULL;
 * the caller sets out->size. Called by the owner.
 * Errors: LS_EINVAL (there are no test rows), LS_EINTERRUPTED (ls_trainer_interrupt was called
 * before or during the evaluation), LS_ECONFIG (the config stops early or keeps the best
 * checkpoint by the metric `monitor`, which has no value on these test rows), LS_ENONFINITE,
 * LS_EDIVERGED, LS_EDEVICE, LS_ESTALLED, LS_ENOMEM, or the record callback's. */
int ls_trainer_evaluate(ls_trainer *trainer, ls_evaluation *out, ls_error *err);

/* Creates a model (model.h) with a copy of the current weights. Any thread can predict with it,
 * also while training continues and after the trainer is closed. The caller releases it with
 * ls_model_release. Called by the owner, between two steps. Errors: LS_EDIVERGED, LS_EDEVICE,
 * LS_ESTALLED, LS_ENOMEM. */
int ls_trainer_model(ls_model **out, ls_trainer *trainer, ls_error *err);

/* Saves a checkpoint: one safetensors file with all state that training needs to continue with
 * bit-identical results. The file is on the disk when the function returns. The file `path` is
 * created or atomically replaced; its directory must exist. If `path` is a symbolic link, the file
 * to which it leads is created or replaced, and the link stays. A device, a pipe, a socket or a
 * directory is never replaced. If `path` is NULL, the file is saved
 * among the checkpoints of the run directory, where options.resume finds it. Called by the owner.
 * Comparing: checkpoints of equal training have different bytes, because they contain the seconds
 * that it took. Compare ls_result.weights_sha256, or files of ls_model_save.
 * Errors: LS_EINVAL (`path` is NULL but there is no run directory, or it leads to something that is
 * not replaced), LS_EIO (nothing has changed on the disk), LS_ENONFINITE, LS_EDIVERGED, LS_EDEVICE,
 * LS_ESTALLED, LS_ENOMEM. */
int ls_trainer_save(ls_trainer *trainer, const char *path, ls_error *err);

/* Loads a checkpoint or weights from `path`. A checkpoint restores the weights, the optimizer's
 * state and the position in the schedule. A checkpoint must come from a run with the same data and
 * the same *recipe*. The recipe is all keys of a config on which the trained weights depend, such
 * as the model, the optimizer, the batch size, the shards and the seed. Any other safetensors file
 * replaces the weights only: the optimizer's state is reset, and the position in the schedule is
 * kept. If a part of the file cannot be read, nothing is changed. Called by the owner.
 * Errors: LS_EINVAL (the run has ended), LS_ENOENT, LS_EDATA, LS_ECONFIG (the checkpoint has
 * another recipe), LS_EIO, LS_EDEVICE, LS_ESTALLED, LS_ENOMEM, and LS_ENONFINITE or LS_EDIVERGED if
 * the training has ended with that error. */
int ls_trainer_load(ls_trainer *trainer, const char *path, ls_error *err);

/* The optimizer's state after ls_trainer_load_weights. */
typedef enum ls_load_state {
    LS_STATE_RESET = 0, /* as at the beginning of a run */
    LS_STATE_KEEP = 1,  /* unchanged; only a moving average of the weights begins anew */
    LS_STATE_TAKE = 2   /* that in the file, which must be a checkpoint with the same optimizer */
} ls_load_state;

/* Loads the weights in `path`, a checkpoint or another safetensors file, with or without the
 * optimizer's state. The position in the schedule and the learning rate stay as they are, and the
 * checkpoint may have another recipe, as long as the model is the same. If a part of the file
 * cannot be read, nothing is changed. Called by the owner. Errors: those of ls_trainer_load, and
 * LS_EINVAL for another `state`. */
int ls_trainer_load_weights(ls_trainer *trainer, const char *path, ls_load_state state,
                            ls_error *err);

/* ---- the end -------------------------------------------------------------------------------- */

/* Closes the trainer and frees it. If a thread of the trainer is writing a checkpoint, the function
 * waits for its end. State that was not saved is lost. Models stay valid. NULL is allowed.
 * Called by the owner. Check the status: it is the only report of a lost last checkpoint, besides
 * the log, which is off unless options.host has one.
 * Returns LS_OK, or
 *
 * - LS_EIO, LS_ENONFINITE or LS_ENOMEM: the run's last checkpoint, which a thread of the trainer
 *   wrote, could not be saved. The error was logged, and the trainer is freed.
 * - LS_ESTALLED: a worker that has stopped answering has still not returned from its job. Its
 *   thread is left running. The trainer's memory, which this thread can still access, is leaked.
 * - LS_EINVAL or LS_ECANCELED, in the cases that the top of this header lists. Only in these cases
 *   the trainer stays open. */
int ls_trainer_close(ls_trainer *trainer, ls_error *err);

/* Resolves the config: applies options.set and fills in the defaults. Stores the result in *out as
 * indented JSON. The function opens no data and no devices, so it checks the keys of the model's
 * layers, but not their shapes. The caller frees the text with ls_text_free. Any thread. Errors:
 * LS_EINVAL (no config), LS_ECONFIG, LS_ENOENT, LS_EIO, LS_ENOMEM. */
int ls_config_resolve(char **out, const ls_trainer_options *options, ls_error *err);
/* Frees a text that ls_config_resolve returned. The function uses the allocator options.host of
 * that call, which must still exist. NULL is allowed. Any thread. */
void ls_text_free(char *text);

/* ---- verification --------------------------------------------------------------------------- */

/* Progress of a verification, valid during the callback. */
typedef struct ls_verify_progress {
    uint64_t done, steps; /* number of steps replayed so far; number of steps that are replayed */
    double remaining_s;   /* estimated seconds until the end; NaN: not known yet */
} ls_verify_progress;

/* Options of ls_verify. */
typedef struct ls_verify_options {
    size_t size; /* sizeof(ls_verify_options) */
    /* Subject of the verification: the directory of a run, with its config.json or receipt.json,
     * weights, records and checkpoints; or the path of a receipt alone. */
    const char *run;
    const char *weights; /* file of the weights; NULL: weights.safetensors in the directory of the
                          * run or of the receipt */
    /* Options for the replay: directories of data, back ends, host, and assignments such as
     * "devices=cpu:2" and "data.path=/data". config_path, config_text, resume, callbacks,
     * trace_path and cluster are not used. */
    const ls_trainer_options *trainer;
    /* Non-zero: the whole training is replayed. 0: the first and the last segment and `segments`
     * more, which `seed` draws. (A *segment* is the training from one checkpoint of the receipt to
     * the next; docs/verify.md.) Draw the seed from random numbers of your system, after the
     * receipt can no longer be changed. A receipt without its run is always replayed whole. */
    int all;
    int segments;
    uint64_t seed;
    /* Called after steps of the replay; NULL: not called. */
    void (*progress)(void *user, const ls_verify_progress *progress);
    void *user; /* first argument of the callback */
} ls_verify_options;

/* The result of a verification. */
typedef struct ls_verdict {
    size_t size;            /* sizeof(ls_verdict), set by the caller */
    int holds;              /* non-zero: nothing differs */
    int whole;              /* non-zero: the whole training was replayed */
    int segments, replayed; /* number of segments of the run; number that were replayed */
    int segment;       /* index of the segment that differs, from 0; −1: none, or the difference
                        * is not in a segment */
    uint64_t from, to; /* number of steps done before and after that segment */
    uint64_t step;     /* first step of that segment whose record differs; 0: none is known */
    char place[200];   /* the thing that differs: "receipt.json: evaluation.test_loss",
                        * "metrics.jsonl:17", "config.json"; "": nothing, or a segment */
    char text[1200];   /* a sentence about the result */
    char weights_sha256[65]; /* SHA-256 of the verified weights, in hexadecimal: of the receipt, or
                              * without one of a replay of the whole run; "": unknown */
    char weights_file_sha256[65]; /* SHA-256 of the compared file of weights, in hexadecimal; "":
                                   * there is no file, or it could not be read */
    /* Files that were read and that the prover has named, in config.json or in the receipt, because
     * no assignment names the verifier's own: "data.path=/their/a.csv\ndata.test_path=…", one a
     * line; "": none. What is in them counts as the prover's. Control characters in a path are '?',
     * and of a path at most 500 bytes are given, 250 if there are more than three. */
    char prover_files[1900];
} ls_verdict;

/* Verifies a run (docs/verify.md): reads the data again and replays the training, or parts of it,
 * and compares the results with the receipt, the weights and the records. *out receives the
 * verdict; the caller sets out->size. A difference is no error: the function returns LS_OK, and the
 * verdict says what differs. The function writes no file. It opens and closes a trainer of its own,
 * on the calling thread, which must be able to own one.
 * Errors: LS_ENOENT (no receipt, or no data), LS_EDATA (the receipt cannot be read, or the run was
 * made with other kernels than those of this library; the message names their version),
 * LS_EUNSUPPORTED (no run with this config can be verified), LS_EINVAL (for example if an
 * assignment changes the recipe), LS_ENOMEM, and every error of opening and running a trainer. */
int ls_verify(ls_verdict *out, const ls_verify_options *options, ls_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
