/* Kernels of oneDNN, and the library itself. See cpu_dnnl.h. */
#include "cpu/cpu_dnnl_api.h"

#include "base/error.h"
#include "base/host.h"

#include <stdio.h>
#include <string.h>

static const char *status_words(dnnl_status_t status)
{
    switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented";
    case dnnl_runtime_error: return "run-time error";
    default: return "unknown status";
    }
}

int ls_dnnl_fail(ls_error *err, dnnl_status_t status, const char *call, const char *op)
{
    int code = status == dnnl_out_of_memory ? LS_ENOMEM : LS_EDEVICE;
    return ls_fail(err, code, "oneDNN: %s for %s failed: status %d (%s)", call, op, (int)status,
                   status_words(status));
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *out, int relu)
{
    dnnl_post_ops_t post = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(out);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (s != dnnl_success || !relu)
        return s;
    s = dnnl_post_ops_create(&post);
    if (s == dnnl_success)
        s = ls_dnnl_append_relu(post);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_post_ops(*out, post);
    dnnl_post_ops_destroy(post);
    return s;
}

typedef dnnl_status_t ask_fn(ls_pd *out, const ls_dnnl_ask *ask);

/* The descriptors of a question, as long as it is asked. */
typedef struct descs {
    ls_dnnl_own x, weight, bias, y;
} descs;

static ls_dnnl_desc open_desc(ls_dnnl_own *own, const ls_md *md, dnnl_status_t *status)
{
    *own = (ls_dnnl_own){0};
    if (!md)
        return NULL;
    ls_dnnl_desc d = ls_dnnl_open(own, md);
    if (!d)
        *status = dnnl_out_of_memory;
    return d;
}

/* Asks for the kernel; `m` names the tensors, those that it has. */
static int make_pd(ls_pd *out, const ls_cpu_device *device, ask_fn *ask, ls_dnnl_ask *a,
                   const ls_md *x, const ls_md *weight, const ls_md *bias, const ls_md *y, int relu,
                   const char *op, ls_error *err)
{
    descs d;
    dnnl_status_t s = dnnl_success;
    a->engine = device->engine;
    a->prop = a->pass == LS_PASS_INFERENCE ? dnnl_forward_inference : dnnl_forward_training;
    a->x = open_desc(&d.x, x, &s);
    a->weight = open_desc(&d.weight, weight, &s);
    a->bias = open_desc(&d.bias, bias, &s);
    a->y = open_desc(&d.y, y, &s);
    if (s == dnnl_success)
        s = make_attr(&a->attr, relu);
    if (s == dnnl_success)
        s = ask(out, a);
    if (a->attr)
        dnnl_primitive_attr_destroy(a->attr);
    ls_dnnl_drop(&d.x);
    ls_dnnl_drop(&d.weight);
    ls_dnnl_drop(&d.bias);
    ls_dnnl_drop(&d.y);
    if (s == dnnl_success)
        return LS_OK;
    *out = NULL;
    if (s == dnnl_unimplemented)
        return ls_fail(err, LS_EUNSUPPORTED, "oneDNN has no kernel for this %s", op);
    return ls_dnnl_fail(err, s, "primitive_desc_create", op);
}

/* oneDNN's AVX2 kernel for strided 1 × 1 gathers pixels of 8 floats into memory that it asked for in
 * pixels of as many floats as there are channels: below 8, channels last, it writes past its
 * scratchpad. */
static int overruns(const ls_cpu_device *device, ls_pd pd, const ls_conv2d *conv)
{
    ls_md x = ls_pd_md(device, pd, dnnl_query_src_md), last = ls_md_as(&x, LS_MD_NHWC);
    return strcmp(ls_pd_kernel(pd), "jit_1x1:avx2") == 0 && (conv->sh > 1 || conv->sw > 1) &&
           ls_md_dim(&x, 1) < 8 && ls_md_same_memory(&x, &last);
}

static int decline_overruns(ls_pd *out, const ls_cpu_device *device, const ls_conv2d *conv,
                            ls_error *err)
{
    if (!overruns(device, *out, conv))
        return LS_OK;
    ls_pd_destroy(*out);
    *out = NULL;
    return ls_fail(err, LS_EUNSUPPORTED, "oneDNN's kernel for this conv2d overruns its scratchpad");
}

/* That of 3.7 for AVX-512 gives wrong numbers where the image is smaller than a stride or the window: 10
 * rows of 1×3×1, 2×2, stride 1×3, padding 1. */
static bool is_wrong(ls_pd pd, const ls_conv2d *conv, const dnnl_dim_t *in)
{
    return strncmp(ls_pd_kernel(pd), "brg_conv_fwd", 12) == 0 &&
           (in[0] < conv->kh || in[1] < conv->kw || in[0] < conv->sh || in[1] < conv->sw);
}

static int pass_over_wrong(ls_pd *out, const ls_conv2d *conv, const dnnl_dim_t *in, ls_error *err)
{
    while (is_wrong(*out, conv, in)) {
        if (ls_dnnl_next(*out) == dnnl_success)
            continue;
        ls_pd_destroy(*out);
        *out = NULL;
        return ls_fail(err, LS_EUNSUPPORTED, "oneDNN has no right kernel for this conv2d");
    }
    return LS_OK;
}

int ls_pd_conv(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_linear_mds *m,
               const ls_conv2d *conv, int winograd, int relu, ls_pd hint, ls_error *err)
{
    const dnnl_dim_t *in = m->x.dims + 2, *o = m->y.dims + 2;
    ls_dnnl_ask a = {.pass = pass,
                     .alg = winograd ? dnnl_convolution_winograd : dnnl_convolution_direct,
                     .hint = hint,
                     .stride = {conv->sh, conv->sw},
                     .near = {conv->ph, conv->pw}};
    /* The far padding is what the output's size needs: pixels that no window reaches do not
     * count. It may be less than the near padding, or negative. */
    a.far[0] = (o[0] - 1) * conv->sh + conv->kh - in[0] - conv->ph;
    a.far[1] = (o[1] - 1) * conv->sw + conv->kw - in[1] - conv->pw;
    int status = make_pd(out, device, ls_dnnl_ask_conv, &a, &m->x, &m->weight,
                         m->has_bias ? &m->bias : NULL, &m->y, relu, "conv2d", err);
    if (status == LS_OK && pass == LS_PASS_BACKWARD_WEIGHTS)
        return decline_overruns(out, device, conv, err);
    if (status == LS_OK && pass != LS_PASS_BACKWARD_DATA)
        return pass_over_wrong(out, conv, in, err);
    return status;
}

int ls_pd_dense(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_linear_mds *m,
                int relu, ls_pd hint, ls_error *err)
{
    ls_dnnl_ask a = {.pass = pass, .hint = hint};
    return make_pd(out, device, ls_dnnl_ask_dense, &a, &m->x, &m->weight,
                   m->has_bias ? &m->bias : NULL, &m->y, relu, "dense", err);
}

int ls_pd_pool(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_md *x,
               const ls_md *y, const ls_pool2d *pool, ls_pd hint, ls_error *err)
{
    ls_dnnl_ask a = {.pass = pass,
                     .alg = pool->max ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding,
                     .hint = hint,
                     .stride = {pool->sh, pool->sw},
                     .kernel = {pool->kh, pool->kw},
                     .near = {pool->ph, pool->pw}};
    return make_pd(out, device, ls_dnnl_ask_pool, &a, x, NULL, NULL, y, 0, "pool", err);
}

static int make_eltwise(ls_pd *out, const ls_cpu_device *device, dnnl_alg_kind_t alg, float alpha,
                        ls_pass pass, const ls_md *md, ls_pd hint, const char *op, ls_error *err)
{
    ls_dnnl_ask a = {.pass = pass, .alg = alg, .hint = hint, .alpha = alpha};
    return make_pd(out, device, ls_dnnl_ask_eltwise, &a, md, NULL, NULL, NULL, 0, op, err);
}

int ls_pd_relu(ls_pd *out, const ls_cpu_device *device, ls_pass pass, const ls_md *flat, ls_pd hint,
               ls_error *err)
{
    return ls_pd_leaky_relu(out, device, 0.0f, pass, flat, hint, err);
}

int ls_pd_leaky_relu(ls_pd *out, const ls_cpu_device *device, float slope, ls_pass pass,
                     const ls_md *flat, ls_pd hint, ls_error *err)
{
    return make_eltwise(out, device, dnnl_eltwise_relu_use_dst_for_bwd, slope, pass, flat, hint,
                        "relu", err);
}

int ls_pd_curve(ls_pd *out, const ls_cpu_device *device, ls_curve curve, ls_pass pass,
                const ls_md *md, ls_pd hint, ls_error *err)
{
    if (curve == LS_CURVE_TANH)
        return make_eltwise(out, device, dnnl_eltwise_tanh_use_dst_for_bwd, 0.0f, pass, md, hint,
                            "tanh", err);
    return make_eltwise(out, device, dnnl_eltwise_logistic_use_dst_for_bwd, 0.0f, pass, md, hint,
                        "sigmoid", err);
}

int ls_pd_reorder(ls_pd *out, const ls_cpu_device *device, const ls_md *from, const ls_md *to,
                  ls_error *err)
{
    ls_dnnl_own a, b;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = dnnl_success;
    ls_dnnl_desc src = open_desc(&a, from, &s), dst = open_desc(&b, to, &s);
    if (s == dnnl_success)
        s = make_attr(&attr, 0);
    if (s == dnnl_success)
        s = dnnl_reorder_primitive_desc_create(out, src, device->engine, dst, device->engine, attr);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    ls_dnnl_drop(&a);
    ls_dnnl_drop(&b);
    if (s == dnnl_success)
        return LS_OK;
    *out = NULL;
    return ls_dnnl_fail(err, s, "primitive_desc_create", "a change of layout");
}

void ls_pd_destroy(ls_pd pd)
{
    if (pd)
        dnnl_primitive_desc_destroy(pd);
}

const char *ls_pd_kernel(ls_pd pd)
{
    const char *name = NULL;
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name ? name : "?";
}

int ls_pd_rank(ls_pd pd)
{
    const char *name = ls_pd_kernel(pd);
    if (strncmp(name, "x64:", 4) == 0)
        name += 4;
    if (strncmp(name, "ref", 3) == 0)
        return 0;
    if (strncmp(name, "simple", 6) == 0)
        return 1;
    if (strncmp(name, "gemm", 4) == 0)
        return strstr(name, "ref") ? 1 : 2;
    return 3;
}

/* ---- the library ----------------------------------------------------------------------------- */

int ls_dnnl_engine(ls_cpu_device *device, ls_error *err)
{
    device->kept = ls_alloc(device->host, sizeof *device->kept);
    if (!device->kept)
        return ls_fail(err, LS_ENOMEM, "cpu(%d): out of memory", device->index);
    dnnl_status_t s = dnnl_engine_create(&device->engine, dnnl_cpu, 0);
    if (s != dnnl_success)
        return ls_dnnl_fail(err, s, "engine_create", "the CPU");
    s = dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags);
    return s == dnnl_success ? LS_OK : ls_dnnl_fail(err, s, "stream_create", "the CPU");
}

void ls_dnnl_engine_free(ls_cpu_device *device)
{
    if (device->stream)
        dnnl_stream_destroy(device->stream);
    if (device->engine)
        dnnl_engine_destroy(device->engine);
    if (device->kept)
        ls_dnnl_forget(device->host, *device->kept);
    ls_free(device->host, device->kept);
}

int ls_dnnl_memory(dnnl_memory_t *out, const ls_cpu_device *device, const ls_md *md, void *pointer,
                   const char *op, ls_error *err)
{
    ls_dnnl_own own;
    dnnl_status_t s = dnnl_success;
    ls_dnnl_desc d = open_desc(&own, md, &s);
    if (s == dnnl_success)
        s = dnnl_memory_create(out, d, device->engine, pointer ? pointer : DNNL_MEMORY_NONE);
    ls_dnnl_drop(&own);
    if (s == dnnl_success)
        return LS_OK;
    *out = NULL;
    return ls_dnnl_fail(err, s, "memory_create", op);
}

void ls_dnnl_version(char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

/* oneDNN's names are x86's on every CPU; elsewhere the same numbers stand for others. */
#if defined(__aarch64__)
const char *ls_dnnl_isa(void)
{
    switch ((unsigned)dnnl_get_effective_cpu_isa()) {
    case 0x01: return "asimd";
    case 0x03: return "sve_128";
    case 0x07: return "sve_256";
    case 0x1f: return "sve_512";
    default: return "aarch64";
    }
}
#else
const char *ls_dnnl_isa(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    switch (isa) {
    case dnnl_cpu_isa_sse41: return "sse41";
    case dnnl_cpu_isa_avx: return "avx";
    case dnnl_cpu_isa_avx2: return "avx2";
    case dnnl_cpu_isa_avx2_vnni: return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core: return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni: return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16: return "avx512_core_bf16";
    default: break;
    }
    const char *name = ls_dnnl_isa_name(isa);
    return name ? name : "generic";
}
#endif
