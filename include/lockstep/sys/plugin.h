/* SPDX-License-Identifier: MIT */
/* The back-end table: the functions that Lockstep needs from a kind of device to train on it.
 *
 * This header is for authors of *back ends*: a back end is the code for one kind of device. The
 * header is unstable; LS_PLUGIN_ABI is its version. A back end is one `ls_backend`, a table of
 * functions that opens devices. A device has a table of functions too: it allocates memory and
 * creates *ops*, the operations of a model. The rest of the library uses devices only through these
 * tables.
 *
 * Terms: a *row* is one example of the data, such as an image. (A line of pixels is not called a
 * row here.) A *minibatch* is the set of rows of one training step. A minibatch is cut into
 * *shards*. A *worker* is the thread of the library that drives one device. A worker computes whole
 * shards, each at once or in *blocks* of consecutive rows. A *batch* is the set of rows that an op
 * processes in one call: a shard, a block of a shard, or some rows of an evaluation. A *replica* is
 * a worker's copy of the model. A *parameter* is a learned tensor, such as the weight or the bias
 * of a convolution. An *arena* is one array that contains all parameters of a model, all their
 * gradients, or the optimizer's state for all of them.
 *
 * The life of an op:
 *
 *     desc.x = y of the op that produces the input     shapes and layout, no memory yet
 *     ops->op_create(&op, device, &desc, err)          chooses kernels; sets op->y and all sizes
 *     op->impl->bind(op, &buffers, err)                once, but see LS_DEVICE_REBINDS
 *     op->impl->forward(op, stream, flags, err)        any number of times, allocates nothing
 *     op->impl->backward(op, stream, flags, err)
 *     op->impl->destroy(op)
 *
 * Kernels: a *kernel* is a function that computes an op on the device. An op can have several, of
 * which op_create chooses one. (Only the comments of ls_conv2d and ls_pool2d use the word for the
 * window of a convolution or a pooling.)
 * Layouts: a *layout* is the arrangement of a tensor's elements in memory. Each back end defines
 * its layouts, and the library does not look into them. The op that produces a tensor chooses the
 * tensor's layout. The ops that read the tensor accept every layout of their back end, and convert
 * the tensor inside the op if necessary. The gradient of a tensor has the tensor's layout. (dy is
 * the gradient of an op's output y, and dx the gradient of its input x.) Parameters have the layout
 * that their op prefers; only import_param and export_param convert them. Padding in the memory of
 * a parameter or gradient is zero and must stay zero, so that element-wise work over whole arenas
 * is safe.
 *
 * Digests: a *digest* is a sum that changes with every flipped bit of a replica. Workers compare
 * the digests of their replicas in every step. The sum contains b · (2·(p div 16) + 1) · fˡ for
 * each float, where b is the float's 32 bits read as an integer, p is the position that the library
 * gives the float, l is (p mod 16) + 1, and f is 0x9e3779b97f4a7c15. All numbers are integers
 * modulo 2⁶⁴.
 *
 * Numerics: a gradient is a *sum* over rows. A result may depend only on the rows, the parameters,
 * the op's description and the device's instruction set, never on the worker, on earlier calls or
 * on time.
 *
 * Threads: any thread may call `probe` and `open`. All functions of a device and of its ops are
 * called on one thread, the worker's, which calls the device's `bind` first. The library calls only
 * its own CPU back end on other threads as well, because the CPU back end does not depend on the
 * calling thread.
 * Streams: each function that computes takes a stream (a queue of work) and may return before the
 * work is done. `sync` reports the errors of this work. NULL is the device's default stream.
 * Slots: a *slot* is a pointer to a function in one of the tables. (But the array `slot` of
 * ls_op_buffers contains the optimizer's state.) A slot must be set unless its comment says that it
 * is optional; an optional slot may be NULL. */
#ifndef LOCKSTEP_SYS_PLUGIN_H
#define LOCKSTEP_SYS_PLUGIN_H

#include <lockstep/device.h>
#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header, raised with every incompatible change. A back end must match it
 * exactly. */
#define LS_PLUGIN_ABI 16

typedef struct ls_stream ls_stream;       /* an in-order queue of work on one device */
typedef struct ls_event ls_event;         /* a point in a stream's work */
typedef struct ls_recording ls_recording; /* work of a stream that can be enqueued repeatedly */
typedef struct ls_layout ls_layout;       /* arrangement of a tensor in memory; NULL: row-major */
typedef struct ls_op ls_op;               /* one operation of a model */

/* ---- tensors -------------------------------------------------------------------------------- */

/* Type of the elements of a tensor. */
typedef enum ls_dtype { LS_F32 = 0, LS_U8 = 1 } ls_dtype;

/* The tensor of a batch: for each row, c channels of h × w pixels. A vector of n features has c = n
 * and h = w = 1. */
typedef struct ls_tensor {
    ls_dtype dtype;
    int rows, c, h, w;
    const ls_layout *layout; /* owned by the op that produces the tensor; NULL: [rows][c][h][w] */
    size_t bytes;            /* total size in bytes, padding of the layout included */
} ls_tensor;

/* ---- ops ------------------------------------------------------------------------------------ */

/* Kinds of ops. */
typedef enum ls_op_kind {
    LS_OP_GATHER = 1, /* rows of the dataset (u8 or f32) → batch (f32), with their labels or
                       * targets */
    LS_OP_CONV2D = 2, /* params: weight [out][in/groups][kh][kw], bias [out] */
    LS_OP_DENSE = 3,  /* params: weight [out][c·h·w], bias [out]; flattens x in c, h, w order */
    LS_OP_POOL = 4,   /* average or maximum over windows; a window that extends beyond the padded
                       * image is dropped (the size of y is rounded down), but see ls_pool2d */
    LS_OP_RELU = 5,   /* max(x, 0), or slope·x below 0; its derivative at 0 is the slope */
    LS_OP_SOFTMAX_XENT = 6, /* logits and labels → summed loss, correct count, gradient */
    LS_OP_SGD = 7,          /* the update of the SGD optimizer over a whole arena */
    LS_OP_EXPORT = 8,    /* x in any layout → y row-major (layout NULL); dx from row-major dy */
    LS_OP_BATCHNORM = 9, /* params: weight [c], bias [c]; statistics over rows, h and w */
    LS_OP_ADD = 10,      /* y = x + x2, of equal shapes; x2 may have another layout */
    LS_OP_SIGMOID = 11,  /* 1 / (1 + e⁻ˣ) */
    LS_OP_TANH = 12,
    LS_OP_DROPOUT = 13, /* training: x / (1 − p), or 0 with probability p; else y = x */
    LS_OP_ADAMW = 14,   /* the update of the AdamW optimizer over a whole arena */
    LS_OP_RUNNING = 15, /* running = (1 − momentum)·running + momentum·(the step's statistics) */
    LS_OP_VECTOR_LOSS = 16, /* outputs and target vectors → summed loss, correct count, gradient */
    LS_OP_CLIP = 17, /* norm of an arena of gradients → factor for the gradient in the optimizer */
    LS_OP_GELU = 18, /* x·Φ(x), Φ the normal distribution function, computed with erf, not tanh */
    LS_OP_SILU = 19,         /* x / (1 + e⁻ˣ) */
    LS_OP_LAYERNORM = 20,    /* params: weight [c·h·w], bias [c·h·w]; statistics of each row */
    LS_OP_UPSAMPLE = 21,     /* each pixel of x becomes sh × sw equal pixels of y */
    LS_OP_CONCAT = 22,       /* y has the channels of x, then those of x2, with the same h and w; x2
                              * may have another layout */
    LS_OP_DIGEST = 23,       /* adds the digest of the floats at param[0], which do not change, to
                              * *args->digest; only devices with LS_DEVICE_DIGESTS have it */
    LS_OP_CLAMP = 24,        /* min(max(x, least), most); its derivative at both limits is 0 */
    LS_OP_HARD_SIGMOID = 25, /* min(max(slope·x + offset, 0), 1) */
    LS_OP_HARD_SWISH = 26, /* x·min(max(x + 3, 0), 6) / 6; its derivative is 0 at −3 and 1 at 3 */
    LS_OP_MULTIPLY = 27, /* y = x·x2; x2 has the shape of x or, with one factor for each channel of
                          * a row, h = w = 1; x2 may have another layout */
    LS_OP_PAD = 28,      /* y is x with zeros around it; dx is the part of dy that belongs to x */
    LS_OP_GELU_TANH = 29, /* the approximation of gelu with tanh: x·(1 + tanh(√(2/π)·(x +
                           * 0.044715·x³))) / 2 */
    LS_OP_AFFINE = 30,    /* slope·x + offset, rounded once */
    LS_OP_KINDS           /* not a kind: number of the last kind, plus 1 */
} ls_op_kind;

/* A convolution. The input channels and the output channels are cut, in order, into `groups` equal
 * groups. Each group of output channels reads only the group of input channels with the same
 * number. If element (0, 0) of the convolution's kernel lies over pixel (y, x) of the input,
 * element (i, j) is multiplied with pixel (y + i·dh, x + j·dw). */
typedef struct ls_conv2d {
    int out;    /* number of output channels */
    int kh, kw; /* height and width of the kernel */
    int sh, sw; /* stride */
    int ph, pw; /* zero padding on each side */
    int bias;   /* non-zero: the op has a bias */
    int dh, dw; /* dilation; 0 means 1 */
    int groups; /* number of groups, a divisor of the channels of x and of y; 0 means 1 */
} ls_conv2d;

/* Returns `conv` with every 0 that means 1 replaced by 1. Any thread. */
static inline ls_conv2d ls_conv2d_filled(ls_conv2d conv)
{
    conv.dh = conv.dh ? conv.dh : 1;
    conv.dw = conv.dw ? conv.dw : 1;
    conv.groups = conv.groups ? conv.groups : 1;
    return conv;
}

/* A fully connected layer. */
typedef struct ls_dense {
    int out;  /* number of outputs */
    int bias; /* non-zero: the op has a bias */
} ls_dense;

/* Pooling. An average divides by the number of the window's pixels that lie inside the image. The
 * padding is smaller than the kernel (the window) on each side. Therefore every window has a pixel
 * in the image. ls_windows computes the size of y. */
typedef struct ls_pool2d {
    int max; /* non-zero: maximum (the first of equal values wins), else average */
    int kh, kw, sh, sw, ph, pw; /* kernel, stride and padding, as in ls_conv2d */
    int eh, ew;                 /* padding at the bottom minus ph, and at the right minus pw */
    int ceil;                   /* non-zero: the size of y is rounded up (ls_windows) */
    int count_padding; /* non-zero: an average divides by the number of the window's pixels that lie
                        * inside the image or its padding */
} ls_pool2d;

/* Returns the number of windows of `kernel` pixels, `stride` pixels apart, along a side of `size`
 * pixels with `before` and `after` pixels of padding; 0: there is none. A window that extends
 * beyond the padding does not count, except, with `ceil`, the first such window if it begins in the
 * image or in the padding before it. Any thread. */
static inline int ls_windows(int size, int kernel, int stride, int before, int after, int ceil)
{
    const int room = size + before + after - kernel;
    if (room < 0)
        return ceil && room > -stride ? 1 : 0;
    const int whole = room / stride + 1;
    return whole + (ceil && room % stride != 0 && whole * stride < size + before);
}

/* A gather: copies rows of the dataset into a batch and normalises them. The result of each
 * arithmetic operation is rounded to fp32. Channels after the fourth use the mean and std of the
 * fourth channel.
 *
 *     rows of bytes:   y = (pixel / 255 − mean[c]) / std[c]
 *     rows of floats:  y = (value − mean[c]) / std[c]
 *
 * If ls_op_desc.training is set, each image is augmented (changed at random) first. With the random
 * words (see src/base/rng.h)
 *
 *     w = ls_rng_words(seed, LS_STREAM_AUGMENT, epoch, dataset row)
 *     v = ls_rng_words(seed, LS_STREAM_AUGMENT_MORE, epoch, dataset row)
 *     u = ls_rng_words(seed, LS_STREAM_AUGMENT_PART, epoch, dataset row)
 *
 * these changes are made, in this order (i and j are the line and the column of a pixel):
 *
 * - Flip: if `flip` is set and w[2] is odd, the columns are mirrored.
 * - Enlarging: a random part of the image is enlarged to the whole image, with bilinear
 *   interpolation of four pixels. `u` chooses its share of the area, from part / 65536 to 1, its
 *   ratio of width to height, from 3/4 to 4/3, and its place (ls_change_enlarge).
 * - Rotation about the centre by ((v[0] mod (512·rotate + 1)) / 256) − rotate degrees, with
 *   bilinear interpolation of four pixels.
 * - Crop: pixel (i, j) becomes the pixel at (i + (w[0] mod (2·crop + 1)) − crop,
 *   j + (w[1] mod (2·crop + 1)) − crop), or 0 if that is outside the image.
 * - Brightness: the image is multiplied by (256 − brightness + (v[1] mod (2·brightness + 1))) /
 *   256.
 * - Erasing: a square of `erase` × `erase` pixels with the centre (v[2] mod h, v[3] mod w) becomes
 *   0.
 * - Mixup: let m be w[3] mod (mixup + 1). Row r becomes (256 − m) / 256 times itself plus m / 256
 *   times the next row of the shard, which is augmented with its own words first. After the last
 *   row of the shard comes its first row. (`rows_before` and `rows_after` of ls_step_args say where
 *   the shard begins and ends.) Targets that are vectors are mixed in the same way. A target that
 *   is a class cannot be mixed: row r gets the class of the next row if (w[2] / 256) mod 256 < m,
 *   and keeps its own class otherwise.
 *
 * In an image of bytes, enlarging with rotation, brightness and mixup each round their results to
 * bytes, at most 255 (see src/base/augment.h for the exact arithmetic). The layout and the size of
 * y do not depend on `training`, because the same ops read the batches of training and of
 * evaluation. */
typedef struct ls_gather {
    float mean[4], std[4]; /* normalisation of each channel */
    int crop;              /* zero padding for random crops in pixels, at most h + w; 0: no crops */
    int flip;              /* non-zero: mirror half of the images */
    int rotate;            /* largest angle in degrees, at most 45; 0: no rotation */
    int erase;             /* side of the erased square in pixels; 0: nothing is erased */
    int brightness;        /* largest change of brightness in 256ths, at most 256; 0: none */
    int mixup;             /* largest share of the next row in a mixed row, in 256ths, at most 128;
                            * 0: no mixup */
    int part;              /* smallest share of the area of a part that is enlarged, in 65536ths, at
                            * most 65536; 0: none is */
    int floats;            /* non-zero: the dataset's rows are floats, else bytes */
    int targets; /* number of floats in a row's target, which are not normalised; 0: the target is a
                  * class */
} ls_gather;

/* SGD, as in PyTorch, with a velocity v that starts at zero:
 *
 *     g ← g·scale + weight_decay·w
 *     v ← momentum·v + g                  v ← g if momentum is 0
 *     w ← w − lr·v                        without `nesterov`
 *     w ← w − lr·(g + momentum·v)         with `nesterov`; v is the result of the second line */
typedef struct ls_sgd {
    float momentum, weight_decay;
    int nesterov;
} ls_sgd;

/* AdamW, as in PyTorch. m is ls_op_buffers.slot[0] and v is slot[1]; both start at zero. t is
 * args->step, from 1:
 *
 *     g ← g·scale
 *     m ← β₁·m + (1 − β₁)·g
 *     v ← β₂·v + (1 − β₂)·g²
 *     w ← w·(1 − lr·weight_decay)
 *     w ← w − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
 *
 * The terms 1 − β₁ᵗ and 1 − β₂ᵗ are differences of nearly equal numbers, and are computed in
 * double. */
typedef struct ls_adamw {
    float beta1, beta2, epsilon, weight_decay;
} ls_adamw;

/* Batch norm: y = (x − mean)/√(variance + epsilon)·weight + bias, per channel. With fuse_add, x2 is
 * added to this value. With fuse_relu, negative values then become 0.
 * Training uses the mean and the variance (divided by n, the number of values per channel) of the
 * batch. forward in training also writes the batch's contribution to the running statistics:
 * rows·mean [c], followed by rows·variance·n/(n − 1) [c], where `rows` is the number of rows of the
 * batch. If n is 1 (one row of one pixel), the variance is unknown. forward then writes the running
 * mean and variance as the contribution, so that LS_OP_RUNNING leaves them unchanged. Evaluation
 * uses the running statistics. If values are about 1e19 away from their mean, the variance can
 * become infinite; y is then the bias, and dx is 0. */
typedef struct ls_batchnorm {
    float epsilon;
} ls_batchnorm;

/* Layer norm: y = (x − mean)/√(variance + epsilon)·weight + bias, element by element. The mean and
 * the variance (divided by n) are those of each row, over its n = c·h·w values. Values may be as
 * large as 1e36; epsilon > 0. */
typedef struct ls_layernorm {
    float epsilon;
} ls_layernorm;

/* Upsampling by repetition of pixels. */
typedef struct ls_upsample {
    int sh, sw; /* factor of the height and of the width, at least 1 */
} ls_upsample;

/* Padding with zeros: number of lines, or of columns, that are added on each side, at least 0. */
typedef struct ls_pad {
    int top, left, bottom, right;
} ls_pad;

/* Dropout. Element e (in c, h, w order) of the dataset row r = args->rows[row of the batch] is
 * dropped, that is, set to 0 in y and in dx, if
 *
 *     ls_rng_uniform(seed, stream, epoch, r·(c·h·w) + e) < p
 *
 * where `seed` and `epoch` are those of ls_step_args, and the last argument is computed in 64 bits.
 * The other elements are multiplied by 1/(1 − p). */
typedef struct ls_dropout {
    float p;         /* probability, 0 ≤ p < 1 */
    uint32_t stream; /* number of the sequence of random numbers from which the layer draws (not an
                      * ls_stream); each dropout layer of a model has a sequence of its own */
} ls_dropout;

/* Softmax with cross-entropy loss. The op's x are the logits, vectors with one element per class (h
 * = w = 1). The target of each class is smoothing / classes, plus 1 − smoothing for the label. The
 * loss of a row is
 * −Σ target·log(softmax), in evaluation as well. A row counts as correct if the largest of its
 * logits, or the first of several equally large ones, is that of the label. */
typedef struct ls_softmax_xent {
    float smoothing; /* label smoothing, 0: none */
    int weighted;    /* non-zero: a row's loss and dx are multiplied by class_weight[its label] of
                      * ls_op_buffers */
} ls_softmax_xent;

/* Loss of one output z with the target t, and its derivative by z. The loss of a row is the mean of
 * the losses of its outputs. With every rule but LS_VECTOR_BCE no row counts as correct. */
typedef enum ls_vector_rule {
    LS_VECTOR_MSE = 0, /* (z − t)² */
    LS_VECTOR_BCE = 1, /* max(z, 0) − z·t + log(1 + e⁻|z|), where z is the logit of a yes/no label
                        * t (0: no, 1: yes); a row counts as correct if each of its outputs has
                        * z > 0 where t > ½, and z ≤ 0 elsewhere */
    LS_VECTOR_MAE = 2, /* |z − t|; the derivative is the sign of z − t, 0 at z = t */
    /* (z − t)² / 2 if |z − t| < delta, else delta · (|z − t| − delta / 2) */
    LS_VECTOR_HUBER = 3,
    /* pinball loss of the quantile q: max(q · (t − z), (q − 1) · (t − z)); the derivative at z = t
     * is ½ − q, the mean of those on both sides */
    LS_VECTOR_QUANTILE = 4,
    LS_VECTOR_POISSON = 5, /* eᶻ − z·t, where z is the logarithm of the expected count */
} ls_vector_rule;

enum { LS_QUANTILES_MOST = 16 }; /* largest number of quantiles of a loss */

/* Loss for targets that are vectors. Outputs are vectors (h = w = 1), row-major (layout NULL). With
 * LS_VECTOR_QUANTILE each of a row's T = c / quantiles targets has an output for each quantile:
 * output q·T + k is quantile number q of target k. With the other rules T is c. */
typedef struct ls_vector_loss {
    ls_vector_rule rule;
    int quantiles; /* LS_VECTOR_QUANTILE: number of quantiles, at least 1; c is a multiple of it */
    double delta;  /* LS_VECTOR_HUBER: distance from which the loss grows linearly, above 0 */
    double quantile[LS_QUANTILES_MOST]; /* [quantiles]: above 0 and below 1 */
} ls_vector_loss;

/* Update of running statistics, for each element i:
 *
 *     param[0][i] += momentum·(grad[0][i]·args->row_scale − param[0][i]) */
typedef struct ls_running {
    float momentum;
    int of_weights; /* non-zero: the op updates a moving average of the weights. param[0] is then
                     * the average, grad[0] points at the arena of weights instead of gradients, and
                     * 1 replaces args->row_scale */
} ls_running;

/* Gradient clipping: clip[0] ← min(1, most / (n + 10⁻⁶)), where n is the norm of
 * args->scale·grad[0], as PyTorch's clip_grad_norm_. An arena can be processed in several parts,
 * with one op for each part. The ops of all parts share `clip`. All ops except the first run with
 * LS_RUN_ACCUMULATE: each adds the sum of squares of its part to the sum of the parts before it.
 * Therefore the last op writes the factor for the whole arena. Squares are summed in double, in an
 * order that depends only on `count`. */
typedef struct ls_clip {
    float most; /* largest norm that the clipped gradient can have */
} ls_clip;

/* ReLU. A relu that is fused into another op (fuse_relu) has the slope 0. */
typedef struct ls_relu {
    float slope; /* factor for negative values, 0 ≤ slope ≤ 1 */
} ls_relu;

/* Hard sigmoid: t = slope·x + offset, rounded once, cut off below 0 and above 1. The derivative is
 * the slope where 0 < t < 1, and 0 elsewhere. */
typedef struct ls_hard_sigmoid {
    float slope, offset;
} ls_hard_sigmoid;

/* Limits of a clamp, least < most; −∞ and ∞ are no limits. */
typedef struct ls_clamp {
    float least, most;
} ls_clamp;

/* An affine function of each element. */
typedef struct ls_affine {
    float slope, offset;
} ls_affine;

/* Description of an op, for op_create. */
typedef struct ls_op_desc {
    size_t size; /* sizeof(ls_op_desc) */
    ls_op_kind kind;
    ls_tensor x;  /* the input, with the layout that the op which produces it chose. For a gather,
                   * dtype (u8 or f32), c, h and w describe a dataset row, and `rows` is the number
                   * of rows of a batch. Unused by optimizers, clip and LS_OP_RUNNING */
    ls_tensor x2; /* the second input of LS_OP_ADD, LS_OP_CONCAT, LS_OP_MULTIPLY and fuse_add */
    /* layout that preferred_layout returned for the first op that reads y, or NULL */
    const ls_layout *y_hint;
    /* an op of the same layer for another number of rows, or NULL. The new op shares the twin's
     * parameters, and therefore must use the twin's layout of parameters */
    const ls_op *twin;
    int training;  /* non-zero: backward will be called */
    int needs_dx;  /* non-zero: backward must write dx, and dx2 if there is an x2 */
    int fuse_relu; /* conv2d, dense, batchnorm, add: non-zero: the op also computes the relu that
                    * follows it. op_create may decline any combination of ops with
                    * LS_EUNSUPPORTED */
    int fuse_add;  /* batchnorm: non-zero: x2 is added before the relu; op_create may decline */
    int fuse_pool; /* conv2d: non-zero: the op also computes the pooling `pool`, after the relu if
                    * there is one; op_create may decline */
    int zero_bias; /* conv2d: non-zero: a batch norm is the only reader of y. The batch norm
                    * subtracts the mean of each channel, so the gradient of the bias is 0. backward
                    * may leave that gradient unwritten, because the caller has zeroed its memory */
    union {
        ls_gather gather;
        ls_conv2d conv2d;
        ls_dense dense;
        ls_relu relu;
        ls_hard_sigmoid hard_sigmoid;
        ls_clamp clamp;
        ls_affine affine;
        ls_sgd sgd;
        ls_adamw adamw;
        ls_batchnorm batchnorm;
        ls_layernorm layernorm;
        ls_upsample upsample;
        ls_pad pad;
        ls_dropout dropout;
        ls_softmax_xent softmax_xent;
        ls_running running;
        ls_vector_loss vector_loss;
        ls_clip clip;
    } u;
    ls_pool2d pool; /* for LS_OP_POOL and fuse_pool */
    size_t count; /* ops on arenas: number of floats, a multiple of 16 except for LS_OP_RUNNING and
                   * LS_OP_DIGEST */
    float rate;   /* optimizers: factor for args->lr; 0 means 1 */
} ls_op_desc;

/* Arguments that change from call to call. Each replica has one structure of this type in host
 * memory. An op on a CPU reads the structure while the op runs. The CUDA back end copies the
 * structure to the device. */
typedef struct ls_step_args {
    const uint32_t *rows; /* gather, dropout: dataset row of each row of the batch */
    uint32_t rows_before; /* gather: number of rows of the same shard before rows[0]: 0 unless the
                           * shard is processed in blocks */
    uint32_t rows_after;  /* gather: number of rows of the same shard after the last of `rows` */
    float *stats_copy;    /* optimizers with a `guard` (ls_op_buffers): pinned host memory to which
                           * the op copies the LS_OP_STATS floats at `guard`, also if the op changes
                           * nothing; NULL: no copy. A device without recordings may ignore this
                           * field */
    float lr;             /* optimizers: learning rate */
    float scale;          /* optimizers, clip: factor for the summed gradient */
    float row_scale;      /* running statistics: 1 / (number of rows of the minibatch) */
    uint64_t step;        /* optimizers: number of this step, from 1 */
    /* optimizers, running, LS_OP_DIGEST: the op adds the digest of all floats at param[0], and of
     * the optimizer's state at `slot`, to this number. It sums the values that it reads, before it
     * changes them. Memory of the device, like the arenas. NULL: no sum. A recording sums only if
     * the field was set when it was recorded and is set when it is launched. A device without
     * LS_DEVICE_DIGESTS ignores the field */
    uint64_t *digest;
    uint64_t seed;  /* gather, dropout: seed of the run. A random number depends only on this seed,
                     * the sequence (such as ls_dropout.stream), the epoch, and the dataset row or
                     * element */
    uint32_t epoch; /* gather, dropout: number of the epoch */
} ls_step_args;

#define LS_RECORD_STEPS 8 /* largest number of steps of one recording */

#define LS_OP_PARAMS 2   /* largest number of parameters of one op */
#define LS_OP_SLOTS 2    /* largest number of arenas for the state of one optimizer */
#define LS_CLIP_FLOATS 4 /* floats at `clip`: the factor, then working memory of clip ops */
#define LS_OP_STATS 2    /* number of floats that a loss op writes to `stats` */

/* All pointers that an op uses; the op's `bind` sets them. `args` points to host memory. All other
 * pointers point to memory from the device's `alloc`; with LS_DEVICE_HOST_MEMORY, to any host
 * memory. Fields that an op does not use are NULL. Memory that a call writes (y, dx, gradients,
 * saved) or uses (scratch) may have any contents before the call. */
typedef struct ls_op_buffers {
    const ls_step_args *args;
    const void *x;  /* the input; gather: all rows of the dataset, [rows][c][h][w], u8 or f32 */
    void *y;        /* the output */
    const void *dy; /* gradient of y; NULL in an op that is never trained */
    void *dx;       /* gradient of x; NULL if needs_dx is 0. A loss writes dx in forward */
    float *param[LS_OP_PARAMS]; /* parameters; optimizers: param[0] is the arena of weights */
    float *grad[LS_OP_PARAMS];  /* gradients of the parameters; optimizers: grad[0] is the arena of
                                 * gradients, read only */
    float *slot[LS_OP_SLOTS];   /* arenas of the optimizer's state; sgd: slot[0] is the velocity,
                                 * NULL if momentum is 0 */
    /* Optimizers, running: `guard` points at the LS_OP_STATS floats of the step's loss; the first
     * is the loss. Either both `guard` and `skip` are set, or both are NULL. If *guard is not
     * finite when the op's work runs, the op sets *skip to 1 and changes nothing else. While *skip
     * is not 0, the op changes nothing. Therefore the caller can enqueue an update before the loss
     * is known, and also enqueue later steps: after the first loss that is not finite, no update
     * has an effect until the caller sets *skip to 0. */
    const float *guard;
    float *skip; /* one float: non-zero while updates are skipped */
    /* optimizers, running, LS_OP_DIGEST: positions in the digest of the first float at param[0],
     * and then at each `slot`; multiples of 16 */
    size_t digest_at[1 + LS_OP_SLOTS];
    /* A *shadow* is a second copy of parameters or gradients in the type in which the device
     * computes matrix products: bf16 in the CUDA back end. Only devices whose
     * ls_device_info.shadow_bytes is not 0 have shadows. Whoever writes a parameter writes its
     * shadow as well: an optimizer writes shadow[0], the shadow of the whole arena, and after
     * import_param the library calls ls_device_ops.shadow. Ops use shadow_grad as working memory.
     * With LS_RUN_SHADOW they write their gradients there. */
    void *shadow[LS_OP_PARAMS], *shadow_grad[LS_OP_PARAMS];
    /* Optimizers: a bit mask. If bit i is set, the op reads elements 16·i … 16·i + 15 of the
     * gradient from shadow_grad[0] instead of grad[0]. NULL: the op reads all elements from
     * grad[0]. */
    const uint32_t *in_shadow;
    /* [LS_CLIP_FLOATS] written by a clip op; the first is the op's factor. Optimizers multiply the
     * gradient by args->scale and by clip[0]; if `clip` is NULL, by args->scale only. */
    float *clip;
    /* Labels [rows], or floats [rows][targets] if the target of a row is a vector. For a gather,
     * `rows` is the number of rows of the dataset; for a loss, the number of rows of the batch. */
    const int32_t *labels;
    int32_t *labels_out; /* gather: output, the labels or targets of the batch */
    /* Weights of rows, ≥ 0. For a gather [rows of the dataset]; for a loss [rows of the batch]: the
     * loss and dx of a row are multiplied by its weight, and are 0 if the weight is 0. NULL: all
     * weights are 1. */
    const float *weights;
    /* gather with `weights`: output, [rows of the batch]; a row that mixup mixes with another one
     * keeps its own weight */
    float *weights_out;
    float *stats;              /* losses: [0] summed loss, [1] number of correct predictions */
    const float *class_weight; /* softmax_xent with `weighted`: [classes] factors */
    const void *x2;            /* the second input */
    void *dx2;                 /* gradient of x2 */
    const float *running;      /* batchnorm: mean [c], variance [c], which forward reads */
    float *contribution;       /* batchnorm: [2·c], written in training */
    void *saved;               /* [op->saved_bytes] data that forward keeps for backward */
    void *scratch;             /* [op->scratch_bytes] working memory within one call */
} ls_op_buffers;

/* Flags of forward and backward. */
enum {
    /* backward adds to the gradients of the parameters, and forward adds to `stats` and
     * `contribution`, instead of overwriting them. Used if a shard is processed in several blocks
     * of rows. */
    LS_RUN_ACCUMULATE = 1,
    /* Forward in evaluation: batchnorm uses the running statistics, and dropout drops nothing.
     * Without the flag, batchnorm and dropout behave as in training. ls_op_desc.training does not
     * decide this: it is also 0 in an op of a training step for which backward is not called,
     * because no op before it has parameters. A gather ignores the flag and uses
     * ls_op_desc.training. */
    LS_RUN_EVALUATE = 2,
    /* Backward: the op writes the gradients of the parameters whose bits are set in
     * ls_op.shadow_grads to shadow_grad only. Their values are the same as without the flag. The
     * library does not combine this flag with LS_RUN_ACCUMULATE. */
    LS_RUN_SHADOW = 4,
    /* Forward: the caller promises that the parameters change only by import_param. The op may then
     * keep data that it computes from the parameters, such as transformed weights, from one forward
     * with this flag to the next. The op's import_param discards this data. */
    LS_RUN_CONSTANT = 8,
    /* Forward and backward: the caller promises that nothing has written the parameters since the
     * last forward of this op or of an op that shares its parameters (`twin`). Therefore data that
     * an op has computed from the parameters since that forward is still valid. The library sets
     * this flag for every shard of a step except the first. */
    LS_RUN_SAME = 16
};

/* Functions of an op. */
typedef struct ls_op_impl {
    size_t size; /* sizeof(ls_op_impl) */
    /* Sets the buffers of the op, which are copied. Errors: LS_EINVAL, LS_EDEVICE, LS_ENOMEM. */
    int (*bind)(ls_op *op, const ls_op_buffers *buffers, ls_error *err);
    /* Computes y, or the effect of an op without y; enqueues the work on `stream`. `flags` are
     * bits LS_RUN_….
     * Errors: LS_EINVAL, LS_EDATA (a label that is not a class), LS_EDEVICE, LS_ENOMEM. */
    int (*forward)(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);
    /* Optional: gather, losses, optimizers, clip and running have no backward. Computes the
     * gradients of the parameters and dx from dy and from the data that forward saved; enqueues the
     * work on `stream`. Errors: as forward. */
    int (*backward)(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);
    /* Optional in ops without parameters. Converts parameter `index` from the *canonical* form at
     * `src` in host memory (fp32, row-major, shapes as in ls_op_kind) to the op's layout at `dst`
     * in device memory, with padding zeroed. */
    int (*import_param)(ls_op *op, int index, void *dst, const float *src, ls_error *err);
    /* Optional in ops without parameters. Converts parameter `index` from the op's layout at `src`
     * in device memory to the canonical form at `dst` in host memory. */
    int (*export_param)(ls_op *op, int index, float *dst, const void *src, ls_error *err);
    /* Frees the op. NULL is allowed. */
    void (*destroy)(ls_op *op);
} ls_op_impl;

/* First fields of every op, which op_create fills; the back end's own fields follow. */
struct ls_op {
    const ls_op_impl *impl;
    ls_tensor y;                       /* the output, with as many rows as x; y.bytes is 0 if the op
                                        * has no output, or if y replaces x (its only reader) */
    int params;                        /* number of parameters, ≤ LS_OP_PARAMS */
    size_t param_floats[LS_OP_PARAMS]; /* size of each parameter in floats, in the op's layout,
                                        * padding included */
    size_t contribution_floats;        /* batchnorm: 2·c; else 0 */
    unsigned shadow_grads; /* bit i: backward can write the gradient of parameter i to its shadow
                            * only (LS_RUN_SHADOW) */
    size_t saved_bytes, scratch_bytes; /* sizes of ls_op_buffers.saved and .scratch */
    size_t kept_bytes;  /* size of the memory that the op itself has allocated for data that it
                         * computes from the parameters (LS_RUN_CONSTANT, LS_RUN_SAME). If several
                         * ops share that memory, only one reports its size */
    const char *kernel; /* name of the chosen kernel, for messages, such as "lanes:avx512" */
};

/* ---- devices -------------------------------------------------------------------------------- */

/* Properties of a device, as bits of ls_device_info.flags. */
enum {
    LS_DEVICE_HOST_MEMORY = 1, /* host pointers work on the device; alloc returns host memory */
    /* Only with LS_DEVICE_HOST_MEMORY and without recordings: the library may call an op's `bind`
     * any number of times, between any two calls of forward and backward, even within a step. The
     * op's `bind` only replaces pointers and allocates nothing. With this property, backward can
     * write gradients directly to the memory in which they are summed over the workers. A gather
     * can read rows of the dataset directly from the host memory into which the library has loaded
     * them. */
    LS_DEVICE_REBINDS = 2,
    LS_DEVICE_DIGESTS = 4 /* updates compute digests (ls_step_args.digest) */
};

/* Description of a device. */
typedef struct ls_device_info {
    char name[16];       /* name in messages and results: "cpu(0)", "cuda(1)" */
    char model[96];      /* product name: "AMD EPYC …", "NVIDIA H200" */
    char isa[32];        /* instruction set, on which the bits of results depend, such as "sm_90" */
    char library[96];    /* libraries that compute, with versions: "cuDNN 9.8.0" */
    unsigned flags;      /* bits LS_DEVICE_* */
    size_t memory_bytes; /* total memory of the device in bytes; 0: unknown */
    int threads;         /* number of threads with which a worker computes on a CPU (its *team*); 1
                          * on other devices */
    int shadow_bytes; /* size of one element of a shadow (ls_op_buffers) in bytes; 0: there are no
                       * shadows */
    int block_rows;   /* number of rows of the blocks in which a shard is computed fastest; 0: all
                       * rows of a shard at once */
} ls_device_info;

/* A piece of work, such as a kernel or a copy, that a device has done on one of its streams. */
typedef struct ls_device_span {
    uint64_t begin_ns, end_ns; /* begin and end, in ns of CLOCK_MONOTONIC, the clock of the
                                * library's timeline */
    const char *name; /* name of the work; owned by the device, valid until it is closed; can
                       * contain any bytes */
    uint32_t stream;  /* number that distinguishes the device's streams */
} ls_device_span;

/* Functions of a device. The functions from `bind` to `op_create` that return a status can fail
 * with LS_ENOMEM and LS_EDEVICE. */
typedef struct ls_device_ops {
    size_t size; /* sizeof(ls_device_ops) */
    /* Describes the device. */
    void (*describe)(const ls_device *device, ls_device_info *out);
    /* Makes the device current on the calling thread, which is the worker's. It is the first call
     * for the device on that thread. */
    int (*bind)(ls_device *device, ls_error *err);
    /* Frees the device. No function of the device may be called afterwards. NULL is allowed. */
    void (*close)(ls_device *device);
    /* Allocates `bytes` bytes of zeroed memory, aligned to 64 bytes. */
    int (*alloc)(void **out, ls_device *device, size_t bytes, ls_error *err);
    /* Frees memory of alloc. NULL is allowed. */
    void (*free)(ls_device *device, void *memory);
    /* Copies from host memory to the device. The device does not read `src` after the function has
     * returned. */
    int (*upload)(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                  ls_error *err);
    /* Copies from the device to host memory. The caller must not access `dst` until `sync` of the
     * stream has returned. If `dst` is memory of pinned_alloc, the caller may also access it once
     * `reached` has set *out to 1 for an event that was recorded after the download. */
    int (*download)(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                    ls_error *err);
    /* Copies within the device. */
    int (*copy)(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                ls_error *err);
    /* Computes dst[i] = a[i] + b[i] in fp32, with the operands in that order. dst may be a or b. */
    int (*add)(ls_device *device, ls_stream *stream, float *dst, const float *a, const float *b,
               size_t count, ls_error *err);
    /* Optional on devices without shadows (shadow_bytes 0). Writes the shadow of `count` elements
     * of parameters (see ls_op_buffers.shadow). */
    int (*shadow)(ls_device *device, ls_stream *stream, void *shadow, const float *param,
                  size_t count, ls_error *err);
    /* Optional, for back ends with layouts whose elements are not fp32. Computes sum += part, where
     * `sum` and `part` are gradients of `tensor`. NULL: all layouts are fp32, and the library uses
     * `add`. */
    int (*add_tensor)(ls_device *device, ls_stream *stream, const ls_tensor *tensor, void *sum,
                      const void *part, ls_error *err);
    /* Waits until all work of the stream is done (NULL: of every stream), and returns the first
     * error of that work. */
    int (*sync)(ls_device *device, ls_stream *stream, ls_error *err);
    /* Creates an op and chooses its kernels. Errors: also LS_EINVAL, and LS_EUNSUPPORTED for a
     * fused form that the back end declines. */
    int (*op_create)(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err);
    /* Optional. Returns the layout that the op prefers for its x, or NULL if the op prefers none.
     * The layout becomes the y_hint of the op that produces x. desc->x.layout and desc->y_hint are
     * not set yet. The device owns the layout. */
    const ls_layout *(*preferred_layout)(ls_device *device, const ls_op_desc *desc);

    /* Streams and events: four optional slots, of which all or none are set. A device without them
     * has one stream. */

    /* Creates a stream. */
    int (*stream_create)(ls_stream **out, ls_device *device, int high_priority, ls_error *err);
    /* Frees a stream. */
    void (*stream_destroy)(ls_device *device, ls_stream *stream);
    /* Records an event after the stream's present work. If *event is NULL, the function creates the
     * event; otherwise it moves the existing event to this point. The device owns its events and
     * frees them when it is closed. */
    int (*record)(ls_event **event, ls_device *device, ls_stream *stream, ls_error *err);
    /* Makes the stream's later work wait for an event. */
    int (*wait)(ls_device *device, ls_stream *stream, ls_event *event, ls_error *err);

    /* Recordings: five optional slots, of which all or none are set. A recording is work of a
     * stream that is recorded once and can then be enqueued as a whole any number of times. Between
     * record_begin and record_end, work for the stream is recorded and does not run. Allowed are
     * forward and backward of ops, copies, sums, and downloads into pinned memory. Uploads, other
     * downloads, waits for the device and a second recording are errors. */

    /* Starts a recording. */
    int (*record_begin)(ls_device *device, ls_stream *stream, ls_error *err);
    /* Begins the next step of the recording, which has at most LS_RECORD_STEPS steps. */
    int (*record_next)(ls_device *device, ls_stream *stream, ls_error *err);
    /* Ends the recording, even if recording a part of the work has failed. */
    int (*record_end)(ls_recording **out, ls_device *device, ls_stream *stream, ls_error *err);
    /* Enqueues a recording. `args` has one entry for each step of the recording, in order. The
     * function first copies the entries to the device. The ops of a step read the entry of that
     * step. */
    int (*launch)(ls_device *device, ls_stream *stream, ls_recording *recording,
                  const ls_step_args *args, ls_error *err);
    /* Frees a recording. NULL is allowed. */
    void (*recording_destroy)(ls_device *device, ls_recording *recording);

    /* Results without waiting for all work: three optional slots, of which all or none are set. */

    /* Allocates zeroed host memory. pinned_free frees it; `close` frees all blocks that were not
     * freed before. A download into this memory may be part of a recording; it then writes the
     * memory when the recorded work runs. */
    int (*pinned_alloc)(void **out, ls_device *device, size_t bytes, ls_error *err);
    /* Frees memory of pinned_alloc. NULL is allowed. */
    void (*pinned_free)(ls_device *device, void *memory);
    /* Sets *out to 1 if all work before `event` is done, else to 0, and returns the first error of
     * that work. Never waits. */
    int (*reached)(int *out, ls_device *device, ls_event *event, ls_error *err);
    /* Optional. Returns the communicators by which the gradients of workers on such devices are
     * summed (<lockstep/sys/communicator.h>): a static, NULL-terminated array. NULL: the gradients
     * are summed in host memory. */
    const struct ls_comm_type *const *(*communicators)(void);

    /* Kernel choices: two optional slots, of which both or none are set. A choice is the selection
     * of one of several kernels for the same op. The slots report and set a choice if it changes
     * the bits of results and another device with the same `model`, `isa` and `library` can choose
     * differently, for example because each device measures the kernels' speed. */

    /* Writes the choices of all ops so far as text to out[0 … size − 1], truncated and
     * zero-terminated, and returns the full length of the text. */
    size_t (*choices)(const ls_device *device, char *out, size_t size);
    /* Makes the device use the choices in `text`. Called before the device's first op is created.
     * Errors: LS_EDATA, LS_ENOMEM. If a choice cannot be applied later, op_create fails with
     * LS_EDEVICE. */
    int (*choose)(ls_device *device, const char *text, ls_error *err);

    /* Timeline: three optional slots, of which all or none are set. Spans are collected only
     * between spans_begin and spans_end, because collecting them costs time. */

    /* Starts to collect spans (ls_device_span). Called on the worker's thread, before any
     * recording. If the device cannot collect spans, the function fails, the message says why, and
     * the device remains usable. */
    int (*spans_begin)(ls_device *device, ls_error *err);
    /* Writes at most `most` spans to `out` and returns the number written. *lost receives the
     * number of spans that were lost since the last call. The spans of one stream are nearly sorted
     * by time. One thread at a time calls this function, not necessarily the worker's. */
    int (*spans_take)(ls_device *device, ls_device_span *out, int most, uint64_t *lost);
    /* Stops collecting spans; spans_take still returns the spans that were collected before. If
     * there are several devices, the library calls spans_end of all devices before it takes the
     * last spans of any of them. `close` stops collecting as well. Any thread while the device is
     * open. */
    void (*spans_end)(ls_device *device);
} ls_device_ops;

/* First field of every device; the back end's own fields follow. */
struct ls_device {
    const ls_device_ops *ops;
};

/* ---- back ends ------------------------------------------------------------------------------ */

/* Result of a back end's search for devices. */
typedef struct ls_backend_info {
    int devices; /* number of devices that can be opened; for the CPU back end, the number of cores
                  * that the process may use */
    char version[96]; /* versions of the back end's libraries, for `trainer --version` */
    char reason[192]; /* reason why there is no device, if `devices` is 0 */
    int broken;       /* non-zero: `devices` is 0 because of a fault, although a device may exist */
} ls_backend_info;

/* Arguments of ls_backend.open. */
typedef struct ls_device_request {
    size_t size;         /* sizeof(ls_device_request) */
    int index;           /* number of the device, from 0; several workers may open the same one */
    int threads;         /* number of threads of the worker's team (ls_device_info.threads) */
    const ls_host *host; /* allocator and log; outlives the device; may be NULL */
    ls_precision precision; /* precision of matrix products (device.h) */
    const char *cache_dir; /* directory in which the device keeps its kernel choices for later runs;
                            * the text outlives the device; NULL: none */
} ls_device_request;

/* The table of a back end. */
struct ls_backend {
    uint32_t abi;     /* LS_PLUGIN_ABI */
    size_t size;      /* sizeof(ls_backend) */
    const char *name; /* "cpu" */
    int counted;      /* non-zero: the devices are all alike, and "cpu:3" means three devices; zero:
                       * the devices are numbered, and "cuda:0,3" means devices 0 and 3 */
    /* Looks for devices, and describes the result, or a fault, in `out`. Any thread. */
    void (*probe)(ls_backend_info *out);
    /* Opens a device, which the caller closes. Any thread. Errors: LS_EINVAL (invalid request),
     * LS_EDEVICE (no such device, or it is broken), LS_EUNSUPPORTED, LS_ESYSTEM, LS_ENOMEM. */
    int (*open)(ls_device **out, const ls_device_request *request, ls_error *err);
};

/* ---- plugins -------------------------------------------------------------------------------- */

/* Name of the function that a plugin exports. A plugin is a shared library, liblockstep-NAME.so,
 * with one back end, and is loaded when that back end is first requested. The function has the type
 * ls_plugin_entry_fn:
 *
 *     const ls_backend *ls_plugin_backend(void);
 *
 * It returns the back end's table, which is static and constant. A table whose `abi` or `size` is
 * not the library's is refused. The function may be called repeatedly and from any thread, and the
 * plugin is never unloaded. A plugin uses no function of the library that loads it: it writes its
 * own errors (<lockstep/status.h>) and may allocate through the host's hooks
 * (<lockstep/host.h>). */
#define LS_PLUGIN_ENTRY "ls_plugin_backend"

/* Type of the function LS_PLUGIN_ENTRY. */
typedef const ls_backend *ls_plugin_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
