/* SPDX-License-Identifier: MIT */
/* The model: an immutable graph of layers with their shapes and tensors.
 *
 * A model is parsed once, before any worker starts. After that all threads may read the model, and
 * no thread changes it. A model has no device and no weights; a replica (replica.h) is a model with
 * a device and weights. Layers are in topological order: a layer reads only outputs of layers
 * before it. The parser expands the blocks of the JSON (blocks.c), so a model contains layers only.
 *
 * A *tensor* of a model is a named array in its weight files. It is either a *parameter*, which the
 * optimizer changes, or a *running statistic*, which batch norm collects. The *canonical* weights
 * are an array of floats with all tensors one after another: layer by layer, and in each layer
 * weight, bias, running_mean, running_var. Each tensor is row-major, as PyTorch stores it. */
#ifndef NN_NETWORK_H
#define NN_NETWORK_H

#include "json/json.h"

#include <lockstep/sys/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_shape {
    int c, h, w; /* a vector of n features is n × 1 × 1 */
} ls_shape;

/* Initial values of a tensor. */
typedef enum ls_start {
    LS_START_DRAWN, /* random values by the rule of the initialiser (ls_init) */
    LS_START_ZEROS,
    LS_START_ONES
} ls_start;

/* One tensor: a parameter or a running statistic. */
typedef struct ls_param {
    char name[80]; /* such as "conv1.weight": name of the layer, dot, kind of tensor, as in
                    * PyTorch's state_dict */
    int rank;      /* number of dimensions, at most 4 */
    int dim[4];    /* [rank] */
    size_t count;  /* number of elements: product of dim */
    size_t offset; /* index of its first float in the canonical weights */
    ls_start start;
    /* number of inputs and outputs of one neuron or filter, for the initialiser's rule */
    int fan_in, fan_out;
    /* factor of the learning rate; 0: the parameter is frozen, that is, not trained */
    float rate;
} ls_param;

typedef struct ls_layer_type ls_layer_type;
struct ls_fields; /* json/fields.h */

#define LS_SAMPLE_CLASSES 3
#define LS_INPUTS 2   /* largest number of inputs of a layer */
#define LS_INPUT (-1) /* as a layer's input, stands for the rows of the minibatch */
#define LS_STATS 2    /* running mean and running variance */

typedef struct ls_layer {
    const ls_layer_type *type;
    /* Name from the JSON. Without a name in the JSON it is the layer's index in its list, as in
     * PyTorch's nn.Sequential. If the layer belongs to a block (blocks.c), the name begins with a
     * prefix: the name of the use of the block, and a dot. */
    char name[64];
    int index;   /* index in the model */
    int classes; /* number of classes or targets of the data */
    bool last;   /* the last layer of the model's own list, not of a block */
    /* number of inputs: 1 or 2. The function `parse` of the layer type sets 2; the second input is
     * "with" in the JSON */
    int inputs;
    int input[LS_INPUTS]; /* indices of the layers whose outputs this layer reads, or LS_INPUT */
    ls_shape in, out;     /* shapes of the first input and of the output */
    ls_shape in2;         /* shape of the second input */
    /* shape of the output in memory. It differs from `out` after a flatten layer: `out` is then a
     * vector, but y is still the shape of the image, because a flatten layer moves nothing. */
    ls_shape y;
    /* not 0: `in` is the shape of a vector that a flatten layer made; in memory the input is still
     * an image */
    int in_is_flattened;
    bool same_shape; /* the op keeps shape and memory layout (ls_layer_same_shape) */
    /* kind and constants of the layer's op; kind 0: the layer has no op, and its output is its
     * input */
    ls_op_desc op;
    int params; /* number of parameters */
    ls_param param[LS_OP_PARAMS];
    int stats; /* 0 or LS_STATS; only LS_OP_BATCHNORM has statistics */
    ls_param stat[LS_STATS];
    float momentum; /* weight of one step's statistics in the running statistics */
} ls_layer;

/* A layer type. To add one, add a file that defines it and a row to layers.def. */
struct ls_layer_type {
    const char *name; /* value of "type" in the JSON */
    /* kind of layer->op; 0: layers of this type have no op, and their output is their input */
    ls_op_kind kind;
    /* Reads the keys that only this type has from `fields` into layer->op, and sets layer->inputs
     * to 2 if the layer has two inputs. Errors are stored in `fields`. NULL: the type has no keys
     * of its own. */
    void (*parse)(ls_layer *layer, struct ls_fields *fields);
    /* Computes layer->out, and the shapes, initial values, fan_in and fan_out of the layer's
     * tensors, from layer->in and layer->in2. The caller sets the names and offsets of the tensors.
     * Errors: LS_ECONFIG for a shape that does not fit; the caller prefixes the message with file,
     * position and the layer's name. */
    int (*shape)(ls_layer *layer, ls_error *err);
    /* Models for the gradient check of the tests. `layers` is a JSON list of layers in which this
     * type occurs. The layers compute a vector of LS_SAMPLE_CLASSES features from an input of the
     * shape `input`. The last entry has layers == NULL. */
    const struct ls_layer_sample {
        const char *layers;
        ls_shape input;
    } * samples;
};

/* Limits of a model. A larger model is refused, so that no product of sizes can overflow. */
#define LS_MODEL_LAYERS 1000        /* number of layers */
#define LS_MODEL_FLOATS 2147483647u /* number of floats in the canonical weights */
#define LS_MODEL_VALUES (1 << 28)   /* number of values in one layer's output for one row */

typedef struct ls_network {
    char name[64];
    ls_shape input;         /* shape of a row */
    int classes;            /* number of classes or targets of the data */
    int layers;             /* number of layers */
    ls_layer *layer;        /* [layers] in topological order */
    int params;             /* number of parameters */
    const ls_param **param; /* [params] all parameters in the order of the layers; at least one */
    int stats;
    const ls_param **stat;   /* [stats] all running statistics in the order of the layers */
    const ls_param **tensor; /* [params + stats] all tensors, in canonical order */
    size_t parameters;       /* number of floats in all parameters together; `params` is the number
                              * of these arrays */
    /* number of floats in the canonical weights, running statistics included */
    size_t floats;
    /* description of the model for its weight files, JSON text (config/card.h), which the model
     * owns; NULL: none */
    char *card;
} ls_network;

/* Parses {"name": …, "blocks": {…}, "layers": […]}. `input` and `classes` come from the dataset.
 * The key "input", [channels, height, width], must equal `input`; "source" says where a model comes
 * from and is not read here (onnx/import.h).
 * The last layer must output a vector of `classes` features; its "out" may be omitted. The
 * caller destroys *out. Errors: LS_ECONFIG, with file, position and layer (for a layer of a
 * block also the position where the block is used); LS_EINVAL for an impossible `input` or
 * `classes`; LS_ENOMEM. */
int ls_network_parse(ls_network **out, const ls_json *doc, const cJSON *node, ls_shape input,
                     int classes, const ls_host *host, ls_error *err);
/* Checks a model whose data is not known: the keys of its layers, and the names by which layers
 * refer to each other, as ls_network_parse does and with the same messages. Shapes are not checked.
 * Errors: LS_ECONFIG, LS_ENOMEM. */
int ls_network_check(const ls_json *doc, const cJSON *node, const ls_host *host, ls_error *err);
/* Sets the learning-rate factors of parameters by patterns of names, in which '*' stands for any
 * characters. Must be called before other threads use the model. `freeze`: a pattern or an array of
 * patterns; `factors`: an object that maps patterns to numbers; both may be NULL. If several
 * patterns match a parameter, the last pattern counts; the patterns of `freeze` come after the
 * patterns of `factors`. A pattern of `freeze` that begins with '!' gives the parameters back the
 * factor that they have without `freeze`. Errors: LS_ECONFIG if a pattern matches no parameter or
 * if all parameters are frozen; LS_ENOMEM. */
int ls_network_set_rates(ls_network *model, const ls_json *doc, const cJSON *freeze,
                         const cJSON *factors, const ls_host *host, ls_error *err);
/* Returns whether the layer has a parameter that is trained (whose rate is not 0). */
bool ls_layer_learns(const ls_layer *layer);
/* Frees the model. NULL is allowed. No thread may use it any more. */
void ls_network_destroy(ls_network *model, const ls_host *host);

/* Returns the layer types in the order of layers.def, NULL-terminated. */
const ls_layer_type *const *ls_layer_types(void);

/* ---- initial weights ------------------------------------------------------------------------ */

typedef enum ls_init_rule { LS_INIT_NORMAL, LS_INIT_XAVIER, LS_INIT_KAIMING } ls_init_rule;

typedef struct ls_init {
    ls_init_rule rule;
    float std; /* standard deviation, for LS_INIT_NORMAL only */
} ls_init;

/* Reads "normal" (σ = 0.01), "xavier" or "glorot", "kaiming" or "he", or {"name": "normal", "std":
 * 0.01}. A NULL node means "kaiming". Errors: LS_ECONFIG. */
int ls_init_parse(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err);
/* Reads the keys "name" and "std" of an object that may have other keys as well. `optional`: the
 * key "name" may be absent. An absent name means "normal" if "std" is given, and "kaiming"
 * otherwise. Errors are stored in `fields`. */
void ls_init_read(ls_init *out, struct ls_fields *fields, bool optional);
/* Returns the name of a rule in configs. The text is static. */
const char *ls_init_name(ls_init_rule rule);

/* Fills `canonical` (model->floats floats). Each weight of a tensor with LS_START_DRAWN depends
 * only on (seed, stream LS_STREAM_INIT + index of the parameter, index of the element). All other
 * tensors are set to zeros or ones.
 * Normal: N(0, σ²). Xavier: uniform ±√(6/(fan_in + fan_out)). Kaiming: N(0, 2/fan_in). */
void ls_init_weights(float *canonical, const ls_network *model, const ls_init *init, uint64_t seed);

#endif
