/* A trained model from its file: no trainer, no data, no devices to set up.
 *
 *     ls_snapshot *model;
 *     float p[10];
 *     if (ls_model_open(&model, "runs/…/weights.safetensors", NULL, &err) == LS_OK) {
 *         status = ls_model_predict(model, image, 1, p, 10, &err);    // any thread
 *         printf("%s\n", ls_model_class_name(model, 3));
 *         ls_snapshot_release(model);
 *     }
 *
 * The file is one that a run, a checkpoint, ls_trainer_save or ls_snapshot_save has written: its metadata
 * say which model it is of, what a row looks like, how it is preprocessed and what the classes are called.
 * What is open is a snapshot, for all that snapshot.h does with one.
 */
#ifndef LOCKSTEP_MODEL_H
#define LOCKSTEP_MODEL_H

#include <lockstep/device_pool.h>
#include <lockstep/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct ls_model_options {
    size_t size; /* sizeof(ls_model_options) */
    /* One device for each thread that predicts, as in ls_device_pool_options: "cpu:1", "cuda:0". NULL:
     * "cpu:1", one core each. */
    const char *device;
    const ls_registry *registry; /* outlives the model; NULL: every back end that was built in */
    const ls_host *host;         /* outlives the model; NULL: the defaults */
} ls_model_options;

/* Reads the file and prepares the first device: behind it, a prediction is forward alone. `options` may be
 * NULL. Any thread. Errors: LS_EINVAL (no path, options of another version, a device that cannot be read), LS_ENOENT,
 * LS_EDATA (damaged, or a file that does not say which model it is of), LS_EIO, LS_EDEVICE, LS_ENOMEM, LS_ESYSTEM;
 * nothing is left open then. */
int ls_model_open(ls_snapshot **out, const char *path, const ls_model_options *options,
                  ls_error *err);

/* What ls_model_run gives. */
typedef enum ls_output {
    LS_OUTPUT_PROBABILITIES = 0, /* of classes; of each bit (bce); the values themselves (mse) */
    LS_OUTPUT_LOGITS =
        1 /* what the last layer gives: the softmax of classes' are their probabilities */
} ls_output;

/* `rows` [n][channels][height][width], bytes or floats (ls_snapshot_describe) as they are in the user's data →
 * `outputs` [n][classes], which has room for `capacity` floats, of the form that is asked for. What the training did to a row is done here, too: the numbers of a
 * table are standardised, and NaN becomes what the training put in the place of missing numbers. Any thread, any
 * number of them at a time. Errors: those of ls_snapshot_predict; LS_EINVAL for an unknown form. */
int ls_model_run(ls_snapshot *model, const void *rows, uint32_t n, ls_output form, float *outputs,
                 size_t capacity, ls_error *err);

/* ls_model_run with LS_OUTPUT_PROBABILITIES. */
int ls_model_predict(ls_snapshot *model, const void *rows, uint32_t n, float *outputs,
                     size_t capacity, ls_error *err);

/* A value of a table's row, by the name of its column. */
typedef struct ls_field {
    const char *column;
    const char *text; /* as in a file; NULL: the number */
    double number;    /* NaN: it is missing */
} ls_field;

/* Fields in any order → `row`, one row for ls_model_run, which has room for `capacity` floats: as many as the model
 * reads (channels × height × width). Fields of columns that the model does not read are ignored. Any thread. Errors, which name the column: LS_EDATA
 * (a column without a field, a text that the model has not learnt, a missing value that nothing fills), LS_EINVAL
 * (a column with two fields, too little room); LS_EUNSUPPORTED where the model was not trained on a table; LS_ENOMEM. */
int ls_model_row(const ls_snapshot *model, const ls_field *fields, size_t count, float *row,
                 size_t capacity, ls_error *err);

/* What the file says of the model, a JSON text (docs/data.md describes it), or NULL. Lives as long as the model. Any
 * thread. */
const char *ls_model_card(const ls_snapshot *model);

/* What the class is called, or NULL: by its number alone. Lives as long as the model. Any thread. */
const char *ls_model_class_name(const ls_snapshot *model, int label);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
