/* oneDNN behind a few calls: 2.6 or any 3.x. What differs between the two is behind cpu_dnnl_api.h; the
 * rest of the folder uses what is here and the calls that both have (engine, stream, memory,
 * primitive, execute).
 *
 * Every primitive is made with a scratchpad given by its user: oneDNN's own is thread-local and
 * shared, which breaks primitives that outlive the thread that made them.
 * dnnl_primitive_execute allocates small maps for its arguments; Lockstep's own code on the step
 * path allocates nothing.
 */
#ifndef CPU_CPU_DNNL_H
#define CPU_CPU_DNNL_H

#include "cpu/cpu_device.h"
#include "cpu/cpu_layout.h"

#include <oneapi/dnnl/dnnl.h>

/* ---- memory descriptors ---------------------------------------------------------------------- */

typedef enum ls_md_format {
    LS_MD_ANY,   /* the kernel chooses */
    LS_MD_PLAIN, /* row-major in the order of the dimensions */
    LS_MD_NHWC,  /* 4 dimensions, channels last */
    /* As wino.h wants them: an image in blocks of 16 channels, [rows][c/16][h][w][16]; weights as
     * [out/16][in/16][h][w][16 in][16 out], and with the two sixteens exchanged. */
    LS_MD_BLOCKS,
    LS_MD_OUT_LAST,
    LS_MD_IN_LAST,
    LS_MD_KEPT /* oneDNN's own, which the device keeps */
} ls_md_format;

typedef struct ls_md_kept ls_md_kept;

/* A value: copied freely, nothing to free; one that came from ls_pd_md lives as long as its device.
 * Only cpu_dnnl_md.c looks inside. */
struct ls_md {
    int n; /* dimensions; 0: of nothing */
    ls_md_format format;
    dnnl_dim_t dims[4];
    size_t bytes;
    const ls_md_kept *kept;
};

/* A descriptor of `n` (1, 2 or 4) dimensions of floats. */
ls_md ls_md_make(int n, const int *dims, ls_md_format format);

/* Rows × channels × height × width. */
ls_md ls_md_image(int rows, int c, int h, int w, ls_md_format format);

/* The same dimensions in another format. */
ls_md ls_md_as(const ls_md *md, ls_md_format format);

/* A vector of all the floats of `md`, padding included: for element-wise work in any format. */
ls_md ls_md_flat(const ls_md *md);

/* The descriptor of a tensor that is plain or oneDNN's; for lanes, the plain one of its shape. */
ls_md ls_md_of(const ls_tensor *tensor);

/* The number of dimensions, 0 for the descriptor of nothing; and the length of one. */
int ls_md_rank(const ls_md *md);
int ls_md_dim(const ls_md *md, int i);

size_t ls_md_bytes(const ls_md *md);

bool ls_md_equal(const ls_md *a, const ls_md *b);

/* Non-zero when both put every element at the same place, whatever their strides say about
 * dimensions of length one: NHWC with one channel, or of one pixel, is plain. */
int ls_md_same_memory(const ls_md *a, const ls_md *b);

/* The strides of a descriptor of 4 dimensions without blocks. LS_EUNSUPPORTED for others. */
int ls_md_strided(ls_strided *out, const ls_md *md);

/* The planes of a descriptor of 4 dimensions: plain, channels last or blocks of 8 or 16 channels.
 * LS_EUNSUPPORTED for others. */
int ls_md_planes(ls_planes *out, const ls_md *md);

/* "nhwc", "nchw" or "blocked", for people. */
const char *ls_md_name(const ls_md *md);

/* ---- primitive descriptors ------------------------------------------------------------------- */

typedef dnnl_primitive_desc_t ls_pd;

typedef enum ls_pass {
    LS_PASS_FORWARD, /* training: backward follows */
    LS_PASS_INFERENCE,
    LS_PASS_BACKWARD_DATA,
    LS_PASS_BACKWARD_WEIGHTS
} ls_pass;

/* The tensors of a convolution or an inner product; gradients have their tensor's descriptor. */
typedef struct ls_linear_mds {
    ls_md x, weight, bias, y;
    int has_bias;
} ls_linear_mds;

/* All: a descriptor of the kernel that oneDNN likes best for exactly this; `hint` is the forward
 * pass's in a backward pass, else NULL. Errors: LS_EUNSUPPORTED when oneDNN has no kernel,
 * LS_EDEVICE when it fails, LS_ENOMEM. `relu` fuses max(·, 0) behind a forward pass; `winograd` asks for oneDNN's
 * kernels of that algorithm, which serve comparisons. */
int ls_pd_conv(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_linear_mds *m,
               const ls_conv2d *conv, int winograd, int relu, ls_pd hint, ls_error *err);
int ls_pd_dense(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_linear_mds *m,
                int relu, ls_pd hint, ls_error *err);
int ls_pd_pool(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_md *x,
               const ls_md *y, const ls_pool2d *pool, ls_pd hint, ls_error *err);
/* Element-wise over a flat descriptor; backward uses y, not x, and is 0 where y is 0. */
int ls_pd_relu(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_md *flat, ls_pd hint,
               ls_error *err);
/* The same, but for slope·x below 0, and the slope where y is 0. */
int ls_pd_leaky_relu(ls_pd *out, const ls_cpu_device *device, float slope, ls_pass pass,
                     const ls_md *flat, ls_pd hint, ls_error *err);
/* The same for curves, over any descriptor; what is padding stays zero. */
typedef enum ls_curve { LS_CURVE_SIGMOID, LS_CURVE_TANH } ls_curve;
int ls_pd_curve(ls_pd *out, const ls_cpu_device *device, ls_curve curve, ls_pass pass,
                const ls_md *md, ls_pd hint, ls_error *err);
int ls_pd_reorder(ls_pd *out, const ls_cpu_device *device, const ls_md *from, const ls_md *to,
                  ls_error *err);

void ls_pd_destroy(ls_pd pd); /* NULL is allowed */

/* What the kernel wants for one of its arguments, such as dnnl_query_src_md; of nothing when it has no
 * such argument. When memory runs out, whatever the descriptor is used for fails with LS_ENOMEM. */
ls_md ls_pd_md(const ls_cpu_device *device, ls_pd pd, dnnl_query_t what);

/* The kernel's name in oneDNN, "jit:avx512_core". Lives as long as the library. */
const char *ls_pd_kernel(ls_pd pd);

/* How good the kernel's kind is: 3 generated for this CPU, 2 matrix product, 1 simple loops,
 * 0 oneDNN's reference (hundreds of times slower). */
int ls_pd_rank(ls_pd pd);

/* ---- the library ----------------------------------------------------------------------------- */

int ls_dnnl_engine(ls_cpu_device *device, ls_error *err);
void ls_dnnl_engine_free(ls_cpu_device *device);

/* "oneDNN 2.6.3", of the library that is loaded. */
void ls_dnnl_version(char *out, size_t size);

/* "avx512_core": what its kernels, and so the bits of results, depend on. */
const char *ls_dnnl_isa(void);

/* A memory object over `pointer` (NULL: over nothing yet). oneDNN zeroes the padding here, once. */
int ls_dnnl_memory(dnnl_memory_t *out, const ls_cpu_device *device, const ls_md *md, void *pointer,
                   const char *op, ls_error *err);

/* LS_EDEVICE, or LS_ENOMEM, with "oneDNN: CALL for OP failed: status N (…)". */
int ls_dnnl_fail(ls_error *err, dnnl_status_t status, const char *call, const char *op);

#endif
