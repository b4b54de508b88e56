/* Prediction with a trained model from its weights file, without a trainer or data.
 *
 *     ls_model *model;
 *     float p[10];
 *     if (ls_model_open(&model, "runs/…/weights.safetensors", NULL, &err) == LS_OK) {
 *         status = ls_model_predict(model, image, 1, p, 10, &err);    // any thread
 *         printf("%s\n", ls_model_class_name(model, 3));
 *         ls_model_release(model);
 *     }
 *
 * The file must be one that Lockstep has written: the weights or a checkpoint of a run, or a file
 * of ls_trainer_save or ls_model_save. Its metadata describe the model's layers, the shape of an
 * input row (one example, such as an image), the preprocessing and the class names. An open model
 * is a model, so all functions of model.h accept it.
 *
 * Models: copies of a model's weights after some training step, for prediction on any thread.
 *
 *     ls_model *model;
 *     ls_trainer_model(trainer, &model, &err);         // the trainer's owner, between steps
 *     …
 *     // any thread, while training continues:
 *     ls_snapshot_predict(model, images, n, scores, capacity, &err);
 *     ls_model_release(model);
 *
 * A model never changes, and is reference-counted. It begins with one reference and stays valid
 * after its trainer is closed. A thread that gives a model to other threads calls
 * ls_model_retain for them before they can see it.
 *
 * A prediction runs on a device of the kind that the trainer uses. Each of the threads that predict
 * at the same time gets an ls_device of its own; several of them can use the same GPU. The library
 * opens these devices, and allocates their memory, when a prediction first needs them. All
 * models of a trainer share the devices, and later callers reuse them. They are freed together
 * with the last model.
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
#ifndef LOCKSTEP_MODEL_H
#define LOCKSTEP_MODEL_H

#include <lockstep/data_source.h>
#include <lockstep/device_pool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ls_model ls_model;

/* Description of a model's model. */
typedef struct ls_model_info {
    uint64_t steps;              /* number of training steps before the model */
    int channels, height, width; /* shape of an input row */
    int classes;                 /* number of the model's outputs for each row */
    size_t parameters;           /* number of learned floats (weights and biases) */
    int floats;                  /* flag. Non-zero: the values of an input row are floats; zero:
                                  * bytes */
    int targets;                 /* flag. Zero: the outputs of a row are the scores of classes, one
                                  * for each class. Non-zero: they are independent values, such as
                                  * predicted quantities or yes/no labels */
} ls_model_info;

/* Describes the model of the model in `out`, which is zeroed if `model` is NULL. Any
 * thread. */
void ls_model_describe(const ls_model *model, ls_model_info *out);
/* Adds a reference and returns its argument. NULL is allowed. Any thread. */
ls_model *ls_model_retain(ls_model *model);
/* Drops a reference; the last one frees the model. NULL is allowed. Any thread. */
void ls_model_release(ls_model *model);

/* Predicts `n` rows.
 *
 * - images: [n][channels][height][width], floats if ls_model_info.floats is set, else bytes,
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
int ls_snapshot_predict(ls_model *model, const void *images, uint32_t n, float *scores,
                        size_t capacity, ls_error *err);

/* Writes the weights to `path` as a safetensors file with PyTorch's names of parameters. The file
 * appears completely or not at all. If `path` is a symbolic link, the file to which it leads is
 * created or replaced, and the link stays. Any thread. Errors: LS_EINVAL (no model or no path,
 * or the path leads to a device, a pipe, a socket or a directory, which is not replaced), LS_EIO,
 * LS_ENOMEM. */
int ls_model_save(const ls_model *model, const char *path, ls_error *err);

/* Options of ls_model_open. */
typedef struct ls_model_options {
    size_t size; /* sizeof(ls_model_options) */
    /* Device on which a thread predicts, in the syntax of ls_device_pool_options.devices: "cpu:1"
     * or "cuda:0". Each thread that predicts at the same time as others uses an ls_device of its
     * own for that device. The library opens an ls_device when it is first needed, and reuses it
     * later. NULL: "cpu:1", one CPU core. */
    const char *device;
    const ls_registry *registry; /* list of back ends; outlives the model; NULL: all of this
                                  * library */
    const ls_host *host;         /* allocator and log; outlives the model; NULL: malloc, no log */
} ls_model_options;

/* Opens the weights file `path` and prepares the first ls_device, so that later predictions only
 * run the forward pass. The caller releases the model with ls_model_release. `options` may be
 * NULL. Any thread.
 * Errors: LS_EINVAL (`path` is NULL, options->size is not that of this version, or options->device
 * cannot be parsed), LS_ENOENT, LS_EDATA (the file is damaged, or has no description of its model),
 * LS_EIO, LS_EDEVICE, LS_ENOMEM, LS_ESYSTEM. After an error nothing stays open. */
int ls_model_open(ls_model **out, const char *path, const ls_model_options *options, ls_error *err);

/* Form of the outputs of ls_model_run. */
typedef enum ls_output {
    /* The probability of each class; with the loss "bce" the probability of each yes/no label; with
     * the loss "poisson" the expected counts; with the other losses the predicted values. */
    LS_OUTPUT_PROBABILITIES = 0,
    /* The outputs of the last layer. If the model predicts classes, the softmax of these outputs
     * gives the probabilities. */
    LS_OUTPUT_LOGITS = 1
} ls_output;

/* Predicts `n` rows and writes the outputs in the requested form.
 *
 * - rows: [n][channels][height][width], with the values of the user's data. The function
 *   preprocesses each row as in training: it standardises the numbers of a table in double, and
 *   replaces missing numbers by the value that training used for them. In rows of a table NaN, inf
 *   and −inf are missing numbers; in other rows NaN is, if training replaced missing numbers.
 * - type: type of the values. If the model reads bytes, as ls_model_describe reports, it is
 *   LS_ROW_U8; else LS_ROW_F32 or LS_ROW_F64. Long numbers of a table, such as times in
 *   milliseconds, need doubles.
 * - form: probabilities or logits
 * - outputs, capacity: output buffer [n][classes], and its size in floats
 *
 * Errors: those of ls_snapshot_predict; LS_EINVAL for an unknown form, or for a type that the
 * model does not read.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_run(ls_model *model, const void *rows, ls_row_type type, uint32_t n, ls_output form,
                 float *outputs, size_t capacity, ls_error *err);

/* Does the same as ls_model_run with the form LS_OUTPUT_PROBABILITIES, for bytes or floats as
 * ls_model_describe reports. Any thread. Errors: those of
 * ls_model_run. */
int ls_model_predict(ls_model *model, const void *rows, uint32_t n, float *outputs, size_t capacity,
                     ls_error *err);

/* One value of a table row, identified by the name of its column. */
typedef struct ls_field {
    const char *column; /* name of the column */
    const char *text;   /* the value as text, as in a CSV file; NULL: `number` is the value */
    double number;      /* the value as a number, if `text` is NULL; NaN, and in a column of
                         * numbers inf: the value is missing */
} ls_field;

/* Converts the fields of a table row into one row for ls_model_run.
 *
 * - fields, count: the values in any order, and their number. Fields whose column the model does
 *   not read are ignored.
 * - row, capacity: output buffer, and its size in doubles. channels × height × width doubles are
 *   needed, as ls_model_describe reports them. The type of the row is LS_ROW_F64.
 *
 * Errors: messages name the column. LS_EDATA (no field has the name of a column that the model
 * reads, a text did not occur in training, or a value is missing and training defined no
 * replacement), LS_EINVAL (two fields name the same column, or `capacity` is too small),
 * LS_EUNSUPPORTED (the model was not trained on a table), LS_ENOMEM.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_row(const ls_model *model, const ls_field *fields, size_t count, double *row,
                 size_t capacity, ls_error *err);

/* Writes the whole network to `path` as an ONNX file, as `trainer export` does: its inputs are rows
 * as they are in the user's data, its outputs logits and, if the model predicts classes,
 * probabilities (docs/data.md). The file appears completely or not at all. If `path` is a symbolic
 * link, the file to which it leads is created or replaced, and the link stays. Any thread.
 * Errors: LS_EINVAL (no model or no path, or the path leads to a device, a pipe, a socket or a
 * directory, which is not replaced), LS_EUNSUPPORTED (the file would have 2 GB or more, or a layer
 * has no operator in ONNX), LS_EIO, LS_ENOMEM. */
int ls_model_export(const ls_model *model, const char *path, ls_error *err);

/* Returns the description of the model that its file contains, a JSON text (see docs/data.md), or
 * NULL if the file contains none. The text lives as long as the model. Any thread. */
const char *ls_model_card(const ls_model *model);

/* Returns the name of class number `label`, or NULL if the class has no name. The text lives as
 * long as the model. Any thread. */
const char *ls_model_class_name(const ls_model *model, int label);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
