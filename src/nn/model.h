/* The model: an immutable graph of layers with their shapes and tensors.
 *
 * A model is parsed once, before any worker starts. After that all threads read it, and no thread
 * changes it. A model has no device and no weights: a replica has them (replica.h). Layers are in
 * topological order: each reads only layers before it. The parser expands the blocks of the JSON
 * (blocks.c), so a model contains layers only.
 *
 * A tensor is either a parameter, which the optimizer changes, or a running statistic, which batch
 * norm collects. The canonical weights are an array of floats with all tensors one after another:
 * layer by layer, and in each layer weight, bias, running_mean, running_var. Each tensor is
 * row-major, as PyTorch stores it. */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "json/json.h"

#include <lockstep/sys/plugin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_shape {
    int c, h, w; /* a vector of n features is n × 1 × 1 */
} ls_shape;

/* Initial contents of a tensor. */
typedef enum ls_start {
    LS_START_DRAWN, /* drawn by the initialiser's rule */
    LS_START_ZEROS,
    LS_START_ONES
} ls_start;

/* One tensor. */
typedef struct ls_param {
    char name[80]; /* "<layer>.weight", as PyTorch's state_dict names it */
    int rank;      /* number of dimensions, at most 4 */
    int dim[4];    /* [rank] */
    size_t count;  /* number of elements: product of dim */
    size_t offset; /* index of its first float in the canonical array */
    ls_start start;
    int fan_in, fan_out; /* numbers of inputs and outputs, for the initialisers' rules */
    float rate;          /* factor of the learning rate; 0: the parameter is frozen */
} ls_param;

typedef struct ls_layer_type ls_layer_type;
struct ls_fields; /* json/fields.h */

#define LS_SAMPLE_CLASSES 3
#define LS_INPUTS 2   /* largest number of inputs of a layer */
#define LS_INPUT (-1) /* stands for the minibatch as a layer's input */
#define LS_STATS 2    /* running mean and running variance */

typedef struct ls_layer {
    const ls_layer_type *type;
    /* Name from the JSON. Without one it is the layer's index in its list, as in PyTorch's
     * nn.Sequential. The name of a layer in a block begins with the name of the use of the block
     * and a dot. */
    char name[64];
    int index;            /* index in the model */
    int classes;          /* number of classes or targets of the data */
    bool last;            /* the last layer of the model's own list, not of a block */
    int inputs;           /* number of inputs: 1, or 2 if the type's parse() sets it; the second
                           * one is "with" in the JSON */
    int input[LS_INPUTS]; /* indices of the layers whose outputs it reads, or LS_INPUT */
    ls_shape in, out;     /* shapes of the first input and of the output */
    ls_shape in2;         /* shape of the second input */
    ls_shape y;           /* shape of the output in memory: still an image if flatten made `out` a
                           * vector */
    int flat;             /* `in` is a vector, but an image in memory */
    bool same_shape;      /* the op keeps shape and memory layout (ls_layer_same_shape) */
    ls_op_desc op;        /* kind and constants; kind 0: no op, the output is the input tensor */
    int params;           /* number of parameters */
    ls_param param[LS_OP_PARAMS];
    int stats; /* 0 or LS_STATS; only LS_OP_BATCHNORM has statistics */
    ls_param stat[LS_STATS];
    float momentum; /* weight of a step's own statistics in the running statistics */
} ls_layer;

/* A layer type. To add one, add a file that defines it and a row to layers.def. */
struct ls_layer_type {
    const char *name; /* value of "type" in the JSON */
    ls_op_kind kind;  /* kind of layer->op; 0: no op, the output is the input tensor */
    /* Reads the keys that only this type has from `fields` into layer->op, and sets layer->inputs
     * to 2 if the layer has two inputs. Errors are stored in the fields. NULL: the type has no such
     * keys. */
    void (*parse)(ls_layer *layer, struct ls_fields *fields);
    /* Computes layer->out and the tensors' shapes, fans and starts from layer->in (and in2). The
     * caller fills in names and offsets. Errors: LS_ECONFIG for a shape that does not fit; the
     * caller prefixes the message with file, position and the layer's name. */
    int (*shape)(ls_layer *layer, ls_error *err);
    /* Models for the generic gradient check. Each is a JSON list of layers in which this type
     * occurs; it takes the given input and returns a vector of LS_SAMPLE_CLASSES features. The last
     * entry has layers == NULL. */
    const struct ls_layer_sample {
        const char *layers;
        ls_shape input;
    } * samples;
};

/* Limits of a model. A larger one is refused, so that no product of sizes can overflow. */
#define LS_MODEL_LAYERS 1000        /* number of layers */
#define LS_MODEL_FLOATS 2147483647u /* number of parameters and statistics */
#define LS_MODEL_VALUES (1 << 28)   /* number of values of one layer's output, per row */

typedef struct ls_model {
    char name[64];
    ls_shape input;
    int classes;
    int layers;
    ls_layer *layer;
    int params;
    const ls_param **param; /* all parameters in model order; at least one */
    int stats;
    const ls_param **stat;   /* all running statistics in model order */
    const ls_param **tensor; /* both (params + stats), in canonical order */
    size_t parameters;       /* total number of floats that are learnt */
    size_t floats;           /* length of the canonical array in floats, running
                                statistics included */
    char *card;              /* metadata for files of this model; owned; NULL: none */
} ls_model;

/* Parses {"name": …, "blocks": {…}, "layers": […]}. `input` and `classes` come from the dataset.
 * The last layer must output a vector of `classes` features; its "out" may be omitted. The
 * caller destroys *out. Errors: LS_ECONFIG, with file, position and layer (for a layer of a
 * block also the position where the block is used); LS_EINVAL for an impossible `input` or
 * `classes`; LS_ENOMEM. */
int ls_model_parse(ls_model **out, const ls_json *doc, const cJSON *node, ls_shape input,
                   int classes, const ls_host *host, ls_error *err);
/* Sets parameters' learning-rate factors by patterns of names, in which '*' stands for any
 * characters. Call it before the model is shared. `freeze`: a pattern or an array of patterns;
 * `factors`: an object that maps patterns to numbers; both may be NULL. If several patterns match a
 * parameter, the last one counts, and `freeze` comes after `factors`. Errors: LS_ECONFIG if a
 * pattern matches no parameter or all are frozen. */
int ls_model_set_rates(ls_model *model, const ls_json *doc, const cJSON *freeze,
                       const cJSON *factors, ls_error *err);
/* Returns whether the layer has a parameter that is not frozen (rate other than 0). */
bool ls_layer_learns(const ls_layer *layer);
/* Frees the model. NULL is allowed. No thread may use it any more. */
void ls_model_destroy(ls_model *model, const ls_host *host);

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
/* Reads the keys "name" and "std" from an object that may have others. If `optional`, the name
 * defaults to "normal" if "std" is given and to "kaiming" otherwise. Errors go to the fields. */
void ls_init_read(ls_init *out, struct ls_fields *fields, bool optional);
/* Returns the name of a rule in configs. The text is static. */
const char *ls_init_name(ls_init_rule rule);

/* Fills `canonical` (model->floats floats). Each weight of a tensor with LS_START_DRAWN depends
 * only on (seed, stream LS_STREAM_INIT + index of the parameter, index of the element). All other
 * tensors are set to zeros or ones.
 * Normal: N(0, σ²). Xavier: uniform ±√(6/(fan_in + fan_out)). Kaiming: N(0, 2/fan_in). */
void ls_init_weights(float *canonical, const ls_model *model, const ls_init *init, uint64_t seed);

#endif
