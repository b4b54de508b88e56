/* SPDX-License-Identifier: MIT */
/* Reads a model and its weights from an ONNX file, so that they can be trained on.
 *
 * The way of a file through the sources:
 *
 *  1. bytes → lists of nodes, attributes, tensors, inputs and outputs (read.h). Nothing is
 *     believed: counts and sizes are limited, and external data (tensors in other files) must be in
 *     the directory of the file or below it.
 *  2. The nodes on which the output depends are visited in order (import.c). Each name of a tensor
 *     stands for a *value* (importer.h): a constant, or the output of a layer with a view, the
 *     shape in which the graph sees it. The number of rows is a symbol, whether the file has it
 * free or fixed. So shapes, and all that is computed from them, are folded to constants
 *     (import_fold.c), and nodes that only reshape change a view and move nothing (import_view.c).
 *  3. Nodes that compute value by value may be parts of one layer that is written out, such as
 *     x · clip(x + 3, 0, 6) / 6. Their outputs are formulas over the output of a layer
 *     (import_form.c), which become layers only if something else needs the result
 *     (import_settle.c). So it does not matter in which order the factors of the formula were
 *     written.
 *  4. All other nodes become layers (import_layers.c): the JSON object of a config's `model`
 *     (docs/layers.md) and an array with their weights in the order of the canonical weights
 *     (import_net.c). From here on the model is like one of the user's own.
 *
 * Every attribute and every input of a node is either taken into account or refused. A message
 * names the file and the node, its operator and the attribute, and what is read instead. */
#ifndef ONNX_IMPORT_H
#define ONNX_IMPORT_H

#include "nn/network.h"
#include "prep/resize.h"

/* Versions of the standard operators that are read. */
enum { LS_ONNX_OPSET_LEAST = 9, LS_ONNX_OPSET_MOST = 27 };

/* The file to read, and how. */
typedef struct ls_onnx_source {
    const char *path;
    const char *output; /* name of the tensor that the last layer gives; NULL: the only output */
    ls_shape input;     /* shape of a row where the file leaves it open; zeros: not given */
    /* the last layer with weights is left without them, and gets as many outputs as the data have
     * classes */
    bool new_head;
} ls_onnx_source;

/* How bytes become the rows of a network, in a file that `trainer export` wrote. */
typedef struct ls_onnx_rows {
    bool known;            /* false: the file does not say it */
    float mean[4], std[4]; /* scale of each channel, for bytes / 255 */
    ls_prep_resize resize; /* resizing of pictures; all 0: they cover the row's height and width */
} ls_onnx_rows;

/* Contents of a file. */
typedef struct ls_onnx_about {
    ls_shape input;  /* shape of a row */
    int layers;      /* number of layers */
    int outputs;     /* number of values that the file's network gives for a row */
    size_t weights;  /* number of weights that were read */
    bool norms;      /* a layer is a batch norm, with running statistics */
    char head[64];   /* name of the last layer with weights */
    size_t left_out; /* number of weights of that layer, if new_head left them out; otherwise 0 */
    ls_onnx_rows rows;
} ls_onnx_about;

/* A model that was read, with its weights. */
typedef struct ls_onnx_net ls_onnx_net;

/* Reads a file. The caller destroys *out. Errors: LS_ENOENT, LS_EIO, LS_ENOMEM; LS_EDATA (the file
 * is damaged, or contradicts itself); LS_EUNSUPPORTED (something that is not read); LS_ECONFIG
 * (source->input or source->output does not fit). Any thread. */
int ls_onnx_import(ls_onnx_net **out, const ls_onnx_source *source, const ls_host *host,
                   ls_error *err);
/* Returns the model as JSON: an object with "name", "input", "layers", and "source", which has the
 * SHA-256 of the file and its metadata. The text belongs to `net`. */
const char *ls_onnx_net_text(const ls_onnx_net *net);
/* Parses this text. Messages about the document name the nodes of the file. The caller destroys
 * *doc. Errors: LS_ENOMEM. */
int ls_onnx_net_parse(ls_json **doc, const ls_onnx_net *net, ls_error *err);
/* Returns what was read. It belongs to `net`. */
const ls_onnx_about *ls_onnx_net_about(const ls_onnx_net *net);
/* Copies the weights to `canonical` [model->floats]; those of a new head keep their values. `model`
 * was parsed from the JSON. Errors: LS_EDATA if the model has another number of weights. */
int ls_onnx_net_load(float *canonical, const ls_onnx_net *net, const ls_network *model,
                     ls_error *err);
/* Frees the model. NULL is allowed. */
void ls_onnx_net_destroy(ls_onnx_net *net);

#endif
