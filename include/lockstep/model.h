/* Prediction with a trained model from its weights file, without a trainer or data.
 *
 *     ls_snapshot *model;
 *     float p[10];
 *     if (ls_model_open(&model, "runs/…/weights.safetensors", NULL, &err) == LS_OK) {
 *         status = ls_model_predict(model, image, 1, p, 10, &err);    // any thread
 *         printf("%s\n", ls_model_class_name(model, 3));
 *         ls_snapshot_release(model);
 *     }
 *
 * The file must be one that Lockstep has written: the weights or a checkpoint of a run, or a file
 * of ls_trainer_save or ls_snapshot_save. Its metadata describe the model's layers, the shape of an
 * input row (one example, such as an image), the preprocessing and the class names. An open model
 * is a snapshot, so all functions of snapshot.h accept it.
 */
#ifndef LOCKSTEP_MODEL_H
#define LOCKSTEP_MODEL_H

#include <lockstep/data_source.h>
#include <lockstep/device_pool.h>
#include <lockstep/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

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
 * run the forward pass. The caller releases the model with ls_snapshot_release. `options` may be
 * NULL. Any thread.
 * Errors: LS_EINVAL (`path` is NULL, options->size is not that of this version, or options->device
 * cannot be parsed), LS_ENOENT, LS_EDATA (the file is damaged, or has no description of its model),
 * LS_EIO, LS_EDEVICE, LS_ENOMEM, LS_ESYSTEM. After an error nothing stays open. */
int ls_model_open(ls_snapshot **out, const char *path, const ls_model_options *options,
                  ls_error *err);

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
 * - type: type of the values. If the model reads bytes, as ls_snapshot_describe reports, it is
 *   LS_ROW_U8; else LS_ROW_F32 or LS_ROW_F64. Long numbers of a table, such as times in
 *   milliseconds, need doubles.
 * - form: probabilities or logits
 * - outputs, capacity: output buffer [n][classes], and its size in floats
 *
 * Errors: those of ls_snapshot_predict; LS_EINVAL for an unknown form, or for a type that the
 * model does not read.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_run(ls_snapshot *model, const void *rows, ls_row_type type, uint32_t n, ls_output form,
                 float *outputs, size_t capacity, ls_error *err);

/* Does the same as ls_model_run with the form LS_OUTPUT_PROBABILITIES, for bytes or floats as
 * ls_snapshot_describe reports. Any thread. Errors: those of
 * ls_model_run. */
int ls_model_predict(ls_snapshot *model, const void *rows, uint32_t n, float *outputs,
                     size_t capacity, ls_error *err);

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
 *   needed, as ls_snapshot_describe reports them. The type of the row is LS_ROW_F64.
 *
 * Errors: messages name the column. LS_EDATA (no field has the name of a column that the model
 * reads, a text did not occur in training, or a value is missing and training defined no
 * replacement), LS_EINVAL (two fields name the same column, or `capacity` is too small),
 * LS_EUNSUPPORTED (the model was not trained on a table), LS_ENOMEM.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_row(const ls_snapshot *model, const ls_field *fields, size_t count, double *row,
                 size_t capacity, ls_error *err);

/* Writes the whole network to `path` as an ONNX file, as `trainer export` does: its inputs are rows
 * as they are in the user's data, its outputs logits and, if the model predicts classes,
 * probabilities (docs/data.md). The file appears completely or not at all. If `path` is a symbolic
 * link, the file to which it leads is created or replaced, and the link stays. Any thread.
 * Errors: LS_EINVAL (no model or no path, or the path leads to a device, a pipe, a socket or a
 * directory, which is not replaced), LS_EUNSUPPORTED (the file would have 2 GB or more, or a layer
 * has no operator in ONNX), LS_EIO, LS_ENOMEM. */
int ls_model_export(const ls_snapshot *model, const char *path, ls_error *err);

/* Returns the description of the model that its file contains, a JSON text (see docs/data.md), or
 * NULL if the file contains none. The text lives as long as the model. Any thread. */
const char *ls_model_card(const ls_snapshot *model);

/* Returns the name of class number `label`, or NULL if the class has no name. The text lives as
 * long as the model. Any thread. */
const char *ls_model_class_name(const ls_snapshot *model, int label);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
