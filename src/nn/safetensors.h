/* The weights of a model, and what each of its parameters has one of, in safetensors files (formats/safetensors.h). */
#ifndef NN_SAFETENSORS_H
#define NN_SAFETENSORS_H

#include "formats/safetensors.h"
#include "nn/model.h"

/* Numbers that lie like the canonical weights (model->floats of them), and the name they go by.
 * With prefix "" they are the weights, running statistics included. With another, "momentum." say,
 * they are something each parameter has one of (gradients, an optimizer's slot); the tensors are
 * called "momentum.conv1.weight" and so on, and running statistics, which have none, are neither
 * written nor read: their places in `values` are left alone. */
typedef struct ls_tensors_out {
    const char *prefix;
    const float *values;
} ls_tensors_out;

typedef struct ls_tensors_in {
    const char *prefix;
    float *values;
} ls_tensors_in;

/* ---- saving --------------------------------------------------------------------------------- */

/* Writes the canonical weights as fp32 tensors under their names. The file is written
 * beside `path` and renamed when complete, so that a failure leaves what was there before.
 * Errors: LS_EIO, naming the path and the operating system's reason; LS_ENOMEM. Any thread. */
int ls_safetensors_save(const char *path, const ls_model *model, const float *canonical,
                        const ls_host *host, ls_error *err);

/* Writes `groups` with different prefixes, one after another, as the contents of a file, which the
 * caller opens and finishes. Beside the weights, whose prefix is "", a prefix has a '/' in it: names of
 * layers have none. With `state`, a text, the file can prove that it is whole: the header's metadata are
 * {"sha256": of the whole file with zeros for these digits, "format": "pt", "lockstep": state}, and
 * "lockstep_model": the model's card, where it has one. Errors: LS_EIO, LS_ENOMEM. */
int ls_safetensors_write(ls_file_writer *w, const ls_model *model, const ls_tensors_out *groups,
                         int count, const char *state, const ls_host *host, ls_error *err);

/* ---- loading -------------------------------------------------------------------------------- */

/* Reads every tensor of the model from a file (F32, or F16 and BF16 widened) into the canonical array.
 * `prefix` as above. Tensors the model does not have are ignored: this is for files of other
 * people; one that was written with a state is verified first. Errors: LS_ENOENT; LS_EIO; LS_EDATA with file, offset, what was expected; LS_ENOMEM. */
int ls_safetensors_load(float *canonical, const char *path, const ls_model *model,
                        const char *prefix, const ls_host *host, ls_error *err);

/* Reads the tensors that have a name and a shape of the model's, and leaves the others' places alone; the
 * host's log has a line for each tensor of the model that was not taken, and of the file that was not used.
 * Errors: as above, and LS_EDATA when none fits. */
int ls_safetensors_load_fitting(float *canonical, const char *path, const ls_model *model,
                                const ls_host *host, ls_error *err);

/* Reads back exactly what ls_safetensors_write wrote: all groups' tensors must be there, as F32,
 * and no others. What `values` hold after a failure is undefined. Errors as ls_safetensors_load. */
int ls_safetensors_load_groups(const ls_tensors_in *groups, int count, const char *path,
                               const ls_model *model, const ls_host *host, ls_error *err);

/* SHA-256 over the canonical weights in model order (row-major little-endian fp32), as 64
 * hexadecimal digits and a zero. */
void ls_weights_sha256(char out[65], const ls_model *model, const float *canonical);

#endif
