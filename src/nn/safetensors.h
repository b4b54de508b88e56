/* SPDX-License-Identifier: MIT */
/* The weights of a model, and other arrays with one number per weight, in safetensors files
 * (formats/safetensors.h). model.h explains the terms tensor, parameter, running statistic and
 * canonical weights. */
#ifndef NN_SAFETENSORS_H
#define NN_SAFETENSORS_H

#include "formats/safetensors.h"
#include "nn/network.h"

/* A *set* of tensors: an array with the layout of the canonical weights (model->floats floats), and
 * the prefix of its tensors' names in the file. The prefix "" is for the weights, running
 * statistics included. Any other prefix, such as "optimizer/momentum/", is for an array with one
 * number per element of each parameter: "optimizer/momentum/conv1.weight" and so on. It has no
 * running statistics: their positions in `values` are neither written nor read. */
typedef struct ls_tensors_out {
    const char *prefix;
    const float *values;
} ls_tensors_out;

typedef struct ls_tensors_in {
    const char *prefix;
    float *values;
} ls_tensors_in;

#define LS_STEPS_UNKNOWN UINT64_MAX

/* ---- saving --------------------------------------------------------------------------------- */

/* Writes the canonical weights as fp32 tensors under their names. The file is written under a
 * temporary name and renamed to `path` when complete. Therefore a failure leaves the former file as
 * it is. `steps`: number of training steps, which is stored too; LS_STEPS_UNKNOWN: not known. The
 * file has a checksum, as ls_tensor_notes describes it.
 * Errors: LS_EIO, with the path and the operating system's reason; LS_ENOMEM. Any thread. */
int ls_safetensors_save(const char *path, const ls_network *model, const float *canonical,
                        uint64_t steps, const ls_host *host, ls_error *err);
/* Computes the SHA-256 of the file that ls_safetensors_save would write, as 64 hexadecimal digits
 * and a zero byte. `checksum` false: of the same file without a checksum, as earlier versions wrote
 * it. Errors: LS_ENOMEM. Any thread. */
int ls_safetensors_sha256(char out[65], const ls_network *model, const float *canonical,
                          uint64_t steps, bool checksum, const ls_host *host, ls_error *err);

/* Writes `sets`, which have different prefixes, one after another as the contents of a file that
 * the caller opens and finishes. A prefix other than "" must contain a '/', because the names of
 * layers contain none. `state`: text that is stored together with a checksum of the file; NULL: no
 * text and no checksum is stored. The header's metadata are then {"sha256": digest of the whole
 * file with zeros in place of these digits, "format": "pt", "lockstep": state}, and
 * "lockstep_model": model->card, if it is not NULL. Errors: LS_EIO, LS_ENOMEM. */
int ls_safetensors_write(ls_file_writer *w, const ls_network *model, const ls_tensors_out *sets,
                         int count, const char *state, const ls_host *host, ls_error *err);

/* ---- loading -------------------------------------------------------------------------------- */

/* Reads every tensor of the model from a file into the canonical array. The number formats F16 and
 * BF16 are converted to F32. `prefix`: as in ls_tensors_in. Tensors that the model does not have
 * are ignored, because the file can come from another program. Errors: LS_EIO, LS_EDATA,
 * LS_ENOMEM. */
int ls_safetensors_read(float *canonical, const ls_tensor_file *file, const ls_network *model,
                        const char *prefix, const ls_host *host, ls_error *err);
/* Opens a file, reads it with ls_safetensors_read, and closes it. Errors: LS_ENOENT, and those of
 * ls_safetensors_read. */
int ls_safetensors_load(float *canonical, const char *path, const ls_network *model,
                        const char *prefix, const ls_host *host, ls_error *err);

/* Reads the tensors whose name and shape the model has. The other tensors of `canonical` keep their
 * contents. Logs a line for each tensor of the model that was not read, and for each tensor of the
 * file that was not used. Errors: those of ls_safetensors_read, and LS_EDATA if no tensor fits. */
int ls_safetensors_read_fitting(float *canonical, const ls_tensor_file *file,
                                const ls_network *model, const ls_host *host, ls_error *err);

/* Reads the number of training steps from a file of ls_safetensors_save. LS_STEPS_UNKNOWN: the file
 * does not have it. Errors: LS_EDATA. */
int ls_safetensors_read_steps(uint64_t *steps, const ls_tensor_file *file, ls_error *err);

/* Reads exactly what ls_safetensors_write has written: the file must contain all tensors of the
 * sets, as F32, and no others. After a failure the contents of `values` are undefined. Errors:
 * those of ls_safetensors_read. */
int ls_safetensors_read_sets(const ls_tensors_in *sets, int count, const ls_tensor_file *file,
                             const ls_network *model, const ls_host *host, ls_error *err);

/* Computes the SHA-256 digest of the canonical weights in model order (row-major little-endian
 * fp32). `out`: 64 hexadecimal digits and a zero byte. */
void ls_weights_sha256(char out[65], const ls_network *model, const float *canonical);

#endif
