/* SPDX-License-Identifier: MIT */
/* Functions that the files of the layer types (layer_*.c) share. Any thread; no function
 * allocates. */
#ifndef NN_LAYER_H
#define NN_LAYER_H

#include "base/error.h"
#include "nn/network.h"
#include "json/fields.h"

/* Largest values that layers accept in their JSON. Because of these limits and LS_MODEL_VALUES,
 * every sum and product of sizes is below 2⁶³. */
enum { LS_MAX_FEATURES = 1 << 20, LS_MAX_KERNEL = 255, LS_MAX_STRIDE = 255 };

/* Returns the number at `key`, which must be from `min` to `max`, or `fallback` if the key is
 * absent. Errors are stored in `fields`. */
float ls_read_float(ls_fields *fields, const char *key, double min, double max, double fallback);

/* Reads "out": an integer, or "classes", which stands for the number of classes or targets of the
 * data. If the layer is the last one of the model, "classes" is the default. Errors are stored in
 * `fields`. */
int ls_read_out(ls_layer *layer, ls_fields *fields);

/* The window of a convolution or a pooling, in pixels: [0] is the height, [1] the width. */
typedef struct ls_window {
    int k[2], s[2], p[2]; /* kernel, stride, and padding at the top and left */
    int d[2];             /* dilation */
    int end[2];           /* padding at the bottom and right */
    int ceil; /* non-zero: the size of the output is rounded up (ls_windows of plugin.h) */
} ls_window;

/* Reads "kernel", "stride" and "padding" to *out. The caller must set out->d before the call.
 * Does not change out->ceil. `stride`: the default stride; NULL: the default stride is the size of
 * the kernel, and the padding can have four numbers. Errors are stored in `fields`. */
void ls_window_parse(ls_window *out, ls_fields *fields, const long *stride);

/* Computes the height and width of the output for input `in`. Does not change the channels. Errors:
 * LS_ECONFIG if the window does not fit into the image; the message says which window would. */
int ls_window_shape(ls_shape *out, const ls_shape *in, const ls_window *window, ls_error *err);

/* For a layer that needs an image: returns LS_ECONFIG if the layer's input was flattened, otherwise
 * LS_OK. */
int ls_layer_wants_image(const ls_layer *layer, ls_error *err);

/* Adds a weight of `rank` dimensions and, if `bias` is not 0, a bias of dim[0] numbers. Sets their
 * fan_in and fan_out; the bias gets the fan_in of the weight. Errors: LS_ECONFIG if the weight has
 * too many numbers. */
int ls_layer_add_params(ls_layer *layer, int rank, const int dim[4], int bias, ls_error *err);

/* Returns a tensor of the shape `dim` whose elements all have the same initial value, such as the
 * scale of a batch norm. `start`: LS_START_ZEROS or LS_START_ONES. */
ls_param ls_layer_filled(const ls_shape *dim, ls_start start);

static inline long long ls_shape_values(const ls_shape *shape)
{
    return (long long)shape->c * shape->h * shape->w;
}

/* Implements ls_layer_type.shape for layer types whose op reads tensors in any memory layout. The
 * output has the shape and the memory layout of the input. */
int ls_layer_same_shape(ls_layer *layer, ls_error *err);

#endif
