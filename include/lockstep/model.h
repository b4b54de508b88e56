/* A trained model from its file: no trainer, no data, no devices to set up.
 *
 *     ls_snapshot *model;
 *     float p[10];
 *     if (ls_model_open(&model, "runs/…/weights.safetensors", NULL, &err) == LS_OK) {
 *         status = ls_model_predict(model, image, 1, p, &err);    // any thread
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
 * NULL. Any thread. Errors: LS_ENOENT; LS_EDATA (damaged, or a file that does not say which model it is
 * of), LS_EIO, LS_EDEVICE, LS_ENOMEM, LS_ESYSTEM; nothing is left open then. */
int ls_model_open(ls_snapshot **out, const char *path, const ls_model_options *options,
                  ls_error *err);

/* `rows` [n][channels][height][width], as the model was trained on (ls_snapshot_describe) → `outputs`
 * [n][classes]: probabilities, the softmax of what ls_snapshot_predict gives; of a model that learnt bits (bce)
 * that of each bit; of one that learnt numbers (mse) these. Any thread, any number of them at a time.
 * Errors: those of ls_snapshot_predict. */
int ls_model_predict(ls_snapshot *model, const void *rows, uint32_t n, float *outputs,
                     ls_error *err);

/* What the class is called, or NULL: by its number alone. Lives as long as the model. Any thread. */
const char *ls_model_class_name(const ls_snapshot *model, int label);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
