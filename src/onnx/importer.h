/* SPDX-License-Identifier: MIT */
/* State and functions of reading a model from an ONNX file, shared by the files import*.c. import.h
 * describes the whole way. One thread uses an ls_import. */
#ifndef ONNX_IMPORTER_H
#define ONNX_IMPORTER_H

#include "hash/hash.h"
#include "nn/network.h"
#include "onnx/import.h"
#include "onnx/read.h"
#include "json/writer.h"

/* Room for the text that names a node. */
enum { LS_ONNX_PLACE = 192 };

/* Room for the text of a shape. */
enum { LS_ONNX_DIMS = 96 };

/* Stands for the number of rows in shapes. */
#define LS_ONNX_BATCH INT64_MIN

/* Largest number of elements of a constant that is computed. */
enum { LS_ONNX_FOLDED = 64 };

/* A formula over x, the output of a layer (import_form.c). */
typedef enum ls_form {
    LS_FORM_PLAIN,   /* x */
    LS_FORM_AFFINE,  /* p·x + q */
    LS_FORM_CLIP,    /* s·min(max(p·x + q, lo), hi) */
    LS_FORM_SWISH,   /* x·s·min(max(p·x + q, lo), hi) */
    LS_FORM_SIGMOID, /* s·sigmoid(x) */
    LS_FORM_SILU,    /* x·s·sigmoid(x) */
    LS_FORM_ERF,     /* s·(erf(p·x) + q) */
    LS_FORM_GELU,    /* x·s·(erf(p·x) + q) */
    LS_FORM_SQUARE,  /* t·x² + q */
    LS_FORM_CUBE,    /* t·x³ + p·x + q */
    LS_FORM_TANH,    /* s·(tanh(t·x³ + p·x) + q) */
    LS_FORM_GELU2,   /* x·s·(tanh(t·x³ + p·x) + q) */
    LS_FORM_PAD,     /* x with zeros around it */
    LS_FORM_PRODUCT, /* the product of x and a constant matrix, to which a bias may be added */
    LS_FORM_SOFTMAX, /* the softmax of x, or its logarithm, over the classes */
    /* the parts of a LayerNorm over all values of a row (import_norm.c) */
    LS_FORM_MEAN,      /* m, the mean of x */
    LS_FORM_CENTRED,   /* x − m */
    LS_FORM_SQUARES,   /* (x − m)² */
    LS_FORM_VARIANCE,  /* v + q, where v is the mean of (x − m)² */
    LS_FORM_DEVIATION, /* √(v + q) */
    LS_FORM_NORM       /* (x − m) / √(v + q), times the constant `matrix` if it is not NULL */
} ls_form;

typedef struct ls_import_value {
    ls_onnx_text name;
    enum { LS_VALUE_NONE, LS_VALUE_CONSTANT, LS_VALUE_ROWS } kind;
    int uses; /* number of inputs of needed nodes that read it */
    /* the first node on which it depends whose operator is not read; NULL: there is none */
    const ls_onnx_node *unread;
    /* shape; dim[0] of rows is LS_ONNX_BATCH. For rows it is the view of the graph. */
    int rank;
    int64_t dim[LS_ONNX_RANK];

    /* ---- a constant ---- */
    const ls_onnx_stored *stored; /* place of its numbers; NULL: they are decoded */
    ls_array numbers;             /* numbers.data: `count` numbers of the type numbers.type */
    size_t count;
    bool swapped; /* a matrix whose numbers are stored column by column */
    bool weight;  /* a layer has its numbers as weights already */
    /* the constant whose numbers it has, in another shape or under another name; NULL: its own */
    struct ls_import_value *root;

    /* ---- rows ---- */
    const ls_onnx_node *node; /* the node that gives the value */
    int layer;                /* index in ls_import.layer, or LS_INPUT */
    ls_form form;
    double p, q, lo, hi, s, t;      /* the numbers of the formula */
    int pad[4];                     /* for LS_FORM_PAD: top, left, bottom, right */
    struct ls_import_value *matrix; /* for LS_FORM_PRODUCT and LS_FORM_NORM */
    bool begin;                     /* the rows themselves: what the first layer reads */
} ls_import_value;

/* A layer that was written. */
typedef struct ls_import_layer {
    char name[64], type[24];
    const ls_onnx_node *node; /* the node of which it was made; may be none of the file's */
    ls_shape out;
    int flat; /* index + 1 of a flatten layer that reads this layer; 0: none */
    /* a concatenation: the layers that it joins; another layer: −2 */
    int first, second;
} ls_import_layer;

typedef struct ls_import {
    const ls_host *host;
    ls_error *err;
    const ls_onnx_source *source;
    ls_onnx_model file;
    ls_sha256 hash;
    ls_import_value *value; /* [values]; the pointers stay valid */
    int values;
    int *slot; /* [slots] hash table of names: index of a value + 1; 0: free */
    size_t slots;
    bool *needed;           /* [nodes] the output depends on the node */
    const ls_onnx_node *at; /* the node that is read; NULL: none is */
    int64_t fixed;          /* number of rows that the file fixes; 0: free */
    ls_shape input;         /* shape of a row */
    ls_onnx_text begin;     /* name of the tensor with the rows */
    int input_flat;         /* as ls_import_layer.flat, for the input */
    const char *ending;     /* "softmax" if the graph ends with one; else NULL */
    ls_import_layer *layer; /* [LS_MODEL_LAYERS] */
    int layers;
    int head;       /* index of the last layer with weights */
    size_t head_at; /* number of weights before those of that layer */
    bool norms;     /* a layer is a batch norm */
    ls_onnx_rows rows;
    bool own;   /* Lockstep wrote the file: each layer comes back as it was */
    bool large; /* the last layer has more than LS_MODEL_VALUES values */
    ls_json_writer json;
    float *weight; /* [weights] in the order of the canonical weights */
    size_t weights, room;
    size_t copied; /* number of weights that are copies of others, or belong to no tensor */
    LS_ONNX_LIST(void *) block;     /* memory of folded constants */
    LS_ONNX_LIST(ls_array) data;    /* files with external data */
    LS_ONNX_LIST(char *) data_path; /* their paths, as in the file */
} ls_import;

/* ---- failures, names and attributes (import_graph.c)
 * ----------------------------------------------- */

/* Writes "node 3 \"name\" (Op)" to `out`; a node without a name has that of its output. If `n` is
 * no node of the file, the node that is read stands for it, and without one "its output". */
void ls_import_place(char out[LS_ONNX_PLACE], const ls_import *g, const ls_onnx_node *n);
/* Fails with a message that names the node. Returns `status`. */
int ls_import_fail(const ls_import *g, const ls_onnx_node *n, int status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
int ls_import_no_memory(const ls_import *g);
/* Writes a shape to `out`, such as "[rows, 3, 8, 8]". Returns `out`. */
const char *ls_import_dims(char out[LS_ONNX_DIMS], const ls_import_value *v);

/* Returns the slot of a name: that of the value with this name, or a free one. */
int *ls_import_slot(const ls_import *g, ls_onnx_text name);
/* Returns the value with this name, which may still be of the kind LS_VALUE_NONE, or NULL. */
ls_import_value *ls_import_find(const ls_import *g, ls_onnx_text name);
/* Returns the value of the node's input number `i`, or NULL if the node has no such input. */
ls_import_value *ls_import_input(const ls_import *g, const ls_onnx_node *n, int i);
/* Returns the value of the node's first output. */
ls_import_value *ls_import_output(const ls_import *g, const ls_onnx_node *n);
/* Gives the node's first output the contents of `v`: a constant, or rows with a view and a
 * formula. */
void ls_import_give(const ls_import *g, const ls_onnx_node *n, const ls_import_value *v);

/* These functions return an attribute, or `fallback`. */
int64_t ls_import_int(const ls_import *g, const ls_onnx_node *n, const char *name,
                      int64_t fallback);
double ls_import_float(const ls_import *g, const ls_onnx_node *n, const char *name,
                       double fallback);
/* Returns the bytes of a text; length 0: there is no such attribute. */
ls_onnx_text ls_import_text(const ls_import *g, const ls_onnx_node *n, const char *name);
/* Returns whether the node has the attribute. */
bool ls_import_has(const ls_import *g, const ls_onnx_node *n, const char *name);
/* Reads a list of at most `most` integers to `out`. Returns their number, 0 without the attribute,
 * or −1 if there are more. */
int ls_import_ints(const ls_import *g, const ls_onnx_node *n, const char *name, int64_t *out,
                   int most);
/* Reads the attribute that is a tensor. Returns false if there is none. */
bool ls_import_tensor(const ls_import *g, const ls_onnx_node *n, const char *name,
                      ls_pb_reader *out);
/* Allocates memory that is freed with the importer. NULL: out of memory. */
void *ls_import_block(ls_import *g, size_t count, size_t size);

/* ---- constants (import_constant.c) ----------------------------------------------------------- */

/* Makes a value the constant `stored`, whose numbers are read when they are used. */
void ls_import_keep(ls_import_value *v, const ls_onnx_stored *stored);
/* Makes sure that the numbers of a constant can be read with the functions below. Errors: LS_EDATA,
 * LS_EUNSUPPORTED (its type), LS_ENOENT, LS_EIO, LS_ENOMEM. */
int ls_import_decode(ls_import *g, ls_import_value *v);
/* Return number `i`, row-major, as a double or as an integer. */
double ls_import_number(const ls_import_value *v, size_t i);
int64_t ls_import_integer(const ls_import_value *v, size_t i);
bool ls_import_whole(const ls_import_value *v);
/* Returns the only number of a decoded constant through *out; false: it has more than one. */
bool ls_import_scalar(double *out, const ls_import_value *v);
/* Reads the integers of the node's input number `i`, or of the attribute `name`, to `out`, at most
 * `most`. *count becomes −1 if there are neither. */
int ls_import_list(ls_import *g, const ls_onnx_node *n, int i, const char *name, int64_t *out,
                   int most, int *count);
/* Makes `v` a constant of `count` integers or numbers, at most LS_ONNX_FOLDED. `rank` 0 or 1. */
int ls_import_fold_ints(ls_import *g, ls_import_value *v, const int64_t *value, int count,
                        int rank);
int ls_import_fold_numbers(ls_import *g, ls_import_value *v, const double *value, int count,
                           int rank);
/* Stores a double as a file has it, in 8 little-endian bytes. */
void ls_import_put_double(uint8_t out[8], double value);

/* ---- layers that are written (import_net.c) -------------------------------------------------- */

int ls_import_begin_net(ls_import *g);
/* Begins a layer that reads the layer `from`; `like` names the constant or NULL whose name (without
 * ".weight") the layer gets, otherwise the name of the node. The caller then writes further keys to
 * g->json, appends weights, and calls ls_import_end_layer. */
int ls_import_begin_layer(ls_import *g, const ls_onnx_node *n, const char *type, int from,
                          const ls_import_value *like);
/* Writes the key "with". */
void ls_import_with(ls_import *g, int layer);
/* Completes the layer, whose output has the shape `out`. Returns its index. */
int ls_import_end_layer(ls_import *g, ls_shape out);
/* Appends the numbers of a decoded constant to the weights, `count` of them, in row-major order, or
 * as a matrix that is transposed, times `factor`. NULL: `fill`. */
int ls_import_add_weight(ls_import *g, const ls_onnx_node *n, ls_import_value *v, bool transposed,
                         double factor, size_t count, float fill);
/* Returns the shape of a layer's output. */
ls_shape ls_import_shape(const ls_import *g, int layer);
/* Writes the part of the JSON after the layers, and returns the net. */
int ls_import_finish_net(ls_onnx_net **out, ls_import *g);

/* ---- formulas (import_form.c) ---------------------------------------------------------------- */

/* Returns whether two nodes belong to one layer of a file that Lockstep wrote: their names are
 * equal up to a colon. */
bool ls_import_same_layer(const ls_onnx_node *a, const ls_onnx_node *b);

/* ---- the layers of a formula (import_settle.c) ----------------------------------------------- */

/* Writes the layers that a formula needs, so that the value is plain. */
int ls_import_settle(ls_import *g, const ls_onnx_node *n, ls_import_value *v);
/* Settles the product of a vector and a matrix: a dense layer with the bias `bias`, or without one
 * if it is NULL. */
int ls_import_settle_product(ls_import *g, ls_import_value *v, ls_import_value *bias);
/* Completes a layer, whose output has the shape of the layer that `v` has now, and makes `v` its
 * output. */
void ls_import_end_same(ls_import *g, ls_import_value *v);
/* Writes the layer scale·x + shift with a number of each for every channel: a depthwise convolution
 * of one pixel. The scales are p times the constant `scale`, or p if it is NULL; the shifts are q
 * times the constant `shift`, or q. */
int ls_import_put_scale(ls_import *g, ls_import_value *v, ls_import_value *scale, double p,
                        ls_import_value *shift, double q);
/* Writes a hard_sigmoid, min(max(slope·x + offset, 0), 1). */
int ls_import_put_hard_sigmoid(ls_import *g, ls_import_value *v, double slope, double offset);
/* Writes a gelu: with erf, or the approximation with tanh. */
int ls_import_put_gelu(ls_import *g, ls_import_value *v, bool approximate);
/* Writes a `pad` layer that reads *layer, and sets *layer to it. `pad`: zeros at the top, left,
 * bottom and right, at most 254 each. `named`: the node after which the layer is named, or NULL. */
int ls_import_put_pad(ls_import *g, const ls_onnx_node *named, int *layer, const int pad[4]);
/* Settles a value that must be an image [rows, c, h, w], and returns its layer and shape. */
int ls_import_image(ls_import *g, const ls_onnx_node *n, ls_import_value *v, int *layer,
                    ls_shape *shape);
/* Settles a value that must be a vector [rows, features], and returns a layer that gives vectors. A
 * flatten layer is written if the value is an image that was flattened. */
int ls_import_vector(ls_import *g, const ls_onnx_node *n, ls_import_value *v, int *layer,
                     int *features);

/* ---- the rows (import.c), and those of a file that Lockstep wrote (import_own.c) --------------
 */

/* Makes `v` the rows that the first layer reads, with the shape `dim` [rank], rank 2 to 4, whose
 * first dimension is the number of rows. */
int ls_import_set_rows(ls_import *g, ls_import_value *v, const int64_t *dim, int rank);
/* Returns the value of an entry of the metadata; length 0: there is none. */
ls_onnx_text ls_import_entry(const ls_import *g, const char *key);
/* Finds what the first layer reads in a file that Lockstep wrote, after the nodes that prepare a
 * row, and how they do that. A config prepares rows itself. */
int ls_import_begin_own(ls_import *g, ls_import_value *v);

/* ---- inputs and outputs of layers (import_layers.c) ------------------------------------------ */

/* Finds an input that the node must have. */
int ls_import_need(const ls_import *g, const ls_onnx_node *n, int i, ls_import_value **out);
/* Finds an input that must be a constant, and decodes it. *out becomes NULL if the node does not
 * have it. */
int ls_import_need_constant(ls_import *g, const ls_onnx_node *n, int i, ls_import_value **out);
/* Finds the inputs of a node with weights: what it reads, its weights, and its bias, which becomes
 * NULL if the node does not have one. */
int ls_import_need_weights(ls_import *g, const ls_onnx_node *n, ls_import_value **x,
                           ls_import_value **weight, ls_import_value **bias);
/* Gives the node's output the shape of a layer: an image, or a vector of rank 2. */
void ls_import_give_layer(ls_import *g, const ls_onnx_node *n, int layer, int rank);
/* Writes the mean over height and width, and gives it the view `view`. */
int ls_import_put_mean(ls_import *g, const ls_onnx_node *n, int layer, const ls_shape *s,
                       const ls_import_value *view);

/* ---- LayerNorm that is written out (import_norm.c) ------------------------------------------- */

/* Writes the layer of a value that is LS_FORM_NORM, with a bias, or with zeros for NULL. */
int ls_import_settle_norm(ls_import *g, ls_import_value *v, ls_import_value *bias);
/* Fails because the node reads another part of a LayerNorm. */
int ls_import_fail_norm(const ls_import *g, const ls_onnx_node *n);
/* Continues a formula: computes a op b if both are parts of a LayerNorm of the same x. */
bool ls_import_norm_formulas(ls_import_value *out, char op, const ls_import_value *a,
                             const ls_import_value *b);
/* Returns whether a constant has a number for each value of a row, in the view of `v`. */
bool ls_import_is_row(const ls_import *g, const ls_import_value *v, const ls_import_value *c);

/* ---- the operators --------------------------------------------------------------------------- */

typedef int ls_import_op(ls_import *g, const ls_onnx_node *n);

/* import_form.c */
ls_import_op ls_import_unary, ls_import_binary, ls_import_clip, ls_import_limit, ls_import_gelu,
    ls_import_neg, ls_import_power, ls_import_sum;
/* import_layers.c */
ls_import_op ls_import_conv, ls_import_gemm, ls_import_matmul, ls_import_pool, ls_import_global,
    ls_import_concat, ls_import_resize, ls_import_pad, ls_import_softmax;
/* import_norm.c */
ls_import_op ls_import_batch_norm, ls_import_layer_norm, ls_import_mean, ls_import_sqrt;
/* import_view.c */
ls_import_op ls_import_identity, ls_import_dropout, ls_import_cast, ls_import_flatten,
    ls_import_reshape, ls_import_squeeze, ls_import_transpose;
/* import_fold.c */
ls_import_op ls_import_constant, ls_import_shape_of, ls_import_gather, ls_import_slice,
    ls_import_filled, ls_import_round;
/* Computes Add, Sub, Mul or Div of two constants. */
int ls_import_arithmetic(ls_import *g, const ls_onnx_node *n, ls_import_value *a,
                         ls_import_value *b);
/* Gives the node's output the transpose of the constant `v`, a matrix of at most LS_ONNX_FOLDED
 * integers. */
int ls_import_turn(ls_import *g, const ls_onnx_node *n, const ls_import_value *v);
/* Joins constants, for Concat. */
int ls_import_join(ls_import *g, const ls_onnx_node *n);

#endif
