/* The safetensors file format: named tensors behind a JSON header.
 * Source: the format's description in its reference implementation (8-byte little-endian header
 * length, JSON header with dtype, shape and data_offsets, then the data without gaps).
 */
#ifndef NN_SAFETENSORS_H
#define NN_SAFETENSORS_H

#include "nn/model.h"

/* Writes the canonical weights as fp32 tensors under their names. The file is written
 * beside `path` and renamed when complete, so that a failure leaves what was there before.
 * Errors: LS_EIO, naming the path and the operating system's reason. Any thread. */
int ls_safetensors_save(const char *path, const ls_model *model, const float *canonical,
                        const ls_host *host, ls_error *err);

/* Reads every tensor of the model from a file (F32, or F16 widened) into the canonical array.
 * `prefix` is put before each name ("grad."), "" for none; with a prefix only parameters are read,
 * since running statistics have no gradients. Tensors the model does not have are
 * ignored. Errors: LS_ENOENT; LS_EIO; LS_EDATA with file, offset, what was expected. */
int ls_safetensors_load(float *canonical, const char *path, const ls_model *model,
                        const char *prefix, const ls_host *host, ls_error *err);

/* SHA-256 over the canonical weights in model order (row-major little-endian fp32), as 64
 * hexadecimal digits and a zero. */
void ls_weights_sha256(char out[65], const ls_model *model, const float *canonical);

#endif
