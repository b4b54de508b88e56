/* SPDX-License-Identifier: MIT */
/* Writes a trained model to a file for other programs: its weights as a safetensors file, or the
 * whole network as an ONNX file. The user has named the file: symbolic links are followed
 * (ls_follow_links), and an existing file is replaced only when the new one is complete. */
#ifndef MODEL_EXPORT_H
#define MODEL_EXPORT_H

#include "model/trained.h"

/* Facts about the file that was written. */
typedef struct ls_exported {
    uint64_t bytes;        /* size of the file */
    int tensors;           /* number of tensors in a safetensors file */
    int ir_version, opset; /* versions of the ONNX file; 0: it is a safetensors file */
} ls_exported;

/* Writes the weights, in the canonical layout (nn/network.h), the number of training steps
 * (LS_STEPS_UNKNOWN: not known) and the model's card. Errors: those
 * of ls_follow_links, LS_EIO, LS_ENOMEM. */
int ls_export_weights(const char *path, const ls_network *model, const float *weights,
                      uint64_t steps, const ls_host *host, ls_error *err);
/* Reads the number of training steps from a file of weights or a checkpoint. LS_STEPS_UNKNOWN: the
 * file does not have it. Errors: LS_EDATA, LS_ENOMEM. */
int ls_steps_of_file(uint64_t *steps, const ls_tensor_file *file, const ls_host *host,
                     ls_error *err);
/* Writes the network. `config` has the loss, the preprocessing and the name of the graph, which the
 * model's name replaces; `prep` may be NULL. Errors: those of ls_onnx_save and ls_follow_links. */
int ls_export_onnx(const char *path, const ls_network *model, const float *weights,
                   const ls_config *config, const ls_prep *prep, const ls_host *host,
                   ls_error *err);

/* Writes an opened model; `path` ends in .onnx or .safetensors, which decides the format. Errors:
 * those of the two functions above. */
int ls_trained_export(ls_exported *out, const ls_trained *trained, const char *path, ls_error *err);

/* Writes the file of weights of an opened model again, with a threshold in its card. Errors:
 * LS_EUNSUPPORTED (the file is a checkpoint, or does not describe its model), those of
 * ls_export_weights. */
int ls_trained_keep_threshold(const ls_trained *trained, double threshold, ls_error *err);

#endif
