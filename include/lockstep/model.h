/* SPDX-License-Identifier: MIT */
/* A trained model: prediction, from a file or from a run that still trains.
 *
 *     ls_model *model;
 *     float p[10];
 *     ls_error err;
 *     int status = LS_OK;
 *     if (ls_model_open(&model, "runs/…/weights.safetensors", NULL, &err) == LS_OK) {
 *         status = ls_model_predict(model, row, LS_ROW_U8, 1, LS_OUTPUT_PREDICTION, p, 10,
 *                                   &err);                        // any thread
 *         printf("%s\n", ls_model_class_name(model, 3));
 *         ls_model_release(model);
 *     }
 *
 * A model comes from a file (ls_model_open), from a trainer between two steps (ls_trainer_model),
 * or from the callback ls_trainer_callbacks.model. A file must be one that Lockstep has written:
 * the weights or a checkpoint of a run, or a file of ls_trainer_save or ls_model_save. Its metadata
 * describe the model's layers, the shape of an input row (one example, such as an image), the
 * preprocessing and the class names.
 *
 * Lifetime: a model never changes, and is reference-counted. It begins with one reference. A model
 * of a trainer has a copy of the weights after some training step: training continues without
 * affecting it, and it stays valid after the trainer is closed. A thread that gives a model to
 * other threads calls ls_model_retain for them before they can see it.
 * Threads: any thread, and any number of threads at the same time, may call every function of this
 * header with the same model, also while a trainer from which the model came trains.
 *
 * Devices: a model of a trainer predicts on a device of the kind that the trainer uses, an opened
 * file on ls_model_options.device. Each of the threads that predict at the same time gets an
 * ls_device of its own; several of them can use the same GPU. The library opens these devices, and
 * allocates their memory, when a prediction first needs them. All models of a trainer share the
 * devices, and later callers reuse them. They are freed together with the last model.
 *
 * Stack: the calling thread needs a stack of 128 KiB, as for a trainer. Every function that opens,
 * predicts, evaluates, saves or exports, and ls_model_row and ls_model_picture, check their stack
 * before they use it: they refuse a thread with too little with LS_EINVAL. (On the library's own
 * CPU back end, the code for CPUs, a prediction runs on the calling thread. With any other back end
 * it runs on a thread of the library while the caller waits.)
 *
 * Batching: on the CPU, n ≤ 8 rows take n times as long as one row, and 9 to 15 rows take as long
 * as 16. More rows are computed 16 or 64 at a time. 16 rows in one call take less time than 16
 * calls with one row. Therefore pass the rows of requests that arrive together in one call.
 * Fork: in a child process that fork has created, prediction fails with LS_EINVAL. ls_model_release
 * drops the child's reference there; it frees the child's copy of the memory, but closes no device.
 */
#ifndef LOCKSTEP_MODEL_H
#define LOCKSTEP_MODEL_H

#include <lockstep/data_source.h>
#include <lockstep/device_pool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A trained model. */
typedef struct ls_model ls_model;

/* Meaning of a model's outputs. */
typedef enum ls_task {
    LS_TASK_CLASSES = 0, /* one output for each class, of which a row has one (softmax) */
    LS_TASK_YES_NO = 1,  /* yes/no answers that are independent of each other (the loss "bce") */
    LS_TASK_VALUES = 2   /* quantities, in the unit of the training data (the losses "mse", "mae",
                          * "huber" and "quantile"), or expected counts ("poisson") */
} ls_task;

/* How the size of a picture is computed from its samples: as Pillow's Image.resize does it, to the
 * byte, with the filter of this name, which is as wide as a pixel of the result if the picture
 * shrinks. */
typedef enum ls_interpolation { LS_BILINEAR = 0, LS_BICUBIC = 1 } ls_interpolation;

/* Size in pixels to which a picture is resized before its centre is cut out. `width` 0: `height` is
 * the size of the shorter side, and the picture keeps its proportions. Both 0: the picture is
 * scaled until it just covers an input row of the model. */
typedef struct ls_picture_resize {
    int height, width;
    int interpolation; /* an ls_interpolation; without a size 0 */
} ls_picture_resize;

/* Description of a model. */
typedef struct ls_model_info {
    size_t size;                 /* sizeof(ls_model_info), set by the caller */
    uint64_t steps;              /* number of training steps before the model was made; UINT64_MAX:
                                  * the model is from a file that does not say it, of an earlier
                                  * version or another program */
    int channels, height, width; /* shape of an input row */
    int outputs;                 /* number of outputs for each row */
    size_t parameters;           /* number of learned floats (weights and biases) */
    ls_row_type row_type;        /* type of a row's values: LS_ROW_U8; or LS_ROW_F32, and the model
                                  * reads LS_ROW_F64 as well */
    ls_task task;                /* meaning of the outputs */
    double threshold; /* probability from which the second of two classes, or yes, is predicted
                         (docs/data.md, "Rare classes"); 0.5 unless the file has another one */
    ls_picture_resize resize; /* how pictures become rows (ls_model_picture does it) */
    int white;                /* the 16-bit sample of a picture that becomes 255 in a row: the
                               * largest of the training pictures; 0: the upper 8 bits of 16-bit
                               * samples are used */
} ls_model_info;

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

/* Adds a reference and returns its argument. NULL is allowed. Any thread. */
ls_model *ls_model_retain(ls_model *model);
/* Drops a reference; the last one frees the model. NULL is allowed. Any thread. */
void ls_model_release(ls_model *model);

/* Describes the model in *out, whose field `size` the caller has set. Any thread. Errors:
 * LS_EINVAL. */
int ls_model_describe(const ls_model *model, ls_model_info *out, ls_error *err);

/* Form of predicted outputs: one of the first two values, and optionally `| LS_OUTPUT_F64`. */
typedef enum ls_output {
    /* LS_TASK_CLASSES: the probability of each class; LS_TASK_YES_NO: the probability of each yes;
     * LS_TASK_VALUES: the predicted values, with the loss "poisson" the expected counts. */
    LS_OUTPUT_PREDICTION = 0,
    /* The outputs of the last layer: their softmax (LS_TASK_CLASSES) or logistic function
     * (LS_TASK_YES_NO) are the probabilities. LS_TASK_VALUES: the predicted values, with the loss
     * "poisson" the logarithms of the expected counts. */
    LS_OUTPUT_LOGITS = 1,
    /* The outputs are an array of double instead of float. Needed for large predicted values: near
     * 1.7e9 neighbouring floats differ by 128. */
    LS_OUTPUT_F64 = 16
} ls_output;

/* Predicts `n` rows. A model has an output for each class or for each number of a row's target;
 * with the loss "quantile" and T targets, output q·T + k is that of quantile number q of target k.
 *
 * - rows: [n][channels][height][width], with the values of the user's data. The function
 *   preprocesses each row as in training, but does not augment it: it standardises the numbers of a
 *   table in double, and replaces missing numbers by the value that training used for them. In rows
 *   of a table NaN, inf and −inf are missing numbers; in other rows NaN is, if training replaced
 *   missing numbers. All outputs of a row with a value that the model does not know are NaN
 *   (ls_model_row): in other rows than those of a table, any other NaN, inf and −inf are such.
 * - row_type: type of the values. If ls_model_info.row_type is LS_ROW_U8, it is LS_ROW_U8; else
 *   LS_ROW_F32 or LS_ROW_F64. Long numbers of a table, such as times in milliseconds, need doubles.
 * - form: an int that combines values of ls_output, such as LS_OUTPUT_PREDICTION | LS_OUTPUT_F64
 * - outputs, capacity: output buffer [n][ls_model_info.outputs] of float, or of double with
 *   LS_OUTPUT_F64; and its size in values
 *
 * With n = 0 the function only makes its checks, and opens a device if none is idle; `rows` and
 * `outputs` may be NULL. On the CPU, the other rows of the call do not
 * influence a row's outputs in any bit. On a GPU the outputs can differ by rounding if n differs.
 * The function allocates memory only when more threads predict at the same time than ever before.
 * Errors: LS_EINVAL (for example if `capacity` is too small, the form is unknown or the model does
 * not read the type), LS_EDATA (a value that the model does not know, and the model was trained
 * with data.unknown "error"), LS_ENOMEM, LS_ESYSTEM (no thread could be started), LS_EDEVICE,
 * LS_EUNSUPPORTED.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_predict(const ls_model *model, const void *rows, ls_row_type row_type, uint32_t n,
                     int form, void *outputs, size_t capacity, ls_error *err);

/* Kind of value of a field. */
typedef enum ls_field_kind {
    LS_FIELD_MISSING = 0, /* no value */
    LS_FIELD_NUMBER = 1,  /* `number`; NaN, and in a column of numbers inf, is a missing value */
    LS_FIELD_TEXT = 2     /* `text`, read as in the training table: with its decimal mark, so that
                           * "1,5" is 1.5 if that table had decimal commas, and its missing words */
} ls_field_kind;

/* One value of a table row, identified by the name of its column. */
typedef struct ls_field {
    const char *column; /* name of the column */
    ls_field_kind kind; /* which of the members below is the value */
    const char *text;   /* LS_FIELD_TEXT: the value as text, as in a CSV file */
    double number;      /* LS_FIELD_NUMBER: the value */
} ls_field;

/* Returns the number of columns that a model of a table reads; 0: the model was not trained on a
 * table, or `model` is NULL. Any thread. */
int ls_model_column_count(const ls_model *model);
/* Returns the name of column number `index`, in the order of the training table, or NULL if there
 * is none. The text lives as long as the model. Any thread. */
const char *ls_model_column_name(const ls_model *model, int index);

/* Converts the fields of a table row into one row for ls_model_predict.
 *
 * - fields, count: the values in any order, and their number. Each column of the model
 *   (ls_model_column_name) needs a field. Fields whose column the model does not read are ignored.
 * - field_size: sizeof(ls_field), the distance of the fields (status.h, "Sizes")
 * - row, capacity: output buffer, and its size in doubles. channels × height × width doubles are
 *   needed, as ls_model_describe reports them. The type of the row is LS_ROW_F64.
 *
 * A value that the model does not know (docs/data.md, "Unknown values") is marked in the row, for
 * example by NaN, and all outputs that ls_model_predict computes for the row are then NaN. A model
 * that was trained with data.unknown "zeros" or "error" encodes unknown texts as zeros, or refuses
 * them.
 *
 * Errors: messages name the column. LS_EDATA (no field has the name of a column that the model
 * reads, a text is not a number, or data.unknown is "error" and a value is unknown), LS_EINVAL (two
 * fields name the same column, a kind does not exist or has no text, `field_size` is no size, or
 * `capacity` is too small), LS_EUNSUPPORTED (the model was not trained on a table), LS_ENOMEM.
 * Threads: any thread, and any number of threads at the same time. */
int ls_model_row(const ls_model *model, const ls_field *fields, size_t count, size_t field_size,
                 double *row, size_t capacity, ls_error *err);

enum { LS_EVALUATION_METRICS = 16 }; /* largest number of metrics of an evaluation */

/* Result of an evaluation. */
typedef struct ls_evaluation {
    size_t size;        /* sizeof(ls_evaluation), set by the caller */
    uint64_t rows;      /* number of evaluated rows */
    double loss;        /* mean loss over the rows; NaN: all their weights are 0 */
    const char *metric; /* name of the main metric: "accuracy" (share of correct predictions), "r2",
                         * "mae", "huber", "pinball", "deviance" or "loss"; static */
    double metric_value; /* value of that metric */
    int metric_count;    /* number of measured metrics */
    /* [metric_count]: names of the measured metrics, as the config's metrics.names has them,
     * static, and their values; NaN: the metric has no value on these rows, such as the AUC of one
     * class */
    const char *metric_names[LS_EVALUATION_METRICS];
    double metric_values[LS_EVALUATION_METRICS];
    /* [metric_count]: if the rows have weights, the values with each row counted once; NaN: the
     * metric has none, such as the loss, or the rows have no weights */
    double unweighted_values[LS_EVALUATION_METRICS];
} ls_evaluation;

/* Rows in a file, for one model. */
typedef struct ls_rows ls_rows;

/* Options of ls_rows_open and ls_model_evaluate. */
typedef struct ls_rows_options {
    size_t size;    /* sizeof(ls_rows_options) */
    uint32_t limit; /* largest number of rows that are read from a table or an array; 0: all */
} ls_rows_options;

/* Reads rows for `model`, as `trainer predict` does: a table, an .npy or .npz file, an image file
 * or a folder of images. The rows keep a reference to the model until the caller closes them with
 * ls_rows_close. Images need liblockstep_picture, which is loaded. `options` may be NULL. Any
 * thread. Errors: messages name the file, and the line and column if there are any. LS_ENOENT,
 * LS_EIO, LS_EDATA, LS_EUNSUPPORTED (the model reads no such rows, or was made without a
 * description), LS_EINVAL, LS_ENOMEM. */
int ls_rows_open(ls_rows **out, ls_model *model, const char *path, const ls_rows_options *options,
                 ls_error *err);
/* Returns the number of rows. Any thread. */
uint32_t ls_rows_count(const ls_rows *rows);
/* Returns the file of an image, or NULL if the rows are not images. The text lives as long as the
 * rows. Any thread. */
const char *ls_rows_name(const ls_rows *rows, uint32_t row);
/* Returns why an image cannot be read, or NULL if it was read. The text lives as long as the rows.
 * Any thread. */
const char *ls_rows_why(const ls_rows *rows, uint32_t row);

/* Predicts `n` rows from number `first` on. `form`, `outputs` and `capacity` as in
 * ls_model_predict. The outputs of an image that cannot be read are NaN.
 * Errors: those of ls_model_predict; LS_EINVAL if there are no such rows.
 * Threads: any thread, and any number of threads at the same time. */
int ls_rows_predict(const ls_rows *rows, uint32_t first, uint32_t n, int form, void *outputs,
                    size_t capacity, ls_error *err);

/* Frees the rows. NULL is allowed. Any thread, while no other thread uses them. */
void ls_rows_close(ls_rows *rows);

/* Evaluates the model on the rows of a file that has the targets too, as `trainer eval --data`
 * does. If the rows of the training table had weights (data.weight), and the file has the column of
 * weights, its rows count as their weights. `options` may be NULL. The caller sets out->size. Any
 * thread.
 * Errors: those of ls_rows_open (the targets are missing, for example), LS_EDEVICE, LS_ESYSTEM. */
int ls_model_evaluate(const ls_model *model, const char *path, const ls_rows_options *options,
                      ls_evaluation *out, ls_error *err);

/* Writes the weights to `path` as a safetensors file with PyTorch's names of parameters. The file
 * appears completely or not at all. If `path` is a symbolic link, the file to which it leads is
 * created or replaced, and the link stays. Any thread. Errors: LS_EINVAL (no model or no path, or
 * the path leads to a device, a pipe, a socket or a directory, which is not replaced), LS_EIO,
 * LS_ENOMEM. */
int ls_model_save(const ls_model *model, const char *path, ls_error *err);

/* Writes the whole network to `path` as an ONNX file, as `trainer export` does: its inputs are rows
 * as they are in the user's data, its outputs logits and, if the model predicts classes,
 * probabilities, or with the loss "poisson" counts (docs/data.md). The file appears completely or
 * not at all. If `path` is a symbolic link, the file to which it leads is created or replaced, and
 * the link stays. Any thread. Errors: LS_EINVAL (no model or no path, or the path leads to a
 * device, a pipe, a socket or a directory, which is not replaced), LS_EUNSUPPORTED (the file would
 * have 2 GB or more, or a layer has no operator in ONNX), LS_EIO, LS_ENOMEM. */
int ls_model_export(const ls_model *model, const char *path, ls_error *err);

/* Returns the description of the model that its file contains, a JSON text (see docs/data.md), or
 * NULL if the file contains none. The text lives as long as the model. Any thread. */
const char *ls_model_card(const ls_model *model);

/* Returns the name of class number `index`, or NULL if the class has no name. The text lives as
 * long as the model. Any thread. */
const char *ls_model_class_name(const ls_model *model, int index);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
