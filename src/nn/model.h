/* The model: an immutable graph of layers with their shapes and tensors.
 *
 * A model is parsed once, before any worker starts, and then only read, by every thread. It knows
 * no device and holds no weights: a replica does. Layers stand in an order in which each reads only
 * what stands before it; blocks of the JSON are written out, so that the parser alone knows them.
 *
 * Tensors are parameters, which are learnt, and running statistics, which are collected. Canonical
 * weights are a plain array of floats, all tensors one after another in model order (a layer's
 * weight, bias, running_mean, running_var), each row-major, as PyTorch stores it.
 */
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

/* What a tensor holds before the first step. */
typedef enum ls_start {
    LS_START_DRAWN, /* by the initialiser's rule */
    LS_START_ZEROS,
    LS_START_ONES
} ls_start;

/* One tensor. */
typedef struct ls_param {
    char name[80]; /* "<layer>.weight": as PyTorch's state_dict names them */
    int rank;
    int dim[4];
    size_t count;  /* product of dim */
    size_t offset; /* of its first float in the canonical array */
    ls_start start;
    int fan_in, fan_out; /* for Xavier's and Kaiming's rules */
    float rate;          /* what the learning rate is multiplied with; 0: it is frozen */
} ls_param;

typedef struct ls_layer_type ls_layer_type;
struct ls_fields; /* json/fields.h */

#define LS_SAMPLE_CLASSES 3
#define LS_INPUTS 2   /* most inputs of a layer */
#define LS_INPUT (-1) /* as a layer's input: the minibatch itself */
#define LS_STATS 2    /* running mean and running variance */

typedef struct ls_layer {
    const ls_layer_type *type;
    char name[64]; /* from the JSON, or its index in the list, as nn.Sequential does; a block's
                      layers have the block's name and a dot before theirs */
    int index;     /* its place in the model */
    int classes;   /* what the model is to give: of the data */
    bool last;     /* the model's last layer, and no block's */
    int inputs;    /* 1, or 2 for a layer whose parse says so: it then has "with" */
    int input[LS_INPUTS]; /* the layers whose outputs it reads, or LS_INPUT */
    ls_shape in, out;     /* of the first input, and of the output */
    ls_shape in2;         /* of the second input */
    ls_shape y;           /* `out` as it lies in memory: an image where flatten made it a vector */
    int flat;             /* `in` is a vector, but lies in memory as an image */
    bool same_shape;      /* set by ls_layer_same_shape */
    ls_op_desc op;        /* kind and constants; kind 0: no op, the tensor passes as it is */
    int params;
    ls_param param[LS_OP_PARAMS];
    int stats; /* 0 or LS_STATS; then the op is LS_OP_BATCHNORM */
    ls_param stat[LS_STATS];
    float momentum; /* of the running statistics: the weight of a step's own */
} ls_layer;

/* A row of layers.def. Adding a layer is one file that defines one of these, plus its row. */
struct ls_layer_type {
    const char *name; /* the JSON "type" */
    ls_op_kind kind;  /* of layer->op; 0: none, the tensor passes as it is */
    /* Reads the layer's own keys from `fields` into layer->op; sets layer->inputs to 2 for a layer
     * that reads two. Errors go to the fields. NULL: it has none. */
    void (*parse)(ls_layer *layer, struct ls_fields *fields);
    /* layer->in (and in2) is set: computes layer->out, and the tensors' shapes, fans and starts
     * (names and offsets are filled by the caller). A shape that does not fit is LS_ECONFIG; the message
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
    int stats;
    const ls_param **stat;   /* all running statistics in model order */
    const ls_param **tensor; /* both (params + stats), in canonical order */
    size_t parameters;       /* numbers that are learnt */
    size_t floats;           /* of the canonical array: running statistics included */
    char *card;              /* what its files say of it in their metadata; owned. NULL: nothing */
} ls_model;

/* Parses {"name": …, "blocks": {…}, "layers": […]}. `input` and `classes` come from the dataset; the last layer
 * must give a vector of `classes` features, which its "out" need not repeat. Errors: LS_ECONFIG, naming file, position and layer; in
 * a block's layer, the position of the block's use as well. */
int ls_model_parse(ls_model **out, const ls_json *doc, const cJSON *node, ls_shape input,
                   int classes, const ls_host *host, ls_error *err);
/* Before the model is shared: sets rates by patterns, in which '*' stands for any characters, of parameters'
 * names. `freeze`: a pattern, or an array of them; `factors`: an object with a number for each; both may be NULL.
 * Of several patterns the last one counts. Errors: LS_ECONFIG (a pattern that no parameter has, all are frozen). */
int ls_model_set_rates(ls_model *model, const ls_json *doc, const cJSON *freeze,
                       const cJSON *factors, ls_error *err);
/* Whether the layer has parameters that are not frozen. */
bool ls_layer_learns(const ls_layer *layer);
void ls_model_destroy(ls_model *model, const ls_host *host); /* NULL is allowed */

/* The layer types in the order of layers.def, NULL-terminated. */
const ls_layer_type *const *ls_layer_types(void);

/* ---- initial weights ------------------------------------------------------------------------ */

typedef enum ls_init_rule { LS_INIT_NORMAL, LS_INIT_XAVIER, LS_INIT_KAIMING } ls_init_rule;

typedef struct ls_init {
    ls_init_rule rule;
    float std; /* LS_INIT_NORMAL only */
} ls_init;

/* Reads "normal" (σ = 0.01), "xavier" or "glorot", "kaiming" or "he", or {"name": "normal", "std": 0.01}; a NULL
 * node means "kaiming". */
int ls_init_parse(ls_init *out, const ls_json *doc, const cJSON *node, ls_error *err);
/* Its keys alone, from an object that may have others; `optional`: no name means "kaiming", or "normal"
 * where there is a "std". */
void ls_init_read(ls_init *out, struct ls_fields *fields, bool optional);
const char *ls_init_name(ls_init_rule rule);

/* Fills `canonical` (model->floats): weights are drawn from (seed, LS_STREAM_INIT + parameter's
 * position among the parameters, element); what starts otherwise is set. Normal: N(0, σ²). Xavier: uniform ±√(6/(fan_in + fan_out)).
 * Kaiming: N(0, 2/fan_in). */
void ls_init_weights(float *canonical, const ls_model *model, const ls_init *init, uint64_t seed);

#endif
