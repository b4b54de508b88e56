/* The model: an immutable list of layers with their shapes and parameters.
 *
 * A model is parsed once, before any worker starts, and then only read, by every thread. It knows
 * no device and holds no weights: a replica does. Canonical weights are a plain array of floats,
 * the parameters one after another in model order, each row-major (as PyTorch stores it).
 */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "json/json.h"

#include <lockstep/plugin.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_shape {
    int c, h, w; /* a vector of n features is n × 1 × 1 */
} ls_shape;

/* One parameter tensor. */
typedef struct ls_param {
    char name[80]; /* "<layer>.weight", "<layer>.bias": as PyTorch's state_dict names them */
    int rank;
    int dim[4];
    size_t count;        /* product of dim */
    size_t offset;       /* of its first float in the canonical array */
    int bias;            /* starts at zero whatever the initialiser */
    int fan_in, fan_out; /* for Xavier's and Kaiming's rules */
} ls_param;

typedef struct ls_layer_type ls_layer_type;
struct ls_fields; /* json/fields.h */

#define LS_SAMPLE_CLASSES 3
#define LS_INPUT (-1) /* as a layer's input: the minibatch itself */

typedef struct ls_layer {
    const ls_layer_type *type;
    char name[64]; /* from the JSON, or its index in the list, as nn.Sequential does */
    int input;     /* the layer whose output it reads, or LS_INPUT */
    ls_shape in, out;
    ls_shape y;    /* `out` as it lies in memory: an image where flatten made it a vector */
    int flat;      /* `in` is a vector, but lies in memory as an image */
    ls_op_desc op; /* kind and constants; kind 0: no op, the tensor passes as it is */
    int params;
    ls_param param[LS_OP_PARAMS];
} ls_layer;

/* A row of layers.def. Adding a layer is one file that defines one of these, plus its row. */
struct ls_layer_type {
    const char *name; /* the JSON "type" */
    /* Reads the layer's own keys from `fields` into layer->op. Errors go to the fields. */
    void (*parse)(ls_layer *layer, struct ls_fields *fields);
    /* layer->in is set: computes layer->out, and the parameters' shapes and fans (names, counts
     * and offsets are filled by the caller). A shape that does not fit is LS_ECONFIG; the message
     * is prefixed with file, position and the layer's name by the caller. */
    int (*shape)(ls_layer *layer, ls_error *err);
    /* For the generic gradient check: models to try it in, each a JSON layer list in which this
     * type occurs, which takes the given input and gives a vector of LS_SAMPLE_CLASSES features;
     * NULL-terminated by layers == NULL. */
    const struct ls_layer_sample {
        const char *layers;
        ls_shape input;
    } * samples;
};

/* Sizes beyond these are refused, so that no product of sizes can overflow. */
#define LS_MODEL_LAYERS 1000        /* layers */
#define LS_MODEL_FLOATS 2147483647u /* parameters */
#define LS_MODEL_VALUES (1 << 28)   /* of one layer's output, per row */

typedef struct ls_model {
    char name[64];
    ls_shape input;
    int classes;
    int layers;
    ls_layer *layer;
    int params;
    const ls_param **param; /* all parameters in model order; at least one */
    size_t floats;          /* of the canonical array */
} ls_model;

/* Parses {"name": …, "layers": […]}. `input` and `classes` come from the dataset; the last layer
 * must give a vector of `classes` features. Errors: LS_ECONFIG, naming file, position and layer. */
int ls_model_parse(ls_model **out, const ls_json *doc, const cJSON *node, ls_shape input,
                   int classes, const ls_host *host, ls_error *err);
void ls_model_destroy(ls_model *model, const ls_host *host); /* NULL is allowed */

/* The layer types in the order of layers.def, NULL-terminated. */
const ls_layer_type *const *ls_layer_types(void);

/* ---- initial weights ------------------------------------------------------------------------ */

typedef enum ls_init_rule { LS_INIT_NORMAL, LS_INIT_XAVIER, LS_INIT_KAIMING } ls_init_rule;

typedef struct ls_init {
    ls_init_rule rule;
    float std; /* LS_INIT_NORMAL only */
} ls_init;

/* Reads "normal" (σ = 0.01), "xavier", "kaiming", or {"name": "normal", "std": 0.01}; a NULL node
 * means "normal". */
int ls_init_parse(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err);
const char *ls_init_name(ls_init_rule rule);

/* Fills `canonical` (model->floats): weights are drawn from (seed, LS_STREAM_INIT + parameter's
 * position, element), biases are zero. Normal: N(0, σ²). Xavier: uniform ±√(6/(fan_in + fan_out)).
 * Kaiming: N(0, 2/fan_in). */
void ls_init_weights(float *canonical, const ls_model *model, const ls_init *init, uint64_t seed);

#endif
