/* What the files of the single layer types share. Any thread; nothing here allocates. */
#ifndef NN_LAYER_H
#define NN_LAYER_H

#include "base/error.h"
#include "nn/model.h"
#include "json/fields.h"

/* Largest values that layers accept in their JSON. Together with LS_MODEL_VALUES they keep every
 * sum and product below 2⁶³. */
enum { LS_MAX_FEATURES = 1 << 20, LS_MAX_KERNEL = 255, LS_MAX_STRIDE = 255 };

/* The number of that key, from `min` to `max`. */
float ls_read_float(ls_fields *fields, const char *key, double min, double max, double fallback);

/* Reads "out", an integer or "classes", as many as the data has classes or targets; that also where the model's last
 * layer does not say it. */
int ls_read_out(ls_layer *layer, ls_fields *fields);

/* A window that is moved over an image: of a convolution or a pooling. */
typedef struct ls_window {
    int k[2], s[2], p[2]; /* kernel, stride and padding: height, width */
    int d[2];             /* dilation */
} ls_window;

/* Reads "kernel", "stride" and "padding"; the dilation is set. `stride` NULL: the default is the kernel. */
void ls_window_parse(ls_window *out, ls_fields *fields, const long *stride);

/* Sets the height and width that the window makes of `in`; leaves the channels alone. Errors:
 * LS_ECONFIG when it does not fit once, with what would. */
int ls_window_shape(ls_shape *out, const ls_shape *in, const ls_window *window, ls_error *err);

/* LS_ECONFIG for a layer that wants an image but gets one that was flattened. */
int ls_layer_wants_image(const ls_layer *layer, ls_error *err);

/* Adds a weight of `rank` dimensions, and a bias of dim[0] numbers when `bias`. fan_in and fan_out
 * are those of the weight. Errors: LS_ECONFIG when there are too many numbers. */
int ls_layer_add_params(ls_layer *layer, int rank, const int dim[4], int bias, ls_error *err);

/* A tensor of this shape whose numbers all begin alike: a scale, a shift, a statistic. */
ls_param ls_layer_filled(const ls_shape *dim, ls_start start);

static inline long long ls_shape_values(const ls_shape *shape)
{
    return (long long)shape->c * shape->h * shape->w;
}

/* The shape of a layer whose op takes memory in any layout: y has that of x, and lies as x does. */
int ls_layer_same_shape(ls_layer *layer, ls_error *err);

#endif
