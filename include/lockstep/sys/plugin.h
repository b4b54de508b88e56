/* The back-end table: what a device must offer so that Lockstep can train on it.
 *
 * This header is for authors of back ends, and unstable: LS_PLUGIN_ABI says which one it is. A back end is one `ls_backend`; it opens devices; a
 * device allocates memory and creates *ops*. Everything above is written once against these
 * tables and knows nothing of any library.
 *
 * The life of an op:
 *
 *     desc.x = the tensor the previous op produced          shapes and layout, no memory yet
 *     ops->op_create(&op, device, &desc, err)               chooses kernels; op->y, sizes are known
 *     op->impl->bind(op, &buffers, err)                     once, but see LS_DEVICE_REBINDS
 *     op->impl->forward(op, stream, flags, err)             any number of times, allocates nothing
 *     op->impl->backward(op, stream, flags, err)
 *     op->impl->destroy(op)
 *
 * Layouts belong to the back end. A tensor carries an opaque layout; the producer of a tensor
 * chooses it, its consumers adapt (converting inside the op if they must), and a gradient always
 * has the layout of its tensor: dy that of y, dx that of x. Parameters live in whatever layout
 * their op prefers; only import_param and export_param convert. Padding in a parameter's or a
 * gradient's memory is zero and stays zero, so that element-wise work over whole arenas is safe.
 *
 * Numerics: a gradient is a *sum* over rows. A result may depend only on the rows, the
 * parameters, the op's description and the device's instruction set: never on the worker, on
 * what ran before, or on the time.
 *
 * Threads: `probe` and `open` may be called from any thread. Everything of a device and of its
 * ops is called from one thread, the one that called `bind`, the worker's; `counted` changes nothing of
 * this. (Only the library's own CPU back end, which asks for less, is called from others.)
 * Streams: every call that computes takes a stream and may return before the work is done; errors
 * of such work surface in `sync`. NULL is the device's default stream.
 * Slots are mandatory unless marked optional; an optional slot may be NULL.
 */
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

/* Raised on every incompatible change of this header; a back end must match it exactly. */
#define LS_PLUGIN_ABI 11

typedef struct ls_stream ls_stream;       /* an in-order queue of work of one device */
typedef struct ls_event ls_event;         /* a point in a stream's work */
typedef struct ls_recording ls_recording; /* work of a stream that can be enqueued again */
typedef struct ls_layout ls_layout;       /* how a back end arranges a tensor; NULL: row-major */
typedef struct ls_op ls_op;

/* ---- tensors -------------------------------------------------------------------------------- */

typedef enum ls_dtype { LS_F32 = 0, LS_U8 = 1 } ls_dtype;

/* A batch of rows, each c × h × w (a vector of n features is n × 1 × 1). */
typedef struct ls_tensor {
    ls_dtype dtype;
    int rows, c, h, w;
    const ls_layout *layout; /* NULL: [rows][c][h][w]. Owned by the op that produces the tensor */
    size_t bytes;            /* of the whole tensor, the layout's padding included */
} ls_tensor;

/* ---- ops ------------------------------------------------------------------------------------ */

typedef enum ls_op_kind {
    LS_OP_GATHER = 1, /* dataset rows (u8 or f32) → x (f32), and their labels or targets */
    LS_OP_CONV2D = 2, /* params: weight [out][in/groups][kh][kw], bias [out] */
    LS_OP_DENSE = 3,  /* params: weight [out][c·h·w], bias [out]; flattens x in c, h, w order */
    LS_OP_POOL = 4,   /* average or maximum, windows that do not fit are dropped (floor) */
    LS_OP_RELU = 5,   /* max(x, 0), or slope·x below 0; its derivative at 0 is the slope */
    LS_OP_SOFTMAX_XENT = 6, /* logits and labels → summed loss, correct count, gradient */
    LS_OP_SGD = 7,          /* the optimizer's step over a whole arena */
    LS_OP_EXPORT = 8,    /* x in any layout → y row-major (layout NULL); dx from row-major dy */
    LS_OP_BATCHNORM = 9, /* params: weight [c], bias [c]; statistics over rows, h and w */
    LS_OP_ADD = 10,      /* y = x + x2, of the same shape; x2 may have another layout */
    LS_OP_SIGMOID = 11,  /* 1 / (1 + e⁻ˣ) */
    LS_OP_TANH = 12,
    LS_OP_DROPOUT = 13, /* training: x / (1 − p), or 0 with probability p; else y = x */
    LS_OP_ADAMW = 14,   /* the optimizer's step over a whole arena */
    LS_OP_RUNNING = 15, /* running statistics ← (1 − momentum)·them + momentum·the step's */
    LS_OP_VECTOR_LOSS = 16, /* outputs and target vectors → summed loss, correct count, gradient */
    LS_OP_CLIP = 17, /* the norm of an arena → what the optimizer multiplies its gradient with */
    LS_OP_GELU = 18, /* x·Φ(x), Φ the normal distribution's: by erf, not by tanh */
    LS_OP_SILU = 19, /* x / (1 + e⁻ˣ) */
    LS_OP_LAYERNORM = 20, /* params: weight [c·h·w], bias [c·h·w]; statistics of each row */
    LS_OP_UPSAMPLE = 21,  /* each pixel of x becomes sh × sw of y */
    LS_OP_CONCAT =
        22,     /* y: x's channels, then x2's, of the same h and w; x2 may have another layout */
    LS_OP_KINDS /* none: one more than the last */
} ls_op_kind;

/* Channels are cut into `groups` in their order: each group of outputs reads that of inputs alone. Element
 * (i, j) of the kernel meets the pixel i·dh below and j·dw to the right of the one that (0, 0) meets. */
typedef struct ls_conv2d {
    int out;    /* output channels */
    int kh, kw; /* kernel */
    int sh, sw; /* stride */
    int ph, pw; /* zero padding on each side */
    int bias;   /* non-zero: there is a bias */
    int dh, dw; /* dilation; 0 counts as 1 */
    int groups; /* divides the channels of x and y; 0 counts as 1 */
} ls_conv2d;

/* The same with 1 where 0 counts as 1. Any thread. */
static inline ls_conv2d ls_conv2d_filled(ls_conv2d conv)
{
    conv.dh = conv.dh ? conv.dh : 1;
    conv.dw = conv.dw ? conv.dw : 1;
    conv.groups = conv.groups ? conv.groups : 1;
    return conv;
}

typedef struct ls_dense {
    int out;
    int bias;
} ls_dense;

/* An average divides by the pixels of the window that lie inside the image. Padding is smaller than
 * the kernel, so that every window has one. */
typedef struct ls_pool2d {
    int max; /* non-zero: maximum (the first of equal values wins), else average */
    int kh, kw, sh, sw, ph, pw;
} ls_pool2d;

/* y = (pixel / 255 − mean[c]) / std[c], and of rows of floats y = (value − mean[c]) / std[c], each
 * operation rounded to fp32; channels beyond the fourth use the fourth's.
 * In a gather whose desc has `training` set, the image is first changed at random. With
 * w = ls_rng_words(seed, LS_STREAM_AUGMENT, epoch, dataset row): when `flip` is set and w[2] is
 * odd, its columns are mirrored; then pixel (i, j) is the one at (i + w[0] mod (2·crop + 1) − crop,
 * j + w[1] mod (2·crop + 1) − crop), or a pixel of 0 where that is outside the image.
 * With v the words of LS_STREAM_AUGMENT_MORE, it is turned about its middle by (v[0] mod (512·rotate + 1)) / 256 −
 * rotate degrees before it is shifted, a pixel being made of the four it falls between; multiplied by 256 −
 * brightness + v[1] mod (2·brightness + 1) 256ths; and a square of `erase` pixels, whose middle is (v[2] mod h,
 * v[3] mod w), becomes 0. With m = w[3] mod (mixup + 1) row r is then mixed with the one behind it in the shard
 * (ls_step_args's rows with those before and behind them; the last with the first), changed as its own words say: (256 − m) and m 256ths of the two; a vector of targets, too, while a
 * class is the other's if w[2] / 256 mod 256 is below m. Bytes are rounded to bytes, as src/base/augment.h does it.
 * y's layout and bytes do not depend on `training`: the ops behind read the rows of either kind. */
typedef struct ls_gather {
    float mean[4], std[4];
    int crop;              /* pixels of zero padding for random crops, at most h + w; 0: none */
    int flip;              /* non-zero: mirror half of the images */
    int rotate;            /* most degrees, at most 45 */
    int erase;             /* pixels in a square's side */
    int brightness, mixup; /* in 256ths, at most 256 and 128 */
    int floats;            /* non-zero: the dataset's rows are floats, else bytes */
    int targets; /* floats of a row's target, which are copied as they are; 0: it has a class */
} ls_gather;

/* g ← g·scale + weight_decay·w;  v ← momentum·v + g (g alone when momentum is 0);
 * w ← w − lr·v, or with `nesterov` w ← w − lr·(g + momentum·v), v the new one. As PyTorch's SGD,
 * with a velocity that starts from zero. */
typedef struct ls_sgd {
    float momentum, weight_decay;
    int nesterov;
} ls_sgd;

/* g ← g·scale;  m ← β₁·m + (1 − β₁)·g;  v ← β₂·v + (1 − β₂)·g²;  w ← w·(1 − lr·weight_decay);
 * w ← w − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε), t = args->step from 1. The two
 * 1 − βᵗ are small differences: they are taken in double. m is slot[0], v is slot[1], both zero at
 * first. As PyTorch's AdamW. */
typedef struct ls_adamw {
    float beta1, beta2, epsilon, weight_decay;
} ls_adamw;

/* y = (x − mean)/√(variance + epsilon)·weight + bias, per channel. Training: the batch's own mean and variance (divided
 * by n); forward also writes its contribution to the running statistics: rows·mean [c], then rows·variance·n/(n − 1) [c]
 * (n the values per channel); where n is 1 the running statistics themselves, which so stay as they are. Evaluation: the running statistics. With fuse_add and fuse_relu,
 * y = max(… + x2, 0). Of values about 1e19 from their mean a variance may be infinite: y is then the bias, dx 0. */
typedef struct ls_batchnorm {
    float epsilon;
} ls_batchnorm;

/* y = (x − mean)/√(variance + epsilon)·weight + bias, element by element, with mean and variance (divided by n) of
 * each row over its c·h·w values, which may be as large as 1e36; epsilon > 0. */
typedef struct ls_layernorm {
    float epsilon;
} ls_layernorm;

typedef struct ls_upsample {
    int sh, sw; /* at least 1 */
} ls_upsample;

/* Element e (in c, h, w order) of dataset row r = args->rows[row of the batch] is dropped when
 * ls_rng_uniform(seed, stream, epoch, r·(c·h·w) + e) < p, the index in 64 bits: it is 0 in y and in
 * dx. The others are multiplied with 1/(1 − p). 0 ≤ p < 1. */
typedef struct ls_dropout {
    float p;
    uint32_t stream;
} ls_dropout;

/* Logits are vectors (h = w = 1). The target is (1 − smoothing) for the label plus smoothing /
 * classes for each, the label included; the loss is −Σ target·log(softmax), in evaluation too. A
 * row is correct when its first largest logit is the label's. `weighted`: a row's loss, and with it its dx, is multiplied
 * with its label's of the buffers' class_weight. */
typedef struct ls_softmax_xent {
    float smoothing;
    int weighted;
} ls_softmax_xent;

/* What is lost where the output is z and the target t; a row loses the mean of it over its outputs. Of
 * bits (0 or 1) each z is a logit, and a row is correct when z > 0 where t > ½ alone; else no row is. */
typedef enum ls_vector_rule {
    LS_VECTOR_MSE = 0, /* (z − t)² */
    LS_VECTOR_BCE = 1, /* max(z, 0) − z·t + log(1 + e⁻|z|) */
} ls_vector_rule;

/* Outputs are vectors (h = w = 1), row-major (layout NULL). */
typedef struct ls_vector_loss {
    ls_vector_rule rule;
} ls_vector_loss;

/* param[0][i] += momentum·(grad[0][i]·args->row_scale − param[0][i]); with `of_weights` grad[0] is an arena of
 * weights, of which param[0] is a moving average, and the scale is 1. */
typedef struct ls_running {
    float momentum;
    int of_weights;
} ls_running;

/* With n the norm of args->scale·grad[0]: clip[0] ← min(1, most / (n + 10⁻⁶)), as PyTorch's clip_grad_norm_. Of
 * an arena in several parts each part is an op: all but the first run with LS_RUN_ACCUMULATE, which counts what
 * the ones before have summed. The squares are added up in double, in an order of `count` alone. */
typedef struct ls_clip {
    float most;
} ls_clip;

/* What a relu leaves of negative values: 0 ≤ slope ≤ 1. A fused relu has the slope 0. */
typedef struct ls_relu {
    float slope;
} ls_relu;

typedef struct ls_op_desc {
    size_t size; /* sizeof(ls_op_desc) */
    ls_op_kind kind;
    ls_tensor
        x; /* the input as its producer made it; for a gather: one dataset row, u8 or f32, with
                         `rows` the rows of a batch. Unused by optimizers and LS_OP_RUNNING */
    ls_tensor x2;            /* LS_OP_ADD, LS_OP_CONCAT and fuse_add: the second input */
    const ls_layout *y_hint; /* what preferred_layout said of y's first consumer, or NULL */
    const ls_op *twin; /* an op of the same layer for another number of rows, or NULL: parameters
                          are shared with it, so their layout must be the twin's */
    int training;      /* non-zero: backward will be called */
    int needs_dx;      /* non-zero: backward must write dx, and dx2 where there is an x2 */
    int fuse_relu;     /* conv2d, dense, batchnorm, add: relu follows. May be declined with
                         LS_EUNSUPPORTED, as every fused form */
    int fuse_add;      /* batchnorm: x2 is added before the relu. May be declined */
    int fuse_pool;     /* conv2d: `pool` follows (after the relu, if any). May be declined */
    int zero_bias; /* conv2d: batch norm alone reads y, and takes each channel's mean away, so that
                          the bias's gradient is 0: backward may leave it as it is, which is 0 */
    union {
        ls_gather gather;
        ls_conv2d conv2d;
        ls_dense dense;
        ls_relu relu;
        ls_sgd sgd;
        ls_adamw adamw;
        ls_batchnorm batchnorm;
        ls_layernorm layernorm;
        ls_upsample upsample;
        ls_dropout dropout;
        ls_softmax_xent softmax_xent;
        ls_running running;
        ls_vector_loss vector_loss;
        ls_clip clip;
    } u;
    ls_pool2d pool; /* LS_OP_POOL, and fuse_pool */
    size_t count;   /* ops of arenas: floats, a multiple of 16 but for LS_OP_RUNNING */
    float rate;     /* optimizers: what args->lr is multiplied with; 0 counts as 1 */
} ls_op_desc;

/* What changes from call to call. One per replica, in host memory that the op reads when its work
 * is enqueued (CPU) or that the replica copies to the device (CUDA). */
typedef struct ls_step_args {
    const uint32_t *rows; /* gather, dropout: dataset row of each row of the batch */
    uint32_t before,
        behind; /* gather: how many of the same shard lie before `rows` and behind the last of them, as
                                that is worked through in blocks; other ops need not look at it */
    float *told;     /* optimizers with a guard: pinned memory that the step's LS_OP_STATS floats
                             from `guard` on go to, applied or not; NULL: nowhere. A device without
                             recordings need not look at it */
    float lr;        /* optimizers */
    float scale;     /* optimizers, clip: what the gradient sum is multiplied with */
    float row_scale; /* running statistics: 1 / rows of the minibatch */
    uint64_t step;   /* optimizers: this step's number, from 1 */
    uint64_t seed;   /* draws of random ops: (seed, stream, epoch, dataset row or element) */
    uint32_t epoch;
} ls_step_args;

#define LS_RECORD_STEPS 8 /* most steps of one recording */

#define LS_OP_PARAMS 2 /* most parameters of one op */
#define LS_OP_SLOTS 2  /* most optimizer slots */
#define LS_CLIP_FLOATS 4
#define LS_OP_STATS 2 /* floats that a loss makes */

/* Every pointer an op may use, fixed by `bind`. Memory is the device's, allocated by its `alloc`,
 * except `args` and where a device says LS_DEVICE_HOST_MEMORY. Fields an op has no use for are
 * NULL. What a call writes (y, dx, gradients, saved) or uses (scratch) may hold anything before. */
typedef struct ls_op_buffers {
    const ls_step_args *args;
    const void *x; /* gather: the whole dataset's images, [rows][c][h][w] u8 or f32 */
    void *y;
    const void *dy;             /* NULL in an op that is never trained */
    void *dx;                   /* NULL unless needs_dx; a loss writes it in forward */
    float *param[LS_OP_PARAMS]; /* optimizers: param[0] is the arena of weights */
    float *grad[LS_OP_PARAMS];  /* optimizers: grad[0] is the arena of gradients, read only */
    float *slot[LS_OP_SLOTS];   /* sgd: slot[0] is the velocity, NULL when momentum is 0 */
    /* Optimizers, running: one float each, or both NULL. When `guard`, the step's loss, is not
     * finite as the op's work runs, the op changes nothing but *held, which becomes 1; and while
     * *held is not 0 it changes nothing. So a step that must not be applied may be enqueued before
     * anybody knows, and others behind it, until the caller has set *held to 0. */
    const float *guard; /* the first of LS_OP_STATS floats */
    float *held;
    /* Where a device keeps shadows (ls_device_info): parameters as it multiplies them, and gradients as
     * its products come. A shadow is written with its parameter, by optimizers (shadow[0]: of the
     * arena), else by the table's `shadow`. An op leaves in shadow_grad what LS_RUN_SHADOW says, and
     * works in it. Optimizers: bit i of in_shadow, where it is not NULL, says that the gradients from
     * 16·i on, 16 of them, are in shadow_grad[0]. */
    void *shadow[LS_OP_PARAMS], *shadow_grad[LS_OP_PARAMS];
    const uint32_t *in_shadow;
    /* Clip writes LS_CLIP_FLOATS, the first of them what optimizers multiply the gradient with besides; NULL:
     * they multiply it with args->scale alone. */
    float *clip;
    /* Gather: the whole dataset's; losses: the batch's. Floats, [rows][targets], where rows have targets. */
    const int32_t *labels;
    int32_t *labels_out;       /* gather: the batch's */
    float *stats;              /* losses: [0] summed loss, [1] correct predictions */
    const float *class_weight; /* softmax_xent, where it is weighted: [classes] */
    const void *x2;            /* the second input, and its gradient */
    void *dx2;
    const float *running; /* batchnorm: mean [c], variance [c]; forward reads them */
    float *contribution;  /* batchnorm: 2·c floats, written in training */
    void *saved;          /* op->saved_bytes, kept from forward to backward */
    void *scratch;        /* op->scratch_bytes, used inside one call only */
} ls_op_buffers;

/* Flags of forward and backward. */
enum {
    /* Add to parameter gradients (backward), and to stats and contributions (forward), instead of
     * overwriting them: a shard that is worked through in several blocks of rows. */
    LS_RUN_ACCUMULATE = 1,
    /* Forward alone follows, in evaluation: batchnorm uses the running statistics, dropout passes
     * everything. This flag alone decides: without it both do what training does, also in an op
     * whose `training` is 0 because nothing before it learns. A gather goes by its `training`. */
    LS_RUN_EVALUATE = 2,
    /* Backward: gradients that the op's shadow_grads names go to shadow_grad and no further, with the
     * same numbers. Not together with LS_RUN_ACCUMULATE. */
    LS_RUN_SHADOW = 4,
    /* Forward: nothing but import_param writes the parameters, so that what an op has made of them in an earlier
     * forward with this flag still holds. */
    LS_RUN_CONSTANT = 8
};

typedef struct ls_op_impl {
    size_t size; /* sizeof(ls_op_impl) */
    /* Errors of these three: LS_EINVAL, LS_EDATA (a label that is no class), LS_EDEVICE, LS_ENOMEM. */
    int (*bind)(ls_op *op, const ls_op_buffers *buffers, ls_error *err);
    int (*forward)(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);
    /* Reads dy (and what forward saved), writes param gradients and dx. Optional: gather,
     * losses, the optimizers, clip and running have none. */
    int (*backward)(ls_op *op, ls_stream *stream, unsigned flags, ls_error *err);
    /* Canonical host fp32 (row-major, shapes as in ls_op_kind) → the op's layout at `dst` in
     * device memory, padding zeroed; and back. Optional in ops without parameters. */
    int (*import_param)(ls_op *op, int index, void *dst, const float *src, ls_error *err);
    int (*export_param)(ls_op *op, int index, float *dst, const void *src, ls_error *err);
    void (*destroy)(ls_op *op); /* NULL is allowed */
} ls_op_impl;

/* The start of every op; the back end's own fields follow. Filled by op_create. */
struct ls_op {
    const ls_op_impl *impl;
    ls_tensor y;                       /* rows is the x's; bytes 0 where there is no y */
    int params;                        /* ≤ LS_OP_PARAMS */
    size_t param_floats[LS_OP_PARAMS]; /* in the op's layout, padding included */
    size_t contribution_floats;        /* batchnorm: 2·c; else 0 */
    unsigned shadow_grads;             /* bit i: parameter i's gradient can stay in its shadow */
    size_t saved_bytes, scratch_bytes;
    const char *kernel; /* what was chosen, for people: "lanes:avx512" */
};

/* ---- devices -------------------------------------------------------------------------------- */

enum {
    LS_DEVICE_HOST_MEMORY = 1, /* host pointers work on the device; alloc gives host memory */
    /* With the host's memory and without recordings: `bind` may be called again, between any two passes, on the
     * path of a step, and only replaces pointers: it allocates nothing. Gradients then lie where they are merged. */
    LS_DEVICE_REBINDS = 2
};

typedef struct ls_device_info {
    char name[16];       /* "cpu(0)", "cuda(1)": as printed in results */
    char model[96];      /* "AMD EPYC …", "NVIDIA H200" */
    char isa[32];        /* instruction set that the bits depend on: "sm_90" */
    char library[64];    /* "cuDNN 9.8.0" */
    unsigned flags;      /* LS_DEVICE_… */
    size_t memory_bytes; /* 0: unknown */
    int threads;         /* the worker's team on the CPU, 1 elsewhere */
    int shadow_bytes;    /* of the shadow of a parameter, 0: there are none */
    int block_rows;      /* rows in which a shard is best worked through, 0: the whole shard */
} ls_device_info;

/* What a device did on one of its streams: a kernel, a copy. */
typedef struct ls_device_span {
    uint64_t begin_ns, end_ns; /* of CLOCK_MONOTONIC, the clock of the host's timeline */
    const char *name;          /* the device's, until it is closed; perhaps any bytes */
    uint32_t stream;           /* tells the device's streams apart */
} ls_device_span;

typedef struct ls_device_ops {
    size_t size; /* sizeof(ls_device_ops) */
    void (*describe)(const ls_device *device, ls_device_info *out);
    /* Errors from here to op_create: LS_ENOMEM, LS_EDEVICE; of op_create also LS_EINVAL, and LS_EUNSUPPORTED
     * for a form that it declines. */
    /* First call on the worker's thread; makes the device current there. */
    int (*bind)(ls_device *device, ls_error *err);
    void (*close)(ls_device *device); /* last call; NULL is allowed */
    /* Zeroed, 64-byte aligned memory. */
    int (*alloc)(void **out, ls_device *device, size_t bytes, ls_error *err);
    void (*free)(ls_device *device, void *memory); /* NULL is allowed */
    /* An upload has read `src` when it returns. A download's `dst` belongs to the device until `sync` of the stream
     * has returned; one of pinned_alloc until `reached` has said that it is done. */
    int (*upload)(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                  ls_error *err);
    int (*download)(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                    ls_error *err);
    /* dst ← src, within the device. */
    int (*copy)(ls_device *device, ls_stream *stream, void *dst, const void *src, size_t bytes,
                ls_error *err);
    /* dst[i] ← a[i] + b[i], fp32, in that order; dst may be a or b. */
    int (*add)(ls_device *device, ls_stream *stream, float *dst, const float *a, const float *b,
               size_t count, ls_error *err);
    /* With shadow_bytes: the shadows of `count` parameters. */
    int (*shadow)(ls_device *device, ls_stream *stream, void *shadow, const float *param,
                  size_t count, ls_error *err);
    /* Optional: sum ← sum + part, two gradients of such a tensor. For back ends with layouts that are
     * not made of fp32; NULL: all are, and `add` does it. */
    int (*add_tensor)(ls_device *device, ls_stream *stream, const ls_tensor *tensor, void *sum,
                      const void *part, ls_error *err);
    /* Returns when all work of the stream is done (NULL: of every stream), with its first error. */
    int (*sync)(ls_device *device, ls_stream *stream, ls_error *err);
    int (*op_create)(ls_op **out, ls_device *device, const ls_op_desc *desc, ls_error *err);
    /* Optional: the layout this op would like its x in, for the producer's y_hint; NULL: any.
     * desc->x.layout and desc->y_hint are not set yet. Owned by the device. */
    const ls_layout *(*preferred_layout)(ls_device *device, const ls_op_desc *desc);
    /* Optional, all four or none: streams and events. A device without them has one stream. record: where
     * *event is NULL it makes one, else it uses that one again; events are the device's, and go with it. */
    int (*stream_create)(ls_stream **out, ls_device *device, int high_priority, ls_error *err);
    void (*stream_destroy)(ls_device *device, ls_stream *stream);
    int (*record)(ls_event **event, ls_device *device, ls_stream *stream, ls_error *err);
    int (*wait)(ls_device *device, ls_stream *stream, ls_event *event, ls_error *err);
    /* Optional, all five or none: work that is enqueued once, recorded, and then enqueued again as a
     * whole. Between begin and end, what a stream is given is recorded and not run: passes of ops,
     * copies and sums, and downloads into pinned memory, nothing else; uploads, other downloads and
     * waiting for the device are errors, and so is a second recording. end ends a recording that
     * failed as well. next: what follows is another step's, LS_RECORD_STEPS at most in a recording.
     * launch takes the args of each, in order, for its ops to read: it first brings them to the
     * device, then enqueues the recording. */
    int (*record_begin)(ls_device *device, ls_stream *stream, ls_error *err);
    int (*record_next)(ls_device *device, ls_stream *stream, ls_error *err);
    int (*record_end)(ls_recording **out, ls_device *device, ls_stream *stream, ls_error *err);
    int (*launch)(ls_device *device, ls_stream *stream, ls_recording *recording,
                  const ls_step_args *args, ls_error *err);
    void (*recording_destroy)(ls_device *device, ls_recording *recording); /* NULL is allowed */
    /* Optional, all three or none: results without waiting for all work. pinned_alloc: zeroed
     * memory of the host, freed by pinned_free (NULL is allowed) or when the device is closed; a
     * download into it may be recorded, and writes it when its work runs, at no other time. reached:
     * whether the work before an event was recorded is done (*out 1) or not yet (0), with its first
     * error; it never waits. */
    int (*pinned_alloc)(void **out, ls_device *device, size_t bytes, ls_error *err);
    void (*pinned_free)(ls_device *device, void *memory);
    int (*reached)(int *out, ls_device *device, ls_event *event, ls_error *err);
    /* Optional: how workers on such devices merge their gradients, NULL-terminated and static; see
     * <lockstep/sys/communicator.h>. NULL: through the host's memory. */
    const struct ls_comm_type *const *(*communicators)(void);
    /* Optional, both or none: choices among kernels that results depend on, and that another device of the same
     * model, instruction set and library could make otherwise. choices: those of all ops so far as text, of
     * which as much goes to out[0 … size − 1], terminated, as fits; returns its length. choose: before the first
     * op; the device goes by these. Errors: LS_EDATA, LS_ENOMEM; of op_create then LS_EDEVICE (a choice cannot
     * be taken). */
    size_t (*choices)(const ls_device *device, char *out, size_t size);
    int (*choose)(ls_device *device, const char *text, ls_error *err);
    /* Optional, all three or none: what the device does, and when, for a timeline. It costs time, and
     * is collected only between begin and end. begin: on the device's thread, before anything is
     * recorded; it fails where the means are not there, and says why; the device is as good as before.
     * take, by one other thread at a time: the next `most` spans at most, and into *lost how many were
     * lost since the last call; returns how many it gave. The spans of a stream come nearly in order.
     * end, by any thread while the device is open: nothing is added later; what is there can
     * still be taken. Several devices end first, and are taken from then. close ends it too. */
    int (*spans_begin)(ls_device *device, ls_error *err);
    int (*spans_take)(ls_device *device, ls_device_span *out, int most, uint64_t *lost);
    void (*spans_end)(ls_device *device);
} ls_device_ops;

/* The start of every device; the back end's own fields follow. */
struct ls_device {
    const ls_device_ops *ops;
};

/* ---- back ends ------------------------------------------------------------------------------ */

typedef struct ls_backend_info {
    int devices;      /* how many can be opened; a CPU says how many CPUs are allowed */
    char version[96]; /* of the back end's libraries, for `trainer --version` */
    char reason[192]; /* why there are none, when devices is 0 */
    int broken;       /* devices is 0 because something is wrong, not because none is there */
} ls_backend_info;

typedef struct ls_device_request {
    size_t size;
    int index;           /* which device; several workers may ask for the same */
    int threads;         /* the worker's team; 1 unless asked for */
    const ls_host *host; /* outlives the device; may be NULL */
    ls_precision precision;
    const char *cache_dir; /* where choices of kernels are kept from run to run; NULL: nowhere.
                              Outlives the device */
} ls_device_request;

struct ls_backend {
    uint32_t abi;     /* LS_PLUGIN_ABI */
    size_t size;      /* sizeof(ls_backend) */
    const char *name; /* "cpu" */
    int counted;      /* non-zero: devices are alike and NAME:3 means three of them; zero: they
                         have identities and NAME:0,3 lists them */
    /* Never fails: what is wrong is said in `out`. */
    void (*probe)(ls_backend_info *out);
    /* The caller closes it. Errors: LS_EINVAL (a wrong request), LS_EDEVICE (no such device, or broken),
     * LS_EUNSUPPORTED, LS_ESYSTEM, LS_ENOMEM. */
    int (*open)(ls_device **out, const ls_device_request *request, ls_error *err);
};

/* ---- plugins -------------------------------------------------------------------------------- */

/* A back end may live in a shared library, liblockstep-NAME.so, that is loaded when it is first asked
 * for. It exports one function, of this name and type, and needs nothing of the library that loads it:
 * it writes its own errors (<lockstep/status.h>), and takes memory from the host's hooks
 * (<lockstep/host.h>) if it cares to.
 *
 *     const ls_backend *ls_plugin_backend(void);
 *
 * It returns the back end's table, static and constant; a table whose `abi` or `size` is not this
 * library's is refused. It may be called often and from any thread, and the library is never
 * unloaded. */
#define LS_PLUGIN_ENTRY "ls_plugin_backend"

typedef const ls_backend *ls_plugin_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
